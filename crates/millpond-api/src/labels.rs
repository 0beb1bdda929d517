//! Names of the labels that nodes carry and pods and pools select by.
//!
//! Kubernetes' own, Karpenter's, and those that Karpenter's providers for AWS,
//! GCP and KWOK add, spelled as they spell them.

/// The node pool that a node belongs to.
pub const NODE_POOL: &str = "karpenter.sh/nodepool";
/// `on-demand`, `spot` or `reserved`.
pub const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
/// The zone of a node.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// The region of a node.
pub const REGION: &str = "topology.kubernetes.io/region";
/// The instance type of a node.
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// The build of Windows on a Windows node.
pub const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";
/// `amd64` or `arm64`.
pub const ARCH: &str = "kubernetes.io/arch";
/// `linux`, `windows` or `darwin`.
pub const OS: &str = "kubernetes.io/os";
/// The name of a node; never a well-known label of a pool.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// GKE's name of the accelerator on a node.
pub const GKE_ACCELERATOR: &str = "cloud.google.com/gke-accelerator";

/// Labels that every provider defines.
pub const WELL_KNOWN: &[&str] = &[NODE_POOL, ZONE, REGION, INSTANCE_TYPE, WINDOWS_BUILD, ARCH, OS, CAPACITY_TYPE];

/// Old names of labels, and names that drivers use, each with the current name.
const RENAMED: [(&str, &str); 8] = [
    ("beta.kubernetes.io/arch", ARCH),
    ("beta.kubernetes.io/os", OS),
    ("beta.kubernetes.io/instance-type", INSTANCE_TYPE),
    ("failure-domain.beta.kubernetes.io/zone", ZONE),
    ("failure-domain.beta.kubernetes.io/region", REGION),
    ("topology.ebs.csi.aws.com/zone", ZONE),
    ("topology.gke.io/zone", ZONE),
    ("topology.disk.csi.azure.com/zone", ZONE),
];

/// The current name of a label.
pub fn current_name(key: &str) -> &str {
    RENAMED.iter().find(|(old, _)| *old == key).map_or(key, |(_, name)| name)
}

/// Labels of Karpenter's AWS provider.
pub mod aws {
    /// `m` of `m5.large`.
    pub const CATEGORY: &str = "karpenter.k8s.aws/instance-category";
    /// `m5` of `m5.large`.
    pub const FAMILY: &str = "karpenter.k8s.aws/instance-family";
    /// `5` of `m5.large`.
    pub const GENERATION: &str = "karpenter.k8s.aws/instance-generation";
    /// `large` of `m5.large`.
    pub const SIZE: &str = "karpenter.k8s.aws/instance-size";
    /// Cores.
    pub const CPU: &str = "karpenter.k8s.aws/instance-cpu";
    /// Memory as sold, in MiB.
    pub const MEMORY: &str = "karpenter.k8s.aws/instance-memory";
    /// Local NVMe disks, in GB.
    pub const LOCAL_NVME: &str = "karpenter.k8s.aws/instance-local-nvme";
    /// Baseline network bandwidth, in Mbit/s.
    pub const NETWORK_BANDWIDTH: &str = "karpenter.k8s.aws/instance-network-bandwidth";
    /// Name of the GPU.
    pub const GPU_NAME: &str = "karpenter.k8s.aws/instance-gpu-name";
    /// Maker of the GPU.
    pub const GPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-gpu-manufacturer";
    /// Number of GPUs.
    pub const GPU_COUNT: &str = "karpenter.k8s.aws/instance-gpu-count";
    /// Memory of one GPU, in MiB.
    pub const GPU_MEMORY: &str = "karpenter.k8s.aws/instance-gpu-memory";
    /// `intel`, `amd`, `aws`.
    pub const CPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-cpu-manufacturer";
    /// Sustained clock of the cores, in MHz.
    pub const CPU_CLOCK: &str = "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz";
    /// `nitro` or `xen`; bare metal has none.
    pub const HYPERVISOR: &str = "karpenter.k8s.aws/instance-hypervisor";
    /// Whether traffic between instances is encrypted.
    pub const ENCRYPTION_IN_TRANSIT: &str = "karpenter.k8s.aws/instance-encryption-in-transit-supported";
    /// Whether it is a flex type, whose cores are not always its own.
    pub const CAPABILITY_FLEX: &str = "karpenter.k8s.aws/instance-capability-flex";
    /// `default`: shared hardware.
    pub const TENANCY: &str = "karpenter.k8s.aws/instance-tenancy";
    /// `inferentia`, `trainium`.
    pub const ACCELERATOR_NAME: &str = "karpenter.k8s.aws/instance-accelerator-name";
    /// Maker of the accelerators.
    pub const ACCELERATOR_MANUFACTURER: &str = "karpenter.k8s.aws/instance-accelerator-manufacturer";
    /// Number of accelerators.
    pub const ACCELERATOR_COUNT: &str = "karpenter.k8s.aws/instance-accelerator-count";

    /// All that the provider adds to [`super::WELL_KNOWN`]. The catalogue knows
    /// the values of those that have a constant of their own.
    pub const WELL_KNOWN: &[&str] = &[
        "karpenter.k8s.aws/capacity-reservation-id",
        "karpenter.k8s.aws/capacity-reservation-type",
        HYPERVISOR,
        ENCRYPTION_IN_TRANSIT,
        CAPABILITY_FLEX,
        TENANCY,
        CATEGORY,
        FAMILY,
        GENERATION,
        SIZE,
        LOCAL_NVME,
        CPU,
        CPU_MANUFACTURER,
        CPU_CLOCK,
        MEMORY,
        "karpenter.k8s.aws/instance-ebs-bandwidth",
        NETWORK_BANDWIDTH,
        GPU_NAME,
        GPU_MANUFACTURER,
        GPU_COUNT,
        GPU_MEMORY,
        ACCELERATOR_NAME,
        ACCELERATOR_MANUFACTURER,
        ACCELERATOR_COUNT,
        "topology.k8s.aws/zone-id",
    ];
}

/// Labels of Karpenter's GCP provider.
pub mod gcp {
    /// `n` of `n2-standard-4`.
    pub const CATEGORY: &str = "karpenter.k8s.gcp/instance-category";
    /// `n2` of `n2-standard-4`.
    pub const FAMILY: &str = "karpenter.k8s.gcp/instance-family";
    /// `standard` of `n2-standard-4`.
    pub const SHAPE: &str = "karpenter.k8s.gcp/instance-shape";
    /// `2` of `n2-standard-4`.
    pub const GENERATION: &str = "karpenter.k8s.gcp/instance-generation";
    /// `4` of `n2-standard-4`.
    pub const SIZE: &str = "karpenter.k8s.gcp/instance-size";
    /// Cores.
    pub const CPU: &str = "karpenter.k8s.gcp/instance-cpu";
    /// Memory as sold, in MiB.
    pub const MEMORY: &str = "karpenter.k8s.gcp/instance-memory";
    /// Name of the GPU.
    pub const GPU_NAME: &str = "karpenter.k8s.gcp/instance-gpu-name";
    /// Maker of the GPU.
    pub const GPU_MANUFACTURER: &str = "karpenter.k8s.gcp/instance-gpu-manufacturer";
    /// Number of GPUs.
    pub const GPU_COUNT: &str = "karpenter.k8s.gcp/instance-gpu-count";
    /// Memory of one GPU, in MiB.
    pub const GPU_MEMORY: &str = "karpenter.k8s.gcp/instance-gpu-memory";

    /// All that the provider adds to [`super::WELL_KNOWN`] and that describes a type.
    pub const WELL_KNOWN: &[&str] = &[
        CATEGORY,
        FAMILY,
        SHAPE,
        GENERATION,
        SIZE,
        CPU,
        "karpenter.k8s.gcp/instance-cpu-model",
        MEMORY,
        GPU_NAME,
        GPU_MANUFACTURER,
        GPU_COUNT,
        GPU_MEMORY,
        "topology.k8s.gcp/zone-id",
        super::GKE_ACCELERATOR,
    ];
}

/// Labels of Karpenter's KWOK provider.
pub mod kwok {
    /// The size: `large` of `m5.large`, else the cores.
    pub const SIZE: &str = "karpenter.kwok.sh/instance-size";
    /// The name up to its first point or dash.
    pub const FAMILY: &str = "karpenter.kwok.sh/instance-family";
    /// Cores, as a quantity.
    pub const CPU: &str = "karpenter.kwok.sh/instance-cpu";
    /// Memory, as a quantity.
    pub const MEMORY: &str = "karpenter.kwok.sh/instance-memory";

    /// All that the provider adds to [`super::WELL_KNOWN`].
    pub const WELL_KNOWN: &[&str] = &[SIZE, FAMILY, CPU, MEMORY];
}

/// Whether a text may be the value of a label: at most 63 letters, digits,
/// `-`, `_`, `.`; a letter or digit at both ends; or nothing.
pub fn is_value(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let end = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    bytes.len() <= 63 && bytes.iter().all(inner) && end(bytes.first()) && end(bytes.last())
}

/// Whether a text may be the key of a label or the name of an extended resource:
/// a name like a value, with a DNS domain and a slash before it if wanted.
pub fn is_key(text: &str) -> bool {
    let (domain, name) = text.split_once('/').map_or((None, text), |(domain, name)| (Some(domain), name));
    let label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    let domain_fits = domain.is_none_or(|domain| domain.len() <= 253 && domain.split('.').all(label));
    !name.is_empty() && is_value(name) && domain_fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values() {
        for text in ["", "m5.large", "a", "A_b-c.d", &"x".repeat(63)] {
            assert!(is_value(text), "{text}");
        }
        for text in ["-a", "a.", "a b", "a/b", "ü", &"x".repeat(64)] {
            assert!(!is_value(text), "{text}");
        }
        for text in ["size", ZONE, aws::GPU_MEMORY, "example.com/Licence"] {
            assert!(is_key(text), "{text}");
        }
        for text in ["", "/a", "a/", "a/b/c", "Example.com/a", "-.com/a", "a..b/c"] {
            assert!(!is_key(text), "{text}");
        }
    }

    #[test]
    fn lists_have_no_duplicates_and_only_keys() {
        for list in [WELL_KNOWN, aws::WELL_KNOWN, gcp::WELL_KNOWN, kwok::WELL_KNOWN] {
            let mut sorted = list.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), list.len());
            assert!(list.iter().all(|key| is_key(key)));
        }
    }
}
