//! `cluster.x-k8s.io` and its providers, as the embedded API serves them: both versions of Cluster API, no conversion.
//!
//! Schemas are open: an object is kept as it was written, whichever version it was written in, and
//! [`capi`](crate::capi) reads both. Typed is what `kubectl` and `kubectl scale` look at. One rule is Millpond's own:
//! PCI ids that are exchanged are refused, with what would be right.

use serde_json::{Value, json};

use super::definition::{AGE, Column, READY, column, wide};
use super::schema::{Schema, boolean, int32, int64, list, map, object, string};
use crate::capi::gpu::{self, DeviceId, Gpu, Vendor};

const CORE: &str = "cluster.x-k8s.io";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io";
const TANZU: &str = "run.tanzu.vmware.com";

/// The version that objects are stored in comes first.
const BOTH: &[&str] = &["v1beta2", "v1beta1"];
const OLD: &[&str] = &["v1beta1"];

const AVAILABLE: &str = r#".status.conditions[?(@.type=="Available")].status"#;

/// Devices of one machine.
const LIMIT_DEVICES: u32 = 64;

pub(super) fn definitions() -> Vec<Value> {
    let mut all = core();
    all.extend(providers());
    all.into_iter().map(Foreign::into_value).collect()
}

/// The definition of another project's kind.
struct Foreign {
    group: &'static str,
    versions: &'static [&'static str],
    kind: &'static str,
    plural: &'static str,
    short_names: &'static [&'static str],
    description: &'static str,
    columns: Vec<Column>,
    scales: bool,
    spec: Schema,
}

impl Foreign {
    fn new(
        group: &'static str,
        versions: &'static [&'static str],
        kind: &'static str,
        plural: &'static str,
        description: &'static str,
    ) -> Self {
        let (short_names, columns, spec) = (&[] as &[_], vec![AGE], object("Desired state").open());
        Self { group, versions, kind, plural, short_names, description, columns, scales: false, spec }
    }

    fn short(self, short_names: &'static [&'static str]) -> Self {
        Self { short_names, ..self }
    }

    fn columns(self, columns: Vec<Column>) -> Self {
        Self { columns, ..self }
    }

    fn scales(self) -> Self {
        Self { scales: true, ..self }
    }

    fn spec(self, spec: Schema) -> Self {
        Self { spec, ..self }
    }

    fn into_value(self) -> Value {
        let status = object("Observed state")
            .open()
            .field("replicas", int32("Number of machines"))
            .field("selector", string("Label selector of its machines, for autoscalers"));
        let schema = object(self.description)
            .field("apiVersion", string("The version of the schema that this object follows"))
            .field("kind", string("The kind of this object"))
            .field("metadata", object(""))
            .required("spec", self.spec)
            .field("status", if self.scales { status } else { object("Observed state").open() });
        let schema = Value::from(schema);
        let mut subresources = json!({"status": {}});
        if self.scales {
            subresources["scale"] = json!({
                "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            });
        }
        let columns: Vec<Value> = self.columns.iter().map(Column::value).collect();
        let version = |(index, name): (usize, &&str)| {
            json!({
                "name": name, "served": true, "storage": index == 0, "schema": {"openAPIV3Schema": schema},
                "subresources": subresources, "additionalPrinterColumns": columns,
            })
        };
        let versions: Vec<Value> = self.versions.iter().enumerate().map(version).collect();
        let mut names = json!({
            "kind": self.kind, "listKind": format!("{}List", self.kind), "plural": self.plural,
            "singular": self.kind.to_lowercase(), "categories": ["cluster-api"],
        });
        if !self.short_names.is_empty() {
            names["shortNames"] = json!(self.short_names);
        }
        let mut metadata = json!({"name": format!("{}.{}", self.plural, self.group)});
        if matches!(self.group, INFRASTRUCTURE | BOOTSTRAP) {
            // Cluster API reads from this label which contract a provider keeps, and in which of its versions.
            let newest = self.versions[0];
            metadata["labels"] = json!({format!("cluster.x-k8s.io/{newest}"): newest});
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata,
            "spec": {"group": self.group, "names": names, "scope": "Namespaced", "versions": versions},
        })
    }
}

fn core() -> Vec<Foreign> {
    let cluster = column("Cluster", "string", ".spec.clusterName", "Its cluster");
    let phase = column("Phase", "string", ".status.phase", "Phase");
    let core = |kind, plural, description| Foreign::new(CORE, BOTH, kind, plural, description);
    vec![
        core("Cluster", "clusters", "A Kubernetes cluster").short(&["cl"]).columns(vec![
            column("ClusterClass", "string", ".spec.topology.classRef.name", "What its topology is made from"),
            column("Available", "string", AVAILABLE, "Whether it is ready"),
            phase,
            AGE,
            column("Version", "string", ".spec.topology.version", "Its Kubernetes version"),
        ]),
        core("ClusterClass", "clusterclasses", "What topologies of clusters are made from").short(&["cc"]),
        core("MachineDeployment", "machinedeployments", "Machines with rolling updates")
            .short(&["md"])
            .scales()
            .spec(replicated(true))
            .columns(with_counts(".status.upToDateReplicas")),
        core("MachineSet", "machinesets", "Machines of one template")
            .short(&["ms"])
            .scales()
            .spec(replicated(true))
            .columns(with_counts(".status.upToDateReplicas")),
        core("MachinePool", "machinepools", "Machines of a cloud's autoscaling group")
            .short(&["mp"])
            .scales()
            .spec(replicated(false))
            .columns(with_counts(".status.upToDateReplicas")),
        core("Machine", "machines", "A machine that is a node, or will be")
            .short(&["ma"])
            .spec(cluster_of(object("Desired state").open()))
            .columns(vec![
                cluster,
                column("Node Name", "string", ".status.nodeRef.name", "Its node"),
                column("Ready", "string", READY, "Whether it is ready"),
                column("Available", "string", AVAILABLE, "Whether it is available"),
                column("Phase", "string", ".status.phase", "Phase"),
                AGE,
                column("Version", "string", ".spec.version", "Its Kubernetes version"),
                wide("ProviderID", "string", ".spec.providerID", "Provider id of the machine"),
            ]),
        core("MachineHealthCheck", "machinehealthchecks", "Which unhealthy machines are replaced")
            .short(&["mhc"])
            .spec(cluster_of(object("Desired state").open()))
            .columns(vec![
                column("Cluster", "string", ".spec.clusterName", "Its cluster"),
                column("ExpectedMachines", "integer", ".status.expectedMachines", "Machines that it looks at"),
                column("CurrentHealthy", "integer", ".status.currentHealthy", "Number of ready ones"),
                AGE,
            ]),
    ]
}

fn cluster_of(spec: Schema) -> Schema {
    spec.required("clusterName", string("The cluster").length(1, 63))
}

fn replicated(selects: bool) -> Schema {
    let spec = cluster_of(object("Desired state").open())
        .field("replicas", int32("Number of machines").at_least(0))
        .required("template", object("What the machines are").open());
    if !selects {
        return spec;
    }
    let selector =
        object("Labels by which its machines are known").open().field("matchLabels", map("Each of these", string("")));
    spec.field("paused", boolean("Leave it alone")).field("selector", selector)
}

fn with_counts(up_to_date: &'static str) -> Vec<Column> {
    vec![
        column("Cluster", "string", ".spec.clusterName", "Its cluster"),
        column("Available", "string", AVAILABLE, "Whether enough machines are healthy"),
        column("Desired", "integer", ".spec.replicas", "Requested number of machines"),
        column("Current", "integer", ".status.replicas", "Number of replicas"),
        column("Ready", "integer", ".status.readyReplicas", "Number of ready ones"),
        column("Up-to-date", "integer", up_to_date, "Number of up-to-date ones"),
        column("Phase", "string", ".status.phase", "Phase"),
        AGE,
        column("Version", "string", ".spec.template.spec.version", "The Kubernetes version of its machines"),
    ]
}

fn providers() -> Vec<Foreign> {
    let machine = |kind, plural, versions| {
        Foreign::new(INFRASTRUCTURE, versions, kind, plural, "A machine of an infrastructure provider").columns(vec![
            column("ProviderID", "string", ".spec.providerID", "Provider id of the machine"),
            column("Ready", "string", ".status.initialization.provisioned", "Whether it runs"),
            AGE,
        ])
    };
    let template = |kind, plural, versions| {
        Foreign::new(
            INFRASTRUCTURE,
            versions,
            kind,
            plural,
            "What machines of an infrastructure provider are cloned from",
        )
    };
    let cluster = |kind, plural, versions| {
        Foreign::new(INFRASTRUCTURE, versions, kind, plural, "What a cluster needs of an infrastructure provider")
    };
    let bootstrap = |kind, plural, description| Foreign::new(BOOTSTRAP, BOTH, kind, plural, description);
    vec![
        machine("VSphereMachine", "vspheremachines", BOTH),
        template("VSphereMachineTemplate", "vspheremachinetemplates", BOTH).spec(vsphere_template()),
        cluster("VSphereCluster", "vsphereclusters", BOTH),
        machine("AWSMachine", "awsmachines", BOTH),
        template("AWSMachineTemplate", "awsmachinetemplates", BOTH),
        machine("AzureMachine", "azuremachines", OLD),
        template("AzureMachineTemplate", "azuremachinetemplates", OLD),
        machine("DockerMachine", "dockermachines", BOTH),
        template("DockerMachineTemplate", "dockermachinetemplates", BOTH),
        bootstrap("KubeadmConfig", "kubeadmconfigs", "How a machine joins its cluster by kubeadm"),
        bootstrap("KubeadmConfigTemplate", "kubeadmconfigtemplates", "What KubeadmConfigs are cloned from"),
        Foreign::new(
            TANZU,
            &["v1alpha3", "v1alpha2"],
            "TanzuKubernetesCluster",
            "tanzukubernetesclusters",
            "A cluster of a vSphere supervisor, with its node pools",
        )
        .short(&["tkc"]),
    ]
}

/// The corrected text for exchanged ids, in CEL. A table is used because the API server cannot bound the length of a
/// concatenation, and so estimates too high a cost.
fn put_right() -> String {
    let entry = |gpu: &Gpu| {
        let DeviceId { vendor, device } = gpu.id;
        let wrong = i64::from(vendor) * 65536 + i64::from(device);
        let name = gpu.full_name();
        let right = format!("{{vendorId: {vendor}, deviceId: {device}}}");
        format!("{wrong}: 'vendorId and deviceId are exchanged; for a {name} write {right}'")
    };
    let entries: Vec<String> = gpu::all().iter().map(entry).collect();
    format!("{{{}}}[self.deviceId * 65536 + self.vendorId]", entries.join(", "))
}

fn vsphere_template() -> Schema {
    let vendors = Vendor::ALL.map(|vendor| vendor.id().to_string()).join(", ");
    let id = |description: &str| int64(description).at_least(1).at_most(0xffff);
    let device = object("A device: by its ids, or by a vGPU profile")
        .open()
        .field("vendorId", id("The vendor: 4318 (0x10DE) is NVIDIA"))
        .field("deviceId", id("The device of that vendor: 7864 (0x1EB8) is a T4"))
        .field("vGPUProfile", string("A part of a card: grid_t4-16c"))
        .field("customLabel", string("Label of assignable hardware"))
        .rule_with_message(
            &format!(
                "!has(self.vendorId) || !has(self.deviceId) || self.vendorId in [{vendors}] || !(self.deviceId in [{vendors}])"
            ),
            "vendorId and deviceId are exchanged: the vendor (4318 is NVIDIA) is the vendorId",
            &put_right(),
        )
        .rule(
            "has(self.vGPUProfile) ? !has(self.vendorId) && !has(self.deviceId) : has(self.vendorId) && has(self.deviceId)",
            "give either vGPUProfile alone, or vendorId and deviceId together",
        );
    let spec = object("What the machines are")
        .open()
        .field("pciDevices", list("Devices of the hosts that the machines get", device).max_items(LIMIT_DEVICES))
        .field("hardwareVersion", string("Hardware version: vmx-17 or later for devices").pattern("^vmx-[1-9][0-9]?$"))
        .field("customVMXKeys", map("Settings of the virtual machine", string("")));
    let template = object("What the machines are").open().required("spec", spec);
    object("Desired state").open().required("template", template)
}
