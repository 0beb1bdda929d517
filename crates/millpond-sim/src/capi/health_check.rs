//! MachineHealthChecks: Machines whose Nodes are unhealthy for too long, or never register, are marked; their
//! MachineSet then replaces them.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use millpond_api::capi::names;
use millpond_api::duration;
use millpond_controllers::kinds::{Machine, MachineHealthCheck};
use serde_json::{Value, json};

use super::conditions::{Answer, Conditions};
use super::{Capi, at, is_paused, text};
use crate::error::Result;
use crate::meta::{Key, annotation, is_leaving, status_patch};
use crate::queue::Queue;
use crate::scheduler::fit::labels::Selector;
use crate::worker::Reconcile;

/// Never replaced by a health check (annotation, on a Machine).
const SKIP: &str = "cluster.x-k8s.io/skip-remediation";
/// The Machine is to be replaced at once (annotation on a Machine).
const REMEDIATE: &str = "cluster.x-k8s.io/remediate-machine";
/// The default of `nodeStartupTimeout`.
const DEFAULT_STARTUP_S: i64 = 600;

/// The health check controller.
pub struct HealthChecks {
    capi: Arc<Capi>,
}

/// The result of checking a Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Finding {
    /// Healthy, as far as known; to be checked again at that time.
    Well(Option<Timestamp>),
    /// The Machine is unhealthy: reason and message.
    Ill(&'static str, String),
}

/// The conditions that make a Machine unhealthy.
struct Rules {
    /// Type, status, and for how long.
    conditions: Vec<(String, String, i64)>,
    startup_s: i64,
    most_unhealthy: Option<String>,
}

impl Rules {
    fn of(spec: &Value) -> Self {
        let new = at(spec, &["checks", "unhealthyNodeConditions"]).as_array();
        let old = at(spec, &["unhealthyConditions"]).as_array();
        let seconds = |entry: &Value| {
            let written = entry["timeout"].as_str().and_then(|text| duration::parse_seconds(text).ok());
            entry["timeoutSeconds"].as_i64().or(written).unwrap_or_default()
        };
        let word = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let read = |entry: &Value| (word(entry, "type"), word(entry, "status"), seconds(entry));
        let startup = at(spec, &["checks", "nodeStartupTimeoutSeconds"]).as_i64();
        let startup =
            startup.or_else(|| text(spec, &["nodeStartupTimeout"]).and_then(|text| duration::parse_seconds(text).ok()));
        let most = [at(spec, &["remediation", "triggerIf", "unhealthyLessThanOrEqualTo"]), at(spec, &["maxUnhealthy"])];
        let most = most.into_iter().find(|value| !value.is_null());
        Self {
            conditions: new.or(old).into_iter().flatten().map(read).collect(),
            startup_s: startup.unwrap_or(DEFAULT_STARTUP_S),
            most_unhealthy: most.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
        }
    }

    /// Whether few enough Machines are unhealthy that replacing them can help.
    fn allow(&self, ill: usize, all: usize) -> bool {
        let Some(most) = &self.most_unhealthy else { return true };
        let limit = match most.strip_suffix('%') {
            Some(percent) => percent.parse::<usize>().map_or(all, |percent| percent * all / 100),
            None => most.parse().unwrap_or(all),
        };
        ill <= limit
    }

    fn judge(&self, machine: &Machine, node: Option<&Node>, now: Timestamp) -> Finding {
        if annotation(machine, REMEDIATE).is_some() {
            return Finding::Ill("HasRemediateAnnotation", "marked for remediation".to_owned());
        }
        let after = |moment: Timestamp, seconds: i64| {
            moment.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
        };
        let Some(node) = node else {
            if let Some(name) = text(&machine.status, &["nodeRef", "name"]) {
                return Finding::Ill("NodeDeleted", format!("Node {name} has been deleted"));
            }
            let begun = machine.creation_timestamp().map_or(now, |time| time.0);
            let due = after(begun, self.startup_s);
            return if self.startup_s > 0 && due <= now {
                let message = format!("Node failed to report startup in {}s", self.startup_s);
                Finding::Ill("NodeStartupTimeout", message)
            } else {
                Finding::Well((self.startup_s > 0).then_some(due))
            };
        };
        let mut next = None;
        for (kind, status, seconds) in &self.conditions {
            let found = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let Some(found) = found.into_iter().find(|one| one.type_ == *kind && one.status == *status) else {
                continue;
            };
            let since = found.last_transition_time.as_ref().map_or(now, |time| time.0);
            let due = after(since, *seconds);
            if due <= now {
                let message = format!("Condition {kind} on Node is reporting status {status} for more than {seconds}s");
                return Finding::Ill("UnhealthyNode", message);
            }
            next = [next, Some(due)].into_iter().flatten().min();
        }
        Finding::Well(next)
    }
}

impl HealthChecks {
    /// The controller, and the work queue that watches fill.
    pub fn new(capi: &Arc<Capi>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new());
        let own = Arc::clone(&queue);
        capi.health_checks.on_change(move |_, new| {
            if let Some(check) = new {
                own.add(Key::of(&**check));
            }
        });
        let (own, checks, batch) = (Arc::clone(&queue), Arc::clone(&capi.health_checks), capi.cluster.options.batch);
        let wake = move |machine: &Machine| {
            for check in checks.list_in(&machine.namespace().unwrap_or_default()) {
                if targets(&check, machine) {
                    own.add_after(Key::of(&*check), batch);
                }
            }
        };
        let wake = Arc::new(wake);
        let of_machines = Arc::clone(&wake);
        capi.machines.on_change(move |old, new| {
            if let Some(machine) = new.or(old) {
                of_machines(machine);
            }
        });
        let shared = Arc::clone(capi);
        capi.cluster.nodes.on_change(move |old, new| {
            if let Some(machine) = new.or(old).and_then(|node| shared.machine_of(node)) {
                wake(&machine);
            }
        });
        (Arc::new(Self { capi: Arc::clone(capi) }), queue)
    }

    /// Writes what was found to the Machine.
    async fn mark(&self, machine: &Machine, finding: &Finding, replace: bool) -> Result<()> {
        let now = self.capi.cluster.clock.time();
        let mut conditions = Conditions::of(&machine.status, machine.metadata.generation, &now);
        match finding {
            Finding::Well(_) => {
                conditions.set("HealthCheckSucceeded", Answer::True, "HealthCheckSucceeded", "");
                conditions.remove("OwnerRemediated");
            }
            Finding::Ill(reason, message) => {
                conditions.set(
                    "HealthCheckSucceeded",
                    Answer::False,
                    reason,
                    format!("Health check failed: {message}"),
                );
                if replace {
                    conditions.set(
                        "OwnerRemediated",
                        Answer::False,
                        "WaitingForRemediation",
                        "Waiting for remediation",
                    );
                }
            }
        }
        let mut status = if machine.status.is_object() { machine.status.clone() } else { json!({}) };
        status["conditions"] = conditions.into_value();
        if let Some(patch) = status_patch(machine, Some(&machine.status), &status) {
            self.capi.machines.patch_status(&Key::of(machine), &patch).await?;
        }
        Ok(())
    }

    async fn write_status(&self, check: &MachineHealthCheck, all: usize, healthy: usize, allowed: bool) -> Result<()> {
        let now = self.capi.cluster.clock.time();
        let mut status = if check.status.is_object() { check.status.clone() } else { json!({}) };
        status["observedGeneration"] = json!(check.metadata.generation);
        status["expectedMachines"] = json!(all);
        status["currentHealthy"] = json!(healthy);
        let mut conditions = Conditions::of(&status, check.metadata.generation, &now);
        let reason = if allowed { "RemediationAllowed" } else { "TooManyUnhealthy" };
        conditions.set("RemediationAllowed", allowed.into(), reason, "");
        status["conditions"] = conditions.into_value();
        if let Some(patch) = status_patch(check, Some(&check.status), &status) {
            self.capi.health_checks.patch_status(&Key::of(check), &patch).await?;
        }
        Ok(())
    }
}

impl Reconcile for HealthChecks {
    const NAME: &'static str = "machinehealthcheck-controller";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(check) = self.capi.health_checks.get(key).filter(|check| !is_leaving(&**check)) else {
            return Ok(None);
        };
        let Some(cluster) = self.capi.cluster_of(&key.namespace, &check.spec) else { return Ok(None) };
        if is_paused(&cluster, &*check) {
            return Ok(None);
        }
        let (rules, now) = (Rules::of(&check.spec), self.capi.cluster.clock.now());
        let mut machines = self.capi.machines.list_in(&key.namespace);
        machines.retain(|machine| targets(&check, machine));
        let judge = |machine: &Machine| {
            let node = text(&machine.status, &["nodeRef", "name"]);
            let node = node.and_then(|name| self.capi.cluster.nodes.get(&Key::new("", name)));
            rules.judge(machine, node.as_deref(), now)
        };
        let found: Vec<(Arc<Machine>, Finding)> =
            machines.into_iter().filter(|one| !is_leaving(&**one)).map(|one| (Arc::clone(&one), judge(&one))).collect();
        let ill = found.iter().filter(|(_, finding)| matches!(finding, Finding::Ill(..))).count();
        let allowed = rules.allow(ill, found.len());
        for (machine, finding) in &found {
            let spared = annotation(&**machine, SKIP).is_some();
            self.mark(machine, finding, allowed && !spared).await?;
        }
        self.write_status(&check, found.len(), found.len() - ill, allowed).await?;
        let next = found.iter().filter_map(|(_, finding)| match finding {
            Finding::Well(next) => *next,
            Finding::Ill(..) => None,
        });
        Ok(next.min().map(|moment| self.capi.cluster.clock.until(moment)))
    }
}

/// Whether a check looks after a Machine.
fn targets(check: &MachineHealthCheck, machine: &Machine) -> bool {
    let selector = serde_json::from_value(check.spec["selector"].clone()).ok();
    let selector = Selector::compile(selector.as_ref());
    let cluster = text(&check.spec, &["clusterName"]);
    let same = cluster.is_some() && machine.labels().get(names::CLUSTER_NAME).map(String::as_str) == cluster;
    same && selector.matches(machine.labels())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(more: &Value) -> Machine {
        let mut value = json!({
            "metadata": {"name": "m", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {},
            "status": {"nodeRef": {"name": "n"}},
        });
        super::super::infrastructure::shared::merge(&mut value, more);
        serde_json::from_value(value).expect("a machine")
    }

    fn node(ready: &str) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n"}, "status": {"conditions": [
            {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:10:00Z"},
        ]}}))
        .expect("a node")
    }

    #[test]
    fn unhealthy_machines_are_found() {
        let old = json!({"unhealthyConditions": [{"type": "Ready", "status": "False", "timeout": "5m"}],
            "nodeStartupTimeout": "20m"});
        let new = json!({"checks": {"nodeStartupTimeoutSeconds": 1200,
            "unhealthyNodeConditions": [{"type": "Ready", "status": "False", "timeoutSeconds": 300}]}});
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        for spec in [old, new] {
            let rules = Rules::of(&spec);
            let judge = |machine: &Machine, node: Option<&Node>, now: &str| rules.judge(machine, node, at(now));
            let (well, ill) = (node("True"), node("False"));
            let running = machine(&json!({}));
            assert_eq!(judge(&running, Some(&well), "2026-01-01T09:00:00Z"), Finding::Well(None));
            let due = Some(at("2026-01-01T00:15:00Z"));
            assert_eq!(judge(&running, Some(&ill), "2026-01-01T00:14:00Z"), Finding::Well(due));
            assert!(matches!(judge(&running, Some(&ill), "2026-01-01T00:15:00Z"), Finding::Ill("UnhealthyNode", _)));
            assert!(matches!(judge(&running, None, "2026-01-01T00:15:00Z"), Finding::Ill("NodeDeleted", _)));
            let starting = machine(&json!({"status": null}));
            let due = Some(at("2026-01-01T00:20:00Z"));
            assert_eq!(judge(&starting, None, "2026-01-01T00:19:00Z"), Finding::Well(due));
            assert!(matches!(judge(&starting, None, "2026-01-01T00:20:00Z"), Finding::Ill("NodeStartupTimeout", _)));
        }
    }

    #[test]
    fn too_many_at_once_are_left_alone() {
        let rules = |most: Value| Rules::of(&json!({"maxUnhealthy": most}));
        assert!(rules(json!("40%")).allow(2, 5) && !rules(json!("40%")).allow(3, 5));
        assert!(rules(json!(1)).allow(1, 5) && !rules(json!(1)).allow(2, 5));
        assert!(Rules::of(&json!({})).allow(5, 5));
    }
}
