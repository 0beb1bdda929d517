//! The one schema model: built-in types and custom resources look the same to every reader.
//!
//! Strict decoding, pruning, defaulting, validation, strategic merge, server-side apply, protobuf bodies
//! and OpenAPI all walk a [`Schema`]. Built-in types come from a generated table ([`builtin`]), in which
//! types refer to each other by name; custom resources bring their own tree, parsed from the CRD.

use std::ops::Deref;
use std::sync::Arc;

use serde_json::Value;

/// A schema, in place or by name in the table of built-in types (which may be recursive).
#[derive(Debug, Clone)]
pub enum SchemaRef {
    /// A schema that stands here.
    Inline(Arc<Schema>),
    /// Index of a type in the built-in table.
    Named(u16),
}

impl Deref for SchemaRef {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        match self {
            Self::Inline(schema) => schema,
            Self::Named(index) => builtin::type_at(*index),
        }
    }
}

impl From<Schema> for SchemaRef {
    fn from(schema: Schema) -> Self {
        Self::Inline(Arc::new(schema))
    }
}

/// The JSON type that a schema asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Type {
    /// Any value.
    #[default]
    Any,
    /// A map with known properties, additional ones, or both.
    Object,
    /// A list.
    Array,
    /// Text.
    String,
    /// A whole number.
    Integer,
    /// Any number.
    Number,
    /// true or false.
    Boolean,
    /// A whole number or text (`x-kubernetes-int-or-string`).
    IntOrString,
}

/// How server-side apply treats a list (`x-kubernetes-list-type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListType {
    /// The whole list has one owner.
    #[default]
    Atomic,
    /// Scalars, each with its own owners.
    Set,
    /// Objects identified by [`Schema::list_map_keys`].
    Map,
}

/// One node of a schema.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    /// Full name in OpenAPI (`io.k8s.api.core.v1.Pod`) for named types.
    pub name: Option<Box<str>>,
    /// JSON type.
    pub ty: Type,
    /// OpenAPI format: `int32`, `int64`, `date-time`, `byte`, `quantity` …
    pub format: Option<Box<str>>,
    /// The description that `kubectl explain` shows.
    pub description: Option<Box<str>>,
    /// Known properties.
    pub properties: Properties,
    /// Names of properties that must be there.
    pub required: Vec<Box<str>>,
    /// Schema of values under unknown keys (maps).
    pub additional: Option<SchemaRef>,
    /// Schema of list items.
    pub items: Option<SchemaRef>,
    /// Server-side apply: how the list merges.
    pub list_type: ListType,
    /// Server-side apply: keys of a map list.
    pub list_map_keys: Vec<Box<str>>,
    /// Server-side apply: the whole object has one owner (`x-kubernetes-map-type: atomic`).
    pub atomic_map: bool,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub preserve_unknown: bool,
    /// `x-kubernetes-embedded-resource`.
    pub embedded_resource: bool,
    /// `null` is a value of its own.
    pub nullable: bool,
    /// Default value.
    pub default: Option<Value>,
    /// Validation rules of custom resources; `None` for built-in types.
    pub rules: Option<Box<custom::Rules>>,
}

/// A property of an object schema: its schema plus what belongs to this use of it.
#[derive(Debug, Clone)]
pub struct Property {
    /// Schema of the value.
    pub schema: SchemaRef,
    /// Description of this use, where it differs from the type's own.
    pub description: Option<Box<str>>,
    /// Default of this use, where the type itself has none.
    pub default: Option<Value>,
    /// Strategic merge: `merge`, `replace`, `retainKeys` (several may hold).
    pub patch: PatchStrategy,
    /// Strategic merge: key of a merged list of objects.
    pub patch_merge_key: Option<Box<str>>,
    /// Where the field stands in protobuf bodies (built-in types).
    pub proto: Option<ProtoField>,
    /// The encoding of an empty value (built-in types).
    pub zero: Zero,
}

impl Property {
    /// A property with nothing but a schema.
    pub fn new(schema: SchemaRef) -> Self {
        Self {
            schema,
            description: None,
            default: None,
            patch: PatchStrategy::default(),
            patch_merge_key: None,
            proto: None,
            zero: Zero::default(),
        }
    }
}

/// How the real API server prints a field of a built-in type that is empty: a consequence of the Go field
/// being a pointer or not, and of its `omitempty`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Zero {
    /// An empty value (`""`, `0`, `false`, `[]`, `{}`) means the same as none and is left out.
    #[default]
    Omitted,
    /// The field is always there, with the empty value of its type when nothing was set
    /// (`null` for lists, maps and times).
    Always,
    /// An empty value differs from a missing one; a missing one is left out.
    Distinct,
    /// An empty value differs from a missing one; a missing one is written as `null`.
    DistinctOrNull,
}

/// `x-kubernetes-patch-strategy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PatchStrategy {
    /// Lists merge by key (or as sets) instead of being replaced.
    pub merge: bool,
    /// An object is replaced as a whole instead of being merged.
    pub replace: bool,
    /// Keys absent from the patch are dropped (`$retainKeys`).
    pub retain_keys: bool,
}

/// How a field is written in protobuf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtoField {
    /// Field number.
    pub number: u32,
    /// Numbers of the messages around the field that JSON does not show (fields of an embedded Go struct
    /// stand in their parent's object), outermost first; 0 where there is none.
    pub within: [u8; 2],
    /// Encoding of the value (of one item, for lists; of the value, for maps).
    pub wire: Wire,
}

/// Protobuf encodings that Kubernetes types use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// Message of the property's (item) schema.
    Message,
    /// UTF-8 text.
    String,
    /// Bytes; base64 in JSON.
    Bytes,
    /// Varint, signed (int32, int64).
    Int,
    /// Varint 0 or 1.
    Bool,
    /// 64-bit IEEE float.
    Double,
    /// `map<string, V>`: entries with key 1 and value 2; the field says how values are written.
    MapOf(MapValue),
    /// `resource.Quantity`.
    Quantity,
    /// `metav1.Time`: seconds and nanoseconds.
    Time,
    /// `metav1.MicroTime`.
    MicroTime,
    /// `intstr.IntOrString`.
    IntOrString,
    /// `metav1.FieldsV1` and `runtime.RawExtension` and apiextensions `JSON`: raw JSON bytes in field 1.
    RawJson,
    /// Message whose field 1 repeats text; a list of strings in JSON (`ExtraValue`).
    StringList,
    /// apiextensions `JSONSchemaPropsOrArray`: one schema or a list of them.
    SchemaOrArray,
    /// apiextensions `JSONSchemaPropsOrBool`: a schema, or true or false.
    SchemaOrBool,
    /// apiextensions `JSONSchemaPropsOrStringArray`: a schema or a list of strings.
    SchemaOrStrings,
}

/// Encoding of map values in protobuf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapValue {
    /// UTF-8 text.
    String,
    /// Bytes; base64 in JSON.
    Bytes,
    /// `resource.Quantity`.
    Quantity,
    /// `metav1.Time`.
    Time,
    /// Message of the map's value schema.
    Message,
    /// Message whose field 1 repeats text; a list of strings in JSON.
    StringList,
    /// apiextensions `JSONSchemaPropsOrStringArray`.
    SchemaOrStrings,
}

pub mod builtin;
pub mod custom;
mod properties;
pub mod strict;

pub use properties::Properties;
