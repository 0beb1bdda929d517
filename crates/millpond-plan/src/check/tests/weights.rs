//! Pods in a pool of lesser weight than need be.

use super::{broken, expect, planned};
use crate::model::Snapshot;
use crate::plan::Outcome;
use crate::testing::Cluster;

fn shop() -> Cluster {
    Cluster::new()
        .machine("own", "cpu=2 memory=4Gi", |machine| machine.zones("a b").price(90))
        .machine("cloud", "cpu=4 memory=8Gi", |machine| machine.zones("a b").price(50))
        .pool("first", |pool| pool.weight(10).machines("own").limit("nodes=1"))
        .pool("second", |pool| pool.machines("cloud"))
}

fn good() -> (Snapshot, Outcome) {
    let cluster = shop().pods(3, "web", "cpu=1", |pod| pod);
    planned(cluster, &["first own a", "second cloud a"], &["web-0 #0", "web-1 #0", "web-2 #1"])
}

#[test]
fn limits_and_stock_of_the_greater_pool_are_used_up() {
    let good = good();
    broken("one more", &good, |snapshot, _| snapshot.pools[0].limits.nodes = Some(2), &["Weight"]);
    broken("no limit", &good, |snapshot, _| snapshot.pools[0].limits.nodes = None, &["Weight"]);
    let closed = |snapshot: &mut Snapshot| snapshot.pools[0].limits.nodes = None;
    let sold_out = |snapshot: &mut Snapshot, _: &mut Outcome| {
        closed(snapshot);
        snapshot.types[0].offerings.iter_mut().for_each(|one| one.left = Some(1));
        snapshot.types[0].offerings[1].left = Some(0);
    };
    broken("none left", &good, sold_out, &[]);
    let in_the_cluster = |snapshot: &mut Snapshot, _: &mut Outcome| {
        closed(snapshot);
        snapshot.limits.nodes = Some(2);
    };
    broken("a limit of the cluster", &good, in_the_cluster, &[]);
    let equal = |snapshot: &mut Snapshot, _: &mut Outcome| {
        closed(snapshot);
        snapshot.pools[0].weight = 0;
    };
    broken("of equal weight", &good, equal, &[]);
}

#[test]
fn nodes_of_the_greater_pool_are_full() {
    let cluster = || shop().pods(2, "web", "cpu=1", |pod| pod);
    let room = planned(cluster(), &["first own a", "second cloud a"], &["web-0 #0", "web-1 #1"]);
    expect("room", &room, &["Weight"]);
    let full = planned(cluster(), &["first own a"], &["web-0 #0", "web-1 #0"]);
    expect("full", &full, &[]);
}

#[test]
fn pods_that_the_greater_pool_cannot_hold_are_no_matter() {
    let all = |cluster: Cluster| planned(cluster, &["second cloud a"], &["web #0"]);
    expect("too large", &all(shop().pod("web", "cpu=3", |pod| pod)), &[]);
    expect("fits", &all(shop().pod("web", "cpu=2", |pod| pod)), &["Weight"]);
    expect("daemons", &all(shop().daemon("log", "cpu=100m", |pod| pod).pod("web", "cpu=2", |pod| pod)), &[]);
    expect("another type", &all(shop().pod("web", "cpu=1", |pod| pod.needs("type in cloud"))), &[]);
    expect("another pool", &all(shop().pod("web", "cpu=1", |pod| pod.needs("pool in second"))), &[]);
    expect("a zone of both", &all(shop().pod("web", "cpu=1", |pod| pod.needs("zone in a"))), &["Weight"]);
    expect("a rule between pods", &all(shop().pod("web", "cpu=1", |pod| pod.one_per_host())), &[]);
    let tainted = |taint: &str, pod: &str| {
        let cluster = Cluster::new()
            .machine("own", "cpu=2 memory=4Gi", |machine| machine.price(90))
            .machine("cloud", "cpu=4 memory=8Gi", |machine| machine.price(50))
            .pool("first", |pool| pool.weight(10).machines("own").taint(taint))
            .pool("second", |pool| pool.machines("cloud"));
        all(cluster.pod("web", "cpu=1", |spec| if pod.is_empty() { spec } else { spec.tolerates(pod) }))
    };
    expect("a taint", &tainted("team=red:NoSchedule", ""), &[]);
    expect("a tolerated taint", &tainted("team=red:NoSchedule", "team=red:NoSchedule"), &["Weight"]);
}
