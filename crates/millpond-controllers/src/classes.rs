//! Whether a class of nodes can be used: its provider is known, its settings make sense, its catalogue is there.

use std::sync::Arc;
use std::time::Duration;

use millpond_api::condition::{Conditions, READY};
use millpond_api::meta::Condition;
use millpond_runtime::error::Result;
use millpond_runtime::meta::{Key, status_patch};
use millpond_runtime::queue::Queue;
use millpond_runtime::worker::Reconcile;

use crate::context::{Context, api_class};
use crate::kinds::NodeClass;

/// Keeps the status of classes.
pub struct Classes {
    context: Arc<Context>,
}

impl Classes {
    /// Acts on this cluster.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Asks for work on a class whenever it changes.
    pub fn listen(context: &Arc<Context>, queue: &Arc<Queue<Key>>) {
        let classes = Arc::clone(queue);
        context.cluster.classes.on_change(move |_, after| {
            if let Some(class) = after {
                classes.add(Key::of(&**class));
            }
        });
    }

    fn readiness(&self, class: &NodeClass) -> Condition {
        let of = api_class(class);
        if let Some(invalid) = of.validate().into_iter().next() {
            return Condition::fails(READY, "ValidationFailed", invalid.to_string());
        }
        match self.context.provider(class).and_then(|provider| provider.catalog(&of)) {
            Ok(_) => Condition::holds(READY),
            Err(error) => Condition::fails(READY, "NotReady", error.to_string()),
        }
    }
}

impl Reconcile for Classes {
    const NAME: &'static str = "classes";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let cluster = &self.context.cluster;
        let Some(class) = cluster.classes.get(key) else { return Ok(None) };
        let mut status = class.status.clone();
        let generation = class.metadata.generation.unwrap_or_default();
        Conditions::new(&mut status.conditions, &[], generation, cluster.now()).set(self.readiness(&class));
        if let Some(patch) = status_patch(&*class, Some(&class.status), &status) {
            cluster.classes.patch_status(key, &patch).await?;
        }
        Ok(None)
    }
}
