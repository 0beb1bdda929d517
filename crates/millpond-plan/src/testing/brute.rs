//! The cheapest plan for a few pods, by trying everything.

use std::collections::{BTreeSet, HashSet};

use super::scheduler::Scheduler;
use super::simple::{Purse, offers, simple_plan, waiting_pods};
use crate::model::{ClassId, Labels, Snapshot};
use crate::plan::NewNode;
use crate::symbol::Symbol;

/// The most pods: with more there is too much to try.
const MAX_PODS: usize = 7;

/// What the cheapest plan comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cheapest {
    /// Pods without a place; never more than need be.
    pub unplaced: usize,
    /// Nano-dollars per hour of the new nodes.
    pub cost: u128,
}

/// The cheapest of the plans that place most pods, when nothing is taken away.
///
/// Every way to share the pods out among nodes, and everything that could be bought for each share, is tried; the
/// rules are asked about the end. `minValues` is not looked at.
///
/// # Panics
///
/// With more than a handful of pods.
pub fn cheapest(snapshot: &Snapshot) -> Cheapest {
    let mut pods: Vec<ClassId> = waiting_pods(snapshot).iter().map(|pod| snapshot.pods[pod.index()].class).collect();
    pods.sort_unstable();
    assert!(pods.len() <= MAX_PODS, "{} pods are too many to try everything", pods.len());
    let offers = different(snapshot, offers(snapshot));
    let suits = (0..1 << pods.len()).map(|share| suiting(snapshot, &offers, &pods, share)).collect();
    // A plan that is plainly made is a good start: whatever is dearer need not be tried.
    let plain = simple_plan(snapshot);
    let cost = plain.plan.new_nodes.iter().map(|node| u128::from(node.price)).sum();
    let best = Cheapest { unplaced: plain.report.unplaced.len(), cost };
    let mut search = Search { snapshot, offers, pods, suits, shares: Vec::new(), best };
    search.share_out(0, vec![0; snapshot.nodes.len()], 0, 0);
    search.best
}

/// Offers without those that differ from a cheaper one, of as many as wanted, only in labels that no pod asks for.
fn different(snapshot: &Snapshot, offers: Vec<NewNode>) -> Vec<NewNode> {
    let mut keys: BTreeSet<Symbol> = BTreeSet::new();
    for class in &snapshot.classes {
        let terms = class.node_terms.iter().chain(class.volume_terms.iter().flatten());
        keys.extend(terms.flat_map(|term| term.iter().map(|(key, _)| key)));
        keys.extend(class.spread.iter().map(|spread| spread.key));
        keys.extend(class.affinity.iter().chain(&class.anti_affinity).map(|term| term.key));
    }
    let mut seen = HashSet::new();
    let mut is_first = |offer: &NewNode| {
        let offering = &snapshot.types[offer.instance_type.index()].offerings[offer.offering as usize];
        let asked: Labels = offer.labels.iter().filter(|(key, _)| keys.contains(key)).collect();
        offering.left.is_some() || seen.insert((offer.pool, offer.instance_type, asked))
    };
    offers.into_iter().filter(|offer| is_first(offer)).collect()
}

/// The offers whose node alone could hold the pods of a share, cheapest first.
fn suiting(snapshot: &Snapshot, offers: &[NewNode], pods: &[ClassId], share: usize) -> Vec<usize> {
    let mut empty = snapshot.clone();
    empty.nodes.clear();
    empty.pods.clear();
    let suits = |offer: &usize| {
        let mut scheduler = Scheduler::new(&empty);
        let place = scheduler.add_node(&offers[*offer], None);
        (0..pods.len()).filter(|pod| share >> pod & 1 == 1).all(|pod| {
            let suits = scheduler.suits(pods[pod], place);
            scheduler.bind(pods[pod], place);
            suits
        })
    };
    (0..offers.len()).filter(suits).collect()
}

struct Search<'s> {
    snapshot: &'s Snapshot,
    offers: Vec<NewNode>,
    pods: Vec<ClassId>,
    /// Offers for each set of pods.
    suits: Vec<Vec<usize>>,
    /// Sets of pods that share a new node.
    shares: Vec<usize>,
    best: Cheapest,
}

impl Search<'_> {
    /// Decides about a pod and all after it: an existing node, a node of others, one of its own, or none. Equal pods
    /// are alike, so that each takes none of the choices before that of the one before it.
    fn share_out(&mut self, pod: usize, mut existing: Vec<usize>, unplaced: usize, first: usize) {
        if unplaced > self.best.unplaced {
            return;
        }
        let Some(&class) = self.pods.get(pod) else {
            self.buy(&existing, unplaced);
            return;
        };
        let first = if pod > 0 && self.pods[pod - 1] == class { first } else { 0 };
        let (nodes, shares) = (existing.len(), self.shares.len());
        for choice in first.min(nodes)..nodes {
            existing[choice] |= 1 << pod;
            self.share_out(pod + 1, existing.clone(), unplaced, choice);
            existing[choice] &= !(1 << pod);
        }
        for share in first.saturating_sub(nodes).min(shares)..shares {
            self.shares[share] |= 1 << pod;
            if !self.suits[self.shares[share]].is_empty() {
                self.share_out(pod + 1, existing.clone(), unplaced, nodes + share);
            }
            self.shares[share] &= !(1 << pod);
        }
        if !self.suits[1 << pod].is_empty() && first != usize::MAX {
            self.shares.push(1 << pod);
            self.share_out(pod + 1, existing.clone(), unplaced, nodes + shares);
            self.shares.pop();
        }
        self.share_out(pod + 1, existing, unplaced + 1, usize::MAX);
    }

    fn buy(&mut self, existing: &[usize], unplaced: usize) {
        let mut scheduler = Scheduler::after(self.snapshot, &Default::default());
        let mut bound = Vec::new();
        for (node, share) in existing.iter().enumerate() {
            for pod in (0..self.pods.len()).filter(|pod| share >> pod & 1 == 1) {
                if !scheduler.suits(self.pods[pod], node) {
                    return;
                }
                scheduler.bind(self.pods[pod], node);
                bound.push((self.pods[pod], node));
            }
        }
        self.buy_next(0, scheduler, Purse::new(self.snapshot), bound, Cheapest { unplaced, cost: 0 });
    }

    fn buy_next(
        &mut self,
        share: usize,
        scheduler: Scheduler<'_>,
        purse: Purse<'_>,
        bound: Vec<(ClassId, usize)>,
        so_far: Cheapest,
    ) {
        if so_far >= self.best {
            return;
        }
        let Some(&set) = self.shares.get(share) else {
            if is_good(scheduler, &bound) {
                self.best = so_far;
            }
            return;
        };
        for offer in self.suits[set].clone() {
            let node = self.offers[offer].clone();
            let now = Cheapest { cost: so_far.cost + u128::from(node.price), ..so_far };
            if now >= self.best {
                // The others are dearer.
                return;
            }
            let mut purse = purse.clone();
            if !purse.buy(&node) {
                continue;
            }
            let (mut scheduler, mut bound) = (scheduler.clone(), bound.clone());
            let place = scheduler.add_node(&node, None);
            for pod in (0..self.pods.len()).filter(|pod| set >> pod & 1 == 1) {
                scheduler.bind(self.pods[pod], place);
                bound.push((self.pods[pod], place));
            }
            if !is_apart(&mut scheduler, &bound) {
                // No later pod can repair that.
                continue;
            }
            self.buy_next(share + 1, scheduler, purse, bound, now);
        }
    }
}

/// Whether every pod may be where it is, the others being where they are.
fn is_good(mut scheduler: Scheduler<'_>, bound: &[(ClassId, usize)]) -> bool {
    bound.iter().all(|&(class, place)| {
        scheduler.unbind(class, place);
        let fits = scheduler.fits(class, place).is_ok();
        scheduler.bind(class, place);
        fits
    })
}

/// Whether no two pods are together that must not be.
fn is_apart(scheduler: &mut Scheduler<'_>, bound: &[(ClassId, usize)]) -> bool {
    bound.iter().all(|&(class, place)| {
        scheduler.unbind(class, place);
        let apart = scheduler.is_apart(class, place);
        scheduler.bind(class, place);
        apart
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Cluster;

    fn cost(cluster: Cluster) -> (usize, u128) {
        let Cheapest { unplaced, cost } = cheapest(&cluster.snapshot());
        (unplaced, cost / 1_000_000)
    }

    fn shop() -> Cluster {
        Cluster::new()
            .machine("small", "cpu=2", |machine| machine.zones("a b").price(10))
            .machine("large", "cpu=8", |machine| machine.zones("a").price(30))
            .pool("general", |pool| pool)
    }

    #[test]
    fn sharing_a_node_is_weighed_against_small_ones() {
        assert_eq!(cost(shop().pods(2, "web", "cpu=1", |pod| pod)), (0, 10));
        assert_eq!(cost(shop().pods(3, "web", "cpu=2", |pod| pod)), (0, 30));
        assert_eq!(cost(shop().pods(5, "web", "cpu=2", |pod| pod)), (0, 40));
        assert_eq!(cost(shop().pods(2, "web", "cpu=9", |pod| pod)), (2, 0));
        assert_eq!(cost(shop().pods(3, "web", "cpu=1", |pod| pod.one_per_host())), (0, 30));
    }

    #[test]
    fn rules_between_pods_cost() {
        assert_eq!(cost(shop().pods(4, "web", "cpu=2", |pod| pod)), (0, 30));
        assert_eq!(cost(shop().pods(4, "web", "cpu=2", |pod| pod.apart("zone", "app in web"))), (2, 20));
        // One zone at a time is enough for kube-scheduler: a domain without a node does not count.
        assert_eq!(cost(shop().pods(4, "web", "cpu=2", |pod| pod.spread("zone", 1))), (0, 30));
        let in_two =
            shop().pods(4, "web", "cpu=2", |pod| pod.spread_with("zone", 1, |spread| spread.min_domains = Some(2)));
        assert_eq!(cost(in_two), (0, 40));
    }

    #[test]
    fn room_that_is_there_is_free() {
        let cluster = shop()
            .node("one", "small", |node| node.pool("general"))
            .node("gone", "large", |node| node.pool("general").leaving())
            .pod("old", "cpu=1", |pod| pod.on("gone"))
            .pods(2, "web", "cpu=1", |pod| pod);
        assert_eq!(cost(cluster), (0, 10));
    }

    #[test]
    fn limits_leave_pods_out() {
        let cluster = Cluster::new()
            .machine("small", "cpu=2", |machine| machine.price(10))
            .pool("general", |pool| pool.limit("nodes=1"))
            .pods(3, "web", "cpu=1", |pod| pod);
        assert_eq!(cost(cluster), (1, 10));
    }
}
