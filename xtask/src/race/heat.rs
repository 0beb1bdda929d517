//! One engine in one scenario, on a cluster of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use millpond_testkit::Kubectl;
use serde_json::{Value, json};

use super::figures::{Figures, rounds};
use super::prices::Prices;
use super::scenario::{self, POOL, QUIET, Scenario};
use super::watch::{Event, Watches};
use crate::karpenter::stack::{Kit, Stack};

/// Time limit of each act.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// After all pods run: nodes that were bought beyond need may still come.
const AFTERMATH: Duration = Duration::from_secs(10);

/// How often the processes are looked after.
const LOOK: Duration = Duration::from_secs(1);

/// Runs it from an empty cluster to the end.
pub(super) fn run(
    kit: &Kit,
    scenario: Scenario,
    pods: usize,
    prices: &Prices,
    logs: &Path,
    again: bool,
) -> Result<Figures> {
    let mut stack = kit.start(&format!("{}-{}", scenario.name(), kit.engine().name()), logs)?;
    let kubectl = stack.kubectl()?;
    create(&kubectl, scenario::pool(kit.engine()))?;
    let pool = format!("nodepool/{POOL}");
    kubectl.run(&["wait", "--for=condition=Ready", "--timeout=60s", &pool]).context("wait for the pool")?;

    let mut race = Race { watches: Watches::start(&kubectl)?, seen: Seen::default() };
    let mut used = stack.cpu_seconds()?;
    let mut started = Instant::now();
    create(&kubectl, scenario.deployments(pods))?;
    let wanted = scenario.pods(pods);
    let all_run = |seen: &Seen| (seen.running() == wanted).then_some(seen.last_pod).flatten();
    let mut done = race.until(&mut stack, all_run)?;
    let mut cpu_of_parts = stack.cpu_seconds()?.since(&used);
    race.until(&mut stack, |seen| seen.quiet_for(AFTERMATH).then(Instant::now))?;
    let mut moved = 0;

    if let Some(replicas) = scenario.second_act(pods) {
        let left = replicas * scenario.deployments(pods).len();
        let before = race.seen.gone();
        race.seen.forget_claims();
        used = stack.cpu_seconds()?;
        started = Instant::now();
        kubectl.run(&["scale", "deployment", "--all", "--replicas", &replicas.to_string()])?;
        let patch = scenario::consolidation().to_string();
        kubectl.run(&["patch", &pool, "--type=merge", "-p", &patch])?;
        let settled = |seen: &Seen| seen.running() == left && seen.pods.len() == left && seen.quiet_for(QUIET);
        race.until(&mut stack, |seen| settled(seen).then(Instant::now))?;
        done = race.seen.last_claim_change.unwrap_or(started);
        cpu_of_parts = stack.cpu_seconds()?.since(&used);
        moved = (race.seen.gone() - before).saturating_sub(wanted - left);
    }
    let claims: Vec<f64> = race.seen.claims_since(started);
    let nodes: Value =
        serde_json::from_str(&kubectl.run(&["get", "nodes", "-o", "json"])?).context("read the nodes")?;
    let nodes = nodes["items"].as_array().context("a list of nodes")?.clone();
    let costs: Result<Vec<f64>> = nodes.iter().map(|node| prices.of_node(node)).collect();
    let peak_memory_bytes = stack.engine_peak_memory()?;
    let (mut again_seconds, mut again_cpu_seconds) = (None, None);
    if again && scenario.second_act(pods).is_none() {
        kubectl.run(&["delete", "deployment", "--all"])?;
        race.until(&mut stack, |seen| (seen.pods.is_empty() && seen.quiet_for(AFTERMATH)).then_some(()))?;
        let (used, started) = (stack.cpu_seconds()?, Instant::now());
        create(&kubectl, scenario.deployments(pods))?;
        let done = race.until(&mut stack, all_run)?;
        again_seconds = Some(done.saturating_duration_since(started).as_secs_f64());
        again_cpu_seconds = Some(stack.cpu_seconds()?.since(&used).total());
    }
    Ok(Figures {
        scenario: scenario.name().to_owned(),
        engine: kit.engine(),
        seconds: done.saturating_duration_since(started).as_secs_f64(),
        first_claim_s: claims.first().copied(),
        last_claim_s: claims.last().copied(),
        rounds: rounds(&claims),
        claims: claims.len(),
        nodes: nodes.len(),
        cost_per_hour: costs?.iter().sum(),
        moved,
        cpu_of_parts,
        again_seconds,
        again_cpu_seconds,
        peak_memory_bytes,
    })
}

fn create(kubectl: &Kubectl, items: Vec<Value>) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    kubectl.run_with_input(&["create", "-f", "-"], &list)?;
    Ok(())
}

struct Race {
    watches: Watches,
    seen: Seen,
}

impl Race {
    /// Takes in events until there is an answer.
    fn until<T>(&mut self, stack: &mut Stack, mut answer: impl FnMut(&Seen) -> Option<T>) -> Result<T> {
        let deadline = Instant::now() + LIMIT;
        let mut looked = Instant::now();
        loop {
            if let Some((at, event)) = self.watches.next(LOOK)? {
                self.seen.take(at, event);
            }
            if let Some(answer) = answer(&self.seen) {
                return Ok(answer);
            }
            if looked.elapsed() >= LOOK {
                stack.ensure_running()?;
                looked = Instant::now();
            }
            if Instant::now() >= deadline {
                let (running, all) = (self.seen.running(), self.seen.pods.len());
                bail!("not done after {} s: {running} of {all} pods run", LIMIT.as_secs());
            }
        }
    }
}

/// The observed state of the cluster.
#[derive(Default)]
struct Seen {
    /// By pod, whether it runs.
    pods: BTreeMap<String, bool>,
    /// Pods that existed before a watch ended, and that the new watch has not listed.
    missing: BTreeSet<String>,
    pods_gone: usize,
    /// When the last pod changed.
    last_pod: Option<Instant>,
    /// All claims that ever existed.
    claims: BTreeSet<String>,
    /// When each was first seen.
    claimed: Vec<Instant>,
    /// When the last one came or went.
    last_claim_change: Option<Instant>,
}

impl Seen {
    fn take(&mut self, at: Instant, event: Event) {
        match event {
            Event::Pod { name, running } => {
                self.missing.remove(&name);
                self.pods.insert(name, running);
                self.last_pod = Some(at);
            }
            Event::PodGone { name } => {
                self.missing.remove(&name);
                self.pods.remove(&name);
                self.pods_gone += 1;
                self.last_pod = Some(at);
            }
            Event::PodsAgain => self.missing.extend(std::mem::take(&mut self.pods).into_keys()),
            Event::Claim { name } => {
                if self.claims.insert(name) {
                    self.claimed.push(at);
                    self.last_claim_change = Some(at);
                }
            }
            Event::ClaimGone => self.last_claim_change = Some(at),
        }
    }

    fn running(&self) -> usize {
        self.pods.values().filter(|running| **running).count()
    }

    /// How many pods are gone.
    fn gone(&self) -> usize {
        self.pods_gone + self.missing.len()
    }

    fn quiet_for(&self, time: Duration) -> bool {
        self.last_pod.max(self.last_claim_change).is_none_or(|last| last.elapsed() >= time)
    }

    /// Those that are there are not counted again.
    fn forget_claims(&mut self) {
        self.claimed.clear();
        self.last_claim_change = None;
    }

    /// Seconds after the start, in order.
    fn claims_since(&self, start: Instant) -> Vec<f64> {
        self.claimed.iter().map(|at| at.saturating_duration_since(start).as_secs_f64()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_count_while_they_run_and_claims_once() {
        let mut seen = Seen::default();
        let now = Instant::now();
        let pod = |running| Event::Pod { name: "p".into(), running };
        seen.take(now, pod(false));
        seen.take(now, pod(true));
        seen.take(now, Event::Claim { name: "c".into() });
        seen.take(now, Event::Claim { name: "c".into() });
        assert_eq!((seen.running(), seen.claims_since(now).len()), (1, 1));
        seen.take(now, Event::PodGone { name: "p".into() });
        seen.forget_claims();
        assert_eq!((seen.running(), seen.gone(), seen.claims_since(now).len()), (0, 1, 0));
    }

    #[test]
    fn pods_that_do_not_come_again_are_gone() {
        let mut seen = Seen::default();
        let now = Instant::now();
        let pod = |name: &str| Event::Pod { name: name.into(), running: true };
        seen.take(now, pod("a"));
        seen.take(now, pod("b"));
        seen.take(now, Event::PodsAgain);
        seen.take(now, pod("b"));
        assert_eq!((seen.running(), seen.gone()), (1, 1));
    }
}
