//! Types of a catalogue as a pool's nodes would have them: with kubelet's settings and the prices that hold.

use millpond_api::amounts::Amounts;
use millpond_api::catalog::overhead::Reserved;
use millpond_api::catalog::{self, Catalog, Provider, overlay};
use millpond_api::labels;
use millpond_api::node_class::Kubelet;
use millpond_plan::model::{
    CPU, CapacityType, InstanceType, MEMORY, Offering, PODS, Resources, STORAGE, Snapshot, TypeId,
};
use millpond_plan::requirement::{Requirement, Requirements};
use millpond_plan::symbol::Symbol;

/// What a list of types depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TypesKey {
    pub(super) catalog: String,
    pub(super) kubelet: Kubelet,
    /// Names of overlays; none for all of them.
    pub(super) overlays: Option<Vec<String>>,
}

/// Adds the types of a catalogue to a snapshot, as the nodes of a pool without settings of its own have them.
pub fn add_types(catalog: &Catalog, snapshot: &mut Snapshot) -> Vec<TypeId> {
    add(catalog, &Kubelet::default(), &[], snapshot)
}

/// Adds the types of a catalogue.
pub(super) fn add(
    catalog: &Catalog,
    kubelet: &Kubelet,
    overlays: &[overlay::Overlay],
    snapshot: &mut Snapshot,
) -> Vec<TypeId> {
    let changed = (!overlays.is_empty()).then(|| {
        let mut changed = catalog.clone();
        overlay::apply(&mut changed, overlays);
        changed
    });
    let catalog = changed.as_ref().unwrap_or(catalog);
    add_well_known(catalog, snapshot);
    let mut ids = Vec::with_capacity(catalog.types.len());
    for of in &catalog.types {
        let lowered = lower(catalog, of, kubelet, snapshot);
        ids.push(TypeId::from(snapshot.types.len()));
        snapshot.types.push(lowered);
    }
    ids
}

fn lower(catalog: &Catalog, of: &catalog::InstanceType, kubelet: &Kubelet, snapshot: &mut Snapshot) -> InstanceType {
    let mut labels = Requirements::new();
    for (key, values) in catalog.labels(of) {
        let values: Vec<Symbol> = values.iter().map(|value| snapshot.symbols.intern(value)).collect();
        let key = snapshot.symbols.intern(&key);
        labels.add(key, Requirement::one_of(values), &snapshot.symbols);
    }
    let offerings = of.offerings.iter().map(|offering| Offering {
        zone: snapshot.symbols.intern(&offering.zone),
        capacity_type: match offering.capacity_type {
            catalog::CapacityType::OnDemand => CapacityType::OnDemand,
            catalog::CapacityType::Spot => CapacityType::Spot,
            catalog::CapacityType::Reserved => CapacityType::Reserved,
        },
        price: offering.price_nanos_hour,
        available: offering.available,
        left: offering.reservation_count,
    });
    let offerings = offerings.collect();
    let capacity = capacity(of, kubelet, snapshot);
    let mut allocatable = capacity.clone();
    allocatable.subtract(&reserved(of, kubelet));
    for resource in [CPU, MEMORY, STORAGE] {
        allocatable.set(resource, allocatable.get(resource).max(0));
    }
    InstanceType { name: snapshot.symbols.intern(&of.name), capacity, allocatable, labels, offerings }
}

fn amount(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

fn capacity(of: &catalog::InstanceType, kubelet: &Kubelet, snapshot: &mut Snapshot) -> Resources {
    let sold = of.capacity();
    let mut capacity: Resources = [
        (CPU, amount(sold.cpu_milli)),
        (MEMORY, amount(sold.memory_bytes)),
        (STORAGE, amount(sold.storage_bytes)),
        (PODS, i64::from(pods(of, kubelet))),
    ]
    .into_iter()
    .collect();
    for (name, count) in &sold.extended {
        capacity.set(snapshot.resources.intern(name), amount(*count));
    }
    capacity
}

fn pods(of: &catalog::InstanceType, kubelet: &Kubelet) -> u32 {
    let most = kubelet.max_pods.unwrap_or(of.pods);
    let cores = u32::try_from(of.cpu_milli.div_ceil(1000)).unwrap_or(u32::MAX);
    kubelet.pods_per_core.map_or(most, |per_core| most.min(per_core.saturating_mul(cores)))
}

/// What is kept from pods: the provider's rule, each part of which a setting of kubelet replaces.
fn reserved(of: &catalog::InstanceType, kubelet: &Kubelet) -> Resources {
    let overhead = &of.overhead;
    let parts = [
        with_settings(overhead.kube_reserved, kubelet.kube_reserved.as_ref()),
        with_settings(overhead.system_reserved, kubelet.system_reserved.as_ref()),
        with_settings(overhead.eviction_threshold, None),
    ];
    let mut sum = Resources::new();
    parts.iter().for_each(|part| sum.add(part));
    sum
}

fn with_settings(rule: Reserved, settings: Option<&Amounts>) -> Resources {
    let setting = |name| settings.and_then(|settings| settings.get(name));
    [
        (CPU, setting("cpu").unwrap_or(amount(rule.cpu_milli))),
        (MEMORY, setting("memory").unwrap_or(amount(rule.memory_bytes))),
        (STORAGE, setting("ephemeral-storage").unwrap_or(amount(rule.storage_bytes))),
    ]
    .into_iter()
    .collect()
}

/// Labels that the provider fills in: a pod may ask for them though no pool speaks of them.
fn add_well_known(catalog: &Catalog, snapshot: &mut Snapshot) {
    let provider = match catalog.provider {
        Provider::Aws => labels::aws::WELL_KNOWN,
        Provider::Gcp => labels::gcp::WELL_KNOWN,
        Provider::Kwok => labels::kwok::WELL_KNOWN,
        Provider::Generic => &[],
    };
    let own = catalog.types.iter().flat_map(|of| of.labels.keys()).map(String::as_str);
    let all: Vec<Symbol> = provider.iter().copied().chain(own).map(|key| snapshot.symbols.intern(key)).collect();
    snapshot.well_known.extend(all);
    snapshot.well_known.sort_unstable();
    snapshot.well_known.dedup();
}
