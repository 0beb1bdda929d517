//! A snapshot in the making: words instead of symbols.

use std::collections::HashMap;

use millpond_plan::model::{
    AffinityTerm, Budget, CPU, ClassId, Disruption, InclusionPolicy, MEMORY, Namespaces, Nodes, Pod, PodClass, PodKind,
    PodState, Pool, Seconds, Snapshot, Spread, TypeId,
};
use millpond_plan::requirement::{Requirement, Requirements};

/// When all workloads take place: 2026-11-01, midnight UTC.
pub(crate) const NOW: Seconds = 1_793_491_200;

const MIB: i64 = 1 << 20;

/// A snapshot in the making.
#[derive(Debug)]
pub(crate) struct Builder {
    pub(crate) snapshot: Snapshot,
    classes: HashMap<PodClass, ClassId>,
}

impl Builder {
    /// An empty cluster with this revision.
    pub(crate) fn new(revision: String) -> Self {
        let mut snapshot = Snapshot::new(NOW);
        snapshot.revision = revision;
        Self { snapshot, classes: HashMap::new() }
    }

    /// A pod in the namespace `default`, without a controller, that requests this.
    pub(crate) fn pod(&mut self, cpu_milli: i64, memory_mib: i64) -> Template<'_> {
        let mut class = PodClass::new(self.snapshot.symbols.intern("default"));
        class.kind = PodKind::Bare;
        class.requests.set(CPU, cpu_milli);
        class.requests.set(MEMORY, memory_mib * MIB);
        Template { builder: self, class }
    }

    /// A pending pod.
    pub(crate) fn pending(&mut self, name: &str, class: ClassId) {
        self.snapshot.pods.push(Pod {
            name: name.into(),
            class,
            node: None,
            state: PodState::Pending,
            created: NOW,
            started: None,
        });
    }

    /// A pool without requirements, whose nodes may all be removed at once and never expire.
    pub(crate) fn pool(&mut self, name: &str, types: Vec<TypeId>) -> &mut Pool {
        let all = Budget { nodes: Nodes::Percent(100), schedule: None, reasons: Vec::new() };
        let disruption = Disruption { expire_after: None, budgets: vec![all], ..Disruption::default() };
        self.snapshot.pools.push(Pool { types, disruption, ..Pool::new(name) });
        self.snapshot.pools.last_mut().expect("one was just added")
    }

    /// A requirement for one of these values.
    pub(crate) fn one_of(&mut self, key: &str, values: &[&str]) -> Requirements {
        let symbols = &mut self.snapshot.symbols;
        let allowed = Requirement::one_of(values.iter().map(|value| symbols.intern(value)).collect::<Vec<_>>());
        let mut requirements = Requirements::new();
        requirements.add(symbols.intern(key), allowed, symbols);
        requirements
    }
}

/// The template of equal pods.
#[derive(Debug)]
pub(crate) struct Template<'b> {
    builder: &'b mut Builder,
    class: PodClass,
}

impl Template<'_> {
    /// With a label.
    pub(crate) fn label(mut self, key: &str, value: &str) -> Self {
        let symbols = &mut self.builder.snapshot.symbols;
        let label = (symbols.intern(key), symbols.intern(value));
        self.class.labels = self.class.labels.with([label]);
        self
    }

    /// With `count` of an extended resource.
    pub(crate) fn extended(mut self, name: &str, count: i64) -> Self {
        let resource = self.builder.snapshot.resources.intern(name);
        self.class.requests.set(resource, count);
        self
    }

    /// Requires a node whose label has one of these values.
    pub(crate) fn only_on(mut self, key: &str, values: &[&str]) -> Self {
        let wanted = self.builder.one_of(key, values);
        let symbols = &self.builder.snapshot.symbols;
        self.class.node_terms.iter_mut().for_each(|term| term.add_all(&wanted, symbols));
        self
    }

    /// Prefers nodes whose label has one of these values.
    pub(crate) fn rather_on(mut self, weight: i32, key: &str, values: &[&str]) -> Self {
        let wanted = self.builder.one_of(key, values);
        self.class.node_preferences.push((weight, wanted));
        self
    }

    /// Spread over the values of a label of nodes: pods with this label of their own differ by at most one.
    pub(crate) fn spread(mut self, over: &str, key: &str, value: &str) -> Self {
        let selector = Some(self.builder.one_of(key, &[value]));
        self.class.spread.push(Spread {
            key: self.builder.snapshot.symbols.intern(over),
            max_skew: 1,
            min_domains: None,
            hard: true,
            selector,
            node_affinity: InclusionPolicy::Honor,
            node_taints: InclusionPolicy::Ignore,
        });
        self
    }

    /// Near pods with this label.
    pub(crate) fn near(mut self, over: &str, key: &str, value: &str) -> Self {
        let term = self.term(over, key, value);
        self.class.affinity.push(term);
        self
    }

    /// Anti-affinity to pods with this label.
    pub(crate) fn away_from(mut self, over: &str, key: &str, value: &str) -> Self {
        let term = self.term(over, key, value);
        self.class.anti_affinity.push(term);
        self
    }

    /// Rather not near pods with this label.
    pub(crate) fn rather_away_from(mut self, weight: i32, over: &str, key: &str, value: &str) -> Self {
        let term = self.term(over, key, value);
        self.class.affinity_preferences.push((-weight, term));
        self
    }

    /// Made by a controller, which makes another one where one goes.
    pub(crate) fn of_a_controller(mut self) -> Self {
        self.class.kind = PodKind::Workload;
        self
    }

    fn term(&mut self, over: &str, key: &str, value: &str) -> AffinityTerm {
        AffinityTerm {
            key: self.builder.snapshot.symbols.intern(over),
            selector: Some(self.builder.one_of(key, &[value])),
            namespaces: Namespaces::These([self.class.namespace].into()),
        }
    }

    /// The class, one and the same for templates that are equal.
    pub(crate) fn class(self) -> ClassId {
        let Builder { snapshot, classes } = self.builder;
        *classes.entry(self.class).or_insert_with_key(|class| {
            snapshot.classes.push(class.clone());
            ClassId::from(snapshot.classes.len() - 1)
        })
    }

    /// The class, with `count` pending pods named after it.
    pub(crate) fn pending(self, name: &str, count: u64) -> ClassId {
        // The class borrows the builder until it is made.
        let Template { builder, class } = self;
        let class = Template { builder: &mut *builder, class }.class();
        for number in 0..count {
            builder.pending(&format!("{name}-{number}"), class);
        }
        class
    }
}
