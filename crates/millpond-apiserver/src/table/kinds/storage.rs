//! Volumes, claims, and the kinds of storage.k8s.io.

use serde_json::{Value, json};

use super::read::{flag, is_deleting, joined, list, map, name, optional, present, quantity, text};
use super::{AGE, NAME, age, boolean, integer, or, plain, text as column, wide, with_more};
use crate::resource::{BuiltinColumns, ColumnDefinition};

const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const VOLUME_MODE: ColumnDefinition = wide(column("VolumeMode", "Whether the volume holds files or is a block device"));

pub(super) static PERSISTENT_VOLUME: BuiltinColumns = plain(
    &[
        NAME,
        column("Capacity", "Size of the volume"),
        column("Access Modes", "Ways in which the volume can be mounted"),
        column("Reclaim Policy", "What happens to the volume when its claim goes"),
        column("Status", "Phase of the volume"),
        column("Claim", "Claim that the volume is bound to"),
        column("StorageClass", "Storage class of the volume"),
        column("VolumeAttributesClass", "Volume attributes class of the volume"),
        column("Reason", "Why the volume is in this phase"),
        AGE,
        VOLUME_MODE,
    ],
    |object, now| {
        let claim = match map(object, "/spec/claimRef") {
            Some(_) => {
                format!("{}/{}", text(object, "/spec/claimRef/namespace"), text(object, "/spec/claimRef/name"))
            }
            None => String::new(),
        };
        vec![
            json!(name(object)),
            json!(quantity(object, "/spec/capacity/storage")),
            json!(access_modes(object, "/spec/accessModes")),
            json!(text(object, "/spec/persistentVolumeReclaimPolicy")),
            json!(phase(object)),
            json!(claim),
            json!(storage_class(object)),
            json!(optional(object, "/spec/volumeAttributesClassName").unwrap_or("<unset>")),
            json!(text(object, "/status/reason")),
            json!(age(object, now)),
            json!(optional(object, "/spec/volumeMode").unwrap_or("<unset>")),
        ]
    },
);

pub(super) static PERSISTENT_VOLUME_CLAIM: BuiltinColumns = plain(
    &[
        NAME,
        column("Status", "Phase of the claim"),
        column("Volume", "Volume that the claim is bound to"),
        column("Capacity", "Size of the bound volume"),
        column("Access Modes", "Ways in which the volume can be mounted"),
        column("StorageClass", "Storage class of the claim"),
        column("VolumeAttributesClass", "Volume attributes class of the claim"),
        AGE,
        VOLUME_MODE,
    ],
    |object, now| {
        let volume = text(object, "/spec/volumeName");
        let (capacity, modes) = if volume.is_empty() {
            (String::new(), String::new())
        } else {
            (quantity(object, "/status/capacity/storage"), access_modes(object, "/status/accessModes"))
        };
        vec![
            json!(name(object)),
            json!(phase(object)),
            json!(volume),
            json!(capacity),
            json!(modes),
            json!(storage_class(object)),
            json!(optional(object, "/spec/volumeAttributesClassName").unwrap_or("<unset>")),
            json!(age(object, now)),
            json!(optional(object, "/spec/volumeMode").unwrap_or("<unset>")),
        ]
    },
);

fn phase(object: &Value) -> &str {
    if is_deleting(object) { "Terminating" } else { text(object, "/status/phase") }
}

/// The annotation is older than the field, and comes first.
fn storage_class(object: &Value) -> &str {
    let annotation = map(object, "/metadata/annotations").and_then(|annotations| annotations.get(BETA_CLASS));
    annotation.and_then(Value::as_str).unwrap_or_else(|| text(object, "/spec/storageClassName"))
}

fn access_modes(object: &Value, pointer: &str) -> String {
    let modes = list(object, pointer);
    let short =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let held = short.into_iter().filter(|(long, _)| modes.iter().any(|mode| mode == long)).map(|(_, short)| short);
    held.collect::<Vec<_>>().join(",")
}

pub(super) static STORAGE_CLASS: BuiltinColumns = plain(
    &[
        NAME,
        column("Provisioner", "Who makes volumes of this class"),
        column("ReclaimPolicy", "What happens to volumes when their claim goes"),
        column("VolumeBindingMode", "When claims are bound"),
        column("AllowVolumeExpansion", "Whether volumes may grow"),
        AGE,
    ],
    |object, now| {
        let is_default = map(object, "/metadata/annotations").is_some_and(|annotations| {
            ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
                .iter()
                .any(|key| annotations.get(*key).is_some_and(|value| value == "true"))
        });
        let default = if is_default { " (default)" } else { "" };
        vec![
            json!(format!("{}{default}", name(object))),
            json!(text(object, "/provisioner")),
            json!(optional(object, "/reclaimPolicy").unwrap_or("Delete")),
            json!(optional(object, "/volumeBindingMode").unwrap_or("Immediate")),
            json!(flag(object, "/allowVolumeExpansion")),
            json!(age(object, now)),
        ]
    },
);

pub(super) static VOLUME_ATTRIBUTES_CLASS: BuiltinColumns =
    plain(&[NAME, column("DriverName", "Driver that knows the attributes"), AGE], |object, now| {
        vec![json!(name(object)), json!(text(object, "/driverName")), json!(age(object, now))]
    });

pub(super) static VOLUME_ATTACHMENT: BuiltinColumns = plain(
    &[
        NAME,
        ColumnDefinition { format: "name", ..column("Attacher", "Driver that attaches the volume") },
        column("PV", "Volume to be attached"),
        column("Node", "Node to attach it to"),
        boolean("Attached", "Whether it is attached"),
        AGE,
    ],
    |object, now| {
        vec![
            json!(name(object)),
            json!(text(object, "/spec/attacher")),
            json!(text(object, "/spec/source/persistentVolumeName")),
            json!(text(object, "/spec/nodeName")),
            json!(flag(object, "/status/attached")),
            json!(age(object, now)),
        ]
    },
);

pub(super) static CSI_NODE: BuiltinColumns =
    plain(&[NAME, integer("Drivers", "Number of drivers on the node"), AGE], |object, now| {
        vec![json!(name(object)), json!(list(object, "/spec/drivers").len()), json!(age(object, now))]
    });

pub(super) static CSI_DRIVER: BuiltinColumns = plain(
    &[
        NAME,
        boolean("AttachRequired", "Whether volumes are attached before they are mounted"),
        boolean("PodInfoOnMount", "Whether the driver is told about the pod"),
        boolean("StorageCapacity", "Whether the scheduler looks at the driver's capacity"),
        column("TokenRequests", "Audiences of the tokens that the driver gets"),
        boolean("RequiresRepublish", "Whether volumes are published again from time to time"),
        column("Modes", "Kinds of volumes that the driver serves"),
        AGE,
    ],
    |object, now| {
        let attach = object.pointer("/spec/attachRequired").and_then(Value::as_bool).unwrap_or(true);
        let tokens = if present(object, "/spec/tokenRequests") {
            super::words(list(object, "/spec/tokenRequests"), "audience").join(",")
        } else {
            "<unset>".to_owned()
        };
        vec![
            json!(name(object)),
            json!(attach),
            json!(flag(object, "/spec/podInfoOnMount")),
            json!(flag(object, "/spec/storageCapacity")),
            json!(tokens),
            json!(flag(object, "/spec/requiresRepublish")),
            json!(or(&joined(object, "/spec/volumeLifecycleModes", ","), "<none>")),
            json!(age(object, now)),
        ]
    },
);

pub(super) static STORAGE_VERSION_MIGRATION: BuiltinColumns = plain(
    &[
        ColumnDefinition { format: "", ..NAME },
        column("Resource", "Resource that is written again"),
        column("Status", "How far the migration is"),
    ],
    |object, _| {
        let resource = match text(object, "/spec/resource/group") {
            "" => text(object, "/spec/resource/resource").to_owned(),
            group => format!("{}.{group}", text(object, "/spec/resource/resource")),
        };
        // The last of the conditions that hold.
        let status = list(object, "/status/conditions").iter().rev().find_map(|condition| {
            let ty = condition["type"].as_str()?;
            (condition["status"] == "True" && matches!(ty, "Running" | "Failed" | "Succeeded")).then_some(ty)
        });
        vec![json!(name(object)), json!(resource), json!(status.unwrap_or("Unknown"))]
    },
);

pub(super) static STORAGE_VERSION: BuiltinColumns = plain(
    &[
        NAME,
        column("CommonEncodingVersion", "Version that all API servers write"),
        column("StorageVersions", "Versions that each API server writes"),
        AGE,
    ],
    |object, now| {
        let versions: Vec<String> = list(object, "/status/storageVersions")
            .iter()
            .map(|version| format!("{}={}", text(version, "/apiServerID"), text(version, "/encodingVersion")))
            .collect();
        vec![
            json!(name(object)),
            json!(optional(object, "/status/commonEncodingVersion").unwrap_or("<unset>")),
            json!(or(&with_more(&versions, versions.len(), 3, ","), "<unset>")),
            json!(age(object, now)),
        ]
    },
);
