//! Offers to fall back on when the offer of a planned node is out of stock.
//!
//! A fallback belongs to the same pool, admits all pods of the node and has room for them, and has the same value as the
//! planned offer in every label that a spread or affinity of any pod uses. Rules between pods therefore hold on it too.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::market::Market;
use crate::model::{ClassId, Resources, Snapshot};
use crate::pack::BitSet;
use crate::plan::{NewNode, Plan, Target};
use crate::symbol::Symbol;

/// Classes of pods on a node, with how many of each.
pub type Contents = Vec<(ClassId, u32)>;

/// Finds alternatives to the nodes of plans.
#[derive(Debug)]
pub struct FallbackOffers<'s> {
    snapshot: &'s Snapshot,
    market: &'s Market,
    /// Labels that rules between pods look at, but for the hostname.
    keys: Vec<Symbol>,
    suiting: HashMap<ClassId, BitSet>,
    known: HashMap<(NewNode, Contents), Vec<u32>>,
}

impl<'s> FallbackOffers<'s> {
    /// For plans of this snapshot.
    pub fn new(snapshot: &'s Snapshot, market: &'s Market) -> Self {
        let mut keys = BTreeSet::new();
        for class in &snapshot.classes {
            keys.extend(class.spread.iter().map(|spread| spread.key));
            keys.extend(class.affinity.iter().chain(&class.anti_affinity).map(|term| term.key));
        }
        keys.remove(&snapshot.names.hostname);
        let keys = keys.into_iter().collect();
        Self { snapshot, market, keys, suiting: HashMap::new(), known: HashMap::new() }
    }

    /// Offers that would do for a planned node with these pods: itself first, then the cheapest.
    pub fn of(&mut self, node: &NewNode, contents: &Contents, most: usize) -> Vec<u32> {
        let key = (node.clone(), contents.clone());
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let found = self.find(node, contents, most);
        self.known.insert(key, found.clone());
        found
    }

    fn find(&mut self, node: &NewNode, contents: &Contents, most: usize) -> Vec<u32> {
        let mut allowed = self.market.of_pool(node.pool).clone();
        let mut total = Resources::new();
        for &(class, count) in contents {
            let of = &self.snapshot.classes[class.index()];
            total.add_times(&of.requests, i64::from(count));
            let (market, snapshot) = (self.market, self.snapshot);
            allowed.intersect(self.suiting.entry(class).or_insert_with(|| market.suiting(of, snapshot)));
        }
        let is_it = |index: u32| {
            let offer = self.market.offer(index as usize);
            offer.instance_type == node.instance_type && offer.offering == node.offering && offer.labels == node.labels
        };
        // A pod that requires one of several combinations must not get a mixture of them: a NodeClaim lists zones, types
        // and capacity types independently.
        let combined = contents.iter().any(|(class, _)| self.snapshot.classes[class.index()].node_terms.len() > 1);
        let names = self.snapshot.names;
        let fixed: &[Symbol] = if combined { &[names.zone, names.capacity_type] } else { &[] };
        let agrees = |index: u32| {
            let labels = &self.market.offer(index as usize).labels;
            self.keys.iter().chain(fixed).all(|&key| labels.get(key) == node.labels.get(key))
        };
        let fits = |index: u32| self.market.offer(index as usize).free.first_lacking(&total).is_none();
        let would_do = |&index: &u32| allowed.contains(index as usize) && !is_it(index) && fits(index) && agrees(index);
        let by_price = || self.market.by_price(self.snapshot).iter().copied();
        let planned = by_price().find(|&index| allowed.contains(index as usize) && is_it(index));
        let others = by_price().filter(would_do);
        planned.into_iter().chain(others).take(most).collect()
    }
}

/// Classes of the pods on each of a plan's new nodes.
pub fn contents(snapshot: &Snapshot, plan: &Plan) -> Vec<Contents> {
    let mut counts: Vec<BTreeMap<ClassId, u32>> = vec![BTreeMap::new(); plan.new_nodes.len()];
    for (pod, target) in &plan.placements {
        if let Target::New(node) = target {
            *counts[*node as usize].entry(snapshot.pods[pod.index()].class).or_default() += 1;
        }
    }
    counts.into_iter().map(|counts| counts.into_iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Settings;
    use crate::testing::Cluster;

    fn shown(cluster: Cluster) -> Vec<String> {
        let snapshot = cluster.snapshot();
        let market = Market::new(&snapshot);
        let outcome = crate::plan_on(&snapshot, &market, &Settings::default());
        let contents = contents(&snapshot, &outcome.plan);
        let mut alternatives = FallbackOffers::new(&snapshot, &market);
        let name = |index: u32| {
            let offer = market.offer(index as usize);
            let of = &snapshot.types[offer.instance_type.index()];
            let offering = &of.offerings[offer.offering as usize];
            format!("{}/{}", snapshot.text(of.name), snapshot.text(offering.zone))
        };
        let nodes = outcome.plan.new_nodes.iter().zip(&contents);
        nodes
            .map(|(node, contents)| {
                alternatives.of(node, contents, 3).into_iter().map(name).collect::<Vec<_>>().join(" ")
            })
            .collect()
    }

    fn machines() -> Cluster {
        Cluster::new()
            .machine("tiny", "cpu=1 memory=2Gi", |machine| machine.zones("a b").price(10))
            .machine("small", "cpu=2 memory=4Gi", |machine| machine.zones("a b").price(30))
            .machine("large", "cpu=8 memory=16Gi", |machine| machine.zones("a b").price(180))
            .pool("general", |pool| pool)
    }

    #[test]
    fn itself_first_then_the_cheapest_that_holds_the_pods() {
        let cluster = machines().pods(1, "web", "cpu=1500m memory=1Gi", |pod| pod);
        assert_eq!(shown(cluster), ["small/a small/b large/a"]);
    }

    #[test]
    fn where_zones_matter_the_zone_stays() {
        let cluster = machines().pods(2, "web", "cpu=1500m memory=1Gi", |pod| pod.spread("zone", 1));
        assert_eq!(shown(cluster), ["small/a large/a", "small/b large/b"]);
    }
}
