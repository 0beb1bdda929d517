//! Pods, and the classes that they share.

use serde::{Deserialize, Serialize};

use super::{ClassId, Labels, NodeId, PODS, Resources, Seconds};
use crate::requirement::Requirements;
use crate::symbol::Symbol;
use crate::taint::Toleration;

/// A pod that has not finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// Its name; its namespace is the class's.
    pub name: Box<str>,
    /// Everything about it that scheduling considers.
    pub class: ClassId,
    /// The node where it runs, or to which it is nominated (`nominatedNodeName`), see [`PodState`].
    pub node: Option<NodeId>,
    /// Its phase.
    pub state: PodState,
    /// When it was created.
    pub created: Seconds,
    /// When it was started; `None` if it was not.
    pub started: Option<Seconds>,
}

/// The phase of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PodState {
    /// It needs a node. If [`Pod::node`] is set, the pod is nominated for that node (kube-scheduler preempted others,
    /// or a plan chose it): its resources count as used there, and nothing is bought for it while the node stays.
    Pending,
    /// It runs on [`Pod::node`].
    Bound,
    /// It runs on [`Pod::node`] and is terminating; it needs no other node.
    Terminating,
    /// A scheduling gate holds it back; nothing is planned for it.
    Gated,
}

/// What created a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum PodKind {
    /// A controller that makes a new one where one goes.
    #[default]
    Workload,
    /// A DaemonSet: the pod ends with its node.
    Daemon,
    /// A manifest on the node (static pod): it ends with its node.
    Mirror,
    /// No controller: an evicted pod is not recreated.
    Bare,
    /// A CapacityBuffer: a placeholder for future pods. It stays pending, nodes are bought and kept for it, and real
    /// pods may use its capacity at any time, as if it did not exist.
    Buffer,
}

/// Whether a voluntary disruption may evict a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum DoNotDisrupt {
    /// It may be evicted.
    #[default]
    No,
    /// It may not be evicted.
    Always,
    /// It may not be evicted until this many seconds after its start.
    For(Seconds),
}

/// Everything that scheduling looks at in a pod. Pods that share all of it share one class.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodClass {
    /// The namespace.
    pub namespace: Symbol,
    /// Its labels.
    pub labels: Labels,
    /// Its requests as kubelet counts them, including one of `pods`. Volumes that a driver must attach are included as
    /// a resource of that driver.
    pub requests: Resources,
    /// Priority; higher is scheduled first.
    pub priority: i32,
    /// Whether it may preempt pods of lower priority.
    pub preempts: bool,
    /// Alternatives of which a node must satisfy one: the required terms of its node affinity, each with its
    /// node selector. Empty means that no node will do; one empty entry that any will.
    pub node_terms: Vec<Requirements>,
    /// For each of its volumes, alternatives of which the node must meet one.
    pub volume_terms: Vec<Vec<Requirements>>,
    /// Node preferences with weights from 1 to 100.
    pub node_preferences: Vec<(i32, Requirements)>,
    /// Taints that it tolerates.
    pub tolerations: Vec<Toleration>,
    /// Its topology spread constraints.
    pub spread: Vec<Spread>,
    /// Required affinity to other pods.
    pub affinity: Vec<AffinityTerm>,
    /// Required anti-affinity to other pods.
    pub anti_affinity: Vec<AffinityTerm>,
    /// Pods that it would like near (positive weight) or not (negative weight).
    pub affinity_preferences: Vec<(i32, AffinityTerm)>,
    /// Host ports that it uses.
    pub host_ports: Vec<HostPort>,
    /// What created it.
    pub kind: PodKind,
    /// Whether a voluntary disruption may evict it.
    pub do_not_disrupt: DoNotDisrupt,
    /// `controller.kubernetes.io/pod-deletion-cost`.
    pub deletion_cost: i32,
    /// Why no node will ever do, where something that it names is missing.
    pub problem: Option<Problem>,
}

impl PodClass {
    /// A pod without requests or constraints.
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

    /// Whether it is a placeholder of a CapacityBuffer.
    pub fn is_buffer(&self) -> bool {
        self.kind == PodKind::Buffer
    }

    /// Whether a pod of this class would find one of the other: kube-scheduler knows nothing of buffers, so only they
    /// themselves can spread over, or be near, each other.
    pub fn sees(&self, other: &Self) -> bool {
        self.is_buffer() || !other.is_buffer()
    }
}

/// A problem of a pod that no node can solve.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Problem {
    /// It names a PersistentVolumeClaim that does not exist.
    ClaimMissing(Box<str>),
    /// Its claim waits for a volume that an administrator has to create.
    ClaimUnbound(Box<str>),
    /// Its claim names a StorageClass that does not exist.
    StorageClassMissing(Box<str>),
    /// Its claim can be used by one pod at a time, and another pod uses it.
    ClaimInUse(Box<str>),
    /// Its requirements on nodes contradict each other.
    Contradiction(Box<str>),
    /// It requests devices by a ResourceClaim; snapshots do not contain the devices of nodes.
    Devices(Box<str>),
    /// It names another scheduler.
    OtherScheduler(Box<str>),
}

/// Whether nodes that a pod could not use count as domains of its spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum InclusionPolicy {
    /// Only nodes that the pod could use count.
    Honor,
    /// All nodes count.
    Ignore,
}

/// A topology spread constraint.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Spread {
    /// The label whose values are the domains.
    pub key: Symbol,
    /// How many more pods than the least of the domains one may have.
    pub max_skew: u32,
    /// If there are fewer domains than this, the minimum counts as zero.
    pub min_domains: Option<u32>,
    /// `DoNotSchedule`; otherwise a preference (`ScheduleAnyway`).
    pub hard: bool,
    /// Pods of the namespace that are counted, with `matchLabelKeys` applied; `None` selects no pod.
    pub selector: Option<Requirements>,
    /// Whether nodes against the pod's node affinity count.
    pub node_affinity: InclusionPolicy,
    /// Whether nodes with taints against the pod count.
    pub node_taints: InclusionPolicy,
}

/// Namespaces of an affinity term.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Namespaces {
    /// All namespaces.
    All,
    /// The listed ones, sorted.
    These(Box<[Symbol]>),
}

impl Namespaces {
    /// Whether the namespace is one of them.
    pub fn contains(&self, namespace: Symbol) -> bool {
        match self {
            Self::All => true,
            Self::These(these) => these.binary_search(&namespace).is_ok(),
        }
    }
}

/// A term of pod affinity or anti-affinity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AffinityTerm {
    /// The topology key: nodes with an equal value of this label are near each other.
    pub key: Symbol,
    /// Pods that it selects, with `matchLabelKeys` applied; `None` selects no pod.
    pub selector: Option<Requirements>,
    /// Namespaces of the selected pods.
    pub namespaces: Namespaces,
}

/// The protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// A host port that a pod uses.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostPort {
    /// The protocol.
    pub protocol: Protocol,
    /// The address; `None` for all addresses of the host.
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
