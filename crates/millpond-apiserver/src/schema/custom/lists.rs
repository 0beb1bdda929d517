//! Uniqueness in lists of the types `set` and `map`.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::props::Props;
use crate::status::FieldError;

/// Duplicates in the lists of a value, by path.
pub(crate) fn duplicates(schema: &Props, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, value, &mut String::new(), &mut errors);
    errors
}

fn walk(schema: &Props, value: &Value, path: &mut String, errors: &mut Vec<FieldError>) {
    let length = path.len();
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                if let Some(additional) = schema.additional_schema() {
                    path.push_str(&format!("[{key}]"));
                    walk(additional, field, path, errors);
                    path.truncate(length);
                }
                if let Some(property) = schema.properties.get(key.as_str()) {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(key);
                    walk(property, field, path, errors);
                    path.truncate(length);
                }
            }
        }
        Value::Array(items) => {
            match schema.list_type.as_deref() {
                Some("set") => check_set(items, path, errors),
                Some("map") => check_map(schema, items, path, errors),
                _ => {}
            }
            let Some(schema) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                walk(schema, item, path, errors);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// Places of the first repetition of each value.
fn repeated<'a>(values: impl Iterator<Item = &'a Value>) -> Vec<usize> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut places = Vec::new();
    for (index, value) in values.enumerate() {
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            places.push(index);
        }
    }
    places
}

fn check_set(items: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    for index in repeated(items.iter()) {
        errors.push(FieldError::duplicate(format!("{path}[{index}]"), items[index].clone()));
    }
}

fn check_map(schema: &Props, items: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let stranger = items.iter().position(|item| !(item.is_object() || item.is_null()));
    if let Some(index) = stranger {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(format!("{path}[{index}]"), items[index].clone(), detail));
        return;
    }
    let keys: Vec<Value> = items.iter().map(|item| keys_of(schema, item)).collect();
    for index in repeated(keys.iter()) {
        errors.push(FieldError::duplicate(format!("{path}[{index}]"), keys[index].clone()));
    }
}

/// The keys of an item with their values, as far as it has them.
fn keys_of(schema: &Props, item: &Value) -> Value {
    let Some(fields) = item.as_object() else { return json!({}) };
    let keys: Map<String, Value> =
        schema.list_map_keys.iter().filter_map(|key| Some((key.to_string(), fields.get(&**key)?.clone()))).collect();
    Value::Object(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_reported_once() {
        let schema = Props::parse(
            &json!({"type": "object", "properties": {
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "map": {
                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
                    "items": {"type": "object"},
                },
                "deep": {"type": "object", "additionalProperties": {
                    "type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"},
                }},
            }}),
            "",
        )
        .unwrap();
        let errors = duplicates(
            &schema,
            &json!({
                "set": ["a", "b", "a", "a"],
                "map": [{"a": 1, "b": 2, "c": 3}, {"a": 1}, {"b": 2, "a": 1}, {"a": 1}, null, {}],
                "deep": {"k": [1, 1]},
            }),
        );
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "deep[k][1]: Duplicate value: 1",
                "map[2]: Duplicate value: {\"a\":1,\"b\":2}",
                "map[3]: Duplicate value: {\"a\":1}",
                "map[5]: Duplicate value: {}",
                "set[2]: Duplicate value: \"a\"",
            ]
        );
        let errors = duplicates(&schema, &json!({"map": [7]}));
        assert_eq!(errors[0].to_string(), "map[0]: Invalid value: 7: must be an object for an array of list-type map");
    }
}
