//! The JSON of Karpenter's KWOK provider: an array of types with resources and
//! offerings. Read as that provider reads it: pods are 110 where not said, every
//! offering counts as available, keys match in either case.
//!
//! Two keys of a type are Millpond's own, so that any catalogue can be written
//! this way: `requirements` has further labels, with one value each, and
//! `overhead` the cpu, memory and storage that its node keeps for itself.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, de};

use super::super::overhead::{DEFAULT_PODS, Overhead, Reserved};
use super::super::{CapacityType, Catalog, InstanceType, Offering, Provider};
use super::build::{self, Basics};
use super::{FileError, FileLine, Imported, Options};
use crate::labels::{CAPACITY_TYPE, ZONE, is_key, is_value};
use crate::{money, quantity};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonType {
    #[serde(deserialize_with = "name")]
    name: String,
    #[serde(default)]
    offerings: Vec<JsonOffering>,
    #[serde(default = "amd64")]
    architecture: String,
    #[serde(default)]
    operating_systems: Vec<String>,
    #[serde(deserialize_with = "resources")]
    resources: JsonResources,
    #[serde(default)]
    requirements: Vec<JsonRequirement>,
    #[serde(default, deserialize_with = "overhead")]
    overhead: Option<Reserved>,
}

fn amd64() -> String {
    "amd64".to_owned()
}

#[derive(Deserialize)]
struct JsonOffering {
    #[serde(alias = "Price", deserialize_with = "price")]
    price: u64,
    #[serde(alias = "Requirements", default)]
    requirements: Vec<JsonRequirement>,
    #[serde(alias = "ReservationCapacity", default)]
    reservation_capacity: u32,
    // An older shape of the same file, which its own examples still have.
    #[serde(default)]
    zone: Option<String>,
    #[serde(default, rename = "capacityType")]
    capacity_type: Option<String>,
}

#[derive(Deserialize)]
struct JsonRequirement {
    key: String,
    operator: String,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Default)]
struct JsonResources {
    cpu_milli: u64,
    memory_bytes: u64,
    storage_bytes: Option<u64>,
    pods: u64,
    extended: BTreeMap<String, u64>,
}

// Wrong values are refused while parsing: only then is their line known.

fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() || !is_value(&text) {
        return Err(de::Error::custom(format!("name `{}` cannot be the value of a label", brief(&text))));
    }
    Ok(text)
}

fn price<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let dollars = f64::deserialize(deserializer)?;
    let nanos = (dollars * money::NANOS as f64).round();
    if !(0.0..=money::LIMIT_NANOS_HOUR as f64).contains(&nanos) {
        return Err(de::Error::custom(format!("price {dollars:?} is negative or more than a million dollars an hour")));
    }
    Ok(nanos as u64)
}

fn resources<'de, D: Deserializer<'de>>(deserializer: D) -> Result<JsonResources, D::Error> {
    amounts(deserializer, u64::from(DEFAULT_PODS))
}

fn amounts<'de, D: Deserializer<'de>>(deserializer: D, pods: u64) -> Result<JsonResources, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Text {
        Text(String),
        Number(u64),
    }
    let mut resources = JsonResources { pods, ..JsonResources::default() };
    for (name, value) in BTreeMap::<String, Text>::deserialize(deserializer)? {
        let text = match value {
            Text::Text(text) => text,
            Text::Number(number) => number.to_string(),
        };
        let wrong = |error: quantity::QuantityError| {
            de::Error::custom(format!("resource `{}`: `{}` {error}", brief(&name), brief(&text)))
        };
        let units = || quantity::parse_units(&text).map_err(wrong);
        match name.as_str() {
            "cpu" => resources.cpu_milli = quantity::parse_milli(&text).map_err(wrong)?,
            "memory" => resources.memory_bytes = units()?,
            "ephemeral-storage" => resources.storage_bytes = Some(units()?),
            "pods" => resources.pods = units()?,
            _ if is_key(&name) => {
                resources.extended.insert(name.clone(), units()?);
            }
            _ => return Err(de::Error::custom(format!("`{}` is not the name of a resource", brief(&name)))),
        }
    }
    Ok(resources)
}

fn overhead<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Reserved>, D::Error> {
    let JsonResources { cpu_milli, memory_bytes, storage_bytes, pods, extended } = amounts(deserializer, 0)?;
    if pods != 0 || !extended.is_empty() {
        return Err(de::Error::custom("overhead has resources other than cpu, memory and ephemeral-storage"));
    }
    Ok(Some(Reserved { cpu_milli, memory_bytes, storage_bytes: storage_bytes.unwrap_or(0) }))
}

fn brief(text: &str) -> String {
    text.chars().take(60).flat_map(char::escape_debug).collect()
}

pub(super) fn read(file: &str, text: &str, options: &Options) -> Result<Imported, FileError> {
    let types: Vec<JsonType> = serde_json::from_str(text).map_err(|error| {
        let line = FileLine { file, line: error.line().max(1) as u64 };
        let message = error.to_string();
        // serde_json ends its message with the place, which stands before it here.
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
        line.at(error.column().max(1) as u64, "", message)
    })?;
    let whole = FileLine { file, line: 1 };
    build::within_limits(whole, types.len(), types.iter().map(|of| of.offerings.len()).sum())?;
    let mut catalog = Catalog {
        name: options.name.clone(),
        provider: options.provider.unwrap_or(Provider::Kwok),
        region: options.region.clone(),
        zones: Vec::new(),
        spot_per_mille: None,
        source: options.source.clone(),
        types: Vec::with_capacity(types.len()),
    };
    let mut seen = HashSet::new();
    for from in types {
        if !seen.insert(from.name.clone()) {
            return Err(whole.field(1, "name", &from.name, "is there more than once"));
        }
        let made = instance_type(whole, catalog.provider, from)?;
        catalog.types.push(made);
    }
    let mut zones: Vec<_> = catalog.types.iter().flat_map(|of| &of.offerings).map(|of| Arc::clone(&of.zone)).collect();
    zones.sort();
    zones.dedup();
    catalog.zones = zones;
    Ok(Imported { catalog: build::finish(file, catalog)?, warnings: Vec::new() })
}

fn instance_type(place: FileLine<'_>, provider: Provider, from: JsonType) -> Result<InstanceType, FileError> {
    let of = &from.name;
    let field = |name: &str| format!("{of}.{name}");
    let JsonResources { cpu_milli, memory_bytes, storage_bytes, pods, extended } = from.resources;
    let basics = Basics {
        name: of.clone(),
        arch: build::arch(place, 1, &field("architecture"), &from.architecture)?,
        cpu_milli: build::cpu(place, 1, &field("resources.cpu"), Ok(cpu_milli), &quantity::cores(cpu_milli))?,
        memory_bytes: build::memory(
            place,
            1,
            &field("resources.memory"),
            Ok(memory_bytes),
            &quantity::binary(memory_bytes),
        )?,
        pods: build::pods(place, 1, &field("resources.pods"), &pods.to_string())?,
    };
    let mut made = build::instance_type(provider, basics, storage_bytes);
    made.extended = extended;
    if let Some(kube_reserved) = from.overhead {
        made.overhead = Overhead { kube_reserved, ..Overhead::default() };
    }
    made.labels = labels(place, &field("requirements"), &from.requirements)?;
    if !from.operating_systems.is_empty() {
        let check = |name: &String| build::label_value(place, 1, &field("operatingSystems"), name);
        made.operating_systems = from.operating_systems.iter().map(check).collect::<Result<_, _>>()?;
    }
    for (index, offering) in from.offerings.iter().enumerate() {
        expand(place, &field(&format!("offerings[{index}]")), offering, &mut made.offerings)?;
    }
    made.offerings.sort_by(|a, b| (&a.zone, a.capacity_type).cmp(&(&b.zone, b.capacity_type)));
    Ok(made)
}

/// Labels of a type: one value each; those that it does not have may be named as such.
fn labels(place: FileLine<'_>, field: &str, from: &[JsonRequirement]) -> Result<BTreeMap<String, String>, FileError> {
    let mut labels = BTreeMap::new();
    for JsonRequirement { key, operator, values } in from {
        match (operator.as_str(), &values[..]) {
            ("In", [value]) => {
                let key = build::key(place, 1, key)?;
                labels.insert(key, build::label_value(place, 1, field, value)?);
            }
            ("DoesNotExist", []) => {}
            _ => {
                let problem = "needs the operator `In` with one value, or `DoesNotExist`";
                return Err(place.field(1, field, key, problem));
            }
        }
    }
    Ok(labels)
}

/// An offering of the file may name several zones and capacity types.
fn expand(place: FileLine<'_>, field: &str, from: &JsonOffering, into: &mut Vec<Offering>) -> Result<(), FileError> {
    let zones = values(place, field, from, ZONE, from.zone.as_ref())?;
    let capacity_types = values(place, field, from, CAPACITY_TYPE, from.capacity_type.as_ref())?;
    for zone in zones {
        let zone: Arc<str> = build::label_value(place, 1, field, &zone)?.into();
        for name in &capacity_types {
            let capacity_type = CapacityType::from_name(name)
                .ok_or_else(|| place.field(1, field, name, "is not a capacity type: on-demand, spot or reserved"))?;
            let reserved = capacity_type == CapacityType::Reserved;
            into.push(Offering {
                zone: Arc::clone(&zone),
                capacity_type,
                price_nanos_hour: from.price,
                estimated: false,
                available: true,
                reservation_count: reserved.then_some(from.reservation_capacity),
            });
            build::within_limits(place, 0, into.len())?;
        }
    }
    Ok(())
}

fn values(
    place: FileLine<'_>,
    field: &str,
    from: &JsonOffering,
    key: &str,
    old: Option<&String>,
) -> Result<Vec<String>, FileError> {
    if let Some(requirement) = from.requirements.iter().find(|requirement| requirement.key == key) {
        if requirement.operator == "In" && !requirement.values.is_empty() {
            return Ok(requirement.values.clone());
        }
        return Err(place.field(1, field, key, "needs the operator `In` and at least one value"));
    }
    let old = old.ok_or_else(|| place.field(1, field, key, "is not among the requirements"))?;
    Ok(vec![old.clone()])
}
