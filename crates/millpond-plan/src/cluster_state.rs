//! The cluster state that a plan works on: existing and planned nodes, and the pods on them.
//!
//! [`ClusterState::check`] runs kube-scheduler's filters for one pod and one node and returns the first rule that fails;
//! [`ClusterState::place`] and [`ClusterState::remove`] change the state. All code that places pods one at a time (filling
//! existing nodes, consolidation, the comparison policies) goes through here.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::market::{Market, liking};
use crate::model::{ClassId, HostPort, Labels, NodeId, Pod, PodClass, PodId, PodKind, PodState, Resources, Snapshot};
use crate::pack::BitSet;
use crate::plan::Rule;
use crate::requirement::Requirements;
use crate::symbol::Symbol;
use crate::taint::{self, Taint, Toleration};
use crate::topology::{Topology, TopologyNode};

/// A node in the cluster state: first those of [`Snapshot::nodes`] with the same numbers, then planned ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeSlotId(pub u32);

impl NodeSlotId {
    /// Its number.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug, Clone)]
struct NodeSlot {
    /// The offer, for a planned node.
    offer: Option<u32>,
    /// Whether pods may be placed here.
    open: bool,
    free: Resources,
    ports: Vec<HostPort>,
}

/// Nodes and the pods on them.
#[derive(Debug, Clone)]
pub struct ClusterState<'s> {
    snapshot: &'s Snapshot,
    market: &'s Market,
    spots: Vec<NodeSlot>,
    topology: Topology,
    /// For each class, its number in `suiting`: classes with equal rules about a node by itself share one.
    static_ids: Vec<u32>,
    /// For each such number: the suitable existing nodes and the suitable offers.
    suiting: Vec<Option<(BitSet, BitSet)>>,
}

impl<'s> ClusterState<'s> {
    /// The cluster as it will be without a plan: nodes that leave are closed, and pods on them that need another
    /// place are nowhere. Pods that wait for a node where room is kept for them are there already.
    pub fn new(snapshot: &'s Snapshot, market: &'s Market) -> Self {
        Self::with_topology(snapshot, market, Topology::new(snapshot))
    }

    /// Like [`Self::new`], with topology rules that were compiled before.
    pub(crate) fn with_topology(snapshot: &'s Snapshot, market: &'s Market, topology: Topology) -> Self {
        let (static_ids, count) = static_ids(snapshot);
        let spots = snapshot.nodes.iter().enumerate().map(|(index, node)| NodeSlot {
            offer: None,
            open: crate::market::usable(snapshot, index),
            free: node.allocatable.clone(),
            ports: Vec::new(),
        });
        let mut cluster =
            Self { snapshot, market, spots: spots.collect(), topology, static_ids, suiting: vec![None; count] };
        cluster.add_nodes();
        cluster.add_bound_pods();
        cluster.keep_room_for_daemons();
        cluster
    }

    fn add_nodes(&mut self) {
        for (index, node) in self.snapshot.nodes.iter().enumerate() {
            // A node that no pod can be placed on is a domain as long as it stays.
            if node.state != crate::model::NodeState::Leaving {
                let place = place(self.snapshot, self.market, None, index);
                self.topology.add_node(place, self.snapshot);
            }
        }
    }

    fn add_bound_pods(&mut self) {
        let snapshot = self.snapshot;
        if snapshot.nodes.is_empty() {
            return;
        }
        for (index, pod) in snapshot.pods.iter().enumerate() {
            let Some(node) = pod.node else { continue };
            if needs_place(snapshot, PodId::from(index)) {
                continue;
            }
            let leaving = snapshot.nodes[node.index()].state == crate::model::NodeState::Leaving;
            if leaving || pod.state == PodState::Gated {
                continue;
            }
            let class = &snapshot.classes[pod.class.index()];
            let spot = &mut self.spots[node.index()];
            spot.free.subtract(&class.requests);
            spot.ports.extend(class.host_ports.iter().cloned());
            let place = place(snapshot, self.market, None, node.index());
            match pod.state {
                PodState::Terminating => self.topology.add_terminating(pod.class, place, 1, snapshot),
                _ => self.topology.add(pod.class, place, 1, snapshot),
            }
        }
    }

    /// Reserves capacity for DaemonSet pods that have not been created yet.
    fn keep_room_for_daemons(&mut self) {
        if self.snapshot.daemons.is_empty() {
            return;
        }
        let mut present = vec![Resources::new(); self.snapshot.nodes.len()];
        for pod in &self.snapshot.pods {
            let class = &self.snapshot.classes[pod.class.index()];
            if let Some(node) = pod.node.filter(|_| class.kind == PodKind::Daemon) {
                present[node.index()].add(&class.requests);
            }
        }
        for (index, present) in present.iter().enumerate() {
            let node = &self.snapshot.nodes[index];
            let mut expected = Resources::new();
            for daemon in &self.snapshot.daemons {
                let class = &self.snapshot.classes[daemon.index()];
                if suits(self.snapshot, class, index) {
                    expected.add(&class.requests);
                }
            }
            expected.subtract(present);
            let missing: Resources = expected.iter().filter(|(_, amount)| *amount > 0).collect();
            if node.state != crate::model::NodeState::Leaving {
                self.spots[index].free.subtract(&missing);
            }
        }
    }

    /// The snapshot below.
    pub fn snapshot(&self) -> &'s Snapshot {
        self.snapshot
    }

    /// The market that offers come from.
    pub fn market(&self) -> &'s Market {
        self.market
    }

    /// The pods counted by topology domain.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The topology, to change which domains it expects.
    pub fn topology_mut(&mut self) -> &mut Topology {
        &mut self.topology
    }

    /// How many nodes there are, planned ones included.
    pub fn len(&self) -> usize {
        self.spots.len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.spots.is_empty()
    }

    /// The offer of a planned node; `None` for an existing one.
    pub fn offer(&self, spot: NodeSlotId) -> Option<usize> {
        self.spots[spot.index()].offer.map(|offer| offer as usize)
    }

    /// What pods can still use on a node.
    pub fn free(&self, spot: NodeSlotId) -> &Resources {
        &self.spots[spot.index()].free
    }

    /// Ports of the host that pods have taken.
    pub fn ports(&self, spot: NodeSlotId) -> &[HostPort] {
        &self.spots[spot.index()].ports
    }

    /// Whether pods may be placed on a node.
    pub fn is_open(&self, spot: NodeSlotId) -> bool {
        self.spots[spot.index()].open
    }

    /// Adds a planned node.
    pub fn open(&mut self, offer: usize) -> NodeSlotId {
        let spot = NodeSlotId(self.spots.len() as u32);
        let of = self.market.offer(offer);
        let (free, ports) = (of.free.clone(), of.ports.clone());
        self.spots.push(NodeSlot { offer: Some(offer as u32), open: true, free, ports });
        let place = self.place_of(spot);
        self.topology.add_node(place, self.snapshot);
        spot
    }

    /// Closes a node that is to be removed: it is no domain any more, and takes no pods. Its pods have to be
    /// taken off first.
    pub fn close(&mut self, spot: NodeSlotId) {
        let place = self.place_of(spot);
        self.topology.remove_node(place, self.snapshot);
        self.spots[spot.index()].open = false;
    }

    /// Opens a closed node again.
    pub fn reopen(&mut self, spot: NodeSlotId) {
        let place = self.place_of(spot);
        self.topology.add_node(place, self.snapshot);
        let planned = self.spots[spot.index()].offer.is_some();
        self.spots[spot.index()].open = planned || crate::market::usable(self.snapshot, spot.index());
    }

    /// Whether kube-scheduler would let one more pod of the class on a node; if not, the first rule against it.
    pub fn check(&mut self, class: ClassId, spot: NodeSlotId) -> Result<(), Rule> {
        self.check_alone(class, spot)?;
        self.topology.check(class, self.place_of(spot))
    }

    /// Like [`Self::check`] for a planned node, but with no topology rules except those about the hostname. For pods
    /// whose zone is decided while other pods and their nodes are still being planned.
    ///
    /// A pod that must be near others is asked all the same: they may not be there.
    pub fn check_host(&mut self, class: ClassId, spot: NodeSlotId) -> Result<(), Rule> {
        if self.topology.must_be_near(class) {
            self.check(class, spot)?;
        } else {
            self.check_alone(class, spot)?;
        }
        self.topology.check_new_host(class, crate::topology::Domain(spot.0))
    }

    /// Whether a node has what the pod wants, and room for it.
    fn check_alone(&mut self, class: ClassId, spot: NodeSlotId) -> Result<(), Rule> {
        let of = &self.snapshot.classes[class.index()];
        if !self.suits(class, spot) {
            return Err(self.static_rule(of, spot));
        }
        let at = &self.spots[spot.index()];
        if at.free.first_lacking(&of.requests).is_some() {
            return Err(Rule::Resources);
        }
        if !of.host_ports.is_empty() && of.host_ports.iter().any(|port| at.ports.iter().any(|p| p.conflicts(port))) {
            return Err(Rule::HostPorts);
        }
        Ok(())
    }

    /// Whether a node by itself suits the class: it is open, its taints are tolerated, and node affinity and volumes
    /// match. Capacity and other pods are not considered.
    pub fn suits(&mut self, class: ClassId, spot: NodeSlotId) -> bool {
        let at = &self.spots[spot.index()];
        if !at.open {
            return false;
        }
        let offer = at.offer;
        let (nodes, offers) = self.suiting(class);
        match offer {
            Some(offer) => offers.contains(offer as usize),
            None => nodes.contains(spot.index()),
        }
    }

    /// Classes with the same number have equal rules about a node by itself.
    pub fn static_id(&self, class: ClassId) -> u32 {
        self.static_ids[class.index()]
    }

    /// Offers on which the class could be by taints, node affinity and volumes.
    pub fn suiting_offers(&mut self, class: ClassId) -> &BitSet {
        &self.suiting(class).1
    }

    fn suiting(&mut self, class: ClassId) -> &(BitSet, BitSet) {
        let (snapshot, market) = (self.snapshot, self.market);
        self.suiting[self.static_ids[class.index()] as usize].get_or_insert_with(|| {
            let of = &snapshot.classes[class.index()];
            let nodes = (0..snapshot.nodes.len()).filter(|&node| suits(snapshot, of, node)).collect();
            (nodes, market.suiting(of, snapshot))
        })
    }

    fn static_rule(&self, class: &PodClass, spot: NodeSlotId) -> Rule {
        let place = self.place_of(spot);
        if !self.spots[spot.index()].open {
            return Rule::PoolNotReady;
        }
        if taint::first_forbidding(place.taints, &class.tolerations, &self.snapshot.symbols).is_some() {
            return Rule::Taints;
        }
        match self.spots[spot.index()].offer {
            None if !matches_any(self.snapshot, &class.node_terms, spot.index()) => Rule::NodeAffinity,
            Some(offer) if !self.market.satisfying_terms(&class.node_terms, self.snapshot).contains(offer as usize) => {
                Rule::NodeAffinity
            }
            _ => Rule::Volumes,
        }
    }

    /// How many pods of the class fit a node by resources alone, if nothing else speaks against it.
    pub fn room(&self, class: ClassId, spot: NodeSlotId) -> u64 {
        let of = &self.snapshot.classes[class.index()];
        self.spots[spot.index()].free.times(&of.requests).unwrap_or(u64::MAX)
    }

    /// Places pods. The caller has checked that they may be there.
    pub fn place(&mut self, class: ClassId, spot: NodeSlotId, count: u32) {
        let of = &self.snapshot.classes[class.index()];
        let at = &mut self.spots[spot.index()];
        at.free.add_times(&of.requests, -i64::from(count));
        for _ in 0..count {
            at.ports.extend(of.host_ports.iter().cloned());
        }
        let place = self.place_of(spot);
        self.topology.add(class, place, count, self.snapshot);
    }

    /// Removes pods from a node.
    pub fn remove(&mut self, class: ClassId, spot: NodeSlotId, count: u32) {
        let of = &self.snapshot.classes[class.index()];
        let at = &mut self.spots[spot.index()];
        at.free.add_times(&of.requests, i64::from(count));
        for port in (0..count).flat_map(|_| &of.host_ports) {
            if let Some(index) = at.ports.iter().position(|taken| taken == port) {
                at.ports.swap_remove(index);
            }
        }
        let place = self.place_of(spot);
        self.topology.remove(class, place, count, self.snapshot);
    }

    /// The score of a node by a class's preferences; higher is better.
    pub fn liking(&self, class: ClassId, spot: NodeSlotId) -> i64 {
        let place = self.place_of(spot);
        liking(&self.snapshot.classes[class.index()], place.labels, place.taints, self.snapshot)
    }

    /// A node as topology rules see it.
    pub fn place_of(&self, spot: NodeSlotId) -> TopologyNode<'s> {
        place(self.snapshot, self.market, self.spots[spot.index()].offer, spot.index())
    }

    /// A node of an offer as topology would see it under a number.
    pub fn place_on(&self, offer: usize, spot: u32) -> TopologyNode<'s> {
        place(self.snapshot, self.market, Some(offer as u32), spot as usize)
    }
}

/// Whether a plan has to find a place for a pod: it is pending without a node that keeps room for it, or it is on a node
/// that leaves and will be made again elsewhere.
pub fn needs_place(snapshot: &Snapshot, pod: PodId) -> bool {
    let pod = &snapshot.pods[pod.index()];
    kind_needs_place(snapshot, pod, snapshot.classes[pod.class.index()].kind)
}

/// Like [`needs_place`] for a pod whose kind the caller knows: looking up the classes of a million pods takes too
/// long.
pub(crate) fn kind_needs_place(snapshot: &Snapshot, pod: &Pod, kind: PodKind) -> bool {
    let leaving = |node: NodeId| snapshot.nodes[node.index()].state == crate::model::NodeState::Leaving;
    match pod.state {
        PodState::Gated | PodState::Terminating => false,
        PodState::Pending => !matches!(kind, PodKind::Daemon | PodKind::Mirror) && pod.node.is_none_or(leaving),
        PodState::Bound => matches!(kind, PodKind::Workload) && pod.node.is_some_and(leaving),
    }
}

fn place<'s>(snapshot: &'s Snapshot, market: &'s Market, offer: Option<u32>, spot: usize) -> TopologyNode<'s> {
    let (labels, taints, has_hostname, name): (&Labels, &[Taint], bool, Option<Symbol>) = match offer {
        Some(offer) => {
            let offer = market.offer(offer as usize);
            (&offer.labels, &snapshot.pools[offer.pool.index()].taints, true, None)
        }
        None => {
            let node = &snapshot.nodes[spot];
            let has_hostname = node.labels.get(snapshot.names.hostname).is_some();
            (&node.labels, &node.taints, has_hostname, snapshot.symbols.find(&node.name))
        }
    };
    TopologyNode { spot: spot as u32, labels, taints, has_hostname, name }
}

/// Whether an existing node by itself suits a class.
fn suits(snapshot: &Snapshot, class: &PodClass, node: usize) -> bool {
    taint::first_forbidding(&snapshot.nodes[node].taints, &class.tolerations, &snapshot.symbols).is_none()
        && matches_any(snapshot, &class.node_terms, node)
        && class.volume_terms.iter().all(|alternatives| matches_any(snapshot, alternatives, node))
}

fn matches_any(snapshot: &Snapshot, terms: &[Requirements], node: usize) -> bool {
    let node = &snapshot.nodes[node];
    let label = |key: Symbol| {
        if key == snapshot.names.node_name {
            return snapshot.symbols.find(&node.name);
        }
        node.labels.get(key)
    };
    terms.iter().any(|term| term.match_labels(label, &snapshot.symbols))
}

/// Numbers classes so that those with equal rules about a node by itself share a number.
fn static_ids(snapshot: &Snapshot) -> (Vec<u32>, usize) {
    type Wants<'s> = (&'s [Requirements], &'s [Vec<Requirements>], &'s [Toleration], &'s [HostPort]);
    let mut known: HashMap<Wants<'_>, u32, FixedState> = HashMap::default();
    let mut ids = Vec::with_capacity(snapshot.classes.len());
    for class in &snapshot.classes {
        let next = known.len() as u32;
        let wants: Wants<'_> = (&class.node_terms, &class.volume_terms, &class.tolerations, &class.host_ports);
        ids.push(*known.entry(wants).or_insert(next));
    }
    (ids, known.len())
}
