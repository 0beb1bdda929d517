//! Many pods of many shapes over EC2, on-demand, in three zones.
//!
//! A shape has between 0.05 and 6 cores and between 0.5 and 12 GiB for each; the most frequent shape has a hundred
//! times as many pods as the rarest. Pods of all shapes arrive mixed.

use millpond_api::labels::{HOSTNAME, ZONE};
use millpond_plan::model::ClassId;

use super::{Families, Workload, ec2_pool};
use crate::builder::Builder;
use crate::random::Random;

/// The seed where none is given.
pub const SEED: u64 = 5;

/// The parameters of the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Pods, exactly.
    pub pods: u64,
    /// Shapes; no more than pods.
    pub shapes: u64,
    /// Whether a sixth of the shapes is spread over zones and a sixth has at most one pod on a host.
    pub third: bool,
    /// The machines that can be bought.
    pub families: Families,
}

impl Default for Scale {
    fn default() -> Self {
        Self { pods: 100_000, shapes: 2_000, third: false, families: Families::Full }
    }
}

/// A number of equal pods.
struct Shape {
    cpu_milli: i64,
    memory_mib: i64,
    pods: u64,
}

/// The workload.
pub fn workload(scale: Scale, seed: u64) -> Workload {
    let Scale { pods, third, families, .. } = scale;
    let rules = if third { " third" } else { "" };
    let revision =
        format!("bench scale pods={pods} shapes={} seed={seed} families={}{rules}", scale.shapes, families.name());
    let mut builder = Builder::new(revision);
    ec2_pool(&mut builder, |machine| families.has(machine), &["on-demand"]);
    let mut random = Random::new(seed);
    let shapes = shapes(&mut random, scale.shapes.min(pods), pods);
    let mut arriving: Vec<(usize, ClassId)> = Vec::with_capacity(pods as usize);
    for (number, shape) in shapes.iter().enumerate() {
        let app = format!("app-{number}");
        let template = builder.pod(shape.cpu_milli, shape.memory_mib).label("app", &app);
        let class = match number % 6 {
            0 if third => template.away_from(HOSTNAME, "app", &app).class(),
            1 if third => template.spread(ZONE, "app", &app).class(),
            _ => template.class(),
        };
        arriving.extend((0..shape.pods).map(|_| (number, class)));
    }
    random.shuffle(&mut arriving);
    let mut numbers = vec![0_u64; shapes.len()];
    for (shape, class) in arriving {
        builder.pending(&format!("app-{shape}-{}", numbers[shape]), class);
        numbers[shape] += 1;
    }
    let name = ["scale", if families == Families::Usual { "-usual" } else { "" }, if third { "-third" } else { "" }];
    Workload::pending(name.concat(), builder)
}

fn shapes(random: &mut Random, shapes: u64, pods: u64) -> Vec<Shape> {
    let weights: Vec<f64> = (0..shapes).map(|_| random.logarithmic(0.1, 10.0)).collect();
    let counts = shares(&weights, pods);
    let shape = |pods| {
        let (cpu_milli, memory_mib) = size(random, (0.05, 6.0), (0.5, 12.0));
        Shape { cpu_milli, memory_mib, pods }
    };
    counts.into_iter().map(shape).collect()
}

/// Milli-cores and MiB of a pod: cores, and GiB for each of them.
pub(super) fn size(random: &mut Random, cores: (f64, f64), gib_per_core: (f64, f64)) -> (i64, i64) {
    let cores = random.logarithmic(cores.0, cores.1);
    let ratio = random.logarithmic(gib_per_core.0, gib_per_core.1);
    let whole = |amount: f64| amount.round().max(1.0) as i64;
    (whole(cores * 1_000.0), whole(cores * ratio * 1_024.0))
}

/// Integer shares that add up to a total, at least one each: one for each share, the remainder by weight, and the
/// rounding difference to the shares that lost most by it.
pub(super) fn shares(weights: &[f64], total: u64) -> Vec<u64> {
    let rest = total - weights.len() as u64;
    let sum: f64 = weights.iter().sum();
    let exact: Vec<f64> = weights.iter().map(|weight| rest as f64 * weight / sum).collect();
    let mut shares: Vec<u64> = exact.iter().map(|share| *share as u64).collect();
    let mut left = rest.saturating_sub(shares.iter().sum());
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|a, b| exact[*b].fract().total_cmp(&exact[*a].fract()).then(a.cmp(b)));
    for index in order.into_iter().cycle() {
        if left == 0 {
            break;
        }
        shares[index] += 1;
        left -= 1;
    }
    shares.into_iter().map(|share| share + 1).collect()
}
