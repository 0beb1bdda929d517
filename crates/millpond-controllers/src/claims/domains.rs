//! A node takes no pods that spread before the other domains of the spread are there.
//!
//! kube-scheduler knows the domains of nodes that have registered, closed ones as well, and no others. A zone whose node
//! comes first would be the only one for it, and would get all pods of the spread: the room that was planned there for
//! others is gone, and what was planned for the other zones stays empty.

use std::collections::HashSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use millpond_runtime::meta::{Key, controller_uid};

use super::{Claims, node_of};
use crate::kinds::NodeClaim;
use crate::provision::spreads;

/// A node waits for others no longer than this: machines that were asked for together come within seconds of each other,
/// or something is wrong with one of them.
const LONGEST: Duration = Duration::from_secs(30);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(250);

impl Claims {
    /// When to look again, if a pod that was promised this node spreads over nodes that are not there yet.
    pub(super) fn lacks_domains(&self, claim: &NodeClaim, node: &Node, promised: &[Key]) -> Option<Duration> {
        let cluster = &self.context.cluster;
        let registered = node.metadata.creation_timestamp.as_ref()?.0;
        let waited = Duration::try_from(cluster.clock.now().duration_since(registered)).unwrap_or_default();
        if waited >= LONGEST {
            return None;
        }
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
        let others = cluster.promises.by_claim();
        let lacks = others.iter().any(|(name, pods)| is_missing(name) && pods.iter().any(is_sibling));
        lacks.then_some(LOOK)
    }
}
