//! Own hosts as instance types: hosts that are alike are one type, and the free ones are what is left of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use millpond_api::amounts::Amounts;
use millpond_api::byoh::{ByoHost, names};
use millpond_api::catalog::overhead::{DEFAULT_PODS, MIB, Overhead, Reserved};
use millpond_api::catalog::{CapacityType, Catalog, InstanceType, Offering, Provider, naming};
use millpond_api::labels;
use millpond_api::node_class::NodeClass;
use millpond_providers::OfferingKey;
use ring::digest::{SHA256, digest};

use crate::inventory::capacity;
use crate::release::NODE_CLAIM;

/// Zone of hosts without the label `topology.kubernetes.io/zone`.
pub(super) const ZONE: &str = "hosts";
/// Machines that are alike differ by some pages of memory.
const MEMORY_STEP: u64 = 64 * MIB;
/// By default, kubelet evicts pods when less than this is left.
const EVICTION: Reserved = Reserved { cpu_milli: 0, memory_bytes: 100 * MIB, storage_bytes: 0 };
/// For each device a host costs this much more: of hosts that would do, plans take those without devices.
const NANOS_PER_DEVICE: u64 = 1_000;
/// The most letters of a label's value.
const LIMIT_NAME: usize = 63;

/// A host of a class.
pub(super) struct Stocked<'h> {
    pub(super) host: &'h ByoHost,
    /// A NodeClaim can have it now.
    pub(super) is_free: bool,
    /// What it was given to a NodeClaim as; its labels may have changed since, but not what the claim has.
    pub(super) given_as: Option<OfferingKey>,
}

impl Stocked<'_> {
    /// What it is bought as.
    pub(super) fn offering(&self) -> OfferingKey {
        self.given_as.clone().unwrap_or_else(|| offering(self.host))
    }
}

/// The offering that a host is.
pub(super) fn offering(host: &ByoHost) -> OfferingKey {
    let zone = host.metadata.labels.get(names::ZONE).map_or(ZONE, String::as_str);
    OfferingKey::new(type_name(host), zone, CapacityType::Reserved.name())
}

/// The catalogue of a class: all its hosts, also those that are in use, so that what they were bought as is known.
pub(super) fn catalog(class: &NodeClass, hosts: &[Stocked<'_>]) -> Catalog {
    let price = class.spec.hosts.as_ref().and_then(|hosts| hosts.price_per_hour).map_or(0, |dollars| dollars.0);
    let mut types: BTreeMap<String, InstanceType> = BTreeMap::new();
    for stocked in hosts {
        let OfferingKey { instance_type, zone, .. } = stocked.offering();
        let of = types.entry(instance_type.clone()).or_insert_with(|| instance_type_of(&instance_type, stocked.host));
        let left = u32::from(stocked.is_free);
        match of.offerings.iter_mut().find(|offering| *offering.zone == *zone) {
            Some(known) => known.reservation_count = known.reservation_count.map(|count| count + left),
            None => of.offerings.push(Offering {
                zone: zone.into(),
                capacity_type: CapacityType::Reserved,
                price_nanos_hour: price.saturating_add(devices(of).saturating_mul(NANOS_PER_DEVICE)),
                estimated: false,
                available: true,
                reservation_count: Some(left),
            }),
        }
    }
    let mut types: Vec<InstanceType> = types.into_values().collect();
    types.iter_mut().for_each(|of| of.offerings.sort_by(|a, b| a.zone.cmp(&b.zone)));
    let zones: BTreeSet<Arc<str>> =
        types.iter().flat_map(|of| of.offerings.iter().map(|offering| Arc::clone(&offering.zone))).collect();
    Catalog {
        // Classes have different hosts.
        name: format!("{}/{}", super::NAME, class.metadata.name),
        provider: Provider::Generic,
        region: String::new(),
        zones: zones.into_iter().collect(),
        spot_per_mille: None,
        source: "the hosts that are registered".to_owned(),
        types,
    }
}

fn instance_type_of(name: &str, host: &ByoHost) -> InstanceType {
    let Parts { cpu_milli, memory_bytes, storage_bytes, extended } = Parts::of(&capacity(host));
    let info = &host.status.host_info;
    let or = |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { text.to_owned() };
    InstanceType {
        name: name.to_owned(),
        arch: architecture(host),
        operating_systems: vec![or(&info.os_name, "linux")],
        cpu_milli,
        memory_bytes,
        storage_bytes,
        pods: DEFAULT_PODS,
        naming: naming::Naming::default(),
        gpu: None,
        local_nvme_gb: None,
        network_mbps: None,
        previous_generation: false,
        extended,
        labels: own_labels(host).map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        overhead: Overhead { eviction_threshold: EVICTION, ..Overhead::default() },
        offerings: Vec::new(),
    }
}

fn architecture(host: &ByoHost) -> String {
    let (facts, info) = (&host.status.facts.cpu.architecture, &host.status.host_info.architecture);
    let known = [facts, info].into_iter().find(|text| !text.is_empty());
    known.cloned().unwrap_or_else(|| "amd64".to_owned())
}

/// Devices of a type, huge pages not counted.
fn devices(of: &InstanceType) -> u64 {
    of.extended.iter().filter(|(name, _)| !name.starts_with("hugepages-")).map(|(_, count)| *count).sum()
}

/// Capacity by kind.
struct Parts {
    cpu_milli: u64,
    memory_bytes: u64,
    storage_bytes: u64,
    extended: BTreeMap<String, u64>,
}

impl Parts {
    fn of(capacity: &Amounts) -> Self {
        let mut parts = Self { cpu_milli: 0, memory_bytes: 0, storage_bytes: 0, extended: BTreeMap::new() };
        for (name, amount) in capacity.iter() {
            let amount = u64::try_from(amount).unwrap_or(0);
            match name {
                "cpu" => parts.cpu_milli = amount,
                "memory" => parts.memory_bytes = amount - amount % MEMORY_STEP,
                "ephemeral-storage" => parts.storage_bytes = amount,
                "pods" => {}
                _ => drop(parts.extended.insert(name.to_owned(), amount)),
            }
        }
        parts
    }
}

/// Labels that administrators gave a host: its nodes have them, and pods may ask for them.
fn own_labels(host: &ByoHost) -> impl Iterator<Item = (&str, &str)> {
    // Those of the dialect all end in one domain; the zone is part of the offering.
    let own =
        |key: &str| ![NODE_CLAIM, names::ZONE, labels::HOSTNAME].contains(&key) && !key.contains("cluster.x-k8s.io/");
    host.metadata.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).filter(move |(key, _)| own(key))
}

/// The type name of equal hosts: `4cpu-16gi-amd64-3f2a81c0`. The letters at the end are a hash of what the name leaves
/// out: devices, labels, the exact memory.
fn type_name(host: &ByoHost) -> String {
    let parts = Parts::of(&capacity(host));
    let arch = architecture(host);
    let mut words = format!("{}cpu-{}gi-{arch}", parts.cpu_milli / 1000, parts.memory_bytes >> 30);
    for (name, count) in &parts.extended {
        let short: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let _ = write!(words, "-{count}x{short}");
    }
    let labels: BTreeMap<&str, &str> = own_labels(host).collect();
    let exact = format!("{:?} {:?} {} {labels:?}", parts.extended, (parts.cpu_milli, parts.memory_bytes), arch);
    let hash: String =
        digest(&SHA256, exact.as_bytes()).as_ref()[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    words.truncate(LIMIT_NAME - hash.len() - 1);
    format!("{words}-{hash}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, memory: i64, gpus: i64, labels: &[(&str, &str)]) -> ByoHost {
        let mut host = ByoHost::default();
        host.metadata.name = name.to_owned();
        host.metadata.labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        host.metadata.labels.insert(names::HOST.to_owned(), name.to_owned());
        host.status.capacity =
            serde_json::from_value(serde_json::json!({"cpu": "4", "memory": memory.to_string()})).unwrap();
        if gpus > 0 {
            host.status.capacity.0.insert("nvidia.com/gpu".to_owned(), gpus);
        }
        host
    }

    fn class() -> NodeClass {
        let class =
            r#"{"metadata": {"name": "own"}, "spec": {"provider": "hosts", "hosts": {"pricePerHour": "0.10"}}}"#;
        serde_json::from_str(class).unwrap()
    }

    fn free(host: &ByoHost) -> Stocked<'_> {
        Stocked { host, is_free: true, given_as: None }
    }

    #[test]
    fn hosts_that_are_alike_are_one_type_with_so_many_left() {
        let gib = 1 << 30;
        let hosts = [
            host("a", 16 * gib, 0, &[]),
            // Some pages fewer.
            host("b", 16 * gib + 8192, 0, &[]),
            host("c", 16 * gib, 0, &[(labels::ZONE, "rack-2")]),
            host("d", 16 * gib, 1, &[("gpu", "true")]),
        ];
        let mut stock: Vec<Stocked<'_>> = hosts.iter().map(free).collect();
        stock[1].is_free = false;
        let catalog = catalog(&class(), &stock);
        assert_eq!(catalog.name, "hosts/own");
        let names: Vec<&str> = catalog.types.iter().map(|of| of.name.as_str()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        let plain = &catalog.types.iter().find(|of| of.extended.is_empty()).unwrap();
        let left: Vec<_> = plain.offerings.iter().map(|it| (&*it.zone, it.reservation_count)).collect();
        assert_eq!(left, [("hosts", Some(1)), ("rack-2", Some(1))], "b is in use");
        assert_eq!(plain.offerings[0].price_nanos_hour, 100_000_000);
        assert_eq!(plain.allocatable().memory_bytes, (16 << 30) - 100 * MIB);
        let gpu = &catalog.types.iter().find(|of| !of.extended.is_empty()).unwrap();
        assert!(gpu.offerings[0].price_nanos_hour > plain.offerings[0].price_nanos_hour, "taken last");
        assert!(gpu.name.starts_with("4cpu-16gi-amd64-1xnvidia-com-gpu-"), "{}", gpu.name);
        assert_eq!(gpu.labels.get("gpu").map(String::as_str), Some("true"));
        assert!(catalog.types.is_sorted_by_key(|of| of.name.clone()));
    }

    #[test]
    fn a_host_in_use_stays_what_it_was_given_as() {
        let mut relabelled = host("a", 1 << 34, 0, &[("purpose", "old")]);
        let before = offering(&relabelled);
        relabelled.metadata.labels.insert("purpose".to_owned(), "new".to_owned());
        assert_ne!(offering(&relabelled), before);
        let stocked = Stocked { host: &relabelled, is_free: false, given_as: Some(before.clone()) };
        let catalog = catalog(&class(), &[stocked]);
        assert_eq!(catalog.types[0].name, before.instance_type);
    }

    #[test]
    fn names_are_values_of_labels() {
        let mut many = host("a", 1 << 40, 0, &[]);
        for vendor in 0..20 {
            many.status.capacity.0.insert(format!("vendor-{vendor}.example.com/device"), 8);
        }
        let name = type_name(&many);
        assert!(labels::is_value(&name), "{name}");
    }
}
