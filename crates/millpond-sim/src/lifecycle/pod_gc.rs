//! Garbage collection of pods whose node is gone, and of pods that finished long ago.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::mark_disrupted;
use crate::cluster::Cluster;
use crate::error::Result;
use crate::meta::{Key, has_ended, is_leaving, node_name};
use crate::queue::Queue;
use crate::worker::Reconcile;

/// A node may come back under its name within this time.
const NODE_QUARANTINE: Duration = Duration::from_secs(40);
/// The number of ended pods that are kept for users to look at.
const ENDED_PODS_KEPT: usize = 12_500;

/// Collects pods. Keys are names of nodes; the empty name is the key for finished pods.
pub struct PodCollector {
    cluster: Arc<Cluster>,
}

impl PodCollector {
    /// The collector, and the work queue that watches of nodes and pods fill.
    pub fn new(cluster: &Arc<Cluster>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new());
        let own = Arc::clone(&queue);
        cluster.nodes.on_change(move |old, new| {
            if let (Some(node), None) = (old, new) {
                own.add_after(Key::of(&**node), NODE_QUARANTINE);
            }
        });
        let (own, nodes) = (Arc::clone(&queue), Arc::clone(&cluster.nodes));
        cluster.pods.on_change(move |old, new| {
            let Some(pod) = new else {
                return;
            };
            match node_name(pod) {
                Some(name) if nodes.get(&Key::new("", name)).is_none() => {
                    own.add_after(Key::new("", name), NODE_QUARANTINE);
                }
                // A pod that never got a node has no kubelet that would end it.
                None if is_leaving(&**pod) => own.add(Key::default()),
                _ => {}
            }
            if has_ended(pod) && !old.is_some_and(|old| has_ended(old)) {
                own.add(Key::default());
            }
        });
        (Arc::new(Self { cluster: Arc::clone(cluster) }), queue)
    }

    async fn collect_orphans(&self, node: &str) -> Result<()> {
        if self.cluster.nodes.get(&Key::new("", node)).is_some() {
            return Ok(());
        }
        for pod in self.cluster.pods.indexed(node) {
            if !has_ended(&pod) {
                let message = "PodGC: node no longer exists";
                mark_disrupted(&self.cluster, &pod, "DeletionByPodGC", message, true).await?;
            }
            self.cluster.pods.delete(&pod, Some(0)).await?;
        }
        Ok(())
    }

    async fn collect_ended(&self) -> Result<()> {
        let pods = self.cluster.pods.list();
        let unbound = pods.iter().filter(|pod| is_leaving(&***pod) && node_name(pod).is_none());
        for pod in unbound.filter(|pod| pod.finalizers().is_empty()) {
            self.cluster.pods.delete(pod, Some(0)).await?;
        }
        let mut ended: Vec<&Arc<Pod>> = pods.iter().filter(|pod| has_ended(pod) && !is_leaving(&***pod)).collect();
        let excess = ended.len().saturating_sub(ENDED_PODS_KEPT);
        if excess > 0 {
            let made = |pod: &Pod| pod.creation_timestamp().map_or(Timestamp::MIN, |time| time.0);
            ended.sort_by_key(|pod| (made(pod), pod.name_any()));
            for pod in ended.into_iter().take(excess) {
                self.cluster.pods.delete(pod, Some(0)).await?;
            }
        }
        Ok(())
    }
}

impl Reconcile for PodCollector {
    const NAME: &'static str = "pod-collector";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        if key.name.is_empty() {
            self.collect_ended().await?;
        } else {
            self.collect_orphans(&key.name).await?;
        }
        Ok(None)
    }
}
