//! Definitions of custom resources: the schema of the CRD, completed with what every object has.

use serde_json::{Map, Value, json};

use super::schemas::{Definitions, Dialect};
use crate::resource::{Resource, SelectableFields};
use crate::schema::custom;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

/// Parts of a CRD's schema that are published as they are.
const PLAIN: &[&str] = &[
    "default",
    "description",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "nullable",
    "pattern",
    "required",
    "title",
    "type",
    "uniqueItems",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];

/// `com.example.stable.v1.Foo`.
pub(super) fn definition_name(group: &str, version: &str, kind: &str) -> String {
    let reversed: Vec<&str> = group.rsplit('.').collect();
    format!("{}.{version}.{kind}", reversed.join("."))
}

/// The definition of one object.
pub(super) fn object(definitions: &mut Definitions<'_>, resource: &Resource) -> Value {
    let published = custom::definition(&resource.schema).map(custom::Definition::open_api);
    let mut definition = match published {
        // kubectl would take listed properties for all that are allowed.
        Some(schema) if definitions.dialect == Dialect::V2 && preserves_unknown(schema) => json!({"type": "object"}),
        Some(schema) => {
            let mut definition = published_schema(definitions, schema);
            add_type_meta(definitions, &mut definition);
            let metadata = object_meta(definitions);
            set_property(&mut definition, "metadata", metadata);
            definition
        }
        None => json!({"type": "object"}),
    };
    add_extensions(&mut definition, resource, &resource.kind);
    definition
}

/// The definition of a list.
pub(super) fn list(definitions: &mut Definitions<'_>, resource: &Resource, object_name: &str) -> Value {
    let reference = definitions.builtin(LIST_META).expect("the table holds the metadata of lists");
    let metadata = definitions.described_reference(reference, Some("Standard list metadata."));
    let mut definition = json!({
        "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "items": {
                "description": format!("List of {}.", resource.plural),
                "type": "array",
                "items": definitions.reference(object_name),
            },
            "metadata": metadata,
        },
    });
    add_type_meta(definitions, &mut definition);
    add_extensions(&mut definition, resource, &resource.list_kind);
    definition
}

fn preserves_unknown(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true
}

fn object_meta(definitions: &mut Definitions<'_>) -> Value {
    let reference = definitions.builtin(OBJECT_META).expect("the table holds the metadata of objects");
    let description = definitions.descriptions.of_metadata();
    definitions.described_reference(reference, description.as_deref())
}

fn add_type_meta(definitions: &Definitions<'_>, definition: &mut Value) {
    for name in ["apiVersion", "kind"] {
        let mut property = json!({"type": "string"});
        if let Some(description) = definitions.descriptions.of_type_meta(name) {
            property["description"] = description.into();
        }
        set_property(definition, name, property);
    }
}

fn set_property(definition: &mut Value, name: &str, property: Value) {
    definition["properties"][name] = property;
}

fn add_extensions(definition: &mut Value, resource: &Resource, kind: &str) {
    definition["x-kubernetes-group-version-kind"] =
        json!([{"group": resource.group, "version": resource.version, "kind": kind}]);
    if let SelectableFields::Custom(fields) = &resource.selectable_fields
        && !fields.is_empty()
    {
        let fields: Vec<Value> = fields.iter().map(|(name, _)| json!({"fieldPath": name})).collect();
        definition["x-kubernetes-selectable-fields"] = Value::Array(fields);
    }
}

/// A CRD's schema in the words of the document.
fn published_schema(definitions: &mut Definitions<'_>, schema: &Value) -> Value {
    let mut published = Map::new();
    for key in PLAIN {
        if let Some(value) = schema.get(*key) {
            published.insert((*key).to_owned(), value.clone());
        }
    }
    if let Some(properties) = schema["properties"].as_object() {
        let properties: Map<String, Value> =
            properties.iter().map(|(name, schema)| (name.clone(), published_schema(definitions, schema))).collect();
        published.insert("properties".to_owned(), Value::Object(properties));
    }
    for key in ["items", "additionalProperties"] {
        match schema.get(key) {
            Some(below @ Value::Object(_)) => {
                let below = published_schema(definitions, below);
                published.insert(key.to_owned(), below);
            }
            Some(allowed @ Value::Bool(_)) => drop(published.insert(key.to_owned(), allowed.clone())),
            _ => {}
        }
    }
    match definitions.dialect {
        Dialect::V2 => simplify(&mut published, schema),
        Dialect::V3 => add_alternatives(definitions, &mut published, schema),
    }
    let mut published = Value::Object(published);
    let embedded = published["x-kubernetes-embedded-resource"] == true;
    if embedded && !(definitions.dialect == Dialect::V2 && preserves_unknown(schema)) {
        add_embedded(definitions, &mut published);
    }
    published
}

/// `allOf` and its kin, which v2 does not know.
fn add_alternatives(definitions: &mut Definitions<'_>, published: &mut Map<String, Value>, schema: &Value) {
    for key in ["allOf", "anyOf", "oneOf"] {
        if let Some(list) = schema[key].as_array() {
            let list: Vec<Value> = list.iter().map(|schema| published_schema(definitions, schema)).collect();
            published.insert(key.to_owned(), Value::Array(list));
        }
    }
    if let Some(not) = schema.get("not").filter(|not| not.is_object()) {
        let not = published_schema(definitions, not);
        published.insert("not".to_owned(), not);
    }
    let alternatives = ["allOf", "anyOf"].iter().any(|key| published.contains_key(*key));
    if schema["x-kubernetes-int-or-string"] == true && !alternatives {
        published.insert("anyOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
    }
}

/// Takes away what v2 can't say, or what kubectl does not understand there.
fn simplify(published: &mut Map<String, Value>, schema: &Value) {
    published.remove("default");
    let nullable = published.remove("nullable") == Some(Value::Bool(true));
    if nullable {
        published.remove("type");
    }
    if nullable || preserves_unknown(schema) {
        published.remove("items");
        published.remove("properties");
    }
    let ty = published.get("type").and_then(Value::as_str);
    let untyped = match ty {
        Some("array") => !published.contains_key("items"),
        Some("object") => preserves_unknown(schema),
        _ => false,
    };
    if untyped {
        published.remove("type");
    }
    let is_nullable = |name: &Value| name.as_str().is_some_and(|name| schema["properties"][name]["nullable"] == true);
    if let Some(Value::Array(required)) = published.get_mut("required") {
        required.retain(|name| !is_nullable(name));
        if required.is_empty() || schema["additionalProperties"]["nullable"] == true {
            published.remove("required");
        }
    }
}

/// What an embedded object has in any case.
fn add_embedded(definitions: &mut Definitions<'_>, published: &mut Value) {
    add_type_meta(definitions, published);
    let metadata = object_meta(definitions);
    set_property(published, "metadata", metadata);
    let mut required = published["required"].as_array().cloned().unwrap_or_default();
    for name in ["kind", "apiVersion"] {
        if !required.iter().any(|known| known == name) {
            required.push(name.into());
        }
    }
    published["required"] = Value::Array(required);
}
