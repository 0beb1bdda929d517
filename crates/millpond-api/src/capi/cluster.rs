//! Clusters, and the topology that a ClusterClass makes pools from.

use std::collections::BTreeMap;

use serde_json::Value;

use super::look::Look;
use super::{Problems, Reference};

/// A Cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Whether its controllers ignore it.
    pub paused: bool,
    /// The topology, if a ClusterClass creates the pools.
    pub topology: Option<Topology>,
    /// Its control plane.
    pub control_plane: Option<Reference>,
    /// Its infrastructure.
    pub infrastructure: Option<Reference>,
}

/// The topology of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// The ClusterClass.
    pub class: String,
    /// The Kubernetes version.
    pub version: String,
    /// Values for all parts.
    pub variables: BTreeMap<String, Value>,
    /// The pools.
    pub pools: Vec<TopologyPool>,
    /// Whether `workers` is present.
    pub has_workers: bool,
}

/// A pool of a topology: a MachineDeployment is made from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyPool {
    /// Its name in the topology.
    pub name: String,
    /// The class of its machines.
    pub class: String,
    /// How many machines; left to the autoscaler without it.
    pub replicas: Option<i64>,
    /// Its failure domain.
    pub failure_domain: Option<String>,
    /// Labels that its MachineDeployment and machines get.
    pub labels: BTreeMap<String, String>,
    /// Annotations that its MachineDeployment gets.
    pub annotations: BTreeMap<String, String>,
    /// Values for this pool only.
    pub overrides: BTreeMap<String, Value>,
    /// The entry as it is.
    pub raw: Value,
}

impl Cluster {
    /// Reads `spec`.
    pub fn read(spec: &Value, problems: &Problems) -> Self {
        let look = Look::new(spec, "spec", problems);
        let topology = look.at("topology");
        Self {
            paused: look.boolean("paused").unwrap_or(false),
            topology: (!topology.is_missing()).then(|| Topology::look(&topology)),
            control_plane: Reference::look(&look.at("controlPlaneRef")),
            infrastructure: Reference::look(&look.at("infrastructureRef")),
        }
    }

    /// Like [`Self::read`], ignoring errors.
    pub fn of(spec: &Value) -> Self {
        Self::read(spec, &Problems::new())
    }
}

impl Topology {
    fn look(look: &Look<'_>) -> Self {
        let workers = look.at("workers");
        Self {
            class: look.at("classRef").some_text("name").unwrap_or_else(|| look.owned("class")),
            version: look.owned("version"),
            variables: variables(look, "variables"),
            pools: workers.list("machineDeployments").iter().map(TopologyPool::look).collect(),
            has_workers: !workers.is_missing(),
        }
    }

    /// The pool of that name.
    pub fn pool(&self, name: &str) -> Option<&TopologyPool> {
        self.pools.iter().find(|pool| pool.name == name)
    }
}

impl TopologyPool {
    /// Reads one entry.
    pub fn read(entry: &Value, problems: &Problems) -> Self {
        Self::look(&Look::new(entry, "", problems))
    }

    fn look(look: &Look<'_>) -> Self {
        let metadata = look.at("metadata");
        Self {
            name: look.owned("name"),
            class: look.owned("class"),
            replicas: look.int("replicas"),
            failure_domain: look.some_text("failureDomain"),
            labels: metadata.texts("labels"),
            annotations: metadata.texts("annotations"),
            overrides: variables(&look.at("variables"), "overrides"),
            raw: look.raw().clone(),
        }
    }
}

fn variables(look: &Look<'_>, key: &str) -> BTreeMap<String, Value> {
    look.list(key).iter().map(|entry| (entry.owned("name"), entry.value("value").clone())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn topologies_of_both_versions_are_read() {
        let workers = json!({"machineDeployments": [{
            "name": "md-0", "class": "tkg-worker", "replicas": 2, "failureDomain": "az-1",
            "metadata": {"annotations": {"run.tanzu.vmware.com/resolve-os-image": "os-name=ubuntu"}},
            "variables": {"overrides": [{"name": "worker", "value": {"instanceType": "m5.large"}}]},
        }]});
        let old = json!({"topology": {"class": "tkg", "version": "v1.26.5", "workers": workers}});
        let new = json!({"topology": {"classRef": {"name": "tkg"}, "version": "v1.26.5", "workers": workers}});
        let (old, new) = (Cluster::of(&old), Cluster::of(&new));
        assert_eq!(old, new);
        let topology = old.topology.unwrap();
        let pool = topology.pool("md-0").unwrap();
        assert_eq!((pool.class.as_str(), pool.replicas, topology.class.as_str()), ("tkg-worker", Some(2), "tkg"));
        assert_eq!(pool.overrides["worker"], json!({"instanceType": "m5.large"}));
        assert!(topology.pool("md").is_none() && topology.has_workers);
    }

    #[test]
    fn a_cluster_without_a_class_has_no_topology() {
        let cluster =
            Cluster::of(&json!({"paused": true, "infrastructureRef": {"apiGroup": "g", "kind": "K", "name": "n"}}));
        assert!(cluster.paused && cluster.topology.is_none() && cluster.infrastructure.is_some());
    }
}
