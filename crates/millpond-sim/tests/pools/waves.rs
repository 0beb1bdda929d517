//! Pods of one `kubectl apply` come in over two or three seconds: they are planned together, and nodes that were bought for
//! some of them are not taken away while others still wait.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use millpond_controllers::nominations::NOMINATED_PODS_ANNOTATION;
use millpond_sim::meta::{is_leaving, node_name, phase};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::basin::{Basin, merge};
use crate::fuse::Fuse;

const DEPLOYMENTS: usize = 20;
/// Claims that were written further apart come from different rounds.
const ONE_ROUND: Duration = Duration::from_millis(200);

/// What happened until all pods ran, and until all was quiet.
#[derive(Debug, Default)]
struct Seen {
    claims: HashSet<String>,
    /// When claims were written.
    written: BTreeSet<Instant>,
    /// Pods that the claims of the first round were promised to.
    promised_first: usize,
    /// Pods that lost the node that they were bound to.
    moved: HashSet<String>,
}

impl Seen {
    fn from_now_on(basin: &Basin) -> Arc<Mutex<Self>> {
        let all: Arc<Mutex<Self>> = Arc::default();
        let seen = Arc::clone(&all);
        basin.cluster().claims.on_change(move |before, after| {
            if let (None, Some(claim)) = (before, after) {
                let mut seen = seen.lock();
                seen.claims.insert(claim.name().to_owned());
                seen.written.insert(Instant::now());
                if seen.rounds() == 1 {
                    let pods = claim.annotations().get(NOMINATED_PODS_ANNOTATION).map_or("", String::as_str);
                    seen.promised_first += pods.split_ascii_whitespace().count();
                }
            }
        });
        let seen = Arc::clone(&all);
        basin.cluster().pods.on_change(move |_, after| {
            if let Some(pod) = after.filter(|pod| is_leaving(&***pod) && node_name(pod).is_some()) {
                seen.lock().moved.insert(pod.name_any());
            }
        });
        all
    }

    fn rounds(&self) -> usize {
        let mut rounds = 0;
        let mut last: Option<Instant> = None;
        for at in &self.written {
            rounds += usize::from(last.is_none_or(|last| *at - last > ONE_ROUND));
            last = Some(*at);
        }
        rounds
    }
}

/// A Deployment; every fourth spreads over zones.
async fn deployment(basin: &Basin, index: usize, replicas: usize) {
    let name = format!("app-{index:02}");
    let (cpu, memory) = (100 + 150 * (index % 5), 256 << (index % 3));
    let requests = json!({"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")});
    let mut pod = json!({"containers": [{"name": "c", "image": "app:1", "resources": {"requests": requests}}]});
    if index.is_multiple_of(4) {
        merge(&mut pod, &spread_over_zones(&name));
    }
    basin.deployment(&name, i32::try_from(replicas).expect("a count"), "1", pod).await;
}

fn spread_over_zones(app: &str) -> Value {
    let selector = json!({"matchLabels": {"app": app}});
    json!({"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }]})
}

/// What came of one wave.
#[derive(Debug)]
struct Wave {
    seed: u64,
    arrived: Duration,
    running: Duration,
    /// Pods that the claims of the first round were promised to.
    first: usize,
    rounds: usize,
    claims: usize,
    moved: usize,
}

async fn wave(seed: u64, pods: usize) -> Wave {
    let basin = Basin::bare_with_stand_ins(Fuse::paced_pods(pods, seed)).await;
    basin.class("default", json!({"sim": {"registrationDelay": "2s"}})).await;
    let budgets = json!([{"nodes": "100%"}]);
    basin.pool("default", json!({"spec": {"disruption": {"consolidateAfter": "5s", "budgets": budgets}}})).await;
    basin.until_quiet().await;
    let seen = Seen::from_now_on(&basin);
    let begun = Instant::now();
    let mut random = StdRng::seed_from_u64(seed);
    // A client that takes its time for each object leaves pauses in which all pods that were announced are there.
    let pause = if seed.is_multiple_of(2) { 20..60 } else { 60..200 };
    for index in 0..DEPLOYMENTS {
        deployment(&basin, index, pods / DEPLOYMENTS).await;
        basin.pass(Duration::from_millis(random.random_range(pause.clone()))).await;
    }
    basin.until("all pods are there", |cluster| cluster.pods.len() == pods).await;
    let arrived = begun.elapsed();
    basin
        .until("all pods run", |cluster| {
            cluster.pods.list().iter().filter(|pod| phase(pod) == "Running" && !is_leaving(&***pod)).count() == pods
        })
        .await;
    let running = begun.elapsed();
    let seen = seen.lock();
    let (first, rounds) = (seen.promised_first, seen.rounds());
    Wave { seed, arrived, running, first, rounds, claims: seen.claims.len(), moved: seen.moved.len() }
}

/// Every wave is planned together in one round, and no pod is moved.
async fn assert_steady(seeds: impl Iterator<Item = u64>, pods: usize, rounds: usize, claims: RangeInclusive<usize>) {
    let mut waves = Vec::new();
    for seed in seeds {
        waves.push(wave(seed, pods).await);
    }
    let table = waves.iter().fold(String::new(), |mut table, wave| {
        let _ = writeln!(table, "{wave:?}");
        table
    });
    for wave in &waves {
        let in_time = (2.0..4.5).contains(&wave.arrived.as_secs_f64()) && wave.running < Duration::from_secs(24);
        assert!(in_time && wave.first == pods, "wave {}:\n{table}", wave.seed);
        let is_steady = wave.rounds <= rounds && claims.contains(&wave.claims) && wave.moved == 0;
        assert!(is_steady, "wave {}:\n{table}", wave.seed);
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_come_over_seconds_are_planned_together() {
    assert_steady(0..10, 300, 1, 4..=4).await;
}

/// As many as a large application has. What further rounds buy is for pods that spread: the scheduler deals them out by
/// itself, not always as planned. It is a few nodes more or less; there were 15 to 81 claims in 3 to 8 rounds when windows
/// closed as soon as all announced pods were there.
#[tokio::test(start_paused = true)]
async fn a_thousand_pods_that_come_over_seconds_are_planned_together() {
    assert_steady([4, 7].into_iter(), 1_000, 3, 13..=28).await;
}
