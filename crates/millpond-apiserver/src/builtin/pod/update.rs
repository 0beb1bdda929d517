//! The fields of a pod that may change, through the pod itself and through its subresources `/status`,
//! `/ephemeralcontainers`, `/resize` and `/binding`.

use std::collections::HashSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{parts, quality, scheduling, spec};
use crate::builtin::check::{Errors, IMMUTABLE, ReportError};
use crate::builtin::hooks;
use crate::builtin::ip;
use crate::builtin::json::{Fields, Fill};
use crate::builtin::path::Path;
use crate::names;
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
const STATUS: Path<'static> = Path::root("status");
const RESOURCES_THAT_RESIZE: [&str; 2] = ["cpu", "memory"];

/// A new pod, or a change of one.
pub(super) fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    spec::pod(new, &mut errors);
    match old {
        None => created(new.at("spec"), &mut errors),
        Some(old) => changed(new, old, &mut errors),
    }
    errors
}

fn created(spec: &Value, errors: &mut Errors) {
    if !spec.items("ephemeralContainers").is_empty() {
        errors.forbidden(SPEC.child("ephemeralContainers"), "cannot be set on create");
    }
    if !spec.text("nodeName").is_empty() && !spec.items("schedulingGates").is_empty() {
        errors.forbidden(SPEC.child("nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
}

fn changed(new_pod: &Value, old_pod: &Value, errors: &mut Errors) {
    annotations(new_pod, old_pod, errors);
    let (new, old) = (new_pod.at("spec"), old_pod.at("spec"));
    for list in ["containers", "initContainers"] {
        if new.items(list).len() != old.items(list).len() {
            errors.forbidden(SPEC.child(list), "pod updates may not add or remove containers");
            return;
        }
        for (index, container) in new.items(list).iter().enumerate() {
            let place = SPEC.child(list);
            if container.text("image").is_empty() {
                errors.required(place.index(index).child("image"), "");
            }
            super::container::image_without_spaces(container, place.index(index), errors);
        }
    }
    if !deadline(new, old, errors) {
        return;
    }
    added_tolerations(new, old, errors);
    removed_gates(new, old, errors);
    if new == old {
        return;
    }
    let mut munged = new.clone();
    let gated = !old.items("schedulingGates").is_empty();
    forgive(&mut munged, old);
    if gated {
        gated_changes(&mut munged, old, errors);
    }
    if munged != *old {
        let allowed = [
            "`spec.containers[*].image`",
            "`spec.initContainers[*].image`",
            "`spec.activeDeadlineSeconds`",
            "`spec.tolerations` (only additions to existing tolerations)",
            "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        ];
        let detail =
            format!("pod updates may not change fields other than {}\n{}", allowed.join(","), difference(old, &munged));
        errors.forbidden(SPEC, detail);
    }
}

fn annotations(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::root("metadata");
    let path = path.child("annotations");
    let (new_meta, old_meta) = (new.at("metadata"), old.at("metadata"));
    let value = |meta: &Value| meta.at("annotations").at(parts::MIRROR).clone();
    match (value(old_meta), value(new_meta)) {
        (before, after) if before == after => {}
        (Value::Null, _) => errors.forbidden(path.key(parts::MIRROR), "may not add mirror pod annotation"),
        _ => errors.forbidden(path.key(parts::MIRROR), "may not remove or update mirror pod annotation"),
    }
    parts::annotations(new_meta, new.at("spec"), path, errors);
}

/// A deadline may only come closer. Returns whether to go on.
fn deadline(new: &Value, old: &Value, errors: &mut Errors) -> bool {
    let path = SPEC.child("activeDeadlineSeconds");
    match (new.number("activeDeadlineSeconds"), old.number("activeDeadlineSeconds")) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            errors.invalid(path, new, format!("must be between 0 and {}, inclusive", i32::MAX));
            false
        }
        (Some(new), Some(old)) if old < new => {
            errors.invalid(path, new, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            errors.invalid(path, Value::Null, "must not update from a positive integer to nil value");
            true
        }
        _ => true,
    }
}

fn added_tolerations(new: &Value, old: &Value, errors: &mut Errors) {
    let path = SPEC.child("tolerations");
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        toleration.drop("tolerationSeconds");
        toleration
    };
    let kept = |before: &Value| {
        let before = without_seconds(before);
        new.items("tolerations").iter().any(|toleration| without_seconds(toleration) == before)
    };
    if !old.items("tolerations").iter().all(kept) {
        errors.forbidden(path, "existing toleration can not be modified except its tolerationSeconds");
        return;
    }
    scheduling::tolerations(new.items("tolerations"), path, errors);
}

fn removed_gates(new: &Value, old: &Value, errors: &mut Errors) {
    let known: HashSet<&str> = old.items("schedulingGates").iter().map(|gate| gate.text("name")).collect();
    for (index, gate) in new.items("schedulingGates").iter().enumerate() {
        let name = gate.text("name");
        if !known.contains(name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(SPEC.child("schedulingGates").index(index).child("name"), detail);
        }
    }
}

/// Undoes the changes that are allowed.
fn forgive(munged: &mut Value, old: &Value) {
    for list in ["containers", "initContainers"] {
        for (container, before) in munged.items_mut(list).iter_mut().zip(old.items(list)) {
            container.put("image", before.at("image").clone());
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        munged.put(field, old.at(field).clone());
    }
    let before = old.number("terminationGracePeriodSeconds");
    if before.is_some_and(|seconds| seconds < 0) && munged.number("terminationGracePeriodSeconds") == Some(1) {
        munged.put("terminationGracePeriodSeconds", json!(before));
    }
}

/// A pod that waits behind gates may be narrowed down further.
fn gated_changes(munged: &mut Value, old: &Value, errors: &mut Errors) {
    if munged.at("nodeSelector") != old.at("nodeSelector") {
        let selector = munged.at("nodeSelector");
        let kept = old.entries("nodeSelector").all(|(key, value)| selector.get(key) == Some(value));
        if !kept {
            let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            errors.invalid(SPEC.child("nodeSelector"), selector.clone(), detail);
        }
        munged.put("nodeSelector", old.at("nodeSelector").clone());
    }
    let before = old.at("affinity").at("nodeAffinity").clone();
    let after = munged.at("affinity").at("nodeAffinity").clone();
    if before == after {
        return;
    }
    node_affinity_change(&after, &before, errors);
    munged.object("affinity").put("nodeAffinity", before);
    if !old.has("affinity") && munged.at("affinity") == &json!({}) {
        munged.drop("affinity");
    }
}

fn node_affinity_change(new: &Value, old: &Value, errors: &mut Errors) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let affinity = SPEC.child("affinity");
    let node = affinity.child("nodeAffinity");
    let required = node.child(REQUIRED);
    let path = required.child("nodeSelectorTerms");
    let terms = |affinity: &Value| affinity.at(REQUIRED).items("nodeSelectorTerms").to_vec();
    let (new_terms, old_terms) = (terms(new), terms(old));
    if old_terms.is_empty() {
        return;
    }
    if old_terms.len() != new_terms.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        errors.invalid(path, new_terms, detail);
        return;
    }
    for (index, (new, old)) in new_terms.iter().zip(&old_terms).enumerate() {
        let fields = ["matchExpressions", "matchFields"];
        let was_empty = fields.iter().all(|field| old.items(field).is_empty());
        let is_empty = fields.iter().all(|field| new.items(field).is_empty());
        let extended = fields.iter().all(|field| new.items(field).starts_with(old.items(field)));
        if (was_empty && !is_empty) || !extended {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.invalid(path.index(index), new.clone(), detail);
        }
    }
}

/// The fields that differ, before and after, one line each.
fn difference(old: &Value, new: &Value) -> String {
    let mut lines = String::new();
    walk_difference("spec", old, new, &mut lines);
    lines
}

fn walk_difference(path: &str, old: &Value, new: &Value, lines: &mut String) {
    match (old, new) {
        _ if old == new => {}
        (Value::Object(before), Value::Object(after)) => {
            let keys: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for key in keys {
                walk_difference(&format!("{path}.{key}"), old.at(key), new.at(key), lines);
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                walk_difference(&format!("{path}[{index}]"), before, after, lines);
            }
        }
        _ => {
            for (sign, value) in [('-', old), ('+', new)].into_iter().filter(|(_, value)| !value.is_null()) {
                writeln!(lines, "{sign} {path}: {value}").expect("writing to a String cannot fail");
            }
        }
    }
}

/// A change of status.
pub(super) fn validate_status(new_pod: &Value, old_pod: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    annotations(new_pod, old_pod, &mut errors);
    let (new, old) = (new_pod.at("status"), old_pod.at("status"));
    parts::conditions(new, STATUS.child("conditions"), &mut errors);
    let (nominated, before) = (new.text("nominatedNodeName"), old.text("nominatedNodeName"));
    if nominated != before && !nominated.is_empty() {
        let path = STATUS.child("nominatedNodeName");
        errors.each(path, nominated, names::subdomain_problems(nominated));
        if !old_pod.at("spec").text("nodeName").is_empty() {
            errors.forbidden(path, "may not be set on pods that are already bound to a node");
        }
    }
    if let Some(generation) = new.number("observedGeneration").filter(|generation| *generation < 0) {
        errors.invalid(STATUS.child("observedGeneration"), generation, "must be a non-negative integer");
    }
    if new.text("qosClass") != old.text("qosClass") {
        errors.invalid(STATUS.child("qosClass"), new.text("qosClass"), IMMUTABLE);
    }
    for (list, statuses) in [("containers", "containerStatuses"), ("initContainers", "initContainerStatuses")] {
        ended_containers(new, old, old_pod.at("spec"), list, statuses, &mut errors);
    }
    for (index, address) in new.items("podIPs").iter().enumerate() {
        if !old.items("podIPs").contains(address) {
            let text = address.text("ip");
            errors.each(STATUS.child("podIPs").index(index), text, ip::lax_problems(text));
        }
    }
    errors
}

/// A container that has ended and is not restarted cannot run again.
fn ended_containers(new: &Value, old: &Value, spec: &Value, list: &str, statuses: &str, errors: &mut Errors) {
    let all_restart = ["initContainers", "containers"].into_iter().flat_map(|list| spec.items(list)).any(|container| {
        container.items("restartPolicyRules").iter().any(|rule| rule.text("action") == "RestartAllContainers")
    });
    if all_restart {
        return;
    }
    for (index, before) in old.items(statuses).iter().enumerate() {
        let ended = before.at("state").at("terminated");
        if !ended.is_object() {
            continue;
        }
        let name = before.text("name");
        let after = new.items(statuses).iter().find(|status| status.text("name") == name);
        if after.is_none_or(|status| status.at("state").has("terminated")) {
            continue;
        }
        let code = ended.number("exitCode").unwrap_or_default();
        let container = spec.items(list).iter().find(|container| container.text("name") == name);
        if !container.is_some_and(|container| restarts(container, spec, code)) {
            let path = STATUS.child(statuses);
            errors.forbidden(path.index(index).child("state"), "may not be transitioned to non-terminated state");
        }
    }
}

fn restarts(container: &Value, spec: &Value, code: i64) -> bool {
    let rule = container.items("restartPolicyRules").iter().find(|rule| {
        let codes = rule.at("exitCodes");
        let listed = codes.items("values").iter().any(|value| value.as_i64() == Some(code));
        (codes.text("operator") == "In") == listed
    });
    if container.has("restartPolicy") && rule.is_some_and(|rule| rule.text("action") == "Restart") {
        return true;
    }
    let policy =
        if container.has("restartPolicy") { container.text("restartPolicy") } else { spec.text("restartPolicy") };
    match policy {
        "OnFailure" => code != 0,
        "Never" => false,
        _ => true,
    }
}

/// Before a change through `/ephemeralcontainers`: only they change.
pub fn prepare_ephemeral_containers(new: &mut Value, old: &Value) {
    let containers = new.at("spec").at("ephemeralContainers").clone();
    keep_all(new, old);
    new.object("spec").put("ephemeralContainers", containers);
    hooks::set_generation(new, old, new.at("spec") != old.at("spec"));
}

/// A change through `/ephemeralcontainers`: containers may be added, not changed.
pub fn validate_ephemeral_containers(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    spec::pod(new, &mut errors);
    if old.at("metadata").at("annotations").has(parts::MIRROR) {
        return vec![FieldError::forbidden(Path::root(""), "static pods do not support ephemeral containers")];
    }
    let path = SPEC.child("ephemeralContainers");
    let containers = new.at("spec").items("ephemeralContainers");
    for before in old.at("spec").items("ephemeralContainers") {
        let name = crate::print::go_quoted(before.text("name"));
        match containers.iter().find(|container| container.text("name") == before.text("name")) {
            None => errors.forbidden(path, format!("existing ephemeral containers {name} may not be removed\n")),
            Some(after) if after != before => {
                let mut lines = String::new();
                walk_difference("", before, after, &mut lines);
                errors.forbidden(path, format!("existing ephemeral containers {name} may not be changed\n{lines}"));
            }
            Some(_) => {}
        }
    }
    errors
}

/// Metadata, spec and status as they were.
fn keep_all(new: &mut Value, old: &Value) {
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        new.object("metadata").put(field, old.at("metadata").at(field).clone());
    }
    for part in ["spec", "status"] {
        new.put(part, old.at(part).clone());
    }
}

/// Before a change through `/resize`: only resources and resize policies change.
pub fn prepare_resize(new: &mut Value, old: &Value) {
    let lists = ["containers", "initContainers"];
    let names_of = |pod: &Value, list: &str| -> Vec<String> {
        pod.at("spec").items(list).iter().map(|container| container.text("name").to_owned()).collect()
    };
    let same_count = lists.iter().all(|list| names_of(new, list).len() == names_of(old, list).len());
    if same_count {
        let asked = new.at("spec").clone();
        keep_all(new, old);
        let spec = new.object("spec");
        spec.put("resources", asked.at("resources").clone());
        for list in lists {
            let renamed =
                asked.items(list).iter().zip(old.at("spec").items(list)).any(|(a, b)| a.at("name") != b.at("name"));
            if renamed {
                spec.put(list, asked.at(list).clone());
                continue;
            }
            for (container, wish) in spec.items_mut(list).iter_mut().zip(asked.items(list)) {
                for field in ["resources", "resizePolicy"] {
                    container.put(field, wish.at(field).clone());
                }
            }
        }
    }
    hooks::set_generation(new, old, new.at("spec") != old.at("spec"));
}

/// A change through `/resize`.
pub fn validate_resize(new_pod: &Value, old_pod: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    spec::pod(new_pod, &mut errors);
    let (new, old) = (new_pod.at("spec"), old_pod.at("spec"));
    if old_pod.at("metadata").at("annotations").has(parts::MIRROR) {
        return vec![FieldError::forbidden(Path::root(""), "static pods cannot be resized")];
    }
    if old.at("os").text("name") == "windows" {
        return vec![FieldError::forbidden(Path::root(""), "windows pods cannot be resized")];
    }
    if quality::class(old) != quality::class(new) {
        let class = new_pod.at("status").text("qosClass");
        errors.invalid(SPEC, class, "Pod QOS Class may not change as a result of resizing");
    }
    let running = old_pod.at("status").items("containerStatuses").iter().find(|c| c.at("state").has("running"));
    if running.is_some_and(|status| !status.has("resources")) {
        errors.forbidden(SPEC, "Pod running on node without support for resize");
    }
    if !same_containers(new, old, &mut errors) {
        return errors;
    }
    let mut munged = new.clone();
    resized_pod_level(&mut munged, old, &mut errors);
    for list in ["initContainers", "containers"] {
        resized_containers(&mut munged, old, list, &mut errors);
    }
    if errors.is_empty() && munged != *old {
        errors.forbidden(SPEC, "only cpu and memory resources are mutable");
    }
    errors
}

fn same_containers(new: &Value, old: &Value, errors: &mut Errors) -> bool {
    let before = errors.len();
    for list in ["containers", "initContainers"] {
        if new.items(list).len() != old.items(list).len() {
            errors.forbidden(SPEC.child(list), format!("{list} may not be added or removed on resize"));
            continue;
        }
        for (index, (container, was)) in new.items(list).iter().zip(old.items(list)).enumerate() {
            if container.at("name") != was.at("name") {
                let detail = format!("{list} may not be renamed or reordered on resize");
                errors.forbidden(SPEC.child(list).index(index).child("name"), detail);
            }
        }
    }
    errors.len() == before
}

fn removed(new: &Value, old: &Value, side: &str) -> bool {
    old.entries(side).any(|(name, _)| !new.at(side).has(name))
}

fn resized_pod_level(munged: &mut Value, old: &Value, errors: &mut Errors) {
    let (new, before) = (munged.at("resources").clone(), old.at("resources"));
    if new.is_null() && before.is_null() {
        return;
    }
    let path = SPEC.child("resources");
    if new.is_null() {
        errors.forbidden(path, "pod-level resources cannot be removed");
        return;
    }
    for side in ["requests", "limits"] {
        if removed(&new, before, side) {
            errors.forbidden(path.child(side), format!("pod-level resource {side} cannot be removed"));
        }
    }
    forgive_resources(munged, before);
    if munged.at("resources") != before {
        errors.forbidden(SPEC, "only cpu and memory resources are mutable at pod-level");
    }
}

fn resized_containers(munged: &mut Value, old: &Value, list: &str, errors: &mut Errors) {
    for (index, before) in old.items(list).iter().enumerate() {
        let path = SPEC.child(list);
        let path = path.index(index);
        let Some(container) = munged.items_mut(list).get_mut(index) else { return };
        let resources = container.at("resources").clone();
        for side in ["requests", "limits"] {
            if removed(&resources, before.at("resources"), side) {
                let place = path.child("resources");
                errors.forbidden(place.child(side), format!("resource {side} cannot be removed"));
            }
        }
        forgive_resources(container, before.at("resources"));
        if container == before {
            continue;
        }
        if list == "initContainers" {
            errors.forbidden(path, "only cpu and memory resources for init or sidecar containers are mutable");
        } else {
            errors.forbidden(SPEC, "only cpu and memory resources are mutable");
        }
    }
}

/// Puts the amounts that may change back to what they were.
fn forgive_resources(owner: &mut Value, before: &Value) {
    let resources = owner.object("resources");
    for side in ["requests", "limits"] {
        let amounts = resources.object(side);
        for name in RESOURCES_THAT_RESIZE {
            amounts.put(name, before.at(side).at(name).clone());
        }
        if resources.at(side) == &json!({}) {
            resources.drop(side);
        }
    }
    if resources == &json!({}) && before.is_null() {
        owner.drop("resources");
    }
}

/// The body of a POST to `/binding`.
pub fn validate_binding(binding: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::root("target");
    let target = binding.at("target");
    if !matches!(target.text("kind"), "" | "Node") {
        errors.not_supported(path.child("kind"), target.text("kind"), &["Node", "<empty>"]);
    }
    if target.text("name").is_empty() {
        errors.required(path.child("name"), "");
    }
    errors
}
