//! Reads a Cluster and all objects that its pools consist of.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::discovery::ApiGroup;
use kube::{Api, Client};
use millpond_api::capi::{Bootstrap, Deployment, MachineSet as SetView, Reference, Version, names};
use millpond_api::spelling::nearest;
use serde::Serialize;
use serde_json::Value;

use super::{Current, MADE_FOR, Path, RejectedChange, name_of};
use crate::capi::client::Connection;
use crate::kinds::{CapiCluster, Machine, MachineDeployment, MachineSet};

/// API group of TanzuKubernetesClusters.
const TANZU: &str = "run.tanzu.vmware.com";

/// Why pools cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// A request failed.
    #[error("cannot {doing}")]
    Api {
        /// The operation that failed.
        doing: String,
        /// The error returned.
        #[source]
        source: kube::Error,
    },
    /// The cluster does not exist.
    #[error("there is no cluster `{name}` in namespace `{namespace}`")]
    NoCluster {
        /// Its name.
        name: String,
        /// The namespace that was searched.
        namespace: String,
        /// Clusters that the user may mean.
        hint: String,
    },
    /// The plan was rejected.
    #[error("{}", joined(.0))]
    Refused(Vec<RejectedChange>),
    /// Every write conflicted with another writer of the same objects.
    #[error("{0} was changed by another writer again and again")]
    Conflict(String),
    /// The objects changed since the plan was made, and what would be done now is not what was agreed to.
    #[error("{} was changed meanwhile, and what would be done now is not what was shown", .0.object)]
    Differs(Box<super::ChangePlan>),
    /// Objects created before a failure could not be deleted.
    #[error("{problem}; these were made and could not be removed: {}", left.join(", "))]
    LeftBehind {
        /// What failed.
        problem: String,
        /// The objects that are left.
        left: Vec<String>,
    },
    /// The operation exceeded its timeout.
    #[error("{0} is not gone in time")]
    Timeout(String),
}

fn joined(rejections: &[RejectedChange]) -> String {
    rejections.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

pub(super) fn doing(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> PoolError {
    let doing = doing.into();
    move |source| PoolError::Api { doing, source }
}

/// Kinds that are not known before: asked for once each.
#[derive(Default)]
pub(super) struct Kinds {
    groups: BTreeMap<String, Option<ApiGroup>>,
}

impl Kinds {
    /// The resource of a kind; `None` if the server does not serve it.
    pub(super) async fn resource(
        &mut self,
        client: &Client,
        group: &str,
        version: Option<&str>,
        kind: &str,
    ) -> Result<Option<ApiResource>, PoolError> {
        if !self.groups.contains_key(group) {
            let served = client.list_api_groups().await.map_err(doing("list the API groups"))?;
            let found = if served.groups.iter().any(|it| it.name == group) {
                Some(kube::discovery::group(client, group).await.map_err(doing(format!("look at `{group}`")))?)
            } else {
                None
            };
            self.groups.insert(group.to_owned(), found);
        }
        let Some(Some(found)) = self.groups.get(group) else { return Ok(None) };
        let of_version = version.and_then(|version| {
            found.versioned_resources(version).into_iter().map(|(resource, _)| resource).find(|it| it.kind == kind)
        });
        // Each kind in its own best version: not every kind of a group is in all of them.
        let of_kind = |(resource, _): (ApiResource, _)| (resource.kind == kind).then_some(resource);
        Ok(of_version.or_else(|| found.resources_by_stability().into_iter().find_map(of_kind)))
    }
}

/// Reads all objects of one cluster.
pub async fn fetch(connection: &Connection, namespace: &str, cluster: &str) -> Result<Current, PoolError> {
    let Connection { client, version } = connection;
    let mut kinds = Kinds::default();
    let object = Api::<CapiCluster>::namespaced(client.clone(), namespace).get_opt(cluster).await;
    let object = object.map_err(doing(format!("read Cluster `{cluster}`")))?.map(|it| raw(it, *version, "Cluster"));
    let tanzu = match kinds.resource(client, TANZU, None, "TanzuKubernetesCluster").await? {
        Some(resource) => dynamic(client, namespace, &resource, cluster).await?,
        None => None,
    };
    let (deployments, others) = deployments(connection, namespace, cluster).await?;
    if object.is_none() && tanzu.is_none() && deployments.is_empty() {
        return Err(no_cluster(connection, namespace, cluster, others).await);
    }
    let has_topology = object.as_ref().is_some_and(|it| it["spec"]["topology"].is_object());
    let path = match (tanzu.is_some(), has_topology) {
        (true, _) => Path::Tanzu,
        (false, true) => Path::Topology,
        (false, false) => Path::Plain,
    };
    let class = match &object {
        Some(object) if path == Path::Topology => class(connection, &mut kinds, namespace, object).await?,
        _ => None,
    };
    let sets = listed::<MachineSet>(connection, namespace, "MachineSet", cluster).await?;
    let machines = listed::<Machine>(connection, namespace, "Machine", cluster).await?;
    let templates = templates(client, &mut kinds, namespace, cluster, &deployments, &sets).await?;
    let (cluster, namespace) = (cluster.to_owned(), namespace.to_owned());
    Ok(Current {
        cluster,
        namespace,
        path,
        version: *version,
        object,
        tanzu,
        class,
        deployments,
        sets,
        machines,
        templates,
    })
}

/// MachineDeployments of a cluster, by name; and the names of other clusters.
async fn deployments(
    connection: &Connection,
    namespace: &str,
    cluster: &str,
) -> Result<(Vec<Value>, BTreeSet<String>), PoolError> {
    let api = Api::<MachineDeployment>::namespaced(connection.client.clone(), namespace);
    let list = api.list(&ListParams::default()).await.map_err(doing("list MachineDeployments"))?;
    let mut others = BTreeSet::new();
    let mut found: Vec<Value> = Vec::new();
    for deployment in list.items {
        let of = deployment.spec["clusterName"].as_str().unwrap_or_default().to_owned();
        if of == cluster {
            found.push(raw(deployment, connection.version, "MachineDeployment"));
        } else {
            others.insert(of);
        }
    }
    found.sort_by(|one, other| name_of(one).cmp(name_of(other)));
    Ok((found, others))
}

async fn listed<K>(connection: &Connection, namespace: &str, kind: &str, cluster: &str) -> Result<Vec<Value>, PoolError>
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Serialize,
{
    let api = Api::<K>::namespaced(connection.client.clone(), namespace);
    let list = api.list(&ListParams::default()).await.map_err(doing(format!("list {kind}s")))?;
    let values = list.items.into_iter().map(|it| raw(it, connection.version, kind));
    Ok(values.filter(|it| it["spec"]["clusterName"] == cluster).collect())
}

/// An object as it is on the wire, without what the server keeps for itself.
fn raw(object: impl Serialize, version: Version, kind: &str) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    value["apiVersion"] = version.api_version().into();
    value["kind"] = kind.into();
    without_managers(value)
}

fn without_managers(mut value: Value) -> Value {
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    value
}

pub(super) async fn dynamic(
    client: &Client,
    namespace: &str,
    resource: &ApiResource,
    name: &str,
) -> Result<Option<Value>, PoolError> {
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, resource);
    let found = api.get_opt(name).await.map_err(doing(format!("read {} `{name}`", resource.kind)))?;
    Ok(found.map(|object| of_dynamic(object, resource)))
}

fn of_dynamic(object: DynamicObject, resource: &ApiResource) -> Value {
    let mut value = without_managers(serde_json::to_value(object).unwrap_or_default());
    value["apiVersion"] = resource.api_version.as_str().into();
    value["kind"] = resource.kind.as_str().into();
    value
}

async fn class(
    connection: &Connection,
    kinds: &mut Kinds,
    namespace: &str,
    cluster: &Value,
) -> Result<Option<Value>, PoolError> {
    let topology = &cluster["spec"]["topology"];
    let reference = &topology["classRef"];
    let name = reference["name"].as_str().or_else(|| topology["class"].as_str()).unwrap_or_default();
    let of = reference["namespace"].as_str().or_else(|| topology["classNamespace"].as_str()).unwrap_or(namespace);
    let version = Some(connection.version.name());
    let resource = kinds.resource(&connection.client, millpond_api::capi::GROUP, version, "ClusterClass").await?;
    match resource {
        Some(resource) if !name.is_empty() => dynamic(&connection.client, of, &resource, name).await,
        _ => Ok(None),
    }
}

/// Templates that are named, and those that were made for pools of the cluster.
async fn templates(
    client: &Client,
    kinds: &mut Kinds,
    namespace: &str,
    cluster: &str,
    deployments: &[Value],
    sets: &[Value],
) -> Result<Vec<Value>, PoolError> {
    let named = named_templates(deployments, sets);
    let mut found: BTreeMap<(String, String), Value> = BTreeMap::new();
    let mut listed: BTreeSet<(String, String)> = BTreeSet::new();
    for reference in named {
        let version = reference.version.as_deref();
        let Some(resource) = kinds.resource(client, &reference.group, version, &reference.kind).await? else {
            continue;
        };
        if listed.insert((reference.group.clone(), reference.kind.clone())) {
            let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
            let made = ListParams::default().labels(&format!("{}={cluster},{MADE_FOR}", names::CLUSTER_NAME));
            let list = api.list(&made).await.map_err(doing(format!("list {}s", resource.kind)))?;
            for object in list.items {
                let value = of_dynamic(object, &resource);
                found.insert((resource.kind.clone(), name_of(&value).to_owned()), value);
            }
        }
        let key = (reference.kind.clone(), reference.name.clone());
        if !found.contains_key(&key)
            && let Some(value) = dynamic(client, namespace, &resource, &reference.name).await?
        {
            found.insert(key, value);
        }
    }
    Ok(found.into_values().collect())
}

/// Templates that MachineDeployments and MachineSets name.
pub(super) fn named_templates(deployments: &[Value], sets: &[Value]) -> BTreeSet<Reference> {
    let of_deployments = deployments.iter().map(|it| Deployment::of(&it["spec"]).template);
    let of_sets = sets.iter().map(|it| SetView::of(&it["spec"]).template);
    let mut named = BTreeSet::new();
    for template in of_deployments.chain(of_sets) {
        named.extend(template.infrastructure);
        if let Bootstrap::Config(reference) = template.bootstrap {
            named.insert(reference);
        }
    }
    named
}

async fn no_cluster(connection: &Connection, namespace: &str, name: &str, mut others: BTreeSet<String>) -> PoolError {
    let api = Api::<CapiCluster>::namespaced(connection.client.clone(), namespace);
    if let Ok(list) = api.list(&ListParams::default()).await {
        others.extend(list.items.iter().map(|it| it.name().to_owned()));
    }
    let hint = match nearest(name, others.iter().map(String::as_str)) {
        Some(like) => format!("did you mean `{like}`?"),
        None if others.is_empty() => format!("namespace `{namespace}` has no cluster; -n names another namespace"),
        None => format!("there are: {}", others.into_iter().collect::<Vec<_>>().join(", ")),
    };
    PoolError::NoCluster { name: name.to_owned(), namespace: namespace.to_owned(), hint }
}
