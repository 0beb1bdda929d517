//! Karpenter's scheduling benchmark: 400 types, one pool, no nodes, five groups of pods.
//!
//! A fifth of the pods each, in this order; what a division by five leaves over is of the first group.
//!
//! | Group | Label | Rule |
//! |---|---|---|
//! | 1 | `my-label` | none |
//! | 2 | `my-label` | spread over zones, among pods with another draw of `my-label` |
//! | 3 | `my-label` | the same over hosts |
//! | 4 | `my-affininity` | in the zone of pods with the same label |
//! | 5 | `app: nginx` | not on the host of another |
//!
//! Labels, cpu and memory are drawn per pod, in this order; the draws are ours, the distributions are the
//! benchmark's. (The spelling of the second label is the benchmark's too.)

use millpond_api::catalog::built_in;
use millpond_api::labels::{HOSTNAME, ZONE};
use millpond_plan::model::{CPU, Limits, MEMORY};
use millpond_state::add_types;

use super::Workload;
use crate::builder::{Builder, Template};
use crate::random::Random;

/// Pods where no number is asked for.
pub const PODS: u64 = 20_000;
/// Pods of the variant with preferences.
pub const PREFERENCE_PODS: u64 = 4_000;
/// The seed where none is given.
pub const SEED: u64 = 42;
/// The same for the variant with preferences: the first whose one draw is 4 GiB, the size that the figures known of
/// Karpenter were measured with.
pub const PREFERENCE_SEED: u64 = 4;

const CPU_MILLI: [i64; 5] = [100, 250, 500, 1_000, 1_500];
const MEMORY_MIB: [i64; 6] = [100, 256, 512, 1_024, 2_048, 4_096];
const LABELS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

const MY_LABEL: &str = "my-label";
const MY_AFFINITY: &str = "my-affininity";

/// The five groups.
pub fn workload(pods: u64, seed: u64) -> Workload {
    let mut builder = cluster(format!("bench karpenter pods={pods} seed={seed}"));
    let mut random = Random::new(seed);
    for pod in 0..pods {
        let class = match pod.checked_div(pods / 5) {
            Some(1) => spread(&mut builder, &mut random, ZONE).class(),
            Some(2) => spread(&mut builder, &mut random, HOSTNAME).class(),
            Some(3) => {
                let label = random.pick(&LABELS);
                let template = sized(&mut builder, &mut random).label(MY_AFFINITY, label);
                template.near(ZONE, MY_AFFINITY, label).class()
            }
            Some(4) => {
                let template = sized(&mut builder, &mut random).label("app", "nginx");
                template.away_from(HOSTNAME, "app", "nginx").class()
            }
            _ => {
                let label = random.pick(&LABELS);
                sized(&mut builder, &mut random).label(MY_LABEL, label).class()
            }
        };
        builder.pending(&format!("p{pod}"), class);
    }
    Workload::pending("karpenter", builder)
}

/// Pods of one size that would rather be in the first zone and away from each other, which all but three cannot.
pub fn preferences(pods: u64, seed: u64) -> Workload {
    let mut builder = cluster(format!("bench karpenter preferences pods={pods} seed={seed}"));
    let mut random = Random::new(seed);
    let template = sized(&mut builder, &mut random)
        .label("app", "nginx")
        .rather_on(1, ZONE, &["test-zone-1"])
        .rather_away_from(10, ZONE, "app", "nginx")
        .rather_away_from(1, HOSTNAME, "app", "nginx");
    template.pending("p", pods);
    Workload::pending("karpenter-preferences", builder)
}

/// The types and the pool; its limits are far beyond any of the sizes.
fn cluster(revision: String) -> Builder {
    let mut builder = Builder::new(revision);
    let fake = built_in("fake").expect("it comes with the binary");
    let types = add_types(fake, &mut builder.snapshot);
    let resources = vec![(CPU, 10_000_000 * 1_000), (MEMORY, 10_000_000 << 30)];
    builder.pool("default", types).limits = Limits { resources, ..Limits::default() };
    builder
}

fn sized<'b>(builder: &'b mut Builder, random: &mut Random) -> Template<'b> {
    let (cpu, memory) = (random.pick(&CPU_MILLI), random.pick(&MEMORY_MIB));
    // The benchmark puts this label on everything that it makes.
    builder.pod(cpu, memory).label("testing/cluster", "unspecified")
}

fn spread<'b>(builder: &'b mut Builder, random: &mut Random, over: &str) -> Template<'b> {
    let (own, selected) = (random.pick(&LABELS), random.pick(&LABELS));
    sized(builder, random).label(MY_LABEL, own).spread(over, MY_LABEL, selected)
}
