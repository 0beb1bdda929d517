//! Exchanges with the real API server, recorded.
//!
//! A recording is a list of cases, a case a list of requests with the answers of kube-apiserver 1.36. Of an
//! answer that is an object, the managers are kept (one line each: manager, operation, version, subresource),
//! and on request (`"show": "all"`) what else is in the object. `unchanged` says that the resourceVersion is
//! the one of the answer before. `until` is a request that is repeated until it gets the given code.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::{Map, Value, json};

pub(super) const BUILTIN: &str = include_str!("recorded/builtin.json");
pub(super) const CUSTOM: &str = include_str!("recorded/custom.json");

/// What a case remembers between its steps: the last resourceVersion of each object.
pub(super) type Versions = BTreeMap<(String, String), String>;

pub(super) async fn send(client: &Client, step: &Value) -> (u16, Value) {
    let text = |key: &str| step[key].as_str();
    let body = match &step["body"] {
        Value::Null => Vec::new(),
        Value::String(text) => text.clone().into_bytes(),
        body => body.to_string().into_bytes(),
    };
    let mut request = Request::builder()
        .method(text("method").unwrap().parse::<Method>().unwrap())
        .uri(text("path").unwrap())
        .header("accept", "application/json")
        .header("user-agent", text("agent").unwrap_or("tester"));
    if let Some(media_type) = text("type") {
        request = request.header("content-type", media_type);
    }
    let response = client.send(request.body(Body::from(body)).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect_bytes().await.unwrap();
    (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

/// The answer in the form of the recordings.
pub(super) fn normal(code: u16, body: &Value, show: Option<&str>, versions: &mut Versions) -> Value {
    let mut answer = json!({ "code": code });
    if body["kind"] == "Status" {
        if code >= 400 {
            answer["message"] = body["message"].clone();
            if body["reason"].as_str().is_some_and(|reason| !reason.is_empty()) {
                answer["reason"] = body["reason"].clone();
            }
            if let Some(causes) = body["details"]["causes"].as_array() {
                let text = |cause: &Value, key: &str| cause[key].as_str().unwrap_or_default().to_owned();
                let mut causes: Vec<_> = causes
                    .iter()
                    .map(|cause| [text(cause, "reason"), text(cause, "message"), text(cause, "field")])
                    .collect();
                causes.sort();
                answer["causes"] = json!(causes);
            }
        }
        return answer;
    }
    if show == Some("none") {
        return answer;
    }
    answer["managers"] = managers(&body["metadata"]["managedFields"]);
    if show == Some("all") {
        answer["object"] = without_system_fields(body);
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&body["metadata"]["resourceVersion"]);
    let before = versions.insert((text(&body["kind"]), text(&body["metadata"]["name"])), version.clone());
    if let Some(before) = before {
        answer["unchanged"] = json!(before == version);
    }
    answer
}

fn managers(managed_fields: &Value) -> Value {
    let mut lines = Map::new();
    for entry in managed_fields.as_array().into_iter().flatten() {
        let words = ["manager", "operation", "apiVersion", "subresource"];
        let words: Vec<&str> = words.iter().filter_map(|key| entry[*key].as_str()).collect();
        let mut line = words.join(" ");
        if entry.get("time").is_none() {
            line.push_str(" (no time)");
        }
        while lines.contains_key(&line) {
            line.push('+');
        }
        lines.insert(line, entry["fieldsV1"].clone());
    }
    Value::Object(lines)
}

fn without_system_fields(object: &Value) -> Value {
    let mut object = object.as_object().cloned().unwrap_or_default();
    object.retain(|key, _| key != "apiVersion" && key != "kind");
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        for key in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "name", "namespace"] {
            metadata.remove(key);
        }
        if metadata.is_empty() {
            object.remove("metadata");
        }
    }
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        spec.retain(|key, _| !["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"].contains(&key.as_str()));
    }
    Value::Object(object)
}

/// Waits until a request gets the code that it is to get: the real API server serves a changed definition some
/// time after it was stored.
pub(super) async fn until(client: &Client, request: &Value) {
    let mut pause = tokio::time::interval(Duration::from_millis(50));
    for _ in 0..400 {
        if send(client, request).await.0 == request["code"] {
            return;
        }
        pause.tick().await;
    }
    panic!("never answered as expected: {request}");
}

/// Whether two answers are equal. Of several errors in one message, Go's maps decide which comes first.
fn same(answer: &Value, recorded: &Value) -> bool {
    let in_order = |answer: &Value| {
        let mut answer = answer.clone();
        if answer["causes"].as_array().is_some_and(|causes| causes.len() > 1) {
            let message = answer["message"].as_str().unwrap_or_default().replace(['[', ']'], "");
            let mut errors: Vec<&str> = message.split([',', ' ']).collect();
            errors.sort_unstable();
            answer["message"] = json!(errors);
        }
        answer
    };
    in_order(answer) == in_order(recorded)
}

/// The steps whose answers differ from the recorded ones, as a text for people.
pub(super) async fn differences(client: &Client, recording: &str) -> Vec<String> {
    let cases: Vec<Value> = serde_json::from_str(recording).unwrap();
    let mut differences = Vec::new();
    for case in &cases {
        let mut versions = Versions::new();
        for (place, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            let (code, body) = send(client, step).await;
            let answer = normal(code, &body, step["show"].as_str(), &mut versions);
            if let Some(request) = step.get("until") {
                until(client, request).await;
            }
            if !same(&answer, &step["answer"]) {
                differences.push(format!(
                    "{} step {place}: {} {} {}\n  expected {}\n  got      {answer}",
                    case["case"], step["method"], step["path"], step["body"], step["answer"]
                ));
            }
        }
    }
    differences
}
