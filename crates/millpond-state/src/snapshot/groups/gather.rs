//! Groups with their machines and nodes, put together from what the index holds.

use std::collections::{BTreeMap, HashMap, HashSet};

use millpond_api::amounts::Amounts;
use millpond_api::capi::{Bootstrap, NodeGroup, NodeOffer, Problems, Sources, names};
use millpond_plan::model::{Resources, Seconds};
use serde_json::Value;

use super::size;
use crate::groups::{GroupKind, GroupRef, NodeGroups, Remembered, Timing, Trouble, TroubleKind};
use crate::lower::node::NodeEntry;
use crate::state::{GroupEntry, MachineEntry, State};

/// A group of machines as it is now.
#[derive(Debug, Clone)]
pub struct Group<'s> {
    /// Which.
    pub of: GroupRef,
    /// Its bounds and scaling settings; `None` if it is not scaled.
    pub scaled: Option<NodeGroup>,
    /// Why it is not scaled though it says that it is to be.
    pub problem: Option<String>,
    /// Probable mistakes.
    pub warnings: Vec<String>,
    /// Machines that it should have.
    pub replicas: u64,
    /// Its machines, by name.
    pub machines: Vec<GroupMachine<'s>>,
    /// Nodes of it without a known machine.
    pub(crate) loose: Vec<(&'s str, &'s NodeEntry)>,
    /// When its nodes go, and how long they may take to come.
    pub timing: Timing,
    /// What its nodes offer, by annotations and templates.
    pub(super) offer: NodeOffer,
    pub(crate) entry: &'s GroupEntry,
    pub(super) bootstrap: Option<&'s Value>,
    paused: bool,
}

/// A machine of a group.
#[derive(Debug, Clone, Copy)]
pub struct GroupMachine<'s> {
    /// Its name.
    pub name: &'s str,
    /// It is being deleted, or is surplus and will be deleted.
    pub leaving: bool,
    /// Name and state of its node.
    pub(crate) node: Option<(&'s str, &'s NodeEntry)>,
    pub(crate) entry: &'s MachineEntry,
}

impl<'s> GroupMachine<'s> {
    /// The name of its node, if the node exists.
    pub fn node_name(&self) -> Option<&'s str> {
        self.node.map(|(name, _)| name)
    }

    /// Whether it is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.entry.leaving
    }

    /// Whether it is marked to be deleted first when the group is scaled down.
    pub fn is_marked(&self) -> bool {
        self.entry.marked
    }

    /// Why it does not become a node, if so.
    pub fn trouble_at(&self, now: Seconds, timing: &Timing) -> Option<Trouble> {
        if self.node.is_some() {
            return None;
        }
        let late = self.entry.created > 0 && now.saturating_sub(self.entry.created) >= timing.provision_s;
        let late = late.then(|| Trouble {
            kind: TroubleKind::Late,
            message: format!("it was no node {} s after it was made", timing.provision_s),
        });
        self.entry.trouble.clone().or(late)
    }
}

impl<'s> Group<'s> {
    /// Machines that it should have and that do not exist yet.
    pub fn lacking(&self) -> u64 {
        let live = self.machines.iter().filter(|machine| !machine.entry.leaving).count();
        self.replicas.saturating_sub((live + self.loose.len()) as u64)
    }

    /// All its nodes.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&'s str, &'s NodeEntry)> + '_ {
        self.machines.iter().filter_map(|machine| machine.node).chain(self.loose.iter().copied())
    }

    /// Why it is not scaled for now, if so.
    pub fn resting(&self) -> Option<&'static str> {
        match () {
            () if self.entry.metadata.is_deleting() => Some("it is being deleted"),
            () if self.paused => Some("it is paused"),
            () => None,
        }
    }

    /// Whether it is being rolled out: its machines belong to several sets.
    pub fn is_rolling(&self) -> bool {
        let mut sets = self.machines.iter().filter(|machine| !machine.entry.leaving).map(|machine| &machine.entry.set);
        let first = sets.next();
        sets.any(|set| Some(set) != first)
    }

    /// What to store about its nodes because no object declares it; `None` if that is stored already, or nearly so.
    pub fn worth_remembering(&self, state: &State) -> Option<Remembered> {
        if self.offer.is_sized() || self.scaled.is_none() {
            return None;
        }
        let node = size::newest(self)?;
        let amounts = |resources: &Resources| {
            let named = resources.iter().map(|(id, amount)| (state.tables.resources.name(id).to_owned(), amount));
            Amounts(named.filter(|(_, amount)| *amount > 0).collect())
        };
        let seen = Remembered {
            capacity: amounts(&node.capacity),
            allocatable: amounts(&node.allocatable),
            labels: size::common_labels(self, &state.tables),
        };
        let known = size::remembered(self);
        known.is_none_or(|known| !is_alike(&known, &seen)).then_some(seen)
    }
}

/// Memory of machines alike differs a little, by what each kernel keeps.
fn is_alike(one: &Remembered, other: &Remembered) -> bool {
    let same = |one: &Amounts, other: &Amounts| {
        one.0.len() == other.0.len()
            && one.iter().all(|(name, amount)| {
                let other = other.get(name).unwrap_or(0);
                amount == other
                    || name.len() > 3 && !name.contains('/') && amount.abs_diff(other) <= amount.unsigned_abs() / 50
            })
    };
    same(&one.capacity, &other.capacity) && same(&one.allocatable, &other.allocatable) && one.labels == other.labels
}

/// All groups, by kind, namespace and name.
pub(crate) fn gather<'s>(state: &'s State, options: &NodeGroups) -> Vec<Group<'s>> {
    let api = &state.cluster_api;
    let mut machines = machines(state);
    let mut loose = loose(state, &machines);
    let own = api.groups.iter().filter(|(of, entry)| of.kind != GroupKind::MachineSet || entry.owner.is_none());
    let groups = own.map(|(of, entry)| {
        let machines = machines.remove(of).unwrap_or_default();
        Group { loose: loose.remove(of).unwrap_or_default(), ..Group::new(state, options, of, entry, machines) }
    });
    groups.collect()
}

impl<'s> Group<'s> {
    fn new(
        state: &'s State,
        options: &NodeGroups,
        of: &GroupRef,
        entry: &'s GroupEntry,
        mut machines: Vec<GroupMachine<'s>>,
    ) -> Self {
        let (api, deployment, metadata) = (&state.cluster_api, &entry.deployment, &entry.metadata);
        let template = &deployment.template;
        let bootstrap = match &template.bootstrap {
            Bootstrap::Config(config) => api.config_template(&of.namespace, config),
            _ => None,
        };
        let infrastructure = template.infrastructure.as_ref();
        let sources = Sources {
            annotations: &metadata.annotations,
            template,
            infrastructure: infrastructure.and_then(|reference| api.machine_template(&of.namespace, reference)),
            bootstrap,
        };
        let cluster =
            if deployment.cluster_name.is_empty() { &template.cluster_name } else { &deployment.cluster_name };
        let found = options.finds(&of.namespace, cluster, &metadata.labels);
        let (mut scaled, mut problem) = (None, None);
        match NodeGroup::of(&sources) {
            Ok(group) => scaled = group.filter(|_| found),
            Err(problems) => problem = problems.first().filter(|_| found).map(ToString::to_string),
        }
        let mut warnings = scaled.as_ref().map(|group| group.warnings.clone()).unwrap_or_default();
        let offer = scaled.as_ref().map(|group| group.offer.clone());
        let offer = offer.unwrap_or_else(|| NodeOffer::read(&sources, &Problems::new()));
        if scaled.is_none() && found {
            // If only one bound is set, or both are invalid, the group itself reports it.
            let problems = Problems::new();
            millpond_api::capi::node_group::misspelt(&metadata.annotations, &problems);
            let _ = millpond_api::capi::node_group::bounds(&metadata.annotations, &problems);
            warnings = problems.into_inner();
        }
        let least = scaled.as_ref().map_or(1, |group| group.min);
        let replicas = u64::try_from(deployment.replicas.unwrap_or(least)).unwrap_or(0);
        mark_leaving(&mut machines, replicas);
        Self {
            of: of.clone(),
            timing: scaled.as_ref().map(|group| Timing::of(&group.options)).unwrap_or_default(),
            scaled,
            problem,
            warnings: warnings.iter().map(ToString::to_string).collect(),
            replicas,
            machines,
            loose: Vec::new(),
            offer,
            bootstrap,
            paused: deployment.paused
                || metadata.annotations.contains_key(names::PAUSED)
                || api.is_paused(&of.namespace, cluster),
            entry,
        }
    }
}

/// The machines of every group, each with its node.
fn machines(state: &State) -> BTreeMap<GroupRef, Vec<GroupMachine<'_>>> {
    let mut by_provider: HashMap<&str, &str> = HashMap::new();
    let mut by_machine: HashMap<(&str, &str), &str> = HashMap::new();
    for (name, entry) in &state.nodes {
        if !entry.provider_id.is_empty() {
            by_provider.insert(&entry.provider_id, name);
        }
        if let Some((namespace, machine)) = &entry.machine {
            by_machine.insert((namespace, machine), name);
        }
    }
    let mut all: BTreeMap<GroupRef, Vec<GroupMachine<'_>>> = BTreeMap::new();
    for (namespace, named) in &state.cluster_api.machines {
        for (name, entry) in named {
            let Some(of) = state.cluster_api.group_of(namespace, entry) else { continue };
            let by_provider = || entry.provider_id.as_deref().and_then(|id| by_provider.get(id).copied());
            let node = entry.node.as_deref().or_else(by_provider);
            let node = node.or_else(|| by_machine.get(&(&**namespace, &**name)).copied());
            let node = node.and_then(|node| state.nodes.get_key_value(node)).map(|(name, entry)| (&**name, entry));
            let machine = GroupMachine { name, leaving: entry.leaving, node, entry };
            all.entry(of).or_default().push(machine);
        }
    }
    all
}

/// Nodes that belong to a group by a MachinePool or by their labels, but to no known machine.
fn loose<'s>(
    state: &'s State,
    machines: &BTreeMap<GroupRef, Vec<GroupMachine<'s>>>,
) -> BTreeMap<GroupRef, Vec<(&'s str, &'s NodeEntry)>> {
    let of_machines = machines.values().flatten().filter_map(GroupMachine::node_name);
    let mut taken: HashSet<&str> = of_machines.collect();
    let mut all: BTreeMap<GroupRef, Vec<(&str, &NodeEntry)>> = BTreeMap::new();
    let mut named: HashMap<&str, Option<&GroupRef>> = HashMap::new();
    for (of, entry) in &state.cluster_api.groups {
        for (name, node) in entry.nodes.iter().filter_map(|name| state.nodes.get_key_value(name)) {
            if taken.insert(name) {
                all.entry(of.clone()).or_default().push((name, node));
            }
        }
        if of.kind == GroupKind::MachineDeployment {
            named.entry(&of.name).and_modify(|known| *known = None).or_insert(Some(of));
        }
    }
    let keys = [names::DEPLOYMENT_NAME, names::TOPOLOGY_DEPLOYMENT].map(|key| state.tables.symbols.find(key));
    for (name, node) in state.nodes.iter().filter(|(name, _)| !taken.contains(&***name)) {
        let mut values = keys.iter().flatten().filter_map(|key| node.labels.get(*key));
        let of = values.find_map(|value| named.get(state.tables.text(value)).copied().flatten());
        if let Some(of) = of {
            all.entry(of.clone()).or_default().push((name, node));
        }
    }
    all
}

/// Where there are more machines than wanted, those that are marked go.
fn mark_leaving(machines: &mut [GroupMachine<'_>], replicas: u64) {
    let live = machines.iter().filter(|machine| !machine.entry.leaving).count() as u64;
    let mut surplus = live.saturating_sub(replicas);
    for machine in machines.iter_mut().filter(|machine| !machine.entry.leaving && machine.entry.marked) {
        if surplus == 0 {
            return;
        }
        machine.leaving = true;
        surplus -= 1;
    }
}
