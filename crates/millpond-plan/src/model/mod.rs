//! The planner's input: a [`Snapshot`], a plain value.
//!
//! ```text
//! Snapshot ─┬─ pools ──▶ types ──▶ offerings (zone × capacity type, with a price)
//!           ├─ nodes   (running, starting, leaving)
//!           ├─ pods ──▶ classes  (everything that scheduling looks at, each once)
//!           └─ daemons, disruption budgets, limits, the time
//! ```
//!
//! Texts are [`Symbol`]s of one table, resources are dense vectors in the order of one table, money is whole
//! nano-dollars per hour, time is whole seconds since 1970. Pods that are alike share a [`PodClass`]; a million
//! pods have a few thousand classes, and all work is done per class.

mod instance;
mod node;
mod pod;
mod pool;
mod resources;

pub use instance::{CapacityType, InstanceType, Offering, Types};
pub use node::{DRIFT_SETTLES, Drift, Expiry, Node, NodeState};
pub use pod::{
    AffinityTerm, DoNotDisrupt, HostPort, InclusionPolicy, Namespaces, Pod, PodClass, PodKind, PodState, Problem,
    Protocol, Spread,
};
pub use pool::{Budget, Consolidation, Disruption, DisruptionReason, Limits, Nodes, Pool, Schedule};
pub use resources::{CPU, MEMORY, PODS, ResourceId, ResourceTable, Resources, STORAGE};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::requirement::Requirements;
use crate::symbol::{Symbol, Symbols};

/// Seconds since 1970, UTC.
pub type Seconds = i64;
/// Nano-dollars per hour.
pub type Nanos = u64;

macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub struct $name(pub u32);

        impl $name {
            /// Index into its list of the snapshot.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl From<usize> for $name {
            fn from(index: usize) -> Self {
                Self(u32::try_from(index).expect("fewer than four billion of them"))
            }
        }
    };
}

index!(
    /// Index into [`Snapshot::pools`].
    PoolId
);
index!(
    /// Index into [`Snapshot::types`].
    TypeId
);
index!(
    /// Index into [`Snapshot::nodes`].
    NodeId
);
index!(
    /// Index into [`Snapshot::classes`].
    ClassId
);
index!(
    /// Index into [`Snapshot::pods`].
    PodId
);

/// Labels with exactly one value each, sorted by key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Labels(Box<[(Symbol, Symbol)]>);

impl Labels {
    /// The value of a label.
    pub fn get(&self, key: Symbol) -> Option<Symbol> {
        self.0.binary_search_by_key(&key, |(key, _)| *key).ok().map(|index| self.0[index].1)
    }

    /// All of them, in the order of their symbols.
    pub fn iter(&self) -> impl Iterator<Item = (Symbol, Symbol)> {
        self.0.iter().copied()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A copy with these labels added; they replace existing values.
    #[must_use]
    pub fn with(&self, more: impl IntoIterator<Item = (Symbol, Symbol)>) -> Self {
        let more = more.into_iter();
        let mut labels = Vec::with_capacity(self.0.len() + more.size_hint().1.unwrap_or(0));
        labels.extend_from_slice(&self.0);
        for (key, value) in more {
            match labels.binary_search_by_key(&key, |(key, _)| *key) {
                Ok(at) => labels[at].1 = value,
                Err(at) => labels.insert(at, (key, value)),
            }
        }
        Self(labels.into_boxed_slice())
    }
}

/// If a key occurs several times, its last value counts.
impl FromIterator<(Symbol, Symbol)> for Labels {
    fn from_iter<I: IntoIterator<Item = (Symbol, Symbol)>>(labels: I) -> Self {
        let mut sorted: Vec<(Symbol, Symbol)> = labels.into_iter().collect();
        // The sort is stable, so the last value of a key stays last.
        sorted.sort_by_key(|(key, _)| *key);
        sorted.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                *kept = *later;
            }
            same
        });
        Self(sorted.into_boxed_slice())
    }
}

/// Symbols of the labels that the planner itself asks for.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct LabelNames {
    /// `kubernetes.io/hostname`.
    pub hostname: Symbol,
    /// `topology.kubernetes.io/zone`.
    pub zone: Symbol,
    /// `topology.kubernetes.io/region`.
    pub region: Symbol,
    /// `karpenter.sh/capacity-type`.
    pub capacity_type: Symbol,
    /// `node.kubernetes.io/instance-type`.
    pub instance_type: Symbol,
    /// `karpenter.sh/nodepool`.
    pub pool: Symbol,
    /// `kubernetes.io/os`.
    pub os: Symbol,
    /// `kubernetes.io/arch`.
    pub arch: Symbol,
    /// `metadata.name`: the key under which `matchFields` of a node affinity stand.
    pub node_name: Symbol,
}

impl LabelNames {
    fn new(symbols: &mut Symbols) -> Self {
        for capacity_type in ["reserved", "spot", "on-demand"] {
            symbols.intern(capacity_type);
        }
        let mut name = |text| symbols.intern(text);
        Self {
            hostname: name("kubernetes.io/hostname"),
            zone: name("topology.kubernetes.io/zone"),
            region: name("topology.kubernetes.io/region"),
            capacity_type: name("karpenter.sh/capacity-type"),
            instance_type: name("node.kubernetes.io/instance-type"),
            pool: name("karpenter.sh/nodepool"),
            os: name("kubernetes.io/os"),
            arch: name("kubernetes.io/arch"),
            node_name: name("metadata.name"),
        }
    }
}

/// A PodDisruptionBudget with the evictions that it allows now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodDisruptionBudget {
    /// `namespace/name`.
    pub name: String,
    /// The namespace.
    pub namespace: Symbol,
    /// Pods of the namespace that it covers; `None` selects no pod.
    pub selector: Option<Requirements>,
    /// Evictions that it allows now (`status.disruptionsAllowed`).
    pub allowed: u32,
    /// Whether pods that are not ready may always be evicted (`unhealthyPodEvictionPolicy: AlwaysAllow`).
    pub unhealthy_always: bool,
}

/// All that a plan depends on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Snapshot {
    /// Identifies the state that the snapshot was taken from; a plan names it.
    pub revision: String,
    /// When it was taken.
    pub now: Seconds,
    /// The table of all texts.
    pub symbols: Symbols,
    /// Labels that the planner knows by name.
    pub names: LabelNames,
    /// The resources, in the order of every [`Resources`].
    pub resources: ResourceTable,
    /// Labels that a provider sets, sorted: a pod may require them although no pool mentions them.
    pub well_known: Vec<Symbol>,
    /// Labels of namespaces.
    pub namespaces: BTreeMap<Symbol, Labels>,
    /// The pools; added by [`Snapshot::add_pool`].
    pub pools: Vec<Pool>,
    /// The instance types of all pools.
    pub types: Types,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The classes of pods.
    pub classes: Vec<PodClass>,
    /// The pods, bound and pending, without those that have ended, sorted by namespace and name (by text), so that
    /// the order in which they were seen does not show in a plan.
    pub pods: Vec<Pod>,
    /// The classes of pods that run once on every node that they fit, whether or not any is there yet.
    pub daemons: Vec<ClassId>,
    /// PodDisruptionBudgets.
    pub disruption_budgets: Vec<PodDisruptionBudget>,
    /// Limits on all pools together.
    pub limits: Limits,
    /// How many pods of a class an earlier plan put on a node that is not bound to them: they are put there again, as
    /// far as they still fit, before room is looked for elsewhere. What was packed well is not packed anew by chance.
    pub planned_placements: Vec<(NodeId, ClassId, u32)>,
}

impl Snapshot {
    /// An empty cluster at this time.
    pub fn new(now: Seconds) -> Self {
        let mut symbols = Symbols::new();
        let names = LabelNames::new(&mut symbols);
        let mut well_known = vec![
            names.pool,
            names.zone,
            names.region,
            names.instance_type,
            names.arch,
            names.os,
            names.capacity_type,
            symbols.intern("node.kubernetes.io/windows-build"),
        ];
        well_known.sort_unstable();
        Self {
            revision: String::new(),
            now,
            symbols,
            names,
            resources: ResourceTable::new(),
            well_known,
            namespaces: BTreeMap::new(),
            pools: Vec::new(),
            types: Types::default(),
            nodes: Vec::new(),
            classes: Vec::new(),
            pods: Vec::new(),
            daemons: Vec::new(),
            disruption_budgets: Vec::new(),
            limits: Limits::default(),
            planned_placements: Vec::new(),
        }
    }

    /// Adds a pool, and the texts that its nodes may carry as values of labels.
    pub fn add_pool(&mut self, pool: Pool) -> PoolId {
        self.symbols.intern(&pool.name);
        self.intern_usual(&pool.requirements);
        self.pools.push(pool);
        PoolId::from(self.pools.len() - 1)
    }

    /// Adds the texts that nodes may carry as values of labels which requirements leave open.
    pub fn intern_usual(&mut self, requirements: &Requirements) {
        for (_, requirement) in requirements.iter() {
            let (least, most) = requirement.bounds();
            let usual = least.or(most).map_or_else(|| "true".to_owned(), |number| number.to_string());
            self.symbols.intern(&usual);
        }
    }

    /// The text of a symbol.
    pub fn text(&self, symbol: Symbol) -> &str {
        self.symbols.text(symbol)
    }

    /// The class of a pod.
    pub fn class_of(&self, pod: PodId) -> &PodClass {
        &self.classes[self.pods[pod.index()].class.index()]
    }

    /// `namespace/name` of a pod.
    pub fn pod_name(&self, pod: PodId) -> String {
        format!("{}/{}", self.text(self.class_of(pod).namespace), self.pods[pod.index()].name)
    }

    /// The pool of that name.
    pub fn find_pool(&self, name: &str) -> Option<PoolId> {
        self.pools.iter().position(|pool| pool.name == name).map(PoolId::from)
    }

    /// The node of that name.
    pub fn find_node(&self, name: &str) -> Option<NodeId> {
        self.nodes.iter().position(|node| node.name == name).map(NodeId::from)
    }

    /// The pod of that `namespace/name`.
    pub fn find_pod(&self, name: &str) -> Option<PodId> {
        let (namespace, name) = name.split_once('/')?;
        let namespace = self.symbols.find(namespace)?;
        let found = |pod: &Pod| *pod.name == *name && self.classes[pod.class.index()].namespace == namespace;
        self.pods.iter().position(found).map(PodId::from)
    }
}

/// Whether a selector selects labels. Kubernetes' rule for `NotIn` holds here too: a missing label is not in.
pub fn selects(selector: &Requirements, labels: &Labels, symbols: &Symbols) -> bool {
    selector.match_labels(|key| labels.get(key), symbols)
}
