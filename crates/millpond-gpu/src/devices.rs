//! The GPUs of a node: how many pods may use, which model they are.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::{Node, Pod, ResourceRequirements};
use millpond_api::capi::gpu::{self, Vendor};
use millpond_api::quantity;

/// Resources whose unit is one GPU, besides those of [`Vendor::resource`].
const MORE_RESOURCES: [&str; 1] = ["gpu.intel.com/xe"];

/// Labels that name the model, most exact first: NVIDIA's and AMD's feature discovery, clouds, Cluster API.
const MODEL_LABELS: [&str; 6] = [
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "karpenter.k8s.aws/instance-gpu-name",
    "cloud.google.com/gke-accelerator",
    "cluster-api/accelerator",
    "accelerator",
];
/// Labels with the memory of one GPU in MiB.
const MEMORY_LABELS: [&str; 2] = ["nvidia.com/gpu.memory", "karpenter.k8s.aws/instance-gpu-memory"];
/// Label prefixes under which node feature discovery lists PCI devices: `pci-0302_10de_1eb8.present`.
const PCI_LABEL: &str = "feature.node.kubernetes.io/pci-";
/// Parts of a product name that do not identify the model.
const NO_MODEL: [&str; 12] =
    ["nvidia", "tesla", "amd", "intel", "pcie", "sxm2", "sxm3", "sxm4", "sxm5", "gpu", "hbm3", "hbm2"];

/// Whether a resource counts GPUs.
pub(crate) fn is_gpu_resource(name: &str) -> bool {
    Vendor::ALL.iter().any(|vendor| vendor.resource() == name) || MORE_RESOURCES.contains(&name)
}

/// The resource by which pods get GPUs of a node, with how many of them. A node with cards of several makers has several
/// resources; the largest one counts.
pub(crate) fn gpu_resource(node: &Node) -> Option<(String, u64)> {
    let allocatable = node.status.as_ref()?.allocatable.as_ref()?;
    let gpus = allocatable.iter().filter(|(name, _)| is_gpu_resource(name));
    let counted = gpus.map(|(name, amount)| (name, quantity::parse_units(&amount.0).unwrap_or_default()));
    let largest = counted.filter(|(_, count)| *count > 0).max_by(|one, other| (one.1, other.0).cmp(&(other.1, one.0)));
    largest.map(|(name, count)| (name.clone(), count))
}

/// The amount of a resource that a pod holds on its node: containers run in parallel, init containers before them.
pub(crate) fn requested(pod: &Pod, resource: &str, parse: fn(&str) -> Option<u64>) -> u64 {
    let Some(spec) = &pod.spec else { return 0 };
    let of = |resources: Option<&ResourceRequirements>| -> u64 {
        let Some(resources) = resources else { return 0 };
        let amount = |list: &Option<BTreeMap<String, _>>| {
            list.as_ref().and_then(
                |list: &BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>| {
                    list.get(resource).and_then(|amount| parse(&amount.0))
                },
            )
        };
        amount(&resources.requests).or_else(|| amount(&resources.limits)).unwrap_or_default()
    };
    let running: u64 = spec.containers.iter().map(|container| of(container.resources.as_ref())).sum();
    let (mut sidecars, mut most) = (0u64, 0u64);
    for container in spec.init_containers.iter().flatten() {
        let amount = of(container.resources.as_ref());
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars += amount;
            most = most.max(sidecars);
        } else {
            most = most.max(sidecars + amount);
        }
    }
    let overhead = spec.overhead.as_ref().and_then(|list| list.get(resource)).and_then(|amount| parse(&amount.0));
    most.max(running + sidecars) + overhead.unwrap_or_default()
}

/// Whole units, parts of one rounded up.
pub(crate) fn units(text: &str) -> Option<u64> {
    quantity::parse_units(text).ok()
}

/// Thousandths.
pub(crate) fn milli(text: &str) -> Option<u64> {
    quantity::parse_milli(text).ok()
}

/// The table of cards as it is looked up. Every pass asks for each card of each host, so that its names are taken apart
/// once.
struct Cards {
    by_id: HashMap<String, &'static gpu::Gpu>,
    /// Cards whose name tells one model from another, with those words.
    by_words: Vec<(Vec<String>, &'static gpu::Gpu)>,
}

static CARDS: LazyLock<Cards> = LazyLock::new(|| {
    let of_words = gpu::all().iter().map(|card| (words(card.name), card));
    Cards {
        by_id: gpu::all().iter().map(|card| (card.id.to_string(), card)).collect(),
        by_words: of_words.filter(|(words, _)| !words.is_empty()).collect(),
    }
});

/// The model of a node's GPUs, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model {
    /// As people read it: `Tesla T4`.
    pub(crate) name: Option<String>,
    /// Vendor and device: `10de:1eb8`.
    pub(crate) id: Option<String>,
    /// Memory of one GPU.
    pub(crate) memory_mib: Option<u64>,
}

impl Model {
    /// From the labels of a node.
    pub(crate) fn of_labels(labels: &BTreeMap<String, String>) -> Self {
        let label = |names: &[&str]| names.iter().find_map(|name| labels.get(*name)).cloned();
        let id = labels.keys().find_map(|key| pci_id(key));
        let name = label(&MODEL_LABELS).map(|name| name.replace(['-', '_'], " "));
        let memory_mib = label(&MEMORY_LABELS).and_then(|text| text.parse().ok());
        Self { name, id, memory_mib }.completed()
    }

    /// From a card that vCenter knows.
    pub(crate) fn of_card(card: &millpond_vsphere::inventory::Gpu) -> Self {
        let memory_mib = Some(card.memory_mib).filter(|memory| *memory > 0);
        Self { name: Some(card.name.clone()), id: Some(card.model_id()), memory_mib }.completed()
    }

    /// The model that a job asks for: by name, or by vendor and device.
    pub(crate) fn asked(text: &str) -> Self {
        let text = text.trim().to_owned();
        let (name, id) = if text.contains(':') { (None, Some(text.to_ascii_lowercase())) } else { (Some(text), None) };
        Self { name, id, memory_mib: None }.completed()
    }

    /// Fills gaps from another source.
    pub(crate) fn or(self, other: Self) -> Self {
        let (name, id) = (self.name.or(other.name), self.id.or(other.id));
        Self { name, id, memory_mib: self.memory_mib.or(other.memory_mib) }
    }

    /// Fills gaps from the table of cards. A name that several cards share fills nothing.
    fn completed(self) -> Self {
        let Some(card) = self.card() else { return self };
        let memory = u64::from(card.memory_gib) << 10;
        self.or(Self { name: Some(card.full_name()), id: Some(card.id.to_string()), memory_mib: Some(memory) })
    }

    /// The only card of the table that it can be.
    fn card(&self) -> Option<&'static gpu::Gpu> {
        if let Some(id) = &self.id {
            return CARDS.by_id.get(id).copied();
        }
        let own = words(self.name.as_deref()?);
        let is_named = |(wanted, _): &&(Vec<String>, &gpu::Gpu)| wanted.iter().all(|word| own.contains(word));
        let mut found = CARDS.by_words.iter().filter(is_named).map(|(_, card)| *card);
        found.next().filter(|_| found.next().is_none())
    }

    /// All names by which a job can request the model.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: BTreeSet<String> = self.id.iter().cloned().collect();
        if let Some(name) = &self.name {
            names.insert(name.clone());
            names.insert(name.replace(' ', "-"));
            names.extend(words(name));
            let told: Vec<&str> =
                name.split(' ').skip_while(|word| NO_MODEL.contains(&word.to_ascii_lowercase().as_str())).collect();
            names.insert(told.join(" "));
            names.insert(told.join("-"));
        }
        names.into_iter().filter(|name| !name.is_empty()).collect()
    }
}

/// The words of a product name that tell one model from another: `t4`, `a100`, not `nvidia`, `pcie` or `40gb`.
fn words(name: &str) -> Vec<String> {
    let parts = name.split([' ', '-', '[', ']', '(', ')', '/']).map(str::to_ascii_lowercase);
    let is_size = |word: &str| word.strip_suffix("gb").is_some_and(|number| number.parse::<u32>().is_ok());
    let tells = |word: &String| {
        word.chars().any(|c| c.is_ascii_digit())
            && word.chars().any(|c| c.is_ascii_alphabetic())
            && !is_size(word)
            && !NO_MODEL.contains(&word.as_str())
    };
    parts.filter(tells).collect()
}

/// Vendor and device of a label of node feature discovery.
fn pci_id(key: &str) -> Option<String> {
    let fields: Vec<&str> = key.strip_prefix(PCI_LABEL)?.strip_suffix(".present")?.split('_').collect();
    let [class, vendor, device] = fields[..] else { return None };
    let is_card = matches!(class, "0300" | "0302" | "0380" | "1200");
    is_card.then(|| format!("{}:{}", vendor.to_ascii_lowercase(), device.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn labels_name_the_model() {
        let model = Model::of_labels(&labels(&[("nvidia.com/gpu.product", "Tesla-T4")]));
        assert_eq!((model.id.as_deref(), model.memory_mib), (Some("10de:1eb8"), Some(16384)));
        for name in ["T4", "tesla t4", "Tesla-T4", "10de:1eb8"] {
            assert!(model.names().iter().any(|known| known.eq_ignore_ascii_case(name)), "{name}: {:?}", model.names());
        }
        // Forty or eighty: the name alone does not say.
        let model = Model::of_labels(&labels(&[("nvidia.com/gpu.product", "NVIDIA-A100-SXM4")]));
        assert_eq!((model.id.as_deref(), model.memory_mib), (None, None));
        assert!(model.names().contains(&"a100".to_owned()) && !model.names().contains(&"sxm4".to_owned()));
        let model = Model::of_labels(&labels(&[("feature.node.kubernetes.io/pci-0302_10DE_1eb8.present", "true")]));
        assert_eq!(model.name.as_deref(), Some("NVIDIA T4"));
        let network = labels(&[("feature.node.kubernetes.io/pci-0200_15b3_1017.present", "true")]);
        assert_eq!(Model::of_labels(&network), Model::default());
    }

    #[test]
    fn pods_keep_what_their_containers_request() {
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "containers": [
                {"name": "a", "resources": {"requests": {"nvidia.com/gpu": "1"}}},
                {"name": "b", "resources": {"limits": {"nvidia.com/gpu": "2"}}},
            ],
            "initContainers": [
                {"name": "i", "resources": {"requests": {"nvidia.com/gpu": "4"}}},
                {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"nvidia.com/gpu": "2"}}},
            ],
        }}))
        .unwrap();
        assert_eq!(requested(&pod, "nvidia.com/gpu", units), 5);
        assert_eq!(requested(&pod, "amd.com/gpu", units), 0);
    }

    #[test]
    fn the_largest_resource_counts() {
        let node =
            |allocatable| -> Node { serde_json::from_value(json!({"status": {"allocatable": allocatable}})).unwrap() };
        let both = node(json!({"nvidia.com/gpu": "2", "amd.com/gpu": "4", "cpu": "8"}));
        assert_eq!(gpu_resource(&both), Some(("amd.com/gpu".to_owned(), 4)));
        assert_eq!(gpu_resource(&node(json!({"nvidia.com/gpu": "0"}))), None);
    }
}
