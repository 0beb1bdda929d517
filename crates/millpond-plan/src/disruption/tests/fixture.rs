//! Small clusters, written down quickly.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{
    Budget, CPU, CapacityType, ClassId, Disruption, DisruptionReason, Expiry, InstanceType, Labels, MEMORY, Node,
    NodeId, NodeState, Nodes, Offering, PODS, Pod, PodClass, PodDisruptionBudget, PodId, PodState, Pool, PoolId,
    Resources, Schedule, Seconds, Snapshot, TypeId,
};
use crate::plan::{Plan, Target};
use crate::requirement::{Requirement, Requirements};
use crate::symbol::Symbol;

/// 2 March 2026, a Monday, 12:00 UTC.
pub(crate) const NOON: Seconds = 1_772_452_800;
pub(crate) const GIB: i64 = 1 << 30;
pub(crate) const DOLLAR: u64 = 1_000_000_000;

/// A cluster that is being written down.
pub(crate) struct Cluster {
    pub(crate) snapshot: Snapshot,
    pub(crate) namespace: Symbol,
}

impl Cluster {
    /// One pool, `general`, of no types, with consolidation at once and without budgets or expiry.
    pub(crate) fn new() -> Self {
        let mut snapshot = Snapshot::new(NOON);
        let namespace = snapshot.symbols.intern("default");
        let mut cluster = Self { snapshot, namespace };
        cluster.pool("general");
        cluster
    }

    pub(crate) fn pool(&mut self, name: &str) -> PoolId {
        let disruption = Disruption { expire_after: None, budgets: Vec::new(), ..Disruption::default() };
        self.snapshot.add_pool(Pool { disruption, ..Pool::new(name) })
    }

    pub(crate) fn first_pool(&mut self) -> &mut Pool {
        &mut self.snapshot.pools[0]
    }

    /// A type of all pools: cores, GiB, and its price in thousandths of a dollar in zones a, b, c, on demand.
    pub(crate) fn instance_type(&mut self, name: &str, cores: i64, gib: i64, price_milli: u64) -> TypeId {
        self.type_with(name, cores, gib, &[("on-demand", price_milli)])
    }

    pub(crate) fn type_with(&mut self, name: &str, cores: i64, gib: i64, prices: &[(&str, u64)]) -> TypeId {
        let names = self.snapshot.names;
        let symbols = &mut self.snapshot.symbols;
        let name = symbols.intern(name);
        let zones = ["a", "b", "c"].map(|zone| symbols.intern(zone));
        let kinds: Vec<Symbol> = prices.iter().map(|(kind, _)| symbols.intern(kind)).collect();
        let mut labels = Requirements::new();
        for (key, values) in [(names.instance_type, &[name][..]), (names.zone, &zones), (names.capacity_type, &kinds)] {
            labels.add(key, Requirement::one_of(values.iter().copied()), symbols);
        }
        let capacity: Resources = [(CPU, cores * 1000), (MEMORY, gib * GIB), (PODS, 110)].into_iter().collect();
        let offerings = zones.iter().flat_map(|zone| {
            prices.iter().map(|(kind, price)| Offering {
                zone: *zone,
                capacity_type: CapacityType::from_name(kind).unwrap(),
                price: price * DOLLAR / 1000,
                available: true,
                left: None,
            })
        });
        let instance_type = InstanceType {
            name,
            allocatable: capacity.clone(),
            capacity,
            labels: labels.into(),
            offerings: offerings.collect(),
            priority: 0,
        };
        self.snapshot.types.push(instance_type);
        let id = TypeId::from(self.snapshot.types.len() - 1);
        for pool in &mut self.snapshot.pools {
            pool.types.push(id);
        }
        id
    }

    /// A running node of a type, a day old, quiet for an hour.
    pub(crate) fn node(&mut self, pool: PoolId, of: TypeId, zone: &str) -> NodeId {
        self.node_bought(pool, of, zone, CapacityType::OnDemand)
    }

    pub(crate) fn node_bought(&mut self, pool: PoolId, of: TypeId, zone: &str, kind: CapacityType) -> NodeId {
        let names = self.snapshot.names;
        let name = format!("node-{:03}", self.snapshot.nodes.len());
        let symbols = &mut self.snapshot.symbols;
        let zone = symbols.intern(zone);
        let instance = &self.snapshot.types[of.index()];
        let offering = instance.offerings.iter().find(|one| one.zone == zone && one.capacity_type == kind).unwrap();
        let labels: Labels = [
            (names.hostname, symbols.intern(&name)),
            (names.zone, zone),
            (names.instance_type, instance.name),
            (names.capacity_type, symbols.intern(kind.name())),
            (names.pool, symbols.intern(&self.snapshot.pools[pool.index()].name)),
        ]
        .into_iter()
        .collect();
        self.snapshot.nodes.push(Node {
            name,
            pool: Some(pool),
            state: NodeState::Running,
            schedulable: true,
            labels,
            taints: Vec::new(),
            capacity: instance.capacity.clone(),
            allocatable: instance.allocatable.clone(),
            instance_type: Some(instance.name),
            zone: Some(zone),
            capacity_type: Some(kind),
            price: Some(offering.price),
            created: NOON - 86_400,
            initialized: Some(NOON - 86_300),
            last_pod_event: Some(NOON - 3_600),
            drifted: None,
            do_not_disrupt: false,
            expiry: Expiry::default(),
            ends_in_time: false,
            ready: true,
            waits_for: None,
        });
        NodeId::from(self.snapshot.nodes.len() - 1)
    }

    /// A class of pods: label `app`, thousandths of a core, MiB.
    pub(crate) fn class(&mut self, app: &str, milli: i64, mib: i64) -> ClassId {
        let symbols = &mut self.snapshot.symbols;
        let labels = [(symbols.intern("app"), symbols.intern(app))].into_iter().collect();
        let requests = [(CPU, milli), (MEMORY, mib << 20), (PODS, 1)].into_iter().collect();
        self.snapshot.classes.push(PodClass { labels, requests, ..PodClass::new(self.namespace) });
        ClassId::from(self.snapshot.classes.len() - 1)
    }

    pub(crate) fn class_mut(&mut self, class: ClassId) -> &mut PodClass {
        &mut self.snapshot.classes[class.index()]
    }

    /// A pod that runs on a node, started half an hour ago.
    pub(crate) fn pod(&mut self, class: ClassId, node: NodeId) -> PodId {
        let started = Some(NOON - 1_800);
        self.pod_in(class, Some(node), PodState::Bound, started)
    }

    pub(crate) fn pods(&mut self, class: ClassId, node: NodeId, count: usize) {
        for _ in 0..count {
            self.pod(class, node);
        }
    }

    pub(crate) fn pod_in(
        &mut self,
        class: ClassId,
        node: Option<NodeId>,
        state: PodState,
        started: Option<Seconds>,
    ) -> PodId {
        let name = format!("pod-{:03}", self.snapshot.pods.len()).into();
        self.snapshot.pods.push(Pod { name, class, node, state, created: NOON - 2_000, started });
        PodId::from(self.snapshot.pods.len() - 1)
    }

    /// A PodDisruptionBudget for pods of a label `app`.
    pub(crate) fn disruption_budget(&mut self, name: &str, app: &str, allowed: u32) {
        let selector = self.selector(app);
        self.snapshot.disruption_budgets.push(PodDisruptionBudget {
            name: format!("default/{name}"),
            namespace: self.namespace,
            selector: Some(selector),
            allowed,
            unhealthy_always: false,
        });
    }

    pub(crate) fn selector(&mut self, app: &str) -> Requirements {
        let symbols = &mut self.snapshot.symbols;
        let (key, value) = (symbols.intern("app"), symbols.intern(app));
        Requirements::of_labels([(key, value)])
    }
}

pub(crate) fn count(nodes: u64) -> Budget {
    Budget { nodes: Nodes::Count(nodes), schedule: None, reasons: Vec::new() }
}

pub(crate) fn percent(percent: u8) -> Budget {
    Budget { nodes: Nodes::Percent(percent), ..count(0) }
}

pub(crate) fn for_reasons(budget: Budget, reasons: &[DisruptionReason]) -> Budget {
    Budget { reasons: reasons.to_vec(), ..budget }
}

pub(crate) fn at(budget: Budget, cron: &str, duration: Seconds) -> Budget {
    let schedule = Schedule { cron: cron.to_owned(), time_zone: None, duration };
    Budget { schedule: Some(schedule), ..budget }
}

/// The cluster after a plan was carried out.
pub(crate) fn carried_out(snapshot: &Snapshot, plan: &Plan) -> Snapshot {
    let mut after = snapshot.clone();
    let gone: BTreeSet<NodeId> = plan.removals.iter().flat_map(|removal| removal.nodes.iter().copied()).collect();
    let stays = |id: NodeId| !gone.contains(&id) && snapshot.nodes[id.index()].state != NodeState::Leaving;
    let mut renumbered = vec![None; snapshot.nodes.len()];
    after.nodes.clear();
    for (index, node) in snapshot.nodes.iter().enumerate() {
        if stays(NodeId::from(index)) {
            renumbered[index] = Some(NodeId::from(after.nodes.len()));
            after.nodes.push(node.clone());
        }
    }
    let first_new = after.nodes.len();
    for (index, new) in plan.new_nodes.iter().enumerate() {
        let offering = &mut after.types[new.instance_type.index()].offerings[new.offering as usize];
        offering.left = offering.left.map(|left| left - 1);
        let name = format!("new-{index:03}-{}", snapshot.now);
        let kind = &snapshot.types[new.instance_type.index()];
        let offering = &kind.offerings[new.offering as usize];
        let hostname = after.symbols.intern(&name);
        after.nodes.push(Node {
            labels: new.labels.with([(snapshot.names.hostname, hostname)]),
            name,
            pool: Some(new.pool),
            state: NodeState::Running,
            schedulable: true,
            taints: snapshot.pools[new.pool.index()].taints.clone(),
            capacity: kind.capacity.clone(),
            allocatable: kind.allocatable.clone(),
            instance_type: Some(kind.name),
            zone: Some(offering.zone),
            capacity_type: Some(offering.capacity_type),
            price: Some(new.price),
            created: snapshot.now,
            initialized: Some(snapshot.now),
            last_pod_event: Some(snapshot.now),
            drifted: None,
            do_not_disrupt: false,
            expiry: Expiry::default(),
            ends_in_time: false,
            ready: true,
            waits_for: None,
        });
    }
    let places: BTreeMap<PodId, Target> = plan.placements.iter().copied().collect();
    let pods = snapshot.pods.iter().enumerate().filter_map(|(index, pod)| {
        let mut pod = pod.clone();
        // Buffers wait on.
        if let Some(target) =
            places.get(&PodId::from(index)).filter(|_| !snapshot.classes[pod.class.index()].is_buffer())
        {
            pod.state = PodState::Bound;
            pod.node = Some(match target {
                Target::Existing(node) => renumbered[node.index()].expect("pods go to nodes that stay"),
                Target::New(new) => NodeId::from(first_new + *new as usize),
            });
        } else if let Some(node) = pod.node {
            // What went with its node is gone.
            pod.node = Some(renumbered[node.index()]?);
        }
        Some(pod)
    });
    after.pods = pods.collect();
    after
}
