//! Many launches and ends at once, under faults by the seed, each given up at random: no instance is lost, none is
//! doubled, and no quota is ever overrun.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use millpond_api::sim_script::parse;
use millpond_providers::sim::{Cloud, Script, SimProvider};
use millpond_providers::{Instance, LaunchRequest, Provider, ProviderError};
use millpond_runtime::clock::Clock;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::stage::{class, clock, no_api, some_choices};

/// Claims of a run.
const CLAIMS: usize = 25;
/// Steps after which a claim has had its time.
const STEPS: usize = 60;
/// The quotas of all scripts.
const MOST_INSTANCES: usize = 15;
const MOST_SPOT_VCPUS: i64 = 24;

const WEATHER: [&str; 4] = [
    "{calls: [{share: 40%, lost: true}, {share: 30%, delay: 5s}]}",
    "{calls: [{share: 30%, error: other}, {verbs: [create], share: 30%, lost: true}], lag: {get: 10s, list: 30s}}",
    "{shutdown: 40s, stockOuts: [{share: 50%, period: 1m}, {stock: 3}], interruptions: [{perHour: 100%, notice: 30s}]}",
    "{throttle: {perSecond: 1, burst: 5}, shutdown: 10s, interruptions: [{capacityType: '*', at: 2m, share: 50%}]}",
];

/// What is seen from outside, to be compared with what there is.
#[derive(Default)]
struct Seen {
    /// Every id that was told for a token.
    ids: BTreeMap<String, BTreeSet<String>>,
    /// Ids that were answered to be gone, or told to be interrupted.
    ended: BTreeSet<String>,
    /// Launches that were refused.
    refused: usize,
}

struct World {
    cloud: Arc<Cloud>,
    /// It has no memory of its own: one is as good as many.
    provider: SimProvider,
    clock: Clock,
    seen: Mutex<Seen>,
    seed: u64,
}

impl World {
    fn note(&self, instance: &Instance) {
        let mut seen = self.seen.lock();
        seen.ids.entry(instance.token.clone()).or_default().insert(instance.id.clone());
    }

    /// What must hold at every instant.
    fn check(&self) {
        let instances = self.cloud.instances(self.clock.now());
        let tokens: BTreeSet<&str> = instances.iter().map(|instance| instance.token.as_str()).collect();
        assert_eq!(tokens.len(), instances.len(), "seed {}: two instances of one token", self.seed);
        assert!(instances.len() <= MOST_INSTANCES, "seed {}: {} instances", self.seed, instances.len());
        let spot = instances.iter().filter(|instance| instance.offering.capacity_type == "spot");
        let cores: i64 = spot.map(|instance| instance.capacity.get("cpu").unwrap_or(0) / 1000).sum();
        assert!(cores <= MOST_SPOT_VCPUS, "seed {}: {cores} spot vCPUs", self.seed);
    }

    /// One claim: asks for its instance until it has it, asks what became of it, sometimes ends it.
    async fn claim(&self, index: usize, request: LaunchRequest) {
        let mut random = StdRng::seed_from_u64(self.seed * 1000 + index as u64);
        let mut known: Option<String> = None;
        for _ in 0..STEPS {
            tokio::time::sleep(Duration::from_millis(random.random_range(0..20_000))).await;
            let provider = &self.provider;
            let patience = Duration::from_millis(random.random_range(0..8_000));
            // Every other claim stays for good.
            let ending = index.is_multiple_of(2) && known.is_some() && random.random_bool(0.2);
            match &known {
                Some(id) if ending => {
                    let answer = tokio::time::timeout(patience, provider.delete(id)).await;
                    if matches!(answer, Ok(Err(ProviderError::NotFound { .. }))) {
                        self.seen.lock().ended.insert(id.clone());
                        return;
                    }
                }
                _ => match tokio::time::timeout(patience, provider.create(&request)).await {
                    Ok(Ok(launched)) => {
                        self.note(&launched.instance);
                        known = Some(launched.instance.id);
                    }
                    Ok(Err(ProviderError::NotFound { .. })) => {
                        let seen = &mut *self.seen.lock();
                        seen.ended.extend(seen.ids.get(&request.token).into_iter().flatten().cloned());
                        return;
                    }
                    Ok(Err(ProviderError::CapacityUnavailable { .. } | ProviderError::Quota { .. })) => {
                        self.seen.lock().refused += 1;
                    }
                    _ => {}
                },
            }
            if let Ok(Ok(listed)) = tokio::time::timeout(patience, provider.list()).await {
                listed.iter().for_each(|instance| self.note(instance));
            }
            self.check();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_instance_is_lost_or_doubled() {
    let (mut launched, mut ended, mut refused, mut left) = (0, 0, 0, 0);
    for seed in 0..24u64 {
        let weather = WEATHER[seed as usize % WEATHER.len()];
        let mut script: Script = parse("weather", weather).expect("a script");
        script.seed = Some(seed);
        script.quotas = parse(
            "quotas",
            &format!("quotas: [{{instances: {MOST_INSTANCES}}}, {{capacityType: spot, vcpus: {MOST_SPOT_VCPUS}}}]"),
        )
        .expect("quotas")
        .quotas;
        let clock = clock();
        let cloud = Arc::new(Cloud::in_memory());
        cloud.set_script(&script, clock.now()).expect("a script");
        let provider = SimProvider::new(Arc::clone(&cloud), no_api(), clock.clone());
        let class = class("default", "{provider: sim, catalog: aws}");
        let choices = some_choices(&provider, &class);
        let world = World { cloud, provider, clock, seen: Mutex::default(), seed };
        let requests = (0..CLAIMS).map(|index| LaunchRequest {
            token: format!("token-{index}"),
            claim: format!("claim-{index}"),
            class: class.clone(),
            choices: choices.clone(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            taints: Vec::new(),
        });
        join_all(requests.enumerate().map(|(index, request)| world.claim(index, request))).await;
        world.check();
        let seen = world.seen.lock();
        for (token, ids) in &seen.ids {
            assert_eq!(ids.len(), 1, "seed {seed}: {token} had {ids:?}");
        }
        // What was answered and not ended is there, unless the cloud took it back.
        let there: BTreeSet<String> = world.cloud.instances(world.clock.now()).into_iter().map(|it| it.id).collect();
        let interrupts = weather.contains("interruptions");
        let all: BTreeSet<String> = seen.ids.values().flatten().cloned().collect();
        let lost: Vec<&String> = all.iter().filter(|id| !there.contains(*id) && !seen.ended.contains(*id)).collect();
        assert!(interrupts || lost.is_empty(), "seed {seed}: lost {lost:?}");
        assert!(there.is_disjoint(&seen.ended), "seed {seed}: ended, and there");
        launched += all.len();
        ended += seen.ended.len();
        refused += seen.refused;
        left += there.len();
    }
    let counts = [launched, ended, refused, left];
    assert!(counts.iter().all(|count| *count > 100), "launched, ended, refused, left: {counts:?}");
}
