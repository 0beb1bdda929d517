//! Providers of infrastructure and bootstrap data, played: an infrastructure object boots for a while, is given an
//! id, and a Node with that id appears; when the object is deleted, the Node goes and then the object.
//!
//! This part keeps the contract between Cluster API and its providers in both of its versions. It works with the
//! stand-in of the core and with Cluster API's own manager.

pub mod bootstrap;
pub mod node;
pub mod shared;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use millpond_api::capi::{Bootstrap, Machine as View};
use millpond_controllers::kinds::Machine;
use serde_json::json;

use super::externals::External;
use super::{Capi, is_provisioned, owner_key, text, without};
use crate::error::Result;
use crate::meta::{Key, annotation, is_leaving};
use crate::options::Providers;
use crate::queue::Queue;
use crate::worker::Reconcile;

/// Keeps an infrastructure object until its machine is gone.
const FINALIZER: &str = "sim.millpond.dev/infrastructure";
/// On a Machine, or the template of Machines: the machine never boots, for this reason (annotation).
pub const FAILS: &str = "sim.millpond.dev/machine-fails";
/// On a Machine, or the template of Machines: how long it takes to boot, such as `30s` (annotation).
pub const BOOTS_AFTER: &str = "sim.millpond.dev/boot-after";
/// On a Machine, the template of Machines, or the clone of an infrastructure template: the machine's real resources,
/// such as `cpu=8,memory=32Gi,nvidia.com/gpu=1` (annotation). No other object of own hosts contains them.
pub const OFFERS: &str = "sim.millpond.dev/machine-offers";

/// Plays providers, Machine by Machine.
pub struct Infrastructure {
    capi: Arc<Capi>,
}

/// Whether a kind is played here.
pub fn is_played(providers: &Providers, kind: &str) -> bool {
    match providers {
        Providers::All => true,
        Providers::Only(kinds) => kinds.iter().any(|known| known == kind),
        Providers::AllBut(kinds) => !kinds.iter().any(|known| known == kind),
    }
}

impl Infrastructure {
    /// The providers, and the work queue that watches fill.
    pub fn new(capi: &Arc<Capi>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new());
        let own = Arc::clone(&queue);
        capi.machines.on_change(move |_, new| {
            if let Some(machine) = new {
                own.add(Key::of(&**machine));
            }
        });
        let own = Arc::clone(&queue);
        capi.externals.on_change(move |_, object| {
            if let Some(key) = owner_key(object, "Machine") {
                own.add(key);
            }
        });
        capi.wake_with_cluster(&capi.machines, |machine| &machine.spec, &queue);
        (Arc::new(Self { capi: Arc::clone(capi) }), queue)
    }

    fn plays(&self, kind: &str) -> bool {
        is_played(&self.capi.cluster.options.providers, kind)
    }

    /// Makes the data that a machine starts with.
    async fn bootstrap(&self, machine: &Machine, view: &View) -> Result<()> {
        let Bootstrap::Config(reference) = &view.spec.bootstrap else { return Ok(()) };
        if text(&machine.spec, &["bootstrap", "dataSecretName"]).is_some() || !self.plays(&reference.kind) {
            return Ok(());
        }
        let namespace = machine.namespace().unwrap_or_default();
        let Some(config) = self.capi.externals.get(reference, &namespace).await? else { return Ok(()) };
        // A configuration that was cloned for this Machine belongs to it; any other is shared and has no data of its
        // own.
        let is_own = owner_key(&config.object, "Machine") == Some(Key::of(machine));
        if !is_own || config.is_leaving() || config.is(&["status", "initialization", "dataSecretCreated"]) {
            return Ok(());
        }
        bootstrap::make_data(&self.capi, &config, machine).await
    }

    /// Ends a machine: its Node first, as if it stopped answering and was taken off the list.
    async fn terminate(&self, infrastructure: &External) -> Result<()> {
        if let Some(id) = text(infrastructure.at(&["spec"]), &["providerID"])
            && let Some(node) = self.capi.node_of(id)
        {
            self.capi.cluster.nodes.delete(&node, None).await?;
        }
        let finalizers = without(infrastructure.object.metadata.finalizers.as_deref(), FINALIZER);
        if finalizers.len() < infrastructure.object.finalizers().len() {
            let patch = json!({"metadata": {
                "resourceVersion": infrastructure.object.resource_version(), "finalizers": finalizers,
            }});
            match self.capi.externals.patch(infrastructure, &patch).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    async fn hold(&self, infrastructure: External) -> Result<External> {
        if infrastructure.object.finalizers().iter().any(|known| known == FINALIZER) {
            return Ok(infrastructure);
        }
        let mut finalizers = infrastructure.object.finalizers().to_vec();
        finalizers.push(FINALIZER.to_owned());
        let patch = json!({"metadata": {
            "resourceVersion": infrastructure.object.resource_version(), "finalizers": finalizers,
        }});
        self.capi.externals.patch(&infrastructure, &patch).await
    }

    /// How long a machine still boots.
    fn boots_for(&self, machine: &Machine, infrastructure: &External) -> Duration {
        let own = annotation(machine, BOOTS_AFTER).and_then(crate::kubelet::durations::parse);
        let boot = own.unwrap_or(self.capi.cluster.options.machine_boot);
        let begun = infrastructure.object.creation_timestamp().map_or(Timestamp::MIN, |time| time.0);
        let due = begun.saturating_add(SignedDuration::try_from(boot).unwrap_or(SignedDuration::MAX));
        self.capi.cluster.clock.until(due.unwrap_or(Timestamp::MAX))
    }

    async fn fail(&self, infrastructure: &External, why: &str) -> Result<()> {
        if infrastructure.at(&["status", "failureMessage"]) == why {
            return Ok(());
        }
        let ready = json!([{
            "type": "Ready", "status": "False", "reason": "ProvisioningFailed", "message": why,
            "lastTransitionTime": self.capi.cluster.clock.time(),
        }]);
        let patch = json!({"status": {"failureReason": "CreateError", "failureMessage": why, "conditions": ready}});
        self.capi.externals.patch_status(infrastructure, &patch).await.map(drop)
    }

    /// Reports the machine, and makes its Node.
    async fn provision(&self, machine: &Machine, view: &View, infrastructure: External) -> Result<()> {
        let infrastructure = match text(infrastructure.at(&["spec"]), &["providerID"]) {
            Some(_) => infrastructure,
            None => {
                let id = provider_id(&infrastructure);
                self.capi.externals.patch(&infrastructure, &json!({"spec": {"providerID": id}})).await?
            }
        };
        let id = text(infrastructure.at(&["spec"]), &["providerID"]).unwrap_or_default().to_owned();
        // Only once: a Node that a user deleted is not created again.
        if infrastructure.is(&["status", "initialization", "provisioned"]) {
            return Ok(());
        }
        if self.capi.node_of(&id).is_none() {
            let made = self.node(machine, view, &infrastructure, &id).await?;
            match self.capi.cluster.nodes.create(&made).await {
                Err(error) if !error.is_already_exists() => return Err(error),
                _ => {}
            }
        }
        let addresses = json!([{"type": "Hostname", "address": machine.name_any()}]);
        let patch = json!({"status": {
            "initialization": {"provisioned": true}, "ready": true, "addresses": addresses,
        }});
        self.capi.externals.patch_status(&infrastructure, &patch).await.map(drop)
    }

    async fn node(
        &self,
        machine: &Machine,
        view: &View,
        infrastructure: &External,
        id: &str,
    ) -> Result<k8s_openapi::api::core::v1::Node> {
        let namespace = machine.namespace().unwrap_or_default();
        let bootstrap = match &view.spec.bootstrap {
            Bootstrap::Config(reference) => self.capi.externals.get(reference, &namespace).await?,
            _ => None,
        };
        let set = self.capi.set_of(machine);
        let sources = node::Sources {
            machine,
            set: set.as_deref(),
            infrastructure: infrastructure.at(&["spec"]),
            bootstrap: bootstrap.as_ref().map(|found| found.at(&["spec"])),
            // Annotations of the Machine are copied to what is made for it.
            offers: annotation(&infrastructure.object, OFFERS),
        };
        Ok(node::make(&sources, id))
    }
}

impl Reconcile for Infrastructure {
    const NAME: &'static str = "infrastructure";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(machine) = self.capi.machines.get(key) else { return Ok(None) };
        let view = View::of(&machine.spec, &machine.status);
        if !is_leaving(&*machine) {
            self.bootstrap(&machine, &view).await?;
        }
        let Some(reference) = view.spec.infrastructure.as_ref().filter(|it| self.plays(&it.kind)) else {
            return Ok(None);
        };
        let Some(infrastructure) = self.capi.externals.get(reference, &key.namespace).await? else { return Ok(None) };
        if infrastructure.is_leaving() {
            return self.terminate(&infrastructure).await.map(|()| None);
        }
        let cluster = self.capi.cluster_of(&key.namespace, &machine.spec);
        let can_start = text(&machine.spec, &["bootstrap", "dataSecretName"]).is_some()
            && cluster.is_some_and(|cluster| is_provisioned(&cluster));
        if is_leaving(&*machine) || owner_key(&infrastructure.object, "Machine").is_none() || !can_start {
            return Ok(None);
        }
        let infrastructure = self.hold(infrastructure).await?;
        if let Some(why) = annotation(&*machine, FAILS) {
            return self.fail(&infrastructure, why).await.map(|()| None);
        }
        let left = self.boots_for(&machine, &infrastructure);
        if !left.is_zero() {
            return Ok(Some(left));
        }
        self.provision(&machine, &view, infrastructure).await.map(|()| None)
    }
}

/// The id of a machine, in the form of its provider.
fn provider_id(infrastructure: &External) -> String {
    let uid = infrastructure.object.uid().unwrap_or_default();
    let scheme = match infrastructure.resource.kind.as_str() {
        "VSphereMachine" => "vsphere",
        "AWSMachine" => "aws",
        "AzureMachine" => "azure",
        "DockerMachine" => "docker",
        "ByoMachine" => "byoh",
        _ => "sim",
    };
    // Two slashes as vSphere's own ids have, three as everybody else's.
    let slashes = if scheme == "vsphere" { "//" } else { "///" };
    format!("{scheme}:{slashes}{uid}")
}
