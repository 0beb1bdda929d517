//! Long lists and long validations leave the threads that answer other requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tower_service::Service as _;

use super::Api;
use crate::auth::Identity;
use crate::long_work::test_gate::GATE;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DUCKS: &str = "/apis/pond.example/v1/namespaces/default/ducks";

/// Sends a request whose long work waits until `/readyz` was answered on the same single worker thread. Gives the
/// status code, and how many pieces of long work there were.
async fn send_gated(api: &Api, method: &str, path: &str, accept: &str, body: Vec<u8>) -> (u16, usize) {
    let (started, mut wait) = tokio::sync::mpsc::unbounded_channel();
    let (answered, ready) = std::sync::mpsc::channel();
    let ready = parking_lot::Mutex::new(ready);
    let pieces = Arc::new(AtomicUsize::new(0));
    let counted = pieces.clone();
    let gate = Arc::new(move || {
        if counted.fetch_add(1, Ordering::SeqCst) == 0 {
            started.send(()).unwrap();
            // A deadline for a test that fails, not one that passes.
            ready.lock().recv_timeout(Duration::from_secs(60)).expect("/readyz is answered meanwhile");
        }
    });
    let server = api.server.clone();
    let prober = tokio::spawn(async move {
        if wait.recv().await.is_none() {
            return;
        }
        let request = Request::get("/readyz").body(Full::<bytes::Bytes>::default()).unwrap();
        let response = server.service().call(request).await.unwrap();
        assert_eq!(response.status(), 200);
        answered.send(()).unwrap();
    });
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("accept", accept)
        .header("content-type", "application/json")
        .body(Full::from(body))
        .unwrap();
    let mut service = api.server.service_for(Identity::administrator("tester"));
    let gated = GATE.scope(gate, async move { service.call(request).await.unwrap() });
    let response = tokio::spawn(gated).await.unwrap();
    let code = response.status().as_u16();
    drop(response.into_body().collect().await);
    prober.await.unwrap();
    (code, pieces.load(Ordering::SeqCst))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn lists_that_are_rendered_leave_the_worker_threads() {
    let api = Api::start().await;
    for number in 0..4 {
        let data = json!({"metadata": {"name": format!("m{number}")}, "data": {"x": "x".repeat(50_000)}});
        api.accept("POST", MAPS, &data).await;
    }
    for accept in [
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        "application/yaml",
    ] {
        let (code, pieces) = send_gated(&api, "GET", MAPS, accept, Vec::new()).await;
        assert_eq!((code, pieces), (200, 1), "{accept}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn writes_of_large_objects_and_rules_leave_the_worker_threads() {
    let api = Api::start().await;
    let rule = json!({"rule": "self.a.size() < 10"});
    let spec = json!({"type": "object", "properties": {"a": {"type": "string", "maxLength": 20}},
        "x-kubernetes-validations": [rule]});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "ducks.pond.example"},
        "spec": {
            "group": "pond.example", "scope": "Namespaced",
            "names": {"plural": "ducks", "singular": "duck", "kind": "Duck", "listKind": "DuckList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}],
        },
    });
    api.accept("POST", DEFINITIONS, &definition).await;
    let duck = |name: &str| {
        json!({"apiVersion": "pond.example/v1", "kind": "Duck", "metadata": {"name": name}, "spec": {"a": "x"}})
            .to_string()
            .into_bytes()
    };
    let (code, pieces) = send_gated(&api, "POST", DUCKS, "application/json", duck("d")).await;
    assert_eq!(code, 201);
    assert!(pieces > 0, "rules may take long whatever the size of the object");
    let map =
        |size: usize| json!({"metadata": {"name": "m"}, "data": {"x": "x".repeat(size)}}).to_string().into_bytes();
    let (code, pieces) = send_gated(&api, "POST", MAPS, "application/json", map(100_000)).await;
    assert_eq!(code, 201);
    assert!(pieces > 0);
    let (code, pieces) = send_gated(&api, "PUT", &format!("{MAPS}/m"), "application/json", map(100_001)).await;
    assert_eq!(code, 200);
    assert!(pieces > 0);
    let small = json!({"metadata": {"name": "small"}}).to_string().into_bytes();
    assert_eq!(send_gated(&api, "POST", MAPS, "application/json", small).await, (201, 0), "small ones stay");
    let _: Value = api.get(DUCKS).await;
}
