//! Budgets of pools, PodDisruptionBudgets.

use super::fixture::{Cluster, NOON, at, count, for_reasons, percent};
use crate::disruption::{Accounts, BudgetLedger, EvictionLedger, EvictionRefusal, PoolBudgets, first_mistake};
use crate::model::{Budget, DisruptionReason, NodeState, PodState, PoolId, Schedule};

use DisruptionReason::{Drifted, Empty, Expired, Underutilized};

const POOL: PoolId = PoolId(0);

/// What a pool of `nodes` nodes allows now, by reason.
fn allowed(budgets: Vec<Budget>, nodes: u64) -> [Option<u64>; 4] {
    let mut cluster = Cluster::new();
    cluster.first_pool().disruption.budgets = budgets;
    let budgets = PoolBudgets::new(&cluster.snapshot.pools[0]);
    [Empty, Drifted, Expired, Underutilized].map(|reason| budgets.allowance(nodes, reason, NOON).nodes)
}

#[test]
fn the_least_budget_that_holds_counts() {
    let all = |nodes| [Some(nodes); 4];
    for (budgets, nodes, expected) in [
        (vec![], 10, [None; 4]),
        (vec![count(3)], 10, all(3)),
        (vec![percent(10)], 10, all(1)),
        (vec![percent(10)], 11, all(2)),
        (vec![percent(10)], 1, all(1)),
        (vec![percent(10)], 0, all(0)),
        (vec![percent(0)], 100, all(0)),
        (vec![percent(100)], 7, all(7)),
        (vec![count(5), percent(20)], 10, all(2)),
        (vec![count(1), percent(20)], 10, all(1)),
        (vec![for_reasons(count(0), &[Drifted])], 10, [None, Some(0), None, None]),
        (
            vec![count(4), for_reasons(count(2), &[Empty, Underutilized]), for_reasons(percent(50), &[Expired])],
            6,
            [Some(2), Some(4), Some(3), Some(2)],
        ),
        // It is noon.
        (vec![at(count(0), "0 12 * * *", 60)], 10, all(0)),
        (vec![at(count(0), "1 12 * * *", 60)], 10, [None; 4]),
        (vec![at(count(0), "59 11 * * *", 60)], 10, [None; 4]),
        (vec![at(count(0), "59 11 * * *", 61)], 10, all(0)),
        (
            vec![percent(50), at(for_reasons(count(1), &[Empty]), "@daily", 86_400)],
            10,
            [Some(1), Some(5), Some(5), Some(5)],
        ),
        // What cannot be understood allows nothing, but only of its reasons.
        (vec![count(9), at(for_reasons(count(5), &[Expired]), "bad", 60)], 10, [Some(9), Some(9), Some(0), Some(9)]),
    ] {
        assert_eq!(allowed(budgets.clone(), nodes), expected, "{budgets:?} of {nodes}");
    }
}

#[test]
fn what_is_wrong_is_data() {
    let mut cluster = Cluster::new();
    let schedule = Schedule { cron: "@daily".to_owned(), time_zone: Some("Mars/Base".to_owned()), duration: 60 };
    let budgets = vec![count(5), Budget { schedule: Some(schedule), ..count(3) }];
    assert_eq!(first_mistake(&budgets).map(|(index, _)| index), Some(1));
    cluster.first_pool().disruption.budgets = budgets;
    let allowance = PoolBudgets::new(&cluster.snapshot.pools[0]).allowance(10, Empty, NOON);
    assert_eq!((allowance.nodes, allowance.budget), (Some(0), Some(1)));
    assert_eq!(allowance.error.unwrap().to_string(), "`Mars/Base` is not a time zone of the IANA database");
    assert_eq!(first_mistake(&[count(1), at(count(1), "@hourly", 60)]), None);
}

#[test]
fn nodes_that_leave_or_are_not_ready_use_budgets_up() {
    let mut cluster = Cluster::new();
    let small = cluster.instance_type("small", 2, 8, 100);
    cluster.first_pool().disruption.budgets = vec![percent(40)];
    for _ in 0..10 {
        cluster.node(POOL, small, "a");
    }
    let nodes = &mut cluster.snapshot.nodes;
    nodes[0].ready = false;
    nodes[1].state = NodeState::Leaving;
    nodes[2].initialized = None;
    nodes[3].pool = None;
    // 40 % of eight are four, two of them are away.
    let mut ledger = BudgetLedger::new(&cluster.snapshot);
    assert_eq!((ledger.busy(POOL), ledger.left(POOL, Empty)), (2, Some(2)));
    assert!(ledger.take(POOL, Empty) && ledger.take(POOL, Drifted));
    assert!(!ledger.take(POOL, Underutilized));
    ledger.give_back(POOL);
    assert_eq!(ledger.left(POOL, Expired), Some(1));
}

#[test]
fn the_next_chance_is_found() {
    let hour = 3600;
    let start = NOON - 12 * hour;
    for (budgets, busy, expected) in [
        (vec![count(1)], 0, Some(NOON)),
        (vec![count(1)], 1, None),
        (vec![count(0)], 0, None),
        // Nothing from nine to five.
        (vec![count(1), at(count(0), "0 9 * * mon-fri", 8 * hour)], 0, Some(start + 17 * hour)),
        // After that nothing from five to six.
        (vec![at(count(0), "0 9 * * *", 8 * hour), at(count(0), "0 17 * * *", hour)], 0, Some(start + 18 * hour)),
        (vec![at(count(0), "@hourly", hour)], 0, None),
        (vec![at(count(0), "bad", hour)], 0, None),
        // One may go when two may be away.
        (vec![at(count(1), "@daily", 20 * hour)], 1, Some(start + 20 * hour)),
    ] {
        let mut cluster = Cluster::new();
        cluster.first_pool().disruption.budgets = budgets.clone();
        let opens = PoolBudgets::new(&cluster.snapshot.pools[0]).opens(10, busy, Empty, NOON);
        assert_eq!(opens, expected, "{budgets:?}");
    }
}

#[test]
fn evictions_are_taken_from_their_budget() {
    let mut cluster = Cluster::new();
    let small = cluster.instance_type("small", 2, 8, 100);
    let node = cluster.node(POOL, small, "a");
    let (web, api, free) = (cluster.class("web", 1, 1), cluster.class("api", 1, 1), cluster.class("free", 1, 1));
    let pods = [web, web, web, api, free].map(|class| cluster.pod(class, node));
    let waiting = cluster.pod_in(web, Some(node), PodState::Bound, None);
    cluster.disruption_budget("web", "web", 2);
    cluster.disruption_budget("api", "api", 1);
    cluster.disruption_budget("api-too", "api", 1);
    // Another namespace's is none of theirs.
    cluster.disruption_budget("elsewhere", "free", 0);
    cluster.snapshot.disruption_budgets[3].namespace = cluster.snapshot.symbols.intern("elsewhere");

    let snapshot = &cluster.snapshot;
    let mut ledger = EvictionLedger::new(snapshot);
    let used_up = EvictionRefusal::UsedUp(0);
    ledger.take(snapshot, [pods[4], pods[0]].into_iter()).unwrap();
    assert_eq!(ledger.left(0), 1);
    // Two pods leave one after the other, where one may be away.
    let taken = ledger.take(snapshot, [pods[1], pods[2]].into_iter()).unwrap();
    assert_eq!(ledger.left(0), 0);
    assert_eq!(ledger.check(snapshot, pods[2]), Err(used_up));
    assert_eq!(ledger.take(snapshot, [pods[4], waiting].into_iter()), Err((waiting, used_up)));
    ledger.take_what_is_allowed(snapshot, [pods[2], pods[3], waiting].into_iter());
    ledger.give_back(&taken);
    assert_eq!(ledger.left(0), 1);
    assert_eq!(ledger.check(snapshot, pods[2]), Ok(()));
    assert_eq!(ledger.check(snapshot, pods[3]), Err(EvictionRefusal::Several(1, 2)));
    // All or nothing.
    assert!(ledger.take(snapshot, [pods[1], pods[3]].into_iter()).is_err());
    assert_eq!(ledger.left(0), 1);

    // A pod that was not started may always go where its budget says so.
    cluster.snapshot.disruption_budgets[0].unhealthy_always = true;
    cluster.snapshot.disruption_budgets[0].allowed = 0;
    let mut ledger = EvictionLedger::new(&cluster.snapshot);
    assert!(ledger.take(&cluster.snapshot, [waiting].into_iter()).is_ok());
    assert_eq!(ledger.check(&cluster.snapshot, pods[0]), Err(used_up));
    let accounts = Accounts::new(&cluster.snapshot);
    assert_eq!(accounts.residents.of(node).len(), 6);
}
