//! DaemonSets: a pod on every node that qualifies.

pub mod plan;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodTemplateSpec,
    Toleration,
};
use kube::ResourceExt;
use parking_lot::Mutex;

use super::claim::claim;
use super::history::{self, History, REVISION_LABEL};
use super::pods::{self, BURST, PodControl};
use crate::cluster::Cluster;
use crate::error::Result;
use crate::events::EventReason;
use crate::meta::{Key, controller_of, is_leaving, node_name, status_patch};
use crate::queue::Queue;
use crate::scheduler::fit::labels::Selector;
use crate::worker::Reconcile;
use plan::{Daemon, Fit, NodePods};

const COMPONENT: &str = "daemonset-controller";
const GENERATION_LABEL: &str = "pod-template-generation";
/// Default of `revisionHistoryLimit`.
const DEFAULT_HISTORY: i32 = 10;
/// The first wait before a failed daemon pod is replaced; it doubles with each further failure.
const FIRST_REPLACEMENT: Duration = Duration::from_secs(1);
/// The longest such wait.
const LONGEST_REPLACEMENT: Duration = Duration::from_mins(15);

/// The DaemonSet controller.
pub struct DaemonSets {
    cluster: Arc<Cluster>,
    /// Per set and node: how often its pod failed, and when one was last replaced.
    failures: Mutex<HashMap<(String, String), (u32, Timestamp)>>,
}

impl DaemonSets {
    /// The controller, and the work queue that watches fill.
    pub fn new(cluster: Arc<Cluster>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new());
        let own = Arc::clone(&queue);
        cluster.daemon_sets.on_change(move |old, new| {
            if let Some(set) = new.or(old) {
                own.add(Key::of(&**set));
            }
        });
        let (nodes, sets) = (Arc::clone(&queue), Arc::clone(&cluster.daemon_sets));
        let batch = cluster.options.batch;
        cluster.nodes.on_change(move |old, new| {
            if old.map(|node| qualities(node)) != new.map(|node| qualities(node)) {
                sets.list().iter().for_each(|set| nodes.add_after(Key::of(&**set), batch));
            }
        });
        let (pods, sets) = (Arc::clone(&queue), Arc::clone(&cluster.daemon_sets));
        cluster.pods.on_change(move |old, new| {
            for pod in old.into_iter().chain(new) {
                let namespace = pod.namespace().unwrap_or_default();
                match controller_of(&**pod) {
                    Some(owner) if owner.kind == "DaemonSet" => {
                        pods.add_after(Key::new(&namespace, &owner.name), batch);
                    }
                    Some(_) => {}
                    None => sets
                        .list_in(&namespace)
                        .iter()
                        .filter(|set| selector(set).matches(pod.labels()))
                        .for_each(|set| pods.add(Key::of(&**set))),
                }
            }
        });
        (Arc::new(Self { cluster, failures: Mutex::default() }), queue)
    }

    /// Whether a failed pod on a node has to wait before it is replaced.
    fn must_wait(&self, set: &str, node: &str) -> Option<Duration> {
        let now = self.cluster.clock.now();
        let mut failures = self.failures.lock();
        let entry = failures.entry((set.to_owned(), node.to_owned())).or_insert((0, Timestamp::MIN));
        let wait = |times: u32| FIRST_REPLACEMENT.saturating_mul(1 << times.min(20)).min(LONGEST_REPLACEMENT);
        let since = Duration::try_from(now.duration_since(entry.1)).unwrap_or_default();
        if entry.0 > 0 && since > 2 * LONGEST_REPLACEMENT {
            entry.0 = 0;
        }
        if entry.0 > 0 && since < wait(entry.0 - 1) {
            return Some(wait(entry.0 - 1).saturating_sub(since));
        }
        *entry = (entry.0 + 1, now);
        None
    }

    fn by_node(pods: Vec<Arc<Pod>>) -> BTreeMap<String, Vec<Arc<Pod>>> {
        let mut by_node: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
        for pod in pods {
            if let Some(node) = target_node(&pod) {
                by_node.entry(node).or_default().push(pod);
            }
        }
        by_node
    }

    async fn act(&self, set: &DaemonSet, steps: &plan::Steps, hash: &str) -> Result<()> {
        let control = PodControl { cluster: &self.cluster, component: COMPONENT };
        let pods: Vec<Pod> = steps.create_on.iter().take(BURST).map(|node| make_pod(set, node, hash)).collect();
        let (_, created) = control.create_all(set, pods).await;
        let doomed: Vec<_> = steps.delete.iter().take(BURST).cloned().collect();
        control.delete_all(set, &doomed).await?;
        created
    }

    /// Drops failed pods that have to wait from the pods to delete; says when to look again.
    fn hold_back_failed(&self, set: &DaemonSet, steps: &mut plan::Steps) -> Option<Duration> {
        let uid = set.uid().unwrap_or_default();
        let mut soonest = None;
        steps.delete.retain(|pod| {
            if crate::meta::phase(pod) != "Failed" {
                return true;
            }
            let node = target_node(pod).unwrap_or_default();
            if let Some(wait) = self.must_wait(&uid, &node) {
                soonest = Some(soonest.map_or(wait, |known: Duration| known.min(wait)));
                return false;
            }
            let event_reason =
                EventReason { component: COMPONENT, action: "Replacing", reason: "FailedDaemonPod", warning: true };
            let note = format!("Found failed daemon pod {} on node {node}, will try to kill it", Key::of(&**pod));
            self.cluster.recorder.record(set, event_reason, note);
            true
        });
        soonest
    }
}

impl Reconcile for DaemonSets {
    const NAME: &'static str = COMPONENT;

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(set) = self.cluster.daemon_sets.get(key) else {
            let sets = self.cluster.daemon_sets.list();
            let live: BTreeSet<String> = sets.iter().filter_map(|set| set.uid()).collect();
            self.failures.lock().retain(|(set, _), _| live.contains(set));
            return Ok(None);
        };
        if is_leaving(&*set) || selector(&set).is_unrestricted() {
            return Ok(None);
        }
        let collisions = set.status.as_ref().and_then(|status| status.collision_count);
        let history =
            History::sync(&self.cluster, &*set, &selector(&set), &template(&set), collisions.unwrap_or_default())
                .await?;
        let hash = history::hash_of(&history.update);
        let owned = claim(&self.cluster.pods, &*set, &selector(&set), |_| true).await?;
        let now = self.cluster.clock.now();
        let daemon = Daemon::of(&set, &hash);
        let nodes = self.cluster.nodes.list();
        let mut steps = daemon.steps(&judge(&daemon, &nodes, &Self::by_node(owned)), now);
        let again = self.hold_back_failed(&set, &mut steps);
        let outcome = self.act(&set, &steps, &hash).await;

        let owned = self.cluster.pods.owned_by(&set.uid().unwrap_or_default());
        let availability = pods::next_availability(&owned, daemon.min_ready_seconds, now);
        let hashes: BTreeSet<String> =
            owned.iter().filter_map(|pod| pod.labels().get(REVISION_LABEL).cloned()).collect();
        let view = judge(&daemon, &nodes, &Self::by_node(owned));
        let collisions = Some(history.collisions).filter(|count| *count > 0).or(collisions);
        let status = status(&set, &daemon, &view, collisions, now);
        if let Some(patch) = status_patch(&*set, set.status.as_ref(), &status) {
            self.cluster.daemon_sets.patch_status(key, &patch).await?;
        }
        let in_use = history
            .all
            .iter()
            .filter(|revision| hashes.contains(&history::hash_of(revision)))
            .map(|revision| revision.name_any())
            .chain([history.update.name_any()])
            .collect();
        let limit = set.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(DEFAULT_HISTORY);
        history.truncate(&self.cluster, &in_use, limit).await?;
        outcome?;
        Ok([again, availability].into_iter().flatten().min())
    }
}

/// The nodes that concern a set: existing ones, with its pods.
fn judge<'a>(daemon: &Daemon, nodes: &'a [Arc<Node>], by_node: &BTreeMap<String, Vec<Arc<Pod>>>) -> Vec<NodePods<'a>> {
    nodes
        .iter()
        .map(|node| {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            NodePods { name, fit: daemon.fit(node), pods: by_node.get(name).cloned().unwrap_or_default() }
        })
        .collect()
}

type Qualities<'a> = (Option<&'a BTreeMap<String, String>>, Option<&'a Vec<k8s_openapi::api::core::v1::Taint>>);

/// The properties of a node that decide whether it gets a pod.
fn qualities(node: &Node) -> Qualities<'_> {
    (node.metadata.labels.as_ref(), node.spec.as_ref().and_then(|spec| spec.taints.as_ref()))
}

fn selector(set: &DaemonSet) -> Selector {
    Selector::compile(set.spec.as_ref().map(|spec| &spec.selector))
}

fn template(set: &DaemonSet) -> PodTemplateSpec {
    set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default()
}

/// The node that a pod of the set runs on, or is created for.
fn target_node(pod: &Pod) -> Option<String> {
    if let Some(name) = node_name(pod) {
        return Some(name.to_owned());
    }
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    required
        .node_selector_terms
        .iter()
        .flat_map(|term| term.match_fields.iter().flatten())
        .find(|field| field.key == "metadata.name" && field.operator == "In")
        .and_then(|field| field.values.as_ref()?.first().cloned())
}

fn make_pod(set: &DaemonSet, node: &str, hash: &str) -> Pod {
    let mut pod = pods::from_template(&template(set), set);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(REVISION_LABEL.to_owned(), hash.to_owned());
    if let Some(generation) = set.annotations().get("deprecated.daemonset.template.generation") {
        labels.insert(GENERATION_LABEL.to_owned(), generation.clone());
    }
    let spec = pod.spec.get_or_insert_default();
    spec.tolerations = Some(with_daemon_tolerations(spec.tolerations.take(), spec.host_network == Some(true)));
    spec.affinity = Some(tied_to(spec.affinity.take().unwrap_or_default(), node));
    pod
}

/// Ties a pod to one node by name, in place of the affinity that chose the node.
fn tied_to(mut affinity: Affinity, node: &str) -> Affinity {
    let by_name = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![by_name]), match_expressions: None };
    let node_affinity: &mut NodeAffinity = affinity.node_affinity.get_or_insert_default();
    node_affinity.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
    affinity
}

/// Daemons stay on nodes in trouble.
fn with_daemon_tolerations(own: Option<Vec<Toleration>>, on_host_network: bool) -> Vec<Toleration> {
    let mut tolerations = own.unwrap_or_default();
    let mut wanted = vec![
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ];
    if on_host_network {
        wanted.push(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    }
    for (key, effect) in wanted {
        let toleration = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    tolerations
}

fn status(
    set: &DaemonSet,
    daemon: &Daemon,
    nodes: &[NodePods<'_>],
    collisions: Option<i32>,
    now: Timestamp,
) -> DaemonSetStatus {
    let mut status = DaemonSetStatus {
        observed_generation: set.metadata.generation,
        collision_count: collisions,
        conditions: set.status.as_ref().and_then(|status| status.conditions.clone()),
        ..DaemonSetStatus::default()
    };
    let (mut available, mut updated) = (0, 0);
    for node in nodes {
        let first = node.first();
        if node.fit != Fit::Run {
            status.number_misscheduled += i32::from(first.is_some());
            continue;
        }
        status.desired_number_scheduled += 1;
        if let Some(pod) = first {
            status.current_number_scheduled += 1;
            status.number_ready += i32::from(pods::is_ready(&pod));
            available += i32::from(pods::is_available(&pod, daemon.min_ready_seconds, now));
            updated += i32::from(daemon.is_updated(&pod));
        }
    }
    let non_zero = |count: i32| Some(count).filter(|count| *count != 0);
    status.number_available = non_zero(available);
    status.number_unavailable = non_zero(status.desired_number_scheduled - available);
    status.updated_number_scheduled = non_zero(updated);
    status
}
