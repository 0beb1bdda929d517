//! The short texts of [`Cluster`](super::Cluster).
//!
//! | What | Text |
//! |---|---|
//! | labels | `app=web tier=front` |
//! | requirements | `zone in a,b; arch notin arm64; gpu exists; spot !exists; cores > 4; cores <= 8` |
//! | resources | `cpu=500m memory=1Gi gpu=1` |
//! | a taint | `team=red:NoSchedule`, `gpu:NoExecute` |
//! | a toleration | `team=red`, `gpu:NoExecute`, `gpu`, `*` |
//!
//! `zone`, `host`, `region`, `capacity`, `type`, `pool`, `os`, `arch` and `node` stand for the long names of those
//! labels. A text that cannot be read is a mistake in a test, so it panics.

use crate::model::{Labels, ResourceId, ResourceTable, Resources};
use crate::requirement::{Operator, Requirement, Requirements};
use crate::symbol::{Symbol, Symbols};
use crate::taint::{Comparison, Effect, Taint, Toleration};

/// The full name of a label.
pub(super) fn label_name(short: &str) -> &str {
    match short {
        "zone" => "topology.kubernetes.io/zone",
        "host" => "kubernetes.io/hostname",
        "region" => "topology.kubernetes.io/region",
        "capacity" => "karpenter.sh/capacity-type",
        "type" => "node.kubernetes.io/instance-type",
        "pool" => "karpenter.sh/nodepool",
        "os" => "kubernetes.io/os",
        "arch" => "kubernetes.io/arch",
        "node" => "metadata.name",
        other => other,
    }
}

pub(super) fn label_key(short: &str, symbols: &mut Symbols) -> Symbol {
    symbols.intern(label_name(short))
}

pub(super) fn labels(text: &str, symbols: &mut Symbols) -> Labels {
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or_else(|| panic!("{pair:?} is not key=value"));
        (label_key(key, symbols), symbols.intern(value))
    };
    text.split_whitespace().map(pair).collect()
}

pub(super) fn requirements(text: &str, symbols: &mut Symbols) -> Requirements {
    let mut all = Requirements::new();
    for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, requirement) = requirement(part, symbols);
        all.add(key, requirement, symbols);
    }
    all
}

fn requirement(text: &str, symbols: &mut Symbols) -> (Symbol, Requirement) {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (operator, values) = match words[..] {
        [_, "in", values] => (Operator::In, values),
        [_, "notin", values] => (Operator::NotIn, values),
        [_, "exists"] => (Operator::Exists, ""),
        [_, "!exists"] => (Operator::DoesNotExist, ""),
        [_, ">", value] => (Operator::Gt, value),
        [_, "<", value] => (Operator::Lt, value),
        [_, ">=", value] => (Operator::Gte, value),
        [_, "<=", value] => (Operator::Lte, value),
        _ => panic!("{text:?} is not a requirement"),
    };
    let values = values.split(',').filter(|value| !value.is_empty());
    let requirement = Requirement::parse(operator, values, symbols).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    (label_key(words[0], symbols), requirement)
}

pub(super) fn resources(text: &str, table: &mut ResourceTable) -> Resources {
    resource_list(text, table).into_iter().collect()
}

pub(super) fn resource_list(text: &str, table: &mut ResourceTable) -> Vec<(ResourceId, i64)> {
    let pair = |pair: &str| {
        let (name, amount) = pair.split_once('=').unwrap_or_else(|| panic!("{pair:?} is not resource=amount"));
        let name = if name == "storage" { "ephemeral-storage" } else { name };
        (table.intern(name), amount_of(name, amount))
    };
    text.split_whitespace().map(pair).collect()
}

fn amount_of(name: &str, text: &str) -> i64 {
    let number = |digits: &str| digits.parse::<i64>().unwrap_or_else(|error| panic!("{text:?}: {error}"));
    if let Some(thousandths) = text.strip_suffix('m') {
        return number(thousandths);
    }
    for (suffix, factor) in [("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30)] {
        if let Some(digits) = text.strip_suffix(suffix) {
            return number(digits) * factor;
        }
    }
    number(text) * if name == "cpu" { 1000 } else { 1 }
}

fn effect(text: &str) -> Effect {
    match text {
        "NoSchedule" => Effect::NoSchedule,
        "PreferNoSchedule" => Effect::PreferNoSchedule,
        "NoExecute" => Effect::NoExecute,
        other => panic!("{other:?} is not an effect"),
    }
}

pub(super) fn taint(text: &str, symbols: &mut Symbols) -> Taint {
    let (name, after) = text.split_once(':').unwrap_or_else(|| panic!("{text:?} has no effect"));
    let (key, value) = name.split_once('=').unwrap_or((name, ""));
    Taint { key: symbols.intern(key), value: symbols.intern(value), effect: effect(after) }
}

pub(super) fn toleration(text: &str, symbols: &mut Symbols) -> Toleration {
    let (name, after) = text.split_once(':').map_or((text, None), |(name, after)| (name, Some(effect(after))));
    let (key, value) = match name.split_once('=') {
        Some((key, value)) => (key, Comparison::Equal(symbols.intern(value))),
        None => (name, Comparison::Exists),
    };
    Toleration { key: (key != "*").then(|| symbols.intern(key)), value, effect: after }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CPU, MEMORY};

    #[test]
    fn words_become_values() {
        let (mut symbols, mut table) = (Symbols::new(), ResourceTable::new());
        let amounts = resources("cpu=1500m memory=2Gi gpu=3", &mut table);
        assert_eq!((amounts.get(CPU), amounts.get(MEMORY), amounts.get(ResourceId(4))), (1500, 2 << 30, 3));
        assert_eq!(resources("cpu=2", &mut table).get(CPU), 2000);

        let wanted = requirements("zone in a,b; cores >= 4; gpu !exists", &mut symbols);
        let offered = labels("zone=b cores=4", &mut symbols);
        assert!(wanted.match_labels(|key| offered.get(key), &symbols));
        let offered = labels("zone=b cores=3", &mut symbols);
        assert!(!wanted.match_labels(|key| offered.get(key), &symbols));

        let red = taint("team=red:NoSchedule", &mut symbols);
        for (text, expected) in [("team=red", true), ("team=blue", false), ("*", true), ("team:NoExecute", false)] {
            assert_eq!(toleration(text, &mut symbols).tolerates(&red, &symbols), expected, "{text}");
        }
    }
}
