//! Amounts, prices and lists as people write them.

use crate::model::{CPU, MEMORY, Nanos, PoolId, ResourceId, STORAGE, Snapshot};
use crate::requirement::Requirement;
use crate::symbol::Symbol;
use crate::taint::{Effect, Taint};

/// Values that a sentence lists before it says how many more there are.
pub(super) const SHOWN: usize = 5;

/// How an amount may be rounded. A request is never shown smaller than it is and an offer never larger, so that a
/// request and an offer that is too small for it never look equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Round {
    Up,
    Down,
}

/// An amount of a resource: `63.77`, `1.5Gi`, `8`.
pub(super) fn amount(snapshot: &Snapshot, resource: ResourceId, amount: i64, round: Round) -> String {
    let name = snapshot.resources.name(resource);
    if resource == CPU {
        return decimal(amount, 1000, "", round);
    }
    let bytes = resource == MEMORY || resource == STORAGE || name.starts_with("hugepages-");
    if !bytes {
        return amount.to_string();
    }
    let units = [(1_i64 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
    let unit = units.into_iter().find(|(size, _)| amount.unsigned_abs() >= size.unsigned_abs());
    unit.map_or_else(|| amount.to_string(), |(size, suffix)| decimal(amount, size, suffix, round))
}

/// A fraction with at most three decimals.
fn decimal(amount: i64, unit: i64, suffix: &str, round: Round) -> String {
    let scaled = i128::from(amount) * 1000;
    let unit = i128::from(unit);
    let thousandths = match round {
        Round::Down => scaled.div_euclid(unit),
        Round::Up => -(-scaled).div_euclid(unit),
    };
    let sign = if thousandths < 0 { "-" } else { "" };
    let (whole, rest) = (thousandths.abs() / 1000, thousandths.abs() % 1000);
    if rest == 0 {
        return format!("{sign}{whole}{suffix}");
    }
    let digits = format!("{rest:03}");
    format!("{sign}{whole}.{}{suffix}", digits.trim_end_matches('0'))
}

/// Dollars per hour: `$0.096/h`.
pub(super) fn price(nanos: u128) -> String {
    let tenthousandths = nanos.div_ceil(100_000);
    let (whole, rest) = (tenthousandths / 10_000, tenthousandths % 10_000);
    let digits = format!("{rest:04}");
    let digits = digits.strip_suffix("00").or(digits.strip_suffix('0')).unwrap_or(&digits);
    format!("${whole}.{digits}/h")
}

/// A price of one node.
pub(super) fn node_price(nanos: Nanos) -> String {
    price(u128::from(nanos))
}

/// `a, b, c and 4 more`.
pub(super) fn list<T: AsRef<str>>(items: &[T]) -> String {
    let shown: Vec<&str> = items.iter().take(SHOWN).map(AsRef::as_ref).collect();
    match items.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// `1 type`, `3 types`.
pub(super) fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// A label's key as people call it: the usual ones by their short name.
pub(super) fn label(snapshot: &Snapshot, key: Symbol) -> &str {
    let names = &snapshot.names;
    let short = [
        (names.zone, "zone"),
        (names.region, "region"),
        (names.capacity_type, "capacity type"),
        (names.instance_type, "instance type"),
        (names.arch, "arch"),
        (names.os, "os"),
        (names.hostname, "hostname"),
        (names.pool, "pool"),
    ];
    short.into_iter().find(|(known, _)| *known == key).map_or_else(|| snapshot.text(key), |(_, short)| short)
}

/// A requirement in words: `zone us-east-1f`, `zone In [a, b]`, `team Exists`.
pub(super) fn wanted(snapshot: &Snapshot, key: Symbol, requirement: &Requirement) -> String {
    let label = label(snapshot, key);
    match requirement.only_value() {
        Some(value) => format!("{label} {}", snapshot.text(value)),
        None => format!("{label} {}", requirement.describe(&snapshot.symbols, SHOWN)),
    }
}

/// `dedicated=gpu:NoSchedule`.
pub(super) fn taint(snapshot: &Snapshot, taint: &Taint) -> String {
    let value = snapshot.text(taint.value);
    let equals = if value.is_empty() { "" } else { "=" };
    format!("{}{equals}{value}:{}", snapshot.text(taint.key), effect(taint.effect))
}

/// The effect's name in YAML.
pub(super) fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::NoSchedule => "NoSchedule",
        Effect::PreferNoSchedule => "PreferNoSchedule",
        Effect::NoExecute => "NoExecute",
    }
}

/// The name of a pool.
pub(super) fn pool(snapshot: &Snapshot, pool: PoolId) -> &str {
    &snapshot.pools[pool.index()].name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_short_and_never_flatter() {
        let mut snapshot = Snapshot::new(0);
        let gpu = snapshot.resources.intern("nvidia.com/gpu");
        let gi = 1_i64 << 30;
        let cases = [
            (CPU, 65_000, Round::Up, "65"),
            (CPU, 63_770, Round::Down, "63.77"),
            (CPU, 100, Round::Up, "0.1"),
            (MEMORY, 64 * gi, Round::Up, "64Gi"),
            (MEMORY, 64 * gi - 1, Round::Down, "63.999Gi"),
            (MEMORY, 64 * gi + 1, Round::Up, "64.001Gi"),
            (MEMORY, 3 << 29, Round::Down, "1.5Gi"),
            (MEMORY, 512 << 20, Round::Down, "512Mi"),
            (MEMORY, -gi, Round::Down, "-1Gi"),
            (MEMORY, 12, Round::Down, "12"),
            (gpu, 8, Round::Up, "8"),
        ];
        for (resource, value, round, expected) in cases {
            assert_eq!(amount(&snapshot, resource, value, round), expected);
        }
    }

    #[test]
    fn prices_have_two_to_four_decimals() {
        for (nanos, expected) in
            [(96_000_000, "$0.096/h"), (1_500_000_000, "$1.50/h"), (12_345_678, "$0.0124/h"), (0, "$0.00/h")]
        {
            assert_eq!(price(nanos), expected);
        }
    }

    #[test]
    fn long_lists_end_in_a_number() {
        assert_eq!(list(&["a", "b"]), "a, b");
        assert_eq!(list(&["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e and 2 more");
        assert_eq!((count(1, "type"), count(0, "type")), ("1 type".to_owned(), "0 types".to_owned()));
    }
}
