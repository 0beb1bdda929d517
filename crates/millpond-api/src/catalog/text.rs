//! Millpond's own file of a catalogue: short, sorted, one line per type, the
//! same bytes for the same catalogue.
//!
//! ```text
//! millpond-catalog 1
//! name aws
//! provider aws
//! region us-east-1
//! zones us-east-1a us-east-1b
//! spot-per-mille 400
//! source where the facts come from
//! types
//! m5.large amd64 2 8Gi 29 0.096 net=750
//! p4d.24xlarge amd64 96 1152Gi 737 21.9576 gpu=8:nvidia:a100:40960:nvidia.com/gpu nvme=8000 net=400000
//! ```
//!
//! A type is `name arch cpu memory pods price` and options. The price is the
//! on-demand price in every zone; `spot=PRICE` is the spot price in every zone;
//! without it, and with `spot-per-mille` above, spot is that many thousandths of
//! on-demand and marked as an estimate (`spot=none`: no spot). Offerings that do
//! not fit this grid are written out (`-` stands for the price):
//! `offer=ZONE:CAPACITY-TYPE:PRICE[:FLAGS]`, flags `e` (estimate), `x` (not
//! available), `r3` (3 left of a reservation).
//!
//! Everything that the provider's rules give (parts of the name, overhead, root
//! disk, linux) is left out and written only where a type differs: `family=`,
//! `category=`, `generation=`, `size=`, `shape=`, `os=linux+windows`, `disk=20Gi`,
//! `vm=`, `kube=CPU:MEMORY:DISK`, `system=`, `evict=`, `label=KEY:VALUE`,
//! `resource=NAME:COUNT`, `previous=yes` (a previous generation: bought only for pools that name it).

use std::fmt::Write as _;
use std::sync::Arc;

use super::import::build::{self, Basics};
use super::import::{FileError, FileLine};
use super::overhead::Reserved;
use super::{CapacityType, Catalog, Gpu, InstanceType, Offering, Provider};
use crate::{money, quantity};

/// The first line of every such file.
pub const MAGIC: &str = "millpond-catalog 1";

/// Reads a file; `file` is its name in messages.
pub fn parse(file: &str, text: &str) -> Result<Catalog, FileError> {
    let place = |line: usize| FileLine { file, line: line as u64 + 1 };
    let mut lines = text.lines().enumerate();
    match lines.next() {
        Some((_, MAGIC)) => {}
        other => {
            let found = other.map_or("", |(_, line)| line);
            return Err(place(0).at(1, found, format!("the first line is not `{MAGIC}`")));
        }
    }
    let mut catalog = Catalog {
        name: String::new(),
        provider: Provider::Generic,
        region: String::new(),
        zones: Vec::new(),
        spot_per_mille: None,
        source: String::new(),
        types: Vec::new(),
    };
    let mut in_types = false;
    let mut offerings = 0;
    for (index, line) in lines {
        let place = place(index);
        if line.is_empty() || line.starts_with('#') {
        } else if in_types {
            let parsed = type_line(place, &catalog, line)?;
            offerings += parsed.offerings.len();
            build::within_limits(place, catalog.types.len() + 1, offerings)?;
            if catalog.types.last().is_some_and(|last| last.name >= parsed.name) {
                return Err(place.at(
                    1,
                    &parsed.name,
                    "is not after the name above it: types are sorted, each is there once",
                ));
            }
            catalog.types.push(parsed);
        } else if line == "types" {
            in_types = true;
        } else {
            header_line(place, &mut catalog, line)?;
        }
    }
    if !in_types {
        return Err(place(text.lines().count()).at(1, "", "the file ends before its line `types`"));
    }
    build::finish(file, catalog)
}

fn header_line(place: FileLine<'_>, catalog: &mut Catalog, line: &str) -> Result<(), FileError> {
    let (key, value) = line.split_once(' ').unwrap_or((line, ""));
    let column = key.len() as u64 + 2;
    match key {
        "name" => value.clone_into(&mut catalog.name),
        "region" => catalog.region = build::label_value(place, column, "region", value)?,
        "source" => value.clone_into(&mut catalog.source),
        "provider" => {
            let provider = Provider::from_name(value);
            catalog.provider =
                provider.ok_or_else(|| place.at(column, value, "is not a provider: aws, gcp, kwok or generic"))?;
        }
        "zones" => {
            let zones = value.split(' ').map(|zone| build::label_value(place, column, "zones", zone).map(Arc::from));
            catalog.zones = zones.collect::<Result<_, _>>()?;
            catalog.zones.sort();
            catalog.zones.dedup();
        }
        "spot-per-mille" => {
            let share = value.parse().ok().filter(|share| *share <= 1000);
            let share = share.ok_or_else(|| place.at(column, value, "is not a number from 0 to 1000"));
            catalog.spot_per_mille = Some(share?);
        }
        _ => return Err(place.at(1, key, "is not a line of the header")),
    }
    Ok(())
}

/// A word of a line with its column.
#[derive(Clone, Copy)]
struct Word<'a> {
    column: u64,
    text: &'a str,
}

fn words(line: &str) -> impl Iterator<Item = Word<'_>> {
    let start = line.as_ptr() as usize;
    line.split(' ')
        .filter(|word| !word.is_empty())
        .map(move |text| Word { column: (text.as_ptr() as usize - start) as u64 + 1, text })
}

fn type_line(place: FileLine<'_>, catalog: &Catalog, line: &str) -> Result<InstanceType, FileError> {
    let mut words = words(line);
    let mut next = |field: &'static str| {
        let end = line.len() as u64 + 1;
        words.next().ok_or_else(|| place.field(end, field, "", "is missing"))
    };
    let (name, arch, cpu, memory) = (next("name")?, next("arch")?, next("cpu")?, next("memory")?);
    let (pods, price) = (next("pods")?, next("price")?);
    let basics = Basics {
        name: build::name(place, name.column, name.text)?,
        arch: build::arch(place, arch.column, "arch", arch.text)?,
        cpu_milli: build::cpu(place, cpu.column, "cpu", quantity::parse_milli(cpu.text), cpu.text)?,
        memory_bytes: build::memory(place, memory.column, "memory", quantity::parse_units(memory.text), memory.text)?,
        pods: build::pods(place, pods.column, "pods", pods.text)?,
    };
    let mut options = Vec::new();
    let mut disk = None;
    for word in words {
        let Some((key, value)) = word.text.split_once('=') else {
            return Err(place.at(word.column, word.text, "is not an option `key=value`"));
        };
        let value = Word { column: word.column + key.len() as u64 + 1, text: value };
        if key == "disk" {
            disk = Some(build::amount(place, value.column, "disk", value.text)?);
        } else {
            options.push((key, value));
        }
    }
    let mut made = build::instance_type(catalog.provider, basics, disk);
    let mut spot = catalog.spot_per_mille.map(SpotPrice::PerMille);
    for (key, value) in options {
        option(place, &mut made, &mut spot, key, value)?;
    }
    // The grid is in order; only written-out offerings may not be.
    let in_order = made.offerings.is_empty();
    if price.text != "-" {
        let price = build::price(place, price.column, "price", price.text)?;
        made.offerings.splice(0..0, grid(&catalog.zones, Some(price), spot));
    }
    if !in_order {
        made.offerings.sort_by(|a, b| (&a.zone, a.capacity_type).cmp(&(&b.zone, b.capacity_type)));
    }
    Ok(made)
}

fn option(
    place: FileLine<'_>,
    made: &mut InstanceType,
    spot: &mut Option<SpotPrice>,
    key: &str,
    value: Word<'_>,
) -> Result<(), FileError> {
    let Word { column, text } = value;
    let whole = |field: &str| build::whole(place, column, field, text);
    let pair = || text.split_once(':').ok_or_else(|| place.at(column, text, "is not `name:value`"));
    match key {
        "spot" if text == "none" => *spot = None,
        "spot" => *spot = Some(SpotPrice::Price(build::price(place, column, "spot", text)?)),
        "net" => made.network_mbps = Some(whole("net")?),
        "nvme" => made.local_nvme_gb = Some(whole("nvme")?),
        "gpu" => made.gpu = Some(gpu(place, value)?),
        "os" => {
            let systems = text.split('+').map(|name| build::label_value(place, column, key, name));
            made.operating_systems = systems.collect::<Result<_, _>>()?;
        }
        "family" => made.naming.family = build::label_value(place, column, key, text)?,
        "category" => made.naming.category = build::label_value(place, column, key, text)?,
        "generation" => made.naming.generation = build::label_value(place, column, key, text)?,
        "size" => made.naming.size = build::label_value(place, column, key, text)?,
        "shape" => made.naming.shape = build::label_value(place, column, key, text)?,
        "previous" => match text {
            "yes" | "no" => made.previous_generation = text == "yes",
            _ => return Err(place.at(column, text, "is neither `yes` nor `no`")),
        },
        "vm" => made.overhead.vm_memory_bytes = build::amount(place, column, "vm", text)?,
        "kube" => made.overhead.kube_reserved = reserved(place, value)?,
        "system" => made.overhead.system_reserved = reserved(place, value)?,
        "evict" => made.overhead.eviction_threshold = reserved(place, value)?,
        "label" => {
            let (name, label) = pair()?;
            let label = build::label_value(place, column, "label", label)?;
            made.labels.insert(build::key(place, column, name)?, label);
        }
        "resource" => {
            let (name, count) = pair()?;
            let count = build::whole(place, column, "resource", count)?;
            let name = build::key(place, column, name)?;
            match count {
                0 => made.extended.remove(&name),
                count => made.extended.insert(name, count),
            };
        }
        "offer" => made.offerings.push(offer(place, value)?),
        _ => return Err(place.at(column, key, "is not an option of a type")),
    }
    Ok(())
}

fn gpu(place: FileLine<'_>, value: Word<'_>) -> Result<Gpu, FileError> {
    let parts: Vec<_> = value.text.splitn(5, ':').collect();
    let [count, manufacturer, name, memory, resource] = parts[..] else {
        return Err(place.at(value.column, value.text, "is not `count:manufacturer:name:memory:resource`"));
    };
    let whole = |text| build::whole(place, value.column, "gpu", text);
    Ok(Gpu {
        name: build::label_value(place, value.column, "gpu", name)?,
        manufacturer: build::label_value(place, value.column, "gpu", manufacturer)?,
        count: u32::try_from(whole(count)?).map_err(|_| place.at(value.column, count, "is too many GPUs"))?,
        memory_mib: whole(memory)?,
        resource: match resource {
            "" => None,
            name => Some(build::key(place, value.column, name)?),
        },
    })
}

fn reserved(place: FileLine<'_>, value: Word<'_>) -> Result<Reserved, FileError> {
    let parts: Vec<_> = value.text.split(':').collect();
    let [cpu, memory, disk] = parts[..] else {
        return Err(place.at(value.column, value.text, "is not `cpu:memory:disk`"));
    };
    let amount = |text| build::amount(place, value.column, "reserved", text);
    let cpu_milli = quantity::parse_milli(cpu);
    Ok(Reserved {
        cpu_milli: cpu_milli.map_err(|error| place.at(value.column, cpu, error.to_string()))?,
        memory_bytes: amount(memory)?,
        storage_bytes: amount(disk)?,
    })
}

fn offer(place: FileLine<'_>, value: Word<'_>) -> Result<Offering, FileError> {
    let parts: Vec<_> = value.text.split(':').collect();
    let (zone, kind, price, flags) = match parts[..] {
        [zone, kind, price] => (zone, kind, price, ""),
        [zone, kind, price, flags] => (zone, kind, price, flags),
        _ => return Err(place.at(value.column, value.text, "is not `zone:capacity-type:price`")),
    };
    let capacity_type = CapacityType::from_name(kind)
        .ok_or_else(|| place.at(value.column, kind, "is not a capacity type: on-demand, spot or reserved"))?;
    let mut offering = Offering {
        zone: build::label_value(place, value.column, "offer", zone)?.into(),
        capacity_type,
        price_nanos_hour: build::price(place, value.column, "offer", price)?,
        estimated: false,
        available: true,
        reservation_count: None,
    };
    let mut rest = flags;
    while let Some(flag) = rest.chars().next() {
        rest = &rest[flag.len_utf8()..];
        match flag {
            'e' => offering.estimated = true,
            'x' => offering.available = false,
            'r' => {
                let digits = rest.len() - rest.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
                let count = rest[..digits].parse().map_err(|_| place.at(value.column, flags, "are not flags"))?;
                offering.reservation_count = Some(count);
                rest = &rest[digits..];
            }
            _ => return Err(place.at(value.column, flags, "are not flags: `e`, `x` or `r` with a number")),
        }
    }
    Ok(offering)
}

/// Where the spot price of a type comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpotPrice {
    /// A published price.
    Price(u64),
    /// Thousandths of the on-demand price: an estimate.
    PerMille(u32),
}

/// The same prices in every zone.
pub(super) fn grid(zones: &[Arc<str>], on_demand: Option<u64>, spot: Option<SpotPrice>) -> Vec<Offering> {
    let (spot_price, estimated) = match (spot, on_demand) {
        (Some(SpotPrice::Price(price)), _) => (Some(price), false),
        (Some(SpotPrice::PerMille(share)), Some(price)) => {
            (Some((u128::from(price) * u128::from(share)).div_ceil(1000) as u64), true)
        }
        _ => (None, false),
    };
    let make = |zone: &Arc<str>, capacity_type, price_nanos_hour, estimated| Offering {
        zone: Arc::clone(zone),
        capacity_type,
        price_nanos_hour,
        estimated,
        available: true,
        reservation_count: None,
    };
    let mut offerings = Vec::with_capacity(zones.len() * 2);
    for zone in zones {
        offerings.extend(on_demand.map(|price| make(zone, CapacityType::OnDemand, price, false)));
        offerings.extend(spot_price.map(|price| make(zone, CapacityType::Spot, price, estimated)));
    }
    offerings
}

/// Writes a catalogue; [`parse`] reads the same catalogue back.
pub fn encode(catalog: &Catalog) -> String {
    let mut text = format!("{MAGIC}\n");
    let mut header = |key: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(text, "{key} {}", value.replace(['\n', '\r'], " "));
        }
    };
    header("name", &catalog.name);
    header("provider", catalog.provider.name());
    header("region", &catalog.region);
    header("zones", &catalog.zones.join(" "));
    header("spot-per-mille", &catalog.spot_per_mille.map_or_else(String::new, |share| share.to_string()));
    header("source", &catalog.source);
    text.push_str("types\n");
    for of in &catalog.types {
        encode_type(catalog, of, &mut text);
        text.push('\n');
    }
    text
}

fn encode_type(catalog: &Catalog, of: &InstanceType, text: &mut String) {
    let basics = Basics {
        name: of.name.clone(),
        arch: of.arch.clone(),
        cpu_milli: of.cpu_milli,
        memory_bytes: of.memory_bytes,
        pods: of.pods,
    };
    let (cpu, memory) = (quantity::cores(of.cpu_milli), quantity::binary(of.memory_bytes));
    let offers = encode_offerings(catalog, &of.offerings);
    let price = offers.price.as_deref().unwrap_or("-");
    let _ = write!(text, "{} {} {cpu} {memory} {} {price}", of.name, of.arch, of.pods);
    let rule = build::instance_type(catalog.provider, basics, Some(of.storage_bytes));
    let mut put = |key: &str, value: &str| {
        let _ = write!(text, " {key}={value}");
    };
    offers.options.iter().for_each(|(key, value)| put(key, value));
    if let Some(Gpu { name, manufacturer, count, memory_mib, resource }) = &of.gpu {
        let resource = resource.as_deref().unwrap_or("");
        put("gpu", &format!("{count}:{manufacturer}:{name}:{memory_mib}:{resource}"));
    }
    of.local_nvme_gb.iter().for_each(|gb| put("nvme", &gb.to_string()));
    of.network_mbps.iter().for_each(|mbps| put("net", &mbps.to_string()));
    if of.operating_systems != rule.operating_systems {
        put("os", &of.operating_systems.join("+"));
    }
    if of.storage_bytes != super::overhead::default_storage_bytes(catalog.provider) {
        put("disk", &quantity::binary(of.storage_bytes));
    }
    for (key, ours, by_rule) in [
        ("family", &of.naming.family, &rule.naming.family),
        ("category", &of.naming.category, &rule.naming.category),
        ("generation", &of.naming.generation, &rule.naming.generation),
        ("size", &of.naming.size, &rule.naming.size),
        ("shape", &of.naming.shape, &rule.naming.shape),
    ] {
        if ours != by_rule {
            put(key, ours);
        }
    }
    if of.overhead.vm_memory_bytes != rule.overhead.vm_memory_bytes {
        put("vm", &quantity::binary(of.overhead.vm_memory_bytes));
    }
    for (key, ours, by_rule) in [
        ("kube", of.overhead.kube_reserved, rule.overhead.kube_reserved),
        ("system", of.overhead.system_reserved, rule.overhead.system_reserved),
        ("evict", of.overhead.eviction_threshold, rule.overhead.eviction_threshold),
    ] {
        if ours != by_rule {
            let (memory, disk) = (quantity::binary(ours.memory_bytes), quantity::binary(ours.storage_bytes));
            put(key, &format!("{}:{memory}:{disk}", quantity::cores(ours.cpu_milli)));
        }
    }
    of.labels.iter().for_each(|(key, value)| put("label", &format!("{key}:{value}")));
    if of.previous_generation != rule.previous_generation {
        put("previous", if of.previous_generation { "yes" } else { "no" });
    }
    let told = of.extended.iter().filter(|(name, count)| rule.extended.get(*name) != Some(*count));
    told.for_each(|(name, count)| put("resource", &format!("{name}:{count}")));
    // Extended resources that the rules give and the type does not have.
    let lacking = rule.extended.keys().filter(|name| !of.extended.contains_key(*name));
    lacking.for_each(|name| put("resource", &format!("{name}:0")));
}

/// The price of the line and the options that say the rest.
struct Offers {
    price: Option<String>,
    options: Vec<(&'static str, String)>,
}

fn encode_offerings(catalog: &Catalog, offerings: &[Offering]) -> Offers {
    let of_kind = |kind| offerings.iter().find(|offering| offering.capacity_type == kind);
    if let Some(on_demand) = of_kind(CapacityType::OnDemand).map(|offering| offering.price_nanos_hour) {
        let spot = of_kind(CapacityType::Spot).map(|offering| SpotPrice::Price(offering.price_nanos_hour));
        let inherited = catalog.spot_per_mille.map(SpotPrice::PerMille);
        for spot in [inherited, spot] {
            if grid(&catalog.zones, Some(on_demand), spot) == offerings {
                let option = match spot {
                    Some(SpotPrice::Price(price)) => Some(money::exact(price)),
                    None if inherited.is_some() => Some("none".to_owned()),
                    _ => None,
                };
                let options = option.map(|value| ("spot", value)).into_iter().collect();
                return Offers { price: Some(money::exact(on_demand)), options };
            }
        }
    }
    let options = offerings.iter().map(|offering| ("offer", encode_offering(offering))).collect();
    Offers { price: None, options }
}

fn encode_offering(offering: &Offering) -> String {
    let mut flags = String::new();
    if offering.estimated {
        flags.push('e');
    }
    if !offering.available {
        flags.push('x');
    }
    if let Some(count) = offering.reservation_count {
        let _ = write!(flags, "r{count}");
    }
    let separator = if flags.is_empty() { "" } else { ":" };
    let price = money::exact(offering.price_nanos_hour);
    format!("{}:{}:{price}{separator}{flags}", offering.zone, offering.capacity_type)
}
