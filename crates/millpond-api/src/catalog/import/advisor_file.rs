//! The price list that Gardener's Scaling Advisor reads: an array of types, each with its region and hourly price on
//! demand. Keys match in either case, as there. A list of several regions needs one to be chosen.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::super::overhead::{DEFAULT_PODS, GIB, MIB};
use super::super::text::grid;
use super::super::{Catalog, Gpu, InstanceType, Provider};
use super::build::{self, Basics};
use super::{FileError, FileLine, Imported, Options};
use crate::money;

/// Whether a text is such a list.
pub(super) fn is_one(text: &str) -> bool {
    let head: String = text.chars().take(4096).collect();
    head.trim_start().starts_with('[') && head.to_lowercase().contains("\"hourlyprice\"")
}

pub(super) fn read(file: &str, text: &str, options: &Options) -> Result<Imported, FileError> {
    let rows: Vec<Map<String, Value>> = serde_json::from_str(text).map_err(|error| {
        let line = FileLine { file, line: error.line().max(1) as u64 };
        let message = error.to_string();
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
        line.at(error.column().max(1) as u64, "", message)
    })?;
    let place = FileLine { file, line: 1 };
    let rows: Vec<Row<'_>> = rows.iter().enumerate().map(|(index, fields)| Row { place, index, fields }).collect();
    let region = region(place, &rows, options)?;
    let mut zones: Vec<Arc<str>> = options.zones.iter().map(|zone| Arc::from(zone.as_str())).collect();
    if zones.is_empty() {
        // The list has no zones: the region is used as the only zone.
        zones.push(Arc::from(region.as_str()));
    }
    zones.sort();
    zones.dedup();
    let mut catalog = Catalog {
        name: options.name.clone(),
        provider: options.provider.unwrap_or(Provider::Generic),
        region,
        zones,
        spot_per_mille: options.spot_per_mille,
        source: options.source.clone(),
        types: Vec::new(),
    };
    let mut seen = HashSet::new();
    for row in rows.iter().filter(|row| row.text("region") == catalog.region) {
        let made = row.instance_type(&catalog)?;
        if !seen.insert(made.name.clone()) {
            return Err(row.wrong("instanceType", "is there more than once in one region"));
        }
        build::within_limits(place, seen.len(), seen.len() * catalog.zones.len())?;
        catalog.types.push(made);
    }
    Ok(Imported { catalog: build::finish(file, catalog)?, warnings: Vec::new() })
}

/// The requested region, or the only one.
fn region(place: FileLine<'_>, rows: &[Row<'_>], options: &Options) -> Result<String, FileError> {
    let regions: BTreeSet<&str> = rows.iter().map(|row| row.text("region")).collect();
    if !options.region.is_empty() && regions.contains(options.region.as_str()) {
        return Ok(options.region.clone());
    }
    let names = regions.iter().copied().collect::<Vec<_>>().join(", ");
    match (regions.len(), options.region.as_str()) {
        (0, _) => Err(place.at(1, "", "no instance types in this file")),
        (1, "") => build::label_value(place, 1, "region", &names),
        (_, "") => Err(place.at(1, "", format!("has prices of several regions: one of {names} has to be chosen"))),
        (_, asked) => Err(place.field(1, "region", asked, format!("is not among the regions of the list: {names}"))),
    }
}

struct Row<'a> {
    place: FileLine<'a>,
    index: usize,
    fields: &'a Map<String, Value>,
}

impl Row<'_> {
    fn get(&self, name: &str) -> Option<&Value> {
        self.fields
            .get(name)
            .or_else(|| self.fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value))
    }

    fn text(&self, name: &str) -> &str {
        self.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    fn wrong(&self, field: &str, problem: &str) -> FileError {
        let text = self.get(field).map(|value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned));
        self.place.field(1, &format!("[{}].{field}", self.index), &text.unwrap_or_default(), problem)
    }

    fn whole(&self, field: &str) -> Result<u64, FileError> {
        let Some(value) = self.get(field) else { return Ok(0) };
        value.as_u64().ok_or_else(|| self.wrong(field, "is not a whole number"))
    }

    fn instance_type(&self, catalog: &Catalog) -> Result<InstanceType, FileError> {
        let name = self.text("instanceType");
        let cores = self.whole("VCPU")?;
        // The documentation says GB, the files contain bytes: no machine has less than a MiB or more than a million
        // GiB.
        let memory = self.whole("memory")?;
        let memory = if memory < MIB { memory.saturating_mul(GIB) } else { memory };
        let field = |field: &str| format!("[{}].{field}", self.index);
        let basics = Basics {
            name: build::name(self.place, 1, name)?,
            arch: "amd64".to_owned(),
            cpu_milli: build::cpu(self.place, 1, &field("VCPU"), Ok(cores.saturating_mul(1000)), &cores.to_string())?,
            memory_bytes: build::memory(self.place, 1, &field("memory"), Ok(memory), &memory.to_string())?,
            pods: DEFAULT_PODS,
        };
        let dollars = self.get("hourlyPrice").and_then(Value::as_f64);
        let nanos = dollars.map(|dollars| (dollars * money::NANOS as f64).round());
        let price = nanos.filter(|nanos| (0.0..=money::LIMIT_NANOS_HOUR as f64).contains(nanos));
        let price = price.ok_or_else(|| self.wrong("hourlyPrice", "is not a price in dollars"))?;
        let mut made = build::instance_type(catalog.provider, basics, None);
        if let Some(system) = Some(self.text("os").to_lowercase()).filter(|system| !system.is_empty()) {
            made.operating_systems = vec![build::label_value(self.place, 1, &field("os"), &system)?];
        }
        let gpus = u32::try_from(self.whole("GPU")?).map_err(|_| self.wrong("GPU", "is too many GPUs"))?;
        if gpus > 0 {
            // The list does not name the vendor.
            let memory_mib = self.whole("GPUMemory")? / MIB;
            made.gpu =
                Some(Gpu { name: String::new(), manufacturer: String::new(), count: gpus, memory_mib, resource: None });
        }
        made.offerings = grid(
            &catalog.zones,
            Some(price as u64),
            catalog.spot_per_mille.map(super::super::text::SpotPrice::PerMille),
        );
        Ok(made)
    }
}
