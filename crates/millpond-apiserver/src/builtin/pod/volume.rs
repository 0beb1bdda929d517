//! Volumes of a pod.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::container;
use super::spec::Context;
use crate::builtin::check::{self, Errors, ReportError, quantity};
use crate::builtin::json::Fields;
use crate::builtin::path::Path;
use crate::builtin::storage;
use crate::names;
use crate::print::go_quoted;
use crate::status::FieldError;

/// Valid volumes by name.
pub(super) type Volumes<'a> = HashMap<&'a str, &'a Value>;

const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// Sources in the order in which the real server looks at them, with the name that its errors use.
const SOURCES: [(&str, &str); 30] = [
    ("emptyDir", "emptyDir"),
    ("hostPath", "hostPath"),
    ("gitRepo", "gitRepo"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("secret", "secret"),
    ("nfs", "nfs"),
    ("iscsi", "iscsi"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("persistentVolumeClaim", "persistentVolumeClaim"),
    ("rbd", "rbd"),
    ("cinder", "cinder"),
    ("cephfs", "cephFS"),
    ("quobyte", "quobyte"),
    ("downwardAPI", "downwarAPI"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("configMap", "configMap"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("storageos", "storageos"),
    ("projected", "projected"),
    ("scaleIO", "scaleIO"),
    ("csi", "csi"),
    ("ephemeral", "ephemeral"),
    ("image", "image"),
];

/// Checks all volumes; returns those that are good.
pub(super) fn volumes<'a>(context: Context<'a>, path: Path<'_>, errors: &mut Errors) -> Volumes<'a> {
    let list = context.spec.items("volumes");
    let created: HashSet<String> = list
        .iter()
        .filter(|volume| volume.has("ephemeral") && !context.pod_name.is_empty())
        .map(|volume| format!("{}-{}", context.pod_name, volume.text("name")))
        .collect();
    let mut good = Volumes::new();
    for (index, volume) in list.iter().enumerate() {
        let place = path.index(index);
        let name = volume.text("name");
        let mut found = Errors::new();
        source(volume, context, place, &mut found);
        if name.is_empty() {
            found.required(place.child("name"), "");
        } else {
            found.each(place.child("name"), name, names::label_problems(name));
        }
        if good.contains_key(name) {
            found.duplicate(place.child("name"), name);
        }
        if found.is_empty() {
            good.insert(name, volume);
        }
        errors.append(&mut found);
        let claim = volume.at("persistentVolumeClaim").text("claimName");
        if created.contains(claim) {
            errors.invalid(
                place.child("persistentVolumeClaim").child("claimName"),
                claim,
                "must not reference a PVC that gets created for an ephemeral volume",
            );
        }
    }
    good
}

fn source(volume: &Value, context: Context<'_>, path: Path<'_>, errors: &mut Errors) {
    let mut found = false;
    for (kind, shown) in SOURCES.into_iter().filter(|(kind, _)| volume.has(kind)) {
        if found {
            errors.forbidden(path.child(shown), "may not specify more than 1 volume type");
            continue;
        }
        found = true;
        one_source(kind, volume, context, path, errors);
    }
    if !found {
        errors.required(path, "must specify a volume type");
    }
}

fn one_source(kind: &str, volume: &Value, context: Context<'_>, path: Path<'_>, errors: &mut Errors) {
    let source = volume.at(kind);
    let place = path.child(kind);
    match kind {
        "emptyDir" => {
            if quantity(source.at("sizeLimit")).is_some_and(|limit| limit.is_negative()) {
                errors.forbidden(place.child("sizeLimit"), "SizeLimit field must be a valid resource quantity");
            }
        }
        "hostPath" => host_path(source, place, errors),
        "secret" => keyed(source, "secretName", place, errors),
        "configMap" => keyed(source, "name", place, errors),
        "nfs" => nfs(source, place, errors),
        "persistentVolumeClaim" if source.text("claimName").is_empty() => errors.required(place.child("claimName"), ""),
        "downwardAPI" => {
            mode(source, "defaultMode", place, errors);
            for file in source.items("items") {
                downward_file(file, place, errors);
            }
        }
        "projected" => projected(source, place, errors),
        "csi" => csi(source, place, errors),
        "ephemeral" => ephemeral(volume, context, path, errors),
        "image" => {
            if context.is_pod && source.text("reference").is_empty() {
                errors.required(place.child("reference"), "");
            }
            container::pull_policy(source.text("pullPolicy"), place.child("pullPolicy"), errors);
        }
        _ => required_fields(kind, source, place, errors),
    }
}

/// Sources that belong to one kind of storage: only what must be there.
fn required_fields(kind: &str, source: &Value, path: Path<'_>, errors: &mut Errors) {
    let fields: &[&str] = match kind {
        "gitRepo" => &["repository"],
        "gcePersistentDisk" => &["pdName"],
        "awsElasticBlockStore" | "cinder" | "portworxVolume" => &["volumeID"],
        "iscsi" => &["targetPortal", "iqn"],
        "glusterfs" => &["endpoints", "path"],
        "rbd" => &["image"],
        "quobyte" => &["registry", "volume"],
        "flexVolume" => &["driver"],
        "azureFile" => &["secretName", "shareName"],
        "vsphereVolume" => &["volumePath"],
        "photonPersistentDisk" => &["pdID"],
        "azureDisk" => &["diskName", "diskURI"],
        "scaleIO" => &["gateway", "system", "volumeName"],
        _ => &[],
    };
    for field in fields.iter().filter(|field| source.text(field).is_empty()) {
        errors.required(path.child(field), "");
    }
}

/// A path on the node.
pub(in crate::builtin) fn host_path(source: &Value, path: Path<'_>, errors: &mut Errors) {
    let target = source.text("path");
    if target.is_empty() {
        errors.required(path.child("path"), "");
        return;
    }
    check::no_backsteps(target, path.child("path"), errors);
    let kinds = ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    if source.has("type") {
        errors.one_of(path.child("type"), source.text("type"), &kinds);
    }
}

/// A share of an NFS server.
pub(in crate::builtin) fn nfs(source: &Value, path: Path<'_>, errors: &mut Errors) {
    for field in ["server", "path"].into_iter().filter(|field| source.text(field).is_empty()) {
        errors.required(path.child(field), "");
    }
    let target = source.text("path");
    if !target.starts_with('/') {
        errors.invalid(path.child("path"), target, "must be an absolute path");
    }
}

fn mode(source: &Value, field: &str, path: Path<'_>, errors: &mut Errors) {
    if let Some(mode) = source.number(field).filter(|mode| !(0..=0o777).contains(mode)) {
        errors.invalid(path.child(field), mode, MODE);
    }
}

fn keyed(source: &Value, name_field: &str, path: Path<'_>, errors: &mut Errors) {
    if source.text(name_field).is_empty() {
        errors.required(path.child(name_field), "");
    }
    mode(source, "defaultMode", path, errors);
    for (index, item) in source.items("items").iter().enumerate() {
        let items = path.child("items");
        key_to_path(item, items.index(index), errors);
    }
}

fn key_to_path(item: &Value, path: Path<'_>, errors: &mut Errors) {
    for field in ["key", "path"].into_iter().filter(|field| item.text(field).is_empty()) {
        errors.required(path.child(field), "");
    }
    check::local_path(item.text("path"), path.child("path"), errors);
    mode(item, "mode", path, errors);
}

/// Fields of a pod that a file can show.
const FILE_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

fn downward_file(file: &Value, path: Path<'_>, errors: &mut Errors) {
    if file.text("path").is_empty() {
        errors.required(path.child("path"), "");
    }
    check::local_path(file.text("path"), path.child("path"), errors);
    match (file.has("fieldRef"), file.has("resourceFieldRef")) {
        (true, both) => {
            container::field_reference(file.at("fieldRef"), &FILE_FIELDS, path.child("fieldRef"), errors);
            if both {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.invalid(path, "resource", detail);
            }
        }
        (false, true) => {
            container::resource_reference(file.at("resourceFieldRef"), true, path.child("resourceFieldRef"), errors);
        }
        (false, false) => errors.required(path, "one of fieldRef and resourceFieldRef is required"),
    }
    mode(file, "mode", path, errors);
}

fn projected(volume: &Value, path: Path<'_>, errors: &mut Errors) {
    mode(volume, "defaultMode", path, errors);
    let mut seen: HashSet<&str> = HashSet::new();
    for (index, source) in volume.items("sources").iter().enumerate() {
        let list = path.child("sources");
        let place = list.index(index);
        let mut kinds = 0;
        for kind in ["secret", "configMap"].into_iter().filter(|kind| source.has(kind)) {
            kinds += 1;
            let inner = source.at(kind);
            let name = inner.text("name");
            let kind_path = place.child(kind);
            if name.is_empty() {
                errors.required(kind_path.child("name"), "");
            }
            for (at, item) in inner.items("items").iter().enumerate() {
                key_to_path(item, kind_path.child("items").index(at), errors);
                let target = item.text("path");
                if !target.is_empty() && !seen.insert(target) {
                    errors.invalid(path, name, "conflicting duplicate paths");
                }
            }
        }
        if source.has("downwardAPI") {
            kinds += 1;
            for file in source.at("downwardAPI").items("items") {
                downward_file(file, place.child("downwardAPI"), errors);
                let target = file.text("path");
                if !target.is_empty() && !seen.insert(target) {
                    errors.invalid(path, target, "conflicting duplicate paths");
                }
            }
        }
        if source.has("serviceAccountToken") {
            kinds += 1;
            token(source.at("serviceAccountToken"), place.child("serviceAccountToken"), path, errors);
        }
        kinds += usize::from(source.has("clusterTrustBundle")) + usize::from(source.has("podCertificate"));
        if kinds > 1 {
            errors.forbidden(place, "may not specify more than 1 volume type per source");
        }
    }
}

fn token(token: &Value, path: Path<'_>, volume_path: Path<'_>, errors: &mut Errors) {
    let seconds = token.number("expirationSeconds").unwrap_or_default();
    if seconds < 600 {
        let detail = "may not specify a duration less than 10 minutes";
        errors.invalid(path.child("expirationSeconds"), seconds, detail);
    }
    if seconds > 1 << 32 {
        let detail = "may not specify a duration larger than 2^32 seconds";
        errors.invalid(path.child("expirationSeconds"), seconds, detail);
    }
    let target = token.text("path");
    if target.is_empty() {
        errors.required(volume_path.child("path"), "");
    } else {
        check::local_path(target, volume_path.child("path"), errors);
    }
}

fn csi(source: &Value, path: Path<'_>, errors: &mut Errors) {
    csi_driver_name(source.text("driver"), path.child("driver"), errors);
    if source.has("nodePublishSecretRef") {
        let name = source.at("nodePublishSecretRef").text("name");
        if name.is_empty() {
            errors.required(path.child("nodePublishSecretRef").child("name"), "");
        } else {
            errors.each(path.child("name"), name, names::subdomain_problems(name));
        }
    }
}

/// The name of a CSI driver.
pub(in crate::builtin) fn csi_driver_name(name: &str, path: Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    if name.len() > 63 {
        errors.report(FieldError::too_long(path, 63));
    }
    errors.each(path, name, names::subdomain_problems(&name.to_lowercase()));
}

fn ephemeral(volume: &Value, context: Context<'_>, path: Path<'_>, errors: &mut Errors) {
    let source = volume.at("ephemeral");
    let place = path.child("ephemeral");
    let template = place.child("volumeClaimTemplate");
    if source.has("volumeClaimTemplate") {
        let claim = source.at("volumeClaimTemplate");
        check::template_meta(claim.at("metadata"), template.child("metadata"), errors);
        storage::claim_spec(claim.at("spec"), template.child("spec"), errors);
    } else {
        errors.required(template, "");
    }
    let name = volume.text("name");
    if !context.pod_name.is_empty() && !name.is_empty() {
        let claim_name = format!("{}-{name}", context.pod_name);
        for problem in names::subdomain_problems(&claim_name) {
            errors.invalid(path.child("name"), name, format!("PVC name {}: {problem}", go_quoted(&claim_name)));
        }
    }
}
