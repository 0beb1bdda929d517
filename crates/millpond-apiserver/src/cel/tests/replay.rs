//! The recordings, replayed on this API server.

use kube::Client;

use super::recording::{KARPENTER, RULES, cases, differences};
use crate::auth::Identity;
use crate::clock::Clock;
use crate::server::{Server, ServerOptions};
use crate::store::Store;

async fn embedded() -> Client {
    let clock = Clock::System;
    let server = Server::new(Store::in_memory(clock), clock, ServerOptions::default()).unwrap();
    crate::bootstrap(&server, 6443).await.unwrap();
    Client::new(server.service_for(Identity::administrator("tester")), "default")
}

async fn check(recording: &str) {
    let client = embedded().await;
    let mut all = Vec::new();
    for (number, case) in cases(recording).iter().enumerate() {
        all.extend(differences(&client, case, number).await);
    }
    assert!(all.is_empty(), "{} differences:\n{}", all.len(), all.join("\n"));
}

#[tokio::test]
async fn rules_are_answered_as_recorded() {
    check(RULES).await;
}

#[tokio::test]
async fn the_rules_of_karpenter_are_answered_as_recorded() {
    check(KARPENTER).await;
}
