//! The protobuf form of a type in the table: its fields by number.

use std::sync::{LazyLock, OnceLock};

use crate::schema::{Property, SchemaRef, Type, Wire, builtin};

/// Fields of one type, made when it first occurs in a body.
pub(super) struct Plan {
    /// Last part of the type's name, for errors.
    pub(super) name: &'static str,
    /// Sorted by key.
    fields: Vec<(Key, Target)>,
}

/// The embedded messages that lead to a field, and its number.
type Key = ([u8; 2], u32);

/// The meaning of a field number.
pub(super) enum Target {
    /// A message whose fields are in the same JSON object.
    Embedded,
    /// A field.
    Field(Field),
}

/// A field of a message.
pub(super) struct Field {
    /// JSON name.
    pub(super) name: &'static str,
    /// How often it occurs.
    pub(super) shape: Shape,
    /// How a value (an item, for lists) is written.
    pub(super) wire: Wire,
    /// Place of the value's type in the table, for messages.
    pub(super) message: Option<u16>,
    /// Whether numbers have 32 bits.
    pub(super) narrow: bool,
}

/// How often a field occurs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Once; the last one counts.
    Single,
    /// Once for each item.
    List,
    /// Once for each entry.
    Map,
}

/// The plan of a type of the table.
pub(super) fn plan_at(index: u16) -> &'static Plan {
    static PLANS: LazyLock<Vec<OnceLock<Plan>>> =
        LazyLock::new(|| (0..builtin::len()).map(|_| OnceLock::new()).collect());
    PLANS[usize::from(index)].get_or_init(|| Plan::of(index))
}

/// Place of apiextensions' `JSONSchemaProps` in the table.
pub(super) fn schema_props() -> u16 {
    static INDEX: LazyLock<u16> = LazyLock::new(|| {
        match builtin::lookup("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps") {
            Some(SchemaRef::Named(index)) => index,
            _ => unreachable!("the table holds the schema of CRDs"),
        }
    });
    *INDEX
}

impl Plan {
    fn of(index: u16) -> Self {
        let schema = builtin::type_at(index);
        let mut fields = Vec::new();
        for (name, property) in schema.properties.iter() {
            let Some(proto) = property.proto else { continue };
            let [outer, inner] = proto.within.map(u32::from);
            if outer != 0 {
                fields.push((([0, 0], outer), Target::Embedded));
            }
            if inner != 0 {
                fields.push((([proto.within[0], 0], inner), Target::Embedded));
            }
            fields.push(((proto.within, proto.number), Target::Field(Field::of(name, property, proto.wire))));
        }
        fields.sort_by_key(|(key, _)| *key);
        fields.dedup_by_key(|(key, _)| *key);
        let name = schema.name.as_deref().and_then(|name| name.rsplit('.').next()).unwrap_or_default();
        Self { name, fields }
    }

    /// The meaning of a number behind the given embedded messages.
    pub(super) fn find(&self, within: [u8; 2], number: u32) -> Option<&Target> {
        let at = self.fields.binary_search_by_key(&(within, number), |(key, _)| *key).ok()?;
        Some(&self.fields[at].1)
    }
}

/// Place of a type in the table; a type that is used with a difference still has its name.
fn type_of(schema: &SchemaRef) -> Option<u16> {
    match schema {
        SchemaRef::Named(index) => Some(*index),
        SchemaRef::Inline(schema) => match builtin::lookup(schema.name.as_deref()?)? {
            SchemaRef::Named(index) => Some(index),
            SchemaRef::Inline(_) => None,
        },
    }
}

impl Field {
    fn of(name: &'static str, property: &'static Property, wire: Wire) -> Self {
        let schema = &property.schema;
        let (shape, value) = match wire {
            Wire::MapOf(_) => (Shape::Map, schema.additional.as_ref()),
            Wire::StringList => (Shape::Single, None),
            _ if schema.ty == Type::Array => (Shape::List, schema.items.as_ref()),
            _ => (Shape::Single, Some(schema)),
        };
        let message = value.and_then(type_of);
        let narrow = value.is_some_and(|value| value.format.as_deref() == Some("int32"));
        Self { name, shape, wire, message, narrow }
    }
}
