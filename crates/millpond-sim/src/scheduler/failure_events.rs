//! How often a pod gets a FailedScheduling event and its PodScheduled condition.
//!
//! kube-scheduler records every attempt, and lets a second and more pass between attempts. Here pods are tried much
//! sooner, and the message changes with every node that joins ("0/57 nodes are available"): that would be a status and
//! an event for every pod and every few nodes, which delays the writes of those nodes. So the first failure is recorded
//! at once, and others as seldom as kube-scheduler records them; what was not recorded by then is recorded later, as
//! far as it still holds.

use std::collections::{BTreeSet, HashMap};

use tokio::time::Instant;

use super::fit::PodKey;
use super::queue::{FIRST_BACKOFF, LONGEST_BACKOFF};
use crate::meta::Key;

struct ReportedFailure {
    /// Uid of the pod: a new pod of the same name starts over.
    uid: PodKey,
    at: Instant,
    times: u32,
    /// The message to be recorded next, and when.
    later: Option<(Instant, String)>,
}

impl ReportedFailure {
    /// When the next message may be recorded.
    fn next(&self) -> Instant {
        let doublings = (self.times - 1).min(9);
        self.at + FIRST_BACKOFF.saturating_mul(1 << doublings).min(LONGEST_BACKOFF)
    }
}

/// The recorded and the postponed failures of all pods.
#[derive(Default)]
pub(super) struct FailureEvents {
    pods: HashMap<Key, ReportedFailure>,
    due: BTreeSet<(Instant, Key)>,
}

impl FailureEvents {
    /// A pod was refused, whose status has `known` to say about that; says whether it is to be told now.
    pub(super) fn refused(
        &mut self,
        pod: &Key,
        uid: &PodKey,
        message: &str,
        known: Option<&str>,
        now: Instant,
    ) -> bool {
        let told = self.pods.get_mut(pod).filter(|told| told.uid == *uid);
        let Some(told) = told else {
            self.note(pod, uid, now);
            return known != Some(message);
        };
        if let Some((due, _)) = told.later.take() {
            self.due.remove(&(due, pod.clone()));
        }
        if known == Some(message) {
            return false;
        }
        let next = told.next();
        if next <= now {
            self.note(pod, uid, now);
            return true;
        }
        told.later = Some((next, message.to_owned()));
        self.due.insert((next, pod.clone()));
        false
    }

    /// A pod is told something now.
    pub(super) fn note(&mut self, pod: &Key, uid: &PodKey, now: Instant) {
        let times = self.pods.get(pod).filter(|told| told.uid == *uid).map_or(0, |told| told.times);
        self.forget(pod);
        let told = ReportedFailure { uid: PodKey::clone(uid), at: now, times: times.saturating_add(1), later: None };
        self.pods.insert(pod.clone(), told);
    }

    /// What is to be told now.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<(Key, String)> {
        let mut all = Vec::new();
        while self.due.first().is_some_and(|(due, _)| *due <= now) {
            let Some((_, pod)) = self.due.pop_first() else { break };
            if let Some(told) = self.pods.get_mut(&pod)
                && let Some((_, message)) = told.later.take()
            {
                (told.at, told.times) = (now, told.times.saturating_add(1));
                all.push((pod, message));
            }
        }
        all
    }

    /// When the next is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// A pod has a place, or is gone.
    pub(super) fn forget(&mut self, pod: &Key) {
        if let Some((due, _)) = self.pods.remove(pod).and_then(|told| told.later) {
            self.due.remove(&(due, pod.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_refusal_is_told_at_once_and_the_last_one_in_time() {
        let (pod, uid, start) = (Key::new("ns", "a"), PodKey::from("1"), Instant::now());
        let mut telling = FailureEvents::default();
        let known = Some("no nodes");
        assert!(telling.refused(&pod, &uid, "no nodes", None, start));
        assert!(!telling.refused(&pod, &uid, "1 node", known, start + Duration::from_millis(20)));
        assert!(!telling.refused(&pod, &uid, "2 nodes", known, start + Duration::from_millis(40)));
        assert_eq!(telling.next(), Some(start + FIRST_BACKOFF));
        assert!(telling.take_due(start + Duration::from_millis(999)).is_empty());
        assert_eq!(telling.take_due(start + FIRST_BACKOFF), [(pod.clone(), "2 nodes".to_owned())]);
        let (known, later) = (Some("2 nodes"), start + FIRST_BACKOFF * 2);
        assert!(!telling.refused(&pod, &uid, "3 nodes", known, later));
        assert_eq!(telling.next(), Some(start + FIRST_BACKOFF * 3), "more seldom each time");
        assert!(!telling.refused(&pod, &uid, "2 nodes", known, later));
        assert_eq!(telling.next(), None, "what is said holds again");
        assert!(telling.refused(&pod, &PodKey::from("2"), "2 nodes", None, later), "another pod of that name");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_told_who_has_a_place() {
        let (pod, uid, start) = (Key::new("ns", "a"), PodKey::from("1"), Instant::now());
        let mut telling = FailureEvents::default();
        telling.note(&pod, &uid, start);
        assert!(!telling.refused(&pod, &uid, "2 nodes", None, start));
        telling.forget(&pod);
        assert_eq!(telling.next(), None);
        assert!(telling.take_due(start + LONGEST_BACKOFF).is_empty());
    }
}
