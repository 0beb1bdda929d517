//! Between the form in which an object is stored and the version in which it is served.
//!
//! Custom resources convert by changing `apiVersion` (conversion `None`). Of the built-ins only Event has two
//! forms: the core one, which is stored, and that of `events.k8s.io`, whose fields have other names.

use serde_json::{Map, Value, json};

use crate::resource::Resource;

/// Core field ↔ `events.k8s.io` field.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// Whether objects of this resource are served in another form than they are stored in.
pub(crate) fn differs(resource: &Resource) -> bool {
    resource.version != resource.storage_version || is_new_event(resource)
}

fn is_new_event(resource: &Resource) -> bool {
    &*resource.group == "events.k8s.io"
}

/// From the stored form to the served one.
pub(crate) fn to_served(resource: &Resource, object: &mut Value) {
    if is_new_event(resource) {
        rename(object, |core, new| (core, new));
    }
    object["apiVersion"] = json!(resource.api_version());
}

/// From the served form to the stored one.
pub(crate) fn to_stored(resource: &Resource, object: &mut Value) {
    object["apiVersion"] = json!(storage_api_version(resource));
    if is_new_event(resource) {
        rename(object, |core, new| (new, core));
    }
}

/// `apiVersion` of the stored form.
pub(crate) fn storage_api_version(resource: &Resource) -> String {
    if is_new_event(resource) {
        "v1".to_owned()
    } else if resource.group.is_empty() {
        resource.storage_version.to_string()
    } else {
        format!("{}/{}", resource.group, resource.storage_version)
    }
}

fn rename(object: &mut Value, direction: fn(&'static str, &'static str) -> (&'static str, &'static str)) {
    let Value::Object(fields) = object else { return };
    let moved: Map<String, Value> = EVENT_FIELDS
        .iter()
        .filter_map(|(core, new)| {
            let (from, to) = direction(core, new);
            fields.remove(from).map(|value| (to.to_owned(), value))
        })
        .collect();
    fields.extend(moved);
}
