//! Values of the wrong type in a patched object. The real server does not decode the outcome of a strategic
//! merge patch from JSON but converts it field by field, and words its refusals differently.

use serde_json::Value;

use crate::schema::{Schema, Type};

/// The first value that cannot be converted to its type.
pub(in crate::patch) fn misfit(value: &Value, schema: &Schema) -> Option<String> {
    let kind = kind_of(value)?;
    let format = schema.format.as_deref();
    if reads_json_itself(schema) || is_its_scalar(value, schema.ty) {
        return None;
    }
    match (schema.ty, value) {
        (Type::Object, Value::Object(fields)) => fields.iter().find_map(|(key, value)| {
            let property = schema.properties.get(key.as_str()).map(|property| &property.schema);
            misfit(value, property.or(schema.additional.as_ref())?)
        }),
        (Type::Array, Value::Array(items)) => {
            let item = schema.items.as_deref()?;
            items.iter().find_map(|value| misfit(value, item))
        }
        (Type::Object, _) if schema.additional.is_some() => Some(format!("cannot restore map from {kind}")),
        (Type::Object, _) => Some(format!("cannot restore struct from: {kind}")),
        (Type::Array, _) => Some(format!("cannot restore slice from {kind}")),
        (Type::String, _) if format == Some("byte") => Some(format!("cannot restore slice from {kind}")),
        (Type::String, _) if kind == "int64" => Some("cannot convert int64 to string".to_owned()),
        (Type::Integer, _) if kind == "float64" => {
            Some(format!("cannot convert float64 to {}", format.unwrap_or("int64")))
        }
        (Type::Integer, _) => Some(format!("unrecognized type: {}", format.unwrap_or("int64"))),
        (Type::Boolean, _) => Some("unrecognized type: bool".to_owned()),
        (Type::Number, _) => Some("unrecognized type: float64".to_owned()),
        (Type::String | Type::Any | Type::IntOrString, _) => Some("unrecognized type: string".to_owned()),
    }
}

/// Quantities, times, raw extensions and their like: what is wrong with them, the decoder says.
fn reads_json_itself(schema: &Schema) -> bool {
    match schema.ty {
        Type::Any | Type::IntOrString => true,
        Type::Object => schema.preserve_unknown,
        Type::String => matches!(schema.format.as_deref(), Some("quantity" | "date-time" | "duration")),
        Type::Array | Type::Integer | Type::Number | Type::Boolean => false,
    }
}

fn is_its_scalar(value: &Value, ty: Type) -> bool {
    match value {
        Value::String(_) => ty == Type::String,
        Value::Bool(_) => ty == Type::Boolean,
        Value::Number(number) => ty == Type::Number || (ty == Type::Integer && number.is_i64()),
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

/// Go's name of the kind of a decoded value; `None` for null, which fits every type.
fn kind_of(value: &Value) -> Option<&'static str> {
    match value {
        Value::Null => None,
        Value::Bool(_) => Some("bool"),
        Value::Number(number) => Some(if number.is_i64() { "int64" } else { "float64" }),
        Value::String(_) => Some("string"),
        Value::Array(_) => Some("slice"),
        Value::Object(_) => Some("map"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::builtin;

    /// Asked of the real API server, version 1.36.
    #[test]
    fn misfits_have_the_messages_of_the_converter() {
        let schema = builtin::kind("apps", "v1", "Deployment").unwrap();
        for (object, problem) in [
            (json!({"spec": {"replicas": "x"}}), "unrecognized type: int32"),
            (json!({"spec": {"replicas": 1.5}}), "cannot convert float64 to int32"),
            (json!({"spec": {"replicas": []}}), "unrecognized type: int32"),
            (json!({"spec": {"paused": 1}}), "unrecognized type: bool"),
            (json!({"metadata": {"name": 5}}), "cannot convert int64 to string"),
            (json!({"metadata": {"labels": 5}}), "cannot restore map from int64"),
            (json!({"metadata": {"labels": {"a": 5}}}), "cannot convert int64 to string"),
            (json!({"metadata": {"labels": {"a": 1.5}}}), "unrecognized type: string"),
            (json!({"metadata": {"finalizers": "x"}}), "cannot restore slice from string"),
            (json!({"spec": 5}), "cannot restore struct from: int64"),
            (json!({"spec": []}), "cannot restore struct from: slice"),
            (json!({"spec": {"template": {"spec": {"containers": "x"}}}}), "cannot restore slice from string"),
        ] {
            assert_eq!(misfit(&object, &schema).as_deref(), Some(problem), "{object}");
        }
        for fitting in [
            json!({"spec": {"replicas": null, "paused": true, "unknown": {"x": 1}}}),
            json!({"metadata": {"creationTimestamp": 5}, "spec": {"strategy": {"rollingUpdate": {"maxSurge": true}}}}),
        ] {
            assert_eq!(misfit(&fitting, &schema), None, "{fitting}");
        }
    }
}
