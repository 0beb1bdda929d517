//! Sums over the resources of a pod's containers.

use std::collections::BTreeMap;

use serde_json::Value;

use super::json::Fields;
use crate::quantity::Quantity;

/// Resources that a pod may ask for as a whole.
pub(super) fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// What the pod needs at most at one time: the sum of its containers and of the init containers that stay,
/// or more while an init container runs.
pub(super) fn aggregate(spec: &Value, side: &str) -> BTreeMap<String, Value> {
    let mut sum = Amounts::default();
    for container in spec.items("containers") {
        sum.add(&amounts(container, side));
    }
    let mut staying = Amounts::default();
    let mut peak = Amounts::default();
    for container in spec.items("initContainers") {
        let own = amounts(container, side);
        if container.text("restartPolicy") == "Always" {
            sum.add(&own);
            staying.add(&own);
            peak.raise(&staying);
        } else {
            let mut while_running = own;
            while_running.add(&staying);
            peak.raise(&while_running);
        }
    }
    sum.raise(&peak);
    sum.0.into_iter().map(|(name, amount)| (name, amount.canonical().into())).collect()
}

#[derive(Debug, Default, Clone)]
struct Amounts(BTreeMap<String, Quantity>);

impl Amounts {
    fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let sum = match self.0.get(name) {
                Some(before) => before.plus(amount),
                None => amount.clone(),
            };
            self.0.insert(name.clone(), sum);
        }
    }

    fn raise(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            if self.0.get(name).is_none_or(|before| before < amount) {
                self.0.insert(name.clone(), amount.clone());
            }
        }
    }
}

fn amounts(container: &Value, side: &str) -> Amounts {
    let parse = |(name, amount): (&str, &Value)| Some((name.to_owned(), Quantity::parse(amount.as_str()?).ok()?));
    Amounts(container.at("resources").entries(side).filter_map(parse).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn init_containers_count_while_they_run() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = container("100m");
        sidecar["restartPolicy"] = json!("Always");
        let spec = json!({
            "containers": [container("500m"), container("1")],
            "initContainers": [sidecar, container("2")],
        });
        assert_eq!(aggregate(&spec, "requests")["cpu"], "2100m");
        let spec = json!({"containers": [container("500m"), container("1")], "initContainers": [container("1")]});
        assert_eq!(aggregate(&spec, "requests")["cpu"], "1500m");
    }
}
