//! Records and objects: the values that go into the log and come out of it,
//! and their encoding inside a frame's payload.

use std::sync::Arc;

use bytes::Bytes;

use super::format::{MAX_BATCH_BYTES, u32_at, u64_at};

/// The effect of a record on its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// Created or replaced it.
    Put,
    /// Removed it.
    Delete,
}

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Greater than that of every record before it.
    pub revision: u64,
    /// The effect.
    pub kind: RecordKind,
    /// When, by the server's clock: decides how long the record is kept as history.
    pub time_unix_ms: u64,
    /// `pods`, `apps/deployments`.
    pub resource: Arc<str>,
    /// `namespace/name`, or `name` where there is no namespace.
    pub key: Arc<str>,
    /// The object as stored; for a deletion, its last state.
    pub object: Bytes,
}

impl Record {
    /// The size of the record as a part of [`super::MAX_BATCH_BYTES`].
    pub fn encoded_bytes(&self) -> u64 {
        self.as_ref().encoded_bytes()
    }

    pub(super) fn as_ref(&self) -> RecordRef<'_> {
        RecordRef {
            revision: self.revision,
            kind: self.kind,
            time_unix_ms: self.time_unix_ms,
            resource: &self.resource,
            key: &self.key,
            object: &self.object,
        }
    }
}

/// The state of an object before a record changed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Previous {
    /// The revision that wrote it.
    pub revision: u64,
    /// The object as stored.
    pub object: Bytes,
}

/// A record as watchers need it: with what was there before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryRecord {
    /// The write.
    pub record: Record,
    /// The version that it replaced or removed; `None` for a creation.
    pub previous: Option<Previous>,
}

/// An object that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveObject {
    /// `pods`, `apps/deployments`.
    pub resource: Arc<str>,
    /// `namespace/name`, or `name` where there is no namespace.
    pub key: Arc<str>,
    /// The revision that wrote it last.
    pub revision: u64,
    /// The object as stored.
    pub object: Bytes,
}

impl LiveObject {
    pub(super) fn as_ref(&self) -> ObjectRef<'_> {
        ObjectRef { revision: self.revision, resource: &self.resource, key: &self.key, object: &self.object }
    }
}

/// A record inside a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordRef<'a> {
    pub(super) revision: u64,
    pub(super) kind: RecordKind,
    pub(super) time_unix_ms: u64,
    pub(super) resource: &'a str,
    pub(super) key: &'a str,
    pub(super) object: &'a [u8],
}

/// An object inside a snapshot's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ObjectRef<'a> {
    pub(super) revision: u64,
    pub(super) resource: &'a str,
    pub(super) key: &'a str,
    pub(super) object: &'a [u8],
}

const OBJECT_FIXED: usize = 16;
const RECORD_FIXED: usize = OBJECT_FIXED + 9;
/// One record must fit a batch.
const MAX_OBJECT_BYTES: u64 = MAX_BATCH_BYTES - (RECORD_FIXED - OBJECT_FIXED) as u64;
const PUT: u8 = 1;
const DELETE: u8 = 2;

impl<'a> RecordRef<'a> {
    pub(super) fn object_ref(&self) -> ObjectRef<'a> {
        ObjectRef { revision: self.revision, resource: self.resource, key: self.key, object: self.object }
    }

    pub(super) fn encoded_bytes(&self) -> u64 {
        (RECORD_FIXED - OBJECT_FIXED) as u64 + self.object_ref().encoded_bytes()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self.kind {
            RecordKind::Put => PUT,
            RecordKind::Delete => DELETE,
        });
        out.extend_from_slice(&self.time_unix_ms.to_le_bytes());
        self.object_ref().encode(out);
    }
}

impl ObjectRef<'_> {
    /// The rule that forbids to store this, if one does.
    pub(super) fn broken_rule(&self) -> Option<&'static str> {
        if self.resource.is_empty() || self.resource.len() > usize::from(u16::MAX) {
            Some("a resource name has 1 to 65535 bytes")
        } else if self.key.is_empty() || self.key.len() > usize::from(u16::MAX) {
            Some("a key has 1 to 65535 bytes")
        } else if self.encoded_bytes() > MAX_OBJECT_BYTES {
            Some("the object is larger than a batch may be")
        } else {
            None
        }
    }

    pub(super) fn encoded_bytes(&self) -> u64 {
        (OBJECT_FIXED + self.resource.len() + self.key.len() + self.object.len()) as u64
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.revision.to_le_bytes());
        out.extend_from_slice(&(self.resource.len() as u16).to_le_bytes());
        out.extend_from_slice(&(self.key.len() as u16).to_le_bytes());
        out.extend_from_slice(&(self.object.len() as u32).to_le_bytes());
        out.extend_from_slice(self.resource.as_bytes());
        out.extend_from_slice(self.key.as_bytes());
        out.extend_from_slice(self.object);
    }
}

/// Takes the next record off a payload; the text says why it cannot be one.
pub(super) fn take_record<'a>(payload: &mut &'a [u8]) -> Result<RecordRef<'a>, &'static str> {
    let head = take(payload, RECORD_FIXED - OBJECT_FIXED)?;
    let kind = match head[0] {
        PUT => RecordKind::Put,
        DELETE => RecordKind::Delete,
        _ => return Err("a record of unknown kind"),
    };
    let time_unix_ms = u64_at(head, 1);
    let object = take_object(payload)?;
    Ok(RecordRef {
        revision: object.revision,
        kind,
        time_unix_ms,
        resource: object.resource,
        key: object.key,
        object: object.object,
    })
}

/// Takes the next object off a snapshot's payload.
pub(super) fn take_object<'a>(payload: &mut &'a [u8]) -> Result<ObjectRef<'a>, &'static str> {
    let head = take(payload, OBJECT_FIXED)?;
    let revision = u64_at(head, 0);
    let resource_bytes = usize::from(u16::from_le_bytes([head[8], head[9]]));
    let key_bytes = usize::from(u16::from_le_bytes([head[10], head[11]]));
    let object_bytes = u32_at(head, 12) as usize;
    let resource = text(take(payload, resource_bytes)?)?;
    let key = text(take(payload, key_bytes)?)?;
    let object = take(payload, object_bytes)?;
    if resource.is_empty() || key.is_empty() {
        return Err("an entry without a name");
    }
    Ok(ObjectRef { revision, resource, key, object })
}

fn take<'a>(payload: &mut &'a [u8], count: usize) -> Result<&'a [u8], &'static str> {
    let (taken, rest) = payload.split_at_checked(count).ok_or("an entry that ends after its frame")?;
    *payload = rest;
    Ok(taken)
}

fn text(bytes: &[u8]) -> Result<&str, &'static str> {
    std::str::from_utf8(bytes).map_err(|_| "a name that is not UTF-8")
}
