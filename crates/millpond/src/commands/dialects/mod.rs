//! Controllers of the dialects that are crates of their own. They run while this process leads.
//!
//! One module per dialect: what the command line says about it, and a function that starts its controllers.

mod hosts;

use kube::Client;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What the command line says about the dialects.
#[derive(Debug, Clone, Default)]
pub(crate) struct DialectOptions {
    /// Own hosts.
    pub(crate) hosts: millpond_hosts::stock::Options,
}

/// Starts the controllers of every dialect for one term of leadership; they end with the token.
pub(crate) fn start(client: &Client, options: &DialectOptions, term: &CancellationToken) -> TaskTracker {
    let tasks = TaskTracker::new();
    let hosts = hosts::start(client, &options.hosts, term);
    tasks.spawn(async move { hosts.wait().await });
    tasks.close();
    tasks
}
