//! `millpond catalog prices --unavailable`: what is out of stock in a cluster, and when it is tried again.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use millpond_api::catalog::{Catalog, built_in};
use millpond_api::money;
use millpond_api::node_class::NodeClass;
use millpond_state::State;
use serde_json::{Value, json};

use super::prices::PricesArgs;
use super::{Output, say, structured};
use crate::commands::cluster::NODE_CLASSES;
use crate::commands::format::{plural, span};
use crate::commands::input;
use crate::commands::node_totals::moment;
use crate::commands::table::Side::{Left, Right};
use crate::commands::table::Table;

/// An offering that could not be had.
struct Missing {
    /// Classes that say so.
    classes: BTreeSet<String>,
    price: Option<u64>,
    failures: i64,
    /// When it is tried again.
    until: i64,
}

/// Type, zone and capacity type.
type Key = (String, String, String);

pub(super) fn run(args: &PricesArgs, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<()> {
    let default = args.source.load(messages)?;
    let state = input::understand_some(&args.objects.read(NODE_CLASSES)?, messages)?;
    let mut missing = missing(&state, &default);
    missing.retain(|(name, ..), _| args.types.is_empty() || args.types.contains(name));
    let now = args.objects.now();
    match args.output {
        Output::Table | Output::Wide if missing.is_empty() => Ok(writeln!(messages, "nothing is out of stock")?),
        Output::Table | Output::Wide => {
            let waiting = missing.values().filter(|missing| missing.until > now).count();
            let verb = if waiting == 1 { "is" } else { "are" };
            let footer = format!("{} {verb} left out of plans and launches", plural(waiting, "offering"));
            say(out, &format!("{}\n\n{footer}", table(&missing, now, args.output == Output::Wide)))
        }
        Output::Name => {
            let names: Vec<String> =
                missing.keys().map(|(name, zone, bought)| format!("{name}/{zone}/{bought}")).collect();
            if names.is_empty() { Ok(()) } else { say(out, &names.join("\n")) }
        }
        Output::Json | Output::Yaml => {
            let items: Vec<Value> = missing.iter().map(|(key, missing)| item(key, missing)).collect();
            structured(args.output, &json!({ "items": items }), out)
        }
    }
}

/// The offerings that any class reports as out of stock; of several reports, the one with the latest retry.
fn missing(state: &State, default: &Catalog) -> BTreeMap<Key, Missing> {
    let mut all: BTreeMap<Key, Missing> = BTreeMap::new();
    for (_, class) in state.classes() {
        let catalog = catalog(class, state, default);
        for one in &class.status.unavailable {
            let key = (one.instance_type.clone(), one.zone.clone(), one.capacity_type.clone());
            let price = price(catalog, &key);
            let known = all.entry(key).or_insert(Missing { classes: BTreeSet::new(), price, failures: 0, until: 0 });
            known.classes.insert(class.metadata.name.clone());
            known.failures = known.failures.max(one.failures);
            known.until = known.until.max(one.until.0);
        }
    }
    all
}

fn catalog<'c>(class: &NodeClass, state: &'c State, default: &'c Catalog) -> &'c Catalog {
    let named = class.spec.catalog.as_deref();
    named.and_then(|name| state.find_catalog(name).or_else(|| built_in(name))).unwrap_or(default)
}

fn price(catalog: &Catalog, (name, zone, bought): &Key) -> Option<u64> {
    let mut offerings = catalog.find(name)?.offerings.iter();
    let same = offerings.find(|offering| *offering.zone == **zone && offering.capacity_type.name() == bought)?;
    Some(same.price_nanos_hour)
}

fn table(all: &BTreeMap<Key, Missing>, now: i64, wide: bool) -> String {
    let mut columns = vec![
        ("TYPE", Left),
        ("ZONE", Left),
        ("CAPACITY", Left),
        ("HOUR", Right),
        ("FAILURES", Right),
        ("TRIED AGAIN", Left),
        ("CLASS", Left),
    ];
    if wide {
        columns.push(("UNTIL", Left));
    }
    let mut table = Table::new(&columns);
    for ((name, zone, bought), missing) in all {
        let again = if missing.until > now { format!("in {}", span(missing.until - now)) } else { "now".to_owned() };
        let mut cells = vec![
            name.clone(),
            zone.clone(),
            bought.clone(),
            missing.price.map_or_else(|| "?".to_owned(), |price| money::rounded(price, 4)),
            missing.failures.to_string(),
            again,
            missing.classes.iter().cloned().collect::<Vec<_>>().join(","),
        ];
        if wide {
            cells.push(moment(missing.until).unwrap_or_default());
        }
        table.row(cells);
    }
    table.text()
}

fn item((name, zone, bought): &Key, missing: &Missing) -> Value {
    json!({
        "instanceType": name,
        "zone": zone,
        "capacityType": bought,
        "pricePerHour": missing.price.map(money::dollars),
        "failures": missing.failures,
        "until": moment(missing.until),
        "classes": missing.classes,
    })
}
