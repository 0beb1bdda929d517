//! The questions, asked of this server.

use std::sync::Arc;

use kube::Client;

use super::questions::{differences, questions, set};
use crate::auth::Identity;
use crate::clock::Clock;
use crate::lifecycle::{self, LifecycleOptions};
use crate::server::{Server, ServerOptions};
use crate::store::Store;

/// This server with its controllers, and an administrator's client.
pub(super) async fn embedded() -> (Arc<Server>, Client) {
    let clock = Clock::virtual_from("2026-11-18T12:00:00Z".parse().unwrap());
    let server: Arc<Server> = Server::new(Store::in_memory(clock), clock, ServerOptions::default()).unwrap();
    crate::bootstrap(&server, 6443).await.unwrap();
    tokio::spawn(lifecycle::run(server.clone(), LifecycleOptions { controllers: true }));
    let client = Client::new(server.service_for(Identity::administrator("tester")), "default");
    (server, client)
}

#[tokio::test(start_paused = true)]
async fn questions_are_answered_as_recorded() {
    let (_server, client) = embedded().await;
    set(&client).await;
    assert!(questions().len() >= 200);
    let differences = differences(&client).await;
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}
