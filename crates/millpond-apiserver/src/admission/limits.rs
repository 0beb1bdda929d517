//! Limit ranges: defaults for containers that name no amounts, and bounds for pods, containers and claims.

use serde_json::{Value, json};

use crate::builtin::json::{Fields, Fill};
use crate::builtin::resources::{self, Amounts};
use crate::handlers::call::Call;
use crate::quantity::Quantity;

/// The annotation that lists the defaults that were set.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// The limit ranges of the request's namespace.
fn ranges(call: &Call) -> Vec<Value> {
    let prefix = format!("{}/", call.namespace());
    let found = call.server.store.list("limitranges", &prefix, None, 0, |_, _| true);
    found.items.iter().map(|(_, range)| range.to_value()).collect()
}

/// Fills in what the containers of a new pod leave open.
pub(super) fn fill(call: &Call, pod: &mut Value) {
    for range in ranges(call) {
        fill_from(&range, pod);
    }
}

/// Checks a pod or a claim against every range; the error says what is out of bounds.
pub(super) fn check(call: &Call, object: &Value) -> Result<(), String> {
    let claim = &*call.resource.kind == "PersistentVolumeClaim";
    for range in ranges(call) {
        let mut problems = if claim { claim_problems(&range, object) } else { pod_problems(&range, object) };
        problems.dedup();
        match problems.as_slice() {
            [] => {}
            [one] => return Err(one.clone()),
            many => return Err(format!("[{}]", many.join(", "))),
        }
    }
    Ok(())
}

fn fill_from(range: &Value, pod: &mut Value) {
    let mut defaults = [("requests", json!({})), ("limits", json!({}))];
    for limit in range.at("spec").items("limits").iter().filter(|limit| limit.text("type") == "Container") {
        for (side, field) in [(0, "defaultRequest"), (1, "default")] {
            for (name, amount) in limit.entries(field) {
                defaults[side].1.put(name, amount.clone());
            }
        }
    }
    let mut notes = Vec::new();
    for (list, title) in [("containers", "container"), ("initContainers", "init container")] {
        for container in pod.object("spec").items_mut(list) {
            let container_name = container.text("name").to_owned();
            for (side, amounts) in &defaults {
                let missing: Vec<(String, Value)> = amounts
                    .as_object()
                    .into_iter()
                    .flatten()
                    .filter(|(name, _)| !container.at("resources").at(side).has(name))
                    .map(|(name, amount)| (name.clone(), amount.clone()))
                    .collect();
                if missing.is_empty() {
                    continue;
                }
                let names: Vec<&str> = missing.iter().map(|(name, _)| name.as_str()).collect();
                notes.push(format!("{} {} for {title} {container_name}", names.join(", "), side.trim_end_matches('s')));
                for (name, amount) in missing {
                    container.object("resources").object(side).put(&name, amount);
                }
            }
        }
    }
    if !notes.is_empty() {
        let note = format!("LimitRanger plugin set: {}", notes.join("; "));
        pod.object("metadata").object("annotations").put(ANNOTATION, note.into());
    }
}

fn claim_problems(range: &Value, claim: &Value) -> Vec<String> {
    let asked = Asked {
        kind: "PersistentVolumeClaim",
        requests: Amounts::of(claim.at("spec").at("resources").at("requests")),
        limits: Amounts::default(),
    };
    let mut problems = Vec::new();
    for limit in range.at("spec").items("limits").iter().filter(|limit| limit.text("type") == asked.kind) {
        for (name, least) in &Amounts::of(limit.at("min")).0 {
            problems.extend(asked.below(name, least));
        }
        for (name, most) in &Amounts::of(limit.at("max")).0 {
            problems.extend(asked.request_above(name, most));
        }
    }
    problems
}

fn pod_problems(range: &Value, pod: &Value) -> Vec<String> {
    let spec = pod.at("spec");
    let mut problems = Vec::new();
    for limit in range.at("spec").items("limits") {
        let asked: Vec<Asked> = match limit.text("type") {
            "Container" => {
                let containers = spec.items("containers").iter().chain(spec.items("initContainers"));
                containers.map(|container| Asked::of_container(container.at("resources"))).collect()
            }
            "Pod" => vec![Asked {
                kind: "Pod",
                requests: resources::of_spec(spec, "requests"),
                limits: resources::of_spec(spec, "limits"),
            }],
            _ => continue,
        };
        for asked in &asked {
            for (name, least) in &Amounts::of(limit.at("min")).0 {
                problems.extend(asked.below(name, least));
            }
            for (name, most) in &Amounts::of(limit.at("max")).0 {
                problems.extend(asked.above(name, most));
            }
            for (name, ratio) in &Amounts::of(limit.at("maxLimitRequestRatio")).0 {
                problems.extend(asked.too_far_apart(name, ratio));
            }
        }
    }
    problems
}

/// Requested amounts, to be compared with a limit.
struct Asked {
    kind: &'static str,
    requests: Amounts,
    limits: Amounts,
}

impl Asked {
    fn of_container(resources: &Value) -> Self {
        Self {
            kind: "Container",
            requests: Amounts::of(resources.at("requests")),
            limits: Amounts::of(resources.at("limits")),
        }
    }

    fn below(&self, name: &str, least: &Quantity) -> Option<String> {
        let bound = format!("minimum {name} usage per {} is {least}", self.kind);
        let Some(request) = self.requests.0.get(name) else {
            return Some(format!("{bound}.  No request is specified"));
        };
        if less(request, least) {
            return Some(format!("{bound}, but request is {request}"));
        }
        let limit = self.limits.0.get(name).filter(|limit| less(limit, least))?;
        Some(format!("{bound}, but limit is {limit}"))
    }

    fn above(&self, name: &str, most: &Quantity) -> Option<String> {
        let bound = format!("maximum {name} usage per {} is {most}", self.kind);
        let Some(limit) = self.limits.0.get(name) else {
            return Some(format!("{bound}.  No limit is specified"));
        };
        if less(most, limit) {
            return Some(format!("{bound}, but limit is {limit}"));
        }
        let request = self.requests.0.get(name).filter(|request| less(most, request))?;
        Some(format!("{bound}, but request is {request}"))
    }

    /// Claims have no limits, only requests.
    fn request_above(&self, name: &str, most: &Quantity) -> Option<String> {
        let bound = format!("maximum {name} usage per {} is {most}", self.kind);
        let Some(request) = self.requests.0.get(name) else {
            return Some(format!("{bound}.  No request is specified"));
        };
        less(most, request).then(|| format!("{bound}, but request is {request}"))
    }

    fn too_far_apart(&self, name: &str, ratio: &Quantity) -> Option<String> {
        let bound = format!("{name} max limit to request ratio per {} is {ratio}", self.kind);
        let some = |amounts: &Amounts| amounts.0.get(name).filter(|amount| !amount.is_zero()).map(Quantity::milli);
        let Some(request) = some(&self.requests) else {
            return Some(format!("{bound}, but no request is specified or request is 0"));
        };
        let Some(limit) = some(&self.limits) else {
            return Some(format!("{bound}, but no limit is specified or limit is 0"));
        };
        let observed = limit as f64 / request as f64;
        (observed * 1000.0 > ratio.milli() as f64).then(|| format!("{bound}, but provided ratio is {observed:.6}"))
    }
}

fn less(one: &Quantity, other: &Quantity) -> bool {
    one < other && !one.same_amount(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(limit: &Value) -> Value {
        json!({"spec": {"limits": [limit]}})
    }

    #[test]
    fn containers_get_what_they_leave_open() {
        let range = range(&json!({
            "type": "Container",
            "default": {"cpu": "500m", "memory": "500Mi"},
            "defaultRequest": {"cpu": "100m", "memory": "200Mi"},
        }));
        let mut pod = json!({"spec": {
            "containers": [{"name": "a"}, {"name": "b", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}],
        }});
        fill_from(&range, &mut pod);
        let containers = &pod["spec"]["containers"];
        assert_eq!(containers[0]["resources"]["requests"], json!({"cpu": "100m", "memory": "200Mi"}));
        assert_eq!(containers[1]["resources"]["requests"], json!({"cpu": "1", "memory": "200Mi"}));
        assert_eq!(containers[1]["resources"]["limits"], json!({"cpu": "2", "memory": "500Mi"}));
        assert_eq!(
            pod["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu, memory request for container a; cpu, memory limit for container a; \
             memory request for container b; memory limit for container b"
        );
    }

    #[test]
    fn amounts_out_of_bounds_are_reported_as_by_kubernetes() {
        let pod = |resources: Value| json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
        let bounds = |kind: &str| {
            range(&json!({
                "type": kind, "min": {"cpu": "100m"}, "max": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "2"},
            }))
        };
        let container = bounds("Container");
        let good = pod(json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1000m"}}));
        assert_eq!(pod_problems(&container, &good), Vec::<String>::new());
        assert_eq!(
            pod_problems(&container, &pod(json!({}))),
            [
                "minimum cpu usage per Container is 100m.  No request is specified",
                "maximum cpu usage per Container is 1.  No limit is specified",
                "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
            ]
        );
        assert_eq!(
            pod_problems(&bounds("Pod"), &pod(json!({"requests": {"cpu": "50m"}, "limits": {"cpu": "2"}}))),
            [
                "minimum cpu usage per Pod is 100m, but request is 50m",
                "maximum cpu usage per Pod is 1, but limit is 2",
                "cpu max limit to request ratio per Pod is 2, but provided ratio is 40.000000",
            ]
        );
    }

    #[test]
    fn claims_have_a_least_and_a_most() {
        let range =
            range(&json!({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}));
        let claim = |amount: &str| json!({"spec": {"resources": {"requests": {"storage": amount}}}});
        assert!(claim_problems(&range, &claim("2Gi")).is_empty());
        assert_eq!(
            claim_problems(&range, &claim("3Gi")),
            ["maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"]
        );
        assert_eq!(
            claim_problems(&range, &claim("1M")),
            ["minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1M"]
        );
    }
}
