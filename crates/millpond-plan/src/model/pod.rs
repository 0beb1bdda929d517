//! Pods, and the classes that they share.

use super::{ClassId, Labels, NodeId, PODS, Resources, Seconds};
use crate::requirement::Requirements;
use crate::symbol::Symbol;
use crate::taint::Toleration;

/// A pod that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its name; its namespace is the class's.
    pub name: Box<str>,
    /// Everything that scheduling looks at.
    pub class: ClassId,
    /// The node where it runs, or to which it is nominated (`nominatedNodeName`), see [`PodState`].
    pub node: Option<NodeId>,
    /// Where it is in its life.
    pub state: PodState,
    /// When it was made.
    pub created: Seconds,
    /// When it was started; none if it was not.
    pub started: Option<Seconds>,
}

/// Where a pod is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PodState {
    /// It needs a node. With [`Pod::node`], kube-scheduler keeps room for it there (it preempts others, or a plan
    /// said so); the room counts as taken and nothing is bought for it while the node stays.
    Pending,
    /// It runs on [`Pod::node`].
    Bound,
    /// It runs on [`Pod::node`] and is going away; it needs no new place.
    Terminating,
    /// It waits behind a scheduling gate: nothing is planned for it.
    Gated,
}

/// What brought a pod about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum PodKind {
    /// A controller that makes a new one where one goes.
    #[default]
    Workload,
    /// A DaemonSet: it goes with its node.
    Daemon,
    /// A file on the node: it goes with its node.
    Mirror,
    /// None: the pod is gone for good when it is evicted.
    Bare,
    /// A CapacityBuffer: it stands for pods that are still to come. It waits for ever, nodes are bought and kept for
    /// it, and real pods take its room whenever they want: to them it is not there.
    Buffer,
}

/// Whether a pod may be evicted by choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum DoNotDisrupt {
    /// It may.
    #[default]
    No,
    /// It may not.
    Always,
    /// It may not until so long after its start.
    For(Seconds),
}

/// Everything that scheduling looks at in a pod. Pods that share all of it share one class.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodClass {
    /// The namespace.
    pub namespace: Symbol,
    /// Its labels.
    pub labels: Labels,
    /// What it asks for as kubelet counts it, one of `pods` included. Volumes that a driver must attach are here
    /// too, as a resource of that driver.
    pub requests: Resources,
    /// Higher first.
    pub priority: i32,
    /// Whether it may push out pods of lower priority.
    pub preempts: bool,
    /// Alternatives of which a node must satisfy one: the required terms of its node affinity, each with its
    /// node selector. Empty means that no node will do; one empty entry that any will.
    pub node_terms: Vec<Requirements>,
    /// For each of its volumes, the alternatives of which a node must satisfy one.
    pub volume_terms: Vec<Vec<Requirements>>,
    /// What it would like of a node, with weights from 1 to 100.
    pub node_preferences: Vec<(i32, Requirements)>,
    /// Taints that it tolerates.
    pub tolerations: Vec<Toleration>,
    /// How pods like it are spread.
    pub spread: Vec<Spread>,
    /// Pods that must be near.
    pub affinity: Vec<AffinityTerm>,
    /// Pods that must not be near.
    pub anti_affinity: Vec<AffinityTerm>,
    /// Pods that it would like near (positive weight) or not (negative weight).
    pub affinity_preferences: Vec<(i32, AffinityTerm)>,
    /// Ports of the host that it takes.
    pub host_ports: Vec<HostPort>,
    /// What brought it about.
    pub kind: PodKind,
    /// Whether it may be evicted by choice.
    pub do_not_disrupt: DoNotDisrupt,
    /// `controller.kubernetes.io/pod-deletion-cost`.
    pub deletion_cost: i32,
    /// Why no node will ever do, where something that it names is missing.
    pub problem: Option<Problem>,
}

impl PodClass {
    /// A pod that asks for nothing and goes anywhere.
    pub fn new(namespace: Symbol) -> Self {
        Self {
            namespace,
            labels: Labels::default(),
            requests: [(PODS, 1)].into_iter().collect(),
            priority: 0,
            preempts: true,
            node_terms: vec![Requirements::new()],
            volume_terms: Vec::new(),
            node_preferences: Vec::new(),
            tolerations: Vec::new(),
            spread: Vec::new(),
            affinity: Vec::new(),
            anti_affinity: Vec::new(),
            affinity_preferences: Vec::new(),
            host_ports: Vec::new(),
            kind: PodKind::default(),
            do_not_disrupt: DoNotDisrupt::default(),
            deletion_cost: 0,
            problem: None,
        }
    }
}

impl PodClass {
    /// Placeholder pods for pods of this class that do not exist yet. They are placed last, preempt no pod, and have no
    /// volumes, since the volumes of future pods do not exist yet.
    #[must_use]
    pub fn into_buffer(self) -> Self {
        Self {
            priority: i32::MIN,
            preempts: false,
            volume_terms: Vec::new(),
            kind: PodKind::Buffer,
            do_not_disrupt: DoNotDisrupt::No,
            deletion_cost: 0,
            ..self
        }
    }

    /// Whether it stands for pods that are still to come.
    pub fn is_buffer(&self) -> bool {
        self.kind == PodKind::Buffer
    }

    /// Whether a pod of this class would find one of the other: kube-scheduler knows nothing of buffers, so only they
    /// themselves can spread over, or be near, each other.
    pub fn sees(&self, other: &Self) -> bool {
        self.is_buffer() || !other.is_buffer()
    }
}

/// Why no node will ever do for a pod, whatever is bought.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Problem {
    /// It names a PersistentVolumeClaim that is not there.
    ClaimMissing(Box<str>),
    /// Its claim waits for a volume that an administrator has to create.
    ClaimUnbound(Box<str>),
    /// Its claim is of a StorageClass that is not there.
    StorageClassMissing(Box<str>),
    /// Its claim may be used by one pod at a time, and is.
    ClaimInUse(Box<str>),
    /// Its requirements on nodes contradict each other.
    Contradiction(Box<str>),
    /// It asks for devices by a ResourceClaim; which node has them is not in a snapshot.
    Devices(Box<str>),
    /// Another scheduler looks after it.
    OtherScheduler(Box<str>),
}

/// Whether nodes that a pod could not use count as domains of its spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum InclusionPolicy {
    /// They do not.
    Honor,
    /// They do.
    Ignore,
}

/// A topology spread constraint.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Spread {
    /// The label whose values are the domains.
    pub key: Symbol,
    /// How many more pods than the least of the domains one may have.
    pub max_skew: u32,
    /// With fewer domains than this the least counts as zero.
    pub min_domains: Option<u32>,
    /// `DoNotSchedule`; otherwise a wish.
    pub hard: bool,
    /// Which pods of the namespace are counted, `matchLabelKeys` included; none for no pod at all.
    pub selector: Option<Requirements>,
    /// Whether nodes against the pod's node affinity count.
    pub node_affinity: InclusionPolicy,
    /// Whether nodes with taints against the pod count.
    pub node_taints: InclusionPolicy,
}

/// Namespaces of an affinity term.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Namespaces {
    /// Every one.
    All,
    /// These, sorted.
    These(Box<[Symbol]>),
}

impl Namespaces {
    /// Whether it is one of them.
    pub fn contains(&self, namespace: Symbol) -> bool {
        match self {
            Self::All => true,
            Self::These(these) => these.binary_search(&namespace).is_ok(),
        }
    }
}

/// A term of pod affinity or anti-affinity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AffinityTerm {
    /// The label whose equal values mean near.
    pub key: Symbol,
    /// Which pods, `matchLabelKeys` included; none for no pod at all.
    pub selector: Option<Requirements>,
    /// Of which namespaces.
    pub namespaces: Namespaces,
}

/// The protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// A port of the host that a pod takes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// The protocol.
    pub protocol: Protocol,
    /// The address; none for all of the host.
    pub address: Option<Box<str>>,
    /// The port.
    pub port: u16,
}

impl HostPort {
    /// Whether two pods that want these cannot share a host.
    pub fn conflicts(&self, other: &Self) -> bool {
        let same_address = self.address.is_none() || other.address.is_none() || self.address == other.address;
        self.port == other.port && self.protocol == other.protocol && same_address
    }
}
