//! A cluster that has become too large for its pods: every node is used by 30 to 90 %.
//!
//! Pods are dealt to nodes first; each node is then a machine that they fill to its target, so that any number of
//! nodes and pods can be asked for.

use millpond_plan::model::{
    CPU, CapacityType, ClassId, Expiry, InstanceType, Labels, MEMORY, Node, NodeId, NodeState, PODS, Pod, PodState,
    PoolId, Resources, Snapshot, TypeId,
};

use super::scale::{shares, size};
use super::{Workload, ZONES, ec2_pool, is_general};
use crate::builder::{Builder, NOW};
use crate::random::Random;

/// Nodes where no number is asked for.
pub const NODES: u64 = 10_000;
/// Pods where no number is asked for.
pub const PODS_BOUND: u64 = 100_000;
/// The seed where none is given.
pub const SEED: u64 = 1;

/// Shapes of pods; no more than pods.
const SHAPES: u64 = 500;
/// How much of a node is used, in per mille of what it has least of.
const FILL: (u64, u64) = (300, 900);
/// How far from its target a node may be, in per mille, so that there are several machines to choose from.
const TOLERANCE: u64 = 40;
/// A day ago: nodes and pods have been there long enough to be looked at.
const CREATED: i64 = NOW - 86_400;

/// The workload.
pub fn workload(nodes: u64, pods: u64, seed: u64) -> Workload {
    let mut builder = Builder::new(format!("bench consolidate nodes={nodes} pods={pods} seed={seed}"));
    let types = ec2_pool(&mut builder, is_general, &["on-demand"]);
    let mut random = Random::new(seed);
    let classes = classes(&mut builder, &mut random, pods);
    let mut remaining = classes.into_iter();
    for (number, count) in deal(&mut random, nodes, pods).into_iter().enumerate() {
        let here: Vec<ClassId> = remaining.by_ref().take(count as usize).collect();
        let node = node(&mut builder.snapshot, &mut random, &types, number, &here);
        let id = NodeId::from(builder.snapshot.nodes.len());
        builder.snapshot.nodes.push(node);
        for class in here {
            let name = format!("p{}", builder.snapshot.pods.len());
            builder.snapshot.pods.push(Pod {
                name: name.into(),
                class,
                node: Some(id),
                state: PodState::Bound,
                created: CREATED,
                started: Some(CREATED),
            });
        }
    }
    Workload { consolidate: true, ..Workload::pending("consolidate", builder) }
}

/// The class of every pod, mixed.
fn classes(builder: &mut Builder, random: &mut Random, pods: u64) -> Vec<ClassId> {
    let weights: Vec<f64> = (0..SHAPES.min(pods)).map(|_| random.logarithmic(0.1, 10.0)).collect();
    let mut all = Vec::with_capacity(pods as usize);
    for (number, count) in shares(&weights, pods).into_iter().enumerate() {
        let (cpu_milli, memory_mib) = size(random, (0.05, 4.0), (0.5, 12.0));
        let template = builder.pod(cpu_milli, memory_mib).label("app", &format!("app-{number}"));
        let class = template.of_a_controller().class();
        all.extend((0..count).map(|_| class));
    }
    random.shuffle(&mut all);
    all
}

/// How many pods each node has: as many as any other at first, then one of each pair gives some to the other.
fn deal(random: &mut Random, nodes: u64, pods: u64) -> Vec<u64> {
    let (each, extra) = (pods / nodes.max(1), pods % nodes.max(1));
    let mut counts: Vec<u64> = (0..nodes).map(|node| each + u64::from(node < extra)).collect();
    for pair in counts.chunks_exact_mut(2) {
        let given = random.below(pair[0].max(1));
        pair[0] -= given;
        pair[1] += given;
    }
    counts
}

/// A machine that the pods fill as far as is drawn.
fn node(snapshot: &mut Snapshot, random: &mut Random, types: &[TypeId], number: usize, pods: &[ClassId]) -> Node {
    let mut used = Resources::new();
    pods.iter().for_each(|class| used.add(&snapshot.classes[class.index()].requests));
    let target = random.between(FILL.0, FILL.1);
    // Any of the machines near the target; if none is near, the nearest.
    let distance = |of: &TypeId| fill(&snapshot.types[of.index()], &used).map(|fill| fill.abs_diff(target));
    let near: Vec<TypeId> = types
        .iter()
        .copied()
        .filter(|of| distance(of).is_some_and(|far| pods.is_empty() || far <= TOLERANCE))
        .collect();
    let chosen = if near.is_empty() {
        types.iter().copied().min_by_key(|of| distance(of).unwrap_or(u64::MAX)).expect("there are machines")
    } else {
        random.pick(&near)
    };
    let zone = random.pick(&ZONES);
    bought(snapshot, chosen, zone, &format!("node-{number:05}"))
}

/// The used share of the resource that a machine has least of, in per mille; `None` if it is too small.
fn fill(of: &InstanceType, used: &Resources) -> Option<u64> {
    let share = |resource| {
        let (used, has) = (used.get(resource), of.allocatable.get(resource).max(1));
        (used as u64 * 1_000).div_ceil(has as u64)
    };
    let fits = of.allocatable.first_lacking(used).is_none() && used.get(PODS) <= of.allocatable.get(PODS);
    fits.then(|| share(CPU).max(share(MEMORY)))
}

/// A node of that type that has run for a day.
fn bought(snapshot: &mut Snapshot, of: TypeId, zone: &str, name: &str) -> Node {
    let zone = snapshot.symbols.intern(zone);
    let on_demand = snapshot.symbols.intern(CapacityType::OnDemand.name());
    let hostname = snapshot.symbols.intern(name);
    let pool = snapshot.symbols.intern("default");
    let [registered, initialized, yes] =
        ["karpenter.sh/registered", "karpenter.sh/initialized", "true"].map(|text| snapshot.symbols.intern(text));
    let names = snapshot.names;
    let of = &snapshot.types[of.index()];
    let fixed = of.labels.iter().filter_map(|(key, value)| Some((key, value.only_value()?)));
    let own = [
        (names.zone, zone),
        (names.capacity_type, on_demand),
        (names.hostname, hostname),
        (names.pool, pool),
        (registered, yes),
        (initialized, yes),
    ];
    let offering =
        of.offerings.iter().find(|offer| offer.zone == zone && offer.capacity_type == CapacityType::OnDemand);
    Node {
        name: name.to_owned(),
        pool: Some(PoolId(0)),
        state: NodeState::Running,
        schedulable: true,
        labels: fixed.chain(own).collect::<Labels>(),
        taints: Vec::new(),
        capacity: of.capacity.clone(),
        allocatable: of.allocatable.clone(),
        instance_type: Some(of.name),
        zone: Some(zone),
        capacity_type: Some(CapacityType::OnDemand),
        price: offering.map(|offering| offering.price),
        created: CREATED,
        initialized: Some(CREATED),
        last_pod_event: Some(CREATED),
        drifted: None,
        do_not_disrupt: false,
        expiry: Expiry::default(),
        ends_in_time: false,
        ready: true,
        waits_for: None,
    }
}
