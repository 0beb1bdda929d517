//! A plan in the making: the cluster, what was bought, and which pods are where.

use std::collections::{BTreeMap, HashMap};

use crate::cluster_state::{ClusterState, NodeSlotId, needs_place};
use crate::explain;
use crate::market::{Market, Usage};
use crate::model::{ClassId, Limits, Node, NodeId, NodeState, PodId, Snapshot, TypeId};
use crate::plan::{NewNode, Outcome, Plan, Report, Target};

/// A plan while it is built.
pub(super) struct PlanBuilder<'s> {
    pub(super) snapshot: &'s Snapshot,
    pub(super) market: &'s Market,
    pub(super) cluster: ClusterState<'s>,
    /// Usage of each pool, including nodes bought by the plan; the last entry is the sum over all pools.
    pub(super) usage: Vec<Usage>,
    /// Nodes bought of each reserved offering.
    taken: HashMap<(TypeId, u32), u32>,
    placements: Vec<(PodId, NodeSlotId)>,
    /// Number of pods placed on each node.
    loads: BTreeMap<NodeSlotId, u32>,
    pub(super) work: u64,
}

impl<'s> PlanBuilder<'s> {
    pub(super) fn new(snapshot: &'s Snapshot, market: &'s Market) -> Self {
        Self {
            snapshot,
            market,
            cluster: ClusterState::new(snapshot, market),
            usage: Usage::by_pool(snapshot),
            taken: HashMap::new(),
            placements: Vec::new(),
            loads: BTreeMap::new(),
            work: 0,
        }
    }

    /// Pods that need a node and that some node could take.
    pub(super) fn pending(&self) -> Vec<PodId> {
        let hopeful = |pod: &PodId| needs_place(self.snapshot, *pod) && self.snapshot.class_of(*pod).problem.is_none();
        (0..self.snapshot.pods.len()).map(PodId::from).filter(hopeful).collect()
    }

    pub(super) fn class_of(&self, pod: PodId) -> ClassId {
        self.snapshot.pods[pod.index()].class
    }

    /// Nodes that take pods: existing ones (initialized ones first, then by name), then those bought.
    pub(super) fn open_spots(&self) -> Vec<NodeSlotId> {
        let there = self.snapshot.nodes.len();
        let mut spots: Vec<NodeSlotId> =
            (0..self.cluster.len() as u32).map(NodeSlotId).filter(|spot| self.cluster.is_open(*spot)).collect();
        let nodes = &self.snapshot.nodes;
        spots.sort_by_key(|spot| match nodes.get(spot.index()) {
            Some(node) => (0, node.initialized.is_none(), node.name.as_str(), 0),
            None => (1, false, "", spot.index() - there),
        });
        spots
    }

    /// Whether one more node of an offer may be bought: its pool buys, it is in stock, and limits allow it.
    pub(super) fn may_buy(&self, offer: usize) -> bool {
        let of = self.market.offer(offer);
        let pool = &self.snapshot.pools[of.pool.index()];
        pool.not_ready.is_none()
            && pool.replicas.is_none()
            && of.available
            && self.left_of(offer) != Some(0)
            && self.within(offer, &pool.limits, &self.usage[of.pool.index()])
            && self.within(offer, &self.snapshot.limits, &self.usage[self.snapshot.pools.len()])
    }

    /// Nodes left of a reserved offering.
    pub(super) fn left_of(&self, offer: usize) -> Option<u32> {
        let of = self.market.offer(offer);
        let taken = self.taken.get(&(of.instance_type, of.offering)).copied().unwrap_or(0);
        of.left.map(|left| left.saturating_sub(taken))
    }

    fn within(&self, offer: usize, limits: &Limits, usage: &Usage) -> bool {
        let of = self.market.offer(offer);
        let capacity = &self.snapshot.types[of.instance_type.index()].capacity;
        let fits = |&(resource, limit): &(_, i64)| {
            usage.capacity.get(resource).saturating_add(capacity.get(resource)) <= limit || capacity.get(resource) == 0
        };
        limits.resources.iter().all(fits)
            && limits.nodes.is_none_or(|limit| usage.nodes < limit)
            && limits.price.is_none_or(|limit| usage.price + u128::from(of.price) <= u128::from(limit))
    }

    /// Buys a node.
    pub(super) fn buy(&mut self, offer: usize) -> NodeSlotId {
        let of = self.market.offer(offer);
        let capacity = &self.snapshot.types[of.instance_type.index()].capacity;
        for index in [of.pool.index(), self.snapshot.pools.len()] {
            self.usage[index].add(capacity, of.price);
        }
        *self.taken.entry((of.instance_type, of.offering)).or_default() += 1;
        self.cluster.open(offer)
    }

    /// Places a pod on a node if kube-scheduler would accept it.
    pub(super) fn try_place(&mut self, pod: PodId, spot: NodeSlotId) -> bool {
        let class = self.class_of(pod);
        self.work += 1;
        let allowed = self.cluster.check(class, spot).is_ok();
        if allowed {
            self.cluster.place(class, spot, 1);
            self.placements.push((pod, spot));
            *self.loads.entry(spot).or_default() += 1;
        }
        allowed
    }

    /// Puts each pod on the first existing node that takes it; returns the pods that are left.
    pub(super) fn fill(&mut self, pods: Vec<PodId>) -> Vec<PodId> {
        let spots = self.open_spots();
        let mut failed: HashMap<ClassId, usize> = HashMap::new();
        let mut left = Vec::new();
        for pod in pods {
            let class = self.class_of(pod);
            // Without rules between pods, a node that was too full for one stays so for the next.
            let free = self.cluster.topology().is_free(class);
            let from = failed.get(&class).copied().filter(|_| free).unwrap_or(0);
            match (from..spots.len()).find(|&index| self.try_place(pod, spots[index])) {
                Some(index) => _ = failed.insert(class, index),
                None => {
                    failed.insert(class, spots.len());
                    left.push(pod);
                }
            }
        }
        left
    }

    /// Completes the plan and its report.
    pub(super) fn finish(mut self) -> Outcome {
        let there = self.snapshot.nodes.len();
        let bought: Vec<NodeSlotId> = (there..self.cluster.len())
            .map(|spot| NodeSlotId(spot as u32))
            .filter(|s| self.loads.contains_key(s))
            .collect();
        let numbers: HashMap<NodeSlotId, u32> =
            bought.iter().enumerate().map(|(number, spot)| (*spot, number as u32)).collect();
        let new_nodes: Vec<NewNode> = bought
            .iter()
            .map(|&spot| self.market.offer(self.cluster.offer(spot).expect("a node that was bought has an offer")))
            .map(|offer| NewNode {
                pool: offer.pool,
                instance_type: offer.instance_type,
                offering: offer.offering,
                price: offer.price,
                labels: offer.labels.clone(),
            })
            .collect();
        let target = |spot: NodeSlotId| match numbers.get(&spot) {
            Some(&number) => Target::New(number),
            None => Target::Existing(NodeId(spot.0)),
        };
        let mut placements: Vec<(PodId, Target)> =
            self.placements.iter().map(|&(pod, spot)| (pod, target(spot))).collect();
        placements.sort_unstable_by_key(|(pod, _)| *pod);
        let plan = Plan { revision: self.snapshot.revision.clone(), new_nodes, removals: Vec::new(), placements };
        let report = self.report(&plan);
        Outcome { plan, report }
    }

    fn report(&mut self, plan: &Plan) -> Report {
        let nodes = &self.snapshot.nodes;
        let price = |node: &Node| u128::from(node.price.unwrap_or(0));
        let stays = |node: &&Node| node.state != NodeState::Leaving;
        let staying: u128 = nodes.iter().filter(stays).map(price).sum();
        let bought: u128 = plan.new_nodes.iter().map(|node| u128::from(node.price)).sum();
        let needing: Vec<PodId> =
            (0..self.snapshot.pods.len()).map(PodId::from).filter(|pod| needs_place(self.snapshot, *pod)).collect();
        let mut report = Report {
            cost_before: nodes.iter().map(price).sum(),
            cost_after: staying + bought,
            unpriced_nodes: nodes.iter().filter(|node| node.price.is_none()).count(),
            nodes_before: nodes.len(),
            nodes_after: nodes.iter().filter(stays).count() + plan.new_nodes.len(),
            pods: needing.len(),
            bound: staying,
            work: self.work,
            ..Report::default()
        };
        let mut known: HashMap<ClassId, u32> = HashMap::new();
        for pod in needing.into_iter().filter(|pod| plan.target(*pod).is_none()) {
            let class = self.class_of(pod);
            let verdict = *known.entry(class).or_insert_with(|| {
                let verdict = explain::verdict(self.snapshot, self.market, &mut self.cluster, &self.usage, class);
                report.verdicts.push(verdict);
                report.verdicts.len() as u32 - 1
            });
            report.unplaced.push((pod, verdict));
        }
        report
    }
}
