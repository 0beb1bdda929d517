//! The objects of the fake vCenter, and what changed in which version.

use std::collections::{BTreeMap, BTreeSet};

use crate::reference::Reference;

use super::shape::Properties;

/// The property that a client may be kept from reading.
pub(super) const MODE: &str = "runtime.inMaintenanceMode";
/// Removed objects that are remembered for watchers; older ones are forgotten.
const GONE: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) version: u64,
    pub(super) objects: BTreeMap<Reference, Object>,
    gone: Vec<(u64, Reference)>,
    next_id: u64,
    pub(super) sessions: BTreeSet<String>,
    /// Types of the objects in each view, by its id.
    pub(super) views: BTreeMap<String, Vec<String>>,
    /// The properties that each collector watches, by its id.
    pub(super) collectors: BTreeMap<String, Option<Watched>>,
    /// What is still to be fetched, by token.
    pub(super) pages: BTreeMap<String, Rest>,
    pub(super) logins: u64,
    pub(super) refuse_logins: bool,
    pub(super) deny_reads: bool,
    pub(super) deny_tasks: bool,
    /// Objects whose [`MODE`] may not be read.
    pub(super) denied: BTreeSet<Reference>,
    pub(super) fail_reads: bool,
}

#[derive(Debug, Default)]
pub(super) struct Object {
    entered: u64,
    /// The newest version of all its properties.
    touched: u64,
    properties: BTreeMap<&'static str, Property>,
}

#[derive(Debug)]
struct Property {
    /// The element `val`.
    value: String,
    changed: u64,
}

/// The objects and properties that a filter selects.
#[derive(Clone, Debug, Default)]
pub(super) struct Watched {
    pub(super) sets: Vec<(String, Vec<String>)>,
}

impl Watched {
    fn paths(&self, object: &Reference) -> impl Iterator<Item = &str> {
        let of_kind = self.sets.iter().filter(|(kind, _)| kind.as_str() == &*object.kind);
        of_kind.flat_map(|(_, paths)| paths.iter().map(String::as_str))
    }

    fn selects(&self, object: &Reference) -> bool {
        self.sets.iter().any(|(kind, _)| kind.as_str() == &*object.kind)
    }
}

/// What is left of an answer that comes in pages. A page is written when it is asked for, as calls that wait for changes
/// need the world, too.
#[derive(Debug)]
pub(super) struct Rest {
    pub(super) objects: Vec<Reference>,
    pub(super) watched: Watched,
    /// Objects in a page.
    pub(super) page: usize,
}

/// A change as a watcher sees it.
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) object: Reference,
    /// `None` when the object is gone.
    pub(super) values: Option<Vec<(String, String)>>,
    pub(super) entered: bool,
}

impl World {
    pub(super) fn fresh_id(&mut self, prefix: &str) -> String {
        self.next_id += 1;
        format!("{prefix}-{}", self.next_id)
    }

    pub(super) fn add(&mut self, kind: &str, prefix: &str, properties: Properties) -> Reference {
        self.version += 1;
        let reference = Reference::new(kind, &self.fresh_id(prefix));
        let version = self.version;
        let property = |(path, value)| (path, Property { value, changed: version });
        let properties = properties.into_iter().map(property).collect();
        self.objects.insert(reference.clone(), Object { entered: version, touched: version, properties });
        reference
    }

    pub(super) fn remove(&mut self, object: &Reference) {
        if self.objects.remove(object).is_some() {
            self.version += 1;
            self.gone.push((self.version, object.clone()));
            if self.gone.len() > GONE {
                self.gone.remove(0);
            }
        }
    }

    pub(super) fn set(&mut self, object: &Reference, path: &'static str, value: String) {
        self.version += 1;
        let version = self.version;
        if let Some(object) = self.objects.get_mut(object) {
            object.touched = version;
            object.properties.insert(path, Property { value, changed: version });
        }
    }

    /// Takes the right to read [`MODE`] of an object away, or gives it back. Watchers are told of either.
    pub(super) fn deny(&mut self, object: &Reference, deny: bool) {
        if deny {
            self.denied.insert(object.clone());
        } else {
            self.denied.remove(object);
        }
        let value = self.objects.get(object).and_then(|known| known.properties.get(MODE)).map(|it| it.value.clone());
        if let Some(value) = value {
            self.set(object, MODE, value);
        }
    }

    /// Whether a property of an object may be read.
    pub(super) fn may_read(&self, object: &Reference, path: &str) -> bool {
        path != MODE || !self.denied.contains(object)
    }

    /// Sets a property that no update tells of.
    pub(super) fn set_silently(&mut self, object: &Reference, path: &'static str, value: String) {
        if let Some(object) = self.objects.get_mut(object) {
            object.properties.insert(path, Property { value, changed: 0 });
        }
    }

    pub(super) fn end_sessions(&mut self) {
        self.sessions.clear();
        self.views.clear();
        self.collectors.clear();
        self.pages.clear();
    }

    /// Properties of an object that a filter selects: path and value.
    pub(super) fn values(&self, object: &Reference, watched: &Watched) -> Vec<(String, String)> {
        let Some(found) = self.objects.get(object) else { return Vec::new() };
        let value = |path: &str| found.properties.get(path).map(|property| (path.to_owned(), property.value.clone()));
        watched.paths(object).filter_map(value).collect()
    }

    /// Changes after a version, oldest first, at most `most` of them.
    pub(super) fn changes(&self, watched: &Watched, since: u64, most: usize) -> Vec<Change> {
        let newest = |object: &Object, path: &str| object.properties.get(path).map(|property| property.changed);
        let mut changes: Vec<Change> = Vec::new();
        let of_interest =
            |(reference, object): &(&Reference, &Object)| object.touched > since && watched.selects(reference);
        for (reference, object) in self.objects.iter().filter(of_interest) {
            let entered = object.entered > since;
            let last = watched.paths(reference).filter_map(|path| newest(object, path)).max().unwrap_or_default();
            if entered || last > since {
                let version = last.max(object.entered);
                changes.push(Change { version, object: reference.clone(), values: Some(Vec::new()), entered });
            }
        }
        // A new watcher does not receive removals from before.
        let gone =
            self.gone.iter().filter(|(version, object)| since > 0 && *version > since && watched.selects(object));
        changes.extend(gone.map(|(version, object)| Change {
            version: *version,
            object: object.clone(),
            values: None,
            entered: false,
        }));
        changes.sort_by_key(|change| change.version);
        changes.truncate(most);
        // Values of the page alone: a large inventory has dozens of pages.
        for Change { object, values, entered, .. } in &mut changes {
            let (Some(values), Some(found)) = (values, self.objects.get(object)) else { continue };
            let is_new = |path: &str| *entered || newest(found, path).is_some_and(|changed| changed > since);
            *values = self.values(object, watched).into_iter().filter(|(path, _)| is_new(path)).collect();
        }
        changes
    }
}
