//! Compiles the topology rules of classes to counters: one counter for each distinct question, with the classes that
//! read it and those that increase it.

use std::collections::HashMap;

use crate::model::{AffinityTerm, InclusionPolicy, Namespaces, PodClass, Snapshot, Spread, selects};
use crate::requirement::Requirements;
use crate::symbol::Symbol;

use super::{AffinityRule, Area, ClassRules, Counter, Counts, Guard, NodeFilter, Question, SpreadRule, Topology};

/// Compiles the terms of classes into counters.
pub(super) struct Compiler<'s> {
    snapshot: &'s Snapshot,
    questions: HashMap<Question, usize>,
    ordered: Vec<Question>,
    filters: Vec<NodeFilter>,
    filter_ids: HashMap<NodeFilter, u32>,
    rules: Vec<ClassRules>,
    /// Owner counters, with the term whose pods they keep away.
    repelling: Vec<(usize, AffinityTerm)>,
    guarding: Vec<Guard>,
    /// Whether there are buffers, which not every pod sees.
    buffers: bool,
}

impl<'s> Compiler<'s> {
    pub(super) fn new(snapshot: &'s Snapshot) -> Self {
        Self {
            snapshot,
            questions: HashMap::new(),
            ordered: Vec::new(),
            filters: Vec::new(),
            filter_ids: HashMap::new(),
            rules: vec![ClassRules::default(); snapshot.classes.len()],
            repelling: Vec::new(),
            guarding: Vec::new(),
            buffers: snapshot.classes.iter().any(PodClass::is_buffer),
        }
    }

    pub(super) fn compile(mut self) -> Topology {
        for (index, class) in self.snapshot.classes.iter().enumerate() {
            self.class(index, class);
        }
        self.counters_are_raised_by_selected_pods();
        self.anti_affinity_repels_selected_pods();
        self.anti_affinity_of_running_pods_guards();
        let hostname = self.snapshot.names.hostname;
        let mut areas: Vec<Area> = Vec::new();
        let mut known: HashMap<(Symbol, u32), usize> = HashMap::new();
        let mut area_of = |key: Symbol, filter: u32| {
            *known.entry((key, filter)).or_insert_with(|| {
                areas.push(Area { key, filter, nodes: Counts::default() });
                areas.len() - 1
            })
        };
        let counters = self.ordered.iter().map(|question| Counter {
            key: question.key,
            area: question.nodes.as_ref().map(|filter| area_of(question.key, self.filter_ids[filter])),
            terminating: question.terminating,
            pods: Counts::default(),
            founders: Counts::default(),
            expected: Vec::new(),
            total: 0,
            repels: false,
            max_skew: None,
        });
        let mut counters: Vec<Counter> = counters.collect();
        for rule in self.rules.iter().flat_map(|rules| &rules.forbidden) {
            counters[rule.counter].repels = true;
        }
        for rule in self.rules.iter().flat_map(|rules| &rules.spread) {
            let known = &mut counters[rule.counter].max_skew;
            *known = Some(known.map_or(rule.max_skew, |known| known.min(rule.max_skew)));
        }
        Topology { hostname, counters, areas, filters: self.filters, rules: self.rules, counted_by: Vec::new() }
    }

    fn class(&mut self, index: usize, class: &PodClass) {
        let keys: Vec<Symbol> = class.spread.iter().filter(|spread| spread.hard).map(|spread| spread.key).collect();
        for spread in class.spread.iter().filter(|spread| spread.hard) {
            self.spread(index, class, spread, &keys);
        }
        let pods: Vec<_> = class.affinity.iter().map(|term| (term.selector.clone(), term.namespaces.clone())).collect();
        let real = self.buffers && !class.is_buffer();
        for term in &class.affinity {
            let pods = pods.clone();
            let question = Question { key: term.key, pods, owners: None, nodes: None, terminating: true, real };
            let counter = self.counter(question);
            self.rules[index].affinity.push(AffinityRule { counter, key: term.key });
        }
        let itself = pods.iter().all(|(selector, namespaces)| self.matches(class, selector.as_ref(), namespaces));
        self.rules[index].affine_to_itself = itself;
        for term in &class.anti_affinity {
            let pods = vec![(term.selector.clone(), term.namespaces.clone())];
            // Anti-affinity holds for the final placement in both directions, whichever of the two pods has the term.
            let question = Question { key: term.key, pods, owners: None, nodes: None, terminating: true, real: false };
            let counter = self.counter(question.clone());
            self.rules[index].forbidden.push(AffinityRule { counter, key: term.key });
            let known = self.ordered.len();
            let owners = self.counter(Question { owners: Some(0), ..question });
            if owners == known {
                self.repelling.push((owners, term.clone()));
            }
            self.rules[index].raises.push(owners);
        }
    }

    fn spread(&mut self, index: usize, class: &PodClass, spread: &Spread, keys: &[Symbol]) {
        let honoured = |policy| policy == InclusionPolicy::Honor;
        let any = class.node_terms.iter().any(Requirements::is_empty);
        let filter = NodeFilter {
            terms: (honoured(spread.node_affinity) && !any).then(|| class.node_terms.clone()),
            tolerations: honoured(spread.node_taints).then(|| class.tolerations.clone()),
            keys: keys.to_vec(),
        };
        if !self.filter_ids.contains_key(&filter) {
            self.filter_ids.insert(filter.clone(), self.filters.len() as u32);
            self.filters.push(filter.clone());
        }
        let own = Namespaces::These([class.namespace].into());
        let counts_itself = self.matches(class, spread.selector.as_ref(), &own);
        let pods = vec![(spread.selector.clone(), own)];
        let real = self.buffers && !class.is_buffer();
        let question = Question { key: spread.key, pods, owners: None, nodes: Some(filter), terminating: false, real };
        let counter = self.counter(question.clone());
        if spread.key == self.snapshot.names.hostname {
            let known = self.ordered.len();
            let owners = self.counter(Question { owners: Some(spread.max_skew), nodes: None, ..question });
            if owners == known {
                self.guarding.push(Guard { owners, counted: counter, max_skew: spread.max_skew });
            }
            self.rules[index].raises.push(owners);
        }
        let rule = SpreadRule {
            counter,
            key: spread.key,
            max_skew: spread.max_skew,
            min_domains: spread.min_domains,
            counts_itself,
        };
        self.rules[index].spread.push(rule);
    }

    fn counter(&mut self, question: Question) -> usize {
        if let Some(known) = self.questions.get(&question) {
            return *known;
        }
        let index = self.ordered.len();
        self.questions.insert(question.clone(), index);
        self.ordered.push(question);
        index
    }

    fn matches(&self, class: &PodClass, selector: Option<&Requirements>, namespaces: &Namespaces) -> bool {
        namespaces.contains(class.namespace)
            && selector.is_some_and(|selector| selects(selector, &class.labels, &self.snapshot.symbols))
    }

    fn counts(&self, question: &Question, class: &PodClass) -> bool {
        !(question.real && class.is_buffer())
            && question.pods.iter().all(|(selector, namespaces)| self.matches(class, selector.as_ref(), namespaces))
    }

    /// Selectors mostly name one value of one label. Those are found through the labels of a class, the others
    /// are tried on every class.
    fn counters_are_raised_by_selected_pods(&mut self) {
        let mut by_label: HashMap<(Symbol, Symbol), Vec<usize>> = HashMap::new();
        let mut by_trial = Vec::new();
        for (index, question) in self.ordered.iter().enumerate().filter(|(_, question)| question.owners.is_none()) {
            let selector = question.pods.first().and_then(|(selector, _)| selector.as_ref());
            match named_label(selector) {
                Some(label) => by_label.entry(label).or_default().push(index),
                None => by_trial.push(index),
            }
        }
        for (index, class) in self.snapshot.classes.iter().enumerate() {
            let labelled = class.labels.iter().filter_map(|label| by_label.get(&label)).flatten();
            let mut raised: Vec<usize> = labelled
                .chain(&by_trial)
                .copied()
                .filter(|&counter| self.counts(&self.ordered[counter], class))
                .collect();
            raised.sort_unstable();
            self.rules[index].raises.extend(raised);
        }
    }

    fn anti_affinity_repels_selected_pods(&mut self) {
        let repelling = std::mem::take(&mut self.repelling);
        if repelling.is_empty() {
            return;
        }
        let classes = &self.snapshot.classes;
        let mut by_label: HashMap<(Symbol, Symbol), Vec<usize>> = HashMap::new();
        for (index, class) in classes.iter().enumerate() {
            for label in class.labels.iter() {
                by_label.entry(label).or_default().push(index);
            }
        }
        let all: Vec<usize> = (0..classes.len()).collect();
        let none = Vec::new();
        for (counter, term) in repelling {
            let labelled = match named_label(term.selector.as_ref()) {
                Some(label) => by_label.get(&label).unwrap_or(&none),
                None => &all,
            };
            for &index in labelled {
                if self.matches(&classes[index], term.selector.as_ref(), &term.namespaces) {
                    self.rules[index].forbidden.push(AffinityRule { counter, key: term.key });
                }
            }
        }
    }

    fn anti_affinity_of_running_pods_guards(&mut self) {
        let mut by_counter: HashMap<usize, Vec<Guard>> = HashMap::new();
        for guard in std::mem::take(&mut self.guarding) {
            by_counter.entry(guard.counted).or_default().push(guard);
        }
        for rules in &mut self.rules {
            let guards = rules.raises.iter().filter_map(|counter| by_counter.get(counter)).flatten();
            rules.guards = guards.cloned().collect();
        }
    }
}

/// A label that a selector asks for by its one value.
fn named_label(selector: Option<&Requirements>) -> Option<(Symbol, Symbol)> {
    selector?.iter().find_map(|(key, one)| Some((key, one.only_value()?)))
}
