//! Everything that is not an answer to an open request: lost and finished work, ages, nodes kept ready, hosts.

use std::collections::{BTreeMap, BTreeSet};

use super::assign::pool_of;
use super::usage::Usage;
use super::{Action, Decision, DeleteReason, Host, Lock, Locked, Pool, Snapshot, Verdict};
use crate::model::{Node, NodeRequest, NodeState, RequestState};

/// Finishes requests, and deletes or frees nodes. Gives the nodes that must not be handed out.
pub(super) fn clean(snapshot: &Snapshot, decision: &mut Decision) -> BTreeSet<String> {
    for (id, request) in &snapshot.requests {
        decision.actions.extend(progress(snapshot, id, request));
    }
    let mut gone = BTreeSet::new();
    let surplus = surplus_nodes(snapshot);
    for (id, node) in &snapshot.nodes {
        let is_ours = snapshot.pools.iter().any(|pool| node.record.provider.as_ref() == Some(&pool.provider));
        if !is_ours || node.lock == Lock::Other {
            continue;
        }
        if let Some(reason) = delete_reason(snapshot, id, node, &surplus) {
            gone.insert(id.clone());
            decision.actions.push(Action::Delete { node: id.clone(), reason });
        } else if is_stale_allocation(snapshot, id, &node.record) {
            decision.actions.push(Action::Deallocate { node: id.clone() });
        }
    }
    gone
}

/// The next action for a request that a launcher works on.
fn progress(snapshot: &Snapshot, id: &str, request: &Locked<NodeRequest>) -> Option<Action> {
    if request.record.state != RequestState::Pending || request.lock == Lock::Other {
        return None;
    }
    let release = || Some(Action::Release { request: id.to_owned() });
    if request.lock == Lock::Free {
        // Its launcher has ended.
        return release();
    }
    let mut all_ready = request.record.nodes.len() == request.record.node_types.len();
    for node in &request.record.nodes {
        match snapshot.nodes.get(node).map(|node| &node.record) {
            Some(node) if node.allocated_to.as_deref() != Some(id) => return release(),
            Some(node) if node.state == NodeState::Ready => {}
            Some(node) if matches!(node.state, NodeState::Init | NodeState::Building | NodeState::Testing) => {
                all_ready = false;
            }
            Some(node) if node.state == NodeState::Failed => return decline_failed(snapshot, id, request, node),
            // No capacity, or an operator deleted the node: the request is decided again.
            _ => return release(),
        }
    }
    all_ready.then(|| Action::Fulfil { request: id.to_owned() })
}

/// The pool whose launch failed declines the request.
fn decline_failed(snapshot: &Snapshot, id: &str, request: &Locked<NodeRequest>, node: &Node) -> Option<Action> {
    let pool = &snapshot.pools[pool_of(snapshot, node)?];
    let mut declined_by = request.record.declined_by.clone();
    if !declined_by.contains(&pool.id) {
        declined_by.push(pool.id.clone());
    }
    let registered = snapshot.pools.iter().map(|pool| &pool.id).chain(snapshot.foreign.iter().map(|pool| &pool.id));
    let fails = registered.clone().all(|pool| declined_by.contains(pool));
    if fails {
        declined_by.retain(|pool| registered.clone().any(|id| id == pool));
    }
    let verdicts = vec![Verdict { pool: pool.id.clone(), reason: super::Reason::LaunchFailed }];
    Some(Action::Decline { request: id.to_owned(), declined_by, fails, verdicts })
}

fn delete_reason(snapshot: &Snapshot, id: &str, node: &Locked<Node>, surplus: &BTreeSet<&str>) -> Option<DeleteReason> {
    let record = &node.record;
    let age_s = snapshot.now - record.state_time;
    let exceeds = |limit: Option<u64>| limit.is_some_and(|limit| age_s > limit as f64);
    match record.state {
        _ if node.lock == Lock::Ours => None,
        NodeState::Ready if record.allocated_to.is_some() => None,
        NodeState::Ready if surplus.contains(id) => Some(DeleteReason::NotConfigured),
        NodeState::Ready => {
            let is_static = pool_of(snapshot, record).is_some_and(|pool| snapshot.pools[pool].hosts.is_some());
            let limits = record.labels.iter().filter_map(|label| snapshot.labels.get(label));
            let limit = limits.map(|label| label.max_ready_age_s).filter(|age| *age > 0).min();
            (!is_static && exceeds(limit)).then_some(DeleteReason::MaxReadyAge)
        }
        NodeState::Hold => {
            let own = record.hold_expiration.and_then(|age| u64::try_from(age).ok()).filter(|age| *age > 0);
            let limit = own.into_iter().chain(snapshot.max_hold_age_s).min();
            exceeds(limit).then_some(DeleteReason::MaxHoldAge)
        }
        _ => Some(DeleteReason::Unlocked),
    }
}

/// Whether a ready node is for a request that no longer wants it.
fn is_stale_allocation(snapshot: &Snapshot, id: &str, node: &Node) -> bool {
    let Some(request) = node.allocated_to.as_ref().filter(|_| node.state == NodeState::Ready) else { return false };
    match snapshot.requests.get(request).map(|request| &request.record) {
        None => true,
        Some(request) => match request.state {
            RequestState::Requested | RequestState::Failed => true,
            RequestState::Pending | RequestState::Fulfilled => !request.nodes.iter().any(|node| node == id),
        },
    }
}

type Slot<'a> = (&'a str, &'a str, &'a str, u16, u32);

fn slot_of(node: &Node) -> Option<Slot<'_>> {
    let port = u16::try_from(node.connection_port.as_i64()?).ok()?;
    let (provider, name) = (node.provider.as_deref()?, node.hostname.as_deref()?);
    Some((provider, name, node.username.as_deref().unwrap_or_default(), port, node.slot.unwrap_or_default()))
}

fn static_hosts(snapshot: &Snapshot) -> impl Iterator<Item = (&Pool, usize, &Host)> {
    let pools = snapshot.pools.iter().filter_map(|pool| Some((pool, pool.hosts.as_ref()?)));
    pools.flat_map(|(pool, hosts)| hosts.iter().enumerate().map(move |(index, host)| (pool, index, host)))
}

fn host_slot<'a>(pool: &'a Pool, host: &'a Host, slot: u32) -> Slot<'a> {
    (&pool.provider, &host.name, &host.username, host.port, slot)
}

/// Ready nodes of static providers whose slot is no longer configured, belongs to another node, or has other labels
/// now.
fn surplus_nodes(snapshot: &Snapshot) -> BTreeSet<&str> {
    let mut configured: BTreeMap<Slot<'_>, (&Pool, &Host)> = BTreeMap::new();
    let mut providers = BTreeSet::new();
    for (pool, _, host) in static_hosts(snapshot) {
        providers.insert(pool.provider.as_str());
        for slot in 0..host.slots {
            configured.insert(host_slot(pool, host, slot), (pool, host));
        }
    }
    let (mut surplus, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for (id, node) in &snapshot.nodes {
        let record = &node.record;
        if !record.provider.as_deref().is_some_and(|provider| providers.contains(provider)) {
            continue;
        }
        let slot = slot_of(record);
        let as_configured = slot
            .and_then(|slot| configured.get(&slot))
            .is_some_and(|(pool, host)| record.pool.as_ref() == Some(&pool.name) && record.labels == host.labels);
        if !as_configured || !slot.is_some_and(|slot| seen.insert(slot)) {
            surplus.insert(id.as_str());
        }
    }
    surplus
}

/// Registers slots that have no node. A node in any state occupies its slot until its record is gone.
pub(super) fn register(snapshot: &Snapshot, decision: &mut Decision) {
    let mut occupied: BTreeSet<Slot<'_>> = snapshot.nodes.values().filter_map(|node| slot_of(&node.record)).collect();
    for (pool, index, host) in static_hosts(snapshot) {
        for slot in 0..host.slots {
            // A host that the configuration names twice is registered once.
            if occupied.insert(host_slot(pool, host, slot)) {
                decision.actions.push(Action::Register { pool: pool.id.clone(), host: index, slot });
            }
        }
    }
}

/// Launches nodes for labels that have too few ready ones; not where requests wait for the same resources.
pub(super) fn keep_ready(snapshot: &Snapshot, contended: &BTreeSet<usize>, usage: &mut Usage, decision: &mut Decision) {
    let taken: BTreeSet<&str> = decision.actions.iter().flat_map(taken_nodes).collect();
    let freed = decision.actions.iter().filter_map(|action| match action {
        Action::Deallocate { node } => Some(node.as_str()),
        _ => None,
    });
    let freed: BTreeSet<&str> = freed.collect();
    let mut launches = Vec::new();
    for label in snapshot.labels.values().filter(|label| label.min_ready > 0) {
        let counts = |(id, node): &(&String, &Locked<Node>)| {
            let (record, id) = (&node.record, id.as_str());
            let comes = matches!(record.state, NodeState::Ready | NodeState::Init | NodeState::Building);
            let unused = record.allocated_to.is_none() || freed.contains(id);
            comes && unused && record.labels.contains(&label.name) && !taken.contains(id)
        };
        let there = snapshot.nodes.iter().filter(counts).count() as u64;
        for _ in there..label.min_ready {
            let mut pools: Vec<(usize, &Pool)> = snapshot.pools.iter().enumerate().collect();
            pools.sort_by_key(|(index, pool)| (pool.priority, *index));
            let fits = |(index, pool): &(usize, &Pool)| {
                let Some(needed) = pool.labels.get(&label.name).filter(|_| pool.hosts.is_none()) else { return false };
                let key = (pool.id.clone(), label.name.clone());
                let backs_off = snapshot.out_of_capacity.contains(&key) || snapshot.without_image.contains_key(&key);
                !backs_off && !contended.contains(index) && usage.check_pool(snapshot, pool, needed).is_ok()
            };
            let Some((_, pool)) = pools.into_iter().find(fits) else { break };
            usage.reserve(pool, &pool.labels[&label.name]);
            launches.push(Action::Launch { pool: pool.id.clone(), label: label.name.clone() });
        }
    }
    decision.actions.extend(launches);
}

fn taken_nodes(action: &Action) -> Vec<&str> {
    match action {
        Action::Delete { node, .. } => vec![node.as_str()],
        Action::Assign { nodes, .. } => nodes
            .iter()
            .filter_map(|source| match source {
                super::Source::Ready(node) => Some(node.as_str()),
                super::Source::Launch(_) => None,
            })
            .collect(),
        _ => Vec::new(),
    }
}
