//! Leases of nodes, for clusters with a node lifecycle controller.
//!
//! All leases go through one queue with bounded concurrency, spread over the interval by their
//! names, so that thousands of nodes make a steady trickle instead of bursts.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde_json::json;

use super::is_played;
use crate::cluster::Cluster;
use crate::error::Result;
use crate::meta::Key;
use crate::queue::Queue;
use crate::worker::Reconcile;

const NAMESPACE: &str = "kube-node-lease";
/// A lease is good for this many intervals.
const INTERVALS: u64 = 4;

/// Renews leases.
pub struct Leases {
    cluster: Arc<Cluster>,
    interval: Duration,
}

impl Leases {
    /// A renewer that hears of nodes from now on.
    pub fn new(cluster: &Arc<Cluster>, interval: Duration) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new());
        let (own, shared) = (Arc::clone(&queue), Arc::clone(cluster));
        cluster.nodes.on_change(move |old, new| {
            if let (None, Some(node)) = (old, new) {
                own.add_after(Key::of(&**node), interval.mul_f64(shared.names.share()));
            }
        });
        (Arc::new(Self { cluster: Arc::clone(cluster), interval }), queue)
    }
}

impl Reconcile for Leases {
    const NAME: &'static str = "kubelet-lease";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let node = self.cluster.nodes.get(key).filter(|node| is_played(self.cluster.options.nodes, node));
        let Some(node) = node else {
            return Ok(None);
        };
        let lease = Key::new(NAMESPACE, &key.name);
        let now = self.cluster.clock.micro_time();
        let renewed = self.cluster.leases.patch(&lease, &json!({"spec": {"renewTime": now}})).await;
        match renewed {
            Err(error) if error.is_not_found() => {
                let owner = OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Node".to_owned(),
                    name: node.name_any(),
                    uid: node.uid().unwrap_or_default(),
                    ..OwnerReference::default()
                };
                let fresh = Lease {
                    metadata: ObjectMeta {
                        name: Some(key.name.clone()),
                        namespace: Some(NAMESPACE.to_owned()),
                        owner_references: Some(vec![owner]),
                        ..ObjectMeta::default()
                    },
                    spec: Some(LeaseSpec {
                        holder_identity: Some(key.name.clone()),
                        lease_duration_seconds: Some((self.interval.as_secs().max(1) * INTERVALS) as i32),
                        renew_time: Some(now),
                        ..LeaseSpec::default()
                    }),
                };
                self.cluster.leases.create(&fresh).await?;
            }
            outcome => drop(outcome?),
        }
        Ok(Some(self.interval))
    }
}
