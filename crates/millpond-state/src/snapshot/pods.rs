//! Pods and the classes that they share.
//!
//! A class holds only labels that some selector asks about. Labels that differ from pod to pod (the index of a
//! StatefulSet's pod, the uid of a Job) would otherwise make a class of every pod.

use std::collections::{HashMap, HashSet};

use foldhash::fast::FixedState;
use millpond_plan::model::{
    ClassId, InclusionPolicy, Labels, Namespaces, NodeId, Pod, PodClass, PodKind, PodState, Problem, Spread, selects,
};
use millpond_plan::requirement::Requirements;
use millpond_plan::symbol::Symbol;

use super::SnapshotBuilder;
use super::volumes::Users;
use crate::lower::pod::{Priority, Scope, Shape, TermPlace, sorted};
use crate::state::{ClaimRef, PodEntry, PodPhase};

/// Priorities that every cluster has.
const SYSTEM_PRIORITIES: [(&str, i32); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// Classes in the making: each once.
#[derive(Default)]
pub(super) struct Classes {
    by_content: HashMap<u128, ClassId, FixedState>,
    by_value: HashMap<PodClass, ClassId, FixedState>,
    /// Labels that some selector asks about.
    asked: HashSet<Symbol>,
}

/// A pod with its name, before it has a place in the snapshot.
pub(super) struct Named<'s> {
    pub(super) namespace: &'s str,
    pub(super) name: Box<str>,
    pub(super) entry: PodEntry,
}

impl SnapshotBuilder<'_> {
    pub(super) fn pods(&mut self) {
        let mut invented = self.invented();
        let mut pods: Vec<(&str, &str, &PodEntry)> = Vec::with_capacity(self.state.pods());
        for (namespace, named) in &self.state.pods {
            pods.extend(named.iter().map(|(name, entry)| (&**namespace, &**name, entry)));
        }
        invented.sort_by(|a, b| (a.namespace, &a.name).cmp(&(b.namespace, &b.name)));
        pods.extend(invented.iter().map(|pod| (pod.namespace, &*pod.name, &pod.entry)));
        pods.retain(|(.., entry)| entry.phase != PodPhase::Gone);
        pods.sort_unstable_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
        self.disruption_budgets(&pods);
        let mut classes = Classes { asked: self.asked_labels(&pods), ..Classes::default() };
        let users = self.claim_users(&pods);
        let nodes = self.node_ids();
        let mut lost = 0usize;
        self.snapshot.pods.reserve(pods.len());
        for (namespace, name, entry) in pods {
            let node = entry.node.and_then(|node| nodes.get(&node).copied());
            let state = match (entry.phase, node) {
                (PodPhase::Bound | PodPhase::Terminating, None) => {
                    lost += 1;
                    continue;
                }
                (PodPhase::Bound, _) => PodState::Bound,
                (PodPhase::Terminating, _) => PodState::Terminating,
                (PodPhase::Gated, _) => PodState::Gated,
                (PodPhase::Pending | PodPhase::Gone, _) => PodState::Pending,
            };
            let node = node.filter(|_| state != PodState::Gated);
            let class = self.class(namespace, name, entry, &users, &mut classes);
            let (created, started) = (entry.created, entry.started);
            self.snapshot.pods.push(Pod { name: name.into(), class, node, state, created, started });
        }
        if lost > 0 {
            let pods = if lost == 1 { "1 pod is".to_owned() } else { format!("{lost} pods are") };
            self.warn(None, format!("{pods} left out because of nodes that are missing"));
        }
        self.buffers(&mut classes);
        self.daemons(&mut classes);
    }

    fn node_ids(&mut self) -> HashMap<Symbol, NodeId, FixedState> {
        let symbols = &self.snapshot.symbols;
        let known = self.snapshot.nodes.iter().enumerate();
        known.filter_map(|(index, node)| Some((symbols.find(&node.name)?, NodeId::from(index)))).collect()
    }

    fn daemons(&mut self, classes: &mut Classes) {
        let state = self.state;
        for ((kind, namespace, _), workload) in &state.workloads {
            if *kind == crate::objects::Kind::DaemonSet {
                let (content, shape) = state.made_from(namespace, &workload.template);
                let class = self.plain_class(content, &shape, classes);
                self.snapshot.daemons.push(class);
            }
        }
        self.snapshot.daemons.sort_unstable();
    }

    /// Labels that some selector asks about.
    fn asked_labels(&self, pods: &[(&str, &str, &PodEntry)]) -> HashSet<Symbol> {
        let mut asked = HashSet::new();
        let mut add = |selector: Option<&Requirements>| {
            asked.extend(selector.into_iter().flat_map(Requirements::iter).map(|(key, _)| key));
        };
        let mut seen: HashSet<u128, FixedState> = HashSet::default();
        let shapes = pods.iter().map(|(.., entry)| (entry.content, &entry.shape));
        let stored = self.state.templates.values().flat_map(std::collections::BTreeMap::values);
        let templates = self.state.workloads.values().map(|workload| &workload.template).chain(stored);
        let templates = templates.map(|template| (template.content, &template.shape));
        for (content, shape) in shapes.chain(templates) {
            if !seen.insert(content) {
                continue;
            }
            let class = &shape.class;
            class.spread.iter().for_each(|spread| add(spread.selector.as_ref()));
            class.affinity.iter().chain(&class.anti_affinity).for_each(|term| add(term.selector.as_ref()));
            class.affinity_preferences.iter().for_each(|(_, term)| add(term.selector.as_ref()));
        }
        if !self.options.default_spread.is_empty() {
            self.state.workloads.values().for_each(|workload| add(workload.selector.as_ref()));
        }
        self.snapshot.disruption_budgets.iter().for_each(|budget| add(budget.selector.as_ref()));
        asked
    }

    fn class(
        &mut self,
        namespace: &str,
        name: &str,
        entry: &PodEntry,
        users: &Users<'_>,
        classes: &mut Classes,
    ) -> ClassId {
        if entry.claims.is_empty() {
            return self.plain_class(entry.content, &entry.shape, classes);
        }
        let plain = self.plain_class(entry.content, &entry.shape, classes);
        let mut class = self.snapshot.classes[plain.index()].clone();
        let claims: &[ClaimRef] = &entry.claims;
        self.add_volumes(namespace, name, claims, users, &mut class);
        self.intern(class, classes)
    }

    /// The class of pods of a shape without claims.
    pub(super) fn plain_class(&mut self, content: u128, shape: &Shape, classes: &mut Classes) -> ClassId {
        if let Some(class) = classes.by_content.get(&content) {
            return *class;
        }
        let class = self.resolved(shape, &classes.asked);
        let id = self.intern(class, classes);
        classes.by_content.insert(content, id);
        id
    }

    pub(super) fn intern(&mut self, class: PodClass, classes: &mut Classes) -> ClassId {
        if let Some(id) = classes.by_value.get(&class) {
            return *id;
        }
        let id = ClassId::from(self.snapshot.classes.len());
        self.snapshot.classes.push(class.clone());
        classes.by_value.insert(class, id);
        id
    }

    /// A shape's class with all that other objects decide.
    fn resolved(&mut self, shape: &Shape, asked: &HashSet<Symbol>) -> PodClass {
        let mut class = shape.class.clone();
        class.labels = class.labels.iter().filter(|(key, _)| asked.contains(key)).collect();
        self.prioritize(shape, &mut class);
        for (place, scope) in &shape.scopes {
            let namespaces = self.namespaces_of(scope);
            match *place {
                TermPlace::Near(index) => class.affinity[index].namespaces = namespaces,
                TermPlace::Apart(index) => class.anti_affinity[index].namespaces = namespaces,
                TermPlace::Wish(index) => class.affinity_preferences[index].1.namespaces = namespaces,
            }
        }
        if class.spread.is_empty() && class.kind == PodKind::Workload {
            class.spread = self.default_spread(shape);
        }
        let other = shape.scheduler.as_ref().filter(|name| !self.options.schedulers.iter().any(|it| **it == ***name));
        if let Some(name) = other {
            class.problem = Some(Problem::OtherScheduler(name.clone()));
        }
        class
    }

    fn prioritize(&self, shape: &Shape, class: &mut PodClass) {
        let entry = match &shape.priority {
            Priority::Known(priority) => {
                class.priority = *priority;
                return;
            }
            Priority::Class(name) => {
                let system = SYSTEM_PRIORITIES.iter().find(|(system, _)| **system == **name);
                class.priority = system.map_or(0, |(_, value)| *value);
                self.state.priorities.get(name)
            }
            Priority::Default => self.state.priorities.values().find(|entry| entry.is_default),
        };
        if let Some(entry) = entry {
            class.priority = entry.value;
            class.preempts &= entry.preempts;
        }
    }

    fn namespaces_of(&self, scope: &Scope) -> Namespaces {
        let symbols = &self.snapshot.symbols;
        let selected = self.snapshot.namespaces.iter().filter(|(_, labels)| selects(&scope.selector, labels, symbols));
        let mut all: Vec<Symbol> = scope.named.iter().copied().chain(selected.map(|(name, _)| *name)).collect();
        Namespaces::These(sorted(&mut all))
    }

    /// The cluster's default constraints, which count pods of the same owner.
    fn default_spread(&mut self, shape: &Shape) -> Vec<Spread> {
        let Some((kind, name)) = &shape.owner else { return Vec::new() };
        if self.options.default_spread.is_empty() {
            return Vec::new();
        }
        let (namespace, name) = (self.snapshot.text(shape.class.namespace), self.snapshot.text(*name));
        let found = self
            .state
            .workloads
            .iter()
            .find(|((of, space, called), _)| of.name() == &**kind && &**space == namespace && &**called == name);
        let Some(selector) = found.and_then(|(_, workload)| workload.selector.clone()) else { return Vec::new() };
        let constraints = self.options.default_spread.iter().map(|default| Spread {
            key: self.snapshot.symbols.intern(&default.key),
            max_skew: default.max_skew,
            min_domains: None,
            hard: default.hard,
            selector: Some(selector.clone()),
            node_affinity: InclusionPolicy::Honor,
            node_taints: InclusionPolicy::Ignore,
        });
        constraints.collect()
    }
}

/// Whether a selector selects the full labels of a pod.
pub(super) fn selected(selector: &Requirements, labels: &Labels, taking: &SnapshotBuilder<'_>) -> bool {
    selects(selector, labels, &taking.snapshot.symbols)
}
