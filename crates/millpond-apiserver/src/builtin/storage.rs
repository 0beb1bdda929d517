//! Volumes, claims and the kinds around them.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::check::{self, Errors, IMMUTABLE, ReportError, quantity};
use super::hooks::{self, CAUTIOUS, PLAIN};
use super::json::{Fields, Fill};
use super::path::Path;
use super::pod::volume::{csi_driver_name, host_path, nfs};
use super::pod::{node_selector, requirements_of_storage};
use super::shape;
use crate::names;
use crate::resource::BuiltinKind;
use crate::status::{FieldError, FieldProblem};

const SPEC: Path<'static> = Path::root("spec");
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];

/// PersistentVolume.
pub(super) const VOLUME: BuiltinKind = BuiltinKind {
    prepare_create: |volume| {
        shape::preparing(volume, |volume| {
            protect(volume, "kubernetes.io/pv-protection");
            let now = volume.at("metadata").at("creationTimestamp").clone();
            volume.put("status", json!({"phase": "Pending", "lastPhaseTransitionTime": now}));
        });
    },
    prepare_update: hooks::keep_status,
    prepare_status: |new, old| {
        hooks::keep_all_but_status(new, old);
        let before = old.at("status").at("lastPhaseTransitionTime").clone();
        new.object("status").default_to("lastPhaseTransitionTime", before);
    },
    validate: validate_volume,
    ..PLAIN
};

/// PersistentVolumeClaim.
pub(super) const CLAIM: BuiltinKind = BuiltinKind {
    prepare_create: |claim| {
        shape::preparing(claim, |claim| {
            protect(claim, "kubernetes.io/pvc-protection");
            claim.put("status", json!({"phase": "Pending"}));
            pair_data_sources(claim.object("spec"));
        });
    },
    prepare_update: |new, old| {
        hooks::keep_status(new, old);
        pair_data_sources(new.object("spec"));
    },
    validate: validate_claim,
    validate_status: validate_claim_status,
    ..PLAIN
};

/// StorageClass.
pub(super) const CLASS: BuiltinKind = BuiltinKind { validate: validate_class, ..PLAIN };

/// VolumeAttributesClass.
pub(super) const ATTRIBUTES_CLASS: BuiltinKind = BuiltinKind {
    prepare_create: |class| protect(class, "kubernetes.io/vac-protection"),
    validate: validate_attributes_class,
    ..PLAIN
};

/// VolumeAttachment.
pub(super) const ATTACHMENT: BuiltinKind = BuiltinKind {
    prepare_create: |attachment| {
        shape::preparing(attachment, |attachment| {
            attachment.drop("status");
        });
    },
    prepare_update: hooks::keep_status,
    prepare_status: hooks::keep_all_but_status_and_metadata,
    validate: validate_attachment,
    ..CAUTIOUS
};

/// CSINode.
pub(super) const CSI_NODE: BuiltinKind = BuiltinKind { validate: validate_csi_node, ..CAUTIOUS };

/// CSIDriver.
pub(super) const CSI_DRIVER: BuiltinKind = BuiltinKind {
    prepare_update: |new, old| hooks::set_generation(new, old, new.at("spec") != old.at("spec")),
    validate: validate_csi_driver,
    ..CAUTIOUS
};

/// CSIStorageCapacity.
pub(super) const CSI_CAPACITY: BuiltinKind = BuiltinKind { validate: validate_csi_capacity, ..CAUTIOUS };

/// Adds the finalizer of the StorageObjectInUseProtection admission.
fn protect(object: &mut Value, finalizer: &str) {
    let meta = object.object("metadata");
    if meta.items("finalizers").iter().any(|known| known == finalizer) {
        return;
    }
    meta.default_to("finalizers", json!([]));
    if let Some(list) = meta["finalizers"].as_array_mut() {
        list.push(finalizer.into());
    }
}

/// `dataSource` and `dataSourceRef` say the same; the second may also name another namespace.
fn pair_data_sources(spec: &mut Value) {
    let other_namespace = !spec.at("dataSourceRef").text("namespace").is_empty();
    if spec.has("dataSource") && !spec.has("dataSourceRef") {
        let source = spec.at("dataSource").clone();
        spec.put("dataSourceRef", source);
    } else if spec.has("dataSourceRef") && !spec.has("dataSource") && !other_namespace {
        let mut source = spec.at("dataSourceRef").clone();
        source.drop("namespace");
        spec.put("dataSource", source);
    }
}

fn access_modes(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    let modes: Vec<&str> = spec.items("accessModes").iter().filter_map(Value::as_str).collect();
    for mode in &modes {
        errors.one_of(path.child("accessModes"), mode, &ACCESS_MODES);
    }
    let others = modes.iter().any(|mode| *mode != "ReadWriteOncePod" && ACCESS_MODES.contains(mode));
    if modes.contains(&"ReadWriteOncePod") && others {
        errors.forbidden(path.child("accessModes"), "may not use ReadWriteOncePod with other access modes");
    }
}

/// Checks the spec of a claim, also in templates.
pub(super) fn claim_spec(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    if spec.items("accessModes").is_empty() {
        errors.required(path.child("accessModes"), "at least 1 access mode is required");
    }
    check::label_selector(spec.at("selector"), path.child("selector"), errors);
    access_modes(spec, path, errors);
    let storage = spec.at("resources").at("requests").at("storage");
    let resources = path.child("resources");
    let place = resources.key("storage");
    match quantity(storage) {
        None => errors.required(place, ""),
        Some(amount) if amount.is_zero() || amount.is_negative() => {
            errors.invalid(place, amount.canonical(), "must be greater than zero");
        }
        Some(_) => requirements_of_storage(storage, place, errors),
    }
    for field in ["storageClassName", "volumeAttributesClassName"] {
        let name = spec.text(field);
        if !name.is_empty() {
            errors.each(path.child(field), name, names::subdomain_problems(name));
        }
    }
    if spec.has("volumeMode") {
        errors.one_of(path.child("volumeMode"), spec.text("volumeMode"), &VOLUME_MODES);
    }
    for field in ["dataSource", "dataSourceRef"].into_iter().filter(|field| spec.has(field)) {
        data_source(spec.at(field), path.child(field), errors);
    }
    matching_sources(spec, path, errors);
}

fn data_source(source: &Value, path: Path<'_>, errors: &mut Errors) {
    for field in ["name", "kind"].into_iter().filter(|field| source.text(field).is_empty()) {
        errors.required(path.child(field), "");
    }
    let group = source.text("apiGroup");
    if group.is_empty() && source.text("kind") != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.invalid(path, source.text("kind"), detail);
    }
    if !group.is_empty() {
        errors.each(path.child("apiGroup"), group, names::subdomain_problems(group));
    }
    let namespace = source.text("namespace");
    if !namespace.is_empty() {
        errors.each(path.child("namespace"), namespace, names::label_problems(namespace));
    }
}

fn matching_sources(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    let (source, reference) = (spec.at("dataSource"), spec.at("dataSourceRef"));
    if source.is_null() || reference.is_null() {
        return;
    }
    let detail = if !reference.text("namespace").is_empty() {
        "may not be specified when dataSourceRef.namespace is specified"
    } else if ["apiGroup", "kind", "name"].iter().any(|field| source.text(field) != reference.text(field)) {
        "must match dataSourceRef"
    } else {
        return;
    };
    errors.invalid(path, json!({}), detail);
}

fn validate_claim(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    claim_spec(new.at("spec"), SPEC, &mut errors);
    let Some(old) = old else { return errors };
    let mut before = old.at("spec").clone();
    let mut after = new.at("spec").clone();
    let bound = new.at("status").text("phase") == "Bound";
    if before.text("volumeName").is_empty() {
        before.put("volumeName", after.at("volumeName").clone());
    }
    let annotation = |claim: &Value| claim.at("metadata").at("annotations").at(BETA_CLASS).clone();
    if annotation(new) != annotation(old) {
        let meta = Path::root("metadata");
        let annotations = meta.child("annotations");
        errors.invalid(annotations.key(BETA_CLASS), annotation(new), IMMUTABLE);
    }
    if before.at("storageClassName").is_null() && annotation(old).is_null() {
        // A claim that waited for a default class may get one.
        before.put("storageClassName", after.at("storageClassName").clone());
    }
    if bound {
        let size = before.at("resources").at("requests").at("storage").clone();
        if let Some(requests) = after.object_if("resources").and_then(|r| r.object_if("requests")) {
            requests.put("storage", size);
        }
        after.put("volumeAttributesClassName", before.at("volumeAttributesClassName").clone());
    }
    if before != after {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                      bound claims\n";
        errors.forbidden(SPEC, detail);
    }
    shrunk(new, old, &mut errors);
    let mode = |claim: &Value| claim.at("spec").at("volumeMode").clone();
    errors.immutable(Path::root("volumeMode"), &mode(new), &mode(old));
    errors
}

fn shrunk(new: &Value, old: &Value, errors: &mut Errors) {
    let size = |claim: &Value| quantity(claim.at("spec").at("resources").at("requests").at("storage"));
    let (Some(now), Some(before)) = (size(new), size(old)) else { return };
    let held = quantity(old.at("status").at("capacity").at("storage"));
    let within_held =
        held.map_or_else(|| now.is_zero() || now.is_negative(), |held| now <= held || now.same_amount(&held));
    if now < before && !now.same_amount(&before) && within_held {
        let resources = SPEC.child("resources");
        let requests = resources.child("requests");
        errors.forbidden(requests.child("storage"), "field can not be less than status.capacity");
    }
}

fn validate_claim_status(new: &Value, _: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let status = Path::root("status");
    for (name, amount) in new.at("status").entries("capacity") {
        basic_amount(amount, status.child("capacity").key(name), &mut errors);
    }
    errors
}

fn basic_amount(amount: &Value, path: Path<'_>, errors: &mut Errors) {
    if let Some(amount) = quantity(amount).filter(|amount| amount.whole() < 0) {
        errors.invalid(path, amount.whole(), "must be a valid resource quantity");
    }
}

/// Sources of a volume, in the order in which the real server looks at them.
const VOLUME_SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

fn volume_spec(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    if spec.items("accessModes").is_empty() {
        errors.required(path.child("accessModes"), "");
    }
    access_modes(spec, path, errors);
    let place = path.child("capacity");
    let capacity = spec.at("capacity");
    if capacity.as_object().is_none_or(serde_json::Map::is_empty) {
        errors.required(place, "");
    }
    if !capacity.has("storage") || capacity.as_object().is_some_and(|map| map.len() > 1) {
        errors.report(FieldError {
            field: place.to_string(),
            problem: FieldProblem::NotSupported(capacity.clone()),
            detail: "supported values: \"storage\"".to_owned(),
        });
    }
    for (name, amount) in spec.entries("capacity") {
        basic_amount(amount, place.key(name), errors);
        if let Some(amount) = quantity(amount).filter(|amount| amount.is_zero() || amount.is_negative()) {
            errors.invalid(place.key(name), amount.canonical(), "must be greater than zero");
        }
    }
    let policy = spec.text("persistentVolumeReclaimPolicy");
    if !policy.is_empty() {
        errors.one_of(path.child("persistentVolumeReclaimPolicy"), policy, &["Delete", "Recycle", "Retain"]);
    }
    if spec.has("nodeAffinity") {
        let affinity = path.child("nodeAffinity");
        if spec.at("nodeAffinity").has("required") {
            node_selector(spec.at("nodeAffinity").at("required"), affinity.child("required"), errors);
        } else {
            errors.required(affinity.child("required"), "must specify required node constraints");
        }
    }
    volume_source(spec, path, errors);
    let class = spec.text("storageClassName");
    if !class.is_empty() {
        errors.each(path.child("storageClassName"), class, names::subdomain_problems(class));
    }
    if spec.has("volumeMode") {
        errors.one_of(path.child("volumeMode"), spec.text("volumeMode"), &VOLUME_MODES);
    }
}

fn volume_source(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    let mut found = false;
    for kind in VOLUME_SOURCES.into_iter().filter(|kind| spec.has(kind)) {
        let place = path.child(kind);
        if found {
            errors.forbidden(place, "may not specify more than 1 volume type");
            continue;
        }
        found = true;
        let source = spec.at(kind);
        match kind {
            "hostPath" => host_path(source, place, errors),
            "nfs" => nfs(source, place, errors),
            "local" => {
                if source.text("path").is_empty() {
                    errors.required(place.child("path"), "");
                } else {
                    check::no_backsteps(source.text("path"), place.child("path"), errors);
                }
                if !spec.has("nodeAffinity") {
                    errors.required(path.child("nodeAffinity"), "Local volume requires node affinity");
                }
            }
            "csi" => {
                csi_driver_name(source.text("driver"), place.child("driver"), errors);
                if source.text("volumeHandle").is_empty() {
                    errors.required(place.child("volumeHandle"), "");
                }
            }
            _ => {}
        }
    }
    if !found {
        errors.required(path, "must specify a volume type");
    }
    let root = spec.at("hostPath").text("path");
    let is_root = !root.is_empty() && root.split('/').all(|part| matches!(part, "" | "."));
    if is_root && spec.text("persistentVolumeReclaimPolicy") == "Recycle" {
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        errors.forbidden(path.child("persistentVolumeReclaimPolicy"), detail);
    }
}

fn validate_volume(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    volume_spec(new.at("spec"), SPEC, &mut errors);
    let Some(old) = old else { return errors };
    let (new, old) = (new.at("spec"), old.at("spec"));
    let source = |spec: &Value| -> Vec<Value> { VOLUME_SOURCES.iter().map(|kind| spec.at(kind).clone()).collect() };
    if source(new) != source(old) {
        let detail = "spec.persistentvolumesource is immutable after creation\n";
        errors.forbidden(SPEC.child("persistentvolumesource"), detail);
    }
    errors.immutable(Path::root("volumeMode"), new.at("volumeMode"), old.at("volumeMode"));
    if old.has("nodeAffinity") {
        errors.immutable(Path::root("nodeAffinity"), new.at("nodeAffinity"), old.at("nodeAffinity"));
    }
    errors
}

fn provisioner(name: &str, path: Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
    } else {
        let name = name.to_lowercase();
        errors.each(path, &name, names::label_key_problems(&name));
    }
}

fn parameters(object: &Value, required: bool, errors: &mut Errors) {
    let path = Path::root("parameters");
    let mut size = 0;
    let mut count = 0;
    for (key, value) in object.entries("parameters") {
        if key.is_empty() {
            errors.invalid(path, key, "field can not be empty.");
        }
        size += key.len() + value.as_str().map_or(0, str::len);
        count += 1;
    }
    if count > 512 {
        errors.report(FieldError::too_long(path, 512));
    } else if size > 256 * 1024 {
        errors.report(FieldError::too_long(path, 256 * 1024));
    }
    if required && count == 0 {
        errors.required(path, "must contain at least one key/value pair");
    }
}

fn validate_class(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if let Some(old) = old {
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            errors.immutable(Path::root(field), new.at(field), old.at(field));
        }
        return errors;
    }
    provisioner(new.text("provisioner"), Path::root("provisioner"), &mut errors);
    parameters(new, false, &mut errors);
    let policy = new.text("reclaimPolicy");
    if !policy.is_empty() {
        errors.one_of(Path::root("reclaimPolicy"), policy, &["Delete", "Retain"]);
    }
    let modes = ["Immediate", "WaitForFirstConsumer"];
    errors.one_of(Path::root("volumeBindingMode"), new.text("volumeBindingMode"), &modes);
    topologies(new, &mut errors);
    errors
}

fn topologies(class: &Value, errors: &mut Errors) {
    let path = Path::root("allowedTopologies");
    for (index, term) in class.items("allowedTopologies").iter().enumerate() {
        let place = path.index(index);
        let list = place.child("matchLabelExpressions");
        let mut keys = HashSet::new();
        for (at, expression) in term.items("matchLabelExpressions").iter().enumerate() {
            let key = expression.text("key");
            let item = list.index(at);
            let mut seen = HashSet::new();
            if expression.items("values").is_empty() {
                errors.required(item.child("values"), "");
            }
            for (number, value) in expression.items("values").iter().filter_map(Value::as_str).enumerate() {
                if !seen.insert(value) {
                    errors.duplicate(item.child("values").index(number), value);
                }
            }
            errors.each(item.child("key"), key, names::label_key_problems(key));
            if !keys.insert(key) {
                errors.duplicate(item.child("key"), key);
            }
        }
    }
}

fn validate_attributes_class(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    for field in ["driverName", "parameters"] {
        if old.is_some_and(|old| old.at(field) != new.at(field)) {
            errors.forbidden(Path::root(field), format!("updates to {field} are forbidden."));
        }
    }
    provisioner(new.text("driverName"), Path::root("driverName"), &mut errors);
    parameters(new, true, &mut errors);
    errors
}

fn validate_attachment(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = new.at("spec");
    csi_driver_name(spec.text("attacher"), SPEC.child("attacher"), &mut errors);
    let source = spec.at("source");
    let path = SPEC.child("source");
    let exactly_one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (source.has("inlineVolumeSpec"), source.has("persistentVolumeName")) {
        (false, false) => errors.required(path, exactly_one),
        (true, true) => errors.forbidden(path, exactly_one),
        (false, true) if source.text("persistentVolumeName").is_empty() => {
            errors.required(path.child("persistentVolumeName"), "must specify non empty persistentVolumeName");
        }
        _ => {}
    }
    let node = spec.text("nodeName");
    errors.each(SPEC.child("nodeName"), node, names::subdomain_problems(node));
    if source.has("persistentVolumeName") {
        let name = source.text("persistentVolumeName");
        errors.each(Path::root("spec.source.persistentVolumeName"), name, names::subdomain_problems(name));
    }
    if let Some(old) = old {
        errors.immutable(SPEC, spec, old.at("spec"));
    }
    errors
}

fn validate_csi_node(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = SPEC.child("drivers");
    let drivers = new.at("spec").items("drivers");
    let mut seen = HashSet::new();
    for (index, driver) in drivers.iter().enumerate() {
        let place = path.index(index);
        csi_driver_name(driver.text("name"), place.child("name"), &mut errors);
        let id = driver.text("nodeID");
        if id.is_empty() {
            errors.required(place.child("nodeID"), "");
        }
        if id.len() > 256 {
            errors.invalid(place.child("nodeID"), id, "must be 256 characters or less");
        }
        let count = driver.at("allocatable").number("count");
        errors.not_negative(place.child("allocatable").child("count"), count);
        if !seen.insert(driver.text("name")) {
            errors.duplicate(place.child("name"), driver.text("name"));
        }
        let mut keys = HashSet::new();
        for key in driver.items("topologyKeys").iter().filter_map(Value::as_str) {
            if key.is_empty() {
                errors.required(place, "");
            }
            if !keys.insert(key) {
                errors.duplicate(place, key);
            }
            errors.each(place, key, names::label_key_problems(key));
        }
    }
    let fixed = |driver: &Value| {
        let mut driver = driver.clone();
        driver.drop("allocatable");
        driver
    };
    for before in old.iter().flat_map(|old| old.at("spec").items("drivers")) {
        if let Some(now) = drivers.iter().find(|driver| driver.text("name") == before.text("name")) {
            errors.immutable(path, &fixed(now), &fixed(before));
        }
    }
    errors
}

fn validate_csi_driver(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = new.at("spec");
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    errors.one_of(SPEC.child("fsGroupPolicy"), spec.text("fsGroupPolicy"), &policies);
    let mut audiences = HashSet::new();
    for (index, request) in spec.items("tokenRequests").iter().enumerate() {
        let list = SPEC.child("tokenRequests");
        let place = list.index(index);
        if !audiences.insert(request.text("audience")) {
            errors.duplicate(place.child("audience"), request.text("audience"));
            continue;
        }
        let Some(seconds) = request.number("expirationSeconds") else { continue };
        if seconds < 600 {
            let detail = "may not specify a duration less than 10 minutes";
            errors.invalid(place.child("expirationSeconds"), seconds, detail);
        }
        if seconds > 1 << 32 {
            let detail = "may not specify a duration larger than 2^32 seconds";
            errors.invalid(place.child("expirationSeconds"), seconds, detail);
        }
    }
    for mode in spec.items("volumeLifecycleModes").iter().filter_map(Value::as_str) {
        errors.one_of(SPEC.child("volumeLifecycleModes"), mode, &["Persistent", "Ephemeral"]);
    }
    if let Some(seconds) = spec.number("nodeAllocatableUpdatePeriodSeconds").filter(|seconds| *seconds < 10) {
        let detail = "must be greater than or equal to 10 seconds";
        errors.invalid(SPEC.child("nodeAllocatableUpdatePeriodSeconds"), seconds, detail);
    }
    if spec.has("serviceAccountTokenInSecrets") && spec.items("tokenRequests").is_empty() {
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        let value = spec.at("serviceAccountTokenInSecrets").clone();
        errors.invalid(SPEC.child("serviceAccountTokenInSecrets"), value, detail);
    }
    if let Some(old) = old.map(|old| old.at("spec")) {
        errors.immutable(SPEC.child("attachedRequired"), spec.at("attachRequired"), old.at("attachRequired"));
        let modes = "volumeLifecycleModes";
        errors.immutable(SPEC.child(modes), spec.at(modes), old.at(modes));
    }
    errors
}

fn validate_csi_capacity(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if let Some(old) = old {
        for field in ["nodeTopology", "storageClassName"] {
            errors.immutable(Path::root(field), new.at(field), old.at(field));
        }
        return errors;
    }
    check::label_selector(new.at("nodeTopology"), Path::root("nodeTopology"), &mut errors);
    let class = new.text("storageClassName");
    errors.each(Path::root("storageClassName"), class, names::subdomain_problems(class));
    if let Some(amount) = quantity(new.at("capacity")).filter(crate::quantity::Quantity::is_negative) {
        errors.invalid(Path::root("capacity"), amount.canonical(), check::NOT_NEGATIVE);
    }
    errors
}
