//! Objects of built-in types as the real API server prints them.
//!
//! Go decodes a body into a struct and prints the struct, which forgets how emptiness was written: `paused:
//! false`, `env: []` and `replicas: null` vanish, while `resources: {}` and `metadata: {}` appear where nothing
//! was said. [`canonicalize`] does the same to JSON, by what the table knows of each field ([`Zero`]), so that a
//! body in JSON, in YAML and in protobuf becomes the same object.

use serde_json::{Map, Value};

use super::{Property, Schema, Type, Zero, builtin};

/// Drops empty values that mean nothing and adds those that are always printed, at every depth. Keys that the
/// schema does not know are left alone.
pub fn canonicalize(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(_) | Value::Array(_) if schema.ty == Type::Any => canonicalize_union(schema, value),
        Value::Object(map) if schema.properties.is_empty() => {
            if let Some(values) = &schema.additional {
                for value in map.values_mut() {
                    canonicalize_element(values, value);
                }
            }
        }
        Value::Object(map) => canonicalize_fields(schema, map),
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for item in items {
                    canonicalize_element(schema, item);
                }
            }
        }
        _ => {}
    }
}

/// apiextensions' `JSONSchemaPropsOrBool` and the like: whatever is an object there is a schema.
fn canonicalize_union(schema: &Schema, value: &mut Value) {
    let Some((props, _)) = schema.name.as_deref().and_then(|name| name.rsplit_once("Or")) else { return };
    let Some(props) = builtin::lookup(props) else { return };
    match value {
        Value::Array(items) => {
            for item in items.iter_mut().filter(|item| item.is_object()) {
                canonicalize(&props, item);
            }
        }
        schema => canonicalize(&props, schema),
    }
}

/// An item of a list or a value of a map, where null means the empty value.
fn canonicalize_element(schema: &Schema, value: &mut Value) {
    if value.is_null() {
        *value = empty_value(schema);
    } else {
        canonicalize(schema, value);
    }
}

fn canonicalize_fields(schema: &Schema, map: &mut Map<String, Value>) {
    map.retain(|name, value| {
        let Some(property) = schema.properties.get(name.as_str()) else { return true };
        if value.is_null() {
            return false;
        }
        canonicalize(&property.schema, value);
        property.zero != Zero::Omitted || !is_empty(value)
    });
    for (name, property) in &schema.properties {
        if matches!(property.zero, Zero::Always | Zero::DistinctOrNull) && !map.contains_key(&**name) {
            map.insert(name.to_string(), absent_value(property));
        }
    }
}

fn absent_value(property: &Property) -> Value {
    if property.zero == Zero::Always { empty_value(&property.schema) } else { Value::Null }
}

/// What Go prints for a field of this type that was never set.
fn empty_value(schema: &Schema) -> Value {
    match schema.ty {
        Type::String => match schema.format.as_deref() {
            Some("date-time" | "byte") => Value::Null,
            Some("quantity") => Value::from("0"),
            _ => Value::from(""),
        },
        Type::Integer | Type::Number | Type::IntOrString => Value::from(0),
        Type::Boolean => Value::from(false),
        Type::Object if schema.additional.is_none() && !schema.preserve_unknown => {
            let mut map = Map::new();
            canonicalize_fields(schema, &mut map);
            Value::Object(map)
        }
        Type::Object | Type::Array | Type::Any => Value::Null,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn canonical(group: &str, version: &str, kind: &str, mut value: Value) -> Value {
        canonicalize(&builtin::kind(group, version, kind).unwrap(), &mut value);
        value
    }

    #[test]
    fn emptiness_is_printed_as_go_does() {
        let deployment = canonical(
            "apps",
            "v1",
            "Deployment",
            json!({
                "metadata": {"name": "a", "creationTimestamp": null, "labels": {}, "annotations": {"x": null}},
                "spec": {
                    "replicas": 0,
                    "paused": false,
                    "minReadySeconds": 0,
                    "revisionHistoryLimit": null,
                    "template": {"spec": {
                        "containers": [{"name": "c", "env": [], "securityContext": {}, "unknown": null}],
                        "volumes": [{"name": "v", "emptyDir": {}}],
                    }},
                },
            }),
        );
        assert_eq!(
            deployment,
            json!({
                "metadata": {"name": "a", "annotations": {"x": ""}},
                "spec": {
                    "replicas": 0,
                    "selector": null,
                    "strategy": {},
                    "template": {
                        "metadata": {},
                        "spec": {
                            "containers": [{"name": "c", "resources": {}, "securityContext": {}, "unknown": null}],
                            "volumes": [{"name": "v", "emptyDir": {}}],
                        },
                    },
                },
                "status": {},
            })
        );
    }

    #[test]
    fn fields_that_are_always_printed_get_the_empty_value_of_their_type() {
        let empty = canonical("", "v1", "Service", json!({"spec": {"ports": [null]}}));
        assert_eq!(empty["spec"]["ports"], json!([{"port": 0, "targetPort": 0}]));
        let event = canonical("", "v1", "Event", json!({"metadata": {}, "involvedObject": {}}));
        assert_eq!(event["firstTimestamp"], Value::Null);
        let role = canonical("rbac.authorization.k8s.io", "v1", "Role", json!({"rules": null}));
        assert_eq!(role, json!({"metadata": {}, "rules": null}));
        let quota = canonical("", "v1", "LimitRange", json!({"spec": {"limits": [{"type": "Pod"}]}}));
        assert_eq!(quota["spec"]["limits"], json!([{"type": "Pod"}]));
    }

    #[test]
    fn a_canonical_object_stays() {
        let mut once = canonical("", "v1", "Pod", json!({"spec": {"containers": [{"name": "a", "ports": [{}]}]}}));
        let before = once.clone();
        canonicalize(&builtin::kind("", "v1", "Pod").unwrap(), &mut once);
        assert_eq!(once, before);
    }
}
