//! Machines: what each needs is found and taken over, its Node is found by the provider's id, and at its end the
//! Node is drained before the machine goes.

pub mod deletion;
pub mod drain;
pub mod node;
pub mod status;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use millpond_api::capi::{self, Bootstrap, Machine as View, Reference, names};
use millpond_controllers::kinds::{CapiCluster, Machine, MachineDeployment, MachineSet};
use serde_json::{Map, Value, json};

use super::deployment::sets::{created, revision};
use super::externals::External;
use super::machine_set::status::paused;
use super::{Capi, is_paused, is_provisioned, owner_key, owner_reference, put, template, text, with_owner, without};
use crate::error::Result;
use crate::events::EventReason;
use crate::meta::{Key, is_leaving, node_name, status_patch};
use crate::queue::Queue;
use crate::worker::Reconcile;
use deletion::Step;
use status::{Facts, Need, Stage};

const COMPONENT: &str = "machine-controller";
/// Finalizer that keeps a Machine until its infrastructure is gone.
pub const FINALIZER: &str = "machine.cluster.x-k8s.io";

/// The Machine controller.
pub struct Machines {
    capi: Arc<Capi>,
}

/// The objects that belong to a Machine.
struct OwnedObjects {
    cluster: Option<Arc<CapiCluster>>,
    set: Option<Arc<MachineSet>>,
    deployment: Option<Arc<MachineDeployment>>,
    bootstrap: Part,
    infrastructure: Part,
}

/// An object that a Machine refers to.
enum Part {
    /// The Machine refers to no object of its own.
    None,
    /// The referenced object does not exist.
    Absent(Reference),
    /// The referenced object exists.
    Found(Box<External>),
}

impl Part {
    fn found(&self) -> Option<&External> {
        match self {
            Self::Found(found) => Some(found),
            _ => None,
        }
    }

    fn need(&self) -> Need {
        match self {
            Self::None => Need::Given,
            Self::Absent(reference) => Need::Absent { kind: reference.kind.clone() },
            Self::Found(found) => {
                Need::There { kind: found.resource.kind.clone(), says: status::says_ready(found.at(&["status"])) }
            }
        }
    }
}

impl Machines {
    /// The controller, and the work queue that watches fill.
    pub fn new(capi: &Arc<Capi>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new());
        let own = Arc::clone(&queue);
        capi.machines.on_change(move |_, new| {
            if let Some(machine) = new {
                own.add(Key::of(&**machine));
            }
        });
        let (own, shared) = (Arc::clone(&queue), Arc::clone(capi));
        capi.cluster.nodes.on_change(move |old, new| {
            if let Some(machine) = new.or(old).and_then(|node| shared.machine_of(node)) {
                own.add(Key::of(&*machine));
            }
        });
        let own = Arc::clone(&queue);
        capi.externals.on_change(move |_, object| {
            if let Some(key) = owner_key(object, "Machine") {
                own.add(key);
            }
        });
        let (own, shared) = (Arc::clone(&queue), Arc::clone(capi));
        capi.deployments.on_change(move |old, new| {
            // A new template or revision changes what is up to date.
            let Some(deployment) = new.filter(|new| old.is_none_or(|old| is_rolled_out_anew(old, new))) else {
                return;
            };
            let sets = shared.sets.owned_by(&deployment.uid().unwrap_or_default());
            shared.machines_of(&sets).iter().for_each(|machine| own.add(Key::of(&**machine)));
        });
        let (own, shared) = (Arc::clone(&queue), Arc::clone(capi));
        capi.cluster.pods.on_change(move |old, new| {
            // A drain waits for pods to go.
            if let (Some(pod), None) = (old, new)
                && let Some(node) = node_name(pod).and_then(|name| shared.cluster.nodes.get(&Key::new("", name)))
                && let Some(machine) = shared.machine_of(&node).filter(|machine| is_leaving(&**machine))
            {
                own.add(Key::of(&*machine));
            }
        });
        capi.wake_with_cluster(&capi.machines, |machine| &machine.spec, &queue);
        (Arc::new(Self { capi: Arc::clone(capi) }), queue)
    }

    fn record_event(&self, machine: &Machine, reason: &'static str, note: String) {
        let event_reason = EventReason { component: COMPONENT, action: "Reconciling", reason, warning: false };
        self.capi.cluster.recorder.record(machine, event_reason, note);
    }

    async fn belongings(&self, machine: &Machine, view: &View) -> Result<OwnedObjects> {
        let namespace = machine.namespace().unwrap_or_default();
        let set = self.capi.set_of(machine);
        let deployment = set.as_ref().and_then(|set| self.capi.deployment_of(set));
        let config = match &view.spec.bootstrap {
            Bootstrap::Config(reference) if !is_shared(reference, set.as_deref()) => Some(reference),
            _ => None,
        };
        Ok(OwnedObjects {
            cluster: self.capi.cluster_of(&namespace, &machine.spec),
            set,
            deployment,
            bootstrap: self.part(config, machine).await?,
            infrastructure: self.part(view.spec.infrastructure.as_ref(), machine).await?,
        })
    }

    /// Finds what a Machine refers to, and makes the Machine its owner.
    async fn part(&self, reference: Option<&Reference>, machine: &Machine) -> Result<Part> {
        let Some(reference) = reference else { return Ok(Part::None) };
        let namespace = machine.namespace().unwrap_or_default();
        let Some(found) = self.capi.externals.get(reference, &namespace).await? else {
            return Ok(Part::Absent(reference.clone()));
        };
        match ownership(&found, machine) {
            Some(patch) => self.capi.externals.patch(&found, &patch).await.map(|found| Part::Found(Box::new(found))),
            None => Ok(Part::Found(Box::new(found))),
        }
    }

    /// Takes over what bootstrap and infrastructure report, and adds what every Machine has.
    async fn fill(&self, machine: Arc<Machine>, has: &OwnedObjects) -> Result<Arc<Machine>> {
        let mut spec = machine.spec.clone();
        if text(&spec, &["bootstrap", "dataSecretName"]).is_none() {
            let shared = matches!(View::of(&spec, &Value::Null).spec.bootstrap, Bootstrap::Config(_))
                && matches!(has.bootstrap, Part::None);
            let secret = match has.bootstrap.found() {
                Some(found) if is_ready(found, "dataSecretCreated") => text(found.at(&["status"]), &["dataSecretName"]),
                // Objects that all Machines of a set share are used as they are.
                None if shared => text(&machine.spec, &["bootstrap", "configRef", "name"]),
                _ => None,
            };
            if let Some(secret) = secret {
                put(&mut spec, &["bootstrap", "dataSecretName"], json!(secret));
            }
        }
        if let Some(found) = has.infrastructure.found().filter(|found| is_ready(found, "provisioned"))
            && let Some(id) = text(found.at(&["spec"]), &["providerID"])
        {
            put(&mut spec, &["providerID"], json!(id));
        }
        let mut metadata = Map::new();
        let finalizers = machine.metadata.finalizers.clone().unwrap_or_default();
        if !is_leaving(&*machine) && !finalizers.iter().any(|known| known == FINALIZER) {
            let all: Vec<String> = finalizers.into_iter().chain([FINALIZER.to_owned()]).collect();
            metadata.insert("finalizers".to_owned(), json!(all));
        }
        if let Some(cluster) = &has.cluster {
            let name = cluster.name_any();
            if machine.labels().get(names::CLUSTER_NAME) != Some(&name) {
                metadata.insert("labels".to_owned(), json!({names::CLUSTER_NAME: name}));
            }
            if has.set.is_none()
                && let Some(owners) =
                    with_owner(machine.metadata.owner_references.as_deref(), owner_reference(&**cluster, false))
            {
                metadata.insert("ownerReferences".to_owned(), json!(owners));
            }
        }
        let changes = crate::meta::merge_diff(&machine.spec, &spec);
        if metadata.is_empty() && changes.is_none() {
            return Ok(machine);
        }
        metadata.insert("resourceVersion".to_owned(), json!(machine.metadata.resource_version));
        let patch = json!({"metadata": metadata, "spec": changes.unwrap_or_else(|| json!({}))});
        self.capi.machines.patch(&Key::of(&*machine), &patch).await
    }

    /// Brings the Node in line with its Machine.
    async fn sync_node(&self, machine: &Machine, node: &Node, has: &OwnedObjects) -> Result<()> {
        if is_leaving(node) {
            return Ok(());
        }
        let outdated = match (&has.set, &has.deployment) {
            (Some(set), Some(deployment)) => revision(&**set) < revision(&**deployment),
            _ => false,
        };
        match node::sync(node, machine, outdated) {
            Some(patch) => self.capi.cluster.nodes.patch(&Key::of(node), &patch).await.map(drop),
            None => Ok(()),
        }
    }

    /// Why a Machine is not what its MachineDeployment asks for; `None` without one.
    fn outdated(&self, has: &OwnedObjects) -> Option<Vec<String>> {
        let (set, deployment) = (has.set.as_ref()?, has.deployment.as_ref()?);
        let wanted = capi::Deployment::of(&deployment.spec);
        let mut found = template::differences(&capi::MachineSet::of(&set.spec).template, &wanted.template);
        let after = wanted.rollout_after.and_then(|after| jiff::Timestamp::from_second(after.0).ok());
        if after.is_some_and(|after| after <= self.capi.cluster.clock.now() && created(set) < after) {
            found.push("MachineDeployment spec.rolloutAfter expired".to_owned());
        }
        Some(found)
    }

    /// Writes the status if it differs; returns when it changes without an event.
    async fn write_status(
        &self,
        key: &Key,
        has: &OwnedObjects,
        stage: Option<Stage>,
        deletion: Option<Value>,
    ) -> Result<Option<Duration>> {
        let Some(machine) = self.capi.machines.get(key) else { return Ok(None) };
        let node = text(&machine.spec, &["providerID"]).and_then(|id| self.capi.node_of(id));
        let facts = Facts {
            machine: &machine,
            bootstrap: has.bootstrap.need(),
            infrastructure: has.infrastructure.need(),
            addresses: has
                .infrastructure
                .found()
                .map(|found| found.at(&["status", "addresses"]).clone())
                .unwrap_or_default(),
            node: node.as_deref(),
            cluster_ready: has.cluster.as_ref().is_some_and(|cluster| is_provisioned(cluster)),
            stage,
            outdated: self.outdated(has),
            now: self.capi.cluster.clock.time(),
        };
        let (mut status, again) = status::compute(&facts);
        if let Some(deletion) = deletion {
            status["deletion"] = deletion;
        }
        if text(&machine.status, &["nodeRef", "name"]).is_none()
            && let Some(name) = text(&status, &["nodeRef", "name"])
        {
            self.record_event(&machine, "SuccessfulSetNodeRef", name.to_owned());
        }
        if let Some(patch) = status_patch(&*machine, Some(&machine.status), &status) {
            self.capi.machines.patch_status(key, &patch).await?;
        }
        Ok(again)
    }

    async fn live(&self, machine: Arc<Machine>, has: &OwnedObjects) -> Result<Option<Duration>> {
        let key = Key::of(&*machine);
        let machine = self.fill(machine, has).await?;
        if let Some(node) = text(&machine.spec, &["providerID"]).and_then(|id| self.capi.node_of(id)) {
            self.sync_node(&machine, &node, has).await?;
        }
        self.write_status(&key, has, None, None).await
    }

    async fn leave(&self, machine: Arc<Machine>, has: &OwnedObjects) -> Result<Option<Duration>> {
        let key = Key::of(&*machine);
        let machine = self.fill(machine, has).await?;
        let (step, deletion) = self.reconcile_delete(&machine, has).await?;
        match step {
            Step::Wait(stage, again) => {
                let changes = self.write_status(&key, has, Some(stage), deletion).await?;
                Ok([again, changes].into_iter().flatten().min())
            }
            Step::Done => {
                let Some(machine) = self.capi.machines.get(&key) else { return Ok(None) };
                let finalizers = without(machine.metadata.finalizers.as_deref(), FINALIZER);
                let patch = json!({"metadata": {
                    "resourceVersion": machine.metadata.resource_version, "finalizers": finalizers,
                }});
                self.capi.machines.patch(&key, &patch).await.map(|_| None)
            }
        }
    }

    async fn pause(&self, machine: &Machine) -> Result<()> {
        let status = paused(&machine.status, machine.metadata.generation, &self.capi.cluster.clock.time());
        if let Some(patch) = status_patch(machine, Some(&machine.status), &status) {
            self.capi.machines.patch_status(&Key::of(machine), &patch).await?;
        }
        Ok(())
    }
}

impl Reconcile for Machines {
    const NAME: &'static str = COMPONENT;

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(machine) = self.capi.machines.get(key) else { return Ok(None) };
        let cluster = self.capi.cluster_of(&key.namespace, &machine.spec);
        if cluster.as_ref().is_some_and(|cluster| is_paused(cluster, &*machine)) {
            return self.pause(&machine).await.map(|()| None);
        }
        let view = View::of(&machine.spec, &machine.status);
        let has = self.belongings(&machine, &view).await?;
        if is_leaving(&*machine) {
            return self.leave(machine, &has).await;
        }
        // Without its Cluster nothing happens to it; it is looked at again when that comes.
        if cluster.is_none() { Ok(None) } else { self.live(machine, &has).await }
    }
}

/// Whether a bootstrap reference is one that all Machines of a set share: it was not made for one of them.
fn is_shared(reference: &Reference, set: Option<&MachineSet>) -> bool {
    let of_set = set.map(|set| capi::MachineSet::of(&set.spec).template.bootstrap);
    matches!(of_set, Some(Bootstrap::Config(shared))
        if shared.is(&reference.group, &reference.kind, &reference.name))
}

/// Whether an object reports that it has done its part, in the words of either version of the contract.
fn is_ready(found: &External, initialization: &str) -> bool {
    !found.is_leaving() && (found.is(&["status", "initialization", initialization]) || found.is(&["status", "ready"]))
}

/// The patch that makes a Machine the owner of what was made for it; `None` when it is.
fn ownership(found: &External, machine: &Machine) -> Option<Value> {
    let meta = &found.object.metadata;
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    let others: Vec<_> = owners.iter().filter(|owner| owner.kind != "MachineSet").cloned().collect();
    let changed = with_owner(Some(&others), owner_reference(machine, true));
    let cluster = text(&machine.spec, &["clusterName"]).unwrap_or_default();
    let labelled = found.object.labels().get(names::CLUSTER_NAME).map(String::as_str) == Some(cluster);
    if others.len() == owners.len() && changed.is_none() && labelled {
        return None;
    }
    Some(json!({"metadata": {
        "resourceVersion": meta.resource_version,
        "ownerReferences": changed.unwrap_or(others),
        "labels": {names::CLUSTER_NAME: cluster},
    }}))
}

fn is_rolled_out_anew(old: &MachineDeployment, new: &MachineDeployment) -> bool {
    old.spec["template"] != new.spec["template"] || revision(old) != revision(new)
}
