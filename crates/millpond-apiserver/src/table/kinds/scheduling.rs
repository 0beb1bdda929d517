//! Disruption budgets, priorities, leases, runtime classes and devices.

use serde_json::{Value, json};

use super::read::{flag, integer as number, is_deleting, list, name, number_or_text, present, text};
use super::{AGE, NAME, age, boolean, integer, plain, since, text as column};
use crate::resource::BuiltinColumns;

pub(super) static POD_DISRUPTION_BUDGET: BuiltinColumns = plain(
    &[
        NAME,
        column("Min Available", "Pods that must stay available"),
        column("Max Unavailable", "Pods that may be unavailable"),
        integer("Allowed Disruptions", "Pods that may be evicted now"),
        AGE,
    ],
    |object, now| {
        let limit = |pointer| match object.pointer(pointer) {
            None | Some(Value::Null) => "N/A".to_owned(),
            Some(limit) => number_or_text(limit),
        };
        vec![
            json!(name(object)),
            json!(limit("/spec/minAvailable")),
            json!(limit("/spec/maxUnavailable")),
            json!(number(object, "/status/disruptionsAllowed")),
            json!(age(object, now)),
        ]
    },
);

pub(super) static PRIORITY_CLASS: BuiltinColumns = plain(
    &[
        NAME,
        integer("Value", "Priority of pods of this class"),
        boolean("Global-Default", "Whether pods without a class are of this one"),
        AGE,
        column("PreemptionPolicy", "Whether pods of this class may take the place of others"),
    ],
    |object, now| {
        vec![
            json!(name(object)),
            json!(number(object, "/value")),
            json!(flag(object, "/globalDefault")),
            json!(age(object, now)),
            json!(text(object, "/preemptionPolicy")),
        ]
    },
);

pub(super) static RUNTIME_CLASS: BuiltinColumns =
    plain(&[NAME, column("Handler", "Configuration of the container runtime"), AGE], |object, now| {
        vec![json!(name(object)), json!(text(object, "/handler")), json!(age(object, now))]
    });

pub(super) static LEASE: BuiltinColumns =
    plain(&[NAME, column("Holder", "Who holds the lease"), AGE], |object, now| {
        vec![json!(name(object)), json!(text(object, "/spec/holderIdentity")), json!(age(object, now))]
    });

pub(super) static LEASE_CANDIDATE: BuiltinColumns = plain(
    &[
        NAME,
        column("LeaseName", "Lease that the candidate is for"),
        column("BinaryVersion", "Version of the candidate"),
        column("EmulationVersion", "Version that the candidate behaves as"),
        AGE,
    ],
    |object, now| {
        vec![
            json!(name(object)),
            json!(text(object, "/spec/leaseName")),
            json!(text(object, "/spec/binaryVersion")),
            json!(text(object, "/spec/emulationVersion")),
            json!(age(object, now)),
        ]
    },
);

pub(super) static RESOURCE_CLAIM: BuiltinColumns =
    plain(&[NAME, column("State", "Whether devices are allocated and in use"), AGE], |object, now| {
        vec![json!(name(object)), json!(claim_state(object)), json!(age(object, now))]
    });

fn claim_state(claim: &Value) -> String {
    let allocated = present(claim, "/status/allocation");
    let reserved = !list(claim, "/status/reservedFor").is_empty();
    let states = [
        (is_deleting(claim), "deleted"),
        (!allocated && !is_deleting(claim), "pending"),
        (allocated, "allocated"),
        (allocated && reserved, "reserved"),
    ];
    states.into_iter().filter(|(holds, _)| *holds).map(|(_, state)| state).collect::<Vec<_>>().join(",")
}

pub(super) static RESOURCE_SLICE: BuiltinColumns = plain(
    &[
        NAME,
        column("Node", "Node that has the devices"),
        column("Driver", "Driver of the devices"),
        column("Pool", "Pool that the devices belong to"),
        AGE,
    ],
    |object, now| {
        vec![
            json!(name(object)),
            json!(text(object, "/spec/nodeName")),
            json!(text(object, "/spec/driver")),
            json!(text(object, "/spec/pool/name")),
            json!(age(object, now)),
        ]
    },
);

pub(super) static DEVICE_TAINT_RULE: BuiltinColumns = plain(
    &[
        NAME,
        column("Key", "Key of the taint"),
        column("Value", "Value of the taint"),
        column("Effect", "What the taint does to pods"),
        column("TimeAdded", "Time since the taint was added"),
        AGE,
    ],
    |object, now| {
        let added = if present(object, "/spec/taint/timeAdded") {
            since(object, "/spec/taint/timeAdded", now)
        } else {
            String::new()
        };
        vec![
            json!(name(object)),
            json!(text(object, "/spec/taint/key")),
            json!(text(object, "/spec/taint/value")),
            json!(text(object, "/spec/taint/effect")),
            json!(added),
            json!(age(object, now)),
        ]
    },
);
