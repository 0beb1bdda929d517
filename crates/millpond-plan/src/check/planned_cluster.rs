//! The cluster after the plan: every pod on its final node.

use std::collections::HashMap;
use std::ops::Range;

use crate::model::{
    ClassId, Labels, NodeId, NodeState, PodClass, PodId, PodKind, PodState, PoolId, Resources, Snapshot,
};
use crate::plan::{Plan, Target};
use crate::requirement::Requirements;
use crate::symbol::Symbol;
use crate::taint::{Taint, first_forbidding};

/// A node of the cluster after the plan: the snapshot's nodes by their index, then the plan's new nodes.
#[derive(Debug, Clone)]
pub(super) struct Site {
    /// Whether the node still exists after the plan.
    pub(super) there: bool,
    /// Labels and taints, without the name: nodes that are alike share them.
    pub(super) profile: usize,
    /// The pods, in [`PlannedCluster::groups`].
    pub(super) groups: Range<usize>,
}

/// Pods of one class on one node.
#[derive(Debug, Clone)]
pub(super) struct Group {
    /// The node.
    pub(super) site: usize,
    /// The class.
    pub(super) class: ClassId,
    /// One of the pods, if possible a planned one; `None` for DaemonSet pods that a new node will have.
    pub(super) pod: Option<PodId>,
    /// Pods that the plan puts on the node.
    pub(super) planned: u32,
    /// Pods that run on the node, are nominated for it, or come with it.
    pub(super) settled: u32,
    /// Pods that are going away.
    pub(super) terminating: u32,
}

impl Group {
    /// Planned and settled pods.
    pub(super) fn total(&self) -> u32 {
        self.planned + self.settled + self.terminating
    }
}

/// Labels and taints that nodes share.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Profile<'a> {
    labels: Labels,
    taints: &'a [Taint],
    /// Whether the nodes have a hostname; each has its own.
    pub(super) has_hostname: bool,
}

impl Profile<'_> {
    /// The value of a label other than the hostname.
    pub(super) fn label(&self, key: Symbol) -> Option<Symbol> {
        self.labels.get(key)
    }
}

/// A value of a label; the hostname is the number of the node.
pub(super) type Domain = usize;

/// The cluster after the plan.
#[derive(Debug)]
pub(super) struct PlannedCluster<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) plan: &'a Plan,
    pub(super) sites: Vec<Site>,
    pub(super) groups: Vec<Group>,
    /// For each class, the indexes of its groups.
    pub(super) by_class: Vec<Vec<usize>>,
    pub(super) profiles: Vec<Profile<'a>>,
    /// Nodes of each profile that exist after the plan.
    pub(super) sites_of_profile: Vec<Vec<usize>>,
    /// For each node of the snapshot, why it does not exist after the plan; `None` if it does.
    gone: Vec<Option<&'static str>>,
    /// For each class, whether its node affinity names a node.
    asks_for_name: Vec<bool>,
    affinity: HashMap<(ClassId, usize), bool>,
    taints: HashMap<(ClassId, usize), bool>,
}

impl<'a> PlannedCluster<'a> {
    /// The cluster after a plan whose indexes are valid.
    pub(super) fn new(snapshot: &'a Snapshot, plan: &'a Plan) -> Self {
        let mut cluster = Self {
            snapshot,
            plan,
            sites: Vec::new(),
            groups: Vec::new(),
            by_class: vec![Vec::new(); snapshot.classes.len()],
            profiles: Vec::new(),
            sites_of_profile: Vec::new(),
            gone: gone(snapshot, plan),
            asks_for_name: snapshot.classes.iter().map(|class| asks_for_name(snapshot, class)).collect(),
            affinity: HashMap::new(),
            taints: HashMap::new(),
        };
        cluster.add_sites();
        cluster.add_pods();
        cluster
    }

    fn add_sites(&mut self) {
        let (snapshot, hostname) = (self.snapshot, self.snapshot.names.hostname);
        let mut known = HashMap::new();
        let mut profile = |profile: Profile<'a>| {
            let next = known.len();
            *known.entry(profile).or_insert(next)
        };
        for (node, gone) in snapshot.nodes.iter().zip(&self.gone) {
            let labels = node.labels.iter().filter(|(key, _)| *key != hostname).collect();
            let has_hostname = node.labels.get(hostname).is_some();
            let profile = profile(Profile { labels, taints: &node.taints, has_hostname });
            self.sites.push(Site { there: gone.is_none(), profile, groups: 0..0 });
        }
        for node in &self.plan.new_nodes {
            let taints = &snapshot.pools[node.pool.index()].taints;
            let profile = profile(Profile { labels: (*node.labels).clone(), taints, has_hostname: true });
            self.sites.push(Site { there: true, profile, groups: 0..0 });
        }
        let mut profiles: Vec<(Profile<'a>, usize)> = known.into_iter().collect();
        profiles.sort_unstable_by_key(|(_, number)| *number);
        self.profiles = profiles.into_iter().map(|(profile, _)| profile).collect();
        self.sites_of_profile = vec![Vec::new(); self.profiles.len()];
        for (number, site) in self.sites.iter().enumerate().filter(|(_, site)| site.there) {
            self.sites_of_profile[site.profile].push(number);
        }
    }

    fn add_pods(&mut self) {
        let snapshot = self.snapshot;
        let mut all: Vec<(usize, ClassId, What, Option<PodId>)> = Vec::with_capacity(snapshot.pods.len());
        for (index, pod) in snapshot.pods.iter().enumerate() {
            let Some(node) = pod.node.filter(|node| self.sites[node.index()].there) else { continue };
            let what = match pod.state {
                PodState::Terminating => What::Terminating,
                PodState::Gated => continue,
                PodState::Pending | PodState::Bound => What::Settled,
            };
            all.push((node.index(), pod.class, what, Some(PodId::from(index))));
        }
        for (pod, target) in &self.plan.placements {
            let site = self.site_of(*target);
            if self.sites[site].there {
                all.push((site, snapshot.pods[pod.index()].class, What::Planned, Some(*pod)));
            }
        }
        for site in snapshot.nodes.len()..self.sites.len() {
            for &daemon in &snapshot.daemons {
                if self.affinity_allows(daemon, site) && self.tolerates(daemon, site) {
                    all.push((site, daemon, What::Settled, None));
                }
            }
        }
        // Planned pods first in each group: one of them speaks for it.
        all.sort_unstable();
        for (site, class, what, pod) in all {
            let same = self.groups.last().is_some_and(|last: &Group| last.site == site && last.class == class);
            if !same {
                self.by_class[class.index()].push(self.groups.len());
                self.groups.push(Group { site, class, pod, planned: 0, settled: 0, terminating: 0 });
            }
            let number = self.groups.len() - 1;
            let group = &mut self.groups[number];
            group.pod = group.pod.or(pod);
            match what {
                What::Planned => group.planned += 1,
                What::Settled => group.settled += 1,
                What::Terminating => group.terminating += 1,
            }
            let range = &mut self.sites[site].groups;
            *range = if range.start == range.end { number..number + 1 } else { range.start..number + 1 };
        }
    }

    /// The index of a target's node.
    pub(super) fn site_of(&self, target: Target) -> usize {
        match target {
            Target::Existing(node) => node.index(),
            Target::New(number) => self.snapshot.nodes.len() + number as usize,
        }
    }

    /// Whether the plan must say where the pod goes; if not, it may not.
    ///
    /// A pod without a controller does not come back when its node goes.
    pub(super) fn needs_place(&self, pod: PodId) -> bool {
        let pod = &self.snapshot.pods[pod.index()];
        let class = &self.snapshot.classes[pod.class.index()];
        let moves = pod.node.is_some_and(|node| self.gone(node).is_some());
        match (class.kind, pod.state) {
            (PodKind::Daemon | PodKind::Mirror, _) | (_, PodState::Terminating | PodState::Gated) => false,
            (_, PodState::Pending) => pod.node.is_none() || moves,
            (PodKind::Bare | PodKind::Buffer, PodState::Bound) => false,
            (PodKind::Workload, PodState::Bound) => moves,
        }
    }

    /// Number of nodes of a pool after the plan.
    pub(super) fn node_count_after(&self, pool: PoolId) -> usize {
        let stays = |(node, gone): &(&crate::model::Node, &Option<_>)| node.pool == Some(pool) && gone.is_none();
        let staying = self.snapshot.nodes.iter().zip(&self.gone).filter(stays).count();
        staying + self.plan.new_nodes.iter().filter(|node| node.pool == pool).count()
    }

    /// Why a node does not exist after the plan; `None` if it does.
    pub(super) fn gone(&self, node: NodeId) -> Option<&'static str> {
        self.gone[node.index()]
    }

    pub(super) fn class(&self, class: ClassId) -> &'a PodClass {
        &self.snapshot.classes[class.index()]
    }

    pub(super) fn groups_of(&self, site: usize) -> &[Group] {
        &self.groups[self.sites[site].groups.clone()]
    }

    /// The name of a node.
    pub(super) fn site_name(&self, site: usize) -> String {
        match self.snapshot.nodes.get(site) {
            Some(node) => node.name.clone(),
            None => self.plan.node_name(self.snapshot, site - self.snapshot.nodes.len()),
        }
    }

    /// The name of a pod of the group.
    pub(super) fn pod_name(&self, group: &Group) -> String {
        match group.pod {
            Some(pod) => self.snapshot.pod_name(pod),
            None => format!("of daemon {}", group.class.0),
        }
    }

    /// The resources of a node that pods can use.
    pub(super) fn allocatable(&self, site: usize) -> &'a Resources {
        match self.snapshot.nodes.get(site) {
            Some(node) => &node.allocatable,
            None => {
                let new = &self.plan.new_nodes[site - self.snapshot.nodes.len()];
                &self.snapshot.types[new.instance_type.index()].allocatable
            }
        }
    }

    /// The domain of a node by a label.
    pub(super) fn domain(&self, site: usize, key: Symbol) -> Option<Domain> {
        let profile = &self.profiles[self.sites[site].profile];
        if key == self.snapshot.names.hostname {
            return profile.has_hostname.then_some(site);
        }
        profile.label(key).map(Symbol::index)
    }

    /// A label as requirements see it. The name of a new node equals no value that a requirement names, and neither does
    /// the name of a label.
    fn label(&self, site: usize, key: Symbol) -> Option<Symbol> {
        let (names, symbols) = (&self.snapshot.names, &self.snapshot.symbols);
        let node = self.snapshot.nodes.get(site);
        if key == names.hostname
            && let Some(node) = node
        {
            return node.labels.get(key);
        }
        if key == names.hostname || key == names.node_name {
            return Some(symbols.find(&self.site_name(site)).unwrap_or(names.hostname));
        }
        self.profiles[self.sites[site].profile].label(key)
    }

    /// Whether a node satisfies one of several alternatives.
    pub(super) fn satisfies(&self, site: usize, alternatives: &[Requirements]) -> bool {
        let symbols = &self.snapshot.symbols;
        alternatives.iter().any(|term| term.match_labels(|key| self.label(site, key), symbols))
    }

    /// Whether the node affinity of a class allows a node.
    pub(super) fn affinity_allows(&mut self, class: ClassId, site: usize) -> bool {
        let terms = &self.class(class).node_terms;
        if self.asks_for_name[class.index()] {
            return self.satisfies(site, terms);
        }
        let key = (class, self.sites[site].profile);
        if let Some(known) = self.affinity.get(&key) {
            return *known;
        }
        let allows = self.satisfies(site, terms);
        self.affinity.insert(key, allows);
        allows
    }

    /// Whether the answer is the same for all nodes of one profile.
    pub(super) fn is_anonymous(&self, class: ClassId) -> bool {
        !self.asks_for_name[class.index()]
    }

    /// Whether a class tolerates the taints of a node.
    pub(super) fn tolerates(&mut self, class: ClassId, site: usize) -> bool {
        let key = (class, self.sites[site].profile);
        if let Some(known) = self.taints.get(&key) {
            return *known;
        }
        let tolerates = self.forbidding_taint(class, site).is_none();
        self.taints.insert(key, tolerates);
        tolerates
    }

    /// The taint that keeps a class off a node.
    pub(super) fn forbidding_taint(&self, class: ClassId, site: usize) -> Option<&'a Taint> {
        let taints: &'a [Taint] = self.profiles[self.sites[site].profile].taints;
        first_forbidding(taints, &self.class(class).tolerations, &self.snapshot.symbols)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Planned,
    Settled,
    Terminating,
}

fn gone(snapshot: &Snapshot, plan: &Plan) -> Vec<Option<&'static str>> {
    let leaving = |node: &crate::model::Node| (node.state == NodeState::Leaving).then_some("is leaving");
    let mut gone: Vec<Option<&'static str>> = snapshot.nodes.iter().map(leaving).collect();
    for node in plan.removals.iter().flat_map(|removal| &removal.nodes) {
        gone[node.index()].get_or_insert("is taken away");
    }
    gone
}

fn asks_for_name(snapshot: &Snapshot, class: &PodClass) -> bool {
    let names = [snapshot.names.hostname, snapshot.names.node_name];
    class.node_terms.iter().flat_map(Requirements::iter).any(|(key, _)| names.contains(&key))
}
