//! Defaults of services, storage, policy and other kinds.

use serde_json::{Value, json};

use crate::builtin::core;
use crate::builtin::json::{Fields, Fill};

const RBAC: &str = "rbac.authorization.k8s.io";
/// Seconds for which a client's connections go to the same pod.
const AFFINITY_SECONDS: i64 = 3 * 60 * 60;

pub(super) fn service(service: &mut Value) {
    let spec = service.object("spec");
    spec.default_to("sessionAffinity", "None");
    match spec.text("sessionAffinity") {
        "None" => {
            spec.drop("sessionAffinityConfig");
        }
        "ClientIP" if !spec.at("sessionAffinityConfig").at("clientIP").has("timeoutSeconds") => {
            spec.put("sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}}));
        }
        _ => {}
    }
    spec.default_to("type", "ClusterIP");
    for port in spec.items_mut("ports") {
        port.default_to("protocol", "TCP");
        let target = port.at("targetPort");
        if target.is_null() || *target == json!(0) || *target == json!("") {
            let number = port.at("port").clone();
            port.put("targetPort", number);
        }
    }
    let kind = spec.text("type").to_owned();
    let external = matches!(kind.as_str(), "NodePort" | "LoadBalancer")
        || (kind == "ClusterIP" && !spec.items("externalIPs").is_empty());
    if external {
        spec.default_to("externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
        spec.default_to("internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        spec.default_to("allocateLoadBalancerNodePorts", true);
        if let Some(balancer) = service.object_if("status").and_then(|status| status.object_if("loadBalancer")) {
            for ingress in balancer.items_mut("ingress") {
                if !ingress.text("ip").is_empty() {
                    ingress.default_to("ipMode", "VIP");
                }
            }
        }
    }
}

pub(super) fn endpoints(endpoints: &mut Value) {
    for subset in endpoints.items_mut("subsets") {
        for port in subset.items_mut("ports") {
            port.default_to("protocol", "TCP");
        }
    }
}

pub(super) fn namespace(namespace: &mut Value) {
    let name = namespace.at("metadata").text("name").to_owned();
    if !name.is_empty() {
        namespace.object("metadata").object("labels").put("kubernetes.io/metadata.name", json!(name));
    }
    namespace.object("status").default_to("phase", "Active");
}

pub(super) fn node_status(status: &mut Value) {
    let capacity = status.at("capacity").clone();
    if capacity.is_object() {
        status.default_to("allocatable", capacity);
    }
}

pub(super) fn secret(secret: &mut Value) {
    core::encode_string_data(secret);
    secret.default_to("type", "Opaque");
}

pub(super) fn limit_range_item(item: &mut Value) {
    if item.text("type") != "Container" {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let Some(amounts) = item.at(from).as_object().cloned() else { continue };
        let target = item.object(to);
        for (name, amount) in amounts {
            target.default_to(&name, amount);
        }
    }
}

pub(super) fn persistent_volume(volume: &mut Value) {
    volume.object("status").default_to("phase", "Pending");
    let spec = volume.object("spec");
    spec.default_to("persistentVolumeReclaimPolicy", "Retain");
    spec.default_to("volumeMode", "Filesystem");
}

pub(super) fn persistent_volume_claim(claim: &mut Value) {
    claim.object("status").default_to("phase", "Pending");
}

pub(super) fn persistent_volume_claim_spec(spec: &mut Value) {
    spec.default_to("volumeMode", "Filesystem");
}

pub(super) fn storage_class(class: &mut Value) {
    class.default_to("reclaimPolicy", "Delete");
    class.default_to("volumeBindingMode", "Immediate");
}

pub(super) fn csi_driver(driver: &mut Value) {
    let spec = driver.object("spec");
    spec.default_to("attachRequired", true);
    spec.default_to("podInfoOnMount", false);
    spec.default_to("storageCapacity", false);
    spec.default_to("fsGroupPolicy", "ReadWriteOnceWithFSType");
    spec.default_to("volumeLifecycleModes", json!(["Persistent"]));
    spec.default_to("requiresRepublish", false);
    spec.default_to("seLinuxMount", false);
}

pub(super) fn endpoint_port(port: &mut Value) {
    port.default_to("name", "");
    port.default_to("protocol", "TCP");
}

pub(super) fn network_policy(policy: &mut Value) {
    let spec = policy.object("spec");
    let types = if spec.items("egress").is_empty() { json!(["Ingress"]) } else { json!(["Ingress", "Egress"]) };
    spec.default_to("policyTypes", types);
}

pub(super) fn network_policy_port(port: &mut Value) {
    port.default_to("protocol", "TCP");
}

pub(super) fn ingress_class(class: &mut Value) {
    if let Some(parameters) = class.object("spec").object_if("parameters") {
        parameters.default_to("scope", "Cluster");
    }
}

pub(super) fn role_binding(binding: &mut Value) {
    let role = binding.object("roleRef");
    if role.text("apiGroup").is_empty() {
        role.put("apiGroup", json!(RBAC));
    }
}

pub(super) fn subject(subject: &mut Value) {
    if matches!(subject.text("kind"), "User" | "Group") {
        subject.default_to("apiGroup", RBAC);
    }
}

pub(super) fn priority_class(class: &mut Value) {
    class.default_to("preemptionPolicy", "PreemptLowerPriority");
}

pub(super) fn webhook(webhook: &mut Value) {
    failure_policy(webhook);
    match_resources(webhook);
    webhook.default_to("timeoutSeconds", 10);
}

pub(super) fn mutating_webhook(hook: &mut Value) {
    webhook(hook);
    hook.default_to("reinvocationPolicy", "Never");
}

pub(super) fn webhook_rule(rule: &mut Value) {
    rule.default_to("scope", "*");
}

pub(super) fn service_reference(reference: &mut Value) {
    reference.default_to("port", 443);
}

pub(super) fn failure_policy(spec: &mut Value) {
    spec.default_to("failurePolicy", "Fail");
}

pub(super) fn match_resources(resources: &mut Value) {
    resources.default_to("matchPolicy", "Equivalent");
    resources.default_to("namespaceSelector", json!({}));
    resources.default_to("objectSelector", json!({}));
}

pub(super) fn flow_schema_spec(spec: &mut Value) {
    if spec.number("matchingPrecedence").unwrap_or_default() == 0 {
        spec.put("matchingPrecedence", json!(1000));
    }
}

pub(super) fn exempt_level(level: &mut Value) {
    level.default_to("nominalConcurrencyShares", 0);
    level.default_to("lendablePercent", 0);
}

pub(super) fn limited_level(level: &mut Value) {
    level.default_to("nominalConcurrencyShares", 30);
    level.default_to("lendablePercent", 0);
}

pub(super) fn queuing(queuing: &mut Value) {
    for (field, default) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
        if queuing.number(field).unwrap_or_default() == 0 {
            queuing.put(field, json!(default));
        }
    }
}

pub(super) fn device_request(request: &mut Value) {
    request.default_to("allocationMode", "ExactCount");
    if request.text("allocationMode") == "ExactCount" {
        request.default_to("count", 1);
    }
}
