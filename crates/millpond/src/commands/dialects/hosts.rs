//! Own hosts: ByoHosts and the machines on them.

use kube::Client;
use millpond_hosts::run;
use millpond_hosts::stock::Options;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Starts the controllers of own hosts.
pub(super) fn start(client: &Client, options: &Options, term: &CancellationToken) -> TaskTracker {
    run::start(client, options, term)
}
