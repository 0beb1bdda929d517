//! Watches and lists that ask for what is not there.

use futures::StreamExt as _;
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

use super::Api;
use crate::clock::Clock;
use crate::server::ServerOptions;
use crate::store::Store;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The first event of a watch.
async fn first_event(api: &Api, query: &str) -> Value {
    let uri = format!("{MAPS}?watch=1&{query}");
    let response = api.client.send(Request::get(uri).body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    let piece = response.into_body().into_data_stream().next().await.unwrap().unwrap();
    let line = piece.split(|byte| *byte == b'\n').next().unwrap();
    serde_json::from_slice(line).unwrap()
}

#[tokio::test]
async fn the_longest_timeout_is_taken() {
    let api = Api::start().await;
    api.accept("POST", MAPS, &json!({"metadata": {"name": "m"}})).await;
    for seconds in [i64::MAX, i64::MAX / 1000, 0, -1, i64::MIN] {
        let event = first_event(&api, &format!("timeoutSeconds={seconds}&fieldSelector=metadata.name%3Dm")).await;
        assert_eq!(event["type"], "ADDED", "{seconds}");
    }
    let (code, _) = api.send("GET", &format!("{MAPS}?watch=1&timeoutSeconds=9223372036854775808"), &json!(null)).await;
    assert_eq!(code, 400);
}

#[tokio::test]
async fn a_revision_in_the_future_makes_clients_list_anew() {
    let api = Api::start().await;
    let current = api.server.store.revision();
    let future = current + 1000;
    let event = first_event(&api, &format!("resourceVersion={future}")).await;
    assert_eq!(event["type"], "ERROR");
    let status = &event["object"];
    assert_eq!((&status["code"], &status["reason"]), (&json!(410), &json!("Expired")));
    assert_eq!(status["message"], format!("Too large resource version: {future}, current: {current}"));

    let initial = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    for query in [format!("resourceVersion={future}"), format!("{initial}&resourceVersion={future}")] {
        let (code, status) = api.send("GET", &format!("{MAPS}?{query}"), &json!(null)).await;
        assert_eq!((code, &status["reason"]), (504, &json!("Timeout")), "{query}");
        assert_eq!(status["message"], format!("Too large resource version: {future}, current: {current}"));
        assert_eq!(status["details"]["retryAfterSeconds"], 1);
        assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    }
    // The current revision is not the future.
    let (code, _) = api.send("GET", &format!("{MAPS}?resourceVersion={current}"), &json!(null)).await;
    assert_eq!(code, 200);
}

#[tokio::test]
async fn a_page_of_another_store_has_expired() {
    let start = |revision| async move {
        let store = Store::in_memory_from(revision, Clock::System);
        let api = Api::with(store, Clock::System, ServerOptions::default()).await;
        for name in ["a", "b", "c"] {
            api.accept("POST", MAPS, &json!({"metadata": {"name": name}})).await;
        }
        api
    };
    let before = start(1_000_000).await;
    let page = before.get(&format!("{MAPS}?limit=1")).await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    let last = page["metadata"]["resourceVersion"].as_str().unwrap();
    for revision in [0, 2_000_000] {
        let after = start(revision).await;
        let (code, status) = after.send("GET", &format!("{MAPS}?limit=1&continue={token}"), &json!(null)).await;
        assert_eq!((code, &status["reason"]), (410, &json!("Expired")), "{revision}");
        let event = first_event(&after, &format!("resourceVersion={last}")).await;
        assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)), "{revision}");
    }
}
