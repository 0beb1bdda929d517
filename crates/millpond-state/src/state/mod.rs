//! The index: the latest of each object, pods as shapes.

mod buffers;
mod cluster_api;
mod entries;
mod overlays;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use millpond_api::capacity_buffer::CapacityBuffer;
use millpond_api::catalog::overlay::Overlay;
use millpond_api::catalog::{Catalog, config_map};
use millpond_api::cluster_limits::ClusterLimitsSpec;
use millpond_api::karpenter::{NodeClaim, NodePool};
use millpond_api::meta::Invalid;
use millpond_api::node_class::NodeClass;
use millpond_api::scaling_advisor::{ScalingConstraint, ScalingFeedback};
use millpond_plan::model::{Labels, Resources, Snapshot};
use millpond_plan::requirement::Requirements;

pub use buffers::Unresolved;
pub(crate) use buffers::is_active;
pub(crate) use cluster_api::{ClusterApi, GroupEntry, MachineEntry};
pub(crate) use entries::{
    BudgetEntry, ClaimEntry, ClaimRef, PodEntry, PodPhase, PriorityEntry, StorageClassEntry, Template, VolumeEntry,
    WorkloadEntry,
};
pub use overlays::{Overlays, pool_labels};

use crate::lower::node::NodeEntry;
use crate::lower::pod::{self, Shape};
use crate::lower::{node, select};
use crate::objects::meta::Metadata;
use crate::objects::pod::{Pod, PodSpec, PodStatus};
use crate::objects::{ClassKind, Kind, Object};
use crate::snapshot::Lowered;

/// Shapes that no pod has any more are let go when there are this many, and twice as many as after the last time.
const SWEEP_FROM: usize = 4096;

/// The effect of applying an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// It is new.
    Added,
    /// It replaced an older version.
    Changed,
    /// It was present with the same resource version.
    Unchanged,
}

/// Where an object was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The file.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

/// Namespace and name.
type Names<T> = BTreeMap<Box<str>, BTreeMap<Box<str>, T>>;

/// The latest of each object that planning looks at.
#[derive(Debug, Clone)]
pub struct State {
    /// Texts and resources; everything else of it is empty.
    pub(crate) tables: Snapshot,
    pub(crate) pods: HashMap<Box<str>, HashMap<Box<str>, PodEntry>>,
    shapes: HashMap<u128, Arc<Shape>>,
    sweep_at: usize,
    lowered: u64,
    changes: u64,
    pub(crate) nodes: BTreeMap<Box<str>, NodeEntry>,
    pub(crate) pools: BTreeMap<Box<str>, (NodePool, Option<Origin>)>,
    pub(crate) claims: BTreeMap<Box<str>, NodeClaim>,
    pub(crate) classes: BTreeMap<(ClassKind, Box<str>), NodeClass>,
    /// Scaling Advisor's pools.
    pub(crate) constraints: Names<(ScalingConstraint, Option<Origin>)>,
    /// What could not be had.
    pub(crate) feedbacks: Names<ScalingFeedback>,
    /// What all nodes may add up to; all of them hold.
    pub(crate) cluster_limits: BTreeMap<Box<str>, ClusterLimitsSpec>,
    /// Pools that are there and get no nodes whatever happens: the labels of their nodes, and why.
    pub(crate) refused_pools: BTreeMap<Box<str>, (Requirements, String)>,
    /// Catalogues of ConfigMaps, by namespace and name of these.
    pub(crate) catalogs: Names<Arc<Catalog>>,
    /// Catalogues that providers report, by the name of the class.
    pub(crate) provided: BTreeMap<Box<str>, Arc<Catalog>>,
    pub(crate) namespaces: BTreeMap<Box<str>, Labels>,
    pub(crate) volumes: HashMap<Box<str>, VolumeEntry>,
    pub(crate) volume_claims: Names<ClaimEntry>,
    pub(crate) storage_classes: BTreeMap<Box<str>, StorageClassEntry>,
    /// Volumes that each driver can attach to a node.
    pub(crate) attachable: BTreeMap<Box<str>, Vec<(Box<str>, Option<u32>)>>,
    pub(crate) priorities: BTreeMap<Box<str>, PriorityEntry>,
    pub(crate) budgets: Names<BudgetEntry>,
    pub(crate) workloads: BTreeMap<(Kind, Box<str>, Box<str>), WorkloadEntry>,
    /// PodTemplates.
    pub(crate) templates: Names<Template>,
    /// Default requests of containers, by LimitRange.
    pub(crate) limit_ranges: Names<Resources>,
    pub(crate) buffers: Names<(CapacityBuffer, Option<Origin>)>,
    pub(crate) overlays: BTreeMap<Box<str>, (Overlay, Option<Origin>)>,
    /// Machines and groups of them.
    pub(crate) cluster_api: ClusterApi,
    memory: overlays::Memory,
    /// Lists of types that were translated before.
    pub(crate) types: Vec<Arc<Lowered>>,
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    /// Without objects.
    pub fn new() -> Self {
        Self {
            tables: Snapshot::new(0),
            pods: HashMap::new(),
            shapes: HashMap::new(),
            sweep_at: SWEEP_FROM,
            lowered: 0,
            changes: 0,
            nodes: BTreeMap::new(),
            pools: BTreeMap::new(),
            claims: BTreeMap::new(),
            classes: BTreeMap::new(),
            constraints: BTreeMap::new(),
            feedbacks: BTreeMap::new(),
            cluster_limits: BTreeMap::new(),
            refused_pools: BTreeMap::new(),
            catalogs: BTreeMap::new(),
            provided: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            volumes: HashMap::new(),
            volume_claims: BTreeMap::new(),
            storage_classes: BTreeMap::new(),
            attachable: BTreeMap::new(),
            priorities: BTreeMap::new(),
            budgets: BTreeMap::new(),
            workloads: BTreeMap::new(),
            templates: BTreeMap::new(),
            limit_ranges: BTreeMap::new(),
            buffers: BTreeMap::new(),
            overlays: BTreeMap::new(),
            cluster_api: ClusterApi::default(),
            memory: overlays::Memory::default(),
            types: Vec::new(),
        }
    }

    /// How often a pod or a template was lowered. Equal pods are lowered once, unchanged ones never again.
    pub fn lowered(&self) -> u64 {
        self.lowered
    }

    /// How often something changed. A snapshot's revision names it.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// How many pods are held.
    pub fn pods(&self) -> usize {
        self.pods.values().map(HashMap::len).sum()
    }

    /// The pool of that name.
    pub fn pool(&self, name: &str) -> Option<&NodePool> {
        self.pools.get(name).map(|(pool, _)| pool)
    }

    /// The claim of that name.
    pub fn claim(&self, name: &str) -> Option<&NodeClaim> {
        self.claims.get(name)
    }

    /// Names of the pods of a workload, with their namespace: those that its selector selects, and those that a plan
    /// makes up for it. `None` if there is no such workload.
    pub fn pods_of(&self, kind: Kind, namespace: &str, name: &str) -> Option<Vec<String>> {
        let workload = self.workloads.get(&(kind, namespace.into(), name.into()))?;
        let pods = self.pods.get(namespace).into_iter().flatten();
        let own = pods.filter(|(_, pod)| {
            let selects =
                |selector| millpond_plan::model::selects(selector, &pod.shape.class.labels, &self.tables.symbols);
            workload.selector.as_ref().is_some_and(selects)
        });
        let mut names: Vec<String> = own.map(|(pod, _)| format!("{namespace}/{pod}")).collect();
        names.extend((0..workload.replicas).map(|number| format!("{namespace}/{name}-{number}")));
        names.sort_unstable();
        names.dedup();
        Some(names)
    }

    /// All node classes, by kind and name.
    pub fn classes(&self) -> impl Iterator<Item = (ClassKind, &NodeClass)> {
        self.classes.iter().map(|((kind, _), class)| (*kind, class))
    }

    /// Remembers a pool that gets no nodes whatever happens, and why: snapshots have it as a pool that is not ready, so
    /// that pods that ask for it are told the reason.
    pub fn refuse_pool(&mut self, pool: &NodePool, why: String) {
        let (name, tables) = (pool.metadata.name.as_str(), &mut self.tables);
        let own = [(millpond_api::labels::NODE_POOL, name)].into_iter();
        let template = pool.spec.template.metadata.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let labels: Vec<_> = own
            .chain(template)
            .map(|(key, value)| (tables.symbols.intern(key), tables.symbols.intern(value)))
            .collect();
        self.pools.remove(name);
        self.refused_pools.insert(name.into(), (Requirements::of_labels(labels), why));
        self.changes += 1;
    }

    /// Takes the latest of an object.
    pub fn apply(&mut self, object: &Object<'_>) -> Result<Applied, Invalid> {
        self.apply_from(object, None)
    }

    /// The same for a claim that is at hand already. There is nothing about a claim that is refused.
    pub fn apply_claim(&mut self, claim: NodeClaim) {
        self.claims.insert(claim.metadata.name.as_str().into(), claim);
        self.changes += 1;
    }

    /// The same, remembering where it stands, for what may have to be said about it later.
    pub fn apply_from(&mut self, object: &Object<'_>, origin: Option<Origin>) -> Result<Applied, Invalid> {
        if object.name().1.is_empty() && !self.may_lack_name(object) {
            return Err(Invalid::new("metadata.name", "is missing"));
        }
        let applied = self.take(object, origin)?;
        self.changes += u64::from(applied != Applied::Unchanged);
        Ok(applied)
    }

    /// Some objects of files need no name: the server would make one up.
    fn may_lack_name(&self, object: &Object<'_>) -> bool {
        match object {
            Object::Pod(pod) => !pod.metadata.generate_name.is_empty(),
            // The one of a request to Scaling Advisor often has none.
            Object::ScalingConstraint(_) => true,
            _ => false,
        }
    }

    fn take(&mut self, object: &Object<'_>, origin: Option<Origin>) -> Result<Applied, Invalid> {
        let (namespace, name) = object.name();
        Ok(match object {
            Object::Pod(pod) => self.take_pod(pod)?,
            Object::Node(node) => {
                let revision = &*node.metadata.resource_version;
                let known = self.nodes.get(name).map(|entry| &*entry.revision);
                if known == Some(revision) && !revision.is_empty() {
                    return Ok(Applied::Unchanged);
                }
                let entry = node::lower(node, &mut self.tables);
                put(self.nodes.insert(name.into(), entry))
            }
            Object::Namespace(namespace) => {
                let labels = select::labels(&namespace.metadata.labels, &mut self.tables.symbols);
                put(self.namespaces.insert(name.into(), labels))
            }
            Object::PersistentVolume(volume) => {
                let entry = VolumeEntry::new(volume, &mut self.tables)?;
                put(self.volumes.insert(name.into(), entry))
            }
            Object::PersistentVolumeClaim(claim) => {
                let entry = ClaimEntry::new(&claim.metadata, &claim.spec);
                put(self.volume_claims.entry(namespace.into()).or_default().insert(name.into(), entry))
            }
            Object::StorageClass(class) => {
                let entry = StorageClassEntry::new(class, &mut self.tables);
                put(self.storage_classes.insert(name.into(), entry))
            }
            Object::CsiNode(node) => {
                let drivers = node.spec.drivers.iter();
                let counts = drivers.map(|driver| ((*driver.name).into(), driver.allocatable.and_then(|it| it.count)));
                put(self.attachable.insert(name.into(), counts.collect()))
            }
            Object::PriorityClass(class) => put(self.priorities.insert(name.into(), PriorityEntry::new(class))),
            Object::PodDisruptionBudget(budget) => {
                let entry = BudgetEntry::new(budget, &mut self.tables.symbols)?;
                put(self.budgets.entry(namespace.into()).or_default().insert(name.into(), entry))
            }
            Object::Workload(kind, workload) => {
                let entry = WorkloadEntry::new(*kind, workload, self)?;
                put(self.workloads.insert((*kind, namespace.into(), name.into()), entry))
            }
            Object::PodTemplate(template) => {
                let entry = Template::stored(template, self)?;
                put(self.templates.entry(namespace.into()).or_default().insert(name.into(), entry))
            }
            Object::LimitRange(range) => {
                let entry = entries::default_requests(range, &mut self.tables.resources);
                put(self.limit_ranges.entry(namespace.into()).or_default().insert(name.into(), entry))
            }
            Object::CapacityBuffer(buffer) => {
                let entry = ((**buffer).clone(), origin);
                put(self.buffers.entry(namespace.into()).or_default().insert(name.into(), entry))
            }
            Object::NodeOverlay(overlay) => {
                let entry = (Overlay::of(overlay)?, origin);
                let same = self.overlays.get(name).is_some_and(|(known, _)| *known == entry.0);
                if !same {
                    self.forget_overlaid();
                }
                put(self.overlays.insert(name.into(), entry))
            }
            Object::NodePool(pool) => {
                if let Some(first) = pool.validate().into_iter().next() {
                    return Err(first);
                }
                let requirements = crate::snapshot::pools::requirements(pool, &mut self.tables)?;
                self.tables.intern_usual(&requirements);
                if self.pools.get(name).is_none_or(|(known, _)| known.spec.template != pool.spec.template) {
                    self.forget_overlaid();
                }
                self.refused_pools.remove(name);
                put(self.pools.insert(name.into(), ((**pool).clone(), origin)))
            }
            Object::NodeClaim(claim) => put(self.claims.insert(name.into(), (**claim).clone())),
            Object::NodeClass(kind, class) => {
                if let Some(first) = class.validate().into_iter().next() {
                    return Err(first);
                }
                let key = (*kind, name.into());
                if self.classes.get(&key).is_none_or(|known| known.spec != class.spec) {
                    self.forget_overlaid();
                }
                put(self.classes.insert(key, (**class).clone()))
            }
            Object::ScalingConstraint(constraint) => {
                if let Some(first) = constraint.validate().into_iter().next() {
                    return Err(first);
                }
                let entry = ((**constraint).clone(), origin);
                put(self.constraints.entry(namespace.into()).or_default().insert(name.into(), entry))
            }
            Object::ScalingFeedback(feedback) => {
                put(self.feedbacks.entry(namespace.into()).or_default().insert(name.into(), (**feedback).clone()))
            }
            Object::ClusterLimits(limits) => put(self.cluster_limits.insert(name.into(), limits.spec.clone())),
            Object::ConfigMap(map) => {
                self.forget_overlaid();
                let Some((catalog, text)) = map.catalog() else {
                    // The ConfigMap may have held a catalogue.
                    let gone = remove(&mut self.catalogs, namespace, name);
                    return Ok(if gone { Applied::Changed } else { Applied::Unchanged });
                };
                let catalog = config_map::read(name, catalog, text).map_err(|error| {
                    Invalid::new(format!("data.{}", config_map::KEY), format!("is no catalogue: {error}"))
                })?;
                put(self.catalogs.entry(namespace.into()).or_default().insert(name.into(), Arc::new(catalog)))
            }
            Object::ClusterApi(kind, raw) => self.cluster_api.take(*kind, raw, origin),
        })
    }

    /// The catalogue of that name; of several ConfigMaps with one, the first by namespace and name.
    pub fn find_catalog(&self, name: &str) -> Option<&Catalog> {
        let mut all = self.catalogs.values().flat_map(BTreeMap::values);
        all.find(|catalog| catalog.name == name).map(|catalog| &**catalog)
    }

    /// The provider of a class reports its catalogue, or that it has none. Tells whether that is another one than
    /// before.
    pub fn provide(&mut self, class: &str, catalog: Option<Arc<Catalog>>) -> bool {
        let same = self.provided.get(class) == catalog.as_ref();
        if same {
            return false;
        }
        let before = match catalog {
            Some(catalog) => self.provided.insert(class.into(), catalog),
            None => self.provided.remove(class),
        };
        if let Some(before) = before {
            self.forget_catalog(&before.name);
        }
        true
    }

    /// All catalogues in objects; of equal names the first one counts.
    pub fn catalogs(&self) -> impl Iterator<Item = &Arc<Catalog>> {
        self.catalogs.values().flat_map(BTreeMap::values)
    }

    fn take_pod(&mut self, pod: &Pod<'_>) -> Result<Applied, Invalid> {
        let (namespace, name) = (pod.metadata.namespace(), &*pod.metadata.name);
        let known = self.pods.get(namespace).and_then(|pods| pods.get(name));
        let revision = &*pod.metadata.resource_version;
        if known.is_some_and(|entry| !revision.is_empty() && &*entry.revision == revision) {
            return Ok(Applied::Unchanged);
        }
        // A pod that runs without a node is played by a process, and waits for none.
        let has_ended = matches!(&*pod.status.phase, "Succeeded" | "Failed");
        if has_ended || (&*pod.status.phase == "Running" && pod.spec.node_name.is_empty()) {
            let gone = self.pods.get_mut(namespace).and_then(|pods| pods.remove(name));
            return Ok(if gone.is_some() { Applied::Changed } else { Applied::Unchanged });
        }
        let (content, shape) = self.shape(&pod.metadata, &pod.spec, &pod.status)?;
        let entry = PodEntry::new(pod, content, shape, &mut self.tables.symbols);
        let name =
            if name.is_empty() { self.made_up_name(namespace, &pod.metadata.generate_name) } else { name.into() };
        if let Some(pods) = self.pods.get_mut(namespace) {
            return Ok(put(pods.insert(name, entry)));
        }
        self.pods.entry(namespace.into()).or_default().insert(name, entry);
        Ok(Applied::Added)
    }

    /// Keeps room on a node for a pod that has none and was not nominated for any: the provisioner planned it there. Holds until the
    /// pod is applied in another version.
    pub fn nominate(&mut self, namespace: &str, name: &str, node: Option<&str>) {
        let entry = self.pods.get_mut(namespace).and_then(|pods| pods.get_mut(name));
        let Some(entry) = entry.filter(|entry| matches!(entry.phase, PodPhase::Pending | PodPhase::Gated)) else {
            return;
        };
        let node = node.map(|node| self.tables.symbols.intern(node));
        self.changes += u64::from(entry.node != node);
        entry.node = node;
    }

    /// Whether a node has enough free resources for a pod; `None` if the node or the pod is not known.
    pub fn has_enough<'p>(
        &self,
        node: &str,
        pod: (&str, &str),
        others: impl Iterator<Item = (&'p str, &'p str)>,
    ) -> Option<bool> {
        let entry = |(namespace, name): (&str, &str)| self.pods.get(namespace)?.get(name);
        let mut left = self.nodes.get(node)?.allocatable.clone();
        others.filter_map(entry).for_each(|other| left.subtract(&other.shape.class.requests));
        Some(left.first_lacking(&entry(pod)?.shape.class.requests).is_none())
    }

    fn made_up_name(&self, namespace: &str, prefix: &str) -> Box<str> {
        let pods = self.pods.get(namespace);
        let taken = |name: &str| pods.is_some_and(|pods| pods.contains_key(name));
        let first = pods.map_or(0, HashMap::len);
        let names = (first..).map(|number| format!("{prefix}{number:05}"));
        names.into_iter().find(|name| !taken(name)).unwrap_or_default().into()
    }

    /// The shape of a pod, known already or new.
    pub(crate) fn shape(
        &mut self,
        metadata: &Metadata<'_>,
        spec: &PodSpec<'_>,
        status: &PodStatus<'_>,
    ) -> Result<(u128, Arc<Shape>), Invalid> {
        let content = pod::content(metadata, spec, status);
        if let Some(shape) = self.shapes.get(&content) {
            return Ok((content, shape.clone()));
        }
        self.lowered += 1;
        let shape = Arc::new(pod::shape(metadata, spec, status, &mut self.tables)?);
        if self.shapes.len() >= self.sweep_at {
            self.shapes.retain(|_, shape| Arc::strong_count(shape) > 1);
            self.sweep_at = (2 * self.shapes.len()).max(SWEEP_FROM);
        }
        self.shapes.insert(content, shape.clone());
        Ok((content, shape))
    }

    /// Forgets an object; true if it was there.
    pub fn delete(&mut self, kind: Kind, namespace: &str, name: &str) -> bool {
        let gone = match kind {
            Kind::Pod => self.pods.get_mut(namespace).and_then(|pods| pods.remove(name)).is_some(),
            Kind::Node => self.nodes.remove(name).is_some(),
            Kind::Namespace => self.namespaces.remove(name).is_some(),
            Kind::PersistentVolume => self.volumes.remove(name).is_some(),
            Kind::PersistentVolumeClaim => remove(&mut self.volume_claims, namespace, name),
            Kind::StorageClass => self.storage_classes.remove(name).is_some(),
            Kind::CsiNode => self.attachable.remove(name).is_some(),
            Kind::PriorityClass => self.priorities.remove(name).is_some(),
            Kind::PodDisruptionBudget => remove(&mut self.budgets, namespace, name),
            Kind::DaemonSet | Kind::ReplicaSet | Kind::Deployment | Kind::StatefulSet | Kind::Job => {
                self.workloads.remove(&(kind, namespace.into(), name.into())).is_some()
            }
            Kind::PodTemplate => remove(&mut self.templates, namespace, name),
            Kind::LimitRange => remove(&mut self.limit_ranges, namespace, name),
            Kind::CapacityBuffer => remove(&mut self.buffers, namespace, name),
            Kind::NodeOverlay => self.overlays.remove(name).is_some(),
            Kind::NodePool => self.refused_pools.remove(name).is_some() | self.pools.remove(name).is_some(),
            Kind::NodeClaim => self.claims.remove(name).is_some(),
            Kind::NodeClass(class) => self.classes.remove(&(class, name.into())).is_some(),
            Kind::ScalingConstraint => remove(&mut self.constraints, namespace, name),
            Kind::ScalingFeedback => remove(&mut self.feedbacks, namespace, name),
            Kind::ClusterLimits => self.cluster_limits.remove(name).is_some(),
            Kind::ConfigMap => remove(&mut self.catalogs, namespace, name),
            Kind::ClusterApi(kind) => self.cluster_api.forget(kind, namespace, name),
        };
        self.changes += u64::from(gone);
        if matches!(kind, Kind::NodeOverlay | Kind::NodePool | Kind::NodeClass(_) | Kind::ConfigMap) {
            self.forget_overlaid();
        }
        gone
    }
}

fn put<T>(before: Option<T>) -> Applied {
    if before.is_some() { Applied::Changed } else { Applied::Added }
}

fn remove<T>(all: &mut Names<T>, namespace: &str, name: &str) -> bool {
    all.get_mut(namespace).and_then(|names| names.remove(name)).is_some()
}
