//! The cheapest plan for a few pods, by trying everything.

use super::scheduler::Scheduler;
use super::simple::{Purse, offers, waiting_pods};
use crate::model::{ClassId, Snapshot};
use crate::plan::NewNode;

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
    let pods: Vec<ClassId> = waiting_pods(snapshot).iter().map(|pod| snapshot.pods[pod.index()].class).collect();
    assert!(pods.len() <= MAX_PODS, "{} pods are too many to try everything", pods.len());
    let offers = offers(snapshot);
    let suits = (0..1 << pods.len()).map(|share| suiting(snapshot, &offers, &pods, share)).collect();
    let best = Cheapest { unplaced: pods.len(), cost: 0 };
    let mut search = Search { snapshot, offers, pods, suits, shares: Vec::new(), best };
    let existing = vec![0; snapshot.nodes.len()];
    search.share_out(0, existing, 0);
    search.best
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
    /// Decides about a pod and all after it: an existing node, a node of others, one of its own, or none.
    fn share_out(&mut self, pod: usize, mut existing: Vec<usize>, unplaced: usize) {
        if unplaced > self.best.unplaced {
            return;
        }
        if pod == self.pods.len() {
            self.buy(&existing, unplaced);
            return;
        }
        for node in 0..existing.len() {
            existing[node] |= 1 << pod;
            self.share_out(pod + 1, existing.clone(), unplaced);
            existing[node] &= !(1 << pod);
        }
        for share in 0..self.shares.len() {
            self.shares[share] |= 1 << pod;
            if !self.suits[self.shares[share]].is_empty() {
                self.share_out(pod + 1, existing.clone(), unplaced);
            }
            self.shares[share] &= !(1 << pod);
        }
        if !self.suits[1 << pod].is_empty() {
            self.shares.push(1 << pod);
            self.share_out(pod + 1, existing.clone(), unplaced);
            self.shares.pop();
        }
        self.share_out(pod + 1, existing, unplaced + 1);
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
