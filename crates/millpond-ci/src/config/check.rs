//! Compares a file with its schema and collects every mistake, each with its line and column.

use millpond_api::catalog::import::FileError;
use millpond_api::document::{Meaning, Position, Tree, Value, de};
use millpond_api::spelling::nearest;

use super::schema::{Kind, Schema};
use super::substitute::Substituted;

/// Mistakes beyond this number are not reported: a file of another program has one on every line.
const LIMIT_ERRORS: usize = 100;

/// Collects the mistakes of one file.
pub(super) struct Checker<'f> {
    pub(super) file: &'f str,
    pub(super) source: &'f Substituted<'f>,
    pub(super) errors: Vec<FileError>,
    pub(super) warnings: Vec<FileError>,
}

impl Checker<'_> {
    pub(super) fn fail(&mut self, place: Position, field: &str, text: &str, problem: impl Into<String>) {
        if self.errors.len() < LIMIT_ERRORS {
            let error = self.at(place, field, text, problem.into());
            self.errors.push(error);
        }
    }

    pub(super) fn warn(&mut self, place: Position, field: &str, text: &str, problem: impl Into<String>) {
        let warning = self.at(place, field, text, problem.into());
        self.warnings.push(warning);
    }

    fn at(&self, place: Position, field: &str, text: &str, problem: String) -> FileError {
        let place = self.source.original(place);
        FileError {
            file: self.file.to_owned(),
            line: place.line.into(),
            column: place.column.into(),
            field: (!field.is_empty()).then(|| field.to_owned()),
            text: text.to_owned(),
            problem,
        }
    }

    /// Checks a map; `path` names it in messages.
    pub(super) fn map(&mut self, tree: &Tree<'_>, schema: &Schema, path: &str) {
        let Value::Map(entries) = &tree.value else {
            return self.fail(tree.place, path, tree.shown(), "is not a map of keys and values");
        };
        for (key, value) in entries {
            let field = join(path, &key.text);
            match schema.keys().find(|known| known.name == key.text).map(|known| known.kind).or(schema.others) {
                Some(_) if value.is_null() => {}
                Some(kind) => self.value(value, kind, &field),
                None => {
                    let name = de::shorten(&key.text);
                    self.fail(key.place, path, "", format!("unknown key `{name}`{}", suggestion(&key.text, schema)));
                }
            }
        }
        let is_present = |name: &str| tree.get(name).is_some_and(|value| !value.is_null());
        for key in schema.keys().filter(|key| key.required && !is_present(key.name)) {
            self.fail(tree.place, path, "", format!("the required key `{}` is missing", key.name));
        }
        for row in schema.one_of.iter().filter(|row| !row.iter().any(|name| is_present(name))) {
            self.fail(tree.place, path, "", format!("needs one of the keys {}", quoted(row)));
        }
        for row in schema.exclusive.iter().filter(|row| row.iter().filter(|name| is_present(name)).count() > 1) {
            self.fail(tree.place, path, "", format!("may have only one of the keys {}", quoted(row)));
        }
    }

    fn value(&mut self, tree: &Tree<'_>, kind: Kind, path: &str) {
        match kind {
            Kind::Map(schema) => self.map(tree, schema, path),
            Kind::List(schema) => self.list(tree, path, &mut |checker, entry, path| checker.map(entry, schema, path)),
            Kind::PodLabels(plain, with_spec) => self.list(tree, path, &mut |checker, entry, path| {
                checker.map(entry, if entry.get("spec").is_some() { with_spec } else { plain }, path);
            }),
            Kind::Texts => self.list(tree, path, &mut |checker, entry, path| checker.value(entry, Kind::Text, path)),
            Kind::TextOrTexts if matches!(tree.value, Value::List(_)) => self.value(tree, Kind::Texts, path),
            Kind::AnyList => self.list(tree, path, &mut |_, _, _| {}),
            Kind::AnyMap => self.entries(tree, path, None),
            Kind::TextMap => self.entries(tree, path, Some(Kind::Text)),
            Kind::CountMap => self.entries(tree, path, Some(Kind::Count)),
            _ => self.scalar(tree, kind, path),
        }
    }

    fn list(&mut self, tree: &Tree<'_>, path: &str, each: &mut dyn FnMut(&mut Self, &Tree<'_>, &str)) {
        let Value::List(entries) = &tree.value else {
            return self.fail(tree.place, path, tree.shown(), "is not a list");
        };
        for (index, entry) in entries.iter().enumerate() {
            each(self, entry, &format!("{path}[{index}]"));
        }
    }

    fn entries(&mut self, tree: &Tree<'_>, path: &str, kind: Option<Kind>) {
        let Value::Map(entries) = &tree.value else {
            return self.fail(tree.place, path, tree.shown(), "is not a map of keys and values");
        };
        let Some(kind) = kind else { return };
        for (key, value) in entries {
            self.value(value, kind, &join(path, &key.text));
        }
    }

    fn scalar(&mut self, tree: &Tree<'_>, kind: Kind, path: &str) {
        let Value::Scalar(scalar) = &tree.value else {
            return self.fail(tree.place, path, "", format!("is a list or a map, not {}", words(kind)));
        };
        let meaning = scalar.meaning();
        let fits = match kind {
            Kind::Text | Kind::TextOrTexts => meaning == Meaning::Text,
            Kind::Bool => matches!(meaning, Meaning::Bool(_)),
            Kind::Int => matches!(meaning, Meaning::Signed(_)) || is_signed(meaning),
            Kind::Count => is_signed(meaning),
            Kind::Number => matches!(meaning, Meaning::Unsigned(_) | Meaning::Signed(_) | Meaning::Float(_)),
            Kind::TextOrInt => matches!(meaning, Meaning::Text | Meaning::Unsigned(_) | Meaning::Signed(_)),
            _ => true,
        };
        if !fits {
            let hint = if matches!(kind, Kind::Text | Kind::TextOrTexts) { "; put it in quotes" } else { "" };
            self.fail(tree.place, path, tree.shown(), format!("is not {}{hint}", words(kind)));
        }
    }
}

/// Whether an unsigned number fits a signed one of the same width, as numbers are kept.
fn is_signed(meaning: Meaning) -> bool {
    matches!(meaning, Meaning::Unsigned(value) if i64::try_from(value).is_ok())
}

fn words(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "`true` or `false`",
        Kind::Int => "a whole number",
        Kind::Count => "a whole number that is not negative",
        Kind::Number => "a number",
        Kind::TextOrInt => "a text or a whole number",
        Kind::TextOrTexts => "a text or a list of texts",
        _ => "a text",
    }
}

fn suggestion(key: &str, schema: &Schema) -> String {
    let known: Vec<&str> = schema.keys().map(|key| key.name).collect();
    match nearest(key, known.iter().copied()) {
        Some(like) => format!("; did you mean `{like}`?"),
        None => format!("; known keys: {}", known.join(", ")),
    }
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn join(path: &str, key: &str) -> String {
    let key = de::shorten(key);
    if path.is_empty() { key } else { format!("{path}.{key}") }
}
