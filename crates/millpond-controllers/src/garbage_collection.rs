//! Garbage collection in both directions: machines without a claim, claims and nodes without a machine.
//!
//! A pass compares what providers list with claims and nodes. A list may lag, and so may a watch: what a pass finds is
//! a suspicion. Nothing is deleted before an authoritative source (the provider, asked for that one machine, or the API
//! server itself) confirms it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use millpond_api::condition::is_true;
use millpond_api::karpenter::{conditions, node_class_label};
use millpond_api::time::Time;
use millpond_api::{labels, node_class};
use millpond_providers::{Instance, InstanceState, ProviderError};
use millpond_runtime::error::{Error, Result};
use millpond_runtime::events::EventReason;
use millpond_runtime::meta::{Key, is_leaving};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::claims::node_of;
use crate::cluster::is_our_class;
use crate::context::Context;
use crate::kinds::NodeClaim;
use crate::metrics::disrupted_by;
use crate::nodes;
use crate::termination::{has_finalizer, release_node};
use crate::turn::{Fact, delete_after};

/// Time between two passes.
const EVERY: Duration = Duration::from_mins(2);
/// The same while something is under way, or a provider does not answer.
const SOON_AFTER_SUSPICION: Duration = Duration::from_secs(10);
/// Younger objects may still be in creation.
const YOUNG_S: i64 = 60;
/// A suspicion must last for at least this long before it is acted on.
const CONFIRMED_AFTER: Duration = Duration::from_secs(10);

const TAKEN_BACK: EventReason =
    EventReason { component: "millpond", action: "Collect", reason: "InstanceTerminating", warning: true };

/// Collects garbage.
pub struct GarbageCollector {
    context: Arc<Context>,
    /// Uids of claims and nodes whose machine was missing, and since when.
    suspects: HashMap<String, Instant>,
}

/// Objects and machines that look like garbage.
#[derive(Debug, Default)]
struct Suspicion<'a> {
    /// Machines without a claim.
    orphans: Vec<&'a Instance>,
    /// Claims whose machine the cloud is terminating.
    taken_back: Vec<&'a Arc<NodeClaim>>,
    /// Claims whose machine is not listed.
    unlisted: Vec<&'a Arc<NodeClaim>>,
    /// Nodes without a claim, whose machine is not listed.
    ownerless: Vec<&'a Arc<Node>>,
}

/// Whether the machines of a provider are known; if the provider is not, those of all must be.
fn is_listed(unlisted: &BTreeSet<&'static str>, provider: Option<&'static str>) -> bool {
    provider.map_or(unlisted.is_empty(), |provider| !unlisted.contains(provider))
}

impl GarbageCollector {
    /// Works on this cluster.
    pub fn new(context: Arc<Context>) -> Self {
        let weak = Arc::downgrade(&context);
        context.cluster.claims.on_change(move |before, after| {
            let (Some(context), Some(before), Some(after)) = (weak.upgrade(), before, after) else { return };
            let (before, after) = (&before.status.provider_id, &after.status.provider_id);
            if !before.is_empty() && before != after {
                // Controllers never change a provider id once it is set, so a user did.
                context.collect_garbage_now.notify_one();
            }
        });
        Self { context, suspects: HashMap::new() }
    }

    /// Makes passes until the token is cancelled.
    pub async fn run(&mut self, stop: CancellationToken) {
        loop {
            let wait = match self.pass().await {
                Ok(true) => SOON_AFTER_SUSPICION,
                Ok(false) => EVERY,
                Err(error) => {
                    tracing::warn!(%error, cause = error.cause(), "garbage not collected, will try again");
                    SOON_AFTER_SUSPICION
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.context.collect_garbage_now.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Compares and acts; returns whether another pass is worth it soon.
    async fn pass(&mut self) -> Result<bool> {
        let context = Arc::clone(&self.context);
        let _round = context.cluster.supervisor.begin("garbage collection");
        let mut instances = Vec::new();
        // Names of providers whose machines are not known: nothing of theirs is judged.
        let mut unlisted = BTreeSet::new();
        for provider in context.providers() {
            match provider.list().await {
                Ok(listed) => instances.extend(listed),
                // A provider that has not listed its own objects yet is not an error.
                Err(error @ ProviderError::NotReady { .. }) => {
                    tracing::debug!(provider = provider.name(), %error, "cannot list machines yet");
                    unlisted.insert(provider.name());
                }
                Err(error) => {
                    tracing::warn!(provider = provider.name(), %error, "cannot list machines");
                    unlisted.insert(provider.name());
                }
            }
        }
        // Read after the list: a claim is there before its machine.
        let (claims, nodes) = (context.cluster.claims.list(), context.cluster.nodes.list());
        // Claims of other clouds are left alone, because this process cannot see their machines.
        let is_known = |claim: &Arc<NodeClaim>| context.clouds.unknown(&**claim).is_none();
        let mut suspicion = suspect(&instances, &claims, &nodes, context.cluster.now(), |node| self.is_ours(node));
        suspicion.unlisted.retain(|claim| is_known(claim));
        let mut goes_on = !unlisted.is_empty();
        goes_on |= self.delete_orphaned_instances(&suspicion.orphans).await?;
        for claim in &suspicion.taken_back {
            tracing::info!(claim = claim.name(), "its machine ends by itself");
            context.events.record(&***claim, TAKEN_BACK, "The provider takes the machine back");
            delete_after(Fact::Interrupted, &context.cluster, claim).await?;
        }
        let uids = suspicion.unlisted.iter().map(|claim| claim.uid());
        let uids: HashSet<String> = uids.chain(suspicion.ownerless.iter().map(|node| node.uid())).flatten().collect();
        self.suspects.retain(|uid, _| uids.contains(uid));
        suspicion.unlisted.retain(|claim| is_listed(&unlisted, self.provider_of_claim(claim)));
        suspicion.ownerless.retain(|node| is_listed(&unlisted, self.provider_of_node(node)));
        for claim in &suspicion.unlisted {
            goes_on |= self.delete_claim(claim).await?;
        }
        goes_on |= self.delete_orphaned_nodes(&suspicion.ownerless).await?;
        Ok(goes_on)
    }

    /// The provider of the class of a claim; the provider id may have been changed by hand.
    fn provider_of_claim(&self, claim: &NodeClaim) -> Option<&'static str> {
        let class = self.context.class(&claim.spec.node_class_ref.name)?;
        Some(self.context.provider(&class).ok()?.name())
    }

    /// The provider that the machine of a node names.
    fn provider_of_node(&self, node: &Node) -> Option<&'static str> {
        Some(self.context.provider_of_machine(nodes::machine(node)?)?.name())
    }

    /// Whether a node was created for a claim of Millpond.
    fn is_ours(&self, node: &Node) -> bool {
        let class = node_class_label(node_class::GROUP, "NodeClass");
        if self.context.clouds.unknown(node).is_some() {
            return false;
        }
        let is_marked = node.labels().contains_key(labels::NODE_POOL) || has_finalizer(node.finalizers());
        let is_made_by_us = || nodes::machine(node).is_some_and(|id| self.context.provider_of_machine(id).is_some());
        is_marked && (node.labels().contains_key(&class) || is_made_by_us())
    }

    async fn delete_orphaned_instances(&self, orphans: &[&Instance]) -> Result<bool> {
        if orphans.is_empty() {
            return Ok(false);
        }
        let claims = self.list_claims().await?;
        let mut goes_on = false;
        for instance in orphans.iter().filter(|instance| !is_claimed(instance, claims.iter())) {
            goes_on = true;
            tracing::info!(instance = instance.id, claim = instance.claim, "a machine without a claim ends");
            let provider = self.context.provider_of_machine(&instance.id);
            let providers = provider.map_or_else(|| self.context.providers().collect(), |provider| vec![provider]);
            for provider in providers {
                match provider.delete(&instance.id).await {
                    Ok(()) | Err(ProviderError::NotFound { .. }) => {}
                    Err(error) => tracing::warn!(instance = instance.id, %error, "cannot be ended"),
                }
            }
        }
        Ok(goes_on)
    }

    /// Claims as of now: not from a copy that may lag behind.
    async fn list_claims(&self) -> Result<Vec<NodeClaim>> {
        let api: Api<NodeClaim> = Api::all(self.context.cluster.client.clone());
        let failed = |source| Error::Api {
            verb: "list",
            kind: "NodeClaim".to_owned(),
            key: Key::default(),
            source: Box::new(source),
        };
        Ok(api.list(&ListParams::default()).await.map_err(failed)?.items)
    }

    /// Deletes a claim whose machine its provider does not know. If the node reports that it is ready, a second check
    /// is needed first.
    async fn delete_claim(&mut self, claim: &NodeClaim) -> Result<bool> {
        let uid = claim.uid().unwrap_or_default();
        if !self.is_unknown(claim, &claim.status.provider_id).await {
            self.suspects.remove(&uid);
            return Ok(false);
        }
        let cluster = Arc::clone(&self.context.cluster);
        let works = node_of(&cluster, claim).is_some_and(|node| nodes::is_ready(&node));
        let is_registered = is_true(&claim.status.conditions, conditions::REGISTERED);
        if (works || !is_registered) && !self.is_confirmed(&uid) {
            return Ok(true);
        }
        tracing::info!(claim = claim.name(), instance = claim.status.provider_id, "its machine is gone");
        self.context.terminations.instance_gone(claim);
        self.context.metrics.claim_disrupted(claim, disrupted_by::GARBAGE_COLLECTED);
        delete_after(Fact::MachineGone, &cluster, claim).await?;
        Ok(false)
    }

    /// Removes nodes without a claim and without a machine.
    async fn delete_orphaned_nodes(&mut self, ownerless: &[&Arc<Node>]) -> Result<bool> {
        if ownerless.is_empty() {
            return Ok(false);
        }
        let claims = self.list_claims().await?;
        let mut goes_on = false;
        for node in ownerless {
            let (uid, id) = (node.uid().unwrap_or_default(), nodes::machine(node).unwrap_or_default());
            if has_claim(node, claims.iter()) || !self.is_unknown_to_all(id).await {
                self.suspects.remove(&uid);
                continue;
            }
            if !self.is_confirmed(&uid) {
                goes_on = true;
                continue;
            }
            tracing::info!(node = node.name_any(), instance = id, "a node without claim and machine goes");
            if !is_leaving(&***node) {
                self.context.cluster.nodes.delete(node, None).await?;
            }
            release_node(&self.context, node).await?;
        }
        Ok(goes_on)
    }

    async fn is_unknown(&self, claim: &NodeClaim, id: &str) -> bool {
        for provider in self.context.providers_of(claim) {
            if !matches!(provider.get(id).await, Err(ProviderError::NotFound { .. })) {
                return false;
            }
        }
        true
    }

    async fn is_unknown_to_all(&self, id: &str) -> bool {
        for provider in self.context.providers() {
            if !matches!(provider.get(id).await, Err(ProviderError::NotFound { .. })) {
                return false;
            }
        }
        true
    }

    /// Whether something has been suspicious for a while.
    fn is_confirmed(&mut self, uid: &str) -> bool {
        self.suspects.entry(uid.to_owned()).or_insert_with(Instant::now).elapsed() >= CONFIRMED_AFTER
    }
}

/// Collects the objects that look like garbage.
fn suspect<'a>(
    instances: &'a [Instance],
    claims: &'a [Arc<NodeClaim>],
    nodes: &'a [Arc<Node>],
    now: Time,
    is_ours: impl Fn(&Node) -> bool,
) -> Suspicion<'a> {
    let listed: BTreeSet<&str> = instances.iter().map(|instance| instance.id.as_str()).collect();
    let tokens: HashMap<&str, &Arc<NodeClaim>> =
        claims.iter().filter_map(|claim| Some((claim.metadata.uid.as_deref()?, claim))).collect();
    let ids: HashMap<&str, &Arc<NodeClaim>> =
        claims.iter().map(|claim| (claim.status.provider_id.as_str(), claim)).collect();
    let mut suspicion = Suspicion::default();
    for instance in instances {
        let claim = tokens.get(instance.token.as_str()).or_else(|| ids.get(instance.id.as_str()));
        let is_ending = instance.state == InstanceState::Ending;
        match claim {
            None if !is_ending && !is_young(Some(instance.created), now) => suspicion.orphans.push(instance),
            Some(claim) if is_ending && !is_leaving(&***claim) => suspicion.taken_back.push(claim),
            _ => {}
        }
    }
    suspicion.unlisted = claims
        .iter()
        .filter(|claim| is_our_class(&claim.spec.node_class_ref) && !is_leaving(&***claim))
        .filter(|claim| !claim.status.provider_id.is_empty() && !listed.contains(claim.status.provider_id.as_str()))
        .filter(|claim| is_true(&claim.status.conditions, conditions::REGISTERED) || !is_young(created(&***claim), now))
        .collect();
    let has_claim = |node: &Node| {
        let owned = node.owner_references().iter().any(|owner| tokens.contains_key(owner.uid.as_str()));
        owned || nodes::machine(node).is_some_and(|id| ids.contains_key(id))
    };
    suspicion.ownerless = nodes
        .iter()
        .filter(|node| is_ours(node) && !has_claim(node) && !is_young(created(&***node), now))
        .filter(|node| nodes::machine(node).is_some_and(|id| !listed.contains(id)))
        // A node that is being deleted and has no finalizer of Millpond is left alone.
        .filter(|node| !is_leaving(&***node) || has_finalizer(node.finalizers()))
        .collect();
    suspicion
}

fn is_claimed<'a>(instance: &Instance, mut claims: impl Iterator<Item = &'a NodeClaim>) -> bool {
    claims.any(|claim| {
        claim.metadata.uid.as_deref() == Some(instance.token.as_str()) || claim.status.provider_id == instance.id
    })
}

fn has_claim<'a>(node: &Node, mut claims: impl Iterator<Item = &'a NodeClaim>) -> bool {
    let owners: Vec<&str> = node.owner_references().iter().map(|owner| owner.uid.as_str()).collect();
    let id = nodes::machine(node).unwrap_or_default();
    claims.any(|claim| {
        claim.status.provider_id == id || claim.metadata.uid.as_deref().is_some_and(|uid| owners.contains(&uid))
    })
}

fn created<K: kube::Resource>(object: &K) -> Option<Time> {
    object.meta().creation_timestamp.as_ref().map(|time| Time(time.0.as_second()))
}

fn is_young(created: Option<Time>, now: Time) -> bool {
    created.is_none_or(|created| now.0 - created.0 < YOUNG_S)
}

#[cfg(test)]
mod tests;
