//! The status of CapacityBuffers: how many pods they reserve capacity for, and whether that capacity exists.
//!
//! How many is a question to the planner's index, which plans for just as many ([`Cluster::buffer`]). Whether there is
//! room is what the latest round of planning found ([`Fills`]). This only writes it down.
//!
//! [`Cluster::buffer`]: crate::cluster::Cluster::buffer

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube::ResourceExt;
use millpond_api::capacity_buffer::{PROVISIONING, READY_FOR_PROVISIONING};
use millpond_api::condition::{Conditions, TRUE};
use millpond_api::meta::Condition;
use millpond_plan::model::{NodeState, Snapshot};
use millpond_plan::plan::{Outcome, Target};
use millpond_runtime::error::Result;
use millpond_runtime::kinds::Kind;
use millpond_runtime::meta::{Key, status_patch};
use millpond_runtime::mirror::Mirror;
use millpond_runtime::queue::Queue;
use millpond_runtime::worker::Reconcile;
use millpond_state::objects::Kind as StateKind;
use millpond_state::{Unresolved, buffer_of};
use parking_lot::Mutex;

use crate::context::Context;
use crate::kinds::CapacityBuffer;

/// Where the pods of a buffer are, by the latest plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fill {
    /// Pods with capacity on existing nodes.
    pub there: u32,
    /// Pods with capacity on nodes that are planned or being launched.
    pub coming: u32,
    /// Pods without capacity.
    pub lacking: u32,
}

impl Fill {
    fn total(self) -> u32 {
        self.there + self.coming + self.lacking
    }

    /// The fill of every buffer in a plan.
    pub(crate) fn of_plan(snapshot: &Snapshot, outcome: &Outcome) -> HashMap<Key, Self> {
        let mut fills: HashMap<Key, Self> = HashMap::new();
        let placed = outcome.plan.placements.iter().map(|&(pod, target)| (pod, Some(target)));
        let unplaced = outcome.report.unplaced.iter().map(|&(pod, _)| (pod, None));
        for (pod, target) in placed.chain(unplaced).filter(|(pod, _)| snapshot.class_of(*pod).is_buffer()) {
            let Some(buffer) = buffer_of(&snapshot.pods[pod.index()].name) else { continue };
            let namespace = snapshot.text(snapshot.class_of(pod).namespace);
            let fill = fills.entry(Key::new(namespace, buffer)).or_default();
            let running = |node: usize| snapshot.nodes[node].state == NodeState::Running;
            match target {
                Some(Target::Existing(node)) if running(node.index()) => fill.there += 1,
                Some(_) => fill.coming += 1,
                None => fill.lacking += 1,
            }
        }
        fills
    }
}

/// How far buffers are filled, by the latest round of planning.
#[derive(Default)]
pub struct Fills {
    known: Mutex<HashMap<Key, Fill>>,
    queue: OnceLock<Arc<Queue<Key>>>,
}

impl Fills {
    /// Stores the result of a round.
    pub(crate) fn set(&self, fills: HashMap<Key, Fill>) {
        let mut known = self.known.lock();
        let changed: Vec<Key> =
            fills.iter().filter(|(key, fill)| known.get(*key) != Some(*fill)).map(|(key, _)| key.clone()).collect();
        *known = fills;
        drop(known);
        if let Some(queue) = self.queue.get() {
            changed.into_iter().for_each(|key| queue.add(key));
        }
    }

    fn get(&self, key: &Key) -> Option<Fill> {
        self.known.lock().get(key).copied()
    }
}

/// Maintains the status of buffers.
pub struct Buffers {
    context: Arc<Context>,
}

impl Buffers {
    /// Works on this cluster.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Asks for work on a buffer whenever it, what it is for, or its fill changes.
    pub fn listen(context: &Arc<Context>, queue: &Arc<Queue<Key>>) {
        let cluster = &context.cluster;
        // A process has only one such controller; a second one would share the first one's queue.
        let _ = context.fills.queue.set(Arc::clone(queue));
        let buffers = Arc::clone(queue);
        cluster.buffers.on_change(move |_, after| {
            if let Some(buffer) = after {
                buffers.add(Key::of(&**buffer));
            }
        });
        let cluster = &context.cluster;
        Self::follow(context, queue, &cluster.templates, |template| template.metadata.generation);
        Self::follow(context, queue, &cluster.deployments, |deployment| deployment.metadata.generation);
        Self::follow(context, queue, &cluster.replica_sets, |set| set.metadata.generation);
        Self::follow(context, queue, &cluster.stateful_sets, |set| set.metadata.generation);
        Self::follow(context, queue, &cluster.limit_ranges, |range| range.spec.clone());
    }

    /// Asks for work on the buffers of a namespace whenever what counts about an object of it changes.
    fn follow<K: Kind, C: PartialEq + 'static>(
        context: &Arc<Context>,
        queue: &Arc<Queue<Key>>,
        mirror: &Mirror<K>,
        what_counts: fn(&K) -> C,
    ) {
        let (queue, weak) = (Arc::clone(queue), Arc::downgrade(context));
        mirror.on_change(move |before, after| {
            let (Some(context), Some(object)) = (weak.upgrade(), after.or(before)) else { return };
            let of = |object: Option<&Arc<K>>| object.map(|object| what_counts(object));
            if of(before) != of(after) {
                let buffers = context.cluster.buffers.list_in(&Key::of(&**object).namespace);
                buffers.iter().for_each(|buffer| queue.add(Key::of(&**buffer)));
            }
        });
    }

    /// Why a buffer is not ready, as its condition says it.
    fn unready(&self, key: &Key, why: &Unresolved) -> Condition {
        let (reason, kind, name) = match why {
            Unresolved::NoTemplate(name) => ("PodTemplateNotFound", StateKind::PodTemplate, name),
            Unresolved::NoWorkload { kind, name } => {
                let kinds = [StateKind::Deployment, StateKind::ReplicaSet, StateKind::StatefulSet];
                let kind = kinds.into_iter().find(|known| known.name() == kind).unwrap_or(StateKind::Deployment);
                ("ScalableRefNotFound", kind, name)
            }
            Unresolved::NoReference | Unresolved::Unsupported(_) => {
                return Condition::fails(READY_FOR_PROVISIONING, "ResolutionFailed", why.to_string());
            }
        };
        match self.context.cluster.refused(kind, &Key::new(&key.namespace, name)) {
            Some(invalid) => {
                let message = format!("the {} `{name}` is not valid: {invalid}", kind.name());
                Condition::fails(READY_FOR_PROVISIONING, "ResolutionFailed", message)
            }
            None => Condition::fails(READY_FOR_PROVISIONING, reason, why.to_string()),
        }
    }

    /// The condition about capacity for `replicas` pods; `None` before a round has planned for them.
    fn provisioning(&self, key: &Key, replicas: u32) -> Option<Condition> {
        if replicas == 0 {
            return Some(Condition::fails(PROVISIONING, "BufferEmpty", "the buffer has no pods"));
        }
        let fill = self.context.fills.get(key).filter(|fill| fill.total() == replicas)?;
        let Fill { there, coming, lacking } = fill;
        if there == replicas {
            let message = "existing nodes have capacity for all pods of the buffer".to_owned();
            return Some(Condition::new(PROVISIONING, TRUE, "FitsExistingCapacity", message));
        }
        let without = if lacking > 0 { format!(", {lacking} have no place") } else { String::new() };
        let message = format!("new nodes are on their way for {coming} of {replicas} pods{without}");
        Some(Condition::fails(PROVISIONING, "RequiresNewCapacity", message))
    }

    fn template_generation(&self, buffer: &CapacityBuffer) -> Option<i64> {
        let name = &buffer.spec.pod_template_ref.as_ref()?.name;
        let key = Key::new(&buffer.namespace().unwrap_or_default(), name);
        self.context.cluster.templates.get(&key)?.metadata.generation
    }
}

impl Reconcile for Buffers {
    const NAME: &'static str = "buffers";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let cluster = &self.context.cluster;
        let Some(buffer) = cluster.buffers.get(key) else { return Ok(None) };
        let Some(size) = cluster.buffer(key) else { return Ok(None) };
        let mut status = buffer.status.clone();
        let replicas = size.as_ref().copied().unwrap_or(0);
        status.replicas = Some(i32::try_from(replicas).unwrap_or(i32::MAX));
        status.provisioning_strategy.clone_from(&buffer.spec.provisioning_strategy);
        status.pod_template_ref = buffer.spec.pod_template_ref.clone().filter(|_| size.is_ok());
        status.pod_template_generation = self.template_generation(&buffer).filter(|_| size.is_ok());
        let (ready, provisioning) = match &size {
            Ok(_) => {
                let ready =
                    Condition::new(READY_FOR_PROVISIONING, TRUE, "Resolved", "it is known what the buffer is for");
                (ready, self.provisioning(key, replicas))
            }
            Err(why) => {
                let message = "it is not known what the buffer is for";
                let fails = Condition::fails(PROVISIONING, "NotReadyForProvisioning", message);
                (self.unready(key, why), Some(fails))
            }
        };
        let generation = buffer.metadata.generation.unwrap_or_default();
        let mut known = Conditions::new(&mut status.conditions, &[], generation, cluster.now());
        known.set(ready);
        if let Some(provisioning) = provisioning {
            known.set(provisioning);
        }
        if let Some(patch) = status_patch(&*buffer, Some(&buffer.status), &status) {
            cluster.buffers.patch_status(key, &patch).await?;
        }
        Ok(None)
    }
}
