//! Schemas for tests, from the JSON of a CRD.

use serde_json::{Value, json};

use crate::schema::{ListType, Property, Schema, SchemaRef, Type};

/// The part of `openAPIV3Schema` that matters for ownership.
pub(super) fn parse(json: &Value) -> SchemaRef {
    let flag = |key: &str| json[key] == true;
    let text = |key: &str| json[key].as_str().unwrap_or_default();
    let list_type = match text("x-kubernetes-list-type") {
        "set" => ListType::Set,
        "map" => ListType::Map,
        _ => ListType::Atomic,
    };
    let ty = match text("type") {
        "object" => Type::Object,
        "array" => Type::Array,
        "string" => Type::String,
        "integer" => Type::Integer,
        "number" => Type::Number,
        "boolean" => Type::Boolean,
        _ if flag("x-kubernetes-int-or-string") => Type::IntOrString,
        _ => Type::Any,
    };
    let properties = json["properties"].as_object().into_iter().flatten();
    let keys = json["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
    Schema {
        ty,
        properties: properties.map(|(name, json)| (name.as_str().into(), Property::new(parse(json)))).collect(),
        additional: json.get("additionalProperties").map(parse),
        items: json.get("items").map(parse),
        list_type,
        list_map_keys: keys.filter_map(Value::as_str).map(Into::into).collect(),
        atomic_map: text("x-kubernetes-map-type") == "atomic",
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        embedded_resource: flag("x-kubernetes-embedded-resource"),
        default: json.get("default").cloned(),
        ..Schema::default()
    }
    .into()
}

/// A kind with every sort of field.
pub(super) fn thing() -> SchemaRef {
    parse(&thing_json())
}

/// The same as a CRD has it.
pub(super) fn thing_json() -> Value {
    let text = json!({"type": "string"});
    let item = json!({"type": "object", "required": ["name"], "properties": {
        "name": text, "port": {"type": "integer", "default": 80}, "value": text,
        "inner": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
    }});
    let spec = json!({"type": "object", "properties": {
        "text": text,
        "size": {"x-kubernetes-int-or-string": true},
        "count": {"type": "integer"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "labels": {"type": "object", "additionalProperties": text},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": text, "b": text}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"a": text}}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "port"], "items": item},
        "nested": {"type": "object", "properties": {"deep": {"type": "object", "properties": {"x": text, "y": text}}}},
        "maps": {"type": "object", "additionalProperties": {"type": "object", "properties": {"p": text, "q": text}}},
    }});
    let status = json!({"type": "object", "properties": {"note": text}});
    json!({"type": "object", "properties": {"spec": spec, "status": status}})
}
