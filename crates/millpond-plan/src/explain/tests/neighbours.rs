//! Rules between pods: affinity, anti-affinity, spread, ports.

use super::{Case, shop, shop_without_pool};
use crate::testing::Cluster;

/// A pool in one zone of two, with a node in each.
fn two_zones() -> Cluster {
    shop_without_pool()
        .pool("default", |pool| pool.requires("zone in us-1a"))
        .node("in-a", "m.large", |node| node.zone("us-1a"))
        .node("in-b", "m.large", |node| node.zone("us-1b"))
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        ("near a pod that is not there", shop().pod("web", "cpu=1", |pod| pod.near("zone", "app in db"))),
        (
            "near a pod in a zone that the pool leaves out",
            two_zones()
                .pod("db", "cpu=1900m", |pod| pod.on("in-b"))
                .pod("web", "cpu=1", |pod| pod.near("zone", "app in db")),
        ),
        (
            "on the same node as a pod whose node is full",
            shop()
                .node("one", "m.large", |node| node.pool("default").zone("us-1a"))
                .pod("db", "cpu=1900m", |pod| pod.on("one"))
                .pod("web", "cpu=1", |pod| pod.near("host", "app in db")),
        ),
        (
            "apart from a pod in every zone of the pool",
            two_zones().pod("db", "cpu=1900m", |pod| pod.on("in-a")).pod("big", "cpu=1900m", |pod| pod.on("in-b")).pod(
                "web",
                "cpu=1",
                |pod| pod.apart("zone", "app in db"),
            ),
        ),
        (
            "kept away by the other pod's anti-affinity",
            two_zones()
                .pod("hermit", "cpu=1900m", |pod| pod.on("in-a").apart("zone", "app exists"))
                .pod("big", "cpu=1900m", |pod| pod.on("in-b"))
                .pod("web", "cpu=1", |pod| pod),
        ),
        (
            "a spread that only a zone without types would keep",
            two_zones()
                .pod("web-0", "cpu=1900m", |pod| pod.on("in-a").label("app=web"))
                .pod("big", "cpu=1900m", |pod| pod.on("in-b"))
                .pod("web", "cpu=1", |pod| pod.spread("zone", 1)),
        ),
        ("a spread over a label that nodes do not have", shop().pod("web", "cpu=1", |pod| pod.spread("rack", 1))),
        (
            "a spread with more domains wanted than there are",
            shop()
                .node("one", "m.large", |node| node.pool("default").zone("us-1a"))
                .node("two", "m.large", |node| node.pool("default").zone("us-1b"))
                .pod("web-0", "cpu=1900m", |pod| pod.on("one").label("app=web"))
                .pod("web-1", "cpu=1900m", |pod| pod.on("two").label("app=web"))
                .pod("web", "cpu=1", |pod| pod.spread_with("zone", 1, |spread| spread.min_domains = Some(3))),
        ),
        (
            "spread over a zone that is out of stock",
            Cluster::new()
                .machine("m.large", "cpu=2 memory=8Gi", |machine| {
                    machine.zones("us-1a us-1b").out_of_stock("us-1b", crate::model::CapacityType::OnDemand)
                })
                .pool("default", |pool| pool)
                .node("in-a", "m.large", |node| node.zone("us-1a"))
                .node("in-b", "m.large", |node| node.zone("us-1b"))
                .pod("web-0", "cpu=2", |pod| pod.on("in-a").label("app=web"))
                .pod("big", "cpu=2", |pod| pod.on("in-b"))
                .pod("web", "cpu=1", |pod| pod.spread("zone", 1)),
        ),
        (
            "a port that is taken on the only node",
            Cluster::new()
                .machine("m.large", "cpu=2 memory=8Gi", |machine| machine)
                .pool("static", |pool| pool.replicas(1))
                .node("one", "m.large", |node| node.pool("static"))
                .pod("proxy", "cpu=100m", |pod| pod.on("one").port(80))
                .pod("web", "cpu=100m", |pod| pod.port(80)),
        ),
        (
            "a port that a daemon takes on every node",
            shop().daemon("proxy", "cpu=10m", |pod| pod.port(80)).pod("web", "cpu=100m", |pod| pod.port(80)),
        ),
        (
            "every node that is there is against it for another reason",
            Cluster::new()
                .machine("m.large", "cpu=2 memory=8Gi", |machine| machine.zones("us-1a us-1b"))
                .node("full", "m.large", |node| node.zone("us-1a"))
                .node("tainted", "m.large", |node| node.zone("us-1a").taint("dedicated=db:NoSchedule"))
                .node("elsewhere", "m.large", |node| node.zone("us-1b"))
                .node("cordoned", "m.large", |node| node.zone("us-1a").unschedulable())
                .pod("busy", "cpu=1500m", |pod| pod.on("full"))
                .pod("web", "cpu=1", |pod| pod.needs("zone in us-1a")),
        ),
    ]
}
