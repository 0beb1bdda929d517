//! Node groups of Cluster API: every one is a pool of one type, offered once.
//!
//! | Cluster API | here |
//! |---|---|
//! | MachineDeployment, MachineSet of its own, MachinePool | pool `namespace/name` |
//! | min and max size (annotations) | the scale-down's least, limits |
//! | no bounds, or not discovered | a pool of fixed size, where nodes of it are here |
//! | what a node offers | the newest ready node of the group; annotations and templates; what was remembered |
//! | Machine with a Node | node of the pool |
//! | Machine without one; replicas without a Machine | node that is starting: nothing is bought twice |
//! | Machine that failed or is late | nothing: it takes its share of the maximum, and no pods |
//! | paused, deleted, backing off | pool that is not ready |

mod gather;
mod size;

use std::collections::HashMap;

use millpond_api::labels;
use millpond_plan::model::{
    CapacityType, Consolidation, Disruption, Expiry, InstanceType, Labels, Limits, Node, NodeState, Offering, Pool,
    PoolId, Resources, Seconds, TypeId,
};
use millpond_plan::requirement::{Requirement, Requirements};

pub(crate) use gather::gather;
pub use gather::{Group, GroupMachine};

use self::size::Size;
use super::SnapshotBuilder;
use crate::groups::Use;
use crate::lower::node::{NodeEntry, is_ephemeral, node_labels};
use crate::state::Origin;

/// The members of groups, while a snapshot is taken.
#[derive(Default)]
pub(super) struct Members<'s> {
    /// Nodes by name.
    nodes: HashMap<&'s str, Member>,
    /// Nodes that are yet to come.
    coming: Vec<StartingMachine>,
    /// How many more machines each pool may have.
    room: Vec<(PoolId, u64)>,
}

/// A node of a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) pool: PoolId,
    leaving: bool,
    /// Until then it is taken to be starting.
    starts_until: Seconds,
}

/// A machine that is no node yet.
struct StartingMachine {
    pool: PoolId,
    name: String,
    created: Seconds,
}

impl Members<'_> {
    pub(super) fn of(&self, node: &str) -> Option<Member> {
        self.nodes.get(node).copied()
    }
}

impl<'s> SnapshotBuilder<'s> {
    /// Adds the pools of all groups; nodes follow.
    pub(super) fn node_groups(&mut self) -> Members<'s> {
        let mut members = Members::default();
        if self.options.node_groups.used == Use::None || self.state.cluster_api.is_empty() {
            return members;
        }
        for group in gather(self.state, &self.options.node_groups) {
            self.node_group(&group, &mut members);
        }
        members
    }

    fn node_group(&mut self, group: &Group<'s>, members: &mut Members<'s>) {
        let origin = group.entry.origin.as_ref();
        for warning in &group.warnings {
            self.warn(origin, format!("node group `{}`: {warning}", group.of));
        }
        if group.scaled.is_none() && group.problem.is_none() && group.nodes().next().is_none() {
            // Presumably a group of another cluster.
            return;
        }
        let size = self.group_size(group);
        let pool = self.group_pool(group, size.as_ref(), origin);
        self.group_nodes(group, pool, size.is_some(), members);
        if let Some(scaled) = &group.scaled {
            let max = u64::try_from(scaled.max).unwrap_or(0);
            members.room.push((pool, max.saturating_sub(group.replicas)));
        }
    }

    fn group_pool(&mut self, group: &Group<'_>, size: Option<&Size>, origin: Option<&Origin>) -> PoolId {
        let name = group.of.to_string();
        let scaled = group.scaled.as_ref();
        let not_ready = self.not_ready(group, size);
        if let Some(reason) = scaled.and(group.problem.as_ref().or(not_ready.as_ref()).filter(|_| size.is_none())) {
            self.warn(origin, format!("node group `{name}` is not ready: {reason}"));
        }
        let types = size.map(|size| self.group_type(&name, size)).into_iter().collect();
        let mut requirements = Requirements::new();
        let names = self.snapshot.names;
        for key in [names.pool, names.zone, names.capacity_type, names.instance_type] {
            if size.is_none_or(|size| !size.labels.contains_key(self.snapshot.text(key))) {
                requirements.add(key, Requirement::does_not_exist(), &self.snapshot.symbols);
            }
        }
        let taints = self.taints(&group.offer.taints);
        let pool = Pool {
            weight: scaled.map_or(0, |scaled| i32::try_from(scaled.weight).unwrap_or(i32::MAX)),
            requirements,
            taints,
            types,
            // How many it may have besides those that it has is counted when its nodes are known.
            limits: Limits::default(),
            min_nodes: scaled.map_or(0, |scaled| u64::try_from(scaled.min).unwrap_or(0)),
            replicas: (scaled.is_none() && group.problem.is_none()).then_some(group.replicas),
            // The scale-down of groups decides which of their nodes are removed, not consolidation.
            disruption: Disruption {
                policy: Consolidation::WhenEmpty,
                consolidate_after: None,
                expire_after: None,
                budgets: Vec::new(),
            },
            not_ready,
            ..Pool::new(name)
        };
        self.snapshot.add_pool(pool)
    }

    fn not_ready(&self, group: &Group<'_>, size: Option<&Size>) -> Option<String> {
        let held = self.options.node_groups.held.get(&group.of).map(|held| held.reason.clone());
        let unsized_ = || {
            let problem = "what its nodes offer is not known: it has none, and neither its machine template nor the \
                           annotations `capacity.cluster-autoscaler.kubernetes.io/cpu` and `…/memory` say";
            problem.to_owned()
        };
        let closed = || "others decide how many nodes it has".to_owned();
        (group.problem.clone())
            .or_else(|| group.resting().map(ToOwned::to_owned))
            .or(held)
            .or_else(|| size.is_none().then(unsized_))
            .or_else(|| (self.options.node_groups.used == Use::Closed).then(closed))
    }

    fn group_type(&mut self, pool: &str, size: &Size) -> TypeId {
        let symbols = &mut self.snapshot.symbols;
        let mut all = Requirements::new();
        for (key, value) in &size.labels {
            let (key, value) = (symbols.intern(key), symbols.intern(value));
            all.add(key, Requirement::is(value), symbols);
        }
        let label = |key: &str| size.labels.get(key).map(String::as_str);
        let zone = symbols.intern(label(labels::ZONE).unwrap_or_default());
        let name = symbols.intern(label(labels::INSTANCE_TYPE).unwrap_or(pool));
        let capacity_type =
            label(labels::CAPACITY_TYPE).and_then(CapacityType::from_name).unwrap_or(CapacityType::OnDemand);
        symbols.intern(capacity_type.name());
        let offering = Offering { zone, capacity_type, price: size.price, available: true, left: None };
        let of = InstanceType {
            name,
            capacity: size.capacity.clone(),
            allocatable: size.allocatable.clone(),
            labels: all.into(),
            offerings: vec![offering],
            priority: 0,
        };
        self.snapshot.types.push(of);
        TypeId::from(self.snapshot.types.len() - 1)
    }

    fn group_nodes(&mut self, group: &Group<'s>, pool: PoolId, is_sized: bool, members: &mut Members<'s>) {
        let now = self.snapshot.now;
        let until = |entry: &NodeEntry| entry.created.saturating_add(group.timing.startup_s);
        for machine in &group.machines {
            match machine.node {
                Some((name, entry)) => {
                    let member = Member { pool, leaving: machine.leaving, starts_until: until(entry) };
                    members.nodes.insert(name, member);
                }
                None if is_sized && !machine.leaving && machine.trouble_at(now, &group.timing).is_none() => {
                    let created = machine.entry.created;
                    members.coming.push(StartingMachine { pool, name: machine.name.to_owned(), created });
                }
                None => {}
            }
        }
        for &(name, entry) in &group.loose {
            members.nodes.insert(name, Member { pool, leaving: false, starts_until: until(entry) });
        }
        let stalled = self.options.node_groups.held.get(&group.of).is_some_and(|held| held.stalled);
        if is_sized && !stalled {
            let lacking = (0..group.lacking()).map(|number| StartingMachine {
                pool,
                name: format!("{}-{:05}", group.of, number + 1),
                created: now,
            });
            members.coming.extend(lacking);
        }
    }

    /// Nodes of groups that are yet to come.
    pub(super) fn coming_nodes(&mut self, members: &Members<'_>) -> Vec<Node> {
        members.coming.iter().map(|coming| self.coming_node(coming)).collect()
    }

    fn coming_node(&mut self, coming: &StartingMachine) -> Node {
        let of = self.only_type(coming.pool).cloned();
        let of = of.expect("only groups whose size is known have nodes that are yet to come");
        let names = self.snapshot.names;
        let own: Vec<(String, String)> = {
            let pairs = of.labels.iter().filter_map(|(key, value)| Some((key, value.only_value()?)));
            pairs
                .map(|(key, value)| (self.snapshot.text(key).to_owned(), self.snapshot.text(value).to_owned()))
                .collect()
        };
        let own = own.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let labels: Labels = node_labels(&coming.name, own, &mut self.snapshot);
        let offering = &of.offerings[0];
        Node {
            name: coming.name.clone(),
            pool: Some(coming.pool),
            state: NodeState::Starting,
            schedulable: true,
            instance_type: labels.get(names.instance_type),
            zone: labels.get(names.zone),
            capacity_type: labels.get(names.capacity_type).map(|_| offering.capacity_type),
            labels,
            taints: self.snapshot.pools[coming.pool.index()].taints.clone(),
            price: Some(offering.price),
            capacity: of.capacity,
            allocatable: of.allocatable,
            created: coming.created,
            initialized: None,
            last_pod_event: None,
            drifted: None,
            do_not_disrupt: false,
            expiry: Expiry::Never,
            ends_in_time: false,
            ready: false,
            waits_for: None,
        }
    }

    /// The only type of a group's pool.
    pub(super) fn only_type(&self, pool: PoolId) -> Option<&InstanceType> {
        let id = self.snapshot.pools[pool.index()].types.first()?;
        Some(&self.snapshot.types[id.index()])
    }

    /// The phase of a group's node. A node that is not ready counts as starting until the time allowed for starting is
    /// over; so does a node whose devices are not reported yet.
    pub(super) fn state_of_member(&self, entry: &NodeEntry, member: Member) -> NodeState {
        if member.leaving || entry.leaving {
            return NodeState::Leaving;
        }
        let ephemeral = || entry.taints.iter().any(|taint| is_ephemeral(self.snapshot.text(taint.key)));
        let starting = self.snapshot.now < member.starts_until
            && (!entry.ready || ephemeral() || self.lacks_devices(&entry.allocatable, member.pool));
        if starting { NodeState::Starting } else { NodeState::Running }
    }

    fn lacks_devices(&self, allocatable: &Resources, pool: PoolId) -> bool {
        let of = self.only_type(pool).into_iter().flat_map(|of| of.allocatable.iter());
        let mut devices = of.filter(|(id, amount)| *amount > 0 && self.snapshot.resources.name(*id).contains('/'));
        devices.any(|(id, _)| allocatable.get(id) == 0)
    }

    /// How many more nodes groups may get, now that all nodes are known: the planner counts nodes that are being
    /// removed as well.
    pub(super) fn limit_groups(&mut self, members: &Members<'_>) {
        for &(pool, room) in &members.room {
            let there = self.snapshot.nodes.iter().filter(|node| node.pool == Some(pool)).count() as u64;
            self.snapshot.pools[pool.index()].limits.nodes = Some(there + room);
        }
    }
}
