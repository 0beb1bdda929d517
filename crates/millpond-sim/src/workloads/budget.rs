//! PodDisruptionBudgets: how many pods may be evicted right now.
//!
//! The API server's eviction handler counts against these numbers and lists the pods that it has
//! let go; this controller keeps the numbers true.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use super::pods::is_ready;
use super::scaled::{Round, resolve};
use crate::clock::after_seconds;
use crate::cluster::Cluster;
use crate::error::Result;
use crate::kinds::Kind;
use crate::meta::{Key, controller_of, is_leaving, status_patch};
use crate::mirror::Mirror;
use crate::queue::Queue;
use crate::scheduler::fit::labels::Selector;
use crate::worker::Reconcile;

const COMPONENT: &str = "disruption-controller";
/// A pod that was let go but is still there after this long is counted again.
const DISRUPTION_SECONDS: i64 = 120;

/// The controller of disruption budgets.
pub struct Budgets {
    cluster: Arc<Cluster>,
}

impl Budgets {
    /// The controller, and the work queue that watches fill.
    pub fn new(cluster: Arc<Cluster>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new());
        let own = Arc::clone(&queue);
        cluster.budgets.on_change(move |_, new| {
            if let Some(budget) = new {
                own.add(Key::of(&**budget));
            }
        });
        let (pods, budgets) = (Arc::clone(&queue), Arc::clone(&cluster.budgets));
        let batch = cluster.options.batch;
        cluster.pods.on_change(move |old, new| {
            if old.map(|pod| health(pod)) == new.map(|pod| health(pod)) {
                return;
            }
            let Some(namespace) = old.or(new).and_then(|pod| pod.namespace()) else {
                return;
            };
            for budget in budgets.list_in(&namespace) {
                let selector = selector(&budget);
                if [old, new].into_iter().flatten().any(|pod| selector.matches(pod.labels())) {
                    // A loss is written at once; a gain may wait for further changes.
                    let is_gain = new.is_some_and(|pod| is_ready(pod) && !is_leaving(&**pod));
                    let delay = if is_gain { batch } else { Duration::ZERO };
                    pods.add_after(Key::of(&*budget), delay);
                }
            }
        });
        Self::on_scale(&cluster, &queue);
        (Arc::new(Self { cluster }), queue)
    }

    /// The size of a workload decides what a percentage means.
    fn on_scale(cluster: &Arc<Cluster>, queue: &Arc<Queue<Key>>) {
        watch_scale(&cluster.deployments, cluster, queue, |one| one.spec.as_ref()?.replicas);
        watch_scale(&cluster.replica_sets, cluster, queue, |one| one.spec.as_ref()?.replicas);
        watch_scale(&cluster.stateful_sets, cluster, queue, |one| one.spec.as_ref()?.replicas);
    }

    /// The pods that all workloads behind these pods should have together.
    fn expected_scale(&self, pods: &[Arc<Pod>]) -> Result<i32, String> {
        let mut scales: BTreeMap<String, i32> = BTreeMap::new();
        for pod in pods {
            let Some(owner) = controller_of(&**pod) else {
                continue;
            };
            if scales.contains_key(&owner.uid) {
                continue;
            }
            let (uid, scale) =
                self.scale_of(&pod.namespace().unwrap_or_default(), &owner.kind, &owner.name).ok_or_else(|| {
                    format!("{}.{} does not implement the scale subresource", owner.kind, owner.api_version)
                })?;
            scales.insert(uid, scale);
        }
        Ok(scales.values().sum())
    }

    fn scale_of(&self, namespace: &str, kind: &str, name: &str) -> Option<(String, i32)> {
        let key = Key::new(namespace, name);
        match kind {
            "ReplicaSet" => {
                let set = self.cluster.replica_sets.get(&key)?;
                match controller_of(&*set).filter(|owner| owner.kind == "Deployment") {
                    Some(owner) => {
                        let deployment = self.cluster.deployments.get(&Key::new(namespace, &owner.name))?;
                        Some((owner.uid.clone(), deployment.spec.as_ref()?.replicas.unwrap_or(1)))
                    }
                    None => Some((set.uid()?, set.spec.as_ref()?.replicas.unwrap_or(1))),
                }
            }
            "StatefulSet" => {
                let set = self.cluster.stateful_sets.get(&key)?;
                Some((set.uid()?, set.spec.as_ref()?.replicas.unwrap_or(1)))
            }
            _ => None,
        }
    }

    fn demand(&self, budget: &PodDisruptionBudget, pods: &[Arc<Pod>]) -> Result<Demand, String> {
        let spec = budget.spec.clone().unwrap_or_default();
        if let Some(limit) = &spec.max_unavailable {
            let expected = self.expected_scale(pods)?;
            let down = resolve(limit, expected, Round::Up).ok_or("maxUnavailable is no number")?;
            return Ok(Demand { expected, desired: (expected - down).max(0) });
        }
        match &spec.min_available {
            Some(IntOrString::Int(desired)) => Ok(Demand { expected: pods.len() as i32, desired: *desired }),
            Some(share) => {
                let expected = self.expected_scale(pods)?;
                let desired = resolve(share, expected, Round::Up).ok_or("minAvailable is no number")?;
                Ok(Demand { expected, desired })
            }
            None => Ok(Demand { expected: pods.len() as i32, desired: 0 }),
        }
    }
}

/// The requirement of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Demand {
    expected: i32,
    desired: i32,
}

impl Reconcile for Budgets {
    const NAME: &'static str = COMPONENT;

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(budget) = self.cluster.budgets.get(key) else {
            return Ok(None);
        };
        let selector = selector(&budget);
        let pods: Vec<_> = self
            .cluster
            .pods
            .list_in(&key.namespace)
            .into_iter()
            .filter(|pod| !crate::meta::has_ended(pod) && selector.matches(pod.labels()))
            .collect();
        let now = self.cluster.clock.time();
        let demand = self.demand(&budget, &pods);
        let (status, again) = status(&budget, &pods, demand, &now);
        if let Some(patch) = status_patch(&*budget, budget.status.as_ref(), &status) {
            self.cluster.budgets.patch_status(key, &patch).await?;
        }
        Ok(again)
    }
}

fn watch_scale<K: Kind>(
    mirror: &Mirror<K>,
    cluster: &Arc<Cluster>,
    queue: &Arc<Queue<Key>>,
    replicas: fn(&K) -> Option<i32>,
) {
    let (queue, budgets) = (Arc::clone(queue), Arc::clone(&cluster.budgets));
    mirror.on_change(move |old, new| {
        if old.map(|object| replicas(object)) != new.map(|object| replicas(object)) {
            let namespace = old.or(new).and_then(|object| object.namespace()).unwrap_or_default();
            budgets.list_in(&namespace).iter().for_each(|budget| queue.add(Key::of(&**budget)));
        }
    });
}

fn selector(budget: &PodDisruptionBudget) -> Selector {
    Selector::compile(budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()))
}

type Health<'a> = (bool, bool, bool, Option<&'a BTreeMap<String, String>>, Option<&'a str>);

/// The health of a pod as budgets count it.
fn health(pod: &Pod) -> Health<'_> {
    let owner = controller_of(pod).map(|owner| owner.uid.as_str());
    (is_ready(pod), is_leaving(pod), crate::meta::has_ended(pod), pod.metadata.labels.as_ref(), owner)
}

fn status(
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    demand: Result<Demand, String>,
    now: &Time,
) -> (PodDisruptionBudgetStatus, Option<Duration>) {
    let old = budget.status.clone().unwrap_or_default();
    let mut status = PodDisruptionBudgetStatus {
        observed_generation: budget.metadata.generation,
        conditions: old.conditions.clone(),
        ..PodDisruptionBudgetStatus::default()
    };
    let (disrupted, again) = still_disrupted(&old, pods, now.0);
    let demand = match demand {
        Ok(demand) => demand,
        Err(problem) => {
            // While the numbers are unknown, no eviction is allowed.
            status = PodDisruptionBudgetStatus { disruptions_allowed: Some(0), conditions: status.conditions, ..old };
            set_condition(&mut status, budget, "SyncFailed", &problem, now);
            return (status, again);
        }
    };
    let healthy = pods
        .iter()
        .filter(|pod| is_ready(pod) && !is_leaving(&***pod) && !disrupted.contains_key(&pod.name_any()))
        .count() as i32;
    status.expected_pods = Some(demand.expected);
    status.desired_healthy = Some(demand.desired);
    status.current_healthy = Some(healthy);
    status.disruptions_allowed = Some(if demand.expected <= 0 { 0 } else { (healthy - demand.desired).max(0) });
    status.disrupted_pods = (!disrupted.is_empty()).then_some(disrupted);
    let reason = if status.disruptions_allowed > Some(0) { "SufficientPods" } else { "InsufficientPods" };
    set_condition(&mut status, budget, reason, "", now);
    (status, again)
}

/// Pods that were let go and have not begun to leave yet.
fn still_disrupted(
    old: &PodDisruptionBudgetStatus,
    pods: &[Arc<Pod>],
    now: Timestamp,
) -> (BTreeMap<String, Time>, Option<Duration>) {
    let mut kept = BTreeMap::new();
    let mut soonest: Option<Timestamp> = None;
    for pod in pods.iter().filter(|pod| !is_leaving(&***pod)) {
        if let Some(since) = old.disrupted_pods.as_ref().and_then(|disrupted| disrupted.get(&pod.name_any())) {
            let expires = after_seconds(since.0, DISRUPTION_SECONDS);
            if expires > now {
                soonest = Some(soonest.map_or(expires, |known| known.min(expires)));
                kept.insert(pod.name_any(), since.clone());
            }
        }
    }
    (kept, soonest.and_then(|moment| Duration::try_from(moment.duration_since(now)).ok()))
}

fn set_condition(
    status: &mut PodDisruptionBudgetStatus,
    budget: &PodDisruptionBudget,
    reason: &str,
    message: &str,
    now: &Time,
) {
    let conditions = status.conditions.get_or_insert_default();
    let value = if status.disruptions_allowed > Some(0) { "True" } else { "False" };
    let known = conditions.iter().position(|condition| condition.type_ == "DisruptionAllowed");
    let since = known
        .map(|index| &conditions[index])
        .filter(|condition| condition.status == value)
        .map_or_else(|| now.clone(), |condition| condition.last_transition_time.clone());
    let fresh = Condition {
        type_: "DisruptionAllowed".to_owned(),
        status: value.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: budget.metadata.generation,
        last_transition_time: since,
    };
    match known {
        Some(index) => conditions[index] = fresh,
        None => conditions.push(fresh),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn budget(status: Value) -> PodDisruptionBudget {
        serde_json::from_value(json!({
            "metadata": {"name": "b", "generation": 1},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 2},
            "status": status,
        }))
        .expect("a budget")
    }

    fn pods(states: &[&str]) -> Vec<Arc<Pod>> {
        let make = |(index, state): (usize, &&str)| {
            let mut pod = json!({
                "metadata": {"name": format!("p{index}")},
                "status": {"conditions": [{"type": "Ready", "status": if *state == "down" { "False" } else { "True" }}]},
            });
            if *state == "leaving" {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            Arc::new(serde_json::from_value(pod).expect("a pod"))
        };
        states.iter().enumerate().map(make).collect()
    }

    fn now() -> Time {
        Time("2026-01-01T00:01:00Z".parse().expect("a time"))
    }

    fn empty() -> Value {
        json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0})
    }

    #[test]
    fn healthy_pods_above_the_wish_may_go() {
        let (got, _) = status(&budget(empty()), &pods(&["up", "up", "up", "down"]), demand_of(4, 2), &now());
        assert_eq!((got.current_healthy, got.disruptions_allowed), (Some(3), Some(1)));
        assert_eq!(got.conditions.as_ref().expect("conditions")[0].reason, "SufficientPods");
        let (got, _) = status(&budget(empty()), &pods(&["up", "up", "leaving", "down"]), demand_of(4, 2), &now());
        assert_eq!((got.current_healthy, got.disruptions_allowed), (Some(2), Some(0)));
        assert_eq!(got.conditions.expect("conditions")[0].reason, "InsufficientPods");
    }

    #[expect(clippy::unnecessary_wraps, reason = "it stands where a failure could stand")]
    fn demand_of(expected: i32, desired: i32) -> Result<Demand, String> {
        Ok(Demand { expected, desired })
    }

    #[test]
    fn pods_that_were_let_go_are_not_counted_for_a_while() {
        let mut value = empty();
        value["disruptedPods"] =
            json!({"p0": "2026-01-01T00:00:30Z", "p1": "2025-12-31T23:00:00Z", "gone": "2026-01-01T00:00:30Z"});
        let (got, again) = status(&budget(value), &pods(&["up", "up", "up"]), demand_of(3, 1), &now());
        assert_eq!(got.disrupted_pods.expect("some").keys().collect::<Vec<_>>(), ["p0"]);
        assert_eq!((got.current_healthy, got.disruptions_allowed), (Some(2), Some(1)));
        assert_eq!(again, Some(Duration::from_secs(90)));
    }

    #[test]
    fn unknown_scales_forbid_everything() {
        let mut value = empty();
        value["disruptionsAllowed"] = json!(3);
        let (got, _) = status(&budget(value), &pods(&["up"]), Err("no scale".into()), &now());
        assert_eq!(got.disruptions_allowed, Some(0));
        let condition = &got.conditions.expect("conditions")[0];
        assert_eq!((condition.reason.as_str(), condition.message.as_str()), ("SyncFailed", "no scale"));
    }
}
