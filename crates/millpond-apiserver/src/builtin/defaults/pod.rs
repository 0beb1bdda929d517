//! Defaults of pods and of all that is inside a pod's spec.

use serde_json::{Map, Value, json};

use super::image;
use crate::builtin::json::{Fields, Fill};
use crate::builtin::resources;

/// Mode of the files that volumes from objects hold: 0644.
const FILE_MODE: i64 = 0o644;
/// Seconds for which a projected token is valid.
const TOKEN_SECONDS: i64 = 3600;

/// A pod itself, not a template of one.
pub(super) fn pod(pod: &mut Value) {
    let spec = pod.object("spec");
    for list in ["containers", "initContainers"] {
        for container in spec.items_mut(list) {
            requests_from_limits(container);
        }
    }
    if spec.has("resources") {
        huge_page_limits(spec);
        pod_requests(spec);
    }
    spec.default_to("enableServiceLinks", true);
    if spec.flag("hostNetwork") {
        for list in ["containers", "initContainers"] {
            spec.items_mut(list).iter_mut().for_each(host_ports);
        }
    }
}

fn requests_from_limits(container: &mut Value) {
    let Some(resources) = container.object_if("resources") else { return };
    let Some(limits) = resources.at("limits").as_object().cloned() else { return };
    let requests = resources.object("requests");
    for (name, amount) in limits {
        requests.default_to(&name, amount);
    }
}

fn host_ports(container: &mut Value) {
    for port in container.items_mut("ports") {
        let number = port.at("containerPort").clone();
        port.default_to("hostPort", number);
    }
}

/// Limits of huge pages of the whole pod, from those of its containers.
fn huge_page_limits(spec: &mut Value) {
    let given = spec.at("resources").clone();
    if given.at("limits").as_object().is_none_or(Map::is_empty)
        && given.at("requests").as_object().is_none_or(Map::is_empty)
    {
        return;
    }
    let sums = resources::aggregate(spec, "limits");
    let limits = spec.object("resources").object("limits");
    for (name, amount) in sums {
        if name.starts_with("hugepages-") && !given.at("requests").has(&name) {
            limits.default_to(&name, amount);
        }
    }
    if limits.as_object().is_some_and(Map::is_empty) {
        spec.object("resources").drop("limits");
    }
}

/// Requests of the whole pod, from those of its containers, or else from its limits.
fn pod_requests(spec: &mut Value) {
    let limits = spec.at("resources").at("limits").clone();
    let Some(limits) = limits.as_object().filter(|limits| !limits.is_empty()) else { return };
    let sums = resources::aggregate(spec, "requests");
    let requests = spec.object("resources").object("requests");
    for (name, amount) in sums {
        if matches!(name.as_str(), "cpu" | "memory") {
            requests.default_to(&name, amount);
        }
    }
    for (name, amount) in limits {
        if resources::is_pod_level(name) {
            requests.default_to(name, amount.clone());
        }
    }
    if requests.as_object().is_some_and(Map::is_empty) {
        spec.object("resources").drop("requests");
    }
}

pub(super) fn pod_spec(spec: &mut Value) {
    spec.default_to("dnsPolicy", "ClusterFirst");
    spec.default_to("restartPolicy", "Always");
    spec.default_to("securityContext", json!({}));
    spec.default_to("terminationGracePeriodSeconds", 30);
    spec.default_to("schedulerName", "default-scheduler");
    // The older name of the same field: both are always shown.
    let account =
        [spec.text("serviceAccountName"), spec.text("serviceAccount")].into_iter().find(|name| !name.is_empty());
    if let Some(account) = account.map(ToOwned::to_owned) {
        spec.put("serviceAccountName", json!(account));
        spec.put("serviceAccount", json!(account));
    }
}

pub(super) fn container(container: &mut Value) {
    let policy = if image::is_latest(container.text("image")) { "Always" } else { "IfNotPresent" };
    container.default_to("imagePullPolicy", policy);
    container.default_to("terminationMessagePath", "/dev/termination-log");
    container.default_to("terminationMessagePolicy", "File");
}

pub(super) fn probe(probe: &mut Value) {
    probe.default_to("timeoutSeconds", 1);
    probe.default_to("periodSeconds", 10);
    probe.default_to("successThreshold", 1);
    probe.default_to("failureThreshold", 3);
}

pub(super) fn http_get(action: &mut Value) {
    action.default_to("path", "/");
    action.default_to("scheme", "HTTP");
}

pub(super) fn field_selector(selector: &mut Value) {
    selector.default_to("apiVersion", "v1");
}

pub(super) fn volume(volume: &mut Value) {
    let sourceless = volume.as_object().is_some_and(|map| map.keys().all(|key| key == "name"));
    if sourceless {
        volume.put("emptyDir", json!({}));
    }
    if let Some(source) = volume.object_if("image") {
        let policy = if image::is_latest(source.text("reference")) { "Always" } else { "IfNotPresent" };
        source.default_to("pullPolicy", policy);
    }
}

pub(super) fn default_mode(source: &mut Value) {
    source.default_to("defaultMode", FILE_MODE);
}

pub(super) fn token_projection(projection: &mut Value) {
    projection.default_to("expirationSeconds", TOKEN_SECONDS);
}

pub(super) fn host_path(source: &mut Value) {
    source.default_to("type", "");
}
