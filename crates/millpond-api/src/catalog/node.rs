//! The capacity and allocatable resources of a node, by its type and the kubelet settings of its class.

use super::overhead::Reserved;
use super::{InstanceType, Resources};
use crate::amounts::Amounts;
use crate::node_class::Kubelet;

impl InstanceType {
    /// What a node has under settings of kubelet: as the type, with the pods that kubelet allows.
    pub fn node_capacity(&self, kubelet: &Kubelet) -> Resources {
        let most = kubelet.max_pods.unwrap_or(self.pods);
        let cores = u32::try_from(self.cpu_milli.div_ceil(1000)).unwrap_or(u32::MAX);
        let pods = kubelet.pods_per_core.map_or(most, |per_core| most.min(per_core.saturating_mul(cores)));
        Resources { pods, ..self.capacity() }
    }

    /// What pods can use of it: the capacity without what the provider's rule keeps, each part of which a setting of
    /// kubelet replaces.
    pub fn node_allocatable(&self, kubelet: &Kubelet) -> Resources {
        let parts = [
            with_settings(self.overhead.kube_reserved, kubelet.kube_reserved.as_ref()),
            with_settings(self.overhead.system_reserved, kubelet.system_reserved.as_ref()),
            self.overhead.eviction_threshold,
        ];
        let mut left = self.node_capacity(kubelet);
        for part in parts {
            left.cpu_milli = left.cpu_milli.saturating_sub(part.cpu_milli);
            left.memory_bytes = left.memory_bytes.saturating_sub(part.memory_bytes);
            left.storage_bytes = left.storage_bytes.saturating_sub(part.storage_bytes);
        }
        left
    }
}

fn with_settings(rule: Reserved, settings: Option<&Amounts>) -> Reserved {
    let setting = |name, rule| {
        let set = settings.and_then(|settings| settings.get(name));
        set.map_or(rule, |amount| u64::try_from(amount).unwrap_or(0))
    };
    Reserved {
        cpu_milli: setting("cpu", rule.cpu_milli),
        memory_bytes: setting("memory", rule.memory_bytes),
        storage_bytes: setting("ephemeral-storage", rule.storage_bytes),
    }
}

impl Resources {
    /// The amount of a resource by its name; `None` if the resource is unknown.
    pub fn get(&self, resource: &str) -> Option<u64> {
        match resource {
            "cpu" => Some(self.cpu_milli),
            "memory" => Some(self.memory_bytes),
            "ephemeral-storage" => Some(self.storage_bytes),
            "pods" => Some(u64::from(self.pods)),
            extended => self.extended.get(extended).copied(),
        }
    }

    /// Whether that much fits. What is not asked for does not matter, nor does a resource of which nothing is asked.
    pub fn hold(&self, requests: &Amounts) -> bool {
        let asked = requests.iter().filter_map(|(name, amount)| Some((name, u64::try_from(amount).ok()?)));
        asked.into_iter().all(|(name, amount)| amount <= self.get(name).unwrap_or(0))
    }

    /// All of them by name, as `status.capacity` of a node has them.
    pub fn amounts(&self) -> Amounts {
        let amount = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
        let standard = [
            ("cpu", self.cpu_milli),
            ("memory", self.memory_bytes),
            ("ephemeral-storage", self.storage_bytes),
            ("pods", u64::from(self.pods)),
        ];
        let extended = self.extended.iter().map(|(name, count)| (name.as_str(), *count));
        let all = standard.into_iter().chain(extended);
        Amounts(all.map(|(name, count)| (name.to_owned(), amount(count))).collect())
    }
}
