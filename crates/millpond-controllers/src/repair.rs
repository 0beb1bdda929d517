//! Nodes whose machine is broken are replaced, without waiting for their pods.
//!
//! What says that a machine is broken, and how long that is borne, comes from its provider. When many nodes of a pool
//! are unwell, the fault is probably not with the machines, and none is replaced.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use millpond_api::karpenter::TERMINATION_TIMESTAMP_ANNOTATION;
use millpond_api::labels;
use millpond_api::time::Time;
use millpond_providers::RepairPolicy;
use millpond_runtime::error::Result;
use millpond_runtime::events::EventReason;
use millpond_runtime::meta::{Key, annotation, is_leaving};
use millpond_runtime::queue::Queue;
use millpond_runtime::worker::Reconcile;
use serde_json::json;

use crate::claims::claim_of;
use crate::cluster::is_our_class;
use crate::context::Context;
use crate::decisions;
use crate::kinds::NodeClaim;
use crate::metrics::disrupted_by;
use crate::nodes;
use crate::turn::Turn;

/// More than this share of a pool, rounded up, is not repaired.
const MOST_PERCENT: usize = 20;
/// While too many are unwell, the next look is after this long.
const BLOCKED_FOR: Duration = Duration::from_mins(5);

const BLOCKED: EventReason =
    EventReason { component: "millpond", action: "Repair", reason: "NodeRepairBlocked", warning: true };
const REPAIRED: EventReason =
    EventReason { component: "millpond", action: "Repair", reason: "DisruptionTerminating", warning: true };

/// Replaces broken nodes.
pub struct Repair {
    context: Arc<Context>,
}

impl Repair {
    /// Acts on this cluster.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Asks for work on every node that is unwell.
    pub fn listen(context: &Arc<Context>, queue: &Arc<Queue<Key>>) {
        let policies: Vec<RepairPolicy> = context.providers().flat_map(|provider| provider.repair_policies()).collect();
        let queue = Arc::clone(queue);
        context.cluster.nodes.on_change(move |_, after| {
            if let Some(node) = after.filter(|node| illness(node, &policies).is_some()) {
                queue.add(Key::of(&**node));
            }
        });
    }
}

impl Reconcile for Repair {
    const NAME: &'static str = "repair";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let cluster = &self.context.cluster;
        let Some(node) = cluster.nodes.get(key) else { return Ok(None) };
        let Some(claim) = claim_of(cluster, &node).filter(|claim| is_our_class(&claim.spec.node_class_ref)) else {
            return Ok(None);
        };
        if self.context.clouds.unknown(&*claim).is_some() {
            return Ok(None);
        }
        let policies = self.policies(&claim);
        let Some(illness) = illness(&node, &policies) else { return Ok(None) };
        let wait = cluster.clock.until(illness.borne_until);
        if !wait.is_zero() {
            return Ok(Some(wait));
        }
        if is_forced(&claim, cluster.clock.now()) && is_leaving(&*claim) {
            return Ok(None);
        }
        if let Some(why) = self.too_many_unwell(&node, &policies) {
            tracing::info!(node = key.name, why, "not repaired");
            self.context.events.record(&*node, BLOCKED, why);
            return Ok(Some(BLOCKED_FOR));
        }
        // Others that decide wait, and so did this one: whether the node is still unwell is asked again.
        let turn = self.context.turns.take().await;
        if cluster.nodes.get(key).and_then(|node| self::illness(&node, &policies)).as_ref() != Some(&illness) {
            return Ok(Some(Duration::ZERO));
        }
        self.replace(&turn, &claim, &node, &illness).await?;
        Ok(None)
    }
}

impl Repair {
    fn policies(&self, claim: &NodeClaim) -> Vec<RepairPolicy> {
        self.context.providers_of(claim).into_iter().flat_map(|provider| provider.repair_policies()).collect()
    }

    /// Why a node is not replaced: too many of its pool are unwell, or of the cluster if it has no pool.
    fn too_many_unwell(&self, node: &Node, policies: &[RepairPolicy]) -> Option<String> {
        let pool = node.labels().get(labels::NODE_POOL);
        let all = self.context.cluster.nodes.list();
        let peers = all.iter().filter(|peer| pool.is_none() || peer.labels().get(labels::NODE_POOL) == pool);
        let (mut unwell, mut total) = (0, 0);
        for peer in peers {
            total += 1;
            unwell += usize::from(illness(peer, policies).is_some());
        }
        let whole = pool.map_or("the cluster", |_| "the nodepool");
        is_epidemic(unwell, total)
            .then(|| format!("more than {MOST_PERCENT}% nodes are unhealthy in {whole}: {unwell} of {total}"))
    }

    /// The machine cannot be trusted to end its pods: the claim's deadline is now.
    async fn replace(&self, turn: &Turn<'_>, claim: &NodeClaim, node: &Node, illness: &NodeProblem) -> Result<()> {
        let cluster = &self.context.cluster;
        let now = cluster.clock.now();
        if !is_forced(claim, now) {
            let deadline = Time(now.as_second()).to_string();
            let patch = json!({"metadata": {"annotations": {TERMINATION_TIMESTAMP_ANNOTATION: deadline}}});
            cluster.claims.patch(&Key::of(claim), &patch).await?;
        }
        if is_leaving(claim) {
            return Ok(());
        }
        let why = format!("the node is unhealthy: {}={}", illness.condition, illness.status);
        tracing::info!(claim = claim.name(), node = node.name_any(), why, "node replaced");
        self.context.events.record(claim, REPAIRED, format!("Disrupting NodeClaim: {why}"));
        self.context.events.record(node, REPAIRED, format!("Disrupting Node: {why}"));
        self.context.metrics.claim_disrupted(claim, disrupted_by::UNHEALTHY);
        decisions::repaired(cluster, claim, &why);
        turn.delete(cluster, claim).await
    }
}

/// Whether nothing is waited for any more when a claim leaves.
fn is_forced(claim: &NodeClaim, now: Timestamp) -> bool {
    let deadline = annotation(claim, TERMINATION_TIMESTAMP_ANNOTATION);
    deadline.and_then(|text| text.parse::<Timestamp>().ok()).is_some_and(|deadline| deadline <= now)
}

/// What a node suffers from.
#[derive(Debug, PartialEq, Eq)]
struct NodeProblem {
    condition: String,
    status: String,
    borne_until: Timestamp,
}

/// What is borne for the shortest time.
fn illness(node: &Node, policies: &[RepairPolicy]) -> Option<NodeProblem> {
    let suffered = policies.iter().filter_map(|policy| {
        let condition = nodes::condition(node, &policy.condition).filter(|known| known.status == policy.status)?;
        let since = condition.last_transition_time.as_ref()?.0;
        let borne = SignedDuration::try_from(policy.toleration).unwrap_or(SignedDuration::MAX);
        Some(NodeProblem {
            condition: policy.condition.clone(),
            status: policy.status.clone(),
            borne_until: since.saturating_add(borne).unwrap_or(Timestamp::MAX),
        })
    });
    suffered.min_by_key(|illness| illness.borne_until)
}

/// Whether so many are unwell that it cannot be the machines.
fn is_epidemic(unwell: usize, total: usize) -> bool {
    unwell > (total * MOST_PERCENT).div_ceil(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(condition: &str, status: &str, minutes: u64) -> RepairPolicy {
        let (condition, status) = (condition.to_owned(), status.to_owned());
        RepairPolicy { condition, status, toleration: Duration::from_mins(minutes) }
    }

    fn node(conditions: &[(&str, &str, &str)]) -> Node {
        let condition = |(kind, status, since): &(&str, &str, &str)| json!({"type": kind, "status": status, "lastTransitionTime": format!("2026-01-01T00:{since}:00Z")});
        let conditions: Vec<_> = conditions.iter().map(condition).collect();
        serde_json::from_value(json!({"metadata": {"name": "n"}, "status": {"conditions": conditions}})).unwrap()
    }

    #[test]
    fn the_illness_that_is_borne_shortest_counts() {
        let policies = [policy("Ready", "False", 10), policy("Ready", "Unknown", 10), policy("Disk", "True", 1)];
        let found = |conditions: &[(&str, &str, &str)]| {
            illness(&node(conditions), &policies)
                .map(|it| format!("{}={} until {}", it.condition, it.status, it.borne_until))
        };
        assert_eq!(found(&[("Ready", "True", "00"), ("Disk", "False", "00")]), None);
        assert_eq!(found(&[("Ready", "False", "05")]).unwrap(), "Ready=False until 2026-01-01T00:15:00Z");
        assert_eq!(
            found(&[("Ready", "Unknown", "05"), ("Disk", "True", "06")]).unwrap(),
            "Disk=True until 2026-01-01T00:07:00Z"
        );
        assert_eq!(
            found(&[("Ready", "Unknown", "05"), ("Disk", "True", "30")]).unwrap(),
            "Ready=Unknown until 2026-01-01T00:15:00Z"
        );
    }

    #[test]
    fn a_fifth_rounded_up_may_be_unwell() {
        let cases = [
            (1, 1, false),
            (1, 3, false),
            (2, 3, true),
            (1, 5, false),
            (2, 5, true),
            (2, 6, false),
            (3, 11, false),
            (4, 11, true),
        ];
        for (unwell, total, expected) in cases {
            assert_eq!(is_epidemic(unwell, total), expected, "{unwell} of {total}");
        }
    }

    #[test]
    fn a_deadline_in_the_past_is_not_set_again() {
        let claim = |deadline: &str| -> NodeClaim {
            serde_json::from_value(json!({
                "metadata": {"name": "c", "annotations": {TERMINATION_TIMESTAMP_ANNOTATION: deadline}},
                "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
            }))
            .unwrap()
        };
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        assert!(is_forced(&claim("2025-12-31T23:59:59Z"), now));
        assert!(!is_forced(&claim("2026-01-01T00:00:01Z"), now));
        assert!(!is_forced(&claim("soon"), now));
    }
}
