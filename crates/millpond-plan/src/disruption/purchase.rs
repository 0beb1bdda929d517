//! What to buy for pods whose nodes are removed and that fit on no remaining node: all of them together, by the packing
//! kernel.
//!
//! Topology rules about zones and other domains are met by keeping each pod in its domain as long as it may be
//! scheduled there again ([`domains`]): it goes to a node with the same values of those labels. Rules about the
//! hostname are part of the packing problem or are checked in the cluster state.
//!
//! Pods that move are created again, and the planner cannot tell kube-scheduler where each belongs. So what is bought
//! must hold them in any scheduling order ([`scheduling_order`](super::scheduling_order)). A packing at least cost
//! fills several nodes completely with complementary pods; kube-scheduler would not reproduce it, and more nodes would
//! be bought for the pods left over. Purchases are therefore searched for in several ways, one of which is
//! [`replacement_set`].

use std::collections::BTreeMap;

use super::domains;
use super::eligible::DisruptionBlocker;
use super::replacement_set;
use super::state::State;
use crate::cluster_state::NodeSlotId;
use crate::model::{ClassId, PodId, ResourceId, Resources};
use crate::pack::{self, BitSet, MAX_RESOURCES};
use crate::plan::Rule;

/// Purchases of more nodes than this are not checked against scheduling orders, because one additional node would cost
/// little in comparison. With a limit of eight, ten completely filled nodes for 200 pods passed unchecked.
const FEW: usize = 16;

/// Pods that may use the same offers.
struct Lot {
    class: ClassId,
    pods: Vec<PodId>,
    /// Index into [`Lots::sets`]: the offers that may be bought for them.
    offers: usize,
}

/// Pods grouped by class and domains. Lots often share a set of offers.
struct Lots {
    lots: Vec<Lot>,
    sets: Vec<BitSet>,
}

/// The kernel's choice of nodes for some pods, before anything is bought.
pub(super) struct Quote {
    lots: Vec<Lot>,
    /// For each bin of the kernel, its offers: equal in capacity and price.
    ties: Vec<Vec<usize>>,
    solution: pack::Choice,
}

impl Quote {
    /// The cost of the choice in nano-dollars per hour, without pods that only rules outside the kernel keep off the
    /// chosen nodes.
    pub(super) fn cost(&self) -> u128 {
        self.solution.cost
    }
}

/// How much of a node's capacity the packing may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filled {
    /// All of it.
    Whole,
    /// All but one part in this many.
    AllBut(i64),
}

impl Filled {
    fn of(self, amount: i64) -> i64 {
        match self {
            Self::Whole => amount,
            // The integer division leaves small amounts, such as devices, whole.
            Self::AllBut(parts) => amount - amount / parts,
        }
    }
}

/// Asks the kernel which nodes to buy for these pods. Fails for a pod that no offer below `most` can hold.
pub(super) fn quote(
    state: &mut State<'_>,
    on_sale: &BitSet,
    pods: &[PodId],
    most: u128,
    filled: Filled,
    budget: pack::Budget,
) -> Result<Quote, DisruptionBlocker> {
    let lots = lots(state, on_sale, pods, most)?;
    if let Some(lot) = lots.lots.iter().find(|lot| lots.sets[lot.offers].is_empty()) {
        return Err(nothing_for(lot.pods[0]));
    }
    let (problem, ties) = problem(state, &lots, filled);
    let solution = pack::choose(&problem, budget);
    if solution.cost >= most { Err(nothing_for(pods[0])) } else { Ok(Quote { lots: lots.lots, ties, solution }) }
}

/// Buys the nodes of a quote and puts the pods on them. Fails for a pod that fits nowhere; the caller then undoes the
/// changes.
pub(super) fn buy(state: &mut State<'_>, on_sale: &BitSet, quote: Quote) -> Result<Vec<NodeSlotId>, DisruptionBlocker> {
    let Quote { mut lots, ties, solution } = quote;
    let mut bought = Vec::new();
    let mut left = Vec::new();
    for group in &solution.nodes {
        for _ in 0..group.multiplicity {
            let contents = group.contents.iter().flat_map(|&(row, count)| {
                let pods = &mut lots[row].pods;
                pods.split_off(pods.len().saturating_sub(count as usize))
            });
            let contents: Vec<PodId> = contents.collect();
            let Some(offer) = pick(state, &ties[group.bin], &contents) else {
                left.extend(contents);
                continue;
            };
            let spot = state.open(offer);
            for pod in contents {
                put_or_keep(state, pod, spot, &mut left);
            }
            bought.push(spot);
        }
    }
    left.extend(lots.iter_mut().flat_map(|lot| std::mem::take(&mut lot.pods)));
    left.sort_unstable();
    for pod in left {
        place_alone(state, on_sale, pod, &mut bought)?;
    }
    // Give back a node that none of its pods may be on.
    bought.retain(|spot| !state.give_back_unused(*spot));
    Ok(bought)
}

/// Buys the cheapest node below a price that holds all these pods. If there is none, the caller undoes the changes.
pub(super) fn buy_one(state: &mut State<'_>, on_sale: &BitSet, pods: &[PodId], most: u128) -> Option<NodeSlotId> {
    let offers = common_offers(state, on_sale, pods, most)?;
    let mut all = Resources::new();
    pods.iter().for_each(|pod| all.add(&state.snapshot.classes[state.class(*pod).index()].requests));
    let offer = |offer: &usize| state.market.offer(*offer);
    let holding: Vec<usize> = offers.iter().filter(|it| offer(it).free.first_lacking(&all).is_none()).collect();
    let cheapest = holding.iter().map(|it| offer(it).price).min()?;
    let ties: Vec<usize> = holding.into_iter().filter(|it| offer(it).price == cheapest).collect();
    let spot = pick(state, &ties, pods).map(|offer| state.open(offer))?;
    state.put_all(pods, spot).then_some(spot)
}

/// Offers below a price on which every one of these pods may be.
pub(super) fn common_offers(state: &mut State<'_>, on_sale: &BitSet, pods: &[PodId], most: u128) -> Option<BitSet> {
    let lots = lots(state, on_sale, pods, most).ok()?;
    let mut offers = lots.sets.first()?.clone();
    lots.sets.iter().for_each(|set| offers.intersect(set));
    Some(offers)
}

/// Whether the pods on the nodes just bought fit there in any scheduling order. Checked for few nodes only: of many,
/// the pods that do not fit are a small part.
pub(super) fn holds_anyhow(state: &State<'_>, bought: &[NodeSlotId]) -> bool {
    if !(2..=FEW).contains(&bought.len()) {
        return true;
    }
    let pods: Vec<PodId> = bought.iter().flat_map(|spot| state.on_spot(*spot).iter().copied()).collect();
    let dealing = replacement_set::dealing(state, &pods);
    let offers = bought.iter().filter_map(|spot| state.cluster.offer(*spot));
    let nodes: Vec<pack::Amounts> = offers.map(|offer| dealing.free(&state.market.offer(offer).free)).collect();
    dealing.fits(&nodes)
}

/// Nodes with the pods on them, kept so that they can be bought again after an undo.
pub(super) struct Purchase {
    nodes: Vec<(usize, Vec<PodId>)>,
    pub(super) cost: u128,
}

impl Purchase {
    /// Records the nodes that were just bought.
    pub(super) fn new(state: &State<'_>, bought: &[NodeSlotId]) -> Self {
        let node = |spot: &NodeSlotId| Some((state.cluster.offer(*spot)?, state.on_spot(*spot).to_vec()));
        let nodes: Vec<(usize, Vec<PodId>)> = bought.iter().filter_map(node).collect();
        let cost = nodes.iter().map(|(offer, _)| u128::from(state.market.offer(*offer).price)).sum();
        Self { nodes, cost }
    }

    /// Buys the same nodes again on the same cluster state.
    pub(super) fn repeat(&self, state: &mut State<'_>) -> Vec<NodeSlotId> {
        let mut bought = Vec::with_capacity(self.nodes.len());
        for (offer, pods) in &self.nodes {
            let spot = state.open(*offer);
            pods.iter().for_each(|pod| state.put(*pod, spot));
            bought.push(spot);
        }
        bought
    }
}

fn put_or_keep(state: &mut State<'_>, pod: PodId, spot: NodeSlotId, left: &mut Vec<PodId>) {
    let class = state.class(pod);
    if state.cluster.check(class, spot).is_ok() { state.put(pod, spot) } else { left.push(pod) }
}

/// Places a pod that could not follow the kernel's plan: on a node just bought, or on the cheapest node of its own.
fn place_alone(
    state: &mut State<'_>,
    on_sale: &BitSet,
    pod: PodId,
    bought: &mut Vec<NodeSlotId>,
) -> Result<(), DisruptionBlocker> {
    let class = state.class(pod);
    for &spot in bought.iter() {
        if state.cluster.check(class, spot).is_ok() {
            state.put(pod, spot);
            return Ok(());
        }
    }
    let offers = lots(state, on_sale, &[pod], u128::MAX)?.sets.pop().ok_or(nothing_for(pod))?;
    let offers = holding(state, class, &offers);
    let cheapest = offers.iter().map(|&offer| state.market.offer(offer).price).min().ok_or(nothing_for(pod))?;
    let ties: Vec<usize> = offers.into_iter().filter(|&offer| state.market.offer(offer).price == cheapest).collect();
    let spot = pick(state, &ties, &[pod]).map(|offer| state.open(offer)).ok_or(nothing_for(pod))?;
    bought.push(spot);
    state.cluster.check(class, spot).map_err(|rule| DisruptionBlocker::NoPlace(pod, rule))?;
    state.put(pod, spot);
    Ok(())
}

/// Of equally good offers within all limits, the one that the pods prefer most, then the one in the zone with the
/// fewest nodes of its pool.
pub(super) fn pick(state: &State<'_>, ties: &[usize], pods: &[PodId]) -> Option<usize> {
    let allowed = ties.iter().copied().filter(|&offer| state.ledger.allows(offer).is_ok());
    let liked = |offer: usize| -> i64 {
        let each = pods.iter().map(|pod| &state.snapshot.classes[state.class(*pod).index()]);
        each.map(|class| state.market.liking(class, offer, state.snapshot)).sum()
    };
    let filled = |offer: usize| {
        let of = state.market.offer(offer);
        state.zones.count(of.pool, of.labels.get(state.snapshot.names.zone))
    };
    allowed.min_by_key(|&offer| (std::cmp::Reverse(liked(offer)), filled(offer)))
}

/// The blocker for a pod that no offer can hold.
fn nothing_for(pod: PodId) -> DisruptionBlocker {
    DisruptionBlocker::NoPlace(pod, Rule::Resources)
}

/// Groups pods by class and by the domains that they are to be scheduled in.
fn lots(state: &mut State<'_>, on_sale: &BitSet, pods: &[PodId], most: u128) -> Result<Lots, DisruptionBlocker> {
    let allowed: BitSet = on_sale.iter().filter(|&offer| state.ledger.allows(offer).is_ok()).collect();
    let groups = domains::groups(state, &allowed, pods)?;
    let affordable: BitSet =
        allowed.iter().filter(|&offer| u128::from(state.market.offer(offer).price) < most).collect();
    let one_rank = state.market.ranks().len() < 2;
    let mut known: BTreeMap<BitSet, usize> = BTreeMap::new();
    let mut made = Lots { lots: Vec::with_capacity(groups.len()), sets: Vec::new() };
    for ((class, domains), pods) in groups {
        let mut offers = state.cluster.suiting_offers(class).clone();
        offers.intersect(if one_rank { &affordable } else { &allowed });
        domains::keep_inside(&mut offers, &domains, state.market);
        if !one_rank {
            offers = of_greatest_rank(state, class, &offers);
            offers.intersect(&affordable);
        }
        let next = known.len();
        let set = *known.entry(offers.clone()).or_insert(next);
        if set == made.sets.len() {
            made.sets.push(offers);
        }
        made.lots.push(Lot { class, pods, offers: set });
    }
    Ok(made)
}

/// Offers that hold one pod of the class.
pub(super) fn holding(state: &State<'_>, class: ClassId, offers: &BitSet) -> Vec<usize> {
    offers.iter().filter(|&offer| holds(state, class, offer)).collect()
}

/// Whether an offer holds one pod of the class.
pub(super) fn holds(state: &State<'_>, class: ClassId, offer: usize) -> bool {
    let requests = &state.snapshot.classes[class.index()].requests;
    state.market.offer(offer).free.first_lacking(requests).is_none()
}

/// Offers that hold one pod of the class and have the highest rank among those that do. Rank comes before price.
fn of_greatest_rank(state: &State<'_>, class: ClassId, offers: &BitSet) -> BitSet {
    let rank = |offer: usize| state.market.offer(offer).rank;
    let holding = holding(state, class, offers);
    let greatest = holding.iter().map(|&offer| rank(offer)).max();
    holding.into_iter().filter(|&offer| Some(rank(offer)) == greatest).collect()
}

/// The packing problem, and for each bin its offers.
fn problem(state: &State<'_>, lots: &Lots, filled: Filled) -> (pack::Problem, Vec<Vec<usize>>) {
    let dimensions = dimensions(state, &lots.lots);
    let words = lots.sets.len().div_ceil(64);
    // Offers with equal capacity, price and sets share a bin.
    let mut alike: BTreeMap<(u32, u64, Option<u32>, Vec<u64>), Vec<usize>> = BTreeMap::new();
    let mut any = BitSet::new();
    lots.sets.iter().for_each(|set| any.unite(set));
    for offer in any.iter() {
        let mut inside = vec![0_u64; words];
        for set in (0..lots.sets.len()).filter(|&set| lots.sets[set].contains(offer)) {
            inside[set / 64] |= 1 << (set % 64);
        }
        let of = state.market.offer(offer);
        let stocked = of.left.map(|_| offer as u32);
        alike.entry((of.capacity, of.price, stocked, inside)).or_default().push(offer);
    }
    let mut bins = Vec::with_capacity(alike.len());
    let mut ties = Vec::with_capacity(alike.len());
    let mut of_set = vec![BitSet::new(); lots.sets.len()];
    for ((_, price, _, inside), offers) in alike {
        for set in (0..lots.sets.len()).filter(|set| inside[set / 64] >> (set % 64) & 1 == 1) {
            of_set[set].insert(bins.len());
        }
        let capacity = amounts(&dimensions, |id| filled.of(state.market.offer(offers[0]).free.get(id)));
        let max_nodes = state.ledger.left_of(offers[0]).map(u64::from);
        bins.push(pack::Bin { capacity, price, max_nodes });
        ties.push(offers);
    }
    let topology = state.cluster.topology();
    let row = |lot: &Lot| {
        let class = &state.snapshot.classes[lot.class.index()];
        let mut exclusive = topology.exclusive_groups(lot.class);
        exclusive.extend(topology.spread_groups(lot.class));
        exclusive.sort_unstable();
        exclusive.dedup();
        let alone = topology.is_alone_on_host(lot.class) || !class.host_ports.is_empty();
        pack::Row {
            request: amounts(&dimensions, |id| class.requests.get(id)),
            count: lot.pods.len() as u64,
            bins: of_set[lot.offers].clone(),
            per_node_cap: if alone { 1 } else { topology.spread_per_host(lot.class) },
            exclusive,
        }
    };
    let rows = lots.lots.iter().map(row).collect();
    (pack::Problem { resources: dimensions.len(), bins, rows }, ties)
}

fn amounts(dimensions: &[ResourceId], amount: impl Fn(ResourceId) -> i64) -> pack::Amounts {
    let mut amounts = [0; MAX_RESOURCES];
    for (place, id) in amounts.iter_mut().zip(dimensions) {
        *place = amount(*id).max(0);
    }
    amounts
}

/// Resources that some pod requests. Those beyond the kernel's number of dimensions are checked in the cluster state.
fn dimensions(state: &State<'_>, lots: &[Lot]) -> Vec<ResourceId> {
    let mut asked: Vec<ResourceId> = lots
        .iter()
        .flat_map(|lot| state.snapshot.classes[lot.class.index()].requests.iter())
        .filter(|(_, amount)| *amount > 0)
        .map(|(id, _)| id)
        .collect();
    asked.sort_unstable();
    asked.dedup();
    asked.truncate(MAX_RESOURCES);
    asked
}
