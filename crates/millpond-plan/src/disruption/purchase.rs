//! What to buy for pods whose nodes go and for which there is no room elsewhere: all of them together, by the packing
//! kernel.
//!
//! Rules between pods about zones and the like are kept by keeping each pod where it is, as long as it may come again
//! there ([`domains`]): pods that such a rule concerns go to a node with these values of those labels.
//! Rules about the host are in the problem, or checked in the cluster state.
//!
//! Pods that move are created again, and the planner cannot tell kube-scheduler where each belongs. So what is bought
//! must hold them in whatever order they come ([`scheduling_order`](super::scheduling_order)): a packing at least cost, which fills
//! several nodes to the brim with what goes well together, would not come out, and more nodes would be bought for what
//! is left. What is bought instead is looked for in several ways, one of which is [`replacement_set`].

use std::collections::BTreeMap;

use super::domains;
use super::eligible::DisruptionBlocker;
use super::replacement_set;
use super::state::State;
use crate::cluster_state::NodeSlotId;
use crate::model::{ClassId, PodId, ResourceId, Resources};
use crate::pack::{self, BitSet, MAX_RESOURCES};
use crate::plan::Rule;

/// Of more nodes than these, one that is bought besides costs little. With eight, ten nodes that were filled to the
/// brim for 200 pods passed unseen.
const FEW: usize = 16;

/// Pods that are alike in what may be bought for them.
struct Lot {
    class: ClassId,
    pods: Vec<PodId>,
    /// Offers for them, among the sets of all lots.
    offers: usize,
}

/// Pods by what may be bought for them; lots mostly share their sets of offers.
struct Lots {
    lots: Vec<Lot>,
    sets: Vec<BitSet>,
}

/// What to buy for pods, as the kernel has it.
pub(super) struct Quote {
    lots: Vec<Lot>,
    /// For each bin of the kernel the offers that it stands for.
    ties: Vec<Vec<usize>>,
    solution: pack::Choice,
}

impl Quote {
    /// What it costs, before anything that the kernel does not know.
    pub(super) fn cost(&self) -> u128 {
        self.solution.cost
    }
}

/// How full nodes may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filled {
    /// To the brim.
    Whole,
    /// With one part of so many to spare.
    AllBut(i64),
}

impl Filled {
    fn of(self, amount: i64) -> i64 {
        match self {
            Self::Whole => amount,
            // Of a few things, such as devices, nothing is left.
            Self::AllBut(parts) => amount - amount / parts,
        }
    }
}

/// Asks what nodes for these pods cost; fails with a pod for which nothing can be had below `most`.
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

/// Buys nodes and puts the pods on them. Fails with a pod that found no place; the caller undoes what was done then.
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
    // A node on which none of its pods could be is bought for nothing.
    bought.retain(|spot| !state.give_back_unused(*spot));
    Ok(bought)
}

/// Buys the cheapest node that holds all these pods, below a price. If there is none, the caller undoes what was done.
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

/// Offers below a price on which each of these pods could be.
pub(super) fn common_offers(state: &mut State<'_>, on_sale: &BitSet, pods: &[PodId], most: u128) -> Option<BitSet> {
    let lots = lots(state, on_sale, pods, most).ok()?;
    let mut offers = lots.sets.first()?.clone();
    lots.sets.iter().for_each(|set| offers.intersect(set));
    Some(offers)
}

/// Whether the pods on nodes that were bought fit there however they come. Asked of few nodes only: of many, what does
/// not fit is a small part.
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

/// Nodes with the pods on them, to be bought again after that was undone.
pub(super) struct Purchase {
    nodes: Vec<(usize, Vec<PodId>)>,
    pub(super) cost: u128,
}

impl Purchase {
    /// What was bought just now.
    pub(super) fn new(state: &State<'_>, bought: &[NodeSlotId]) -> Self {
        let node = |spot: &NodeSlotId| Some((state.cluster.offer(*spot)?, state.on_spot(*spot).to_vec()));
        let nodes: Vec<(usize, Vec<PodId>)> = bought.iter().filter_map(node).collect();
        let cost = nodes.iter().map(|(offer, _)| u128::from(state.market.offer(*offer).price)).sum();
        Self { nodes, cost }
    }

    /// Buys the same again, on the same cluster.
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

/// A pod that the kernel's plan did not suit: on a node that was bought just now, or on the cheapest of its own.
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

/// Of equally good offers within all limits the one that the pods like best, then the one in the zone with the fewest
/// nodes of its pool.
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

/// A pod for which nothing can be had.
fn nothing_for(pod: PodId) -> DisruptionBlocker {
    DisruptionBlocker::NoPlace(pod, Rule::Resources)
}

/// Groups pods by class and by the domains that they come again in.
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

/// Those that hold one pod of the class, of the greatest rank that any has: what they cost comes
/// after that.
fn of_greatest_rank(state: &State<'_>, class: ClassId, offers: &BitSet) -> BitSet {
    let rank = |offer: usize| state.market.offer(offer).rank;
    let holding = holding(state, class, offers);
    let greatest = holding.iter().map(|&offer| rank(offer)).max();
    holding.into_iter().filter(|&offer| Some(rank(offer)) == greatest).collect()
}

/// The packing problem, and for each bin the offers that it stands for.
fn problem(state: &State<'_>, lots: &Lots, filled: Filled) -> (pack::Problem, Vec<Vec<usize>>) {
    let dimensions = dimensions(state, &lots.lots);
    let words = lots.sets.len().div_ceil(64);
    // Offers with the same room, price and sets are one bin.
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

/// Resources that some pod asks for; what the kernel cannot count is checked in the cluster state.
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
