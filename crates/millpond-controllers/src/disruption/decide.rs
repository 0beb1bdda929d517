//! Turns a plan into commands. Pure.
//!
//! The steps of a plan are not independent of each other: a pod may move to a node that a later step empties again, and
//! end up on what that step buys. So steps that share a new node become one command, which waits for all of its nodes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use millpond_plan::disruption::DisruptionBlocker;
use millpond_plan::model::{
    DisruptionReason, Drift, Node, NodeId, NodeState, PodId, PodState, Pool, Seconds, Snapshot,
};
use millpond_plan::plan::{Plan, Target};

/// A command before it is started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct CommandDraft {
    /// The nodes to be removed, with the reason for each.
    pub(super) nodes: Vec<(NodeId, DisruptionReason)>,
    /// Indexes of the plan's new nodes that must be ready first.
    pub(super) new_nodes: Vec<u32>,
    /// Nodes that their pods move to.
    pub(super) receivers: BTreeSet<NodeId>,
    /// Saving in nano-dollars per hour.
    pub(super) savings: i128,
}

/// What the pending pods of a plan wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PendingPods {
    /// There are none that a plan could place.
    None,
    /// For kube-scheduler, which should bind them soon.
    Binding,
    /// For nodes that are about to be bought.
    Buying,
}

/// What pending pods wait for. Pods of buffers stay pending while they have capacity and while nodes are replaced for
/// them, so they count only if nodes are to be bought for them.
pub(super) fn pending_pods(snapshot: &Snapshot, plan: &Plan) -> PendingPods {
    let replacements: HashSet<u32> =
        plan.removals.iter().flat_map(|removal| removal.replacements.iter().copied()).collect();
    let mut pending = PendingPods::None;
    for (pod, target) in &plan.placements {
        if snapshot.pods[pod.index()].state != PodState::Pending {
            continue;
        }
        let is_buffer = snapshot.class_of(*pod).is_buffer();
        match target {
            Target::New(node) if is_buffer && replacements.contains(node) => {}
            Target::New(_) => return PendingPods::Buying,
            Target::Existing(_) if is_buffer => {}
            Target::Existing(node) if snapshot.nodes[node.index()].state == NodeState::Running => {
                pending = PendingPods::Binding;
            }
            Target::Existing(_) => {}
        }
    }
    pending
}

/// Groups the steps of a plan into commands. Steps that rely on nodes which are bought for pending pods are left for
/// the next plan. `buffers` tells where pods of buffers were before.
pub(super) fn drafts(snapshot: &Snapshot, plan: &Plan, buffers: &HashMap<PodId, NodeId>) -> Vec<CommandDraft> {
    let mut step_of: HashMap<NodeId, usize> = HashMap::new();
    let mut buyer_of: HashMap<u32, usize> = HashMap::new();
    for (step, removal) in plan.removals.iter().enumerate() {
        step_of.extend(removal.nodes.iter().map(|node| (*node, step)));
        buyer_of.extend(removal.replacements.iter().map(|node| (*node, step)));
    }
    let mut groups = Groups::new(plan.removals.len());
    let mut receivers: Vec<BTreeSet<NodeId>> = vec![BTreeSet::new(); plan.removals.len()];
    let mut left = vec![false; plan.removals.len()];
    for (pod, target) in &plan.placements {
        let home = snapshot.pods[pod.index()].node.or_else(|| buffers.get(pod).copied());
        let Some(&step) = home.and_then(|node| step_of.get(&node)) else { continue };
        match target {
            Target::Existing(node) => drop(receivers[step].insert(*node)),
            Target::New(node) => match buyer_of.get(node) {
                Some(&buyer) => groups.join(step, buyer),
                None => left[step] = true,
            },
        }
    }
    let mut drafts: BTreeMap<usize, (CommandDraft, bool)> = BTreeMap::new();
    for (step, removal) in plan.removals.iter().enumerate() {
        let (draft, waits) = drafts.entry(groups.find(step)).or_default();
        draft.nodes.extend(removal.nodes.iter().map(|node| (*node, removal.reason)));
        draft.new_nodes.extend(&removal.replacements);
        draft.receivers.append(&mut receivers[step]);
        draft.savings += removal.savings;
        *waits |= left[step];
    }
    drafts.into_values().filter(|(_, waits)| !waits).map(|(draft, _)| draft).collect()
}

/// Steps that belong together.
struct Groups(Vec<usize>);

impl Groups {
    fn new(count: usize) -> Self {
        Self((0..count).collect())
    }

    /// The first step in the group of a step.
    fn find(&self, mut step: usize) -> usize {
        while self.0[step] != step {
            step = self.0[step];
        }
        step
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.find(one), self.find(other));
        let (first, second) = (one.min(other), one.max(other));
        self.0[second] = first;
    }
}

/// The highest price of an offer that may replace a planned node such that the command still saves something; `None` if
/// the command is not for savings.
pub(super) fn price_limit(draft: &CommandDraft, planned: u64) -> Option<u64> {
    let saves = draft.nodes.iter().all(|(_, reason)| *reason == DisruptionReason::Underutilized);
    let share = u64::try_from(draft.savings).ok()? / (draft.new_nodes.len() as u64).max(1);
    saves.then(|| planned.saturating_add(share.saturating_sub(1)))
}

/// When time alone may change what is decided, after now.
pub(super) fn next_look(snapshot: &Snapshot, kept: &[Option<DisruptionBlocker>]) -> Option<Seconds> {
    let nodes = snapshot.nodes.iter().zip(kept).filter(|(node, _)| node.state != NodeState::Leaving);
    let times = nodes.flat_map(|(node, blocker)| {
        let pool = node.pool.map(|pool| &snapshot.pools[pool.index()]);
        let of_node = pool
            .map_or([None, None], |pool| [consolidatable_at(node, pool), node.expires(pool.disruption.expire_after)]);
        let drift = node.drifted.as_ref().and_then(Drift::settles);
        of_node.into_iter().chain([drift, blocker.as_ref().and_then(until)])
    });
    times.flatten().filter(|time| *time > snapshot.now).min()
}

fn consolidatable_at(node: &Node, pool: &Pool) -> Option<Seconds> {
    let since = node.last_pod_event.max(node.initialized)?;
    pool.disruption.consolidate_after.map(|after| since.saturating_add(after))
}

/// The earliest time at which a blocker can cease.
fn until(blocker: &DisruptionBlocker) -> Option<Seconds> {
    match blocker {
        DisruptionBlocker::PodDoNotDisrupt(_, until) => *until,
        DisruptionBlocker::Unsettled(until) | DisruptionBlocker::DriftedLately(until) => Some(*until),
        DisruptionBlocker::Budget { opens, .. } => *opens,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_plan::plan::Removal;
    use millpond_plan::testing::Cluster;

    fn cluster() -> Snapshot {
        Cluster::new()
            .machine("small", "cpu=2 memory=4Gi", |machine| machine.price(50))
            .pool("general", |pool| pool)
            .node("a", "small", |node| node.pool("general"))
            .node("b", "small", |node| node.pool("general"))
            .node("c", "small", |node| node.pool("general"))
            .node("stays", "small", |node| node.pool("general"))
            .pod("a-0", "cpu=100m", |pod| pod.on("a"))
            .pod("b-0", "cpu=100m", |pod| pod.on("b"))
            .pod("c-0", "cpu=100m", |pod| pod.on("c"))
            .pod("waits", "cpu=100m", |pod| pod)
            .snapshot()
    }

    fn removal(node: u32, replacements: &[u32], savings: i128) -> Removal {
        let reason = DisruptionReason::Underutilized;
        Removal { nodes: vec![NodeId(node)], replacements: replacements.to_vec(), reason, savings, disruption: 0 }
    }

    fn plan(removals: Vec<Removal>, placements: &[(u32, Target)]) -> Plan {
        let placements = placements.iter().map(|(pod, target)| (PodId(*pod), *target)).collect();
        Plan { removals, placements, ..Plan::default() }
    }

    fn shown(drafts: &[CommandDraft]) -> Vec<(Vec<u32>, Vec<u32>, i128)> {
        let nodes = |draft: &CommandDraft| draft.nodes.iter().map(|(node, _)| node.0).collect();
        drafts.iter().map(|draft| (nodes(draft), draft.new_nodes.clone(), draft.savings)).collect()
    }

    #[test]
    fn steps_that_share_a_new_node_are_one_command() {
        let stays = Target::Existing(NodeId(3));
        let steps = || vec![removal(0, &[], 50), removal(1, &[0], 10), removal(2, &[], 50)];
        // Each for itself.
        let apart = plan(steps(), &[(0, stays), (1, Target::New(0)), (2, stays)]);
        assert_eq!(
            shown(&drafts(&cluster(), &apart, &HashMap::new())),
            [(vec![0], vec![], 50), (vec![1], vec![0], 10), (vec![2], vec![], 50)]
        );
        assert_eq!(drafts(&cluster(), &apart, &HashMap::new())[0].receivers, BTreeSet::from([NodeId(3)]));
        // The pod of the first ends up on what the second buys.
        let shared = plan(steps(), &[(0, Target::New(0)), (1, Target::New(0)), (2, stays)]);
        assert_eq!(
            shown(&drafts(&cluster(), &shared, &HashMap::new())),
            [(vec![0, 1], vec![0], 60), (vec![2], vec![], 50)]
        );
        // It ends up on a node that is bought for pending pods.
        let relies = plan(steps(), &[(0, Target::New(1)), (1, Target::New(0)), (2, stays)]);
        assert_eq!(
            shown(&drafts(&cluster(), &relies, &HashMap::new())),
            [(vec![1], vec![0], 10), (vec![2], vec![], 50)]
        );
    }

    #[test]
    fn pods_that_wait_are_served_first() {
        let snapshot = cluster();
        let pods = |target| plan(Vec::new(), &[(3, target)]);
        assert_eq!(pending_pods(&snapshot, &plan(Vec::new(), &[])), PendingPods::None);
        assert_eq!(pending_pods(&snapshot, &pods(Target::New(0))), PendingPods::Buying);
        assert_eq!(pending_pods(&snapshot, &pods(Target::Existing(NodeId(3)))), PendingPods::Binding);
        // A pod that runs and moves does not wait.
        assert_eq!(pending_pods(&snapshot, &plan(Vec::new(), &[(0, Target::New(0))])), PendingPods::None);
    }

    #[test]
    #[expect(clippy::redundant_closure_for_method_calls, reason = "the method is not general enough")]
    fn room_for_buffers_is_no_pod_that_waits() {
        let snapshot = Cluster::new()
            .machine("small", "cpu=2 memory=4Gi", |machine| machine.price(50))
            .pool("general", |pool| pool)
            .node("a", "small", |node| node.pool("general"))
            .node("b", "small", |node| node.pool("general"))
            .pods(2, "room", "cpu=100m", |pod| pod.buffer())
            .snapshot();
        let steps = || vec![removal(0, &[0], 10), removal(1, &[], 50)];
        let stays = plan(steps(), &[(0, Target::Existing(NodeId(1)))]);
        assert_eq!(pending_pods(&snapshot, &stays), PendingPods::None);
        let replaced = plan(steps(), &[(0, Target::New(0)), (1, Target::New(0))]);
        assert_eq!(pending_pods(&snapshot, &replaced), PendingPods::None);
        let besides = plan(steps(), &[(0, Target::New(1))]);
        assert_eq!(pending_pods(&snapshot, &besides), PendingPods::Buying);
        // Room that moves to what another step buys waits for it.
        let homes = HashMap::from([(PodId(0), NodeId(0)), (PodId(1), NodeId(1))]);
        assert_eq!(shown(&drafts(&snapshot, &replaced, &homes)), [(vec![0, 1], vec![0], 60)]);
    }

    #[test]
    fn what_comes_instead_still_saves_something() {
        let draft = |reason, savings| CommandDraft {
            nodes: vec![(NodeId(0), reason)],
            new_nodes: vec![0, 1],
            receivers: BTreeSet::new(),
            savings,
        };
        assert_eq!(price_limit(&draft(DisruptionReason::Underutilized, 20), 100), Some(109));
        assert_eq!(price_limit(&draft(DisruptionReason::Drifted, 20), 100), None);
        assert_eq!(price_limit(&draft(DisruptionReason::Drifted, -20), 100), None);
    }

    #[test]
    fn the_next_look_is_when_time_changes_something() {
        let mut snapshot = cluster();
        let kept: Vec<Option<DisruptionBlocker>> = vec![None; 4];
        let now = snapshot.now;
        let pool = &mut snapshot.pools[0].disruption;
        (pool.expire_after, pool.consolidate_after) = (None, None);
        assert_eq!(next_look(&snapshot, &kept), None);
        snapshot.pools[0].disruption.consolidate_after = Some(60);
        snapshot.nodes[1].last_pod_event = Some(now - 20);
        assert_eq!(next_look(&snapshot, &kept), Some(now + 40));
        let mut kept = kept;
        kept[2] = Some(DisruptionBlocker::PodDoNotDisrupt(PodId(0), Some(now + 30)));
        assert_eq!(next_look(&snapshot, &kept), Some(now + 30));
        snapshot.nodes[3].drifted = Some(Drift { why: "image".to_owned(), since: Some(now) });
        assert_eq!(next_look(&snapshot, &kept), Some(now + 10));
        snapshot.nodes[3].drifted = Some(Drift { why: "image".to_owned(), since: Some(now - 20) });
        assert_eq!(next_look(&snapshot, &kept), Some(now + 30));
        snapshot.nodes[0].expiry = millpond_plan::model::Expiry::At(now + 10);
        assert_eq!(next_look(&snapshot, &kept), Some(now + 10));
    }
}
