//! A node with spread pods becomes ready only when the other domains of the spread exist.
//!
//! kube-scheduler knows only the domains of registered nodes, including tainted ones. The zone whose node registers
//! first would be the only domain and would get all pods of the spread: they would take the capacity planned there for
//! other pods, and the nodes of the other zones would stay empty.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use millpond_runtime::meta::{Key, controller_uid, is_leaving};
use millpond_runtime::queue::Queue;
use parking_lot::Mutex;

use super::{Claims, node_of};
use crate::cluster::Cluster;
use crate::kinds::NodeClaim;
use crate::provision::spreads;

/// A node waits for others no longer than this: machines that were asked for together come within seconds of each other,
/// or something is wrong with one of them.
const LONGEST: Duration = Duration::from_secs(30);

/// Claims whose nodes wait until other domains have nodes.
#[derive(Default)]
pub(super) struct ClaimsMissingDomains(Mutex<HashSet<Key>>);

impl ClaimsMissingDomains {
    /// Requeues these claims when a node registers, or when a claim gets its instance or is given up.
    pub(super) fn listen(cluster: &Cluster, queue: &Arc<Queue<Key>>) -> Arc<Self> {
        let missing_domains = Arc::new(Self::default());
        let (nodes, again) = (Arc::clone(&missing_domains), Arc::clone(queue));
        cluster.nodes.on_change(move |before, _| {
            if before.is_none() {
                nodes.wake(&again);
            }
        });
        let (claims, again) = (Arc::clone(&missing_domains), Arc::clone(queue));
        cluster.claims.on_change(move |before, after| {
            let counts = |claim: &Arc<NodeClaim>| (claim.status.provider_id.clone(), is_leaving(&**claim));
            if before.map(counts) != after.map(counts) {
                claims.wake(&again);
            }
        });
        missing_domains
    }

    fn wake(&self, queue: &Queue<Key>) {
        let all = std::mem::take(&mut *self.0.lock());
        all.into_iter().for_each(|claim| queue.add(claim));
    }
}

impl Claims {
    /// How long to wait at most, if a pod nominated to this node spreads over nodes that are not there yet.
    pub(super) fn wait_for_domains(&self, claim: &NodeClaim, node: &Node, promised: &[Key]) -> Option<Duration> {
        let cluster = &self.context.cluster;
        let registered = node.metadata.creation_timestamp.as_ref()?.0;
        let waited = Duration::try_from(cluster.clock.now().duration_since(registered)).unwrap_or_default();
        let left = LONGEST.checked_sub(waited).filter(|left| !left.is_zero())?;
        let owner = |pod: &Pod| controller_uid(pod).filter(|_| spreads(pod)).map(str::to_owned);
        let owners: HashSet<String> = promised.iter().filter_map(|pod| owner(&*cluster.pods.get(pod)?)).collect();
        if owners.is_empty() {
            return None;
        }
        let is_sibling = |pod: &Key| {
            let pod = cluster.pods.get(pod);
            pod.is_some_and(|pod| controller_uid(&*pod).is_some_and(|owner| owners.contains(owner)))
        };
        let is_missing = |name: &str| {
            let other = cluster.claims.get(&Key::new("", name)).filter(|other| other.name() != claim.name());
            other.is_some_and(|other| node_of(cluster, &other).is_none())
        };
        // Insert before checking, so that a change during the check requeues the claim.
        self.missing_domains.0.lock().insert(Key::of(claim));
        let others = cluster.nominations.by_claim();
        let lacks = others.iter().any(|(name, pods)| is_missing(name) && pods.iter().any(is_sibling));
        lacks.then_some(left)
    }
}
