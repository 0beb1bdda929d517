//! Path elements: one step from an object or list to a part of it, and its text in FieldsV1.
//!
//! `f:name` is a field, `k:{"name":"a"}` an item of a map list, `v:"a"` an item of a set, `i:3` a place in a
//! list. Elements are ordered in this sequence, which is also the order of FieldsV1.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use serde_json::{Number, Value};

use super::value::{go_number, order};
use crate::go::text::quote;

/// One step of a path. Borrows from the objects and schemas that are being compared.
#[derive(Debug, Clone)]
pub enum PathElement<'a> {
    /// A field of an object, or a key of a map.
    Field(Cow<'a, str>),
    /// The item of a map list that has these key fields (sorted by name).
    Key(Box<[KeyField<'a>]>),
    /// The item of a set with this value.
    Value(Cow<'a, Value>),
    /// The item at this index of a list.
    Index(i64),
}

/// One key field of an item of a map list.
#[derive(Debug, Clone)]
pub struct KeyField<'a> {
    /// Name of the field.
    pub name: Cow<'a, str>,
    /// Value of the field in this item.
    pub value: Cow<'a, Value>,
}

/// A key of FieldsV1 that is not a valid path element.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The text is too short for a type and a colon.
    #[error("key must be 2 characters long: {0}")]
    TooShort(String),
    /// The second character is not a colon.
    #[error("missing colon: {0}")]
    MissingColon(String),
    /// The text after the colon is invalid.
    #[error("cannot read the path element {0}")]
    Malformed(String),
}

impl<'a> PathElement<'a> {
    /// A field.
    pub fn field(name: impl Into<Cow<'a, str>>) -> Self {
        Self::Field(name.into())
    }

    /// Parses an element; `None` for the types of a later version, which are to be skipped.
    pub fn parse(text: &'a str) -> Result<Option<Self>, PathError> {
        let bytes = text.as_bytes();
        if bytes.len() < 2 {
            return Err(PathError::TooShort(text.to_owned()));
        }
        if bytes[1] != b':' {
            return Err(PathError::MissingColon(text.to_owned()));
        }
        let malformed = || PathError::Malformed(text.to_owned());
        let rest = &text[2..];
        Ok(Some(match bytes[0] {
            b'f' => Self::Field(Cow::Borrowed(rest)),
            b'v' => Self::Value(Cow::Owned(first_value(rest).ok_or_else(malformed)?)),
            b'k' => Self::Key(parse_key(rest).ok_or_else(malformed)?),
            b'i' => Self::Index(rest.parse().map_err(|_| malformed())?),
            _ => return Ok(None),
        }))
    }

    /// Appends the text of the element.
    pub fn write(&self, out: &mut String) {
        match self {
            Self::Field(name) => {
                out.push_str("f:");
                out.push_str(name);
            }
            Self::Key(fields) => {
                out.push_str("k:{");
                for (place, field) in fields.iter().enumerate() {
                    if place > 0 {
                        out.push(',');
                    }
                    write_json_string(out, &field.name, Escape::Plain);
                    out.push(':');
                    write_json(out, &field.value);
                }
                out.push('}');
            }
            Self::Value(value) => {
                out.push_str("v:");
                write_json(out, value);
            }
            Self::Index(index) => {
                out.push_str("i:");
                out.push_str(itoa::Buffer::new().format(*index));
            }
        }
    }

    /// An element that borrows nothing.
    pub fn into_owned(self) -> PathElement<'static> {
        match self {
            Self::Field(name) => PathElement::Field(Cow::Owned(name.into_owned())),
            Self::Key(fields) => PathElement::Key(
                fields
                    .into_iter()
                    .map(|field| KeyField {
                        name: Cow::Owned(field.name.into_owned()),
                        value: Cow::Owned(field.value.into_owned()),
                    })
                    .collect(),
            ),
            Self::Value(value) => PathElement::Value(Cow::Owned(value.into_owned())),
            Self::Index(index) => PathElement::Index(index),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

/// Compares elements that may borrow from different places.
pub(super) fn order_elements(left: &PathElement<'_>, right: &PathElement<'_>) -> Ordering {
    match (left, right) {
        (PathElement::Field(left), PathElement::Field(right)) => left.as_bytes().cmp(right.as_bytes()),
        (PathElement::Key(left), PathElement::Key(right)) => order_keys(left, right),
        (PathElement::Value(left), PathElement::Value(right)) => order(left, right),
        (PathElement::Index(left), PathElement::Index(right)) => left.cmp(right),
        (left, right) => left.rank().cmp(&right.rank()),
    }
}

fn order_keys(left: &[KeyField<'_>], right: &[KeyField<'_>]) -> Ordering {
    for (left, right) in left.iter().zip(right) {
        let decided = left.name.as_bytes().cmp(right.name.as_bytes()).then_with(|| order(&left.value, &right.value));
        if decided.is_ne() {
            return decided;
        }
    }
    left.len().cmp(&right.len())
}

impl PartialEq for PathElement<'_> {
    fn eq(&self, other: &Self) -> bool {
        order_elements(self, other).is_eq()
    }
}

impl Eq for PathElement<'_> {}

impl PartialOrd for PathElement<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PathElement<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        order_elements(self, other)
    }
}

/// `.spec`, `[name="a",port=80]`, `[="a"]`, `[3]`: how paths read in messages.
impl fmt::Display for PathElement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (place, field) in fields.iter().enumerate() {
                    let comma = if place > 0 { "," } else { "" };
                    write!(f, "{comma}{}={}", field.name, shown(&field.value))?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={}]", shown(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => go_number(number),
        Value::String(text) => quote(text),
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(",")),
        Value::Object(map) => {
            map.iter().map(|(key, value)| format!("{key}={}", shown(value))).collect::<Vec<_>>().concat()
        }
    }
}

/// The first JSON value of a text; what follows is ignored, as upstream's streaming reader does.
fn first_value(text: &str) -> Option<Value> {
    serde_json::Deserializer::from_str(text).into_iter().next()?.ok()
}

fn parse_key<'a>(text: &str) -> Option<Box<[KeyField<'a>]>> {
    let mut fields: Vec<KeyField<'a>> = match first_value(text)? {
        Value::Object(map) => {
            map.into_iter().map(|(name, value)| KeyField { name: Cow::Owned(name), value: Cow::Owned(value) }).collect()
        }
        Value::Null => Vec::new(),
        _ => return None,
    };
    fields.sort_by(|left, right| left.name.cmp(&right.name));
    Some(fields.into_boxed_slice())
}

/// How much of a string is escaped: values inside keys also lose what HTML would trip over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Escape {
    Plain,
    Html,
}

/// Appends compact JSON the way that upstream's serializer writes key values.
pub(super) fn write_json(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_json_string(out, text, Escape::Html),
        Value::Array(items) => {
            out.push('[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                write_json(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            for (place, (key, item)) in map.iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                write_json_string(out, key, Escape::Html);
                out.push(':');
                write_json(out, item);
            }
            out.push('}');
        }
    }
}

/// Whole floats lose their fraction: `80.0` and `80` are the same key.
fn write_number(out: &mut String, number: &Number) {
    /// Beyond this, a float does not hold every whole number, and the shortest notation is kept.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if let Some(whole) = number.as_i64() {
        out.push_str(itoa::Buffer::new().format(whole));
        return;
    }
    match number.as_f64() {
        Some(float) if float.fract() == 0.0 && float.abs() < EXACT => {
            out.push_str(itoa::Buffer::new().format(float as i64));
        }
        _ => out.push_str(&number.to_string()),
    }
}

/// Appends a JSON string with its quotes.
pub(super) fn write_json_string(out: &mut String, text: &str, escape: Escape) {
    out.push('"');
    write_escaped(out, text, escape);
    out.push('"');
}

/// Appends the inside of a JSON string.
pub(super) fn write_escaped(out: &mut String, text: &str, escape: Escape) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut clean = 0;
    for (at, byte) in text.bytes().enumerate() {
        let html = escape == Escape::Html;
        let special = byte < 0x20 || byte == b'"' || byte == b'\\' || (html && matches!(byte, b'<' | b'>' | b'&'));
        let line_separator =
            html && byte == 0xe2 && matches!(text.as_bytes().get(at + 1..at + 3), Some([0x80, 0xa8 | 0xa9]));
        if !special && !line_separator {
            continue;
        }
        out.push_str(&text[clean..at]);
        clean = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0xe2 => {
                out.push_str(if text.as_bytes()[at + 2] == 0xa8 { "\\u2028" } else { "\\u2029" });
                clean = at + 3;
            }
            byte => {
                out.push_str("\\u00");
                out.push(char::from(HEX[usize::from(byte >> 4)]));
                out.push(char::from(HEX[usize::from(byte & 0xf)]));
            }
        }
    }
    out.push_str(&text[clean..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(text: &str) -> String {
        let mut out = String::new();
        PathElement::parse(text).unwrap().unwrap().write(&mut out);
        out
    }

    #[test]
    fn texts_are_read_and_written() {
        for text in [
            "f:spec",
            "f:",
            "f:a.b/c",
            r#"k:{"name":"a"}"#,
            r#"k:{"containerPort":80,"protocol":"TCP"}"#,
            r#"v:"a""#,
            "v:1.5",
            "v:true",
            "v:null",
            "i:0",
            "i:-1",
            "k:{}",
        ] {
            assert_eq!(rewritten(text), text);
        }
    }

    #[test]
    fn texts_become_canonical() {
        assert_eq!(
            rewritten(r#"k:{"protocol":"TCP", "containerPort":80.0}"#),
            r#"k:{"containerPort":80,"protocol":"TCP"}"#
        );
        assert_eq!(rewritten(r#"v:"<&>""#), r#"v:"\u003c\u0026\u003e""#);
        assert_eq!(rewritten("v:\"\u{2028}\""), r#"v:"\u2028""#);
        assert_eq!(rewritten(r#"v:"a\u0001\"\n""#), r#"v:"a\u0001\"\n""#);
        assert_eq!(rewritten("v:1 trailing"), "v:1");
        assert_eq!(rewritten("i:+3"), "i:3");
    }

    #[test]
    fn unreadable_texts() {
        for text in ["", "f", "fx", "v:", "v:{", "k:", "k:[1]", "k:{\"a\"}", "i:", "i:x", "ü"] {
            assert!(PathElement::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(PathElement::parse("x:later").unwrap(), None);
    }

    #[test]
    fn elements_are_ordered_as_upstream_orders_them() {
        let ordered = [
            "f:a",
            "f:ab",
            "f:b",
            r#"k:{"name":"a"}"#,
            r#"k:{"name":"a","port":1}"#,
            r#"k:{"name":"b"}"#,
            r#"k:{"port":9}"#,
            r#"k:{"port":10}"#,
            "v:2",
            "v:10",
            r#"v:"a""#,
            "v:false",
            "v:true",
            "i:2",
            "i:10",
        ];
        for pair in ordered.windows(2) {
            let left = PathElement::parse(pair[0]).unwrap().unwrap();
            let right = PathElement::parse(pair[1]).unwrap().unwrap();
            assert_eq!(left.cmp(&right), Ordering::Less, "{pair:?}");
        }
    }

    #[test]
    fn elements_in_messages() {
        for (text, shown) in [
            ("f:spec", ".spec"),
            (r#"k:{"containerPort":80,"protocol":"TCP"}"#, r#"[containerPort=80,protocol="TCP"]"#),
            (r#"v:"a""#, r#"[="a"]"#),
            ("v:null", "[=null]"),
            ("i:3", "[3]"),
        ] {
            assert_eq!(PathElement::parse(text).unwrap().unwrap().to_string(), shown);
        }
    }
}
