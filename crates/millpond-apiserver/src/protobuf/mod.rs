//! Request bodies in `application/vnd.kubernetes.protobuf`, which Go clients send for built-in kinds.
//!
//! A body is an envelope (`k8s\0` and a `runtime.Unknown`) around the message of a kind. [`decode`] turns it
//! into the JSON that Go would print for the same object; answers stay JSON, which every client accepts.
//!
//! The table of built-in types says which number is which field, so there is no code for any kind: [`plan`]
//! orders a type's fields by number, [`reader`] takes bytes apart, [`message`] puts the two together. Bodies
//! are hostile until proven otherwise: lengths are checked against what is there, and depth and size of the
//! result have limits.

mod message;
mod plan;
mod reader;

use std::fmt::Write as _;

use http::StatusCode;
use serde_json::Value;

use crate::builtin::shape;
use crate::schema::{SchemaRef, builtin};
use crate::status::ApiError;

use message::Decoder;
use reader::Reader;

/// The media type of these bodies.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The first bytes of every body.
const PREFIX: &[u8; 4] = b"k8s\0";

/// Group, version and kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
}

impl Kind {
    fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// A body that can't be read, and the kind that it says it is, if it came that far.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct ProtobufError {
    /// The kind that the envelope names.
    pub kind: Option<Box<Kind>>,
    /// The problem.
    pub problem: Problem,
}

/// Why a body is invalid; the sentences are Kubernetes' own where it has them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The body is empty.
    #[error("empty data")]
    EmptyData,
    /// No envelope.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoPrefix,
    /// An envelope without content.
    #[error("empty body")]
    EmptyBody,
    /// Neither the envelope nor the request tell the kind.
    #[error("Object 'Kind' is missing in 'runtime.TypeMeta{{APIVersion:{api_version:?}, Kind:\"\"}}'")]
    MissingKind {
        /// The apiVersion of the envelope.
        api_version: String,
    },
    /// Neither the envelope nor the request tell the version.
    #[error("Object 'apiVersion' is missing in 'runtime.TypeMeta{{APIVersion:\"\", Kind:{kind:?}}}'")]
    MissingVersion {
        /// The kind of the envelope.
        kind: String,
    },
    /// A kind that is not built in.
    #[error(
        "no kind {kind:?} is registered for version {api_version:?} in scheme \
         \"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30\""
    )]
    UnknownKind {
        /// Group and version.
        api_version: String,
        /// Kind.
        kind: String,
    },
    /// The body ends too early, or a length leads beyond its end.
    #[error("unexpected EOF")]
    UnexpectedEnd,
    /// A number of more than 64 bits.
    #[error("proto: integer overflow")]
    IntegerOverflow,
    /// A length of more than 63 bits.
    #[error("proto: negative length found during unmarshaling")]
    NegativeLength,
    /// The end of a group that was not begun.
    #[error("proto: {message}: wiretype end group for non-group")]
    EndGroup {
        /// Where.
        message: String,
    },
    /// Field number zero or below.
    #[error("proto: {message}: illegal tag {number} (wire type {tag})")]
    IllegalTag {
        /// Where.
        message: String,
        /// The field number.
        number: i32,
        /// The whole tag.
        tag: u64,
    },
    /// A wire type that does not exist.
    #[error("proto: illegal wireType {0}")]
    IllegalWireType(u8),
    /// A field that is written in another way than its type.
    #[error("proto: wrong wireType = {wire_type} for field {field}")]
    WrongWireType {
        /// The JSON name of the field.
        field: String,
        /// How it is written.
        wire_type: u8,
    },
    /// Embedded JSON (`RawExtension`, `FieldsV1`, defaults in CRDs) that is none.
    #[error("field {field} does not hold JSON: {reason}")]
    Json {
        /// The JSON name of the field.
        field: String,
        /// The parser's reason.
        reason: String,
    },
    /// A number that JSON can't show.
    #[error("json: unsupported value: {0}")]
    NotANumber(String),
    /// A time outside of the calendar.
    #[error("timestamp of {0} seconds is out of range")]
    Time(i64),
    /// `IntOrString` that is neither.
    #[error("impossible IntOrString.Type")]
    IntOrString,
    /// Deeper than [`message::MAX_DEPTH`].
    #[error("proto: exceeded max depth of {}", message::MAX_DEPTH)]
    TooDeep,
    /// More values than [`message::MAX_COST`] allows.
    #[error("proto: the object has too many values")]
    TooLarge,
}

/// Reads a body. `default` names the kind for envelopes that do not.
///
/// The result is the object as Go would print it, `apiVersion` and `kind` included.
pub fn decode(body: &[u8], default: &Kind) -> Result<Value, ProtobufError> {
    let envelope = Envelope::open(body).map_err(|problem| ProtobufError { kind: None, problem })?;
    let kind = envelope.kind(default);
    decode_as(&kind, &envelope).map_err(|problem| ProtobufError { kind: Some(Box::new(kind)), problem })
}

fn decode_as(kind: &Kind, envelope: &Envelope<'_>) -> Result<Value, Problem> {
    if kind.kind.is_empty() {
        return Err(Problem::MissingKind { api_version: envelope.api_version.clone() });
    }
    if kind.version.is_empty() {
        return Err(Problem::MissingVersion { kind: envelope.kind.clone() });
    }
    let Some(schema @ SchemaRef::Named(index)) = builtin::kind(&kind.group, &kind.version, &kind.kind) else {
        return Err(Problem::UnknownKind { api_version: kind.api_version(), kind: kind.kind.clone() });
    };
    let mut object = Decoder::new().root(index, envelope.raw)?;
    object.insert("apiVersion".to_owned(), kind.api_version().into());
    object.insert("kind".to_owned(), kind.kind.as_str().into());
    let mut object = Value::Object(object);
    shape::tidy(&schema, &mut object);
    shape::complete(&schema, &mut object);
    Ok(object)
}

impl ProtobufError {
    /// The answer to a request for `expected` that had this body.
    pub fn to_api_error(&self, expected: &str, body: &[u8]) -> ApiError {
        let message = match &self.kind {
            Some(kind) if !kind.kind.is_empty() => {
                format!("{} in version {:?} cannot be handled as a {expected}: {self}", kind.kind, kind.version)
            }
            _ => {
                format!("the object provided is unrecognized (must be of type {expected}): {self} ({})", summary(body))
            }
        };
        ApiError::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }
}

/// The first bytes of a body in hex.
fn summary(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    if body.is_empty() {
        return "<empty>".to_owned();
    }
    let mut hex = String::new();
    for byte in body.iter().take(SHOWN) {
        write!(hex, "{byte:02x}").expect("a string takes all text");
    }
    if body.len() > SHOWN {
        hex.push_str(" ...");
    }
    hex
}

/// `runtime.Unknown`.
struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn open(body: &'a [u8]) -> Result<Self, Problem> {
        if body.is_empty() {
            return Err(Problem::EmptyData);
        }
        let content = body.strip_prefix(PREFIX).ok_or(Problem::NoPrefix)?;
        if content.is_empty() {
            return Err(Problem::EmptyBody);
        }
        let mut envelope = Self { api_version: String::new(), kind: String::new(), raw: &[] };
        let mut reader = Reader::new(content);
        while let Some(tag) = reader.tag("Unknown")? {
            match tag.number {
                1 => envelope.type_meta(reader.bytes(&tag, "TypeMeta")?)?,
                2 => envelope.raw = reader.bytes(&tag, "Raw")?,
                _ => reader.skip(&tag)?,
            }
        }
        Ok(envelope)
    }

    fn type_meta(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        let mut reader = Reader::new(bytes);
        while let Some(tag) = reader.tag("TypeMeta")? {
            match tag.number {
                1 => self.api_version = String::from_utf8_lossy(reader.bytes(&tag, "APIVersion")?).into_owned(),
                2 => self.kind = String::from_utf8_lossy(reader.bytes(&tag, "Kind")?).into_owned(),
                _ => reader.skip(&tag)?,
            }
        }
        Ok(())
    }

    fn kind(&self, default: &Kind) -> Kind {
        let kind = if self.kind.is_empty() { &default.kind } else { &self.kind };
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", &self.api_version));
        let (group, version) =
            if version.is_empty() { (default.group.as_str(), default.version.as_str()) } else { (group, version) };
        Kind { group: group.to_owned(), version: version.to_owned(), kind: kind.clone() }
    }
}

#[cfg(test)]
mod tests;
