//! Pools that are not ready, taints, node selectors and volumes.

use super::{Case, shop, shop_without_pool};
use crate::model::Problem;
use crate::testing::Cluster;

pub(super) fn cases() -> Vec<Case> {
    vec![
        ("no pool at all", shop_without_pool().pod("web", "cpu=1", |pod| pod)),
        (
            "a pool that is not ready",
            shop_without_pool().pool("default", |pool| pool.not_ready("NodeClass default is not ready")).pod(
                "web",
                "cpu=1",
                |pod| pod,
            ),
        ),
        (
            "a pool of a fixed size",
            shop_without_pool().pool("static", |pool| pool.replicas(3)).pod("web", "cpu=1", |pod| pod),
        ),
        (
            "a pool whose own requirements leave no type",
            shop_without_pool().pool("default", |pool| pool.requires("family in m9")).pod("web", "cpu=1", |pod| pod),
        ),
        (
            "a pool whose requirements leave none together",
            shop_without_pool()
                .machine("c.large", "cpu=2 memory=4Gi", |machine| machine.label("family in c; size in large"))
                .pool("default", |pool| pool.requires("family in c; size in 4xlarge"))
                .pod("web", "cpu=1", |pod| pod),
        ),
        (
            "aws#3211: the pool wants zones in which its subnets are not",
            shop_without_pool().pool("egress", |pool| pool.requires("zone in us-1c,us-1d")).pod(
                "web",
                "cpu=600m memory=1152Mi",
                |pod| pod,
            ),
        ),
        (
            "a pool without types",
            shop_without_pool().pool("default", |pool| pool.machines("")).pod("web", "cpu=1", |pod| pod),
        ),
        (
            "a taint without a toleration",
            shop_without_pool()
                .pool("gpu", |pool| pool.taint("dedicated=gpu:NoSchedule"))
                .pod("web", "cpu=1", |pod| pod),
        ),
        (
            "a toleration of another value",
            shop_without_pool()
                .pool("gpu", |pool| pool.taint("dedicated=gpu:NoSchedule"))
                .pod("web", "cpu=1", |pod| pod.tolerates("dedicated=gpus")),
        ),
        (
            "a toleration of another effect",
            shop_without_pool()
                .pool("gpu", |pool| pool.taint("dedicated=gpu:NoExecute"))
                .pod("web", "cpu=1", |pod| pod.tolerates("dedicated=gpu:NoSchedule")),
        ),
        (
            "two pools, a taint each: the heavier one is named",
            shop_without_pool()
                .pool("blue", |pool| pool.taint("team=blue:NoSchedule"))
                .pool("red", |pool| pool.taint("team=red:NoSchedule").weight(10))
                .pod("web", "cpu=1", |pod| pod),
        ),
        (
            "taints twice: no single toleration helps",
            shop_without_pool()
                .pool("gpu", |pool| pool.taint("dedicated=gpu:NoSchedule").taint("team=ml:NoSchedule"))
                .pod("web", "cpu=1", |pod| pod),
        ),
        (
            "a startup taint does not matter",
            shop_without_pool().pool("default", |pool| pool.startup_taint("starting:NoExecute")).pod(
                "web",
                "cpu=1",
                |pod| pod,
            ),
        ),
        ("a zone with a typing error", shop().pod("web", "cpu=1", |pod| pod.needs("zone in us-1f"))),
        ("a zone of another region", shop().pod("web", "cpu=1", |pod| pod.needs("zone in europe-west4-b"))),
        (
            "a zone that the pool leaves out",
            shop_without_pool()
                .pool("default", |pool| pool.requires("zone in us-1a"))
                .pod("web", "cpu=1", |pod| pod.needs("zone in us-1b")),
        ),
        (
            "an architecture that the pool leaves out",
            shop_without_pool()
                .machine("g.large", "cpu=2 memory=8Gi", |machine| machine.label("arch in arm64").zones("us-1a"))
                .pool("default", |pool| pool.requires("arch in amd64"))
                .pod("web", "cpu=1", |pod| pod.needs("arch in arm64")),
        ),
        ("an architecture that nobody has", shop().pod("web", "cpu=1", |pod| pod.needs("arch in riscv64"))),
        (
            "a capacity type that the pool leaves out",
            shop_without_pool()
                .pool("default", |pool| pool.requires("capacity in spot"))
                .pod("web", "cpu=1", |pod| pod.needs("capacity in on-demand")),
        ),
        ("a label that no pool has", shop().pod("web", "cpu=1", |pod| pod.needs("workload in batch"))),
        (
            "a label that the pool has with another value",
            shop_without_pool()
                .pool("default", |pool| pool.requires("team in payments"))
                .pod("web", "cpu=1", |pod| pod.needs("team in payment")),
        ),
        (
            "a label that must not be there",
            shop_without_pool()
                .pool("default", |pool| pool.requires("team in red"))
                .pod("web", "cpu=1", |pod| pod.needs("team !exists")),
        ),
        ("an instance type that is misspelt", shop().pod("web", "cpu=1", |pod| pod.needs("type in m.xlarge"))),
        (
            "two labels that no type has together",
            shop().pod("web", "cpu=1", |pod| pod.needs("family in m; size in 8xlarge")),
        ),
        (
            "labels that exist one by one and not together",
            shop_without_pool()
                .machine("c.large", "cpu=2 memory=4Gi", |machine| machine.label("family in c; size in large"))
                .pool("default", |pool| pool)
                .pod("web", "cpu=1", |pod| pod.needs("family in c; size in 4xlarge")),
        ),
        (
            "a number that is too great",
            shop_without_pool()
                .pool("default", |pool| pool.requires("generation in 5"))
                .pod("web", "cpu=1", |pod| pod.needs("generation > 6")),
        ),
        ("a pool by name that is not there", shop().pod("web", "cpu=1", |pod| pod.needs("pool in batch"))),
        ("a node by name that is gone", shop().pod("web", "cpu=1", |pod| pod.needs("host in ip-10-0-0-7"))),
        (
            "alternatives of which none is met",
            shop().pod("web", "cpu=1", |pod| pod.either(&["zone in us-9a", "arch in arm64; zone in us-1a"])),
        ),
        ("no alternative at all", shop().pod("web", "cpu=1", |pod| pod.either(&[]))),
        ("a volume in a zone without types", shop().pod("web", "cpu=1", |pod| pod.volume(&["zone in us-1c"]))),
        (
            "a volume in a zone that the pool leaves out",
            shop_without_pool()
                .pool("default", |pool| pool.requires("zone in us-1a"))
                .pod("web", "cpu=1", |pod| pod.volume(&["zone in us-1b"])),
        ),
        (
            "two volumes in two zones",
            shop().pod("web", "cpu=1", |pod| pod.volume(&["zone in us-1a"]).volume(&["zone in us-1b"])),
        ),
        (
            "a claim that is not there",
            shop().pod("web", "cpu=1", |pod| pod.problem(Problem::ClaimMissing("data".into()))),
        ),
        (
            "a claim that nobody binds",
            shop().pod("web", "cpu=1", |pod| pod.problem(Problem::ClaimUnbound("data".into()))),
        ),
        (
            "another scheduler's pod",
            shop().pod("web", "cpu=1", |pod| pod.problem(Problem::OtherScheduler("volcano".into()))),
        ),
        (
            "aws#8378: no type that the pool allows is in the pool's zone",
            Cluster::new()
                .machine("m.2xlarge", "cpu=8 memory=32Gi", |machine| {
                    machine.zones("us-1a").label("category in m; cores in 8")
                })
                .machine("t.2xlarge", "cpu=8 memory=32Gi", |machine| {
                    machine.zones("us-1a us-1b").label("category in t; cores in 8")
                })
                .pool("coder-workspace", |pool| {
                    pool.requires("category notin t; cores > 4; coder in workspace; zone in us-1b")
                })
                .pod("web", "cpu=4180m memory=6264Mi", |pod| pod.needs("coder in workspace")),
        ),
    ]
}
