//! Changes objects in the way that encoding by Go's types does, which clients of the real API server see: empty
//! optional fields vanish, fields without `omitempty` always exist, quantities and times are rewritten.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::defaults;
use super::json::{Fields, group_of, version_of};
use crate::quantity::Quantity;
use crate::schema::{self, Property, Schema, SchemaRef, Type, Zero};

/// Tidies an object, fills in its defaults, and completes it.
pub(crate) fn default(object: &mut Value) {
    if let Some(schema) = schema_of(object) {
        tidy(&schema, object);
        defaults::fill(&schema, object);
        complete(&schema, object);
    }
}

/// Runs a preparation, then completes the object.
pub(super) fn preparing(object: &mut Value, prepare: impl FnOnce(&mut Value)) {
    prepare(object);
    if let Some(schema) = schema_of(object) {
        complete(&schema, object);
    }
}

/// The type of an object that says its kind.
pub(super) fn schema_of(object: &Value) -> Option<SchemaRef> {
    let api_version = object.text("apiVersion");
    schema::builtin::kind(group_of(api_version), version_of(api_version), object.text("kind"))
}

/// Takes away what Go would not keep, and rewrites quantities and times.
pub(crate) fn tidy(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(_) | Value::Array(_) if schema.ty == Type::Any => in_union(schema, value, tidy),
        Value::Object(map) if schema.additional.is_some() => tidy_map(schema, map),
        Value::Object(map) if !schema.properties.is_empty() => tidy_object(schema, map),
        Value::Array(items) => {
            if let Some(item_schema) = &schema.items {
                for item in items {
                    if item.is_null() {
                        *item = zero_value(item_schema);
                    }
                    tidy(item_schema, item);
                }
            }
        }
        Value::String(_) | Value::Number(_) => rewrite_scalar(schema, value),
        _ => {}
    }
}

/// For apiextensions' `JSONSchemaPropsOrBool` and similar unions: an object in them is a schema.
fn in_union(schema: &Schema, value: &mut Value, work: fn(&Schema, &mut Value)) {
    let Some((props, _)) = schema.name.as_deref().and_then(|name| name.rsplit_once("Or")) else { return };
    let Some(props) = schema::builtin::lookup(props) else { return };
    match value {
        Value::Array(items) => {
            for item in items.iter_mut().filter(|item| item.is_object()) {
                work(&props, item);
            }
        }
        value => work(&props, value),
    }
}

fn tidy_object(schema: &Schema, map: &mut Map<String, Value>) {
    map.retain(|key, value| {
        let Some(property) = schema.properties.get(key.as_str()) else { return true };
        if value.is_null() {
            return false;
        }
        if is_resource_list(schema, property) {
            round_resource_list(value);
        } else {
            tidy(&property.schema, value);
        }
        match property.zero {
            Zero::Omitted => !is_empty(value),
            // An empty list is not stored, and so shown as `null` where the field is always shown.
            Zero::Always => !is_empty_collection(property, value),
            Zero::Distinct | Zero::DistinctOrNull => true,
        }
    });
}

fn is_empty_collection(property: &Property, value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty() && property.schema.additional.is_some(),
        _ => false,
    }
}

fn tidy_map(schema: &Schema, map: &mut Map<String, Value>) {
    let Some(value_schema) = &schema.additional else { return };
    for value in map.values_mut() {
        if value.is_null() {
            *value = zero_value(value_schema);
        }
        tidy(value_schema, value);
    }
}

/// `core.v1.ResourceList`: amounts there are never finer than thousandths.
fn is_resource_list(owner: &Schema, property: &Property) -> bool {
    let of_quantities = |values: &SchemaRef| values.format.as_deref() == Some("quantity");
    property.schema.additional.as_ref().is_some_and(of_quantities)
        && !owner.name.as_deref().is_some_and(|name| name.starts_with("io.k8s.api.resource."))
}

fn round_resource_list(value: &mut Value) {
    for amount in value.as_object_mut().into_iter().flat_map(Map::values_mut) {
        if amount.is_null() {
            *amount = json!("0");
        }
        rewrite_quantity(amount, Quantity::rounded_up_to_milli);
    }
}

fn rewrite_quantity(value: &mut Value, round: impl FnOnce(Quantity) -> Quantity) {
    let text = value.as_str().map_or_else(|| Cow::Owned(value.to_string()), Cow::Borrowed);
    if let Ok(quantity) = Quantity::parse(&text) {
        *value = round(quantity).canonical().into();
    }
}

fn rewrite_scalar(schema: &Schema, value: &mut Value) {
    match schema.format.as_deref() {
        Some("quantity") => rewrite_quantity(value, |quantity| quantity),
        Some("date-time") => {
            let micro = schema.name.as_deref().is_some_and(|name| name.ends_with(".MicroTime"));
            if let Some(time) = value.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok()) {
                *value = if micro {
                    format!("{}", time.strftime("%FT%T%.6fZ"))
                } else {
                    format!("{}", time.strftime("%FT%TZ"))
                }
                .into();
            }
        }
        _ => {}
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

/// Adds the fields that Go always prints.
pub(crate) fn complete(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(_) | Value::Array(_) if schema.ty == Type::Any => in_union(schema, value, complete),
        Value::Object(map) => {
            if let Some(value_schema) = &schema.additional {
                map.values_mut().for_each(|value| complete(value_schema, value));
            }
            complete_object(schema, map);
        }
        Value::Array(items) => {
            if let Some(item_schema) = &schema.items {
                for item in items {
                    complete(item_schema, item);
                }
            }
        }
        _ => {}
    }
}

fn complete_object(schema: &Schema, map: &mut Map<String, Value>) {
    for (name, value) in map.iter_mut().filter(|(_, value)| value.is_object() || value.is_array()) {
        if let Some(property) = schema.properties.get(name) {
            complete(&property.schema, value);
        }
    }
    for (name, property) in schema.properties.shown() {
        if map.contains_key(name) {
            continue;
        }
        let mut value = Value::Null;
        if property.zero == Zero::Always {
            value = zero_value(&property.schema);
            complete(&property.schema, &mut value);
        }
        map.insert(name.to_owned(), value);
    }
}

/// Go's encoding of a value that was never set.
fn zero_value(schema: &Schema) -> Value {
    match (schema.ty, schema.format.as_deref()) {
        (Type::String, Some("quantity")) => json!("0"),
        (Type::String, Some("date-time" | "byte")) | (Type::Array, _) => Value::Null,
        (Type::String, _) => json!(""),
        (Type::Integer | Type::Number | Type::IntOrString, _) => json!(0),
        (Type::Boolean, _) => json!(false),
        (Type::Object, _) if schema.additional.is_none() && !schema.preserve_unknown => json!({}),
        (Type::Object | Type::Any, _) => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through_go(mut object: Value) -> Value {
        let schema = schema_of(&object).unwrap();
        tidy(&schema, &mut object);
        complete(&schema, &mut object);
        object
    }

    #[test]
    fn empty_optional_fields_vanish_and_required_ones_appear() {
        let pod = through_go(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {}, "annotations": null},
            "spec": {"hostNetwork": false, "nodeName": "", "priority": 0, "containers": [{"image": ""}], "volumes": []},
        }));
        assert_eq!(
            pod,
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
                "spec": {"priority": 0, "containers": [{"name": "", "resources": {}}]},
                "status": {},
            })
        );
    }

    #[test]
    fn quantities_and_times_are_rewritten() {
        let pod = through_go(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"creationTimestamp": "2026-01-02T03:04:05.678+01:00"},
            "spec": {
                "containers": [{"name": "a", "resources": {"limits": {"cpu": 1, "memory": "1024Mi", "x/y": "1n"}}}],
                "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1000"}}],
            },
        }));
        assert_eq!(pod["metadata"]["creationTimestamp"], "2026-01-02T02:04:05Z");
        assert_eq!(
            pod["spec"]["containers"][0]["resources"]["limits"],
            json!({"cpu": "1", "memory": "1Gi", "x/y": "1m"})
        );
        assert_eq!(pod["spec"]["volumes"][0]["emptyDir"]["sizeLimit"], "1k");
        let lease = through_go(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"renewTime": "2026-01-02T03:04:05Z"},
        }));
        assert_eq!(lease["spec"]["renewTime"], "2026-01-02T03:04:05.000000Z");
    }
}
