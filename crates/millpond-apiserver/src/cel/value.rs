//! Values while an expression is evaluated. Parts of the checked object are only looked at, never copied.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use serde_json::Value as Json;

use super::compare::scalar_key;
use super::functions::{NamedFormat, Semver};
use super::schema_type::{escape, meta_fields, unescape};
use crate::go::net::Network;
use crate::go::time;
use crate::go::url::Url;
use crate::schema::custom::props::Props;

/// A value.
#[derive(Debug, Clone)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    /// In nanoseconds.
    Duration(i64),
    /// In nanoseconds since 1970.
    Timestamp(i128),
    List(List<'a>),
    Map(Map<'a>),
    Optional(Option<Arc<Value<'a>>>),
    /// A type, by name.
    Type(Arc<str>),
    /// In thousand millionths.
    Quantity(i128),
    Url(Arc<Url>),
    Semver(Arc<Semver>),
    Ip(IpAddr),
    Cidr(Network),
    Format(&'static NamedFormat),
    /// JSON that no schema describes; it can only be compared.
    Unknown(&'a Json),
}

/// A text, of the object or made.
#[derive(Debug, Clone)]
pub(crate) enum Text<'a> {
    Borrowed(&'a str),
    Made(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Made(text) => text,
        }
    }
}

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The cost or the work went beyond the limit. Nothing absorbs this one.
    #[error("operation cancelled: actual cost limit exceeded")]
    Limit,
    /// No overload takes these values.
    #[error("no such overload")]
    NoOverload,
    /// Anything else.
    #[error("{0}")]
    Other(Arc<str>),
}

impl Error {
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        Self::Other(text.as_ref().into())
    }
}

pub(crate) type Evaluated<'a> = Result<Value<'a>, Error>;

/// A list and what makes two of its kind equal.
#[derive(Debug, Clone)]
pub(crate) struct List<'a> {
    repr: ListRepr<'a>,
    pub(crate) kind: ListKind<'a>,
}

#[derive(Debug, Clone)]
enum ListRepr<'a> {
    Json { items: &'a [Json], schema: &'a Props },
    Made(Arc<Vec<Value<'a>>>),
}

/// How a list treats order and repetition.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ListKind<'a> {
    Plain,
    /// Order does not matter.
    Set,
    /// Items are known by these keys.
    Map(&'a [Box<str>]),
}

impl<'a> List<'a> {
    pub(crate) fn made(items: Vec<Value<'a>>) -> Self {
        Self { repr: ListRepr::Made(Arc::new(items)), kind: ListKind::Plain }
    }

    pub(crate) fn of_kind(items: Vec<Value<'a>>, kind: ListKind<'a>) -> Self {
        Self { repr: ListRepr::Made(Arc::new(items)), kind }
    }

    pub(crate) fn len(&self) -> usize {
        match &self.repr {
            ListRepr::Json { items, .. } => items.len(),
            ListRepr::Made(items) => items.len(),
        }
    }

    pub(crate) fn get(&self, index: usize) -> Option<Evaluated<'a>> {
        match &self.repr {
            ListRepr::Json { items, schema } => {
                let items_schema = schema.items.as_deref()?;
                items.get(index).map(|item| Value::of(item, items_schema, items_schema.embedded_resource))
            }
            ListRepr::Made(items) => items.get(index).cloned().map(Ok),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Evaluated<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// All items; the error is the first item's that has no value.
    pub(crate) fn items(&self) -> Result<Vec<Value<'a>>, Error> {
        self.iter().collect()
    }

    /// Appends to a list; a list with one reference is not copied.
    pub(crate) fn push(&mut self, item: Value<'a>) {
        match &mut self.repr {
            ListRepr::Made(items) => Arc::make_mut(items).push(item),
            ListRepr::Json { .. } => {
                if let Ok(mut items) = self.items() {
                    items.push(item);
                    *self = Self::made(items);
                }
            }
        }
    }

    /// The identity of an item in a map list, from its key fields.
    pub(crate) fn key_of(keys: &[Box<str>], item: &Value<'_>) -> Option<String> {
        let Value::Map(map) = item else { return None };
        let mut composite = String::new();
        for key in keys {
            composite.push('\0');
            if let Some(Ok(value)) = map.find(&Value::String(Text::Borrowed(key)))
                && let Some(text) = scalar_key(&value)
            {
                composite.push_str(&text);
            }
        }
        Some(composite)
    }
}

/// A map, or an object with known fields.
#[derive(Debug, Clone)]
pub(crate) enum Map<'a> {
    Json { fields: &'a serde_json::Map<String, Json>, schema: &'a Props, is_resource: bool },
    Made(Arc<BTreeMap<Key, (Value<'a>, Value<'a>)>>),
}

/// A map key. Integers are equal whatever their type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Bool(bool),
    Number(i128),
    Text(String),
}

impl Key {
    /// The value as a key; `None` if it cannot be one.
    pub(crate) fn new(value: &Value<'_>) -> Option<Self> {
        Some(match value {
            Value::Bool(flag) => Self::Bool(*flag),
            Value::Int(number) => Self::Number(i128::from(*number)),
            Value::Uint(number) => Self::Number(i128::from(*number)),
            Value::Double(number) if number.fract() == 0.0 && number.abs() < 1e19 => Self::Number(*number as i128),
            Value::String(text) => Self::Text(text.to_string()),
            _ => return None,
        })
    }
}

impl<'a> Map<'a> {
    pub(crate) fn made(entries: BTreeMap<Key, (Value<'a>, Value<'a>)>) -> Self {
        Self::Made(Arc::new(entries))
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Json { fields, .. } => fields.len(),
            Self::Made(entries) => entries.len(),
        }
    }

    /// Whether fields are known by name, so that expressions use escaped names.
    fn is_object(schema: &Props, is_resource: bool) -> bool {
        is_resource || !schema.properties.is_empty()
    }

    /// The schema of a field.
    fn field_schema(schema: &'a Props, is_resource: bool, name: &str) -> Option<&'a Props> {
        if is_resource
            && matches!(name, "apiVersion" | "kind" | "metadata")
            && let Some(meta) = meta_fields(schema)
        {
            return meta.properties.get(name);
        }
        if Self::is_object(schema, is_resource) {
            return schema.properties.get(name);
        }
        schema.additional_schema()
    }

    /// The value for a key; `None` if the key does not exist.
    pub(crate) fn find(&self, key: &Value<'_>) -> Option<Evaluated<'a>> {
        match self {
            Self::Json { fields, schema, is_resource } => {
                let Value::String(name) = key else { return Some(Err(Error::NoOverload)) };
                let is_object = Self::is_object(schema, *is_resource);
                let unescaped;
                let name = if is_object {
                    unescaped = unescape(name)?;
                    &unescaped
                } else {
                    &**name
                };
                let value = fields.get(name)?;
                // Null is the same as absence where fields are known.
                if is_object && value.is_null() {
                    return None;
                }
                let schema = Self::field_schema(schema, *is_resource, name)?;
                Some(Value::of(value, schema, schema.embedded_resource))
            }
            Self::Made(entries) => {
                let key = Key::new(key)?;
                entries.get(&key).map(|(_, value)| Ok(value.clone()))
            }
        }
    }

    /// Keys as expressions see them.
    pub(crate) fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Self::Json { fields, schema, is_resource } => {
                let fields: &'a serde_json::Map<String, Json> = fields;
                let is_object = Self::is_object(schema, *is_resource);
                fields
                    .keys()
                    .filter(|name| Self::field_schema(schema, *is_resource, name).is_some())
                    .map(|name| {
                        let escaped = if is_object { escape(name) } else { None };
                        Value::String(match escaped {
                            Some(escaped) if escaped != *name => Text::Made(escaped.into()),
                            _ => Text::Borrowed(name),
                        })
                    })
                    .collect()
            }
            Self::Made(entries) => entries.values().map(|(key, _)| key.clone()).collect(),
        }
    }
}

impl<'a> Value<'a> {
    pub(crate) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::String(Text::Made(text.into()))
    }

    pub(crate) fn some(value: Value<'a>) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// JSON that no schema describes: what it is decides.
    pub(crate) fn untyped(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(flag) => Self::Bool(*flag),
            Json::Number(number) => match number.as_i64() {
                Some(integer) => Self::Int(integer),
                None => Self::Double(number.as_f64().unwrap_or_default()),
            },
            Json::String(text) => Self::String(Text::Borrowed(text)),
            Json::Array(items) => Self::List(List::made(items.iter().map(Self::untyped).collect())),
            Json::Object(fields) => {
                let entry = |(name, value): (&'a String, &'a Json)| {
                    (Key::Text(name.clone()), (Self::String(Text::Borrowed(name)), Self::untyped(value)))
                };
                Self::Map(Map::made(fields.iter().map(entry).collect()))
            }
        }
    }

    /// A map of values by name.
    pub(crate) fn named(values: impl IntoIterator<Item = (Arc<str>, Value<'a>)>) -> Self {
        let entry = |(name, value): (Arc<str>, Value<'a>)| {
            (Key::Text(name.to_string()), (Self::String(Text::Made(name)), value))
        };
        Self::Map(Map::made(values.into_iter().map(entry).collect()))
    }

    /// The text of a string.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// JSON as its schema describes it. `is_resource` says that it is a whole object.
    pub(crate) fn of(json: &'a Json, schema: &'a Props, is_resource: bool) -> Evaluated<'a> {
        if json.is_null() {
            return if schema.nullable {
                Ok(Self::Null)
            } else {
                Err(Error::new("invalid data, got null for schema with nullable=false"))
            };
        }
        if schema.int_or_string {
            return match json {
                Json::String(text) => Ok(Self::String(Text::Borrowed(text))),
                Json::Number(number) if number.is_i64() => Ok(Self::Int(number.as_i64().unwrap_or_default())),
                _ => Err(Error::new("invalid data, expected XIntOrString value to be either a string or integer")),
            };
        }
        match (&*schema.ty, json) {
            ("object", Json::Object(fields)) => {
                let is_resource = is_resource || schema.embedded_resource;
                Ok(Self::Map(Map::Json { fields, schema, is_resource }))
            }
            ("object", _) => Err(Error::new("invalid data, expected a map for the provided schema with type=object")),
            ("array", Json::Array(items)) => list_of(items, schema),
            ("array", _) => Err(Error::new("invalid data, expected an array for the provided schema with type=array")),
            ("string", Json::String(text)) => text_of(text, &schema.format),
            ("number", Json::Number(number)) => Ok(Self::Double(number.as_f64().unwrap_or_default())),
            ("integer", Json::Number(number)) if number.is_i64() => Ok(Self::Int(number.as_i64().unwrap_or_default())),
            ("boolean", Json::Bool(flag)) => Ok(Self::Bool(*flag)),
            ("string" | "number" | "integer" | "boolean", found) => {
                let wanted = match &*schema.ty {
                    "number" => "float",
                    "integer" => "int",
                    "boolean" => "bool",
                    other => other,
                };
                Err(Error::new(format!("invalid data, expected {wanted}, got {}", go_type(found))))
            }
            _ if schema.preserves_unknown() => Ok(Self::Unknown(json)),
            (ty, _) => Err(Error::new(format!(
                "invalid type, expected object, array, number, integer, boolean or string, or no type with \
                 x-kubernetes-int-or-string or x-kubernetes-preserve-unknown-fields is true, got {ty}"
            ))),
        }
    }

    /// The name of the value's type.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Url(_) => "kubernetes.URL",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Unknown(_) => "unknown",
        }
    }
}

fn list_of<'a>(items: &'a [Json], schema: &'a Props) -> Evaluated<'a> {
    if schema.items.is_none() {
        return Err(Error::new("invalid array type, expected Items with a non-empty Schema"));
    }
    let kind = match schema.list_type.as_deref() {
        Some("set") => ListKind::Set,
        Some("map") => ListKind::Map(&schema.list_map_keys),
        _ => ListKind::Plain,
    };
    Ok(Value::List(List { repr: ListRepr::Json { items, schema }, kind }))
}

fn text_of<'a>(text: &'a str, format: &str) -> Evaluated<'a> {
    match format {
        "duration" => time::parse_loose_duration(text)
            .map(Value::Duration)
            .ok_or_else(|| Error::new(format!("Invalid duration {text}: unable to parse {text} as duration"))),
        "date" => time::parse_date(text)
            .map(|moment| Value::Timestamp(moment.nanos))
            .ok_or_else(|| Error::new(format!("Invalid date formatted string {text}: cannot parse {text}"))),
        "date-time" => time::parse_date_time(text)
            .map(|moment| Value::Timestamp(moment.nanos))
            .ok_or_else(|| Error::new(format!("Invalid date-time formatted string {text}: cannot parse {text}"))),
        "byte" => {
            use base64::Engine as _;
            // Upstream decodes the URL alphabet here, whatever the format says.
            let decoded = base64::engine::general_purpose::URL_SAFE.decode(text);
            decoded
                .map(|bytes| Value::Bytes(bytes.into()))
                .map_err(|error| Error::new(format!("Invalid byte formatted string {text}: {error}")))
        }
        _ => Ok(Value::String(Text::Borrowed(text))),
    }
}

/// Go's name of the type of a JSON value.
fn go_type(json: &Json) -> &'static str {
    match json {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_f64() => "float64",
        Json::Number(_) => "int64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    }
}
