//! How long to gather pods before they are planned.
//!
//! A plan for many pods together is cheaper than many plans for a few. But nobody wants to wait a second for one pod.
//! So the window asks who is still to come: Deployments, ReplicaSets and StatefulSets say how many pods they want, and
//! while they have fewer, and new ones keep arriving, it stays open. Pods that nobody announced wait for a moment only.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use kube::ResourceExt;
use tokio::time::Instant;

use crate::cluster::Cluster;

/// No pod has come for this long: those that are there belong together.
const QUIET: Duration = Duration::from_millis(10);
/// Pods that nobody announced wait no longer than this after those that were, however many follow.
const LONGEST_UNANNOUNCED: Duration = Duration::from_millis(15);
/// Announced pods that do not come for this long are waited for no longer: somebody holds them up.
const QUIET_ANNOUNCED: Duration = Duration::from_millis(250);
/// After this long the window closes, unless the rest of the announced pods is about to come.
const LONG: Duration = Duration::from_secs(3);
/// The window closes after this long, whatever is announced; Karpenter's does, too.
const LONGEST: Duration = Duration::from_secs(10);

/// A window that gathers pods.
#[derive(Debug)]
pub(super) struct Window {
    opened: Instant,
    /// When the last pod came.
    last: Instant,
    /// Pods that came since it opened.
    arrived: u64,
    /// Pods that are announced and not there yet.
    missing: u64,
    /// When that number last changed.
    moved: Instant,
}

impl Window {
    /// Opens for pods the first of which came at `since`, perhaps while others were planned for: it has waited long
    /// enough, unless more were announced.
    pub(super) fn open(since: Instant, now: Instant, missing: u64) -> Self {
        Self { opened: since, last: now, arrived: 1, missing, moved: if missing > 0 { now } else { since } }
    }

    /// More pods have come, or were announced.
    pub(super) fn look(&mut self, now: Instant, arrived: u64, missing: u64) {
        if arrived > 0 {
            self.last = now;
            self.arrived += arrived;
        }
        if missing != self.missing {
            self.missing = missing;
            self.moved = now;
        }
    }

    /// When it closes if nothing more comes.
    pub(super) fn closes(&self) -> Instant {
        let mut closes = (self.last + QUIET).min(self.moved + LONGEST_UNANNOUNCED);
        if self.missing > 0 {
            closes = closes.max(self.moved + QUIET_ANNOUNCED);
        }
        // Pods that follow closely on each other must not keep it open for ever.
        closes.min(self.opened + if self.rest_is_near() { LONGEST } else { LONG })
    }

    /// Whether no pod has come for a while.
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        now >= self.last + QUIET
    }

    /// Whether those that are missing will have come within the longest time, if they come as fast as the others did.
    fn rest_is_near(&self) -> bool {
        let so_far = self.moved - self.opened;
        let all = (self.arrived + self.missing) as f64 / self.arrived as f64;
        so_far.mul_f64(all) <= LONGEST
    }
}

/// How many pods workloads want that are not there yet.
pub(super) fn missing(cluster: &Cluster) -> u64 {
    let lacks = |wanted: Option<i32>, uid: Option<String>| {
        let wanted = u64::try_from(wanted.unwrap_or(1)).unwrap_or(0);
        let there = |uid: String| cluster.pods.count_owned_by(&uid) as u64;
        if wanted == 0 { 0 } else { wanted.saturating_sub(uid.map_or(0, there)) }
    };
    // What its controller has not seen yet has no ReplicaSet that could announce anything.
    let deployment = |deployment: &Deployment| {
        let seen = deployment.status.as_ref().and_then(|status| status.observed_generation);
        let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
        if seen.is_none() { lacks(replicas, None) } else { 0 }
    };
    let replica_set = |set: &ReplicaSet| lacks(set.spec.as_ref().and_then(|spec| spec.replicas), set.uid());
    // One that waits for each pod before it makes the next announces nothing.
    let stateful_set = |set: &StatefulSet| {
        let spec = set.spec.as_ref();
        let parallel = spec.and_then(|spec| spec.pod_management_policy.as_deref()) == Some("Parallel");
        if parallel { lacks(spec.and_then(|spec| spec.replicas), set.uid()) } else { 0 }
    };
    let deployments: u64 = cluster.deployments.list().iter().map(|one| deployment(one)).sum();
    let replica_sets: u64 = cluster.replica_sets.list().iter().map(|set| replica_set(set)).sum();
    let stateful_sets: u64 = cluster.stateful_sets.list().iter().map(|set| stateful_set(set)).sum();
    deployments + replica_sets + stateful_sets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_was_not_announced_waits_for_a_moment_only() {
        let start = Instant::now();
        let mut window = Window::open(start, start, 0);
        assert_eq!(window.closes() - start, QUIET);
        for step in 1..20 {
            window.look(start + QUIET * step / 2, 1, 0);
        }
        assert_eq!(window.closes() - start, LONGEST_UNANNOUNCED);
    }

    #[tokio::test(start_paused = true)]
    async fn who_came_during_the_last_round_has_waited_enough() {
        let start = Instant::now();
        let now = start + LONGEST_UNANNOUNCED * 2;
        assert!(Window::open(start, now, 0).closes() <= now);
        assert_eq!(Window::open(start, now, 3).closes() - now, QUIET_ANNOUNCED, "but others are to come");
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_announced_is_waited_for_while_others_come() {
        let start = Instant::now();
        let mut window = Window::open(start, start, 999);
        assert_eq!(window.closes() - start, QUIET_ANNOUNCED);
        // A thousand pods, two hundred a second: they are planned together.
        for number in 1..1000 {
            let now = start + Duration::from_millis(5) * number;
            assert!(window.closes() > now, "closed before pod {number}");
            window.look(now, 1, u64::from(999 - number));
        }
        assert_eq!(window.closes() - start, Duration::from_millis(5) * 999 + QUIET, "all are there");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_rest_holds_up_nobody() {
        let start = Instant::now();
        let mut window = Window::open(start, start, 999);
        // Twenty a second, as controllers with default limits make them.
        for number in 1..=60 {
            window.look(start + Duration::from_millis(50) * number, 1, u64::from(999 - number));
        }
        assert_eq!(window.closes() - start, LONG);
    }

    #[tokio::test(start_paused = true)]
    async fn who_never_comes_is_not_waited_for() {
        let start = Instant::now();
        let mut window = Window::open(start, start, 5);
        // Others keep coming, but not those.
        for step in 1..100 {
            window.look(start + QUIET * step, 1, 5);
        }
        assert_eq!(window.closes() - start, QUIET_ANNOUNCED);
    }
}
