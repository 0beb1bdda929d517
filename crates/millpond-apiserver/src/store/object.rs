//! A stored object: its JSON as bytes, and the few facts that lists, watches and the collector ask for.
//!
//! Bytes are the truth: a get copies nothing, a list concatenates, a watch frame is written once. A parsed
//! tree of a Pod takes five times the room of its text, so trees live only while a request changes one.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};

/// One object at one revision.
#[derive(Debug)]
pub struct StoredObject {
    /// `metadata.resourceVersion`.
    pub revision: u64,
    /// The JSON text in the storage version.
    pub bytes: Bytes,
    /// What is looked up without parsing.
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

/// An object on its way into the store: everything but its revision.
#[derive(Debug)]
pub struct Draft {
    text: Vec<u8>,
    /// Where the digits of the revision go.
    hole: usize,
    index: Index,
}

const REVISION_OPEN: &[u8] = b"{\"resourceVersion\":\"";

impl Draft {
    /// Encodes an object; any `metadata.resourceVersion` in it is left out.
    pub fn new(object: &Value) -> Self {
        Self::with_managed_fields(object, None)
    }

    /// Encodes an object; `managed_fields` is the JSON of those that are not in it.
    pub fn with_managed_fields(object: &Value, managed_fields: Option<&str>) -> Self {
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
    fn of_metadata(metadata: &Map<String, Value>) -> Self {
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

    /// Reads the index from the text of an object without building a tree.
    pub fn of_bytes(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Outer {
            #[serde(default)]
            metadata: Metadata,
        }
        #[derive(Deserialize, Default)]
        #[serde(default, rename_all = "camelCase")]
        struct Metadata {
            uid: Box<str>,
            labels: Option<std::collections::BTreeMap<Box<str>, Box<str>>>,
            owner_references: Option<Vec<OwnerReference>>,
            deletion_timestamp: Option<Box<str>>,
            finalizers: Option<Vec<Box<str>>>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct OwnerReference {
            uid: Box<str>,
            #[serde(default)]
            block_owner_deletion: Option<bool>,
        }
        let metadata = serde_json::from_slice::<Outer>(bytes)?.metadata;
        let owners = metadata.owner_references.unwrap_or_default().into_iter();
        Ok(Self {
            uid: metadata.uid,
            labels: metadata.labels.unwrap_or_default().into_iter().collect(),
            owners: owners
                .map(|o| Owner { uid: o.uid, blocks_deletion: o.block_owner_deletion.unwrap_or(false) })
                .collect(),
            deleting: metadata.deletion_timestamp.is_some(),
            has_finalizers: metadata.finalizers.is_some_and(|f| !f.is_empty()),
            fields: OnceLock::new(),
        })
    }
}

/// An object as loaded from disk.
pub(super) fn loaded(revision: u64, bytes: Bytes) -> Result<Arc<StoredObject>, serde_json::Error> {
    let index = Index::of_bytes(&bytes)?;
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
        let stored = Draft::new(&object).seal(42);
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
        let stored = Draft::new(&object).seal(1);
        let read = Index::of_bytes(&stored.bytes).unwrap();
        assert_eq!(format!("{:?}", stored.index), format!("{read:?}"));
        assert!(read.deleting && read.has_finalizers && read.owners[0].blocks_deletion);
    }
}
