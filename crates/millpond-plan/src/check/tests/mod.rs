//! A good plan passes; every way to break it is noticed.

#![allow(
    clippy::redundant_closure_for_method_calls,
    reason = "a method of a builder that borrows is not general enough to stand for a closure"
)]

mod purchases;
mod removals;
mod rules;
mod structure;
mod weights;

use super::{Violation, check, check_rules};
use crate::model::Snapshot;
use crate::plan::{NewNode, Outcome, Target};
use crate::testing::{Cluster, offers, random_snapshot, simple_plan, simple_report};

/// A cluster and a plan for it: what to buy (`pool type zone`), and which pod goes where (`pod node`, `#0` being the
/// first node that is bought). Pods that are not named have no place.
fn planned(cluster: Cluster, buy: &[&str], place: &[&str]) -> (Snapshot, Outcome) {
    let snapshot = cluster.snapshot();
    let mut outcome = Outcome::default();
    outcome.plan.revision.clone_from(&snapshot.revision);
    let offers = offers(&snapshot);
    for wanted in buy {
        let described = |offer: &&NewNode| {
            let instance_type = &snapshot.types[offer.instance_type.index()];
            let zone = snapshot.text(instance_type.offerings[offer.offering as usize].zone);
            let pool = &snapshot.pools[offer.pool.index()].name;
            format!("{pool} {} {zone}", snapshot.text(instance_type.name)) == *wanted
        };
        let found = offers.iter().find(described).unwrap_or_else(|| panic!("no offer is {wanted:?}"));
        outcome.plan.new_nodes.push(found.clone());
    }
    for text in place {
        let (pod, node) = text.split_once(' ').expect("a pod and a node");
        let pod = if pod.contains('/') { pod.to_owned() } else { format!("default/{pod}") };
        let pod = snapshot.find_pod(&pod).unwrap_or_else(|| panic!("no pod {pod}"));
        let target = match node.strip_prefix('#') {
            Some(number) => Target::New(number.parse().expect("a number")),
            None => Target::Existing(snapshot.find_node(node).unwrap_or_else(|| panic!("no node {node}"))),
        };
        outcome.plan.placements.push((pod, target));
    }
    outcome.plan.placements.sort_unstable();
    simple_report(&snapshot, &mut outcome);
    (snapshot, outcome)
}

/// The name of a variant.
fn kind(violation: &Violation) -> String {
    let text = format!("{violation:?}");
    text.split([' ', '(']).next().unwrap_or_default().to_owned()
}

/// Asserts that just violations of some kinds are found, one of each kind at least; none for a good plan.
#[track_caller]
fn expect(case: &str, (snapshot, outcome): &(Snapshot, Outcome), kinds: &[&str]) {
    let found = check(snapshot, outcome);
    let mut names: Vec<String> = found.iter().map(kind).collect();
    names.sort_unstable();
    names.dedup();
    let mut expected = kinds.to_vec();
    expected.sort_unstable();
    let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(names, expected, "{case}: {}", texts.join("; "));
    assert!(texts.iter().all(|text| !text.is_empty()));
}

/// Breaks a good plan in one way and asserts what is found.
#[track_caller]
fn broken(case: &str, good: &(Snapshot, Outcome), change: impl FnOnce(&mut Snapshot, &mut Outcome), kinds: &[&str]) {
    expect("before", good, &[]);
    let mut bad = good.clone();
    change(&mut bad.0, &mut bad.1);
    expect(case, &bad, kinds);
}

/// Two sizes in two zones, sold by one pool.
fn shop() -> Cluster {
    Cluster::new()
        .machine("small", "cpu=2 memory=4Gi", |machine| machine.zones("a b").price(50))
        .machine("large", "cpu=8 memory=16Gi", |machine| machine.zones("a b").price(180))
        .pool("general", |pool| pool)
}

#[test]
fn plain_plans_of_random_clusters_are_good() {
    let (mut placed, mut bought) = (0, 0);
    for seed in 0..300 {
        let snapshot = random_snapshot(seed, 8 + seed as usize % 30);
        let outcome = simple_plan(&snapshot);
        (placed, bought) = (placed + outcome.plan.placements.len(), bought + outcome.plan.new_nodes.len());
        // Weights are not looked at when these are made.
        let found = check_rules(&snapshot, &outcome);
        assert!(found.is_empty(), "seed {seed}: {}", found[0]);
    }
    assert!(placed > 1500 && bought > 400, "{placed} pods were placed, {bought} nodes bought");
}
