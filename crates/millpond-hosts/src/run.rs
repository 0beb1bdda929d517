//! Starting the controllers of own hosts.

use kube::Client;
use millpond_runtime::worker;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::hosts::Hosts;
use crate::{access, approval};
use crate::stock::{Options, Stock};

/// Starts all controllers; they end with the token.
pub fn start(client: &Client, options: &Options, token: &CancellationToken) -> TaskTracker {
    let tasks = TaskTracker::new();
    let (stock, events) = Stock::new(client, options);
    tasks.spawn(events.run(token.clone()));
    let concurrency = options.concurrency;
    // Controllers listen before the watches begin, so that they miss nothing.
    let (hosts, of_hosts) = Hosts::new(&stock);
    tasks.spawn(approval::run(&stock, token.clone()));
    tasks.spawn(access::run(&stock, token.clone()));
    stock.watch(&tasks, token);
    let (shared, stop) = (stock.clone(), token.clone());
    tasks.spawn(async move {
        tokio::select! {
            () = stop.cancelled() => return,
            () = shared.wait_until_hosts_ready() => {}
        }
        worker::run(hosts, of_hosts, concurrency, stop).await;
    });
    tasks.close();
    tasks
}
