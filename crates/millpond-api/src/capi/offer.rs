//! The capacity, labels and taints that a future node of a pool will offer to kube-scheduler.
//!
//! | | in this order; a later one fills what the earlier ones leave out |
//! |---|---|
//! | capacity | annotations of the autoscaler; `status.capacity` of the machine template; what its `spec` says |
//! | labels | annotation; kubelet `node-labels` of the bootstrap template; labels of machines that Cluster API copies |
//! | taints | annotation; `taints` of the machines; those that kubeadm registers |

use std::collections::BTreeMap;

use serde_json::Value;

use super::gpu::{self, Check, DeviceId};
use super::names::{self, reaches_node};
use super::{MachineTemplate, Problems};
use crate::amounts::{self, Amounts};
use crate::karpenter::{Taint, TaintEffect};
use crate::{labels, quantity};

/// Maximum number of pods on a node if no object specifies one.
pub const DEFAULT_PODS: i64 = 110;

/// The fewest cores, and the memory if none is given, that the vSphere provider makes machines with.
const LEAST_VSPHERE_CPUS: i64 = 2;
const DEFAULT_VSPHERE_MEMORY_MIB: i64 = 2048;

/// The objects of a pool.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    /// Annotations of the MachineDeployment, MachineSet or MachinePool.
    pub annotations: &'a BTreeMap<String, String>,
    /// Its template.
    pub template: &'a MachineTemplate,
    /// The infrastructure template as it is, if it was found.
    pub infrastructure: Option<&'a Value>,
    /// The bootstrap template as it is, if it was found.
    pub bootstrap: Option<&'a Value>,
}

/// The offer of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeOffer {
    /// Thousandths of `cpu`, whole units of all else; `cpu` and `memory` are missing where they are unknown.
    pub capacity: Amounts,
    /// Labels, architecture and operating system among them where known.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// Resource name and number of its GPUs.
    pub gpu: Option<(String, i64)>,
    /// Volumes that drivers can attach.
    pub attach_limits: BTreeMap<String, i64>,
    /// The driver that offers the GPUs by dynamic resource allocation.
    pub dra_driver: Option<String>,
    /// Instance type or size by name, where the template has one: the catalogue knows more.
    pub machine_type: Option<String>,
}

impl NodeOffer {
    /// Whether enough is known to plan with a node that does not exist yet.
    pub fn is_sized(&self) -> bool {
        self.capacity.get("cpu").is_some() && self.capacity.get("memory").is_some()
    }

    /// Combines the sources; unreadable values are reported and left out.
    pub fn read(sources: &Sources<'_>, problems: &Problems) -> Self {
        let mut offer = Self::default();
        if let Some(bootstrap) = sources.bootstrap {
            offer.read_bootstrap(bootstrap);
        }
        offer.read_machines(sources);
        if let Some(infrastructure) = sources.infrastructure {
            offer.read_spec(&infrastructure["spec"]["template"]["spec"]);
            offer.read_status(&infrastructure["status"], problems);
        }
        offer.read_annotations(sources.annotations, problems);
        if let Some((resource, count)) = offer.gpu.clone() {
            offer.capacity.0.insert(resource, count);
        }
        offer.capacity.0.entry("pods".to_owned()).or_insert(DEFAULT_PODS);
        offer
    }

    fn read_bootstrap(&mut self, bootstrap: &Value) {
        self.labels.extend(kubelet_labels(bootstrap));
        let registration = &bootstrap["spec"]["template"]["spec"]["joinConfiguration"]["nodeRegistration"];
        for taint in registration["taints"].as_array().into_iter().flatten() {
            let text = |key: &str| taint[key].as_str().unwrap_or_default();
            self.add_taint(text("key"), text("value"), text("effect"));
        }
    }

    fn read_machines(&mut self, sources: &Sources<'_>) {
        let template = sources.template;
        // Own hosts bring their labels along: those that the pool selects them by.
        let own_hosts = template.infrastructure.as_ref().is_some_and(|it| it.kind == "ByoMachineTemplate");
        let of_cluster_api = |key: &str| key.split('/').next().is_some_and(|domain| domain.ends_with("x-k8s.io"));
        for (key, value) in &template.labels {
            if reaches_node(key) || (own_hosts && !of_cluster_api(key)) {
                self.labels.insert(key.clone(), value.clone());
            }
        }
        for taint in &template.taints {
            self.add_taint(&taint.key, &taint.value, &taint.effect);
        }
    }

    /// Reads the fields of known templates.
    fn read_spec(&mut self, spec: &Value) {
        let machine_type = spec["instanceType"].as_str().or_else(|| spec["vmSize"].as_str());
        self.machine_type = machine_type.filter(|it| !it.is_empty()).map(ToOwned::to_owned);
        for (key, value) in spec["selector"]["matchLabels"].as_object().into_iter().flatten() {
            if let Some(value) = value.as_str() {
                self.labels.insert(key.clone(), value.to_owned());
            }
        }
        let positive = |key: &str| spec[key].as_i64().filter(|number| *number > 0);
        let is_vsphere = ["numCPUs", "memoryMiB", "pciDevices", "network"].iter().any(|key| !spec[*key].is_null());
        if !is_vsphere {
            return;
        }
        let cpus = positive("numCPUs").unwrap_or(0).max(LEAST_VSPHERE_CPUS);
        let memory = positive("memoryMiB").unwrap_or(DEFAULT_VSPHERE_MEMORY_MIB);
        self.capacity.0.insert("cpu".to_owned(), cpus.saturating_mul(1000));
        self.capacity.0.insert("memory".to_owned(), memory.saturating_mul(1 << 20));
        if let Some(disk) = positive("diskGiB") {
            self.capacity.0.insert("ephemeral-storage".to_owned(), disk.saturating_mul(1 << 30));
        }
        self.gpu = gpus_of(&spec["pciDevices"]);
    }

    fn read_status(&mut self, status: &Value, problems: &Problems) {
        for (resource, amount) in status["capacity"].as_object().into_iter().flatten() {
            let text = amount.as_str().map_or_else(|| amount.to_string(), ToOwned::to_owned);
            self.set_capacity(resource, &text, "status.capacity", problems);
        }
        let info = &status["nodeInfo"];
        for (label, key) in [(labels::ARCH, "architecture"), (labels::OS, "operatingSystem")] {
            if let Some(value) = info[key].as_str().filter(|value| !value.is_empty()) {
                self.labels.insert(label.to_owned(), value.to_owned());
            }
        }
    }

    fn read_annotations(&mut self, annotations: &BTreeMap<String, String>, problems: &Problems) {
        let given = |key: &str| annotations.get(key).map(|text| text.trim());
        for (key, resource) in [
            (names::CAPACITY_CPU, "cpu"),
            (names::CAPACITY_MEMORY, "memory"),
            (names::CAPACITY_DISK, "ephemeral-storage"),
            (names::CAPACITY_PODS, "pods"),
        ] {
            if let Some(text) = given(key) {
                self.set_capacity(resource, text, &annotation(key), problems);
            }
        }
        self.read_gpu(annotations, problems);
        if let Some(text) = given(names::CAPACITY_LABELS) {
            self.labels.extend(read_labels(text, &annotation(names::CAPACITY_LABELS), problems));
        }
        for part in
            given(names::CAPACITY_TAINTS).into_iter().flat_map(|text| text.split(',')).filter(|it| !it.is_empty())
        {
            let (pair, effect) = part.rsplit_once(':').unwrap_or((part, ""));
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !self.add_taint(key.trim(), value.trim(), effect.trim()) {
                let problem = format!("`{part}` is no taint such as `key=value:NoSchedule`");
                problems.say(annotation(names::CAPACITY_TAINTS), problem);
            }
        }
        for part in
            given(names::CAPACITY_CSI_DRIVER).into_iter().flat_map(|text| text.split(',')).filter(|it| !it.is_empty())
        {
            let limit =
                part.split_once('=').and_then(|(driver, limit)| Some((driver.trim(), limit.trim().parse().ok()?)));
            // Some write `driver=volumes=16`.
            match limit.or_else(|| {
                part.rsplit_once('=').and_then(|(left, limit)| Some((left.split('=').next()?, limit.parse().ok()?)))
            }) {
                Some((driver, limit)) => drop(self.attach_limits.insert(driver.to_owned(), limit)),
                None => problems
                    .say(annotation(names::CAPACITY_CSI_DRIVER), format!("`{part}` is no limit such as `driver=25`")),
            }
        }
    }

    fn read_gpu(&mut self, annotations: &BTreeMap<String, String>, problems: &Problems) {
        let text = |key: &str| annotations.get(key).map(|text| text.trim()).filter(|text| !text.is_empty());
        let count = text(names::CAPACITY_GPU_COUNT).and_then(|text| match quantity::parse_units(text) {
            Ok(count) => i64::try_from(count).ok(),
            Err(error) => {
                problems.say(annotation(names::CAPACITY_GPU_COUNT), format!("`{text}` {error}"));
                None
            }
        });
        let (kind, driver) = (text(names::CAPACITY_GPU_TYPE), text(names::CAPACITY_DRA_DRIVER));
        if kind.is_some() && driver.is_some() {
            let other = annotation(names::CAPACITY_GPU_TYPE);
            problems
                .say(annotation(names::CAPACITY_DRA_DRIVER), format!("stands beside `{other}`; give one of the two"));
        }
        match (kind, driver, count) {
            (None, Some(driver), _) => self.dra_driver = Some(driver.to_owned()),
            (Some(kind), _, Some(count)) if labels::is_key(kind) => {
                self.gpu = (count > 0).then(|| (kind.to_owned(), count));
            }
            (Some(kind), _, _) if !labels::is_key(kind) => {
                let problem = format!("`{kind}` is no resource such as `nvidia.com/gpu`");
                problems.say(annotation(names::CAPACITY_GPU_TYPE), problem);
            }
            (Some(_), _, None) if annotations.get(names::CAPACITY_GPU_COUNT).is_none() => {
                let problem = format!("says nothing without `{}`", names::CAPACITY_GPU_COUNT);
                problems.say(annotation(names::CAPACITY_GPU_TYPE), problem);
            }
            (None, None, Some(count)) if count > 0 => {
                let problem = format!("says nothing without `{}`", names::CAPACITY_GPU_TYPE);
                problems.say(annotation(names::CAPACITY_GPU_COUNT), problem);
            }
            _ => {}
        }
    }

    fn set_capacity(&mut self, resource: &str, text: &str, field: &str, problems: &Problems) {
        match amounts::parse(resource, text) {
            Ok(amount) => drop(self.capacity.0.insert(resource.to_owned(), amount)),
            Err(error) => problems.say(field, format!("`{text}` {error}")),
        }
    }

    /// Adds a taint, in the place of one with the same key and effect; false if it is none.
    fn add_taint(&mut self, key: &str, value: &str, effect: &str) -> bool {
        let effect = match effect {
            "NoSchedule" => TaintEffect::NoSchedule,
            "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
            "NoExecute" => TaintEffect::NoExecute,
            _ => return false,
        };
        if !labels::is_key(key) || !labels::is_value(value) {
            return false;
        }
        self.taints.retain(|taint| taint.key != key || taint.effect != effect);
        self.taints.push(Taint { key: key.to_owned(), value: value.to_owned(), effect });
        true
    }
}

/// The path of an annotation, for messages.
pub(super) fn annotation(key: &str) -> String {
    format!("metadata.annotations[{key}]")
}

/// Reads `k=v,k=v`.
pub(super) fn read_labels(text: &str, field: &str, problems: &Problems) -> BTreeMap<String, String> {
    let mut read = BTreeMap::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        if labels::is_key(key) && labels::is_value(value) {
            read.insert(key.to_owned(), value.to_owned());
        } else {
            problems.say(field, format!("`{part}` is no label such as `key=value`"));
        }
    }
    read
}

/// The `node-labels` that a bootstrap template gives to the kubelet: a map of arguments (v1beta1) or a list (v1beta2).
pub fn kubelet_labels(bootstrap: &Value) -> BTreeMap<String, String> {
    let registration = &bootstrap["spec"]["template"]["spec"]["joinConfiguration"]["nodeRegistration"];
    let text = match &registration["kubeletExtraArgs"] {
        Value::Object(arguments) => arguments.get("node-labels").and_then(Value::as_str),
        Value::Array(arguments) => {
            let last = arguments.iter().rfind(|argument| argument["name"] == "node-labels");
            last.and_then(|argument| argument["value"].as_str())
        }
        _ => None,
    };
    read_labels(text.unwrap_or_default(), "node-labels", &Problems::new())
}

/// The GPUs among PCI devices: the resource of the first kind, and how many there are of it.
pub fn gpus_of(devices: &Value) -> Option<(String, i64)> {
    let resource = |device: &Value| {
        if device["vGPUProfile"].as_str().is_some_and(|profile| !profile.is_empty()) {
            return Some(gpu::Vendor::Nvidia.resource());
        }
        let id = |key: &str| device[key].as_i64().and_then(|id| u16::try_from(id).ok());
        match gpu::check_device(DeviceId { vendor: id("vendorId")?, device: id("deviceId")? }) {
            Check::Known(gpu) => Some(gpu.vendor.resource()),
            Check::UnknownDevice(vendor) => Some(vendor.resource()),
            // A machine with exchanged ids never starts, but its GPUs are known.
            Check::Swapped(..) | Check::Other(_) | Check::NotGpu => None,
        }
    };
    let resources: Vec<&str> = devices.as_array().into_iter().flatten().filter_map(resource).collect();
    let first = *resources.first()?;
    Some((first.to_owned(), resources.iter().filter(|resource| **resource == first).count() as i64))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(value: Value) -> MachineTemplate {
        MachineTemplate::read(&value, "", &Problems::new())
    }

    fn annotated(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn read(
        annotations: &[(&str, &str)],
        infrastructure: Option<Value>,
        bootstrap: Option<Value>,
    ) -> (NodeOffer, Vec<String>) {
        let (annotations, template) = (annotated(annotations), template(json!({"spec": {}})));
        let sources = Sources {
            annotations: &annotations,
            template: &template,
            infrastructure: infrastructure.as_ref(),
            bootstrap: bootstrap.as_ref(),
        };
        let problems = Problems::new();
        let offer = NodeOffer::read(&sources, &problems);
        (offer, problems.into_inner().iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_vsphere_template_says_what_its_nodes_offer() {
        let spec = json!({"numCPUs": 8, "memoryMiB": 32768, "diskGiB": 100, "pciDevices": [
            {"vendorId": 0x10de, "deviceId": 0x1eb8}, {"vendorId": 0x10de, "deviceId": 0x1eb8}, {"vendorId": 0x15b3, "deviceId": 1}]});
        let (offer, problems) = read(&[], Some(json!({"spec": {"template": {"spec": spec}}})), None);
        assert_eq!(
            serde_json::to_value(&offer.capacity).unwrap(),
            json!({"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "nvidia.com/gpu": "2", "pods": "110"})
        );
        assert!(problems.is_empty() && offer.is_sized());
        let bare = read(&[], Some(json!({"spec": {"template": {"spec": {"network": {}}}}})), None).0;
        assert_eq!((bare.capacity.get("cpu"), bare.capacity.get("memory")), (Some(2000), Some(2 << 30)));
        assert!(
            !read(&[], Some(json!({"spec": {"template": {"spec": {"instanceType": "m5.large"}}}})), None).0.is_sized()
        );
    }

    #[test]
    fn annotations_win_over_the_template() {
        let status = json!({"capacity": {"cpu": "4", "memory": "16Gi", "example.com/fpga": 1}, "nodeInfo": {"architecture": "arm64"}});
        let annotations = [
            (names::CAPACITY_CPU, "2"),
            (names::CAPACITY_PODS, "50"),
            (names::CAPACITY_GPU_TYPE, "nvidia.com/gpu"),
            (names::CAPACITY_GPU_COUNT, "1"),
            (names::CAPACITY_LABELS, "a=b,c="),
            (names::CAPACITY_TAINTS, "nvidia.com/gpu=true:NoSchedule,x:NoExecute"),
            (names::CAPACITY_CSI_DRIVER, "ebs.csi.aws.com=25"),
        ];
        let (offer, problems) = read(&annotations, Some(json!({"status": status})), None);
        assert_eq!(problems, [""; 0]);
        assert_eq!(
            serde_json::to_value(&offer.capacity).unwrap(),
            json!({"cpu": "2", "memory": "16Gi", "example.com/fpga": "1", "nvidia.com/gpu": "1", "pods": "50"})
        );
        assert_eq!(offer.labels[labels::ARCH], "arm64");
        assert_eq!((offer.labels["a"].as_str(), offer.labels["c"].as_str()), ("b", ""));
        assert_eq!(offer.taints.len(), 2);
        assert_eq!(offer.attach_limits["ebs.csi.aws.com"], 25);
    }

    #[test]
    fn what_cannot_be_read_is_reported() {
        let annotations = [
            (names::CAPACITY_CPU, "many"),
            (names::CAPACITY_GPU_COUNT, "1"),
            (names::CAPACITY_TAINTS, "gpu"),
            (names::CAPACITY_LABELS, "a b"),
            (names::CAPACITY_CSI_DRIVER, "ebs"),
        ];
        let (_, problems) = read(&annotations, None, None);
        assert_eq!(problems.len(), 5, "{problems:?}");
        assert!(problems[0].starts_with(
            "metadata.annotations[capacity.cluster-autoscaler.kubernetes.io/cpu]: `many` is not a quantity"
        ));
        assert!(
            problems
                .iter()
                .any(|it| it.ends_with("says nothing without `capacity.cluster-autoscaler.kubernetes.io/gpu-type`"))
        );
    }

    #[test]
    fn labels_of_the_kubelet_are_read_in_both_forms() {
        let bootstrap = |arguments: Value| {
            json!({"spec": {"template": {"spec": {"joinConfiguration": {"nodeRegistration": {
                "kubeletExtraArgs": arguments, "taints": [{"key": "a", "effect": "NoSchedule"}]}}}}}})
        };
        for arguments in [
            json!({"node-labels": "x=1,y=2"}),
            json!([{"name": "v", "value": "2"}, {"name": "node-labels", "value": "x=1,y=2"}]),
        ] {
            let offer = read(&[], None, Some(bootstrap(arguments))).0;
            assert_eq!((offer.labels["x"].as_str(), offer.labels["y"].as_str(), offer.taints.len()), ("1", "2", 1));
        }
    }

    #[test]
    fn own_hosts_have_the_labels_of_their_pool() {
        let template = template(json!({"metadata": {"labels": {"purpose": "gpu", names::CLUSTER_NAME: "c"}},
            "spec": {"infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "ByoMachineTemplate", "name": "t"}}}));
        let annotations = BTreeMap::new();
        let sources = Sources { annotations: &annotations, template: &template, infrastructure: None, bootstrap: None };
        let offer = NodeOffer::read(&sources, &Problems::new());
        assert_eq!(offer.labels.into_iter().collect::<Vec<_>>(), [("purpose".to_owned(), "gpu".to_owned())]);
    }
}
