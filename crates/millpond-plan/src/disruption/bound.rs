//! A lower bound of the cost of every plan that may remove nodes.
//!
//! Nodes that may not be removed stay in every plan: they cost their price, and their free capacity is free. Every
//! other node is for sale once, at its own price, beside the offers of the market. The pods on those nodes, and the
//! pending pods that the plan places, must be on one or the other. That is a packing problem with fewer rules than a
//! plan has to keep, so what the kernel proves about it holds for every plan.
//!
//! Running pods need not meet rules that they would have to meet if they came now. So a node holds the pods that are on
//! it whatever its size, labels and taints; and anti-affinity on the hostname counts only if no two of the pods that it
//! separates share a node already.
//!
//! Where budgets let only some of a pool's nodes be removed, the nodes that must stay are rows of their own
//! ([`keep_nodes`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::eligible::DisruptionBlocker;
use super::state::State;
use crate::cluster_state::NodeSlotId;
use crate::model::{ClassId, NodeId, NodeState, PoolId, ResourceId, Resources, Snapshot};
use crate::pack::{self, Amounts, BitSet, Certificate, MAX_RESOURCES, NodePrices, NodeProof, Problem, Proof};
use crate::plan::{BoundProof, Plan};

/// Shares of its value that a pod may keep when nodes that must stay take the rest, as numerator and denominator.
const SHARES: [(u64, u64); 6] = [(1, 1), (3, 4), (1, 2), (1, 4), (1, 8), (0, 1)];

/// Proves the bound at the start of a consolidation, while the cluster state holds only the snapshot and the plan for
/// pending pods. `None` means that no node may be removed.
pub(super) fn prove(state: &mut State<'_>, plan: &Plan, budget: pack::Budget) -> Option<BoundProof> {
    let nodes = loose_nodes(state);
    if nodes.is_empty() {
        return None;
    }
    let rows = Rows::new(state, plan, &nodes);
    let mut bins = Bins::default();
    bins.add_offers(state, &rows);
    bins.add_loose(state, &rows, &nodes);
    bins.add_free_room(state, &rows, &nodes);
    let (problem, pools) = rows.problem(bins);
    let (problem, certificate) = keep_nodes(state, problem, &pools, &nodes, budget);
    Some(BoundProof { problem, certificate, nodes })
}

/// The least cost of any plan that the proof allows, in nano-dollars per hour.
pub(super) fn value(snapshot: &Snapshot, proof: &BoundProof) -> u128 {
    let loose: BTreeSet<NodeId> = proof.nodes.iter().copied().collect();
    let stays = |(index, node): &(usize, &crate::model::Node)| {
        node.state != NodeState::Leaving && !loose.contains(&NodeId::from(*index))
    };
    let staying = snapshot.nodes.iter().enumerate().filter(stays);
    let staying: u128 = staying.map(|(_, node)| u128::from(node.price.unwrap_or(0))).sum();
    staying + pack::verify(&proof.problem, &proof.certificate).unwrap_or(0)
}

/// Nodes that may be removed for some reason. A node that is only kept by its pool's minimum number of nodes counts as
/// removable, because the plan may buy others for the pool.
fn loose_nodes(state: &State<'_>) -> Vec<NodeId> {
    let may_go = |node: &NodeId| {
        matches!(state.accounts.reason(state.snapshot, *node), Ok(_) | Err(DisruptionBlocker::LeastNodes(_)))
    };
    (0..state.snapshot.nodes.len()).map(NodeId::from).filter(may_go).collect()
}

/// The properties of a class that matter to packing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RowKey {
    /// Index into [`Rows::wants`].
    want: usize,
    request: Amounts,
    exclusive: Vec<u32>,
    /// The class itself if a node may hold only one of its pods.
    alone: Option<ClassId>,
}

/// Pods grouped by [`RowKey`].
struct Rows {
    dimensions: Vec<ResourceId>,
    rows: Vec<(RowKey, u64)>,
    /// One class for each distinct set of suitable nodes.
    wants: Vec<ClassId>,
    of_class: HashMap<ClassId, usize>,
}

impl Rows {
    fn new(state: &State<'_>, plan: &Plan, nodes: &[NodeId]) -> Self {
        let mut counts: BTreeMap<ClassId, u64> = BTreeMap::new();
        let there = nodes.iter().flat_map(|node| state.contents(*node));
        for pod in there.chain(plan.placements.iter().map(|(pod, _)| pod)) {
            *counts.entry(state.class(*pod)).or_default() += 1;
        }
        let crowds = Crowds::new(state, nodes);
        let dimensions = dimensions(state, &counts);
        let mut known: HashMap<u32, usize> = HashMap::new();
        let mut wants = Vec::new();
        let mut keyed: BTreeMap<RowKey, (u64, Vec<ClassId>)> = BTreeMap::new();
        for (&class, &count) in &counts {
            let want = *known.entry(state.cluster.static_id(class)).or_insert_with(|| {
                wants.push(class);
                wants.len() - 1
            });
            let request = amounts(&dimensions, &state.snapshot.classes[class.index()].requests);
            let key =
                RowKey { want, request, exclusive: crowds.exclusive(state, class), alone: crowds.alone(state, class) };
            let (total, classes) = keyed.entry(key).or_default();
            *total += count;
            classes.push(class);
        }
        let mut this = Self { dimensions, rows: Vec::with_capacity(keyed.len()), wants, of_class: HashMap::new() };
        for (key, (count, classes)) in keyed {
            this.of_class.extend(classes.into_iter().map(|class| (class, this.rows.len())));
            this.rows.push((key, count));
        }
        this
    }

    /// The packing problem, and for each pool the bins that are its removable nodes.
    fn problem(&self, bins: Bins) -> (Problem, BTreeMap<PoolId, BitSet>) {
        let mut of_row = vec![BitSet::new(); self.rows.len()];
        let mut pools: BTreeMap<PoolId, BitSet> = BTreeMap::new();
        let mut made = Vec::with_capacity(bins.bins.len());
        for (key, (price, stock)) in bins.bins {
            for (row, (of, _)) in self.rows.iter().enumerate() {
                if key.wants.contains(of.want) || key.present.contains(row) {
                    of_row[row].insert(made.len());
                }
            }
            if let Some(pool) = key.pool {
                pools.entry(pool).or_default().insert(made.len());
            }
            made.push(pack::Bin { capacity: key.capacity, price, max_nodes: stock });
        }
        let rows = self.rows.iter().zip(of_row).map(|((key, count), bins)| pack::Row {
            request: key.request,
            count: *count,
            bins,
            per_node_cap: if key.alone.is_some() || !key.exclusive.is_empty() { 1 } else { u32::MAX },
            exclusive: key.exclusive.clone(),
        });
        (Problem { resources: self.dimensions.len(), rows: rows.collect(), bins: made }, pools)
    }
}

/// Anti-affinity on the hostname that running pods violate already.
struct Crowds {
    groups: BTreeSet<u32>,
    classes: BTreeSet<ClassId>,
}

impl Crowds {
    fn new(state: &State<'_>, nodes: &[NodeId]) -> Self {
        let mut this = Self { groups: BTreeSet::new(), classes: BTreeSet::new() };
        for &node in nodes {
            let mut classes = BTreeSet::new();
            let mut groups = BTreeSet::new();
            for class in state.contents(node).iter().map(|pod| state.class(*pod)) {
                if !classes.insert(class) {
                    this.classes.insert(class);
                }
                let twice = state.cluster.topology().exclusive_groups(class).into_iter().filter(|g| !groups.insert(*g));
                this.groups.extend(twice);
            }
        }
        this
    }

    fn exclusive(&self, state: &State<'_>, class: ClassId) -> Vec<u32> {
        let mut groups = state.cluster.topology().exclusive_groups(class);
        groups.retain(|group| !self.groups.contains(group));
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    fn alone(&self, state: &State<'_>, class: ClassId) -> Option<ClassId> {
        let ports = &state.snapshot.classes[class.index()].host_ports;
        (!ports.is_empty() && !self.classes.contains(&class)).then_some(class)
    }
}

/// The properties that nodes of one bin share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct BinKey {
    capacity: Amounts,
    /// Indexes into [`Rows::wants`]: the sets of suitable nodes that this bin belongs to.
    wants: BitSet,
    /// Rows with pods on the node already, whether or not the node would suit them now.
    present: BitSet,
    /// The pool of a removable node.
    pool: Option<PoolId>,
    /// The price, for existing nodes: those with different prices need different bins.
    price: Option<u64>,
    /// The offer, if its stock is limited.
    stocked: Option<usize>,
}

/// Bins with their price in nano-dollars per hour, and how many nodes of each can be had.
#[derive(Default)]
struct Bins {
    bins: BTreeMap<BinKey, (u64, Option<u64>)>,
}

impl Bins {
    fn add_offers(&mut self, state: &mut State<'_>, rows: &Rows) {
        let mut on_sale = state.market.open(state.snapshot);
        on_sale.intersect(state.market.available());
        let mut suited: BTreeMap<usize, BitSet> = BTreeMap::new();
        for (want, &class) in rows.wants.iter().enumerate() {
            let mut offers = state.cluster.suiting_offers(class).clone();
            offers.intersect(&on_sale);
            offers.iter().for_each(|offer| suited.entry(offer).or_default().insert(want));
        }
        for (offer, wants) in suited {
            let of = state.market.offer(offer);
            let key = BinKey {
                capacity: amounts(&rows.dimensions, &of.free),
                wants,
                present: BitSet::new(),
                pool: None,
                price: None,
                stocked: of.left.map(|_| offer),
            };
            let (price, _) = self.bins.entry(key).or_insert((of.price, of.left.map(u64::from)));
            *price = (*price).min(of.price);
        }
    }

    /// Adds the removable nodes, each with what its pods use and what is free on it.
    fn add_loose(&mut self, state: &mut State<'_>, rows: &Rows, nodes: &[NodeId]) {
        for &node in nodes {
            let spot = NodeSlotId(node.0);
            let wants = suited(state, rows, spot);
            let mut whole: Resources = state.cluster.free(spot).iter().filter(|(_, amount)| *amount > 0).collect();
            let mut present = BitSet::new();
            for class in state.contents(node).iter().map(|pod| state.class(*pod)) {
                whole.add(&state.snapshot.classes[class.index()].requests);
                let row = rows.of_class[&class];
                if !wants.contains(rows.rows[row].0.want) {
                    present.insert(row);
                }
            }
            let of = &state.snapshot.nodes[node.index()];
            let capacity = amounts(&rows.dimensions, &whole);
            self.add_node(BinKey {
                capacity,
                wants,
                present,
                pool: of.pool,
                price: of.price.or(Some(0)),
                stocked: None,
            });
        }
    }

    /// Adds the free capacity of nodes that stay.
    fn add_free_room(&mut self, state: &mut State<'_>, rows: &Rows, nodes: &[NodeId]) {
        let loose: BTreeSet<NodeId> = nodes.iter().copied().collect();
        for node in (0..state.snapshot.nodes.len()).map(NodeId::from).filter(|node| !loose.contains(node)) {
            let spot = NodeSlotId(node.0);
            let wants = suited(state, rows, spot);
            let capacity = amounts(&rows.dimensions, state.cluster.free(spot));
            let holds = |(key, _): &(RowKey, u64)| {
                wants.contains(key.want) && key.request.iter().zip(&capacity).all(|(asked, free)| asked <= free)
            };
            if rows.rows.iter().any(holds) {
                let present = BitSet::new();
                self.add_node(BinKey { capacity, wants, present, pool: None, price: Some(0), stocked: None });
            }
        }
    }

    fn add_node(&mut self, key: BinKey) {
        let price = key.price.unwrap_or(0);
        let (_, stock) = self.bins.entry(key).or_insert((price, Some(0)));
        *stock = stock.map(|nodes| nodes + 1);
    }
}

/// Indexes into [`Rows::wants`] for which the node is suitable as it is.
fn suited(state: &mut State<'_>, rows: &Rows, spot: NodeSlotId) -> BitSet {
    let wants = rows.wants.iter().enumerate();
    wants.filter(|(_, class)| state.cluster.suits(**class, spot)).map(|(want, _)| want).collect()
}

/// Resources that some pod requests; the most requested ones if there are more than the kernel counts. Leaving a
/// resource out only lets more pods fit, so the bound stays valid.
fn dimensions(state: &State<'_>, counts: &BTreeMap<ClassId, u64>) -> Vec<ResourceId> {
    let mut askers: BTreeMap<ResourceId, u64> = BTreeMap::new();
    for (class, count) in counts {
        for (resource, amount) in state.snapshot.classes[class.index()].requests.iter() {
            *askers.entry(resource).or_default() += if amount > 0 { *count } else { 0 };
        }
    }
    askers.retain(|_, count| *count > 0);
    let mut dimensions: Vec<ResourceId> = askers.keys().copied().collect();
    dimensions.sort_by_key(|id| (std::cmp::Reverse(askers[id]), state.snapshot.resources.name(*id)));
    dimensions.truncate(MAX_RESOURCES);
    dimensions.sort_by_key(|id| state.snapshot.resources.name(*id));
    dimensions
}

fn amounts(dimensions: &[ResourceId], resources: &Resources) -> Amounts {
    let mut amounts = [0; MAX_RESOURCES];
    for (amount, id) in amounts.iter_mut().zip(dimensions) {
        *amount = resources.get(*id).max(0);
    }
    amounts
}

/// Proves the bound with the nodes that must stay because budgets protect them: each such pool gets a row with the
/// minimum number of nodes that stay, one for each of its nodes. What those rows are worth has to be taken from the
/// value of the pods, so several shares are tried and the best bound is kept.
fn keep_nodes(
    state: &State<'_>,
    plain: Problem,
    pools: &BTreeMap<PoolId, BitSet>,
    nodes: &[NodeId],
    budget: pack::Budget,
) -> (Problem, Certificate) {
    let counts: Vec<u64> = plain.rows.iter().map(|row| row.count).collect();
    let kept: Vec<Kept> = pools.iter().filter_map(|(pool, bins)| Kept::new(state, *pool, bins, nodes)).collect();
    if kept.is_empty() {
        let certificate = pack::bound(&plain, counts, budget).certificate;
        return (plain, certificate);
    }
    let mut whole = plain.clone();
    whole.rows.extend(kept.iter().map(Kept::row));
    let all = whole.rows.iter().map(|row| row.count).collect();
    let exhaustive = Certificate { counts: all, proof: Proof::Exhaustive };
    if pack::verify(&whole, &exhaustive).is_ok() {
        return (whole, exhaustive);
    }
    let of_pods = pack::bound(&plain, counts, budget);
    let tried = SHARES.iter().filter_map(|share| shared(&whole, &of_pods.certificate, &kept, *share));
    let proved = tried.filter_map(|certificate| Some((pack::verify(&whole, &certificate).ok()?, certificate)));
    match proved.max_by_key(|(value, _)| *value) {
        Some((value, certificate)) if value > of_pods.value => (whole, certificate),
        _ => (plain, of_pods.certificate),
    }
}

/// The minimum number of a pool's nodes that stay.
struct Kept {
    least: u64,
    bins: BitSet,
    /// The price of the node at position `least` when the pool's nodes are sorted by price, in nano-dollars per hour.
    price: u64,
}

impl Kept {
    fn new(state: &State<'_>, pool: PoolId, bins: &BitSet, nodes: &[NodeId]) -> Option<Self> {
        let budgets = &state.accounts.budgets;
        let allowed = super::budget::REASONS.map(|reason| budgets.left(pool, reason));
        let most = allowed.into_iter().collect::<Option<Vec<u64>>>()?.into_iter().max()?;
        let mine = nodes.iter().map(|node| &state.snapshot.nodes[node.index()]).filter(|node| node.pool == Some(pool));
        let mut prices: Vec<u64> = mine.map(|node| node.price.unwrap_or(0)).collect();
        prices.sort_unstable();
        let least = (prices.len() as u64).checked_sub(most).filter(|least| *least > 0)?;
        Some(Self { least, bins: bins.clone(), price: prices[least as usize - 1] })
    }

    fn row(&self) -> pack::Row {
        pack::Row {
            request: [0; MAX_RESOURCES],
            count: self.least,
            bins: self.bins.clone(),
            per_node_cap: 1,
            exclusive: Vec::new(),
        }
    }
}

/// A certificate in which pods keep a share of their value and the rows of nodes that stay get the remainder of the
/// price.
fn shared(whole: &Problem, of_pods: &Certificate, kept: &[Kept], (share, of): (u64, u64)) -> Option<Certificate> {
    let none = Proof::Prices { scale: 1, values: Vec::new(), prices: Vec::new(), bins: Vec::new() };
    let proof = if share == 0 { &none } else { &of_pods.proof };
    let Proof::Prices { scale, values, prices, bins } = proof else { return None };
    let times = |amount: &u64| amount.checked_mul(share);
    let mut values = values.iter().map(times).collect::<Option<Vec<u64>>>()?;
    values.resize(of_pods.counts.len(), 0);
    let scaled = |of_node: &NodePrices| {
        let mut prices = of_node.clone();
        for price in prices.resources.iter_mut().chain(prices.groups.iter_mut().map(|(_, price)| price)) {
            *price = price.checked_mul(share)?;
        }
        Some(prices)
    };
    let mut prices = prices.iter().map(scaled).collect::<Option<Vec<NodePrices>>>()?;
    let mut bins = bins.clone();
    bins.resize(whole.bins.len(), NodeProof::Nothing);
    for stays in kept {
        values.push(stays.price.checked_mul(*scale)?.checked_mul(of - share)?);
        // A node without pods may be one of those that stay, so its bin needs prices too.
        for bin in stays.bins.iter().filter(|&bin| bins[bin] == NodeProof::Nothing).collect::<Vec<_>>() {
            bins[bin] = NodeProof::Prices(prices.len() as u32);
        }
    }
    prices.push(NodePrices::default());
    let mut counts = of_pods.counts.clone();
    counts.extend(kept.iter().map(|stays| stays.least));
    Some(Certificate { counts, proof: Proof::Prices { scale: scale.checked_mul(of)?, values, prices, bins } })
}
