//! Replays recorded answers of kube-apiserver 1.36 to some hundred objects through the hooks.
//!
//! Each line of `testdata/*.jsonl` is one case: an object, perhaps a merge patch to it, and what the real server stored
//! or the errors that it returned. Uids and times are replaced, addresses that a server picks are left out.

use serde_json::{Value, json};

use super::json::{Fields, Fill};
use crate::meta;
use crate::resource::{Behaviour, BuiltinKind, Resource};
use crate::status::FieldError;

const NOW: &str = "2026-01-01T00:00:00Z";

/// Differences that are meant: the case, and why.
const MEANT: &[(&str, &str)] = &[];

macro_rules! recorded {
    ($($name:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            check(include_str!(concat!("testdata/", stringify!($name), ".jsonl")));
        }
    )*};
}

recorded!(core, network, others, pod_create, pod_errors, pod_update, storage, workloads);

fn check(cases: &str) {
    let resources = super::resources();
    let mut failures = Vec::new();
    for line in cases.lines() {
        let case: Value = serde_json::from_str(line).expect("a case is JSON");
        let name = case.text("case");
        if MEANT.iter().any(|(meant, _)| *meant == name) {
            continue;
        }
        let got = replay(&resources, &case);
        let expected = [case.at("stored").clone(), comparable(case.at("errors"))];
        if got != expected {
            failures.push(format!("{name}\n{}", explain(&expected, &got)));
        }
    }
    assert!(failures.is_empty(), "{} differ:\n\n{}", failures.len(), failures.join("\n\n"));
}

fn explain(expected: &[Value; 2], got: &[Value; 2]) -> String {
    let mut lines = Vec::new();
    for (expected, got) in expected.iter().zip(got) {
        walk("", expected, got, &mut lines);
    }
    lines.join("\n")
}

fn walk(path: &str, expected: &Value, got: &Value, lines: &mut Vec<String>) {
    match (expected, got) {
        _ if expected == got => {}
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let missing = Value::String("<none>".into());
                walk(&format!("{path}.{key}"), a.get(key).unwrap_or(&missing), b.get(key).unwrap_or(&missing), lines);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                walk(&format!("{path}[{index}]"), a, b, lines);
            }
        }
        _ => lines.push(format!("  {path}\n    real {expected}\n    ours {got}")),
    }
}

/// What the hooks make of a case: what would be stored, or the errors.
fn replay(resources: &[Resource], case: &Value) -> [Value; 2] {
    let object = case.at("object");
    let resource = resources
        .iter()
        .find(|r| r.api_version() == object.text("apiVersion") && *r.kind == *object.text("kind"))
        .expect("the kind is served");
    let Behaviour::Builtin(hooks) = resource.behaviour else { panic!("a custom resource") };
    let (created, errors) = create(resource, hooks, object);
    if !case.has("patch") {
        return outcome(created, &errors);
    }
    assert!(errors.is_empty(), "{}: {errors:?}", case.text("case"));
    let mut old = created;
    for step in case.items("setup") {
        let (new, errors) = update(resource, hooks, &old, step);
        assert!(errors.is_empty(), "{}: {errors:?}", case.text("case"));
        old = new;
    }
    let (new, errors) = update(resource, hooks, &old, case);
    outcome(new, &errors)
}

fn outcome(mut object: Value, errors: &[FieldError]) -> [Value; 2] {
    if errors.is_empty() {
        let meta = object.object("metadata");
        for field in ["uid", "creationTimestamp", "resourceVersion"] {
            meta.drop(field);
        }
        let text = object.to_string().replace(NOW, "NOW");
        [serde_json::from_str(&text).expect("still JSON"), Value::Null]
    } else {
        [Value::Null, comparable(&errors.iter().map(|error| Value::from(error.to_string())).collect())]
    }
}

/// Errors in order (the real server iterates maps at random), without duplicates, with composite values masked (it
/// shows some of them in the form of its internal types) and without what follows a line break (its own form of a
/// diff).
fn comparable(errors: &Value) -> Value {
    let mut texts: Vec<String> =
        errors.as_array().into_iter().flatten().filter_map(Value::as_str).map(masked).collect();
    texts.sort();
    texts.dedup();
    if texts.is_empty() { errors.clone() } else { texts.into() }
}

fn masked(error: &str) -> String {
    let error = error.split('\n').next().unwrap_or_default();
    let Some((head, value)) = error.split_once(" value: ") else { return error.to_owned() };
    let mut stream = serde_json::Deserializer::from_str(value).into_iter::<Value>();
    match stream.next() {
        Some(Ok(Value::Object(_) | Value::Array(_))) => format!("{head} value: ..{}", &value[stream.byte_offset()..]),
        _ => error.to_owned(),
    }
}

fn create(resource: &Resource, hooks: &BuiltinKind, object: &Value) -> (Value, Vec<FieldError>) {
    let mut object = object.clone();
    (hooks.default)(&mut object);
    let meta = object.object("metadata");
    if resource.namespaced {
        meta.default_to("namespace", "default");
    }
    if meta.text("name").is_empty() && !meta.text("generateName").is_empty() {
        let name = format!("{}xxxxx", meta.text("generateName"));
        meta.put("name", json!(name));
    }
    meta.put("uid", json!("UID"));
    meta.put("creationTimestamp", json!(NOW));
    if &*resource.kind == "Pod" {
        // Priority admission, which looks at other objects.
        object.object("spec").default_to("priority", 0);
        object.object("spec").default_to("preemptionPolicy", "PreemptLowerPriority");
    }
    (hooks.prepare_create)(&mut object);
    let mut errors = meta::validate_create(resource, &object);
    errors.extend((hooks.validate)(&object, None));
    (object, errors)
}

fn update(resource: &Resource, hooks: &BuiltinKind, old: &Value, step: &Value) -> (Value, Vec<FieldError>) {
    let mut old = old.clone();
    old.object("metadata").put("resourceVersion", json!("1"));
    let mut new = old.clone();
    json_patch::merge(&mut new, step.at("patch"));
    (hooks.default)(&mut new);
    new["metadata"]["creationTimestamp"] = old["metadata"]["creationTimestamp"].clone();
    let mut errors;
    match step.text("sub") {
        "" => {
            (hooks.prepare_update)(&mut new, &old);
            errors = meta::validate_update(resource, &new, &old);
            errors.extend((hooks.validate)(&new, Some(&old)));
        }
        "status" => {
            (hooks.prepare_status)(&mut new, &old);
            errors = meta::validate_update(resource, &new, &old);
            errors.extend((hooks.validate_status)(&new, &old));
        }
        "ephemeralcontainers" => {
            super::pod::prepare_ephemeral_containers(&mut new, &old);
            errors = meta::validate_update(resource, &new, &old);
            errors.extend(super::pod::validate_ephemeral_containers(&new, &old));
        }
        "resize" => {
            super::pod::prepare_resize(&mut new, &old);
            errors = meta::validate_update(resource, &new, &old);
            errors.extend(super::pod::validate_resize(&new, &old));
        }
        other => panic!("no subresource {other}"),
    }
    (new, errors)
}
