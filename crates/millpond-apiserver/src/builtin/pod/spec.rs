//! Validates a pod spec, in a pod or in a template of one.

use std::collections::HashSet;

use serde_json::Value;

use super::{container, parts, requirements, scheduling, volume};
use crate::builtin::check::{Errors, ReportError};
use crate::builtin::json::Fields;
use crate::builtin::path::Path;
use crate::meta::validate_labels;
use crate::names;

/// What the checks of a pod spec need to know about the object that contains it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) spec: &'a Value,
    /// Name of the pod, where it has one.
    pub(super) pod_name: &'a str,
    /// Whether this is a pod and not a template.
    pub(super) is_pod: bool,
}

/// A template of pods: its labels, annotations and spec.
pub(in crate::builtin) fn template(template: &Value, path: Path<'_>, errors: &mut Errors) {
    let meta = template.at("metadata");
    validate_labels(meta.at("labels"), &path.child("labels"), errors);
    crate::meta::validate_annotations(meta.at("annotations"), &path.child("annotations"), errors);
    let spec = template.at("spec");
    parts::annotations(meta, spec, path.child("annotations"), errors);
    let context = Context { spec, pod_name: meta.text("name"), is_pod: false };
    pod_spec(context, path.child("spec"), errors);
    if !spec.items("ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.forbidden(path.child("spec").child("ephemeralContainers"), detail);
    }
}

/// A pod's own annotations and spec.
pub(super) fn pod(pod: &Value, errors: &mut Errors) {
    let spec = pod.at("spec");
    let meta = pod.at("metadata");
    parts::annotations(meta, spec, Path::root("metadata").child("annotations"), errors);
    let path = Path::root("spec");
    pod_spec(Context { spec, pod_name: meta.text("name"), is_pod: true }, path, errors);
    if spec.text("serviceAccountName").is_empty() {
        token_volumes_need_an_account(spec, path, errors);
    }
    for list in ["containers", "initContainers"] {
        for (index, container) in spec.items(list).iter().enumerate() {
            container::image_without_spaces(container, path.child(list).index(index), errors);
        }
    }
}

fn token_volumes_need_an_account(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    for (index, volume) in spec.items("volumes").iter().enumerate() {
        for (place, source) in volume.at("projected").items("sources").iter().enumerate() {
            if source.has("serviceAccountToken") {
                let list = path.child("volumes");
                let volume_path = list.index(index);
                let sources = volume_path.child("projected");
                errors.forbidden(
                    sources.child("sources").index(place).child("serviceAccountToken"),
                    "must not be specified when serviceAccountName is not set",
                );
            }
        }
    }
}

fn pod_spec(context: Context<'_>, path: Path<'_>, errors: &mut Errors) {
    let spec = context.spec;
    let volumes = volume::volumes(context, path.child("volumes"), errors);
    let claims = resource_claims(spec, path.child("resourceClaims"), errors);
    let surroundings = container::Surroundings { context, volumes: &volumes, claims: &claims };
    container::containers(surroundings, path.child("containers"), errors);
    container::init_containers(surroundings, path.child("initContainers"), errors);
    container::ephemeral_containers(surroundings, path.child("ephemeralContainers"), errors);
    requirements::whole_pod(spec, path, errors);
    host_network_ports(context, path, errors);
    errors.required_one_of(path.child("restartPolicy"), spec.text("restartPolicy"), &["Always", "OnFailure", "Never"]);
    let dns_policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    errors.required_one_of(path.child("dnsPolicy"), spec.text("dnsPolicy"), &dns_policies);
    validate_labels(spec.at("nodeSelector"), &path.child("nodeSelector"), errors);
    parts::pod_security(spec, path.child("securityContext"), errors);
    scheduling::affinity(spec.at("affinity"), path.child("affinity"), errors);
    parts::dns_config(spec, path.child("dnsConfig"), errors);
    for (index, gate) in spec.items("readinessGates").iter().enumerate() {
        let kind = gate.text("conditionType");
        let list = path.child("readinessGates");
        errors.each(list.index(index).child("conditionType"), kind, names::label_key_problems(kind));
    }
    scheduling::gates(spec, path.child("schedulingGates"), errors);
    scheduling::spread(spec, path.child("topologySpreadConstraints"), errors);
    parts::host_users(spec, path, errors);
    parts::hostname_override(spec, path, errors);
    named_references(spec, path, errors);
    errors.within(path.child("activeDeadlineSeconds"), spec.number("activeDeadlineSeconds"), 1, i64::from(i32::MAX));
    for field in ["hostname", "subdomain"] {
        let name = spec.text(field);
        if !name.is_empty() {
            errors.each(path.child(field), name, names::label_problems(name));
        }
    }
    scheduling::tolerations(spec.items("tolerations"), path.child("tolerations"), errors);
    parts::host_aliases(spec, path.child("hostAliases"), errors);
    later_references(spec, path, errors);
}

fn named_references(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    for field in ["serviceAccountName", "nodeName"] {
        let name = spec.text(field);
        if !name.is_empty() {
            errors.each(path.child(field), name, names::subdomain_problems(name));
        }
    }
}

fn later_references(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    for field in ["priorityClassName", "runtimeClassName"] {
        let name = spec.text(field);
        if !name.is_empty() || (field == "runtimeClassName" && spec.has(field)) {
            errors.each(path.child(field), name, names::subdomain_problems(name));
        }
    }
    if spec.has("preemptionPolicy") {
        let policies = ["PreemptLowerPriority", "Never"];
        errors.required_one_of(path.child("preemptionPolicy"), spec.text("preemptionPolicy"), &policies);
    }
    if spec.has("overhead") {
        requirements::overhead(spec.at("overhead"), path.child("overhead"), errors);
    }
    parts::operating_system(spec, path, errors);
}

fn resource_claims(spec: &Value, path: Path<'_>, errors: &mut Errors) -> HashSet<String> {
    let mut seen = HashSet::new();
    for (index, claim) in spec.items("resourceClaims").iter().enumerate() {
        let place = path.index(index);
        let name = claim.text("name");
        if name.is_empty() {
            errors.required(place.child("name"), "");
        } else if !seen.insert(name.to_owned()) {
            errors.duplicate(place.child("name"), name);
        } else {
            errors.each(place.child("name"), name, names::label_problems(name));
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        match sources.into_iter().filter(|source| claim.has(source)).count() {
            1 => {}
            0 => errors.invalid(
                place,
                claim.clone(),
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            ),
            _ => errors.invalid(
                place,
                claim.clone(),
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
        }
        for source in sources.into_iter().filter(|source| claim.has(source)) {
            let name = claim.text(source);
            errors.each(place.child(source), name, names::subdomain_problems(name));
        }
    }
    seen
}

fn host_network_ports(context: Context<'_>, path: Path<'_>, errors: &mut Errors) {
    if !context.spec.flag("hostNetwork") {
        return;
    }
    for (index, container) in context.spec.items("containers").iter().enumerate() {
        for (place, port) in container.items("ports").iter().enumerate() {
            let host = port.number("hostPort").unwrap_or_default();
            if (context.is_pod || host != 0) && Some(host) != port.number("containerPort") {
                let list = path.child("containers");
                let ports = list.index(index);
                errors.invalid(
                    ports.child("ports").index(place).child("hostPort"),
                    host,
                    "must match `containerPort` when `hostNetwork` is true",
                );
            }
        }
    }
}

/// The containers that a pod can have, by the list that holds them.
pub(super) const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
