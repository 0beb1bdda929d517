//! Protobuf bodies of built-in kinds, written from their schema: the other direction of [`crate::protobuf`], for tests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use crate::schema::{MapValue, ProtoField, Schema, SchemaRef, Wire, builtin};

/// A body with its envelope. Values that do not have the type of their field become empty fields.
pub(super) fn body(api_version: &str, kind: &str, schema: &Schema, object: &Value) -> Vec<u8> {
    let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &meta), field(2, &message(schema, object))].concat()
}

fn message(schema: &Schema, object: &Value) -> Vec<u8> {
    let fields = object.as_object().into_iter().flatten();
    let known = fields.filter_map(|(name, value)| {
        let property = schema.properties.get(name)?;
        Some(property_bytes(&property.schema, property.proto?, value))
    });
    known.flatten().collect()
}

fn property_bytes(schema: &SchemaRef, proto: ProtoField, value: &Value) -> Vec<u8> {
    let own = |bytes: Vec<u8>| {
        let within = proto.within.iter().rev().filter(|number| **number != 0);
        within.fold(bytes, |bytes, number| field(u32::from(*number), &bytes))
    };
    if let Wire::MapOf(values) = proto.wire {
        let value_schema = schema.additional.as_deref();
        let entries = value.as_object().into_iter().flatten();
        return own(entries
            .flat_map(|(key, value)| map_entry(proto.number, values, value_schema, key, value))
            .collect());
    }
    match (value, &schema.items) {
        (Value::Array(items), Some(item)) if proto.wire != Wire::StringList => {
            own(items.iter().flat_map(|value| one(item, proto, value)).collect())
        }
        _ => own(one(schema, proto, value)),
    }
}

fn map_entry(number: u32, values: MapValue, schema: Option<&Schema>, key: &str, value: &Value) -> Vec<u8> {
    let payload = match values {
        MapValue::String => text(value),
        MapValue::Bytes => BASE64.decode(text(value)).unwrap_or_default(),
        MapValue::Quantity => field(1, &text(value)),
        MapValue::Time => time(value),
        MapValue::Message => schema.map(|schema| message(schema, value)).unwrap_or_default(),
        MapValue::StringList => strings(value),
        MapValue::SchemaOrStrings => alternatives(value, 1, 2),
    };
    field(number, &[field(1, key.as_bytes()), field(2, &payload)].concat())
}

fn one(schema: &Schema, proto: ProtoField, value: &Value) -> Vec<u8> {
    let payload = match proto.wire {
        Wire::Int => return [tag(proto.number, 0), varint(value.as_i64().unwrap_or_default() as u64)].concat(),
        Wire::Bool => return [tag(proto.number, 0), varint(u64::from(value == &Value::Bool(true)))].concat(),
        Wire::Double => {
            return [tag(proto.number, 1), value.as_f64().unwrap_or_default().to_le_bytes().to_vec()].concat();
        }
        Wire::Message => message(schema, value),
        Wire::String => text(value),
        Wire::Bytes => BASE64.decode(text(value)).unwrap_or_default(),
        Wire::Quantity => field(1, &text(value)),
        Wire::Time | Wire::MicroTime => time(value),
        Wire::IntOrString => match value {
            Value::String(text) => [vec![8, 1], field(3, text.as_bytes())].concat(),
            _ => [vec![8, 0, 16], varint(value.as_i64().unwrap_or_default() as u64)].concat(),
        },
        Wire::RawJson => field(1, value.to_string().as_bytes()),
        Wire::StringList => strings(value),
        Wire::SchemaOrBool => match value {
            Value::Bool(allows) => vec![8, u8::from(*allows)],
            _ => [vec![8, 1], field(2, &json_schema(value))].concat(),
        },
        Wire::SchemaOrArray | Wire::SchemaOrStrings => alternatives(value, 1, 2),
        Wire::MapOf(_) => Vec::new(),
    };
    field(proto.number, &payload)
}

/// A JSON schema in one field, or a list of them or of strings in another.
fn alternatives(value: &Value, alone: u32, list: u32) -> Vec<u8> {
    match value {
        Value::Array(items) => items.iter().flat_map(|item| field(list, &text_or_schema(item))).collect(),
        _ => field(alone, &json_schema(value)),
    }
}

fn text_or_schema(value: &Value) -> Vec<u8> {
    value.as_str().map_or_else(|| json_schema(value), |text| text.as_bytes().to_vec())
}

fn json_schema(value: &Value) -> Vec<u8> {
    const NAME: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    message(&builtin::lookup(NAME).expect("the table has it"), value)
}

fn strings(value: &Value) -> Vec<u8> {
    value.as_array().into_iter().flatten().flat_map(|item| field(1, &text(item))).collect()
}

fn text(value: &Value) -> Vec<u8> {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned).into_bytes()
}

fn time(value: &Value) -> Vec<u8> {
    let at = value.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok()).unwrap_or_default();
    [vec![8], varint(at.as_second() as u64), vec![16], varint(at.subsec_nanosecond() as u64)].concat()
}

/// A field of a message that has a length.
pub(super) fn field(number: u32, bytes: &[u8]) -> Vec<u8> {
    [tag(number, 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

fn tag(number: u32, wire_type: u32) -> Vec<u8> {
    varint(u64::from(number << 3 | wire_type))
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}
