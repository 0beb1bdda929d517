//! A listing as a text table, as JSON or as a value.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::age;
use crate::model::Json;

/// One value of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Nothing; an empty text in tables.
    None,
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
    /// `True` or `False` in tables.
    Bool(bool),
    /// Joined by commas in tables.
    List(Vec<String>),
    /// Opaque; as Python prints it in tables.
    Json(Json),
    /// A time in seconds since 1970; its age in tables.
    Since(i64),
}

impl Cell {
    /// A text that may be absent.
    pub fn text(value: Option<&str>) -> Self {
        value.map_or(Self::None, |text| Self::Text(text.to_owned()))
    }

    fn shown(&self, now: f64) -> String {
        match self {
            Self::None => String::new(),
            Self::Text(text) => text.clone(),
            Self::Number(number) => number.to_string(),
            Self::Bool(true) => "True".to_owned(),
            Self::Bool(false) => "False".to_owned(),
            Self::List(entries) => entries.join(","),
            Self::Json(json) => json.python(),
            Self::Since(time) => age(*time as f64, now),
        }
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_unit(),
            Self::Text(text) => text.serialize(serializer),
            Self::Number(number) | Self::Since(number) => number.serialize(serializer),
            Self::Bool(value) => value.serialize(serializer),
            Self::List(entries) => entries.serialize(serializer),
            Self::Json(json) => json.serialize(serializer),
        }
    }
}

/// Rows under columns, each column with a key for programs and a header for people.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing {
    /// Keys and headers.
    pub columns: &'static [(&'static str, &'static str)],
    /// A cell for every column.
    pub rows: Vec<Vec<Cell>>,
}

impl Listing {
    /// A text table of all columns, or of those with these keys.
    pub fn table(&self, fields: Option<&[&str]>, now: f64) -> String {
        let chosen: Vec<usize> = (0..self.columns.len())
            .filter(|index| fields.is_none_or(|fields| fields.contains(&self.columns[*index].0)))
            .collect();
        let headers: Vec<String> = chosen.iter().map(|index| self.columns[*index].1.to_owned()).collect();
        let rows = self.rows.iter().map(|row| chosen.iter().map(|index| row[*index].shown(now)).collect());
        render(&headers, &rows.collect::<Vec<Vec<String>>>())
    }

    /// A JSON list of objects.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("keys are texts")
    }
}

impl Serialize for Listing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.rows.iter().map(|cells| Row { columns: self.columns, cells }))
    }
}

struct Row<'a> {
    columns: &'static [(&'static str, &'static str)],
    cells: &'a [Cell],
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.cells.len()))?;
        for ((key, _), cell) in self.columns.iter().zip(self.cells) {
            map.serialize_entry(key, cell)?;
        }
        map.end()
    }
}

/// Draws a table as PrettyTable does with its cells aligned to the left. A cell may have several lines.
fn render(headers: &[String], rows: &[Vec<String>]) -> String {
    let width_of = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let mut widths: Vec<usize> = headers.iter().map(|header| width_of(header)).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(width_of(cell));
        }
    }
    let rule: String = widths.iter().map(|width| format!("+{}", "-".repeat(width + 2))).collect::<String>() + "+";
    let mut lines = vec![rule.clone()];
    lines.extend(row_lines(headers, &widths));
    lines.push(rule.clone());
    rows.iter().for_each(|row| lines.extend(row_lines(row, &widths)));
    lines.push(rule);
    lines.join("\n")
}

fn row_lines(cells: &[String], widths: &[usize]) -> Vec<String> {
    let height = cells.iter().map(|cell| cell.split('\n').count()).max().unwrap_or(1);
    let line = |index: usize| {
        let cells = cells.iter().zip(widths).map(|(cell, width)| {
            let text = cell.split('\n').nth(index).unwrap_or_default();
            format!("| {text:<width$} ")
        });
        cells.collect::<String>() + "|"
    };
    (0..height).map(line).collect()
}
