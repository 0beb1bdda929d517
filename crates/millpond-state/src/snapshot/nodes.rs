//! Nodes and their claims: their phase and their price.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use foldhash::fast::FixedState;
use millpond_api::amounts::Amounts;
use millpond_api::karpenter::conditions::{self, INSTANCE_TERMINATING};
use millpond_api::karpenter::{NodeClaim, UNREGISTERED_TAINT};
use millpond_api::labels;
use millpond_api::meta::true_condition;
use millpond_plan::model::{
    CapacityType, Drift, Expiry, InstanceType, Labels, Nanos, Node, NodeState, PoolId, Resources, Snapshot, TypeId,
};
use millpond_plan::symbol::Symbol;
use millpond_plan::taint::Taint;

use super::SnapshotBuilder;
use super::groups::Members;
use super::pools::Catalogs;
use crate::lower::node::{NodeEntry, is_ephemeral, node_labels};
use crate::lower::pod::effect;
use crate::state::State;

/// Reason of conditions that no controller has looked at yet.
const AWAITING: &str = "AwaitingReconciliation";
/// Labels that name the pool of a node in other dialects than Karpenter's.
const POOL_LABELS: [&str; 4] = [
    millpond_api::scaling_advisor::POOL_LABEL,
    "worker.gardener.cloud/pool",
    "topology.cluster.x-k8s.io/deployment-name",
    "cluster.x-k8s.io/deployment-name",
];

/// Finds the claim of a node: the one with its provider id, else the one that names it.
struct ClaimsByNode<'s> {
    state: &'s State,
    /// By provider id, and by node name; computed on first use.
    indices: OnceCell<[HashMap<&'s str, &'s NodeClaim, FixedState>; 2]>,
}

impl<'s> ClaimsByNode<'s> {
    fn new(state: &'s State) -> Self {
        Self { state, indices: OnceCell::new() }
    }

    fn of(&self, node: &str, machine: &str) -> Option<&'s NodeClaim> {
        // Where providers name nodes after their claims, as most do, that is all.
        let same = self.state.claims.get(node);
        if same.is_some_and(|claim| !machine.is_empty() && claim.status.provider_id == machine) {
            return same;
        }
        let [by_machine, by_node] = self.indices.get_or_init(|| {
            let claims = self.state.claims.values();
            [
                claims.clone().map(|claim| (claim.status.provider_id.as_str(), claim)).collect(),
                claims.map(|claim| (claim.status.node_name.as_str(), claim)).collect(),
            ]
        });
        let of_machine = Some(machine).filter(|id| !id.is_empty()).and_then(|id| by_machine.get(id));
        of_machine.or_else(|| by_node.get(node)).copied()
    }
}

impl SnapshotBuilder<'_> {
    /// Adds all nodes, and claims and machines whose node has not registered, by name.
    pub(super) fn nodes(&mut self, catalogs: &Catalogs, members: &Members<'_>) {
        let state = self.state;
        let claims = ClaimsByNode::new(state);
        // Most nodes have a claim, and most claims a node.
        let mut nodes: Vec<Node> = Vec::with_capacity(state.nodes.len().max(state.claims.len()));
        let mut with_node: HashSet<&str, FixedState> = HashSet::default();
        let launching = state.claims.values().any(|claim| claim.status.provider_id.is_empty());
        for (name, entry) in &state.nodes {
            let claim = claims.of(name, &entry.provider_id);
            if claim.is_none() && launching && self.is_unregistered(entry) {
                // Sooner than the claim that it is of knows its machine: counted with that claim, not twice.
                continue;
            }
            with_node.extend(claim.map(|claim| claim.metadata.name.as_str()));
            nodes.push(self.node(name, entry, claim, catalogs, members));
        }
        for (name, claim) in &state.claims {
            if !with_node.contains(&**name) {
                nodes.push(self.claimed(claim, catalogs));
            }
        }
        nodes.extend(self.coming_nodes(members));
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        self.snapshot.nodes = nodes;
    }

    fn node(
        &mut self,
        name: &str,
        entry: &NodeEntry,
        claim: Option<&NodeClaim>,
        catalogs: &Catalogs,
        members: &Members<'_>,
    ) -> Node {
        let member = members.of(name).filter(|_| claim.is_none());
        let pool = member.map(|member| member.pool).or_else(|| self.pool_of(&entry.labels));
        let state = match member {
            Some(member) => self.state_of_member(entry, member),
            None => self.state_of(entry, claim, pool),
        };
        let starting = state == NodeState::Starting;
        let taints = entry.taints.iter().filter(|taint| !starting || !self.is_startup(taint, claim, pool));
        let taints = taints.copied().collect();
        let mut node = self.described(name, entry.labels.clone(), pool, catalogs);
        node.state = state;
        node.schedulable = entry.schedulable;
        node.taints = taints;
        let of = match member {
            Some(member) => self.only_type(member.pool),
            None => self.find_type(node.instance_type, node.pool, catalogs).filter(|_| starting),
        };
        if member.is_some() {
            node.price = of.and_then(|of| of.offerings.first()).map(|offering| offering.price);
        }
        let of = of.filter(|_| starting).map(|of| (of.capacity.clone(), of.allocatable.clone()));
        let (capacity, allocatable) = of.unzip();
        let known = |report: &Resources, promise: Option<&Amounts>, of: Option<&Resources>, snapshot: &mut Snapshot| {
            // A node that has just come reports nothing yet, or not yet its devices.
            let mut all = match promise.filter(|_| starting) {
                Some(promise) => promised(promise, of, snapshot),
                None if starting => of.cloned().unwrap_or_default(),
                None => Resources::new(),
            };
            for (resource, amount) in report.iter() {
                all.set(resource, amount);
            }
            all
        };
        let (promised, left) = claim.map(|claim| (&claim.status.capacity, &claim.status.allocatable)).unzip();
        node.capacity = known(&entry.capacity, promised, capacity.as_ref(), &mut self.snapshot);
        node.allocatable = known(&entry.allocatable, left, allocatable.as_ref(), &mut self.snapshot);
        node.created = entry.created;
        node.ready = entry.ready;
        node.do_not_disrupt |= entry.do_not_disrupt;
        let initialized = claim.and_then(|claim| true_condition(&claim.status.conditions, "Initialized"));
        let since = initialized.and_then(|condition| condition.last_transition_time).map(|time| time.0);
        // A node whose machine is being terminated is drained: it no longer counts as a node of the pool and uses no
        // budget.
        let over = claim.is_some_and(|claim| true_condition(&claim.status.conditions, INSTANCE_TERMINATING).is_some());
        node.initialized = (!starting && !over).then(|| since.or(entry.ready_since).unwrap_or(entry.created));
        if let Some(claim) = claim {
            add_claim(claim, &mut node);
        }
        node
    }

    /// The node of a claim that has not registered, with what the claim tells about it.
    fn claimed(&mut self, claim: &NodeClaim, catalogs: &Catalogs) -> Node {
        let mut known: Vec<(String, String)> = Vec::new();
        // Of the values that are open until the launch, the first is the planned and most likely one.
        let planned = [labels::INSTANCE_TYPE, labels::ZONE, labels::CAPACITY_TYPE];
        for requirement in &claim.spec.requirements {
            let values = requirement.values.as_slice();
            if let [value, others @ ..] = values
                && requirement.operator == millpond_api::selector::Operator::In
                && (others.is_empty() || planned.contains(&requirement.key.as_str()))
            {
                known.push((requirement.key.clone(), value.clone()));
            }
        }
        let own = claim.metadata.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let all = known.iter().map(|(key, value)| (key.as_str(), value.as_str())).chain(own);
        let name = &claim.metadata.name;
        let labels = node_labels(name, all, &mut self.snapshot);
        let pool = self.pool_of(&labels);
        let mut node = self.described(name, labels, pool, catalogs);
        let leaving = claim.metadata.deletion_timestamp.is_some();
        node.state = if leaving { NodeState::Leaving } else { NodeState::Starting };
        let symbols = &mut self.snapshot.symbols;
        let taints = claim.spec.taints.iter().map(|taint| Taint {
            key: symbols.intern(&taint.key),
            value: symbols.intern(&taint.value),
            effect: effect(taint.effect),
        });
        node.taints = taints.collect();
        let of = self.find_type(node.instance_type, node.pool, catalogs);
        let (capacity, allocatable) = of.map(|of| (of.capacity.clone(), of.allocatable.clone())).unzip();
        node.capacity = promised(&claim.status.capacity, capacity.as_ref(), &mut self.snapshot);
        node.allocatable = promised(&claim.status.allocatable, allocatable.as_ref(), &mut self.snapshot);
        node.created = claim.metadata.creation_timestamp.map_or(0, |time| time.0);
        add_claim(claim, &mut node);
        node
    }

    /// A node by its labels: type, zone, how it was bought and what it costs.
    fn described(&self, name: &str, labels: Labels, pool: Option<PoolId>, catalogs: &Catalogs) -> Node {
        let names = self.snapshot.names;
        let bought = labels.get(names.capacity_type).map(|value| self.snapshot.text(value));
        let mut node = Node {
            name: name.to_owned(),
            pool,
            state: NodeState::Running,
            schedulable: true,
            instance_type: labels.get(names.instance_type),
            zone: labels.get(names.zone),
            capacity_type: bought.and_then(CapacityType::from_name),
            labels,
            taints: Vec::new(),
            capacity: Resources::new(),
            allocatable: Resources::new(),
            price: None,
            created: 0,
            initialized: None,
            last_pod_event: None,
            drifted: None,
            do_not_disrupt: false,
            expiry: Expiry::default(),
            ends_in_time: false,
            ready: false,
            waits_for: None,
        };
        node.price = self.price(&node, catalogs);
        node
    }

    fn pool_of(&self, labels: &Labels) -> Option<PoolId> {
        let value = |key: Option<Symbol>| labels.get(key?).map(|value| self.snapshot.text(value));
        let others = POOL_LABELS.iter().map(|key| value(self.snapshot.symbols.find(key)));
        let names = std::iter::once(value(Some(self.snapshot.names.pool))).chain(others);
        names.flatten().find_map(|name| self.snapshot.find_pool(name))
    }

    fn state_of(&self, entry: &NodeEntry, claim: Option<&NodeClaim>, pool: Option<PoolId>) -> NodeState {
        let leaving = entry.leaving || claim.is_some_and(|claim| claim.metadata.deletion_timestamp.is_some());
        if leaving {
            return NodeState::Leaving;
        }
        let starting = match claim {
            Some(claim) => true_condition(&claim.status.conditions, "Initialized").is_none() && !entry.initialized,
            // Without its claim, a node of a pool starts as long as it has taints of the start.
            None => {
                let startup = entry.taints.iter().any(|taint| self.is_startup(taint, None, pool));
                pool.is_some() && !entry.initialized && startup
            }
        };
        if starting { NodeState::Starting } else { NodeState::Running }
    }

    /// Whether the node is not assigned to a pool yet.
    fn is_unregistered(&self, entry: &NodeEntry) -> bool {
        entry.taints.iter().any(|taint| self.snapshot.text(taint.key) == UNREGISTERED_TAINT)
    }

    /// Whether a taint is temporary: it goes away, or is removed, when the node is ready.
    fn is_startup(&self, taint: &Taint, claim: Option<&NodeClaim>, pool: Option<PoolId>) -> bool {
        let key = self.snapshot.text(taint.key);
        let same = |key: &str, other: &str, of: millpond_api::karpenter::TaintEffect| {
            key == other && effect(of) == taint.effect
        };
        let of_claim = claim.iter().flat_map(|claim| &claim.spec.startup_taints);
        let of_pool = pool.iter().flat_map(|pool| &self.snapshot.pools[pool.index()].startup_taints);
        is_ephemeral(key)
            || of_claim.into_iter().any(|startup| same(key, &startup.key, startup.effect))
            || of_pool.into_iter().any(|startup| startup.key == taint.key && startup.effect == taint.effect)
    }

    /// The type of that name, of the node's pool or else of any.
    fn find_type(&self, name: Option<Symbol>, pool: Option<PoolId>, catalogs: &Catalogs) -> Option<&InstanceType> {
        let of_pool = pool.map(|pool| &self.snapshot.pools[pool.index()].types);
        let fits = |id: &TypeId| of_pool.is_none_or(|types| types.binary_search(id).is_ok());
        catalogs.named(name?).find(fits).map(|id| &self.snapshot.types[id.index()])
    }

    /// The price of a node: its type's offering in its zone; on-demand if no capacity type is given.
    fn price(&self, node: &Node, catalogs: &Catalogs) -> Option<Nanos> {
        let of = self.find_type(node.instance_type, node.pool, catalogs)?;
        let bought = node.capacity_type.unwrap_or(CapacityType::OnDemand);
        let offerings = of.offerings.iter().filter(|offering| offering.capacity_type == bought);
        let here = offerings.clone().find(|offering| Some(offering.zone) == node.zone);
        // A zone that the catalogue does not know: prices of zones hardly differ.
        here.or_else(|| offerings.min_by_key(|offering| offering.price)).map(|offering| offering.price)
    }
}

/// The resources that a node will have: those of its claim, and the extended resources that an overlay adds to its
/// type. Without resources in the claim, those of its type.
fn promised(promise: &Amounts, of: Option<&Resources>, snapshot: &mut Snapshot) -> Resources {
    if promise.is_empty() {
        return of.cloned().unwrap_or_default();
    }
    let mut all = resources(promise, snapshot);
    for (resource, amount) in of.iter().flat_map(|of| of.iter()) {
        let name = snapshot.resources.name(resource);
        if promise.get(name).is_none() && name.contains('/') {
            all.set(resource, amount);
        }
    }
    all
}

fn resources(amounts: &Amounts, snapshot: &mut Snapshot) -> Resources {
    amounts.iter().map(|(name, amount)| (snapshot.resources.intern(name), amount)).collect()
}

/// What a claim whose node is starting waits for: the first step that is not done, in its controller's words.
fn waits_for(claim: &NodeClaim) -> Option<String> {
    let steps = [conditions::LAUNCHED, conditions::REGISTERED, conditions::INITIALIZED];
    let kind = steps.into_iter().find(|kind| true_condition(&claim.status.conditions, kind).is_none())?;
    let condition = claim.status.conditions.iter().find(|condition| condition.kind == kind);
    let said = condition.filter(|condition| !condition.message.is_empty() && condition.reason != AWAITING);
    Some(match (said, kind) {
        (Some(said), conditions::LAUNCHED) => format!("it is not launched: {}", said.message),
        (Some(said), _) => said.message.clone(),
        (None, conditions::LAUNCHED) => "its machine is not launched yet".to_owned(),
        (None, conditions::REGISTERED) => "its machine has not registered as a node yet".to_owned(),
        (None, _) => "it is not ready for pods yet".to_owned(),
    })
}

/// What only the claim knows.
fn add_claim(claim: &NodeClaim, node: &mut Node) {
    if node.state == NodeState::Starting {
        node.waits_for = waits_for(claim);
    }
    node.last_pod_event = claim.status.last_pod_event_time.map(|time| time.0);
    node.drifted = true_condition(&claim.status.conditions, "Drifted").map(|condition| {
        let words = [&condition.message, &condition.reason].into_iter().find(|text| !text.is_empty());
        let why = words.map_or_else(|| "Drifted".to_owned(), Clone::clone);
        Drift { why, since: condition.last_transition_time.map(|time| time.0) }
    });
    let made = claim.metadata.creation_timestamp.map_or(node.created, |time| time.0);
    node.expiry = match claim.spec.expire_after {
        None => Expiry::OfPool,
        Some(after) => after.seconds().map_or(Expiry::Never, |after| Expiry::At(made.saturating_add(after))),
    };
    node.ends_in_time = claim.spec.termination_grace_period.is_some();
    let annotations = &claim.metadata.annotations;
    node.do_not_disrupt |= annotations.get(millpond_api::karpenter::DO_NOT_DISRUPT).is_some_and(|it| it == "true");
}
