//! Walks over one typed value: the fields that it has, and whether it fits its schema.

use serde_json::{Map, Value};

use super::fields::{FieldSet, MAX_DEPTH};
use super::path::PathElement;
use super::typed::{FieldType, Form, Forms, Relation};
use super::value::{go_display, go_syntax, go_type};
use crate::schema::{Schema, Type};

/// All fields that a configuration mentions: every leaf and every item of a list or map, but no object that only
/// contains them.
pub fn fields_of<'a>(object: &'a Value, schema: &'a Schema) -> FieldSet<'a> {
    fields_at(object, FieldType::object(schema))
}

pub(super) fn fields_at<'a>(value: &'a Value, place: FieldType<'a>) -> FieldSet<'a> {
    fields(value, place, 0).1
}

/// Whether the value itself is a field of the set, and the set below it.
fn fields<'a>(value: &'a Value, place: FieldType<'a>, depth: usize) -> (bool, FieldSet<'a>) {
    let leaf = (true, FieldSet::new());
    if depth >= MAX_DEPTH {
        return leaf;
    }
    match (place.forms(value).first(), value) {
        (None, _) | (_, Value::Null) => (false, FieldSet::new()),
        (Some(Form::Scalar), _) => leaf,
        (Some(Form::Map), _) if place.whole_map() => leaf,
        (Some(Form::Map), Value::Object(map)) => (false, fields_of_map(map, place, depth)),
        (Some(Form::List), Value::Array(items)) => match place.relation() {
            Relation::Atomic => leaf,
            relation => (false, fields_of_list(items, place, relation, depth)),
        },
        (Some(Form::Map | Form::List), _) => (false, FieldSet::new()),
    }
}

fn fields_of_map<'a>(map: &'a Map<String, Value>, place: FieldType<'a>, depth: usize) -> FieldSet<'a> {
    let mut set = FieldSet::new();
    for (name, value) in map {
        let field = place.field(name);
        let (leaf, below) = fields(value, field.place, depth + 1);
        let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        set.push(PathElement::field(name.as_str()), leaf || empty || !field.named, below);
    }
    set.sort();
    set
}

fn fields_of_list<'a>(items: &'a [Value], place: FieldType<'a>, relation: Relation<'a>, depth: usize) -> FieldSet<'a> {
    let mut elements: Vec<(PathElement<'a>, &'a Value)> =
        items.iter().filter_map(|item| Some((place.element(relation, item).ok()?, item))).collect();
    sort_items(&mut elements);
    let mut set = FieldSet::new();
    let mut elements = elements.into_iter().peekable();
    while let Some((element, item)) = elements.next() {
        let mut alone = true;
        while elements.next_if(|(other, _)| *other == element).is_some() {
            alone = false;
        }
        // Items that share a key are owned together, as one field.
        let below = if alone { fields(item, place.item(), depth + 1).1 } else { FieldSet::new() };
        set.push(element, true, below);
    }
    set
}

/// Sorts items by element and keeps the sequence of those that share one.
pub(super) fn sort_items<T>(items: &mut [(PathElement<'_>, T)]) {
    if !items.is_sorted_by(|left, right| left.0 <= right.0) {
        items.sort_by(|left, right| left.0.cmp(&right.0));
    }
}

/// The values that do not fit the schema, one `path: message` each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Misfits(Vec<String>);

impl std::fmt::Display for Misfits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_slice() {
            [one] => f.write_str(one),
            many => write!(f, "errors:\n  {}", many.join("\n  ")),
        }
    }
}

/// Whether lists may hold several items with the same key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Duplicates {
    Allowed,
    Refused,
}

/// Checks that an object has the structure of its schema. Values are not checked: validation does that.
pub(super) fn check(object: &Value, schema: &Schema, duplicates: Duplicates) -> Result<(), Misfits> {
    let mut check = Check { duplicates, path: Vec::new(), misfits: Vec::new() };
    check.value(object, FieldType::object(schema));
    if check.misfits.is_empty() { Ok(()) } else { Err(Misfits(check.misfits)) }
}

struct Check<'a> {
    duplicates: Duplicates,
    path: Vec<PathElement<'a>>,
    misfits: Vec<String>,
}

impl<'a> Check<'a> {
    fn report(&mut self, message: &str) {
        let path: String = self.path.iter().map(ToString::to_string).collect();
        self.misfits.push(if path.is_empty() { message.to_owned() } else { format!("{path}: {message}") });
    }

    fn value(&mut self, value: &'a Value, place: FieldType<'a>) {
        if value.is_null() || self.path.len() >= MAX_DEPTH {
            return;
        }
        match (place.forms(value), value) {
            (Forms::None, _) => self.report("schema error: invalid atom: inlined"),
            (Forms::One(Form::Map), Value::Object(map)) => self.map(map, place),
            (Forms::One(Form::Map), _) => self.report(&format!("expected map, got &{{{}}}", go_display(value))),
            (Forms::One(Form::List), Value::Array(items)) => self.list(items, place),
            (Forms::One(Form::List), _) => self.report(&format!("expected list, got &{{{}}}", go_display(value))),
            (Forms::One(Form::Scalar) | Forms::All, _) => self.scalar(value, place),
        }
    }

    fn scalar(&mut self, value: &Value, place: FieldType<'a>) {
        let Some(schema) = place.schema() else { return };
        let text = schema.format.as_deref().is_none_or(|format| format.is_empty() || format == "byte");
        match schema.ty {
            Type::Integer | Type::Number if !value.is_number() => {
                self.report(&format!("expected numeric (int or float), got {}", go_type(value)));
            }
            Type::String if text && !value.is_string() => {
                self.report(&format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_syntax(value)));
            }
            Type::String if value.is_array() || value.is_object() => {
                self.report(&format!("expected any scalar, got &{{{}}}", go_display(value)));
            }
            Type::Boolean if !value.is_boolean() => {
                self.report(&format!("expected boolean, got &{{{}}}", go_display(value)));
            }
            _ => {}
        }
    }

    fn map(&mut self, map: &'a Map<String, Value>, place: FieldType<'a>) {
        for (name, value) in map {
            let field = place.field(name);
            self.path.push(PathElement::field(name.as_str()));
            let undeclared = !field.named && matches!(field.place, FieldType::Undeclared);
            if undeclared {
                self.report("field not declared in schema");
            } else {
                self.value(value, field.place);
            }
            self.path.pop();
            if undeclared {
                return;
            }
        }
    }

    fn list(&mut self, items: &'a [Value], place: FieldType<'a>) {
        let relation = place.relation();
        let mut seen = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let element = match relation {
                Relation::Atomic => PathElement::Index(index as i64),
                relation => match place.element(relation, item) {
                    Ok(element) => element,
                    Err(message) => return self.report(&format!("element {index}: {message}")),
                },
            };
            if self.duplicates == Duplicates::Refused && !matches!(relation, Relation::Atomic) {
                match seen.binary_search(&element) {
                    Ok(_) => self.report(&format!("duplicate entries for key {element}")),
                    Err(at) => seen.insert(at, element.clone()),
                }
            }
            self.path.push(element);
            self.value(item, place.item());
            self.path.pop();
        }
    }
}
