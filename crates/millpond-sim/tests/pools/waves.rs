//! Pods of one `kubectl apply` come in over two or three seconds: they are planned together, and nodes that were bought for
//! some of them are not taken away while others still wait.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use millpond_sim::meta::{is_leaving, node_name, phase};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::basin::{Basin, merge};
use crate::fuse::Fuse;

const DEPLOYMENTS: usize = 20;
const PODS_EACH: i32 = 50;
const ALL: usize = 1_000;
/// Claims that were written further apart come from different rounds.
const ONE_ROUND: Duration = Duration::from_millis(200);

/// What happened until all pods ran, and until all was quiet.
#[derive(Debug, Default)]
struct Seen {
    claims: HashSet<String>,
    /// When claims were written.
    written: BTreeSet<Instant>,
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

/// A Deployment of fifty pods; every fourth spreads over zones.
async fn deployment(basin: &Basin, index: usize) {
    let name = format!("app-{index:02}");
    let (cpu, memory) = (100 + 150 * (index % 5), 256 << (index % 3));
    let requests = json!({"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")});
    let mut pod = json!({"containers": [{"name": "c", "image": "app:1", "resources": {"requests": requests}}]});
    if index.is_multiple_of(4) {
        merge(&mut pod, &spread_over_zones(&name));
    }
    basin.deployment(&name, PODS_EACH, "1", pod).await;
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
    rounds: usize,
    claims: usize,
    moved: usize,
}

async fn wave(seed: u64) -> Wave {
    let basin = Basin::bare_with_stand_ins(Fuse::paced_pods(ALL, seed)).await;
    basin.class("default", json!({"sim": {"registrationDelay": "2s", "registrationJitter": "3s"}})).await;
    let budgets = json!([{"nodes": "100%"}]);
    basin.pool("default", json!({"spec": {"disruption": {"consolidateAfter": "5s", "budgets": budgets}}})).await;
    basin.until_quiet().await;
    let seen = Seen::from_now_on(&basin);
    let begun = Instant::now();
    let mut random = StdRng::seed_from_u64(seed);
    // A client that takes its time for each object leaves pauses in which all pods that were announced are there.
    let pause = if seed.is_multiple_of(2) { 20..60 } else { 60..200 };
    for index in 0..DEPLOYMENTS {
        deployment(&basin, index).await;
        basin.pass(Duration::from_millis(random.random_range(pause.clone()))).await;
    }
    basin.until("all pods are there", |cluster| cluster.pods.len() == ALL).await;
    let arrived = begun.elapsed();
    basin
        .until("all pods run", |cluster| {
            cluster.pods.list().iter().filter(|pod| phase(pod) == "Running" && !is_leaving(&***pod)).count() == ALL
        })
        .await;
    let running = begun.elapsed();
    let seen = seen.lock();
    Wave { seed, arrived, running, rounds: seen.rounds(), claims: seen.claims.len(), moved: seen.moved.len() }
}

#[tokio::test(start_paused = true)]
async fn pods_that_come_over_seconds_are_planned_together() {
    let mut waves = Vec::new();
    for seed in 0..10 {
        waves.push(wave(seed).await);
    }
    let table = waves.iter().fold(String::new(), |mut table, wave| {
        let _ = writeln!(table, "{wave:?}");
        table
    });
    let least = waves.iter().map(|wave| wave.claims).min().unwrap_or_default();
    for wave in &waves {
        let is_steady = wave.rounds <= 2 && wave.moved == 0 && wave.claims <= least + 3;
        assert!(is_steady && wave.running < Duration::from_secs(20), "wave {}:\n{table}", wave.seed);
    }
}
