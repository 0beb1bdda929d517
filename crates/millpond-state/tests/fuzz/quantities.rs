//! Quantities: as texts of their own, and as fields of objects.

use millpond_api::quantity::{QuantityError, parse_milli, parse_units};
use millpond_plan::model::{CPU, MEMORY};
use rand::RngExt as _;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;

use crate::mutate::{mutate, text};
use crate::reading::read;
use crate::rounds;

const GOOD: &[&str] =
    &["0", "4", "500m", "1.5", "16Gi", "1.5Gi", "2k", "1e3", "12E-1", "100u", "7Ei", "+3", ".5", "5."];

/// A quantity, or something like one.
fn quantity(random: &mut SmallRng) -> String {
    match random.random_range(0..3) {
        0 => {
            let mut bytes = GOOD.choose(random).expect("there are some").as_bytes().to_vec();
            mutate(&mut bytes, random);
            String::from_utf8_lossy(&bytes).into_owned()
        }
        1 => text("0123456789", 22, random) + *["", "m", "Ki", "Ei", "e9", "E-9", "n"].choose(random).expect("some"),
        _ => text("0123456789.-+eEkKmMgGtTpPiun", 12, random),
    }
}

#[test]
fn fuzz_quantities() {
    let mut good = 0;
    rounds(20_000, |random| {
        let text = quantity(random);
        match (parse_milli(&text), parse_units(&text)) {
            (Ok(milli), Ok(units)) => {
                // Both are rounded up.
                assert_eq!(milli.div_ceil(1000), units, "{text}");
                good += 1;
            }
            (Err(QuantityError::TooLarge), Ok(units)) => assert!(units > u64::MAX / 1000, "{text}"),
            (milli, units) => assert_eq!(milli.unwrap_err(), units.unwrap_err(), "{text}"),
        }
    });
    assert!(good > 1_000, "only {good} were quantities");
}

/// A quantity that a node cannot have is told with its place; all others are what the node has.
#[test]
fn fuzz_quantities_of_nodes() {
    rounds(4_000, |random| {
        let text = quantity(random);
        let quoted = serde_json::to_string(&text).expect("a text is JSON");
        let resource = *["cpu", "memory"].choose(random).expect("there are two");
        let head = "{\"apiVersion\": \"v1\", \"kind\": \"Node\", \"metadata\": {\"name\": \"n\", \"uid\": \"u\"}, \"status\": {\"allocatable\":\n";
        let file = format!("{head} {{\"{resource}\": {quoted}}}}}}}");
        let (reading, taken) = read("node.json", file.as_bytes());
        let parsed = if resource == "cpu" { parse_milli(&text) } else { parse_units(&text) };
        match parsed.map(i64::try_from) {
            Ok(Ok(amount)) => {
                assert_eq!(reading.errors, [], "{text}");
                let node = &taken.snapshot.nodes[0];
                assert_eq!(node.allocatable.get(if resource == "cpu" { CPU } else { MEMORY }), amount, "{text}");
            }
            _ => {
                let [error] = &reading.errors[..] else { panic!("{text}: {:?}", reading.errors) };
                assert_eq!((error.line, error.column), (2, 7 + resource.len() as u32), "{error}");
                let field = format!("status.allocatable.{resource}");
                assert_eq!((error.object.as_deref(), error.field.as_deref()), (Some("Node/n"), Some(&*field)));
            }
        }
    });
}
