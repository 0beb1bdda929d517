//! The capacity, price and labels of a group's node before one exists.
//!
//! The best source is an existing ready node of the group. Otherwise annotations and templates give the machine's
//! capacity, from which the reserved resources are subtracted: those that the bootstrap template tells the kubelet to
//! reserve, and those that kubelet and kernel use.

use std::collections::BTreeMap;

use millpond_api::amounts::{self, Amounts};
use millpond_api::catalog::{self, built_in, synthetic};
use millpond_api::labels;
use millpond_api::selector::LabelValues;
use millpond_plan::model::{CPU, MEMORY, Nanos, PODS, Resources, STORAGE, Snapshot};
use serde_json::Value;

use super::SnapshotBuilder;
use super::gather::Group;
use crate::groups::{REMEMBERED_ANNOTATION, Remembered};
use crate::lower::node::NodeEntry;

/// Memory below which the kubelet evicts, by default.
const EVICTION_BYTES: i64 = 100 << 20;
/// Share of a machine's memory that kernel and firmware use, in thousandths: the node reports that much less. Measured
/// values lie between one and five per cent.
const KERNEL_MILLI: i64 = 30;
/// Share of the disk that the kubelet keeps free by default, in thousandths.
const DISK_FREE_MILLI: i64 = 100;
/// What a GPU adds to an estimated price, in nano-dollars per hour: enough to make it dearer than any suitable machine
/// without one.
const GPU_NANOS: u64 = 1_000_000_000;
/// Labels that are each node's own.
const OWN: [&str; 2] = [labels::HOSTNAME, "node.kubernetes.io/instance-id"];

/// A node of a group.
#[derive(Debug, Clone)]
pub(super) struct Size {
    pub(super) capacity: Resources,
    pub(super) allocatable: Resources,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) price: Nanos,
}

impl SnapshotBuilder<'_> {
    /// The resources of a group's nodes; `None` if they are unknown.
    pub(super) fn group_size(&mut self, group: &Group<'_>) -> Option<Size> {
        let (mut capacity, mut allocatable) = self.group_capacity(group)?;
        for (driver, limit) in &group.offer.attach_limits {
            let id = self.snapshot.resources.intern(&format!("attachable-volumes-{driver}"));
            allocatable.set(id, *limit);
        }
        // Templates have no storage, and without it a pod that requests some would fit nowhere.
        for resources in [&mut capacity, &mut allocatable] {
            if resources.get(STORAGE) == 0 {
                let usual = catalog::overhead::default_storage_bytes(self.options.default_catalog().provider);
                resources.set(STORAGE, i64::try_from(usual).unwrap_or(i64::MAX));
            }
        }
        let labels = self.group_labels(group);
        let price = self.group_price(group, &capacity, &labels);
        Some(Size { capacity, allocatable, labels, price })
    }

    fn group_capacity(&mut self, group: &Group<'_>) -> Option<(Resources, Resources)> {
        if let Some(node) = newest(group) {
            let (mut capacity, mut allocatable) = (node.capacity.clone(), node.allocatable.clone());
            // Devices in the group's capacity that the node does not report yet will still come.
            for (name, amount) in group.offer.capacity.iter().filter(|(name, _)| name.contains('/')) {
                let id = self.snapshot.resources.intern(name);
                if allocatable.get(id) == 0 {
                    capacity.set(id, amount);
                    allocatable.set(id, amount);
                }
            }
            return Some((capacity, allocatable));
        }
        if group.offer.is_sized() {
            let capacity = self.amounts(&group.offer.capacity);
            let allocatable = self.without_reserved(&capacity, &reserved(group.bootstrap));
            return Some((capacity, allocatable));
        }
        let mut known = self.machine_type(group).or_else(|| self.remembered(group))?;
        for (name, amount) in group.offer.capacity.iter().filter(|(name, _)| *name != "pods") {
            let id = self.snapshot.resources.intern(name);
            let less = known.0.get(id) - known.1.get(id);
            known.0.set(id, amount);
            known.1.set(id, (amount - less.max(0)).max(0));
        }
        Some(known)
    }

    /// The resources that a catalogue has for the instance type of the machine template.
    fn machine_type(&mut self, group: &Group<'_>) -> Option<(Resources, Resources)> {
        let of = self.catalog_type(group)?;
        let lowered = |of: &catalog::Resources| -> Amounts {
            let amount = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
            let mut all = BTreeMap::from([
                ("cpu".to_owned(), amount(of.cpu_milli)),
                ("memory".to_owned(), amount(of.memory_bytes)),
                ("ephemeral-storage".to_owned(), amount(of.storage_bytes)),
                ("pods".to_owned(), i64::from(of.pods)),
            ]);
            all.extend(of.extended.iter().map(|(name, count)| (name.clone(), amount(*count))));
            Amounts(all)
        };
        let (capacity, allocatable) = (lowered(&of.capacity()), lowered(&of.allocatable()));
        Some((self.amounts(&capacity), self.amounts(&allocatable)))
    }

    fn catalog_type(&self, group: &Group<'_>) -> Option<&catalog::InstanceType> {
        let name = group.offer.machine_type.as_deref()?;
        let shipped = |catalog: &str| built_in(catalog).and_then(|catalog| catalog.find(name));
        let own = self.options.default_catalog().find(name);
        own.or_else(|| shipped("aws")).or_else(|| shipped("gcp"))
    }

    /// The resources of the last node, from the group's annotation.
    fn remembered(&mut self, group: &Group<'_>) -> Option<(Resources, Resources)> {
        let Remembered { capacity, allocatable, .. } = remembered(group)?;
        (!allocatable.is_empty()).then(|| (self.amounts(&capacity), self.amounts(&allocatable)))
    }

    fn amounts(&mut self, amounts: &Amounts) -> Resources {
        amounts.iter().map(|(name, amount)| (self.snapshot.resources.intern(name), amount)).collect()
    }

    fn without_reserved(&mut self, capacity: &Resources, reserved: &Reserved) -> Resources {
        let mut allocatable = capacity.clone();
        let mut take = |id, amount: i64| {
            let left = allocatable.get(id).saturating_sub(amount).max(0);
            if allocatable.get(id) > 0 {
                allocatable.set(id, left);
            }
        };
        take(MEMORY, capacity.get(MEMORY) / 1000 * KERNEL_MILLI);
        take(MEMORY, reserved.eviction_bytes.unwrap_or(EVICTION_BYTES));
        take(STORAGE, capacity.get(STORAGE) / 1000 * DISK_FREE_MILLI);
        for (name, amount) in &reserved.amounts {
            take(self.snapshot.resources.intern(name), *amount);
        }
        if let Some(pods) = reserved.max_pods {
            allocatable.set(PODS, pods);
        }
        allocatable
    }

    fn group_labels(&self, group: &Group<'_>) -> BTreeMap<String, String> {
        let mut all = BTreeMap::from([
            (labels::ARCH.to_owned(), "amd64".to_owned()),
            (labels::OS.to_owned(), "linux".to_owned()),
        ]);
        if let Some(name) = &group.offer.machine_type {
            all.insert(labels::INSTANCE_TYPE.to_owned(), name.clone());
        }
        all.extend(remembered(group).map(|it| it.labels).unwrap_or_default());
        let infrastructure = group.entry.deployment.template.infrastructure.as_ref().map(|it| it.kind.as_str());
        // Other providers call their failure domains by other names than those on nodes.
        let by_zone = infrastructure.is_some_and(|kind| kind.starts_with("AWS") || kind.starts_with("GCP"));
        if let Some(zone) = group.entry.deployment.template.failure_domain.as_ref().filter(|_| by_zone) {
            all.insert(labels::ZONE.to_owned(), zone.clone());
        }
        all.extend(group.offer.labels.iter().map(|(key, value)| (key.clone(), value.clone())));
        all.extend(common_labels(group, &self.snapshot));
        all
    }

    /// The price of a node: from the annotation, from the catalogue, or an estimate from its size. Overlays change all
    /// but the first.
    fn group_price(&self, group: &Group<'_>, capacity: &Resources, labels: &BTreeMap<String, String>) -> Nanos {
        if let Some(price) = group.scaled.as_ref().and_then(|scaled| scaled.price_nanos_hour) {
            return price;
        }
        let listed = self.catalog_type(group).and_then(|of| of.cheapest(|_| true)).map(|it| it.price_nanos_hour);
        let base = listed.unwrap_or_else(|| {
            let amount = |id| u64::try_from(capacity.get(id)).unwrap_or(0);
            let gpus = group.offer.gpu.as_ref().map_or(0, |(_, count)| u64::try_from(*count).unwrap_or(0));
            synthetic::kwok_price(amount(CPU), amount(MEMORY)).saturating_add(gpus.saturating_mul(GPU_NANOS))
        });
        if self.options.overlays.is_empty() && self.overlays.used.is_empty() {
            return base;
        }
        let mut values: LabelValues = labels.iter().map(|(key, value)| (key.clone(), vec![value.clone()])).collect();
        values.insert(labels::NODE_POOL.to_owned(), vec![group.of.to_string()]);
        let overlays = self.options.overlays.iter().chain(&self.overlays.used);
        catalog::overlay::price_of(base, &values, overlays)
    }
}

/// Labels that all nodes of a group have in common, but for those that are each node's own.
pub(super) fn common_labels(group: &Group<'_>, tables: &Snapshot) -> BTreeMap<String, String> {
    let text = |symbol| tables.text(symbol).to_owned();
    let mut nodes = group.nodes().filter(|(_, node)| node.ready);
    let Some((_, first)) = nodes.next() else { return BTreeMap::new() };
    let mut common: Vec<_> = first.labels.iter().collect();
    nodes.for_each(|(_, node)| common.retain(|(key, value)| node.labels.get(*key) == Some(*value)));
    let common = common.into_iter().map(|(key, value)| (text(key), text(value)));
    common.filter(|(key, _)| !OWN.contains(&key.as_str())).collect()
}

/// The newest node that is ready: what comes next is most like it.
pub(super) fn newest<'s>(group: &Group<'s>) -> Option<&'s NodeEntry> {
    let ready = group
        .nodes()
        .filter(|(_, node)| node.ready && node.allocatable.get(CPU) > 0 && node.allocatable.get(MEMORY) > 0);
    ready.max_by_key(|(name, node)| (node.created, *name)).map(|(_, node)| node)
}

pub(super) fn remembered(group: &Group<'_>) -> Option<Remembered> {
    let text = group.entry.metadata.annotations.get(REMEMBERED_ANNOTATION)?;
    serde_json::from_str(text).ok()
}

/// Reservations in a kubelet's configuration.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reserved {
    amounts: BTreeMap<String, i64>,
    eviction_bytes: Option<i64>,
    max_pods: Option<i64>,
}

/// What a bootstrap template tells the kubelet to reserve: `kube-reserved`, `system-reserved`, `eviction-hard`,
/// `max-pods`.
fn reserved(bootstrap: Option<&Value>) -> Reserved {
    let mut reserved = Reserved::default();
    let Some(bootstrap) = bootstrap else { return reserved };
    let arguments = &bootstrap["spec"]["template"]["spec"]["joinConfiguration"]["nodeRegistration"]["kubeletExtraArgs"];
    let argument = |name: &str| match arguments {
        Value::Object(map) => map.get(name).and_then(Value::as_str),
        Value::Array(list) => list.iter().rfind(|it| it["name"] == name).and_then(|it| it["value"].as_str()),
        _ => None,
    };
    for text in ["kube-reserved", "system-reserved"].into_iter().filter_map(argument) {
        for (name, amount) in text.split(',').filter_map(|part| part.trim().split_once('=')) {
            if let Ok(amount) = amounts::parse(name, amount.trim()) {
                *reserved.amounts.entry(name.to_owned()).or_default() += amount;
            }
        }
    }
    let evictions = argument("eviction-hard").unwrap_or_default();
    let memory = evictions.split(',').find_map(|part| part.trim().strip_prefix("memory.available<"));
    reserved.eviction_bytes = memory.and_then(|text| amounts::parse("memory", text).ok());
    reserved.max_pods = argument("max-pods").and_then(|text| text.parse().ok());
    reserved
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_kubelet_keeps_is_read_in_both_forms() {
        let template = |arguments: Value| {
            let registration = json!({"nodeRegistration": {"kubeletExtraArgs": arguments}});
            json!({"spec": {"template": {"spec": {"joinConfiguration": registration}}}})
        };
        let map = json!({"kube-reserved": "cpu=100m,memory=256Mi", "system-reserved": "memory=100Mi",
            "eviction-hard": "memory.available<200Mi,nodefs.available<10%", "max-pods": "60"});
        let list: Value =
            map.as_object().unwrap().iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let (map, list) = (template(map), template(list));
        let read = reserved(Some(&map));
        assert_eq!(read, reserved(Some(&list)));
        assert_eq!(read.amounts, BTreeMap::from([("cpu".to_owned(), 100), ("memory".to_owned(), 356 << 20)]));
        assert_eq!((read.eviction_bytes, read.max_pods), (Some(200 << 20), Some(60)));
        assert_eq!(reserved(None), Reserved::default());
    }
}
