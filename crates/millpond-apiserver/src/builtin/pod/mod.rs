//! Pods: what the server fills in, what may change, and what a valid pod is.
//!
//! [`spec`] validates a pod's spec wherever it stands (also in templates), [`update`] what may change later.

mod container;
mod parts;
pub(crate) mod quality;
mod requirements;
mod scheduling;
pub(super) mod spec;
mod update;
pub(super) mod volume;

use serde_json::{Value, json};

use super::check::Errors;
use super::hooks::{self, PLAIN};
use super::json::{Fields, Fill};
use super::path::Path;
use super::shape;
use crate::resource::BuiltinKind;

pub(super) use requirements::{amount_value, container_resource_name, may_overcommit, overhead, resource_name};
pub(super) use scheduling::{node_selector, taint_effect, tolerations};
pub use update::{
    prepare_ephemeral_containers, prepare_resize, validate_binding, validate_ephemeral_containers, validate_resize,
};

/// An amount of storage in a claim.
pub(super) fn requirements_of_storage(amount: &Value, path: Path<'_>, errors: &mut Errors) {
    requirements::amount_value("storage", amount, path, errors);
}

/// Pod.
pub(super) const POD: BuiltinKind = BuiltinKind {
    prepare_create,
    prepare_update,
    prepare_status,
    validate: update::validate,
    validate_status: update::validate_status,
    ..PLAIN
};

/// PodTemplate.
pub(super) const POD_TEMPLATE: BuiltinKind = BuiltinKind {
    prepare_create: |template| {
        template.object("metadata").put("generation", 1.into());
    },
    prepare_update: |new, old| hooks::set_generation(new, old, new.at("template") != old.at("template")),
    validate: |template, _| {
        let mut errors = Vec::new();
        spec::template(template.at("template"), Path::root("template"), &mut errors);
        errors
    },
    ..PLAIN
};

/// Taints of nodes that do not answer, which every pod tolerates for a while.
const AUTOMATIC_TOLERATIONS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
/// Seconds for which they are tolerated.
const TOLERATION_SECONDS: i64 = 300;

fn prepare_create(pod: &mut Value) {
    shape::preparing(pod, |pod| {
        tolerate_unready_nodes(pod.object("spec"));
        let mut status = json!({"phase": "Pending", "qosClass": quality::class(pod.at("spec"))});
        if !pod.at("spec").items("schedulingGates").is_empty() {
            status["conditions"] = json!([gated_condition(pod.at("metadata").at("creationTimestamp"))]);
        }
        pod.put("status", status);
        pod.object("metadata").put("generation", 1.into());
        merge_label_keys(pod);
    });
}

/// Adds the tolerations of the DefaultTolerationSeconds admission.
fn tolerate_unready_nodes(spec: &mut Value) {
    for key in AUTOMATIC_TOLERATIONS {
        let tolerated = spec.items("tolerations").iter().any(|toleration| {
            let its_key = toleration.text("key");
            (its_key == key || its_key.is_empty()) && matches!(toleration.text("effect"), "NoExecute" | "")
        });
        if !tolerated {
            spec.default_to("tolerations", json!([]));
            if let Some(list) = spec["tolerations"].as_array_mut() {
                list.push(json!({
                    "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS,
                }));
            }
        }
    }
}

/// Copies what a node's labels say about its place to a pod that is bound to it, as the PodTopologyLabels admission
/// does.
pub fn copy_topology_labels(pod: &mut Value, node: &Value) {
    for key in ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"] {
        let value = node.at("metadata").at("labels").at(key);
        if !value.is_null() {
            pod.object("metadata").object("labels").put(key, value.clone());
        }
    }
}

fn gated_condition(now: &Value) -> Value {
    json!({
        "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
        "lastProbeTime": null, "lastTransitionTime": now,
    })
}

/// Turns the keys in `matchLabelKeys` and `mismatchLabelKeys` into requirements on this pod's own labels.
fn merge_label_keys(pod: &mut Value) {
    let spec = pod.at("spec");
    if !spec.has("topologySpreadConstraints") && !spec.has("affinity") {
        return;
    }
    let labels = pod.at("metadata").at("labels").clone();
    let spec = pod.object("spec");
    for constraint in spec.items_mut("topologySpreadConstraints") {
        add_requirements(constraint, "matchLabelKeys", "In", &labels);
    }
    let Some(affinity) = spec.object_if("affinity") else { return };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(rules) = affinity.object_if(kind) else { continue };
        let required = rules.items_mut("requiredDuringSchedulingIgnoredDuringExecution").iter_mut();
        for term in required {
            add_term_requirements(term, &labels);
        }
        for weighted in rules.items_mut("preferredDuringSchedulingIgnoredDuringExecution") {
            add_term_requirements(weighted.object("podAffinityTerm"), &labels);
        }
    }
}

fn add_term_requirements(term: &mut Value, labels: &Value) {
    add_requirements(term, "matchLabelKeys", "In", labels);
    add_requirements(term, "mismatchLabelKeys", "NotIn", labels);
}

fn add_requirements(term: &mut Value, keys: &str, operator: &str, labels: &Value) {
    let known: Vec<Value> = term
        .items(keys)
        .iter()
        .filter_map(|key| {
            let value = labels.get(key.as_str()?)?;
            Some(json!({"key": key, "operator": operator, "values": [value]}))
        })
        .collect();
    let Some(selector) = term.object_if("labelSelector").filter(|_| !known.is_empty()) else { return };
    selector.default_to("matchExpressions", json!([]));
    if let Some(list) = selector["matchExpressions"].as_array_mut() {
        list.extend(known);
    }
}

/// Increments the generation if the spec has changed.
pub fn count_generation(new: &mut Value, old: &Value) {
    hooks::set_generation(new, old, new.at("spec") != old.at("spec"));
}

fn prepare_update(new: &mut Value, old: &Value) {
    let spec = new.object("spec");
    tolerate_unready_nodes(spec);
    for field in ["priority", "preemptionPolicy"] {
        let before = old.at("spec").at(field).clone();
        if !before.is_null() {
            spec.default_to(field, before);
        }
    }
    hooks::keep_status_and_count_spec(new, old);
}

fn prepare_status(new: &mut Value, old: &Value) {
    hooks::keep_all_but_status(new, old);
    new.object("metadata").put("ownerReferences", old.at("metadata").at("ownerReferences").clone());
    let before = old.at("status");
    let status = new.object("status");
    status.default_to("qosClass", before.at("qosClass").clone());
    keep_observed_generations(status, before);
    if status.at("qosClass").is_null() {
        status.drop("qosClass");
    }
}

/// Clients that do not know `observedGeneration` do not take it away.
fn keep_observed_generations(status: &mut Value, before: &Value) {
    if let Some(generation) = before.number("observedGeneration") {
        status.default_to("observedGeneration", generation);
    }
    let mut known: Vec<(&str, Option<i64>)> =
        before.items("conditions").iter().map(|c| (c.text("type"), c.number("observedGeneration"))).collect();
    for condition in status.items_mut("conditions") {
        let Some(at) = known.iter().position(|(kind, _)| *kind == condition.text("type")) else { continue };
        if let (_, Some(generation)) = known.remove(at) {
            condition.default_to("observedGeneration", generation);
        }
    }
}
