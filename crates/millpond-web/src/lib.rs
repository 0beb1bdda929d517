//! The dashboard: a tower service with pages, a JSON API and live events, for any cluster that Millpond can see.
//!
//! ```text
//!  browser ──▶ Dashboard ─┬─ assets: files as they are in the tree
//!                         ├─ guard: Host, Origin, headers        session: one-time code or token ─▶ User
//!                         ├─ api: view models (millpond-view) ◀── hub: one state for all viewers ◀── Watched
//!                         ├─ stream: deltas of the hub, with resume
//!                         └─ what-if, actions ──▶ the API server, as the User
//! ```
//!
//! Every request is made as its user: the hub's state is shown to those who may list nodes, pods and pools in the whole
//! cluster, and writes go through the user's own client. There are no cookies. While no page is open, nothing is computed.

mod actions;
mod api;
mod assets;
mod decisions;
mod guard;
mod hub;
mod respond;
mod rights;
mod serve;
mod session;
mod stream;
mod what_if;

use std::sync::Arc;

use futures::future::BoxFuture;
use kube::Client;
use millpond_plan::model::Snapshot;
use millpond_runtime::history::History;
use serde_json::Value;
use tokio::sync::watch;

pub use respond::Body;
pub use serve::serve;

use hub::Hub;
use session::Sessions;

/// Who uses the dashboard.
#[derive(Clone)]
pub struct User {
    /// The name that the API server knows.
    pub name: String,
    /// The groups.
    pub groups: Vec<String>,
    /// A client that acts as this user.
    pub client: Client,
}

impl std::fmt::Debug for User {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The cluster that is shown.
pub trait Watched: Send + Sync + 'static {
    /// All that is known; an error says why nothing is known yet.
    fn snapshot(&self) -> Result<Snapshot, String>;
    /// A number that rises with every change; none while nothing is known.
    fn changes(&self) -> Option<watch::Receiver<u64>>;
    /// What made a pod, such as `Deployment/web`.
    fn owner(&self, namespace: &str, pod: &str) -> Option<String>;
    /// What was decided.
    fn history(&self) -> History;
    /// The user of a Kubernetes bearer token; none if it is not valid.
    fn authenticate(&self, token: String) -> BoxFuture<'static, Option<User>>;
    /// All objects that plans depend on, read as a user.
    fn read(&self, client: Client) -> BoxFuture<'static, Result<Vec<Value>, kube::Error>>;
    /// How objects become a snapshot.
    fn snapshot_options(&self) -> millpond_state::Options;
}

/// What the controllers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// They act.
    Acting,
    /// They give advice only.
    Advice,
}

/// Settings of the dashboard.
#[derive(Debug, Clone)]
pub struct Options {
    /// What the controllers do.
    pub mode: Mode,
    /// Nothing can be changed through the dashboard.
    pub read_only: bool,
    /// The name of the cluster.
    pub cluster: String,
    /// The version of Kubernetes.
    pub kubernetes: String,
    /// What `Host` may say: names with the port.
    pub hosts: Vec<String>,
    /// The address of the page, without a path.
    pub url: String,
    /// The time at the start, in seconds since 1970; the time after it follows the runtime's clock.
    pub started_at: i64,
}

/// The dashboard; copies share it.
#[derive(Clone)]
pub struct Dashboard(Arc<Shared>);

struct Shared {
    options: Options,
    watched: Arc<dyn Watched>,
    sessions: Sessions,
    hub: Arc<Hub>,
    what_ifs: what_if::WhatIfs,
    begun: tokio::time::Instant,
}

impl std::fmt::Debug for Dashboard {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Dashboard").field("options", &self.0.options).finish_non_exhaustive()
    }
}

impl Dashboard {
    /// A dashboard for this cluster.
    pub fn new(watched: Arc<dyn Watched>, options: Options) -> Self {
        let hub = Arc::new(Hub::new(Arc::clone(&watched)));
        Self(Arc::new(Shared {
            options,
            watched,
            sessions: Sessions::default(),
            hub,
            what_ifs: what_if::WhatIfs::default(),
            begun: tokio::time::Instant::now(),
        }))
    }

    /// The address of the page with a code that logs this user in, once, within ten minutes.
    pub fn address_for(&self, user: User) -> String {
        format!("{}/#code={}", self.0.options.url, self.0.sessions.mint(user))
    }

    fn now(&self) -> i64 {
        self.0.options.started_at + i64::try_from(self.0.begun.elapsed().as_secs()).unwrap_or(0)
    }
}
