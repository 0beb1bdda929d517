//! The fields of a node pool file, by name.

/// The first layer; `vsphere` is the second.
pub const FIELDS: &[&str] = &[
    "name",
    "replicas",
    "az",
    "nodeMachineType",
    "workerClass",
    "labels",
    "vsphere",
    "taints",
    "vmClass",
    "storageClass",
    "tkrResolver",
    "volumes",
    "tkr",
    "nodeDrainTimeout",
    "baseMachineDeployment",
];

/// The second layer.
pub const VSPHERE_FIELDS: &[&str] = &[
    "cloneMode",
    "datacenter",
    "datastore",
    "storagePolicyName",
    "folder",
    "network",
    "nameservers",
    "tkgIPFamily",
    "resourcePool",
    "vcIP",
    "template",
    "memoryMiB",
    "diskGiB",
    "numCPUs",
    "numCoresPerSocket",
    "additionalDisksGiB",
    "powerOffMode",
    "hardwareVersion",
    "customVMXKeys",
    "pciDevices",
];
