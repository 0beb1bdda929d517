//! Ownership through the scale subresource: a manager of `spec.replicas` in a Scale manages the replicas
//! field of the object behind it.

use std::borrow::Cow;

use serde_json::Value;

use super::fields::FieldSet;
use super::managers::{Entry, EntryError, Managed, Operation, assemble};
use super::path::PathElement;

const SCALE_VERSION: &str = "autoscaling/v1";
const REPLICAS_IN_SCALE: [&str; 2] = ["spec", "replicas"];

/// Where each version of a kind has its replicas: `apiVersion` and the names on the way. The names are empty
/// for a version without a scale subresource.
pub type ReplicasPaths<'a> = [(&'a str, Vec<&'a str>)];

fn path_in<'a>(paths: &'a ReplicasPaths<'a>, api_version: &str) -> Option<Vec<PathElement<'a>>> {
    let (_, names) = paths.iter().find(|(version, _)| *version == api_version)?;
    Some(names.iter().map(|name| PathElement::field(*name)).collect())
}

fn replicas_in_scale() -> Vec<PathElement<'static>> {
    REPLICAS_IN_SCALE.iter().map(|name| PathElement::field(*name)).collect()
}

fn set_of(path: Vec<PathElement<'_>>) -> FieldSet<'_> {
    let mut set = FieldSet::new();
    set.insert(path);
    set
}

/// The managedFields of a Scale: the managers of the replicas of the object behind it.
pub fn to_scale(parent: Option<&Value>, paths: &ReplicasPaths<'_>) -> Result<Option<Value>, EntryError> {
    let mut managed = Managed::decode(parent)?;
    managed.entries.retain_mut(|entry| {
        let owns = path_in(paths, &entry.api_version).is_some_and(|path| entry.fields.has(&path));
        entry.fields = set_of(replicas_in_scale());
        entry.api_version = Cow::Borrowed(SCALE_VERSION);
        entry.unchanged = None;
        owns
    });
    Ok(assemble(managed.encode(), None))
}

/// The managedFields of the object behind a Scale, after those of the Scale have changed.
pub fn to_parent(
    parent: Option<&Value>,
    scale: Option<&Value>,
    api_version: &str,
    paths: &ReplicasPaths<'_>,
) -> Result<Option<Value>, EntryError> {
    let parent = Managed::decode(parent)?;
    let mut scale = Managed::decode(scale)?;
    let mut out = Managed::default();
    for mut entry in parent.entries {
        let Some(path) = path_in(paths, &entry.api_version) else { continue };
        if entry.fields.has(&path) {
            // Updaters are known by their version too, which differs in the Scale: they always start anew.
            let kept = |other: &Entry<'_>| entry.operation == Operation::Apply && other.is_same_manager(&entry);
            if let Some(place) = scale.entries.iter().position(kept) {
                scale.entries.remove(place);
            } else {
                entry.fields.subtract(&set_of(path));
            }
        }
        if !entry.fields.is_empty() {
            entry.unchanged = None;
            out.entries.push(entry);
        }
    }
    let path = path_in(paths, api_version).unwrap_or_default();
    for entry in scale.entries {
        if entry.fields.has(&replicas_in_scale()) {
            let fields = set_of(path.clone());
            let api_version = Cow::Borrowed(api_version);
            out.entries.push(Entry { fields, api_version, time: None, unchanged: None, ..entry });
        }
    }
    Ok(assemble(out.encode(), None))
}
