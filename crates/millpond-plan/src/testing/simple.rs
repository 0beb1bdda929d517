//! Plans that are plainly made: each pod, by priority, on the first node that takes it, else on the cheapest new one.
//!
//! They are good plans by every rule and dear ones; whatever plans better must be cheaper, and whatever checks plans
//! must find nothing wrong with them.

use std::sync::Arc;

use super::scheduler::Scheduler;
use crate::model::{
    ClassId, InstanceType, Labels, Limits, NodeState, Offering, PodId, PodKind, PodState, Pool, PoolId, Resources,
    Snapshot, TypeId,
};
use crate::plan::{NewNode, Outcome, Rule, Target, Verdict};
use crate::requirement::{Requirement, Requirements};
use crate::symbol::Symbol;

/// Ways to choose open labels of one offering that are looked at.
const MAX_CHOICES: usize = 64;

/// Every node that can be bought now, cheapest first.
pub fn offers(snapshot: &Snapshot) -> Vec<NewNode> {
    let mut offers = Vec::new();
    for (pool, of_pool) in snapshot.pools.iter().enumerate() {
        if of_pool.not_ready.is_some() || of_pool.replicas.is_some() {
            continue;
        }
        for &instance_type in &of_pool.types {
            let of_type = &snapshot.types[instance_type.index()];
            for (offering, offered) in of_type.offerings.iter().enumerate() {
                if !offered.available || offered.left == Some(0) {
                    continue;
                }
                for labels in label_choices(snapshot, of_pool, of_type, offered) {
                    offers.push(NewNode {
                        pool: PoolId::from(pool),
                        instance_type,
                        offering: offering as u32,
                        price: offered.price,
                        labels: Arc::new(labels),
                    });
                }
            }
        }
    }
    offers.sort_by_key(|offer| offer.price);
    offers
}

/// The labels of a node of the offering, in every way; none if pool, type and offering contradict each other.
fn label_choices(snapshot: &Snapshot, pool: &Pool, instance_type: &InstanceType, offering: &Offering) -> Vec<Labels> {
    let (names, symbols) = (&snapshot.names, &snapshot.symbols);
    let known = |text: &str| symbols.find(text);
    let (Some(bought), Some(pool_name)) = (known(offering.capacity_type.name()), known(&pool.name)) else {
        return Vec::new();
    };
    let fixed = [
        (names.pool, pool_name),
        (names.instance_type, instance_type.name),
        (names.zone, offering.zone),
        (names.capacity_type, bought),
    ];
    let mut wanted = Requirements::clone(&instance_type.labels);
    wanted.add_all(&pool.requirements, symbols);
    let mut choices: Vec<Vec<(Symbol, Symbol)>> = vec![fixed.to_vec()];
    for (key, requirement) in wanted.iter() {
        if let Some((_, value)) = fixed.iter().find(|(known, _)| *known == key) {
            if !requirement.contains(*value, symbols) {
                return Vec::new();
            }
            continue;
        }
        let values = values(snapshot, key, requirement);
        let own = instance_type.labels.get(key).is_none() && !snapshot.well_known.contains(&key);
        if values.is_empty() && (requirement.allows_missing() || own && requirement.named().1) {
            continue;
        }
        let with = |value: &Symbol| {
            let extend = |chosen: &Vec<(Symbol, Symbol)>| [&chosen[..], &[(key, *value)]].concat();
            choices.iter().map(extend).collect::<Vec<_>>()
        };
        choices = values.iter().flat_map(with).take(MAX_CHOICES).collect();
    }
    choices.into_iter().map(|labels| labels.into_iter().collect()).collect()
}

/// The values that a label can be given: those that are listed, or those that pods name.
fn values(snapshot: &Snapshot, key: Symbol, requirement: &Requirement) -> Vec<Symbol> {
    let (named, all_but) = requirement.named();
    let mut values: Vec<Symbol> = if all_but {
        let terms = snapshot
            .classes
            .iter()
            .flat_map(|class| class.node_terms.iter().chain(class.volume_terms.iter().flatten()));
        terms.filter_map(|term| term.get(key)).flat_map(|wanted| wanted.named().0).copied().collect()
    } else {
        named.to_vec()
    };
    values.retain(|value| requirement.contains(*value, &snapshot.symbols));
    values.sort_unstable();
    values.dedup();
    values
}

/// Pods that need a place when nothing is taken away.
pub fn waiting_pods(snapshot: &Snapshot) -> Vec<PodId> {
    let leaving =
        |pod: &crate::model::Pod| pod.node.is_some_and(|node| snapshot.nodes[node.index()].state == NodeState::Leaving);
    let waits = |pod: &crate::model::Pod| {
        let goes_with_node = matches!(snapshot.classes[pod.class.index()].kind, PodKind::Daemon | PodKind::Mirror);
        !goes_with_node
            && match pod.state {
                PodState::Pending => pod.node.is_none() || leaving(pod),
                PodState::Bound => snapshot.classes[pod.class.index()].kind != PodKind::Bare && leaving(pod),
                PodState::Terminating | PodState::Gated => false,
            }
    };
    (0..snapshot.pods.len()).map(PodId::from).filter(|pod| waits(&snapshot.pods[pod.index()])).collect()
}

/// What nodes add up to, and what is left of offerings.
#[derive(Debug, Clone)]
pub(super) struct Purse<'s> {
    snapshot: &'s Snapshot,
    pools: Vec<(Resources, u64, u128)>,
    all: (Resources, u64, u128),
    bought: Vec<(TypeId, u32)>,
}

impl<'s> Purse<'s> {
    pub(super) fn new(snapshot: &'s Snapshot) -> Self {
        let none = (Resources::new(), 0, 0);
        let mut purse =
            Self { snapshot, pools: vec![none.clone(); snapshot.pools.len()], all: none, bought: Vec::new() };
        for node in &snapshot.nodes {
            if let Some(pool) = node.pool {
                purse.count(pool, &node.capacity, node.price.unwrap_or(0));
            }
        }
        purse
    }

    fn count(&mut self, pool: PoolId, capacity: &Resources, price: u64) {
        for (resources, nodes, cost) in [&mut self.pools[pool.index()], &mut self.all] {
            resources.add(capacity);
            *nodes += 1;
            *cost += u128::from(price);
        }
    }

    /// Buys a node, if limits and stock allow it.
    pub(super) fn buy(&mut self, node: &NewNode) -> bool {
        let instance_type = &self.snapshot.types[node.instance_type.index()];
        let key = (node.instance_type, node.offering);
        let before = self.bought.iter().filter(|bought| **bought == key).count();
        if instance_type.offerings[node.offering as usize].left.is_some_and(|left| before >= left as usize) {
            return false;
        }
        let mut after = self.clone();
        after.count(node.pool, &instance_type.capacity, node.price);
        after.bought.push(key);
        let pool = &self.snapshot.pools[node.pool.index()];
        let allowed =
            within(&after.pools[node.pool.index()], &pool.limits) && within(&after.all, &self.snapshot.limits);
        if allowed {
            *self = after;
        }
        allowed
    }
}

fn within((resources, nodes, cost): &(Resources, u64, u128), limits: &Limits) -> bool {
    limits.resources.iter().all(|(resource, limit)| resources.get(*resource) <= *limit)
        && limits.nodes.is_none_or(|limit| *nodes <= limit)
        && limits.price.is_none_or(|limit| *cost <= u128::from(limit))
}

/// A good plan, dear as it may be. Pools with `minValues` are not used.
pub fn simple_plan(snapshot: &Snapshot) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.plan.revision.clone_from(&snapshot.revision);
    let mut scheduler = Scheduler::after(snapshot, &outcome);
    let mut purse = Purse::new(snapshot);
    let has_min_values =
        |pool: PoolId| snapshot.pools[pool.index()].requirements.iter().any(|(_, one)| one.min_values().is_some());
    let offers: Vec<NewNode> = offers(snapshot).into_iter().filter(|offer| !has_min_values(offer.pool)).collect();
    let mut waiting = waiting_pods(snapshot);
    waiting.sort_by_key(|pod| {
        let class = snapshot.class_of(*pod);
        (std::cmp::Reverse(class.priority), !class.affinity.is_empty())
    });
    for pod in waiting {
        let class = snapshot.pods[pod.index()].class;
        let place = (0..scheduler.len()).find(|place| scheduler.fits(class, *place).is_ok());
        let place = place.or_else(|| buy(&mut scheduler, &mut purse, &offers, class, &mut outcome.plan.new_nodes));
        if let Some(place) = place {
            scheduler.bind(class, place);
            let new = place.checked_sub(snapshot.nodes.len());
            outcome
                .plan
                .placements
                .push((pod, new.map_or(Target::Existing(place.into()), |new| Target::New(new as u32))));
        }
    }
    outcome.plan.placements.sort_unstable();
    take_back(snapshot, &mut outcome);
    simple_report(snapshot, &mut outcome);
    outcome
}

fn buy(
    scheduler: &mut Scheduler<'_>,
    purse: &mut Purse<'_>,
    offers: &[NewNode],
    class: ClassId,
    bought: &mut Vec<NewNode>,
) -> Option<usize> {
    for offer in offers {
        let mut with = scheduler.clone();
        let place = with.add_node(offer, None);
        if with.fits(class, place).is_ok() && purse.buy(offer) {
            bought.push(offer.clone());
            *scheduler = with;
            return Some(place);
        }
    }
    None
}

/// Pods that fitted when they were placed and no longer do because of later pods lose their place; nodes without
/// planned pods are not bought.
fn take_back(snapshot: &Snapshot, outcome: &mut Outcome) {
    loop {
        let mut scheduler = Scheduler::after(snapshot, outcome);
        let misplaced = outcome.plan.placements.iter().position(|(pod, target)| {
            let class = snapshot.pods[pod.index()].class;
            let place = match target {
                Target::Existing(node) => node.index(),
                Target::New(number) => snapshot.nodes.len() + *number as usize,
            };
            scheduler.unbind(class, place);
            let fits = scheduler.fits(class, place).is_ok();
            scheduler.bind(class, place);
            !fits
        });
        let used =
            |number: usize| outcome.plan.placements.iter().any(|(_, target)| *target == Target::New(number as u32));
        let unused = (0..outcome.plan.new_nodes.len()).find(|number| !used(*number));
        if let Some(index) = misplaced {
            outcome.plan.placements.remove(index);
        } else if let Some(number) = unused {
            outcome.plan.new_nodes.remove(number);
            for (_, target) in &mut outcome.plan.placements {
                if let Target::New(other) = target
                    && *other as usize > number
                {
                    *other -= 1;
                }
            }
        } else {
            return;
        }
    }
}

/// Fills in the figures of a plan that takes nothing away, with the least bound that can be proved: what stays.
pub fn simple_report(snapshot: &Snapshot, outcome: &mut Outcome) {
    let price = |node: &crate::model::Node| u128::from(node.price.unwrap_or(0));
    let stays = |node: &&crate::model::Node| node.state != NodeState::Leaving;
    let staying: u128 = snapshot.nodes.iter().filter(stays).map(price).sum();
    let waiting = waiting_pods(snapshot);
    let report = &mut outcome.report;
    report.cost_before = snapshot.nodes.iter().map(price).sum();
    report.cost_after = staying + outcome.plan.new_nodes.iter().map(|node| u128::from(node.price)).sum::<u128>();
    report.bound = staying;
    report.nodes_before = snapshot.nodes.len();
    report.nodes_after = snapshot.nodes.iter().filter(stays).count() + outcome.plan.new_nodes.len();
    report.unpriced_nodes = snapshot.nodes.iter().filter(|node| node.price.is_none()).count();
    report.pods = waiting.len();
    report.verdicts = vec![Verdict { rule: Rule::Pod, message: "it was not tried hard".to_owned(), pools: Vec::new() }];
    let unplaced = waiting.into_iter().filter(|pod| outcome.plan.target(*pod).is_none());
    report.unplaced = unplaced.map(|pod| (pod, 0)).collect();
}
