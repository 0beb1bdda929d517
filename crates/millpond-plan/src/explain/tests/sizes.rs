//! Pods that are too large, and nodes that are too small.

use super::{Case, shop, shop_without_pool};
use crate::testing::Cluster;

pub(super) fn cases() -> Vec<Case> {
    vec![
        ("a little too much cpu", shop().pod("web", "cpu=16", |pod| pod)),
        ("far too much cpu", shop().pod("web", "cpu=65", |pod| pod)),
        ("too much memory for what has the cpu", shop().pod("web", "cpu=4 memory=100Gi", |pod| pod)),
        ("a gpu that nobody has", shop().pod("web", "cpu=1 nvidia.com/gpu=1", |pod| pod)),
        (
            "more gpus than one node has",
            shop_without_pool()
                .machine("p.large", "cpu=8 memory=64Gi nvidia.com/gpu=4", |machine| machine.zones("us-1a"))
                .pool("default", |pool| pool)
                .pod("web", "cpu=1 nvidia.com/gpu=8", |pod| pod),
        ),
        (
            "gpus behind a taint in one pool, none in the other",
            shop_without_pool()
                .machine("p.large", "cpu=8 memory=64Gi nvidia.com/gpu=4", |machine| machine.zones("us-1a"))
                .pool("general", |pool| pool.machines("m.large m.4xlarge"))
                .pool("gpu", |pool| pool.machines("p.large").taint("nvidia.com/gpu:NoSchedule"))
                .pod("web", "cpu=1 nvidia.com/gpu=1", |pod| pod),
        ),
        (
            "larger types that the pool leaves out",
            shop_without_pool().pool("default", |pool| pool.requires("size in large")).pod("web", "cpu=8", |pod| pod),
        ),
        (
            "aws#1783: one small type, and daemons that take what the pod needs",
            Cluster::new()
                .machine("t3a.medium", "cpu=2 memory=4Gi pods=17", |machine| {
                    machine.zones("us-1a us-1b us-1c").keeps("cpu=70m memory=600Mi")
                })
                .pool("omo-karpenter", |pool| {
                    pool.requires("type in t3a.medium; capacity in on-demand; zone in us-1a,us-1b,us-1c")
                        .limit("cpu=1000")
                })
                .daemon("aws-node", "cpu=500m", |pod| pod)
                .daemon("datadog", "cpu=600m memory=256Mi", |pod| pod)
                .pod("web", "cpu=1", |pod| pod),
        ),
        (
            "aws#5156: memory that the node keeps for itself is not there for pods",
            Cluster::new()
                .machine("m5.8xlarge", "cpu=32 memory=128Gi", |machine| machine.keeps("cpu=170m memory=10Gi"))
                .pool("builder", |pool| pool)
                .daemon("agents", "cpu=220m memory=290Mi", |pod| pod)
                .pod("web", "cpu=16 memory=120Gi", |pod| pod),
        ),
        (
            "places for pods all taken by daemons",
            Cluster::new()
                .machine("tiny", "cpu=2 memory=4Gi pods=2", |machine| machine)
                .pool("default", |pool| pool)
                .daemon("one", "cpu=1m", |pod| pod)
                .daemon("two", "cpu=1m", |pod| pod)
                .pod("web", "cpu=100m", |pod| pod),
        ),
        ("ephemeral storage that no type has", shop().pod("web", "cpu=1 ephemeral-storage=100Gi", |pod| pod)),
        (
            "more volumes than a node can attach",
            Cluster::new()
                .machine("m.large", "cpu=2 memory=8Gi attachable-volumes-ebs.csi.aws.com=25", |machine| machine)
                .pool("default", |pool| pool)
                .pod("web", "cpu=1 attachable-volumes-ebs.csi.aws.com=30", |pod| pod),
        ),
        (
            "too few types for minValues",
            shop_without_pool().pool("default", |pool| pool.requires_values("type in m.large,m.4xlarge", 2)).pod(
                "web",
                "cpu=8",
                |pod| pod,
            ),
        ),
        (
            "the right size only in a zone that the pod does not want",
            shop_without_pool()
                .machine("x.large", "cpu=64 memory=1024Gi", |machine| machine.zones("us-1b"))
                .pool("default", |pool| pool)
                .pod("web", "cpu=48", |pod| pod.needs("zone in us-1a")),
        ),
    ]
}
