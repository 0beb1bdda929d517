//! Sums over the resources of a pod's containers.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::json::Fields;
use crate::quantity::Quantity;

/// Resources that a pod may ask for as a whole.
pub(crate) fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// The peak requirement of a pod: the sum of its containers and of the init containers that keep running, or more while
/// another init container runs.
pub(super) fn aggregate(spec: &Value, side: &str) -> BTreeMap<String, Value> {
    let sum = over_containers(spec, |container, _| Amounts::of(container.at("resources").at(side)));
    sum.0.into_iter().map(|(name, amount)| (name, amount.canonical().into())).collect()
}

/// The requests or limits of a pod spec (`side`), without overhead.
pub(crate) fn of_spec(spec: &Value, side: &str) -> Amounts {
    let mut sum = over_containers(spec, |container, _| Amounts::of(container.at("resources").at(side)));
    let own = Amounts::of(spec.at("resources").at(side));
    sum.0.extend(own.0.into_iter().filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory")));
    sum
}

/// The requests or limits of a pod (`side`), with overhead, and with what its containers still hold after a resize.
pub(crate) fn of_pod(pod: &Value, side: &str) -> Amounts {
    let spec = pod.at("spec");
    let mut sum = over_containers(spec, |container, stays| {
        if stays { held(pod, container, side) } else { Amounts::of(container.at("resources").at(side)) }
    });
    let own = Amounts::of(spec.at("resources").at(side));
    sum.0.extend(own.0.into_iter().filter(|(name, _)| is_pod_level(name)));
    let mut overhead = Amounts::of(spec.at("overhead"));
    if side == "limits" {
        overhead.0.retain(|name, _| sum.0.get(name).is_some_and(|limit| !limit.is_zero()));
    }
    sum.add(&overhead);
    sum
}

/// The resources of a running container: the maximum of its spec, its actual and its allocated resources.
fn held(pod: &Value, container: &Value, side: &str) -> Amounts {
    let status = pod.at("status");
    let name = container.text("name");
    let mut statuses = status.items("containerStatuses").iter().chain(status.items("initContainerStatuses"));
    let wanted = Amounts::of(container.at("resources").at(side));
    let Some(state) = statuses.find(|state| state.text("name") == name).filter(|state| state.has("resources")) else {
        return wanted;
    };
    let pending = status.items("conditions").iter().find(|condition| condition.text("type") == "PodResizePending");
    let infeasible = pending.is_some_and(|condition| condition.text("reason") == "Infeasible");
    let mut held = if infeasible { Amounts::default() } else { wanted };
    held.raise(&Amounts::of(state.at("resources").at(side)));
    if side == "requests" {
        held.raise(&Amounts::of(state.at("allocatedResources")));
    }
    held
}

/// Sums up `of` over the containers; its argument says whether the container runs as long as the pod.
fn over_containers(spec: &Value, of: impl Fn(&Value, bool) -> Amounts) -> Amounts {
    let mut sum = Amounts::default();
    for container in spec.items("containers") {
        sum.add(&of(container, true));
    }
    let mut staying = Amounts::default();
    let mut peak = Amounts::default();
    for container in spec.items("initContainers") {
        if container.text("restartPolicy") == "Always" {
            let own = of(container, true);
            sum.add(&own);
            staying.add(&own);
            peak.raise(&staying);
        } else {
            let mut while_running = of(container, false);
            while_running.add(&staying);
            peak.raise(&while_running);
        }
    }
    sum.raise(&peak);
    sum
}

/// Amounts by the names of resources.
#[derive(Debug, Default, Clone)]
pub(crate) struct Amounts(pub(crate) BTreeMap<String, Quantity>);

impl Amounts {
    /// Reads a resource list; what is no quantity is left out.
    pub(crate) fn of(list: &Value) -> Self {
        let parse = |(name, amount): (&String, &Value)| Some((name.clone(), Quantity::parse(amount.as_str()?).ok()?));
        Self(list.as_object().into_iter().flatten().filter_map(parse).collect())
    }

    /// The resource list.
    pub(crate) fn to_value(&self) -> Value {
        self.0.iter().map(|(name, amount)| (name.clone(), json!(amount.canonical()))).collect()
    }

    /// Adds each amount to that of the same name.
    pub(crate) fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let sum = match self.0.get(name) {
                Some(before) => before.plus(amount),
                None => amount.clone(),
            };
            self.0.insert(name.clone(), sum);
        }
    }

    /// Raises each amount to at least that of the same name.
    pub(crate) fn raise(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            if self.0.get(name).is_none_or(|before| before < amount) {
                self.0.insert(name.clone(), amount.clone());
            }
        }
    }

    /// The amounts whose names are wanted.
    pub(crate) fn only(&self, wanted: impl Fn(&str) -> bool) -> Self {
        Self(
            self.0
                .iter()
                .filter(|(name, _)| wanted(name))
                .map(|(name, amount)| (name.clone(), amount.clone()))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_pod_takes_its_overhead_and_what_a_resize_has_not_given_back() {
        let mut pod = json!({
            "spec": {
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}],
                "overhead": {"cpu": "100m", "memory": "10Mi"},
            },
            "status": {},
        });
        assert_eq!(of_pod(&pod, "requests").to_value(), json!({"cpu": "1100m", "memory": "10Mi"}));
        assert_eq!(of_pod(&pod, "limits").to_value(), json!({"cpu": "2100m"}), "only limits that are there grow");
        assert_eq!(of_spec(&pod["spec"], "requests").to_value(), json!({"cpu": "1"}));
        pod["status"]["containerStatuses"] =
            json!([{"name": "c", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "2"}}]);
        assert_eq!(of_pod(&pod, "requests").to_value()["cpu"], "3100m");
        pod["spec"]["resources"] = json!({"requests": {"cpu": "4"}});
        assert_eq!(of_pod(&pod, "requests").to_value()["cpu"], "4100m");
    }
}
