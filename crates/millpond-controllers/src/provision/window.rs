//! How long to gather pods before they are planned.
//!
//! A plan for many pods together is cheaper than many plans for a few. But nobody wants to wait a second for one pod.
//! So the window asks who is still to come: ReplicaSets and StatefulSets say how many pods they want, and while they
//! have fewer, and new ones keep arriving, it stays open. Pods that nobody announced wait for a moment only.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use kube::ResourceExt;
use tokio::time::Instant;

use crate::cluster::Cluster;

/// No pod has come for this long: those that are there belong together.
const QUIET: Duration = Duration::from_millis(10);
/// Pods that nobody announced wait no longer, however many follow.
const LONGEST_UNANNOUNCED: Duration = Duration::from_millis(50);
/// Announced pods that do not come for this long are waited for no longer: somebody holds them up.
const QUIET_ANNOUNCED: Duration = Duration::from_millis(250);
/// The window closes after this long, whatever is announced.
const LONGEST: Duration = Duration::from_secs(3);

/// A window that gathers pods.
#[derive(Debug)]
pub(super) struct Window {
    opened: Instant,
    last: Instant,
}

impl Window {
    /// Opens with the first pod.
    pub(super) fn open(now: Instant) -> Self {
        Self { opened: now, last: now }
    }

    /// Another pod has come.
    pub(super) fn arrived(&mut self, now: Instant) {
        self.last = now;
    }

    /// When it closes if nothing more comes.
    pub(super) fn closes(&self, more_announced: bool) -> Instant {
        let (quiet, longest) = if more_announced { (QUIET_ANNOUNCED, LONGEST) } else { (QUIET, LONGEST_UNANNOUNCED) };
        (self.last + quiet).min(self.opened + longest)
    }
}

/// Whether workloads want pods that are not there yet.
pub(super) fn more_announced(cluster: &Cluster) -> bool {
    let there = |uid: Option<String>| uid.map_or(0, |uid| cluster.pods.owned_by(&uid).len());
    let replica_set = |set: &ReplicaSet| {
        let wanted = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        wanted > 0 && there(set.uid()) < wanted as usize
    };
    // One that waits for each pod before it makes the next announces nothing.
    let stateful_set = |set: &StatefulSet| {
        let spec = set.spec.as_ref();
        let parallel = spec.and_then(|spec| spec.pod_management_policy.as_deref()) == Some("Parallel");
        let wanted = spec.and_then(|spec| spec.replicas).unwrap_or(1);
        parallel && wanted > 0 && there(set.uid()) < wanted as usize
    };
    cluster.replica_sets.list().iter().any(|set| replica_set(set))
        || cluster.stateful_sets.list().iter().any(|set| stateful_set(set))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_was_not_announced_waits_for_a_moment_only() {
        let start = Instant::now();
        let mut window = Window::open(start);
        assert_eq!(window.closes(false) - start, QUIET);
        for step in 1..20 {
            window.arrived(start + QUIET * step / 2);
        }
        assert_eq!(window.closes(false) - start, LONGEST_UNANNOUNCED);
        assert!(window.closes(true) - start > LONGEST_UNANNOUNCED);
        window.arrived(start + LONGEST);
        assert_eq!(window.closes(true) - start, LONGEST);
    }
}
