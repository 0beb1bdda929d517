//! Devices: DeviceClass, ResourceClaim, ResourceClaimTemplate and ResourceSlice.

use std::collections::HashSet;

use serde_json::Value;

use super::check::{self, Errors, ReportError};
use super::hooks::{self, PLAIN};
use super::json::{Fields, Fill};
use super::path::Path;
use super::pod::node_selector;
use super::pod::volume::csi_driver_name;
use super::shape;
use crate::names;
use crate::resource::BuiltinKind;
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
const MAX_REQUESTS: usize = 32;

/// DeviceClass.
pub(super) const CLASS: BuiltinKind =
    BuiltinKind { prepare_create: first_generation, prepare_update: count_spec, ..PLAIN };

/// ResourceSlice.
pub(super) const SLICE: BuiltinKind =
    BuiltinKind { prepare_create: first_generation, prepare_update: count_spec, validate: validate_slice, ..PLAIN };

/// ResourceClaim.
pub(super) const CLAIM: BuiltinKind = BuiltinKind {
    prepare_create: |claim| {
        shape::preparing(claim, |claim| {
            claim.drop("status");
        });
    },
    prepare_update: hooks::keep_status,
    prepare_status: hooks::keep_all_but_status_and_metadata,
    validate: |new, old| {
        let mut errors = Errors::new();
        match old {
            Some(old) => errors.immutable(SPEC, new.at("spec"), old.at("spec")),
            None => claim_spec(new.at("spec"), SPEC, &mut errors),
        }
        errors
    },
    ..PLAIN
};

/// ResourceClaimTemplate.
pub(super) const TEMPLATE: BuiltinKind = BuiltinKind {
    validate: |new, old| {
        let mut errors = Errors::new();
        if let Some(old) = old {
            errors.immutable(SPEC, new.at("spec"), old.at("spec"));
            return errors;
        }
        check::template_meta(new.at("spec").at("metadata"), SPEC.child("metadata"), &mut errors);
        claim_spec(new.at("spec").at("spec"), SPEC.child("spec"), &mut errors);
        errors
    },
    ..PLAIN
};

fn first_generation(object: &mut Value) {
    object.object("metadata").put("generation", 1.into());
}

fn count_spec(new: &mut Value, old: &Value) {
    hooks::set_generation(new, old, new.at("spec") != old.at("spec"));
}

fn claim_spec(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    let devices = path.child("devices");
    let list = devices.child("requests");
    let requests = spec.at("devices").items("requests");
    if requests.len() > MAX_REQUESTS {
        errors.report(FieldError::too_many(list, requests.len(), MAX_REQUESTS));
    }
    let mut seen = HashSet::new();
    for (index, request) in requests.iter().enumerate() {
        let place = list.index(index);
        let name = request.text("name");
        request_name(name, place.child("name"), errors);
        match (request.has("exactly"), request.items("firstAvailable").is_empty()) {
            (false, true) => errors.required(place, "exactly one of `exactly` or `firstAvailable` is required"),
            (true, false) => errors.invalid(
                place,
                Value::Null,
                "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
            ),
            (true, true) => device_request(request.at("exactly"), place.child("exactly"), errors),
            (false, false) => {
                for (at, choice) in request.items("firstAvailable").iter().enumerate() {
                    let choices = place.child("firstAvailable");
                    let choice_path = choices.index(at);
                    request_name(choice.text("name"), choice_path.child("name"), errors);
                    device_request(choice, choice_path, errors);
                }
            }
        }
        if !seen.insert(name) {
            errors.duplicate(place.child("name"), name);
        }
    }
}

fn request_name(name: &str, path: Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
    } else {
        errors.each(path, name, names::label_problems(name));
    }
}

fn device_request(request: &Value, path: Path<'_>, errors: &mut Errors) {
    let class = request.text("deviceClassName");
    if class.is_empty() {
        errors.required(path.child("deviceClassName"), "");
    } else {
        errors.each(path.child("deviceClassName"), class, names::subdomain_problems(class));
    }
    let count = request.number("count").unwrap_or_default();
    match request.text("allocationMode") {
        "All" if count != 0 => {
            errors.invalid(path.child("count"), count, "must not be specified when allocationMode is 'All'");
        }
        "ExactCount" if count <= 0 => errors.invalid(path.child("count"), count, "must be greater than zero"),
        mode => errors.one_of(path.child("allocationMode"), mode, &["All", "ExactCount"]),
    }
}

fn validate_slice(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = new.at("spec");
    csi_driver_name(spec.text("driver"), SPEC.child("driver"), &mut errors);
    let pool = SPEC.child("pool");
    if spec.at("pool").text("name").is_empty() {
        errors.required(pool.child("name"), "");
    }
    if let Some(old) = old.map(|old| old.at("spec")) {
        errors.immutable(pool.child("name"), spec.at("pool").at("name"), old.at("pool").at("name"));
        for field in ["driver", "nodeName"] {
            errors.immutable(SPEC.child(field), spec.at(field), old.at(field));
        }
    }
    let mut chosen = 0;
    if spec.has("nodeName") {
        chosen += 1;
        let node = spec.text("nodeName");
        errors.each(SPEC.child("nodeName"), node, names::subdomain_problems(node));
    }
    if spec.has("nodeSelector") {
        chosen += 1;
        node_selector(spec.at("nodeSelector"), SPEC.child("nodeSelector"), &mut errors);
    }
    chosen += ["allNodes", "perDeviceNodeSelection"].iter().filter(|field| spec.flag(field)).count();
    let one_of = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match chosen {
        0 => errors.required(SPEC, one_of),
        1 => {}
        _ => errors.invalid(SPEC, spec.clone(), format!("{one_of}, but multiple fields are set")),
    }
    let mut seen = HashSet::new();
    for (index, device) in spec.items("devices").iter().enumerate() {
        let list = SPEC.child("devices");
        let name = device.text("name");
        request_name(name, list.index(index).child("name"), &mut errors);
        if !seen.insert(name) {
            errors.duplicate(list.index(index).child("name"), name);
        }
    }
    errors
}
