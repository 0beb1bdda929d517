//! Whatever was answered with 2xx can be read, listed as a table, patched, deleted, and survives a restart.

use std::fmt::Write as _;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use super::Api;
use crate::clock::Clock;
use crate::server::ServerOptions;
use crate::store::{MAX_OBJECT_DEPTH, Store, StoreOptions};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";
const DUCKS: &str = "/apis/pond.example/v1/namespaces/default/ducks";

/// JSON so many levels deep: an object around objects or lists.
fn nested(levels: usize, list: bool) -> String {
    let (open, close) = if list { ("[", "]") } else { ("{\"a\":", "}") };
    format!("{{\"a\":{}1{}}}", open.repeat(levels - 1), close.repeat(levels - 1))
}

/// A field of a protobuf message that has a length.
fn field(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut out = varint(u64::from(number << 3 | 2));
    out.extend(varint(bytes.len() as u64));
    out.extend(bytes);
    out
}

fn number(field: u32, value: u64) -> Vec<u8> {
    [varint(u64::from(field << 3)), varint(value)].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

fn protobuf(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &meta), field(2, raw)].concat()
}

/// A ControllerRevision whose `data` is this JSON.
fn controller_revision(data: &str) -> Vec<u8> {
    let raw = [field(1, &field(1, b"deep")), field(2, &field(1, data.as_bytes())), number(3, 1)].concat();
    protobuf("apps/v1", "ControllerRevision", &raw)
}

/// A CRD whose schema has this JSON as its `example`.
fn definition_with_example(example: &str) -> Vec<u8> {
    let schema = [field(5, b"object"), field(36, &field(1, example.as_bytes()))].concat();
    let version = [field(1, b"v1"), number(2, 1), number(3, 1), field(4, &field(1, &schema))].concat();
    let names = [field(1, b"deeps"), field(2, b"deep"), field(4, b"Deep"), field(5, b"DeepList")].concat();
    let spec = [field(1, b"pond.example"), field(3, &names), field(4, b"Namespaced"), field(7, &version)].concat();
    let raw = [field(1, &field(1, b"deeps.pond.example")), field(2, &spec)].concat();
    protobuf("apiextensions.k8s.io/v1", "CustomResourceDefinition", &raw)
}

fn ducks() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let column = json!({"name": "A", "type": "string", "jsonPath": ".spec.a"});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "ducks.pond.example"},
        "spec": {
            "group": "pond.example", "scope": "Namespaced",
            "names": {"plural": "ducks", "singular": "duck", "kind": "Duck", "listKind": "DuckList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": schema,
                "subresources": {"status": {}}, "additionalPrinterColumns": [column],
            }],
        },
    })
}

async fn open(directory: &Path) -> Api {
    let store = Store::open(directory, StoreOptions::default(), Clock::System).unwrap();
    Api::with(store, Clock::System, ServerOptions::default()).await
}

async fn restarted(api: Api, directory: &Path) -> Api {
    api.server.shut_down();
    api.server.store.close().await;
    drop(api);
    open(directory).await
}

/// Everything that must be possible with an object that was accepted.
async fn assert_usable(api: Api, directory: &Path, collection: &str, name: &str) -> Api {
    let one = format!("{collection}/{name}");
    assert_readable(&api, collection, &one, "before a restart").await;
    let api = restarted(api, directory).await;
    assert_readable(&api, collection, &one, "after a restart").await;
    api.accept("PATCH", &one, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    let patch = json!([{"op": "add", "path": "/metadata/labels/c", "value": "d"}]);
    let (code, answer) = api.send_as("application/json-patch+json", "PATCH", &one, &patch).await;
    assert_eq!(code, 200, "{answer}");
    api.accept("PATCH", &one, &json!({"metadata": {"finalizers": null}})).await;
    let api = restarted(api, directory).await;
    let (code, answer) = api.send("DELETE", &one, &Value::Null).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(api.send("GET", &one, &Value::Null).await.0, 404);
    restarted(api, directory).await
}

async fn assert_readable(api: &Api, collection: &str, one: &str, when: &str) {
    for (path, accept) in [
        (one, "application/json"),
        (one, "application/yaml"),
        (one, TABLE),
        (collection, "application/json"),
        (collection, TABLE),
        (&format!("{collection}?includeObject=Object"), TABLE),
        (collection, METADATA),
    ] {
        let (code, body) = api.send_bytes("", accept, "GET", path, Vec::new()).await;
        assert_eq!(code, 200, "{when} {path} as {accept}: {}", String::from_utf8_lossy(&body));
        if accept != "application/yaml" {
            let answer: Result<Value, _> = serde_json::from_slice(&body);
            assert!(answer.is_ok(), "{when} {path} as {accept}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn a_definition_with_a_deep_example_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let api = open(directory.path()).await;
    let one = format!("{DEFINITIONS}/deeps.pond.example");
    let body = definition_with_example(&nested(122, true));
    let (code, answer) = api.send_bytes(PROTOBUF, "application/json", "POST", DEFINITIONS, body).await;
    let answer = String::from_utf8_lossy(&answer);
    assert_eq!(code, 400, "{answer}");
    assert!(answer.contains("exceeded max depth of 120"), "{answer}");
    let api = restarted(api, directory.path()).await;
    assert_eq!(api.send("GET", &one, &Value::Null).await.0, 404);

    let body = definition_with_example(&nested(110, true));
    let (code, answer) = api.send_bytes(PROTOBUF, "application/json", "POST", DEFINITIONS, body).await;
    assert_eq!(code, 201, "{}", String::from_utf8_lossy(&answer));
    assert_usable(api, directory.path(), DEFINITIONS, "deeps.pond.example").await;
}

#[tokio::test]
async fn a_controller_revision_with_deep_data_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let api = open(directory.path()).await;
    for levels in [MAX_OBJECT_DEPTH, 127] {
        let body = controller_revision(&nested(levels, false));
        let (code, _) = api.send_bytes(PROTOBUF, "application/json", "POST", REVISIONS, body).await;
        assert_eq!(code, 400, "{levels}");
    }
    let body = controller_revision(&nested(MAX_OBJECT_DEPTH - 1, false));
    let (code, answer) = api.send_bytes(PROTOBUF, "application/json", "POST", REVISIONS, body).await;
    assert_eq!(code, 201, "{}", String::from_utf8_lossy(&answer));
    assert_usable(api, directory.path(), REVISIONS, "deep").await;
}

#[tokio::test]
async fn an_object_that_grows_too_large_is_refused() {
    let api = Api::start().await;
    api.accept("POST", DEFINITIONS, &ducks()).await;
    let duck = json!({"apiVersion": "pond.example/v1", "kind": "Duck", "metadata": {"name": "d"},
        "spec": {"a": "x".repeat(2 << 20)}});
    api.accept("POST", DUCKS, &duck).await;
    let (code, message) =
        api.refuse("PATCH", &format!("{DUCKS}/d?dryRun=All"), &json!({"spec": {"b": "x".repeat(2 << 20)}})).await;
    assert_eq!(code, 413, "{message}");
    let (code, message) =
        api.refuse("PATCH", &format!("{DUCKS}/d"), &json!({"spec": {"b": "x".repeat(2 << 20)}})).await;
    assert_eq!(code, 413, "{message}");
    assert!(message.starts_with("Request entity too large: the object as stored has "), "{message}");
    api.accept("PATCH", &format!("{DUCKS}/d"), &json!({"spec": {"b": "x"}})).await;
}

/// How something nested gets into the store.
#[derive(Debug, Clone, Copy)]
enum Way {
    Json,
    Yaml,
    Protobuf,
    Put,
    MergePatch,
    JsonPatch,
    Apply,
    Status,
}

const WAYS: [Way; 8] =
    [Way::Json, Way::Yaml, Way::Protobuf, Way::Put, Way::MergePatch, Way::JsonPatch, Way::Apply, Way::Status];

/// Sends something nested; gives the code, the collection and the name.
async fn send(api: &Api, way: Way, levels: usize, list: bool) -> (u16, &'static str, &'static str) {
    let text = nested(levels, list);
    let one = format!("{DUCKS}/d");
    let meta = "\"apiVersion\":\"pond.example/v1\",\"kind\":\"Duck\"";
    let mut body = format!("{{{meta},\"metadata\":{{\"name\":\"d\"}},\"spec\":{text}}}");
    let created = !matches!(way, Way::Json | Way::Yaml | Way::Protobuf | Way::Apply);
    if created {
        let duck = json!({"apiVersion": "pond.example/v1", "kind": "Duck", "metadata": {"name": "d"}});
        let duck = api.accept("POST", DUCKS, &duck).await;
        let version = duck["metadata"]["resourceVersion"].as_str().unwrap();
        let metadata = format!("{{\"name\":\"d\",\"resourceVersion\":\"{version}\"}}");
        let part = if matches!(way, Way::Status) { "status" } else { "spec" };
        body = format!("{{{meta},\"metadata\":{metadata},\"{part}\":{text}}}");
    }
    let (media_type, method, path) = match way {
        Way::Json => ("application/json", "POST", DUCKS.to_owned()),
        Way::Yaml => {
            body = String::from("apiVersion: pond.example/v1\nkind: Duck\nmetadata: {name: d}\n");
            writeln!(body, "spec: {text}").unwrap();
            ("application/yaml", "POST", DUCKS.to_owned())
        }
        Way::Protobuf => {
            let body = controller_revision(&text);
            let (code, _) = api.send_bytes(PROTOBUF, "application/json", "POST", REVISIONS, body).await;
            return (code, REVISIONS, "deep");
        }
        Way::Put => ("application/json", "PUT", one),
        Way::Status => ("application/json", "PUT", one + "/status"),
        Way::MergePatch => {
            body = format!("{{\"spec\":{text}}}");
            ("application/merge-patch+json", "PATCH", one)
        }
        Way::JsonPatch => {
            // Half of it at once, the other half inside of the first.
            let (half, rest) = (levels / 2, levels - levels / 2);
            let inner = "/a".repeat(half);
            body = format!(
                "[{{\"op\":\"add\",\"path\":\"/spec\",\"value\":{}}},\
                  {{\"op\":\"add\",\"path\":\"/spec{inner}\",\"value\":{}}}]",
                nested(half, false),
                nested(rest, list),
            );
            ("application/json-patch+json", "PATCH", one)
        }
        Way::Apply => ("application/apply-patch+yaml", "PATCH", one + "?fieldManager=m&force=true"),
    };
    let (code, _) = api.send_bytes(media_type, "application/json", method, &path, body.into_bytes()).await;
    (code, DUCKS, "d")
}

#[test]
fn what_was_accepted_can_be_used() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let strategy = (proptest::sample::select(&WAYS[..]), 90..132_usize, any::<bool>());
    let mut accepted = 0;
    let mut refused = 0;
    let check = |way: Way, levels: usize, list: bool| {
        runtime.block_on(async {
            let directory = tempfile::tempdir().unwrap();
            let api = open(directory.path()).await;
            api.accept("POST", DEFINITIONS, &ducks()).await;
            let (code, collection, name) = send(&api, way, levels, list).await;
            assert!(matches!(code, 200 | 201 | 400 | 422), "{way:?} {levels} {list}: {code}");
            if code < 300 {
                assert_usable(api, directory.path(), collection, name).await;
            }
            code < 300
        })
    };
    for way in WAYS {
        for list in [false, true] {
            // The object itself is one level.
            accepted += usize::from(check(way, MAX_OBJECT_DEPTH - 1, list));
            refused += usize::from(!check(way, MAX_OBJECT_DEPTH, list));
        }
    }
    assert_eq!((accepted, refused), (2 * WAYS.len(), 2 * WAYS.len()), "the limit is the same on every way in");
    let config = Config { cases: 24, ..Config::default() };
    TestRunner::new_with_rng(config, proptest::test_runner::TestRng::deterministic_rng(Default::default()))
        .run(&strategy, |(way, levels, list)| {
            prop_assert_eq!(check(way, levels, list), levels < MAX_OBJECT_DEPTH);
            Ok(())
        })
        .unwrap();
}
