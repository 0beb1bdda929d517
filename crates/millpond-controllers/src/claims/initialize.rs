//! Initialization: a claim is initialized when its node is Ready, has no startup taints and has the resources that the
//! claim names.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::ResourceExt;
use millpond_api::condition::{find, is_true};
use millpond_api::karpenter::{INITIALIZED_LABEL, UNREGISTERED_TAINT, conditions};
use millpond_api::meta::Condition;
use millpond_runtime::error::Result;
use millpond_runtime::meta::{Key, is_leaving};
use serde_json::json;

use super::register::effect;
use super::{Claims, node_of};
use crate::kinds::NodeClaim;
use crate::turn::{Fact, delete_after};

/// Taints that Kubernetes puts on a new node until it is ready, and then removes itself.
const EPHEMERAL: [&str; 4] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.cloudprovider.kubernetes.io/uninitialized",
    UNREGISTERED_TAINT,
];

/// A node's missing parts are reported once they have been missing for this long: most nodes get them one after the
/// other within moments, and each of these states would cost a write.
const TOLD_AFTER: Duration = Duration::from_secs(2);

impl Claims {
    pub(super) async fn initialize(&self, claim: &NodeClaim) -> Result<Option<Duration>> {
        let cluster = &self.context.cluster;
        let Some(node) = node_of(cluster, claim) else { return Ok(None) };
        if is_leaving(&*node) {
            // The node was deleted: the machine goes with it, after its pods.
            tracing::info!(claim = claim.name(), "its node was deleted");
            delete_after(Fact::NodeDeleted, cluster, claim).await?;
            return Ok(None);
        }
        if is_true(&claim.status.conditions, conditions::INITIALIZED) {
            return Ok(None);
        }
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
        if let Some((reason, message)) = still_missing(claim, &node, taints) {
            let registered = find(&claim.status.conditions, conditions::REGISTERED);
            let since = registered.and_then(|registered| registered.last_transition_time);
            let left = TOLD_AFTER.saturating_sub(since.map_or(TOLD_AFTER, |since| cluster.since(since)));
            if !left.is_zero() {
                return Ok(Some(left));
            }
            let missing = Condition::unknown(conditions::INITIALIZED, reason, message);
            self.write_status(claim, |_| {}, [missing]).await?;
            return Ok(None);
        }
        if node.labels().get(INITIALIZED_LABEL).is_none_or(|value| value != "true") {
            let labels = json!({"metadata": {"labels": {INITIALIZED_LABEL: "true"}}});
            cluster.nodes.patch(&Key::of(&*node), &labels).await?;
        }
        self.write_status(claim, |_| {}, [Condition::holds(conditions::INITIALIZED)]).await?;
        tracing::info!(claim = claim.name(), node = node.name_any(), "initialized");
        Ok(None)
    }
}

/// Why a node with these taints is not initialized, as a reason and a message.
pub(super) fn still_missing(claim: &NodeClaim, node: &Node, taints: &[Taint]) -> Option<(&'static str, String)> {
    let status = node.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    if !ready {
        return Some(("NodeNotReady", "the node is not ready yet".to_owned()));
    }
    let startup =
        claim.spec.startup_taints.iter().find(|startup| {
            taints.iter().any(|taint| taint.key == startup.key && taint.effect == effect(startup.effect))
        });
    if let Some(taint) = startup {
        return Some(("StartupTaintsExist", format!("the startup taint `{}` is still there", taint.key)));
    }
    if let Some(taint) = taints.iter().find(|taint| EPHEMERAL.contains(&taint.key.as_str())) {
        return Some(("KnownEphemeralTaintsExist", format!("the taint `{}` is still there", taint.key)));
    }
    let allocatable = status.and_then(|status| status.allocatable.as_ref());
    let wanted = claim.spec.resources.requests.iter().filter(|(_, amount)| *amount > 0);
    let unregistered = wanted.map(|(name, _)| name).find(|name| {
        let there = allocatable.and_then(|amounts| amounts.get(*name)).map(|quantity| quantity.0.as_str());
        there.is_none_or(|quantity| quantity.trim() == "0")
    });
    unregistered.map(|name| ("ResourceNotRegistered", format!("the node does not report `{name}` yet")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(node: serde_json::Value) -> Option<&'static str> {
        let claim: NodeClaim = serde_json::from_value(json!({
            "metadata": {"name": "gpu-1"},
            "spec": {
                "requirements": [],
                "nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": "default"},
                "startupTaints": [{"key": "cni", "effect": "NoSchedule"}],
                "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}},
            },
        }))
        .unwrap();
        let node: Node = serde_json::from_value(node).unwrap();
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        still_missing(&claim, &node, &taints).map(|(reason, _)| reason)
    }

    #[test]
    fn a_node_is_initialized_step_by_step() {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let unready = json!([{"type": "Ready", "status": "False"}]);
        let all = json!({"cpu": "4", "nvidia.com/gpu": "1"});
        let node = |conditions: &serde_json::Value, taint: &str, allocatable: &serde_json::Value| {
            let taints = if taint.is_empty() { json!([]) } else { json!([{"key": taint, "effect": "NoSchedule"}]) };
            json!({"spec": {"taints": taints}, "status": {"conditions": conditions, "allocatable": allocatable}})
        };
        assert_eq!(missing(node(&unready, "", &all)), Some("NodeNotReady"));
        assert_eq!(missing(node(&ready, "cni", &all)), Some("StartupTaintsExist"));
        assert_eq!(missing(node(&ready, "node.kubernetes.io/not-ready", &all)), Some("KnownEphemeralTaintsExist"));
        let no_devices = json!({"cpu": "4", "nvidia.com/gpu": "0"});
        assert_eq!(missing(node(&ready, "", &no_devices)), Some("ResourceNotRegistered"));
        assert_eq!(missing(node(&ready, "mine", &all)), None);
    }
}
