//! JSON values as structured merge sees them: numbers are compared by size, whatever their notation, and
//! error messages show values the way Go prints them.

use std::cmp::Ordering;

use serde_json::{Map, Number, Value};

use crate::go::text;

/// Whether two values mean the same: `1` equals `1.0`, the order of keys does not matter.
pub(crate) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left == right || order_numbers(left, right).is_eq(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => equal_maps(left, right),
        (left, right) => left == right,
    }
}

fn equal_maps(left: &Map<String, Value>, right: &Map<String, Value>) -> bool {
    left.len() == right.len() && left.iter().all(|(key, value)| right.get(key).is_some_and(|other| equal(value, other)))
}

/// A total order over values of all types: numbers, text, booleans, lists, maps, null.
pub(super) fn order(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => order_numbers(left, right),
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => order_all(left.iter(), right.iter(), order),
        (Value::Object(left), Value::Object(right)) => {
            order_all(sorted(left).into_iter(), sorted(right).into_iter(), |left, right| {
                left.0.cmp(right.0).then_with(|| order(left.1, right.1))
            })
        }
        (left, right) => rank(left).cmp(&rank(right)),
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn order_numbers(left: &Number, right: &Number) -> Ordering {
    if let (Some(left), Some(right)) = (left.as_i64(), right.as_i64()) {
        return left.cmp(&right);
    }
    let (left, right) = (left.as_f64().unwrap_or(f64::NAN), right.as_f64().unwrap_or(f64::NAN));
    left.partial_cmp(&right).unwrap_or(Ordering::Equal)
}

fn sorted(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    entries
}

fn order_all<T>(
    mut left: impl Iterator<Item = T>,
    mut right: impl Iterator<Item = T>,
    order: impl Fn(T, T) -> Ordering,
) -> Ordering {
    loop {
        match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(left), Some(right)) => match order(left, right) {
                Ordering::Equal => {}
                decided => return decided,
            },
        }
    }
}

/// How Go's `%v` shows a decoded JSON value.
pub(super) fn go_display(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => go_number(number),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_display).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let entries: Vec<_> =
                sorted(map).iter().map(|(key, value)| format!("{key}:{}", go_display(value))).collect();
            format!("map[{}]", entries.join(" "))
        }
    }
}

/// How Go's `%#v` shows a decoded JSON value.
pub(super) fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => go_number(number),
        Value::String(content) => text::quote(content),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(go_syntax).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => {
            let entries: Vec<_> =
                sorted(map).iter().map(|(key, value)| format!("{}:{}", text::quote(key), go_syntax(value))).collect();
            format!("map[string]interface {{}}{{{}}}", entries.join(", "))
        }
    }
}

/// Go's name for the type of a decoded JSON value; numbers of an applied configuration are floats there.
pub(super) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A number as Go shows it. Those of FieldsV1 and of applied configurations are floats there.
pub(super) fn go_number(number: &Number) -> String {
    text::float(number.as_f64().unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_compare_by_size() {
        assert!(equal(&json!({"a": [1, 2.0]}), &json!({"a": [1.0, 2]})));
        assert!(!equal(&json!(1), &json!("1")));
        assert!(!equal(&json!({"a": 1}), &json!({"b": 1})));
        assert_eq!(order(&json!(2), &json!(10)), Ordering::Less);
        assert_eq!(order(&json!(18_446_744_073_709_551_615_u64), &json!(1)), Ordering::Greater);
        assert_eq!(order(&json!("2"), &json!("10")), Ordering::Greater);
    }

    #[test]
    fn types_have_an_order() {
        let ordered = [json!(1), json!("a"), json!(false), json!([1]), json!([1, 2]), json!({"a": 1}), json!(null)];
        for pair in ordered.windows(2) {
            assert_eq!(order(&pair[0], &pair[1]), Ordering::Less, "{pair:?}");
        }
    }

    #[test]
    fn go_texts() {
        let value = json!({"b": [1, "x", null], "a": true});
        assert_eq!(go_display(&value), "map[a:true b:[1 x <nil>]]");
        assert_eq!(
            go_syntax(&value),
            r#"map[string]interface {}{"a":true, "b":[]interface {}{1, "x", interface {}(nil)}}"#
        );
    }
}
