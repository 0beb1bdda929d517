//! The scheduler's snapshot of the cluster, updated incrementally.
//!
//! Nodes live in numbered slots. Pods are counted per shape and slot, so that "how many pods
//! that match this selector run where" costs one look per shape instead of one per pod. Every
//! topology key that some shape mentions is indexed: a node's zone is then an array lookup.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;

use super::labels::{Labels, Selector};
use super::node::Node;
use super::ports::PortsInUse;
use super::resources::Resources;
use super::shape::Shape;
use super::spread::Constraint;

/// A pod's uid.
pub type PodKey = Arc<str>;
/// A node's place in the snapshot; reused after the node has gone.
pub type Slot = usize;
/// A value of a topology key, such as one zone.
pub type Domain = usize;
/// Id of a shape; not reused while the snapshot exists.
pub type ShapeId = u64;

/// Shapes that no pod uses any more are swept out when the table has grown by this factor.
const SWEEP_GROWTH: usize = 2;
/// Below this many shapes sweeping is not worth it.
const SWEEP_FLOOR: usize = 256;

/// A shape that the snapshot knows.
#[derive(Clone, Debug)]
pub struct Interned {
    /// Its number.
    pub id: ShapeId,
    /// The shape itself.
    pub shape: Arc<Shape>,
}

/// A pod on a node.
#[derive(Clone, Debug)]
pub struct PodEntry {
    /// The pod's name within its namespace.
    pub name: String,
    /// The properties that the rules use.
    pub shape: Interned,
    /// The node it is bound to.
    pub node: String,
    /// Whether it is being deleted.
    pub leaving: bool,
    /// Whether it is being deleted by preemption.
    pub preempted: bool,
    /// When it started, if it did.
    pub started: Option<Timestamp>,
}

/// What the pods of a node use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Reserved resources.
    pub requested: Resources,
    /// The same for scoring, with defaults for pods that state nothing.
    pub scoring: Resources,
    /// Number of pods.
    pub pods: i64,
    /// Host ports.
    pub ports: PortsInUse,
}

impl Usage {
    /// Counts a pod of this shape.
    pub fn add(&mut self, shape: &Shape) {
        self.requested.add(&shape.requests);
        self.scoring.add(&shape.scoring_requests);
        self.pods += 1;
        self.ports.take(&shape.host_ports);
    }

    /// Stops counting a pod of this shape.
    pub fn remove(&mut self, shape: &Shape) {
        self.requested.subtract(&shape.requests);
        self.scoring.subtract(&shape.scoring_requests);
        self.pods -= 1;
        self.ports.give_back(&shape.host_ports);
    }
}

/// A node and what runs there.
#[derive(Clone, Debug, Default)]
pub struct NodeState {
    /// The node; `None` while pods are known to be bound to a node that was not seen yet.
    pub node: Option<Node>,
    /// What its pods use.
    pub usage: Usage,
    /// Its pods, in order of uid.
    pub pods: BTreeSet<PodKey>,
    /// Pods that are expected here, in order of uid.
    pub nominated: BTreeSet<PodKey>,
    /// Changes whenever anything above does.
    pub generation: u64,
}

/// The values of one topology key.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    by_slot: Vec<Option<Domain>>,
    ids: HashMap<String, Domain>,
    nodes: Vec<u32>,
    free: Vec<Domain>,
}

impl Topology {
    /// The domain of a node, when it has the label.
    pub fn domain(&self, slot: Slot) -> Option<Domain> {
        self.by_slot.get(slot).copied().flatten()
    }

    /// Largest domain plus one.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether no node has the label.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    fn set(&mut self, slot: Slot, value: Option<&String>) {
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, None);
        }
        if let Some(old) = self.by_slot[slot].take() {
            self.nodes[old] -= 1;
            if self.nodes[old] == 0 {
                self.ids.retain(|_, domain| *domain != old);
                self.free.push(old);
            }
        }
        if let Some(value) = value {
            let domain = self.ids.get(value).copied().unwrap_or_else(|| {
                let domain = self.free.pop().unwrap_or_else(|| {
                    self.nodes.push(0);
                    self.nodes.len() - 1
                });
                self.ids.insert(value.clone(), domain);
                domain
            });
            self.nodes[domain] += 1;
            self.by_slot[slot] = Some(domain);
        }
    }
}

/// Pods of one shape on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// All of them.
    pub all: u32,
    /// Pods that are being deleted.
    pub leaving: u32,
}

#[derive(Debug)]
struct ShapeEntry {
    shape: Arc<Shape>,
    on: BTreeMap<Slot, Count>,
}

/// The cluster as the rules see it.
#[derive(Debug, Default)]
pub struct Snapshot {
    states: Vec<NodeState>,
    by_name: HashMap<String, Slot>,
    free_slots: Vec<Slot>,
    known_nodes: usize,
    pods: HashMap<PodKey, PodEntry>,
    nominations: HashMap<PodKey, PodEntry>,
    shape_ids: HashMap<Arc<Shape>, ShapeId>,
    shapes: BTreeMap<ShapeId, ShapeEntry>,
    repelling: BTreeSet<ShapeId>,
    with_affinity: BTreeSet<ShapeId>,
    topologies: BTreeMap<String, Topology>,
    namespaces: HashMap<String, Labels>,
    no_labels: Labels,
    next_shape: ShapeId,
    generation: u64,
    sweep_at: usize,
}

impl Snapshot {
    /// An empty cluster.
    pub fn new() -> Self {
        Self { sweep_at: SWEEP_FLOOR, ..Self::default() }
    }

    /// Changes with every change.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    // Nodes

    /// How many nodes there are.
    pub fn node_count(&self) -> usize {
        self.known_nodes
    }

    /// The slots of all nodes.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        (0..self.states.len()).filter(|slot| self.states[*slot].node.is_some())
    }

    /// Largest slot plus one.
    pub fn slot_bound(&self) -> usize {
        self.states.len()
    }

    /// A node's slot.
    pub fn slot(&self, name: &str) -> Option<Slot> {
        self.by_name.get(name).copied().filter(|slot| self.states[*slot].node.is_some())
    }

    /// The state of the node at a slot.
    pub fn state(&self, slot: Slot) -> &NodeState {
        &self.states[slot]
    }

    /// The node at a slot that [`Self::slots`] gave.
    pub fn node(&self, slot: Slot) -> &Node {
        self.states[slot].node.as_ref().expect("a slot in use holds a node")
    }

    /// Adds or replaces a node; says whether anything changed that a rule looks at.
    pub fn set_node(&mut self, node: Node) -> bool {
        let slot = self.slot_for(&node.name);
        if self.states[slot].node.as_ref() == Some(&node) {
            return false;
        }
        for (key, topology) in &mut self.topologies {
            topology.set(slot, node.labels.get(key));
        }
        if self.states[slot].node.replace(node).is_none() {
            self.known_nodes += 1;
        }
        self.touch(slot);
        true
    }

    /// Forgets a node; pods that are bound to it stay known until they are removed themselves.
    pub fn remove_node(&mut self, name: &str) {
        let Some(slot) = self.by_name.get(name).copied() else {
            return;
        };
        if self.states[slot].node.take().is_some() {
            self.known_nodes -= 1;
            for topology in self.topologies.values_mut() {
                topology.set(slot, None);
            }
            self.touch(slot);
        }
        self.release_if_unused(name, slot);
    }

    // Namespaces

    /// Sets the labels of a namespace.
    pub fn set_namespace(&mut self, name: &str, labels: Labels) {
        self.generation += 1;
        self.namespaces.insert(name.to_owned(), labels);
    }

    /// Forgets a namespace.
    pub fn remove_namespace(&mut self, name: &str) {
        self.generation += 1;
        self.namespaces.remove(name);
    }

    /// The labels of a namespace; empty if it is unknown.
    pub fn namespace_labels(&self, name: &str) -> &Labels {
        self.namespaces.get(name).unwrap_or(&self.no_labels)
    }

    // Shapes

    /// Makes a shape known.
    pub fn intern(&mut self, shape: Shape) -> Interned {
        if let Some((shape, id)) = self.shape_ids.get_key_value(&shape) {
            return Interned { id: *id, shape: Arc::clone(shape) };
        }
        self.sweep_shapes();
        let id = self.next_shape;
        self.next_shape += 1;
        let shape = Arc::new(shape);
        for key in topology_keys(&shape) {
            self.index_topology(key);
        }
        if shape.repels() {
            self.repelling.insert(id);
        }
        if shape.has_affinity() {
            self.with_affinity.insert(id);
        }
        self.shape_ids.insert(Arc::clone(&shape), id);
        self.shapes.insert(id, ShapeEntry { shape: Arc::clone(&shape), on: BTreeMap::new() });
        Interned { id, shape }
    }

    /// Every shape with the nodes on which its pods run.
    pub fn running(&self) -> impl Iterator<Item = (&Shape, &BTreeMap<Slot, Count>)> {
        self.shapes.values().filter(|entry| !entry.on.is_empty()).map(|entry| (&*entry.shape, &entry.on))
    }

    /// Running pods with required anti-affinity.
    pub fn running_repelling(&self) -> impl Iterator<Item = (&Shape, &BTreeMap<Slot, Count>)> {
        self.running_among(&self.repelling)
    }

    /// Running pods with any pod affinity.
    pub fn running_with_affinity(&self) -> impl Iterator<Item = (&Shape, &BTreeMap<Slot, Count>)> {
        self.running_among(&self.with_affinity)
    }

    fn running_among<'a>(
        &'a self,
        ids: &'a BTreeSet<ShapeId>,
    ) -> impl Iterator<Item = (&'a Shape, &'a BTreeMap<Slot, Count>)> {
        ids.iter()
            .filter_map(|id| self.shapes.get(id))
            .filter(|entry| !entry.on.is_empty())
            .map(|entry| (&*entry.shape, &entry.on))
    }

    /// How many pods of a namespace match a selector on each slot, leaving ones aside.
    pub fn count_matching(&self, namespace: &str, selector: &Selector) -> Vec<i64> {
        let mut counts = vec![0; self.states.len()];
        // The original counts nothing for an empty selector.
        if selector.is_unrestricted() {
            return counts;
        }
        for (shape, on) in self.running() {
            if shape.namespace == namespace && selector.matches(&shape.labels) {
                for (slot, count) in on {
                    counts[*slot] += i64::from(count.all - count.leaving);
                }
            }
        }
        counts
    }

    /// The index of a topology key that some shape mentions.
    pub fn topology(&self, key: &str) -> &Topology {
        self.topologies.get(key).expect("the keys of a known shape are indexed")
    }

    // Pods

    /// A pod on a node.
    pub fn pod(&self, key: &str) -> Option<&PodEntry> {
        self.pods.get(key)
    }

    /// How many pods are on nodes.
    pub fn pod_count(&self) -> usize {
        self.pods.len()
    }

    /// Adds or replaces a pod on a node.
    pub fn set_pod(&mut self, key: &PodKey, entry: PodEntry) {
        self.remove_pod(key);
        let slot = self.slot_for(&entry.node);
        let state = &mut self.states[slot];
        state.usage.add(&entry.shape.shape);
        state.pods.insert(Arc::clone(key));
        if let Some(known) = self.shapes.get_mut(&entry.shape.id) {
            let count = known.on.entry(slot).or_default();
            count.all += 1;
            count.leaving += u32::from(entry.leaving);
        }
        self.pods.insert(Arc::clone(key), entry);
        self.touch(slot);
    }

    /// Removes a pod from its node.
    pub fn remove_pod(&mut self, key: &str) -> Option<PodEntry> {
        let entry = self.pods.remove(key)?;
        let slot = *self.by_name.get(&entry.node)?;
        let state = &mut self.states[slot];
        state.usage.remove(&entry.shape.shape);
        state.pods.remove(key);
        if let Some(known) = self.shapes.get_mut(&entry.shape.id)
            && let Some(count) = known.on.get_mut(&slot)
        {
            count.all -= 1;
            count.leaving -= u32::from(entry.leaving);
            if count.all == 0 {
                known.on.remove(&slot);
            }
        }
        self.touch(slot);
        self.release_if_unused(&entry.node, slot);
        Some(entry)
    }

    // Nominations

    /// A pod that is expected on a node.
    pub fn nomination(&self, key: &str) -> Option<&PodEntry> {
        self.nominations.get(key)
    }

    /// Expects a pod on the node of its entry.
    pub fn nominate(&mut self, key: &PodKey, entry: PodEntry) {
        self.withdraw(key);
        let slot = self.slot_for(&entry.node);
        self.states[slot].nominated.insert(Arc::clone(key));
        self.nominations.insert(Arc::clone(key), entry);
        self.touch(slot);
    }

    /// Expects a pod nowhere any more.
    pub fn withdraw(&mut self, key: &str) {
        let Some(entry) = self.nominations.remove(key) else {
            return;
        };
        if let Some(slot) = self.by_name.get(&entry.node).copied() {
            self.states[slot].nominated.remove(key);
            self.touch(slot);
            self.release_if_unused(&entry.node, slot);
        }
    }

    // Internals

    fn slot_for(&mut self, name: &str) -> Slot {
        if let Some(slot) = self.by_name.get(name) {
            return *slot;
        }
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.states.push(NodeState::default());
            self.states.len() - 1
        });
        self.by_name.insert(name.to_owned(), slot);
        self.touch(slot);
        slot
    }

    fn release_if_unused(&mut self, name: &str, slot: Slot) {
        let state = &self.states[slot];
        if state.node.is_none() && state.pods.is_empty() && state.nominated.is_empty() {
            self.by_name.remove(name);
            self.states[slot] = NodeState::default();
            self.touch(slot);
            self.free_slots.push(slot);
        }
    }

    fn touch(&mut self, slot: Slot) {
        self.generation += 1;
        self.states[slot].generation = self.generation;
    }

    fn index_topology(&mut self, key: &str) {
        if self.topologies.contains_key(key) {
            return;
        }
        let mut topology = Topology::default();
        for (slot, state) in self.states.iter().enumerate() {
            if let Some(node) = &state.node {
                topology.set(slot, node.labels.get(key));
            }
        }
        self.topologies.insert(key.to_owned(), topology);
    }

    /// Drops shapes that only this table still holds.
    fn sweep_shapes(&mut self) {
        if self.shapes.len() < self.sweep_at.max(SWEEP_FLOOR) {
            return;
        }
        // Two holders are this snapshot's own: the table of ids and the table of entries.
        self.shapes.retain(|id, entry| {
            let used = !entry.on.is_empty() || Arc::strong_count(&entry.shape) > 2;
            if !used {
                self.shape_ids.remove(&entry.shape);
                self.repelling.remove(id);
                self.with_affinity.remove(id);
            }
            used
        });
        self.sweep_at = self.shapes.len() * SWEEP_GROWTH;
    }
}

fn topology_keys(shape: &Shape) -> impl Iterator<Item = &str> {
    let spread = shape.hard_spread.iter().chain(&shape.soft_spread).map(Constraint::key);
    let hard = shape.required_affinity.iter().chain(&shape.required_anti_affinity);
    let soft = shape.preferred_affinity.iter().chain(&shape.preferred_anti_affinity);
    spread.chain(hard.chain(soft.map(|(_, term)| term)).map(|term| term.topology_key.as_str()))
}
