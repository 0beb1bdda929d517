//! The expectations under `testdata` were answered by kube-apiserver 1.36 for objects made to reach every branch
//! of its printers; fields that no printer reads are left out of the objects.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::builtin;
use crate::resource::CustomColumn;

const COLUMNS: &str = include_str!("testdata/columns.jsonl");
const ROWS: &str = include_str!("testdata/rows.jsonl");
const CUSTOM: &str = include_str!("testdata/custom.jsonl");

fn lines(text: &str) -> impl Iterator<Item = Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap())
}

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

fn resource(api_version: &Value, kind: &Value) -> Resource {
    let resources = builtin::resources();
    let found =
        resources.into_iter().find(|resource| *api_version == resource.api_version() && *kind == *resource.kind);
    found.unwrap_or_else(|| panic!("{api_version} {kind} is not served"))
}

/// Name, type, format and priority of columns; explanations are worded differently here.
fn facts(columns: &[Value]) -> Vec<Value> {
    columns.iter().map(|column| json!([column["name"], column["type"], column["format"], column["priority"]])).collect()
}

#[test]
fn columns_are_those_of_kubernetes() {
    for line in lines(COLUMNS) {
        let line = line.as_array().unwrap();
        let actual = columns(&resource(&line[0], &line[1]));
        assert_eq!(facts(&actual), line[2..], "{} {}", line[0], line[1]);
        assert!(actual.iter().all(|column| column["description"].as_str().is_some_and(|text| !text.is_empty())));
    }
}

#[test]
fn rows_are_those_of_kubernetes() {
    let mut different = Vec::new();
    for line in lines(ROWS) {
        let object = &line["object"];
        let printer = Printer::new(&resource(&object["apiVersion"], &object["kind"]));
        let row = printer.row(object, IncludeObject::None, time(&line["now"]));
        let what = format!("{} {}", object["kind"], object["metadata"]["name"]);
        if row["cells"] != line["cells"] || row.get("conditions") != line.get("conditions") {
            different.push(format!("{what}: {row} instead of {} {}", line["cells"], line["conditions"]));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

fn custom_resource(columns: &Value) -> Resource {
    let text = |value: &Value| -> Arc<str> { value.as_str().unwrap_or_default().into() };
    let columns: Vec<CustomColumn> = columns
        .as_array()
        .unwrap()
        .iter()
        .map(|column| CustomColumn {
            name: text(&column["name"]),
            ty: text(&column["type"]),
            format: text(&column["format"]),
            description: text(&column["description"]),
            priority: column["priority"].as_i64().unwrap_or(0) as i32,
            json_path: text(&column["jsonPath"]),
        })
        .collect();
    let base = resource(&json!("v1"), &json!("ConfigMap"));
    Resource { columns: Columns::Custom(columns.into()), behaviour: Behaviour::Custom, ..base }
}

#[test]
fn custom_columns_are_those_of_kubernetes() {
    for line in lines(CUSTOM) {
        let printer = Printer::new(&custom_resource(&line["columns"]));
        assert_eq!(facts(printer.columns())[0], json!(["Name", "string", "name", 0]));
        let definitions = line["definitions"].as_array().unwrap();
        assert_eq!(printer.columns().len(), definitions.len() + 1);
        for (actual, expected) in printer.columns()[1..].iter().zip(definitions) {
            assert_eq!(actual["name"], expected[0]);
            assert_eq!(actual["type"], expected[1]);
            assert_eq!(actual["format"], expected[2]);
            if !line["columns"].as_array().unwrap().is_empty() {
                assert_eq!(actual["description"], expected[3]);
            }
            assert_eq!(actual["priority"], expected[4]);
        }
        for row in line["rows"].as_array().unwrap() {
            let actual = printer.row(&row["object"], IncludeObject::None, time(&line["now"]));
            for ((cell, expected), column) in
                actual["cells"].as_array().unwrap().iter().zip(row["cells"].as_array().unwrap()).zip(printer.columns())
            {
                // Whole numbers are written without a point on both sides, but read back as two kinds.
                let same = cell == expected || cell.as_f64().is_some_and(|cell| Some(cell) == expected.as_f64());
                assert!(same, "{} of {}: {cell} {expected}", column["name"], row["object"]["metadata"]["name"]);
            }
        }
    }
}

#[test]
fn tables_carry_what_was_asked_for() {
    let config_map = resource(&json!("v1"), &json!("ConfigMap"));
    let object = json!({
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "c", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "data": {"a": "b"},
    });
    let now = "2026-01-01T00:02:05Z".parse().unwrap();
    let meta = json!({"resourceVersion": "7"});
    let table = |include, no_headers| render(&config_map, [&object].into_iter(), include, now, &meta, no_headers);

    let full = table(IncludeObject::Object, false);
    assert_eq!((&full["kind"], &full["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    assert_eq!(full["metadata"], meta);
    assert_eq!(full["rows"], json!([{"cells": ["c", 1, "2m5s"], "object": object}]));
    assert_eq!(full["columnDefinitions"].as_array().unwrap().len(), 3);

    let partial = table(IncludeObject::Metadata, true);
    assert_eq!(partial["columnDefinitions"], Value::Null);
    assert_eq!(
        partial["rows"][0]["object"],
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
    );
    assert_eq!(table(IncludeObject::None, true)["rows"][0]["object"], Value::Null);
    let empty = render(&config_map, std::iter::empty(), IncludeObject::None, now, &meta, false);
    assert_eq!(empty["rows"], json!([]));
}

#[test]
fn scales_have_columns_of_their_own() {
    let scale = json!({
        "metadata": {"name": "web", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"replicas": 3},
        "status": {"replicas": 2},
    });
    let printer = Printer::builtin(scale_columns());
    let row = printer.row(&scale, IncludeObject::None, "2026-01-01T00:00:09Z".parse().unwrap());
    assert_eq!(row["cells"], json!(["web", 3, 2, "9s"]));
    assert_eq!(facts(printer.columns())[1], json!(["Desired", "integer", "", 0]));
}

#[test]
fn include_object_is_checked() {
    assert_eq!(IncludeObject::parse(None).unwrap(), IncludeObject::Metadata);
    assert_eq!(IncludeObject::parse(Some("None")).unwrap(), IncludeObject::None);
    assert_eq!(
        IncludeObject::parse(Some("Foo")).unwrap_err().message,
        "Unable to convert to Table as requested: includeObject: Invalid value: \"Foo\": \
         must be 'Metadata', 'Object', 'None', or empty"
    );
}
