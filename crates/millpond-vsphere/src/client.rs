//! Calls under a session that renews itself.
//!
//! vCenter locks an account after a few failed logins, so the client never logs in twice at a time, waits longer after
//! each refusal, and limits how often it renews a session that does not last ([`LoginGate`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::reference::Reference;
use crate::settings::Settings;
use crate::soap;
use crate::transport::{Https, Request, Transport};
use crate::xml::Element;

pub use crate::tls::TlsError;

/// How long ordinary calls may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Waiting times after the first, second … refused login. Four attempts take 160 s: vCenter locks an account after
/// five refusals within 180 s by default.
const AFTER_REFUSAL: [Duration; 4] =
    [Duration::from_secs(10), Duration::from_secs(30), Duration::from_secs(120), Duration::from_secs(600)];
/// A session that has to be renewed more often than this within [`RENEWAL_WINDOW`] is not renewed silently any more.
const RENEWALS: usize = 4;
/// The time over which logins are counted.
const RENEWAL_WINDOW: Duration = Duration::from_secs(300);
/// The version of the API that every supported vCenter speaks.
const FIRST_ACTION: &str = "urn:vim25/6.5";

/// The used part of the result of RetrieveServiceContent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceContent {
    /// The version of the API: `8.0.2.0`.
    pub api_version: String,
    /// Product and build, for people.
    pub full_name: String,
    /// Identifier of this vCenter.
    pub instance_uuid: String,
    pub(crate) root_folder: Reference,
    pub(crate) property_collector: Reference,
    pub(crate) session_manager: Reference,
    pub(crate) view_manager: Option<Reference>,
    pub(crate) scheduled_task_manager: Option<Reference>,
}

/// A session with vCenter.
#[derive(Debug)]
pub(crate) struct Session {
    cookie: Option<String>,
    pub(crate) content: ServiceContent,
    number: u64,
}

/// A client of one vCenter.
pub struct Client {
    transport: RwLock<Arc<dyn Transport>>,
    user: String,
    password: SecretString,
    session: RwLock<Option<Arc<Session>>>,
    gate: tokio::sync::Mutex<LoginGate>,
}

impl Client {
    /// A client with these settings. It connects and logs in with the first call.
    pub fn new(settings: &Settings) -> Result<Self, TlsError> {
        let transport = Arc::new(Https::new(settings)?);
        Ok(Self::over(transport, &settings.user, settings.password.clone()))
    }

    /// A client over another carrier.
    pub fn over(transport: Arc<dyn Transport>, user: &str, password: SecretString) -> Self {
        let (session, gate) = (RwLock::default(), tokio::sync::Mutex::default());
        Self { transport: RwLock::new(transport), user: user.to_owned(), password, session, gate }
    }

    /// Reads again which certificates are trusted: a file of CA certificates can change. What is known of logins stays.
    pub(crate) fn trust_anew(&self, settings: &Settings) -> Result<(), TlsError> {
        *self.transport.write() = Arc::new(Https::new(settings)?);
        Ok(())
    }

    fn transport(&self) -> Arc<dyn Transport> {
        Arc::clone(&self.transport.read())
    }

    /// The service content of vCenter. Logs in if there is no session.
    pub async fn content(&self) -> Result<ServiceContent> {
        Ok(self.session().await?.content.clone())
    }

    /// How often this client has tried to log in.
    pub async fn logins(&self) -> u64 {
        self.gate.lock().await.attempts
    }

    /// Calls a method under the session; logs in again, once, if the session has expired. What belonged to the old
    /// session (views, collectors) is gone then, and calls on it fail with [`Error::ends_session`].
    pub(crate) async fn call(&self, method: &'static str, this: &Reference, arguments: &str) -> Result<Element> {
        self.call_within(method, this, arguments, CALL_TIMEOUT).await
    }

    pub(crate) async fn call_within(
        &self,
        method: &'static str,
        this: &Reference,
        arguments: &str,
        timeout: Duration,
    ) -> Result<Element> {
        let session = self.session().await?;
        match self.send(method, this, arguments, Some(&session), timeout).await {
            Err(Error::SessionEnded) => {
                self.forget(session.number);
                let renewed = self.session().await?;
                self.send(method, this, arguments, Some(&renewed), timeout).await
            }
            outcome => outcome,
        }
    }

    /// The current session, or a new one. A call that arrives while another one logs in waits for that one.
    pub(crate) async fn session(&self) -> Result<Arc<Session>> {
        if let Some(session) = self.session.read().clone() {
            return Ok(session);
        }
        let mut gate = self.gate.lock().await;
        if let Some(session) = self.session.read().clone() {
            return Ok(session);
        }
        gate.check(Instant::now())?;
        // Needs no session, so an unreachable vCenter costs no login.
        let content = self.service_content().await?;
        let session = Arc::new(self.login(content, &mut gate).await?);
        *self.session.write() = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Ends the session on the server. Sessions that are left open count against the server's limit until they expire.
    pub async fn logout(&self) {
        let Some(session) = self.session.write().take() else { return };
        let this = &session.content.session_manager;
        if let Err(error) = self.send("Logout", this, "", Some(&session), CALL_TIMEOUT).await {
            tracing::debug!(error = error.chain(), "logout failed");
        }
    }

    /// Forgets a session that has ended, unless a newer one took its place.
    fn forget(&self, number: u64) {
        let mut session = self.session.write();
        if session.as_ref().is_some_and(|session| session.number == number) {
            *session = None;
        }
    }

    async fn service_content(&self) -> Result<ServiceContent> {
        const METHOD: &str = "RetrieveServiceContent";
        let this = Reference::new("ServiceInstance", "ServiceInstance");
        let answer = self.send(METHOD, &this, "", None, CALL_TIMEOUT).await?;
        let missing = |name: &str| Error::Malformed { method: METHOD, problem: format!("no `{name}`") };
        let content = answer.child("returnval").ok_or_else(|| missing("returnval"))?;
        let optional = |name: &str| content.child(name).and_then(Element::reference);
        let reference = |name: &str| optional(name).ok_or_else(|| missing(name));
        let about = |name: &str| {
            content.child("about").and_then(|about| about.text_of(name)).map(str::to_owned).unwrap_or_default()
        };
        Ok(ServiceContent {
            api_version: about("apiVersion"),
            full_name: about("fullName"),
            instance_uuid: about("instanceUuid"),
            root_folder: reference("rootFolder")?,
            property_collector: reference("propertyCollector")?,
            session_manager: reference("sessionManager")?,
            view_manager: optional("viewManager"),
            scheduled_task_manager: optional("scheduledTaskManager"),
        })
    }

    async fn login(&self, content: ServiceContent, gate: &mut LoginGate) -> Result<Session> {
        gate.attempt(Instant::now());
        let arguments =
            soap::element("userName", &self.user) + &soap::element("password", self.password.expose_secret());
        let body = soap::request("Login", &content.session_manager, &arguments);
        // Without a cookie: a server that still knows the old session refuses a second login in it.
        let request = self.request("Login", &content.api_version, body, None, CALL_TIMEOUT);
        let answer = self.transport().send(request).await?;
        match soap::read("Login", &answer) {
            Ok(_) => {
                gate.succeeded();
                tracing::debug!(user = self.user, "logged in to vCenter");
                Ok(Session { cookie: answer.cookie, content, number: gate.attempts })
            }
            Err(Error::Fault { kind, message, .. }) if refuses_account(&kind) => {
                gate.refused(Instant::now());
                Err(Error::Login { user: self.user.clone(), message })
            }
            Err(error @ Error::Permission { .. }) => {
                gate.refused(Instant::now());
                Err(Error::Login { user: self.user.clone(), message: error.to_string() })
            }
            Err(error) => Err(error),
        }
    }

    async fn send(
        &self,
        method: &'static str,
        this: &Reference,
        arguments: &str,
        session: Option<&Session>,
        timeout: Duration,
    ) -> Result<Element> {
        let version = session.map_or("", |session| &session.content.api_version);
        let cookie = session.and_then(|session| session.cookie.clone());
        let body = soap::request(method, this, arguments);
        let answer = self.transport().send(self.request(method, version, body, cookie, timeout)).await?;
        soap::read(method, &answer)
    }

    fn request(
        &self,
        method: &'static str,
        version: &str,
        body: String,
        cookie: Option<String>,
        timeout: Duration,
    ) -> Request {
        let action = if version.is_empty() { FIRST_ACTION.to_owned() } else { format!("urn:vim25/{version}") };
        Request { method, action, body, cookie, timeout }
    }
}

fn refuses_account(fault: &str) -> bool {
    matches!(fault, "InvalidLogin" | "PasswordExpired" | "NoPermission" | "InvalidLocale")
}

/// Decides when a login may be sent.
#[derive(Debug, Default)]
pub(crate) struct LoginGate {
    /// Number of attempts of this client.
    attempts: u64,
    /// Refusals since the last success.
    refusals: usize,
    /// The earliest time of the next login after a refusal.
    not_before: Option<Instant>,
    /// Attempts within the window, oldest first.
    recent: VecDeque<Instant>,
}

impl LoginGate {
    fn check(&mut self, now: Instant) -> Result<()> {
        while self.recent.front().is_some_and(|at| *at + RENEWAL_WINDOW <= now) {
            self.recent.pop_front();
        }
        if let Some(until) = self.not_before.filter(|until| *until > now) {
            return Err(held_back(until - now, "vCenter refused the last login"));
        }
        match self.recent.front() {
            Some(oldest) if self.recent.len() >= RENEWALS => {
                Err(held_back(*oldest + RENEWAL_WINDOW - now, "sessions do not last"))
            }
            _ => Ok(()),
        }
    }

    fn attempt(&mut self, now: Instant) {
        self.attempts += 1;
        self.recent.push_back(now);
    }

    fn succeeded(&mut self) {
        self.refusals = 0;
        self.not_before = None;
    }

    fn refused(&mut self, now: Instant) {
        let wait = AFTER_REFUSAL[self.refusals.min(AFTER_REFUSAL.len() - 1)];
        self.not_before = Some(now + wait);
        self.refusals += 1;
    }
}

fn held_back(wait: Duration, cause: &str) -> Error {
    // Rounded up, so that a caller that waits this many whole seconds may log in.
    Error::LoginHeldBack { seconds: wait.as_secs() + u64::from(wait.subsec_nanos() > 0), cause: cause.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn refused_logins_wait_longer_each_time() {
        let mut gate = LoginGate::default();
        let mut waits = Vec::new();
        for _ in 0..5 {
            let now = Instant::now();
            gate.attempt(now);
            gate.refused(now);
            let Err(Error::LoginHeldBack { seconds, .. }) = gate.check(now) else { panic!("not held back") };
            waits.push(seconds);
            tokio::time::advance(Duration::from_secs(seconds)).await;
        }
        assert_eq!(waits, [10, 30, 120, 600, 600]);
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_that_do_not_last_are_not_renewed_forever() {
        let mut gate = LoginGate::default();
        for _ in 0..RENEWALS {
            gate.check(Instant::now()).unwrap();
            gate.attempt(Instant::now());
            gate.succeeded();
        }
        assert!(matches!(gate.check(Instant::now()), Err(Error::LoginHeldBack { .. })));
        tokio::time::advance(RENEWAL_WINDOW).await;
        gate.check(Instant::now()).unwrap();
    }
}
