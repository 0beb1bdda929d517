//! Nodes, namespaces, and the small kinds of the core group.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::read::{flag, list, map, name, quantity, size, text};
use super::{AGE, NAME, age, or, plain, text as column, wide};
use crate::resource::BuiltinColumns;

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
const ROLE: &str = "kubernetes.io/role";

pub(super) static NODE: BuiltinColumns = plain(
    &[
        NAME,
        column("Status", "Whether the node is ready, and whether pods may be bound to it"),
        column("Roles", "Roles of the node, from its labels"),
        AGE,
        column("Version", "Version of the kubelet"),
        wide(column("Internal-IP", "Address within the cluster")),
        wide(column("External-IP", "Address outside the cluster")),
        wide(column("OS-Image", "Operating system")),
        wide(column("Kernel-Version", "Version of the kernel")),
        wide(column("Container-Runtime", "Container runtime and its version")),
    ],
    |node, now| {
        let info = |key: &str| or(text(node, &format!("/status/nodeInfo/{key}")), "<unknown>").to_owned();
        let kernel = match text(node, "/status/nodeInfo/architecture") {
            "" => info("kernelVersion"),
            architecture => format!("{} ({architecture})", info("kernelVersion")),
        };
        vec![
            json!(name(node)),
            json!(node_status(node)),
            json!(node_roles(node)),
            json!(age(node, now)),
            json!(text(node, "/status/nodeInfo/kubeletVersion")),
            json!(node_address(node, "InternalIP")),
            json!(node_address(node, "ExternalIP")),
            json!(info("osImage")),
            json!(kernel),
            json!(info("containerRuntimeVersion")),
        ]
    },
);

fn node_status(node: &Value) -> String {
    // Of several conditions of one type the last one counts here.
    let ready = list(node, "/status/conditions").iter().rfind(|condition| condition["type"] == "Ready");
    let status = match ready {
        Some(ready) if ready["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let disabled = if flag(node, "/spec/unschedulable") { ",SchedulingDisabled" } else { "" };
    format!("{status}{disabled}")
}

fn node_roles(node: &Value) -> String {
    let roles: BTreeSet<&str> = map(node, "/metadata/labels")
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix(ROLE_PREFIX) {
            Some(role) => Some(role),
            None if key == ROLE => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    if roles.is_empty() { "<none>".to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

fn node_address<'a>(node: &'a Value, ty: &str) -> &'a str {
    let address = list(node, "/status/addresses").iter().find(|address| address["type"] == ty);
    address.map_or("<none>", |address| text(address, "/address"))
}

pub(super) static NAMESPACE: BuiltinColumns =
    plain(&[NAME, column("Status", "Phase of the namespace"), AGE], |object, now| {
        vec![json!(name(object)), json!(text(object, "/status/phase")), json!(age(object, now))]
    });

pub(super) static SECRET: BuiltinColumns = plain(
    &[NAME, column("Type", "What the secret is for"), column("Data", "Number of entries"), AGE],
    |object, now| {
        vec![json!(name(object)), json!(text(object, "/type")), json!(size(object, "/data")), json!(age(object, now))]
    },
);

pub(super) static CONFIG_MAP: BuiltinColumns =
    plain(&[NAME, column("Data", "Number of entries"), AGE], |object, now| {
        let entries = size(object, "/data") + size(object, "/binaryData");
        vec![json!(name(object)), json!(entries), json!(age(object, now))]
    });

pub(super) static RESOURCE_QUOTA: BuiltinColumns = plain(
    &[
        NAME,
        column("Request", "Used and greatest amounts of requests and counts"),
        column("Limit", "Used and greatest amounts of limits"),
        AGE,
    ],
    |object, now| {
        let (limits, requests): (Vec<&String>, Vec<&String>) = map(object, "/status/hard")
            .into_iter()
            .flatten()
            .map(|(key, _)| key)
            .partition(|key| key.starts_with("limits."));
        vec![
            json!(name(object)),
            json!(used_of_hard(object, &requests)),
            json!(used_of_hard(object, &limits)),
            json!(age(object, now)),
        ]
    },
);

fn used_of_hard(quota: &Value, resources: &[&String]) -> String {
    let shown: Vec<String> = resources
        .iter()
        .map(|resource| {
            let key = resource.replace('~', "~0").replace('/', "~1");
            let used = quantity(quota, &format!("/status/used/{key}"));
            format!("{resource}: {used}/{}", quantity(quota, &format!("/status/hard/{key}")))
        })
        .collect();
    shown.join(", ")
}
