//! Backoff of node groups whose machines failed: no scale-up for a time that grows with every consecutive failure.
//!
//! Failures are distinguished by kind. Where the infrastructure provider is out of capacity or quota
//! ([`TroubleKind::Quota`]), an early retry cannot succeed; a machine that broke, or took too long, may have been a
//! single case.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use millpond_state::groups::{GroupRef, Held, Trouble, TroubleKind};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;

/// A wait is longer by up to this share, so that groups that failed together are not all tried together.
const JITTER: f64 = 0.2;
/// A group without failures for this long starts again with the shortest backoff, as in the cluster-autoscaler.
const FORGOTTEN_AFTER: Duration = Duration::from_hours(3);

/// How long a group is left out: at first, and at most. Five minutes and half an hour are the cluster-autoscaler's.
fn waits(kind: TroubleKind) -> (Duration, Duration) {
    match kind {
        TroubleKind::Quota => (Duration::from_mins(10), Duration::from_hours(1)),
        TroubleKind::Failed | TroubleKind::Late => (Duration::from_mins(5), Duration::from_mins(30)),
    }
}

#[derive(Debug)]
struct Entry {
    failures: u32,
    until: Instant,
    trouble: Trouble,
    /// The group has fewer machines than replicas, and Cluster API creates none.
    stalled: bool,
    /// Machines whose failure was counted.
    machines: BTreeSet<String>,
}

/// The failures of node groups.
#[derive(Debug)]
pub(crate) struct Health(Mutex<(BTreeMap<GroupRef, Entry>, StdRng)>);

impl Health {
    /// Without failures; the seed decides the jitter.
    pub(super) fn new(seed: u64) -> Self {
        Self(Mutex::new((BTreeMap::new(), StdRng::seed_from_u64(seed))))
    }

    /// Records that a machine of a group will not become a node. Returns how long the group is left out, if this starts
    /// a backoff: machines that fail during a backoff failed together with the first.
    pub(super) fn failed(&self, of: &GroupRef, machine: &str, trouble: &Trouble) -> Option<Duration> {
        self.fail(of, Some(machine), trouble)
    }

    /// Records that Cluster API creates no machines for a group.
    pub(super) fn stalled(&self, of: &GroupRef, trouble: &Trouble) -> Option<Duration> {
        let wait = self.fail(of, None, trouble);
        if let Some(entry) = self.0.lock().0.get_mut(of) {
            entry.stalled = true;
        }
        wait
    }

    fn fail(&self, of: &GroupRef, machine: Option<&str>, trouble: &Trouble) -> Option<Duration> {
        let now = Instant::now();
        let (entries, chance) = &mut *self.0.lock();
        let known = entries.get(of).filter(|entry| now < entry.until + FORGOTTEN_AFTER);
        if known.is_some_and(|entry| machine.is_some_and(|machine| entry.machines.contains(machine))) {
            return None;
        }
        let mut machines = known.map(|entry| entry.machines.clone()).unwrap_or_default();
        machines.extend(machine.map(ToOwned::to_owned));
        if let Some(entry) = entries.get_mut(of).filter(|entry| now < entry.until) {
            entry.machines = machines;
            return None;
        }
        let failures = known_failures(entries.get(of), now) + 1;
        let (initial, longest) = waits(trouble.kind);
        let wait = initial.saturating_mul(1 << (failures - 1).min(16)).min(longest);
        let wait = wait.mul_f64(1.0 + JITTER * chance.random_range(0.0..1.0));
        let entry = Entry { failures, until: now + wait, trouble: trouble.clone(), stalled: false, machines };
        entries.insert(of.clone(), entry);
        Some(wait)
    }

    /// Records that machines of a group become nodes.
    pub(super) fn recovered(&self, of: &GroupRef) {
        self.0.lock().0.remove(of);
    }

    /// Whether a group failed recently.
    pub(super) fn is_troubled(&self, of: &GroupRef) -> bool {
        self.0.lock().0.contains_key(of)
    }

    /// Whether a machine's failure was counted.
    pub(super) fn knows(&self, of: &GroupRef, machine: &str) -> bool {
        self.0.lock().0.get(of).is_some_and(|entry| entry.machines.contains(machine))
    }

    /// Drops groups that no longer exist.
    pub(super) fn retain(&self, there: impl Fn(&GroupRef) -> bool) {
        self.0.lock().0.retain(|of, _| there(of));
    }

    /// Groups that are backing off now, with the reason.
    pub(crate) fn held(&self) -> BTreeMap<GroupRef, Held> {
        let now = Instant::now();
        let entries = self.0.lock();
        let held = entries.0.iter().filter(|(_, entry)| now < entry.until).map(|(of, entry)| {
            let times = if entry.failures == 1 { String::new() } else { format!(" {} times in a row", entry.failures) };
            let reason = match entry.trouble.kind {
                TroubleKind::Quota => "the infrastructure provider has no more machines",
                TroubleKind::Failed => "its machines failed",
                TroubleKind::Late => "its machines did not become nodes in time",
            };
            let reason = format!("{reason}{times}, it is left out for a while: {}", entry.trouble.message);
            (of.clone(), Held { reason, stalled: entry.stalled })
        });
        held.collect()
    }

    /// When the next group may be scaled up again.
    pub(crate) fn next_release(&self) -> Option<Duration> {
        let now = Instant::now();
        let entries = self.0.lock();
        entries.0.values().filter(|entry| now < entry.until).map(|entry| entry.until - now).min()
    }
}

fn known_failures(entry: Option<&Entry>, now: Instant) -> u32 {
    entry.filter(|entry| now < entry.until + FORGOTTEN_AFTER).map_or(0, |entry| entry.failures)
}

#[cfg(test)]
mod tests {
    use millpond_state::groups::GroupKind;

    use super::*;

    fn group() -> GroupRef {
        GroupRef::new(GroupKind::MachineDeployment, "default", "workers")
    }

    fn trouble(kind: TroubleKind) -> Trouble {
        Trouble { kind, message: "no".to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn waits_grow_to_a_limit_and_begin_anew() {
        let health = Health::new(1);
        let mut before = Duration::ZERO;
        for number in 0..4 {
            let wait = health.failed(&group(), &format!("m{number}"), &trouble(TroubleKind::Failed)).unwrap();
            assert!(wait > before, "{number}: {wait:?} after {before:?}");
            assert!(health.held().contains_key(&group()) && health.next_release() == Some(wait));
            assert_eq!(health.failed(&group(), "other", &trouble(TroubleKind::Failed)), None, "failed together");
            tokio::time::advance(wait).await;
            assert!(health.held().is_empty() && health.next_release().is_none());
            before = if number == 3 { before } else { wait };
            before = before.min(Duration::from_mins(29));
        }
        let longest = health.failed(&group(), "m9", &trouble(TroubleKind::Failed)).unwrap();
        assert!(longest <= Duration::from_mins(36));
        tokio::time::advance(longest + FORGOTTEN_AFTER).await;
        let anew = health.failed(&group(), "m10", &trouble(TroubleKind::Failed)).unwrap();
        assert!(anew <= Duration::from_mins(6), "{anew:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_told_apart_and_counted_once() {
        let health = Health::new(1);
        let short = health.failed(&group(), "a", &trouble(TroubleKind::Late)).unwrap();
        tokio::time::advance(short).await;
        assert_eq!(health.failed(&group(), "a", &trouble(TroubleKind::Late)), None, "counted already");
        health.recovered(&group());
        let long = health.failed(&group(), "b", &trouble(TroubleKind::Quota)).unwrap();
        assert!(long >= Duration::from_mins(10) && short < Duration::from_mins(10));
        assert!(health.held()[&group()].reason.starts_with("the infrastructure provider has no more machines"));
        assert!(!health.held()[&group()].stalled);
        health.stalled(&group(), &trouble(TroubleKind::Late));
        assert!(health.held()[&group()].stalled);
    }
}
