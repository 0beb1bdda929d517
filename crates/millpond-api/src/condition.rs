//! Writing `status.conditions`: one entry for each type, with the time of its last change of status, and `Ready` as
//! the sum of the others.
//!
//! The rules are Karpenter's, so that its users (and its own tests) read them as they are used to: a condition that
//! is set again keeps its time unless its status changes; entries are in the order of their times, `Ready` at the
//! end; `Ready` is true when all that it depends on are, false as soon as one of them is false for what is asked for
//! now, and unknown until then.

use crate::meta::Condition;
use crate::time::Time;

/// Status of a condition that holds.
pub const TRUE: &str = "True";
/// Status of a condition that does not hold.
pub const FALSE: &str = "False";
/// Status of a condition that is not known.
pub const UNKNOWN: &str = "Unknown";
/// The condition that sums up the others.
pub const READY: &str = "Ready";

/// The condition of that type.
pub fn find<'c>(conditions: &'c [Condition], kind: &str) -> Option<&'c Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// Whether the condition of that type is there and true.
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    find(conditions, kind).is_some_and(Condition::is_true)
}

impl Condition {
    /// A condition that holds, for the reason that it holds.
    pub fn holds(kind: &str) -> Self {
        Self::new(kind, TRUE, kind, "")
    }

    /// A condition that does not hold.
    pub fn fails(kind: &str, reason: &str, message: impl Into<String>) -> Self {
        Self::new(kind, FALSE, reason, message)
    }

    /// A condition that is not known.
    pub fn unknown(kind: &str, reason: &str, message: impl Into<String>) -> Self {
        Self::new(kind, UNKNOWN, reason, message)
    }

    /// A condition in full; [`Conditions::set`] adds time and generation.
    pub fn new(kind: &str, status: &str, reason: &str, message: impl Into<String>) -> Self {
        Self {
            kind: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.into(),
            last_transition_time: None,
            observed_generation: None,
        }
    }

    /// Whether it holds.
    pub fn is_true(&self) -> bool {
        self.status == TRUE
    }

    /// Whether it does not hold.
    pub fn is_false(&self) -> bool {
        self.status == FALSE
    }
}

/// The conditions of an object while they are written.
#[derive(Debug)]
pub struct Conditions<'c> {
    list: &'c mut Vec<Condition>,
    dependents: &'c [&'c str],
    generation: i64,
    now: Time,
}

impl<'c> Conditions<'c> {
    /// The conditions of an object of that generation. `Ready` follows from the dependents; without any, it is like
    /// every other.
    pub fn new(list: &'c mut Vec<Condition>, dependents: &'c [&'c str], generation: i64, now: Time) -> Self {
        Self { list, dependents, generation, now }
    }

    /// Writes an unknown condition for each dependent that is not there, so that all are to be seen from the start.
    /// Tells whether anything changed.
    pub fn initialize(&mut self) -> bool {
        let missing = |kind: &&&str| find(self.list, kind).is_none();
        let missing: Vec<_> = self.dependents.iter().filter(missing).copied().collect();
        for kind in &missing {
            self.set(Condition::unknown(kind, "AwaitingReconciliation", "object is awaiting reconciliation"));
        }
        !missing.is_empty()
    }

    /// Says what is so. Tells whether anything changed.
    pub fn set(&mut self, condition: Condition) -> bool {
        let depends = condition.kind != READY;
        let changed = self.put(condition);
        (depends && self.sum_up()) || changed
    }

    /// Takes a condition away. Tells whether it was there.
    pub fn clear(&mut self, kind: &str) -> bool {
        let before = self.list.len();
        self.list.retain(|condition| condition.kind != kind);
        if self.list.len() == before {
            return false;
        }
        if kind != READY {
            self.sum_up();
        }
        true
    }

    fn put(&mut self, mut condition: Condition) -> bool {
        condition.observed_generation = Some(self.generation);
        let old = self.list.iter().position(|old| old.kind == condition.kind);
        let same_status = old.map(|at| &self.list[at]).filter(|old| old.status == condition.status);
        condition.last_transition_time = same_status.and_then(|old| old.last_transition_time).or(Some(self.now));
        match old {
            Some(at) if self.list[at] == condition => return false,
            Some(at) => drop(self.list.remove(at)),
            None => {}
        }
        self.list.push(condition);
        self.list.sort_by_key(|condition| (condition.kind == READY, condition.last_transition_time));
        true
    }

    fn sum_up(&mut self) -> bool {
        if self.dependents.is_empty() {
            return false;
        }
        let (mut failed, mut parts) = (false, Vec::new());
        for kind in self.dependents {
            let found = find(self.list, kind);
            let current = found.is_some_and(|found| found.observed_generation == Some(self.generation));
            if current && found.is_some_and(Condition::is_true) {
                continue;
            }
            failed |= current && found.is_some_and(Condition::is_false);
            parts.push(format!("{kind}={}", found.map_or(UNKNOWN, |found| found.status.as_str())));
        }
        self.put(match (parts.is_empty(), failed) {
            (true, _) => Condition::holds(READY),
            (false, true) => Condition::fails(READY, "UnhealthyDependents", parts.join(", ")),
            (false, false) => Condition::unknown(READY, "ReconcilingDependents", parts.join(", ")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: &[&str] = &["Launched", "Registered"];

    fn shown(conditions: &[Condition]) -> Vec<String> {
        let line = |condition: &Condition| {
            let Condition { kind, status, reason, message, last_transition_time, observed_generation } = condition;
            let (time, generation) = (last_transition_time.unwrap().0, observed_generation.unwrap());
            format!("{kind}={status} {reason} `{message}` since {time} of {generation}")
        };
        conditions.iter().map(line).collect()
    }

    #[test]
    fn ready_is_the_sum_of_the_others() {
        let mut list = Vec::new();
        assert!(Conditions::new(&mut list, PARTS, 1, Time(10)).initialize());
        assert!(!Conditions::new(&mut list, PARTS, 1, Time(11)).initialize());
        assert!(Conditions::new(&mut list, PARTS, 1, Time(20)).set(Condition::holds("Launched")));
        assert_eq!(
            shown(&list),
            [
                "Registered=Unknown AwaitingReconciliation `object is awaiting reconciliation` since 10 of 1",
                "Launched=True Launched `` since 20 of 1",
                "Ready=Unknown ReconcilingDependents `Registered=Unknown` since 10 of 1",
            ]
        );
        assert!(Conditions::new(&mut list, PARTS, 1, Time(30)).set(Condition::holds("Registered")));
        assert_eq!(shown(&list)[2], "Ready=True Ready `` since 30 of 1");
        let lost = Condition::fails("Registered", "NodeGone", "the node is gone");
        assert!(Conditions::new(&mut list, PARTS, 1, Time(40)).set(lost));
        assert_eq!(shown(&list)[2], "Ready=False UnhealthyDependents `Registered=False` since 40 of 1");
    }

    #[test]
    fn what_is_said_again_changes_nothing() {
        let mut list = Vec::new();
        let drifted = || Condition::new("Drifted", TRUE, "NodePoolDrifted", "");
        assert!(Conditions::new(&mut list, &[], 1, Time(10)).set(drifted()));
        assert!(!Conditions::new(&mut list, &[], 1, Time(20)).set(drifted()));
        // Another reason, or another generation, is a change; its time is that of the status.
        assert!(Conditions::new(&mut list, &[], 2, Time(30)).set(drifted()));
        assert!(Conditions::new(&mut list, &[], 2, Time(30)).set(Condition::holds("Drifted")));
        assert_eq!(shown(&list), ["Drifted=True Drifted `` since 10 of 2"]);
        assert!(Conditions::new(&mut list, &[], 2, Time(40)).clear("Drifted"));
        assert!(!Conditions::new(&mut list, &[], 2, Time(40)).clear("Drifted"));
        assert!(list.is_empty());
    }

    #[test]
    fn what_was_true_of_another_generation_counts_as_unknown() {
        let mut list = Vec::new();
        Conditions::new(&mut list, PARTS, 1, Time(10)).set(Condition::holds("Launched"));
        Conditions::new(&mut list, PARTS, 1, Time(10)).set(Condition::holds("Registered"));
        Conditions::new(&mut list, PARTS, 2, Time(20)).set(Condition::holds("Launched"));
        assert_eq!(shown(&list)[2], "Ready=Unknown ReconcilingDependents `Registered=True` since 20 of 2");
    }
}
