//! Whether what pools launch becomes nodes: the outcomes of their latest launches, for `NodeRegistrationHealthy`.
//!
//! As in Karpenter, a pool is unhealthy if two of its latest four machines were not launched in time or never became
//! nodes; a machine that registers makes it healthy if fewer failed. A change of the pool or of its class resets the
//! record. Stock-outs do not count, because they pass.
//!
//! The condition itself is written by [`crate::pools`]. It is also all that a controller that starts knows of what was
//! before, apart from the nodes that have come up since then.

use std::collections::{HashMap, VecDeque};

use kube::ResourceExt;
use millpond_api::condition::find;
use millpond_api::karpenter::conditions::{NODE_REGISTRATION_HEALTHY, REGISTERED};
use millpond_api::meta::Condition;
use millpond_runtime::meta::Key;
use parking_lot::{Mutex, RwLock};

use crate::cluster::{Cluster, pool_name};
use crate::kinds::{NodeClaim, NodePool};

/// Number of the latest launches of a pool that count.
const REMEMBERED: usize = 4;
/// A pool with this many failures among them is unhealthy.
const TOO_MANY: usize = 2;

/// The outcome of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launch {
    /// A node registered.
    Registered,
    /// The claim was given up.
    Failed {
        /// The reason, in one word.
        reason: String,
        /// The message.
        message: String,
    },
}

/// The condition to write to a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Unknown,
    Healthy,
    Unhealthy { reason: String, message: String },
}

/// The latest launches of a pool since it last changed.
#[derive(Debug, Default)]
struct Record {
    /// Generations of the pool and of its class that they belong to.
    of: (i64, i64),
    latest: VecDeque<Launch>,
    /// Whether the record is newer than the condition.
    has_news: bool,
}

impl Record {
    fn push(&mut self, launch: Launch) {
        if self.latest.len() == REMEMBERED {
            self.latest.pop_front();
        }
        self.latest.push_back(launch);
        self.has_news = true;
    }

    /// A single failure alone gives no verdict.
    fn verdict(&self) -> Verdict {
        let mut failures = self.latest.iter().filter(|launch| **launch != Launch::Registered);
        match (failures.nth(TOO_MANY - 1), self.latest.contains(&Launch::Registered)) {
            (Some(Launch::Failed { reason, message }), _) => {
                Verdict::Unhealthy { reason: reason.clone(), message: message.clone() }
            }
            (_, true) => Verdict::Healthy,
            (_, false) => Verdict::Unknown,
        }
    }

    /// The record at startup, from the condition of a pool and its nodes.
    fn restore(pool: &NodePool, claims: &[impl AsRef<NodeClaim>]) -> Self {
        let condition = find(&pool.status.conditions, NODE_REGISTRATION_HEALTHY);
        let generation = condition.and_then(|condition| condition.observed_generation);
        let of = (generation.unwrap_or_default(), pool.status.node_class_observed_generation);
        let mut record = Self { of, ..Self::default() };
        match condition {
            Some(condition) if condition.is_true() => record.push(Launch::Registered),
            Some(condition) if condition.is_false() => {
                let (reason, message) = (condition.reason.clone(), condition.message.clone());
                let failed = Launch::Failed { reason, message };
                (0..TOO_MANY).for_each(|_| record.push(failed.clone()));
            }
            Some(unknown) => {
                let has_come_since = |claim: &NodeClaim| {
                    find(&claim.status.conditions, REGISTERED).is_some_and(|registered| {
                        registered.is_true() && registered.last_transition_time >= unknown.last_transition_time
                    })
                };
                if claims.iter().any(|claim| is_of(claim.as_ref(), pool) && has_come_since(claim.as_ref())) {
                    record.push(Launch::Registered);
                }
            }
            None => {}
        }
        record
    }
}

type Listener = Box<dyn Fn(&str) + Send + Sync>;

/// The latest launches of all pools.
#[derive(Default)]
pub struct Health {
    /// By the uid of the pool.
    records: Mutex<HashMap<String, Record>>,
    listeners: RwLock<Vec<Listener>>,
}

impl Health {
    /// Calls `listener` with the name of a pool whenever there is something else to say of it.
    pub fn on_change(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        self.listeners.write().push(Box::new(listener));
    }

    /// Takes down what became of a claim, if a pool made it.
    pub(crate) fn note(&self, cluster: &Cluster, claim: &NodeClaim, launch: Launch) {
        let Some(name) = pool_name(claim) else { return };
        let pool = cluster.pools.get(&Key::new("", name));
        let Some(pool) = pool.filter(|pool| is_of(claim, pool)) else { return };
        let changed = self.with_record(cluster, &pool, |record| {
            let before = record.verdict();
            record.push(launch);
            record.verdict() != before
        });
        if changed {
            self.listeners.read().iter().for_each(|listener| listener(name));
        }
    }

    /// The condition of a pool.
    pub(crate) fn condition(&self, cluster: &Cluster, pool: &NodePool, class_generation: i64) -> Condition {
        let now = (pool.metadata.generation.unwrap_or_default(), class_generation);
        let said = find(&pool.status.conditions, NODE_REGISTRATION_HEALTHY);
        let said_of = (said.and_then(|said| said.observed_generation), pool.status.node_class_observed_generation);
        self.with_record(cluster, pool, |record| {
            if record.of != now {
                *record = Record { of: now, ..Record::default() };
            }
            let says = condition(record.verdict(), said);
            let is_current = said_of == (Some(now.0), now.1);
            match said.filter(|_| is_current) {
                Some(said) if (&said.status, &said.reason) == (&says.status, &says.reason) => record.has_news = false,
                // Another controller reported another result. A controller without new results does not overwrite it:
                // two controllers that did would never stop.
                Some(said) if !record.has_news => {
                    return Condition::new(&said.kind, &said.status, &said.reason, &*said.message);
                }
                _ => {}
            }
            says
        })
    }

    /// Drops a pool that no longer exists.
    pub(crate) fn forget(&self, pool: &NodePool) {
        self.records.lock().remove(uid(pool));
    }

    fn with_record<R>(&self, cluster: &Cluster, pool: &NodePool, act: impl FnOnce(&mut Record) -> R) -> R {
        let mut records = self.records.lock();
        let restore = || Record::restore(pool, &cluster.claims.indexed(pool.name()));
        act(records.entry(uid(pool).to_owned()).or_insert_with(restore))
    }
}

fn condition(verdict: Verdict, said: Option<&Condition>) -> Condition {
    let kind = NODE_REGISTRATION_HEALTHY;
    match (verdict, said) {
        (Verdict::Healthy, _) => Condition::holds(kind),
        // The failure that turned the condition is the interesting one; further failures do not change it.
        (Verdict::Unhealthy { .. }, Some(said)) if said.is_false() => {
            Condition::fails(kind, &said.reason, said.message.clone())
        }
        (Verdict::Unhealthy { reason, message }, _) => Condition::fails(kind, &reason, message),
        (Verdict::Unknown, _) => {
            let message = "no node has come up since the pool or its node class was last changed";
            Condition::unknown(kind, "AwaitingReconciliation", message)
        }
    }
}

/// Whether a pool made a claim: one of the same name may have been there before.
fn is_of(claim: &NodeClaim, pool: &NodePool) -> bool {
    claim.owner_references().iter().any(|owner| owner.kind == "NodePool" && owner.uid == uid(pool))
}

fn uid(pool: &NodePool) -> &str {
    pool.metadata.uid.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    fn failed(reason: &str) -> Launch {
        Launch::Failed { reason: reason.to_owned(), message: String::new() }
    }

    /// The verdict after each of the launches: `+` came up, `-` did not.
    fn verdicts(launches: &str) -> String {
        let mut record = Record::default();
        let after = launches.chars().map(|launch| {
            record.push(if launch == '+' { Launch::Registered } else { failed("LaunchFailed") });
            match record.verdict() {
                Verdict::Unknown => '?',
                Verdict::Healthy => '+',
                Verdict::Unhealthy { .. } => '-',
            }
        });
        after.collect()
    }

    #[test]
    fn two_failures_among_the_latest_four_are_too_many() {
        assert_eq!(verdicts("+++"), "+++");
        assert_eq!(verdicts("-+"), "?+");
        assert_eq!(verdicts("--+++"), "?---+");
        assert_eq!(verdicts("+-+-+-++++"), "+++----+++");
    }

    fn pool(condition: &Value) -> NodePool {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "uid": "u", "generation": 3},
            "spec": {"template": {"spec": {
                "requirements": [],
                "nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": "default"},
            }}},
            "status": {"nodeClassObservedGeneration": 2, "conditions": [condition]},
        }))
        .unwrap()
    }

    fn said(status: &str) -> Value {
        json!({
            "type": NODE_REGISTRATION_HEALTHY, "status": status, "reason": "RegistrationFailed", "message": "nothing came",
            "lastTransitionTime": "2026-01-01T00:10:00Z", "observedGeneration": 3,
        })
    }

    fn claim(owner: &str, registered: &str) -> Arc<NodeClaim> {
        let condition = json!({
            "type": REGISTERED, "status": "True", "reason": "", "message": "", "lastTransitionTime": registered,
        });
        serde_json::from_value(json!({
            "metadata": {
                "name": "web-1",
                "ownerReferences": [{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "web", "uid": owner}],
            },
            "spec": {
                "requirements": [],
                "nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": "default"},
            },
            "status": {"conditions": [condition]},
        }))
        .map(Arc::new)
        .unwrap()
    }

    #[test]
    fn a_new_controller_goes_on_from_what_the_pool_says() {
        let restored = |status: &str| Record::restore(&pool(&said(status)), &[] as &[Arc<NodeClaim>]);
        assert_eq!(restored("True").verdict(), Verdict::Healthy);
        assert_eq!(restored("True").of, (3, 2));
        let message = "nothing came".to_owned();
        assert_eq!(restored("False").verdict(), Verdict::Unhealthy { reason: "RegistrationFailed".into(), message });
        assert_eq!(restored("Unknown").verdict(), Verdict::Unknown);
    }

    #[test]
    fn a_node_that_came_up_unnoticed_counts_for_its_own_pool() {
        let restored =
            |owner: &str, time: &str| Record::restore(&pool(&said("Unknown")), &[claim(owner, time)]).verdict();
        assert_eq!(restored("u", "2026-01-01T00:11:00Z"), Verdict::Healthy);
        assert_eq!(restored("u", "2026-01-01T00:09:00Z"), Verdict::Unknown, "from before the change");
        assert_eq!(restored("another", "2026-01-01T00:11:00Z"), Verdict::Unknown);
    }

    #[test]
    fn the_first_failure_is_the_one_that_is_reported() {
        let verdict = || Verdict::Unhealthy { reason: "LaunchFailed".into(), message: "denied".into() };
        let known: Condition = serde_json::from_value(said("False")).unwrap();
        assert_eq!(condition(verdict(), Some(&known)).reason, "RegistrationFailed");
        let known: Condition = serde_json::from_value(said("True")).unwrap();
        assert_eq!(condition(verdict(), Some(&known)).reason, "LaunchFailed");
        assert_eq!(condition(verdict(), None).message, "denied");
    }
}
