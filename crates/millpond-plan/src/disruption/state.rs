//! The cluster state while a plan removes nodes. Every change is recorded so that it can be undone.

use std::collections::{BTreeSet, HashMap};

use super::eligible::{Accounts, DisruptionBlocker};
use super::order::Zones;
use super::pdb::Evictions;
use crate::cluster_state::{ClusterState, NodeSlotId};
use crate::market::Market;
use crate::model::{ClassId, DisruptionReason, NodeId, PodId, PodKind, PodState, PoolId, Snapshot};
use crate::plan::Rule;
use crate::solve::ledger::Ledger;
use crate::topology::TopologyNode;

/// A change that can be undone.
#[derive(Debug)]
enum Change {
    Lifted(PodId, NodeSlotId),
    /// The last field is the node that the pod was planned onto before.
    Put(PodId, NodeSlotId, Option<NodeSlotId>),
    Daemon(ClassId, NodeSlotId),
    Closed(NodeId),
    Opened(NodeSlotId, usize),
    GivenBack(NodeSlotId, usize),
    Restored(NodeId),
    Budget(PoolId),
    Evicted(Evictions),
}

/// A position in the record of changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark(usize);

pub(super) struct State<'s> {
    pub(super) snapshot: &'s Snapshot,
    pub(super) market: &'s Market,
    pub(super) cluster: ClusterState<'s>,
    pub(super) accounts: Accounts,
    pub(super) ledger: Ledger<'s>,
    pub(super) zones: Zones,
    /// For each node, planned ones included, the pods that must move when it is removed.
    contents: Vec<Vec<PodId>>,
    /// For each pod, the node that the plan puts it on: pending pods and pods that move.
    moved: Vec<Option<NodeSlotId>>,
    /// Placed pods, pending ones included, whose topology rules other pods can break.
    fragile: BTreeSet<(PodId, NodeSlotId)>,
    /// Those of `fragile` whose required neighbours the plan for pending pods did not secure; this is not checked
    /// again.
    unjudged: BTreeSet<PodId>,
    changes: Vec<Change>,
}

impl<'s> State<'s> {
    pub(super) fn new(snapshot: &'s Snapshot, market: &'s Market) -> Self {
        let accounts = Accounts::new(snapshot);
        let cluster = ClusterState::new(snapshot, market);
        let contents = (0..snapshot.nodes.len())
            .map(|node| accounts.residents.movers(snapshot, NodeId::from(node)).collect())
            .collect();
        Self {
            snapshot,
            market,
            cluster,
            accounts,
            ledger: Ledger::new(snapshot, market),
            zones: Zones::new(snapshot),
            contents,
            moved: vec![None; snapshot.pods.len()],
            fragile: BTreeSet::new(),
            unjudged: BTreeSet::new(),
            changes: Vec::new(),
        }
    }

    /// Adds a node that the plan for pending pods buys.
    pub(super) fn add_planned(&mut self, offer: usize) -> NodeSlotId {
        let spot = self.open(offer);
        self.changes.clear();
        spot
    }

    /// Records where the plan puts a pending pod.
    pub(super) fn add_waiting(&mut self, pod: PodId, spot: NodeSlotId) {
        self.put(pod, spot);
        self.changes.clear();
    }

    /// Exempts pods whose affinity the plan for pending pods left unmet from later checks; the plan reports the reason.
    pub(super) fn accept_plan(&mut self) {
        while let Err((pod, _)) = self.rules_hold() {
            if !self.unjudged.insert(pod) {
                return;
            }
        }
    }

    pub(super) fn class(&self, pod: PodId) -> ClassId {
        self.snapshot.pods[pod.index()].class
    }

    /// Pods that would have to move if the node were removed now.
    pub(super) fn contents(&self, node: NodeId) -> &[PodId] {
        self.on_spot(NodeSlotId(node.0))
    }

    /// Like [`Self::contents`], for any node, planned ones included.
    pub(super) fn on_spot(&self, spot: NodeSlotId) -> &[PodId] {
        &self.contents[spot.index()]
    }

    /// Where the plan puts a pod.
    pub(super) fn location(&self, pod: PodId) -> Option<NodeSlotId> {
        self.moved[pod.index()]
    }

    /// The node that a pod is on, or was on until it was lifted.
    pub(super) fn last_place(&self, pod: PodId) -> TopologyNode<'s> {
        let home = self.snapshot.pods[pod.index()].node.map(|node| NodeSlotId(node.0));
        let spot = self.moved[pod.index()].or(home).expect("pods that move were somewhere");
        self.cluster.place_of(spot)
    }

    pub(super) fn mark(&self) -> Mark {
        Mark(self.changes.len())
    }

    /// Removes a node for a reason: charges the budgets, lifts its pods and closes it. Returns the pods, or the blocker
    /// if nothing was changed.
    pub(super) fn take(&mut self, node: NodeId, reason: DisruptionReason) -> Result<Vec<PodId>, DisruptionBlocker> {
        let pool = self.accounts.eligible_but_for_budgets(self.snapshot, node, reason)?;
        if self.accounts.budgets.left(pool, reason) == Some(0) {
            // When the window opens matters only for a question about one node.
            return Err(self.accounts.used_up(pool, reason, None));
        }
        self.accounts.above_least(self.snapshot, pool, reason)?;
        let residents = self.accounts.residents.of(node);
        let topology = self.cluster.topology();
        let ending = |pod: &&PodId| {
            let of = &self.snapshot.pods[pod.index()];
            of.state == PodState::Terminating && !topology.is_free(of.class)
        };
        if let Some(pod) = residents.iter().find(ending) {
            return Err(DisruptionBlocker::PodEnding(*pod));
        }
        let evicted = self.accounts.evict(self.snapshot, node, reason)?;
        self.changes.push(Change::Evicted(evicted));
        self.accounts.budgets.take(pool, reason);
        self.changes.push(Change::Budget(pool));
        let spot = NodeSlotId(node.0);
        let pods = self.lift(spot);
        self.take_daemons(node);
        self.cluster.close(spot);
        self.accounts.nodes[pool.index()] -= 1;
        self.zones.remove(pool, self.snapshot.nodes[node.index()].zone);
        self.changes.push(Change::Closed(node));
        Ok(pods)
    }

    /// Lifts all pods that have to move from a node.
    pub(super) fn lift(&mut self, spot: NodeSlotId) -> Vec<PodId> {
        let pods = std::mem::take(&mut self.contents[spot.index()]);
        for &pod in &pods {
            let class = self.class(pod);
            self.cluster.remove(class, spot, 1);
            self.changes.push(Change::Lifted(pod, spot));
        }
        pods
    }

    /// Takes a pod off the node that the plan put it on; returns the node.
    pub(super) fn take_off(&mut self, pod: PodId) -> Option<NodeSlotId> {
        let spot = self.moved[pod.index()]?;
        self.contents[spot.index()].retain(|present| *present != pod);
        self.cluster.remove(self.class(pod), spot, 1);
        self.changes.push(Change::Lifted(pod, spot));
        Some(spot)
    }

    /// Takes the pods of DaemonSets out of the counts, since they end with the node.
    fn take_daemons(&mut self, node: NodeId) {
        let spot = NodeSlotId(node.0);
        for class in self.daemons(node).collect::<Vec<_>>() {
            self.cluster.remove(class, spot, 1);
            self.changes.push(Change::Daemon(class, spot));
        }
    }

    /// Puts a lifted pod on a node.
    pub(super) fn put(&mut self, pod: PodId, spot: NodeSlotId) {
        let class = self.class(pod);
        self.cluster.place(class, spot, 1);
        self.contents[spot.index()].push(pod);
        let before = self.moved[pod.index()].replace(spot);
        if self.cluster.topology().has_fragile_rules(class) {
            self.fragile.insert((pod, spot));
        }
        self.changes.push(Change::Put(pod, spot, before));
    }

    /// Puts pods on a node while they fit, and returns whether all did. If not, the caller undoes the changes.
    pub(super) fn put_all(&mut self, pods: &[PodId], spot: NodeSlotId) -> bool {
        pods.iter().all(|&pod| {
            let fits = self.cluster.check(self.class(pod), spot).is_ok();
            if fits {
                self.put(pod, spot);
            }
            fits
        })
    }

    /// Buys a node.
    pub(super) fn open(&mut self, offer: usize) -> NodeSlotId {
        let spot = self.cluster.open(offer);
        self.count_purchase(offer);
        self.contents.push(Vec::new());
        self.changes.push(Change::Opened(spot, offer));
        spot
    }

    fn count_purchase(&mut self, offer: usize) {
        self.ledger.buy(offer);
        let of = self.market.offer(offer);
        self.accounts.nodes[of.pool.index()] += 1;
        self.zones.add(of.pool, of.labels.get(self.snapshot.names.zone));
    }

    fn uncount_purchase(&mut self, offer: usize) {
        self.ledger.give_back(offer);
        let of = self.market.offer(offer);
        self.accounts.nodes[of.pool.index()] -= 1;
        self.zones.remove(of.pool, of.labels.get(self.snapshot.names.zone));
    }

    /// Gives a bought node back if it holds no pod, and returns whether it did.
    pub(super) fn give_back_unused(&mut self, spot: NodeSlotId) -> bool {
        let Some(offer) = self.cluster.offer(spot).filter(|_| self.contents[spot.index()].is_empty()) else {
            return false;
        };
        self.cluster.close(spot);
        self.uncount_purchase(offer);
        self.changes.push(Change::GivenBack(spot, offer));
        true
    }

    /// Reverts the removal of an empty node.
    pub(super) fn restore(&mut self, node: NodeId) {
        self.set_closed(node, false);
        self.changes.push(Change::Restored(node));
    }

    /// Closes an empty node or opens it again, and updates its DaemonSet pods and its part of the budgets.
    fn set_closed(&mut self, node: NodeId, closed: bool) {
        let spot = NodeSlotId(node.0);
        let of = &self.snapshot.nodes[node.index()];
        let Some(pool) = of.pool else { return };
        let daemons: Vec<ClassId> = self.daemons(node).collect();
        if closed {
            daemons.into_iter().for_each(|class| self.cluster.remove(class, spot, 1));
            self.cluster.close(spot);
            self.accounts.budgets.take_back(pool);
            self.accounts.nodes[pool.index()] -= 1;
            self.zones.remove(pool, of.zone);
        } else {
            self.cluster.reopen(spot);
            daemons.into_iter().for_each(|class| self.cluster.place(class, spot, 1));
            self.accounts.budgets.give_back(pool);
            self.accounts.nodes[pool.index()] += 1;
            self.zones.add(pool, of.zone);
        }
    }

    fn daemons(&self, node: NodeId) -> impl Iterator<Item = ClassId> {
        self.accounts.residents.of(node).iter().map(|pod| &self.snapshot.pods[pod.index()]).filter_map(|pod| {
            let kind = self.snapshot.classes[pod.class.index()].kind;
            let bound = pod.state == PodState::Bound;
            (bound && matches!(kind, PodKind::Daemon | PodKind::Mirror)).then_some(pod.class)
        })
    }

    /// Whether every pod that the plan places still meets its topology rules. The error is a pod that does not, with
    /// the rule. Affinity must be met by pods that run already or that need no other pods, so that they come first in
    /// any scheduling order; or all pods of the group share one domain.
    pub(super) fn rules_hold(&self) -> Result<(), (PodId, Rule)> {
        let topology = self.cluster.topology();
        // The pod may have been moved to another node since.
        let here = || self.fragile.iter().filter(|(pod, spot)| self.moved[pod.index()] == Some(*spot));
        let mut floating: HashMap<_, u32> = HashMap::new();
        for &(pod, spot) in here() {
            let class = self.class(pod);
            if topology.has_required_affinity(class) {
                for counted in topology.counted_at(class, self.cluster.place_of(spot)) {
                    *floating.entry(counted).or_default() += 1;
                }
            }
        }
        for &(pod, spot) in here() {
            let (class, place) = (self.class(pod), self.cluster.place_of(spot));
            let company =
                topology.has_settled_affinity(class, place, &floating) || topology.has_all_selected_pods(class, place);
            topology.holds(class, place).map_err(|rule| (pod, rule))?;
            if !company && !self.unjudged.contains(&pod) {
                return Err((pod, Rule::PodAffinity));
            }
        }
        Ok(())
    }

    /// Nodes whose free capacity changed since a mark.
    pub(super) fn touched(&self, mark: Mark) -> Vec<NodeSlotId> {
        let spot = |change: &Change| match change {
            Change::Put(_, spot, _) | Change::Lifted(_, spot) => Some(*spot),
            Change::Closed(node) => Some(NodeSlotId(node.0)),
            _ => None,
        };
        let mut spots: Vec<NodeSlotId> = self.changes[mark.0..].iter().filter_map(spot).collect();
        spots.sort_unstable();
        spots.dedup();
        spots
    }

    /// Undoes everything since a mark.
    pub(super) fn undo(&mut self, mark: Mark) {
        while self.changes.len() > mark.0 {
            let Some(change) = self.changes.pop() else { return };
            self.undo_change(change);
        }
    }

    fn undo_change(&mut self, change: Change) {
        match change {
            Change::Lifted(pod, spot) => {
                let class = self.class(pod);
                self.cluster.place(class, spot, 1);
                self.contents[spot.index()].push(pod);
            }
            Change::Put(pod, spot, before) => {
                let class = self.class(pod);
                self.cluster.remove(class, spot, 1);
                self.contents[spot.index()].retain(|present| *present != pod);
                self.moved[pod.index()] = before;
                self.fragile.remove(&(pod, spot));
            }
            Change::Daemon(class, spot) => self.cluster.place(class, spot, 1),
            Change::Closed(node) => {
                self.cluster.reopen(NodeSlotId(node.0));
                let of = &self.snapshot.nodes[node.index()];
                if let Some(pool) = of.pool {
                    self.accounts.nodes[pool.index()] += 1;
                    self.zones.add(pool, of.zone);
                }
            }
            Change::Opened(spot, offer) => {
                self.cluster.close(spot);
                self.uncount_purchase(offer);
            }
            Change::GivenBack(spot, offer) => {
                self.cluster.reopen(spot);
                self.count_purchase(offer);
            }
            Change::Restored(node) => self.set_closed(node, true),
            Change::Budget(pool) => self.accounts.budgets.give_back(pool),
            Change::Evicted(evictions) => self.accounts.evictions.give_back(&evictions),
        }
    }
}
