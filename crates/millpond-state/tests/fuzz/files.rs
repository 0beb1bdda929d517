//! Snapshot files: random bytes, and good files with changes.

use rand::RngExt as _;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;

use crate::mutate::{mutate, revalue, text};
use crate::reading::read;
use crate::rounds;

/// Files of every kind and form.
pub(crate) const GOOD: &[(&str, &str)] = &[
    ("cluster.yaml", include_str!("../lowering/data/cluster.yaml")),
    ("pods.json", include_str!("../lowering/data/pods.json")),
    ("storage.yaml", include_str!("../lowering/data/storage.yaml")),
    ("advisor.json", include_str!("../lowering/data/advisor.json")),
    ("consolidate.yaml", include_str!("../../../../examples/consolidate/cluster.yaml")),
    ("gpu.yaml", include_str!("../../../../examples/gpu/cluster.yaml")),
    ("kwok.yaml", include_str!("../../../../examples/kwok/cluster.yaml")),
    ("limits.yaml", include_str!("../../../../examples/limits/cluster.yaml")),
    ("spot.yaml", include_str!("../../../../examples/spot/cluster.yaml")),
    ("spread-pools.yaml", include_str!("../../../../examples/spread/pools.yaml")),
    ("spread.yaml", include_str!("../../../../examples/spread/workloads.yaml")),
    ("stuck.yaml", include_str!("../../../../examples/stuck/cluster.yaml")),
    ("web-pools.yaml", include_str!("../../../../examples/web/pools.yaml")),
    ("web.yaml", include_str!("../../../../examples/web/workloads.yaml")),
];

fn name(random: &mut SmallRng) -> &'static str {
    ["a.yaml", "a.json"].choose(random).expect("there are two")
}

/// A file with a few changes, small or rough.
pub(crate) fn changed(text: &str, random: &mut SmallRng) -> Vec<u8> {
    if random.random_bool(0.5) {
        return revalue(text, random).into_bytes();
    }
    let mut bytes = text.as_bytes().to_vec();
    mutate(&mut bytes, random);
    bytes
}

#[test]
fn good_files_are_good() {
    for (file, text) in GOOD {
        let (reading, _) = read(file, text.as_bytes());
        assert_eq!((reading.errors, reading.warnings), (vec![], vec![]), "{file}");
        assert!(reading.objects > 0, "{file}");
    }
}

#[test]
fn fuzz_random_bytes() {
    rounds(2_000, |random| {
        let mut bytes = vec![0; random.random_range(0..400)];
        random.fill(&mut bytes[..]);
        read(name(random), &bytes);
    });
}

/// Letters that YAML and JSON are made of.
#[test]
fn fuzz_random_marks() {
    rounds(4_000, |random| {
        let text = text("[]{}:,&*\"' \n-ab01!|>%?#<.\\\t\r", 200, random);
        read(name(random), text.as_bytes());
    });
}

#[test]
fn fuzz_changed_files() {
    let (mut used, mut refused) = (0, 0);
    rounds(3_000, |random| {
        let (file, text) = GOOD.choose(random).expect("there are some");
        let bytes = changed(text, random);
        let (reading, _) = read(file, &bytes);
        used += usize::from(reading.objects > 0);
        refused += usize::from(!reading.errors.is_empty());
    });
    // Neither does every change break the whole file, nor does none do harm.
    assert!(used > 500 && refused > 500, "{used} were used, {refused} refused");
}

/// Objects of two files, so that names meet.
#[test]
fn fuzz_files_that_are_mixed() {
    let yaml: Vec<&str> = GOOD.iter().filter(|(file, _)| file.ends_with("yaml")).map(|(_, text)| *text).collect();
    rounds(500, |random| {
        let of = |random: &mut SmallRng| *yaml.choose(random).expect("there are some");
        let mut bytes = format!("{}\n---\n{}", of(random), of(random)).into_bytes();
        mutate(&mut bytes, random);
        read("mixed.yaml", &bytes);
    });
}

/// Anchors and aliases in and around each other: none makes more of a text than is allowed.
#[test]
fn fuzz_aliases() {
    rounds(500, |random| {
        let names = ["a", "b", "c", "d"];
        let mut text = String::from("kind: List\napiVersion: v1\nitems:\n");
        for _ in 0..random.random_range(1..30) {
            let anchor = names.choose(random).expect("there are some");
            let entries: Vec<String> = (0..random.random_range(0..40))
                .map(|_| match random.random_range(0..4) {
                    0 => "{kind: Pod, apiVersion: v1, metadata: {name: p}, spec: {}}".to_owned(),
                    1 => "x".repeat(random.random_range(0..2_000)),
                    _ => format!("*{}", names.choose(random).expect("there are some")),
                })
                .collect();
            text.push_str(&format!("- &{anchor} [{}]\n", entries.join(", ")));
        }
        if random.random_bool(0.3) {
            let mut bytes = text.into_bytes();
            mutate(&mut bytes, random);
            read("aliases.yaml", &bytes);
        } else {
            read("aliases.yaml", text.as_bytes());
        }
    });
}
