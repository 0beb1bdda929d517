//! Diagnostics about a file: position, field, text and problem.

use std::fmt;

use super::de::{shorten, shorten_to};
use super::tree::Position;

/// The most of a field's path that is kept: keys may be as long as the file.
const LIMIT_FIELD: usize = 300;
/// The longest sentence.
const LIMIT_PROBLEM: usize = 600;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It is harmless, but probably a mistake.
    Warning,
    /// It cannot be used.
    Error,
}

/// A message about a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
    /// The object: `NodePool/default`.
    pub object: Option<String>,
    /// The field: `spec.limits.cpu`.
    pub field: Option<String>,
    /// The offending text, shortened if it is long.
    pub text: String,
    /// The problem.
    pub problem: String,
}

impl Diagnostic {
    pub(super) fn new(severity: Severity, file: &str, place: Position, problem: impl Into<String>) -> Self {
        Self {
            severity,
            file: file.to_owned(),
            line: place.line,
            column: place.column,
            object: None,
            field: None,
            text: String::new(),
            problem: shorten_quoted(&problem.into()),
        }
    }

    pub(super) fn field(mut self, field: &str) -> Self {
        self.field = Some(shorten_to(field, LIMIT_FIELD)).filter(|field| !field.is_empty());
        self
    }

    pub(super) fn text(mut self, text: &str) -> Self {
        self.text = shorten(text);
        self
    }
}

/// A sentence in which long words between backticks are cut.
pub(crate) fn shorten_quoted(problem: &str) -> String {
    let parts = problem.split('`').enumerate();
    let short: Vec<String> =
        parts.map(|(index, part)| if index % 2 == 1 { shorten(part) } else { part.to_owned() }).collect();
    // A word that has a backtick itself turns inside out; then the whole is cut.
    shorten_to(&short.join("`"), LIMIT_PROBLEM)
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file, self.line, self.column)?;
        if let Some(object) = &self.object {
            write!(f, "{object}: ")?;
        }
        if let Some(field) = &self.field {
            write!(f, "field `{field}`: ")?;
        }
        // A problem that quotes the text itself does not need it again.
        if !self.text.is_empty() && !self.problem.contains(&format!("`{}`", self.text)) {
            write!(f, "`{}` ", self.text.escape_debug())?;
        }
        f.write_str(&self.problem)
    }
}
