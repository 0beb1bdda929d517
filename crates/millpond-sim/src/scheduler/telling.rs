//! How often a pod is told why it has no place.
//!
//! kube-scheduler tells with every try, and lets a second and more pass between tries. Here pods are tried much sooner, and
//! what is said of nodes that come in crowds ("0/57 nodes are available") is another thing each time: a status and an event
//! for every pod and every few nodes, in the way of those who make the nodes. So the first refusal is told at once, and
//! others as seldom as kube-scheduler tells them; what has not been told by then is told later, as far as it still holds.

use std::collections::{BTreeSet, HashMap};

use tokio::time::Instant;

use super::fit::PodKey;
use super::queue::{FIRST_BACKOFF, LONGEST_BACKOFF};
use crate::meta::Key;

struct Told {
    /// Of the pod: another one of its name was told nothing yet.
    uid: PodKey,
    at: Instant,
    times: u32,
    /// What is yet to be said, and when.
    later: Option<(Instant, String)>,
}

impl Told {
    /// When something else may be said.
    fn next(&self) -> Instant {
        let doublings = (self.times - 1).min(9);
        self.at + FIRST_BACKOFF.saturating_mul(1 << doublings).min(LONGEST_BACKOFF)
    }
}

/// What pods were told, and what they are yet to be told.
#[derive(Default)]
pub(super) struct Telling {
    pods: HashMap<Key, Told>,
    due: BTreeSet<(Instant, Key)>,
}

impl Telling {
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
        let told = Told { uid: PodKey::clone(uid), at: now, times: times.saturating_add(1), later: None };
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
        let mut telling = Telling::default();
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
        let mut telling = Telling::default();
        telling.note(&pod, &uid, start);
        assert!(!telling.refused(&pod, &uid, "2 nodes", None, start));
        telling.forget(&pod);
        assert_eq!(telling.next(), None);
        assert!(telling.take_due(start + LONGEST_BACKOFF).is_empty());
    }
}
