//! `millpond catalog prices`.

use std::io::Write;

use clap::Args;
use millpond_api::catalog::{CapacityType, Catalog, InstanceType, Offering};
use millpond_api::money::{self, HOURS_MONTH};
use serde_json::{Value, json};

use super::types::{offering_item, price_text};
use super::{Output, Source, say, structured};
use crate::commands::input::ObjectArgs;
use crate::commands::table::Side::{Left, Right};
use crate::commands::table::Table;
use crate::failure::{Code, Failure};

/// Arguments of `prices`.
#[derive(Debug, Args)]
pub(crate) struct PricesArgs {
    /// Names of instance types
    #[arg(value_name = "TYPE", required_unless_present = "unavailable")]
    pub(super) types: Vec<String>,

    /// Show the offerings of a cluster that are out of stock, and when they are retried
    #[arg(long)]
    unavailable: bool,

    #[command(flatten)]
    pub(super) objects: ObjectArgs,

    #[command(flatten)]
    pub(super) source: Source,

    /// How to print
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(super) output: Output,
}

pub(super) fn run(args: &PricesArgs, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<()> {
    if args.unavailable {
        return super::unavailable::run(args, out, messages);
    }
    if args.objects.is_given() {
        let message = "prices are those of a catalogue, not of a cluster".to_owned();
        let hint = "`--unavailable` looks at a cluster or at files; without it, `--catalog` names the catalogue";
        return Err(Failure { message, code: Some(Code::Usage), hint: Some(hint.to_owned()) }.into());
    }
    let catalog = args.source.load(messages)?;
    let types = args.types.iter().map(|name| find(&catalog, name)).collect::<Result<Vec<_>, _>>()?;
    match args.output {
        Output::Table => say(out, &format!("{}\n\n{}", prices(&types, false), spreads(&types))),
        Output::Wide => say(out, &format!("{}\n\n{}", prices(&types, true), spreads(&types))),
        Output::Name => say(out, &args.types.join("\n")),
        Output::Json | Output::Yaml => {
            let items: Vec<_> = types.iter().map(|of| item(of)).collect();
            structured(args.output, &json!({"catalog": catalog.name, "region": catalog.region, "items": items}), out)
        }
    }
}

pub(super) fn find<'a>(catalog: &'a Catalog, name: &str) -> Result<&'a InstanceType, Failure> {
    catalog.find(name).ok_or_else(|| {
        let hint = match catalog.nearest(name) {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => format!("`millpond catalog types --catalog {} -o name` lists all", catalog.name),
        };
        let message = format!("there is no instance type `{name}` in the catalogue {}", catalog.name);
        Failure { message, code: Some(Code::NotFound), hint: Some(hint) }
    })
}

fn prices(types: &[&InstanceType], wide: bool) -> String {
    let mut columns =
        vec![("TYPE", Left), ("ZONE", Left), ("CAPACITY", Left), ("HOUR", Right), ("MONTH", Right), ("OFF", Right)];
    if wide {
        columns.extend([("PER-CORE", Right), ("PER-GIB", Right), ("AVAILABLE", Left), ("LEFT", Right)]);
    }
    let mut table = Table::new(&columns);
    for of in types {
        for offering in &of.offerings {
            let month = offering.price_nanos_hour.saturating_mul(HOURS_MONTH);
            let mut cells = vec![
                of.name.clone(),
                offering.zone.to_string(),
                offering.capacity_type.to_string(),
                price_text(offering),
                money::rounded(month, 2),
                saving(of, offering),
            ];
            if wide {
                let per = |unit: u64, amount: u64| {
                    let nanos = u128::from(offering.price_nanos_hour) * u128::from(unit) / u128::from(amount.max(1));
                    money::rounded(u64::try_from(nanos).unwrap_or(u64::MAX), 4)
                };
                cells.extend([
                    per(1000, of.cpu_milli),
                    per(1 << 30, of.memory_bytes),
                    if offering.available { "yes" } else { "no" }.to_owned(),
                    offering.reservation_count.map_or_else(|| "-".to_owned(), |count| count.to_string()),
                ]);
            }
            table.row(cells);
        }
    }
    table.text()
}

/// How much less than on-demand in the same zone.
fn saving(of: &InstanceType, offering: &Offering) -> String {
    let list = of.offerings.iter().find(|other| {
        other.zone == offering.zone && other.capacity_type == CapacityType::OnDemand && other.price_nanos_hour > 0
    });
    match list {
        Some(list) if offering.capacity_type != CapacityType::OnDemand => {
            let (list, price) = (i128::from(list.price_nanos_hour), i128::from(offering.price_nanos_hour));
            format!("{}%", (list - price) * 100 / list)
        }
        _ => "-".to_owned(),
    }
}

/// Lowest and highest price of each type and capacity type.
fn spreads(types: &[&InstanceType]) -> String {
    let columns = [
        ("TYPE", Left),
        ("CAPACITY", Left),
        ("ZONES", Right),
        ("LOWEST", Right),
        ("HIGHEST", Right),
        ("SPREAD", Right),
    ];
    let mut table = Table::new(&columns);
    for of in types {
        for kind in CapacityType::ALL {
            let Some((count, low, high)) = spread(of, kind) else { continue };
            table.row(vec![
                of.name.clone(),
                kind.to_string(),
                count.to_string(),
                price_text(low),
                price_text(high),
                percent_more(low.price_nanos_hour, high.price_nanos_hour),
            ]);
        }
    }
    table.text()
}

fn spread(of: &InstanceType, kind: CapacityType) -> Option<(usize, &Offering, &Offering)> {
    let offerings = || of.offerings.iter().filter(|offering| offering.capacity_type == kind);
    let low = offerings().min_by_key(|offering| offering.price_nanos_hour)?;
    let high = offerings().max_by_key(|offering| offering.price_nanos_hour)?;
    Some((offerings().count(), low, high))
}

fn percent_more(low: u64, high: u64) -> String {
    if low == 0 {
        return if high == 0 { "0.0%".to_owned() } else { "-".to_owned() };
    }
    let tenths = (u128::from(high - low) * 1000 + u128::from(low) / 2) / u128::from(low);
    format!("{}.{}%", tenths / 10, tenths % 10)
}

fn item(of: &InstanceType) -> Value {
    let offerings: Vec<_> = of.offerings.iter().map(offering_item).collect();
    let spreads: Vec<_> = CapacityType::ALL
        .into_iter()
        .filter_map(|kind| spread(of, kind).map(|(zones, low, high)| (kind, zones, low, high)))
        .map(|(kind, zones, low, high)| {
            json!({
                "capacityType": kind.name(),
                "zones": zones,
                "lowest": money::dollars(low.price_nanos_hour),
                "highest": money::dollars(high.price_nanos_hour),
            })
        })
        .collect();
    json!({"name": of.name, "offerings": offerings, "spreads": spreads})
}
