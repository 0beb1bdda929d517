//! Updates the managers of an object after a write, and the object itself after an apply.
//!
//! These are the rules of structured merge: a manager that changes a field becomes its only owner; a manager that
//! applies a field which another manager owns with another value is in conflict with it; a field that its last applier
//! no longer applies, and that no other manager owns, is removed.

use std::borrow::Cow;

use serde_json::Value;

use super::adapt::{reconcile, with_named_fields};
use super::compare::{Comparison, compare};
use super::fields::FieldSet;
use super::managers::{Entry, Managed};
use super::merge::{merge, remove};
use super::reset::Reset;
use super::strip;
use super::typed::FieldType;
use super::value::equal;
use super::walk::fields_at;
use crate::schema::SchemaRef;

/// The versions of a kind through which managers own fields, apart from the one of the request.
///
/// An entry of a version that is no longer known is dropped. Objects have the same shape in all versions of
/// a custom resource (conversion strategy None); built-in kinds that differ convert.
pub trait Versions {
    /// A version by its `apiVersion`; `None` if it is not known, or no longer known.
    fn version(&self, api_version: &str) -> Option<Version<'_>>;

    /// An object of this kind in another version.
    fn convert<'v>(&self, object: &'v Value, api_version: &str) -> Cow<'v, Value> {
        let _ = api_version;
        Cow::Borrowed(object)
    }
}

/// The schema view of one version of a kind.
#[derive(Clone, Copy)]
pub struct Version<'a> {
    /// Schema of an object.
    pub schema: &'a SchemaRef,
    /// Fields that do not count in the requested resource or subresource.
    pub reset: &'a Reset,
}

/// A kind that has one version only.
pub struct SingleVersion;

impl Versions for SingleVersion {
    fn version(&self, _: &str) -> Option<Version<'_>> {
        None
    }
}

/// What a write is about: the version of the request and its siblings.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub api_version: &'a str,
    pub version: Version<'a>,
    pub versions: &'a dyn Versions,
}

impl<'a> Scope<'a> {
    fn find(&self, api_version: &str) -> Option<Version<'a>> {
        if api_version == self.api_version { Some(self.version) } else { self.versions.version(api_version) }
    }

    /// The object in a version; nothing is converted that is in this version already.
    fn convert<'v>(&self, object: &'v Value, api_version: &str) -> Cow<'v, Value> {
        let same = object.get("apiVersion").and_then(Value::as_str).is_none_or(|own| own == api_version);
        if same { Cow::Borrowed(object) } else { self.versions.convert(object, api_version) }
    }
}

fn place(version: Version<'_>) -> FieldType<'_> {
    FieldType::object(version.schema)
}

/// A manager whose field another manager wants to change.
pub(super) struct Clash {
    /// Text to sort by.
    pub identifier: String,
    /// How the manager is named.
    pub manager: String,
    /// The fields.
    pub fields: FieldSet<'static>,
}

/// Adapts the fields of all managers to their schemas, and drops managers of unknown versions.
pub(super) fn reconcile_all(managed: &mut Managed<'_>, scope: Scope<'_>) {
    managed.entries.retain_mut(|entry| {
        let Some(version) = scope.find(&entry.api_version) else { return false };
        if reconcile(&mut entry.fields, place(version)) {
            entry.unchanged = None;
        }
        true
    });
}

/// Removes the changed fields from all managers except the one at `except`, or returns the conflicts.
fn take_from_others(
    managed: &mut Managed<'_>,
    change: &Change<'_>,
    scope: Scope<'_>,
    except: Option<usize>,
    force: bool,
) -> Result<(), Vec<Clash>> {
    let mut clashes = Vec::new();
    let mut losses = Vec::new();
    for (at, entry) in managed.entries.iter().enumerate().filter(|(at, _)| Some(*at) != except) {
        let other = (entry.api_version != scope.api_version).then(|| change.seen_by(&entry.api_version, scope));
        let lost = match &other {
            None => entry.fields.intersection(&change.changed),
            Some(other) => entry.fields.intersection(&other.changed),
        };
        if !lost.is_empty() {
            let (identifier, manager) = (entry.identifier(), entry.shown());
            clashes.push(Clash { identifier, manager, fields: lost.into_owned() });
        }
        losses.push((at, other));
    }
    if !force && !clashes.is_empty() {
        return Err(clashes);
    }
    for (at, other) in losses {
        let entry = &mut managed.entries[at];
        let before = entry.fields.len();
        match other {
            None => {
                entry.fields.subtract(&change.changed);
                entry.fields.subtract(&change.removed);
            }
            Some(other) => {
                entry.fields.subtract(&other.changed);
                entry.fields.subtract(&other.removed);
            }
        }
        if entry.fields.len() != before {
            entry.unchanged = None;
        }
    }
    Ok(())
}

/// A change from one object to another, as far as it counts.
pub(super) struct Change<'a> {
    old: &'a Value,
    new: &'a Value,
    /// Fields with another value than before, or with one for the first time.
    changed: FieldSet<'a>,
    removed: FieldSet<'a>,
}

/// A change in another version.
struct SeenChange {
    changed: FieldSet<'static>,
    removed: FieldSet<'static>,
}

impl<'a> Change<'a> {
    pub(super) fn new(old: &'a Value, new: &'a Value, version: Version<'a>) -> Self {
        let Comparison { mut removed, modified, added } = compare(old, new, place(version));
        let mut changed = modified.union(added);
        version.reset.filter(&mut removed);
        version.reset.filter(&mut changed);
        Self { old, new, changed, removed }
    }

    /// The fields that have another value than before, or one for the first time.
    #[cfg(test)]
    pub(super) fn into_changed(self) -> FieldSet<'a> {
        self.changed
    }

    /// Whether nothing has changed but fields without an owner.
    pub(super) fn is_idle(&self) -> bool {
        [&self.changed, &self.removed].into_iter().all(|set| {
            let mut owned = set.clone();
            owned.subtract(&strip::FIELDS);
            owned.is_empty()
        })
    }

    fn seen_by(&self, api_version: &str, scope: Scope<'_>) -> SeenChange {
        let Some(version) = scope.find(api_version) else {
            return SeenChange { changed: FieldSet::new(), removed: FieldSet::new() };
        };
        let (old, new) = (scope.convert(self.old, api_version), scope.convert(self.new, api_version));
        let seen = Change::new(&old, &new, version);
        SeenChange { changed: seen.changed.into_owned(), removed: seen.removed.into_owned() }
    }
}

/// Records a change. Returns the fields that its author owns by it, which no other manager owns any longer (nor the
/// author yet).
pub(super) fn update<'a>(managed: &mut Managed<'a>, change: Change<'a>, scope: Scope<'a>) -> FieldSet<'a> {
    reconcile_all(managed, scope);
    let taken = take_from_others(managed, &change, scope, None, true);
    debug_assert!(taken.is_ok(), "an update takes what it changes by force");
    managed.entries.retain(|entry| !entry.fields.is_empty());
    change.changed
}

/// Applies a configuration to an object. Returns the new object, or `None` if it stays as it is; the managers are then
/// up to date, apart from times and from fields without an owner.
pub(super) fn apply<'a>(
    managed: &mut Managed<'a>,
    live: &Value,
    config: &'a Value,
    scope: Scope<'a>,
    applier: Entry<'a>,
    force: bool,
) -> Result<Option<Value>, Vec<Clash>> {
    reconcile_all(managed, scope);
    let merged = merge(live, config, place(scope.version));
    let mut applied = fields_at(config, place(scope.version));
    scope.version.reset.filter(&mut applied);
    let (own, last) = record_applied(managed, applier, applied);
    // An applier that applies all the fields of its last apply removes nothing.
    let keeps_all =
        |last: &Entry<'_>| last.api_version == scope.api_version && last.fields.is_subset(&managed.entries[own].fields);
    let merged = match last {
        Some(last) if !keeps_all(&last) => prune(merged, managed, &last, scope),
        _ => merged,
    };
    let change = Change::new(live, &merged, scope.version);
    take_from_others(managed, &change, scope, Some(own), force)?;
    managed.entries.retain(|entry| !entry.fields.is_empty());
    Ok((!equal(live, &merged)).then_some(merged))
}

/// Puts the applied fields in place of those that the applier owned. Returns the place of the entry, and the
/// entry that stood there.
fn record_applied<'a>(
    managed: &mut Managed<'a>,
    applier: Entry<'a>,
    applied: FieldSet<'a>,
) -> (usize, Option<Entry<'a>>) {
    let found = managed.entries.iter().position(|entry| entry.is_same_manager(&applier));
    let mut entry = Entry { fields: applied, ..applier };
    let Some(place) = found else {
        managed.entries.push(entry);
        return (managed.entries.len() - 1, None);
    };
    entry.time.clone_from(&managed.entries[place].time);
    let last = std::mem::replace(&mut managed.entries[place], entry);
    (place, Some(last))
}

/// Removes the fields that the applier applied last time and not this time, unless another manager owns them.
pub(super) fn prune(merged: Value, managed: &Managed<'_>, last: &Entry<'_>, scope: Scope<'_>) -> Value {
    let Some(version) = scope.find(&last.api_version) else { return merged };
    let converted = scope.convert(&merged, &last.api_version);
    let pruned = remove(&converted, &with_named_fields(&last.fields, place(version)), place(version));
    let pruned = add_back_owned(&converted, pruned, &last.api_version, managed, scope);
    let pruned = add_back_dangling(&converted, &scope.convert(&pruned, &last.api_version), last, version);
    scope.convert(&pruned, scope.api_version).into_owned()
}

/// Adds back what was pruned although some manager (or the new configuration) owns it.
fn add_back_owned(
    merged: &Value,
    pruned: Value,
    pruned_version: &str,
    managed: &Managed<'_>,
    scope: Scope<'_>,
) -> Value {
    let mut versions: Vec<&str> = vec![pruned_version];
    for entry in &managed.entries {
        if !versions.contains(&entry.api_version.as_ref()) {
            versions.push(&entry.api_version);
        }
    }
    let mut merged = Cow::Borrowed(merged);
    let mut pruned = pruned;
    for api_version in versions {
        let Some(version) = scope.find(api_version) else { continue };
        let owned = managed.entries.iter().filter(|entry| entry.api_version == api_version);
        let owned = owned.fold(FieldSet::new(), |all, entry| all.union(entry.fields.clone()));
        if owned.is_empty() {
            continue;
        }
        merged = Cow::Owned(scope.convert(&merged, api_version).into_owned());
        pruned = scope.convert(&pruned, api_version).into_owned();
        let place = place(version);
        let mut lost = with_named_fields(&fields_at(&merged, place), place);
        let kept = with_named_fields(&fields_at(&pruned, place), place);
        lost.subtract(&kept.union(with_named_fields(&owned, place)));
        pruned = remove(&merged, &lost, place);
    }
    pruned
}

/// Adds back what was pruned although the applier had never applied it: it only stood below something that
/// the applier no longer applies.
fn add_back_dangling(merged: &Value, pruned: &Value, last: &Entry<'_>, version: Version<'_>) -> Value {
    let place = place(version);
    let mut lost = with_named_fields(&fields_at(merged, place), place);
    lost.subtract(&with_named_fields(&fields_at(pruned, place), place));
    let lost = lost.intersection(&with_named_fields(&last.fields, place));
    remove(merged, &lost, place)
}
