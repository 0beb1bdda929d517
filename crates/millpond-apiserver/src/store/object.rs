//! A stored object: its JSON as bytes, and the few facts that lists, watches and the collector ask for.
//!
//! Bytes are the truth: a get copies nothing, a list concatenates, a watch frame is written once. A parsed
//! tree of a Pod takes five times the room of its text, so trees live only while a request changes one.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::{Map, Value};

use super::verify;

/// Deepest nesting of an object that is stored. Answers wrap objects: a watched Table adds four levels. Readers that
/// are built on `serde_json` stop at [`READABLE_DEPTH`], this server and kube-rs clients among them.
pub const MAX_OBJECT_DEPTH: usize = 120;

/// Deepest nesting that `serde_json` reads.
pub const READABLE_DEPTH: usize = 127;

/// Size of the largest object that is stored: that of the largest request body, so that a client can write back what
/// it has read. The real server stops earlier, at etcd's limit of 1.5 MiB a request.
pub const MAX_OBJECT_BYTES: usize = 3 << 20;

/// One object at one revision.
#[derive(Debug)]
pub struct StoredObject {
    /// `metadata.resourceVersion`.
    pub revision: u64,
    /// The JSON text in the storage version.
    pub bytes: Bytes,
    /// The fields that are looked up without parsing.
    pub index: Index,
}

/// Facts of an object that are needed without parsing it.
#[derive(Debug, Default)]
pub struct Index {
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// `metadata.labels`, sorted by key.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// Owner references.
    pub owners: Box<[Owner]>,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `metadata.finalizers` is not empty.
    pub has_finalizers: bool,
    /// Values of the kind's selectable fields, read when first asked for.
    pub fields: OnceLock<Box<[Box<str>]>>,
}

/// One owner reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Uid of the owner.
    pub uid: Box<str>,
    /// The owner waits for this object when deleted in the foreground.
    pub blocks_deletion: bool,
}

impl StoredObject {
    /// The object as a tree.
    pub fn to_value(&self) -> Value {
        serde_json::from_slice(&self.bytes).expect("stored bytes were written by this process or verified on load")
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        let labels = &self.index.labels;
        labels.binary_search_by(|(k, _)| (**k).cmp(key)).ok().map(|at| &*labels[at].1)
    }
}

/// Why an object is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// It is nested too deeply to be read back.
    #[error("the object as stored is nested {depth} levels deep, limit is {limit}")]
    TooDeep {
        /// Levels of the object as it would be stored.
        depth: usize,
        /// Levels that are allowed.
        limit: usize,
    },
    /// It is too large for a client to write back.
    #[error("the object as stored has {bytes} bytes, limit is {limit}")]
    TooLarge {
        /// Size of the object as it would be stored.
        bytes: usize,
        /// Size that is allowed.
        limit: usize,
    },
}

/// How deep and how large an object may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    depth: usize,
    bytes: usize,
}

impl Limits {
    /// Limits of new objects.
    pub const NEW: Self = Self { depth: MAX_OBJECT_DEPTH, bytes: MAX_OBJECT_BYTES };

    /// Limits of the last state of a removed object: a removal must not fail because of the object's size.
    pub const REMOVED: Self = Self { depth: READABLE_DEPTH, bytes: usize::MAX };

    fn check(self, text: &[u8]) -> Result<(), EncodeError> {
        if text.len() > self.bytes {
            return Err(EncodeError::TooLarge { bytes: text.len(), limit: self.bytes });
        }
        let depth = verify::depth(text);
        if depth > self.depth {
            return Err(EncodeError::TooDeep { depth, limit: self.depth });
        }
        Ok(())
    }
}

/// An object on its way into the store: everything but its revision.
///
/// Every write goes through here, so here is checked that the object can be read back.
#[derive(Debug)]
pub struct EncodedObject {
    text: Vec<u8>,
    /// Where the digits of the revision go.
    hole: usize,
    index: Index,
}

const REVISION_OPEN: &[u8] = b"{\"resourceVersion\":\"";

impl EncodedObject {
    /// Encodes a new object; any `metadata.resourceVersion` in it is left out.
    pub fn new(object: &Value) -> Result<Self, EncodeError> {
        Self::encode(object, None, Limits::NEW)
    }

    /// Encodes an object within limits; `managed_fields` is the JSON of those that are not in it.
    pub fn encode(object: &Value, managed_fields: Option<&str>, limits: Limits) -> Result<Self, EncodeError> {
        Self::write(object, managed_fields).within(limits)
    }

    /// Encodes a change of an object. One from a time without limits may stay as deep and as large as it is.
    pub fn update_of(stored: &StoredObject, object: &Value) -> Result<Self, EncodeError> {
        let draft = Self::write(object, None);
        let mut limits = Limits::NEW;
        if limits.check(&draft.text).is_err() {
            limits.depth = limits.depth.max(verify::depth(&stored.bytes)).min(READABLE_DEPTH);
            limits.bytes = limits.bytes.max(stored.bytes.len());
        }
        draft.within(limits)
    }

    fn within(self, limits: Limits) -> Result<Self, EncodeError> {
        limits.check(&self.text)?;
        debug_assert!(verify::index(&self.text).is_ok(), "what is stored can be read back");
        Ok(self)
    }

    fn write(object: &Value, managed_fields: Option<&str>) -> Self {
        let Value::Object(fields) = object else { unreachable!("requests carry objects: checked when decoded") };
        let empty = Map::new();
        let metadata = fields.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
        let mut text = Vec::with_capacity(1024);
        let mut hole = 0;
        text.push(b'{');
        for key in ["apiVersion", "kind"] {
            if let Some(value) = fields.get(key) {
                write_entry(&mut text, key, value);
                text.push(b',');
            }
        }
        text.extend_from_slice(b"\"metadata\":");
        text.extend_from_slice(REVISION_OPEN);
        hole += text.len();
        text.push(b'"');
        for (key, value) in metadata.iter().filter(|(key, _)| *key != "resourceVersion") {
            text.push(b',');
            write_entry(&mut text, key, value);
        }
        if let Some(managed_fields) = managed_fields {
            text.extend_from_slice(b",\"managedFields\":");
            text.extend_from_slice(managed_fields.as_bytes());
        }
        text.push(b'}');
        for (key, value) in fields.iter().filter(|(key, _)| !matches!(key.as_str(), "metadata" | "apiVersion" | "kind"))
        {
            text.push(b',');
            write_entry(&mut text, key, value);
        }
        text.push(b'}');
        Self { text, hole, index: Index::of_metadata(metadata) }
    }

    /// Fills in the revision.
    pub fn seal(self, revision: u64) -> StoredObject {
        StoredObject { revision, bytes: self.with_digits(revision), index: self.index }
    }

    fn with_digits(&self, revision: u64) -> Bytes {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(revision).as_bytes();
        let mut bytes = Vec::with_capacity(self.text.len() + digits.len());
        bytes.extend_from_slice(&self.text[..self.hole]);
        bytes.extend_from_slice(digits);
        bytes.extend_from_slice(&self.text[self.hole..]);
        bytes.into()
    }

    /// Size of the text without the revision.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Never: even an empty object has braces.
    pub fn is_empty(&self) -> bool {
        false
    }
}

fn write_entry(text: &mut Vec<u8>, key: &str, value: &Value) {
    serde_json::to_writer(&mut *text, key).expect("writing to memory does not fail");
    text.push(b':');
    serde_json::to_writer(text, value).expect("writing to memory does not fail");
}

impl Index {
    pub(super) fn of_metadata(metadata: &Map<String, Value>) -> Self {
        let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default();
        let mut labels: Vec<(Box<str>, Box<str>)> = metadata
            .get("labels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or_default().into()))
            .collect();
        labels.sort();
        let owners =
            metadata.get("ownerReferences").and_then(Value::as_array).into_iter().flatten().map(|owner| Owner {
                uid: owner.get("uid").and_then(Value::as_str).unwrap_or_default().into(),
                blocks_deletion: owner.get("blockOwnerDeletion").and_then(Value::as_bool).unwrap_or(false),
            });
        Self {
            uid: text("uid").into(),
            labels: labels.into(),
            owners: owners.collect(),
            deleting: metadata.get("deletionTimestamp").is_some_and(|t| !t.is_null()),
            has_finalizers: metadata.get("finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty()),
            fields: OnceLock::new(),
        }
    }
}

/// An object as loaded from disk.
pub(super) fn loaded(revision: u64, bytes: Bytes) -> Result<Arc<StoredObject>, serde_json::Error> {
    let index = verify::index(&bytes)?;
    Ok(Arc::new(StoredObject { revision, bytes, index }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_draft_gets_its_revision_and_keeps_everything_else() {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"a": "\"resourceVersion\":\""},
            "metadata": {"name": "x", "resourceVersion": "7", "labels": {"b": "2", "a": "1"}, "uid": "u"}});
        let stored = EncodedObject::new(&object).unwrap().seal(42);
        let mut expected = object;
        expected["metadata"]["resourceVersion"] = json!("42");
        assert_eq!(stored.to_value(), expected);
        assert_eq!(stored.label("a"), Some("1"));
        assert_eq!(stored.label("c"), None);
    }

    #[test]
    fn the_index_is_the_same_from_text_and_tree() {
        let object = json!({"metadata": {"uid": "u", "labels": {"b": "2", "a": "1"}, "finalizers": ["f"],
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"uid": "o", "blockOwnerDeletion": true, "name": "n"}]}});
        let stored = EncodedObject::new(&object).unwrap().seal(1);
        let read = verify::index(&stored.bytes).unwrap();
        assert_eq!(format!("{:?}", stored.index), format!("{read:?}"));
        assert!(read.deleting && read.has_finalizers && read.owners[0].blocks_deletion);
    }

    #[test]
    fn what_is_too_deep_or_too_large_is_not_stored() {
        let nested = |levels: usize| json!({"spec": (1..levels).fold(json!(1), |inner, _| json!([inner]))});
        assert!(EncodedObject::new(&nested(MAX_OBJECT_DEPTH)).is_ok());
        let too_deep = EncodeError::TooDeep { depth: MAX_OBJECT_DEPTH + 1, limit: MAX_OBJECT_DEPTH };
        assert_eq!(EncodedObject::new(&nested(MAX_OBJECT_DEPTH + 1)).unwrap_err(), too_deep);
        let managed = format!("{}1{}", "[".repeat(MAX_OBJECT_DEPTH - 1), "]".repeat(MAX_OBJECT_DEPTH - 1));
        assert_eq!(EncodedObject::encode(&json!({}), Some(&managed), Limits::NEW).unwrap_err(), too_deep);
        let large = json!({"data": "x".repeat(MAX_OBJECT_BYTES)});
        assert!(matches!(EncodedObject::new(&large).unwrap_err(), EncodeError::TooLarge { .. }));
    }

    #[test]
    fn what_was_too_deep_or_too_large_may_stay_so() {
        let nested = (0..MAX_OBJECT_DEPTH).fold(json!("x".repeat(MAX_OBJECT_BYTES)), |inner, _| json!([inner]));
        let object = |note: &str| json!({"metadata": {"note": note}, "spec": nested});
        let stored = EncodedObject::encode(&object("12"), None, Limits::REMOVED).unwrap().seal(1);
        assert!(EncodedObject::update_of(&stored, &object("1")).is_ok());
        assert!(matches!(
            EncodedObject::update_of(&stored, &object("1234")).unwrap_err(),
            EncodeError::TooLarge { .. }
        ));
        assert!(EncodedObject::update_of(&stored, &json!({"spec": [nested]})).is_err(), "but not grow");
    }
}
