//! Resource vectors, and what a pod asks for.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::quantity::Amount;

/// Cpu that scoring assumes for a container without a request, in thousandths.
const UNSTATED_CPU_MILLIS: i64 = 100;
/// Memory that scoring assumes for a container without a request, in bytes.
const UNSTATED_MEMORY_BYTES: i64 = 200 * 1024 * 1024;

/// Integer amounts of cpu (thousandths), memory and scratch space (bytes) and named counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resources {
    /// Thousandths of a core.
    pub cpu_millis: i64,
    /// Bytes of memory.
    pub memory_bytes: i64,
    /// Bytes of ephemeral storage.
    pub ephemeral_bytes: i64,
    /// Huge pages and extended resources by name.
    pub named: BTreeMap<String, i64>,
}

impl Resources {
    /// Reads a resource list; names that no rule counts (such as `pods`) are skipped.
    pub fn from_list<'a>(list: impl IntoIterator<Item = (&'a String, &'a Quantity)>) -> Self {
        let mut resources = Self::default();
        for (name, quantity) in list {
            let amount = Amount::parse(&quantity.0).unwrap_or_default();
            match name.as_str() {
                "cpu" => resources.cpu_millis = amount.millis(),
                "memory" => resources.memory_bytes = amount.units(),
                "ephemeral-storage" => resources.ephemeral_bytes = amount.units(),
                other if is_counted_by_name(other) => {
                    resources.named.insert(other.to_owned(), amount.units());
                }
                _ => {}
            }
        }
        resources
    }

    /// Adds `other` in every dimension.
    pub fn add(&mut self, other: &Self) {
        self.cpu_millis += other.cpu_millis;
        self.memory_bytes += other.memory_bytes;
        self.ephemeral_bytes += other.ephemeral_bytes;
        for (name, amount) in &other.named {
            *self.named.entry(name.clone()).or_default() += amount;
        }
    }

    /// Takes `other` away in every dimension.
    pub fn subtract(&mut self, other: &Self) {
        self.cpu_millis -= other.cpu_millis;
        self.memory_bytes -= other.memory_bytes;
        self.ephemeral_bytes -= other.ephemeral_bytes;
        for (name, amount) in &other.named {
            *self.named.entry(name.clone()).or_default() -= amount;
        }
        self.named.retain(|_, amount| *amount != 0);
    }

    /// Raises every dimension to at least that of `other`.
    pub fn raise_to(&mut self, other: &Self) {
        self.cpu_millis = self.cpu_millis.max(other.cpu_millis);
        self.memory_bytes = self.memory_bytes.max(other.memory_bytes);
        self.ephemeral_bytes = self.ephemeral_bytes.max(other.ephemeral_bytes);
        for (name, amount) in &other.named {
            let mine = self.named.entry(name.clone()).or_default();
            *mine = (*mine).max(*amount);
        }
    }

    /// The amount under a name, zero when it is absent.
    pub fn named(&self, name: &str) -> i64 {
        self.named.get(name).copied().unwrap_or_default()
    }

    /// Whether all requests are zero.
    pub fn is_zero(&self) -> bool {
        self.cpu_millis == 0 && self.memory_bytes == 0 && self.ephemeral_bytes == 0 && self.named.is_empty()
    }
}

/// The request of a pod: the sum of its containers, or the peak of its init containers (sidecars keep running), or the
/// pod-level request, plus overhead.
pub fn pod_requests(spec: &PodSpec) -> Resources {
    aggregate(spec, |_, _| {})
}

/// The same with a small default for containers that state nothing, used for scoring only, so
/// that pods without requests do not all land on one node.
pub fn pod_scoring_requests(spec: &PodSpec) -> Resources {
    aggregate(spec, |container, resources| {
        if !states(container, "cpu") {
            resources.cpu_millis = UNSTATED_CPU_MILLIS;
        }
        if !states(container, "memory") {
            resources.memory_bytes = UNSTATED_MEMORY_BYTES;
        }
    })
}

fn aggregate(spec: &PodSpec, fill: impl Fn(&Container, &mut Resources)) -> Resources {
    let requests_of = |container: &Container| {
        let mut resources = requests(container).map(Resources::from_list).unwrap_or_default();
        fill(container, &mut resources);
        resources
    };
    let mut total = Resources::default();
    for container in &spec.containers {
        total.add(&requests_of(container));
    }
    let mut sidecars = Resources::default();
    let mut peak_of_init = Resources::default();
    for container in spec.init_containers.iter().flatten() {
        let own = requests_of(container);
        if container.restart_policy.as_deref() == Some("Always") {
            total.add(&own);
            sidecars.add(&own);
            peak_of_init.raise_to(&sidecars);
        } else {
            let mut moment = own;
            moment.add(&sidecars);
            peak_of_init.raise_to(&moment);
        }
    }
    total.raise_to(&peak_of_init);
    override_with_pod_level(spec, &mut total);
    if let Some(overhead) = &spec.overhead {
        total.add(&Resources::from_list(overhead));
    }
    total
}

/// Pod-level requests replace the sum of the containers for cpu, memory and huge pages.
fn override_with_pod_level(spec: &PodSpec, total: &mut Resources) {
    let Some(list) = spec.resources.as_ref().and_then(|r| r.requests.as_ref()) else {
        return;
    };
    let stated = Resources::from_list(list);
    for name in list.keys() {
        match name.as_str() {
            "cpu" => total.cpu_millis = stated.cpu_millis,
            "memory" => total.memory_bytes = stated.memory_bytes,
            pages if pages.starts_with("hugepages-") => {
                total.named.insert(name.clone(), stated.named(name));
            }
            _ => {}
        }
    }
}

fn requests(container: &Container) -> Option<&BTreeMap<String, Quantity>> {
    container.resources.as_ref()?.requests.as_ref()
}

fn states(container: &Container, name: &str) -> bool {
    requests(container).is_some_and(|list| list.contains_key(name))
}

fn is_counted_by_name(name: &str) -> bool {
    name.contains('/') || name.starts_with("hugepages-") || name.starts_with("attachable-volumes-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(value: serde_json::Value) -> PodSpec {
        serde_json::from_value(value).expect("a pod spec")
    }

    #[test]
    fn init_containers_count_at_their_peak_and_sidecars_stay() {
        let spec = spec(serde_json::json!({
            "initContainers": [
                {"name": "s1", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
                {"name": "i1", "resources": {"requests": {"cpu": "5", "nvidia.com/gpu": "2"}}},
                {"name": "s2", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
            ],
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "2", "memory": "2Gi"}}},
                {"name": "b", "resources": {"requests": {"cpu": "500m"}}},
            ],
            "overhead": {"cpu": "100m", "memory": "64Mi"},
        }));
        let got = pod_requests(&spec);
        // i1 beside s1 needs 6 cores, more than the 4.5 of the running phase.
        assert_eq!(got.cpu_millis, 6100);
        assert_eq!(got.memory_bytes, (3 << 30) + (64 << 20));
        assert_eq!(got.named("nvidia.com/gpu"), 2);
    }

    #[test]
    fn pod_level_requests_replace_the_sum() {
        let spec = spec(serde_json::json!({
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}],
            "resources": {"requests": {"cpu": "3"}},
        }));
        let got = pod_requests(&spec);
        assert_eq!((got.cpu_millis, got.memory_bytes), (3000, 1 << 30));
    }

    #[test]
    fn unstated_requests_count_for_scoring_only() {
        let spec = spec(serde_json::json!({"containers": [{"name": "a"}, {"name": "b"}]}));
        assert!(pod_requests(&spec).is_zero());
        let scoring = pod_scoring_requests(&spec);
        assert_eq!((scoring.cpu_millis, scoring.memory_bytes), (200, 400 << 20));
    }
}
