//! Bad input of every kind by every way of writing: each request is answered, none with a failure of the server, and
//! whatever was answered 2xx can be read, listed as a table, patched and deleted, and survives a restart.
//!
//! Objects that the real API server accepted are changed at random. `cargo xtask fuzz` runs this with further seeds.

mod objects;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use super::Api;
use crate::clock::Clock;
use crate::lifecycle::{self, LifecycleOptions};
use crate::resource::{Behaviour, Resource, Verbs};
use crate::server::ServerOptions;
use crate::store::{Store, StoreOptions};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
/// Requests of one seed.
const REQUESTS: usize = 500;
/// The variable that names other seeds: `FIRST..END`.
const OTHER_SEEDS: &str = "FUZZ_SEEDS";
/// Seeds of one run, unless [`OTHER_SEEDS`] names others.
const SEEDS: std::ops::Range<u64> = 0..2;
/// Kinds of which no request of these seeds is accepted: they are asked for refusals alone.
const REFUSED: [&str; 6] = [
    "apiregistration.k8s.io/v1 APIService",
    "authorization.k8s.io/v1 LocalSubjectAccessReview",
    "authorization.k8s.io/v1 SelfSubjectAccessReview",
    "authorization.k8s.io/v1 SubjectAccessReview",
    "certificates.k8s.io/v1 CertificateSigningRequest",
    "v1 Binding",
];
/// A request or a life cycle that takes longer hangs.
const HANGS_AFTER: Duration = Duration::from_mins(2);
/// Writes of the life cycles for each object that is deleted: its dependents' owners, finalizers, conditions.
const WRITES_EACH: u64 = 20;
/// Writes of the life cycles for the objects of an empty cluster.
const WRITES_AT_START: u64 = 200;

/// How an object reaches the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    PostJson,
    PostYaml,
    PostProtobuf,
    Put,
    PutProtobuf,
    MergePatch,
    StrategicPatch,
    JsonPatch,
    Apply,
    PutStatus,
    PatchStatus,
    PutScale,
}

const WAYS: [Way; 12] = [
    Way::PostJson,
    Way::PostYaml,
    Way::PostProtobuf,
    Way::Put,
    Way::PutProtobuf,
    Way::MergePatch,
    Way::StrategicPatch,
    Way::JsonPatch,
    Way::Apply,
    Way::PutStatus,
    Way::PatchStatus,
    Way::PutScale,
];

impl Way {
    /// Whether it changes an object that is there.
    fn changes(self) -> bool {
        !matches!(self, Self::PostJson | Self::PostYaml | Self::PostProtobuf | Self::Apply)
    }

    fn is_protobuf(self) -> bool {
        matches!(self, Self::PostProtobuf | Self::PutProtobuf)
    }

    fn is_possible(self, resource: &Resource) -> bool {
        let is_builtin = matches!(resource.behaviour, Behaviour::Builtin(_));
        match self {
            Self::PostJson | Self::PostYaml => true,
            Self::PostProtobuf => is_builtin,
            _ if matches!(resource.verbs, Verbs::CreateOnly) => false,
            Self::PutProtobuf | Self::StrategicPatch => is_builtin,
            Self::PutStatus | Self::PatchStatus => resource.subresources.status,
            Self::PutScale => resource.subresources.scale.is_some(),
            Self::Put | Self::MergePatch | Self::JsonPatch | Self::Apply => true,
        }
    }
}

struct Request {
    media_type: &'static str,
    method: &'static str,
    path: String,
    body: Vec<u8>,
}

/// An object that was accepted: its collection, and the request that was.
struct Accepted {
    collection: String,
    by: String,
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

/// A name as it stands in a path. Roles may have names of any characters but `/` and `%`.
fn in_path(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
    let written = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(written).collect()
}

fn collection(resource: &Resource) -> String {
    let group = match &*resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    let namespace = if resource.namespaced { "/namespaces/default" } else { "" };
    format!("{group}{namespace}/{}", resource.plural)
}

/// One seed: random requests, then everything that must be possible with what was accepted.
struct Run {
    seed: u64,
    random: StdRng,
    resources: Vec<Arc<Resource>>,
    seeds: BTreeMap<String, Vec<Value>>,
    accepted: BTreeMap<String, Accepted>,
    /// Ways by which something was accepted, and kinds of what was.
    seen: (BTreeSet<String>, BTreeSet<String>),
}

impl Run {
    async fn start(seed: u64, api: &Api) -> Self {
        api.accept("POST", DEFINITIONS, &objects::definition("ducks")).await;
        let resources: Vec<Arc<Resource>> = api.server.registry.current().preferred().cloned().collect();
        let known: Vec<&Resource> = resources.iter().map(|resource| &**resource).collect();
        let seeds = objects::seeds(&known);
        let random = StdRng::seed_from_u64(seed);
        Self { seed, random, resources, seeds, accepted: BTreeMap::new(), seen: Default::default() }
    }

    async fn send_all(&mut self, api: &Api) {
        for number in 0..REQUESTS {
            // Every kind in turn.
            let resource = Arc::clone(&self.resources[number % self.resources.len()]);
            let ways: Vec<Way> = WAYS.into_iter().filter(|way| way.is_possible(&resource)).collect();
            let way = *ways.choose(&mut self.random).expect("some");
            self.send_one(api, &resource, way, number).await;
        }
    }

    async fn send_one(&mut self, api: &Api, resource: &Resource, way: Way, number: usize) {
        let mut object = self.seed_object(resource, number);
        let all = collection(resource);
        if way.changes() {
            let (code, stored) = api.send("POST", &all, &object).await;
            if code >= 300 {
                return;
            }
            object = stored;
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let request = self.request(resource, way, &all, &name, object);
        let text = String::from_utf8_lossy(&request.body).chars().take(1_500).collect::<String>();
        let by = format!("seed {} request {number}: {way:?} {} {}\n{text}", self.seed, request.method, request.path);
        let sent = api.send_bytes(request.media_type, "application/json", request.method, &request.path, request.body);
        let answered = tokio::time::timeout(HANGS_AFTER, sent).await;
        let (code, answer) = answered.unwrap_or_else(|_| panic!("no answer to {by}"));
        let told = String::from_utf8_lossy(&answer);
        assert!(code < 500 || is_as_expected(code, &told), "{code} to {by}\n{told}");
        let is_kept = way.changes() || !matches!(resource.verbs, Verbs::CreateOnly);
        if is_kept && (code < 300 || way.changes()) {
            let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
            let name = if way.changes() { &name } else { answer["metadata"]["name"].as_str().expect("a name") };
            self.accepted.insert(format!("{all}/{}", in_path(name)), Accepted { collection: all, by });
        }
        if code < 300 {
            self.seen.0.insert(format!("{way:?}"));
            self.seen.1.insert(objects::key(resource));
        }
    }

    fn seed_object(&mut self, resource: &Resource, number: usize) -> Value {
        if &*resource.kind == "CustomResourceDefinition" {
            return objects::definition(&format!("x{number}s"));
        }
        let seeds = &self.seeds[&objects::key(resource)];
        let mut object = seeds.choose(&mut self.random).expect("some").clone();
        object["metadata"]["name"] = json!(objects::name(resource, number));
        object
    }

    fn request(&mut self, resource: &Resource, way: Way, all: &str, name: &str, object: Value) -> Request {
        let random = &mut self.random;
        let mut changed = object.clone();
        // A few are sent as they are.
        if !random.random_ratio(1, 8) {
            objects::change(&mut changed, &resource.schema, random);
        }
        let one = format!("{all}/{}", in_path(name));
        let (media_type, method, path) = match way {
            Way::PostJson => ("application/json", "POST", all.to_owned()),
            Way::PostYaml => ("application/yaml", "POST", all.to_owned()),
            Way::PostProtobuf => ("application/vnd.kubernetes.protobuf", "POST", all.to_owned()),
            Way::Put => ("application/json", "PUT", one),
            Way::PutProtobuf => ("application/vnd.kubernetes.protobuf", "PUT", one),
            Way::MergePatch => ("application/merge-patch+json", "PATCH", one),
            Way::StrategicPatch => ("application/strategic-merge-patch+json", "PATCH", one),
            Way::JsonPatch => ("application/json-patch+json", "PATCH", one),
            Way::Apply => ("application/apply-patch+yaml", "PATCH", one + "?fieldManager=m&force=true"),
            Way::PutStatus => ("application/json", "PUT", one + "/status"),
            Way::PatchStatus => ("application/merge-patch+json", "PATCH", one + "/status"),
            Way::PutScale => ("application/json", "PUT", one + "/scale"),
        };
        let mut body = match way {
            _ if way.is_protobuf() => wire::body(&resource.api_version(), &resource.kind, &resource.schema, &changed),
            Way::JsonPatch => objects::json_patch(&object, &resource.schema, random).to_string().into_bytes(),
            Way::PutScale => {
                let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
                    "metadata": {"name": name, "namespace": "default"}, "spec": {"replicas": objects::odd(random)}});
                scale.to_string().into_bytes()
            }
            _ => changed.to_string().into_bytes(),
        };
        if random.random_ratio(1, 10) {
            objects::garble(&mut body, random);
        }
        Request { media_type, method, path, body }
    }

    /// All that was accepted can be read, one by one and together.
    async fn assert_readable(&self, api: &Api, when: &str) {
        let collections: BTreeSet<&String> = self.accepted.values().map(|accepted| &accepted.collection).collect();
        for all in collections {
            for (path, accept) in [
                (all.clone(), "application/json"),
                (all.clone(), TABLE),
                (format!("{all}?includeObject=Object"), TABLE),
                (all.clone(), METADATA),
            ] {
                let names = || self.accepted.keys().filter(|one| one.starts_with(all)).collect::<Vec<_>>();
                let (code, body) = api.send_bytes("", accept, "GET", &path, Vec::new()).await;
                let answer: Result<Value, _> = serde_json::from_slice(&body);
                assert!(
                    code == 200 && answer.is_ok(),
                    "{when}: {code} {answer:?} to {path} as {accept}: {:?}",
                    names()
                );
            }
        }
        for (one, accepted) in &self.accepted {
            for accept in ["application/json", "application/yaml", TABLE] {
                let (code, body) = api.send_bytes("", accept, "GET", one, Vec::new()).await;
                let is_read = accept == "application/yaml" || serde_json::from_slice::<Value>(&body).is_ok();
                let body = String::from_utf8_lossy(&body);
                assert!(code == 200 && is_read, "{when}: {code} to {one} as {accept}: {body}\nafter {}", accepted.by);
            }
        }
    }

    async fn assert_changeable(&self, api: &Api) {
        for (one, accepted) in &self.accepted {
            let (code, answer) = api.send("PATCH", one, &json!({"metadata": {"labels": {"a": "b"}}})).await;
            assert_eq!(code, 200, "{answer}\nto a label of {one}\nafter {}", accepted.by);
            let patch = json!([{"op": "add", "path": "/metadata/labels/c", "value": "d"}]);
            let (code, answer) = api.send_as("application/json-patch+json", "PATCH", one, &patch).await;
            assert_eq!(code, 200, "{answer}\nto a JSON patch of {one}\nafter {}", accepted.by);
            let (code, answer) = api.send("PATCH", one, &json!({"metadata": {"finalizers": null}})).await;
            assert_eq!(code, 200, "{answer}\nto finalizers of {one}\nafter {}", accepted.by);
        }
    }

    /// Everything can be deleted while the life cycles run, which neither hang nor write on and on.
    async fn assert_deletable(&self, api: &Api) {
        let before = api.server.store.revision();
        let cycles = tokio::spawn(lifecycle::run(Arc::clone(&api.server), LifecycleOptions { controllers: true }));
        for (one, accepted) in &self.accepted {
            let (code, answer) = api.send("DELETE", one, &json!({"gracePeriodSeconds": 0})).await;
            // Life cycles delete, too.
            assert!(matches!(code, 200 | 202 | 404), "{code} {answer}\nto DELETE of {one}\nafter {}", accepted.by);
        }
        for (one, accepted) in &self.accepted {
            let gone = tokio::time::timeout(HANGS_AFTER, until_gone(api, one)).await;
            assert!(gone.is_ok(), "{one} stays\nafter {}", accepted.by);
        }
        assert!(!cycles.is_finished(), "the life cycles ended");
        let writes = api.server.store.revision() - before;
        let most = WRITES_AT_START + WRITES_EACH * self.accepted.len() as u64;
        assert!(writes <= most, "{writes} writes for {} objects", self.accepted.len());
        api.server.shut_down();
        cycles.await.unwrap();
    }
}

/// What the real server says with 500, too: fields that apply does not know, items of a list without its merge key, words
/// that a strategic merge patch does not know.
const FAILURES_OF_THE_REAL_SERVER: [&str; 3] =
    ["failed to create typed patch object", "does not contain declared merge key", "unknown patch type"];

/// Failures that are meant. What is deliberately absent is answered with 501.
fn is_as_expected(code: u16, answer: &str) -> bool {
    code == 501 || code == 500 && FAILURES_OF_THE_REAL_SERVER.iter().any(|known| answer.contains(known))
}

/// Waits until the life cycles have removed an object; takes away what other controllers would.
async fn until_gone(api: &Api, one: &str) {
    let mut changes = api.server.store.subscribe_all();
    loop {
        changes.borrow_and_update();
        let (code, object) = api.send("GET", one, &Value::Null).await;
        if code == 404 {
            return;
        }
        if object["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|all| all.iter().any(|name| name != "foregroundDeletion"))
            && !one.starts_with(DEFINITIONS)
        {
            api.send("PATCH", one, &json!({"metadata": {"finalizers": null}})).await;
            continue;
        }
        let finalizers = object["spec"]["finalizers"].as_array();
        if object["kind"] == "Namespace" && finalizers.is_some_and(|all| all.iter().any(|name| name != "kubernetes")) {
            let mut ended = object.clone();
            ended["spec"]["finalizers"] = json!([]);
            api.send("PUT", &format!("{one}/finalize"), &ended).await;
            continue;
        }
        changes.changed().await.unwrap();
    }
}

fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var(OTHER_SEEDS) else { return SEEDS };
    let (first, end) = text.split_once("..").expect("FUZZ_SEEDS is FIRST..END");
    first.parse().unwrap()..end.parse().unwrap()
}

#[tokio::test]
async fn fuzz_bad_input_of_every_kind() {
    let (mut ways, mut kinds, mut served) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for seed in seeds() {
        let directory = tempfile::tempdir().unwrap();
        let api = open(directory.path()).await;
        let mut run = Run::start(seed, &api).await;
        served.extend(run.resources.iter().map(|resource| objects::key(resource)));
        run.send_all(&api).await;
        run.assert_readable(&api, "before a restart").await;
        let api = restarted(api, directory.path()).await;
        run.assert_readable(&api, "after a restart").await;
        run.assert_changeable(&api).await;
        let api = restarted(api, directory.path()).await;
        run.assert_deletable(&api).await;
        restarted(api, directory.path()).await;
        ways.append(&mut run.seen.0);
        kinds.append(&mut run.seen.1);
    }
    if std::env::var_os(OTHER_SEEDS).is_some() {
        return;
    }
    // The test asks something: every way was used, and objects of nearly every kind were accepted.
    assert_eq!(ways.len(), WAYS.len(), "{ways:?}");
    let missing: Vec<&String> = served.difference(&kinds).filter(|kind| !REFUSED.contains(&kind.as_str())).collect();
    assert!(missing.is_empty(), "nothing was accepted of {missing:?}");
}
