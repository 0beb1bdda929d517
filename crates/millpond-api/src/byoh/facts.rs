//! Facts about a host, as its agent reads them from `/proc` and `/sys` without any driver or tool.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::amounts::Amounts;
use crate::meta::is_default;

/// `status.facts` of a ByoHost.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostFacts {
    /// Processors.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cpu: CpuFacts,
    /// Memory.
    #[serde(default, skip_serializing_if = "is_default")]
    pub memory: MemoryFacts,
    /// NUMA nodes, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numa: Vec<NumaNode>,
    /// Disks, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<Disk>,
    /// Network interfaces, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<Nic>,
    /// GPUs and accelerators, by address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuDevice>,
    /// How many PCI devices there are in all.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pci_devices: i64,
    /// Operating system.
    #[serde(default, skip_serializing_if = "is_default")]
    pub os: OsFacts,
    /// `/etc/machine-id`. Two hosts with the same one are clones of one image.
    #[serde(default, rename = "machineID", skip_serializing_if = "String::is_empty")]
    pub machine_id: String,
    /// Changes with every boot.
    #[serde(default, rename = "bootID", skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
    /// UUID of the board, where firmware tells it.
    #[serde(default, rename = "productUUID", skip_serializing_if = "String::is_empty")]
    pub product_uuid: String,
}

/// Processors of a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CpuFacts {
    /// `amd64`, `arm64`, as Kubernetes writes it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub architecture: String,
    /// Model name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Sockets.
    #[serde(default)]
    pub sockets: i64,
    /// Physical cores.
    #[serde(default)]
    pub cores: i64,
    /// Hardware threads that are online: what kubelet counts as cpu.
    #[serde(default)]
    pub threads: i64,
}

/// Memory of a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryFacts {
    /// `MemTotal`.
    #[serde(default)]
    pub total_bytes: i64,
    /// `SwapTotal`; kubelet refuses to start with swap by default.
    #[serde(default, skip_serializing_if = "is_default")]
    pub swap_bytes: i64,
    /// Reserved huge pages by resource name: `hugepages-2Mi` → bytes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub huge_pages: BTreeMap<String, i64>,
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NumaNode {
    /// Number.
    pub id: i64,
    /// Hardware threads, as the kernel lists them: `0-3,8-11`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cpus: String,
    /// Memory.
    #[serde(default)]
    pub memory_bytes: i64,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// Kernel name: `nvme0n1`.
    pub name: String,
    /// Size.
    #[serde(default)]
    pub size_bytes: i64,
    /// Whether it spins.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rotational: bool,
    /// Model.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Nic {
    /// Name: `eth0`.
    pub name: String,
    /// MAC address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mac: String,
    /// `up`, `down`, `unknown`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// Megabits per second, where the driver tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_mbps: Option<i64>,
    /// Whether the default route leads through it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_default: bool,
}

/// A GPU or another accelerator on the PCI bus.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GpuDevice {
    /// PCI address: `0000:3b:00.0`.
    pub address: String,
    /// Vendor, in hexadecimal: `10de`.
    #[serde(rename = "vendorID")]
    pub vendor_id: String,
    /// Device, in hexadecimal: `1eb8`.
    #[serde(rename = "deviceID")]
    pub device_id: String,
    /// Name, where it is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Resource that a device plugin advertises it as: `nvidia.com/gpu`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// NUMA node; absent where the board has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<i64>,
    /// Kernel driver that holds the device.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub driver: String,
}

/// Operating system of a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OsFacts {
    /// `linux`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// `PRETTY_NAME` of `os-release`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// `ID` of `os-release`: `debian`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// `VERSION_ID` of `os-release`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Kernel release.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kernel: String,
    /// Version of control groups, 1 or 2; 0 if none is mounted.
    #[serde(default)]
    pub cgroup_version: i64,
}

impl HostFacts {
    /// Capacity as a Node will have it, as far as hardware tells: cpu, memory, huge pages and GPUs by resource.
    pub fn capacity(&self) -> Amounts {
        let mut amounts = BTreeMap::new();
        amounts.insert("cpu".to_owned(), self.cpu.threads.saturating_mul(1000));
        amounts.insert("memory".to_owned(), self.memory.total_bytes);
        amounts.extend(self.memory.huge_pages.iter().map(|(name, bytes)| (name.clone(), *bytes)));
        for gpu in self.gpus.iter().filter(|gpu| !gpu.resource.is_empty()) {
            *amounts.entry(gpu.resource.clone()).or_default() += 1;
        }
        amounts.retain(|_, amount| *amount > 0);
        Amounts(amounts)
    }
}
