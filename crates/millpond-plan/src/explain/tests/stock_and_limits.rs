//! Stock-outs and limits, which others report as a pod that does not fit.

use super::{Case, shop_without_pool};
use crate::model::CapacityType::{Spot, OnDemand, Reserved};
use crate::testing::Cluster;

fn gpus(out: &[(&str, crate::model::CapacityType)]) -> Cluster {
    Cluster::new().machine("g5.xlarge", "cpu=4 memory=16Gi nvidia.com/gpu=1", |machine| {
        let machine = machine.zones("us-1a us-1b").price(1006).spot(302).label("category in g");
        out.iter().fold(machine, |machine, (zone, how)| machine.out_of_stock(zone, *how))
    })
}

pub(super) fn cases() -> Vec<Case> {
    let all = [("us-1a", OnDemand), ("us-1a", Spot), ("us-1b", OnDemand), ("us-1b", Spot)];
    vec![
        (
            "karpenter#1212: the only type that matches is out of stock everywhere",
            gpus(&all).pool("gpu", |pool| pool).pod("web", "cpu=1 nvidia.com/gpu=1", |pod| pod.needs("category in g")),
        ),
        (
            "one offer left out of stock",
            gpus(&all).pool("gpu", |pool| pool.requires("capacity in spot; zone in us-1a")).pod(
                "web",
                "cpu=1 nvidia.com/gpu=1",
                |pod| pod.needs("capacity in spot; zone in us-1a"),
            ),
        ),
        (
            "aws#5975: spot is out of stock and the pool does not allow on-demand",
            gpus(&[("us-1a", Spot), ("us-1b", Spot)])
                .pool("gpu", |pool| pool.requires("capacity in spot"))
                .pod("web", "cpu=1 nvidia.com/gpu=1", |pod| pod),
        ),
        (
            "out of stock in the zone of the volume",
            gpus(&[("us-1a", OnDemand), ("us-1a", Spot)]).pool("gpu", |pool| pool).pod(
                "web",
                "cpu=1 nvidia.com/gpu=1",
                |pod| pod.volume(&["zone in us-1a"]),
            ),
        ),
        (
            "karpenter#2438: out of stock in the zone that the pool allows, in stock in the other",
            gpus(&[("us-1a", OnDemand), ("us-1a", Spot)]).pool("gpu", |pool| pool.requires("zone in us-1a")).pod(
                "web",
                "cpu=1 nvidia.com/gpu=1",
                |pod| pod,
            ),
        ),
        (
            "reserved capacity that is used up",
            Cluster::new()
                .machine("r.large", "cpu=2 memory=16Gi", |machine| machine.reserved(0, 1).not_on_demand())
                .pool("reserved", |pool| pool)
                .pod("other", "cpu=2", |pod| pod.priority(10))
                .pod("web", "cpu=1900m", |pod| pod),
        ),
        (
            "reserved capacity that is out of stock",
            Cluster::new()
                .machine("r.large", "cpu=2 memory=16Gi", |machine| {
                    machine.reserved(0, 3).not_on_demand().out_of_stock("a", Reserved)
                })
                .pool("reserved", |pool| pool)
                .pod("web", "cpu=1", |pod| pod),
        ),
        (
            "autoscaler#1607: the group is at its maximum size, and that is said",
            shop_without_pool()
                .pool("workers", |pool| pool.limit("nodes=2"))
                .node("one", "m.large", |node| node.pool("workers"))
                .node("two", "m.large", |node| node.pool("workers"))
                .pod("busy", "cpu=1900m", |pod| pod.on("one"))
                .pod("busy-too", "cpu=1900m", |pod| pod.on("two"))
                .pod("web", "cpu=1", |pod| pod),
        ),
        (
            "a limit of cpu",
            shop_without_pool()
                .pool("default", |pool| pool.limit("cpu=3"))
                .node("one", "m.large", |node| node.pool("default"))
                .pod("busy", "cpu=1900m", |pod| pod.on("one"))
                .pod("web", "cpu=1", |pod| pod),
        ),
        (
            "a limit of memory below the smallest type",
            shop_without_pool().pool("default", |pool| pool.limit("memory=4Gi")).pod("web", "cpu=1", |pod| pod),
        ),
        (
            "a limit that only the large type breaks",
            shop_without_pool().pool("default", |pool| pool.limit("cpu=8")).pod("web", "cpu=4", |pod| pod),
        ),
        (
            "a limit in dollars",
            shop_without_pool().pool("default", |pool| pool.limit("price=30")).pod("web", "cpu=1", |pod| pod),
        ),
        (
            "a limit of gpus at zero",
            gpus(&[]).pool("gpu", |pool| pool.limit("nvidia.com/gpu=0")).pod("web", "nvidia.com/gpu=1", |pod| pod),
        ),
        (
            "a limit of all pools together",
            shop_without_pool().pool("default", |pool| pool).limit("cpu=1").pod("web", "cpu=1", |pod| pod),
        ),
        (
            "a limit that another pod of the plan has used up",
            shop_without_pool()
                .pool("default", |pool| pool.limit("nodes=1"))
                .pod("first", "cpu=15", |pod| pod.priority(10))
                .pod("web", "cpu=14", |pod| pod),
        ),
        (
            "one pool at its limit, one with a taint: the limit is nearer",
            shop_without_pool()
                .pool("full", |pool| pool.limit("nodes=0"))
                .pool("gpu", |pool| pool.taint("dedicated=gpu:NoSchedule").weight(50))
                .pod("web", "cpu=1", |pod| pod),
        ),
    ]
}
