//! Pools that are listed in a topology or a TanzuKubernetesCluster, as MachineDeployments with templates of their own.

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::api::{DynamicObject, ObjectMeta};
use kube::core::TypeMeta;
use millpond_api::capi::{Reference, Version, names};
use millpond_controllers::kinds::{CapiCluster, MachineDeployment};
use serde_json::{Value, json};

use super::super::infrastructure::shared::merge;
use super::super::{Capi, owner_reference, put};
use super::of_cluster;
use crate::error::{Error, Result};
use crate::meta::{Key, is_leaving, merge_diff};
use crate::name_generator::hash_name;

/// The template that machines of a pool are cloned from.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// Its group.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// `spec` of each clone.
    pub spec: Value,
}

/// A pool as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Its name in the list.
    pub name: String,
    /// How many machines; left to others without it.
    pub replicas: Option<i64>,
    /// Labels of the MachineDeployment and its Machines.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the MachineDeployment.
    pub annotations: BTreeMap<String, String>,
    /// More of the MachineDeployment's spec.
    pub spec: Value,
    /// The infrastructure.
    pub infrastructure: Template,
    /// The bootstrap configuration.
    pub bootstrap: Template,
}

/// Makes MachineDeployments of all pools, under a label that holds the name of the pool; those of pools that are no
/// longer listed go.
pub async fn ensure(capi: &Capi, cluster: &CapiCluster, pools: &[Pool], mark: &str) -> Result<()> {
    let known = of_cluster(&capi.deployments, cluster, |one: &MachineDeployment| &one.spec);
    let pool_of = |one: &MachineDeployment| one.labels().get(mark).cloned();
    for pool in pools {
        let spec = wanted(capi, cluster, pool, mark).await?;
        let found = known.iter().find(|one| !is_leaving(&***one) && pool_of(one).as_deref() == Some(&pool.name));
        match found {
            Some(deployment) => {
                if let Some(patch) = changes(deployment, pool, spec) {
                    capi.deployments.patch(&Key::of(&**deployment), &patch).await?;
                }
            }
            None => create(capi, cluster, pool, mark, spec).await?,
        }
    }
    for deployment in known.iter().filter(|one| !is_leaving(&***one)) {
        if pool_of(deployment).is_some_and(|name| !pools.iter().any(|pool| pool.name == name)) {
            capi.deployments.delete(deployment, None).await?;
        }
    }
    Ok(())
}

/// The spec of a pool's MachineDeployment, which refers to existing templates.
async fn wanted(capi: &Capi, cluster: &CapiCluster, pool: &Pool, mark: &str) -> Result<Value> {
    let name = cluster.name_any();
    let labels = machine_labels(pool, &name, mark);
    let mut spec = json!({
        "clusterName": name,
        "selector": {"matchLabels": {names::CLUSTER_NAME: name, mark: pool.name}},
        "template": {"metadata": {"labels": labels}, "spec": {"clusterName": name}},
    });
    merge(&mut spec, &pool.spec);
    if let Some(replicas) = pool.replicas {
        spec["replicas"] = json!(replicas);
    }
    let infrastructure = template(capi, cluster, pool, &pool.infrastructure).await?;
    let bootstrap = template(capi, cluster, pool, &pool.bootstrap).await?;
    put(&mut spec, &["template", "spec", "infrastructureRef"], infrastructure);
    put(&mut spec, &["template", "spec", "bootstrap", "configRef"], bootstrap);
    Ok(spec)
}

fn machine_labels(pool: &Pool, cluster: &str, mark: &str) -> BTreeMap<String, String> {
    let mut labels = pool.labels.clone();
    labels.insert(names::CLUSTER_NAME.to_owned(), cluster.to_owned());
    labels.insert(mark.to_owned(), pool.name.clone());
    labels
}

/// Templates never change; one of other content has another name.
async fn template(capi: &Capi, cluster: &CapiCluster, pool: &Pool, template: &Template) -> Result<Value> {
    let externals = &capi.externals;
    let Some(resource) = externals.resource(&template.group, &template.kind).await? else {
        let problem =
            format!("pool `{}` needs {} of {}, which is not served", pool.name, template.kind, template.group);
        return Err(Error::Malformed { kind: "Cluster", key: Key::of(cluster), problem });
    };
    let hash = hash_name(format!("{}{}", template.kind, template.spec).as_bytes());
    let name = format!("{}-{}-{hash}", cluster.name_any(), pool.name);
    let namespace = cluster.namespace().unwrap_or_default();
    let reference = Reference {
        group: template.group.clone(),
        version: Some(resource.version.clone()),
        kind: template.kind.clone(),
        name: name.clone(),
        namespace: None,
    };
    if externals.read(&resource, &Key::new(&namespace, &name)).await?.is_none() {
        let object = DynamicObject {
            types: Some(TypeMeta { api_version: resource.api_version.clone(), kind: resource.kind.clone() }),
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace),
                labels: Some([(names::CLUSTER_NAME.to_owned(), cluster.name_any())].into()),
                owner_references: Some(vec![owner_reference(cluster, false)]),
                ..ObjectMeta::default()
            },
            data: json!({"spec": {"template": {"spec": template.spec}}}),
        };
        externals.create(&resource, &object).await?;
    }
    Ok(reference.write(Version::V1Beta2, &resource.version, ""))
}

async fn create(capi: &Capi, cluster: &CapiCluster, pool: &Pool, mark: &str, spec: Value) -> Result<()> {
    let name = cluster.name_any();
    let mut labels = machine_labels(pool, &name, mark);
    labels.insert(names::TOPOLOGY_OWNED.to_owned(), String::new());
    let metadata = ObjectMeta {
        name: Some(capi.cluster.names.generate(&format!("{name}-{}-", pool.name))),
        namespace: cluster.namespace(),
        labels: Some(labels),
        annotations: (!pool.annotations.is_empty()).then(|| pool.annotations.clone()),
        owner_references: Some(vec![owner_reference(cluster, false)]),
        ..ObjectMeta::default()
    };
    capi.deployments.create(&MachineDeployment::new(metadata, spec)).await.map(drop)
}

fn changes(deployment: &MachineDeployment, pool: &Pool, wanted: Value) -> Option<Value> {
    let mut spec = deployment.spec.clone();
    let labels = wanted["template"]["metadata"]["labels"].clone();
    merge(&mut spec, &wanted);
    // Labels that a pool lost are lost by its machines.
    let mut kept = labels;
    for key in [names::DEPLOYMENT_NAME] {
        if let Some(value) = deployment.spec["template"]["metadata"]["labels"].get(key) {
            kept[key] = value.clone();
        }
    }
    put(&mut spec, &["template", "metadata", "labels"], kept);
    let mut patch = json!({});
    if let Some(changes) = merge_diff(&deployment.spec, &spec) {
        patch["spec"] = changes;
    }
    for (key, known, wanted) in
        [("labels", deployment.labels(), &pool.labels), ("annotations", deployment.annotations(), &pool.annotations)]
    {
        let news: BTreeMap<_, _> = wanted.iter().filter(|(name, value)| known.get(*name) != Some(*value)).collect();
        if !news.is_empty() {
            patch["metadata"][key] = json!(news);
        }
    }
    patch.as_object().is_some_and(|patch| !patch.is_empty()).then_some(patch)
}
