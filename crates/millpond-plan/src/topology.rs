//! Counts of pods by topology domain, for spread, affinity and anti-affinity between pods.
//!
//! Each distinct question ("how many pods with app=web of namespace a are in each zone?") is one [`Counter`]. A
//! class knows which counters its pods raise and which it has to look at, so that placing a pod costs as much as
//! the rules that concern it, not as all pods that there are.
//!
//! A domain is a value of a label. The hostname is a label like others, but every node has its own, also one
//! that has no name yet: its domains are the numbers of the nodes.

mod compile;

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::model::{ClassId, Labels, Namespaces, Snapshot};
use crate::pack::BitSet;
use crate::plan::Rule;
use crate::requirement::Requirements;
use crate::symbol::Symbol;
use crate::taint::{self, Taint, Toleration};

/// A value of a label, or for the hostname the number of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Domain(pub u32);

impl Domain {
    /// The domain of a label's value.
    pub fn value(value: Symbol) -> Self {
        Self(value.index() as u32)
    }
}

/// Number of pods by domain; unordered.
type Counts = HashMap<Domain, u32, FixedState>;

/// The pods that a counter counts, and the label of its domains.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Question {
    key: Symbol,
    /// A pod counts if it satisfies every one of these.
    pods: Vec<(Option<Requirements>, Namespaces)>,
    /// The other way round: pods that have the term, not pods that it selects; for a spread with its skew.
    owners: Option<u32>,
    /// The nodes whose pods count; `None` for all nodes.
    nodes: Option<NodeFilter>,
    /// Whether terminating pods count.
    terminating: bool,
    /// Whether buffers are left out: the pods that ask cannot see them.
    real: bool,
}

/// The nodes whose pods a spread counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct NodeFilter {
    /// The pod's alternatives of node affinity, if they are honoured.
    terms: Option<Vec<Requirements>>,
    /// The pod's tolerations, if taints are honoured.
    tolerations: Option<Vec<Toleration>>,
    /// Labels that a node must have.
    keys: Vec<Symbol>,
}

#[derive(Debug, Clone)]
struct Counter {
    key: Symbol,
    /// Nodes that count, where domains without pods matter.
    area: Option<usize>,
    terminating: bool,
    /// Pods by domain.
    pods: Counts,
    /// Pods that do not have this affinity themselves: pods that have it can rely on them.
    founders: Counts,
    /// Domains that are known though no node is there yet.
    expected: Vec<Domain>,
    total: u64,
    /// Whether some class requires the count to be zero.
    repels: bool,
    /// The smallest `maxSkew` of the spreads that use the counter.
    max_skew: Option<u32>,
}

impl Counter {
    fn count(&self, domain: Domain) -> u32 {
        self.pods.get(&domain).copied().unwrap_or(0)
    }
}

/// Nodes by domain of a label, of those that a filter counts. Spreads with the same filter share it.
#[derive(Debug, Clone)]
struct Area {
    key: Symbol,
    filter: u32,
    nodes: Counts,
}

#[derive(Debug, Clone)]
struct SpreadRule {
    counter: usize,
    key: Symbol,
    max_skew: u32,
    min_domains: Option<u32>,
    counts_itself: bool,
}

#[derive(Debug, Clone)]
struct AffinityRule {
    counter: usize,
    key: Symbol,
}

/// The compiled topology rules of a class.
#[derive(Debug, Clone, Default)]
struct ClassRules {
    /// Counters that count pods of the class.
    raises: Vec<usize>,
    spread: Vec<SpreadRule>,
    affinity: Vec<AffinityRule>,
    /// Whether the pod satisfies its own affinity terms.
    affine_to_itself: bool,
    /// Counters that must be zero in the pod's domain.
    forbidden: Vec<AffinityRule>,
    /// Spreads over hosts of other pods that count this one: it may not come where it would break them.
    guards: Vec<Guard>,
}

/// A spread over hosts, from the view of the pods that it counts. kube-scheduler checks it only when a pod with the
/// constraint is bound; the planner checks it for the other pods too, so that it holds in any order of arrival.
#[derive(Debug, Clone)]
struct Guard {
    /// Number of pods with the constraint.
    owners: usize,
    /// Number of pods that it counts.
    counted: usize,
    max_skew: u32,
}

/// Counters of all questions, and what they mean for each class.
#[derive(Debug, Clone)]
pub struct Topology {
    hostname: Symbol,
    counters: Vec<Counter>,
    areas: Vec<Area>,
    filters: Vec<NodeFilter>,
    rules: Vec<ClassRules>,
    /// For each known node, the filters that count its pods.
    counted_by: Vec<Option<BitSet>>,
}

/// A node as topology rules see it.
#[derive(Debug, Clone, Copy)]
pub struct TopologyNode<'a> {
    /// Its number.
    pub spot: u32,
    /// Its labels.
    pub labels: &'a Labels,
    /// Its taints.
    pub taints: &'a [Taint],
    /// Whether it has a hostname label; an existing node may lack it.
    pub has_hostname: bool,
    /// Its name, if node affinity of a pod could name it.
    pub name: Option<Symbol>,
}

impl Topology {
    /// The questions of all classes; nothing is counted yet.
    pub fn new(snapshot: &Snapshot) -> Self {
        compile::Compiler::new(snapshot).compile()
    }

    /// Whether no rule between pods concerns the class: it neither looks nor is looked at.
    pub fn is_free(&self, class: ClassId) -> bool {
        let rules = &self.rules[class.index()];
        rules.raises.is_empty() && rules.spread.is_empty() && rules.affinity.is_empty() && rules.forbidden.is_empty()
    }

    /// Whether some rule of the class, or one that counts it, is about a label other than the hostname.
    pub fn keys_of(&self, class: ClassId) -> impl Iterator<Item = Symbol> {
        let rules = &self.rules[class.index()];
        let raised = rules.raises.iter().map(|&counter| self.counters[counter].key);
        let spread = rules.spread.iter().map(|rule| rule.key);
        let near = rules.affinity.iter().chain(&rules.forbidden).map(|rule| rule.key);
        raised.chain(spread).chain(near)
    }

    /// Whether the class must be near other pods by this label.
    pub fn is_affine(&self, class: ClassId, key: Symbol) -> bool {
        self.rules[class.index()].affinity.iter().any(|rule| rule.key == key)
    }

    /// Whether the class must be near other pods by any label.
    pub fn must_be_near(&self, class: ClassId) -> bool {
        !self.rules[class.index()].affinity.is_empty()
    }

    /// Whether pods of the class satisfy their own affinity terms: the first of them may start a domain.
    pub fn is_affine_to_itself(&self, class: ClassId) -> bool {
        self.rules[class.index()].affine_to_itself
    }

    /// What the class's affinity on this label needs: classes with equal values can rely on the same pods.
    pub fn affinity_group(&self, class: ClassId, key: Symbol) -> Vec<usize> {
        let rules = &self.rules[class.index()];
        let mut group: Vec<usize> = rules.affinity.iter().filter(|rule| rule.key == key).map(|r| r.counter).collect();
        if !group.is_empty() {
            // Pods that require the class near them satisfy the affinity too.
            group.push(usize::MAX);
            group.extend(rules.raises.iter().copied().filter(|&counter| self.counters[counter].key == key));
        }
        group
    }

    /// Whether a class's affinity by this label selects pods of another class.
    pub fn follows(&self, class: ClassId, other: ClassId, key: Symbol) -> bool {
        let raises = &self.rules[other.index()].raises;
        self.rules[class.index()].affinity.iter().any(|rule| rule.key == key && raises.contains(&rule.counter))
    }

    /// Whether pods of the class keep each other off a host by anti-affinity.
    pub fn is_alone_on_host(&self, class: ClassId) -> bool {
        !self.exclusive_groups(class).is_empty()
    }

    /// Pods of the class that a new node should hold at most, by its spread over hosts. That is safe in every order
    /// of arrival, since an empty node counts as a domain without pods.
    pub fn spread_per_host(&self, class: ClassId) -> u32 {
        let over_hosts = |rule: &&SpreadRule| rule.key == self.hostname && rule.counts_itself;
        let spread = self.rules[class.index()].spread.iter().filter(over_hosts);
        spread.map(|rule| rule.max_skew).min().unwrap_or(u32::MAX)
    }

    /// Counters by host that the class raises and that must be zero for it: classes that share such a counter exclude
    /// each other on a host.
    pub fn exclusive_groups(&self, class: ClassId) -> Vec<u32> {
        let rules = &self.rules[class.index()];
        let mine = |rule: &&AffinityRule| rule.key == self.hostname && rules.raises.contains(&rule.counter);
        let mut groups: Vec<u32> = rules.forbidden.iter().filter(mine).map(|rule| rule.counter as u32).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Spreads over hosts that count the class itself.
    pub fn host_spreads(&self, class: ClassId) -> Vec<u32> {
        let over_hosts = |rule: &&SpreadRule| rule.key == self.hostname && rule.counts_itself;
        self.rules[class.index()].spread.iter().filter(over_hosts).map(|rule| rule.counter as u32).collect()
    }

    /// Spreads over hosts by one: pods that share such a group should not meet on a new node.
    pub fn spread_groups(&self, class: ClassId) -> Vec<u32> {
        let by_one = |rule: &&SpreadRule| rule.key == self.hostname && rule.counts_itself && rule.max_skew == 1;
        let spread = self.rules[class.index()].spread.iter().filter(by_one);
        spread.map(|rule| rule.counter as u32).collect()
    }

    /// Whether spreads over hosts, its own or those of pods that count it, concern the class beside its anti-affinity.
    pub fn is_guarded(&self, class: ClassId) -> bool {
        let rules = &self.rules[class.index()];
        !rules.guards.is_empty() || rules.spread.iter().any(|rule| rule.key == self.hostname)
    }

    /// Whether the class has rules by host of its own or of others that count it.
    pub fn has_host_rules(&self, class: ClassId) -> bool {
        self.keys_of(class).any(|key| key == self.hostname)
    }

    /// Makes a node known: its domains exist from now on, even without pods.
    pub fn add_node(&mut self, place: TopologyNode<'_>, snapshot: &Snapshot) {
        self.change_node(place, snapshot, 1);
    }

    /// Removes a node.
    pub fn remove_node(&mut self, place: TopologyNode<'_>, snapshot: &Snapshot) {
        self.change_node(place, snapshot, -1);
    }

    fn change_node(&mut self, place: TopologyNode<'_>, snapshot: &Snapshot, by: i32) {
        let filters = self.filters.iter().enumerate();
        let counting = filters.filter(|(_, filter)| filter.counts(place, self.hostname, snapshot));
        let counting: BitSet = counting.map(|(index, _)| index).collect();
        for area in self.areas.iter_mut().filter(|area| counting.contains(area.filter as usize)) {
            if let Some(domain) = domain_of(place, area.key, self.hostname) {
                let nodes = area.nodes.entry(domain).or_default();
                *nodes = nodes.saturating_add_signed(by);
                if *nodes == 0 {
                    area.nodes.remove(&domain);
                }
            }
        }
        let spot = place.spot as usize;
        if spot >= self.counted_by.len() {
            self.counted_by.resize(spot + 1, None);
        }
        self.counted_by[spot] = Some(counting);
    }

    /// Whether a filter counts the pods of a node.
    fn is_counted(&self, filter: u32, place: TopologyNode<'_>, snapshot: &Snapshot) -> bool {
        match self.counted_by.get(place.spot as usize) {
            Some(Some(counting)) => counting.contains(filter as usize),
            _ => self.filters[filter as usize].counts(place, self.hostname, snapshot),
        }
    }

    /// Counts pods of a class on a node.
    pub fn add(&mut self, class: ClassId, place: TopologyNode<'_>, count: u32, snapshot: &Snapshot) {
        self.change(class, place, i64::from(count), false, snapshot);
    }

    /// Counts terminating pods.
    pub fn add_terminating(&mut self, class: ClassId, place: TopologyNode<'_>, count: u32, snapshot: &Snapshot) {
        self.change(class, place, i64::from(count), true, snapshot);
    }

    /// Takes pods of a class off a node.
    pub fn remove(&mut self, class: ClassId, place: TopologyNode<'_>, count: u32, snapshot: &Snapshot) {
        self.change(class, place, -i64::from(count), false, snapshot);
    }

    fn change(&mut self, class: ClassId, place: TopologyNode<'_>, by: i64, terminating: bool, snapshot: &Snapshot) {
        for &index in &self.rules[class.index()].raises {
            let counter = &self.counters[index];
            let counted = counter.terminating || !terminating;
            let eligible = |area: usize| self.is_counted(self.areas[area].filter, place, snapshot);
            if counted
                && counter.area.is_none_or(eligible)
                && let Some(domain) = domain_of(place, counter.key, self.hostname)
            {
                let asks = self.rules[class.index()].affinity.iter().any(|rule| rule.counter == index);
                self.counters[index].change(domain, by, !asks);
            }
        }
    }

    /// Counts pods of a class in a domain, for counters by this label only.
    pub fn add_in_domain(&mut self, class: ClassId, key: Symbol, domain: Domain, count: i64) {
        let rules = &self.rules[class.index()];
        for &index in &rules.raises {
            let counter = &mut self.counters[index];
            if counter.key == key {
                let asks = rules.affinity.iter().any(|rule| rule.counter == index);
                counter.change(domain, count, !asks);
            }
        }
    }

    /// By how many pods the spreads on this label that count the class exceed their `maxSkew`, in sum.
    pub fn excess(&self, class: ClassId, key: Symbol) -> u64 {
        let raised = self.rules[class.index()].raises.iter().map(|&counter| &self.counters[counter]);
        let spreads =
            raised.filter(|counter| counter.key == key).filter_map(|counter| Some((counter, counter.max_skew?)));
        let excess = |(counter, max_skew): (&Counter, u32)| {
            let counts = || self.known_domains(counter).map(|domain| counter.count(domain));
            let skew = counts().max().unwrap_or(0) - counts().min().unwrap_or(0);
            u64::from(skew.saturating_sub(max_skew))
        };
        spreads.map(excess).sum()
    }

    /// Makes a domain known to the spreads of a class although it has no node yet, because one can be bought.
    pub fn expect_domain(&mut self, class: ClassId, key: Symbol, domain: Domain) {
        for rule in self.rules[class.index()].spread.iter().filter(|rule| rule.key == key) {
            let expected = &mut self.counters[rule.counter].expected;
            if !expected.contains(&domain) {
                expected.push(domain);
            }
        }
    }

    /// From now on, only domains that have nodes count.
    pub fn expect_nothing(&mut self) {
        for counter in &mut self.counters {
            counter.expected.clear();
        }
    }

    /// Whether all spreads that look at the class, or that it looks at, know a domain.
    pub fn knows(&self, class: ClassId, key: Symbol, domain: Domain) -> bool {
        let rules = &self.rules[class.index()];
        let counters = rules.raises.iter().copied().chain(rules.spread.iter().map(|rule| rule.counter));
        let spreads = counters.map(|counter| &self.counters[counter]).filter(|of| of.key == key && of.area.is_some());
        spreads.into_iter().all(|counter| self.known_domains(counter).any(|known| known == domain))
    }

    /// The domains that a spread compares.
    fn known_domains(&self, counter: &Counter) -> impl Iterator<Item = Domain> {
        let nodes = counter.area.map(|area| &self.areas[area].nodes);
        let there = nodes.into_iter().flat_map(|nodes| nodes.keys().copied());
        let to_come = counter.expected.iter().copied();
        there.chain(to_come.filter(move |domain| nodes.is_none_or(|nodes| !nodes.contains_key(domain))))
    }

    /// Whether topology rules allow one more pod of the class on a node.
    pub fn check(&self, class: ClassId, place: TopologyNode<'_>) -> Result<(), Rule> {
        let domain = |key| domain_of(place, key, self.hostname);
        self.check_with(class, |key| Some(domain(key)))
    }

    /// Like [`Self::check`] without rules about the hostname, for pods that may use any node of the same domains.
    pub fn check_besides_host(&self, class: ClassId, place: TopologyNode<'_>) -> Result<(), Rule> {
        self.check_with(class, |key| (key != self.hostname).then(|| domain_of(place, key, self.hostname)))
    }

    /// Like [`Self::check`] for one label, for a node of which only this domain is known.
    pub fn check_domain(&self, class: ClassId, key: Symbol, domain: Domain) -> Result<(), Rule> {
        self.check_with(class, |asked| (asked == key).then_some(Some(domain)))
    }

    /// The same for the host, while more hosts are to come: one without pods will be among them.
    pub fn check_new_host(&self, class: ClassId, host: Domain) -> Result<(), Rule> {
        self.check_domain(class, self.hostname, host)?;
        let over_hosts = self.rules[class.index()].spread.iter().filter(|rule| rule.key == self.hostname);
        let after = |rule: &SpreadRule| self.counters[rule.counter].count(host) + u32::from(rule.counts_itself);
        let mut full = over_hosts.filter(|rule| after(rule) > rule.max_skew);
        full.next().map_or(Ok(()), |_| Err(Rule::TopologySpread))
    }

    /// `domain` returns `None` for labels that are not checked, and `Some(None)` for labels that the node lacks.
    fn check_with(&self, class: ClassId, domain: impl Fn(Symbol) -> Option<Option<Domain>>) -> Result<(), Rule> {
        let rules = &self.rules[class.index()];
        for rule in &rules.forbidden {
            if let Some(Some(domain)) = domain(rule.key)
                && self.counters[rule.counter].count(domain) > 0
            {
                return Err(Rule::PodAntiAffinity);
            }
        }
        for guard in &rules.guards {
            if let Some(Some(domain)) = domain(self.hostname)
                && self.counters[guard.owners].count(domain) > 0
                && self.counters[guard.counted].count(domain) >= guard.max_skew
            {
                return Err(Rule::TopologySpread);
            }
        }
        for rule in &rules.affinity {
            let near = match domain(rule.key) {
                None => true,
                Some(None) => false,
                Some(Some(domain)) => self.counters[rule.counter].count(domain) > 0 || self.may_start(rules),
            };
            if !near {
                return Err(Rule::PodAffinity);
            }
        }
        for rule in &rules.spread {
            match domain(rule.key) {
                None => {}
                Some(None) => return Err(Rule::TopologySpread),
                Some(Some(domain)) if self.skew_after(rule, domain) > i64::from(rule.max_skew) => {
                    return Err(Rule::TopologySpread);
                }
                Some(Some(_)) => {}
            }
        }
        Ok(())
    }

    /// Whether the first pod of a group may start a domain: no selected pod is there yet, and it selects itself.
    fn may_start(&self, rules: &ClassRules) -> bool {
        rules.affine_to_itself && rules.affinity.iter().all(|rule| self.counters[rule.counter].total == 0)
    }

    fn skew_after(&self, rule: &SpreadRule, domain: Domain) -> i64 {
        let counter = &self.counters[rule.counter];
        i64::from(counter.count(domain)) + i64::from(rule.counts_itself) - i64::from(self.least(rule))
    }

    fn least(&self, rule: &SpreadRule) -> u32 {
        let counter = &self.counters[rule.counter];
        if rule.min_domains.is_some_and(|wanted| (self.known_domains(counter).count() as u64) < u64::from(wanted)) {
            return 0;
        }
        // Many hosts: if there are more than have pods, one has none.
        let nodes = counter.area.map_or(0, |area| self.areas[area].nodes.len());
        if counter.key == self.hostname && nodes > counter.pods.len() {
            return 0;
        }
        self.known_domains(counter).map(|domain| counter.count(domain)).min().unwrap_or(0)
    }

    /// Whether pods of the class on a node still meet their spread and affinity; the error is the rule that they break.
    pub fn holds(&self, class: ClassId, place: TopologyNode<'_>) -> Result<(), Rule> {
        let rules = &self.rules[class.index()];
        let domain = |key| domain_of(place, key, self.hostname);
        let even = |rule: &SpreadRule| {
            domain(rule.key).is_some_and(|domain| {
                let count = self.counters[rule.counter].count(domain);
                i64::from(count) - i64::from(self.least(rule)) <= i64::from(rule.max_skew)
            })
        };
        let near = |rule: &AffinityRule| {
            domain(rule.key).is_some_and(|domain| {
                // Without a founder the group started here, which it may do only if no selected pod is elsewhere.
                let counter = &self.counters[rule.counter];
                let count = counter.count(domain);
                counter.founders.contains_key(&domain) || count > 0 && u64::from(count) == counter.total
            })
        };
        if !rules.spread.iter().all(even) {
            return Err(Rule::TopologySpread);
        }
        if rules.affinity.iter().all(near) { Ok(()) } else { Err(Rule::PodAffinity) }
    }

    /// Whether the pods that the class's affinity requires are in the same domain, not counting `floating` pods: those
    /// with required affinity of their own, by counter and domain.
    pub fn has_settled_affinity(
        &self,
        class: ClassId,
        place: TopologyNode<'_>,
        floating: &HashMap<(usize, Domain), u32>,
    ) -> bool {
        self.rules[class.index()].affinity.iter().all(|rule| {
            domain_of(place, rule.key, self.hostname).is_some_and(|domain| {
                let unsteady = floating.get(&(rule.counter, domain)).copied().unwrap_or(0);
                self.counters[rule.counter].count(domain) > unsteady
            })
        })
    }

    /// The counters that a pod of the class on a node raises, each with the pod's domain.
    pub fn counted_at(&self, class: ClassId, place: TopologyNode<'_>) -> impl Iterator<Item = (usize, Domain)> {
        let raises = self.rules[class.index()].raises.iter();
        raises.filter_map(move |&counter| Some((counter, domain_of(place, self.counters[counter].key, self.hostname)?)))
    }

    /// Whether the class has required pod affinity.
    pub fn has_required_affinity(&self, class: ClassId) -> bool {
        !self.rules[class.index()].affinity.is_empty()
    }

    /// Whether all pods that the class's affinity selects, in any domain, are in the same domain.
    pub fn has_all_selected_pods(&self, class: ClassId, place: TopologyNode<'_>) -> bool {
        self.rules[class.index()].affinity.iter().all(|rule| {
            let counter = &self.counters[rule.counter];
            let near = domain_of(place, rule.key, self.hostname).map(|domain| counter.count(domain));
            near.is_some_and(|near| u64::from(near) == counter.total)
        })
    }

    /// Whether the class has a spread or an affinity that placements of other pods can break.
    pub fn has_fragile_rules(&self, class: ClassId) -> bool {
        let rules = &self.rules[class.index()];
        !rules.spread.is_empty() || !rules.affinity.is_empty()
    }

    /// Labels other than the hostname by which the class is spread.
    pub fn spread_keys(&self, class: ClassId) -> impl Iterator<Item = Symbol> {
        let rules = &self.rules[class.index()];
        rules.spread.iter().map(|rule| rule.key).filter(|key| *key != self.hostname)
    }

    /// The number of pods in a domain that matter for balancing a class: pods of the counters on this label that it
    /// raises, and of its spreads.
    pub fn load(&self, class: ClassId, key: Symbol, domain: Domain) -> u64 {
        let rules = &self.rules[class.index()];
        let raised = rules.raises.iter().map(|&counter| &self.counters[counter]);
        let load: u64 = raised
            .filter(|counter| counter.key == key && counter.area.is_some())
            .map(|counter| u64::from(counter.count(domain)))
            .sum();
        let looked_at = rules.spread.iter().filter(|rule| rule.key == key && !rule.counts_itself);
        load + looked_at.map(|rule| u64::from(self.counters[rule.counter].count(domain))).sum::<u64>()
    }
}

/// For planning nodes whose domain is not decided yet.
impl Topology {
    /// Labels of the topology rules that a pod of the class must meet itself, each once.
    pub fn looks_at(&self, class: ClassId) -> Vec<Symbol> {
        let rules = &self.rules[class.index()];
        let near = rules.affinity.iter().chain(&rules.forbidden).map(|rule| rule.key);
        let mut keys: Vec<Symbol> = rules.spread.iter().map(|rule| rule.key).chain(near).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Counts a pod on a node that may still be in any of several domains of a label. Anti-affinity counts it in all of
    /// them; spread and affinity count it only if the domain is known.
    pub fn add_possible(&mut self, class: ClassId, key: Symbol, domains: &[Domain]) {
        for &index in &self.rules[class.index()].raises {
            let counter = &mut self.counters[index];
            if counter.key == key && (domains.len() == 1 || counter.repels) {
                domains.iter().for_each(|domain| counter.change(*domain, 1, true));
            }
        }
    }
}

impl Counter {
    fn change(&mut self, domain: Domain, by: i64, founding: bool) {
        change_count(&mut self.pods, domain, by);
        if founding && self.area.is_none() {
            change_count(&mut self.founders, domain, by);
        }
        self.total = self.total.saturating_add_signed(by);
    }
}

fn change_count(counts: &mut Counts, domain: Domain, by: i64) {
    let count = counts.entry(domain).or_default();
    *count = u32::try_from((i64::from(*count) + by).max(0)).unwrap_or(u32::MAX);
    if *count == 0 {
        counts.remove(&domain);
    }
}

impl NodeFilter {
    fn counts(&self, place: TopologyNode<'_>, hostname: Symbol, snapshot: &Snapshot) -> bool {
        let has = |key: &Symbol| domain_of(place, *key, hostname).is_some();
        let symbols = &snapshot.symbols;
        let own = snapshot.names.node_name;
        let label = |key: Symbol| if key == own { place.name } else { place.labels.get(key) };
        let wanted = |term: &Requirements| term.match_labels(label, symbols);
        self.keys.iter().all(has)
            && self.terms.as_ref().is_none_or(|terms| terms.iter().any(wanted))
            && self
                .tolerations
                .as_ref()
                .is_none_or(|tolerations| taint::first_forbidding(place.taints, tolerations, symbols).is_none())
    }
}

fn domain_of(place: TopologyNode<'_>, key: Symbol, hostname: Symbol) -> Option<Domain> {
    if key == hostname {
        return place.has_hostname.then_some(Domain(place.spot));
    }
    place.labels.get(key).map(Domain::value)
}
