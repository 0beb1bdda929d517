//! What pools can make, whatever pods ask for; and which of many pools a headline names.

use super::shop_without_pool;
use crate::explain::{explain_pod, explain_pools};
use crate::testing::{Cluster, PoolSpec};

/// Why the pool makes no node, and whether only a change helps.
fn standing(change: impl FnOnce(PoolSpec<'_>) -> PoolSpec<'_>) -> Option<(String, bool)> {
    let snapshot = shop_without_pool().pool("web", change).snapshot();
    let standing = explain_pools(&snapshot).remove(0);
    Some((standing.why()?.to_owned(), standing.is_permanent))
}

fn hopeless(why: &str) -> (String, bool) {
    (why.to_owned(), true)
}

#[test]
fn a_pool_that_can_make_nodes_says_nothing() {
    assert_eq!(standing(|pool| pool), None);
    assert_eq!(standing(|pool| pool.edit(|pool| pool.replicas = Some(3))), None);
}

#[test]
fn the_requirement_that_took_the_last_type_comes_with_the_nearest_value() {
    let none = standing(|pool| pool.requires("zone in us-1c"));
    assert_eq!(
        none,
        Some(hopeless(
            "its own requirement zone us-1c leaves no type: 2 types have us-1a, us-1b; the nearest is us-1a"
        ))
    );
    let none = standing(|pool| pool.requires("family in m; size in 3xlarge"));
    assert_eq!(
        none,
        Some(hopeless(
            "its own requirement size 3xlarge leaves no type: 2 types have 4xlarge, large; the nearest is 4xlarge"
        ))
    );
    // Of a single value there is no nearest.
    let none = standing(|pool| pool.requires("family in n"));
    assert_eq!(none, Some(hopeless("its own requirement family n leaves no type: 2 types have m")));
}

#[test]
fn numbers_have_a_nearest_number() {
    let cluster = Cluster::new()
        .machine("four", "cpu=4 memory=8Gi", |machine| machine.price(50).label("cores in 4"))
        .machine("eight", "cpu=8 memory=8Gi", |machine| machine.price(90).label("cores in 8"));
    let snapshot = cluster.pool("web", |pool| pool.requires("cores > 15")).snapshot();
    let why = explain_pools(&snapshot).remove(0).why().unwrap_or_default().to_owned();
    assert!(why.ends_with("2 types have 4, 8; the nearest is 8"), "{why}");
}

#[test]
fn limits_that_no_node_fits_into_do_not_pass() {
    let too_low = standing(|pool| pool.limit("cpu=1"));
    assert_eq!(too_low, Some(hopeless("the pool's limit of cpu 1 leaves 1, the smallest node that would do has 2")));
    let fixed = standing(|pool| pool.limit("nodes=1").edit(|pool| pool.replicas = Some(3)));
    let why = "`spec.replicas: 3` asks for more than the pool's limit of 1 node (`spec.limits.nodes`) allows";
    assert_eq!(fixed, Some(hopeless(why)));
    let full =
        shop_without_pool().pool("web", |pool| pool.limit("nodes=1")).node("one", "m.large", |node| node.pool("web"));
    let standing = explain_pools(&full.snapshot()).remove(0);
    assert_eq!((standing.why(), standing.is_permanent), (Some("the pool's limit of 1 node is reached"), false));
}

/// Of pools that do not take a pod, the one is named whose labels it asks for.
#[test]
fn a_headline_is_about_the_pool_that_is_asked_for() {
    let headline = |change: fn(PoolSpec<'_>) -> PoolSpec<'_>| {
        let snapshot = shop_without_pool()
            .pool("aaa", |pool| pool.weight(90))
            .pool("gpu", |pool| change(pool.requires("team in ml")))
            .pool("zzz", |pool| pool.weight(90))
            .pod("web", "cpu=1", |pod| pod.needs("team in ml"))
            .snapshot();
        explain_pod(&snapshot, 0.into()).message
    };
    let tainted = headline(|pool| pool.taint("dedicated=gpu:NoSchedule"));
    assert_eq!(tainted, "pool gpu: taint dedicated=gpu:NoSchedule is not tolerated");
    let not_ready = headline(|pool| pool.edit(|pool| pool.not_ready = Some("its class is missing".to_owned())));
    assert_eq!(not_ready, "pool gpu: not ready: its class is missing");
    let impossible = headline(|pool| pool.requires("zone in nowhere"));
    assert!(impossible.starts_with("pool gpu: its own requirement zone nowhere leaves no type"), "{impossible}");
}

/// Without labels that tell pools apart, one that would take the pod if it were ready is nearer than one that is too
/// small; one that would not is further away.
#[test]
fn a_pool_that_is_not_ready_is_near_if_it_would_take_the_pod() {
    let headline = |cpu: &str| {
        let snapshot = shop_without_pool()
            .pool("closed", |pool| pool.edit(|pool| pool.not_ready = Some("its class is missing".to_owned())))
            .pool("small", |pool| pool.requires("size in large"))
            .pod("web", cpu, |pod| pod)
            .snapshot();
        explain_pod(&snapshot, 0.into()).message
    };
    assert_eq!(headline("cpu=8"), "pool closed: not ready: its class is missing");
    assert!(headline("cpu=64").starts_with("pool small: cpu 64 asked for"), "{}", headline("cpu=64"));
}
