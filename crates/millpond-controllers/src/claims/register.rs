//! Registration: the node gets the labels and taints of its claim, and the claim gets the name of its node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::ResourceExt;
use millpond_api::karpenter::{
    self, DO_NOT_SYNC_TAINTS_LABEL, INITIALIZED_LABEL, REGISTERED_LABEL, TERMINATION_FINALIZER, UNREGISTERED_TAINT,
    conditions,
};
use millpond_api::meta::Condition;
use millpond_runtime::error::Result;
use millpond_runtime::events::EventReason;
use millpond_runtime::meta::Key;
use serde_json::{Value, json};

use super::initialize::still_missing;
use super::{Claims, node_of};
use crate::disruption::command::REPLACES_ANNOTATION;
use crate::health::Launch;
use crate::kinds::NodeClaim;
use crate::limits::RESERVED_ANNOTATION;
use crate::metrics::disrupted_by;
use crate::nominations::NOMINATED_PODS_ANNOTATION;
use crate::provision::nominate;

/// A machine that has not become a node after this long is given up, as Karpenter does.
const REGISTRATION_TIMEOUT: Duration = Duration::from_mins(15);

/// Annotations that say something about the claim only.
const OF_CLAIMS: [&str; 3] = [RESERVED_ANNOTATION, REPLACES_ANNOTATION, NOMINATED_PODS_ANNOTATION];

const TIMED_OUT: EventReason =
    EventReason { component: "millpond", action: "Register", reason: "RegistrationTimeout", warning: true };

impl Claims {
    pub(super) async fn register(&self, claim: &NodeClaim) -> Result<Option<Duration>> {
        let cluster = &self.context.cluster;
        let Some(node) = node_of(cluster, claim) else {
            let left = self.time_left(claim, REGISTRATION_TIMEOUT);
            if left.is_zero() {
                let why = "the machine did not become a node in 15 minutes";
                self.give_up(claim, TIMED_OUT, disrupted_by::LIVENESS, why).await?;
                let failed = Launch::Failed { reason: "RegistrationFailed".to_owned(), message: why.to_owned() };
                self.context.health.note(cluster, claim, failed);
                return Ok(None);
            }
            return Ok(Some(left));
        };
        let promised = cluster.nominations.pods_of(claim);
        if let Some(again) = self.wait_for_domains(claim, &node, &promised) {
            return Ok(Some(again));
        }
        let node = if promised.is_empty() { node } else { self.tell_scheduler(claim, node, &promised).await };
        let registered = registered(claim, &node);
        if let Some(patch) = registration(claim, &node, &registered) {
            cluster.nodes.patch(&Key::of(&*node), &patch).await?;
        }
        let initialized = match registered.lacks {
            None => Condition::holds(conditions::INITIALIZED),
            Some((reason, message)) => Condition::unknown(conditions::INITIALIZED, reason, message),
        };
        let is_ready = initialized.is_true();
        let conditions = [Condition::holds(conditions::REGISTERED), initialized];
        self.write_status(claim, |status| status.node_name = node.name_any(), conditions).await?;
        self.context.metrics.node_created(claim);
        self.context.health.note(cluster, claim, Launch::Registered);
        tracing::info!(claim = claim.name(), node = node.name_any(), is_ready, "registered");
        Ok(None)
    }

    /// Nominates the pods of a node before the node takes any, since other pods could be faster. Failed nominations are
    /// repeated when the node is ready. Returns the node as it is by then.
    async fn tell_scheduler(&self, claim: &NodeClaim, node: Arc<Node>, promised: &[Key]) -> Arc<Node> {
        let cluster = &self.context.cluster;
        let busy = self.readiness_batch.enter();
        nominate(cluster, promised, &node.name_any()).await;
        busy.wait_for_others().await;
        node_of(cluster, claim).unwrap_or(node)
    }
}

/// A node with everything that its claim specifies.
struct Registered {
    taints: Vec<Taint>,
    /// Why the node is not initialized, as a reason and a message; `None` if it is.
    lacks: Option<(&'static str, String)>,
}

fn registered(claim: &NodeClaim, node: &Node) -> Registered {
    let taints = taints(claim, node);
    let lacks = still_missing(claim, node, &taints);
    Registered { taints, lacks }
}

/// The patch that gives a node what its claim specifies; `None` when it has all of it. A node that is ready already is
/// marked initialized by the same write.
fn registration(claim: &NodeClaim, node: &Node, registered: &Registered) -> Option<Value> {
    let mut labels: BTreeMap<String, String> = claim.metadata.labels.clone().unwrap_or_default();
    labels.insert(REGISTERED_LABEL.to_owned(), "true".to_owned());
    if registered.lacks.is_none() {
        labels.insert(INITIALIZED_LABEL.to_owned(), "true".to_owned());
    }
    let known = node.labels();
    labels.retain(|key, value| known.get(key) != Some(value));

    let promised = claim.metadata.annotations.clone().unwrap_or_default();
    let mut annotations: BTreeMap<String, String> = promised;
    annotations.retain(|key, value| !OF_CLAIMS.contains(&key.as_str()) && node.annotations().get(key) != Some(value));

    let taints = &registered.taints;
    let unchanged = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default() == *taints;
    let mut finalizers = node.finalizers().to_vec();
    let lacks_finalizer = !finalizers.iter().any(|name| name == TERMINATION_FINALIZER);
    if lacks_finalizer {
        finalizers.push(TERMINATION_FINALIZER.to_owned());
    }
    let lacks_owner = !node.owner_references().iter().any(|owner| owner.kind == "NodeClaim");
    if labels.is_empty() && annotations.is_empty() && unchanged && !lacks_finalizer && !lacks_owner {
        return None;
    }
    let mut owners = node.owner_references().to_vec();
    if lacks_owner {
        let mut owner = millpond_runtime::meta::controller_reference(claim);
        owner.controller = None;
        owners.push(owner);
    }
    Some(json!({
        "metadata": {
            "resourceVersion": node.metadata.resource_version,
            "labels": labels,
            "annotations": annotations,
            "finalizers": finalizers,
            "ownerReferences": owners,
        },
        "spec": {"taints": taints},
    }))
}

/// Taints of a node that has registered: the claim's, and no longer the one that kept pods away until now.
fn taints(claim: &NodeClaim, node: &Node) -> Vec<Taint> {
    let present = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let mut taints: Vec<Taint> = present.into_iter().filter(|taint| taint.key != UNREGISTERED_TAINT).collect();
    if node.labels().get(DO_NOT_SYNC_TAINTS_LABEL).is_some_and(|value| value == "true") {
        return taints;
    }
    for taint in claim.spec.taints.iter().chain(&claim.spec.startup_taints) {
        let effect = effect(taint.effect);
        if !taints.iter().any(|known| known.key == taint.key && known.effect == effect) {
            let value = Some(taint.value.clone()).filter(|value| !value.is_empty());
            taints.push(Taint { key: taint.key.clone(), value, effect: effect.to_owned(), time_added: None });
        }
    }
    taints
}

/// The name of a taint's effect.
pub(crate) fn effect(effect: karpenter::TaintEffect) -> &'static str {
    match effect {
        karpenter::TaintEffect::NoSchedule => "NoSchedule",
        karpenter::TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        karpenter::TaintEffect::NoExecute => "NoExecute",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> NodeClaim {
        serde_json::from_value(json!({
            "metadata": {"name": "web-1", "uid": "u", "labels": {"karpenter.sh/nodepool": "web", "team": "a"}},
            "spec": {
                "nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": "default"},
                "requirements": [],
                "taints": [{"key": "dedicated", "value": "web", "effect": "NoSchedule"}],
                "startupTaints": [{"key": "cni", "effect": "NoExecute"}],
            },
        }))
        .unwrap()
    }

    fn node() -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "web-1", "resourceVersion": "7", "labels": {"team": "a"}},
            "spec": {"taints": [
                {"key": "karpenter.sh/unregistered", "effect": "NoExecute"},
                {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
            ]},
        }))
        .unwrap()
    }

    fn told(claim: &NodeClaim, node: &Node) -> Option<Value> {
        registration(claim, node, &registered(claim, node))
    }

    #[test]
    fn a_node_that_is_ready_already_is_marked_by_the_same_write() {
        let mut claim = claim();
        claim.spec.startup_taints.clear();
        let mut node = node();
        node.spec.as_mut().unwrap().taints.as_mut().unwrap().pop();
        let initialized = |claim: &NodeClaim, node: &Node| {
            told(claim, node).unwrap()["metadata"]["labels"][INITIALIZED_LABEL].clone()
        };
        assert_eq!(initialized(&claim, &node), Value::Null, "it has not said that it is ready");
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "1"}});
        node.status = serde_json::from_value(ready).unwrap();
        assert_eq!(initialized(&claim, &node), json!("true"));
        claim.spec.resources.requests.0.insert("nvidia.com/gpu".to_owned(), 1);
        assert_eq!(initialized(&claim, &node), Value::Null, "its devices are not there yet");
        claim.spec.resources.requests.0.clear();
        claim.spec.startup_taints = super::tests::claim().spec.startup_taints;
        assert_eq!(initialized(&claim, &node), Value::Null, "the startup taint has to be removed first");
    }

    #[test]
    fn a_node_gets_what_its_claim_promises() {
        let patch = told(&claim(), &node()).unwrap();
        let keys: Vec<&str> =
            patch["spec"]["taints"].as_array().unwrap().iter().map(|taint| taint["key"].as_str().unwrap()).collect();
        assert_eq!(keys, ["node.kubernetes.io/not-ready", "dedicated", "cni"]);
        assert_eq!(
            patch["metadata"]["labels"],
            json!({"karpenter.sh/nodepool": "web", "karpenter.sh/registered": "true"})
        );
        assert_eq!(patch["metadata"]["finalizers"], json!([TERMINATION_FINALIZER]));
        assert_eq!(patch["metadata"]["ownerReferences"][0]["name"], "web-1");
    }

    #[test]
    fn a_node_that_has_it_all_is_not_written() {
        let mut registered = node();
        let patch = told(&claim(), &registered).unwrap();
        let mut value = serde_json::to_value(&registered).unwrap();
        for (field, part) in [("metadata", "labels"), ("metadata", "finalizers"), ("metadata", "ownerReferences")] {
            value[field][part] = patch[field][part].clone();
        }
        value["metadata"]["labels"]["team"] = json!("a");
        value["spec"]["taints"] = patch["spec"]["taints"].clone();
        registered = serde_json::from_value(value).unwrap();
        assert_eq!(told(&claim(), &registered), None);
    }
}
