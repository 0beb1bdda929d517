//! Limits on requests: which users are refused when others take all capacity, and which are not.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use http::Request;
use http_body::Frame;
use http_body_util::{Empty, StreamBody};
use serde_json::json;
use tower_service::Service as _;

use super::Api;
use crate::auth::Identity;
use crate::clock::Clock;
use crate::server::{Server, ServerOptions};
use crate::store::Store;

const TOKEN: &str = "0123456789abcdef";

async fn api(max_in_flight: usize) -> Api {
    let options = ServerOptions { max_in_flight, ..ServerOptions::default() };
    let api = Api::with(Store::in_memory(Clock::System), Clock::System, options).await;
    api.server.tokens().add(TOKEN.to_owned(), Identity::administrator("outside")).unwrap();
    api
}

async fn get(server: &Arc<Server>, path: &str) -> u16 {
    let request = Request::get(path).header("authorization", format!("Bearer {TOKEN}"));
    let response = server.service().call(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
    response.status().as_u16()
}

/// A POST whose body never comes to its end.
fn unfinished(server: &Arc<Server>) -> impl Future<Output = u16> {
    let start = futures::stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"{")))]);
    let body = StreamBody::new(futures::StreamExt::chain(start, futures::stream::pending()));
    let request = Request::post("/api/v1/namespaces/default/configmaps")
        .header("authorization", format!("Bearer {TOKEN}"))
        .header("content-type", "application/json");
    let answer = server.service().call(request.body(body).unwrap());
    async move { answer.await.unwrap().status().as_u16() }
}

#[tokio::test(start_paused = true)]
async fn unfinished_bodies_block_no_others() {
    let api = api(2).await;
    let mut posts: Vec<_> = (0..1024).map(|_| Box::pin(unfinished(&api.server))).collect();
    assert!(posts.iter_mut().all(|post| post.as_mut().now_or_never().is_none()), "all wait for their bodies");
    assert_eq!(get(&api.server, "/readyz").await, 200);
    assert_eq!(get(&api.server, "/api/v1/namespaces").await, 200);
    assert_eq!(unfinished(&api.server).await, 429, "one user has a bounded number of them");
    api.get("/api/v1/namespaces").await;
    assert_eq!(posts.pop().unwrap().await, 408, "and each ends");
}

#[tokio::test]
async fn outside_clients_leave_room_for_health_and_for_clients_inside() {
    let api = api(1).await;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}});
    api.accept("POST", "/api/v1/namespaces/default/resourcequotas", &quota).await;
    // A client that creates a pod waits for its turn at the quota.
    let turn = api.server.quota_turn.lock().await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let request = Request::post("/api/v1/namespaces/default/pods")
        .header("authorization", format!("Bearer {TOKEN}"))
        .header("content-type", "application/json")
        .body(http_body_util::Full::new(Bytes::from(pod.to_string())))
        .unwrap();
    let mut create = api.server.service().call(request);
    assert!(create.as_mut().now_or_never().is_none(), "it is in flight");
    assert_eq!(get(&api.server, "/api/v1/namespaces").await, 429);
    assert_eq!(get(&api.server, "/version").await, 429);
    for path in ["/readyz", "/livez", "/healthz"] {
        assert_eq!(get(&api.server, path).await, 200, "{path}");
    }
    api.get("/api/v1/namespaces").await;
    drop(turn);
    create.await.unwrap();
    assert_eq!(get(&api.server, "/api/v1/namespaces").await, 200);
}

#[tokio::test]
async fn readiness_waits_for_its_gates() {
    let options = ServerOptions { readiness_gates: vec!["kinds".to_owned()], ..ServerOptions::default() };
    let api = Api::with(Store::in_memory(Clock::System), Clock::System, options).await;
    assert_eq!(get(&api.server, "/readyz").await, 500);
    assert_eq!(get(&api.server, "/livez").await, 200, "it lives all the same");
    api.server.pass_readiness_gate("kinds");
    assert_eq!(get(&api.server, "/readyz").await, 200);
}
