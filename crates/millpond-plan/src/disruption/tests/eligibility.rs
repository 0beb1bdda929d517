//! Every reason why a node cannot be disrupted.

use super::fixture::{Cluster, NOON, at, count, for_reasons};
use crate::disruption::Accounts;
use crate::model::{
    Consolidation, DisruptionReason, DoNotDisrupt, Drift, Expiry, NodeId, NodeState, PodKind, PodState, PoolId,
};

use DisruptionReason::{Drifted, Empty, Expired, Underutilized};

/// A node with one pod; changed, and asked whether it may go for the reason.
fn verdict(reason: DisruptionReason, change: impl Fn(&mut Cluster)) -> String {
    let mut cluster = Cluster::new();
    let small = cluster.instance_type("small", 2, 8, 100);
    let node = cluster.node(PoolId(0), small, "a");
    let class = cluster.class("web", 100, 100);
    cluster.pod(class, node);
    change(&mut cluster);
    let accounts = Accounts::new(&cluster.snapshot);
    match accounts.eligible(&cluster.snapshot, NodeId(0), reason) {
        Ok(_) => "yes".to_owned(),
        Err(blocker) => format!("{}: {}", blocker.name(), blocker.sentence(&cluster.snapshot)),
    }
}

#[test]
fn refusals_of_a_node_with_a_pod() {
    type Change = fn(&mut Cluster);
    let cases: Vec<(DisruptionReason, Change, &str)> = vec![
        (Underutilized, |_| {}, "yes"),
        (Underutilized, |c| c.snapshot.nodes[0].pool = None, "Unmanaged: no pool manages it"),
        (Drifted, |c| c.snapshot.nodes[0].state = NodeState::Leaving, "Leaving: it is being removed already"),
        (Drifted, |c| c.snapshot.nodes[0].state = NodeState::Starting, "Starting: it is still starting"),
        (
            Drifted,
            |c| {
                c.snapshot.nodes[0].state = NodeState::Starting;
                c.snapshot.nodes[0].waits_for = Some("startup taint a=b:NoExecute is still on it".to_owned());
            },
            "Starting: it is still starting: startup taint a=b:NoExecute is still on it",
        ),
        (
            Underutilized,
            |c| c.snapshot.nodes[0].initialized = None,
            "NotInitialized: it has not become ready for pods yet",
        ),
        (
            Underutilized,
            |c| c.snapshot.nodes[0].do_not_disrupt = true,
            "NodeDoNotDisrupt: it is annotated `karpenter.sh/do-not-disrupt`",
        ),
        (
            Underutilized,
            |c| c.snapshot.classes[0].do_not_disrupt = DoNotDisrupt::Always,
            "PodDoNotDisrupt: pod default/pod-000 is annotated `karpenter.sh/do-not-disrupt`",
        ),
        (
            Underutilized,
            |c| c.snapshot.classes[0].do_not_disrupt = DoNotDisrupt::For(1_801),
            "PodDoNotDisrupt: pod default/pod-000 asked not to be disrupted until 2026-03-02T12:00:01Z",
        ),
        (Underutilized, |c| c.snapshot.classes[0].do_not_disrupt = DoNotDisrupt::For(1_800), "yes"),
        (
            Underutilized,
            |c| {
                c.snapshot.classes[0].do_not_disrupt = DoNotDisrupt::For(60);
                c.snapshot.pods[0].started = None;
            },
            "PodDoNotDisrupt: pod default/pod-000 asked not to be disrupted until 2026-03-02T12:01:00Z",
        ),
        (
            Underutilized,
            |c| {
                c.snapshot.classes[0].do_not_disrupt = DoNotDisrupt::Always;
                c.snapshot.pods[0].state = PodState::Terminating;
            },
            "IsEmpty: it has no pods that need another place",
        ),
        (
            Underutilized,
            |c| {
                let class = c.class("soon", 1, 1);
                c.pod_in(class, Some(NodeId(0)), PodState::Pending, None);
            },
            "RoomKept: room is kept on it for pod default/pod-001",
        ),
        (
            Underutilized,
            |c| c.disruption_budget("web", "web", 0),
            "PodDisruptionBudget: PodDisruptionBudget default/web allows no eviction of pod default/pod-000 now",
        ),
        (Underutilized, |c| c.disruption_budget("web", "web", 1), "yes"),
        (
            Underutilized,
            |c| {
                c.disruption_budget("web", "web", 1);
                c.disruption_budget("other", "web", 1);
            },
            "PodDisruptionBudget: pod default/pod-000 is covered by the PodDisruptionBudgets default/web and \
             default/other, and a pod of several cannot be evicted",
        ),
        (Empty, |_| {}, "NotEmpty: it has pods that need another place"),
        (Drifted, |_| {}, "NotDrifted: it is what its pool asks for"),
        (Drifted, |c| c.snapshot.nodes[0].drifted = Some(Drift::settled("image")), "yes"),
        (
            Drifted,
            |c| c.snapshot.nodes[0].drifted = Some(Drift { why: "image".to_owned(), since: Some(NOON - 9) }),
            "DriftedLately: it drifted a moment ago and is left alone until 2026-03-02T12:00:01Z",
        ),
        (
            Drifted,
            |c| c.snapshot.nodes[0].drifted = Some(Drift { why: "image".to_owned(), since: Some(NOON - 10) }),
            "yes",
        ),
        (Expired, |_| {}, "NotExpired: its pool's nodes do not expire"),
        (
            Expired,
            |c| c.first_pool().disruption.expire_after = Some(86_460),
            "NotExpired: it expires at 2026-03-02T12:01:00Z",
        ),
        (Expired, |c| c.first_pool().disruption.expire_after = Some(86_400), "yes"),
        (Expired, |c| c.snapshot.nodes[0].expiry = Expiry::At(NOON), "yes"),
        (
            Expired,
            |c| {
                c.first_pool().disruption.expire_after = Some(86_400);
                c.snapshot.nodes[0].expiry = Expiry::Never;
            },
            "NotExpired: its pool's nodes do not expire",
        ),
        (
            Expired,
            |c| {
                c.first_pool().disruption.expire_after = Some(60);
                c.snapshot.nodes[0].expiry = Expiry::At(NOON + 1);
            },
            "NotExpired: it expires at 2026-03-02T12:00:01Z",
        ),
        (Underutilized, |c| c.first_pool().replicas = Some(1), "FixedSize: its pool has a fixed number of nodes"),
        (
            Drifted,
            |c| {
                c.first_pool().replicas = Some(1);
                c.snapshot.nodes[0].drifted = Some(Drift::settled("image"));
            },
            "yes",
        ),
        (
            Underutilized,
            |c| c.first_pool().disruption.consolidate_after = None,
            "ConsolidationOff: its pool has `consolidateAfter: Never`",
        ),
        (
            Underutilized,
            |c| c.first_pool().disruption.consolidate_after = Some(3_601),
            "Unsettled: pods came or went lately, `consolidateAfter` leaves it alone until 2026-03-02T12:00:01Z",
        ),
        (Underutilized, |c| c.first_pool().disruption.consolidate_after = Some(3_600), "yes"),
        (
            Underutilized,
            |c| {
                c.first_pool().disruption.consolidate_after = Some(60);
                c.snapshot.nodes[0].initialized = Some(NOON - 59);
                c.snapshot.nodes[0].last_pod_event = None;
            },
            "Unsettled: pods came or went lately, `consolidateAfter` leaves it alone until 2026-03-02T12:00:01Z",
        ),
        (
            Underutilized,
            |c| c.first_pool().disruption.policy = Consolidation::WhenEmpty,
            "OnlyWhenEmpty: its pool has `consolidationPolicy: WhenEmpty`, and it has pods",
        ),
        (
            Underutilized,
            |c| c.snapshot.nodes[0].price = None,
            "Unpriced: its price is not known, so savings are unknown",
        ),
        (
            Underutilized,
            |c| c.first_pool().disruption.budgets = vec![count(0)],
            "Budget: budget 1 (`nodes: 0`) of its pool allows 0 nodes to be away at once, 0 are",
        ),
        (
            Underutilized,
            |c| c.first_pool().disruption.budgets = vec![count(5), at(count(0), "0 9 * * mon-fri", 8 * 3600)],
            "Budget: budget 2 (`nodes: 0`) of its pool allows 0 nodes to be away at once, 0 are; \
             the next chance is at 2026-03-02T17:00:00Z",
        ),
        (Underutilized, |c| c.first_pool().disruption.budgets = vec![for_reasons(count(0), &[Drifted])], "yes"),
        (
            Underutilized,
            |c| c.first_pool().disruption.budgets = vec![at(count(1), "0 0 * *", 60)],
            "Budget: budget 1 of its pool allows nothing while its schedule cannot be understood: \
             the day of the week is missing, a schedule has five fields, at column 8 of `0 0 * *`",
        ),
        (
            Expired,
            |c| {
                c.first_pool().disruption.expire_after = Some(60);
                c.first_pool().disruption.budgets = vec![count(0)];
            },
            "Budget: budget 1 (`nodes: 0`) of its pool allows 0 nodes to be away at once, 0 are",
        ),
    ];
    for (index, (reason, change, expected)) in cases.into_iter().enumerate() {
        assert_eq!(verdict(reason, change), expected, "case {index}");
    }
}

/// Where pods have to leave within a time, they do not keep a node that must go some day.
#[test]
fn pods_only_delay_nodes_with_a_grace_period() {
    let outdated = |c: &mut Cluster| {
        c.snapshot.nodes[0].drifted = Some(Drift::settled("image"));
        c.snapshot.nodes[0].expiry = Expiry::At(NOON);
        c.snapshot.nodes[0].ends_in_time = true;
    };
    let pinned = |c: &mut Cluster| {
        outdated(c);
        c.snapshot.classes[0].do_not_disrupt = DoNotDisrupt::Always;
    };
    assert_eq!([verdict(Drifted, pinned), verdict(Expired, pinned)], ["yes", "yes"]);
    assert!(verdict(Underutilized, pinned).starts_with("PodDoNotDisrupt"));
    let covered = |c: &mut Cluster| {
        outdated(c);
        c.disruption_budget("web", "web", 0);
    };
    assert_eq!([verdict(Drifted, covered), verdict(Expired, covered)], ["yes", "yes"]);
    assert!(verdict(Underutilized, covered).starts_with("PodDisruptionBudget"));
    let kept = |c: &mut Cluster| {
        outdated(c);
        c.snapshot.nodes[0].do_not_disrupt = true;
    };
    assert!(verdict(Drifted, kept).starts_with("NodeDoNotDisrupt"));
}

#[test]
fn refusals_of_an_empty_node() {
    let empty = |c: &mut Cluster| c.snapshot.pods.clear();
    assert_eq!(verdict(Empty, empty), "yes");
    assert_eq!(verdict(Underutilized, empty), "IsEmpty: it has no pods that need another place");
    let when_empty = |c: &mut Cluster| {
        c.snapshot.pods.clear();
        c.first_pool().disruption.policy = Consolidation::WhenEmpty;
        c.snapshot.nodes[0].price = None;
    };
    assert_eq!(verdict(Empty, when_empty), "yes");
    let least = |c: &mut Cluster| {
        c.snapshot.pods.clear();
        c.first_pool().min_nodes = 1;
    };
    assert_eq!(verdict(Empty, least), "LeastNodes: its pool keeps at least 1 node");
    let daemon = |c: &mut Cluster| c.snapshot.classes[0].kind = PodKind::Daemon;
    assert_eq!(verdict(Empty, daemon), "yes");
    let guarded = |c: &mut Cluster| {
        c.snapshot.classes[0].kind = PodKind::Daemon;
        c.snapshot.classes[0].do_not_disrupt = DoNotDisrupt::Always;
    };
    assert_eq!(
        verdict(Empty, guarded),
        "PodDoNotDisrupt: pod default/pod-000 is annotated `karpenter.sh/do-not-disrupt`"
    );
    let bare = |c: &mut Cluster| c.snapshot.classes[0].kind = PodKind::Bare;
    assert_eq!(verdict(Empty, bare), "NotEmpty: it has pods that need another place");
    let lost = "PodWithoutOwner: pod default/pod-000 has no controller and would be lost";
    assert_eq!(verdict(Underutilized, bare), lost);
    let outdated = |c: &mut Cluster| {
        bare(c);
        c.snapshot.nodes[0].drifted = Some(Drift::settled("image"));
        c.first_pool().disruption.expire_after = Some(60);
    };
    assert_eq!([verdict(Drifted, outdated), verdict(Expired, outdated)], [lost, lost]);
    // As Karpenter has it: where pods have to leave within a time, a pod that would be lost keeps no node for ever.
    let in_time = |c: &mut Cluster| {
        outdated(c);
        c.snapshot.nodes[0].ends_in_time = true;
    };
    assert_eq!([verdict(Drifted, in_time), verdict(Expired, in_time)], ["yes", "yes"]);
    assert_eq!(verdict(Underutilized, in_time), lost);
}

#[test]
fn the_first_reason_that_applies_is_taken() {
    let mut cluster = Cluster::new();
    let small = cluster.instance_type("small", 2, 8, 100);
    let node = cluster.node(PoolId(0), small, "a");
    cluster.snapshot.nodes[0].drifted = Some(Drift::settled("image"));
    let reason = |cluster: &Cluster| Accounts::new(&cluster.snapshot).reason(&cluster.snapshot, node);
    assert_eq!(reason(&cluster), Ok(Empty));
    cluster.first_pool().disruption.consolidate_after = None;
    assert_eq!(reason(&cluster), Ok(Drifted));
    cluster.first_pool().disruption.budgets = vec![for_reasons(count(0), &[Drifted])];
    cluster.first_pool().disruption.expire_after = Some(60);
    assert_eq!(reason(&cluster), Ok(Expired));
    cluster.snapshot.nodes[0].do_not_disrupt = true;
    assert_eq!(reason(&cluster).unwrap_err().name(), "ConsolidationOff");
}
