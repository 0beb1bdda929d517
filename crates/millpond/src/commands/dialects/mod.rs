//! Controllers of the dialects that are crates of their own. They run while this process leads.
//!
//! One module per dialect: what the command line says about it, and a function that starts its controllers.

use kube::Client;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What the command line says about the dialects.
#[derive(Debug, Clone, Default)]
pub(crate) struct DialectOptions {}

/// Starts the controllers of every dialect for one term of leadership; they end with the token.
pub(crate) fn start(_client: &Client, _options: &DialectOptions, _term: &CancellationToken) -> TaskTracker {
    let tasks = TaskTracker::new();
    tasks.close();
    tasks
}
