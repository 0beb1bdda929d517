//! Builds the packing problem: equal parts of pod classes become rows, equal offers become bins.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;

use crate::market::Rank;
use crate::model::{ClassId, Nanos, ResourceId, Resources};
use crate::pack::{self, BitSet, MAX_RESOURCES};

use super::Solver;
use super::domains::{OfferSets, Part, SetId};
use super::offers;

/// A packing problem, and the pods and offers that its rows and bins represent.
#[derive(Debug)]
pub(super) struct Packing {
    pub(super) problem: pack::Problem,
    /// The resources that the kernel counts.
    pub(super) dimensions: Vec<ResourceId>,
    /// For each row its parts, in the order of planning.
    pub(super) members: Vec<Vec<(ClassId, u32)>>,
    /// For each row the offers that its parts may use.
    pub(super) sets: Vec<SetId>,
    /// For each bin its offers, equal in price, in the order of their names.
    pub(super) offers: Vec<Vec<usize>>,
}

/// The purpose of a packing problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To choose nodes.
    Plan,
    /// To prove a lower bound on their cost.
    Bound,
}

/// With more rows than this, it is checked whether fewer would be enough.
const MANY_ROWS: usize = 64;
/// The largest share of the rows that counts as clearly fewer.
const FEWER_ROWS: (usize, usize) = (7, 8);

/// Rows with the parts in them, in the order of planning.
type Rows = BTreeMap<RowKey, Vec<(ClassId, u32)>>;

/// Whether spreads over hosts distinguish rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spreads {
    Exact,
    Ignore,
}

/// The properties of a part that matter to packing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct RowKey {
    request: pack::Amounts,
    offers: SetId,
    cap: u32,
    /// Whom the cap counts: rows are merged only where it counts them together.
    counted: Vec<u32>,
    exclusive: Vec<u32>,
}

impl Solver<'_> {
    /// The packing problem of parts over some of the offers. Rows that ask for a resource beyond those that the
    /// kernel can count are left out; they are placed one by one.
    ///
    /// Rules that a plan keeps by choice, such as a spread over hosts that counts nodes still to come, are left out
    /// of the problem that a bound is proved for.
    pub(super) fn packing(&self, parts: &[Part], sets: &OfferSets, among: &BitSet, purpose: Purpose) -> Packing {
        let dimensions = self.dimensions(parts);
        let rows = self.rows(parts, &dimensions, purpose);
        let used: Vec<SetId> = {
            let mut used: Vec<SetId> = rows.keys().map(|row| row.offers).collect();
            used.sort_unstable();
            used.dedup();
            used
        };
        let bins = self.bins(&used, sets, among, &dimensions, purpose);
        let groups: BTreeMap<u32, u32> = {
            let named: std::collections::BTreeSet<u32> = rows.keys().flat_map(|row| row.exclusive.clone()).collect();
            named.into_iter().zip(0..).collect()
        };
        let mut packing = Packing {
            problem: pack::Problem { resources: dimensions.len(), bins: bins.bins, rows: Vec::new() },
            dimensions,
            members: Vec::new(),
            sets: Vec::new(),
            offers: bins.offers,
        };
        for (key, members) in rows {
            let set = used.binary_search(&key.offers).expect("every row's set is there");
            packing.problem.rows.push(pack::Row {
                request: key.request,
                count: members.iter().map(|(_, count)| u64::from(*count)).sum(),
                bins: bins.of_set[set].clone(),
                per_node_cap: key.cap,
                exclusive: key.exclusive.iter().map(|group| groups[group]).collect(),
            });
            packing.members.push(members);
            packing.sets.push(key.offers);
        }
        packing
    }

    /// The parts by row. Spreads over hosts tell rows apart, unless there are many rows and clearly fewer without them:
    /// many spreads that each concern a few pods are kept when nodes get their pods.
    fn rows(&self, parts: &[Part], dimensions: &[ResourceId], purpose: Purpose) -> Rows {
        let collect = |spreads: Spreads| {
            let mut rows = Rows::new();
            for part in parts.iter().filter(|part| part.count > 0) {
                let class = &self.snapshot.classes[part.class.index()];
                if let Some(request) = amounts(&class.requests, dimensions, true) {
                    let key = RowKey { request, offers: part.offers, ..self.host_rules(part.class, spreads) };
                    rows.entry(key).or_default().push((part.class, part.count));
                }
            }
            rows
        };
        if purpose == Purpose::Bound {
            return collect(Spreads::Ignore);
        }
        let exact = collect(Spreads::Exact);
        if exact.len() <= MANY_ROWS {
            return exact;
        }
        let merged = collect(Spreads::Ignore);
        if merged.len() * FEWER_ROWS.1 > exact.len() * FEWER_ROWS.0 {
            return exact;
        }
        let capped = |(key, members): (RowKey, Vec<(ClassId, u32)>)| {
            let cap = key.cap.min(self.fair_cap(&members));
            (RowKey { cap, ..key }, members)
        };
        merged.into_iter().map(capped).collect()
    }

    /// Pods of some classes on one host, on the average, when each of their spreads is over as few hosts as it allows.
    fn fair_cap(&self, members: &[(ClassId, u32)]) -> u32 {
        let topology = self.cluster.topology();
        let mut hosts: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
        let mut pods = 0;
        for &(class, count) in members {
            let spreads = topology.host_spreads(class);
            if spreads.is_empty() {
                return u32::MAX;
            }
            pods += u64::from(count);
            for spread in spreads {
                let (counted, most) = hosts.entry(spread).or_insert((0, u32::MAX));
                *counted += u64::from(count);
                *most = (*most).min(topology.spread_per_host(class));
            }
        }
        let least = hosts.values().map(|(counted, most)| counted.div_ceil(u64::from(*most))).max().unwrap_or(1);
        (pods / least.max(1)).clamp(1, u64::from(u32::MAX)) as u32
    }

    fn host_rules(&self, class: ClassId, spreads: Spreads) -> RowKey {
        let topology = self.cluster.topology();
        let mut cap = u32::MAX;
        let mut exclusive = topology.exclusive_groups(class);
        let mut counted = Vec::new();
        if !exclusive.is_empty() {
            cap = 1;
        }
        if !self.snapshot.classes[class.index()].host_ports.is_empty() {
            cap = 1;
            counted.push(class.0);
        }
        if spreads == Spreads::Exact {
            cap = cap.min(topology.spread_per_host(class));
            counted.extend(topology.host_spreads(class));
            exclusive.extend(topology.spread_groups(class));
            exclusive.sort_unstable();
        }
        RowKey { request: [0; MAX_RESOURCES], offers: SetId(0), cap, counted, exclusive }
    }

    /// Resources that some part asks for, the most asked for first if there are too many.
    fn dimensions(&self, parts: &[Part]) -> Vec<ResourceId> {
        let mut askers: BTreeMap<ResourceId, u64> = BTreeMap::new();
        for part in parts {
            for (resource, amount) in self.snapshot.classes[part.class.index()].requests.iter() {
                if amount > 0 {
                    *askers.entry(resource).or_default() += u64::from(part.count);
                }
            }
        }
        let mut dimensions: Vec<ResourceId> = askers.keys().copied().collect();
        if dimensions.len() > MAX_RESOURCES {
            dimensions.sort_by_key(|id| (std::cmp::Reverse(askers[id]), self.snapshot.resources.name(*id)));
            dimensions.truncate(MAX_RESOURCES);
        }
        dimensions.sort_by_key(|id| self.snapshot.resources.name(*id));
        dimensions
    }

    fn bins(
        &self,
        used: &[SetId],
        sets: &OfferSets,
        among: &BitSet,
        dimensions: &[ResourceId],
        purpose: Purpose,
    ) -> Bins {
        let words = used.len().div_ceil(64).max(1);
        let mut signatures = vec![0_u64; self.market.offers().len() * words];
        for (bit, set) in used.iter().enumerate() {
            let mut inside = sets.get(*set).clone();
            inside.intersect(among);
            for offer in inside.iter() {
                signatures[offer * words + bit / 64] |= 1 << (bit % 64);
            }
        }
        let mut groups: HashMap<Alike<'_>, (Nanos, Vec<usize>), FixedState> = HashMap::default();
        for (index, signature) in signatures.chunks_exact(words).enumerate() {
            if signature.iter().all(|word| *word == 0) {
                continue;
            }
            let offer = self.market.offer(index);
            // Each reserved offering has a stock of its own.
            let stocked = offer.left.map(|_| index as u32);
            let alike = (offer.capacity, stocked, offer.rank, signature);
            let (price, offers) = groups.entry(alike).or_insert((offer.price, Vec::new()));
            if offer.price < *price {
                (*price, *offers) = (offer.price, Vec::new());
            }
            if offer.price == *price {
                offers.push(index);
            }
        }
        let mut ordered: Vec<_> = groups.into_iter().collect();
        ordered.sort_unstable_by_key(|(_, (_, offers))| offers[0]);
        let mut bins = Bins { bins: Vec::new(), offers: Vec::new(), of_set: vec![BitSet::new(); used.len()] };
        for ((.., signature), (price, mut offers)) in ordered {
            offers::sort_by_name(&mut offers, self.market, self.snapshot);
            let first = offers[0];
            let Some(capacity) = amounts(&self.market.offer(first).free, dimensions, false) else { continue };
            for bit in (0..used.len()).filter(|bit| signature[bit / 64] >> (bit % 64) & 1 == 1) {
                bins.of_set[bit].insert(bins.bins.len());
            }
            let left = match purpose {
                Purpose::Plan => self.ledger.left_of(first),
                Purpose::Bound => self.market.offer(first).left,
            };
            let max_nodes = left.map(u64::from);
            bins.bins.push(pack::Bin { capacity, price, max_nodes });
            bins.offers.push(offers);
        }
        bins
    }
}

/// The properties that offers of one bin share: capacity, stock, weight of the pool, and the sets that they are in.
type Alike<'a> = (u32, Option<u32>, Rank, &'a [u64]);

struct Bins {
    bins: Vec<pack::Bin>,
    offers: Vec<Vec<usize>>,
    of_set: Vec<BitSet>,
}

/// The amounts of the resources that the kernel counts; `None` if there are others and `all` is set. If DaemonSet pods
/// request more than a node has, the amount is zero: that matters only to pods that request the resource.
pub(super) fn amounts(resources: &Resources, dimensions: &[ResourceId], all: bool) -> Option<pack::Amounts> {
    if all && resources.iter().any(|(id, amount)| amount > 0 && !dimensions.contains(&id)) {
        return None;
    }
    let mut amounts = [0; MAX_RESOURCES];
    for (amount, id) in amounts.iter_mut().zip(dimensions) {
        *amount = resources.get(*id).max(0);
    }
    Some(amounts)
}
