//! Quality of service classes, which decide the order of eviction when a node runs short.

use serde_json::Value;

use crate::builtin::check::quantity;
use crate::builtin::json::Fields;
use crate::quantity::Quantity;

const COUNTED: [&str; 2] = ["cpu", "memory"];

/// The class of a pod by what it requests and limits.
pub(crate) fn class(spec: &Value) -> &'static str {
    let whole_pod = spec.at("resources");
    if whole_pod.is_object() {
        return class_of(&[whole_pod]);
    }
    let containers: Vec<&Value> = ["initContainers", "containers"]
        .into_iter()
        .flat_map(|list| spec.items(list))
        .map(|container| container.at("resources"))
        .collect();
    class_of(&containers)
}

fn class_of(all: &[&Value]) -> &'static str {
    let positive = |amount: &Value| quantity(amount).filter(|amount| !amount.is_zero() && !amount.is_negative());
    let sum = |side: &str, name: &str| {
        all.iter().filter_map(|resources| positive(resources.at(side).at(name))).reduce(|a, b| Quantity::plus(&a, &b))
    };
    let limited_throughout =
        all.iter().all(|resources| COUNTED.iter().all(|name| positive(resources.at("limits").at(name)).is_some()));
    let requests: Vec<_> = COUNTED.iter().map(|name| sum("requests", name)).collect();
    let limits: Vec<_> = COUNTED.iter().map(|name| sum("limits", name)).collect();
    if requests.iter().chain(&limits).all(Option::is_none) {
        return "BestEffort";
    }
    let equal = requests.iter().zip(&limits).all(|(request, limit)| match (request, limit) {
        (Some(request), Some(limit)) => request.same_amount(limit),
        _ => false,
    });
    if limited_throughout && equal { "Guaranteed" } else { "Burstable" }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_guaranteed_only_if_every_container_is() {
        let full = json!({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1Gi"}}});
        let part = json!({"resources": {"requests": {"cpu": "1"}}});
        let none = json!({"resources": {}});
        assert_eq!(class(&json!({"containers": [full]})), "Guaranteed");
        assert_eq!(class(&json!({"containers": [full, none]})), "Burstable");
        assert_eq!(class(&json!({"containers": [full], "initContainers": [part]})), "Burstable");
        assert_eq!(class(&json!({"containers": [part]})), "Burstable");
        assert_eq!(class(&json!({"containers": [none]})), "BestEffort");
        let zero = json!({"resources": {"requests": {"cpu": "0"}}});
        assert_eq!(class(&json!({"containers": [zero]})), "BestEffort");
        assert_eq!(class(&json!({"containers": [none], "resources": full["resources"]})), "Guaranteed");
    }
}
