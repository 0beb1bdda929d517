//! The pools of a Cluster's topology: what its ClusterClass has for each class, changed by variables.

use std::collections::BTreeMap;

use kube::ResourceExt;
use millpond_api::capi::{self, Problems, Reference, Topology, TopologyPool, names};
use millpond_controllers::kinds::CapiCluster;
use serde_json::{Value, json};

use super::super::externals::External;
use super::super::{Capi, at, put};
use super::classes;
use super::pools::{self, Pool, Template};
use crate::error::Result;

/// Fields of a topology's pool that are fields of a MachineDeployment, and where they are there.
const CARRIED: [(&str, &[&str]); 6] = [
    ("rollout", &["rollout"]),
    ("strategy", &["strategy"]),
    ("deletion", &["deletion"]),
    ("minReadySeconds", &["template", "spec", "minReadySeconds"]),
    ("readinessGates", &["template", "spec", "readinessGates"]),
    ("taints", &["template", "spec", "taints"]),
];

/// Makes the MachineDeployments of a topology what it asks for.
pub async fn reconcile(capi: &Capi, cluster: &CapiCluster, topology: &Topology) -> Result<()> {
    let namespace = cluster.namespace().unwrap_or_default();
    let class = Reference {
        group: capi::GROUP.to_owned(),
        kind: "ClusterClass".to_owned(),
        name: topology.class.clone(),
        ..Reference::default()
    };
    let class = capi.externals.get(&class, &namespace).await?;
    let mut wanted = Vec::new();
    for pool in &topology.pools {
        let bases = Bases::find(capi, class.as_ref(), pool, &namespace).await?;
        wanted.push(lower(topology, pool, bases));
    }
    pools::ensure(capi, cluster, &wanted, names::TOPOLOGY_DEPLOYMENT).await
}

/// The templates that a class has for a pool. Without a class, those of a plain vSphere worker.
struct Bases {
    infrastructure: Template,
    bootstrap: Template,
}

impl Bases {
    async fn find(capi: &Capi, class: Option<&External>, pool: &TopologyPool, namespace: &str) -> Result<Self> {
        let classes = class.map(|class| class.at(&["spec", "workers", "machineDeployments"]));
        let entry = classes.and_then(|all| all.as_array()?.iter().find(|one| one["class"] == pool.class.as_str()));
        let mut bases = Self::plain();
        let Some(entry) = entry else { return Ok(bases) };
        for (part, base) in [("infrastructure", &mut bases.infrastructure), ("bootstrap", &mut bases.bootstrap)] {
            // v1beta2 has the reference beside the class, v1beta1 within its template.
            let written = [at(entry, &[part, "templateRef"]), at(entry, &["template", part, "ref"])];
            let Some(written) = written.into_iter().find(|written| !written.is_null()) else { continue };
            let Some(reference) = Reference::read(written, part, &Problems::new()) else { continue };
            base.group.clone_from(&reference.group);
            base.kind.clone_from(&reference.kind);
            let namespace = reference.namespace.as_deref().unwrap_or(namespace);
            base.spec = match capi.externals.get(&reference, namespace).await? {
                Some(found) if found.at(&["spec", "template", "spec"]).is_object() => {
                    found.at(&["spec", "template", "spec"]).clone()
                }
                _ => json!({}),
            };
        }
        Ok(bases)
    }

    fn plain() -> Self {
        let template = |group: &str, kind: &str| Template {
            group: format!("{group}.cluster.x-k8s.io"),
            kind: kind.to_owned(),
            spec: json!({}),
        };
        Self {
            infrastructure: template("infrastructure", "VSphereMachineTemplate"),
            bootstrap: template("bootstrap", "KubeadmConfigTemplate"),
        }
    }
}

fn lower(topology: &Topology, pool: &TopologyPool, bases: Bases) -> Pool {
    let mut variables: BTreeMap<String, Value> = topology.variables.clone();
    variables.extend(pool.overrides.clone());
    let Bases { mut infrastructure, mut bootstrap } = bases;
    classes::set_machine(&mut infrastructure.spec, &variables);
    classes::set_bootstrap(&mut bootstrap.spec, &variables);
    let mut spec = json!({});
    for (field, path) in CARRIED {
        let value = at(&pool.raw, &[field]);
        if !value.is_null() {
            put(&mut spec, path, value.clone());
        }
    }
    if !topology.version.is_empty() {
        put(&mut spec, &["template", "spec", "version"], json!(topology.version));
    }
    if let Some(domain) = &pool.failure_domain {
        put(&mut spec, &["template", "spec", "failureDomain"], json!(domain));
    }
    Pool {
        name: pool.name.clone(),
        replicas: pool.replicas,
        labels: pool.labels.clone(),
        annotations: pool.annotations.clone(),
        spec,
        infrastructure,
        bootstrap,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_win_over_variables() {
        let spec = json!({"topology": {
            "classRef": {"name": "tkg"}, "version": "v1.34.1",
            "variables": [{"name": "worker", "value": {"machine": {"numCPUs": 2}}}],
            "workers": {"machineDeployments": [{
                "name": "gpu", "class": "tkg-worker", "replicas": 2, "failureDomain": "z1",
                "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
                "variables": {"overrides": [{"name": "worker", "value": {"machine": {"numCPUs": 8}}}]},
                "deletion": {"order": "Oldest"}, "minReadySeconds": 5,
            }]},
        }});
        let cluster = capi::Cluster::of(&spec);
        let topology = cluster.topology.expect("a topology");
        let pool = lower(&topology, &topology.pools[0], Bases::plain());
        assert_eq!((pool.name.as_str(), pool.replicas), ("gpu", Some(2)));
        assert_eq!(pool.infrastructure.spec, json!({"numCPUs": 8}));
        assert_eq!(
            pool.spec,
            json!({
                "deletion": {"order": "Oldest"},
                "template": {"spec": {"minReadySeconds": 5, "version": "v1.34.1", "failureDomain": "z1"}},
            })
        );
        assert_eq!((pool.labels["a"].as_str(), pool.annotations["c"].as_str()), ("b", "d"));
    }
}
