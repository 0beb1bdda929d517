//! Labels, annotations and other names of Cluster API, its autoscaler, and Tanzu.

/// The cluster that an object belongs to (label).
pub const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
/// The MachineDeployment that a MachineSet or Machine belongs to (label).
pub const DEPLOYMENT_NAME: &str = "cluster.x-k8s.io/deployment-name";
/// The MachineSet that a Machine belongs to (label).
pub const SET_NAME: &str = "cluster.x-k8s.io/set-name";
/// The MachinePool that a Machine belongs to (label).
pub const POOL_NAME: &str = "cluster.x-k8s.io/pool-name";
/// The hash of the template that a MachineSet was made from (label).
pub const TEMPLATE_HASH: &str = "machine-template-hash";
/// On machines of the control plane (label).
pub const CONTROL_PLANE: &str = "cluster.x-k8s.io/control-plane";
/// The entry of a cluster's topology that a MachineDeployment belongs to (label).
pub const TOPOLOGY_DEPLOYMENT: &str = "topology.cluster.x-k8s.io/deployment-name";
/// On all objects that a topology creates (label).
pub const TOPOLOGY_OWNED: &str = "topology.cluster.x-k8s.io/owned";
/// The Machine is deleted first when its set is scaled down (annotation on a Machine; its value does not matter).
pub const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";
/// Controllers ignore the object (annotation).
pub const PAUSED: &str = "cluster.x-k8s.io/paused";
/// The Machine of a Node (annotation, on a Node).
pub const NODE_MACHINE: &str = "cluster.x-k8s.io/machine";
/// The cluster of a Node (annotation, on a Node).
pub const NODE_CLUSTER: &str = "cluster.x-k8s.io/cluster-name";
/// The namespace of a Node's cluster (annotation, on a Node).
pub const NODE_CLUSTER_NAMESPACE: &str = "cluster.x-k8s.io/cluster-namespace";
/// What owns the Machine of a Node: kind and name (annotations, on a Node).
pub const NODE_OWNER_KIND: &str = "cluster.x-k8s.io/owner-kind";
/// See [`NODE_OWNER_KIND`].
pub const NODE_OWNER_NAME: &str = "cluster.x-k8s.io/owner-name";
/// Labels that Cluster API put on a Node and takes off again (annotation, on a Node).
pub const LABELS_FROM_MACHINE: &str = "cluster.x-k8s.io/labels-from-machine";
/// Cloned from that template (annotations, on infrastructure and bootstrap objects).
pub const CLONED_FROM_NAME: &str = "cluster.x-k8s.io/cloned-from-name";
/// See [`CLONED_FROM_NAME`].
pub const CLONED_FROM_GROUP_KIND: &str = "cluster.x-k8s.io/cloned-from-groupkind";
/// How often a MachineDeployment was rolled out (annotation).
pub const REVISION: &str = "machinedeployment.clusters.x-k8s.io/revision";

/// The least machines of a node group (annotation).
pub const MIN_SIZE: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
/// The most machines of a node group (annotation).
pub const MAX_SIZE: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
/// Prefix of annotations about a node's capacity.
pub const CAPACITY: &str = "capacity.cluster-autoscaler.kubernetes.io/";
/// Cores (annotation).
pub const CAPACITY_CPU: &str = "capacity.cluster-autoscaler.kubernetes.io/cpu";
/// Memory (annotation).
pub const CAPACITY_MEMORY: &str = "capacity.cluster-autoscaler.kubernetes.io/memory";
/// Local disk (annotation).
pub const CAPACITY_DISK: &str = "capacity.cluster-autoscaler.kubernetes.io/ephemeral-disk";
/// Pods (annotation); 110 without it.
pub const CAPACITY_PODS: &str = "capacity.cluster-autoscaler.kubernetes.io/maxPods";
/// The resource that the GPUs are: `nvidia.com/gpu` (annotation).
pub const CAPACITY_GPU_TYPE: &str = "capacity.cluster-autoscaler.kubernetes.io/gpu-type";
/// How many GPUs (annotation).
pub const CAPACITY_GPU_COUNT: &str = "capacity.cluster-autoscaler.kubernetes.io/gpu-count";
/// The driver of dynamic resource allocation, instead of a GPU type (annotation).
pub const CAPACITY_DRA_DRIVER: &str = "capacity.cluster-autoscaler.kubernetes.io/dra-driver";
/// Labels of the nodes, `k=v,k=v` (annotation).
pub const CAPACITY_LABELS: &str = "capacity.cluster-autoscaler.kubernetes.io/labels";
/// Taints of the nodes, `k=v:Effect,…` (annotation).
pub const CAPACITY_TAINTS: &str = "capacity.cluster-autoscaler.kubernetes.io/taints";
/// Volumes that drivers attach, `driver=limit,…` (annotation).
pub const CAPACITY_CSI_DRIVER: &str = "capacity.cluster-autoscaler.kubernetes.io/csi-driver";
/// Prefix of annotations with the options of a group.
pub const OPTIONS: &str = "cluster.x-k8s.io/autoscaling-options-";

/// The accelerator of a node (label, on a Node): until the driver reports GPUs, the autoscaler knows they will come.
pub const ACCELERATOR: &str = "cluster-api/accelerator";

/// Dollars an hour of one machine of a group (annotation).
pub const PRICE: &str = "millpond.dev/price-per-hour";
/// Groups of greater weight are used first (annotation).
pub const WEIGHT: &str = "millpond.dev/weight";

/// The class of machine image of a topology's pool (annotation).
pub const RESOLVE_OS_IMAGE: &str = "run.tanzu.vmware.com/resolve-os-image";

/// Every annotation that a node group is read from; misspelt ones are reported with the nearest of these.
pub const OF_NODE_GROUPS: &[&str] = &[
    MIN_SIZE,
    MAX_SIZE,
    CAPACITY_CPU,
    CAPACITY_MEMORY,
    CAPACITY_DISK,
    CAPACITY_PODS,
    CAPACITY_GPU_TYPE,
    CAPACITY_GPU_COUNT,
    CAPACITY_DRA_DRIVER,
    CAPACITY_LABELS,
    CAPACITY_TAINTS,
    CAPACITY_CSI_DRIVER,
    "cluster.x-k8s.io/autoscaling-options-scaledownutilizationthreshold",
    "cluster.x-k8s.io/autoscaling-options-scaledowngpuutilizationthreshold",
    "cluster.x-k8s.io/autoscaling-options-scaledownunneededtime",
    "cluster.x-k8s.io/autoscaling-options-scaledownunreadytime",
    "cluster.x-k8s.io/autoscaling-options-maxnodeprovisiontime",
    "cluster.x-k8s.io/autoscaling-options-maxnodestartuptime",
    PRICE,
    WEIGHT,
];

/// Whether Cluster API copies a label of a Machine to its Node.
pub fn reaches_node(label: &str) -> bool {
    let domain = label.split_once('/').map_or("", |(domain, _)| domain);
    let is_or_below =
        |parent: &str| domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    domain == "node-role.kubernetes.io"
        || is_or_below("node-restriction.kubernetes.io")
        || is_or_below("node.cluster.x-k8s.io")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_labels_of_machines_reach_nodes() {
        for label in [
            "node-role.kubernetes.io/gpu",
            "node-restriction.kubernetes.io/team",
            "a.node-restriction.kubernetes.io/team",
            "node.cluster.x-k8s.io/pool",
            "mine.node.cluster.x-k8s.io/pool",
        ] {
            assert!(reaches_node(label), "{label}");
        }
        for label in
            ["team", "example.com/team", "x-node.cluster.x-k8s.io/a", "a.node-role.kubernetes.io/b", CLUSTER_NAME]
        {
            assert!(!reaches_node(label), "{label}");
        }
    }
}
