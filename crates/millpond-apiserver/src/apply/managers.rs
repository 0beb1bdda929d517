//! `metadata.managedFields`: which managers own which fields of an object, since when and through which version.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::fields::{FieldSet, FieldsError};
use crate::go::text::quote;

/// Updaters beyond this number are merged, the oldest first, so that managedFields cannot grow for ever.
pub const MAX_UPDATERS: usize = 10;

/// The manager that the oldest updaters are merged into.
const ANCIENT_CHANGES: &str = "ancient-changes";

/// How a manager came to own its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// By create, update or any other patch.
    Update,
}

impl Operation {
    /// The text in an entry.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// managedFields that cannot be read; texts as the real API server has them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// managedFields is not a list of objects.
    #[error("managedFields must be a list of objects")]
    Malformed,
    /// Neither Apply nor Update.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// No version.
    #[error("apiVersion must not be empty")]
    ApiVersion,
    /// The type of the fields is missing.
    #[error("missing fieldsType in managed fields entry {0}")]
    MissingFieldsType(usize),
    /// An unknown `fieldsType`.
    #[error("invalid fieldsType {} in managed fields entry {place}", quote(.fields_type))]
    FieldsType {
        /// The type.
        fields_type: String,
        /// Place of the entry.
        place: usize,
    },
    /// The fields themselves.
    #[error("error decoding versioned set: error decoding set: {0}")]
    Fields(#[from] FieldsError),
}

/// One entry of managedFields.
#[derive(Debug, Clone)]
pub(super) struct Entry<'a> {
    pub manager: Cow<'a, str>,
    pub operation: Operation,
    pub api_version: Cow<'a, str>,
    pub subresource: Cow<'a, str>,
    /// RFC 3339 in UTC with seconds, so that text order is time order.
    pub time: Option<Cow<'a, str>>,
    pub fields: FieldSet<'a>,
    /// Place of the entry that this one was read from, as long as the fields are the same.
    pub unchanged: Option<usize>,
}

impl Entry<'_> {
    /// Whether two entries are of the same manager. Appliers keep their identity over versions.
    pub(super) fn is_same_manager(&self, other: &Entry<'_>) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// The text by which upstream knows a manager, and sorts them in messages.
    pub(super) fn identifier(&self) -> String {
        let mut map = vec![format!("\"manager\":{}", Value::from(&*self.manager))];
        map.push(format!("\"operation\":\"{}\"", self.operation.as_str()));
        if self.operation == Operation::Update {
            map.push(format!("\"apiVersion\":{}", Value::from(&*self.api_version)));
        }
        if !self.subresource.is_empty() {
            map.push(format!("\"subresource\":{}", Value::from(&*self.subresource)));
        }
        format!("{{{}}}", map.join(","))
    }

    /// How the manager is named in a conflict.
    pub(super) fn shown(&self) -> String {
        let mut shown = quote(&self.manager);
        if !self.subresource.is_empty() {
            shown = format!("{shown} with subresource {}", quote(&self.subresource));
        }
        if self.operation == Operation::Update {
            shown = format!("{shown} using {}", self.api_version);
        }
        shown
    }

    /// Appliers first, then by time, manager, version and subresource.
    fn order(&self, other: &Entry<'_>) -> Ordering {
        (self.operation, &self.time, &self.manager, &self.api_version, &self.subresource).cmp(&(
            other.operation,
            &other.time,
            &other.manager,
            &other.api_version,
            &other.subresource,
        ))
    }
}

/// The managers of one object.
#[derive(Debug, Clone, Default)]
pub(super) struct Managed<'a> {
    pub entries: Vec<Entry<'a>>,
}

impl<'a> Managed<'a> {
    /// Reads managedFields; a missing or null list has no entries.
    pub(super) fn decode(managed_fields: Option<&'a Value>) -> Result<Self, EntryError> {
        let list = match managed_fields {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(Value::Array(list)) => list,
            Some(_) => return Err(EntryError::Malformed),
        };
        let mut managed = Self { entries: Vec::with_capacity(list.len() + 1) };
        for (place, entry) in list.iter().enumerate() {
            let entry = decode_entry(entry.as_object().ok_or(EntryError::Malformed)?, place)?;
            // Of two entries of the same manager, the later one counts.
            match managed.entries.iter_mut().find(|other| other.is_same_manager(&entry)) {
                Some(other) => *other = entry,
                None => managed.entries.push(entry),
            }
        }
        Ok(managed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Has all fields written anew: those that a client sent may be in any form.
    pub(super) fn rewrite(&mut self) {
        for entry in &mut self.entries {
            entry.unchanged = None;
        }
    }

    /// Adds fields to a manager, or the manager itself, as of now.
    pub(super) fn merge(&mut self, entry: Entry<'a>) {
        match self.entries.iter_mut().find(|other| other.is_same_manager(&entry)) {
            Some(other) => {
                let before = std::mem::take(&mut other.fields);
                *other = Entry { fields: entry.fields.union(before), unchanged: None, ..entry };
            }
            None => self.entries.push(entry),
        }
    }

    /// Merges the oldest updaters of each version until there are no more than [`MAX_UPDATERS`].
    pub(super) fn cap_updaters(&mut self) {
        let mut updaters: Vec<Entry<'a>> = Vec::new();
        let count = self.entries.iter().filter(|entry| entry.operation == Operation::Update).count();
        if count <= MAX_UPDATERS {
            return;
        }
        let (mut kept, mut rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.entries).into_iter().partition(|entry| entry.operation == Operation::Apply);
        rest.sort_by_cached_key(|entry| (entry.time.clone(), entry.identifier()));
        let mut left = count;
        for entry in rest {
            // The first of a version waits for a second one to be merged with.
            let earlier = updaters.iter_mut().find(|other| other.api_version == entry.api_version);
            match earlier {
                Some(bucket) if left > MAX_UPDATERS => {
                    bucket.manager = Cow::Borrowed(ANCIENT_CHANGES);
                    bucket.subresource = Cow::Borrowed("");
                    bucket.time = entry.time;
                    bucket.fields = std::mem::take(&mut bucket.fields).union(entry.fields);
                    bucket.unchanged = None;
                    left -= 1;
                }
                _ => updaters.push(entry),
            }
        }
        for entry in updaters {
            match kept.iter_mut().find(|other| other.is_same_manager(&entry)) {
                Some(bucket) => bucket.fields = std::mem::take(&mut bucket.fields).union(entry.fields),
                None => kept.push(entry),
            }
        }
        self.entries = kept;
    }

    /// The entries in their order, ready to be written; fields that are as they were are referred to.
    pub(super) fn encode(mut self) -> Vec<EncodedEntry> {
        self.entries.sort_by(Entry::order);
        self.entries.into_iter().map(EncodedEntry::from).collect()
    }
}

/// An entry that no longer borrows, with its fields, or with the place of the entry that has them.
pub(super) struct EncodedEntry {
    head: Map<String, Value>,
    fields: Result<Value, usize>,
}

impl From<Entry<'_>> for EncodedEntry {
    fn from(entry: Entry<'_>) -> Self {
        let fields = match entry.unchanged {
            Some(place) => Err(place),
            None => Ok(entry.fields.to_value()),
        };
        let mut head = Map::new();
        head.insert("apiVersion".to_owned(), Value::String(entry.api_version.into_owned()));
        head.insert("fieldsType".to_owned(), Value::from("FieldsV1"));
        if !entry.manager.is_empty() {
            head.insert("manager".to_owned(), Value::String(entry.manager.into_owned()));
        }
        head.insert("operation".to_owned(), Value::from(entry.operation.as_str()));
        if !entry.subresource.is_empty() {
            head.insert("subresource".to_owned(), Value::String(entry.subresource.into_owned()));
        }
        if let Some(time) = entry.time {
            head.insert("time".to_owned(), Value::String(time.into_owned()));
        }
        Self { head, fields }
    }
}

/// The entries as managedFields; fields that were not changed are moved out of `source`.
pub(super) fn assemble(entries: Vec<EncodedEntry>, mut source: Option<Value>) -> Option<Value> {
    if entries.is_empty() {
        return None;
    }
    let mut take = |place: usize| {
        let entry = source.as_mut()?.get_mut(place)?;
        entry.get_mut("fieldsV1").map(Value::take)
    };
    let list = entries.into_iter().map(|entry| {
        let fields = entry.fields.unwrap_or_else(|place| take(place).unwrap_or_else(|| Value::Object(Map::new())));
        let mut map = entry.head;
        map.insert("fieldsV1".to_owned(), fields);
        Value::Object(map)
    });
    Some(Value::Array(list.collect()))
}

fn decode_entry(entry: &Map<String, Value>, place: usize) -> Result<Entry<'_>, EntryError> {
    let text = |name: &str| match entry.get(name) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(_) => Err(EntryError::Malformed),
    };
    let operation = match text("operation")? {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err(EntryError::Operation),
    };
    let api_version = text("apiVersion")?;
    if api_version.is_empty() {
        return Err(EntryError::ApiVersion);
    }
    match text("fieldsType")? {
        "FieldsV1" => {}
        "" => return Err(EntryError::MissingFieldsType(place)),
        other => return Err(EntryError::FieldsType { fields_type: other.to_owned(), place }),
    }
    let fields = entry.get("fieldsV1").map_or(Ok(FieldSet::new()), FieldSet::from_value)?;
    Ok(Entry {
        manager: Cow::Borrowed(text("manager")?),
        operation,
        api_version: Cow::Borrowed(api_version),
        subresource: Cow::Borrowed(text("subresource")?),
        time: canonical_time(text("time")?),
        fields,
        unchanged: Some(place),
    })
}

/// Times are kept as Kubernetes writes them; others are rewritten, and what is no time is none.
fn canonical_time(text: &str) -> Option<Cow<'_, str>> {
    let canonical = text.len() == 20
        && text.bytes().enumerate().all(|(place, byte)| match place {
            4 | 7 => byte == b'-',
            10 => byte == b'T',
            13 | 16 => byte == b':',
            19 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        });
    if canonical {
        return Some(Cow::Borrowed(text));
    }
    text.parse().ok().map(|time| Cow::Owned(time_text(time)))
}

/// A time as Kubernetes writes it: UTC, whole seconds.
pub(super) fn time_text(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Whether a client asks to forget all managers, by an empty list or a list of one empty entry.
pub(super) fn is_reset(managed_fields: Option<&Value>) -> bool {
    match managed_fields.and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(entry)]) => entry.values().all(|value| value.is_null() || value.as_str() == Some("")),
        _ => false,
    }
}
