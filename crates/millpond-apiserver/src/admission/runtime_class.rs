//! Runtime classes: a pod that names one gets its overhead, node selector and tolerations.

use serde_json::Value;

use crate::builtin::json::{Fields, Fill};
use crate::builtin::resources::Amounts;
use crate::handlers::call::Call;

/// Applies a class to a pod; the error says why the pod is refused.
pub(super) fn admit(call: &Call, pod: &mut Value) -> Result<(), String> {
    let Some(name) = pod.at("spec").at("runtimeClassName").as_str() else { return Ok(()) };
    let found = call.server.store.get("runtimeclasses.node.k8s.io", name);
    let class = found.ok_or_else(|| format!("pod rejected: RuntimeClass {name:?} not found"))?.to_value();
    set_overhead(pod.object("spec"), class.at("overhead"))?;
    set_scheduling(pod.object("spec"), class.at("scheduling"))
}

/// Overhead comes from the class and from nowhere else.
pub(super) fn validate(call: &Call, pod: &Value) -> Result<(), String> {
    let spec = pod.at("spec");
    let named = spec.at("runtimeClassName").as_str();
    let class = named.and_then(|name| call.server.store.get("runtimeclasses.node.k8s.io", name));
    let has_overhead = class.is_some_and(|class| class.to_value().has("overhead"));
    if spec.has("overhead") && !has_overhead {
        return Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned());
    }
    Ok(())
}

fn set_overhead(spec: &mut Value, overhead: &Value) -> Result<(), String> {
    if !overhead.is_object() {
        return Ok(());
    }
    let (given, fixed) = (Amounts::of(spec.at("overhead")), Amounts::of(overhead.at("podFixed")));
    let same = given.0.len() == fixed.0.len()
        && given.0.iter().all(|(name, amount)| fixed.0.get(name).is_some_and(|other| other.same_amount(amount)));
    if !given.0.is_empty() && !same {
        return Err("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned());
    }
    spec.put("overhead", overhead.at("podFixed").clone());
    Ok(())
}

fn set_scheduling(spec: &mut Value, scheduling: &Value) -> Result<(), String> {
    if !scheduling.is_object() {
        return Ok(());
    }
    for (key, value) in scheduling.entries("nodeSelector") {
        let selector = spec.object("nodeSelector");
        if selector.has(key) && selector.at(key) != value {
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                value.as_str().unwrap_or_default(),
                selector.text(key),
            ));
        }
        selector.put(key, value.clone());
    }
    let merged = merged_tolerations(spec.items("tolerations"), scheduling.items("tolerations"));
    if !merged.is_empty() {
        spec.put("tolerations", merged.into());
    }
    Ok(())
}

/// Both lists in one, without tolerations that another one includes.
fn merged_tolerations(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = first.iter().chain(second).collect();
    let mut merged: Vec<Value> = Vec::new();
    for (index, toleration) in all.iter().enumerate() {
        let included = merged.iter().any(|wider| includes(wider, toleration));
        // Of equal tolerations the first is kept.
        let later = all[index + 1..].iter().any(|wider| wider != toleration && includes(wider, toleration));
        if !included && !later {
            merged.push((*toleration).clone());
        }
    }
    merged
}

/// Whether `wide` tolerates everything that `narrow` does.
fn includes(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let exists = wide.text("operator") == "Exists";
    let key = narrow.text("key") == wide.text("key") || (wide.text("key").is_empty() && exists);
    let effect = narrow.text("effect") == wide.text("effect") || wide.text("effect").is_empty();
    let lasts = match wide.number("tolerationSeconds").filter(|_| wide.text("effect") == "NoExecute") {
        Some(most) => narrow.number("tolerationSeconds").is_some_and(|seconds| seconds <= most),
        None => true,
    };
    let value = match wide.text("operator") {
        "Exists" => true,
        "" | "Equal" => narrow.text("operator") == "Equal" && narrow.text("value") == wide.text("value"),
        _ => false,
    };
    key && effect && lasts && value
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_class_sets_overhead_unless_the_pod_contradicts_it() {
        let overhead = json!({"podFixed": {"cpu": "1", "memory": "1Gi"}});
        let mut spec = json!({});
        set_overhead(&mut spec, &overhead).unwrap();
        assert_eq!(spec["overhead"], overhead["podFixed"]);
        let mut same = json!({"overhead": {"cpu": "1000m", "memory": "1024Mi"}});
        set_overhead(&mut same, &overhead).unwrap();
        let mut other = json!({"overhead": {"cpu": "2", "memory": "1Gi"}});
        assert_eq!(
            set_overhead(&mut other, &overhead).unwrap_err(),
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
        );
    }

    #[test]
    fn a_class_adds_where_its_pods_may_run() {
        let scheduling = json!({
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Equal", "value": "1"}],
        });
        let mut spec = json!({
            "nodeSelector": {"zone": "z"},
            "tolerations": [{"key": "a", "operator": "Equal", "value": "x"}, {"key": "b", "operator": "Exists"}],
        });
        set_scheduling(&mut spec, &scheduling).unwrap();
        assert_eq!(spec["nodeSelector"], json!({"disk": "ssd", "zone": "z"}));
        assert_eq!(
            spec["tolerations"],
            json!([{"key": "b", "operator": "Exists"}, {"key": "a", "operator": "Exists"}])
        );
        let mut contrary = json!({"nodeSelector": {"disk": "tape"}});
        assert_eq!(
            set_scheduling(&mut contrary, &scheduling).unwrap_err(),
            "conflict: runtimeClass.scheduling.nodeSelector[disk] = ssd; pod.spec.nodeSelector[disk] = tape"
        );
    }

    #[test]
    fn a_toleration_that_ends_includes_only_shorter_ones() {
        let lasting = |seconds: Option<i64>| {
            let mut toleration = json!({"key": "k", "operator": "Exists", "effect": "NoExecute"});
            if let Some(seconds) = seconds {
                toleration["tolerationSeconds"] = json!(seconds);
            }
            toleration
        };
        assert!(includes(&lasting(Some(300)), &lasting(Some(200))));
        assert!(!includes(&lasting(Some(300)), &lasting(Some(400))));
        assert!(!includes(&lasting(Some(300)), &lasting(None)));
        assert!(includes(&lasting(None), &lasting(Some(300))));
    }
}
