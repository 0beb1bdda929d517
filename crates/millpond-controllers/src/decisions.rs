//! What controllers write into the decision history, and what the history learns of claims as they live and end.
//!
//! The history is told after an intent was written, and never asked. A claim that starts to leave although no decision of
//! a controller says so was deleted by a user.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ObjectMeta;
use kube::{Resource as _, ResourceExt as _};
use millpond_api::condition::find;
use millpond_api::karpenter::conditions;
use millpond_api::labels;
use millpond_plan::disruption::Residents;
use millpond_plan::model::{DisruptionReason, NodeId, Snapshot};
use millpond_plan::plan::{Outcome as PlanOutcome, Settings};
use millpond_runtime::history::{Action, Decision, DecisionKind, History, Nanos, ObjectRef, Outcome, Unplaced};
use millpond_runtime::meta::{Key, is_leaving};
use millpond_state::groups::GroupRef;
use millpond_state::saved;

use crate::blocking::spawn_blocking;
use crate::capi::autoscale::is_group;
use crate::cluster::{Cluster, is_our_class, pool_name};
use crate::context::Context;
use crate::kinds::NodeClaim;
use crate::turn::Fact;

const CREATE: &str = "create";
const DELETE: &str = "delete";
/// Owners of pods are looked up for so many of them; a sentence names two owners at most.
const MAX_OWNERS: usize = 1_000;

fn history(cluster: &Cluster) -> &History {
    &cluster.options.history
}

fn new(cluster: &Cluster, kind: DecisionKind, by: &str, sentence: String) -> Decision {
    Decision::new(kind, by, cluster.now().0, sentence)
}

fn claim_ref(name: &str) -> ObjectRef {
    ObjectRef::new("NodeClaim", "", name)
}

/// Nodes that a round has bought.
pub(crate) fn provisioned(
    context: &Context,
    snapshot: &Snapshot,
    outcome: &PlanOutcome,
    created: &[Option<String>],
    pods: &[Vec<Key>],
) -> Option<u64> {
    let cluster = &context.cluster;
    let mut actions = Vec::new();
    let nodes = outcome.plan.new_nodes.iter().zip(created).zip(pods);
    for ((node, claim), pods) in nodes.filter(|((node, _), _)| !is_group(snapshot, node.pool)) {
        let Some(claim) = claim else { continue };
        let of = &snapshot.types[node.instance_type.index()];
        let offering = &of.offerings[node.offering as usize];
        actions.push(Action {
            verb: CREATE.to_owned(),
            object: claim_ref(claim),
            pool: Some(snapshot.pools[node.pool.index()].name.clone()),
            instance_type: Some(snapshot.text(of.name).to_owned()),
            zone: Some(snapshot.text(offering.zone).to_owned()),
            capacity_type: Some(offering.capacity_type.name().to_owned()),
            price_nanos: Some(nanos(node.price)),
            reason: format!("{} that waited", count(pods.len(), "pod")),
            pods: pods.iter().map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect(),
            ..Action::default()
        });
    }
    if actions.is_empty() {
        return None;
    }
    let all: usize = actions.iter().map(|action| action.pods.len()).sum();
    let owners = owners(cluster, pods.iter().flatten());
    let sentence = format!("{} for {}{owners}", count(actions.len(), "node"), count(all, "pod"));
    let bought: Nanos = actions.iter().filter_map(|action| action.price_nanos).sum();
    let mut decision = new(cluster, DecisionKind::Provision, "provisioner", sentence);
    decision.revision.clone_from(&snapshot.revision);
    let before = Nanos::try_from(outcome.report.cost_before).ok();
    (decision.cost_before_nanos, decision.cost_after_nanos) = (before, before.map(|before| before + bought));
    decision.unplaced = unplaced(outcome);
    let names: Vec<String> = actions.iter().map(|action| action.object.name.clone()).collect();
    decision.actions = actions;
    Some(record(cluster, decision, &names))
}

/// Adds a decision, and what is known of its claims by now.
fn record(cluster: &Cluster, decision: Decision, claims: &[String]) -> u64 {
    let number = history(cluster).record(decision);
    for claim in claims.iter().filter_map(|name| cluster.claims.get(&Key::new("", name))) {
        observe(cluster, &claim);
    }
    number
}

/// Pods that the plan finds no place for, and had found one for before, or had not seen.
pub(crate) fn refused(
    context: &Context,
    snapshot: &Snapshot,
    outcome: &PlanOutcome,
    changed: &[(Key, String)],
) -> Option<u64> {
    let (_, why) = changed.first()?;
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    changed.iter().for_each(|(_, why)| *reasons.entry(why).or_default() += 1);
    let others =
        if reasons.len() > 1 { format!(" (and {})", count(reasons.len() - 1, "other reason")) } else { String::new() };
    let fits = if changed.len() == 1 { "fits" } else { "fit" };
    let sentence = format!("{} {fits} nowhere: {why}{others}", count(changed.len(), "pod"));
    let mut decision = new(&context.cluster, DecisionKind::Refuse, "provisioner", sentence);
    decision.refused = true;
    decision.revision.clone_from(&snapshot.revision);
    let cost = Nanos::try_from(outcome.report.cost_before).ok();
    (decision.cost_before_nanos, decision.cost_after_nanos) = (cost, cost);
    decision.pods = changed.iter().map(|(pod, _)| format!("{}/{}", pod.namespace, pod.name)).collect();
    let reason = |(why, pods): (&str, usize)| Unplaced { pods, sentence: why.to_owned() };
    decision.unplaced = reasons.into_iter().map(reason).collect();
    Some(history(&context.cluster).record(decision))
}

/// Nodes that go by a plan: a command that is not under way yet.
pub(crate) fn disrupted<'c>(
    cluster: &Cluster,
    snapshot: &Snapshot,
    going: impl Iterator<Item = (NodeId, DisruptionReason, &'c str)>,
    coming: usize,
    savings: i128,
) -> Decision {
    let residents = Residents::new(snapshot);
    let mut actions = Vec::new();
    let mut kind = DecisionKind::Consolidate;
    for (id, reason, claim) in going {
        let node = &snapshot.nodes[id.index()];
        kind = match reason {
            DisruptionReason::Drifted => DecisionKind::Drift,
            DisruptionReason::Expired => DecisionKind::Expire,
            DisruptionReason::Empty | DisruptionReason::Underutilized => DecisionKind::Consolidate,
        };
        let text = |symbol| snapshot.text(symbol).to_owned();
        actions.push(Action {
            verb: DELETE.to_owned(),
            object: claim_ref(claim),
            node: Some(node.name.clone()),
            pool: node.pool.map(|pool| snapshot.pools[pool.index()].name.clone()),
            instance_type: node.instance_type.map(text),
            zone: node.zone.map(text),
            capacity_type: node.capacity_type.map(|of| of.name().to_owned()),
            price_nanos: node.price.map(nanos),
            reason: node
                .drifted
                .as_ref()
                .map_or_else(|| reason.name().to_owned(), |drift| format!("{}: {}", reason.name(), drift.why)),
            pods: residents.movers(snapshot, id).map(|pod| snapshot.pod_name(pod)).collect(),
            ..Action::default()
        });
    }
    let names: Vec<&str> = actions.iter().filter_map(|action| action.node.as_deref()).collect();
    let why = actions.first().map_or("", |action| action.reason.as_str());
    let pods: usize = actions.iter().map(|action| action.pods.len()).sum();
    let moved = if pods == 0 { String::new() } else { format!("; {} move", count(pods, "pod")) };
    let instead = if coming == 0 { String::new() } else { format!("; {} instead", count(coming, "node")) };
    let goes = if names.len() == 1 { "goes" } else { "go" };
    let sentence = format!("{} {goes}: {why}{moved}{instead}", list(&names));
    let mut decision = new(cluster, kind, "disruption", sentence);
    decision.revision.clone_from(&snapshot.revision);
    let cost: Nanos = snapshot.nodes.iter().filter_map(|node| node.price).map(nanos).sum();
    let after = cost - Nanos::try_from(savings).unwrap_or_default();
    (decision.cost_before_nanos, decision.cost_after_nanos) = (Some(cost), Some(after));
    decision.actions = actions;
    decision
}

/// A command is under way, with these replacements.
pub(crate) fn started(cluster: &Cluster, mut decision: Decision, replacements: &[NodeClaim]) -> u64 {
    let reason = decision.actions.first().map(|action| format!("instead of {}", action.object.name));
    for claim in replacements {
        let of = |label: &str| claim.labels().get(label).cloned();
        decision.actions.push(Action {
            verb: CREATE.to_owned(),
            object: claim_ref(claim.name()),
            pool: pool_name(claim).map(str::to_owned),
            instance_type: of(labels::INSTANCE_TYPE),
            zone: of(labels::ZONE),
            capacity_type: of(labels::CAPACITY_TYPE),
            reason: reason.clone().unwrap_or_default(),
            ..Action::default()
        });
    }
    let names: Vec<String> = decision.actions.iter().map(|action| action.object.name.clone()).collect();
    record(cluster, decision, &names)
}

/// A command was undone: its node stays.
pub(crate) fn undone(cluster: &Cluster, claim: &NodeClaim, why: &str) {
    let outcome = Outcome { failed: Some(format!("it stays: {why}")), ..Outcome::default() };
    history(cluster).observe(&claim_ref(claim.name()), DELETE, None, &outcome);
}

/// A node is replaced because it is unhealthy.
pub(crate) fn repaired(cluster: &Cluster, claim: &NodeClaim, why: &str) {
    gone(cluster, DecisionKind::Repair, "repair", claim, why);
}

/// A claim is given up.
pub(crate) fn launch_failed(cluster: &Cluster, claim: &NodeClaim, why: &str) {
    let outcome = Outcome { failed: Some(why.to_owned()), ..Outcome::default() };
    history(cluster).observe(&claim_ref(claim.name()), CREATE, None, &outcome);
    gone(cluster, DecisionKind::BackOff, "claims", claim, why);
}

/// A claim is deleted because of something that has happened.
pub(crate) fn deleted_after(cluster: &Cluster, fact: Fact, claim: &NodeClaim) {
    let (kind, why) = match fact {
        // It was told why, where that is known.
        Fact::Failed => return,
        Fact::NodeDeleted => (DecisionKind::Human, "its Node was deleted"),
        Fact::Interrupted => (DecisionKind::Interrupt, "the provider takes the machine back"),
        Fact::MachineGone => (DecisionKind::Interrupt, "the provider has no such machine any more"),
    };
    gone(cluster, kind, "claims", claim, why);
}

/// One claim goes.
fn gone(cluster: &Cluster, kind: DecisionKind, by: &str, claim: &NodeClaim, why: &str) {
    let object = claim_ref(claim.name());
    if history(cluster).expects(&object, DELETE) {
        return;
    }
    let node = Some(claim.status.node_name.clone()).filter(|node| !node.is_empty());
    let pods = node.as_ref().map(|node| cluster.pods.indexed(node)).unwrap_or_default();
    let sentence = format!("{} goes: {why}", node.as_deref().unwrap_or(claim.name()));
    let mut decision = new(cluster, kind, by, sentence);
    let of = |label: &str| claim.labels().get(label).cloned();
    decision.actions.push(Action {
        verb: DELETE.to_owned(),
        object,
        node,
        pool: pool_name(claim).map(str::to_owned),
        instance_type: of(labels::INSTANCE_TYPE),
        zone: of(labels::ZONE),
        capacity_type: of(labels::CAPACITY_TYPE),
        reason: why.to_owned(),
        pods: pods.iter().filter(|pod| !is_of_daemon_set(pod)).map(|pod| pod_text(pod)).collect(),
        ..Action::default()
    });
    record(cluster, decision, &[claim.name().to_owned()]);
}

/// Claims that a pool of a fixed size gets, or has too many of.
pub(crate) fn resized<'n>(cluster: &Cluster, pool: &str, verb: &str, claims: impl IntoIterator<Item = &'n String>) {
    let action = |name: &String| {
        let claim = cluster.claims.get(&Key::new("", name));
        let of = |label: &str| claim.as_ref().and_then(|claim| claim.labels().get(label).cloned());
        Action {
            verb: verb.to_owned(),
            object: claim_ref(name),
            pool: Some(pool.to_owned()),
            instance_type: of(labels::INSTANCE_TYPE),
            zone: of(labels::ZONE),
            capacity_type: of(labels::CAPACITY_TYPE),
            reason: "the pool has a fixed size".to_owned(),
            ..Action::default()
        }
    };
    let actions: Vec<Action> = claims.into_iter().map(action).collect();
    if actions.is_empty() {
        return;
    }
    let words = if verb == CREATE { "more" } else { "too many" };
    let sentence = format!("pool {pool} of a fixed size: {} {words}", count(actions.len(), "node"));
    let names: Vec<String> = actions.iter().map(|action| action.object.name.clone()).collect();
    let mut decision = new(cluster, DecisionKind::ScaleGroup, "static pools", sentence);
    decision.actions = actions;
    record(cluster, decision, &names);
}

/// A node group gets more replicas.
pub(crate) fn group_grows(cluster: &Cluster, of: &GroupRef, from: i64, to: i64, pods: &[&Key]) {
    let sentence = format!("node group {of}: replicas {from} → {to} for {}", count(pods.len(), "pod"));
    let mut decision = new(cluster, DecisionKind::ScaleGroup, "node groups", sentence);
    decision.actions.push(Action {
        verb: "resize".to_owned(),
        object: ObjectRef::new(of.kind.name(), &of.namespace, &of.name),
        pool: Some(of.to_string()),
        reason: format!("replicas {from} → {to}"),
        pods: pods.iter().map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect(),
        ..Action::default()
    });
    history(cluster).record(decision);
}

/// Nodes of a node group go: pairs of a machine and its node.
pub(crate) fn group_shrinks<'n>(
    cluster: &Cluster,
    of: &GroupRef,
    from: i64,
    to: i64,
    machines: impl Iterator<Item = (&'n str, &'n str)>,
) {
    let sentence = format!("node group {of}: replicas {from} → {to}, nodes that were unneeded go");
    let mut decision = new(cluster, DecisionKind::ScaleGroup, "node groups", sentence);
    let action = |(machine, node): (&str, &str)| Action {
        verb: DELETE.to_owned(),
        object: ObjectRef::new("Machine", &of.namespace, machine),
        node: Some(node.to_owned()),
        pool: Some(of.to_string()),
        reason: "it was unneeded".to_owned(),
        ..Action::default()
    };
    decision.actions = machines.map(action).collect();
    history(cluster).record(decision);
}

/// Keeps what decisions were made from.
pub(crate) fn keep_snapshot(context: &Context, numbers: Vec<u64>, snapshot: Arc<Snapshot>, settings: Settings) {
    let history = history(&context.cluster).clone();
    if numbers.is_empty() || !history.keeps_snapshots() {
        return;
    }
    // No pod waits for it.
    spawn_blocking(move || match saved::save(&snapshot, &Settings { prove: true, ..settings }) {
        Ok(text) => history.keep_snapshot(&numbers, &text),
        Err(error) => tracing::warn!(%error, "the snapshot of a decision is not kept"),
    });
}

/// Tells the history what comes of claims and machines.
pub(crate) fn listen(context: &Context) {
    let weak = Arc::downgrade(&context.cluster);
    context.cluster.claims.on_change(move |before, after| {
        let Some(cluster) = weak.upgrade() else { return };
        match (before, after) {
            (Some(before), Some(after)) if !is_leaving(&**before) && is_leaving(&**after) => {
                deleted_by_user(&cluster, after);
                observe(&cluster, after);
            }
            (_, Some(after)) => observe(&cluster, after),
            (Some(before), None) => ended(&cluster, before),
            (None, None) => {}
        }
    });
    let weak = Arc::downgrade(&context.cluster);
    context.cluster.machines.machines.on_change(move |before, after| {
        let (Some(cluster), Some(machine)) = (weak.upgrade(), after.or(before)) else { return };
        let key = Key::of(&**machine);
        let object = ObjectRef::new("Machine", &key.namespace, &key.name);
        let leaving = machine.meta().deletion_timestamp.as_ref().map(|time| time.0.as_second());
        let gone = after.is_none().then(|| cluster.now().0);
        if leaving.is_some() || gone.is_some() {
            history(&cluster).observe(&object, DELETE, None, &Outcome { leaving, gone, ..Outcome::default() });
        }
    });
}

/// A claim leaves; if no controller decided that, a user did.
fn deleted_by_user(cluster: &Cluster, claim: &NodeClaim) {
    if !is_our_class(&claim.spec.node_class_ref) || history(cluster).expects(&claim_ref(claim.name()), DELETE) {
        return;
    }
    let pool = pool_name(claim).unwrap_or_default();
    let of_pool = cluster.pools.get(&Key::new("", pool));
    let why = if of_pool.is_none_or(|pool| is_leaving(&*pool)) {
        format!("its pool {pool} was deleted")
    } else {
        "a user, or another controller, deleted it".to_owned()
    };
    gone(cluster, DecisionKind::Human, "user", claim, &why);
}

fn observe(cluster: &Cluster, claim: &NodeClaim) {
    let object = claim_ref(claim.name());
    let node = Some(claim.status.node_name.as_str()).filter(|node| !node.is_empty());
    let all = times(claim);
    let left = Outcome { leaving: all.leaving, drained: all.drained, ..Outcome::default() };
    history(cluster).observe(&object, CREATE, node, &all);
    if left.leaving.is_some() {
        history(cluster).observe(&object, DELETE, node, &left);
    }
}

fn ended(cluster: &Cluster, claim: &NodeClaim) {
    let object = claim_ref(claim.name());
    let mut outcome = Outcome { gone: Some(cluster.now().0), ..times(claim) };
    history(cluster).observe(
        &object,
        DELETE,
        None,
        &Outcome {
            leaving: outcome.leaving.or(outcome.gone),
            drained: outcome.drained,
            gone: outcome.gone,
            ..Outcome::default()
        },
    );
    if outcome.ready.is_none() {
        outcome.failed = Some("it was gone before its node was ready".to_owned());
    }
    history(cluster).observe(&object, CREATE, None, &outcome);
}

/// The life of a claim so far.
fn times(claim: &NodeClaim) -> Outcome {
    let since = |kind: &str| {
        let condition = find(&claim.status.conditions, kind).filter(|condition| condition.is_true())?;
        condition.last_transition_time.map(|time| time.0)
    };
    Outcome {
        created: claim.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second()),
        launched: since(conditions::LAUNCHED),
        registered: since(conditions::REGISTERED),
        ready: since(conditions::INITIALIZED),
        leaving: claim.metadata.deletion_timestamp.as_ref().map(|time| time.0.as_second()),
        drained: since(conditions::DRAINED),
        gone: None,
        failed: None,
    }
}

fn unplaced(outcome: &PlanOutcome) -> Vec<Unplaced> {
    let mut counts = vec![0; outcome.report.verdicts.len()];
    outcome.report.unplaced.iter().for_each(|(_, verdict)| counts[*verdict as usize] += 1);
    let reasons = outcome.report.verdicts.iter().zip(counts).filter(|(_, pods)| *pods > 0);
    reasons.map(|(verdict, pods)| Unplaced { pods, sentence: verdict.message.clone() }).collect()
}

/// ` of Deployment/web and Job/train`: what made pods; nothing where that is not known or too much to say.
fn owners<'p>(cluster: &Cluster, pods: impl Iterator<Item = &'p Key>) -> String {
    let owners: BTreeSet<String> = pods.take(MAX_OWNERS).filter_map(|pod| owner(cluster, pod)).collect();
    match owners.len() {
        0 => String::new(),
        1 | 2 => format!(" of {}", owners.into_iter().collect::<Vec<_>>().join(" and ")),
        many => format!(" of {many} workloads"),
    }
}

/// What made a pod: its controller, and for a ReplicaSet of a Deployment the Deployment.
pub(crate) fn owner(cluster: &Cluster, pod: &Key) -> Option<String> {
    let pod = cluster.pods.get(pod)?;
    let (kind, name) = controller(&pod.metadata)?;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let set = (kind == "ReplicaSet").then(|| cluster.replica_sets.get(&Key::new(namespace, &name))).flatten();
    let (kind, name) = set.and_then(|set| controller(&set.metadata)).unwrap_or((kind, name));
    Some(format!("{kind}/{name}"))
}

fn controller(meta: &ObjectMeta) -> Option<(String, String)> {
    let owner = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    Some((owner.kind.clone(), owner.name.clone()))
}

fn is_of_daemon_set(pod: &Pod) -> bool {
    pod.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "DaemonSet")
}

fn pod_text(pod: &Pod) -> String {
    format!("{}/{}", pod.metadata.namespace.as_deref().unwrap_or_default(), pod.name_any())
}

fn nanos(price: u64) -> Nanos {
    Nanos::try_from(price).unwrap_or(Nanos::MAX)
}

fn count(number: usize, word: &str) -> String {
    if number == 1 { format!("1 {word}") } else { format!("{number} {word}s") }
}

/// Up to three names, and how many more.
fn list(names: &[&str]) -> String {
    match names {
        [] => "nothing".to_owned(),
        [one] => format!("node {one}"),
        [first, second] => format!("nodes {first} and {second}"),
        [first, second, rest @ ..] => format!("nodes {first}, {second} and {} more", rest.len()),
    }
}
