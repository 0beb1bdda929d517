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
    let mut definition = complete(definitions, published);
    add_extensions(&mut definition, resource, &resource.kind);
    definition
}

/// The schema of a CRD, if it has one, with what every object has.
fn complete(definitions: &mut Definitions<'_>, schema: Option<&Value>) -> Value {
    match schema {
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
    }
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

/// The properties that every embedded object has.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi::descriptions::Descriptions;

    /// A schema with most of what CRDs may say.
    fn schema() -> Value {
        json!({
            "description": "Foo is for testing",
            "type": "object",
            "required": ["spec"],
            "properties": {"spec": {
                "type": "object",
                "required": ["replicas", "nullable"],
                "properties": {
                    "replicas": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 10, "default": 1},
                    "color": {"type": "string", "enum": ["red"], "maxLength": 10, "pattern": "^[a-z]+$"},
                    "nullable": {"type": "string", "nullable": true},
                    "port": {"x-kubernetes-int-or-string": true},
                    "any": {"x-kubernetes-preserve-unknown-fields": true},
                    "template": {"type": "object", "x-kubernetes-embedded-resource": true},
                    "open": {
                        "type": "object",
                        "x-kubernetes-embedded-resource": true,
                        "x-kubernetes-preserve-unknown-fields": true,
                        "properties": {"spec": {"type": "object"}},
                    },
                    "list": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {"type": "object", "properties": {"name": {"type": "string"}}},
                    },
                    "map": {"type": "object", "additionalProperties": {"type": "string", "default": "x"}},
                    "either": {
                        "type": "object",
                        "oneOf": [{"required": ["a"]}, {"not": {"required": ["b"]}}],
                        "x-kubernetes-validations": [{"rule": "self.a", "message": "a"}],
                        "externalDocs": {"url": "https://example.com"},
                    },
                },
            }},
        })
    }

    /// The published schema, and its `spec.properties`, without the metadata.
    fn published(dialect: Dialect) -> (Value, Value) {
        let descriptions = Descriptions::load();
        let mut definitions = Definitions::new(dialect, &descriptions, Vec::new());
        let definition = complete(&mut definitions, Some(&schema()));
        let properties = definition["properties"]["spec"]["properties"].clone();
        (definition, properties)
    }

    fn keys(value: &Value) -> Vec<&str> {
        let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn names_turn_the_group_around() {
        assert_eq!(definition_name("stable.example.com", "v1", "Foo"), "com.example.stable.v1.Foo");
    }

    #[test]
    fn version_three_carries_everything() {
        let (definition, properties) = published(Dialect::V3);
        assert_eq!(keys(&definition["properties"]), ["apiVersion", "kind", "metadata", "spec"]);
        assert_eq!(
            definition["properties"]["metadata"]["allOf"],
            json!([{"$ref": format!("#/components/schemas/{OBJECT_META}")}])
        );
        assert_eq!(definition["properties"]["spec"]["required"], json!(["replicas", "nullable"]));
        let unchanged = schema()["properties"]["spec"]["properties"].clone();
        for name in ["replicas", "color", "nullable", "any", "list", "map"] {
            assert_eq!(properties[name], unchanged[name], "{name}");
        }
        assert_eq!(properties["port"]["anyOf"], json!([{"type": "integer"}, {"type": "string"}]));
        assert_eq!(properties["template"]["required"], json!(["kind", "apiVersion"]));
        assert_eq!(keys(&properties["open"]["properties"]), ["apiVersion", "kind", "metadata", "spec"]);
        assert_eq!(properties["either"]["oneOf"], unchanged["either"]["oneOf"]);
        assert_eq!(keys(&properties["either"]), ["oneOf", "type", "x-kubernetes-validations"]);
    }

    #[test]
    fn version_two_drops_what_kubectl_does_not_understand() {
        let (definition, properties) = published(Dialect::V2);
        assert_eq!(definition["properties"]["metadata"]["$ref"], format!("#/definitions/{OBJECT_META}"));
        assert_eq!(definition["properties"]["spec"]["required"], json!(["replicas"]));
        assert_eq!(properties["replicas"], json!({"type": "integer", "format": "int32", "minimum": 0, "maximum": 10}));
        assert_eq!(properties["nullable"], json!({}));
        assert_eq!(properties["port"], json!({"x-kubernetes-int-or-string": true}));
        assert_eq!(keys(&properties["template"]["properties"]), ["apiVersion", "kind", "metadata"]);
        assert_eq!(
            properties["open"],
            json!({"x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true})
        );
        assert_eq!(properties["map"], json!({"type": "object", "additionalProperties": {"type": "string"}}));
        assert_eq!(keys(&properties["either"]), ["type", "x-kubernetes-validations"]);
    }

    #[test]
    fn a_root_that_takes_anything_lists_nothing_in_version_two() {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {}}});
        let descriptions = Descriptions::load();
        let mut definitions = Definitions::new(Dialect::V2, &descriptions, Vec::new());
        assert_eq!(complete(&mut definitions, Some(&open)), json!({"type": "object"}));
        let mut definitions = Definitions::new(Dialect::V3, &descriptions, Vec::new());
        assert_eq!(
            keys(&complete(&mut definitions, Some(&open))["properties"]),
            ["a", "apiVersion", "kind", "metadata"]
        );
    }
}
