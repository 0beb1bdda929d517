//! One-time codes and sessions, in memory, as hashes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::time::Instant;

use crate::User;
use crate::rights::Rights;

/// A code is good for this long.
pub(crate) const CODE_LIVES: Duration = Duration::from_mins(10);
/// A session ends after this, whatever it does.
pub(crate) const SESSION_LIVES: Duration = Duration::from_hours(12);
/// A session that makes no request ends after this.
pub(crate) const IDLE: Duration = Duration::from_hours(1);
/// Codes and sessions at a time; the oldest go first.
const MOST: usize = 1_000;

type Hash = [u8; 32];

/// A session.
pub(crate) struct Session {
    pub(crate) user: User,
    pub(crate) begun: Instant,
    used: Mutex<Instant>,
    ended: Mutex<bool>,
    /// What the user may do, as asked lately.
    pub(crate) rights: tokio::sync::Mutex<Option<(Instant, Arc<Rights>)>>,
    /// One what-if at a time.
    pub(crate) thinking: tokio::sync::Mutex<()>,
}

impl Session {
    /// Whether it has not ended.
    pub(crate) fn lives(&self) -> bool {
        !*self.ended.lock() && self.begun.elapsed() < SESSION_LIVES && self.used.lock().elapsed() < IDLE
    }

    /// A page that listens uses its session.
    pub(crate) fn touch(&self) {
        *self.used.lock() = Instant::now();
    }
}

#[derive(Default)]
pub(crate) struct Sessions {
    codes: Mutex<HashMap<Hash, (Instant, User)>>,
    sessions: Mutex<HashMap<Hash, Arc<Session>>>,
}

impl Sessions {
    /// Makes a code.
    pub(crate) fn mint(&self, user: User) -> String {
        let (code, hash) = secret();
        let mut codes = self.codes.lock();
        codes.retain(|_, (made, _)| made.elapsed() < CODE_LIVES);
        drop_oldest(&mut codes, |(made, _)| *made);
        codes.insert(hash, (Instant::now(), user));
        code
    }

    /// The user of a code, which is used up.
    pub(crate) fn redeem(&self, code: &str) -> Option<User> {
        let (made, user) = self.codes.lock().remove(&hash(code))?;
        (made.elapsed() < CODE_LIVES).then_some(user)
    }

    /// Begins a session; gives its secret.
    pub(crate) fn begin(&self, user: User) -> String {
        let (id, hash) = secret();
        let mut sessions = self.sessions.lock();
        sessions.retain(|_, session| session.lives());
        drop_oldest(&mut sessions, |session| session.begun);
        let now = Instant::now();
        let session = Session {
            user,
            begun: now,
            used: Mutex::new(now),
            ended: Mutex::new(false),
            rights: tokio::sync::Mutex::default(),
            thinking: tokio::sync::Mutex::default(),
        };
        sessions.insert(hash, Arc::new(session));
        id
    }

    /// The session of a secret.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Session>> {
        let session = self.sessions.lock().get(&hash(id)).cloned().filter(|session| session.lives())?;
        session.touch();
        Some(session)
    }

    /// Ends a session, and the streams that it has.
    pub(crate) fn end(&self, id: &str) {
        if let Some(session) = self.sessions.lock().remove(&hash(id)) {
            *session.ended.lock() = true;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.lock().values().filter(|session| session.lives()).count()
    }
}

fn drop_oldest<V>(all: &mut HashMap<Hash, V>, made: impl Fn(&V) -> Instant) {
    if all.len() >= MOST
        && let Some(oldest) = all.iter().min_by_key(|(_, value)| made(value)).map(|(hash, _)| *hash)
    {
        all.remove(&oldest);
    }
}

fn hash(text: &str) -> Hash {
    let mut bytes = Hash::default();
    bytes.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    bytes
}

/// 256 random bits as a text, and their hash.
fn secret() -> (String, Hash) {
    let mut bytes = Hash::default();
    SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
    let text = URL_SAFE_NO_PAD.encode(bytes);
    let hash = hash(&text);
    (text, hash)
}
