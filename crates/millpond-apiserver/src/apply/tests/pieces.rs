//! Pieces that the recordings do not reach.

use serde_json::{Value, json};

use super::schema;
use crate::apply::{
    EntryError, FieldSet, Manager, Reset, SingleVersion, Target, apply_patch, check_managed_fields, manager_name,
    reset, settle_times, track_update,
};
use crate::schema::SchemaRef;
use crate::status::ApiError;

fn target<'a>(schema: &'a SchemaRef, reset: &'a Reset) -> Target<'a> {
    let (api_version, kind) = ("example.com/v1", "Thing");
    Target { api_version, kind, schema, subresource: "", reset, versions: &SingleVersion }
}

fn at<'a>(name: &'a str, time: &str) -> Manager<'a> {
    Manager { name, now: time.parse().unwrap() }
}

fn thing(spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t", "uid": "u"}, "spec": spec})
}

fn entry(manager: &str, operation: &str, time: Option<&str>, fields: &Value) -> Value {
    let mut entry = json!({"manager": manager, "operation": operation, "apiVersion": "example.com/v1", "fieldsType": "FieldsV1", "fieldsV1": fields});
    if let Some(time) = time {
        entry["time"] = json!(time);
    }
    entry
}

fn managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries
        .map(|entry| format!("{} {}", entry["operation"].as_str().unwrap(), entry["manager"].as_str().unwrap()))
        .collect()
}

#[test]
fn entries_are_sorted_by_operation_time_and_name() {
    let schema = schema::thing();
    let mut live = thing(&json!({"text": "a", "labels": {"a": "1", "b": "1", "c": "1", "d": "1"}}));
    let label = |name: &str| json!({"f:spec": {"f:labels": {format!("f:{name}"): {}}}});
    live["metadata"]["managedFields"] = json!([
        entry("late", "Update", Some("2026-01-03T00:00:00Z"), &label("a")),
        entry("early", "Update", Some("2026-01-01T01:00:00+02:00"), &label("b")),
        entry("timeless", "Update", None, &label("c")),
        entry("applier", "Apply", Some("2026-01-05T00:00:00Z"), &label("d")),
    ]);
    let mut new = live.clone();
    new["spec"]["text"] = json!("b");
    track_update(&live, &mut new, &target(&schema, &Reset::Nothing), &at("now", "2026-01-02T00:00:00.9Z"));
    assert_eq!(managers(&new), ["Apply applier", "Update timeless", "Update early", "Update now", "Update late"]);
    let times: Vec<&Value> =
        new["metadata"]["managedFields"].as_array().unwrap().iter().map(|entry| &entry["time"]).collect();
    assert_eq!(*times[2], json!("2025-12-31T23:00:00Z"));
    assert_eq!(*times[3], json!("2026-01-02T00:00:00Z"));
}

#[test]
fn times_change_only_with_the_object() {
    let schema = schema::thing();
    let target = target(&schema, &Reset::Nothing);
    let config = thing(&json!({"text": "a"}));
    let first = apply_patch(None, &config, &target, &at("m", "2026-01-01T00:00:00Z"), false).unwrap().object;
    // What is stored has been defaulted, so the next apply seems to change it, until it has been defaulted too.
    let mut again = first.clone();
    again["metadata"]["managedFields"][0]["time"] = json!("2026-01-02T00:00:00Z");
    settle_times(&first, &mut again);
    assert_eq!(again, first);
    let mut changed = first.clone();
    changed["metadata"]["managedFields"][0]["time"] = json!("2026-01-02T00:00:00Z");
    changed["spec"]["text"] = json!("b");
    let before = changed.clone();
    settle_times(&first, &mut changed);
    assert_eq!(changed, before);
}

#[test]
fn conflicts_become_errors_with_causes() {
    let schema = schema::thing();
    let target = target(&schema, &Reset::Nothing);
    let mut live = thing(&json!({"text": "a", "map": [{"name": "n", "port": 80, "value": "1"}]}));
    live["metadata"]["managedFields"] = json!([entry(
        "owner \"x\"",
        "Update",
        None,
        &json!({"f:spec": {"f:text": {}, "f:map": {"k:{\"name\":\"n\",\"port\":80}": {"f:value": {}}}}})
    )]);
    let config = thing(&json!({"text": "b", "map": [{"name": "n", "value": "2"}]}));
    let error = apply_patch(Some(&live), &config, &target, &at("m", "2026-01-01T00:00:00Z"), false).unwrap_err();
    let status = ApiError::from(error).to_status();
    assert_eq!(status["code"], 409);
    assert_eq!(status["reason"], "Conflict");
    assert_eq!(
        status["message"],
        "Apply failed with 2 conflicts: conflicts with \"owner \\\"x\\\"\" using example.com/v1:\n- .spec.text\n- .spec.map[name=\"n\",port=80].value"
    );
    let cause = json!({
        "reason": "FieldManagerConflict",
        "message": "conflict with \"owner \\\"x\\\"\" using example.com/v1",
        "field": ".spec.text",
    });
    assert_eq!(status["details"]["causes"][0], cause);
}

#[test]
fn a_live_object_that_no_longer_fits_loses_its_managers() {
    let schema = schema::thing();
    let target = target(&schema, &Reset::Nothing);
    let mut live = thing(&json!({"text": 5, "gone": true}));
    live["metadata"]["managedFields"] = json!([entry("m", "Update", None, &json!({"f:spec": {"f:text": {}}}))]);
    let mut new = live.clone();
    new["spec"] = json!({"text": "a"});
    track_update(&live, &mut new, &target, &at("n", "2026-01-01T00:00:00Z"));
    assert!(new["metadata"].get("managedFields").is_none());
    let config = thing(&json!({"text": "a"}));
    let error = apply_patch(Some(&live), &config, &target, &at("n", "2026-01-01T00:00:00Z"), true).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to create typed live object (/t; example.com/v1, Kind=Thing): .spec.gone: field not declared in schema"
    );
}

#[test]
fn entries_that_cannot_be_read() {
    let good = entry("m", "Update", None, &json!({}));
    let with = |key: &str, value: Value| {
        let mut entry = good.clone();
        entry[key] = value;
        json!([good, entry])
    };
    assert_eq!(check_managed_fields(Some(&json!([good]))), Ok(()));
    assert_eq!(check_managed_fields(None), Ok(()));
    for (managed_fields, message) in [
        (with("operation", json!("Delete")), "operation must be `Apply` or `Update`"),
        (with("apiVersion", json!("")), "apiVersion must not be empty"),
        (with("fieldsType", json!("")), "missing fieldsType in managed fields entry 1"),
        (with("fieldsType", json!("FieldsV2")), "invalid fieldsType \"FieldsV2\" in managed fields entry 1"),
        (
            with("fieldsV1", json!({"x": {}})),
            "error decoding versioned set: error decoding set: key must be 2 characters long: x",
        ),
    ] {
        assert_eq!(check_managed_fields(Some(&managed_fields)).unwrap_err().to_string(), message);
    }
    assert_eq!(check_managed_fields(Some(&json!({}))), Err(EntryError::Malformed));
}

#[test]
fn names_of_managers() {
    assert_eq!(manager_name(Some("given"), "agent/1"), "given");
    assert_eq!(manager_name(Some(""), "kubectl/v1.36 (linux)"), "kubectl");
    assert_eq!(manager_name(None, "Go http\u{7f}client/2"), "Go httpclient");
    assert_eq!(manager_name(None, ""), "");
    assert_eq!(manager_name(None, &"ü".repeat(100)).len(), 128);
}

#[test]
fn only_some_fields_count_in_some_subresources() {
    let fields = json!({
        "f:metadata": {"f:labels": {"f:a": {}}},
        "f:spec": {
            ".": {},
            "f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:image": {}, "f:resources": {"f:limits": {}}}},
            "f:ephemeralContainers": {".": {}, "k:{\"name\":\"e\"}": {".": {}, "f:image": {}}},
            "f:nodeName": {},
        },
        "f:status": {"f:phase": {}},
    });
    let filtered = |subresource: &str| {
        let mut set = FieldSet::from_value(&fields).unwrap();
        reset::builtin("", "Pod", subresource, true).filter(&mut set);
        set.to_value()
    };
    assert_eq!(filtered("")["f:status"], Value::Null);
    assert_eq!(filtered("status").as_object().unwrap().keys().collect::<Vec<_>>(), ["f:metadata", "f:status"]);
    assert_eq!(
        filtered("ephemeralcontainers"),
        json!({"f:spec": {".": {}, "f:ephemeralContainers": {".": {}, "k:{\"name\":\"e\"}": {".": {}, "f:image": {}}}}})
    );
    assert_eq!(
        filtered("resize"),
        json!({"f:spec": {".": {}, "f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:resources": {"f:limits": {}}}}}})
    );
    assert_eq!(filtered("binding"), fields);
}
