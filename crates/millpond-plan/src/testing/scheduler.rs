//! kube-scheduler's filters, written for the eye: every question looks at every pod.
//!
//! It is what faster code is compared with, and what puts the running pods of random clusters where they may be.

use crate::model::{
    AffinityTerm, ClassId, HostPort, InclusionPolicy, Labels, NodeState, PodClass, PodKind, PodState, Resources,
    Snapshot, Spread, selects,
};
use crate::plan::{NewNode, Outcome, Rule, Target};
use crate::requirement::Requirements;
use crate::symbol::Symbol;
use crate::taint::{Taint, first_forbidding};

/// Nodes and the pods on them.
#[derive(Debug, Clone)]
pub struct Scheduler<'s> {
    snapshot: &'s Snapshot,
    places: Vec<NodeUsage>,
}

#[derive(Debug, Clone)]
struct NodeUsage {
    /// Whether pods may come, and whether it counts at all.
    open: bool,
    there: bool,
    /// The name; a name that no pod uses is made from the place's number.
    name: Option<Symbol>,
    labels: Labels,
    taints: Vec<Taint>,
    allocatable: Resources,
    /// Room for daemons that have not come yet.
    kept: Resources,
    pods: Vec<(ClassId, bool)>,
}

/// The value of a label; that of the hostname of a node without a name is its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Text(Symbol),
    Host(usize),
}

impl<'s> Scheduler<'s> {
    /// The nodes of the snapshot with the pods that are on them or wait for room there. Room is kept for daemons that
    /// have yet to come.
    pub fn new(snapshot: &'s Snapshot) -> Self {
        let place = |node: &crate::model::Node| NodeUsage {
            open: node.schedulable && node.state != NodeState::Leaving,
            there: true,
            name: snapshot.symbols.find(&node.name),
            labels: node.labels.clone(),
            taints: node.taints.clone(),
            allocatable: node.allocatable.clone(),
            kept: Resources::new(),
            pods: Vec::new(),
        };
        let mut all = Self { snapshot, places: snapshot.nodes.iter().map(place).collect() };
        for pod in &snapshot.pods {
            if let Some(node) = pod.node {
                all.places[node.index()].pods.push((pod.class, pod.state == PodState::Terminating));
            }
        }
        for place in 0..all.places.len() {
            all.places[place].kept = all.missing_daemons(place);
        }
        all
    }

    /// What the daemons of a node ask for, without those that are there.
    fn missing_daemons(&self, place: usize) -> Resources {
        let classes = &self.snapshot.classes;
        let mut missing = Resources::new();
        for daemon in self.snapshot.daemons.iter().map(|daemon| &classes[daemon.index()]) {
            if self.runs_daemon(daemon, place) {
                missing.add(&daemon.requests);
            }
        }
        for (class, _) in &self.places[place].pods {
            let class = &classes[class.index()];
            if class.kind == PodKind::Daemon {
                missing.subtract(&class.requests);
            }
        }
        missing.iter().filter(|(_, amount)| *amount > 0).collect()
    }

    /// The cluster when a plan is done: without the nodes that leave, with those that are bought and their daemons,
    /// and every pod that has a place at its place.
    pub fn after(snapshot: &'s Snapshot, outcome: &Outcome) -> Self {
        let mut all = Self::new(snapshot);
        let removed = outcome.plan.removals.iter().flat_map(|removal| &removal.nodes).map(|node| node.index());
        let leaving = (0..snapshot.nodes.len()).filter(|index| snapshot.nodes[*index].state == NodeState::Leaving);
        for gone in removed.chain(leaving).collect::<Vec<_>>() {
            let place = &mut all.places[gone];
            (place.open, place.there) = (false, false);
            place.pods.clear();
        }
        for (number, node) in outcome.plan.new_nodes.iter().enumerate() {
            all.add_node(node, snapshot.symbols.find(&outcome.plan.node_name(snapshot, number)));
        }
        for (pod, target) in &outcome.plan.placements {
            let place = match target {
                Target::Existing(node) => node.index(),
                Target::New(number) => snapshot.nodes.len() + *number as usize,
            };
            all.bind(snapshot.pods[pod.index()].class, place);
        }
        all
    }

    /// One more node with its daemons, and its number.
    pub fn add_node(&mut self, node: &NewNode, name: Option<Symbol>) -> usize {
        let place = NodeUsage {
            open: true,
            there: true,
            name,
            labels: (*node.labels).clone(),
            taints: self.snapshot.pools[node.pool.index()].taints.clone(),
            allocatable: self.snapshot.types[node.instance_type.index()].allocatable.clone(),
            kept: Resources::new(),
            pods: Vec::new(),
        };
        let number = self.places.len();
        self.places.push(place);
        for daemon in &self.snapshot.daemons {
            if self.runs_daemon(&self.snapshot.classes[daemon.index()], number) {
                self.bind(*daemon, number);
            }
        }
        number
    }

    fn runs_daemon(&self, class: &PodClass, place: usize) -> bool {
        self.affinity_allows(class, place) && self.taints_allow(class, place)
    }

    /// Puts a pod on a node, whether or not it fits.
    pub fn bind(&mut self, class: ClassId, place: usize) {
        self.places[place].pods.push((class, false));
    }

    /// Takes a pod of the class off a node.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn unbind(&mut self, class: ClassId, place: usize) {
        let pods = &mut self.places[place].pods;
        let index = pods.iter().position(|(other, terminating)| *other == class && !terminating);
        pods.swap_remove(index.expect("such a pod is there"));
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether one more pod of the class may go to a node, or the first rule against it.
    pub fn fits(&self, class: ClassId, place: usize) -> Result<(), Rule> {
        self.first_against(class, place)?;
        let class = &self.snapshot.classes[class.index()];
        let rules: [(Rule, &dyn Fn() -> bool); 3] = [
            (Rule::PodAffinity, &|| self.near_enough(class, place)),
            (Rule::PodAntiAffinity, &|| self.far_enough(class, place)),
            (Rule::TopologySpread, &|| {
                class.spread.iter().filter(|one| one.hard).all(|one| self.even(class, one, place))
            }),
        ];
        rules.iter().find(|(_, holds)| !holds()).map_or(Ok(()), |(rule, _)| Err(*rule))
    }

    /// Whether one more pod of the class may go to a node as far as the node alone is concerned.
    pub fn suits(&self, class: ClassId, place: usize) -> bool {
        self.first_against(class, place).is_ok()
    }

    /// Whether no pod that is near keeps the class off a node, nor the other way round.
    pub(super) fn is_apart(&self, class: ClassId, place: usize) -> bool {
        self.far_enough(&self.snapshot.classes[class.index()], place)
    }

    fn first_against(&self, class: ClassId, place: usize) -> Result<(), Rule> {
        let class = &self.snapshot.classes[class.index()];
        let rules: [(Rule, &dyn Fn() -> bool); 6] = [
            (Rule::Pod, &|| class.problem.is_none() && self.places[place].open),
            (Rule::Taints, &|| self.taints_allow(class, place)),
            (Rule::NodeAffinity, &|| self.affinity_allows(class, place)),
            (Rule::Volumes, &|| self.volumes_allow(class, place)),
            (Rule::Resources, &|| self.resources_allow(class, place)),
            (Rule::HostPorts, &|| self.ports_allow(class, place)),
        ];
        rules.iter().find(|(_, holds)| !holds()).map_or(Ok(()), |(rule, _)| Err(*rule))
    }

    fn label(&self, place: usize, key: Symbol) -> Option<Value> {
        let at = &self.places[place];
        if key == self.snapshot.names.hostname && at.labels.get(key).is_none() && place >= self.snapshot.nodes.len() {
            return Some(Value::Host(place));
        }
        at.labels.get(key).map(Value::Text)
    }

    /// The label as requirements see it. A name that no pod uses equals no value of a requirement; the name
    /// of a label will do for it.
    fn symbol(&self, place: usize, key: Symbol) -> Option<Symbol> {
        let names = &self.snapshot.names;
        let own_name = self.places[place].name.unwrap_or(names.hostname);
        if key == names.node_name {
            return Some(own_name);
        }
        self.label(place, key).map(|value| match value {
            Value::Text(text) => text,
            Value::Host(_) => own_name,
        })
    }

    fn matches(&self, terms: &[Requirements], place: usize) -> bool {
        terms.iter().any(|term| term.match_labels(|key| self.symbol(place, key), &self.snapshot.symbols))
    }

    fn affinity_allows(&self, class: &PodClass, place: usize) -> bool {
        self.matches(&class.node_terms, place)
    }

    fn volumes_allow(&self, class: &PodClass, place: usize) -> bool {
        class.volume_terms.iter().all(|alternatives| self.matches(alternatives, place))
    }

    fn taints_allow(&self, class: &PodClass, place: usize) -> bool {
        first_forbidding(&self.places[place].taints, &class.tolerations, &self.snapshot.symbols).is_none()
    }

    fn resources_allow(&self, class: &PodClass, place: usize) -> bool {
        let mut free = self.places[place].allocatable.clone();
        free.subtract(&self.places[place].kept);
        for (other, _) in &self.places[place].pods {
            free.subtract(&self.snapshot.classes[other.index()].requests);
        }
        free.first_lacking(&class.requests).is_none()
    }

    fn ports_allow(&self, class: &PodClass, place: usize) -> bool {
        let taken =
            self.places[place].pods.iter().flat_map(|(other, _)| &self.snapshot.classes[other.index()].host_ports);
        let free = |wanted: &HostPort| !taken.clone().any(|port| port.conflicts(wanted));
        class.host_ports.iter().all(free)
    }

    /// Every pod that is somewhere: its class, where, and whether it is going away.
    fn everybody(&self) -> impl Iterator<Item = (&PodClass, usize, bool)> {
        let there = self.places.iter().enumerate().filter(|(_, at)| at.there);
        there.flat_map(move |(place, at)| {
            at.pods.iter().map(move |(class, terminating)| (&self.snapshot.classes[class.index()], place, *terminating))
        })
    }

    fn selected(&self, term: &AffinityTerm, pod: &PodClass) -> bool {
        term.namespaces.contains(pod.namespace)
            && term.selector.as_ref().is_some_and(|selector| selects(selector, &pod.labels, &self.snapshot.symbols))
    }

    fn together(&self, key: Symbol, one: usize, other: usize) -> bool {
        self.label(one, key).is_some_and(|value| self.label(other, key) == Some(value))
    }

    fn near_enough(&self, class: &PodClass, place: usize) -> bool {
        let terms = &class.affinity;
        if terms.is_empty() {
            return true;
        }
        if terms.iter().any(|term| self.label(place, term.key).is_none()) {
            return false;
        }
        let all = |pod: &PodClass| class.sees(pod) && terms.iter().all(|term| self.selected(term, pod));
        let friends: Vec<usize> = self.everybody().filter(|(pod, ..)| all(pod)).map(|(_, at, _)| at).collect();
        if terms.iter().all(|term| friends.iter().any(|at| self.together(term.key, place, *at))) {
            return true;
        }
        let counted = |at: &usize| terms.iter().any(|term| self.label(*at, term.key).is_some());
        !friends.iter().any(counted) && all(class)
    }

    fn far_enough(&self, class: &PodClass, place: usize) -> bool {
        let clash = |owner: &PodClass, other: &PodClass, at: usize| {
            owner.anti_affinity.iter().any(|term| self.selected(term, other) && self.together(term.key, place, at))
        };
        !self.everybody().any(|(pod, at, _)| clash(class, pod, at) || clash(pod, class, at))
    }

    fn even(&self, class: &PodClass, spread: &Spread, place: usize) -> bool {
        let Some(own) = self.label(place, spread.key) else { return false };
        let selected = |pod: &PodClass| {
            let selects = |selector| selects(selector, &pod.labels, &self.snapshot.symbols);
            class.sees(pod) && pod.namespace == class.namespace && spread.selector.as_ref().is_some_and(selects)
        };
        let mut domains: Vec<(Value, u32)> = Vec::new();
        for at in (0..self.places.len()).filter(|at| self.places[*at].there && self.counts(class, spread, *at)) {
            let Some(value) = self.label(at, spread.key) else { continue };
            let pods = self.places[at].pods.iter();
            let here = pods.filter(|(pod, gone)| !gone && selected(&self.snapshot.classes[pod.index()])).count() as u32;
            match domains.iter_mut().find(|(known, _)| *known == value) {
                Some((_, count)) => *count += here,
                None => domains.push((value, here)),
            }
        }
        let enough = spread.min_domains.is_none_or(|least| domains.len() >= least as usize);
        let least = if enough { domains.iter().map(|(_, count)| *count).min().unwrap_or(0) } else { 0 };
        let here = domains.iter().find(|(value, _)| *value == own).map_or(0, |(_, count)| *count);
        here + u32::from(selected(class)) <= least + spread.max_skew
    }

    /// Whether a node counts for a spread of the class.
    fn counts(&self, class: &PodClass, spread: &Spread, place: usize) -> bool {
        let keys = class.spread.iter().filter(|one| one.hard).all(|one| self.label(place, one.key).is_some());
        keys && (spread.node_affinity == InclusionPolicy::Ignore || self.affinity_allows(class, place))
            && (spread.node_taints == InclusionPolicy::Ignore || self.taints_allow(class, place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Cluster;

    fn two_zones() -> Cluster {
        Cluster::new()
            .machine("small", "cpu=2", |machine| machine.zones("a b"))
            .node("one", "small", |node| node.zone("a"))
            .node("two", "small", |node| node.zone("b"))
    }

    #[test]
    fn each_rule_refuses() {
        let snapshot = two_zones()
            .node("odd", "small", |node| node.zone("b").taint("team=red:NoSchedule"))
            .pod("web", "cpu=1", |pod| pod.on("one").spread("zone", 1).port(80))
            .pod("big", "cpu=3", |pod| pod)
            .pod("picky", "", |pod| pod.needs("zone in b"))
            .pod("disk", "", |pod| pod.volume(&["zone in b"]))
            .pod("proxy", "", |pod| pod.port(80))
            .pod("friend", "", |pod| pod.near("zone", "app in web"))
            .pod("enemy", "", |pod| pod.apart("zone", "app in web"))
            .pod("plain", "", |pod| pod)
            .snapshot();
        let scheduler = Scheduler::new(&snapshot);
        let asked = |name: &str, place| {
            let pod = snapshot.find_pod(&format!("default/{name}")).unwrap();
            scheduler.fits(snapshot.pods[pod.index()].class, place)
        };
        let cases = [
            ("web", 0, Err(Rule::HostPorts)),
            ("web", 1, Ok(())),
            ("big", 0, Err(Rule::Resources)),
            ("picky", 0, Err(Rule::NodeAffinity)),
            ("picky", 1, Ok(())),
            ("disk", 0, Err(Rule::Volumes)),
            ("proxy", 0, Err(Rule::HostPorts)),
            ("proxy", 1, Ok(())),
            ("friend", 0, Ok(())),
            ("friend", 1, Err(Rule::PodAffinity)),
            ("enemy", 0, Err(Rule::PodAntiAffinity)),
            ("enemy", 1, Ok(())),
            ("plain", 1, Ok(())),
            ("plain", 2, Err(Rule::Taints)),
        ];
        for (name, place, expected) in cases {
            assert_eq!(asked(name, place), expected, "{name} on {place}");
        }
    }

    #[test]
    fn spread_counts_from_the_least_domain() {
        let snapshot = two_zones().pods(2, "web", "", |pod| pod.spread("zone", 1).on("one")).snapshot();
        let mut scheduler = Scheduler::new(&snapshot);
        let web = ClassId(0);
        assert_eq!(scheduler.fits(web, 0), Err(Rule::TopologySpread));
        scheduler.bind(web, 1);
        assert_eq!(scheduler.fits(web, 0), Err(Rule::TopologySpread));
        scheduler.bind(web, 1);
        assert_eq!(scheduler.fits(web, 0), Ok(()));
        scheduler.unbind(web, 1);
        assert_eq!(scheduler.fits(web, 0), Err(Rule::TopologySpread));
    }

    #[test]
    fn the_first_of_its_kind_may_start_a_domain() {
        let snapshot = two_zones().pod("web", "", |pod| pod.near("zone", "app in web")).snapshot();
        let mut scheduler = Scheduler::new(&snapshot);
        assert_eq!(scheduler.fits(ClassId(0), 1), Ok(()));
        scheduler.bind(ClassId(0), 0);
        assert_eq!(scheduler.fits(ClassId(0), 1), Err(Rule::PodAffinity));
    }

    #[test]
    fn buffers_are_seen_by_buffers_only() {
        let snapshot = two_zones()
            .pod("web", "", |pod| pod.buffer())
            .pod("friend", "", |pod| pod.near("zone", "app in web"))
            .pod("even", "", |pod| pod.label("app=web").spread("zone", 1))
            .pod("other", "", |pod| pod.near("zone", "app in web").buffer())
            .snapshot();
        let mut scheduler = Scheduler::new(&snapshot);
        scheduler.bind(ClassId(0), 0);
        scheduler.bind(ClassId(0), 0);
        assert_eq!(scheduler.fits(ClassId(1), 0), Err(Rule::PodAffinity));
        assert_eq!(scheduler.fits(ClassId(2), 0), Ok(()));
        assert_eq!(scheduler.fits(ClassId(3), 0), Ok(()));
    }

    #[test]
    fn anti_affinity_is_symmetric() {
        let snapshot = two_zones()
            .pod("loner", "", |pod| pod.apart("zone", "app in web").on("one"))
            .pod("web", "", |pod| pod)
            .snapshot();
        let scheduler = Scheduler::new(&snapshot);
        assert_eq!(scheduler.fits(ClassId(1), 0), Err(Rule::PodAntiAffinity));
        assert_eq!(scheduler.fits(ClassId(1), 1), Ok(()));
    }
}
