//! `millpond catalog types`.

use std::io::Write;

use clap::{Args, ValueEnum};
use millpond_api::catalog::query::{GpuFilter, Query, Range, Selected, Sort, select};
use millpond_api::catalog::{CapacityType, Catalog, InstanceType, Offering, Resources};
use millpond_api::{money, quantity};
use serde_json::{Value, json};

use super::{Output, Source, say, structured};
use crate::commands::table::Side::{Left, Right};
use crate::commands::table::Table;

/// Arguments of `types`.
#[derive(Debug, Args)]
pub(crate) struct TypesArgs {
    /// Instance types; all that fit without any
    #[arg(value_name = "TYPE")]
    names: Vec<String>,

    #[command(flatten)]
    source: Source,

    /// Cores, as a range
    #[arg(long, value_name = "RANGE", value_parser = cpu_range)]
    cpu: Option<Range>,

    /// Memory, as a range of quantities such as `16Gi..64Gi`
    #[arg(long, value_name = "RANGE", value_parser = memory_range)]
    memory: Option<Range>,

    /// Only types with GPUs, or with GPUs whose name or maker has NAME in it
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    gpu: Option<String>,

    /// Architectures: amd64, arm64
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    arch: Vec<String>,

    /// Operating systems: linux, windows
    #[arg(long, value_name = "OS", value_delimiter = ',')]
    os: Vec<String>,

    /// Zones
    #[arg(long, value_name = "ZONE", value_delimiter = ',')]
    zone: Vec<String>,

    /// How capacity is bought
    #[arg(long, value_name = "TYPE", value_delimiter = ',')]
    capacity_type: Vec<Kind>,

    /// Families, such as `m5` or `n2`
    #[arg(long, value_name = "FAMILY", value_delimiter = ',')]
    family: Vec<String>,

    /// The order, lowest first
    #[arg(long, value_name = "BY", default_value = "price")]
    sort: SortBy,

    /// Highest first
    #[arg(long)]
    reverse: bool,

    /// Print at most this many types
    #[arg(long, value_name = "N")]
    limit: Option<usize>,

    /// How to print
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Output,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    OnDemand,
    Spot,
    Reserved,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SortBy {
    Price,
    PricePerCore,
    PricePerGib,
    Cpu,
    Memory,
    Name,
}

fn cpu_range(text: &str) -> Result<Range, String> {
    Range::parse(text, quantity::parse_milli).map_err(|error| error.to_string())
}

fn memory_range(text: &str) -> Result<Range, String> {
    Range::parse(text, quantity::parse_units).map_err(|error| error.to_string())
}

impl TypesArgs {
    fn query(&self) -> Query {
        let gpu = self.gpu.as_ref().map(|name| match name.as_str() {
            "" => GpuFilter::Any,
            name => GpuFilter::Named(name.to_owned()),
        });
        let kind = |kind: &Kind| match kind {
            Kind::OnDemand => CapacityType::OnDemand,
            Kind::Spot => CapacityType::Spot,
            Kind::Reserved => CapacityType::Reserved,
        };
        Query {
            cpu_milli: self.cpu,
            memory_bytes: self.memory,
            gpu,
            arch: self.arch.clone(),
            os: self.os.clone(),
            zones: self.zone.clone(),
            capacity_types: self.capacity_type.iter().map(kind).collect(),
            families: self.family.clone(),
            sort: match self.sort {
                SortBy::Price => Sort::Price,
                SortBy::PricePerCore => Sort::PricePerCore,
                SortBy::PricePerGib => Sort::PricePerGib,
                SortBy::Cpu => Sort::Cpu,
                SortBy::Memory => Sort::Memory,
                SortBy::Name => Sort::Name,
            },
            reverse: self.reverse,
        }
    }
}

pub(super) fn run(args: &TypesArgs, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<()> {
    let catalog = args.source.load(messages)?;
    let mut selected = select(&catalog, &args.query());
    for name in &args.names {
        super::prices::find(&catalog, name)?;
    }
    if !args.names.is_empty() {
        selected.retain(|selected| args.names.contains(&selected.of.name));
    }
    let shown = &selected[..selected.len().min(args.limit.unwrap_or(usize::MAX))];
    let lists = matches!(args.output, Output::Table | Output::Wide | Output::Name);
    if shown.is_empty() && lists {
        writeln!(messages, "No instance type of catalogue {} fits.", catalog.name)?;
        return Ok(());
    }
    match args.output {
        Output::Table => say(out, &table(shown, false))?,
        Output::Wide => say(out, &table(shown, true))?,
        Output::Name => {
            let names: Vec<_> = shown.iter().map(|selected| selected.of.name.as_str()).collect();
            say(out, &names.join("\n"))?;
        }
        Output::Json | Output::Yaml => {
            let items: Vec<_> = shown.iter().map(|selected| item(&catalog, selected)).collect();
            let list =
                json!({"catalog": catalog.name, "region": catalog.region, "source": catalog.source, "items": items});
            structured(args.output, &list, out)?;
        }
    }
    if shown.len() < selected.len() && lists {
        writeln!(messages, "{} of {} types; more with a higher --limit", shown.len(), selected.len())?;
    }
    Ok(())
}

fn table(shown: &[Selected<'_>], wide: bool) -> String {
    let mut columns = vec![
        ("NAME", Left),
        ("ARCH", Left),
        ("CPU", Right),
        ("MEMORY", Right),
        ("GPU", Left),
        ("ON-DEMAND", Right),
        ("SPOT", Right),
    ];
    if wide {
        columns.extend([
            ("PER-CORE", Right),
            ("PER-GIB", Right),
            ("PODS", Right),
            ("FREE-CPU", Right),
            ("FREE-MEMORY", Right),
            ("NVME", Right),
            ("NETWORK", Right),
            ("OFFERINGS", Right),
            ("GENERATION", Left),
        ]);
    }
    let mut table = Table::new(&columns);
    for selected in shown {
        table.row(row(selected, wide));
    }
    table.text()
}

fn row(selected: &Selected<'_>, wide: bool) -> Vec<String> {
    let of = selected.of;
    let price = |kind| selected.cheapest(Some(kind)).map_or_else(|| "-".to_owned(), price_text);
    let mut cells = vec![
        of.name.clone(),
        of.arch.clone(),
        quantity::cores(of.cpu_milli),
        quantity::binary(of.memory_bytes),
        gpu_text(of),
        price(CapacityType::OnDemand),
        price(CapacityType::Spot),
    ];
    if wide {
        let per = |amount: u64, unit: u64| {
            let cheapest = selected.cheapest(None).map_or(0, |offering| offering.price_nanos_hour);
            let nanos = u128::from(cheapest) * u128::from(unit) / u128::from(amount.max(1));
            money::rounded(u64::try_from(nanos).unwrap_or(u64::MAX), 4)
        };
        let free = of.allocatable();
        let or_dash = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        cells.extend([
            per(of.cpu_milli, 1000),
            per(of.memory_bytes, 1 << 30),
            of.pods.to_string(),
            quantity::cores(free.cpu_milli),
            format!("{}Mi", free.memory_bytes >> 20),
            or_dash(of.local_nvme_gb),
            or_dash(of.network_mbps),
            selected.offerings.len().to_string(),
            if of.previous_generation { "previous" } else { "current" }.to_owned(),
        ]);
    }
    cells
}

/// Dollars an hour; a tilde before an estimate.
pub(super) fn price_text(offering: &Offering) -> String {
    let mark = if offering.estimated { "~" } else { "" };
    format!("{mark}{}", money::rounded(offering.price_nanos_hour, 4))
}

fn gpu_text(of: &InstanceType) -> String {
    match &of.gpu {
        None => "-".to_owned(),
        Some(gpu) if gpu.count == 0 => format!("part of {}", gpu.name),
        Some(gpu) => format!("{} {}", gpu.count, gpu.name),
    }
}

fn item(catalog: &Catalog, selected: &Selected<'_>) -> Value {
    let of = selected.of;
    let offerings: Vec<_> = selected.offerings.iter().map(|offering| offering_item(offering)).collect();
    let gpu = of.gpu.as_ref().map(|gpu| {
        json!({
            "name": gpu.name, "manufacturer": gpu.manufacturer, "count": gpu.count,
            "memoryMiB": gpu.memory_mib, "resource": gpu.resource,
        })
    });
    json!({
        "name": of.name,
        "arch": of.arch,
        "operatingSystems": of.operating_systems,
        "gpu": gpu,
        "previousGeneration": of.previous_generation,
        "capacity": resources(&of.capacity()),
        "allocatable": resources(&of.allocatable()),
        "labels": catalog.labels(of),
        "offerings": offerings,
    })
}

pub(super) fn offering_item(offering: &Offering) -> Value {
    let mut item = json!({
        "zone": &*offering.zone,
        "capacityType": offering.capacity_type.name(),
        "pricePerHour": money::dollars(offering.price_nanos_hour),
        "estimated": offering.estimated,
        "available": offering.available,
    });
    if let Some(count) = offering.reservation_count {
        item["reservationCount"] = count.into();
    }
    item
}

fn resources(amounts: &Resources) -> Value {
    let mut value = json!({
        "cpu": quantity::cores(amounts.cpu_milli),
        "memory": quantity::binary(amounts.memory_bytes),
        "ephemeral-storage": quantity::binary(amounts.storage_bytes),
        "pods": amounts.pods.to_string(),
    });
    for (name, count) in &amounts.extended {
        value[name] = count.to_string().into();
    }
    value
}
