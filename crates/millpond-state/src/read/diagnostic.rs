//! What is said about a file: where, which field, which text, and what is wrong.

use std::fmt;

use super::de::shorten;
use super::tree::Place;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It does no harm, but is probably not what was meant.
    Warning,
    /// It cannot be used.
    Error,
}

/// Something about a file.
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
    /// What stands there; a part of it where it is long.
    pub text: String,
    /// What is wrong with it.
    pub problem: String,
}

impl Diagnostic {
    pub(super) fn new(severity: Severity, file: &str, place: Place, problem: impl Into<String>) -> Self {
        Self {
            severity,
            file: file.to_owned(),
            line: place.line,
            column: place.column,
            object: None,
            field: None,
            text: String::new(),
            problem: problem.into(),
        }
    }

    pub(super) fn field(mut self, field: &str) -> Self {
        self.field = Some(field.to_owned()).filter(|field| !field.is_empty());
        self
    }

    pub(super) fn text(mut self, text: &str) -> Self {
        self.text = shorten(text);
        self
    }
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
