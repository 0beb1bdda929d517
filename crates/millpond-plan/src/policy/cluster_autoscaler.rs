//! Cluster Autoscaler's rules: one node group at a time, by least waste.
//!
//! Cluster Autoscaler knows groups of equal nodes, not types: every pool, type, zone and capacity type is one.
//!
//! 1. In each loop every group estimates how many of its nodes the waiting pods need, first fit by decreasing size
//!    (share of the node's cpu plus share of its memory). Pods that the group cannot take are left out, and what
//!    pods would merely like is ignored.
//! 2. Where weights of pools differ, only groups of the highest weight that can help count (the priority expander).
//! 3. The group that wastes least is scaled up: the share of cpu plus the share of memory, of all nodes that it
//!    adds, that the pods do not ask for. Equal waste, which the original leaves to chance, goes to the cheaper
//!    option, then by name of pool, type, zone and capacity type.
//! 4. The next loop starts from there, until no group can take a pod.

use std::collections::{BTreeMap, HashMap};

use super::plan_builder::PlanBuilder;
use crate::cluster_state::{ClusterState, NodeSlotId};
use crate::market::Market;
use crate::model::{CPU, ClassId, Limits, MEMORY, PodId, ResourceId, Resources, Snapshot};
use crate::plan::{Outcome, Settings};

/// Nodes that simulations may leave closed on their cluster before it is made anew.
const MAX_SCRAPS: usize = 20_000;
/// Fixed-point unit of shares.
const WHOLE: u128 = 1 << 40;

/// Plans by Cluster Autoscaler's rules.
pub fn plan(snapshot: &Snapshot, _: &Settings) -> Outcome {
    let market = Market::new(snapshot);
    let mut builder = PlanBuilder::new(snapshot, &market);
    let mut pods = builder.pending();
    pods.sort_by_key(|pod| std::cmp::Reverse(snapshot.class_of(*pod).priority));
    let mut waiting = builder.fill(pods);
    while !waiting.is_empty() {
        let before = waiting.len();
        waiting = scale_up(&mut builder, waiting);
        if waiting.len() == before {
            break;
        }
    }
    builder.finish()
}

/// Scales up the best group if any helps; returns the pods that are left.
fn scale_up(builder: &mut PlanBuilder<'_>, waiting: Vec<PodId>) -> Vec<PodId> {
    let mut pods: BTreeMap<ClassId, Vec<PodId>> = BTreeMap::new();
    for pod in &waiting {
        pods.entry(builder.class_of(*pod)).or_default().push(*pod);
    }
    let Some((offer, option)) = best_option(builder, &pods) else { return waiting };
    let mut left: HashMap<ClassId, std::vec::IntoIter<PodId>> =
        pods.into_iter().map(|(class, pods)| (class, pods.into_iter())).collect();
    let mut refused = Vec::new();
    for contents in option.nodes {
        for _ in 0..contents.count {
            let spot = builder.buy(offer);
            for &(class, count) in &contents.pods {
                let pods = left.get_mut(&class).into_iter().flatten().take(count as usize);
                for pod in pods {
                    if !builder.try_place(pod, spot) {
                        refused.push(pod);
                    }
                }
            }
        }
    }
    let mut left: Vec<PodId> = left.into_values().flatten().chain(refused).collect();
    left.sort_by_key(|pod| (std::cmp::Reverse(builder.snapshot.class_of(*pod).priority), *pod));
    builder.fill(left)
}

/// The result of simulating a group.
#[derive(Debug, Clone, Default)]
struct Estimate {
    nodes: Vec<Contents>,
}

/// Equal nodes with the pods that each holds.
#[derive(Debug, Clone)]
struct Contents {
    count: u64,
    free: Resources,
    pods: Vec<(ClassId, u32)>,
}

impl Estimate {
    fn count(&self) -> u64 {
        self.nodes.iter().map(|node| node.count).sum()
    }

    fn requested(&self, snapshot: &Snapshot, resource: ResourceId) -> i128 {
        let on = |node: &Contents| -> i128 {
            let requests = |(class, count): &(ClassId, u32)| {
                i128::from(snapshot.classes[class.index()].requests.get(resource)) * i128::from(*count)
            };
            node.pods.iter().map(requests).sum::<i128>() * i128::from(node.count)
        };
        self.nodes.iter().map(on).sum()
    }
}

fn best_option(builder: &mut PlanBuilder<'_>, pods: &BTreeMap<ClassId, Vec<PodId>>) -> Option<(usize, Estimate)> {
    let (snapshot, market) = (builder.snapshot, builder.market);
    let mut groups: Vec<usize> = (0..market.offers().len()).filter(|offer| builder.may_buy(*offer)).collect();
    let name = |offer: usize| {
        let of = market.offer(offer);
        let kind = &snapshot.types[of.instance_type.index()];
        let offering = &kind.offerings[of.offering as usize];
        let pool = &snapshot.pools[of.pool.index()].name;
        (pool, snapshot.text(kind.name), snapshot.text(offering.zone), offering.capacity_type.name(), offer)
    };
    groups.sort_by_key(|offer| name(*offer));
    let bound = pods.keys().any(|class| is_bound(&builder.cluster, *class));
    let mut scratch = builder.cluster.clone();
    // Without rules between pods, groups that look alike to the pods get the same estimate.
    let mut known: HashMap<(u32, u32, u64, Vec<ClassId>), Estimate> = HashMap::new();
    let mut best: Option<((std::cmp::Reverse<i32>, u128, u128), usize, Estimate)> = None;
    for offer in groups {
        let fitting = fitting(builder, pods, offer);
        if fitting.is_empty() {
            continue;
        }
        let of = market.offer(offer);
        let most = most_nodes(builder, offer);
        builder.work += fitting.len() as u64;
        let estimate = if bound {
            if scratch.len() > builder.cluster.len() + MAX_SCRAPS {
                scratch = builder.cluster.clone();
            }
            estimate_on_board(&mut scratch, offer, &fitting, most)
        } else {
            let classes = fitting.iter().map(|(class, _)| *class).collect();
            let key = (of.pool.0, of.instance_type.0, most, classes);
            known.entry(key).or_insert_with(|| estimate(snapshot, &of.free, &fitting, most)).clone()
        };
        if estimate.nodes.is_empty() {
            continue;
        }
        let weight = snapshot.pools[of.pool.index()].weight;
        let cost = u128::from(of.price) * u128::from(estimate.count());
        let score = (std::cmp::Reverse(weight), waste(snapshot, of.instance_type, &estimate), cost);
        if best.as_ref().is_none_or(|(known, _, _)| score < *known) {
            best = Some((score, offer, estimate));
        }
    }
    best.map(|(_, offer, estimate)| (offer, estimate))
}

fn is_bound(cluster: &ClusterState<'_>, class: ClassId) -> bool {
    !cluster.topology().is_free(class) || !cluster.snapshot().classes[class.index()].host_ports.is_empty()
}

/// Classes that one node of a group could take, by decreasing size, with the number of pending pods.
fn fitting(builder: &mut PlanBuilder<'_>, pods: &BTreeMap<ClassId, Vec<PodId>>, offer: usize) -> Vec<(ClassId, u32)> {
    let snapshot = builder.snapshot;
    let free = &builder.market.offer(offer).free;
    let mut fitting: Vec<(u128, PodId, ClassId, u32)> = Vec::new();
    for (class, pods) in pods {
        let requests = &snapshot.classes[class.index()].requests;
        if free.first_lacking(requests).is_none() && builder.cluster.suiting_offers(*class).contains(offer) {
            let size = share(requests.get(CPU), free.get(CPU)) + share(requests.get(MEMORY), free.get(MEMORY));
            fitting.push((size, pods[0], *class, pods.len() as u32));
        }
    }
    fitting.sort_by_key(|(size, first, _, _)| (std::cmp::Reverse(*size), *first));
    fitting.into_iter().map(|(_, _, class, count)| (class, count)).collect()
}

fn share(part: i64, whole: i64) -> u128 {
    let (part, whole) = (part.max(0).unsigned_abs(), whole.max(0).unsigned_abs());
    if whole == 0 { 0 } else { u128::from(part) * WHOLE / u128::from(whole) }
}

/// How many more nodes limits and stock allow a group.
fn most_nodes(builder: &PlanBuilder<'_>, offer: usize) -> u64 {
    let of = builder.market.offer(offer);
    let all = builder.snapshot.pools.len();
    let limits = [
        (&builder.snapshot.pools[of.pool.index()].limits, &builder.usage[of.pool.index()]),
        (&builder.snapshot.limits, &builder.usage[all]),
    ];
    let capacity = &builder.snapshot.types[of.instance_type.index()].capacity;
    let mut most = builder.left_of(offer).map_or(u64::MAX, u64::from);
    for (Limits { resources, nodes, price }, usage) in limits {
        for &(resource, limit) in resources {
            let left = limit.saturating_sub(usage.capacity.get(resource)).max(0).unsigned_abs();
            most = most.min(left.checked_div(capacity.get(resource).max(0).unsigned_abs()).unwrap_or(u64::MAX));
        }
        most = most.min(nodes.map_or(u64::MAX, |limit| limit.saturating_sub(usage.nodes)));
        if let Some(limit) = price {
            let left = u128::from(*limit).saturating_sub(usage.price);
            most = most.min(left.checked_div(u128::from(of.price)).map_or(u64::MAX, |n| n.min(1 << 40) as u64));
        }
    }
    most
}

/// First fit decreasing by arithmetic: equal nodes are kept as one entry with a count.
fn estimate(snapshot: &Snapshot, free: &Resources, fitting: &[(ClassId, u32)], most: u64) -> Estimate {
    let mut nodes: Vec<Contents> = Vec::new();
    let mut count = 0;
    for &(class, pods) in fitting {
        let requests = &snapshot.classes[class.index()].requests;
        let mut left = u64::from(pods);
        let mut next = Vec::with_capacity(nodes.len() + 1);
        for node in nodes {
            left = fill(&mut next, node, class, requests, left);
        }
        nodes = next;
        let each = free.times(requests).unwrap_or(u64::MAX).min(u64::from(u32::MAX)).max(1);
        let wanted = left.div_ceil(each).min(most - count);
        if wanted > 0 {
            count += wanted;
            let fresh = Contents { count: wanted, free: free.clone(), pods: Vec::new() };
            fill(&mut nodes, fresh, class, requests, left);
        }
    }
    Estimate { nodes }
}

/// Puts pods on equal nodes, the first ones first: some get as many as fit, one the remainder, the others none.
fn fill(nodes: &mut Vec<Contents>, node: Contents, class: ClassId, requests: &Resources, left: u64) -> u64 {
    let each = node.free.times(requests).unwrap_or(u64::MAX).min(left).min(u64::from(u32::MAX));
    if each == 0 {
        nodes.push(node);
        return left;
    }
    let full = (left / each).min(node.count);
    let rest = if full < node.count { left - full * each } else { 0 };
    let mut push = |count: u64, pods: u64| {
        if count == 0 {
            return;
        }
        let mut part = Contents { count, ..node.clone() };
        if pods > 0 {
            part.free.add_times(requests, -(pods as i64));
            part.pods.push((class, pods as u32));
        }
        nodes.push(part);
    };
    push(full, each);
    push(u64::from(rest > 0), rest);
    push(node.count - full - u64::from(rest > 0), 0);
    left - full * each - rest
}

/// The same with all rules between pods. The cluster is left as it was but for closed nodes.
fn estimate_on_board(cluster: &mut ClusterState<'_>, offer: usize, fitting: &[(ClassId, u32)], most: u64) -> Estimate {
    let mut spots: Vec<(NodeSlotId, Vec<(ClassId, u32)>)> = Vec::new();
    for &(class, pods) in fitting {
        let mut from = 0;
        for _ in 0..pods {
            let takes = (from..spots.len()).find(|&index| cluster.check(class, spots[index].0).is_ok());
            let index = match takes {
                Some(index) => index,
                None if (spots.len() as u64) < most => match open(cluster, offer, class) {
                    Some(spot) => {
                        spots.push((spot, Vec::new()));
                        spots.len() - 1
                    }
                    None => break,
                },
                None => break,
            };
            // Equal pods: a node that refused one is not asked for the next, unless a spread may have moved on.
            from = if cluster.topology().keys_of(class).next().is_none() { index } else { 0 };
            cluster.place(class, spots[index].0, 1);
            match spots[index].1.last_mut() {
                Some((last, count)) if *last == class => *count += 1,
                _ => spots[index].1.push((class, 1)),
            }
        }
    }
    for (spot, pods) in &spots {
        pods.iter().for_each(|(class, count)| cluster.remove(*class, *spot, *count));
        cluster.close(*spot);
    }
    let node = |(_, pods): (NodeSlotId, Vec<(ClassId, u32)>)| Contents { count: 1, free: Resources::new(), pods };
    Estimate { nodes: spots.into_iter().map(node).collect() }
}

/// Opens a node if it can take a pod of the class.
fn open(cluster: &mut ClusterState<'_>, offer: usize, class: ClassId) -> Option<NodeSlotId> {
    let spot = cluster.open(offer);
    if cluster.check(class, spot).is_ok() {
        return Some(spot);
    }
    cluster.close(spot);
    None
}

/// The share of cpu plus the share of memory of the new nodes that their pods do not ask for.
fn waste(snapshot: &Snapshot, of: crate::model::TypeId, estimate: &Estimate) -> u128 {
    let capacity = &snapshot.types[of.index()].capacity;
    let wasted = |resource| {
        let total = i128::from(capacity.get(resource)) * i128::from(estimate.count());
        let idle = (total - estimate.requested(snapshot, resource)).max(0).unsigned_abs();
        if total <= 0 { 0 } else { idle.saturating_mul(WHOLE) / total.unsigned_abs() }
    };
    wasted(CPU) + wasted(MEMORY)
}
