//! Pods that have a place, or need none.

use super::{Case, shop, shop_without_pool};
use crate::model::{CapacityType, PodState};

pub(super) fn cases() -> Vec<Case> {
    let with_node = || shop().node("one", "m.large", |node| node.pool("default").zone("us-1a"));
    vec![
        ("it runs", with_node().pod("web", "cpu=1", |pod| pod.on("one"))),
        ("room is kept for it", with_node().pod("web", "cpu=1", |pod| pod.nominated("one"))),
        ("it waits behind a gate", with_node().pod("web", "cpu=1", |pod| pod.state(PodState::Gated))),
        ("it is going away", with_node().pod("web", "cpu=1", |pod| pod.on("one").state(PodState::Terminating))),
        ("a node that is there has room", with_node().pod("web", "cpu=1", |pod| pod)),
        ("the cheapest node that takes it", shop().pod("web", "cpu=1", |pod| pod)),
        ("a node shared with others", shop().pods(4, "other", "cpu=3", |pod| pod).pod("web", "cpu=3", |pod| pod)),
        ("only on demand", shop().pod("web", "cpu=1", |pod| pod.needs("capacity in on-demand"))),
        (
            "its node is leaving",
            shop().node("old", "m.large", |node| node.pool("default").zone("us-1a").leaving()).pod(
                "web",
                "cpu=1",
                |pod| pod.on("old"),
            ),
        ),
        (
            "the preferred zone when it costs no more",
            shop_without_pool().pool("default", |pool| pool.requires("capacity in on-demand")).pod(
                "web",
                "cpu=1",
                |pod| pod.prefers(10, "zone in us-1b"),
            ),
        ),
        (
            "spot is out of stock, on-demand takes it",
            shop_without_pool()
                .machine("s.large", "cpu=2 memory=8Gi", |machine| {
                    machine.zones("us-1a").price(90).spot(30).out_of_stock("us-1a", CapacityType::Spot)
                })
                .pool("default", |pool| pool.machines("s.large"))
                .pod("web", "cpu=1", |pod| pod),
        ),
    ]
}
