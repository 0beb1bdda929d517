//! Changes that a disruption decision depends on, and the time of the next decision.
//!
//! Nothing is polled: a decision follows a change, once the cluster has been quiet for a moment, or a time that is
//! known in advance (`consolidateAfter` ends, a budget opens, a node expires). The end of a terminating pod is expected
//! as well: it triggers a decision, but does not restart the quiet period. Pods take half a minute to end, and a steady
//! stream of ending pods would keep unneeded nodes.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use millpond_api::condition::{READY, find, is_true};
use millpond_api::karpenter::{DISRUPTED_TAINT, DO_NOT_DISRUPT, conditions};
use millpond_runtime::kinds::Kind;
use millpond_runtime::meta::{annotation, has_ended, is_leaving, node_name};
use millpond_runtime::mirror::Mirror;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::command::REPLACES_ANNOTATION;
use crate::cluster::Cluster;
use crate::kinds::{NodeClaim, NodePool};

/// A decision waits until nothing has changed for this long, so that it does not see the middle of a change.
const QUIET: Duration = Duration::from_secs(1);
/// The longest time that a decision waits in a cluster that is never quiet.
const LONGEST: Duration = Duration::from_secs(10);

/// What a change concerns.
enum Scope {
    /// Something that needs a new plan but does not invalidate the present one.
    Any,
    /// A single node.
    Node(String),
    /// Something that all nodes depend on.
    Everything,
}

struct State {
    /// When the first change happened that no decision has seen.
    unseen: Option<Instant>,
    /// The last unexpected change.
    disturbed: Instant,
    /// Claims or nodes changed, so commands may advance.
    commands: bool,
    /// Nodes that changed since the last decision was begun.
    touched: HashSet<String>,
    everything: bool,
    /// Nodes with the disruption taint.
    tainted: BTreeSet<String>,
}

/// The changes since the last decision.
pub(super) struct Watch {
    state: Mutex<State>,
    changed: Notify,
}

impl Watch {
    fn new() -> Self {
        let state = State {
            unseen: None,
            disturbed: Instant::now(),
            commands: false,
            touched: HashSet::new(),
            everything: false,
            tainted: BTreeSet::new(),
        };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    /// Subscribes to a cluster whose watches have not started.
    pub(super) fn listen(cluster: &Cluster) -> Arc<Self> {
        let watch = Arc::new(Self::new());
        watch.state.lock().unseen = Some(Instant::now());
        watch.on(&cluster.pods, false, of_pod, |pod| node_name(pod).map_or(Scope::Any, named));
        watch.on(&cluster.nodes, true, of_node, |node| named(&node.name_any()));
        watch.on(&cluster.claims, true, of_claim, |claim| named(&claim.status.node_name));
        watch.on(&cluster.pools, true, of_pool, |_| Scope::Everything);
        watch.on(
            &cluster.classes,
            true,
            |class| (class.metadata.generation, is_true(&class.status.conditions, READY)),
            |_| Scope::Everything,
        );
        watch.on(&cluster.limits, false, |limits| limits.metadata.generation, |_| Scope::Everything);
        watch.on(&cluster.budgets, false, of_budget, |_| Scope::Any);
        watch.on(&cluster.overlays, false, |overlay| overlay.metadata.generation, |_| Scope::Everything);
        watch.on(&cluster.buffers, false, |buffer| (buffer.metadata.generation, is_leaving(buffer)), |_| Scope::Any);
        watch.on(&cluster.templates, false, |template| template.metadata.generation, |_| Scope::Any);
        watch.on(&cluster.deployments, false, |deployment| deployment.metadata.generation, |_| Scope::Any);
        let tainted = Arc::clone(&watch);
        cluster.nodes.on_change(move |before, after| {
            let Some(name) = after.or(before).map(|node| node.name_any()) else { return };
            let mut state = tainted.state.lock();
            if after.is_some_and(|node| is_tainted(node)) {
                state.tainted.insert(name);
            } else {
                state.tainted.remove(&name);
            }
        });
        watch
    }

    fn on<K: Kind, C: PartialEq + 'static>(
        self: &Arc<Self>,
        mirror: &Mirror<K>,
        commands: bool,
        what_counts: fn(&K) -> C,
        scope: fn(&K) -> Scope,
    ) {
        let watch = Arc::clone(self);
        mirror.on_change(move |before, after| {
            let of = |object: Option<&Arc<K>>| object.map(|object| what_counts(object));
            if of(before) == of(after) {
                return;
            }
            if after.is_none() && before.is_some_and(|object| is_leaving(&**object)) && !commands {
                return watch.note_end();
            }
            let scopes = [before, after].into_iter().flatten().map(|object| scope(object));
            watch.note(scopes, commands);
        });
    }

    /// Records that a terminating object is gone. Decisions made meanwhile stay valid.
    fn note_end(&self) {
        self.state.lock().unseen.get_or_insert_with(Instant::now);
        self.changed.notify_one();
    }

    fn note(&self, scopes: impl Iterator<Item = Scope>, commands: bool) {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.unseen.get_or_insert(now);
        state.disturbed = now;
        state.commands |= commands;
        for scope in scopes {
            match scope {
                Scope::Any => {}
                Scope::Node(name) => drop(state.touched.insert(name)),
                Scope::Everything => state.everything = true,
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Ends with the next change, or at once if one was missed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Whether commands may go on, since this was asked last.
    pub(super) fn take_commands(&self) -> bool {
        std::mem::take(&mut self.state.lock().commands)
    }

    /// When the changes should be evaluated; `None` without changes.
    pub(super) fn due(&self) -> Option<Instant> {
        let state = self.state.lock();
        state.unseen.map(|first| (state.disturbed + QUIET).min(first + LONGEST))
    }

    /// A decision begins: it sees all that happened so far.
    pub(super) fn begin(&self) {
        let mut state = self.state.lock();
        state.unseen = None;
        state.touched.clear();
        state.everything = false;
    }

    /// Whether something changed since the last decision was begun, about these nodes or all.
    pub(super) fn is_stale<'n>(&self, mut nodes: impl Iterator<Item = &'n str>) -> bool {
        let state = self.state.lock();
        state.everything || nodes.any(|node| state.touched.contains(node))
    }

    /// Nodes with the disruption taint.
    pub(super) fn tainted(&self) -> Vec<String> {
        self.state.lock().tainted.iter().cloned().collect()
    }
}

fn named(node: &str) -> Scope {
    Scope::Node(node.to_owned())
}

/// Whether a node has the disruption taint.
pub(super) fn is_tainted(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().any(|taint| taint.key == DISRUPTED_TAINT)
}

/// Where a pod is, and whether it may be disturbed.
fn of_pod(pod: &Pod) -> impl PartialEq + use<> {
    let nominated = pod.status.as_ref().and_then(|status| status.nominated_node_name.clone());
    let node = node_name(pod).map(str::to_owned);
    (node, nominated, has_ended(pod), is_leaving(pod), annotation(pod, DO_NOT_DISRUPT).map(str::to_owned))
}

/// The properties of a node that matter to plans; neither its pods nor its heartbeats.
fn of_node(node: &Node) -> impl PartialEq + use<> {
    let ready = node.status.as_ref().and_then(|status| status.conditions.as_ref()).is_some_and(|conditions| {
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    });
    let keep = annotation(node, DO_NOT_DISRUPT).map(str::to_owned);
    (node.spec.clone(), node.metadata.labels.clone(), is_leaving(node), ready, keep)
}

fn of_claim(claim: &NodeClaim) -> impl PartialEq + use<> {
    let known = &claim.status.conditions;
    let conditions = [conditions::INITIALIZED, conditions::DRIFTED, conditions::DISRUPTION_REASON];
    let conditions = conditions.map(|kind| is_true(known, kind));
    let annotations = [REPLACES_ANNOTATION, DO_NOT_DISRUPT].map(|name| annotation(claim, name).map(str::to_owned));
    (is_leaving(claim), claim.status.node_name.clone(), claim.status.last_pod_event_time, conditions, annotations)
}

fn of_pool(pool: &NodePool) -> impl PartialEq + use<> {
    let ready = find(&pool.status.conditions, READY).map(|condition| condition.status.clone());
    (pool.metadata.generation, is_leaving(pool), ready)
}

fn of_budget(budget: &PodDisruptionBudget) -> impl PartialEq + use<> {
    (budget.metadata.generation, budget.status.as_ref().map(|status| status.disruptions_allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(name: &str) -> impl Iterator<Item = Scope> {
        std::iter::once(named(name))
    }

    #[tokio::test(start_paused = true)]
    async fn a_decision_waits_for_quiet_but_not_for_ever() {
        let watch = Watch::new();
        assert_eq!(watch.due(), None);
        let start = Instant::now();
        watch.note(scope("a"), false);
        assert_eq!(watch.due(), Some(start + QUIET));
        for _ in 0..30 {
            tokio::time::advance(Duration::from_millis(500)).await;
            watch.note(scope("a"), false);
        }
        assert_eq!(watch.due(), Some(start + LONGEST));
        assert!(!watch.take_commands(), "pods do not move commands");
        watch.begin();
        assert_eq!(watch.due(), None);
        watch.note(scope("b"), true);
        assert!(watch.is_stale(["b"].into_iter()) && !watch.is_stale(["a"].into_iter()));
        assert!(watch.take_commands() && !watch.take_commands());
        watch.note(std::iter::once(Scope::Everything), false);
        assert!(watch.is_stale(std::iter::empty()));
    }

    #[tokio::test(start_paused = true)]
    async fn terminating_pods_do_not_restart_the_quiet_period() {
        let watch = Watch::new();
        let start = Instant::now();
        watch.note(scope("a"), false);
        watch.begin();
        for _ in 0..8 {
            tokio::time::advance(QUIET / 4).await;
            watch.note_end();
        }
        assert_eq!(watch.due(), Some(start + QUIET), "it is quiet");
        assert!(!watch.is_stale(["a"].into_iter()), "what was decided holds");
        watch.begin();
        assert_eq!(watch.due(), None);
    }
}
