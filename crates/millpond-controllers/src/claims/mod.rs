//! The lifecycle of a NodeClaim: launched, registered, initialized, terminated.
//!
//! ```text
//! claim ─▶ launch ─▶ register ─▶ initialize ─▶ ready        deleted ─▶ end
//!            │ out of stock: the claim goes, the next plan knows better
//!            └ time-outs: 5 minutes to launch, 15 to register
//! ```
//!
//! The claim is the intent: it is there before a provider is asked, its uid is the token of every call, and every step
//! can be repeated after a crash.

mod initialize;
mod launch;
mod readiness_batch;
mod register;
mod spread_domains;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use millpond_api::condition::{Conditions, is_true};
use millpond_api::karpenter::{NodeClaimStatus, TERMINATION_FINALIZER, conditions};
use millpond_api::meta::Condition;
use millpond_runtime::error::Result;
use millpond_runtime::events::EventReason;
use millpond_runtime::meta::{Key, is_leaving, status_patch};
use millpond_runtime::queue::{Lane, Queue};
use millpond_runtime::worker::Reconcile;
use serde_json::json;

use crate::clouds;
use crate::cluster::{Cluster, is_our_class};
use crate::context::Context;
use crate::decisions;
use crate::kinds::{NodeClaim, NodeClass};
use crate::termination::has_finalizer;
use crate::turn::{Fact, delete_after};

/// The controller of claims from creation to readiness.
pub struct Claims {
    context: Arc<Context>,
    launches: launch::Launches,
    readiness_batch: readiness_batch::ReadinessBatch,
    missing_domains: Arc<spread_domains::ClaimsMissingDomains>,
}

impl Claims {
    /// Asks for work on a claim whenever it, or its node, changes.
    pub fn listen(context: &Arc<Context>, queue: &Arc<Queue<Key>>) -> Self {
        let claims = Arc::clone(queue);
        context.cluster.claims.on_change(move |_, after| {
            if let Some(claim) = after {
                claims.add_to(lane(claim), Key::of(&**claim));
            }
        });
        let (nodes, weak) = (Arc::clone(queue), Arc::downgrade(context));
        context.cluster.nodes.on_change(move |before, after| {
            let Some(context) = weak.upgrade() else { return };
            let claim = after.or(before).and_then(|node| claim_of(&context.cluster, node));
            if let Some(claim) = claim {
                nodes.add_to(lane(&claim), Key::of(&*claim));
            }
        });
        // A class that becomes ready lets its claims launch.
        let (classes, weak) = (Arc::clone(queue), Arc::downgrade(context));
        context.cluster.classes.on_change(move |before, after| {
            let (Some(context), Some(class)) = (weak.upgrade(), after) else { return };
            let counts = |class: &NodeClass| (class.metadata.generation, class.status.conditions.clone());
            if before.is_some_and(|before| counts(before) == counts(class)) {
                return;
            }
            for claim in context.cluster.claims.list() {
                if claim.spec.node_class_ref.name == class.name()
                    && !is_true(&claim.status.conditions, conditions::LAUNCHED)
                {
                    classes.add_to(lane(&claim), Key::of(&*claim));
                }
            }
        });
        crate::termination::listen(context, queue);
        Self {
            context: Arc::clone(context),
            launches: launch::Launches::default(),
            readiness_batch: readiness_batch::ReadinessBatch::default(),
            missing_domains: spread_domains::ClaimsMissingDomains::listen(&context.cluster, queue),
        }
    }
}

/// Claims that are not launched are urgent, because pods wait for them.
fn lane(claim: &NodeClaim) -> Lane {
    let is_new = !is_leaving(claim) && !is_true(&claim.status.conditions, conditions::LAUNCHED);
    if is_new { Lane::Urgent } else { Lane::Usual }
}

impl Reconcile for Claims {
    const NAME: &'static str = "claims";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let cluster = &self.context.cluster;
        let Some(claim) = cluster.claims.get(key) else {
            self.launches.forget(key);
            return Ok(None);
        };
        if !is_our_class(&claim.spec.node_class_ref) {
            return Ok(None);
        }
        if let Some(cloud) = self.context.clouds.unknown(&*claim) {
            clouds::report_unknown(&self.context, &claim, cloud).await?;
            return Ok(None);
        }
        clouds::report_known(&self.context, &claim).await?;
        if is_leaving(&*claim) {
            return crate::termination::reconcile(&self.context, &claim).await;
        }
        let claim = self.ensure_marks(claim).await?;
        if !is_true(&claim.status.conditions, conditions::LAUNCHED) {
            return self.launch(&claim).await;
        }
        if !is_true(&claim.status.conditions, conditions::REGISTERED) {
            return self.register(&claim).await;
        }
        self.initialize(&claim).await
    }
}

impl Claims {
    /// Ensures that a claim has its finalizer and names its cloud before any machine is launched for it.
    async fn ensure_marks(&self, claim: Arc<NodeClaim>) -> Result<Arc<NodeClaim>> {
        let mut marked = (*claim).clone();
        let is_launched = is_true(&claim.status.conditions, conditions::LAUNCHED);
        let mut changed = !is_launched && clouds::name_cloud(&self.context, &mut marked);
        if !has_finalizer(claim.finalizers()) {
            marked.finalizers_mut().push(TERMINATION_FINALIZER.to_owned());
            changed = true;
        }
        if !changed {
            return Ok(claim);
        }
        let patch = json!({"metadata": {
            "finalizers": marked.finalizers(),
            "annotations": marked.annotations(),
            "resourceVersion": claim.metadata.resource_version,
        }});
        self.context.cluster.claims.patch(&Key::of(&*claim), &patch).await
    }

    /// Writes the changed fields of the status.
    async fn write_status(
        &self,
        claim: &NodeClaim,
        change: impl FnOnce(&mut NodeClaimStatus),
        conditions: impl IntoIterator<Item = Condition>,
    ) -> Result<()> {
        write_status(&self.context.cluster, claim, change, conditions).await.map(drop)
    }

    /// Gives a claim up: it ends like any other. The reason is that of the metric.
    async fn give_up(
        &self,
        claim: &NodeClaim,
        event_reason: EventReason,
        reason: &'static str,
        why: &str,
    ) -> Result<Option<Duration>> {
        tracing::info!(claim = claim.name(), reason = event_reason.reason, why, "claim given up");
        self.context.cluster.recorder.record(claim, event_reason, why);
        decisions::launch_failed(&self.context.cluster, claim, why);
        delete_after(Fact::Failed, &self.context.cluster, claim).await?;
        self.context.metrics.claim_disrupted(claim, reason);
        Ok(None)
    }

    /// The remainder of a time limit that starts at the claim's creation.
    fn time_left(&self, claim: &NodeClaim, limit: Duration) -> Duration {
        let created = claim.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let elapsed = created.map_or(Duration::ZERO, |created| {
            Duration::try_from(self.context.cluster.clock.now().duration_since(created)).unwrap_or_default()
        });
        limit.saturating_sub(elapsed)
    }
}

/// Writes what changed in the status, if anything did; `Ready` follows from the steps.
pub(crate) async fn write_status(
    cluster: &Cluster,
    claim: &NodeClaim,
    change: impl FnOnce(&mut NodeClaimStatus),
    conditions: impl IntoIterator<Item = Condition>,
) -> Result<Option<Arc<NodeClaim>>> {
    let mut status = claim.status.clone();
    change(&mut status);
    let generation = claim.metadata.generation.unwrap_or_default();
    let mut known = Conditions::new(&mut status.conditions, conditions::OF_CLAIM, generation, cluster.now());
    for condition in conditions {
        known.set(condition);
    }
    match status_patch(claim, Some(&claim.status), &status) {
        Some(patch) => cluster.claims.patch_status(&Key::of(claim), &patch).await.map(Some),
        None => Ok(None),
    }
}

/// The claim of an instance.
pub fn claim_of_machine(cluster: &Cluster, id: &str) -> Option<Arc<NodeClaim>> {
    let of_node = cluster.nodes.indexed(id).first().and_then(|node| claim_of(cluster, node));
    let is_of = |claim: &Arc<NodeClaim>| claim.status.provider_id == id;
    of_node.filter(is_of).or_else(|| cluster.claims.list().into_iter().find(is_of))
}

/// The claim of a node.
pub fn claim_of(cluster: &Cluster, node: &Node) -> Option<Arc<NodeClaim>> {
    let owner = node.owner_references().iter().find(|owner| owner.kind == "NodeClaim");
    if let Some(claim) = owner.and_then(|owner| cluster.claims.get(&Key::new("", &owner.name))) {
        return Some(claim);
    }
    let id = node.spec.as_ref()?.provider_id.as_deref().filter(|id| !id.is_empty())?;
    let is_of = |claim: &Arc<NodeClaim>| claim.status.provider_id == id;
    // Most nodes have the name of their claim.
    let named = cluster.claims.get(&Key::new("", node.metadata.name.as_deref().unwrap_or_default()));
    named.filter(is_of).or_else(|| cluster.claims.list().into_iter().find(is_of))
}

/// The node of a claim, if it has registered.
pub fn node_of(cluster: &Cluster, claim: &NodeClaim) -> Option<Arc<Node>> {
    let id = claim.status.provider_id.as_str();
    if id.is_empty() {
        return None;
    }
    cluster.nodes.indexed(id).into_iter().next()
}
