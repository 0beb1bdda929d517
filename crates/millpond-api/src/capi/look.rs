//! Fields of raw objects, read one by one; a field of the wrong type is reported and treated as missing.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::Value;

use crate::duration;
use crate::meta::{Condition, Invalid};
use crate::time;

static NOTHING: Value = Value::Null;

/// Errors in the fields of an object, collected while it is read.
#[derive(Debug, Default)]
pub struct Problems(RefCell<Vec<Invalid>>);

impl Problems {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an error.
    pub fn say(&self, field: impl Into<String>, problem: impl Into<String>) {
        self.0.borrow_mut().push(Invalid::new(field, problem));
    }

    /// All of them.
    pub fn into_inner(self) -> Vec<Invalid> {
        self.0.into_inner()
    }
}

/// A value within an object, and where it is.
#[derive(Debug, Clone)]
pub(super) struct Look<'v> {
    value: &'v Value,
    path: String,
    problems: &'v Problems,
}

impl<'v> Look<'v> {
    pub(super) fn new(value: &'v Value, path: &str, problems: &'v Problems) -> Self {
        Self { value, path: path.to_owned(), problems }
    }

    /// The value itself.
    pub(super) fn raw(&self) -> &'v Value {
        self.value
    }

    pub(super) fn is_missing(&self) -> bool {
        self.value.is_null()
    }

    /// An object within this one.
    pub(super) fn at(&self, key: &str) -> Self {
        let found = self.get(key);
        if !found.is_null() && !found.is_object() && !found.is_array() {
            self.wrong(key, "is not an object");
        }
        Self { value: found, path: self.path_of(key), problems: self.problems }
    }

    pub(super) fn text(&self, key: &str) -> Option<&'v str> {
        self.read(key, "is not text", Value::as_str)
    }

    pub(super) fn owned(&self, key: &str) -> String {
        self.text(key).unwrap_or_default().to_owned()
    }

    /// A text that is not empty.
    pub(super) fn some_text(&self, key: &str) -> Option<String> {
        self.text(key).filter(|text| !text.is_empty()).map(ToOwned::to_owned)
    }

    pub(super) fn int(&self, key: &str) -> Option<i64> {
        // Numbers such as `3.0` are whole to the API server.
        let whole =
            |value: &Value| value.as_i64().or_else(|| value.as_f64().filter(|n| n.fract() == 0.0).map(|n| n as i64));
        self.read(key, "is not a whole number", whole)
    }

    pub(super) fn boolean(&self, key: &str) -> Option<bool> {
        self.read(key, "is neither true nor false", Value::as_bool)
    }

    pub(super) fn value(&self, key: &str) -> &'v Value {
        self.get(key)
    }

    /// A duration such as `5m`, in seconds.
    pub(super) fn duration_s(&self, key: &str) -> Option<i64> {
        let text = self.text(key)?;
        match duration::parse_seconds(text) {
            Ok(seconds) => Some(seconds),
            Err(error) => {
                self.wrong(key, &format!("`{text}` {error}"));
                None
            }
        }
    }

    pub(super) fn texts(&self, key: &str) -> BTreeMap<String, String> {
        let mut texts = BTreeMap::new();
        let fields = self.read(key, "is not a map", Value::as_object);
        for (name, value) in fields.into_iter().flatten() {
            match value.as_str() {
                Some(text) => drop(texts.insert(name.clone(), text.to_owned())),
                None => self.wrong(key, &format!("`{name}` is not text; put quotes around it")),
            }
        }
        texts
    }

    pub(super) fn list(&self, key: &str) -> Vec<Self> {
        let entries = self.read(key, "is not a list", Value::as_array);
        let path = self.path_of(key);
        let entry = |(index, value)| Self { value, path: format!("{path}[{index}]"), problems: self.problems };
        entries.into_iter().flatten().enumerate().map(entry).collect()
    }

    pub(super) fn conditions(&self, key: &str) -> Vec<Condition> {
        let read = |entry: Self| Condition {
            kind: entry.owned("type"),
            status: entry.owned("status"),
            reason: entry.owned("reason"),
            message: entry.owned("message"),
            last_transition_time: entry.text("lastTransitionTime").and_then(time::parse),
            observed_generation: entry.int("observedGeneration"),
        };
        self.list(key).into_iter().map(read).collect()
    }

    pub(super) fn wrong(&self, key: &str, problem: &str) {
        self.problems.say(self.path_of(key), problem);
    }

    pub(super) fn path_of(&self, key: &str) -> String {
        match (self.path.is_empty(), key.is_empty()) {
            (true, _) => key.to_owned(),
            (false, true) => self.path.clone(),
            (false, false) => format!("{}.{key}", self.path),
        }
    }

    fn get(&self, key: &str) -> &'v Value {
        self.value.get(key).unwrap_or(&NOTHING)
    }

    fn read<T>(&self, key: &str, problem: &str, read: impl Fn(&'v Value) -> Option<T>) -> Option<T> {
        let value = self.get(key);
        if value.is_null() {
            return None;
        }
        let found = read(value);
        if found.is_none() {
            self.wrong(key, problem);
        }
        found
    }
}
