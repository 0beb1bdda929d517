//! The rules of `millpond install rbac` are what the controllers need: no request is forbidden, and no rule is there that
//! no controller uses.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::gate::{Gate, Right};
use crate::stack::printed;

/// Rules that these suites do not use, each with the situation that needs it.
const NOT_PLAYED: &[(&str, &str, &str)] = &[
    // No node group of Cluster API is there.
    ("cluster.x-k8s.io", "*", "*"),
    ("infrastructure.cluster.x-k8s.io", "*", "*"),
    // The metrics are served on loopback only; `real_nodes` serves them to others.
    ("authentication.k8s.io", "tokenreviews", "create"),
    ("authorization.k8s.io", "subjectaccessreviews", "create"),
    // `--advise` writes into a namespace of its own.
    ("", "namespaces", "create"),
    // No GPUInfo, no MaintenanceWindow.
    ("topology.corinternal.com", "gpuinfoes/status", "patch"),
    ("millpond.dev", "maintenancewindows/status", "patch"),
    ("", "pods", "patch"),
    // Drains ask for these; the settings of the table need not lead to one.
    ("", "nodes", "get"),
    ("", "pods", "get"),
    ("", "pods/eviction", "create"),
];

/// Fails if a request was forbidden, or a rule was not needed.
pub(crate) fn ensure_exact(gate: &Gate) -> Result<()> {
    gate.ensure_nothing_was_forbidden()?;
    let used = gate.rights_used();
    let is_played = |right: &&Right| {
        let (group, resource, verb) = (right.0.as_str(), right.1.as_str(), right.2.as_str());
        !NOT_PLAYED.iter().any(|(g, r, v)| *g == group && (*r == "*" || *r == resource) && (*v == "*" || *v == verb))
    };
    let granted = granted()?;
    let is_granted = |(group, resource, verb): &(&str, &str, &str)| {
        granted.iter().any(|(g, r, v)| g == group && (*resource == "*" || r == resource) && (*verb == "*" || v == verb))
    };
    let stale: Vec<_> = NOT_PLAYED.iter().filter(|rule| !is_granted(rule)).collect();
    ensure!(stale.is_empty(), "exceptions for rules that are not there: {stale:?}");
    let unused: BTreeSet<&Right> = granted.difference(&used).filter(is_played).collect();
    ensure!(unused.is_empty(), "`millpond install rbac` has rules that no controller used: {unused:#?}");
    Ok(())
}

/// What the ClusterRole allows.
fn granted() -> Result<BTreeSet<Right>> {
    let list: Value = serde_json::from_str(&printed(&[
        "install",
        "rbac",
        "--without",
        "own-hosts",
        "--without",
        "ci-nodes",
        "-o",
        "json",
    ])?)?;
    let objects = list["items"].as_array().context("a list")?;
    let role = objects.iter().find(|one| one["kind"] == "ClusterRole").context("a ClusterRole")?;
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut granted = BTreeSet::new();
    for rule in role["rules"].as_array().context("rules")? {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                let verbs = texts(&rule["verbs"]);
                granted.extend(verbs.into_iter().map(|verb| (group.clone(), resource.clone(), verb)));
            }
        }
    }
    Ok(granted)
}
