//! The status of NodeOverlays: whether they are valid, and whether others conflict with them.

use std::sync::Arc;
use std::time::Duration;

use millpond_api::condition::Conditions;
use millpond_api::karpenter::conditions::{OF_OVERLAY, VALIDATION_SUCCEEDED};
use millpond_api::meta::Condition;
use millpond_runtime::error::Result;
use millpond_runtime::kinds::Kind;
use millpond_runtime::meta::{Key, status_patch};
use millpond_runtime::mirror::Mirror;
use millpond_runtime::queue::Queue;
use millpond_runtime::worker::Reconcile;
use millpond_state::objects::Kind as StateKind;

use crate::context::Context;

/// Maintains the status of overlays.
pub struct Overlays {
    context: Arc<Context>,
}

impl Overlays {
    /// Works on this cluster.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Asks for work on all overlays whenever one of them changes, or what they are laid over.
    pub fn listen(context: &Arc<Context>, queue: &Arc<Queue<Key>>) {
        let cluster = &context.cluster;
        Self::follow(context, queue, &cluster.overlays);
        Self::follow(context, queue, &cluster.pools);
        Self::follow(context, queue, &cluster.classes);
    }

    fn follow<K: Kind>(context: &Arc<Context>, queue: &Arc<Queue<Key>>, mirror: &Mirror<K>) {
        let (queue, weak) = (Arc::clone(queue), Arc::downgrade(context));
        mirror.on_change(move |before, after| {
            let Some(context) = weak.upgrade() else { return };
            let generation = |object: Option<&Arc<K>>| object.map(|object| object.meta().generation);
            if generation(before) != generation(after) {
                context.cluster.overlays.list().iter().for_each(|overlay| queue.add(Key::of(&**overlay)));
            }
        });
    }

    fn validity(&self, key: &Key) -> Condition {
        let cluster = &self.context.cluster;
        if let Some(invalid) = cluster.refused(StateKind::NodeOverlay, key) {
            return Condition::fails(VALIDATION_SUCCEEDED, "RuntimeValidation", invalid.to_string());
        }
        match cluster.judged_overlays().unused.get(&key.name) {
            Some(conflict) => Condition::fails(VALIDATION_SUCCEEDED, "Conflict", conflict.to_string()),
            None => Condition::holds(VALIDATION_SUCCEEDED),
        }
    }
}

impl Reconcile for Overlays {
    const NAME: &'static str = "overlays";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let cluster = &self.context.cluster;
        let Some(overlay) = cluster.overlays.get(key) else { return Ok(None) };
        let mut status = overlay.status.clone();
        let generation = overlay.metadata.generation.unwrap_or_default();
        Conditions::new(&mut status.conditions, OF_OVERLAY, generation, cluster.now()).set(self.validity(key));
        if let Some(patch) = status_patch(&*overlay, Some(&overlay.status), &status) {
            cluster.overlays.patch_status(key, &patch).await?;
        }
        Ok(None)
    }
}
