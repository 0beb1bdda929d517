//! Files to objects: JSON or YAML, one object or many, as `kubectl get -o yaml` and `-o json` write them and as
//! people do.
//!
//! | Form | |
//! |---|---|
//! | an object | `{apiVersion, kind, …}` |
//! | a list | `List`, `PodList`, …; a plain list of objects |
//! | several | YAML documents between `---`; JSON values one after the other |
//!
//! JSON goes straight from the text into the pieces of an object that planning looks at. When that fails, or
//! something has to be said about the object, its tree is read as well, in which every value knows its place.

mod advisor;
mod diagnostic;
mod fields;
mod json;

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use millpond_api::document::{de, tree, yaml};
use millpond_api::meta::Invalid;

pub(crate) use diagnostic::shorten_quoted;
pub use diagnostic::{Diagnostic, Severity};
pub use tree::Position;

use self::tree::{Tree, Value};
use self::yaml::Broken;
use crate::objects::{self, Kind, Known, Object};
use crate::state::{Applied, Origin, State};

/// The largest file that is read. Half a million pods as JSON.
pub const LIMIT_BYTES: usize = 1 << 30;

/// The most warnings and errors that are kept of each kind; a broken export has one per pod.
const LIMIT_DIAGNOSTICS: usize = 100;

/// The result of reading.
#[derive(Debug)]
pub struct Reading {
    /// All valid objects.
    pub state: State,
    /// Errors; the objects concerned are left out.
    pub errors: Vec<Diagnostic>,
    /// Probable mistakes.
    pub warnings: Vec<Diagnostic>,
    /// Errors and warnings beyond those that are kept.
    pub more: usize,
    /// Objects that were read.
    pub objects: usize,
}

/// Reads files one after the other.
#[derive(Debug, Default)]
pub struct Reader {
    state: State,
    /// What is read is of a cluster: what is wrong with one object is no reason to fail.
    of_cluster: bool,
    files: Vec<Arc<str>>,
    /// Objects seen, and in which file.
    seen: HashMap<(Kind, Box<str>, Box<str>), usize>,
    /// Kinds and fields that were complained about.
    unknown: HashSet<String>,
    errors: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
    more: usize,
    objects: usize,
}

/// An object on its way in: what it says it is, and where it stands.
struct Found<'a> {
    version: &'a str,
    kind: &'a str,
}

/// Kind and version of the list that contains an object, used if the object names none itself.
#[derive(Clone, Copy, Default)]
struct OfList<'a> {
    version: &'a str,
    kind: &'a str,
}

impl Reader {
    /// Starts without objects.
    pub fn new() -> Self {
        Self::default()
    }

    /// For objects of a cluster: controllers leave what is not valid aside, and so does this, with a warning.
    pub fn of_cluster() -> Self {
        Self { of_cluster: true, ..Self::default() }
    }

    /// Reads a file of that name. Errors in it are reported at the end; everything else in it is used.
    pub fn add(&mut self, file: &str, bytes: &[u8]) {
        self.files.push(file.into());
        if bytes.len() > LIMIT_BYTES {
            return self.fail(Position::START, format!("is larger than {} MiB", LIMIT_BYTES >> 20));
        }
        let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let good = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
                return self.fail(end_of(&good), "is not text in UTF-8".to_owned());
            }
        };
        let looks_like_json = text.trim_start().starts_with(['{', '[']);
        let named_json = file.rsplit_once('.').is_some_and(|(_, end)| end.eq_ignore_ascii_case("json"));
        if !looks_like_json && !named_json {
            return self.yaml(text);
        }
        match json::documents(text) {
            Ok(documents) => {
                let places = Places::new(text);
                documents.iter().for_each(|document| self.json(&places, document));
            }
            // `{apiVersion: v1}` is YAML.
            Err(_) if !named_json => self.yaml(text),
            Err(broken) => self.broken(broken),
        }
    }

    /// All that was read.
    pub fn finish(self) -> Reading {
        let Self { state, errors, warnings, more, objects, .. } = self;
        Reading { state, errors, warnings, more, objects }
    }

    fn file(&self) -> Arc<str> {
        self.files.last().cloned().unwrap_or_else(|| "".into())
    }

    fn say(&mut self, mut diagnostic: Diagnostic) {
        if self.of_cluster {
            diagnostic.severity = Severity::Warning;
        }
        let list = match diagnostic.severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        if list.len() < LIMIT_DIAGNOSTICS { list.push(diagnostic) } else { self.more += 1 }
    }

    fn fail(&mut self, place: Position, problem: String) {
        let diagnostic = Diagnostic::new(Severity::Error, &self.file(), place, problem);
        self.say(diagnostic);
    }

    fn broken(&mut self, broken: Broken) {
        self.fail(broken.place, broken.problem);
    }

    // JSON

    fn json(&mut self, places: &Places<'_>, document: &json::Document<'_>) {
        let json::Document { text: object, envelope } = document;
        if object.starts_with('[') {
            match serde_json::from_str::<Vec<&serde_json::value::RawValue>>(object) {
                Ok(entries) => {
                    entries.iter().for_each(|entry| self.json_object(places, entry.get(), OfList::default()));
                }
                Err(error) => self.broken(json::broken(&error, object, places.of(object))),
            }
            return;
        }
        if let Some(json::Envelope { api_version, kind, items: Some(items) }) = envelope {
            let kind = kind.as_deref().unwrap_or_default();
            let list = OfList {
                version: api_version.as_deref().unwrap_or_default(),
                kind: kind.strip_suffix("List").unwrap_or_default(),
            };
            return items.iter().for_each(|item| self.json_object(places, item.get(), list));
        }
        self.json_object(places, object, OfList::default());
    }

    fn json_object(&mut self, places: &Places<'_>, object: &str, list: OfList<'_>) {
        let (version, kind) = json::head(object);
        let found = if kind.is_empty() && !list.kind.is_empty() {
            Found { version: list.version, kind: list.kind }
        } else {
            Found { version: &version, kind: &kind }
        };
        let tree = || json::tree(object, places.of(object));
        if found.kind.is_empty() && self.kindless_json(places, object) {
            return;
        }
        let Some(kind) = self.known_kind(&found, &mut || tree().map_or(Position::START, |tree| tree.locate("kind").0))
        else {
            return;
        };
        if let Ok(read) = Object::from_json(kind, object) {
            if read.is_by_hand() {
                tree().iter().for_each(|tree| self.warn_of_fields(kind, tree));
            }
            // These kinds may need diagnostics that depend on other objects.
            let is_judged = matches!(
                kind,
                Kind::NodePool
                    | Kind::ScalingConstraint
                    | Kind::CapacityBuffer
                    | Kind::NodeOverlay
                    | Kind::ClusterApi(_)
            );
            let origin = is_judged.then(|| places.of(object));
            return self.take(&read, origin, &mut |reader, invalid| match tree() {
                Ok(tree) => reader.invalid(&read, &tree, invalid),
                Err(broken) => reader.broken(broken),
            });
        }
        match tree() {
            Ok(tree) => self.tree_object(&tree, kind),
            Err(broken) => self.broken(broken),
        }
    }

    // YAML

    fn yaml(&mut self, text: &str) {
        // Entries of a list that does not say yet what they are.
        let mut waiting: Vec<Tree<'_>> = Vec::new();
        let read = yaml::read(text, &mut |tree, in_list| {
            if in_list && tree.get("kind").is_none() {
                waiting.push(tree);
            } else if in_list {
                self.tree(&tree, OfList::default());
            } else {
                let entries = std::mem::take(&mut waiting);
                self.yaml_document(&tree, entries);
            }
        });
        if let Err(broken) = read {
            self.broken(broken);
        }
    }

    fn yaml_document(&mut self, tree: &Tree<'_>, entries: Vec<Tree<'_>>) {
        let kind = tree.get("kind").and_then(Tree::text).unwrap_or_default();
        let version = tree.get("apiVersion").and_then(Tree::text).unwrap_or_default();
        if let Value::List(objects) = &tree.value {
            return objects.iter().for_each(|object| self.tree(object, OfList::default()));
        }
        if tree.get("items").is_some() {
            let list = OfList { version, kind: kind.strip_suffix("List").unwrap_or_default() };
            return entries.iter().for_each(|entry| self.tree(entry, list));
        }
        if !tree.is_null() {
            self.tree(tree, OfList::default());
        }
    }

    fn tree(&mut self, tree: &Tree<'_>, list: OfList<'_>) {
        let said = |key| tree.get(key).and_then(Tree::text);
        let found = match said("kind") {
            None if !list.kind.is_empty() => Found { version: list.version, kind: list.kind },
            kind => Found { version: said("apiVersion").unwrap_or_default(), kind: kind.unwrap_or_default() },
        };
        if found.kind.is_empty() && self.kindless_tree(tree) {
            return;
        }
        if let Some(kind) = self.known_kind(&found, &mut || tree.locate("kind").0) {
            self.tree_object(tree, kind);
        }
    }

    fn tree_object(&mut self, tree: &Tree<'_>, kind: Kind) {
        if tree.get("metadata").and_then(|metadata| metadata.get("uid")).is_none() {
            self.warn_of_fields(kind, tree);
        }
        match Object::read(kind, tree) {
            Ok(read) => self.take(&read, Some(tree.place), &mut |reader, invalid| {
                reader.invalid(&read, tree, invalid);
            }),
            Err(mistake) => self.mistake(mistake, tree, Some(kind)),
        }
    }

    // Both

    /// The kind, if planning looks at it; a message if the kind is unknown.
    fn known_kind(&mut self, found: &Found<'_>, place: &mut dyn FnMut() -> Position) -> Option<Kind> {
        let Found { version, kind } = found;
        if kind.is_empty() {
            self.fail(place(), "is no object: it has no `kind`".to_owned());
            return None;
        }
        match objects::look_up(version, kind) {
            Known::Used(kind) => Some(kind),
            Known::Irrelevant => None,
            Known::Unknown(like) => {
                // Once is enough: a cluster has thousands of some.
                if self.unknown.insert(format!("{version} {kind}")) {
                    let hint = match (objects::group_of(kind), like) {
                        (Some(""), _) => "; the one that is known is of `v1`".to_owned(),
                        (Some(group), _) => format!("; the one that is known is of `{group}`"),
                        (None, Some(like)) => format!("; is `{like}` meant?"),
                        (None, None) => String::new(),
                    };
                    let problem = format!("`{version}` `{kind}` is an unknown kind and skipped{hint}");
                    let problem = problem.replace("`` ", "");
                    let warning = Diagnostic::new(Severity::Warning, &self.file(), place(), problem);
                    self.say(warning.field("kind"));
                }
                None
            }
        }
    }

    /// Warns of fields that the kind does not have, of each once.
    fn warn_of_fields(&mut self, kind: Kind, tree: &Tree<'_>) {
        for fields::Unknown { place, field, like } in fields::unknown(kind, tree) {
            let without_numbers: String = field.chars().filter(|letter| !letter.is_ascii_digit()).collect();
            if !self.unknown.insert(format!("{} {without_numbers}", kind.name())) {
                continue;
            }
            let hint = like.map_or_else(String::new, |like| format!("; is `{like}` meant?"));
            let problem = format!("is unknown to {} and skipped{hint}", kind.name());
            let warning = Diagnostic::new(Severity::Warning, &self.file(), place, problem);
            self.say(warning.field(&field));
        }
    }

    fn take(&mut self, object: &Object<'_>, place: Option<Position>, invalid: &mut dyn FnMut(&mut Self, Invalid)) {
        if matches!(object, Object::ConfigMap(map) if map.catalog().is_none()) {
            return;
        }
        self.objects += 1;
        let file = self.file();
        let origin = place.map(|Position { line, column }| Origin { file, line, column });
        match self.state.apply_from(object, origin) {
            Ok(Applied::Unchanged) => {}
            Ok(_) => {
                let (namespace, name) = object.name();
                let here = self.files.len() - 1;
                if name.is_empty() {
                    return;
                }
                if let Some(before) = self.seen.insert((object.kind(), namespace.into(), name.into()), here) {
                    let of = self.files.get(before).cloned().unwrap_or_else(|| "".into());
                    let problem =
                        if before == here { "is there twice".to_owned() } else { format!("is there already, in {of}") };
                    invalid(self, Invalid::new("metadata.name", problem));
                }
            }
            Err(mistake) => {
                if let Object::NodePool(pool) = object
                    && self.of_cluster
                {
                    self.state.refuse_pool(pool, format!("it is not valid: {mistake}"));
                }
                invalid(self, mistake);
            }
        }
    }

    fn invalid(&mut self, object: &Object<'_>, tree: &Tree<'_>, invalid: Invalid) {
        let (place, text) = tree.locate(&invalid.field);
        let mut diagnostic =
            Diagnostic::new(Severity::Error, &self.file(), place, invalid.problem).field(&invalid.field).text(text);
        let name = object.name().1;
        diagnostic.object = (!name.is_empty()).then(|| format!("{}/{}", object.kind().name(), de::shorten(name)));
        self.say(diagnostic);
    }
}

/// Where a text ends.
fn end_of(text: &str) -> Position {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let line = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let last = text.rsplit_once('\n').map_or(text, |(_, last)| last);
    Position { line: number(line), column: number(last.chars().count() + 1) }
}

/// Where parts of a text begin. Asked in the order of the text, all answers together take one walk over it.
struct Places<'a> {
    text: &'a str,
    /// The last answer.
    last: Cell<(usize, Position)>,
}

impl<'a> Places<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, last: Cell::new((0, Position::START)) }
    }

    fn of(&self, part: &str) -> Position {
        let offset = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        let (from, place) = Some(self.last.get()).filter(|(from, _)| *from <= offset).unwrap_or((0, Position::START));
        let end = end_of(self.text.get(from..offset).unwrap_or_default());
        let column = if end.line == 1 { place.column.saturating_add(end.column - 1) } else { end.column };
        let found = Position { line: place.line.saturating_add(end.line - 1), column };
        self.last.set((offset, found));
        found
    }
}
