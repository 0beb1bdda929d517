//! `/openapi/v2` in protobuf, the only form that client-go's discovery asks for.
//!
//! The messages are gnostic's (`openapi.v2.Document`). A table for each message maps JSON keys to fields; keys that
//! start with `x-` go to the extensions as text.

use serde_json::Value;

/// A message: how it is made from a JSON object.
struct Message {
    fields: &'static [(&'static str, u32, Kind)],
    /// Number of the field for `x-…` keys; 0 where there are none.
    extensions: u32,
}

/// How a JSON value is written.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Flag,
    Integer,
    Double,
    /// A list of strings; a single string counts as a list of one.
    Texts,
    /// A list of strings inside a message of its own.
    WrappedTexts,
    Message(&'static Message),
    /// A message inside a message that is a choice of this number.
    Choice(u32, &'static Message),
    Messages(&'static Message),
    /// A list of messages inside a message of its own, made from one object.
    WrappedMessage(&'static Message),
    /// An object whose values are messages; in protobuf, a message that repeats pairs of name and value.
    Named(&'static Message),
    /// The same with the pairs in a field of this number, where the value is a choice of the other number.
    NamedIn(u32, u32, &'static Message),
    /// Any JSON.
    Any,
    /// A list of any JSON.
    Anys,
    /// `additionalProperties`: a schema or a flag.
    SchemaOrFlag,
    Parameters,
    /// Objects of string lists.
    Requirements,
}

static DOCUMENT: Message = Message {
    fields: &[
        ("swagger", 1, Kind::Text),
        ("info", 2, Kind::Message(&INFO)),
        ("paths", 8, Kind::NamedIn(2, 0, &PATH_ITEM)),
        ("definitions", 9, Kind::Named(&SCHEMA)),
        ("security", 12, Kind::Requirements),
        ("securityDefinitions", 13, Kind::NamedIn(1, 2, &API_KEY)),
    ],
    extensions: 16,
};

static INFO: Message = Message { fields: &[("title", 1, Kind::Text), ("version", 2, Kind::Text)], extensions: 7 };

static API_KEY: Message = Message {
    fields: &[("type", 1, Kind::Text), ("name", 2, Kind::Text), ("in", 3, Kind::Text), ("description", 4, Kind::Text)],
    extensions: 5,
};

static PATH_ITEM: Message = Message {
    fields: &[
        ("get", 2, Kind::Message(&OPERATION)),
        ("put", 3, Kind::Message(&OPERATION)),
        ("post", 4, Kind::Message(&OPERATION)),
        ("delete", 5, Kind::Message(&OPERATION)),
        ("patch", 8, Kind::Message(&OPERATION)),
        ("parameters", 9, Kind::Parameters),
    ],
    extensions: 10,
};

static OPERATION: Message = Message {
    fields: &[
        ("tags", 1, Kind::Texts),
        ("description", 3, Kind::Text),
        ("operationId", 5, Kind::Text),
        ("produces", 6, Kind::Texts),
        ("consumes", 7, Kind::Texts),
        ("parameters", 8, Kind::Parameters),
        ("responses", 9, Kind::NamedIn(1, 1, &RESPONSE)),
        ("schemes", 10, Kind::Texts),
    ],
    extensions: 13,
};

static RESPONSE: Message =
    Message { fields: &[("description", 1, Kind::Text), ("schema", 2, Kind::Choice(1, &SCHEMA))], extensions: 5 };

static BODY_PARAMETER: Message = Message {
    fields: &[
        ("description", 1, Kind::Text),
        ("name", 2, Kind::Text),
        ("in", 3, Kind::Text),
        ("required", 4, Kind::Flag),
        ("schema", 5, Kind::Message(&SCHEMA)),
    ],
    extensions: 6,
};

static QUERY_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, Kind::Flag),
        ("in", 2, Kind::Text),
        ("description", 3, Kind::Text),
        ("name", 4, Kind::Text),
        ("type", 6, Kind::Text),
        ("format", 7, Kind::Text),
        ("uniqueItems", 20, Kind::Flag),
    ],
    extensions: 23,
};

static PATH_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, Kind::Flag),
        ("in", 2, Kind::Text),
        ("description", 3, Kind::Text),
        ("name", 4, Kind::Text),
        ("type", 5, Kind::Text),
        ("format", 6, Kind::Text),
        ("uniqueItems", 19, Kind::Flag),
    ],
    extensions: 22,
};

static SCHEMA: Message = Message {
    fields: &[
        ("$ref", 1, Kind::Text),
        ("format", 2, Kind::Text),
        ("title", 3, Kind::Text),
        ("description", 4, Kind::Text),
        ("default", 5, Kind::Any),
        ("multipleOf", 6, Kind::Double),
        ("maximum", 7, Kind::Double),
        ("exclusiveMaximum", 8, Kind::Flag),
        ("minimum", 9, Kind::Double),
        ("exclusiveMinimum", 10, Kind::Flag),
        ("maxLength", 11, Kind::Integer),
        ("minLength", 12, Kind::Integer),
        ("pattern", 13, Kind::Text),
        ("maxItems", 14, Kind::Integer),
        ("minItems", 15, Kind::Integer),
        ("uniqueItems", 16, Kind::Flag),
        ("maxProperties", 17, Kind::Integer),
        ("minProperties", 18, Kind::Integer),
        ("required", 19, Kind::Texts),
        ("enum", 20, Kind::Anys),
        ("additionalProperties", 21, Kind::SchemaOrFlag),
        ("type", 22, Kind::WrappedTexts),
        ("items", 23, Kind::WrappedMessage(&SCHEMA)),
        ("allOf", 24, Kind::Messages(&SCHEMA)),
        ("properties", 25, Kind::Named(&SCHEMA)),
    ],
    extensions: 31,
};

/// The protobuf form of a document.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    message(&DOCUMENT, document, &mut bytes);
    bytes
}

fn message(shape: &Message, object: &Value, out: &mut Vec<u8>) {
    for (key, number, kind) in shape.fields {
        if let Some(value) = object.get(*key) {
            field(*number, *kind, value, out);
        }
    }
    if shape.extensions == 0 {
        return;
    }
    for (key, value) in object.as_object().into_iter().flatten().filter(|(key, _)| key.starts_with("x-")) {
        nested(shape.extensions, out, |pair| {
            text(1, key, pair);
            nested(2, pair, |any| any_json(value, any));
        });
    }
}

fn field(number: u32, kind: Kind, value: &Value, out: &mut Vec<u8>) {
    let items = || value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    match kind {
        Kind::Text => text(number, value.as_str().unwrap_or_default(), out),
        Kind::Flag => flag(number, value, out),
        Kind::Integer => integer(number, value.as_i64().unwrap_or_default(), out),
        Kind::Double => double(number, value.as_f64().unwrap_or_default(), out),
        Kind::Texts => texts(number, items(), out),
        Kind::WrappedTexts => nested(number, out, |inner| texts(1, items(), inner)),
        Kind::Message(shape) => nested(number, out, |inner| message(shape, value, inner)),
        Kind::Choice(choice, shape) => {
            nested(number, out, |inner| nested(choice, inner, |inner| message(shape, value, inner)));
        }
        Kind::Messages(shape) => {
            for item in items() {
                nested(number, out, |inner| message(shape, item, inner));
            }
        }
        Kind::WrappedMessage(shape) => {
            nested(number, out, |inner| nested(1, inner, |inner| message(shape, value, inner)));
        }
        Kind::Named(shape) => named(number, 1, 0, shape, value, out),
        Kind::NamedIn(pairs, choice, shape) => named(number, pairs, choice, shape, value, out),
        Kind::Any => nested(number, out, |any| any_json(value, any)),
        Kind::Anys => {
            for item in items() {
                nested(number, out, |any| any_json(item, any));
            }
        }
        Kind::SchemaOrFlag => nested(number, out, |inner| match value {
            Value::Bool(_) => flag(2, value, inner),
            schema => nested(1, inner, |inner| message(&SCHEMA, schema, inner)),
        }),
        Kind::Parameters => {
            for item in items() {
                nested(number, out, |inner| parameter(item, inner));
            }
        }
        Kind::Requirements => {
            for item in items() {
                nested(number, out, |inner| requirement(item, inner));
            }
        }
    }
}

/// Pairs of name and value in the field `pairs` of a message; `choice` is the number inside the value.
fn named(number: u32, pairs: u32, choice: u32, shape: &Message, value: &Value, out: &mut Vec<u8>) {
    nested(number, out, |inner| {
        for (name, value) in value.as_object().into_iter().flatten() {
            nested(pairs, inner, |pair| {
                text(1, name, pair);
                nested(2, pair, |inner| match choice {
                    0 => message(shape, value, inner),
                    choice => nested(choice, inner, |inner| message(shape, value, inner)),
                });
            });
        }
    });
}

fn parameter(value: &Value, out: &mut Vec<u8>) {
    nested(1, out, |inner| match value["in"].as_str() {
        Some("body") => nested(1, inner, |inner| message(&BODY_PARAMETER, value, inner)),
        Some("path") => nested(2, inner, |inner| nested(4, inner, |inner| message(&PATH_PARAMETER, value, inner))),
        _ => nested(2, inner, |inner| nested(3, inner, |inner| message(&QUERY_PARAMETER, value, inner))),
    });
}

fn requirement(value: &Value, out: &mut Vec<u8>) {
    for (name, scopes) in value.as_object().into_iter().flatten() {
        nested(1, out, |pair| {
            text(1, name, pair);
            nested(2, pair, |inner| texts(1, scopes.as_array().map_or(&[], Vec::as_slice), inner));
        });
    }
}

/// JSON is YAML.
fn any_json(value: &Value, out: &mut Vec<u8>) {
    text(2, &value.to_string(), out);
}

fn texts(number: u32, values: &[Value], out: &mut Vec<u8>) {
    for value in values {
        bytes(number, value.as_str().unwrap_or_default().as_bytes(), out);
    }
}

/// Empty text is what is there without it.
fn text(number: u32, value: &str, out: &mut Vec<u8>) {
    if !value.is_empty() {
        bytes(number, value.as_bytes(), out);
    }
}

fn flag(number: u32, value: &Value, out: &mut Vec<u8>) {
    if value == true {
        integer(number, 1, out);
    }
}

fn integer(number: u32, value: i64, out: &mut Vec<u8>) {
    if value != 0 {
        varint(u64::from(number) << 3, out);
        varint(value as u64, out);
    }
}

fn double(number: u32, value: f64, out: &mut Vec<u8>) {
    if value != 0.0 {
        varint(u64::from(number) << 3 | 1, out);
        out.extend(value.to_le_bytes());
    }
}

fn nested(number: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    write(&mut inner);
    bytes(number, &inner, out);
}

fn bytes(number: u32, value: &[u8], out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | 2, out);
    varint(value.len() as u64, out);
    out.extend(value);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_are_written_field_by_field() {
        let document = json!({"swagger": "2.0", "info": {"title": "a", "version": "1"}});
        assert_eq!(encode(&document), b"\x0a\x032.0\x12\x06\x0a\x01a\x12\x011");
    }

    #[test]
    fn extensions_become_text() {
        let mut bytes = Vec::new();
        message(&SCHEMA, &json!({"type": "object", "x-a": [1]}), &mut bytes);
        // type: field 22 { value: "object" }; vendor_extension: field 31 { "x-a", any { yaml: "[1]" } }.
        assert_eq!(bytes, b"\xb2\x01\x08\x0a\x06object\xfa\x01\x0c\x0a\x03x-a\x12\x05\x12\x03[1]");
    }
}
