//! `infrastructure.cluster.x-k8s.io/v1beta1`: the kinds of own hosts.

use super::definition::{AGE, Column, Definition, column, wide};
use super::parts::{KEY, VALUE, conditions, count, duration, quantities, taints, time};
use super::schema::{Schema, boolean, int32, int64, list, map, object, string};
use crate::byoh::{
    BootstrapKubeconfig, BootstrapKubeconfigTemplate, ByoCluster, ByoClusterTemplate, ByoHost, ByoMachine,
    ByoMachineTemplate, HostState, K8sInstallerConfig, K8sInstallerConfigTemplate,
};

/// Entries of a list of facts: more devices than one machine holds.
const LIMIT_DEVICES: u32 = 512;
/// Labels and taints of a Node.
const LIMIT_LABELS: u32 = 128;

pub(super) fn definitions() -> Vec<Definition> {
    let all = vec![
        host(),
        machine(),
        machine_template(),
        cluster(),
        cluster_template(),
        bootstrap_kubeconfig(),
        bootstrap_kubeconfig_template(),
        installer_config(),
        installer_config_template(),
    ];
    all.into_iter().map(|one| one.categories(&["cluster-api", "byoh"]).cluster_api_contract()).collect()
}

fn reference(description: &str) -> Schema {
    object(description)
        .field("apiVersion", string("Group and version of the object"))
        .field("apiGroup", string("Group of the object, with or without a version"))
        .required("kind", string("Kind of the object").not_empty())
        .required("name", string("Name of the object").not_empty())
        .field("namespace", string("Namespace of the object; the namespace of this object without it"))
        .field("uid", string("UID of the object"))
        .field("resourceVersion", string("Resource version of the object"))
        .field("fieldPath", string("Part of the object"))
}

fn labels(description: &str) -> Schema {
    map(description, string("").length(0, 63).pattern(VALUE)).max_properties(LIMIT_LABELS)
}

pub(super) fn selector() -> Schema {
    let expression = object("A requirement on one label")
        .required("key", string("The label").length(1, 317).pattern(KEY))
        .required(
            "operator",
            string("How the label is compared with the values").one_of(&["In", "NotIn", "Exists", "DoesNotExist"]),
        )
        .field("values", list("Values to compare with", string("").length(0, 63).pattern(VALUE)).max_items(100))
        .rule_at(
            ".values",
            "!(self.operator in ['In', 'NotIn']) || (has(self.values) && self.values.size() > 0)",
            "operators 'In' and 'NotIn' need at least one value",
        )
        .rule_at(
            ".values",
            "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || self.values.size() == 0",
            "operators 'Exists' and 'DoesNotExist' take no values",
        );
    object("Labels of suitable hosts; without any, every host is suitable")
        .field("matchLabels", labels("Labels with the value that each must have"))
        .field("matchExpressions", list("Further requirements", expression).max_items(100))
        .atomic_map()
}

fn join_mode() -> Schema {
    string("How a host joins: kubeadm runs the bootstrap data, tlsBootstrap starts kubelet with a bootstrap kubeconfig")
        .one_of(&["kubeadm", "tlsBootstrap"])
}

fn download_mode() -> Schema {
    string("Where Kubernetes binaries come from: offline means they are on the host already")
        .one_of(&["offline", "online"])
}

fn kubernetes_version() -> Schema {
    string("Kubernetes version, such as v1.34.1").length(0, 64)
}

fn host_info() -> Schema {
    object("Operating system in short")
        .field("osname", string("Operating system"))
        .field("osimage", string("Name and version of the distribution"))
        .field("architecture", string("Processor architecture"))
}

fn initialization(field: &str, description: &str) -> Schema {
    object("Contract with Cluster API v1beta2").field(field, boolean(description))
}

fn host() -> Definition {
    let claim = object("Machine that holds the host; a free host has none")
        .required("machineUID", string("UID of the ByoMachine").not_empty())
        .required("namespace", string("Namespace of the ByoMachine").not_empty())
        .required("name", string("Name of the ByoMachine").not_empty())
        .required("epoch", int64("Grows with every claim; the agent applies no plan of an older epoch").at_least(1))
        .field("since", time("When the host was claimed"));
    let quarantine = object("Keeps the host out of every match")
        .required("reason", string("Why, in a sentence").length(1, 1024))
        .field("since", time("Since when"));
    let spec = object("Desired state; controllers write it, the agent reads it")
        .field("claim", claim)
        .field("epoch", int64("Highest epoch ever assigned; epochs are never reused"))
        .field("quarantine", quarantine)
        .field("bootstrapSecret", reference("Secret with the bootstrap data"))
        .field("installationSecret", reference("Secret with the scripts install and uninstall"))
        .field("uninstallationScript", string("Script that undoes the installation"))
        .field("joinMode", join_mode())
        .field("downloadMode", download_mode())
        .field("kubernetesVersion", kubernetes_version())
        .field("manageKubeProxy", boolean("Whether the agent runs kube-proxy as a unit"))
        .field("capacity", quantities("Capacity, where it differs from what the facts say"))
        .field("labels", labels("Labels for the Node, replaced with every claim"))
        .field("taints", taints("Taints for the Node").max_items(LIMIT_LABELS))
        .field("priority", int32("Hosts of greater priority are taken first, all else equal"))
        .rule_at(
            ".claim",
            "!has(self.claim) || !has(oldSelf.claim) || self.claim.epoch >= oldSelf.claim.epoch",
            "a claim of an older epoch cannot replace a newer one",
        )
        .rule_at(
            ".claim",
            "!has(self.claim) || !has(oldSelf.claim) || self.claim.machineUID == oldSelf.claim.machineUID || \
             self.claim.epoch > oldSelf.claim.epoch",
            "another machine holds the host: its claim has to be released first",
        );
    Definition::of::<ByoHost>("A machine of your own that becomes a node when a pool needs it", spec)
        .status(host_status())
        .short_names(&["byoh"])
        .columns(vec![
            column("State", "string", ".status.state", "Phase of the host"),
            column("Pool", "string", ".status.pool", "Pool of the machine that holds it"),
            column("Machine", "string", ".status.machineRef.name", "Machine that holds it"),
            column("CPU", "string", ".status.capacity.cpu", "Cores"),
            column("Memory", "string", ".status.capacity.memory", "Memory"),
            column("GPUs", "integer", ".status.gpus", "GPUs"),
            AGE,
            wide("OSName", "string", ".status.hostinfo.osname", "Operating system"),
            wide("OSImage", "string", ".status.hostinfo.osimage", "Distribution"),
            wide("Arch", "string", ".status.hostinfo.architecture", "Processor architecture"),
        ])
        .name_length(63, "It is the value of a label of the host")
}

fn host_status() -> Schema {
    let network = object("A network interface with its addresses")
        .field("connected", boolean("Whether the link is up"))
        .field("ipAddrs", list("Addresses", string("")).max_items(LIMIT_DEVICES))
        .field("macAddr", string("MAC address"))
        .field("networkInterfaceName", string("Name"))
        .field("isDefault", boolean("Whether the default route leads through it"));
    let plan = object("Plan that the agent applies or has applied")
        .required("hash", string("Hash of the plan"))
        .required("epoch", int64("Epoch of the claim that the plan belongs to"))
        .field("steps", int64("Steps of the plan"))
        .field("done", int64("Steps that are done"))
        .field(
            "phase",
            string("State of the plan").one_of(&["Applying", "Applied", "Failed", "Resetting", "Reset", "ResetFailed"]),
        )
        .field("message", string("The step that failed, and the end of its output").length(0, 32768));
    let states = HostState::ALL.map(HostState::name);
    object("Observed state; the agent writes it")
        .field("state", string("Phase of the host").one_of(&states))
        .field("machineRef", reference("ByoMachine that holds the host"))
        .field("pool", string("MachineDeployment of that machine"))
        .field("conditions", conditions(false))
        .field("hostinfo", host_info())
        .field("network", list("Network interfaces with addresses", network).max_items(LIMIT_DEVICES))
        .field("facts", facts())
        .field("capacity", quantities("Capacity that follows from the facts"))
        .field("gpus", int64("GPUs, of every vendor"))
        .field("epoch", int64("Last epoch that the agent has begun to apply"))
        .field("plan", plan)
        .field("agentVersion", string("Version of the agent"))
}

fn facts() -> Schema {
    let cpu = object("Processors")
        .field("architecture", string("Architecture, as Kubernetes writes it"))
        .field("model", string("Model"))
        .field("sockets", int64("Sockets"))
        .field("cores", int64("Physical cores"))
        .field("threads", int64("Hardware threads that are online: what kubelet counts as cpu"));
    let memory = object("Memory")
        .field("totalBytes", int64("Bytes in all"))
        .field("swapBytes", int64("Bytes of swap"))
        .field("hugePages", map("Bytes of reserved huge pages by resource name", int64("")));
    let numa = object("A NUMA node")
        .required("id", int64("Number"))
        .field("cpus", string("Hardware threads, as the kernel lists them"))
        .field("memoryBytes", int64("Bytes of memory"));
    let disk = object("A disk")
        .required("name", string("Kernel name"))
        .field("sizeBytes", int64("Size in bytes"))
        .field("rotational", boolean("Whether it spins"))
        .field("model", string("Model"));
    let nic = object("A network interface")
        .required("name", string("Name"))
        .field("mac", string("MAC address"))
        .field("state", string("State of the link"))
        .field("speedMbps", int64("Megabits per second"))
        .field("isDefault", boolean("Whether the default route leads through it"));
    let gpu = object("A GPU or another accelerator")
        .required("address", string("PCI address"))
        .required("vendorID", string("PCI vendor, in hexadecimal"))
        .required("deviceID", string("PCI device, in hexadecimal"))
        .field("name", string("Name, where it is known"))
        .field("resource", string("Resource that a device plugin advertises it as"))
        .field("numaNode", int64("NUMA node"))
        .field("driver", string("Kernel driver that holds the device"));
    let os = object("Operating system")
        .field("name", string("Name of the kernel"))
        .field("image", string("Name and version of the distribution"))
        .field("id", string("Distribution, in one word"))
        .field("version", string("Version of the distribution"))
        .field("kernel", string("Kernel release"))
        .field("cgroupVersion", int64("Version of control groups; 0 if none is mounted"));
    object("Hardware and operating system, as the agent reads them")
        .field("cpu", cpu)
        .field("memory", memory)
        .field("numa", list("NUMA nodes", numa).max_items(LIMIT_DEVICES))
        .field("disks", list("Disks", disk).max_items(LIMIT_DEVICES))
        .field("nics", list("Network interfaces", nic).max_items(LIMIT_DEVICES))
        .field("gpus", list("GPUs and accelerators", gpu).max_items(LIMIT_DEVICES))
        .field("pciDevices", int64("PCI devices in all"))
        .field("os", os)
        .field("machineID", string("Machine ID: equal on clones of one image"))
        .field("bootID", string("Changes with every boot"))
        .field("productUUID", string("UUID of the board"))
}

fn machine_spec(description: &str) -> Schema {
    object(description)
        .field("selector", selector())
        .field("providerID", string("The host, as byoh://HOST").length(0, 512))
        .field("installerRef", reference("What installs Kubernetes; nothing is installed without it"))
        .field("bootstrapConfigRef", reference("BootstrapKubeconfig for joinMode tlsBootstrap"))
        .field("joinMode", join_mode())
        .field("downloadMode", download_mode())
        .field("kubernetesVersion", kubernetes_version())
        .field("manageKubeProxy", boolean("Whether the agent runs kube-proxy as a unit"))
        .field("capacityRequirements", quantities("Least capacity of suitable hosts"))
}

fn machine() -> Definition {
    let address =
        object("An address").required("type", string("Kind of address")).required("address", string("The address"));
    let status = object("The host of the machine, and how far it is")
        .field("host", string("Host that was chosen"))
        .field("initialization", initialization("provisioned", "Whether the infrastructure exists"))
        .field("ready", boolean("Contract with Cluster API v1beta1"))
        .field("conditions", conditions(false))
        .field("hostinfo", host_info())
        .field("addresses", list("Addresses of the host", address).max_items(LIMIT_DEVICES))
        .field("nodeRef", reference("Node that the host has become"))
        .field("failureDomain", string("Failure domain of the host"))
        .field("cleanupStarted", boolean("Whether the release of the host has begun"))
        .field("cleanupCompleted", boolean("Whether the host is free again"))
        .field("nodeStartupTimeout", duration("How long the host may take to become a Node"))
        .field("lastBootstrapTimestamp", time("When the last bootstrap began"))
        .field("failureReason", string("Why the machine can never work, in one word"))
        .field("failureMessage", string("Why the machine can never work"));
    Definition::of::<ByoMachine>(
        "The infrastructure of a Machine, on a host of your own",
        machine_spec("Which hosts are suitable, and how they join"),
    )
    .status(status)
    .short_names(&["byom"])
    .columns(vec![
        column("Host", "string", ".status.host", "Host of the machine"),
        column("ProviderID", "string", ".spec.providerID", "The host, as Cluster API and the Node name it"),
        column("Ready", "string", ".status.initialization.provisioned", "Whether the host has joined"),
        AGE,
        wide(
            "Reason",
            "string",
            r#".status.conditions[?(@.type=="BYOHostReady")].reason"#,
            "Why the host is not ready",
        ),
    ])
}

fn template(spec: Schema) -> Schema {
    let metadata = object("Labels and annotations of the clones")
        .field("labels", labels("Labels"))
        .field("annotations", map("Annotations", string("")));
    object("The clones").field("metadata", metadata).required("spec", spec)
}

fn machine_template() -> Definition {
    let text = |description: &str| Schema::int_or_string(description);
    let capacity = object("Capacity for scale-from-zero, instead of what matching hosts have")
        .field("cpu", text("Cores"))
        .field("memory", text("Memory"))
        .field("ephemeralDisk", text("Local disk"))
        .field("maxPods", text("Pods"))
        .field("gpuType", string("Resource of the GPUs"))
        .field("gpuCount", text("Number of GPUs"))
        .field("labels", string("Labels of the nodes, k=v,k=v"))
        .field("taints", string("Taints of the nodes, k=v:Effect"))
        .field("csiDrivers", string("Volumes that drivers attach, driver=limit"));
    let spec = object("What the machines are")
        .required("template", template(machine_spec("Which hosts are suitable, and how they join")))
        .field("capacity", capacity);
    let node_info = object("Operating system and architecture of the nodes")
        .field("architecture", string("Processor architecture"))
        .field("operatingSystem", string("Operating system"));
    let status = object("What nodes of the clones offer, inferred from matching hosts")
        .field("capacity", quantities("The least that every matching host has"))
        .field("nodeInfo", node_info)
        .field("matchingHosts", count("Free hosts that match the selector"))
        .field("conditions", conditions(false));
    Definition::of::<ByoMachineTemplate>("What ByoMachines are cloned from", spec)
        .status(status)
        .short_names(&["byomt"])
        .columns(vec![
            column("CPU", "string", ".status.capacity.cpu", "Cores of matching hosts"),
            column("Memory", "string", ".status.capacity.memory", "Memory of matching hosts"),
            column("Hosts", "integer", ".status.matchingHosts", "Free hosts that match"),
            AGE,
        ])
}

fn cluster_spec() -> Schema {
    let endpoint = object("Where the API server is")
        .required("host", string("Name or address"))
        .required("port", int32("Port").at_least(0).at_most(65535));
    object("Address of the control plane")
        .field("controlPlaneEndpoint", endpoint)
        .field("bundleLookupBaseRegistry", string("Registry of installation bundles"))
}

fn cluster() -> Definition {
    let domain = object("A failure domain")
        .required("name", string("Its name"))
        .field("controlPlane", boolean("Whether control planes may lie in it"))
        .field("attributes", map("Anything else", string("")));
    let status = object("Whether the infrastructure is ready")
        .field("initialization", initialization("provisioned", "Whether the infrastructure exists"))
        .field("ready", boolean("Contract with Cluster API v1beta1"))
        .field("conditions", conditions(false))
        .field("failureDomains", list("Failure domains that hosts lie in", domain).max_items(100));
    Definition::of::<ByoCluster>("What a Cluster needs of your own hosts", cluster_spec())
        .status(status)
        .short_names(&["byoc"])
        .columns(vec![
            column("Endpoint", "string", ".spec.controlPlaneEndpoint.host", "Where the API server is"),
            provisioned("Whether it is ready"),
            AGE,
        ])
}

fn provisioned(description: &'static str) -> Column {
    column("Ready", "string", ".status.initialization.provisioned", description)
}

fn cluster_template() -> Definition {
    let spec = object("What the clusters are").required("template", template(cluster_spec()));
    Definition::of::<ByoClusterTemplate>("What ByoClusters are cloned from", spec)
        .short_names(&["byoct"])
        .columns(vec![AGE])
}

fn bootstrap_spec() -> Schema {
    object("The API server that hosts join")
        .field("apiserver", string("Address of the API server, such as https://10.0.0.1:6443"))
        .field("certificate-authority-data", string("CA certificates in PEM, in base64"))
        .field("insecure-skip-tls-verify", boolean("Whether hosts trust any certificate"))
}

fn bootstrap_kubeconfig() -> Definition {
    let status = object("The kubeconfig with a bootstrap token")
        .field("bootstrapKubeconfigData", string("The kubeconfig, as the original provider shows it"))
        .field("dataSecretName", string("Secret with the bootstrap data"))
        .field("initialization", initialization("dataSecretCreated", "Whether the Secret exists"))
        .field("ready", boolean("Contract with Cluster API v1beta1"))
        .field("conditions", conditions(false));
    Definition::of::<BootstrapKubeconfig>("Credentials that hosts join a cluster with", bootstrap_spec())
        .status(status)
        .columns(vec![
            column("APIServer", "string", ".spec.apiserver", "The API server that hosts join"),
            column("Ready", "string", ".status.initialization.dataSecretCreated", "Whether the Secret exists"),
            AGE,
        ])
}

fn bootstrap_kubeconfig_template() -> Definition {
    let spec = object("What the credentials are").required("template", template(bootstrap_spec()));
    Definition::of::<BootstrapKubeconfigTemplate>("What BootstrapKubeconfigs are cloned from", spec).columns(vec![AGE])
}

fn installer_spec() -> Schema {
    object("Where packages come from")
        .field("bundleRepo", string("Registry of the bundles"))
        .field("bundleType", string("Kind of bundle"))
}

fn installer_config() -> Definition {
    let status = object("The Secret with the scripts")
        .field("ready", boolean("Whether the Secret exists"))
        .field("installationSecret", reference("Secret with the scripts install and uninstall"))
        .field("conditions", conditions(false));
    Definition::of::<K8sInstallerConfig>("How Kubernetes is installed on a host", installer_spec())
        .status(status)
        .columns(vec![column("Ready", "boolean", ".status.ready", "Whether the Secret exists"), AGE])
}

fn installer_config_template() -> Definition {
    let spec = object("What is installed").required("template", template(installer_spec()));
    Definition::of::<K8sInstallerConfigTemplate>("What K8sInstallerConfigs are cloned from", spec).columns(vec![AGE])
}
