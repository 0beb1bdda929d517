//! The same questions to the real API server.

use kube::Client;
use millpond_testkit::RealCluster;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::laws::config;
use super::recording::{BUILTIN, CUSTOM, Versions, differences, normal, send, until};
use super::replay::embedded;
use super::schema::thing_json;

const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";

/// Sequences of random writes, each to an object of its own.
const SEQUENCES: u32 = 60;

#[tokio::test]
#[ignore = "needs the real cluster"]
async fn real_answers_are_as_recorded() {
    let cluster = RealCluster::builder().start().unwrap();
    let client = cluster.client().await.unwrap();
    let mut all = differences(&client, BUILTIN).await;
    all.extend(differences(&client, CUSTOM).await);
    assert!(all.is_empty(), "{} differences:\n{}", all.len(), all.join("\n"));
}

#[tokio::test]
#[ignore = "needs the real cluster"]
async fn real_random_writes_end_the_same() {
    let cluster = RealCluster::builder().start().unwrap();
    let clients = [cluster.client().await.unwrap(), embedded().await];
    let definition = json!({"method": "POST", "type": "application/json", "path": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "body": {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"}, "versions": [
            {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": thing_json()}},
        ]},
    }});
    for client in &clients {
        assert_eq!(send(client, &definition).await.0, 201);
        until(client, &json!({"method": "GET", "path": THINGS, "code": 200})).await;
    }
    let mut runner = TestRunner::deterministic();
    let mut all = Vec::new();
    for number in 0..SEQUENCES {
        let things = vec(write(THINGS, config().boxed()), 2..8);
        let deployments = vec(write("/apis/apps/v1/namespaces/default/deployments", deployment().boxed()), 2..8);
        for (kind, steps) in [("t", things.boxed()), ("d", deployments.boxed())] {
            let steps = steps.new_tree(&mut runner).unwrap().current();
            all.extend(disagreement(&clients, &steps, &format!("{kind}{number}")).await);
        }
    }
    assert!(all.is_empty(), "{} sequences differ:\n{}", all.len(), all.join("\n"));
}

/// The first step of a sequence whose answers differ, with those before it.
async fn disagreement(clients: &[Client; 2], steps: &[Value], name: &str) -> Option<String> {
    let mut versions = [Versions::new(), Versions::new()];
    let mut told = Vec::new();
    for step in steps {
        let step: Value = serde_json::from_str(&step.to_string().replace("NAME", name)).unwrap();
        let mut answers = Vec::new();
        for (client, versions) in clients.iter().zip(&mut versions) {
            let (code, body) = send(client, &step).await;
            let mut answer = normal(code, &body, Some("all"), versions);
            // Of several errors, Go's maps decide which comes first; the causes are compared in order.
            if code == 422 {
                answer["message"].take();
            }
            answers.push(answer);
        }
        told.push(format!("  {} {} {}", step["method"], step["path"], step["body"]));
        if answers[0] != answers[1] {
            told.push(format!("  real     {}\n  embedded {}", answers[0], answers[1]));
            return Some(format!("{name}:\n{}", told.join("\n")));
        }
    }
    None
}

/// A write to the object NAME: mostly an apply, by one of three managers.
fn write(collection: &'static str, config: BoxedStrategy<Value>) -> impl Strategy<Value = Value> {
    let manager = prop::sample::select(vec!["one", "two", "three"]);
    let step = |method: &str, path: String, media_type: &str, agent: &str, body: Value| json!({"method": method, "path": path, "type": media_type, "agent": agent, "body": body});
    (config, manager, any::<bool>(), 0..6).prop_map(move |(mut config, manager, force, form)| {
        config["metadata"]["name"] = json!("NAME");
        let path = format!("{collection}/NAME?fieldManager={manager}");
        match form {
            0 => step("PATCH", path, "application/merge-patch+json", manager, json!({"spec": config["spec"]})),
            1 => step(
                "PATCH",
                path,
                "application/json-patch+json",
                manager,
                json!([{"op": "replace", "path": "/spec", "value": config["spec"]}]),
            ),
            _ => step("PATCH", format!("{path}&force={force}"), "application/apply-patch+yaml", manager, config),
        }
    })
}

/// Deployments that are valid, or nearly so.
fn deployment() -> impl Strategy<Value = Value> {
    let name = || prop::sample::select(vec!["a", "b", "c"]);
    let variable = (name(), name()).prop_map(|(name, value)| json!({"name": name, "value": value}));
    let port = (80..83, proptest::option::of(prop::sample::select(vec!["TCP", "UDP"]))).prop_map(|(port, protocol)| {
        let mut json = json!({"containerPort": port});
        if let Some(protocol) = protocol {
            json["protocol"] = json!(protocol);
        }
        json
    });
    let container = (name(), name(), vec(variable, 0..3), vec(port, 0..3), proptest::option::of(vec(name(), 0..2)));
    let container = container.prop_map(|(name, image, env, ports, command)| {
        let mut container = json!({"name": name, "image": image});
        for (field, key, items) in [("env", vec!["name"], env), ("ports", vec!["containerPort", "protocol"], ports)] {
            if !items.is_empty() {
                container[field] = distinct(items, &key);
            }
        }
        if let Some(command) = command {
            container["command"] = json!(command);
        }
        container
    });
    let optional = (proptest::option::of(0..3), proptest::option::of(0..3), proptest::option::of(any::<bool>()));
    let labels = proptest::option::of(btree_map(name(), name(), 0..3));
    (vec(container, 1..4), optional, labels.clone(), labels).prop_map(|(containers, optional, selector, labels)| {
        let (replicas, seconds, paused) = optional;
        let mut deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {},
            "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": distinct(containers, &["name"])}}},
        });
        for (path, value) in [
            ("/spec/replicas", json!(replicas)),
            ("/spec/minReadySeconds", json!(seconds)),
            ("/spec/paused", json!(paused)),
            ("/spec/template/spec/nodeSelector", json!(selector)),
            ("/metadata/labels", json!(labels)),
        ] {
            let (parent, key) = path.rsplit_once('/').unwrap();
            if !value.is_null() {
                deployment.pointer_mut(parent).unwrap()[key] = value;
            }
        }
        deployment
    })
}

fn distinct(items: Vec<Value>, keys: &[&str]) -> Value {
    let key = |item: &Value| keys.iter().map(|key| item.get(*key).cloned().unwrap_or(json!("TCP"))).collect::<Vec<_>>();
    let mut kept: Vec<Value> = Vec::new();
    for item in items {
        if kept.iter().all(|other| key(other) != key(&item)) {
            kept.push(item);
        }
    }
    Value::Array(kept)
}
