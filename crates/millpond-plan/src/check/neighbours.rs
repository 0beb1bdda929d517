//! kube-scheduler's rules between pods: anti-affinity, affinity, spread.
//!
//! The classes that a selector matches are found once for each distinct selector; after that only counts by domain are
//! compared.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::planned_cluster::{Domain, PlannedCluster};
use super::violation::Violation;
use crate::model::{AffinityTerm, ClassId, InclusionPolicy, Namespaces, PodClass, PodKind, Spread, selects};
use crate::requirement::Requirements;
use crate::symbol::Symbol;

/// Checks the topology rules of every planned pod.
pub(super) fn check(cluster: &mut PlannedCluster<'_>, found: &mut Vec<Violation>) {
    let mut selected = Selected::new(cluster);
    anti_affinity(cluster, &mut selected, found);
    Grounding::new(cluster, &mut selected).run(found);
    for class in (0..cluster.by_class.len()).map(ClassId::from) {
        let planned = cluster.by_class[class.index()].iter().any(|group| cluster.groups[*group].planned > 0);
        if planned {
            spread(cluster, &mut selected, class, found);
        }
    }
}

/// For each selector, the classes with pods that it matches.
struct Selected<'a> {
    present: Vec<ClassId>,
    known: HashMap<(Option<&'a Requirements>, Namespaces, Whom), Vec<ClassId>>,
}

/// Who can be selected: pods that are real know nothing of buffers, which are no pods of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Whom {
    Everybody,
    RealPods,
}

impl Whom {
    fn seen_by(class: &PodClass) -> Self {
        if class.kind == PodKind::Buffer { Self::Everybody } else { Self::RealPods }
    }
}

impl<'a> Selected<'a> {
    fn new(cluster: &PlannedCluster<'a>) -> Self {
        let present = cluster.by_class.iter().enumerate().filter(|(_, groups)| !groups.is_empty());
        Self { present: present.map(|(class, _)| ClassId::from(class)).collect(), known: HashMap::new() }
    }

    fn classes(
        &mut self,
        cluster: &PlannedCluster<'a>,
        selector: Option<&'a Requirements>,
        namespaces: Namespaces,
        whom: Whom,
    ) -> &[ClassId] {
        let present = &self.present;
        self.known.entry((selector, namespaces, whom)).or_insert_with_key(|(selector, namespaces, _)| {
            let is_selected = |id: &&ClassId| {
                let class = cluster.class(**id);
                namespaces.contains(class.namespace)
                    && (whom == Whom::Everybody || class.kind != PodKind::Buffer)
                    && selector.is_some_and(|one| selects(one, &class.labels, &cluster.snapshot.symbols))
            };
            present.iter().filter(is_selected).copied().collect()
        })
    }

    fn of_term(&mut self, cluster: &PlannedCluster<'a>, term: &'a AffinityTerm, whom: Whom) -> &[ClassId] {
        self.classes(cluster, term.selector.as_ref(), term.namespaces.clone(), whom)
    }
}

/// Pods of some classes in a domain, with one of their groups for messages.
#[derive(Debug, Clone, Copy, Default)]
struct DomainPods {
    total: u64,
    planned: u64,
    group: usize,
}

fn domain_pods(cluster: &PlannedCluster<'_>, classes: &[ClassId], key: Symbol) -> HashMap<Domain, DomainPods> {
    let mut domain_pods: HashMap<Domain, DomainPods> = HashMap::new();
    for &number in classes.iter().flat_map(|class| &cluster.by_class[class.index()]) {
        let group = &cluster.groups[number];
        let Some(domain) = cluster.domain(group.site, key) else { continue };
        let pods = domain_pods.entry(domain).or_insert(DomainPods { group: number, ..DomainPods::default() });
        pods.total += u64::from(group.total());
        pods.planned += u64::from(group.planned);
    }
    domain_pods
}

/// No pod shares a domain with a pod that one of its anti-affinity terms selects, if the plan placed one of the two
/// there. Pods of buffers keep the rule too, in both directions.
fn anti_affinity<'a>(cluster: &PlannedCluster<'a>, selected: &mut Selected<'a>, found: &mut Vec<Violation>) {
    let mut known: HashMap<(&Option<Requirements>, &Namespaces, Symbol), HashMap<Domain, DomainPods>> = HashMap::new();
    for owner in selected.present.clone() {
        for term in &cluster.class(owner).anti_affinity {
            let others = known.entry((&term.selector, &term.namespaces, term.key)).or_insert_with(|| {
                let classes = selected.of_term(cluster, term, Whom::Everybody).to_vec();
                domain_pods(cluster, &classes, term.key)
            });
            let selects_itself = selected.of_term(cluster, term, Whom::Everybody).contains(&owner);
            let mut owners: Vec<(Domain, DomainPods)> = domain_pods(cluster, &[owner], term.key).into_iter().collect();
            owners.sort_unstable_by_key(|(domain, _)| *domain);
            for (domain, owners) in owners {
                let others = others.get(&domain).copied().unwrap_or_default();
                let itself = if selects_itself { owners } else { DomainPods::default() };
                let among = selects_itself && owners.planned > 0 && owners.total > 1;
                let (total, planned) = (others.total - itself.total, others.planned - itself.planned);
                if among || owners.planned > 0 && total > 0 || planned > 0 {
                    let not = (!among).then_some(owner);
                    let classes = selected.of_term(cluster, term, Whom::Everybody);
                    let other = other_of(cluster, classes, term.key, domain, not, owners.group);
                    found.push(Violation::PodAntiAffinity {
                        pod: cluster.pod_name(&cluster.groups[owners.group]),
                        other: cluster.pod_name(&cluster.groups[other.unwrap_or(others.group)]),
                        key: cluster.snapshot.text(term.key).to_owned(),
                    });
                }
            }
        }
    }
}

/// A group of one of the classes in a domain, but not of this class, and another than this one if there is such; for
/// a message.
fn other_of(
    cluster: &PlannedCluster<'_>,
    classes: &[ClassId],
    key: Symbol,
    domain: Domain,
    not: Option<ClassId>,
    besides: usize,
) -> Option<usize> {
    let classes = classes.iter().filter(|class| Some(**class) != not);
    let groups = classes.flat_map(|class| &cluster.by_class[class.index()]).copied();
    let mut there = groups.filter(|group| cluster.domain(cluster.groups[*group].site, key) == Some(domain));
    let first = there.next();
    if first == Some(besides) { there.next().or(first) } else { first }
}

/// Binds pods in the order in which kube-scheduler does, as far as that order is known: higher priority first, then
/// pods without required affinity, then those whose required pods are placed. The others wait for pods of lower
/// priority.
///
/// Pods are *grounded* once they could be bound; those that run are from the start. The pods of one list of terms
/// have one need; it is met where grounded pods that satisfy all its terms are.
struct Grounding<'w, 'a> {
    cluster: &'w PlannedCluster<'a>,
    needs: Vec<Need<'a>>,
    /// Needs that grounded pods of a class help to meet.
    met_by: HashMap<ClassId, Vec<usize>>,
    /// Groups that can be bound next.
    ready: Vec<usize>,
    /// Planned groups by priority, lowest first: those that need no other pod, and the others with their need.
    planned: BTreeMap<i32, (Vec<usize>, Vec<(usize, usize)>)>,
}

struct Need<'a> {
    terms: &'a [AffinityTerm],
    /// For each term the domains with bound pods that satisfy all terms.
    domains: Vec<HashSet<Domain>>,
    /// Planned groups that wait for pods of these terms.
    waiting: BTreeSet<usize>,
    /// Classes whose pods satisfy all terms.
    classes: Vec<ClassId>,
}

impl<'w, 'a> Grounding<'w, 'a> {
    fn new(cluster: &'w PlannedCluster<'a>, selected: &mut Selected<'a>) -> Self {
        let mut numbers: HashMap<(&'a [AffinityTerm], Whom), usize> = HashMap::new();
        let (needs, met_by) = (Vec::new(), HashMap::new());
        let mut this = Self { cluster, needs, met_by, ready: Vec::new(), planned: BTreeMap::new() };
        for (number, group) in cluster.groups.iter().enumerate() {
            let class = cluster.class(group.class);
            if group.settled + group.terminating > 0 {
                this.ready.push(number);
            }
            if group.planned == 0 {
                continue;
            }
            let of_priority = this.planned.entry(class.priority).or_default();
            if class.affinity.is_empty() {
                of_priority.0.push(number);
                continue;
            }
            let whom = Whom::seen_by(class);
            let need = *numbers.entry((&class.affinity, whom)).or_insert_with(|| {
                this.needs.push(Need::new(cluster, selected, &class.affinity, whom));
                this.needs.len() - 1
            });
            of_priority.1.push((number, need));
        }
        for (number, need) in this.needs.iter().enumerate() {
            for class in &need.classes {
                this.met_by.entry(*class).or_default().push(number);
            }
        }
        this
    }

    fn run(mut self, found: &mut Vec<Violation>) {
        if self.needs.is_empty() {
            return;
        }
        while let Some((_, (free, needy))) = self.planned.pop_last() {
            self.ready.extend(free);
            self.ground_all();
            for (number, need) in needy {
                self.needs[need].waiting.insert(number);
            }
            for need in 0..self.needs.len() {
                let met = self.needs[need].take_met(self.cluster);
                self.ready.extend(met);
            }
            self.ground_all();
            while let Some(first) = self.starter() {
                self.ready.push(first);
                self.ground_all();
            }
        }
        let stuck: BTreeSet<usize> = self.needs.iter().flat_map(|need| need.waiting.iter().copied()).collect();
        for number in stuck {
            let group = &self.cluster.groups[number];
            let (pod, node) = (self.cluster.pod_name(group), self.cluster.site_name(group.site));
            found.push(Violation::PodAffinity { pod, node });
        }
    }

    /// Binds the groups that are ready, and those that become ready by it.
    fn ground_all(&mut self) {
        while let Some(number) = self.ready.pop() {
            let group = &self.cluster.groups[number];
            let mut changed = Vec::new();
            for &need in self.met_by.get(&group.class).into_iter().flatten() {
                if self.needs[need].add(self.cluster, group.site) {
                    changed.push(need);
                }
            }
            for need in changed {
                let met = self.needs[need].take_met(self.cluster);
                self.ready.extend(met);
            }
        }
    }

    /// A group that may start a domain: its pods satisfy their own terms, and no placed pod does. Of several groups,
    /// the one in whose domain most of the waiting pods are.
    fn starter(&mut self) -> Option<usize> {
        for need in &mut self.needs {
            if need.domains.iter().any(|domains| !domains.is_empty()) {
                continue;
            }
            let may_start = |number: &&usize| {
                let group = &self.cluster.groups[**number];
                let has_keys = need.terms.iter().all(|term| self.cluster.domain(group.site, term.key).is_some());
                has_keys && need.classes.contains(&group.class)
            };
            let domains = |number: usize| -> Vec<Option<Domain>> {
                need.terms.iter().map(|term| self.cluster.domain(self.cluster.groups[number].site, term.key)).collect()
            };
            let mut domain_pods: BTreeMap<Vec<Option<Domain>>, (u32, usize)> = BTreeMap::new();
            for &number in need.waiting.iter().filter(may_start) {
                domain_pods.entry(domains(number)).or_insert((0, number)).0 += self.cluster.groups[number].planned;
            }
            if let Some((_, first)) =
                domain_pods.into_values().max_by_key(|(count, first)| (*count, usize::MAX - first))
            {
                need.waiting.remove(&first);
                return Some(first);
            }
        }
        None
    }
}

impl<'a> Need<'a> {
    fn new(cluster: &PlannedCluster<'a>, selected: &mut Selected<'a>, terms: &'a [AffinityTerm], whom: Whom) -> Self {
        let mut classes: Option<Vec<ClassId>> = None;
        for term in terms {
            let of_term = selected.of_term(cluster, term, whom);
            classes = Some(match classes {
                None => of_term.to_vec(),
                Some(known) => known.into_iter().filter(|class| of_term.binary_search(class).is_ok()).collect(),
            });
        }
        let domains = vec![HashSet::new(); terms.len()];
        Self { terms, domains, waiting: BTreeSet::new(), classes: classes.unwrap_or_default() }
    }

    /// Adds a grounded pod on a node that satisfies all terms; returns whether it is new.
    fn add(&mut self, cluster: &PlannedCluster<'_>, site: usize) -> bool {
        let mut news = false;
        for (term, domains) in self.terms.iter().zip(&mut self.domains) {
            if let Some(domain) = cluster.domain(site, term.key) {
                news |= domains.insert(domain);
            }
        }
        news
    }

    /// Removes and returns the groups whose terms are met now.
    fn take_met(&mut self, cluster: &PlannedCluster<'_>) -> Vec<usize> {
        let met = |number: &usize| {
            let site = cluster.groups[*number].site;
            let mut terms = self.terms.iter().zip(&self.domains);
            terms.all(|(term, domains)| cluster.domain(site, term.key).is_some_and(|domain| domains.contains(&domain)))
        };
        let met: Vec<usize> = self.waiting.iter().copied().filter(met).collect();
        for number in &met {
            self.waiting.remove(number);
        }
        met
    }
}

/// No planned pod's domain exceeds the minimum over all domains by more than `maxSkew` pods.
fn spread<'a>(
    cluster: &mut PlannedCluster<'a>,
    selected: &mut Selected<'a>,
    class: ClassId,
    found: &mut Vec<Violation>,
) {
    let (namespace, whom) = (cluster.class(class).namespace, Whom::seen_by(cluster.class(class)));
    let rules = &cluster.class(class).spread;
    for rule in rules.iter().filter(|rule| rule.hard) {
        let own = Namespaces::These([namespace].into());
        let classes = selected.classes(cluster, rule.selector.as_ref(), own, whom).to_vec();
        let mut counted = SpreadCounts { rule, class, by_domain: HashMap::new(), eligible: HashMap::new() };
        counted.count_pods(cluster, &classes);
        let least = counted.least(cluster);
        for number in cluster.by_class[class.index()].clone() {
            let group = &cluster.groups[number];
            if group.planned == 0 {
                continue;
            }
            let key = || cluster.snapshot.text(rule.key).to_owned();
            let (pod, node) = (|| cluster.pod_name(group), || cluster.site_name(group.site));
            let Some(domain) = cluster.domain(group.site, rule.key) else {
                found.push(Violation::NoDomain { pod: pod(), node: node(), key: key() });
                continue;
            };
            let here = counted.by_domain.get(&domain).copied().unwrap_or(0);
            if here > least + u64::from(rule.max_skew) {
                let (pod, node, key, max_skew) = (pod(), node(), key(), rule.max_skew);
                found.push(Violation::Spread { pod, node, key, here, least, max_skew });
            }
        }
    }
}

/// Pods by domain for one spread of a class.
struct SpreadCounts<'r> {
    rule: &'r Spread,
    class: ClassId,
    by_domain: HashMap<Domain, u64>,
    /// For each profile, whether its nodes count.
    eligible: HashMap<usize, bool>,
}

impl SpreadCounts<'_> {
    fn count_pods(&mut self, cluster: &mut PlannedCluster<'_>, classes: &[ClassId]) {
        for class in classes {
            for number in cluster.by_class[class.index()].clone() {
                let (site, pods) =
                    (cluster.groups[number].site, cluster.groups[number].planned + cluster.groups[number].settled);
                if pods == 0 || !self.counts(cluster, site) {
                    continue;
                }
                if let Some(domain) = cluster.domain(site, self.rule.key) {
                    *self.by_domain.entry(domain).or_default() += u64::from(pods);
                }
            }
        }
    }

    /// The least number of pods in a domain; zero where there are too few domains.
    fn least(&self, cluster: &mut PlannedCluster<'_>) -> u64 {
        let mut domains: HashSet<Domain> = HashSet::new();
        for profile in 0..cluster.profiles.len() {
            let sites = cluster.sites_of_profile[profile].clone();
            let by_host = self.rule.key == cluster.snapshot.names.hostname;
            let alike = !by_host && cluster.is_anonymous(self.class);
            let asked = if alike { &sites[..sites.len().min(1)] } else { &sites[..] };
            for &site in asked {
                if self.asks(cluster, site) {
                    domains.extend(cluster.domain(site, self.rule.key));
                }
            }
        }
        if self.rule.min_domains.is_some_and(|least| domains.len() < least as usize) {
            return 0;
        }
        let pods = |domain: &Domain| self.by_domain.get(domain).copied().unwrap_or(0);
        domains.iter().map(pods).min().unwrap_or(0)
    }

    /// Whether a node counts, remembered by kind of node where it can be.
    fn counts(&mut self, cluster: &mut PlannedCluster<'_>, site: usize) -> bool {
        if !cluster.is_anonymous(self.class) {
            return self.asks(cluster, site);
        }
        let profile = cluster.sites[site].profile;
        if let Some(known) = self.eligible.get(&profile) {
            return *known;
        }
        let counts = self.asks(cluster, site);
        self.eligible.insert(profile, counts);
        counts
    }

    fn asks(&self, cluster: &mut PlannedCluster<'_>, site: usize) -> bool {
        let mut hard = cluster.class(self.class).spread.iter().filter(|rule| rule.hard);
        hard.all(|rule| cluster.domain(site, rule.key).is_some())
            && (self.rule.node_affinity == InclusionPolicy::Ignore || cluster.affinity_allows(self.class, site))
            && (self.rule.node_taints == InclusionPolicy::Ignore || cluster.tolerates(self.class, site))
    }
}
