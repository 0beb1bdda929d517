//! Writes and removes the marks of a command on nodes and claims.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::ResourceExt;
use millpond_api::condition::{Conditions, find};
use millpond_api::karpenter::{DISRUPTED_TAINT, conditions};
use millpond_api::meta::Condition;
use millpond_runtime::error::{Error, Result};
use millpond_runtime::meta::{Key, is_leaving, status_patch};
use serde_json::json;

use super::command::{Candidate, CandidateState, REPLACES_ANNOTATION};
use super::watch::is_tainted;
use crate::claims::node_of;
use crate::cluster::Cluster;
use crate::kinds::NodeClaim;

/// Limit on write conflicts with other clients; the next step retries.
const TRIES: usize = 3;

/// The claim that a command means, as long as it stands.
pub(super) fn standing(cluster: &Cluster, candidate: &Candidate) -> Option<Arc<NodeClaim>> {
    let claim = cluster.claims.get(&Key::new("", &candidate.name))?;
    (claim.metadata.uid.as_deref() == Some(&*candidate.uid) && !is_leaving(&*claim)).then_some(claim)
}

/// The state of a claim to be removed.
pub(super) fn sight(cluster: &Cluster, candidate: &Candidate) -> CandidateState {
    let Some(claim) = standing(cluster, candidate) else { return CandidateState::Gone };
    let tainted = node_of(cluster, &claim).is_none_or(|node| is_tainted(&node));
    let said = find(&claim.status.conditions, conditions::DISRUPTION_REASON);
    CandidateState::Stands {
        marked: tainted && said.is_some_and(|said| said.is_true() && said.reason == candidate.reason),
    }
}

/// Writes taint and condition.
pub(super) async fn mark(cluster: &Cluster, candidate: &Candidate) -> Result<()> {
    let Some(claim) = standing(cluster, candidate) else { return Ok(()) };
    if let Some(node) = node_of(cluster, &claim) {
        set_taint(cluster, &node, true).await?;
    }
    let reason = candidate.reason.as_str();
    set_reason(cluster, &claim, Some(reason)).await
}

/// Takes taint and condition off a claim that stays.
pub(super) async fn unmark(cluster: &Cluster, claim: &NodeClaim) -> Result<()> {
    if let Some(node) = node_of(cluster, claim) {
        set_taint(cluster, &node, false).await?;
    }
    set_reason(cluster, claim, None).await
}

/// Turns a replacement into an ordinary claim.
pub(super) async fn forget(cluster: &Cluster, replacement: &NodeClaim) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {REPLACES_ANNOTATION: null}}});
    match cluster.claims.patch(&Key::of(replacement), &patch).await {
        Err(error) if error.is_not_found() => Ok(()),
        other => other.map(drop),
    }
}

async fn set_taint(cluster: &Cluster, node: &Node, wanted: bool) -> Result<()> {
    let key = Key::of(node);
    let mut node = node.clone();
    for _ in 0..TRIES {
        let Some(taints) = changed_taints(&node, wanted) else { return Ok(()) };
        let version = &node.metadata.resource_version;
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": taints}});
        match cluster.nodes.patch(&key, &patch).await {
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) if error.is_conflict() => node = cluster.nodes.fetch(&key).await?,
            other => return other.map(drop),
        }
    }
    Err(busy("Node", key))
}

/// The taints of a node with or without the disruption taint; `None` if nothing has to change.
fn changed_taints(node: &Node, wanted: bool) -> Option<Vec<Taint>> {
    if is_tainted(node) == wanted {
        return None;
    }
    let mut taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    taints.retain(|taint| taint.key != DISRUPTED_TAINT);
    if wanted {
        let (key, effect) = (DISRUPTED_TAINT.to_owned(), "NoSchedule".to_owned());
        taints.push(Taint { key, effect, ..Taint::default() });
    }
    Some(taints)
}

async fn set_reason(cluster: &Cluster, claim: &NodeClaim, reason: Option<&str>) -> Result<()> {
    let key = Key::of(claim);
    let mut claim = claim.clone();
    for _ in 0..TRIES {
        let mut status = claim.status.clone();
        let generation = claim.metadata.generation.unwrap_or_default();
        let mut known = Conditions::new(&mut status.conditions, conditions::OF_CLAIM, generation, cluster.now());
        match reason {
            Some(reason) => known.set(Condition::new(conditions::DISRUPTION_REASON, "True", reason, reason)),
            None => known.clear(conditions::DISRUPTION_REASON),
        };
        let Some(patch) = status_patch(&claim, Some(&claim.status), &status) else { return Ok(()) };
        match cluster.claims.patch_status(&key, &patch).await {
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) if error.is_conflict() => claim = cluster.claims.fetch(&key).await?,
            other => return other.map(drop),
        }
    }
    Err(busy("NodeClaim", key))
}

fn busy(kind: &'static str, key: Key) -> Error {
    Error::Malformed { kind, key, problem: "others write it again and again".to_owned() }
}

/// The name of a claim's node.
pub(super) fn node_name_of(cluster: &Cluster, claim: &NodeClaim) -> Option<String> {
    node_of(cluster, claim).map(|node| node.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_taint_is_put_on_once_and_others_stay() {
        let node = |keys: &[&str]| -> Node {
            let taints: Vec<_> = keys.iter().map(|key| json!({"key": key, "effect": "NoSchedule"})).collect();
            serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"taints": taints}})).unwrap()
        };
        let keys = |taints: Option<Vec<Taint>>| {
            taints.map(|taints| taints.into_iter().map(|taint| taint.key).collect::<Vec<_>>())
        };
        assert_eq!(keys(changed_taints(&node(&["a"]), true)).unwrap(), ["a", DISRUPTED_TAINT]);
        assert_eq!(changed_taints(&node(&["a", DISRUPTED_TAINT]), true), None);
        assert_eq!(keys(changed_taints(&node(&["a", DISRUPTED_TAINT]), false)).unwrap(), ["a"]);
        assert_eq!(changed_taints(&node(&[]), false), None);
    }
}
