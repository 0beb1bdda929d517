//! The lower bound of plans with removals.

use super::fixture::{Cluster, count};
use crate::check::check;
use crate::model::{CPU, PoolId, Snapshot};
use crate::plan::Settings;
use crate::solve;

const POOL: PoolId = PoolId(0);

/// Cost and bound, in thousandths of a dollar.
fn cost_and_bound(snapshot: &Snapshot) -> (u128, u128) {
    let outcome = solve::plan(snapshot, &Settings { consolidate: true, ..Settings::default() });
    let found = check(snapshot, &outcome);
    assert!(found.is_empty(), "{found:?}");
    (outcome.report.cost_after / 1_000_000, outcome.report.bound / 1_000_000)
}

/// Pods of one core on so many nodes of 16 cores, one on each; machines of 4 cores are on sale too.
fn wasteful(nodes: usize) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.instance_type("small", 4, 16, 100);
    let large = cluster.instance_type("large", 16, 64, 400);
    let web = cluster.class("web", 1000, 1024);
    for _ in 0..nodes {
        let node = cluster.node(POOL, large, "a");
        cluster.pod(web, node);
    }
    cluster
}

fn nothing_on_sale(cluster: &mut Cluster) {
    let offerings = cluster.snapshot.types.iter_mut().flat_map(|of| &mut of.offerings);
    offerings.for_each(|offering| offering.available = false);
}

#[test]
fn nodes_that_may_go_cost_what_their_pods_need() {
    assert_eq!(cost_and_bound(&wasteful(3).snapshot), (100, 100));
    let mut empty = wasteful(2);
    empty.snapshot.pods.clear();
    assert_eq!(cost_and_bound(&empty.snapshot), (0, 0));
}

#[test]
fn nodes_that_stay_cost_their_price_and_have_room_for_free() {
    let mut cluster = wasteful(3);
    cluster.snapshot.nodes[0].do_not_disrupt = true;
    assert_eq!(cost_and_bound(&cluster.snapshot), (400, 400));
    // No room: what is on the others has to be somewhere.
    cluster.snapshot.nodes[0].schedulable = false;
    assert_eq!(cost_and_bound(&cluster.snapshot), (500, 500));
}

#[test]
fn a_node_that_is_there_can_be_cheaper_than_any_new_one() {
    let mut cluster = wasteful(3);
    cluster.snapshot.nodes[1].price = Some(10_000_000);
    assert_eq!(cost_and_bound(&cluster.snapshot), (10, 10));
    // Of forty each has a price of its own, and all are full.
    let mut cluster = wasteful(40);
    cluster.snapshot.classes[0].requests.set(CPU, 15_900);
    for (node, price) in cluster.snapshot.nodes.iter_mut().zip(1..) {
        node.price = Some(price * 1_000_000);
    }
    let (cost, bound) = cost_and_bound(&cluster.snapshot);
    assert!(cost == 820 && bound > 810, "cost {cost}, bound {bound}");
}

#[test]
fn what_runs_may_go_on_where_it_could_not_come() {
    let mut cluster = wasteful(1);
    nothing_on_sale(&mut cluster);
    cluster.snapshot.nodes[0].schedulable = false;
    assert_eq!(cost_and_bound(&cluster.snapshot), (400, 400));
    // More runs on it than it has.
    cluster.snapshot.nodes[0].allocatable.set(CPU, 500);
    assert_eq!(cost_and_bound(&cluster.snapshot), (400, 400));
}

#[test]
fn nodes_that_budgets_keep_cost_their_price() {
    let mut cluster = wasteful(3);
    cluster.first_pool().disruption.budgets = vec![count(1)];
    assert_eq!(cost_and_bound(&cluster.snapshot), (800, 800));
    // Too many to look at all ways.
    let mut cluster = wasteful(40);
    cluster.first_pool().disruption.budgets = vec![count(4)];
    assert_eq!(cost_and_bound(&cluster.snapshot), (14_400, 14_400));
    cluster.first_pool().disruption.budgets = vec![count(0)];
    assert_eq!(cost_and_bound(&cluster.snapshot), (16_000, 16_000));
}
