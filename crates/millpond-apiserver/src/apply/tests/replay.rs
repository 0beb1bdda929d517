//! The recordings, replayed on this API server.

use kube::Client;

use super::recording::{BUILTIN, CUSTOM, differences};
use crate::auth::Identity;
use crate::clock::Clock;
use crate::server::{Server, ServerOptions};
use crate::store::Store;

pub(super) async fn embedded() -> Client {
    let clock = Clock::System;
    let server = Server::new(Store::in_memory(clock), clock, ServerOptions::default()).unwrap();
    crate::bootstrap(&server, 6443).await.unwrap();
    Client::new(server.service_for(Identity::administrator("tester")), "default")
}

#[tokio::test]
async fn builtin_kinds_answer_as_recorded() {
    let differences = differences(&embedded().await, BUILTIN).await;
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

#[tokio::test]
async fn custom_resources_answer_as_recorded() {
    let differences = differences(&embedded().await, CUSTOM).await;
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}
