//! Clusters in a few words.
//!
//! ```
//! use millpond_plan::testing::Cluster;
//!
//! let snapshot = Cluster::new()
//!     .machine("small", "cpu=2 memory=4Gi", |machine| machine.zones("a b").price(50).spot(20))
//!     .pool("general", |pool| pool.requires("capacity in on-demand").limit("cpu=20"))
//!     .node("one", "small", |node| node.pool("general").zone("a"))
//!     .pods(3, "web", "cpu=500m", |pod| pod.spread("zone", 1))
//!     .pod("old", "cpu=1", |pod| pod.on("one"))
//!     .snapshot();
//! assert_eq!((snapshot.pods.len(), snapshot.classes.len()), (4, 2));
//! ```
//!
//! The texts are those of [`words`](super::words). Prices are thousandths of a dollar per hour. What is named must
//! be there already, and a mistake panics: this is for tests.

use std::collections::HashMap;

use super::words;
use crate::model::{
    AffinityTerm, CapacityType, ClassId, Consolidation, DoNotDisrupt, Drift, Expiry, HostPort, InclusionPolicy,
    InstanceType, Labels, Limits, Namespaces, Nanos, Node, NodeId, NodeState, Offering, PODS, Pod, PodClass,
    PodDisruptionBudget, PodKind, PodState, Pool, PoolId, Problem, Protocol, Resources, Seconds, Snapshot, Spread,
    TypeId,
};
use crate::requirement::{Requirement, Requirements};
use crate::symbol::Symbol;

/// 2027-01-15 08:00:00 UTC: when the snapshot of a [`Cluster`] is taken.
const NOW: Seconds = 1_800_000_000;
/// Nano-dollars in a thousandth of a dollar.
const MILLI_DOLLAR: Nanos = 1_000_000;

/// A cluster that is being described.
#[derive(Debug, Clone)]
pub struct Cluster {
    snapshot: Snapshot,
    classes: HashMap<PodClass, ClassId>,
    /// Pools that name no types: they have all of them.
    of_all_types: Vec<PoolId>,
}

impl Default for Cluster {
    fn default() -> Self {
        Self::new()
    }
}

impl Cluster {
    /// Nothing at all.
    pub fn new() -> Self {
        let mut snapshot = Snapshot::new(NOW);
        snapshot.revision = "test".to_owned();
        Self { snapshot, classes: HashMap::new(), of_all_types: Vec::new() }
    }

    /// An instance type: 110 pods, linux on amd64, on demand in zone `a` for one cent, by default.
    pub fn machine(
        mut self,
        name: &str,
        capacity: &str,
        describe: impl for<'a> FnOnce(Machine<'a>) -> Machine<'a>,
    ) -> Self {
        let mut capacity = words::resources(capacity, &mut self.snapshot.resources);
        if capacity.get(PODS) == 0 {
            capacity.set(PODS, 110);
        }
        let machine = Machine {
            snapshot: &mut self.snapshot,
            capacity,
            reserved: Resources::new(),
            labels: Requirements::new(),
            zones: vec!["a".to_owned()],
            prices: vec![(CapacityType::OnDemand, 10 * MILLI_DOLLAR, None)],
            out_of_stock: Vec::new(),
            more: Vec::new(),
        };
        let made = describe(machine).build(name);
        self.snapshot.types.push(made);
        self
    }

    /// A pool of all types, unless it names some.
    pub fn pool(mut self, name: &str, describe: impl for<'a> FnOnce(PoolSpec<'a>) -> PoolSpec<'a>) -> Self {
        let pool = Pool::new(name);
        let key = self.snapshot.names.pool;
        let value = self.snapshot.symbols.intern(name);
        let spec = describe(PoolSpec { snapshot: &mut self.snapshot, pool, all_types: true });
        let (mut pool, all_types) = (spec.pool, spec.all_types);
        pool.requirements.add(key, Requirement::is(value), &self.snapshot.symbols);
        if all_types {
            self.of_all_types.push(PoolId::from(self.snapshot.pools.len()));
        }
        self.snapshot.pools.push(pool);
        self
    }

    /// A running node of a machine, in its first zone and on demand where it can be, by default.
    pub fn node(
        mut self,
        name: &str,
        machine: &str,
        describe: impl for<'a> FnOnce(NodeSpec<'a>) -> NodeSpec<'a>,
    ) -> Self {
        let symbol = self.snapshot.symbols.intern(machine);
        let found = self.snapshot.types.iter().position(|known| known.name == symbol);
        let machine = TypeId::from(found.unwrap_or_else(|| panic!("no machine {machine:?}")));
        let spec = NodeSpec::new(&mut self.snapshot, name, machine);
        let node = describe(spec).build();
        self.snapshot.nodes.push(node);
        self
    }

    /// A pending pod of the label `app=NAME`, by default. The name may be `namespace/name`.
    pub fn pod(self, name: &str, requests: &str, describe: impl for<'a> FnOnce(PodSpec<'a>) -> PodSpec<'a>) -> Self {
        self.add_pods(None, name, requests, describe)
    }

    /// Equal pods, `NAME-0` and so on, of the label `app=NAME`.
    pub fn pods(
        self,
        count: usize,
        name: &str,
        requests: &str,
        describe: impl for<'a> FnOnce(PodSpec<'a>) -> PodSpec<'a>,
    ) -> Self {
        self.add_pods(Some(count), name, requests, describe)
    }

    fn add_pods(
        mut self,
        count: Option<usize>,
        name: &str,
        requests: &str,
        describe: impl for<'a> FnOnce(PodSpec<'a>) -> PodSpec<'a>,
    ) -> Self {
        let spec = describe(PodSpec::new(&mut self.snapshot, name, requests));
        let PodSpec { class, pod, .. } = spec;
        let class = self.class(class);
        for number in 0..count.unwrap_or(1) {
            let name = if count.is_some() { format!("{}-{number}", pod.name).into() } else { pod.name.clone() };
            self.snapshot.pods.push(Pod { name, class, ..pod.clone() });
        }
        self
    }

    /// A DaemonSet: its class, and no pod of it.
    pub fn daemon(
        mut self,
        name: &str,
        requests: &str,
        describe: impl for<'a> FnOnce(PodSpec<'a>) -> PodSpec<'a>,
    ) -> Self {
        let class = describe(PodSpec::new(&mut self.snapshot, name, requests).daemon()).class;
        let class = self.class(class);
        self.snapshot.daemons.push(class);
        self
    }

    /// The id of a class, new if need be.
    fn class(&mut self, class: PodClass) -> ClassId {
        *self.classes.entry(class).or_insert_with_key(|class| {
            self.snapshot.classes.push(class.clone());
            ClassId::from(self.snapshot.classes.len() - 1)
        })
    }

    /// A PodDisruptionBudget of the namespace `default` for the pods that a selector selects.
    pub fn budget(mut self, name: &str, selector: &str, allowed: u32) -> Self {
        let selector = words::requirements(selector, &mut self.snapshot.symbols);
        let namespace = self.snapshot.symbols.intern("default");
        self.snapshot.disruption_budgets.push(PodDisruptionBudget {
            name: format!("default/{name}"),
            namespace,
            selector: Some(selector),
            allowed,
            unhealthy_always: false,
        });
        self
    }

    /// Limits of all pools together, written as in [`PoolSpec::limit`].
    pub fn limit(mut self, text: &str) -> Self {
        let more = limits(text, &mut self.snapshot);
        self.snapshot.limits = merged(&self.snapshot.limits, more);
        self
    }

    /// Labels of a namespace.
    pub fn namespace(mut self, name: &str, labels: &str) -> Self {
        let labels = words::labels(labels, &mut self.snapshot.symbols);
        let name = self.snapshot.symbols.intern(name);
        self.snapshot.namespaces.insert(name, labels);
        self
    }

    /// Any other change.
    pub fn edit(mut self, change: impl FnOnce(&mut Snapshot)) -> Self {
        change(&mut self.snapshot);
        self
    }

    /// The snapshot.
    pub fn snapshot(mut self) -> Snapshot {
        let all: Vec<TypeId> = (0..self.snapshot.types.len()).map(TypeId::from).collect();
        for pool in self.of_all_types {
            self.snapshot.pools[pool.index()].types = all.clone();
        }
        self.snapshot
    }
}

/// `cpu=20 nodes=3 price=500`, the price in thousandths of a dollar.
fn limits(text: &str, snapshot: &mut Snapshot) -> Limits {
    let mut limits = Limits::default();
    for part in text.split_whitespace() {
        match part.split_once('=') {
            Some(("nodes", count)) => limits.nodes = Some(count.parse().expect("a number of nodes")),
            Some(("price", price)) => {
                limits.price = Some(price.parse::<Nanos>().expect("a price") * MILLI_DOLLAR);
            }
            _ => limits.resources.extend(words::resource_list(part, &mut snapshot.resources)),
        }
    }
    limits
}

fn merged(limits: &Limits, more: Limits) -> Limits {
    let resources = limits.resources.iter().copied().chain(more.resources).collect();
    Limits { resources, nodes: more.nodes.or(limits.nodes), price: more.price.or(limits.price) }
}

/// An instance type that is being described.
#[derive(Debug)]
pub struct Machine<'a> {
    snapshot: &'a mut Snapshot,
    capacity: Resources,
    reserved: Resources,
    labels: Requirements,
    zones: Vec<String>,
    prices: Vec<(CapacityType, Nanos, Option<u32>)>,
    out_of_stock: Vec<(String, CapacityType)>,
    more: Vec<Offering>,
}

impl Machine<'_> {
    /// The zones, separated by blanks.
    pub fn zones(mut self, zones: &str) -> Self {
        self.zones = zones.split_whitespace().map(str::to_owned).collect();
        self
    }

    /// The price on demand.
    pub fn price(self, milli_dollars: u64) -> Self {
        self.priced(CapacityType::OnDemand, milli_dollars, None)
    }

    /// The price of spot capacity, which there is none of without this.
    pub fn spot(self, milli_dollars: u64) -> Self {
        self.priced(CapacityType::Spot, milli_dollars, None)
    }

    /// The price of reserved capacity, and how many are left in each zone.
    pub fn reserved(self, milli_dollars: u64, left: u32) -> Self {
        self.priced(CapacityType::Reserved, milli_dollars, Some(left))
    }

    fn priced(mut self, capacity_type: CapacityType, milli_dollars: u64, left: Option<u32>) -> Self {
        self.prices.retain(|(known, _, _)| *known != capacity_type);
        self.prices.push((capacity_type, milli_dollars * MILLI_DOLLAR, left));
        self
    }

    /// No capacity on demand.
    pub fn not_on_demand(mut self) -> Self {
        self.prices.retain(|(capacity_type, _, _)| *capacity_type != CapacityType::OnDemand);
        self
    }

    /// One more offering.
    pub fn offering(mut self, zone: &str, capacity_type: CapacityType, milli_dollars: u64) -> Self {
        let zone = self.snapshot.symbols.intern(zone);
        let price = milli_dollars * MILLI_DOLLAR;
        self.more.push(Offering { zone, capacity_type, price, available: true, left: None });
        self
    }

    /// Nothing to be had in a zone.
    pub fn out_of_stock(mut self, zone: &str, capacity_type: CapacityType) -> Self {
        self.out_of_stock.push((zone.to_owned(), capacity_type));
        self
    }

    /// What the node keeps for itself.
    pub fn keeps(mut self, resources: &str) -> Self {
        let kept = words::resources(resources, &mut self.snapshot.resources);
        self.reserved.add(&kept);
        self
    }

    /// Labels, as requirements: `os in linux,windows` is chosen at launch.
    pub fn label(mut self, requirements: &str) -> Self {
        let more = words::requirements(requirements, &mut self.snapshot.symbols);
        self.labels.add_all(&more, &self.snapshot.symbols);
        self
    }

    fn build(self, name: &str) -> InstanceType {
        let Self { snapshot, capacity, reserved, mut labels, zones, prices, out_of_stock, more } = self;
        let names = snapshot.names;
        let symbols = &mut snapshot.symbols;
        let mut offerings = Vec::new();
        for text in &zones {
            let zone = symbols.intern(text);
            for &(capacity_type, price, left) in &prices {
                let available = !out_of_stock.iter().any(|(out, of)| out == text && *of == capacity_type);
                offerings.push(Offering { zone, capacity_type, price, available, left });
            }
        }
        offerings.extend(more);
        let name = symbols.intern(name);
        for (key, value) in [(names.os, "linux"), (names.arch, "amd64")] {
            if labels.get(key).is_none() {
                let value = symbols.intern(value);
                labels.add(key, Requirement::is(value), symbols);
            }
        }
        labels.add(names.instance_type, Requirement::is(name), symbols);
        labels.add(names.zone, Requirement::one_of(offerings.iter().map(|one| one.zone)), symbols);
        let bought: Vec<Symbol> = offerings.iter().map(|one| symbols.intern(one.capacity_type.name())).collect();
        labels.add(names.capacity_type, Requirement::one_of(bought), symbols);
        let mut allocatable = capacity.clone();
        allocatable.subtract(&reserved);
        InstanceType { name, capacity, allocatable, labels: labels.into(), offerings, priority: 0 }
    }
}

/// A pool that is being described.
#[derive(Debug)]
pub struct PoolSpec<'a> {
    snapshot: &'a mut Snapshot,
    pool: Pool,
    all_types: bool,
}

impl PoolSpec<'_> {
    /// Its weight.
    pub fn weight(mut self, weight: i32) -> Self {
        self.pool.weight = weight;
        self
    }

    /// Requirements and labels of its nodes.
    pub fn requires(mut self, requirements: &str) -> Self {
        let more = words::requirements(requirements, &mut self.snapshot.symbols);
        self.pool.requirements.add_all(&more, &self.snapshot.symbols);
        self
    }

    /// A requirement with `minValues`.
    pub fn requires_values(mut self, requirement: &str, min_values: u32) -> Self {
        let more = words::requirements(requirement, &mut self.snapshot.symbols);
        for (key, requirement) in more.iter() {
            let requirement = requirement.clone().with_min_values(min_values).expect("enough values");
            self.pool.requirements.add(key, requirement, &self.snapshot.symbols);
        }
        self
    }

    /// A taint of its nodes.
    pub fn taint(mut self, taint: &str) -> Self {
        self.pool.taints.push(words::taint(taint, &mut self.snapshot.symbols));
        self
    }

    /// A taint of its nodes until they are ready.
    pub fn startup_taint(mut self, taint: &str) -> Self {
        self.pool.startup_taints.push(words::taint(taint, &mut self.snapshot.symbols));
        self
    }

    /// These machines only, separated by blanks.
    pub fn machines(mut self, names: &str) -> Self {
        self.all_types = false;
        for name in names.split_whitespace() {
            let symbol = self.snapshot.symbols.intern(name);
            let found = self.snapshot.types.iter().position(|known| known.name == symbol);
            self.pool.types.push(TypeId::from(found.unwrap_or_else(|| panic!("no machine {name:?}"))));
        }
        self
    }

    /// Limits: `cpu=20 nodes=3 price=500`, the price in thousandths of a dollar.
    pub fn limit(mut self, text: &str) -> Self {
        let more = limits(text, self.snapshot);
        self.pool.limits = merged(&self.pool.limits, more);
        self
    }

    /// Nodes that it never goes below.
    pub fn min_nodes(mut self, count: u64) -> Self {
        self.pool.min_nodes = count;
        self
    }

    /// A fixed number of nodes.
    pub fn replicas(mut self, count: u64) -> Self {
        self.pool.replicas = Some(count);
        self
    }

    /// Nothing can be bought for it.
    pub fn not_ready(mut self, why: &str) -> Self {
        self.pool.not_ready = Some(why.to_owned());
        self
    }

    /// Which nodes consolidation looks at.
    pub fn consolidation(mut self, policy: Consolidation) -> Self {
        self.pool.disruption.policy = policy;
        self
    }

    /// Any other change.
    pub fn edit(mut self, change: impl FnOnce(&mut Pool)) -> Self {
        change(&mut self.pool);
        self
    }
}

/// A node that is being described.
#[derive(Debug)]
pub struct NodeSpec<'a> {
    snapshot: &'a mut Snapshot,
    node: Node,
    machine: TypeId,
    more_labels: Labels,
}

impl<'a> NodeSpec<'a> {
    fn new(snapshot: &'a mut Snapshot, name: &str, machine: TypeId) -> Self {
        let made = &snapshot.types[machine.index()];
        let on_demand = made.offerings.iter().find(|one| one.capacity_type == CapacityType::OnDemand);
        let offering = on_demand.or(made.offerings.first());
        let node = Node {
            name: name.to_owned(),
            pool: None,
            state: NodeState::Running,
            schedulable: true,
            labels: Labels::default(),
            taints: Vec::new(),
            capacity: made.capacity.clone(),
            allocatable: made.allocatable.clone(),
            instance_type: Some(made.name),
            zone: offering.map(|one| one.zone),
            capacity_type: offering.map(|one| one.capacity_type),
            price: None,
            created: snapshot.now - 3600,
            initialized: Some(snapshot.now - 3540),
            last_pod_event: None,
            drifted: None,
            do_not_disrupt: false,
            expiry: Expiry::default(),
            ends_in_time: false,
            ready: true,
            waits_for: None,
        };
        Self { snapshot, node, machine, more_labels: Labels::default() }
    }

    /// The pool that it was bought for, whose taints and labels it gets.
    pub fn pool(mut self, name: &str) -> Self {
        let pool = self.snapshot.find_pool(name).unwrap_or_else(|| panic!("no pool {name:?}"));
        self.node.pool = Some(pool);
        let of_pool = &self.snapshot.pools[pool.index()];
        self.node.taints.extend(of_pool.taints.iter().copied());
        self
    }

    /// Its zone.
    pub fn zone(mut self, zone: &str) -> Self {
        self.node.zone = Some(self.snapshot.symbols.intern(zone));
        self
    }

    /// How it was bought.
    pub fn bought(mut self, capacity_type: CapacityType) -> Self {
        self.node.capacity_type = Some(capacity_type);
        self
    }

    /// One of its machine's offerings, by number.
    pub(super) fn any_offering(mut self, number: u64) -> Self {
        let offerings = &self.snapshot.types[self.machine.index()].offerings;
        if let Some(one) = offerings.get((number % offerings.len().max(1) as u64) as usize) {
            (self.node.zone, self.node.capacity_type) = (Some(one.zone), Some(one.capacity_type));
        }
        self
    }

    /// Its state.
    pub fn state(mut self, state: NodeState) -> Self {
        self.node.state = state;
        if state == NodeState::Starting {
            (self.node.initialized, self.node.ready) = (None, false);
        }
        self
    }

    /// It is on its way.
    pub fn starting(self) -> Self {
        self.state(NodeState::Starting)
    }

    /// It is being removed.
    pub fn leaving(self) -> Self {
        self.state(NodeState::Leaving)
    }

    /// kube-scheduler may not use it.
    pub fn unschedulable(mut self) -> Self {
        self.node.schedulable = false;
        self
    }

    /// More labels; they win over those of pool and machine.
    pub fn label(mut self, labels: &str) -> Self {
        let more = words::labels(labels, &mut self.snapshot.symbols);
        self.more_labels = self.more_labels.with(more.iter());
        self
    }

    /// A taint.
    pub fn taint(mut self, taint: &str) -> Self {
        self.node.taints.push(words::taint(taint, &mut self.snapshot.symbols));
        self
    }

    /// What it costs; otherwise what its offering costs.
    pub fn price(mut self, milli_dollars: u64) -> Self {
        self.node.price = Some(milli_dollars * MILLI_DOLLAR);
        self
    }

    /// When it was made.
    pub fn age(mut self, age: Seconds) -> Self {
        self.node.created = self.snapshot.now - age;
        self.node.initialized = self.node.initialized.map(|_| self.node.created);
        self
    }

    /// It is no longer what its pool asks for.
    pub fn drifted(mut self, why: &str) -> Self {
        self.node.drifted = Some(Drift::settled(why));
        self
    }

    /// Any other change.
    pub fn edit(mut self, change: impl FnOnce(&mut Node)) -> Self {
        change(&mut self.node);
        self
    }

    fn build(self) -> Node {
        let Self { snapshot, mut node, machine, more_labels } = self;
        let made = &snapshot.types[machine.index()];
        let names = snapshot.names;
        let bought = made
            .offerings
            .iter()
            .find(|one| Some(one.zone) == node.zone && Some(one.capacity_type) == node.capacity_type);
        node.price = node.price.or(bought.map(|one| one.price));

        let mut wanted = Requirements::clone(&made.labels);
        if let Some(pool) = node.pool {
            wanted.add_all(&snapshot.pools[pool.index()].requirements, &snapshot.symbols);
        }
        let decided = wanted.iter().filter_map(|(key, requirement)| Some((key, requirement.only_value()?)));
        let mut labels: Labels = decided.collect();
        let own = [
            node.zone.map(|zone| (names.zone, zone)),
            node.capacity_type.map(|bought| (names.capacity_type, snapshot.symbols.intern(bought.name()))),
            Some((names.hostname, snapshot.symbols.intern(&node.name))),
        ];
        labels = labels.with(own.into_iter().flatten());
        node.labels = labels.with(more_labels.iter());
        node
    }
}

/// Pods that are being described.
#[derive(Debug)]
pub struct PodSpec<'a> {
    snapshot: &'a mut Snapshot,
    class: PodClass,
    pod: Pod,
}

impl<'a> PodSpec<'a> {
    fn new(snapshot: &'a mut Snapshot, name: &str, requests: &str) -> Self {
        let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
        let mut class = PodClass::new(snapshot.symbols.intern(namespace));
        class.requests.add(&words::resources(requests, &mut snapshot.resources));
        let app = (snapshot.symbols.intern("app"), snapshot.symbols.intern(name));
        class.labels = [app].into_iter().collect();
        let pod = Pod {
            name: name.into(),
            class: ClassId(0),
            node: None,
            state: PodState::Pending,
            created: snapshot.now - 60,
            started: None,
        };
        Self { snapshot, class, pod }
    }

    /// More labels.
    pub fn label(mut self, labels: &str) -> Self {
        let more = words::labels(labels, &mut self.snapshot.symbols);
        self.class.labels = self.class.labels.with(more.iter());
        self
    }

    /// Its priority.
    pub fn priority(mut self, priority: i32) -> Self {
        self.class.priority = priority;
        self
    }

    /// What a node must be, whichever of its alternatives.
    pub fn needs(mut self, requirements: &str) -> Self {
        let more = words::requirements(requirements, &mut self.snapshot.symbols);
        for term in &mut self.class.node_terms {
            term.add_all(&more, &self.snapshot.symbols);
        }
        self
    }

    /// Alternatives of which a node must be one.
    pub fn either(mut self, alternatives: &[&str]) -> Self {
        let term = |text: &&str| words::requirements(text, &mut self.snapshot.symbols);
        self.class.node_terms = alternatives.iter().map(term).collect();
        self
    }

    /// What it would like of a node.
    pub fn prefers(mut self, weight: i32, requirements: &str) -> Self {
        let wish = words::requirements(requirements, &mut self.snapshot.symbols);
        self.class.node_preferences.push((weight, wish));
        self
    }

    /// A volume, and the alternatives where it can be used.
    pub fn volume(mut self, alternatives: &[&str]) -> Self {
        let term = |text: &&str| words::requirements(text, &mut self.snapshot.symbols);
        self.class.volume_terms.push(alternatives.iter().map(term).collect());
        self
    }

    /// A taint that it tolerates.
    pub fn tolerates(mut self, toleration: &str) -> Self {
        self.class.tolerations.push(words::toleration(toleration, &mut self.snapshot.symbols));
        self
    }

    /// A hard spread over a label of pods with the same `app`.
    pub fn spread(self, key: &str, max_skew: u32) -> Self {
        self.spread_with(key, max_skew, |_| {})
    }

    /// A spread over a label of pods with the same `app`, hard unless changed.
    pub fn spread_with(mut self, key: &str, max_skew: u32, change: impl FnOnce(&mut Spread)) -> Self {
        let mut spread = Spread {
            key: words::label_key(key, &mut self.snapshot.symbols),
            max_skew,
            min_domains: None,
            hard: true,
            selector: Some(self.own_app()),
            node_affinity: InclusionPolicy::Honor,
            node_taints: InclusionPolicy::Ignore,
        };
        change(&mut spread);
        self.class.spread.push(spread);
        self
    }

    fn own_app(&mut self) -> Requirements {
        let app = self.snapshot.symbols.intern("app");
        Requirements::of_labels(self.class.labels.get(app).map(|value| (app, value)))
    }

    fn term(&mut self, key: &str, selector: &str) -> AffinityTerm {
        AffinityTerm {
            key: words::label_key(key, &mut self.snapshot.symbols),
            selector: Some(words::requirements(selector, &mut self.snapshot.symbols)),
            namespaces: Namespaces::These([self.class.namespace].into()),
        }
    }

    /// Pods of the same namespace that must be near: `near("zone", "app in db")`.
    pub fn near(mut self, key: &str, selector: &str) -> Self {
        let term = self.term(key, selector);
        self.class.affinity.push(term);
        self
    }

    /// Pods of the same namespace that must not be near.
    pub fn apart(mut self, key: &str, selector: &str) -> Self {
        let term = self.term(key, selector);
        self.class.anti_affinity.push(term);
        self
    }

    /// Pods of the same namespace that it would like near, or with a negative weight not.
    pub fn likes(mut self, weight: i32, key: &str, selector: &str) -> Self {
        let term = self.term(key, selector);
        self.class.affinity_preferences.push((weight, term));
        self
    }

    /// No two pods of the same `app` on one node.
    pub fn one_per_host(mut self) -> Self {
        let selector = Some(self.own_app());
        let namespaces = Namespaces::These([self.class.namespace].into());
        let key = self.snapshot.names.hostname;
        self.class.anti_affinity.push(AffinityTerm { key, selector, namespaces });
        self
    }

    /// A TCP port of the host.
    pub fn port(mut self, port: u16) -> Self {
        self.class.host_ports.push(HostPort { protocol: Protocol::Tcp, address: None, port });
        self
    }

    /// What brought it about.
    pub fn kind(mut self, kind: PodKind) -> Self {
        self.class.kind = kind;
        self
    }

    /// It is one of a DaemonSet.
    pub fn daemon(self) -> Self {
        self.kind(PodKind::Daemon)
    }

    /// It stands for pods that are still to come.
    pub fn buffer(mut self) -> Self {
        self.class = self.class.into_buffer();
        self
    }

    /// It may not be evicted.
    pub fn do_not_disrupt(mut self) -> Self {
        self.class.do_not_disrupt = DoNotDisrupt::Always;
        self
    }

    /// Why no node will ever do.
    pub fn problem(mut self, problem: Problem) -> Self {
        self.class.problem = Some(problem);
        self
    }

    fn find_node(&self, name: &str) -> NodeId {
        self.snapshot.find_node(name).unwrap_or_else(|| panic!("no node {name:?}"))
    }

    /// It runs on a node.
    pub fn on(mut self, node: &str) -> Self {
        self.pod.node = Some(self.find_node(node));
        self.pod.state = PodState::Bound;
        self.pod.started = Some(self.snapshot.now - 30);
        self
    }

    /// Room is kept for it on a node.
    pub fn nominated(mut self, node: &str) -> Self {
        self.pod.node = Some(self.find_node(node));
        self
    }

    /// Its state.
    pub fn state(mut self, state: PodState) -> Self {
        self.pod.state = state;
        self
    }

    /// When it was made; the start of one that runs is half a minute later.
    pub fn age(mut self, age: Seconds) -> Self {
        self.pod.created = self.snapshot.now - age;
        self.pod.started = self.pod.started.map(|_| self.snapshot.now - age + 30);
        self
    }

    /// Any other change of what scheduling looks at.
    pub fn edit(mut self, change: impl FnOnce(&mut PodClass)) -> Self {
        change(&mut self.class);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_the_labels_of_pool_machine_and_offering() {
        let snapshot = Cluster::new()
            .machine("big", "cpu=8", |machine| machine.zones("a b").spot(30).label("os in linux,windows"))
            .pool("red", |pool| pool.requires("team in red; os in linux").taint("team=red:NoSchedule"))
            .node("one", "big", |node| node.pool("red").zone("b").bought(CapacityType::Spot).label("rack=r1"))
            .snapshot();
        let node = &snapshot.nodes[0];
        let mut labels: Vec<String> =
            node.labels.iter().map(|(key, value)| format!("{}={}", snapshot.text(key), snapshot.text(value))).collect();
        labels.sort_unstable();
        let expected = [
            "karpenter.sh/capacity-type=spot",
            "karpenter.sh/nodepool=red",
            "kubernetes.io/arch=amd64",
            "kubernetes.io/hostname=one",
            "kubernetes.io/os=linux",
            "node.kubernetes.io/instance-type=big",
            "rack=r1",
            "team=red",
            "topology.kubernetes.io/zone=b",
        ];
        assert_eq!(labels, expected);
        assert_eq!((node.price, node.taints.len()), (Some(30 * MILLI_DOLLAR), 1));
    }

    #[test]
    fn equal_pods_share_a_class() {
        let snapshot = Cluster::new()
            .pods(2, "web", "cpu=1", |pod| pod)
            .pod("web", "cpu=1", |pod| pod)
            .pod("web", "cpu=2", |pod| pod)
            .snapshot();
        assert_eq!((snapshot.pods.len(), snapshot.classes.len()), (4, 2));
        assert_eq!(snapshot.find_pod("default/web-1"), Some(crate::model::PodId(1)));
    }

    #[test]
    fn a_pool_has_all_machines_unless_it_names_some() {
        let snapshot = Cluster::new()
            .machine("small", "cpu=2", |machine| machine)
            .pool("all", |pool| pool)
            .pool("one", |pool| pool.machines("small").limit("cpu=4 nodes=2 price=9"))
            .machine("big", "cpu=8", |machine| machine)
            .snapshot();
        assert_eq!((snapshot.pools[0].types.len(), snapshot.pools[1].types.len()), (2, 1));
        assert_eq!(snapshot.pools[1].limits.price, Some(9 * MILLI_DOLLAR));
    }
}
