//! The pods on each node.

use crate::model::{ClassId, NodeId, PodId, PodKind, PodState, Snapshot};

/// The pods of every node.
#[derive(Debug)]
pub struct Residents {
    /// Index of each node's first pod; one entry more than there are nodes.
    starts: Vec<u32>,
    pods: Vec<PodId>,
}

impl Residents {
    /// Groups the pods by node; those of one node stay in the snapshot's order.
    pub fn new(snapshot: &Snapshot) -> Self {
        let mut starts = vec![0_u32; snapshot.nodes.len() + 1];
        for node in snapshot.pods.iter().filter_map(|pod| pod.node) {
            starts[node.index() + 1] += 1;
        }
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut next = starts.clone();
        let mut pods = vec![PodId(0); starts[starts.len() - 1] as usize];
        for (index, pod) in snapshot.pods.iter().enumerate() {
            if let Some(node) = pod.node {
                pods[next[node.index()] as usize] = PodId::from(index);
                next[node.index()] += 1;
            }
        }
        Self { starts, pods }
    }

    /// The pods of a node, including pods that are nominated for it.
    pub fn of(&self, node: NodeId) -> &[PodId] {
        &self.pods[self.starts[node.index()] as usize..self.starts[node.index() + 1] as usize]
    }

    /// The pods of a node that must be scheduled elsewhere when the node is removed.
    pub fn movers<'a>(&'a self, snapshot: &'a Snapshot, node: NodeId) -> impl Iterator<Item = PodId> + 'a {
        self.of(node).iter().copied().filter(|pod| moves(snapshot, *pod))
    }

    /// The classes of [`Self::movers`].
    pub fn mover_classes<'a>(&'a self, snapshot: &'a Snapshot, node: NodeId) -> impl Iterator<Item = ClassId> + 'a {
        self.movers(snapshot, node).map(|pod| snapshot.pods[pod.index()].class)
    }
}

/// Whether a running pod must be scheduled elsewhere when its node is removed. Static pods and pods of DaemonSets end
/// with the node.
pub fn moves(snapshot: &Snapshot, pod: PodId) -> bool {
    let bound = snapshot.pods[pod.index()].state == PodState::Bound;
    bound && !matches!(snapshot.class_of(pod).kind, PodKind::Daemon | PodKind::Mirror)
}
