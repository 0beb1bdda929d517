//! Pools of different weight at their limits: the checker on random clusters, brute force on tiny ones.

use millpond_plan::check::check;
use millpond_plan::model::Snapshot;
use millpond_plan::plan::{Outcome, Target};
use millpond_plan::testing::{Cluster, Recipe, Rng};

use super::{for_seeds, quick_plan};

fn judge(snapshot: &Snapshot, outcome: &Outcome) -> Result<(), String> {
    check(snapshot, outcome).first().map_or(Ok(()), |violation| Err(violation.to_string()))
}

/// Sizes of machines of the greater pool, each twice the one before; pods ask for one core and leave nothing over.
const SIZES: [u64; 4] = [1, 2, 4, 8];

/// A pool of greater weight under a limit, and one without: machines of their own, or the same.
fn two_pools(seed: u64) -> (Cluster, u64, u64) {
    let mut rng = Rng::new(seed);
    let mut cluster = Cluster::new();
    let mut own = Vec::new();
    for size in SIZES {
        if size > 1 && rng.chance(30) {
            continue;
        }
        // What a core costs differs by size, so that the cheapest nodes are as often large as small.
        let price = size * rng.between(40, 60) as u64;
        own.push(format!("own-{size}"));
        cluster = cluster.machine(&format!("own-{size}"), &format!("cpu={size} memory={}Gi", 4 * size), |machine| {
            machine.zones("a b").price(price)
        });
    }
    let cheap = rng.between(5, 30) as u64;
    cluster = cluster.machine("cloud", "cpu=16 memory=64Gi", |machine| machine.zones("b c").price(16 * cheap));
    let cores = rng.between(0, 20) as u64;
    let limit = format!("cpu={cores}");
    let shared = rng.chance(20);
    let own = own.join(" ");
    let cluster = cluster
        .pool("own", |pool| pool.weight(10).machines(&own).limit(&limit))
        .pool("cloud", |pool| if shared { pool } else { pool.machines("cloud") });
    let pods = rng.between(1, 24) as u64;
    (cluster, cores, pods)
}

/// With machines of one core and their multiples a limit on cores can be used up: the greater pool gets as many pods.
#[test]
fn tiny_plans_use_the_greater_pool_up() {
    for_seeds(0..400, |seed| {
        let (cluster, cores, pods) = two_pools(seed);
        let snapshot = cluster.pods(pods as usize, "web", "cpu=1 memory=2Gi", |pod| pod).snapshot();
        let outcome = quick_plan(&snapshot);
        judge(&snapshot, &outcome)?;
        let own = snapshot.find_pool("own").expect("it is there");
        let in_own = |target: &Target| match target {
            Target::New(node) => outcome.plan.new_nodes[*node as usize].pool == own,
            Target::Existing(_) => false,
        };
        let placed = outcome.plan.placements.iter().filter(|(_, target)| in_own(target)).count() as u64;
        let most = most_pods(cores).min(pods);
        if placed == most && outcome.report.unplaced.is_empty() {
            Ok(())
        } else {
            Err(format!("{placed} of {pods} pods in the greater pool, {cores} cores could hold {most}"))
        }
    });
}

/// The most pods of one core that nodes within a number of cores hold, by trying all numbers of the least machine.
fn most_pods(cores: u64) -> u64 {
    (0..=cores).filter(|nodes| nodes * SIZES[0] <= cores).max().unwrap_or(0)
}

/// Machines that keep something for themselves: the greater pool holds what brute force over its nodes finds, or one pod
/// less; how many nodes of which size use a limit up best is a knapsack of its own.
#[test]
fn overhead_is_weighed_against_limits() {
    for_seeds(1000..1200, |seed| {
        let mut rng = Rng::new(seed);
        let limit = rng.between(1, 18) as u64;
        let pods = rng.between(2, 16);
        let holds = |size: u64| size - 1;
        let mut cluster = Cluster::new();
        for size in [2, 4, 8] {
            let price = size * rng.between(40, 60) as u64;
            let capacity = format!("cpu={size} memory={}Gi", 4 * size);
            cluster =
                cluster.machine(&format!("own-{size}"), &capacity, |machine| machine.price(price).keeps("cpu=500m"));
        }
        let limits = format!("cpu={limit}");
        let snapshot = cluster
            .machine("cloud", "cpu=16 memory=64Gi", |machine| machine.price(100))
            .pool("own", |pool| pool.weight(1).machines("own-2 own-4 own-8").limit(&limits))
            .pool("cloud", |pool| pool.machines("cloud"))
            .pods(pods, "web", "cpu=1 memory=1Gi", |pod| pod)
            .snapshot();
        let outcome = quick_plan(&snapshot);
        judge(&snapshot, &outcome)?;
        let own = snapshot.find_pool("own").expect("it is there");
        let nodes = outcome.plan.new_nodes.iter().filter(|node| node.pool == own).count();
        let placed = outcome.plan.placements.iter().filter(
            |(_, target)| matches!(target, Target::New(node) if outcome.plan.new_nodes[*node as usize].pool == own),
        );
        let placed = placed.count() as u64;
        let mut best = 0;
        for large in 0..=limit / 8 {
            for middle in 0..=(limit - 8 * large) / 4 {
                let small = (limit - 8 * large - 4 * middle) / 2;
                best = best.max(large * holds(8) + middle * holds(4) + small * holds(2));
            }
        }
        let best = best.min(pods as u64);
        if (best.saturating_sub(1)..=best).contains(&placed) {
            Ok(())
        } else {
            Err(format!("{placed} pods on {nodes} nodes, {best} are possible"))
        }
    });
}

/// Everything that a cluster can have, with pools of different weight and limits on most of them.
#[test]
fn plans_at_limits_are_good() {
    for_seeds(50_000..51_000, |seed| {
        let recipe = Recipe { nodes: seed as usize % 4, ..Recipe::everything(6 + seed as usize % 40) };
        let mut snapshot = recipe.snapshot(seed);
        let mut rng = Rng::new(seed);
        for pool in &mut snapshot.pools {
            pool.weight = *rng.pick(&[0, 1, 10, 50]);
            if rng.chance(60) {
                pool.limits.nodes = Some(rng.between(0, 4) as u64);
            }
            if rng.chance(40) {
                pool.limits.resources.retain(|(resource, _)| *resource != millpond_plan::model::CPU);
                pool.limits.resources.push((millpond_plan::model::CPU, 1000 * rng.between(2, 40) as i64));
            }
        }
        judge(&snapshot, &quick_plan(&snapshot))
    });
}
