//! Reasons of own hosts, GPU jobs and CI nodes.

use super::Carrier::{Condition, Event, Field, Warning};
use super::{Reason, act, info};

pub(super) const HOSTS: &[Reason] = &[
    info(
        "HostAdmitted",
        &[Condition("CertificateSigningRequest", "Approved=True")],
        "the request is a host's or its kubelet's, and the token or certificate that made it is valid",
    ),
    act(
        "NotAllowed",
        &[Condition("CertificateSigningRequest", "Denied=True")],
        "the request is for another name than the host's, or its token was used before",
        "create a new token (`millpond host token create`) and start the agent with it",
    ),
    act(
        "NoLease",
        &[Condition("ByoHost", "AgentHealthy=Unknown")],
        "the agent has not renewed its Lease yet",
        "if it lasts: `journalctl -u millpond-agent` on the host",
    ),
    act(
        "LeaseExpired",
        &[Condition("ByoHost", "AgentHealthy=False")],
        "the agent does not renew its Lease",
        "`systemctl status millpond-agent` on the host, then its network",
    ),
    act("Offline", &[Warning("ByoHost")], "the host's agent is no longer alive", "as for `LeaseExpired`"),
    info("Available", &[Event("ByoHost")], "the host is free and its agent is alive"),
    info(
        "WaitingForMachineRefToBeAssigned",
        &[
            Condition("ByoHost", "K8sComponentsInstallationSucceeded=False"),
            Condition("ByoHost", "K8sNodeBootstrapSucceeded=False"),
        ],
        "no machine has the host",
    ),
    act(
        "BootstrapDataSecretUnavailable",
        &[Condition("ByoHost", "K8sNodeBootstrapSucceeded=False")],
        "the agent cannot read the Secret with the bootstrap data",
        "does the Secret exist, and is it the machine's own? A host may read no other",
    ),
    act(
        "K8sInstallationSecretUnavailable",
        &[Condition("ByoHost", "K8sComponentsInstallationSucceeded=False")],
        "the agent cannot read the Secret with the installation scripts",
        "as for `BootstrapDataSecretUnavailable`",
    ),
    act(
        "K8sComponentsInstallationFailed",
        &[Condition("ByoHost", "K8sComponentsInstallationSucceeded=False")],
        "installing Kubernetes failed; the message ends with the output. The host is reset",
        "read the output; the machine tries again by itself",
    ),
    act(
        "CloudInitExecutionFailed",
        &[
            Condition("ByoHost", "K8sNodeBootstrapSucceeded=False"),
            Condition("ByoMachine", "K8sNodeBootstrapSucceeded=False"),
        ],
        "a step of the bootstrap data failed; the message ends with the output. The host is reset",
        "read the output; the machine tries again by itself",
    ),
    info(
        "Applying",
        &[
            Condition("ByoHost", "K8sNodeBootstrapSucceeded=Unknown"),
            Condition("ByoHost", "K8sComponentsInstallationSucceeded=Unknown"),
        ],
        "the agent carries out its plan",
    ),
    act(
        "ResetFailed",
        &[Condition("ByoHost", "K8sNodeBootstrapSucceeded=False"), Field("ByoHost", "spec.quarantine")],
        "the host could not be put back as it was; it is quarantined",
        "repair the host by hand, then `millpond host release NAME`",
    ),
    act(
        "LabelMismatch",
        &[Condition("ByoHost", "SelectorMatches=False")],
        "the labels of the host no longer match its machine's selector; the machine keeps the host",
        "restore the label, or delete the Machine to give the host back",
    ),
    act("SelectorMismatch", &[Warning("ByoHost")], "the same, when it begins", "as for `LabelMismatch`"),
    act(
        "MachineGone",
        &[Warning("ByoHost")],
        "the machine that held the host does not exist any more; the host is released and reset",
        "nothing, unless the machine was deleted by mistake",
    ),
];

pub(super) const MACHINES: &[Reason] = &[
    act(
        "ApiServerUnknown",
        &[Condition("BootstrapKubeconfig", "Ready=False")],
        "it is not known which API server hosts are to join",
        "set `spec.apiserver` and its CA, or see the message",
    ),
    act(
        "EndpointUnknown",
        &[Condition("ByoCluster", "Ready=False")],
        "`spec.controlPlaneEndpoint.host` is empty",
        "set it",
    ),
    info(
        "ClusterOrResourcePaused",
        &[Condition("ByoMachine", "BYOHostReady=False")],
        "the cluster or the machine is paused; nothing is done",
    ),
    info(
        "WaitingForClusterInfrastructure",
        &[Condition("ByoMachine", "BYOHostReady=False")],
        "the infrastructure of the cluster is not ready",
    ),
    info(
        "WaitingForBootstrapDataSecret",
        &[Condition("ByoMachine", "BYOHostReady=False")],
        "the bootstrap provider has not made the machine's data yet",
    ),
    act(
        "InstallationSecretNotAvailable",
        &[Condition("ByoMachine", "BYOHostReady=False")],
        "the installer has not made its Secret yet, or it was deleted",
        "if it lasts: the K8sInstallerConfig",
    ),
    act(
        "ReferenceNotFound",
        &[Condition("ByoMachine", "BYOHostReady=False"), Condition("ByoMachine", "RefsResolved=False")],
        "the machine names an object that does not exist",
        "create the object in the message or correct the name in the template",
    ),
    act(
        "InvalidSelector",
        &[Condition("ByoMachine", "BYOHostReady=False")],
        "the selector or the capacity requirements cannot be read",
        "correct the field in the template",
    ),
    act(
        "BYOHostsUnavailable",
        &[Condition("ByoMachine", "BYOHostReady=False")],
        "no free host suits",
        "`millpond explain machine/NAME` has the reason of each host and a label that would help",
    ),
    info("HostClaimed", &[Event("ByoMachine")], "the host in the message serves the machine"),
    info(
        "WaitingForNodeRef",
        &[Condition("ByoMachine", "BYOHostReady=False")],
        "the host is being bootstrapped, or its kubelet has not registered the Node",
    ),
    act(
        "BootstrapFailed",
        &[Warning("ByoMachine")],
        "the host could not be bootstrapped; it is reset, and the machine waits before it takes a host again",
        "the condition `K8sNodeBootstrapSucceeded` has the end of the output",
    ),
    info("NodeJoined", &[Event("ByoMachine")], "the host is a Node"),
    act(
        "HostLost",
        &[Condition("ByoMachine", "BYOHostReady=False"), Field("ByoMachine", "status.failureReason")],
        "the host of the machine was deleted or taken from it",
        "delete the Machine; its set makes another",
    ),
    act(
        "ForcedRelease",
        &[Warning("ByoMachine")],
        "the host was released without waiting: by `--force`, or because its agent is silent",
        "the host is reset when its agent answers; nothing uses it before",
    ),
];

pub(super) const GPU_JOBS: &[Reason] = &[
    info("NodeFound", &[Condition("GPUInfo", "Ready=True")], "`status.suitableNodeName` fits the job"),
    act(
        "NoNodes",
        &[Condition("GPUInfo", "Ready=False")],
        "the cluster has no nodes",
        "add nodes, or see why they do not join",
    ),
    act(
        "NoFreeGPU",
        &[Condition("GPUInfo", "Ready=False"), Field("GPUInfo", "status.rejected")],
        "all GPUs of the node are in use or reserved",
        "wait, or `millpond gpu release` a reservation",
    ),
    act(
        "TimeTooShort",
        &[Condition("GPUInfo", "Ready=False"), Field("GPUInfo", "status.rejected")],
        "the node will be disturbed before the job would end; the message says when and by what",
        "shorten `desAccTime` or move the maintenance",
    ),
    info(
        "InMaintenance",
        &[Condition("GPUInfo", "Ready=False"), Field("GPUInfo", "status.rejected")],
        "the node or its host is being disturbed now",
    ),
    act(
        "TooLittleGPUMemory",
        &[Condition("GPUInfo", "Ready=False"), Field("GPUInfo", "status.rejected")],
        "a GPU of the node has less than `minMemoryGiB`, or its memory is unknown",
        "lower `minMemoryGiB`; the message has the memory that is known",
    ),
    act(
        "WrongModel",
        &[Condition("GPUInfo", "Ready=False"), Field("GPUInfo", "status.rejected")],
        "the node has GPUs of another model than `gpuModel`",
        "drop or change `gpuModel`",
    ),
    act(
        "UntoleratedTaint",
        &[Condition("GPUInfo", "Ready=False"), Field("GPUInfo", "status.rejected")],
        "the job does not tolerate a taint of the node",
        "add it to `tolerations`",
    ),
    act(
        "SelectorMismatch",
        &[Condition("GPUInfo", "Ready=False"), Field("GPUInfo", "status.rejected")],
        "the node lacks a label of `nodeSelector`",
        "change the selector or label the node",
    ),
    act(
        "HasGPU",
        &[Condition("GPUInfo", "Ready=False"), Field("GPUInfo", "status.rejected")],
        "the job needs no GPU, and the node has some",
        "set `allowGpuNodes` to allow such nodes",
    ),
    info(
        "NoGPU",
        &[Condition("GPUInfo", "Ready=False"), Field("GPUInfo", "status.rejected")],
        "the job needs a GPU, and the node has none",
    ),
    info(
        "NotReady",
        &[Condition("GPUInfo", "Ready=False"), Field("GPUInfo", "status.rejected")],
        "the node is not ready",
    ),
    info(
        "Unschedulable",
        &[Condition("GPUInfo", "Ready=False"), Field("GPUInfo", "status.rejected")],
        "the node is cordoned",
    ),
    act(
        "AmbiguousVM",
        &[Condition("GPUInfo", "Ready=False"), Field("GPUInfo", "status.rejected")],
        "several virtual machines match the node",
        "set the node's provider ID, or give the machines names of their own",
    ),
    info("KubernetesOnly", &[Condition("GPUInfo", "InventoryFresh=True")], "no vCenter is configured"),
    info("Fresh", &[Condition("GPUInfo", "InventoryFresh=True")], "the inventory of vCenter is up to date"),
    act(
        "VCenterUnreachable",
        &[Condition("GPUInfo", "InventoryFresh=False")],
        "vCenter does not answer; the last answer stays",
        "network, DNS and port 443 from the controller",
    ),
    act(
        "LoginFailed",
        &[Condition("GPUInfo", "InventoryFresh=False")],
        "vCenter refuses account or password; logins are not repeated in haste",
        "correct the Secret; it is read again when it changes",
    ),
    act(
        "CertificateNotTrusted",
        &[Condition("GPUInfo", "InventoryFresh=False")],
        "vCenter's certificate is not trusted",
        "`--vsphere-ca` or `--vsphere-thumbprint`",
    ),
    act(
        "PermissionDenied",
        &[Condition("GPUInfo", "InventoryFresh=False"), Field("GPUInfo", "status.rejected")],
        "the account may not read what is needed",
        "give the account the role Read-only on the datacenter, propagated",
    ),
    act(
        "HostDisconnected",
        &[Condition("GPUInfo", "InventoryFresh=False"), Field("GPUInfo", "status.rejected")],
        "vCenter has lost the host of the node",
        "the host in vCenter",
    ),
    act(
        "VMNotFound",
        &[Condition("GPUInfo", "InventoryFresh=False"), Field("GPUInfo", "status.rejected")],
        "no virtual machine matches the node",
        "the node's provider ID or name, and the account's view of the inventory",
    ),
    act(
        "StaleInventory",
        &[Condition("GPUInfo", "InventoryFresh=False")],
        "vCenter answers, and the inventory is still out of date",
        "the controller's log has vCenter's answer",
    ),
    info(
        "Scheduled",
        &[Condition("MaintenanceWindow", "Ready=True")],
        "the times of the window are known, and answers about its nodes respect them",
    ),
    info(
        "Suspended",
        &[Condition("MaintenanceWindow", "Ready=False")],
        "`spec.suspend` is set; the window does not take place",
    ),
    act(
        "InvalidSchedule",
        &[Condition("MaintenanceWindow", "Ready=False")],
        "`spec.schedule` is no cron expression",
        "correct the field; the message says what is wrong with it",
    ),
    act(
        "InvalidTimeZone",
        &[Condition("MaintenanceWindow", "Ready=False")],
        "`spec.timeZone` is not known",
        "name a zone of the IANA database, such as `Europe/Berlin`",
    ),
    act(
        "InvalidDuration",
        &[Condition("MaintenanceWindow", "Ready=False")],
        "`spec.duration` is no duration",
        "write it like `2h30m`",
    ),
    info("Claimed", &[Condition("GPUInfo", "Reserved=True")], "a pod uses the reserved GPUs"),
    info("Reserved", &[Condition("GPUInfo", "Reserved=True")], "the GPUs wait for a pod until the time in the message"),
    act(
        "Expired",
        &[Condition("GPUInfo", "Reserved=False")],
        "no pod claimed the reserved GPUs in time",
        "change the spec to reserve again",
    ),
    info("Ended", &[Condition("GPUInfo", "Reserved=False")], "the pod has ended, or runs on another node"),
];

pub(super) const CI_NODES: &[Reason] = &[
    info("Launching", &[Condition("NodeRequest", "Fulfilled=False")], "nodes of the request are being launched"),
    info(
        "Waiting",
        &[Condition("NodeRequest", "Fulfilled=False")],
        "pools wait for different reasons; the message has each",
    ),
    act(
        "NoPools",
        &[Condition("NodeRequest", "Fulfilled=False")],
        "no pool is registered",
        "does a launcher run, with which `nodepool.yaml`?",
    ),
    act(
        "NoPoolFits",
        &[Condition("NodeRequest", "Fulfilled=False")],
        "the request failed, for a different reason in each pool",
        "`millpond explain request/NAME`",
    ),
    act(
        "Failed",
        &[Condition("NodeRequest", "Fulfilled=False")],
        "no pool can provide the request",
        "`millpond explain request/NAME`",
    ),
    act("NoLabels", &[Field("NodeRequest", "status.reasons")], "the request names no label", "correct the request"),
    act(
        "TooManyNodes",
        &[Field("NodeRequest", "status.reasons")],
        "the request names too many nodes",
        "split the request",
    ),
    act(
        "UnknownLabel",
        &[Field("NodeRequest", "status.reasons")],
        "the pool has no such label",
        "add the label to `nodepool.yaml`, or correct the request",
    ),
    act(
        "ExceedsLimit",
        &[Field("NodeRequest", "status.reasons")],
        "the request needs more than a limit ever allows",
        "raise the limit in the message, or ask for less",
    ),
    act(
        "NotEnoughHosts",
        &[Field("NodeRequest", "status.reasons")],
        "the pool's hosts have fewer slots with these labels than the request needs",
        "add hosts to `nodepool.yaml`",
    ),
    info("Declined", &[Field("NodeRequest", "status.reasons")], "the pool has declined the request before"),
    act(
        "LaunchFailed",
        &[Field("NodeRequest", "status.reasons")],
        "a node could not be launched",
        "the launcher's log, by the node's id",
    ),
    info("AtLimit", &[Field("NodeRequest", "status.reasons")], "a limit is used up; the request waits for nodes to go"),
    info("NoFreeHost", &[Field("NodeRequest", "status.reasons")], "all hosts with these labels are in use"),
    info(
        "OutOfCapacity",
        &[Field("NodeRequest", "status.reasons")],
        "the provider has no capacity for the label at the moment",
    ),
    act(
        "NoUpload",
        &[Field("NodeRequest", "status.reasons")],
        "no upload of the label's disk image to the provider is ready",
        "`millpond ci image-list`, and the builder's log",
    ),
    info(
        "MaxConcurrency",
        &[Field("NodeRequest", "status.reasons")],
        "the provider handles as many requests as it may",
    ),
    info("PrefersProvider", &[Field("NodeRequest", "status.reasons")], "the request asks for another provider"),
    info("YieldsTo", &[Field("NodeRequest", "status.reasons")], "a pool of another launcher comes first"),
    info("Ready", &[Condition("SoftwareFactory", "the name of the part")], "the part runs"),
    act(
        "Awaiting",
        &[Condition("SoftwareFactory", "the name of the part")],
        "the part does not run yet",
        "if it lasts: its Deployment or StatefulSet",
    ),
    act(
        "OnlyNodepool",
        &[Condition("SoftwareFactory", "Unmanaged=True")],
        "the spec has parts that Millpond does not manage",
        "run sf-operator for them",
    ),
];

pub(super) const CI_IMAGES: &[Reason] = &[
    act(
        "NoBuild",
        &[Condition("DiskImage", "Ready=False"), Field("DiskImage", "status.state")],
        "there is no ready build",
        "`status.message`, and the log of the build",
    ),
    act(
        "NotUploaded",
        &[Condition("DiskImage", "Ready=False")],
        "not every provider has the newest build",
        "ImageUploads of the image that failed",
    ),
    info("Building", &[Field("DiskImage", "status.state")], "a builder works on a build"),
    info("Requested", &[Field("DiskImage", "status.state")], "a build was asked for"),
    info("RebuildAge", &[Field("DiskImage", "status.state")], "the newest build is older than `rebuild-age`"),
    info(
        "MissingFormats",
        &[Field("DiskImage", "status.state")],
        "the newest build lacks formats that a provider needs",
    ),
    info("Paused", &[Field("DiskImage", "status.state")], "`pause` is set, in the configuration or by a person"),
    act(
        "NoFormats",
        &[Field("DiskImage", "status.state")],
        "no provider uses the image",
        "name it in a provider, or give it `formats`",
    ),
    info("UpToDate", &[Field("DiskImage", "status.state")], "the newest build is new enough"),
    act(
        "BackOff",
        &[Field("DiskImage", "status.state")],
        "builds failed; the next one is at the time in the message",
        "the log of the last build",
    ),
];
