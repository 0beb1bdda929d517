//! Columns of custom resources: `additionalPrinterColumns`, read through JSONPath.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Number, Value, json};

use super::kinds::{AGE_DESCRIPTION, age_of};
use crate::jsonpath::JsonPath;
use crate::print::go_float;
use crate::resource::CustomColumn;

/// The columns behind the name, each with its parsed path.
pub(super) struct CustomColumns(Vec<(Heading, JsonPath)>);

struct Heading {
    name: Box<str>,
    ty: Box<str>,
    format: Box<str>,
    description: String,
    priority: i32,
}

impl CustomColumns {
    /// Without columns, the age is shown. A column whose path does not parse ends the table, as in the real API server.
    pub(super) fn new(columns: &[CustomColumn]) -> Self {
        if columns.is_empty() {
            return Self(vec![(Heading::age(), age_path())]);
        }
        let parsed = columns
            .iter()
            .map_while(|column| JsonPath::parse(&column.json_path).ok().map(|path| (Heading::of(column), path)));
        Self(parsed.collect())
    }

    pub(super) fn headings(&self) -> impl Iterator<Item = Value> {
        self.0.iter().map(|(heading, _)| {
            json!({
                "name": heading.name,
                "type": heading.ty,
                "format": heading.format,
                "description": heading.description,
                "priority": heading.priority,
            })
        })
    }

    /// The name and the cells of all columns.
    pub(super) fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let name = json!(object["metadata"]["name"].as_str().unwrap_or_default());
        let cells = self
            .0
            .iter()
            .map(|(heading, path)| path.first(object).map_or(Value::Null, |value| cell(&heading.ty, value, now)));
        std::iter::once(name).chain(cells).collect()
    }
}

impl Heading {
    fn of(column: &CustomColumn) -> Self {
        let description = if column.description.is_empty() {
            format!("Custom resource definition column (in JSONPath format): {}", column.json_path)
        } else {
            column.description.to_string()
        };
        Self {
            name: (&*column.name).into(),
            ty: (&*column.ty).into(),
            format: (&*column.format).into(),
            description,
            priority: column.priority,
        }
    }

    fn age() -> Self {
        Self {
            name: "Age".into(),
            ty: "date".into(),
            format: "".into(),
            description: AGE_DESCRIPTION.to_owned(),
            priority: 0,
        }
    }
}

fn age_path() -> JsonPath {
    JsonPath::parse(".metadata.creationTimestamp").expect("the path is well formed")
}

/// A value in the type of its column; null where it does not fit.
fn cell(ty: &str, value: Cow<'_, Value>, now: Timestamp) -> Value {
    match (ty, &*value) {
        ("string", _) => Value::String(shown(value)),
        ("integer", Value::Number(number)) => whole(number),
        ("number", Value::Number(number)) => fraction(number),
        ("boolean", Value::Bool(_)) => value.into_owned(),
        ("date", Value::String(text)) => json!(date(text, now)),
        _ => Value::Null,
    }
}

fn whole(number: &Number) -> Value {
    number.as_i64().map_or_else(|| json!(number.as_f64().unwrap_or_default() as i64), Value::from)
}

/// A `float64` as Go's JSON writes it: without a point where it is whole.
fn fraction(number: &Number) -> Value {
    match number.as_f64() {
        Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => json!(float as i64),
        Some(float) => json!(float),
        None => Value::Null,
    }
}

fn date(text: &str, now: Timestamp) -> String {
    match text {
        "" | "null" => "<unknown>".to_owned(),
        text => text.parse().map_or_else(|_| "<invalid>".to_owned(), |time| age_of(Some(time), now)),
    }
}

fn shown(value: Cow<'_, Value>) -> String {
    match value.into_owned() {
        Value::String(text) => text,
        Value::Null => "<no value>".to_owned(),
        Value::Number(number) if number.is_f64() => go_float(number.as_f64().unwrap_or_default()),
        scalar @ (Value::Bool(_) | Value::Number(_)) => scalar.to_string(),
        // Go's JSON escapes what could end a script in a page.
        composite => composite.to_string().replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e"),
    }
}
