//! What nodes ever came to: an observer of its own, who believes no controller.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use millpond_api::amounts;
use millpond_api::catalog::{Catalog, built_in};
use millpond_controllers::kinds::NodeClaim;
use millpond_providers::{Instance, OfferingKey};
use parking_lot::Mutex;
use serde_json::Value;

use crate::basin::Basin;

/// The most that there ever was, in all pools or in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Most {
    /// Claims, whatever became of them.
    pub(crate) claims: usize,
    /// Thousandths of cores that they have, or were meant to have.
    pub(crate) intended_cpu: i64,
    /// Machines.
    pub(crate) machines: usize,
    /// Their thousandths of cores, by the catalogue.
    pub(crate) cpu: i64,
    /// Their nano-dollars per hour, by the catalogue.
    pub(crate) nanos_hour: u64,
}

/// Watches claims and machines.
pub(crate) struct Ledger {
    pools: Arc<Mutex<BTreeMap<String, Most>>>,
    watch: tokio::task::JoinHandle<()>,
}

/// All pools together.
pub(crate) const ALL: &str = "";

impl Ledger {
    /// Looks at every change of a claim, and at the machines that there are then.
    pub(crate) fn open(basin: &Basin) -> Self {
        let pools: Arc<Mutex<BTreeMap<String, Most>>> = Arc::default();
        let written = Arc::clone(&pools);
        let (cloud, clock) = (Arc::clone(&basin.cloud), basin.clock.clone());
        let claims: Api<NodeClaim> = Api::all(basin.client.clone());
        let watch = tokio::spawn(async move {
            let mut all: BTreeMap<String, NodeClaim> = BTreeMap::new();
            let mut events = watcher(claims, watcher::Config::default()).default_backoff().boxed();
            while let Some(event) = events.next().await {
                match event.expect("the API server is there") {
                    Event::Apply(claim) | Event::InitApply(claim) => drop(all.insert(claim.name().to_owned(), claim)),
                    Event::Delete(claim) => drop(all.remove(claim.name())),
                    Event::Init | Event::InitDone => continue,
                }
                note(&mut written.lock(), &all, &cloud.instances(clock.now()));
            }
        });
        Self { pools, watch }
    }

    /// The most that there ever was in a pool.
    pub(crate) fn most(&self, pool: &str) -> Most {
        assert!(!self.watch.is_finished(), "the ledger is not kept any more");
        self.pools.lock().get(pool).copied().unwrap_or_default()
    }
}

fn note(most: &mut BTreeMap<String, Most>, claims: &BTreeMap<String, NodeClaim>, machines: &[Instance]) {
    let mut now: BTreeMap<String, Most> = BTreeMap::new();
    for claim in claims.values() {
        for pool in [ALL, pool_of(claim)] {
            let sum = now.entry(pool.to_owned()).or_default();
            sum.claims += 1;
            sum.intended_cpu += intended_cpu(claim);
        }
    }
    let catalog = built_in("kwok").expect("it is built in");
    for machine in machines {
        let claim = claims.get(&machine.claim).map_or("gone", pool_of);
        for pool in [ALL, claim] {
            let sum = now.entry(pool.to_owned()).or_default();
            sum.machines += 1;
            let (cpu, price) = facts(catalog, &machine.offering);
            sum.cpu += cpu;
            sum.nanos_hour += price;
        }
    }
    for (pool, now) in now {
        let most = most.entry(pool).or_default();
        most.claims = most.claims.max(now.claims);
        most.intended_cpu = most.intended_cpu.max(now.intended_cpu);
        most.machines = most.machines.max(now.machines);
        most.cpu = most.cpu.max(now.cpu);
        most.nanos_hour = most.nanos_hour.max(now.nanos_hour);
    }
}

fn pool_of(claim: &NodeClaim) -> &str {
    let labels = claim.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get("karpenter.sh/nodepool")).map_or("none", String::as_str)
}

fn intended_cpu(claim: &NodeClaim) -> i64 {
    if let Some(cpu) = claim.status.capacity.get("cpu") {
        return cpu;
    }
    let annotations = claim.metadata.annotations.as_ref();
    let reserved = annotations.and_then(|annotations| annotations.get("millpond.dev/reserved"));
    let reserved: Value = reserved.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    reserved["resources"]["cpu"].as_str().map_or(0, |cpu| amounts::parse("cpu", cpu).expect("a quantity"))
}

/// Cores and price of an offering.
fn facts(catalog: &Catalog, offering: &OfferingKey) -> (i64, u64) {
    let of = catalog.find(&offering.instance_type).expect("a type of the catalogue");
    let bought = of
        .offerings
        .iter()
        .find(|it| *it.zone == *offering.zone && it.capacity_type.name() == offering.capacity_type)
        .expect("an offering of the catalogue");
    (of.cpu_milli as i64, bought.price_nanos_hour)
}
