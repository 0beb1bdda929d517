//! Which nodes of node groups are unneeded, in the cluster-autoscaler's sense. Pure.
//!
//! A node is a candidate while its pods request less than a share of it; on nodes with GPUs only these count.
//! Candidates are unneeded if the planner can place the pods of all of them on other existing nodes, with all its
//! rules, PodDisruptionBudgets and pods that must not be evicted.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use millpond_api::capi::gpu::Vendor;
use millpond_plan::disruption::{Consolidated, DisruptionBlocker, consolidate};
use millpond_plan::market::Market;
use millpond_plan::model::{
    CPU, Consolidation, MEMORY, Node, NodeId, NodeState, Pod, PodKind, PodState, ResourceId, Resources, Seconds,
    Snapshot,
};
use millpond_plan::plan::Settings;
use millpond_state::groups::Timing;

/// An unneeded node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unneeded {
    /// Its name.
    pub(crate) node: String,
    /// The pool of its group.
    pub(crate) pool: String,
    /// Seconds for which it must have been unneeded.
    pub(crate) after_s: Seconds,
    /// Requested share of its capacity, in thousandths.
    pub(crate) used_milli: i64,
    /// Pods that must be scheduled elsewhere.
    pub(crate) pods: usize,
}

/// The unneeded nodes of these groups, by name.
pub(crate) fn unneeded(snapshot: Snapshot, groups: &BTreeMap<String, Timing>) -> Vec<Unneeded> {
    let judged = Judged::new(snapshot, groups);
    let removed = judged.consolidated.iter().flat_map(|it| &it.outcome.plan.removals).flat_map(|it| &it.nodes);
    let mut unneeded: Vec<Unneeded> = removed.filter_map(|id| judged.unneeded(*id, groups)).collect();
    unneeded.sort_by(|a, b| a.node.cmp(&b.node));
    unneeded
}

/// What holds for a node of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NodeNeed {
    /// It is unneeded.
    Unneeded(Unneeded),
    /// So much of it is asked for, in thousandths, and only below so much it may go.
    Used {
        /// How much.
        share_milli: i64,
        /// How much is too much.
        most_milli: i64,
    },
    /// Its pods, or the node itself, keep it: in words.
    Kept(String),
}

/// The same for all nodes of these groups, by name, for those that ask why.
pub(super) fn needs(snapshot: Snapshot, groups: &BTreeMap<String, Timing>) -> BTreeMap<String, NodeNeed> {
    let judged = Judged::new(snapshot, groups);
    let snapshot = &judged.snapshot;
    let nodes = snapshot.nodes.iter().enumerate().filter(|(_, node)| node.state == NodeState::Running);
    let needs = nodes.filter_map(|(index, node)| {
        let (id, timing) = (NodeId::from(index), timing_of(snapshot, node, groups)?);
        let goes = judged.goes(id).then(|| judged.unneeded(id, groups)).flatten();
        let need = match (goes, judged.used.contains_key(&id)) {
            (Some(unneeded), _) => NodeNeed::Unneeded(unneeded),
            (None, true) => NodeNeed::Kept(judged.why(id)),
            (None, false) if judged.guarded.contains(&id) => NodeNeed::Kept(DO_NOT_DISRUPT.to_owned()),
            (None, false) => {
                let (share_milli, most_milli) = utilization(snapshot, node, &judged.requests[index], timing);
                NodeNeed::Used { share_milli, most_milli }
            }
        };
        Some((node.name.clone(), need))
    });
    needs.collect()
}

/// What is said of nodes with the annotation.
const DO_NOT_DISRUPT: &str = "it is annotated `karpenter.sh/do-not-disrupt`";

/// Which nodes may go, and what becomes of their pods.
struct Judged {
    snapshot: Snapshot,
    requests: Vec<Resources>,
    /// Candidates, with how much of each is asked for.
    used: HashMap<NodeId, i64>,
    /// Nodes that opt out.
    guarded: BTreeSet<NodeId>,
    /// None where there is no candidate.
    consolidated: Option<Consolidated>,
}

impl Judged {
    fn new(mut snapshot: Snapshot, groups: &BTreeMap<String, Timing>) -> Self {
        let requests = requests(&snapshot);
        let mut used: HashMap<NodeId, i64> = HashMap::new();
        let mut guarded = BTreeSet::new();
        for (index, node) in snapshot.nodes.iter().enumerate() {
            let Some(timing) = timing_of(&snapshot, node, groups) else { continue };
            if node.do_not_disrupt {
                guarded.insert(NodeId::from(index));
            }
            if node.state != NodeState::Running || node.do_not_disrupt {
                continue;
            }
            let (share, most) = utilization(&snapshot, node, &requests[index], timing);
            if share < most {
                used.insert(NodeId::from(index), share);
            }
        }
        let consolidated = (!used.is_empty()).then(|| {
            open_for_removal(&mut snapshot, groups, &used);
            let settings = Settings::default();
            let market = Market::new(&snapshot);
            let outcome = millpond_plan::plan_on(&snapshot, &market, &settings);
            consolidate(&snapshot, &market, outcome, &settings)
        });
        Self { snapshot, requests, used, guarded, consolidated }
    }

    fn goes(&self, node: NodeId) -> bool {
        self.consolidated.iter().flat_map(|it| &it.outcome.plan.removals).any(|removal| removal.nodes.contains(&node))
    }

    /// Why a candidate stays.
    fn why(&self, node: NodeId) -> String {
        let kept = self.consolidated.as_ref().and_then(|consolidated| consolidated.kept[node.index()].as_ref());
        match kept {
            // Nothing is bought here, so cost cannot be what keeps it.
            Some(DisruptionBlocker::NoSaving) => "its pods do not all fit on other nodes".to_owned(),
            Some(blocker) => blocker.sentence(&self.snapshot),
            None => String::new(),
        }
    }

    fn unneeded(&self, id: NodeId, groups: &BTreeMap<String, Timing>) -> Option<Unneeded> {
        let node = &self.snapshot.nodes[id.index()];
        let timing = timing_of(&self.snapshot, node, groups)?;
        Some(Unneeded {
            node: node.name.clone(),
            pool: self.snapshot.pools[node.pool?.index()].name.clone(),
            after_s: if node.ready { timing.unneeded_s } else { timing.unready_s },
            used_milli: self.used.get(&id).copied()?,
            pods: self.moving(id),
        })
    }

    /// Pods that will need another place.
    fn moving(&self, node: NodeId) -> usize {
        let of_node = |pod: &&Pod| pod.node == Some(node) && pod.state == PodState::Bound;
        let moves =
            |pod: &&Pod| !matches!(self.snapshot.classes[pod.class.index()].kind, PodKind::Daemon | PodKind::Mirror);
        self.snapshot.pods.iter().filter(of_node).filter(moves).count()
    }
}

fn timing_of<'g>(snapshot: &Snapshot, node: &Node, groups: &'g BTreeMap<String, Timing>) -> Option<&'g Timing> {
    groups.get(&snapshot.pools[node.pool?.index()].name)
}

/// The requests of the pods on each node.
fn requests(snapshot: &Snapshot) -> Vec<Resources> {
    let mut all = vec![Resources::new(); snapshot.nodes.len()];
    for pod in snapshot.pods.iter().filter(|pod| pod.state == PodState::Bound) {
        if let Some(node) = pod.node {
            all[node.index()].add(&snapshot.classes[pod.class.index()].requests);
        }
    }
    all
}

/// How much of a node is asked for, and how much is too much for it to go, in thousandths.
fn utilization(snapshot: &Snapshot, node: &Node, requests: &Resources, timing: &Timing) -> (i64, i64) {
    let share = |id: ResourceId| match node.allocatable.get(id) {
        0 => 0,
        all => requests.get(id).saturating_mul(1000) / all,
    };
    let is_gpu = |id: &ResourceId| {
        let name = snapshot.resources.name(*id);
        name.ends_with("/gpu") || Vendor::ALL.iter().any(|vendor| vendor.resource() == name)
    };
    let gpus = node.allocatable.iter().filter(|(_, amount)| *amount > 0).map(|(id, _)| id).find(is_gpu);
    match gpus {
        Some(id) => (share(id), timing.gpu_utilization_milli),
        None => (share(CPU).max(share(MEMORY)), timing.utilization_milli),
    }
}

/// Nothing can be bought, and no other node can be removed.
fn open_for_removal(snapshot: &mut Snapshot, groups: &BTreeMap<String, Timing>, used: &HashMap<NodeId, i64>) {
    for pool in &mut snapshot.pools {
        pool.not_ready = Some("nothing is bought while nodes are looked for that can go".to_owned());
        pool.disruption.expire_after = None;
        pool.disruption.consolidate_after = groups.contains_key(&pool.name).then_some(0);
        pool.disruption.policy = Consolidation::WhenEmptyOrUnderutilized;
        pool.disruption.budgets = Vec::new();
    }
    for (index, node) in snapshot.nodes.iter_mut().enumerate() {
        let may_go = used.contains_key(&NodeId::from(index));
        node.do_not_disrupt |= !may_go;
        node.drifted = None;
        if may_go {
            // The planner would not remove a node that costs nothing.
            node.price = Some(node.price.unwrap_or(1).max(1));
        }
    }
}

/// By node, when it became unneeded.
#[derive(Debug, Default)]
pub(crate) struct UnneededSince(BTreeMap<String, Seconds>);

impl UnneededSince {
    /// Returns the nodes that have been unneeded for long enough, and forgets nodes that are needed now.
    pub(crate) fn look(&mut self, unneeded: Vec<Unneeded>, now: Seconds) -> Vec<Unneeded> {
        let mut since = BTreeMap::new();
        for one in &unneeded {
            let began = self.0.get(&one.node).copied().unwrap_or(now);
            since.insert(one.node.clone(), began);
        }
        self.0 = since;
        unneeded.into_iter().filter(|one| now - self.0[&one.node] >= one.after_s).collect()
    }

    /// Number of unneeded nodes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(node: &str) -> Unneeded {
        Unneeded { node: node.to_owned(), pool: "default/w".to_owned(), after_s: 600, used_milli: 0, pods: 0 }
    }

    #[test]
    fn a_node_must_be_unneeded_all_the_time() {
        let mut list = UnneededSince::default();
        assert_eq!(list.look(vec![one("a"), one("b")], 1000), []);
        assert_eq!(list.look(vec![one("a")], 1300), [], "b was needed once");
        assert_eq!(list.look(vec![one("a"), one("b")], 1599), []);
        assert_eq!(list.look(vec![one("a"), one("b")], 1600), [one("a")]);
        assert_eq!(list.look(vec![one("b")], 2199), [one("b")]);
        assert_eq!(list.len(), 1);
    }
}
