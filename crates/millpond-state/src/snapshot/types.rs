//! Instance types of a catalogue for a pool: with kubelet's settings and the overlays' prices.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use millpond_api::catalog::{self, Catalog};
use millpond_api::node_class::{Kubelet, UnavailableOffering};
use millpond_api::selector::LabelValues;
use millpond_plan::model::{
    CPU, CapacityType, InstanceType, MEMORY, Offering, PODS, Resources, STORAGE, Snapshot, TypeId, Types,
};
use millpond_plan::requirement::{Requirement, Requirements};
use millpond_plan::symbol::Symbol;

/// The inputs of a list of types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypesKey {
    pub(super) catalog: String,
    pub(super) kubelet: Kubelet,
    /// Names of overlays; `None` for all of them.
    pub(super) overlays: Option<Vec<String>>,
    /// Offerings that are out of stock, by type, zone and capacity type.
    pub(super) missing: Vec<UnavailableOffering>,
    /// Labels of the pool that overlays ask for.
    pub(super) labels: LabelValues,
}

/// Types of a catalogue in the words of a state's tables.
#[derive(Debug)]
pub(crate) struct Lowered {
    pub(super) key: TypesKey,
    types: Types,
    well_known: Vec<Symbol>,
    /// Where the types of a name stand.
    by_name: HashMap<Symbol, Vec<usize>, FixedState>,
}

impl Lowered {
    /// Builds the list from a catalogue and its overlays. Adds their texts to the tables.
    pub(super) fn new(key: TypesKey, catalog: &Catalog, tables: &mut Snapshot) -> Self {
        let before = tables.well_known.clone();
        add(catalog, &key.kubelet, tables);
        let types = std::mem::take(&mut tables.types);
        // Whose catalogue it is may change: then its labels are no longer well known.
        let well_known = std::mem::replace(&mut tables.well_known, before);
        let mut by_name: HashMap<Symbol, Vec<usize>, FixedState> = HashMap::default();
        for (index, of) in types.iter().enumerate() {
            by_name.entry(of.name).or_default().push(index);
        }
        Self { key, types, well_known, by_name }
    }

    /// Whether these are the types of the catalogue of that name.
    pub(crate) fn is_of(&self, catalog: &str) -> bool {
        self.key.catalog == catalog
    }

    /// Where types of that name stand among them.
    pub(super) fn named(&self, name: Symbol) -> &[usize] {
        self.by_name.get(&name).map_or(&[], Vec::as_slice)
    }

    /// Adds the types to a snapshot that began with the same tables.
    pub(super) fn add_to(&self, snapshot: &mut Snapshot) -> Vec<TypeId> {
        let first = snapshot.types.len();
        if first == 0 {
            snapshot.types = self.types.clone();
        } else {
            snapshot.types.extend(self.types.iter().cloned());
        }
        snapshot.well_known.extend(&self.well_known);
        snapshot.well_known.sort_unstable();
        snapshot.well_known.dedup();
        (first..snapshot.types.len()).map(TypeId::from).collect()
    }
}

/// Adds the types of a catalogue to a snapshot, as the nodes of a pool without settings of its own have them.
pub fn add_types(catalog: &Catalog, snapshot: &mut Snapshot) -> Vec<TypeId> {
    add(catalog, &Kubelet::default(), snapshot)
}

/// Adds the types of a catalogue, at the prices that it says.
pub(super) fn add(catalog: &Catalog, kubelet: &Kubelet, snapshot: &mut Snapshot) -> Vec<TypeId> {
    add_well_known(catalog, snapshot);
    let mut ids = Vec::with_capacity(catalog.types.len());
    for of in &catalog.types {
        let lowered = lower(catalog, of, kubelet, snapshot);
        ids.push(TypeId::from(snapshot.types.len()));
        snapshot.types.push(lowered);
    }
    ids
}

/// Marks what is out of stock; `missing` is sorted by type.
pub(super) fn mark_missing(missing: &[UnavailableOffering], types: &[TypeId], snapshot: &mut Snapshot) {
    if missing.is_empty() {
        return;
    }
    for id in types {
        let of = &mut snapshot.types[id.index()];
        let name = snapshot.symbols.text(of.name);
        let from = missing.partition_point(|missing| missing.instance_type.as_str() < name);
        for missing in missing[from..].iter().take_while(|missing| missing.instance_type == name) {
            let is = |offering: &&mut Offering| {
                snapshot.symbols.text(offering.zone) == missing.zone
                    && offering.capacity_type.name() == missing.capacity_type
            };
            of.offerings.iter_mut().filter(is).for_each(|offering| offering.available = false);
        }
    }
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
    let capacity = resources(&of.node_capacity(kubelet), snapshot);
    let allocatable = resources(&of.node_allocatable(kubelet), snapshot);
    let name = snapshot.symbols.intern(&of.name);
    InstanceType { name, capacity, allocatable, labels: labels.into(), offerings, priority: 0 }
}

fn resources(of: &catalog::Resources, snapshot: &mut Snapshot) -> Resources {
    let amount = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    let mut resources: Resources = [
        (CPU, amount(of.cpu_milli)),
        (MEMORY, amount(of.memory_bytes)),
        (STORAGE, amount(of.storage_bytes)),
        (PODS, i64::from(of.pods)),
    ]
    .into_iter()
    .collect();
    for (name, count) in &of.extended {
        resources.set(snapshot.resources.intern(name), amount(*count));
    }
    resources
}

/// Labels that the provider fills in: a pod may ask for them though no pool speaks of them.
fn add_well_known(catalog: &Catalog, snapshot: &mut Snapshot) {
    let all: Vec<Symbol> = catalog.well_known().map(|key| snapshot.symbols.intern(key)).collect();
    snapshot.well_known.extend(all);
    snapshot.well_known.sort_unstable();
    snapshot.well_known.dedup();
}
