//! Reading fields that may be absent.

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::quantity;
use crate::selector::LabelSelector;

/// `metadata.name`.
pub(super) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// A text; empty where there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A text that may be absent.
pub(super) fn optional<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer).and_then(Value::as_str)
}

/// A whole number; zero where there is none.
pub(super) fn integer(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// A flag; false where there is none.
pub(super) fn flag(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).and_then(Value::as_bool).unwrap_or(false)
}

/// A list; empty where there is none.
pub(super) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// An object that may be absent.
pub(super) fn map<'a>(object: &'a Value, pointer: &str) -> Option<&'a Map<String, Value>> {
    object.pointer(pointer).and_then(Value::as_object)
}

/// How many keys an object has.
pub(super) fn size(object: &Value, pointer: &str) -> usize {
    map(object, pointer).map_or(0, Map::len)
}

/// A time that may be absent or unreadable.
pub(super) fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    optional(object, pointer)?.parse().ok()
}

/// Whether something other than null stands at a pointer.
pub(super) fn present(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).is_some_and(|value| !value.is_null())
}

/// Whether the object waits to be deleted.
pub(super) fn is_deleting(object: &Value) -> bool {
    present(object, "/metadata/deletionTimestamp")
}

/// One text of each item of a list.
pub(super) fn words<'a>(items: &'a [Value], key: &str) -> Vec<&'a str> {
    items.iter().map(|item| item[key].as_str().unwrap_or_default()).collect()
}

/// The texts of a list, joined.
pub(super) fn joined(object: &Value, pointer: &str, separator: &str) -> String {
    let items: Vec<&str> = list(object, pointer).iter().filter_map(Value::as_str).collect();
    items.join(separator)
}

/// A quantity in its canonical form; `None` if it is missing.
pub(super) fn optional_quantity(object: &Value, pointer: &str) -> Option<String> {
    match object.pointer(pointer)? {
        Value::String(text) => Some(quantity::canonical(text)),
        number @ Value::Number(_) => Some(quantity::canonical(&number.to_string())),
        _ => None,
    }
}

/// A quantity in its canonical form; `0` where there is none.
pub(super) fn quantity(object: &Value, pointer: &str) -> String {
    optional_quantity(object, pointer).unwrap_or_else(|| "0".to_owned())
}

/// A map of labels as `a=b,c=d`, or `<none>`.
pub(super) fn labels(object: &Value, pointer: &str) -> String {
    let pairs: Vec<String> = map(object, pointer)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

/// A `LabelSelector` as text, `<none>` when it is empty or absent.
pub(super) fn selector(object: &Value, pointer: &str) -> String {
    let selector = object.pointer(pointer).unwrap_or(&Value::Null);
    match LabelSelector::from_object(selector).map(|selector| selector.to_string()) {
        Ok(text) if text.is_empty() => "<none>".to_owned(),
        Ok(text) => text,
        Err(_) => "<error>".to_owned(),
    }
}

/// A whole number or text, as text.
pub(super) fn number_or_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}
