//! Values within objects of other kinds.

use serde_json::Value;

/// A value within another; null when it is not there.
pub(crate) fn at<'v>(value: &'v Value, path: &[&str]) -> &'v Value {
    static NOTHING: Value = Value::Null;
    path.iter().try_fold(value, |value, key| value.get(key)).unwrap_or(&NOTHING)
}

/// Text within a value that is not empty.
pub(crate) fn text<'v>(value: &'v Value, path: &[&str]) -> Option<&'v str> {
    at(value, path).as_str().filter(|text| !text.is_empty())
}

/// Whether a value within another is true.
pub(crate) fn is(value: &Value, path: &[&str]) -> bool {
    at(value, path).as_bool().unwrap_or(false)
}
