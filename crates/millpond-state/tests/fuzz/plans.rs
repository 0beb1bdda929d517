//! What was read can be planned with, however odd it is, and the plan is right.

use millpond_plan::check::check;
use millpond_plan::pack::Budget;
use millpond_plan::plan::Settings;
use millpond_state::Reader;
use rand::RngExt as _;
use rand::seq::IndexedRandom as _;

use crate::files::{GOOD, changed};
use crate::reading::{NOW, options};
use crate::rounds;

/// Most that is planned for: a change of `replicas` may ask for millions.
const PODS: usize = 2_000;

/// Files that belong together.
const CLUSTERS: &[(&str, &str)] = &[
    ("web-pools.yaml", "web.yaml"),
    ("spread-pools.yaml", "spread.yaml"),
    ("consolidate.yaml", ""),
    ("gpu.yaml", ""),
    ("kwok.yaml", ""),
    ("limits.yaml", ""),
    ("spot.yaml", ""),
    ("stuck.yaml", ""),
    ("cluster.yaml", "storage.yaml"),
];

#[test]
fn fuzz_plans_of_changed_files() {
    let (mut planned, mut bought) = (0, 0);
    rounds(400, |random| {
        // Pools and workloads of some examples are two files.
        let of = |file: &str| GOOD.iter().find(|(name, _)| *name == file).map_or("", |(_, text)| *text);
        let (pools, workloads) = CLUSTERS.choose(random).expect("there are some");
        let bytes = changed(&format!("{}\n---\n{}", of(pools), of(workloads)), random);
        let mut reader = Reader::new();
        reader.add("cluster.yaml", &bytes);
        let snapshot = reader.finish().state.snapshot(NOW, &options(true)).snapshot;
        if snapshot.pods.len() > PODS {
            return;
        }
        let consolidate = random.random_bool(0.5);
        let settings = Settings { consolidate, budget: Budget { evaluations: 200, threads: 1 }, ..Settings::default() };
        let outcome = millpond_plan::plan(&snapshot, &settings);
        let violations = check(&snapshot, &outcome);
        assert!(violations.is_empty(), "{violations:?}\n{}", String::from_utf8_lossy(&bytes));
        planned += 1;
        bought += usize::from(!outcome.plan.new_nodes.is_empty());
    });
    assert!(planned > 300 && bought > 50, "{planned} were planned, for {bought} something was bought");
}
