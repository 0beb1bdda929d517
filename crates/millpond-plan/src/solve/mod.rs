//! Makes a plan of least cost for a snapshot.
//!
//! ```text
//! demand ─▶ existing ─▶ domains ─▶ rows ─▶ pack ─▶ slots ─▶ rest ─▶ report
//! group     fill what   which      classes  buy    which    one by  cost, bound,
//! pods      is there    zones      alike           pods     one     verdicts
//! ```
//!
//! 1. Pods are grouped by class; all that follows is done per class (`demand`, `order`).
//! 2. Free capacity of existing nodes, and of nodes on their way, is used first, in the order of priority (`existing`).
//! 3. Rules between pods about zones and the like are settled by giving each class a number of pods per domain
//!    (`domains`): from then on a zone is a set of offers.
//! 4. Classes that look alike to packing become rows, offers that look alike become bins (`rows`); the kernel
//!    (`pack`) chooses nodes. Pools of greater weight come first: a pod goes to a lower one only if no higher one
//!    can take it within its limits (`weights`).
//!    Pods that must share a host with others are bought for as a bundle before (`bundles`).
//! 5. Nodes get their pods. Rules about the host that the kernel does not know are checked in the cluster state (`buy_nodes`);
//!    what is left over is placed one by one, on planned nodes with room or on nodes of its own (`leftover_pods`).
//!    In small plans, nodes that the others make superfluous are left out again (`drop_redundant_nodes`).
//! 6. Limits are checked node by node, before anything is bought (`ledger`); where they are in the way of the cheapest
//!    nodes, others are chosen (`limits`).
//! 7. Inflight nodes without assigned pods are packed once more (`repack_inflight`).
//! 8. The report says what it costs, what it costs at least, and why pods have no place (`report`).
//!
//! Preferences of pods (preferred affinity, `ScheduleAnyway` spread, `PreferNoSchedule` taints) never make a plan more
//! expensive: they choose among existing nodes and among offers of equal price. The report counts those that were not
//! met.
//!
//! Ties: among existing nodes, the one that the pods prefer most, then running before starting, then by name; among
//! offers of one price, the one that the pods prefer most, then the zone with the fewest nodes of the pool, then pool,
//! type, zone and capacity type by name.

mod bound;
mod bundles;
mod buy_nodes;
mod demand;
mod domains;
mod drop_redundant_nodes;
mod existing;
pub(crate) mod ledger;
mod leftover_pods;
mod limits;
mod min_values;
mod node_size;
mod offers;
mod order;
mod packing_problem;
mod repack_inflight;
mod report;
#[cfg(test)]
mod tests;
mod weights;

use crate::cluster_state::{ClusterState, NodeSlotId};
use crate::market::{Market, Rank};
use crate::model::{ClassId, PodId, Snapshot};
use crate::pack::{BitSet, parallel};
use crate::plan::{NewNode, Outcome, Plan, Settings, Target};
use crate::topology::Topology;

use demand::Demand;
use ledger::Ledger;

/// Plans a snapshot.
pub fn plan(snapshot: &Snapshot, settings: &Settings) -> Outcome {
    if let Some(outcome) = crate::policy::plan(snapshot, settings) {
        return outcome;
    }
    let of_pods = || (Demand::new(snapshot), Topology::new(snapshot));
    let (market, (demand, topology)) = parallel::both(settings.budget.threads, || Market::new(snapshot), of_pods);
    solve(snapshot, &market, demand, topology, settings)
}

/// Plans a snapshot whose market is known. The market depends on pools, types and the classes of pods, not on the pods.
///
/// A policy other than Millpond's own is passed on to [`crate::policy`].
pub fn plan_on(snapshot: &Snapshot, market: &Market, settings: &Settings) -> Outcome {
    if let Some(outcome) = crate::policy::plan(snapshot, settings) {
        return outcome;
    }
    solve(snapshot, market, Demand::new(snapshot), Topology::new(snapshot), settings)
}

fn solve(snapshot: &Snapshot, market: &Market, demand: Demand, topology: Topology, settings: &Settings) -> Outcome {
    let outcome = solve_once(snapshot, market, demand, topology, settings);
    let outcome = repack_inflight::repack_if_cheaper(snapshot, market, settings, outcome);
    if settings.consolidate {
        return crate::disruption::consolidate(snapshot, market, outcome, settings).outcome;
    }
    outcome
}

fn solve_once(
    snapshot: &Snapshot,
    market: &Market,
    demand: Demand,
    topology: Topology,
    settings: &Settings,
) -> Outcome {
    let mut solver = Solver::new(snapshot, market, demand, topology, *settings);
    solver.fill_existing();
    solver.start_proof();
    solver.buy_bundles();
    solver.buy();
    solver.drop_redundant_nodes();
    solver.lift();
    solver.fill_up_pools();
    solver.place_leftover_pods();
    solver.mend();
    // A node that is given back may have been the only one of a domain that a spread relied on.
    while solver.give_back_spare() {
        solver.mend();
    }
    solver.finish()
}

/// Marks pods without a target while placements are collected; there are never this many new nodes.
const NOWHERE: Target = Target::New(u32::MAX);

/// A node that the plan buys.
#[derive(Debug, Clone)]
struct Planned {
    offer: u32,
    /// Classes of its pods, with their numbers.
    contents: Vec<(ClassId, u32)>,
    /// It was given back because no pod could be put on it.
    dropped: bool,
}

struct Solver<'s> {
    snapshot: &'s Snapshot,
    market: &'s Market,
    settings: Settings,
    demand: Demand,
    cluster: ClusterState<'s>,
    ledger: Ledger<'s>,
    /// Pods placed on existing nodes: class, node, number.
    filled: Vec<(ClassId, NodeSlotId, u32)>,
    planned: Vec<Planned>,
    /// Whether planned nodes are in the cluster state: only where some rule needs it.
    in_cluster_state: bool,
    /// Offers that can be had now, of pools that buy nodes.
    on_sale: BitSet,
    /// Nodes of each pool in each zone, to balance zones.
    balance: offers::Balance,
    /// Whether any taint is `PreferNoSchedule`.
    soft_taints: bool,
    /// Whether any pod would rather be on some nodes than on others.
    has_node_preferences: bool,
    min_values: min_values::MinValues,
    work: u64,
    /// The proof of the lower bound, while it is computed.
    proving: Option<bound::Proving>,
    /// Where what is bought and what is proved is one and the same problem: that, and the pods in it.
    plain: Option<(packing_problem::Packing, Vec<(ClassId, u32)>)>,
}

impl<'s> Solver<'s> {
    fn new(snapshot: &'s Snapshot, market: &'s Market, demand: Demand, topology: Topology, settings: Settings) -> Self {
        let mut on_sale = market.open(snapshot);
        on_sale.intersect(market.available());
        Self {
            snapshot,
            market,
            settings,
            on_sale,
            demand,
            cluster: ClusterState::with_topology(snapshot, market, topology),
            ledger: Ledger::new(snapshot, market),
            filled: Vec::new(),
            planned: Vec::new(),
            in_cluster_state: false,
            balance: offers::Balance::new(snapshot, market),
            soft_taints: soft_taints(snapshot),
            has_node_preferences: soft_taints(snapshot)
                || snapshot.classes.iter().any(|class| !class.node_preferences.is_empty()),
            min_values: min_values::MinValues::new(snapshot),
            work: 0,
            proving: None,
            plain: None,
        }
    }

    /// Classes that still have pods to be placed, and for which some node could do, in order.
    fn waiting(&self) -> Vec<ClassId> {
        let hopeful = |class: &ClassId| {
            let of = &self.snapshot.classes[class.index()];
            of.problem.is_none() && self.left(*class) > 0
        };
        let mut waiting: Vec<ClassId> = self.demand.classes.iter().copied().filter(hopeful).collect();
        let topology = self.cluster.topology();
        // Within a priority, classes with required affinity come after the classes that they may need.
        waiting.sort_by_key(|class| {
            let priority = self.snapshot.classes[class.index()].priority;
            (std::cmp::Reverse(priority), topology.must_be_near(*class))
        });
        waiting
    }

    /// Number of pods of a class that still need a place.
    fn left(&self, class: ClassId) -> u32 {
        self.demand.left(class)
    }

    /// The number of a planned node in the cluster state.
    fn spot_of(&self, planned: usize) -> NodeSlotId {
        debug_assert!(self.in_cluster_state, "planned nodes are in the cluster state only where rules need it");
        NodeSlotId((self.snapshot.nodes.len() + planned) as u32)
    }

    /// The rank of a planned node.
    fn rank_of(&self, planned: usize) -> Rank {
        self.market.offer(self.planned[planned].offer as usize).rank
    }

    /// Buys a node; the ledger must have allowed it.
    fn add_planned(&mut self, offer: usize) -> usize {
        self.ledger.buy(offer);
        self.balance.add(offer);
        self.planned.push(Planned { offer: offer as u32, contents: Vec::new(), dropped: false });
        if self.in_cluster_state {
            self.cluster.open(offer);
        }
        self.planned.len() - 1
    }

    /// Gives back an empty node.
    fn give_back(&mut self, planned: usize) {
        let offer = self.planned[planned].offer as usize;
        self.planned[planned].dropped = true;
        self.ledger.give_back(offer);
        if self.in_cluster_state {
            let spot = self.spot_of(planned);
            self.cluster.close(spot);
        }
    }

    /// Removes pods of a class from a planned node.
    fn take_off(&mut self, planned: usize, class: ClassId, count: u32) {
        let contents = &mut self.planned[planned].contents;
        if let Some((_, present)) = contents.iter_mut().find(|(known, _)| *known == class) {
            *present -= count;
        }
        contents.retain(|(_, count)| *count > 0);
        self.demand.release(class, count);
        let spot = self.spot_of(planned);
        self.cluster.remove(class, spot, count);
    }

    /// Puts pods of a class on a planned node.
    fn put(&mut self, planned: usize, class: ClassId, count: u32) {
        self.hold(class, count);
        if self.in_cluster_state {
            let spot = self.spot_of(planned);
            self.cluster.place(class, spot, count);
        }
        let contents = &mut self.planned[planned].contents;
        match contents.iter_mut().find(|(known, _)| *known == class) {
            Some((_, present)) => *present += count,
            None => contents.push((class, count)),
        }
    }

    /// Counts pods as placed; which ones is decided at the end.
    fn hold(&mut self, class: ClassId, count: u32) {
        self.demand.hold(class, count);
    }

    fn assemble(&mut self) -> (Plan, Vec<PodId>) {
        // In place, with [`NOWHERE`] for pods without a target: a second list for a million pods would cost time and
        // memory.
        let mut placements: Vec<(PodId, Target)> = Vec::with_capacity(self.snapshot.pods.len());
        placements.extend((0..self.snapshot.pods.len()).map(|pod| (PodId::from(pod), NOWHERE)));
        for &(class, spot, count) in &self.filled {
            let target = Target::Existing(crate::model::NodeId(spot.0));
            for pod in self.demand.take(class, count) {
                placements[pod.index()].1 = target;
            }
        }
        let mut new_nodes = Vec::with_capacity(self.planned.len());
        for node in self.planned.iter().filter(|node| !node.dropped) {
            let target = Target::New(new_nodes.len() as u32);
            let offer = self.market.offer(node.offer as usize);
            new_nodes.push(NewNode {
                pool: offer.pool,
                instance_type: offer.instance_type,
                offering: offer.offering,
                price: offer.price,
                labels: offer.labels.clone(),
            });
            for &(class, count) in &node.contents {
                for pod in self.demand.take(class, count) {
                    placements[pod.index()].1 = target;
                }
            }
        }
        let unplaced = self.demand.rest();
        if self.demand.total() - unplaced.len() < placements.len() {
            placements.retain(|(_, target)| *target != NOWHERE);
            placements.shrink_to_fit();
        }
        let plan = Plan { revision: self.snapshot.revision.clone(), new_nodes, removals: Vec::new(), placements };
        (plan, unplaced)
    }
}

fn soft_taints(snapshot: &Snapshot) -> bool {
    let of_nodes = snapshot.nodes.iter().flat_map(|node| &node.taints);
    let of_pools = snapshot.pools.iter().flat_map(|pool| &pool.taints);
    of_nodes.chain(of_pools).any(|taint| !taint.effect.forbids())
}
