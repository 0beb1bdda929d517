//! Stand-in for the core of Cluster API: MachineDeployments become MachineSets, these Machines, and Machines Nodes.
//!
//! ```text
//!  TanzuKubernetesCluster ─┐
//!                          ├─▶ cluster ─▶ deployment ─▶ machine_set ─▶ machine ─── drain, node, status
//!  Cluster with a topology ┘              rollout        order, clone    │  ▲
//!                                                                        ▼  │ providerID, provisioned
//!                              health_check ─▶ marks Machines     infrastructure ─▶ Node objects ─▶ kubelet
//! ```
//!
//! The core ([`Part::ClusterApi`](crate::Part::ClusterApi)) does what Cluster API's own manager does, in the same
//! order and with the same words in status and conditions; a suite runs the same scenarios against both. The other
//! half ([`Part::Infrastructure`](crate::Part::Infrastructure)) plays the providers of bootstrap data and machines,
//! and serves beside the real manager as well.
//!
//! Where the real manager relies on its webhooks (defaults), the controllers here write the defaults themselves.
//! Deliberately absent: control planes (the API server that everything runs on is the control plane), in-place
//! updates, runtime extensions, drain rules, MachinePools, patches of ClusterClasses beyond the variables that
//! Tanzu's classes have.

pub mod bench_objects;
pub mod cluster;
pub mod conditions;
pub mod deployment;
pub mod externals;
pub mod health_check;
pub mod infrastructure;
pub mod machine;
pub mod machine_set;
pub mod template;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::DynamicObject;
use kube::{Resource, ResourceExt};
use millpond_api::capi::{self, names};
use millpond_controllers::kinds::{CapiCluster, Machine, MachineDeployment, MachineHealthCheck, MachineSet};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cluster::Cluster;
use crate::error::Result;
use crate::kinds::Kind;
use crate::meta::{Key, annotation, controller_of, is_leaving};
use crate::mirror::Mirror;
use crate::queue::Queue;
use externals::{External, Externals};

/// What the controllers of Cluster API share.
pub struct Capi {
    /// What all stand-ins share.
    pub cluster: Arc<Cluster>,
    /// Clusters.
    pub clusters: Arc<Mirror<CapiCluster>>,
    /// MachineDeployments.
    pub deployments: Arc<Mirror<MachineDeployment>>,
    /// MachineSets.
    pub sets: Arc<Mirror<MachineSet>>,
    /// Machines, also found by the id that their provider gave them.
    pub machines: Arc<Mirror<Machine>>,
    /// Health checks.
    pub health_checks: Arc<Mirror<MachineHealthCheck>>,
    /// The objects that they refer to.
    pub externals: Arc<Externals>,
}

impl Capi {
    /// Without watches, which start later.
    pub fn new(cluster: &Arc<Cluster>, tasks: &TaskTracker, token: &CancellationToken) -> Arc<Self> {
        let writer = &cluster.writer;
        let by_provider_id = |machine: &Machine| text(&machine.spec, &["providerID"]).map(str::to_owned);
        Arc::new(Self {
            cluster: Arc::clone(cluster),
            clusters: Arc::new(Mirror::new(writer.clone(), None)),
            deployments: Arc::new(Mirror::new(writer.clone(), None)),
            sets: Arc::new(Mirror::new(writer.clone(), None)),
            machines: Arc::new(Mirror::new(writer.clone(), Some(by_provider_id))),
            health_checks: Arc::new(Mirror::new(writer.clone(), None)),
            externals: Externals::new(cluster.client.clone(), tasks.clone(), token.clone()),
        })
    }

    /// The Cluster that an object names.
    fn cluster_of(&self, namespace: &str, spec: &Value) -> Option<Arc<CapiCluster>> {
        self.clusters.get(&Key::new(namespace, text(spec, &["clusterName"])?))
    }

    /// The Machine that a Node belongs to.
    fn machine_of(&self, node: &Node) -> Option<Arc<Machine>> {
        let provider_id = node.spec.as_ref()?.provider_id.as_deref()?;
        self.machines.indexed(provider_id).into_iter().next()
    }

    /// The Node of a provider's id.
    fn node_of(&self, provider_id: &str) -> Option<Arc<Node>> {
        self.cluster.nodes.indexed(provider_id).into_iter().next()
    }

    /// The MachineSet that controls a Machine.
    fn set_of(&self, machine: &Machine) -> Option<Arc<MachineSet>> {
        let owner = controller_of(machine).filter(|owner| owner.kind == "MachineSet")?;
        self.sets.get(&Key::new(&machine.namespace().unwrap_or_default(), &owner.name))
    }

    /// The MachineDeployment of a MachineSet.
    fn deployment_of(&self, set: &MachineSet) -> Option<Arc<MachineDeployment>> {
        let name = set.labels().get(names::DEPLOYMENT_NAME)?;
        self.deployments.get(&Key::new(&set.namespace().unwrap_or_default(), name))
    }

    /// The Machines of a MachineDeployment, through its sets.
    fn machines_of(&self, sets: &[Arc<MachineSet>]) -> Vec<Arc<Machine>> {
        sets.iter().flat_map(|set| self.machines.owned_by(&set.uid().unwrap_or_default())).collect()
    }

    /// Makes the Cluster an owner of a template, so that it goes with the Cluster.
    async fn give_to_cluster(&self, template: &External, cluster: &CapiCluster) -> Result<()> {
        let meta = &template.object.metadata;
        match with_owner(meta.owner_references.as_deref(), owner_reference(cluster, false)) {
            None => Ok(()),
            Some(owners) => {
                let patch = json!({"metadata": {"resourceVersion": meta.resource_version, "ownerReferences": owners}});
                self.externals.patch(template, &patch).await.map(drop)
            }
        }
    }

    /// A work queue of Clusters; a Cluster is added when it, or an object that belongs to it, changes.
    fn queue_of_clusters(&self) -> Arc<Queue<Key>> {
        let queue = Arc::new(Queue::new());
        let own = Arc::clone(&queue);
        self.clusters.on_change(move |_, new| {
            if let Some(cluster) = new {
                own.add(Key::of(&**cluster));
            }
        });
        let own = Arc::clone(&queue);
        self.externals.on_change(move |_, object| {
            if let Some(key) = owner_key(object, "Cluster") {
                own.add(key);
            }
        });
        queue
    }

    /// Wakes `queue` for all objects of a Cluster when that changes in a way that matters to them.
    fn wake_with_cluster<K: Kind>(&self, objects: &Arc<Mirror<K>>, spec: fn(&K) -> &Value, queue: &Arc<Queue<Key>>) {
        let (objects, queue) = (Arc::clone(objects), Arc::clone(queue));
        self.clusters.on_change(move |old, new| {
            let matters = |cluster: &Arc<CapiCluster>| {
                (is_paused_by_cluster(cluster), is_leaving(&**cluster), is_provisioned(cluster))
            };
            let Some(cluster) = new.filter(|new| old.is_none_or(|old| matters(old) != matters(new))) else {
                return;
            };
            let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
            for object in objects.list_in(&namespace) {
                if text(spec(&object), &["clusterName"]) == Some(name.as_str()) {
                    queue.add(Key::of(&*object));
                }
            }
        });
    }
}

fn is_paused_by_cluster(cluster: &CapiCluster) -> bool {
    capi::Cluster::of(&cluster.spec).paused
}

/// Whether the infrastructure that all Machines of a Cluster share is there.
fn is_provisioned(cluster: &CapiCluster) -> bool {
    at(&cluster.status, &["initialization", "infrastructureProvisioned"]).as_bool().unwrap_or(false)
}

/// Whether an object is to be left alone.
fn is_paused<K: Resource>(cluster: &CapiCluster, object: &K) -> bool {
    is_paused_by_cluster(cluster) || annotation(object, names::PAUSED).is_some()
}

/// The owners of an object with one more; `None` when it is there already.
fn with_owner(owners: Option<&[OwnerReference]>, owner: OwnerReference) -> Option<Vec<OwnerReference>> {
    let owners = owners.unwrap_or_default();
    if owners.iter().any(|known| known.uid == owner.uid && known.controller == owner.controller) {
        return None;
    }
    let mut all: Vec<OwnerReference> = owners.iter().filter(|known| known.uid != owner.uid).cloned().collect();
    all.push(owner);
    Some(all)
}

/// The reference that makes `owner` an owner of something.
fn owner_reference<K: Resource<DynamicType = ()>>(owner: &K, controller: bool) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: controller.then_some(true),
        block_owner_deletion: controller.then_some(true),
    }
}

/// The key of the owner of a kind, if an object has one.
fn owner_key(object: &DynamicObject, kind: &str) -> Option<Key> {
    let owner = object.metadata.owner_references.iter().flatten().find(|owner| owner.kind == kind)?;
    owner.api_version.starts_with(capi::GROUP).then(|| Key::new(&object.namespace().unwrap_or_default(), &owner.name))
}

/// A value within another; null when it is not there.
fn at<'v>(value: &'v Value, path: &[&str]) -> &'v Value {
    static NOTHING: Value = Value::Null;
    path.iter().try_fold(value, |value, key| value.get(key)).unwrap_or(&NOTHING)
}

/// The text at a path, unless it is empty.
fn text<'v>(value: &'v Value, path: &[&str]) -> Option<&'v str> {
    at(value, path).as_str().filter(|text| !text.is_empty())
}

/// A whole number within a value.
fn number(value: &Value, path: &[&str]) -> Option<i64> {
    at(value, path).as_i64()
}

/// Sets a value within another, making objects on the way.
fn put(value: &mut Value, path: &[&str], new: Value) {
    let Some((last, way)) = path.split_last() else { return };
    let mut place = value;
    for key in way {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[*key];
    }
    if !place.is_object() {
        *place = json!({});
    }
    place[*last] = new;
}

/// Removes a finalizer from a list.
fn without(finalizers: Option<&[String]>, finalizer: &str) -> Vec<String> {
    finalizers.unwrap_or_default().iter().filter(|known| *known != finalizer).cloned().collect()
}
