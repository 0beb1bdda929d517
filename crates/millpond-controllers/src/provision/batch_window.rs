//! The batch window: how long to gather pods before they are planned.
//!
//! A plan for many pods together is cheaper than many plans for a few, but one pod should not wait a second for others.
//! So the window depends on the pods that are still expected:
//!
//! - Deployments, ReplicaSets and StatefulSets say how many pods they want: pods are *announced*. The window stays open
//!   while announced pods are missing and keep arriving.
//! - Pods that ReplicaSets and StatefulSets have made closely one after the other are a *wave* ([`Wave`]). One `kubectl
//!   apply` brings many workloads, each of which is announced only when it is there; so after the last announced pod of a
//!   wave the window stays open for a moment, the longer the more pods have come.
//! - Other pods wait for some milliseconds, as do pods that come one by one.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use tokio::time::Instant;

use crate::cluster::Cluster;

/// The window closes when no pod has come for this long: the pods so far belong together.
const QUIET: Duration = Duration::from_millis(10);
/// Pods that no workload announced wait no longer than this after those that were, however many follow.
const LONGEST_UNANNOUNCED: Duration = Duration::from_millis(15);
/// A workload is no longer waited for if none of its missing pods comes for this long: a quota or an admission webhook
/// holds them up, or the controller manager is down.
const ANNOUNCED_WITHIN: Duration = Duration::from_secs(1);
/// After this time the window closes, unless the rest of the announced pods is about to come.
const LONG: Duration = Duration::from_secs(3);
/// The window closes after this time in any case, as Karpenter's does.
const LONGEST: Duration = Duration::from_secs(10);

/// A pod that comes this long after the one before it begins another wave.
const WAVE_ENDS: Duration = Duration::from_secs(1);
/// How long a wave is waited for after its last pod, for each pod but the first.
const PAUSE_PER_POD: Duration = Duration::from_millis(100);
/// A wave is waited for no longer than this: half of what Karpenter's window waits for every pod.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// A stream of pods that lasts this long at fewer pods per second than [`FAST`] is no wave: clusters in which some
/// workload always gets another pod do not wait for the next one.
const TRICKLES_AFTER: Duration = Duration::from_secs(1);
/// See [`TRICKLES_AFTER`]. A controller manager with Kubernetes' own limit makes twenty.
const FAST: f64 = 10.0;

/// Pods of workloads that came closely one after the other.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wave {
    /// When the first and the last of them came.
    span: Option<(Instant, Instant)>,
    pods: u32,
}

impl Wave {
    /// Records a pod that a ReplicaSet or StatefulSet created.
    pub(super) fn arrived(&mut self, now: Instant) {
        match &mut self.span {
            Some((_, last)) if now - *last < WAVE_ENDS => {
                *last = now;
                self.pods += 1;
            }
            _ => *self = Self { span: Some((now, now)), pods: 1 },
        }
    }

    /// Until when more pods of the wave may come; `None` for a single pod, or for pods that trickle in.
    pub(super) fn lasts(&self) -> Option<Instant> {
        let (first, last) = self.span.filter(|_| self.pods > 1)?;
        let took = last - first;
        if took > TRICKLES_AFTER && f64::from(self.pods) < FAST * took.as_secs_f64() {
            return None;
        }
        Some(last + PAUSE_PER_POD.saturating_mul(self.pods - 1).min(LONGEST_PAUSE))
    }

    /// Whether pods of it came after a moment, so that a plan of that moment lacks them, and more may come.
    pub(super) fn has_outrun(&self, plan: Instant, opened: Instant, now: Instant) -> bool {
        let came_later = self.span.is_some_and(|(_, last)| last > plan);
        came_later && self.lasts().is_some_and(|until| until > now) && now < opened + LONGEST
    }
}

/// A window that gathers pods.
#[derive(Debug)]
pub(super) struct BatchWindow {
    opened: Instant,
    /// When the last pod came.
    last: Instant,
    /// Pods that came since it opened.
    arrived: u64,
    /// Pods that are announced but not created.
    missing: u64,
    /// When that number last changed.
    moved: Instant,
    /// Until when more of a wave may come.
    wave: Option<Instant>,
}

impl BatchWindow {
    /// Opens for pods the first of which came at `since`, perhaps while others were planned for: it has waited long
    /// enough, unless more were announced or come in a wave.
    pub(super) fn open(since: Instant, now: Instant, missing: u64) -> Self {
        let moved = if missing > 0 { now } else { since };
        Self { opened: since, last: now, arrived: 1, missing, moved, wave: None }
    }

    /// Records new and announced pods.
    pub(super) fn look(&mut self, now: Instant, arrived: u64, missing: u64, wave: &Wave) {
        if arrived > 0 {
            self.last = now;
            self.arrived += arrived;
        }
        if missing != self.missing {
            self.missing = missing;
            self.moved = now;
        }
        self.wave = wave.lasts();
    }

    /// When the window closes if no more pods come.
    pub(super) fn closes(&self) -> Instant {
        let mut closes = (self.last + QUIET).min(self.moved + LONGEST_UNANNOUNCED);
        if self.missing > 0 {
            closes = closes.max(self.moved + ANNOUNCED_WITHIN);
        }
        if let Some(wave) = self.wave {
            closes = closes.max(wave);
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

/// The pods that workloads lack, and since when.
#[derive(Debug, Default)]
pub(super) struct Announced {
    /// By the uid of the workload.
    lacks: HashMap<String, MissingPods>,
}

#[derive(Debug, Clone, Copy)]
struct MissingPods {
    pods: u64,
    /// When the number last changed.
    since: Instant,
}

impl Announced {
    /// Number of pods that workloads want and lack, without workloads whose pods do not come.
    pub(super) fn missing(&mut self, cluster: &Cluster, now: Instant) -> u64 {
        self.count(lacking(cluster), now)
    }

    fn count(&mut self, lacking: Vec<(String, u64)>, now: Instant) -> u64 {
        let mut known = std::mem::take(&mut self.lacks);
        let mut total = 0;
        for (workload, pods) in lacking {
            let before = known.remove(&workload).filter(|lack| lack.pods == pods);
            let lack = before.unwrap_or(MissingPods { pods, since: now });
            if now - lack.since < ANNOUNCED_WITHIN {
                total += pods;
            }
            self.lacks.insert(workload, lack);
        }
        total
    }
}

/// Workloads that want more pods than they have, by uid.
fn lacking(cluster: &Cluster) -> Vec<(String, u64)> {
    let lacks = |wanted: Option<i32>, there: u64| u64::try_from(wanted.unwrap_or(1)).unwrap_or(0).saturating_sub(there);
    let owned = |uid: &Option<String>| uid.as_ref().map_or(0, |uid| cluster.pods.count_owned_by(uid) as u64);
    // A Deployment that its controller has not observed has no ReplicaSet to announce pods.
    let deployment = |deployment: &Deployment| {
        let seen = deployment.status.as_ref().and_then(|status| status.observed_generation);
        let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
        if seen.is_none() { lacks(replicas, 0) } else { 0 }
    };
    let replica_set =
        |set: &ReplicaSet| lacks(set.spec.as_ref().and_then(|spec| spec.replicas), owned(&set.metadata.uid));
    // A StatefulSet that waits for each pod before it creates the next announces nothing.
    let stateful_set = |set: &StatefulSet| {
        let spec = set.spec.as_ref();
        let parallel = spec.and_then(|spec| spec.pod_management_policy.as_deref()) == Some("Parallel");
        if parallel { lacks(spec.and_then(|spec| spec.replicas), owned(&set.metadata.uid)) } else { 0 }
    };
    let named = |uid: &Option<String>, pods: u64| (pods > 0).then(|| (uid.clone().unwrap_or_default(), pods));
    let mut all = Vec::new();
    all.extend(cluster.deployments.list().iter().filter_map(|one| named(&one.metadata.uid, deployment(one))));
    all.extend(cluster.replica_sets.list().iter().filter_map(|set| named(&set.metadata.uid, replica_set(set))));
    all.extend(cluster.stateful_sets.list().iter().filter_map(|set| named(&set.metadata.uid, stateful_set(set))));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_unannounced_pod_waits_for_a_moment_only() {
        let start = Instant::now();
        let mut window = BatchWindow::open(start, start, 0);
        assert_eq!(window.closes() - start, QUIET);
        for step in 1..20 {
            window.look(start + QUIET * step / 2, 1, 0, &Wave::default());
        }
        assert_eq!(window.closes() - start, LONGEST_UNANNOUNCED);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_of_the_last_round_has_waited_enough() {
        let start = Instant::now();
        let now = start + LONGEST_UNANNOUNCED * 2;
        assert!(BatchWindow::open(start, now, 0).closes() <= now);
        assert_eq!(BatchWindow::open(start, now, 3).closes() - now, ANNOUNCED_WITHIN, "but others are to come");
    }

    #[tokio::test(start_paused = true)]
    async fn announced_pods_are_waited_for_while_others_come() {
        let start = Instant::now();
        let mut window = BatchWindow::open(start, start, 999);
        assert_eq!(window.closes() - start, ANNOUNCED_WITHIN);
        // A thousand pods, two hundred a second: they are planned together.
        for number in 1..1000 {
            let now = start + Duration::from_millis(5) * number;
            assert!(window.closes() > now, "closed before pod {number}");
            window.look(now, 1, u64::from(999 - number), &Wave::default());
        }
        assert_eq!(window.closes() - start, Duration::from_millis(5) * 999 + QUIET, "all are there");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_rest_blocks_no_others() {
        let start = Instant::now();
        let mut window = BatchWindow::open(start, start, 999);
        // Twenty a second, as controllers with default limits make them.
        for number in 1..=60 {
            window.look(start + Duration::from_millis(50) * number, 1, u64::from(999 - number), &Wave::default());
        }
        assert_eq!(window.closes() - start, LONG);
    }

    #[tokio::test(start_paused = true)]
    async fn workloads_whose_pods_do_not_come_are_not_waited_for() {
        let start = Instant::now();
        let mut announced = Announced::default();
        let lacking = |pods: u64| vec![("held up".to_owned(), 5), ("coming".to_owned(), pods)];
        assert_eq!(announced.count(lacking(9), start), 14);
        assert_eq!(announced.count(lacking(8), start + ANNOUNCED_WITHIN / 2), 13);
        assert_eq!(announced.count(lacking(7), start + ANNOUNCED_WITHIN), 7, "a quota holds the others up");
        assert_eq!(announced.count(lacking(7), start + ANNOUNCED_WITHIN * 3), 0);
        assert_eq!(announced.count(vec![("held up".to_owned(), 4)], start + ANNOUNCED_WITHIN * 4), 4, "one came");
        announced.count(Vec::new(), start + ANNOUNCED_WITHIN * 5);
        assert!(announced.lacks.is_empty(), "what lacks nothing is forgotten");
    }

    /// The waves of pods that come at these milliseconds; until when the last one is waited for after its last pod.
    fn waits(arrivals: impl IntoIterator<Item = u64>) -> Option<u128> {
        let (start, mut wave, mut last) = (Instant::now(), Wave::default(), 0);
        for arrival in arrivals {
            wave.arrived(start + Duration::from_millis(arrival));
            last = arrival;
        }
        wave.lasts().map(|until| (until - start).as_millis() - u128::from(last))
    }

    #[tokio::test(start_paused = true)]
    async fn the_more_pods_have_come_the_longer_others_are_waited_for() {
        assert_eq!(waits([0]), None, "a lone pod");
        assert_eq!(waits([0, 1]), Some(100));
        assert_eq!(waits(0..4), Some(300));
        assert_eq!(waits(0..50), Some(500));
        assert_eq!(waits([0, 5, 5_000]), None, "a lone pod after a wave");
        assert_eq!(waits((0..50).map(|pod| pod * 60)), Some(500));
        assert_eq!(waits((0..50).map(|pod| pod * 200)), None, "pods that trickle in");
    }

    #[tokio::test(start_paused = true)]
    async fn a_window_outlasts_the_pauses_of_a_wave_but_not_its_end() {
        let start = Instant::now();
        let (mut window, mut wave) = (BatchWindow::open(start, start, 0), Wave::default());
        // Every fifty pods the client needs 200 ms for the next Deployment: all that is announced is there.
        for number in 0..400_u32 {
            let now = start + Duration::from_millis(u64::from(number * 2 + number / 50 * 200));
            assert!(number == 0 || window.closes() > now, "closed before pod {number}");
            wave.arrived(now);
            window.look(now, 1, u64::from(49 - number % 50), &wave);
        }
        let last = window.last;
        assert_eq!(window.closes() - last, LONGEST_PAUSE);
        // One that has no end is cut off.
        for number in 1..2_000 {
            let now = last + Duration::from_millis(10) * number;
            wave.arrived(now);
            window.look(now, 1, 0, &wave);
        }
        assert_eq!(window.closes() - start, LONGEST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_plan_is_outrun_by_pods_of_a_wave_that_goes_on() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let mut wave = Wave::default();
        (0..50).for_each(|pod| wave.arrived(at(pod)));
        assert!(!wave.has_outrun(at(60), start, at(200)), "the plan has all of them");
        wave.arrived(at(150));
        assert!(wave.has_outrun(at(60), start, at(200)));
        assert!(!wave.has_outrun(at(60), start, at(700)), "it is over: the rest is planned by itself");
        assert!(!wave.has_outrun(at(60), start, start + LONGEST), "no plan is put off for ever");
        let mut lone = Wave::default();
        lone.arrived(at(150));
        assert!(!lone.has_outrun(at(60), start, at(200)));
    }
}
