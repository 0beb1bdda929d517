//! The checks that every format shares: a value enters a catalogue only through
//! here.

use super::super::overhead::{self, Machine};
use super::super::{Catalog, InstanceType, Provider, ec2, naming};
use super::{FileError, FileLine, LIMIT_OFFERINGS, LIMIT_TYPES};
use crate::quantity::{self, QuantityError};
use crate::spelling::nearest;
use crate::{labels, money};

/// Kubernetes' names of the architectures that a kubelet runs on.
const ARCHITECTURES: [&str; 7] = ["amd64", "arm64", "arm", "386", "ppc64le", "riscv64", "s390x"];

const LIMIT_CPU_MILLI: u64 = 1_000_000_000;
const LIMIT_MEMORY_BYTES: u64 = 1 << 50;
const LIMIT_PODS: u32 = 100_000;
/// 1 EiB: sums of a few amounts stay far from 64 bits.
const LIMIT_AMOUNT_BYTES: u64 = 1 << 60;

/// What every type states.
pub(in crate::catalog) struct Basics {
    pub(in crate::catalog) name: String,
    pub(in crate::catalog) arch: String,
    pub(in crate::catalog) cpu_milli: u64,
    pub(in crate::catalog) memory_bytes: u64,
    pub(in crate::catalog) pods: u32,
}

/// A type with all that the provider's rules give, and no offerings.
pub(in crate::catalog) fn instance_type(
    provider: Provider,
    basics: Basics,
    storage_bytes: Option<u64>,
) -> InstanceType {
    let Basics { name, arch, cpu_milli, memory_bytes, pods } = basics;
    let storage_bytes = storage_bytes.unwrap_or_else(|| overhead::default_storage_bytes(provider));
    let naming = naming::read(provider, &name, cpu_milli);
    let machine = Machine { name: &name, arch: &arch, cpu_milli, memory_bytes, storage_bytes, pods };
    InstanceType {
        overhead: overhead::by_rule(provider, machine),
        previous_generation: provider == Provider::Aws && ec2::is_previous_generation(&naming),
        extended: if provider == Provider::Aws { ec2::resources(&naming) } else { Default::default() },
        naming,
        name,
        arch,
        operating_systems: vec!["linux".to_owned()],
        cpu_milli,
        memory_bytes,
        storage_bytes,
        pods,
        gpu: None,
        local_nvme_gb: None,
        network_mbps: None,
        labels: Default::default(),
        offerings: Vec::new(),
    }
}

/// Sorts the types, and refuses a catalogue without types, with types without offerings, or with duplicates of either.
/// The offerings may be in any order.
pub(in crate::catalog) fn finish(file: &str, mut catalog: Catalog) -> Result<Catalog, FileError> {
    catalog.types.sort_by(|a, b| a.name.cmp(&b.name));
    let whole = FileLine { file, line: 1 };
    if catalog.types.is_empty() {
        return Err(whole.at(1, "", "no instance types in this file"));
    }
    if let Some(pair) = catalog.types.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(whole.at(1, &pair[0].name, "is there more than once"));
    }
    for of in &catalog.types {
        if of.offerings.is_empty() {
            return Err(whole.at(1, &of.name, "has no offering: neither a price nor zones with prices"));
        }
        // Sorted here by all fields that tell offerings apart: a reader may sort by fewer of them, or not at all.
        let mut keys: Vec<_> =
            of.offerings.iter().map(|it| (&it.zone, it.capacity_type, it.reservation_count)).collect();
        keys.sort_unstable();
        if let Some((zone, capacity_type, _)) = keys.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]) {
            return Err(whole.at(1, &of.name, format!("has two prices for {capacity_type} in {zone}")));
        }
    }
    Ok(catalog)
}

/// Refuses more than the limits hold.
pub(in crate::catalog) fn within_limits(place: FileLine<'_>, types: usize, offerings: usize) -> Result<(), FileError> {
    if types > LIMIT_TYPES {
        return Err(place.at(1, "", format!("more than {LIMIT_TYPES} types")));
    }
    if offerings > LIMIT_OFFERINGS {
        return Err(place.at(1, "", format!("more than {LIMIT_OFFERINGS} offerings")));
    }
    Ok(())
}

type Checked<T> = Result<T, FileError>;

pub(in crate::catalog) fn name(place: FileLine<'_>, column: u64, text: &str) -> Checked<String> {
    if text.is_empty() {
        return Err(place.field(column, "name", text, "is empty"));
    }
    label_value(place, column, "name", text)
}

pub(in crate::catalog) fn label_value(place: FileLine<'_>, column: u64, field: &str, text: &str) -> Checked<String> {
    if labels::is_value(text) {
        return Ok(text.to_owned());
    }
    let problem = "cannot be the value of a label (at most 63 letters, digits, `-`, `_`, `.`)";
    Err(place.field(column, field, text, problem))
}

pub(in crate::catalog) fn key(place: FileLine<'_>, column: u64, text: &str) -> Checked<String> {
    if labels::is_key(text) {
        return Ok(text.to_owned());
    }
    Err(place.at(column, text, "is not the name of a label or resource"))
}

pub(in crate::catalog) fn architecture(text: &str) -> Option<&'static str> {
    // What other tools call the two that matter.
    let known = match text {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    ARCHITECTURES.into_iter().find(|name| *name == known)
}

pub(in crate::catalog) fn arch(place: FileLine<'_>, column: u64, field: &str, text: &str) -> Checked<String> {
    if let Some(known) = architecture(text) {
        return Ok(known.to_owned());
    }
    let mut problem = "is not an architecture".to_owned();
    if let Some(name) = nearest(text, ARCHITECTURES) {
        problem += &format!("; did you mean `{name}`?");
    }
    Err(place.field(column, field, text, problem))
}

pub(in crate::catalog) fn cpu(
    place: FileLine<'_>,
    column: u64,
    field: &str,
    value: Result<u64, QuantityError>,
    text: &str,
) -> Checked<u64> {
    match value {
        Ok(milli) if (1..=LIMIT_CPU_MILLI).contains(&milli) => Ok(milli),
        Ok(_) => Err(place.field(column, field, text, "is not between 1m and 1000000 cores")),
        Err(error) => Err(place.field(column, field, text, error.to_string())),
    }
}

pub(in crate::catalog) fn memory(
    place: FileLine<'_>,
    column: u64,
    field: &str,
    value: Result<u64, QuantityError>,
    text: &str,
) -> Checked<u64> {
    match value {
        Ok(bytes) if (overhead::MIB..=LIMIT_MEMORY_BYTES).contains(&bytes) => Ok(bytes),
        Ok(_) => Err(place.field(column, field, text, "is not between 1Mi and 1Pi of memory")),
        Err(error) => Err(place.field(column, field, text, error.to_string())),
    }
}

pub(in crate::catalog) fn pods(place: FileLine<'_>, column: u64, field: &str, text: &str) -> Checked<u32> {
    let count = text.parse().ok().filter(|count| (1..=LIMIT_PODS).contains(count));
    count.ok_or_else(|| place.field(column, field, text, format!("is not a number of pods from 1 to {LIMIT_PODS}")))
}

pub(in crate::catalog) fn whole(place: FileLine<'_>, column: u64, field: &str, text: &str) -> Checked<u64> {
    let number = text.parse::<u64>().ok().filter(|number| *number <= LIMIT_AMOUNT_BYTES);
    number.ok_or_else(|| place.field(column, field, text, "is not a whole number, or too large a one"))
}

pub(in crate::catalog) fn amount(place: FileLine<'_>, column: u64, field: &str, text: &str) -> Checked<u64> {
    match quantity::parse_units(text) {
        Ok(bytes) if bytes <= LIMIT_AMOUNT_BYTES => Ok(bytes),
        Ok(_) => Err(place.field(column, field, text, "is more than 1Ei")),
        Err(error) => Err(place.field(column, field, text, error.to_string())),
    }
}

pub(in crate::catalog) fn price(place: FileLine<'_>, column: u64, field: &str, text: &str) -> Checked<u64> {
    money::parse(text).map_err(|error| place.field(column, field, text, error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::catalog::{CapacityType, Offering};

    fn reserved(count: u32) -> Offering {
        Offering {
            zone: Arc::from("a"),
            capacity_type: CapacityType::Reserved,
            price_nanos_hour: 1,
            estimated: false,
            available: true,
            reservation_count: Some(count),
        }
    }

    fn finished(counts: &[u32]) -> Result<Catalog, FileError> {
        let basics =
            Basics { name: "m".to_owned(), arch: "amd64".to_owned(), cpu_milli: 1000, memory_bytes: 1 << 30, pods: 10 };
        let mut of = instance_type(Provider::Generic, basics, None);
        of.offerings = counts.iter().map(|count| reserved(*count)).collect();
        let catalog = Catalog {
            name: "own".to_owned(),
            provider: Provider::Generic,
            region: String::new(),
            zones: vec![Arc::from("a")],
            spot_per_mille: None,
            source: String::new(),
            types: vec![of],
        };
        finish("own", catalog)
    }

    #[test]
    fn equal_offerings_are_found_in_any_order() {
        assert!(finished(&[5, 6]).is_ok());
        for counts in [[5, 5, 6], [5, 6, 5], [6, 5, 5]] {
            let problem = finished(&counts).map_err(|error| error.to_string()).unwrap_err();
            assert!(problem.contains("has two prices for reserved in a"), "{problem}");
        }
    }
}
