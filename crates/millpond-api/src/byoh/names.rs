//! Labels, annotations, finalizers, conditions and reasons of the BYOH kinds.

/// Name of the host (label, on a ByoHost).
pub const HOST: &str = "byohost.infrastructure.cluster.x-k8s.io/host";
/// Whole cores of the host (label, on a ByoHost).
pub const CAPACITY_CPU: &str = "capacity.infrastructure.cluster.x-k8s.io/cpu";
/// Memory of the host in MiB, as a quantity such as `16384Mi` (label, on a ByoHost).
pub const CAPACITY_MEMORY: &str = "capacity.infrastructure.cluster.x-k8s.io/memory";
/// GPUs of the host (label, on a ByoHost).
pub const CAPACITY_GPU: &str = "capacity.infrastructure.cluster.x-k8s.io/gpu";
/// `true` on hosts with a GPU, absent on all others (label, on a ByoHost).
pub const GPU: &str = "gpu";
/// Label that pools conventionally select by; set by administrators.
pub const PURPOSE: &str = "purpose";
/// Cluster that the host is attached to (label, on a ByoHost). A free host does not have it.
pub const CLUSTER_NAME: &str = crate::capi::names::CLUSTER_NAME;
/// ByoMachine of an attached host, `NAMESPACE.NAME` (label, on a ByoHost).
pub const BYO_MACHINE: &str = "byoh.infrastructure.cluster.x-k8s.io/byomachine-name";
/// Failure domain of the host (label, on a ByoHost); machines spread over its values.
pub const ZONE: &str = crate::labels::ZONE;

/// Asks the agent to reset the host (annotation, on a ByoHost).
pub const UNREGISTERING: &str = "byoh.infrastructure.cluster.x-k8s.io/unregistering";
/// Address of the cluster's control plane (annotation, on a ByoHost).
pub const ENDPOINT_IP: &str = "byoh.infrastructure.cluster.x-k8s.io/endpointip";
/// Kubernetes version to install (annotation, on a ByoHost).
pub const K8S_VERSION: &str = "byoh.infrastructure.cluster.x-k8s.io/k8sversion";
/// Registry that the installer pulls from (annotation, on a ByoHost).
pub const BUNDLE_REGISTRY: &str = "byoh.infrastructure.cluster.x-k8s.io/bundle-registry";
/// No new machine is matched to the host (annotation, on a ByoHost).
pub const PAUSED: &str = crate::capi::names::PAUSED;

/// Keeps a ByoMachine until its host is released.
pub const MACHINE_FINALIZER: &str = "byomachine.infrastructure.cluster.x-k8s.io";
/// Keeps a ByoCluster until its machines are gone.
pub const CLUSTER_FINALIZER: &str = "byocluster.infrastructure.cluster.x-k8s.io";
/// Keeps a K8sInstallerConfig until its Secret is gone.
pub const INSTALLER_FINALIZER: &str = "k8sinstallerconfig.infrastructure.cluster.x-k8s.io";
/// Keeps a ByoHost while a machine holds it.
pub const HOST_FINALIZER: &str = "byohost.infrastructure.cluster.x-k8s.io";

/// Prefix of provider ids of own hosts; the name of the host follows.
pub const PROVIDER_ID: &str = "byoh://";
/// Namespace of the hosts' Leases.
pub const LEASE_NAMESPACE: &str = "millpond-hosts";

/// Conditions of a ByoHost.
pub mod host {
    /// Kubernetes is installed on the host.
    pub const INSTALLED: &str = "K8sComponentsInstallationSucceeded";
    /// The host has joined its cluster.
    pub const BOOTSTRAPPED: &str = "K8sNodeBootstrapSucceeded";
    /// The agent renews its Lease.
    pub const HEALTHY: &str = "AgentHealthy";
    /// The labels of an attached host still match the selector of its machine.
    pub const SELECTOR_MATCHES: &str = "SelectorMatches";

    /// Reason: the host is free.
    pub const WAITING_FOR_MACHINE: &str = "WaitingForMachineRefToBeAssigned";
    /// Reason: the Secret with bootstrap data does not exist.
    pub const BOOTSTRAP_SECRET_UNAVAILABLE: &str = "BootstrapDataSecretUnavailable";
    /// Reason: the Secret with the installation scripts does not exist.
    pub const INSTALLATION_SECRET_UNAVAILABLE: &str = "K8sInstallationSecretUnavailable";
    /// Reason: what an earlier cluster left could not be removed.
    pub const CLEAN_FAILED: &str = "CleanK8sDirectoriesFailed";
    /// Reason: a command of the bootstrap data failed; the message has the end of its output.
    pub const CLOUD_INIT_FAILED: &str = "CloudInitExecutionFailed";
    /// Reason: the commands succeeded, but no Node with the host's provider ID exists.
    pub const NODE_ABSENT: &str = "K8sNodeAbsent";
    /// Reason: the installation failed; the message has the end of its output.
    pub const INSTALLATION_FAILED: &str = "K8sComponentsInstallationFailed";
    /// Reason: the reset after a failure or a release failed.
    pub const RESET_FAILED: &str = "ResetFailed";
}

/// Conditions of a ByoMachine.
pub mod machine {
    /// The machine has a host, and the host is a Node.
    pub const HOST_READY: &str = "BYOHostReady";
    /// All objects that the machine refers to exist.
    pub const REFS_RESOLVED: &str = "RefsResolved";

    /// Reason: the cluster's infrastructure is not ready.
    pub const WAITING_FOR_CLUSTER: &str = "WaitingForClusterInfrastructure";
    /// Reason: the Secret with bootstrap data does not exist yet.
    pub const WAITING_FOR_BOOTSTRAP_DATA: &str = "WaitingForBootstrapDataSecret";
    /// Reason: no free host matches.
    pub const HOSTS_UNAVAILABLE: &str = "BYOHostsUnavailable";
    /// Reason: the Secret with installation scripts does not exist yet.
    pub const INSTALLATION_SECRET: &str = "InstallationSecretNotAvailable";
    /// Reason: the host has not joined yet.
    pub const WAITING_FOR_NODE: &str = "WaitingForNodeRef";
    /// Reason: the cluster or the machine is paused.
    pub const PAUSED: &str = "ClusterOrResourcePaused";
    /// Reason: an object that the machine refers to does not exist.
    pub const REFERENCE_NOT_FOUND: &str = "ReferenceNotFound";
}

/// The provider ID of a host.
pub fn provider_id(host: &str) -> String {
    format!("{PROVIDER_ID}{host}")
}

/// The host of a provider ID; the original provider appends `/` and random letters.
pub fn host_of_provider_id(provider_id: &str) -> Option<&str> {
    let rest = provider_id.strip_prefix(PROVIDER_ID)?;
    let host = rest.split_once('/').map_or(rest, |(host, _)| host);
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_ids_name_their_host() {
        assert_eq!(host_of_provider_id(&provider_id("node10")), Some("node10"));
        assert_eq!(host_of_provider_id("byoh://node1/x7k2p9"), Some("node1"));
        for other in ["byoh://", "aws:///eu-1/i-1", "node10", "byoh:///a"] {
            assert_eq!(host_of_provider_id(other), None, "{other}");
        }
    }
}
