//! From a catalogue to the planner's types.

use std::collections::BTreeSet;

use millpond_api::catalog::{Catalog, InstanceType as Machine, Provider, Resources as Amounts};
use millpond_api::labels;
use millpond_plan::model::{
    CPU, CapacityType, InstanceType, MEMORY, Offering, PODS, Resources, STORAGE, Snapshot, TypeId,
};
use millpond_plan::requirement::{Requirement, Requirements};

/// Adds the machines that a test lets pass; returns where they are.
pub(crate) fn add(snapshot: &mut Snapshot, catalog: &Catalog, keep: impl Fn(&Machine) -> bool) -> Vec<TypeId> {
    let defined = defined_labels(catalog);
    for key in &defined {
        let key = snapshot.symbols.intern(key);
        if let Err(place) = snapshot.well_known.binary_search(&key) {
            snapshot.well_known.insert(place, key);
        }
    }
    let mut added = Vec::new();
    for machine in catalog.types.iter().filter(|machine| keep(machine)) {
        let made = instance_type(snapshot, catalog, machine, &defined);
        added.push(TypeId::from(snapshot.types.len()));
        snapshot.types.push(made);
    }
    added
}

/// Labels that every type speaks of: those of the provider, and those that some type carries.
fn defined_labels(catalog: &Catalog) -> BTreeSet<String> {
    let of_provider: &[&str] = match catalog.provider {
        Provider::Aws => labels::aws::WELL_KNOWN,
        Provider::Gcp => labels::gcp::WELL_KNOWN,
        Provider::Kwok => labels::kwok::WELL_KNOWN,
        Provider::Generic => &[],
    };
    let carried = catalog.types.iter().flat_map(|machine| catalog.labels(machine).into_keys());
    of_provider.iter().map(|key| (*key).to_owned()).chain(carried).collect()
}

fn instance_type(
    snapshot: &mut Snapshot,
    catalog: &Catalog,
    machine: &Machine,
    defined: &BTreeSet<String>,
) -> InstanceType {
    let mut values = catalog.labels(machine);
    let zones = machine.offerings.iter().map(|offering| offering.zone.to_string());
    values.insert(labels::ZONE.to_owned(), zones.collect());
    let kinds = machine.offerings.iter().map(|offering| offering.capacity_type.name().to_owned());
    values.insert(labels::CAPACITY_TYPE.to_owned(), kinds.collect());
    let mut requirements = Requirements::new();
    for key in defined {
        let requirement = match values.get(key) {
            Some(values) => Requirement::one_of(values.iter().map(|value| snapshot.symbols.intern(value))),
            None => Requirement::does_not_exist(),
        };
        requirements.add(snapshot.symbols.intern(key), requirement, &snapshot.symbols);
    }
    InstanceType {
        name: snapshot.symbols.intern(&machine.name),
        capacity: amounts(snapshot, &machine.capacity()),
        allocatable: amounts(snapshot, &machine.allocatable()),
        labels: requirements,
        offerings: machine.offerings.iter().map(|offering| offer(snapshot, offering)).collect(),
    }
}

fn amounts(snapshot: &mut Snapshot, of: &Amounts) -> Resources {
    let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    let extended: Vec<_> =
        of.extended.iter().map(|(name, count)| (snapshot.resources.intern(name), signed(*count))).collect();
    let usual = [
        (CPU, signed(of.cpu_milli)),
        (MEMORY, signed(of.memory_bytes)),
        (PODS, i64::from(of.pods)),
        (STORAGE, signed(of.storage_bytes)),
    ];
    usual.into_iter().chain(extended).collect()
}

fn offer(snapshot: &mut Snapshot, offering: &millpond_api::catalog::Offering) -> Offering {
    use millpond_api::catalog::CapacityType as Kind;
    Offering {
        zone: snapshot.symbols.intern(&offering.zone),
        capacity_type: match offering.capacity_type {
            Kind::OnDemand => CapacityType::OnDemand,
            Kind::Spot => CapacityType::Spot,
            Kind::Reserved => CapacityType::Reserved,
        },
        price: offering.price_nanos_hour,
        available: offering.available,
        left: offering.reservation_count,
    }
}
