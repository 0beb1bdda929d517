//! Why pools can make no node: what `millpond_plan::explain` finds of each, for the condition `Launchable` that
//! [`crate::pools`] writes.
//!
//! It is found anew when something changes that it depends on: pools, classes, catalogues, overlays, limits, stock, and
//! the nodes that limits count. Pods are none of it, so that this costs little while they come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use millpond_api::karpenter::{LAUNCH_FAILED, PRICE_LIMIT_ANNOTATION};
use millpond_plan::explain::{PoolStanding, explain_pools};
use millpond_plan::model::Snapshot;
use millpond_plan::plan::Rule;
use millpond_runtime::events::EventReason;
use millpond_runtime::kinds::Kind;
use millpond_runtime::meta::annotation;
use millpond_runtime::mirror::Mirror;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::blocking::run_blocking;
use crate::context::Context;

/// Changes that come together are looked at together, and a wave of new nodes costs no more than one look each time.
const GATHER: Duration = Duration::from_secs(1);

/// Why a pool can make no node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The reason of condition and event.
    pub(crate) event_reason: EventReason,
    /// In words.
    pub(crate) message: String,
    /// Whether neither time nor nodes that go will help.
    pub(crate) is_permanent: bool,
}

type Listener = Box<dyn Fn(&str) + Send + Sync>;

/// What was found last, by pool.
#[derive(Default)]
pub(crate) struct Standings {
    known: Mutex<BTreeMap<String, Standing>>,
    listeners: RwLock<Vec<Listener>>,
}

impl Standings {
    /// Why a pool can make no node; none if it can.
    pub(crate) fn of(&self, pool: &str) -> Option<Standing> {
        self.known.lock().get(pool).cloned()
    }

    /// Calls `listener` with the name of a pool of which something else was found.
    pub(crate) fn on_change(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        self.listeners.write().push(Box::new(listener));
    }

    fn set(&self, found: BTreeMap<String, Standing>) {
        let before = std::mem::replace(&mut *self.known.lock(), found.clone());
        let names: BTreeSet<&String> = before.keys().chain(found.keys()).collect();
        let changed = names.into_iter().filter(|name| before.get(*name) != found.get(*name));
        let listeners = self.listeners.read();
        changed.for_each(|name| listeners.iter().for_each(|listener| listener(name)));
    }
}

/// Finds it anew whenever it may have changed.
pub(crate) struct StandingsLoop {
    context: Arc<Context>,
    woken: Arc<Notify>,
}

impl StandingsLoop {
    /// Is woken by changes of all that it depends on.
    pub(crate) fn listen(context: &Arc<Context>) -> Self {
        let woken = Arc::new(Notify::new());
        let cluster = &context.cluster;
        wake_on(&woken, &cluster.pools, |pool| (pool.metadata.generation, pool.metadata.deletion_timestamp.clone()));
        wake_on(&woken, &cluster.pools, |pool| annotation(pool, PRICE_LIMIT_ANNOTATION).map(str::to_owned));
        wake_on(&woken, &cluster.classes, |class| (class.metadata.generation, class.status.conditions.clone()));
        wake_on(&woken, &cluster.classes, |class| class.metadata.deletion_timestamp.clone());
        wake_on(&woken, &cluster.limits, |limits| limits.metadata.generation);
        wake_on(&woken, &cluster.overlays, |overlay| overlay.metadata.generation);
        wake_on(&woken, &cluster.catalogs, |map| map.metadata.resource_version.clone());
        wake_on(&woken, &cluster.claims, |claim| claim.status.provider_id.is_empty());
        let (stock, launches, provided) = (Arc::clone(&woken), Arc::clone(&woken), Arc::clone(&woken));
        context.stock_outs.on_change(move || stock.notify_one());
        context.launch_backoff.on_change(move |_| launches.notify_one());
        cluster.on_provided(move |_| provided.notify_one());
        Self { context: Arc::clone(context), woken }
    }

    /// Works until the token is cancelled.
    pub(crate) async fn run(&mut self, stop: CancellationToken) {
        loop {
            self.look();
            let next = self.next_change();
            let reopened = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.woken.notified() => {}
                () = reopened => {}
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(GATHER) => {}
            }
        }
    }

    fn look(&self) {
        let _round = self.context.cluster.supervisor.begin("pools' standings");
        let found = run_blocking(|| {
            let snapshot = self.context.snapshot_of_pools();
            let standings = explain_pools(&snapshot);
            let found = standings.iter().filter_map(|standing| {
                let name = snapshot.pools[standing.pool.index()].name.clone();
                let is_closed = self.context.launch_backoff.closed(&name).is_some();
                Some((name, found(&snapshot, standing, is_closed)?))
            });
            found.collect()
        });
        self.context.standings.set(found);
    }

    /// When something that was left out is let in again without a change of any object.
    fn next_change(&self) -> Option<Instant> {
        let now = Instant::now();
        let pools = self.context.launch_backoff.reopens().into_iter();
        let offerings = self.context.stock_outs.reopens().into_iter().map(|(at, _)| at);
        pools.chain(offerings).filter(|at| *at > now).min()
    }
}

fn wake_on<K: Kind, P: PartialEq + 'static>(woken: &Arc<Notify>, mirror: &Mirror<K>, part: fn(&K) -> P) {
    let woken = Arc::clone(woken);
    mirror.on_change(move |before, after| {
        if before.map(|it| part(it)) != after.map(|it| part(it)) {
            woken.notify_one();
        }
    });
}

/// What is to be said of a pool. Why it is not valid, or its class is not ready, is said by conditions of their own.
fn found(snapshot: &Snapshot, standing: &PoolStanding, is_closed: bool) -> Option<Standing> {
    let verdict = standing.verdict.as_ref()?;
    let event_reason = match verdict.rule {
        Rule::PoolNotReady if is_closed && fails_to_launch(snapshot, standing) => event_reason(LAUNCH_FAILED),
        Rule::PoolNotReady => return None,
        Rule::Unavailable => event_reason("OutOfStock"),
        Rule::PoolLimit => event_reason("LimitReached"),
        Rule::ClusterLimit => event_reason("ClusterLimitReached"),
        _ => event_reason("NoCompatibleInstanceTypes"),
    };
    let message = standing.why().unwrap_or_default().to_owned();
    Some(Standing { event_reason, message, is_permanent: standing.is_permanent })
}

/// Whether it is closed for its launches, and nothing else.
fn fails_to_launch(snapshot: &Snapshot, standing: &PoolStanding) -> bool {
    let not_ready = snapshot.pools[standing.pool.index()].not_ready.as_deref();
    not_ready.is_some_and(|why| why.starts_with(crate::launch_backoff::CLOSED))
}

const fn event_reason(reason: &'static str) -> EventReason {
    EventReason { component: "millpond", action: "Plan", reason, warning: true }
}

#[cfg(test)]
mod tests {
    use millpond_plan::testing::Cluster;

    use super::*;

    fn said(change: impl Fn(Cluster) -> Cluster) -> Option<(&'static str, bool)> {
        let cluster = Cluster::new().machine("small", "cpu=2 memory=4Gi", |machine| machine.price(50));
        let snapshot = change(cluster).snapshot();
        let standing = explain_pools(&snapshot).remove(0);
        found(&snapshot, &standing, true).map(|found| (found.event_reason.reason, found.is_permanent))
    }

    #[test]
    fn what_passes_by_itself_is_told_from_what_does_not() {
        assert_eq!(said(|cluster| cluster.pool("a", |pool| pool)), None);
        let impossible = |cluster: Cluster| cluster.pool("a", |pool| pool.requires("zone in nowhere"));
        assert_eq!(said(impossible), Some(("NoCompatibleInstanceTypes", true)));
        let too_low = |cluster: Cluster| cluster.pool("a", |pool| pool.limit("cpu=1"));
        assert_eq!(said(too_low), Some(("LimitReached", true)));
        let full = |cluster: Cluster| {
            cluster.pool("a", |pool| pool.limit("nodes=1")).node("one", "small", |node| node.pool("a"))
        };
        assert_eq!(said(full), Some(("LimitReached", false)));
        let closed = |why: &'static str| {
            move |cluster: Cluster| cluster.pool("a", |pool| pool.edit(|pool| pool.not_ready = Some(why.to_owned())))
        };
        assert_eq!(said(closed("its last launch failed: denied")), Some(("LaunchFailed", false)));
        assert_eq!(said(closed("there is no node class `x`")), None, "another condition says so");
        let fixed =
            |cluster: Cluster| cluster.pool("a", |pool| pool.limit("nodes=1").edit(|pool| pool.replicas = Some(3)));
        assert_eq!(said(fixed), Some(("LimitReached", true)));
    }
}
