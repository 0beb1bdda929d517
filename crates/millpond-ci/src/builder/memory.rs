//! A store in memory for tests. The end of a session releases its locks, as the end of a process does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::future::{BoxFuture, ready};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::store::{BuildRecords, Held, ImageRecords, ImageStore, LockKey, Records, StoreError, UploadKey, Write};

/// Now, in seconds since 1970.
type Now = Arc<dyn Fn() -> f64 + Send + Sync>;

/// The records that several sessions share.
#[derive(Clone)]
pub struct Memory {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: watch::Sender<u64>,
    now: Now,
    next_session: AtomicU64,
}

#[derive(Default)]
struct State {
    records: Records,
    locks: BTreeMap<LockKey, u64>,
    builds: u64,
    uploads: BTreeMap<(String, String, String), u64>,
}

/// The connection of one process.
pub struct Session {
    shared: Arc<Shared>,
    id: u64,
    is_alive: Arc<AtomicBool>,
}

impl Memory {
    /// An empty store.
    pub fn new(now: Now) -> Self {
        let shared =
            Shared { state: Mutex::default(), changed: watch::Sender::new(0), now, next_session: AtomicU64::new(1) };
        Self { shared: Arc::new(shared) }
    }

    /// Connects.
    pub fn session(&self) -> Arc<Session> {
        let id = self.shared.next_session.fetch_add(1, Ordering::Relaxed);
        Arc::new(Session { shared: Arc::clone(&self.shared), id, is_alive: Arc::new(AtomicBool::new(true)) })
    }

    /// The content of the store.
    pub fn records(&self) -> Records {
        let state = self.shared.state.lock();
        let mut records = state.records.clone();
        for key in state.locks.keys() {
            if let LockKey::Image(image) = key {
                records.entry(image.clone()).or_default().locked = true;
            }
        }
        records
    }
}

impl Session {
    /// Ends the session as the death of its process does: its locks are free, and it can write no more.
    pub fn expire(&self) {
        self.is_alive.store(false, Ordering::SeqCst);
        self.shared.state.lock().locks.retain(|_, session| *session != self.id);
        self.shared.changed.send_modify(|count| *count += 1);
    }

    fn alive(&self) -> Result<(), StoreError> {
        if self.is_alive.load(Ordering::SeqCst) {
            Ok(())
        } else {
            Err(StoreError::Disconnected("the session is over".to_owned()))
        }
    }
}

impl ImageStore for Session {
    fn read(&self) -> BoxFuture<'_, Result<Records, StoreError>> {
        let memory = Memory { shared: Arc::clone(&self.shared) };
        Box::pin(ready(self.alive().map(|()| memory.records())))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changed.subscribe()
    }

    fn lock<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<Box<dyn Held>>, StoreError>> {
        let take = || {
            self.alive()?;
            let mut state = self.shared.state.lock();
            if state.locks.contains_key(key) {
                return Ok(None);
            }
            state.locks.insert(key.clone(), self.id);
            let held = HeldInMemory {
                shared: Arc::clone(&self.shared),
                session: self.id,
                is_alive: Arc::clone(&self.is_alive),
                key: key.clone(),
            };
            Ok(Some(Box::new(held) as Box<dyn Held>))
        };
        Box::pin(ready(take()))
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<String, StoreError>> {
        let result = self.alive().and_then(|()| {
            let now = (self.shared.now)();
            self.shared.state.lock().write(write, now)
        });
        self.shared.changed.send_modify(|count| *count += 1);
        Box::pin(ready(result))
    }
}

impl State {
    fn write(&mut self, write: Write, now: f64) -> Result<String, StoreError> {
        match write {
            Write::CreateBuild { image, record } => {
                self.builds += 1;
                let id = format!("{:032x}", self.builds);
                self.image(&image).builds.insert(id.clone(), BuildRecords::new(record));
                return Ok(id);
            }
            Write::Build { image, id, record, message } => {
                let build = self.build(&image, &id)?;
                (build.record, build.message) = (record, message);
            }
            Write::RemoveBuild { image, id } => {
                if let Ok(build) = self.build(&image, &id) {
                    if build.all_uploads().next().is_some() {
                        return Err(StoreError::Conflict(format!("{image}-{id}")));
                    }
                    self.image(&image).builds.remove(&id);
                }
            }
            Write::CreateUpload { image, build, provider, record } => {
                let count = self.uploads.entry((image.clone(), build.clone(), provider.clone())).or_default();
                *count += 1;
                let id = format!("{count:010}");
                self.build(&image, &build)?.uploads.entry(provider).or_default().insert(id.clone(), record);
                return Ok(id);
            }
            Write::Upload { key, record, .. } => {
                let uploads = self.build(&key.image, &key.build)?.uploads.get_mut(&key.provider);
                let stored = uploads.and_then(|uploads| uploads.get_mut(&key.id));
                *stored.ok_or_else(|| StoreError::Conflict(key.to_string()))? = record;
            }
            Write::ImportBuild { image, id, record } => {
                let uploads = self.build(&image, &id).map(|build| build.uploads.clone()).unwrap_or_default();
                let build = BuildRecords { uploads, ..BuildRecords::new(record) };
                self.image(&image).builds.insert(id, build);
            }
            Write::ImportUpload { key, record } => {
                let number: u64 = key.id.parse().unwrap_or_default();
                let count = (key.image.clone(), key.build.clone(), key.provider.clone());
                let count = self.uploads.entry(count).or_default();
                *count = number.max(*count);
                self.build(&key.image, &key.build)?.uploads.entry(key.provider).or_default().insert(key.id, record);
            }
            Write::RemoveUpload(key) => self.remove_upload(&key),
            Write::Pause { image, paused } => self.image(&image).paused = paused,
            Write::RequestBuild { image } => {
                self.image(&image).request = Some(now);
            }
            Write::ClearRequest { image } => self.image(&image).request = None,
        }
        Ok(String::new())
    }

    fn image(&mut self, image: &str) -> &mut ImageRecords {
        self.records.entry(image.to_owned()).or_default()
    }

    fn build(&mut self, image: &str, id: &str) -> Result<&mut BuildRecords, StoreError> {
        let build = self.records.get_mut(image).and_then(|image| image.builds.get_mut(id));
        build.ok_or_else(|| StoreError::Conflict(format!("{image}-{id}")))
    }

    fn remove_upload(&mut self, key: &UploadKey) {
        let Ok(build) = self.build(&key.image, &key.build) else { return };
        if let Some(uploads) = build.uploads.get_mut(&key.provider) {
            uploads.remove(&key.id);
        }
    }
}

struct HeldInMemory {
    shared: Arc<Shared>,
    session: u64,
    is_alive: Arc<AtomicBool>,
    key: LockKey,
}

impl std::fmt::Debug for HeldInMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.key)
    }
}

impl Held for HeldInMemory {
    fn is_held(&self) -> bool {
        self.is_alive.load(Ordering::SeqCst)
    }

    fn release(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(ready(()))
    }
}

impl Drop for HeldInMemory {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        if state.locks.get(&self.key) == Some(&self.session) {
            state.locks.remove(&self.key);
        }
        drop(state);
        self.shared.changed.send_modify(|count| *count += 1);
    }
}
