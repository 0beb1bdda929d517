//! The cloud that a claim belongs to.
//!
//! A claim carries the name of the cloud of its machine ([`CLOUD_ANNOTATION`]), written before the machine is
//! requested. A controller with another cloud (another data directory, another account) can see neither that machine
//! nor its absence. It leaves such claims alone, whatever their state, and reports that: it launches, drains,
//! terminates and collects nothing of them, until a controller with their cloud leads.

use std::collections::BTreeMap;

use kube::{Resource, ResourceExt};
use millpond_api::condition::find;
use millpond_api::meta::Condition;
use millpond_runtime::error::Result;
use millpond_runtime::events::EventReason;
use millpond_runtime::meta::annotation;

use crate::claims::write_status;
use crate::context::Context;
use crate::kinds::NodeClaim;

/// Annotation of claims and their nodes: the name of the cloud that the machine is in.
pub const CLOUD_ANNOTATION: &str = "millpond.dev/cloud";
/// Condition of a claim, false while the controller that leads does not have its cloud.
pub const CLOUD_KNOWN: &str = "CloudKnown";

const UNKNOWN_CLOUD: EventReason =
    EventReason { component: "millpond", action: "Reconcile", reason: "UnknownCloud", warning: true };

/// The clouds of this controller's providers.
#[derive(Debug, Default)]
pub struct Clouds {
    /// By provider name; a provider with a single cloud has no entry.
    of_provider: BTreeMap<&'static str, String>,
}

impl Clouds {
    /// The clouds of these providers.
    pub(crate) fn new(of_provider: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        Self { of_provider: of_provider.into_iter().collect() }
    }

    /// The name of a provider's cloud.
    pub(crate) fn of(&self, provider: &str) -> Option<&str> {
        self.of_provider.get(provider).map(String::as_str)
    }

    /// The name of an object's cloud, if no provider here has it. Objects without the annotation are of a provider that
    /// has only one cloud, or of a time before there were names.
    pub(crate) fn unknown<'o>(&self, object: &'o impl Resource) -> Option<&'o str> {
        let cloud = annotation(object, CLOUD_ANNOTATION)?;
        (!self.of_provider.values().any(|known| known == cloud)).then_some(cloud)
    }
}

/// Writes the cloud's name into a claim that is about to be created or launched; returns whether it was missing.
pub(crate) fn name_cloud(context: &Context, claim: &mut NodeClaim) -> bool {
    if claim.annotations().contains_key(CLOUD_ANNOTATION) {
        return false;
    }
    let Some(cloud) = context.cloud_for(claim).map(str::to_owned) else { return false };
    claim.annotations_mut().insert(CLOUD_ANNOTATION.to_owned(), cloud);
    true
}

/// Says of a claim that its cloud is not known here.
pub(crate) async fn report_unknown(context: &Context, claim: &NodeClaim, cloud: &str) -> Result<()> {
    let message = format!(
        "the machine is in cloud `{cloud}`, which this controller does not have: the claim is left alone until a \
         controller with the data directory (or account) of that cloud leads"
    );
    context.events.record(claim, UNKNOWN_CLOUD, message.clone());
    let condition = Condition::fails(CLOUD_KNOWN, UNKNOWN_CLOUD.reason, message);
    write_status(&context.cluster, claim, |_| {}, [condition]).await.map(drop)
}

/// Removes the condition that [`report_unknown`] wrote.
pub(crate) async fn report_known(context: &Context, claim: &NodeClaim) -> Result<()> {
    if find(&claim.status.conditions, CLOUD_KNOWN).is_none() {
        return Ok(());
    }
    let clear = |status: &mut millpond_api::karpenter::NodeClaimStatus| {
        status.conditions.retain(|condition| condition.kind != CLOUD_KNOWN);
    };
    write_status(&context.cluster, claim, clear, []).await.map(drop)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cloud_is_unknown_only_if_it_is_named() {
        let clouds = Clouds::new([("sim", "a".to_owned())]);
        let claim = |annotations: serde_json::Value| -> NodeClaim {
            let spec = json!({"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}});
            serde_json::from_value(json!({"metadata": {"name": "c", "annotations": annotations}, "spec": spec}))
                .unwrap()
        };
        assert_eq!(clouds.unknown(&claim(json!({CLOUD_ANNOTATION: "b"}))), Some("b"));
        assert_eq!(clouds.unknown(&claim(json!({CLOUD_ANNOTATION: "a"}))), None);
        assert_eq!(clouds.unknown(&claim(json!({}))), None);
        assert_eq!((clouds.of("sim"), clouds.of("own")), (Some("a"), None));
    }
}
