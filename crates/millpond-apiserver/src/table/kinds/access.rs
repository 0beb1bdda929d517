//! Who may do what: role bindings, certificates, priority and fairness, API services.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::read::{integer, labels, list, map, name, optional, present, text};
use super::{AGE, NAME, age, condition, or, plain, text as column, wide};
use crate::print::human_duration;
use crate::resource::BuiltinColumns;

pub(super) static ROLE_BINDING: BuiltinColumns = plain(
    &[
        NAME,
        column("Role", "Role that is given"),
        AGE,
        wide(column("Users", "Users that get the role")),
        wide(column("Groups", "Groups that get the role")),
        wide(column("ServiceAccounts", "Service accounts that get the role")),
    ],
    |object, now| {
        let accounts: Vec<String> = subjects(object, "ServiceAccount")
            .map(|subject| format!("{}/{}", text(subject, "/namespace"), text(subject, "/name")))
            .collect();
        vec![
            json!(name(object)),
            json!(format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"))),
            json!(age(object, now)),
            json!(subject_names(object, "User")),
            json!(subject_names(object, "Group")),
            json!(accounts.join(", ")),
        ]
    },
);

fn subjects<'a>(binding: &'a Value, kind: &str) -> impl Iterator<Item = &'a Value> {
    list(binding, "/subjects").iter().filter(move |subject| subject["kind"] == kind)
}

fn subject_names(binding: &Value, kind: &str) -> String {
    subjects(binding, kind).map(|subject| text(subject, "/name")).collect::<Vec<_>>().join(", ")
}

pub(super) static CERTIFICATE_SIGNING_REQUEST: BuiltinColumns = plain(
    &[
        NAME,
        AGE,
        column("SignerName", "Who is asked to sign"),
        column("Requestor", "Who asks"),
        column("RequestedDuration", "How long the certificate should be valid"),
        column("Condition", "Whether it is approved and issued"),
    ],
    |object, now| {
        let duration = object.pointer("/spec/expirationSeconds").and_then(Value::as_i64);
        vec![
            json!(name(object)),
            json!(age(object, now)),
            json!(or(text(object, "/spec/signerName"), "<none>")),
            json!(text(object, "/spec/username")),
            json!(
                duration
                    .map_or_else(|| "<none>".to_owned(), |seconds| human_duration(SignedDuration::from_secs(seconds)))
            ),
            json!(signing_status(object)),
        ]
    },
);

fn signing_status(request: &Value) -> String {
    let has = |ty| condition(request, ty).is_some();
    let mut status = if has("Denied") {
        "Denied".to_owned()
    } else if has("Approved") {
        "Approved".to_owned()
    } else {
        "Pending".to_owned()
    };
    if has("Failed") {
        status.push_str(",Failed");
    }
    if !text(request, "/status/certificate").is_empty() {
        status.push_str(",Issued");
    }
    status
}

pub(super) static CLUSTER_TRUST_BUNDLE: BuiltinColumns =
    plain(&[NAME, column("SignerName", "Signer that the bundle belongs to")], |object, _| {
        vec![json!(name(object)), json!(or(text(object, "/spec/signerName"), "<none>"))]
    });

pub(super) static POD_CERTIFICATE_REQUEST: BuiltinColumns = plain(
    &[
        NAME,
        column("PodName", "Pod that the certificate is for"),
        column("ServiceAccountName", "Service account of the pod"),
        column("NodeName", "Node of the pod"),
        column("SignerName", "Who is asked to sign"),
        column("State", "Whether it is issued"),
        column("UnverifiedUserAnnotations", "What the pod adds to the request"),
    ],
    |object, _| {
        // The last of these conditions counts; at most one is there.
        let state = list(object, "/status/conditions").iter().rev().find_map(|condition| {
            condition["type"].as_str().filter(|ty| matches!(*ty, "Issued" | "Denied" | "Failed"))
        });
        vec![
            json!(name(object)),
            json!(text(object, "/spec/podName")),
            json!(text(object, "/spec/serviceAccountName")),
            json!(text(object, "/spec/nodeName")),
            json!(text(object, "/spec/signerName")),
            json!(state.unwrap_or("Pending")),
            json!(labels(object, "/spec/unverifiedUserAnnotations")),
        ]
    },
);

pub(super) static FLOW_SCHEMA: BuiltinColumns = plain(
    &[
        NAME,
        column("PriorityLevel", "Priority level of the requests"),
        column("MatchingPrecedence", "Order in which schemas are tried"),
        column("DistinguisherMethod", "What tells flows apart"),
        AGE,
        column("MissingPL", "Whether the priority level does not exist"),
    ],
    |object, now| {
        let distinguisher = match map(object, "/spec/distinguisherMethod") {
            Some(_) => text(object, "/spec/distinguisherMethod/type"),
            None => "<none>",
        };
        vec![
            json!(name(object)),
            json!(text(object, "/spec/priorityLevelConfiguration/name")),
            json!(integer(object, "/spec/matchingPrecedence")),
            json!(distinguisher),
            json!(age(object, now)),
            json!(condition(object, "Dangling").map_or("?", |dangling| text(dangling, "/status"))),
        ]
    },
);

pub(super) static PRIORITY_LEVEL_CONFIGURATION: BuiltinColumns = plain(
    &[
        NAME,
        column("Type", "Whether requests are limited"),
        column("NominalConcurrencyShares", "Share of the server's concurrency"),
        column("Queues", "Number of queues"),
        column("HandSize", "Queues that a flow may use"),
        column("QueueLengthLimit", "Requests that a queue may hold"),
        AGE,
    ],
    |object, now| {
        let limited = present(object, "/spec/limited");
        let queuing = present(object, "/spec/limited/limitResponse/queuing");
        let number = |holds: bool, pointer: &str| if holds { json!(integer(object, pointer)) } else { json!("<none>") };
        vec![
            json!(name(object)),
            json!(text(object, "/spec/type")),
            number(limited, "/spec/limited/nominalConcurrencyShares"),
            number(queuing, "/spec/limited/limitResponse/queuing/queues"),
            number(queuing, "/spec/limited/limitResponse/queuing/handSize"),
            number(queuing, "/spec/limited/limitResponse/queuing/queueLengthLimit"),
            json!(age(object, now)),
        ]
    },
);

pub(super) static API_SERVICE: BuiltinColumns = plain(
    &[NAME, column("Service", "Service that serves the API"), column("Available", "Whether the API is served"), AGE],
    |object, now| {
        let service = if present(object, "/spec/service") {
            format!("{}/{}", text(object, "/spec/service/namespace"), text(object, "/spec/service/name"))
        } else {
            "Local".to_owned()
        };
        let available = condition(object, "Available").map_or_else(
            || "Unknown".to_owned(),
            |condition| {
                let status = text(condition, "/status");
                match optional(condition, "/reason").filter(|reason| !reason.is_empty() && status != "True") {
                    Some(reason) => format!("{status} ({reason})"),
                    None => status.to_owned(),
                }
            },
        );
        vec![json!(name(object)), json!(service), json!(available), json!(age(object, now))]
    },
);
