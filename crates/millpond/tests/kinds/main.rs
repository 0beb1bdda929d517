//! The kinds that Millpond scales by: their definitions on an API server, what it takes and what it refuses.
//!
//! Every check is a function of a server. The embedded one runs it in process; the real one, in tests named `real_…`,
//! is the oracle for the same table.

#![expect(clippy::unwrap_used, reason = "what a test needs and does not get ends it")]

mod accepted;
mod converted;
mod refused;
mod server;

use server::{ApiServer, embedded};

#[tokio::test]
async fn definitions_are_taken_without_warnings() {
    embedded().await.install().await;
}

#[tokio::test]
async fn pools_in_karpenters_form_apply_unchanged() {
    let server = embedded().await;
    server.install().await;
    accepted::check(&server).await;
}

#[tokio::test]
async fn what_conversions_write_applies_unchanged() {
    let server = embedded().await;
    server.install().await;
    converted::check(&server).await;
}

#[tokio::test]
async fn what_cannot_be_is_refused_where_it_stands() {
    let server = embedded().await;
    server.install().await;
    refused::check(&server).await;
}

#[tokio::test]
#[ignore = "needs the real cluster"]
async fn real_server_takes_and_refuses_the_same() {
    let cluster = millpond_testkit::RealCluster::builder().start().expect("the real server starts");
    let real = ApiServer::new(cluster.client().await.expect("a client"));
    real.install().await;
    accepted::check(&real).await;
    converted::check(&real).await;
    let of_real = refused::check(&real).await;
    let server = embedded().await;
    server.install().await;
    let of_embedded = refused::check(&server).await;
    for (one, other) in of_real.iter().zip(&of_embedded) {
        assert_eq!(one, other, "left: the real server; right: the embedded one");
    }
}
