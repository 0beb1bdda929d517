//! A store that holds an object which cannot be read: the server starts, and everything else works.

use std::path::Path;

use serde_json::json;

use super::Api;
use crate::clock::Clock;
use crate::server::ServerOptions;
use crate::store::log::{self, Log, Options, Record, RecordKind};
use crate::store::{Store, StoreOptions};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Writes objects as an older version might have: one ConfigMap and one CRD that nest too deep.
fn write_unreadable(directory: &Path) {
    let (mut log, recovered) = Log::open(directory, Options::new(0, [7; 16])).unwrap();
    let deep = format!("{}1{}", "[".repeat(127), "]".repeat(127));
    let record = |number: u64, resource: &str, key: &str| Record {
        revision: recovered.revision + number,
        kind: RecordKind::Put,
        time_unix_ms: 0,
        resource: resource.into(),
        key: key.into(),
        object: format!("{{\"metadata\":{{\"name\":\"x\"}},\"spec\":{deep}}}").into_bytes().into(),
    };
    let definitions = "customresourcedefinitions.apiextensions.k8s.io";
    log.append(&[record(1, "configmaps", "default/deep"), record(2, definitions, "deeps.pond.example")]).unwrap();
    log.close().unwrap();
}

async fn open(directory: &Path, compaction_growth_bytes: Option<u64>) -> Api {
    let store = Store::open(directory, StoreOptions { compaction_growth_bytes }, Clock::System).unwrap();
    Api::with(store, Clock::System, ServerOptions::default()).await
}

async fn close(api: Api) {
    api.server.shut_down();
    api.server.store.close().await;
}

fn named(directory: &Path) -> Vec<String> {
    let report = log::check(&directory.join(log::FILE_NAME)).unwrap();
    assert_eq!(report.problems, []);
    report.unreadable.into_iter().map(|object| format!("{} {}", object.resource, object.key)).collect()
}

#[tokio::test]
async fn an_unreadable_object_is_set_aside_until_it_is_deleted() {
    let directory = tempfile::tempdir().unwrap();
    close(open(directory.path(), None).await).await;
    write_unreadable(directory.path());
    let all = ["configmaps default/deep", "customresourcedefinitions.apiextensions.k8s.io deeps.pond.example"];
    assert_eq!(named(directory.path()), all);

    let api = open(directory.path(), None).await;
    let (code, message) = api.refuse("GET", &format!("{MAPS}/deep"), &json!(null)).await;
    assert_eq!(code, 500);
    assert!(message.contains("configmaps \"deep\" was written at resource version"), "{message}");
    assert!(message.contains("recursion limit exceeded"), "{message}");
    let list = api.get(MAPS).await;
    assert!(list["items"].as_array().unwrap().iter().all(|map| map["metadata"]["name"] != "deep"), "{list}");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "deep"}});
    assert_eq!(api.send("POST", MAPS, &map).await.0, 409, "its name is taken");
    api.accept("POST", MAPS, &json!({"metadata": {"name": "other"}})).await;
    close(api).await;
    assert_eq!(named(directory.path()), all, "they are kept");

    let api = open(directory.path(), None).await;
    api.accept("DELETE", &format!("{MAPS}/deep"), &json!(null)).await;
    assert_eq!(api.send("GET", &format!("{MAPS}/deep"), &json!(null)).await.0, 404);
    api.accept("POST", MAPS, &map).await;
    api.accept("DELETE", &format!("{DEFINITIONS}/deeps.pond.example"), &json!(null)).await;
    close(api).await;
    assert!(named(directory.path()).is_empty());
    let api = open(directory.path(), None).await;
    api.get(&format!("{MAPS}/deep")).await;
    close(api).await;
}

#[tokio::test]
async fn a_compaction_keeps_what_cannot_be_read() {
    let directory = tempfile::tempdir().unwrap();
    close(open(directory.path(), None).await).await;
    write_unreadable(directory.path());
    let generation = || log::check(&directory.path().join(log::FILE_NAME)).unwrap().generation;
    let before = generation();
    let api = open(directory.path(), Some(1)).await;
    api.accept("POST", MAPS, &json!({"metadata": {"name": "m"}})).await;
    let mut changes = 0;
    while generation() == before {
        // History is kept, too; without it little is.
        api.server.store.forget_history();
        let data = json!({"data": {"x": format!("{changes}{}", "x".repeat(10_000))}});
        api.accept("PATCH", &format!("{MAPS}/m"), &data).await;
        changes += 1;
        assert!(changes < 10_000, "the store is compacted in the end");
    }
    close(api).await;
    assert_eq!(named(directory.path()).len(), 2);
}
