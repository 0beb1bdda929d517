//! Server-side apply and field ownership.
//!
//! Every write records who owns which fields, in `metadata.managedFields`; an apply merges a configuration
//! into an object, refuses to change fields that others own, and removes what its manager no longer applies.
//! The rules are those of Kubernetes' structured merge, including its corners.
//!
//! ```text
//!  create ──▶ track_create ──▶ encode_all_fields        (one walk, no sets)
//!  update ──▶ track_update ──▶ compare ──▶ take what has changed from the other managers
//!  apply  ──▶ apply_patch  ──▶ merge ──▶ prune ──▶ compare ──▶ conflicts, or take
//!                              typed: what a schema means      fields: sets of paths, FieldsV1
//! ```
//!
//! Everything here is a function of its arguments: no clock, no store. When to call it matters, as only what
//! is in the object at that time is owned: on create and update after defaulting, and before the server
//! prepares the object for storage (status, generation, admission); on apply before defaulting. The last step
//! of every write is [`settle_times`].

mod adapt;
mod compare;
mod conflict;
mod encode;
pub mod fields;
mod last_applied;
mod managers;
mod merge;
pub mod path;
pub mod reset;
pub mod scale;
mod strip;
mod typed;
mod update;
mod value;
mod walk;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value};

pub use conflict::{ApplyError, Conflict};
pub use encode::encode_all_fields;
pub use fields::FieldSet;
pub use last_applied::ANNOTATION as LAST_APPLIED_ANNOTATION;
pub use managers::{EntryError, MAX_UPDATERS, Operation};
pub use reset::Reset;
pub use update::{SingleVersion, Version, Versions};
pub use walk::fields_of;

use crate::go::text::is_printable;
use crate::schema::SchemaRef;
use managers::{Entry, Managed, assemble, is_reset, time_text};
use update::{Change, Scope};
use walk::{Duplicates, check};

/// The manager of the fields that an object had before its first apply, when no manager was recorded.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// A manager without a name.
const UNKNOWN: &str = "unknown";

/// Longest name of a manager.
pub const MAX_MANAGER_NAME: usize = 128;

/// The kind and resource that a request writes to.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// `apiVersion` of the request.
    pub api_version: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// Schema of an object in this version.
    pub schema: &'a SchemaRef,
    /// Subresource; empty for the main resource.
    pub subresource: &'a str,
    /// Fields that this resource or subresource ignores.
    pub reset: &'a Reset,
    /// Other versions of the kind.
    pub versions: &'a dyn Versions,
}

/// The manager of a write, and its time.
#[derive(Debug, Clone, Copy)]
pub struct Manager<'a> {
    /// Name, e.g. from [`manager_name`].
    pub name: &'a str,
    /// Time of the request.
    pub now: jiff::Timestamp,
}

/// The result of an apply.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// The object to store, not yet defaulted. Without a live object it is the one to create.
    pub object: Value,
    /// Whether anything but times differs from the live object.
    pub changed: bool,
}

impl<'a> Target<'a> {
    fn scope(&self) -> Scope<'a> {
        let version = Version { schema: self.schema, reset: self.reset };
        Scope { api_version: self.api_version, version, versions: self.versions }
    }

    /// Built-in types are what their Go types are: objects of them always fit.
    fn is_builtin(&self) -> bool {
        matches!(self.schema, SchemaRef::Named(_))
    }

    fn entry(&self, manager: &Manager<'a>, operation: Operation) -> Entry<'a> {
        Entry {
            manager: Cow::Borrowed(if manager.name.is_empty() { UNKNOWN } else { manager.name }),
            operation,
            api_version: Cow::Borrowed(self.api_version),
            subresource: Cow::Borrowed(self.subresource),
            time: None,
            fields: FieldSet::new(),
            unchanged: None,
        }
    }

    /// `default/web; apps/v1, Kind=Deployment`: how messages name an object.
    fn shown_object(&self, object: &Value) -> String {
        let text = |path| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let kind = shown_kind(self.api_version, self.kind);
        format!("{}/{}; {kind}", text("/metadata/namespace"), text("/metadata/name"))
    }
}

/// `apps/v1, Kind=Deployment`: how Go prints a kind.
fn shown_kind(api_version: &str, kind: &str) -> String {
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={kind}")
}

/// Records the author of a new object as the owner of all its fields.
pub fn track_create(object: &mut Value, target: &Target<'_>, manager: &Manager<'_>) {
    let source = take_managed_fields(object);
    let known = match Managed::decode(source.as_ref()) {
        Ok(managed) if !managed.is_empty() && !is_reset(source.as_ref()) => Some(managed),
        _ => None,
    };
    let quick = if known.is_none() { new_managed_fields(object, target, manager) } else { None };
    let managed_fields = if let Some(text) = quick {
        serde_json::from_str(&text).ok()
    } else {
        let empty = encode::empty_object(target.schema);
        let mut known = known.unwrap_or_default();
        known.rewrite();
        let entries = update_entries(known, &empty, object, target, manager);
        entries.and_then(|entries| assemble(entries, source))
    };
    set_managed_fields(object, managed_fields);
}

/// The managedFields of a new object that brings none, as JSON text: what [`track_create`] sets, for callers
/// that write JSON themselves. None if that takes more than one walk, or if there is nothing to own:
/// [`track_create`] knows.
pub fn new_managed_fields(object: &Value, target: &Target<'_>, manager: &Manager<'_>) -> Option<String> {
    let fields = encode_all_fields(object, target.schema, target.reset)?;
    if fields == "{}" {
        return None;
    }
    let text = |text: &str| Value::from(text).to_string();
    let name = if manager.name.is_empty() { UNKNOWN } else { manager.name };
    let subresource = match target.subresource {
        "" => String::new(),
        subresource => format!(",\"subresource\":{}", text(subresource)),
    };
    Some(format!(
        "[{{\"apiVersion\":{},\"fieldsType\":\"FieldsV1\",\"fieldsV1\":{fields},\"manager\":{},\"operation\":\"Update\"{subresource},\"time\":\"{}\"}}]",
        text(target.api_version),
        text(name),
        time_text(manager.now),
    ))
}

/// Records the author of a change as the owner of what was changed.
///
/// managedFields of the new object are those that the client sent: a client may edit them, and forget them
/// all by sending an empty list or a list of one empty entry. A client that sends none keeps those of the
/// live object. Requests to a subresource cannot edit them.
pub fn track_update(live: &Value, new: &mut Value, target: &Target<'_>, manager: &Manager<'_>) {
    let sent = take_managed_fields(new);
    let main = target.subresource.is_empty();
    if main && is_reset(sent.as_ref()) {
        return;
    }
    let same = sent.as_ref() == managed_fields(live);
    let edited = || main && Managed::decode(sent.as_ref()).is_ok_and(|managed| !managed.is_empty());
    let source = if same || edited() { sent } else { managed_fields(live).cloned() };
    // An unchanged built-in object needs no work. Schemas of custom resources change, and their managers change with
    // them.
    if same && target.is_builtin() && Change::new(live, new, target.scope().version).is_idle() {
        set_managed_fields(new, source);
        return;
    }
    let mut managed = Managed::decode(source.as_ref()).unwrap_or_default();
    if managed.is_empty() {
        return;
    }
    if !same {
        managed.rewrite();
    }
    let entries = update_entries(managed, live, new, target, manager);
    let managed_fields = entries.and_then(|entries| assemble(entries, source));
    set_managed_fields(new, managed_fields);
}

/// The entries after an update; `None` if an object does not fit its schema, which leaves it without managers.
fn update_entries<'a>(
    mut managed: Managed<'a>,
    old: &'a Value,
    new: &'a Value,
    target: &Target<'a>,
    manager: &Manager<'a>,
) -> Option<Vec<managers::EncodedEntry>> {
    let fits = |object| target.is_builtin() || check(object, target.schema, Duplicates::Allowed).is_ok();
    if !fits(old) || !fits(new) {
        return None;
    }
    record_update(&mut managed, old, new, target, manager);
    Some(managed.encode())
}

fn record_update<'a>(
    managed: &mut Managed<'a>,
    old: &'a Value,
    new: &'a Value,
    target: &Target<'a>,
    manager: &Manager<'a>,
) {
    let scope = target.scope();
    let change = Change::new(old, new, scope.version);
    let mut fields = update::update(managed, change, scope);
    fields.subtract(&strip::FIELDS);
    if !fields.is_empty() {
        let time = Some(Cow::Owned(time_text(manager.now)));
        managed.merge(Entry { time, fields, ..target.entry(manager, Operation::Update) });
    }
    managed.cap_updaters();
}

/// Applies a configuration to the live object, or creates one of it.
pub fn apply_patch(
    live: Option<&Value>,
    config: &Value,
    target: &Target<'_>,
    manager: &Manager<'_>,
    force: bool,
) -> Result<Applied, ApplyError> {
    let mut bare = live.cloned().unwrap_or_else(|| Value::Object(Map::new()));
    let source = take_managed_fields(&mut bare);
    check_kind(config, target)?;
    let empty = encode::empty_object(target.schema);
    let known = live.is_some().then_some(&bare);
    let managers = || {
        let managed = Managed::decode(source.as_ref())
            .map_err(|error| ApplyError::Failed(format!("failed to decode managed fields: {error}")))?;
        with_first_manager(managed, known, &empty, target, manager)
    };
    let managed = managers()?;
    check_config(config, known, target)?;
    let (object, entries) = match apply_once(managed, &bare, config, target, manager, force) {
        Err(ApplyError::Conflicts(conflicts)) if manager.name == last_applied::KUBECTL => {
            let left = last_applied::remaining(conflicts, &bare, target.scope().version, target.api_version);
            if !left.is_empty() {
                return Err(ApplyError::Conflicts(left));
            }
            apply_once(managers()?, &bare, config, target, manager, true)?
        }
        outcome => outcome?,
    };
    let mut object = object.unwrap_or(bare);
    if manager.name == last_applied::KUBECTL {
        last_applied::refresh(&mut object, config);
    }
    set_managed_fields(&mut object, assemble(entries, source));
    let changed = live.is_none_or(|live| !same_but_times(live, &object));
    Ok(Applied { object, changed })
}

/// One attempt: the new object, if it differs, and the entries.
fn apply_once<'a>(
    mut managed: Managed<'a>,
    live: &Value,
    config: &'a Value,
    target: &Target<'a>,
    manager: &Manager<'a>,
    force: bool,
) -> Result<(Option<Value>, Vec<managers::EncodedEntry>), ApplyError> {
    let applier = target.entry(manager, Operation::Apply);
    let object = update::apply(&mut managed, live, config, target.scope(), applier.clone(), force)
        .map_err(ApplyError::conflicts)?;
    if let Some(place) = managed.entries.iter().position(|entry| entry.is_same_manager(&applier)) {
        let entry = &mut managed.entries[place];
        let before = entry.fields.len();
        entry.fields.subtract(&strip::FIELDS);
        if entry.fields.len() != before {
            entry.unchanged = None;
        }
        if object.is_some() {
            entry.time = Some(Cow::Owned(time_text(manager.now)));
        }
        if entry.fields.is_empty() {
            managed.entries.remove(place);
        }
    }
    Ok((object, managed.encode()))
}

/// The managers of an object without any on record: a first entry owns all its fields.
fn with_first_manager<'a>(
    mut managed: Managed<'a>,
    live: Option<&'a Value>,
    empty: &'a Value,
    target: &Target<'a>,
    manager: &Manager<'a>,
) -> Result<Managed<'a>, ApplyError> {
    let Some(live) = live.filter(|_| managed.is_empty()) else { return Ok(managed) };
    if !target.is_builtin() {
        check(live, target.schema, Duplicates::Allowed).map_err(|misfits| {
            ApplyError::Failed(format!(
                "failed to create manager for existing fields: failed to convert new object ({}) to smd typed: {misfits}",
                target.shown_object(live)
            ))
        })?;
    }
    record_update(&mut managed, empty, live, target, &Manager { name: BEFORE_FIRST_APPLY, ..*manager });
    Ok(managed)
}

fn check_kind(config: &Value, target: &Target<'_>) -> Result<(), ApplyError> {
    let text = |name| config.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if (api_version, kind) == (target.api_version, target.kind) {
        return Ok(());
    }
    Err(ApplyError::BadRequest(format!("invalid object type: {}", shown_kind(api_version, kind))))
}

fn check_config(config: &Value, live: Option<&Value>, target: &Target<'_>) -> Result<(), ApplyError> {
    if managed_fields(config).is_some_and(Value::is_array) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    let misfit = |what: &str, object: &Value, misfits: &dyn fmt::Display| {
        ApplyError::Failed(format!("failed to create typed {what} object ({}): {misfits}", target.shown_object(object)))
    };
    check(config, target.schema, Duplicates::Refused).map_err(|misfits| misfit("patch", config, &misfits))?;
    match live.filter(|_| !target.is_builtin()) {
        Some(live) => check(live, target.schema, Duplicates::Allowed).map_err(|misfits| misfit("live", live, &misfits)),
        None => Ok(()),
    }
}

/// Takes back new times of managers where nothing else has changed, so that a write that changes nothing
/// stores nothing.
pub fn settle_times(live: &Value, new: &mut Value) {
    if !same_but_times(live, new) {
        return;
    }
    let old = managed_fields(live).cloned();
    set_managed_fields(new, old);
}

/// Whether two objects differ in nothing but the times of managers, entry by entry.
fn same_but_times(left: &Value, right: &Value) -> bool {
    let entries = |object| managed_fields(object).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let (left_entries, right_entries) = (entries(left), entries(right));
    let same_entries = left_entries.len() == right_entries.len()
        && left_entries.iter().zip(right_entries).all(|(left, right)| same_but(left, right, "time"));
    same_entries && same_but_managers(left, right)
}

fn same_but_managers(left: &Value, right: &Value) -> bool {
    let (Value::Object(left), Value::Object(right)) = (left, right) else { return left == right };
    left.len() == right.len()
        && left.iter().all(|(name, value)| {
            right.get(name).is_some_and(|other| match name.as_str() {
                "metadata" => same_but(value, other, "managedFields"),
                _ => value::equal(value, other),
            })
        })
}

/// Whether two maps are the same but for one key.
fn same_but(left: &Value, right: &Value, key: &str) -> bool {
    let (Value::Object(left), Value::Object(right)) = (left, right) else { return left == right };
    let count = |map: &Map<String, Value>| map.len() - usize::from(map.contains_key(key));
    count(left) == count(right)
        && left
            .iter()
            .filter(|(name, _)| *name != key)
            .all(|(name, value)| right.get(name).is_some_and(|other| value::equal(value, other)))
}

/// Reads managedFields as far as their validity goes.
pub fn check_managed_fields(managed_fields: Option<&Value>) -> Result<(), EntryError> {
    Managed::decode(managed_fields).map(|_| ())
}

/// The name of a manager: the one that the request gives, or the part of the user agent before the first
/// slash, as far as it can be printed and fits.
pub fn manager_name<'a>(field_manager: Option<&'a str>, user_agent: &'a str) -> Cow<'a, str> {
    if let Some(name) = field_manager.filter(|name| !name.is_empty()) {
        return Cow::Borrowed(name);
    }
    let prefix = user_agent.split('/').next().unwrap_or_default();
    if prefix.len() <= MAX_MANAGER_NAME && prefix.chars().all(is_printable) {
        return Cow::Borrowed(prefix);
    }
    let mut name = String::new();
    for c in prefix.chars().filter(|c| is_printable(*c)) {
        if name.len() + c.len_utf8() > MAX_MANAGER_NAME {
            break;
        }
        name.push(c);
    }
    Cow::Owned(name)
}

fn managed_fields(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

fn take_managed_fields(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

fn set_managed_fields(object: &mut Value, managed_fields: Option<Value>) {
    match (object.get_mut("metadata").and_then(Value::as_object_mut), managed_fields) {
        (Some(metadata), Some(managed_fields)) => _ = metadata.insert("managedFields".to_owned(), managed_fields),
        (Some(metadata), None) => _ = metadata.remove("managedFields"),
        (None, Some(managed_fields)) => {
            if let Some(object) = object.as_object_mut() {
                object.insert("metadata".to_owned(), serde_json::json!({ "managedFields": managed_fields }));
            }
        }
        (None, None) => {}
    }
}
