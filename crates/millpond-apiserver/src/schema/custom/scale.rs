//! The numbers that `/scale` reads.

use serde_json::{Value, json};

use crate::resource::Scale;
use crate::status::FieldError;

/// Problems of the wanted number.
pub(super) fn validate_spec(scale: &Scale, object: &Value, errors: &mut Vec<FieldError>) {
    check_replicas(&scale.spec_replicas, object, errors);
}

/// Problems of the number seen, and of the label selector.
pub(super) fn validate_status(scale: &Scale, object: &Value, errors: &mut Vec<FieldError>) {
    check_replicas(&scale.status_replicas, object, errors);
    if let Some(path) = &scale.label_selector {
        match find(object, path) {
            Ok(None | Some(Value::String(_))) => {}
            Ok(Some(other)) => {
                let detail = wrong_type(path, other, "string");
                errors.push(FieldError::invalid(&**path, "", detail));
            }
            Err(detail) => errors.push(FieldError::invalid(&**path, "", detail)),
        }
    }
}

fn check_replicas(path: &str, object: &Value, errors: &mut Vec<FieldError>) {
    let replicas = match find(object, path) {
        Ok(None) => return,
        Ok(Some(value)) => value,
        Err(detail) => return errors.push(FieldError::invalid(path, 0, detail)),
    };
    match replicas.as_i64() {
        None => errors.push(FieldError::invalid(path, 0, wrong_type(path, replicas, "int64"))),
        Some(number) if number < 0 => {
            errors.push(FieldError::invalid(path, json!(number), "should be a non-negative integer"));
        }
        Some(number) if number > i64::from(i32::MAX) => {
            let detail = format!("should be less than or equal to {}", i32::MAX);
            errors.push(FieldError::invalid(path, json!(number), detail));
        }
        Some(_) => {}
    }
}

/// The value at a path like `.spec.replicas`; an error when something on the way is no object.
fn find<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    let mut value = object;
    let fields: Vec<&str> = path.trim_start_matches('.').split('.').collect();
    for (index, field) in fields.iter().enumerate() {
        let Some(map) = value.as_object() else {
            let way = fields[..index].iter().map(|field| format!(".{field}")).collect::<String>();
            let whole = fields[..=index].iter().map(|field| format!(".{field}")).collect::<String>();
            let found = shown(value);
            return Err(format!(
                "{whole} accessor error: {found} is of the type {}, expected map[string]interface{{}}: {way}",
                go_type(value)
            ));
        };
        match map.get(*field) {
            Some(below) => value = below,
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

fn wrong_type(path: &str, value: &Value, wanted: &str) -> String {
    format!("{path} accessor error: {} is of the type {}, expected {wanted}", shown(value), go_type(value))
}

/// A value as Go's `%v` shows it.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => crate::go::text::number(number),
        other => other.to_string(),
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_must_be_usable() {
        let scale = Scale {
            spec_replicas: ".spec.replicas".into(),
            status_replicas: ".status.replicas".into(),
            label_selector: Some(".status.selector".into()),
        };
        for (object, expected) in [
            (json!({}), vec![]),
            (json!({"spec": {"replicas": 1}, "status": {"replicas": 1, "selector": "a=b"}}), vec![]),
            (
                json!({"spec": {"replicas": -1}}),
                vec![".spec.replicas: Invalid value: -1: should be a non-negative integer"],
            ),
            (
                json!({"spec": {"replicas": 3_000_000_000_i64}}),
                vec![".spec.replicas: Invalid value: 3000000000: should be less than or equal to 2147483647"],
            ),
            (
                json!({"spec": {"replicas": "x"}}),
                vec![
                    ".spec.replicas: Invalid value: 0: .spec.replicas accessor error: x is of the type string, expected int64",
                ],
            ),
        ] {
            let mut errors = Vec::new();
            validate_spec(&scale, &object, &mut errors);
            validate_status(&scale, &object, &mut errors);
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(texts, expected);
        }
    }
}
