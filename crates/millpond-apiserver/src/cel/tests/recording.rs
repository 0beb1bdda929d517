//! Rules, and what kube-apiserver 1.36 said to them.
//!
//! A case is the schema of `spec.it` of a kind of its own, with rules (`rules` stand at the root), and steps: writes
//! of objects. `refused` are the causes with which the definition is refused, `answer` those of a step; where
//! neither stands, the write succeeds. `{"$repeat": [x, n]}` stands for a text or list of n times x.
//!
//! Types of whole objects have random numbers in their names on the real server; these are left out.

use std::sync::LazyLock;
use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use regex::Regex;
use serde_json::{Map, Value, json};

pub(super) const RULES: &str = include_str!("recorded/rules.json");
pub(super) const KARPENTER: &str = include_str!("recorded/karpenter.json");

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Old definitions stay in use for a while on the real server.
const MAX_TRIES: usize = 400;

pub(super) fn cases(recording: &str) -> Vec<Value> {
    serde_json::from_str(recording).unwrap()
}

/// Plays one case; the steps that are answered otherwise than recorded, as a text for people.
pub(super) async fn differences(client: &Client, case: &Value, number: usize) -> Vec<String> {
    let mut play = Play { client, case, kind: Kind::new(case, number), objects: 0, differences: Vec::new() };
    play.run().await;
    play.differences
}

/// How the kind of a case is called.
struct Kind {
    definition: Value,
    type_meta: Value,
    collection: String,
}

impl Kind {
    fn new(case: &Value, number: usize) -> Self {
        let definition = match case.get("definition") {
            Some(definition) => definition.clone(),
            None => definition(case, number, &case["schema"]),
        };
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (group, version) = (text(&spec["group"]), text(&spec["versions"][0]["name"]));
        Self {
            type_meta: json!({"apiVersion": format!("{group}/{version}"), "kind": spec["names"]["kind"]}),
            collection: format!("/apis/{group}/{version}/{}", text(&spec["names"]["plural"])),
            definition,
        }
    }
}

fn definition(case: &Value, number: usize, schema: &Value) -> Value {
    let spec = json!({"type": "object", "properties": {"it": schema}});
    let mut root = json!({"type": "object", "properties": {"spec": spec}});
    if let Some(status) = case.get("status") {
        root["properties"]["status"] = status.clone();
    }
    if let Some(rules) = case.get("rules") {
        root["x-kubernetes-validations"] = rules.clone();
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("case{number}s.cel.example.com")},
        "spec": {
            "group": "cel.example.com",
            "scope": "Cluster",
            "names": {"plural": format!("case{number}s"), "kind": format!("Case{number}")},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": root},
            }],
        },
    })
}

struct Play<'a> {
    client: &'a Client,
    case: &'a Value,
    kind: Kind,
    objects: usize,
    differences: Vec<String>,
}

impl Play<'_> {
    async fn run(&mut self) {
        let (code, body) = self.send("POST", DEFINITIONS, &self.kind.definition).await;
        self.compare("definition", &self.case["refused"], &causes(code, &body));
        if code >= 300 {
            return;
        }
        self.wait().await;
        for (place, step) in self.case["steps"].as_array().into_iter().flatten().enumerate() {
            let (code, body) = self.step(step).await;
            self.compare(&format!("step {place}"), &step["answer"], &causes(code, &body));
        }
    }

    fn compare(&mut self, what: &str, expected: &Value, got: &[String]) {
        let expected: Vec<String> =
            expected.as_array().into_iter().flatten().map(|cause| cause.as_str().unwrap().to_owned()).collect();
        let missing = expected.iter().filter(|cause| !got.contains(cause));
        let surplus = got.iter().filter(|cause| !expected.contains(cause));
        let lines: Vec<String> =
            missing.map(|cause| format!("  - {cause}")).chain(surplus.map(|cause| format!("  + {cause}"))).collect();
        if !lines.is_empty() || expected.len() != got.len() {
            self.differences.push(format!("{}, {what}:\n{}", self.case["case"], lines.join("\n")));
        }
    }

    async fn step(&mut self, step: &Value) -> (u16, Value) {
        let verb = step["verb"].as_str().unwrap();
        if matches!(verb, "create" | "make") {
            self.objects += 1;
        }
        let object = format!("{}/o{}", self.kind.collection, self.objects);
        let mut whole = self.kind.type_meta.clone();
        whole["metadata"] = json!({"name": format!("o{}", self.objects)});
        let it = expand(&step["it"]);
        match verb {
            "create" => {
                whole["spec"] = json!({"it": it});
                self.send("POST", &self.kind.collection, &whole).await
            }
            "make" => {
                whole["spec"] = step["spec"].clone();
                self.send("POST", &self.kind.collection, &whole).await
            }
            "update" => self.change(&object, &object, "/spec/it", it).await,
            "respec" => self.change(&object, &object, "/spec", step["spec"].clone()).await,
            "status" => self.change(&object, &format!("{object}/status"), "/status", step["status"].clone()).await,
            "merge" => self.patch(&object, "merge-patch+json", &json!({"spec": {"it": it}})).await,
            "label" => self.patch(&object, "merge-patch+json", &json!({"metadata": {"labels": {"a": "b"}}})).await,
            "json" => self.patch(&object, "json-patch+json", &step["patch"]).await,
            "apply" => {
                whole["spec"] = json!({"it": it});
                self.patch(&format!("{object}?fieldManager=m&force=true"), "apply-patch+yaml", &whole).await
            }
            "define" => {
                let name = self.kind.definition["metadata"]["name"].as_str().unwrap();
                let path = format!("{DEFINITIONS}/{name}");
                let number: usize = name.trim_start_matches("case").split('s').next().unwrap().parse().unwrap();
                let versions = definition(self.case, number, &step["schema"])["spec"]["versions"].clone();
                let answer = self.change(&path, &path, "/spec/versions", versions).await;
                self.wait_for(&step["until"], &object).await;
                answer
            }
            other => panic!("unknown verb {other}"),
        }
    }

    /// Reads an object, changes a part of it and writes it back.
    async fn change(&self, read: &str, write: &str, part: &str, value: Value) -> (u16, Value) {
        let (_, mut object) = self.send("GET", read, &Value::Null).await;
        let (parent, key) = part.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[key] = value;
        self.send("PUT", write, &object).await
    }

    async fn patch(&self, path: &str, media_type: &str, patch: &Value) -> (u16, Value) {
        send(self.client, "PATCH", path, &format!("application/{media_type}"), patch).await
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        send(self.client, method, path, "application/json", body).await
    }

    /// Until the kind is served.
    async fn wait(&self) {
        let mut pause = tokio::time::interval(Duration::from_millis(50));
        for _ in 0..MAX_TRIES {
            if self.send("GET", &self.kind.collection, &Value::Null).await.0 == 200 {
                return;
            }
            pause.tick().await;
        }
        panic!("{} is never served", self.kind.collection);
    }

    /// Until a dry run with the given value is refused, by which a new definition is known to be in use.
    async fn wait_for(&self, it: &Value, object: &str) {
        let mut pause = tokio::time::interval(Duration::from_millis(50));
        for _ in 0..MAX_TRIES {
            let probe = json!({"spec": {"it": it}});
            if self.patch(&format!("{object}?dryRun=All"), "merge-patch+json", &probe).await.0 == 422 {
                return;
            }
            pause.tick().await;
        }
        panic!("{object} never follows its new definition");
    }
}

async fn send(client: &Client, method: &str, path: &str, media_type: &str, body: &Value) -> (u16, Value) {
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder()
        .method(method.parse::<Method>().unwrap())
        .uri(path)
        .header("accept", "application/json")
        .header("content-type", media_type)
        .body(Body::from(bytes))
        .unwrap();
    let response = client.send(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect_bytes().await.unwrap();
    (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

/// The causes of a refusal, in order.
fn causes(code: u16, body: &Value) -> Vec<String> {
    static NUMBER: LazyLock<Regex> = LazyLock::new(|| Regex::new("selfType[0-9]+").unwrap());
    if code < 300 {
        return Vec::new();
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let Some(causes) = body["details"]["causes"].as_array() else {
        return vec![format!("{code} {}", text(&body["message"]))];
    };
    let line = |cause: &Value| {
        let line = format!("{} {}: {}", text(&cause["reason"]), text(&cause["field"]), text(&cause["message"]));
        NUMBER.replace_all(&line, "selfType").into_owned()
    };
    let mut lines: Vec<String> = causes.iter().map(line).collect();
    lines.sort();
    lines
}

fn expand(value: &Value) -> Value {
    match value {
        Value::Object(fields) => match fields.get("$repeat").and_then(Value::as_array) {
            Some(parts) => {
                let count = parts[1].as_u64().unwrap() as usize;
                match &parts[0] {
                    Value::String(text) => json!(text.repeat(count)),
                    other => json!(vec![other; count]),
                }
            }
            None => fields.iter().map(|(key, value)| (key.clone(), expand(value))).collect::<Map<_, _>>().into(),
        },
        Value::Array(items) => items.iter().map(expand).collect(),
        other => other.clone(),
    }
}
