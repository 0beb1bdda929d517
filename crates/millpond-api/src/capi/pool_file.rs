//! Node pool files, as `tanzu cluster node-pool set -f` takes them: a first layer that is the same everywhere, and a
//! second one for vSphere, here with GPUs.
//!
//! ```yaml
//! name: gpu
//! replicas: 1
//! labels: {purpose: gpu}
//! taints:
//! - {key: nvidia.com/gpu, value: "true", effect: NoSchedule}
//! vsphere:
//!   memoryMiB: 32768
//!   numCPUs: 8
//!   hardwareVersion: vmx-17
//!   pciDevices:
//!   - {vendorId: 0x10DE, deviceId: 0x1EB8}
//! ```
//!
//! Everything but the name may be left out: then it is what the base has, or stays as it is. What is unknown or cannot
//! be is an error with its line and column, and nothing is done.

mod fields;
mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::gpu::DeviceId;
use crate::catalog::import::FileError;
use crate::karpenter::Taint;

pub use fields::{FIELDS, VSPHERE_FIELDS};

/// A node pool file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolFile {
    /// The name of the pool, without that of its cluster.
    pub name: String,
    /// Number of machines.
    pub replicas: Option<i64>,
    /// The failure domain.
    pub az: Option<String>,
    /// The instance type or size, on clouds that have them.
    pub node_machine_type: Option<String>,
    /// The class of the machines, of a ClusterClass.
    pub worker_class: Option<String>,
    /// Labels of the nodes.
    pub labels: Option<BTreeMap<String, String>>,
    /// Taints of the nodes.
    pub taints: Option<Vec<Taint>>,
    /// The class of the virtual machines, of a supervisor.
    pub vm_class: Option<String>,
    /// The storage class of their disks, of a supervisor.
    pub storage_class: Option<String>,
    /// How the image of the machines is found, of a ClusterClass.
    pub tkr_resolver: Option<String>,
    /// Further disks, of a supervisor.
    pub volumes: Option<Vec<Volume>>,
    /// The Tanzu Kubernetes release, of a supervisor.
    pub tkr: Option<String>,
    /// How long draining may take.
    pub node_drain_timeout_s: Option<i64>,
    /// The pool that a new one is copied from; the flag of the same name wins.
    pub base_machine_deployment: Option<String>,
    /// The second layer.
    pub vsphere: VSphere,
}

/// The second layer: virtual machines on vSphere.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VSphere {
    /// `fullClone` or `linkedClone`.
    pub clone_mode: Option<String>,
    /// The datacenter.
    pub datacenter: Option<String>,
    /// The datastore.
    pub datastore: Option<String>,
    /// The storage policy.
    pub storage_policy_name: Option<String>,
    /// The folder.
    pub folder: Option<String>,
    /// The network.
    pub network: Option<String>,
    /// Name servers.
    pub nameservers: Option<Vec<String>>,
    /// `ipv4`, `ipv6` or both with a comma.
    pub tkg_ip_family: Option<String>,
    /// The resource pool.
    pub resource_pool: Option<String>,
    /// The vCenter.
    pub vc_ip: Option<String>,
    /// The template that machines are cloned from.
    pub template: Option<String>,
    /// Memory.
    pub memory_mib: Option<i64>,
    /// Disk.
    pub disk_gib: Option<i64>,
    /// Cores.
    pub num_cpus: Option<i64>,
    /// Cores of each socket.
    pub num_cores_per_socket: Option<i64>,
    /// Further disks.
    pub additional_disks_gib: Option<Vec<i64>>,
    /// `hard`, `soft` or `trySoft`.
    pub power_off_mode: Option<String>,
    /// `vmx-17`.
    pub hardware_version: Option<String>,
    /// Settings of the virtual machine; always text.
    pub custom_vmx_keys: Option<BTreeMap<String, String>>,
    /// Devices of the hosts.
    pub pci_devices: Option<Vec<PciDevice>>,
}

/// A further disk of a machine, of a supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// Where it is mounted.
    pub mount_path: String,
    /// How large it is: `50Gi`.
    pub storage: String,
}

/// A device of a host that a machine gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PciDevice {
    /// The whole of it.
    Passthrough {
        /// Vendor and device.
        id: DeviceId,
        /// Label of assignable hardware.
        custom_label: Option<String>,
    },
    /// A part of a card.
    VGpu(String),
}

/// A file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// What it says.
    pub file: PoolFile,
    /// Probable mistakes, and mistakes that were corrected.
    pub warnings: Vec<FileError>,
}

/// Reads a node pool file in YAML or JSON; all mistakes at once.
pub fn parse(file: &str, text: &str) -> Result<Reading, Vec<FileError>> {
    read::parse(file, text)
}
