//! Conditions as Cluster API writes them: times move with the status alone, the order is fixed, and one condition
//! can sum up others.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

/// The order in which Cluster API lists conditions; others, such as readiness gates, come between first and last.
const FIRST: [&str; 21] = [
    "Available",
    "Ready",
    "UpToDate",
    "RemoteConnectionProbe",
    "BootstrapConfigReady",
    "InfrastructureReady",
    "ControlPlaneInitialized",
    "ControlPlaneAvailable",
    "WorkersAvailable",
    "NodeHealthy",
    "NodeReady",
    "HealthCheckSucceeded",
    "OwnerRemediated",
    "TopologyReconciled",
    "Updating",
    "RollingOut",
    "Remediating",
    "ScalingDown",
    "ScalingUp",
    "MachinesReady",
    "MachinesUpToDate",
];
const LAST: [&str; 2] = ["Paused", "Deleting"];

/// The answer of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Not known.
    Unknown,
}

impl Answer {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    /// Reads a condition; a missing one is unknown.
    pub fn of(condition: Option<&Condition>) -> Self {
        match condition.map(|condition| condition.status.as_str()) {
            Some("True") => Self::True,
            Some("False") => Self::False,
            _ => Self::Unknown,
        }
    }

    /// The answer to the opposite question.
    pub const fn negated(self) -> Self {
        match self {
            Self::True => Self::False,
            Self::False => Self::True,
            Self::Unknown => Self::Unknown,
        }
    }
}

impl From<bool> for Answer {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// The condition of a type among those of a status.
pub fn find(status: &Value, kind: &str) -> Option<Condition> {
    let list = status.get("conditions")?.as_array()?;
    let entry = list.iter().find(|entry| entry["type"] == kind)?;
    serde_json::from_value(entry.clone()).ok()
}

/// The answer of one condition in a status.
pub fn answer(status: &Value, kind: &str) -> Answer {
    Answer::of(find(status, kind).as_ref())
}

/// Conditions that are being written.
#[derive(Clone, Debug)]
pub struct Conditions {
    list: Vec<Condition>,
    generation: Option<i64>,
    now: Time,
}

impl Conditions {
    /// Begins with those of a status.
    pub fn of(status: &Value, generation: Option<i64>, now: &Time) -> Self {
        let entries = status.get("conditions").and_then(Value::as_array);
        let read = |entry: &Value| serde_json::from_value(entry.clone()).ok();
        Self { list: entries.into_iter().flatten().filter_map(read).collect(), generation, now: now.clone() }
    }

    /// The condition of a type.
    pub fn get(&self, kind: &str) -> Option<&Condition> {
        self.list.iter().find(|condition| condition.type_ == kind)
    }

    /// The answer of one condition.
    pub fn answer(&self, kind: &str) -> Answer {
        Answer::of(self.get(kind))
    }

    /// Sets one. Its time moves when its status does.
    pub fn set(&mut self, kind: &str, answer: Answer, reason: &str, message: impl Into<String>) {
        let known = self.get(kind).filter(|known| known.status == answer.name());
        let fresh = Condition {
            type_: kind.to_owned(),
            status: answer.name().to_owned(),
            reason: reason.to_owned(),
            message: message.into(),
            last_transition_time: known.map_or_else(|| self.now.clone(), |known| known.last_transition_time.clone()),
            observed_generation: self.generation,
        };
        match self.list.iter_mut().find(|condition| condition.type_ == kind) {
            Some(place) => *place = fresh,
            None => self.list.push(fresh),
        }
    }

    /// Takes one away.
    pub fn remove(&mut self, kind: &str) {
        self.list.retain(|condition| condition.type_ != kind);
    }

    /// All conditions: those that users look for first, then the others.
    pub fn into_value(mut self) -> Value {
        let place = |kind: &str| {
            let last = LAST.iter().position(|known| *known == kind).map(|index| FIRST.len() + 1 + index);
            FIRST.iter().position(|known| *known == kind).or(last).unwrap_or(FIRST.len())
        };
        self.list.sort_by(|a, b| (place(&a.type_), &a.type_).cmp(&(place(&b.type_), &b.type_)));
        json!(self.list)
    }
}

/// The conjunction of several answers: one that does not hold settles it, an unknown one leaves it open.
pub fn all(answers: impl IntoIterator<Item = Answer>) -> Answer {
    answers.into_iter().fold(Answer::True, |sum, answer| match (sum, answer) {
        (Answer::False, _) | (_, Answer::False) => Answer::False,
        (Answer::Unknown, _) | (_, Answer::Unknown) => Answer::Unknown,
        _ => Answer::True,
    })
}

/// The reason that goes with an answer.
pub const fn reason(answer: Answer, holds: &'static str, fails: &'static str, unknown: &'static str) -> &'static str {
    match answer {
        Answer::True => holds,
        Answer::False => fails,
        Answer::Unknown => unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Time {
        Time(text.parse().expect("a time"))
    }

    #[test]
    fn times_move_with_the_status_alone() {
        let (first, second) = (at("2026-01-01T00:00:00Z"), at("2026-01-01T00:01:00Z"));
        let mut conditions = Conditions::of(&Value::Null, Some(1), &first);
        conditions.set("Paused", Answer::False, "NotPaused", "");
        conditions.set("Bound", Answer::Unknown, "Waiting", "for a");
        conditions.set("Ready", Answer::Unknown, "Waiting", "");
        conditions.set("Available", Answer::False, "NotReady", "");
        let status = json!({"conditions": conditions.into_value()});
        let order: Vec<&str> =
            status["conditions"].as_array().expect("a list").iter().filter_map(|one| one["type"].as_str()).collect();
        assert_eq!(order, ["Available", "Ready", "Bound", "Paused"]);

        let mut later = Conditions::of(&status, Some(2), &second);
        later.set("Bound", Answer::Unknown, "Waiting", "for b");
        later.set("Ready", Answer::True, "Ready", "");
        let status = json!({"conditions": later.into_value()});
        let time = |kind| find(&status, kind).map(|condition| condition.last_transition_time);
        assert_eq!((time("Bound"), time("Ready")), (Some(first), Some(second)));
        assert_eq!(find(&status, "Bound").and_then(|condition| condition.observed_generation), Some(2));
    }

    #[test]
    fn sums() {
        use Answer::{False, True, Unknown};
        assert_eq!(all([]), True);
        assert_eq!(all([True, Unknown, True]), Unknown);
        assert_eq!(all([Unknown, False, True]), False);
        assert_eq!(Unknown.negated(), Unknown);
    }
}
