//! Deletion of a Machine: hooks, drain, volumes, infrastructure, bootstrap, Node; each step waits for the one before.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use millpond_api::capi::Machine as View;
use millpond_controllers::kinds::Machine;
use serde_json::{Value, json};

use super::super::{at, put, text};
use super::status::Stage;
use super::{Machines, OwnedObjects, Part, drain};
use crate::clock::after_seconds;
use crate::error::{Error, Result};
use crate::meta::{Key, annotation, is_leaving};

/// How long until a drain, or a wait for volumes, is looked at again when nothing changes.
const DRAIN_AGAIN: Duration = Duration::from_secs(20);
/// Annotation prefix of hooks that hold the drain.
const PRE_DRAIN: &str = "pre-drain.delete.hook.machine.cluster.x-k8s.io";
/// Annotation prefix of hooks that hold the deletion of the infrastructure.
const PRE_TERMINATE: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io";
/// The Node is not drained (annotation).
const NO_DRAIN: &str = "machine.cluster.x-k8s.io/exclude-node-draining";
/// Volumes are not waited for (annotation).
const NO_VOLUMES: &str = "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach";

/// Where the end of a Machine stands.
pub enum Step {
    /// Wait for the end of a stage, for at most this long.
    Wait(Stage, Option<Duration>),
    /// The deletion is complete.
    Done,
}

impl Step {
    fn wait(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Wait(Stage { reason, message: message.into() }, None)
    }
}

impl Machines {
    /// Moves on as far as possible; gives back what is kept of it in `status.deletion`.
    pub(super) async fn reconcile_delete(
        &self,
        machine: &Machine,
        has: &OwnedObjects,
    ) -> Result<(Step, Option<Value>)> {
        let mut deletion = at(&machine.status, &["deletion"]).clone();
        let before = deletion.clone();
        let step = self.move_on(machine, has, &mut deletion).await?;
        Ok((step, (deletion != before).then_some(deletion)))
    }

    async fn move_on(&self, machine: &Machine, has: &OwnedObjects, deletion: &mut Value) -> Result<Step> {
        let node = self.node_at_the_end(machine, has);
        if let Some(node) = &node {
            if let Some(hooks) = hooks(machine, PRE_DRAIN) {
                self.begin(deletion, "waitForPreDrainHookStartTime");
                let message = format!("Waiting for pre-drain hooks to succeed (hooks: {hooks})");
                return Ok(Step::wait("WaitingForPreDrainHook", message));
            }
            if let Some(step) = self.drain_node(machine, has, node, deletion).await? {
                return Ok(step);
            }
            if let Some(step) = self.wait_for_volumes(machine, has, node, deletion).await? {
                return Ok(step);
            }
        }
        if let Some(hooks) = hooks(machine, PRE_TERMINATE) {
            self.begin(deletion, "waitForPreTerminateHookStartTime");
            let message = format!("Waiting for pre-terminate hooks to succeed (hooks: {hooks})");
            return Ok(Step::wait("WaitingForPreTerminateHook", message));
        }
        for (part, reason) in
            [(&has.infrastructure, "WaitingForInfrastructureDeletion"), (&has.bootstrap, "WaitingForBootstrapDeletion")]
        {
            if let Part::Found(found) = part {
                if !found.is_leaving() {
                    self.capi.externals.delete(found).await?;
                }
                // An object without finalizers is gone by now.
                if self.capi.externals.read(&found.resource, &found.key()).await?.is_some() {
                    return Ok(Step::wait(reason, format!("Waiting for {} to be deleted", found.resource.kind)));
                }
            }
        }
        if let Some(node) = &node {
            self.capi.cluster.nodes.delete(node, None).await?;
        }
        Ok(Step::Done)
    }

    /// The Node, unless it is left to go with its whole Cluster.
    fn node_at_the_end(&self, machine: &Machine, has: &OwnedObjects) -> Option<Arc<Node>> {
        has.cluster.as_ref().filter(|cluster| !is_leaving(&***cluster))?;
        let by_id = || text(&machine.spec, &["providerID"]).and_then(|id| self.capi.node_of(id));
        let name = text(&machine.status, &["nodeRef", "name"]);
        name.and_then(|name| self.capi.cluster.nodes.get(&Key::new("", name))).or_else(by_id)
    }

    /// Notes when something began; says when that was.
    fn begin(&self, deletion: &mut Value, key: &str) -> Timestamp {
        let known = text(deletion, &[key]).and_then(|text| text.parse().ok());
        known.unwrap_or_else(|| {
            let now = self.capi.cluster.clock.time();
            put(deletion, &[key], json!(now));
            now.0
        })
    }

    /// Whether a stage that waits for the Node makes sense: not once the machine is on its way out.
    fn waits_for_node(machine: &Machine, has: &OwnedObjects, excluded: &str) -> bool {
        annotation(machine, excluded).is_none()
            && has.infrastructure.found().is_some_and(|found| !found.is_leaving())
            && text(&machine.status, &["deletion", "waitForPreTerminateHookStartTime"]).is_none()
    }

    async fn drain_node(
        &self,
        machine: &Machine,
        has: &OwnedObjects,
        node: &Node,
        deletion: &mut Value,
    ) -> Result<Option<Step>> {
        if !Self::waits_for_node(machine, has, NO_DRAIN) {
            return Ok(None);
        }
        let since = self.begin(deletion, "nodeDrainStartTime");
        let timeout = View::of(&machine.spec, &machine.status).spec.drain_timeout_s.filter(|seconds| *seconds > 0);
        let now = self.capi.cluster.clock.now();
        let left = timeout.map(|seconds| self.capi.cluster.clock.until(after_seconds(since, seconds)));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(None);
        }
        let name = node.name_any();
        if node.spec.as_ref().and_then(|spec| spec.unschedulable) != Some(true) {
            self.capi.cluster.nodes.patch(&Key::new("", &name), &json!({"spec": {"unschedulable": true}})).await?;
        }
        let pods = self.capi.cluster.pods.indexed(&name);
        let outcome = drain::drain(&self.capi.cluster.client, &pods, drain::is_unreachable(node), now).await;
        if outcome.is_done() {
            self.record_event(machine, "SuccessfulDrainNode", format!("success draining Machine's node \"{name}\""));
            return Ok(None);
        }
        let stage = Stage { reason: "DrainingNode", message: outcome.message(&since.to_string()) };
        Ok(Some(Step::Wait(stage, Some(left.map_or(DRAIN_AGAIN, |left| left.min(DRAIN_AGAIN))))))
    }

    async fn wait_for_volumes(
        &self,
        machine: &Machine,
        has: &OwnedObjects,
        node: &Node,
        deletion: &mut Value,
    ) -> Result<Option<Step>> {
        if !Self::waits_for_node(machine, has, NO_VOLUMES) || drain::is_unreachable(node) {
            return Ok(None);
        }
        let attached = self.attached_volumes(node).await?;
        if attached.is_empty() {
            return Ok(None);
        }
        let since = self.begin(deletion, "waitForNodeVolumeDetachStartTime");
        let timeout = View::of(&machine.spec, &machine.status).spec.volume_detach_timeout_s;
        let left = timeout
            .filter(|seconds| *seconds > 0)
            .map(|seconds| self.capi.cluster.clock.until(after_seconds(since, seconds)));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(None);
        }
        let message =
            format!("Waiting for Node volumes to be detached (started at {since})\n* {}", attached.join(", "));
        let again = left.map_or(DRAIN_AGAIN, |left| left.min(DRAIN_AGAIN));
        Ok(Some(Step::Wait(Stage { reason: "WaitingForVolumeDetach", message }, Some(again))))
    }

    /// Volumes that a Node still has, as it or the attach controller says.
    async fn attached_volumes(&self, node: &Node) -> Result<Vec<String>> {
        let status = node.status.as_ref();
        let said = status.and_then(|status| status.volumes_attached.as_deref()).unwrap_or_default();
        let mut volumes: Vec<String> = said.iter().map(|volume| volume.name.clone()).collect();
        let name = node.name_any();
        let api: Api<VolumeAttachment> = Api::all(self.capi.cluster.client.clone());
        let listed = api.list(&ListParams::default()).await.map_err(|source| Error::Api {
            verb: "list",
            kind: "VolumeAttachment".to_owned(),
            key: Key::new("", &name),
            source: Box::new(source),
        })?;
        volumes.extend(listed.iter().filter(|one| one.spec.node_name == name).map(ResourceExt::name_any));
        Ok(volumes)
    }
}

/// Annotations by which others ask for patience.
fn hooks(machine: &Machine, prefix: &str) -> Option<String> {
    let names: Vec<&str> =
        machine.annotations().keys().filter(|key| key.starts_with(prefix)).map(String::as_str).collect();
    (!names.is_empty()).then(|| names.join(","))
}
