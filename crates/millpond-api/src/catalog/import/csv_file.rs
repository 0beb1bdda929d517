//! CSV with a header: one row per type. Four columns are needed (`name`, `cpu`, `memory`, `price`); [`COLUMNS`] lists
//! all. Columns may stand in any order, under either name; an unknown one is reported and ignored.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::super::overhead::{DEFAULT_PODS, MIB};
use super::super::text::{SpotPrice, grid};
use super::super::{Catalog, Gpu, InstanceType, Provider};
use super::build::{self, Basics};
use super::{FileError, FileLine, Imported, Options};
use crate::quantity;
use crate::spelling::nearest;

/// Every column, by the names that it may have.
const COLUMNS: [&[&str]; 25] = [
    &["name"],
    &["cpu", "vcpu"],
    &["memory"],
    &["memory_mib"],
    &["price", "on_demand_usd_hour"],
    &["spot", "spot_usd_hour"],
    &["arch"],
    &["os"],
    &["pods", "max_pods"],
    &["disk"],
    &["zones"],
    &["family"],
    &["category"],
    &["generation"],
    &["size"],
    &["gpu_resource"],
    &["gpu_count"],
    &["gpu_name"],
    &["gpu_memory_mib"],
    &["gpu_manufacturer"],
    &["local_nvme_gb"],
    &["network_mbps"],
    &["allocatable_cpu_milli"],
    &["allocatable_memory_mib"],
    &["ephemeral_storage_mib"],
];

/// The zone of machines that have none.
const NO_ZONE: &str = "default";

pub(super) fn read(file: &str, text: &str, options: &Options) -> Result<Imported, FileError> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|error| syntax(file, &error))?.clone();
    let mut warnings = Vec::new();
    let columns = columns(file, &header, &mut warnings)?;
    let mut catalog = empty(options);
    let mut seen = HashSet::new();
    let mut offerings = 0;
    for record in reader.records() {
        let record = record.map_err(|error| syntax(file, &error))?;
        let row = Row { file, text, record: &record, columns: &columns };
        let made = row.instance_type(&catalog)?;
        if !seen.insert(made.name.clone()) {
            return Err(row.wrong("name", "is there more than once"));
        }
        offerings += made.offerings.len();
        build::within_limits(row.place(), catalog.types.len() + 1, offerings)?;
        catalog.types.push(made);
    }
    Ok(Imported { catalog: build::finish(file, catalog)?, warnings })
}

fn empty(options: &Options) -> Catalog {
    let mut zones: Vec<Arc<str>> = options.zones.iter().map(|zone| Arc::from(zone.as_str())).collect();
    if zones.is_empty() {
        zones.push(NO_ZONE.into());
    }
    zones.sort();
    zones.dedup();
    Catalog {
        name: options.name.clone(),
        provider: options.provider.unwrap_or(Provider::Generic),
        region: options.region.clone(),
        zones,
        spot_per_mille: options.spot_per_mille,
        source: options.source.clone(),
        types: Vec::new(),
    }
}

fn syntax(file: &str, error: &csv::Error) -> FileError {
    let line = error.position().map_or(1, csv::Position::line);
    let problem = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} fields here, but {expected_len} in the header")
        }
        _ => error.to_string(),
    };
    FileLine { file, line }.at(1, "", problem)
}

/// The index of each known column under its first name.
fn columns(
    file: &str,
    header: &csv::StringRecord,
    warnings: &mut Vec<String>,
) -> Result<HashMap<&'static str, usize>, FileError> {
    let place = FileLine { file, line: 1 };
    let mut columns = HashMap::new();
    for (index, title) in header.iter().enumerate() {
        let lower = title.to_ascii_lowercase();
        let Some(names) = COLUMNS.iter().find(|names| names.contains(&lower.as_str())) else {
            let mut warning = place.at(1, title, "is not a column that is understood; ignored").to_string();
            if let Some(name) = nearest(&lower, COLUMNS.iter().flat_map(|names| names.iter().copied())) {
                warning += &format!(" (did you mean `{name}`?)");
            }
            warnings.push(warning);
            continue;
        };
        if columns.insert(names[0], index).is_some() {
            return Err(place.at(1, title, "is a column twice"));
        }
    }
    for needed in ["name", "cpu", "memory", "price"] {
        let in_mib = needed == "memory" && columns.contains_key("memory_mib");
        if !in_mib && !columns.contains_key(needed) {
            return Err(place.field(1, needed, "", "is missing: `name`, `cpu`, `memory` and `price` are needed"));
        }
    }
    Ok(columns)
}

struct Row<'a> {
    file: &'a str,
    text: &'a str,
    record: &'a csv::StringRecord,
    columns: &'a HashMap<&'static str, usize>,
}

impl Row<'_> {
    fn place(&self) -> FileLine<'_> {
        FileLine { file: self.file, line: self.record.position().map_or(1, csv::Position::line) }
    }

    /// The text of a column; nothing when it is empty or not there.
    fn get(&self, column: &str) -> Option<&str> {
        let text = self.record.get(*self.columns.get(column)?)?;
        (!text.is_empty()).then_some(text)
    }

    fn title(&self, column: &'static str) -> u64 {
        let Some(index) = self.columns.get(column) else { return 1 };
        let start = self.record.position().map_or(0, |position| position.byte() as usize);
        let mut quoted = false;
        let mut commas = 0;
        for (offset, byte) in self.text.as_bytes()[start.min(self.text.len())..].iter().enumerate() {
            if commas == *index {
                return offset as u64 + 1;
            }
            match byte {
                b'"' => quoted = !quoted,
                b',' if !quoted => commas += 1,
                b'\n' if !quoted => break,
                _ => {}
            }
        }
        1
    }

    fn wrong(&self, column: &'static str, problem: &str) -> FileError {
        self.place().field(self.title(column), column, self.get(column).unwrap_or(""), problem)
    }

    fn required(&self, column: &'static str) -> Result<&str, FileError> {
        self.get(column).ok_or_else(|| self.wrong(column, "is empty"))
    }

    fn whole(&self, column: &'static str) -> Result<Option<u64>, FileError> {
        let check = |text| build::whole(self.place(), self.title(column), column, text);
        self.get(column).map(check).transpose()
    }

    fn price(&self, column: &'static str) -> Result<Option<u64>, FileError> {
        let check = |text| build::price(self.place(), self.title(column), column, text);
        self.get(column).map(check).transpose()
    }

    fn label(&self, column: &'static str) -> Result<Option<String>, FileError> {
        let check = |text| build::label_value(self.place(), self.title(column), column, text);
        self.get(column).map(check).transpose()
    }

    fn instance_type(&self, catalog: &Catalog) -> Result<InstanceType, FileError> {
        let disk = self.get("disk").map(|text| build::amount(self.place(), self.title("disk"), "disk", text));
        let mut made = build::instance_type(catalog.provider, self.basics()?, disk.transpose()?);
        for (column, part) in [
            ("family", &mut made.naming.family),
            ("category", &mut made.naming.category),
            ("generation", &mut made.naming.generation),
            ("size", &mut made.naming.size),
        ] {
            if let Some(value) = self.label(column)? {
                *part = value;
            }
        }
        if let Some(systems) = self.get("os") {
            let systems = systems.split([' ', ';', '+']).filter(|name| !name.is_empty());
            let check = |name| build::label_value(self.place(), self.title("os"), "os", name);
            made.operating_systems = systems.map(check).collect::<Result<_, _>>()?;
        }
        made.gpu = self.gpu()?;
        made.local_nvme_gb = self.whole("local_nvme_gb")?;
        made.network_mbps = self.whole("network_mbps")?;
        self.allocatable(&mut made)?;
        let on_demand = self.price("price")?.ok_or_else(|| self.wrong("price", "is empty"))?;
        let spot = match self.price("spot")? {
            Some(price) => Some(SpotPrice::Price(price)),
            None => catalog.spot_per_mille.map(SpotPrice::PerMille),
        };
        made.offerings = grid(&self.zones(catalog)?, Some(on_demand), spot);
        Ok(made)
    }

    fn basics(&self) -> Result<Basics, FileError> {
        let name = build::name(self.place(), self.title("name"), self.required("name")?)?;
        let cpu = self.required("cpu")?;
        let cpu_milli = build::cpu(self.place(), self.title("cpu"), "cpu", quantity::parse_milli(cpu), cpu)?;
        let memory_bytes = match self.get("memory_mib") {
            Some(text) => {
                let mib = self.whole("memory_mib")?.unwrap_or(0);
                let bytes = Ok(mib.saturating_mul(MIB));
                build::memory(self.place(), self.title("memory_mib"), "memory_mib", bytes, text)?
            }
            None => {
                let text = self.required("memory")?;
                let bytes = quantity::parse_units(text);
                build::memory(self.place(), self.title("memory"), "memory", bytes, text)?
            }
        };
        let arch = self.get("arch").map(|text| build::arch(self.place(), self.title("arch"), "arch", text));
        let pods = self.get("pods").map(|text| build::pods(self.place(), self.title("pods"), "pods", text));
        Ok(Basics {
            name,
            arch: arch.transpose()?.unwrap_or_else(|| "amd64".to_owned()),
            cpu_milli,
            memory_bytes,
            pods: pods.transpose()?.unwrap_or(DEFAULT_PODS),
        })
    }

    fn gpu(&self) -> Result<Option<Gpu>, FileError> {
        let (name, count) = (self.label("gpu_name")?, self.whole("gpu_count")?);
        if name.is_none() && count.unwrap_or(0) == 0 {
            return Ok(None);
        }
        let count = u32::try_from(count.unwrap_or(0)).map_err(|_| self.wrong("gpu_count", "is too many GPUs"))?;
        let resource = self.get("gpu_resource");
        let resource = resource.map(|text| build::key(self.place(), self.title("gpu_resource"), text)).transpose()?;
        // The domain of `nvidia.com/gpu` names the vendor.
        let maker = || resource.as_deref().and_then(|name| name.split_once(".com/")).map(|(maker, _)| maker.to_owned());
        Ok(Some(Gpu {
            name: name.unwrap_or_default(),
            manufacturer: self.label("gpu_manufacturer")?.or_else(maker).unwrap_or_default(),
            count,
            memory_mib: self.whole("gpu_memory_mib")?.unwrap_or(0),
            resource,
        }))
    }

    fn zones(&self, catalog: &Catalog) -> Result<Vec<Arc<str>>, FileError> {
        let Some(text) = self.get("zones") else { return Ok(catalog.zones.clone()) };
        let names = text.split([' ', ';']).filter(|name| !name.is_empty());
        let check = |name| build::label_value(self.place(), self.title("zones"), "zones", name).map(Arc::from);
        let mut zones: Vec<Arc<str>> = names.map(check).collect::<Result<_, _>>()?;
        zones.sort();
        let count = zones.len();
        zones.dedup();
        if zones.len() == count { Ok(zones) } else { Err(self.wrong("zones", "names a zone twice")) }
    }

    /// A stated allocatable that the rules do not give becomes kube-reserved.
    fn allocatable(&self, made: &mut InstanceType) -> Result<(), FileError> {
        let (by_rule, capacity) = (made.allocatable(), made.capacity());
        let evicted = made.overhead.eviction_threshold;
        let kube = &mut made.overhead.kube_reserved;
        for (column, unit, by_rule, capacity, evicted, reserved) in [
            ("allocatable_cpu_milli", 1, by_rule.cpu_milli, capacity.cpu_milli, evicted.cpu_milli, &mut kube.cpu_milli),
            (
                "allocatable_memory_mib",
                MIB,
                by_rule.memory_bytes,
                capacity.memory_bytes,
                evicted.memory_bytes,
                &mut kube.memory_bytes,
            ),
            (
                "ephemeral_storage_mib",
                MIB,
                by_rule.storage_bytes,
                capacity.storage_bytes,
                evicted.storage_bytes,
                &mut kube.storage_bytes,
            ),
        ] {
            let Some(stated) = self.whole(column)?.filter(|stated| *stated != by_rule / unit) else { continue };
            let left = stated.checked_mul(unit).and_then(|bytes| (capacity - evicted.min(capacity)).checked_sub(bytes));
            *reserved = left.ok_or_else(|| self.wrong(column, "is more than the machine has"))?;
        }
        Ok(())
    }
}
