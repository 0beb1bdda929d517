//! The FieldsV1 of a new object, written straight from the object.
//!
//! Every create needs it, so no set is built: the object is walked once and the text appended as the walk
//! goes. The result is the same as comparing the object with an empty one of its type (see [`empty_object`])
//! and encoding what was added; a test holds the two against each other.

use serde_json::{Map, Value};

use super::fields::MAX_DEPTH;
use super::path::{Escape, PathElement, write_escaped};
use super::reset::Reset;
use super::strip;
use super::typed::{Field, FieldType, Form, Relation};
use super::walk::sort_items;
use crate::schema::{Schema, Type, Zero};

/// The value of a field in the empty object of a type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// The field is absent.
    Absent,
    /// null.
    Null,
    /// The empty scalar of its type.
    Scalar,
    /// An object that holds what every object of its type holds.
    Object,
}

/// The fields of a new object as FieldsV1 text, without the metadata that has no owner. `None` if the reset fields of
/// the resource go below the top level: then the sets have to be computed.
pub fn encode_all_fields(object: &Value, schema: &Schema, reset: &Reset) -> Option<String> {
    let Value::Object(map) = object else { return None };
    let place = FieldType::object(schema);
    let mut encoder = Encoder { out: String::with_capacity(2048), scratch: String::new() };
    encoder.out.push('{');
    let mut first = true;
    for (name, value) in in_order(map) {
        if strip::at_top(name) || reset.drops_at_top(name)? {
            continue;
        }
        let field = place.field(name);
        let mark = encoder.open(&PathElement::field(name.as_str()), first);
        let wrote = match value {
            Value::Object(metadata) if name == "metadata" => encoder.metadata(metadata, field.place),
            value => encoder.value(value, field.place, before_field(field), 1),
        };
        first &= !encoder.close(mark, wrote);
    }
    encoder.out.push('}');
    Some(encoder.out)
}

/// Whether something was written into an element, so that it has to stay.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrote {
    /// The element is a member, with or without fields below.
    Something,
    Nothing,
}

struct Encoder {
    out: String,
    scratch: String,
}

impl Encoder {
    /// Writes the key of an element and the brace behind it. Returns where to go back to.
    fn open(&mut self, element: &PathElement<'_>, first: bool) -> usize {
        let mark = self.out.len();
        self.out.push_str(if first { "\"" } else { ",\"" });
        if let PathElement::Field(name) = element {
            self.out.push_str("f:");
            write_escaped(&mut self.out, name, Escape::Plain);
        } else {
            self.scratch.clear();
            element.write(&mut self.scratch);
            write_escaped(&mut self.out, &self.scratch, Escape::Plain);
        }
        self.out.push_str("\":{");
        mark
    }

    /// Closes the brace, or forgets the element. Returns whether it stayed.
    fn close(&mut self, mark: usize, wrote: Wrote) -> bool {
        match wrote {
            Wrote::Something => self.out.push('}'),
            Wrote::Nothing => self.out.truncate(mark),
        }
        wrote == Wrote::Something
    }

    /// Metadata as a whole has no owner, and neither do some of its fields.
    fn metadata(&mut self, map: &Map<String, Value>, place: FieldType<'_>) -> Wrote {
        let mut first = true;
        for (name, value) in in_order(map) {
            if strip::in_metadata(name) {
                continue;
            }
            let mark = self.open(&PathElement::field(name.as_str()), first);
            let wrote = self.value(value, place.field(name).place, Before::Absent, 2);
            first &= !self.close(mark, wrote);
        }
        if first { Wrote::Nothing } else { Wrote::Something }
    }

    /// Writes what is inside the braces of a value.
    fn value(&mut self, value: &Value, place: FieldType<'_>, before: Before, depth: usize) -> Wrote {
        match (place.forms(value).first(), value) {
            (Some(Form::Map), Value::Object(map)) if !map.is_empty() && !place.whole_map() && depth < MAX_DEPTH => {
                self.map(map, place, before, depth)
            }
            (Some(Form::List), Value::Array(items)) if !items.is_empty() && depth < MAX_DEPTH => {
                match place.relation() {
                    Relation::Atomic => leaf(value, place, before),
                    relation => self.list(items, place, relation, before, depth),
                }
            }
            _ => leaf(value, place, before),
        }
    }

    /// Starts the inside of a map or list: what was not there before is a member itself.
    fn own(&mut self, before: Before) -> bool {
        if before == Before::Absent {
            self.out.push_str("\".\":{}");
        }
        before != Before::Absent
    }

    fn map(&mut self, map: &Map<String, Value>, place: FieldType<'_>, before: Before, depth: usize) -> Wrote {
        let mut first = self.own(before);
        for (name, value) in in_order(map) {
            let field = place.field(name);
            let before = if before == Before::Object { before_field(field) } else { Before::Absent };
            let mark = self.open(&PathElement::field(name.as_str()), first);
            let wrote = self.value(value, field.place, before, depth + 1);
            first &= !self.close(mark, wrote);
        }
        if first { Wrote::Nothing } else { Wrote::Something }
    }

    fn list(
        &mut self,
        items: &[Value],
        place: FieldType<'_>,
        relation: Relation<'_>,
        before: Before,
        depth: usize,
    ) -> Wrote {
        let mut elements: Vec<(PathElement<'_>, &Value)> =
            items.iter().filter_map(|item| Some((place.element(relation, item).ok()?, item))).collect();
        sort_items(&mut elements);
        let mut first = self.own(before);
        let mut elements = elements.into_iter().peekable();
        while let Some((element, item)) = elements.next() {
            let mut alone = true;
            while elements.next_if(|(other, _)| *other == element).is_some() {
                alone = false;
            }
            let mark = self.open(&element, first);
            if alone {
                self.value(item, place.item(), Before::Absent, depth + 1);
            }
            self.close(mark, Wrote::Something);
            first = false;
        }
        if first { Wrote::Nothing } else { Wrote::Something }
    }
}

/// A value that is owned as a whole is a member if it differs from what was there before.
fn leaf(value: &Value, place: FieldType<'_>, before: Before) -> Wrote {
    let same = match before {
        Before::Absent => false,
        Before::Null => value.is_null(),
        Before::Scalar => is_empty_scalar(value),
        Before::Object => is_empty_object(value, place),
    };
    if same { Wrote::Nothing } else { Wrote::Something }
}

fn is_empty_scalar(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Bool(flag) => !flag,
        _ => false,
    }
}

/// Whether an object is what every empty object of its type is.
fn is_empty_object(value: &Value, place: FieldType<'_>) -> bool {
    let Value::Object(map) = value else { return false };
    map.iter().all(|(name, value)| {
        let field = place.field(name);
        match before_field(field) {
            Before::Absent => false,
            Before::Null => value.is_null(),
            Before::Scalar => is_empty_scalar(value),
            Before::Object => is_empty_object(value, field.place),
        }
    })
}

/// The value that a field has when nothing was set.
fn before_field(field: Field<'_>) -> Before {
    match field.property.map(|property| property.zero) {
        Some(Zero::Always) => field.place.schema().map_or(Before::Null, before),
        Some(Zero::DistinctOrNull) => Before::Null,
        Some(Zero::Omitted | Zero::Distinct) | None => Before::Absent,
    }
}

fn before(schema: &Schema) -> Before {
    match schema.ty {
        Type::Object if schema.additional.is_none() && !schema.preserve_unknown => Before::Object,
        Type::Object | Type::Array | Type::Any => Before::Null,
        Type::String if matches!(schema.format.as_deref(), Some("date-time" | "byte")) => Before::Null,
        Type::String | Type::Integer | Type::Number | Type::Boolean | Type::IntOrString => Before::Scalar,
    }
}

/// The object of a type in which nothing is set: what the real API server starts from when it creates one.
/// Only built-in types have anything in it.
pub(super) fn empty_object(schema: &Schema) -> Value {
    let mut map = Map::new();
    for (name, property) in schema.properties.shown() {
        let value = if property.zero == Zero::Always { empty_value(&property.schema) } else { Value::Null };
        map.insert(name.to_owned(), value);
    }
    Value::Object(map)
}

fn empty_value(schema: &Schema) -> Value {
    match (before(schema), schema.ty) {
        (Before::Object, _) => empty_object(schema),
        (Before::Scalar, Type::String) => Value::from(""),
        (Before::Scalar, Type::Boolean) => Value::from(false),
        (Before::Scalar, _) => Value::from(0),
        (Before::Null | Before::Absent, _) => Value::Null,
    }
}

/// The entries of a map by name. Maps are sorted unless a build keeps the order of insertion.
fn in_order(map: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let sorted = map.keys().is_sorted();
    let mut late: Vec<_> = if sorted { Vec::new() } else { map.iter().collect() };
    late.sort_unstable_by_key(|(name, _)| *name);
    map.iter().filter(move |_| sorted).chain(late)
}
