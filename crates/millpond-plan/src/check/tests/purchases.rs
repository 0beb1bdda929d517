//! Nodes that cannot be bought.

use std::sync::Arc;

use super::{broken, expect, planned, shop};
use crate::model::{Snapshot, TypeId};
use crate::plan::Outcome;
use crate::testing::Cluster;

fn good() -> (Snapshot, Outcome) {
    let cluster = shop().pool("red", |pool| pool.requires("team in red; tier in one,two").machines("small")).pods(
        2,
        "web",
        "cpu=1",
        |pod| pod,
    );
    planned(cluster, &["general small a", "red small b"], &["web-0 #0", "web-1 #1"])
}

/// Sets or takes away a label of a new node.
fn label(snapshot: &mut Snapshot, outcome: &mut Outcome, node: usize, key: &str, value: Option<&str>) {
    let key = snapshot.symbols.intern(key);
    let node = &mut outcome.plan.new_nodes[node];
    let kept = node.labels.iter().filter(|(other, _)| *other != key);
    let value = value.map(|value| (key, snapshot.symbols.intern(value)));
    node.labels = Arc::new(kept.chain(value).collect());
}

#[test]
fn pools_sell_what_they_have() {
    let good = good();
    broken("not ready", &good, |snapshot, _| snapshot.pools[0].not_ready = Some("gone".to_owned()), &["ClosedPool"]);
    broken("a fixed size", &good, |snapshot, _| snapshot.pools[0].replicas = Some(3), &["ClosedPool"]);
    broken("not its type", &good, |snapshot, _| snapshot.pools[0].types = vec![TypeId(1)], &["ForeignType"]);
    broken("out of stock", &good, |snapshot, _| snapshot.types[0].offerings[0].available = false, &["Unavailable"]);
    broken("another price", &good, |snapshot, _| snapshot.types[0].offerings[0].price += 1, &["Price"]);
    broken("none left", &good, |snapshot, _| snapshot.types[0].offerings[0].left = Some(0), &["Stock"]);
}

#[test]
fn labels_are_those_of_pool_type_and_offering() {
    let zone = "topology.kubernetes.io/zone";
    let cases = [
        ("another zone", 0, zone, Some("b"), "Label"),
        ("no zone", 0, zone, None, "MissingLabel"),
        ("another capacity type", 0, "karpenter.sh/capacity-type", Some("spot"), "Label"),
        ("no capacity type", 0, "karpenter.sh/capacity-type", None, "MissingLabel"),
        ("another type", 0, "node.kubernetes.io/instance-type", Some("large"), "Label"),
        ("another pool", 0, "karpenter.sh/nodepool", Some("red"), "Label"),
        ("no pool", 0, "karpenter.sh/nodepool", None, "MissingLabel"),
        ("another system", 0, "kubernetes.io/os", Some("windows"), "Label"),
        ("no system", 0, "kubernetes.io/os", None, "MissingLabel"),
        ("made up", 0, "colour", Some("green"), "Label"),
        ("a hostname", 0, "kubernetes.io/hostname", Some("x"), "Label"),
        ("the template's label is missing", 1, "team", None, "MissingLabel"),
        ("against the template", 1, "team", Some("blue"), "Label"),
        ("an open label is missing", 1, "tier", None, "MissingLabel"),
        ("an open label out of range", 1, "tier", Some("three"), "Label"),
    ];
    for (case, node, key, value, kind) in cases {
        broken(case, &good(), |snapshot, outcome| label(snapshot, outcome, node, key, value), &[kind]);
    }
}

#[test]
fn stock_is_shared_by_pools() {
    let cluster = |left| {
        Cluster::new()
            .machine("small", "cpu=2", |machine| machine.not_on_demand().reserved(5, left))
            .pool("one", |pool| pool)
            .pool("two", |pool| pool)
            .pods(2, "web", "cpu=1", |pod| pod)
    };
    let plan = |left| planned(cluster(left), &["one small a", "two small a"], &["web-0 #0", "web-1 #1"]);
    expect("two of two", &plan(2), &[]);
    expect("two of one", &plan(1), &["Stock"]);
}

#[test]
fn nodes_without_pods_fill_up_a_pool_at_most() {
    let cluster = |least| {
        shop().pool("warm", |pool| pool.min_nodes(least)).node("one", "small", |node| node.pool("warm")).pod(
            "web",
            "",
            |pod| pod,
        )
    };
    let plan = |least| planned(cluster(least), &["warm small a", "warm small a"], &["web one"]);
    expect("three are wanted", &plan(3), &[]);
    expect("two are wanted", &plan(2), &["EmptyNode"]);
    expect("none is wanted", &plan(0), &["EmptyNode"]);
}

#[test]
fn limits_hold_for_all_nodes_together() {
    let plan = |limit: &str| {
        let cluster = Cluster::new()
            .machine("small", "cpu=2 memory=4Gi", |machine| machine.price(50))
            .pool("general", |pool| pool.limit(limit))
            .node("one", "small", |node| node.pool("general"))
            .node("gone", "small", |node| node.pool("general").leaving())
            .node("foreign", "small", |node| node)
            .pod("web", "cpu=1", |pod| pod);
        planned(cluster, &["general small a"], &["web #0"])
    };
    let cases = [
        ("cpu=6", true),
        ("cpu=5", false),
        ("nodes=3", true),
        ("nodes=2", false),
        ("price=150", true),
        ("price=149", false),
        ("memory=12Gi", true),
        ("memory=11Gi", false),
        ("gpu=0", true),
    ];
    for (limit, holds) in cases {
        expect(limit, &plan(limit), if holds { &[] } else { &["Limit"] });
    }
}

#[test]
fn the_cluster_has_limits_too() {
    let plan = |limit: &str| {
        let cluster = shop().pool("other", |pool| pool).limit(limit).pods(2, "web", "cpu=1", |pod| pod);
        planned(cluster, &["general small a", "other small a"], &["web-0 #0", "web-1 #1"])
    };
    expect("enough", &plan("cpu=4"), &[]);
    expect("too much", &plan("cpu=3"), &["Limit"]);
}

#[test]
fn an_exceeded_limit_matters_only_to_purchases() {
    let cluster = || {
        shop().pool("full", |pool| pool.limit("cpu=1")).node("one", "small", |node| node.pool("full")).pod(
            "web",
            "cpu=1",
            |pod| pod,
        )
    };
    expect("another pool buys", &planned(cluster(), &["general small a"], &["web #0"]), &[]);
    expect("it buys", &planned(cluster(), &["full small a"], &["web #0"]), &["Limit"]);
}

#[test]
fn min_values_leave_enough_types_open() {
    let plan = |wanted: &str, count, cpu: &str| {
        let cluster = Cluster::new()
            .machine("small", "cpu=2", |machine| machine.zones("a b").label("family in c"))
            .machine("large", "cpu=8", |machine| machine.zones("a b").label("family in m"))
            .machine("sold-out", "cpu=8", |machine| {
                machine.label("family in r").out_of_stock("a", crate::model::CapacityType::OnDemand)
            })
            .pool("general", |pool| pool.requires_values(wanted, count))
            .pod("web", cpu, |pod| pod);
        planned(cluster, &["general large a"], &["web #0"])
    };
    expect("two would do", &plan("type exists", 2, "cpu=1"), &[]);
    expect("one is too small", &plan("type exists", 2, "cpu=3"), &["MinValues"]);
    expect("one is out of stock", &plan("family exists", 3, "cpu=1"), &["MinValues"]);
    expect("two zones", &plan("zone exists", 2, "cpu=3"), &[]);
    expect("three zones", &plan("zone exists", 3, "cpu=3"), &["MinValues"]);
}
