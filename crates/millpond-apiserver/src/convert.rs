//! Between the form in which an object is stored and the version in which it is served.
//!
//! Custom resources convert by changing `apiVersion` (conversion `None`); built-ins that are served in two
//! forms bring a [`Conversion`].

use serde_json::{Value, json};

use crate::resource::{Behaviour, Conversion, Resource};
use crate::schema::custom;

fn conversion(resource: &Resource) -> Option<Conversion> {
    match &resource.behaviour {
        Behaviour::Builtin(kind) => kind.conversion,
        Behaviour::Custom => None,
    }
}

/// Whether objects of this resource are served in another form than they are stored in.
pub(crate) fn differs(resource: &Resource) -> bool {
    resource.version != resource.storage_version || resource.defaults_on_read || conversion(resource).is_some()
}

/// From the stored form to the served one.
pub(crate) fn to_served(resource: &Resource, object: &mut Value) {
    match conversion(resource) {
        Some(conversion) => (conversion.from_storage)(object),
        None => object["apiVersion"] = json!(resource.api_version()),
    }
    if resource.defaults_on_read {
        custom::default(object, &resource.schema);
    }
}

/// From the served form to the stored one.
pub(crate) fn to_stored(resource: &Resource, object: &mut Value) {
    match conversion(resource) {
        Some(conversion) => (conversion.to_storage)(object),
        None if resource.group.is_empty() => object["apiVersion"] = json!(resource.storage_version),
        None => object["apiVersion"] = json!(format!("{}/{}", resource.group, resource.storage_version)),
    }
}
