//! The fields that a conversion could not translate exactly, one entry for each value.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// The most characters of a value in a line for people; the JSON of a report has all of it.
const LIMIT_SHOWN: usize = 80;

/// How a field was treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It is not in the result.
    Dropped,
    /// The closest equivalent was written.
    Approximated,
    /// The source had no value, and the target needs one.
    Defaulted,
}

impl Action {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::Approximated => "approximated",
            Self::Defaulted => "defaulted",
        }
    }
}

/// A field without an exact counterpart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Entry {
    /// The object that the field is of, `NodePool/default`: one that was read, for defaults one that was written.
    pub object: String,
    /// Its path in the object: `spec.nodePools[0].priority`.
    pub field: String,
    /// What was done.
    pub action: Action,
    /// Its value.
    #[serde(rename = "value")]
    value: Shown,
    /// Why, and what can be done about it.
    pub reason: String,
}

/// A value that has an order, by its text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown(Value);

impl Serialize for Shown {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl PartialOrd for Shown {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Shown {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.to_string().cmp(&other.0.to_string())
    }
}

impl Entry {
    /// Its value.
    pub fn value(&self) -> &Value {
        &self.value.0
    }

    /// Its value in one short line.
    pub fn shown(&self) -> String {
        let text = match &self.value.0 {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let short: String = text.chars().take(LIMIT_SHOWN).flat_map(char::escape_debug).collect();
        let short = short.replace("\\\"", "\"").replace("\\'", "'");
        if text.chars().nth(LIMIT_SHOWN).is_some() { format!("{short}…") } else { short }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, field, action, reason, .. } = self;
        write!(f, "{object}: {field}: {}: {}: {reason}", self.shown(), action.name())
    }
}

/// Every field of what was read or written that has no exact counterpart on the other side.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct Report {
    /// By object, then by field.
    pub entries: Vec<Entry>,
}

impl Report {
    /// Whether every field has a counterpart.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a field, once.
    pub(super) fn say(
        &mut self,
        object: &str,
        field: impl Into<String>,
        value: impl Into<Value>,
        action: Action,
        reason: impl Into<String>,
    ) {
        let entry = Entry {
            object: object.to_owned(),
            field: field.into(),
            action,
            value: Shown(value.into()),
            reason: reason.into(),
        };
        if !self.entries.contains(&entry) {
            self.entries.push(entry);
        }
    }

    /// Fields of one object together, by their paths, in the order in which the objects came first.
    pub(super) fn sort(&mut self) {
        let mut objects: Vec<String> = Vec::new();
        for entry in &self.entries {
            if !objects.contains(&entry.object) {
                objects.push(entry.object.clone());
            }
        }
        let place = |object: &str| objects.iter().position(|known| known == object);
        self.entries.sort_by_cached_key(|entry| (place(&entry.object), natural(&entry.field)));
    }
}

/// A path so that `[10]` comes after `[9]`.
fn natural(path: &str) -> Vec<(u64, String)> {
    let parts = path.split('[').map(|part| part.split_once(']').unwrap_or(("", part)));
    parts.map(|(index, text)| (index.parse().unwrap_or(0), text.to_owned())).collect()
}
