//! Single decisions.

use super::*;
use crate::config::INSTANCES;
use crate::model::{NodeState, RequestState};

fn instances(count: u64) -> Resources {
    Resources::from([(INSTANCES.to_owned(), count)])
}

fn pool(provider: &str, limit: u64, labels: &[&str]) -> Pool {
    Pool {
        id: format!("{provider}-main"),
        provider: provider.to_owned(),
        name: "main".to_owned(),
        priority: 100,
        limits: instances(limit),
        labels: labels.iter().map(|label| ((*label).to_owned(), instances(1))).collect(),
        hosts: None,
        max_concurrency: None,
        ignores_provider_limits: false,
    }
}

fn snapshot(pools: Vec<Pool>) -> Snapshot {
    Snapshot { now: 1000.0, pools, ..Snapshot::default() }
}

fn add_request(snapshot: &mut Snapshot, id: &str, labels: &[&str], change: impl FnOnce(&mut NodeRequest)) {
    let mut request = NodeRequest::new(labels.iter().map(|label| (*label).to_owned()).collect(), 1000.0);
    change(&mut request);
    snapshot.requests.insert(id.to_owned(), Locked { record: request.into(), lock: Lock::Free });
}

fn add_node(snapshot: &mut Snapshot, id: &str, provider: &str, labels: &[&str], change: impl FnOnce(&mut Node)) {
    let mut node = Node::new(NodeState::Ready, 1000.0);
    node.provider = Some(provider.to_owned());
    node.pool = Some("main".to_owned());
    node.labels = labels.iter().map(|label| (*label).to_owned()).collect();
    change(&mut node);
    snapshot.nodes.insert(id.to_owned(), Locked { record: node.into(), lock: Lock::Free });
}

/// Actions and reasons, a line each.
fn shown(snapshot: &Snapshot) -> String {
    let decision = decide(snapshot);
    let verdict = |verdict: &Verdict| format!("  {}: {}", verdict.pool, verdict.reason);
    let mut lines = Vec::new();
    for action in &decision.actions {
        match action {
            Action::Decline { request, declined_by, fails, verdicts } => {
                let verb = if *fails { "fail" } else { "decline" };
                lines.push(format!("{verb} {request} declined_by {}", declined_by.join(",")));
                lines.extend(verdicts.iter().map(verdict));
            }
            Action::Assign { request, pool, nodes } => {
                let nodes = nodes.iter().map(|source| match source {
                    Source::Ready(id) => format!("node {id}"),
                    Source::Launch(label) => format!("launch {label}"),
                });
                lines.push(format!("assign {request} from {pool}: {}", nodes.collect::<Vec<_>>().join(", ")));
            }
            other => lines.push(format!("{other:?}")),
        }
    }
    for (request, verdicts) in &decision.waiting {
        lines.push(format!("wait {request}"));
        lines.extend(verdicts.iter().map(verdict));
    }
    lines.join("\n")
}

#[test]
fn requests_are_served_in_order_and_ready_nodes_are_reused() {
    let mut it = snapshot(vec![pool("cloud", 3, &["a", "b"])]);
    add_node(&mut it, "0000000001", "cloud", &["a"], |_| {});
    add_request(&mut it, "200-0000000001", &["a"], |_| {});
    add_request(&mut it, "100-0000000002", &["a", "b"], |_| {});
    add_request(&mut it, "200-0000000003", &["b"], |request| request.relative_priority = -1);
    insta::assert_snapshot!(shown(&it), @r#"
assign 100-0000000002 from cloud-main: node 0000000001, launch b
assign 200-0000000003 from cloud-main: launch b
wait 200-0000000001
  cloud-main: the request needs 1 instances, 0 are left below the limit of the pool
"#);
}

#[test]
fn what_can_never_be_met_fails_at_once_with_a_reason_for_each_pool() {
    let mut it = snapshot(vec![pool("one", 2, &["a"]), pool("two", 9, &["b"])]);
    add_request(&mut it, "100-0000000001", &["a", "a", "a"], |request| {
        request.declined_by = vec!["gone".to_owned()];
    });
    add_request(&mut it, "100-0000000002", &[], |_| {});
    insta::assert_snapshot!(shown(&it), @r#"
fail 100-0000000001 declined_by one-main,two-main
  one-main: the request needs 3 instances, the limit of the pool is 2
  two-main: it has no label `a`
fail 100-0000000002 declined_by one-main,two-main
  one-main: the request names no label
  two-main: the request names no label
"#);
    it.foreign.push(ForeignPool {
        id: "other".to_owned(),
        provider: "three".to_owned(),
        priority: 100,
        paused: false,
        labels: BTreeSet::from(["a".to_owned()]),
    });
    insta::assert_snapshot!(shown(&it), @r#"
decline 100-0000000001 declined_by gone,one-main,two-main
  one-main: the request needs 3 instances, the limit of the pool is 2
  two-main: it has no label `a`
decline 100-0000000002 declined_by one-main,two-main
  one-main: the request names no label
  two-main: the request names no label
"#);
}

#[test]
fn tenants_share_fairly_and_within_limits() {
    let mut it = snapshot(vec![pool("cloud", 3, &["a"])]);
    it.tenant_limits.insert("x".to_owned(), instances(1));
    for (id, tenant) in [("1", "x"), ("2", "x"), ("3", "y"), ("4", "y"), ("5", "z")] {
        let tenant = Some(tenant.to_owned());
        add_request(&mut it, &format!("100-000000000{id}"), &["a"], |request| request.tenant_name = tenant);
    }
    insta::assert_snapshot!(shown(&it), @r#"
assign 100-0000000001 from cloud-main: launch a
assign 100-0000000003 from cloud-main: launch a
assign 100-0000000005 from cloud-main: launch a
wait 100-0000000002
  cloud-main: the request needs 1 instances, 0 are left below the limit of the tenant `x`
wait 100-0000000004
  cloud-main: the request needs 1 instances, 0 are left below the limit of the pool
"#);
}

#[test]
fn the_preferred_provider_and_priorities_are_respected() {
    let mut it = snapshot(vec![pool("one", 9, &["a"]), Pool { priority: 50, ..pool("two", 1, &["a"]) }]);
    add_request(&mut it, "100-0000000001", &["a"], |_| {});
    add_request(&mut it, "100-0000000002", &["a"], |_| {});
    add_request(&mut it, "100-0000000003", &["a"], |request| request.provider = Some("two".to_owned()));
    it.foreign.push(ForeignPool {
        id: "other".to_owned(),
        provider: "three".to_owned(),
        priority: 10,
        paused: true,
        labels: BTreeSet::from(["a".to_owned()]),
    });
    insta::assert_snapshot!(shown(&it), @r#"
assign 100-0000000001 from two-main: launch a
assign 100-0000000002 from one-main: launch a
wait 100-0000000003
  two-main: the request needs 1 instances, 0 are left below the limit of the pool
  one-main: the request prefers the provider `two`
"#);
    it.foreign[0].paused = false;
    insta::assert_snapshot!(shown(&it), @r#"
assign 100-0000000003 from two-main: launch a
wait 100-0000000001
  one-main: `other` has a higher priority
  two-main: `other` has a higher priority
wait 100-0000000002
  one-main: `other` has a higher priority
  two-main: `other` has a higher priority
"#);
}

#[test]
fn nodes_age_expire_and_lose_their_requests() {
    let mut it = snapshot(vec![pool("cloud", 9, &["a"])]);
    it.labels.insert("a".to_owned(), Label { name: "a".to_owned(), min_ready: 1, max_ready_age_s: 100 });
    it.max_hold_age_s = Some(500);
    add_node(&mut it, "0000000001", "cloud", &["a"], |node| node.state_time = 800.0);
    add_node(&mut it, "0000000002", "cloud", &["a"], |node| node.set_state(NodeState::Hold, 450.0));
    add_node(&mut it, "0000000003", "cloud", &["a"], |node| node.set_state(NodeState::Hold, 900.0));
    add_node(&mut it, "0000000004", "cloud", &["a"], |node| node.set_state(NodeState::Used, 1000.0));
    add_node(&mut it, "0000000005", "cloud", &["a"], |node| node.allocated_to = Some("100-0000000009".to_owned()));
    add_node(&mut it, "0000000006", "elsewhere", &["a"], |node| node.set_state(NodeState::Used, 1000.0));
    add_request(&mut it, "100-0000000007", &["a"], |request| request.set_state(RequestState::Pending, 1.0));
    insta::assert_snapshot!(shown(&it), @r#"
Release { request: "100-0000000007" }
Delete { node: "0000000001", reason: MaxReadyAge }
Delete { node: "0000000002", reason: MaxHoldAge }
Delete { node: "0000000004", reason: Unlocked }
Deallocate { node: "0000000005" }
"#);
}

#[test]
fn a_ready_node_makes_room_for_a_request() {
    let mut it = snapshot(vec![pool("cloud", 1, &["a", "b"])]);
    it.labels.insert("a".to_owned(), Label { name: "a".to_owned(), min_ready: 1, max_ready_age_s: 0 });
    add_node(&mut it, "0000000001", "cloud", &["a"], |_| {});
    add_request(&mut it, "100-0000000001", &["b"], |_| {});
    insta::assert_snapshot!(shown(&it), @r#"
Delete { node: "0000000001", reason: MakeRoom { request: "100-0000000001" } }
wait 100-0000000001
  cloud-main: the request needs 1 instances, 0 are left below the limit of the pool
"#);
    // What is about to go is enough: nothing else is deleted.
    it.nodes.get_mut("0000000001").unwrap().edit().state = NodeState::Used;
    it.nodes.get_mut("0000000001").unwrap().lock = Lock::Other;
    insta::assert_snapshot!(shown(&it), @r#"
wait 100-0000000001
  cloud-main: the request needs 1 instances, 0 are left below the limit of the pool
"#);
}

#[test]
fn slots_of_hosts_are_registered_once() {
    let host = |name: &str, slots| Host {
        name: name.to_owned(),
        username: "zuul".to_owned(),
        port: 22,
        slots,
        labels: vec!["s".to_owned()],
    };
    let hosts = Some(vec![host("h1", 2), host("h1", 1)]);
    let mut it = snapshot(vec![Pool { hosts, limits: Resources::new(), ..pool("rack", 0, &["s"]) }]);
    add_node(&mut it, "0000000001", "rack", &["s"], |node| {
        (node.hostname, node.username, node.slot) = (Some("h1".to_owned()), Some("zuul".to_owned()), Some(0));
    });
    add_node(&mut it, "0000000002", "rack", &["s"], |node| node.hostname = Some("h9".to_owned()));
    add_request(&mut it, "100-0000000001", &["s"; 4], |_| {});
    add_request(&mut it, "100-0000000002", &["s"; 2], |_| {});
    insta::assert_snapshot!(shown(&it), @r#"
Delete { node: "0000000002", reason: NotConfigured }
fail 100-0000000001 declined_by rack-main
  rack-main: it does not have that many hosts with these labels
Register { pool: "rack-main", host: 0, slot: 1 }
wait 100-0000000002
  rack-main: all hosts with these labels are in use
"#);
}
