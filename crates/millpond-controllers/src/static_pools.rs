//! Pools of a fixed size: as many claims as `spec.replicas` says.
//!
//! A claim that replaces another one does not count as long as the other stands: so an outdated node can be replaced
//! one by one without the pool looking too large, also after a crash. Too few claims are made up for within all
//! limits; of too many those go that disturb least.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use millpond_api::condition::find;
use millpond_api::karpenter::conditions;
use millpond_plan::disruption::{Residents, pods_cost};
use millpond_plan::fallback_offers::Contents;
use millpond_plan::market::Market;
use millpond_plan::model::{DoNotDisrupt, NodeId, NodeState, PodId, PodState, PoolId, Snapshot};
use millpond_plan::plan::NewNode;
use millpond_plan::symbol::Symbol;
use millpond_runtime::error::Result;
use millpond_runtime::meta::{Key, is_leaving};
use millpond_runtime::queue::Queue;
use millpond_runtime::worker::Reconcile;

use crate::cluster::{Cluster, is_our_class, is_ours, pool_name};
use crate::context::Context;
use crate::decisions;
use crate::disruption::command::replaces;
use crate::kinds::{NodeClaim, NodePool};
use crate::limits;
use crate::metrics::created_for;
use crate::provision::{ALTERNATIVES, NewClaim, counts_no_more};
use crate::turn::Turn;

/// Claims that could not be written, or for which nothing is on sale, are tried again after this, unless something
/// changes before.
const RETRY: Duration = Duration::from_secs(30);
/// Claims that are deleted at a time; the cluster's own limit on writes holds as well.
const AT_A_TIME: usize = 32;
/// The reason in metrics of nodes that are too many.
const TOO_MANY: &str = "overprovisioned";
/// The whole of a node's life, in thousandths.
const WHOLE_LIFE: i64 = 1000;

/// Keeps pools of a fixed size at it.
pub struct StaticPools {
    context: Arc<Context>,
}

impl StaticPools {
    /// Asks for work on a pool when it, or its claims, change.
    pub fn listen(context: &Arc<Context>, queue: &Arc<Queue<Key>>) -> Self {
        let pools = Arc::clone(queue);
        context.cluster.pools.on_change(move |_, after| {
            if let Some(pool) = after.filter(|pool| pool.spec.replicas.is_some()) {
                pools.add(Key::of(&**pool));
            }
        });
        let (claims, weak) = (Arc::clone(queue), Arc::downgrade(context));
        context.cluster.claims.on_change(move |before, after| {
            let (Some(context), Some(claim)) = (weak.upgrade(), after.or(before)) else { return };
            let counts = |claim: Option<&Arc<NodeClaim>>| {
                claim.filter(|claim| !is_leaving(&***claim)).map(|claim| replaces(claim))
            };
            let pool = pool_name(claim).and_then(|name| context.pool(name));
            if let Some(pool) = pool.filter(|pool| pool.spec.replicas.is_some() && counts(before) != counts(after)) {
                claims.add(Key::of(&*pool));
            }
        });
        let (launches, weak) = (Arc::clone(queue), Arc::downgrade(context));
        context.launch_backoff.on_change(move |pool| {
            let pool = weak.upgrade().and_then(|context| context.pool(pool));
            if let Some(pool) = pool.filter(|pool| pool.spec.replicas.is_some()) {
                launches.add(Key::of(&*pool));
            }
        });
        Self { context: Arc::clone(context) }
    }
}

impl Reconcile for StaticPools {
    const NAME: &'static str = "static pools";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let cluster = &self.context.cluster;
        // What is counted stays so until it was acted on: others that decide wait.
        let turn = self.context.turns.take().await;
        let pool = cluster.pools.get(key).filter(|pool| is_ours(pool) && !is_leaving(&**pool));
        let Some((pool, replicas)) = pool.and_then(|pool| Some((pool.clone(), wanted(&pool)?))) else {
            return Ok(None);
        };
        let counted = counted(cluster, &key.name);
        match counted.len().cmp(&replicas) {
            Ordering::Less => self.add(&turn, &pool, replicas - counted.len()).await,
            Ordering::Equal => Ok(None),
            Ordering::Greater => self.remove(&turn, &pool, &counted, counted.len() - replicas).await,
        }
    }
}

impl StaticPools {
    async fn add(&self, turn: &Turn<'_>, pool: &NodePool, missing: usize) -> Result<Option<Duration>> {
        if !is_ready(pool) {
            return Ok(None);
        }
        let backoff = &self.context.launch_backoff;
        if let Some((wait, _)) = backoff.closed(pool.name()) {
            return Ok(Some(wait));
        }
        // After a failure, one claim finds out for all.
        let missing = if backoff.is_probing(pool.name()) { missing.min(1) } else { missing };
        let there = self.context.cluster.claims.indexed(pool.name()).len();
        let limit = pool.spec.limits.as_ref().and_then(|limits| limits.get("nodes"));
        let room = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(0).saturating_sub(there));
        let missing = missing.min(room);
        let snapshot = self.context.snapshot();
        let Some(id) = snapshot.find_pool(pool.name()).filter(|_| missing > 0) else { return Ok(None) };
        let market = Market::new(&snapshot);
        let mut zones = Zones::new(&snapshot);
        let claims: Vec<Option<NodeClaim>> =
            (0..missing).map(|_| zones.claim(&self.context, &snapshot, &market, id)).collect();
        if claims.iter().all(Option::is_none) {
            tracing::warn!(pool = pool.name(), missing, "nothing is on sale for a pool of fixed size");
            return Ok(Some(self.context.stock_outs.next_probe().map_or(RETRY, |probe| probe.min(RETRY))));
        }
        let created = limits::create(&self.context, turn, claims, created_for::REPLICAS).await?;
        let written = created.iter().flatten().count();
        decisions::resized(&self.context.cluster, pool.name(), "create", created.iter().flatten());
        tracing::info!(pool = pool.name(), missing, written, "nodes for a pool of fixed size");
        Ok((written < missing).then_some(RETRY))
    }

    async fn remove(
        &self,
        turn: &Turn<'_>,
        pool: &NodePool,
        counted: &[Arc<NodeClaim>],
        excess: usize,
    ) -> Result<Option<Duration>> {
        let snapshot = self.context.snapshot();
        // What is in another cloud counts, and cannot be ended here.
        let own = counted.iter().filter(|claim| self.context.clouds.unknown(&***claim).is_none());
        let own: Vec<Arc<NodeClaim>> = own.cloned().collect();
        let names = excess_of(&snapshot, &own, excess);
        if names.is_empty() {
            return Ok(None);
        }
        tracing::info!(pool = pool.name(), claims = ?names, "too many nodes for a pool of fixed size");
        decisions::resized(&self.context.cluster, pool.name(), "delete", &names);
        let claims = counted.iter().filter(|claim| names.contains(claim.name())).cloned();
        let delete = |claim: Arc<NodeClaim>| async move {
            turn.delete(&self.context.cluster, &claim).await?;
            self.context.metrics.claim_disrupted(&claim, TOO_MANY);
            Ok(())
        };
        let deleted: Vec<Result<()>> =
            stream::iter(claims.collect::<Vec<_>>()).map(delete).buffer_unordered(AT_A_TIME).collect().await;
        deleted.into_iter().collect::<Result<()>>()?;
        Ok(None)
    }
}

/// Whether pool and class are valid and ready, as the pool is now. Limits that hold a part of its nodes do not keep the
/// others from being made.
fn is_ready(pool: &NodePool) -> bool {
    conditions::OF_POOL.iter().all(|kind| {
        let found = find(&pool.status.conditions, kind);
        found.is_some_and(|found| found.is_true() && found.observed_generation == pool.metadata.generation)
    })
}

fn wanted(pool: &NodePool) -> Option<usize> {
    pool.spec.replicas.map(|replicas| usize::try_from(replicas).unwrap_or(0))
}

/// Claims of a pool that count: those that stand, but for those that replace another one that stands.
fn counted(cluster: &Cluster, pool: &str) -> Vec<Arc<NodeClaim>> {
    let mut standing = cluster.claims.indexed(pool);
    standing.retain(|claim| !is_leaving(&**claim) && is_our_class(&claim.spec.node_class_ref));
    let uids: BTreeSet<String> = standing.iter().filter_map(|claim| claim.metadata.uid.clone()).collect();
    standing.retain(|claim| {
        replaces(claim).is_none_or(|of| !of.claims.iter().any(|candidate| uids.contains(&candidate.uid)))
    });
    standing
}

/// Pools of fixed size that have as many nodes as they should.
pub(crate) fn steady(cluster: &Cluster) -> BTreeSet<String> {
    let pools = cluster.pools.list().into_iter().filter(|pool| is_ours(pool) && !is_leaving(&**pool));
    let steady = pools.filter(|pool| wanted(pool).is_some_and(|wanted| counted(cluster, pool.name()).len() == wanted));
    steady.map(|pool| pool.name().to_owned()).collect()
}

/// How much the end of a claim disturbs; the least goes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Disturbance {
    /// A machine is there.
    launched: bool,
    /// Pods run on it that belong elsewhere then.
    busy: bool,
    /// The node or a pod on it has the annotation `karpenter.sh/do-not-disrupt`.
    guarded: bool,
    /// What its pods cost, less as it comes nearer to its end.
    cost: i64,
    /// It is what the pool asks for.
    current: bool,
    name: String,
}

/// The names of so many claims, those that disturb least.
fn excess_of(snapshot: &Snapshot, claims: &[Arc<NodeClaim>], excess: usize) -> BTreeSet<String> {
    let residents = Residents::new(snapshot);
    let ids: HashMap<&str, usize> =
        snapshot.nodes.iter().enumerate().map(|(index, node)| (node.name.as_str(), index)).collect();
    let mut all: Vec<Disturbance> = claims.iter().map(|claim| disturbance(snapshot, &residents, &ids, claim)).collect();
    all.sort();
    all.into_iter().take(excess).map(|one| one.name).collect()
}

fn disturbance(
    snapshot: &Snapshot,
    residents: &Residents,
    ids: &HashMap<&str, usize>,
    claim: &NodeClaim,
) -> Disturbance {
    let name = claim.name().to_owned();
    let launched = !claim.status.provider_id.is_empty();
    let node = Some(claim.status.node_name.as_str()).filter(|node| !node.is_empty()).unwrap_or(&name);
    let Some(id) = ids.get(node).map(|&index| NodeId::from(index)) else {
        return Disturbance { launched, busy: false, guarded: false, cost: 0, current: true, name };
    };
    let of = &snapshot.nodes[id.index()];
    Disturbance {
        launched,
        busy: residents.movers(snapshot, id).next().is_some(),
        guarded: of.do_not_disrupt || residents.of(id).iter().any(|pod| is_guarded(snapshot, *pod)),
        cost: pods_cost(snapshot, residents, id) * life_left(snapshot, id) / WHOLE_LIFE,
        current: of.drifted.is_none(),
        name,
    }
}

fn is_guarded(snapshot: &Snapshot, pod: PodId) -> bool {
    let of = &snapshot.pods[pod.index()];
    let held = match snapshot.class_of(pod).do_not_disrupt {
        DoNotDisrupt::No => false,
        DoNotDisrupt::Always => true,
        DoNotDisrupt::For(time) => of.started.unwrap_or(snapshot.now).saturating_add(time) > snapshot.now,
    };
    held && of.state == PodState::Bound
}

/// What is left of a node's life, in thousandths.
fn life_left(snapshot: &Snapshot, node: NodeId) -> i64 {
    let of = &snapshot.nodes[node.index()];
    let of_pool = of.pool.and_then(|pool| snapshot.pools[pool.index()].disruption.expire_after);
    let Some(end) = of.expires(of_pool) else { return WHOLE_LIFE };
    let (left, whole) = (end.saturating_sub(snapshot.now), end.saturating_sub(of.created).max(1));
    (i128::from(left) * i128::from(WHOLE_LIFE) / i128::from(whole)).clamp(0, i128::from(WHOLE_LIFE)) as i64
}

/// Nodes of each pool in each zone: new ones go where there are fewest.
pub(crate) struct Zones(HashMap<PoolId, BTreeMap<Option<Symbol>, usize>>);

impl Zones {
    /// The nodes of a snapshot that do not leave.
    pub(crate) fn new(snapshot: &Snapshot) -> Self {
        let mut zones: HashMap<PoolId, BTreeMap<Option<Symbol>, usize>> = HashMap::new();
        for node in snapshot.nodes.iter().filter(|node| node.state != NodeState::Leaving) {
            if let Some(pool) = node.pool {
                *zones.entry(pool).or_default().entry(node.zone).or_default() += 1;
            }
        }
        Self(zones)
    }

    /// A claim for one more node of a pool; none while nothing is on sale for it.
    pub(crate) fn claim(
        &mut self,
        context: &Context,
        snapshot: &Snapshot,
        market: &Market,
        id: PoolId,
    ) -> Option<NodeClaim> {
        let name = &snapshot.pools[id.index()].name;
        let pool = context.pool(name)?;
        let (node, offers) = self.choose(snapshot, market, id)?;
        let contents = Contents::new();
        let intent = NewClaim { snapshot, market, pool: &pool, node: &node, contents: &contents, offers: &offers };
        Some(intent.claim(context.cluster.claim_name(name)))
    }

    /// The cheapest offer, of several in the zone that has fewest nodes of the pool, and what would do instead.
    fn choose(&mut self, snapshot: &Snapshot, market: &Market, id: PoolId) -> Option<(NewNode, Vec<u32>)> {
        let counts = self.0.entry(id).or_default();
        let zone_of = |offer: usize| market.offer(offer).labels.get(snapshot.names.zone);
        let mut on_sale: Vec<usize> =
            market.of_pool(id).iter().filter(|&offer| market.offer(offer).available).collect();
        on_sale.sort_by_key(|&offer| {
            let (of, zone) = (market.offer(offer), zone_of(offer));
            let count = counts.get(&zone).copied().unwrap_or(0);
            let type_name = snapshot.text(snapshot.types[of.instance_type.index()].name);
            (of.price, count, type_name, zone.map(|zone| snapshot.text(zone)), offer)
        });
        let &first = on_sale.first()?;
        let of = market.offer(first);
        let node = NewNode {
            pool: id,
            instance_type: of.instance_type,
            offering: of.offering,
            price: of.price,
            labels: Arc::clone(&of.labels),
        };
        // The zone is part of the choice: those that launch look at prices only.
        let zone = zone_of(first);
        let instead = on_sale.into_iter().filter(|&offer| zone_of(offer) == zone).map(|offer| offer as u32);
        let instead = instead.filter(|&offer| counts_no_more(snapshot, market, &node, offer));
        let offers = instead.take(ALTERNATIVES).collect();
        *counts.entry(zone).or_default() += 1;
        Some((node, offers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_plan::testing::Cluster as Scene;
    use serde_json::json;

    fn claim(name: &str, launched: bool) -> Arc<NodeClaim> {
        let status =
            if launched { json!({"providerID": format!("sim://x/{name}"), "nodeName": name}) } else { json!({}) };
        let claim =
            json!({"metadata": {"name": name}, "spec": {"requirements": [], "nodeClassRef": {}}, "status": status});
        Arc::new(serde_json::from_value(claim).unwrap())
    }

    fn scene() -> Scene {
        Scene::new()
            .machine("small", "cpu=2 memory=4Gi", |machine| machine.zones("a b").price(50))
            .machine("large", "cpu=8 memory=16Gi", |machine| machine.zones("a b").price(180))
            .pool("fixed", |pool| pool.edit(|pool| pool.replicas = Some(5)))
    }

    #[test]
    fn those_that_disturb_least_go_first() {
        let mut snapshot = ["one", "two", "pinned", "idle", "aging"]
            .into_iter()
            .fold(scene(), |scene, name| scene.node(name, "small", |node| node.pool("fixed")));
        snapshot = snapshot
            .pod("a", "cpu=100m", |pod| pod.on("one"))
            .pods(2, "b", "cpu=100m", |pod| pod.on("two"))
            .pods(2, "c", "cpu=100m", |pod| pod.on("aging"))
            .pod("d", "cpu=100m", |pod| pod.on("pinned").edit(|class| class.do_not_disrupt = DoNotDisrupt::Always));
        let mut snapshot = snapshot.snapshot();
        let aging = snapshot.find_node("aging").unwrap();
        snapshot.nodes[aging.index()].expiry = millpond_plan::model::Expiry::At(snapshot.now + 60);
        let claims = ["pinned", "two", "one", "idle", "aging"].map(|name| claim(name, true));
        let claims: Vec<_> = claims.into_iter().chain([claim("zz-new", false)]).collect();
        let mut order = Vec::new();
        let mut before = BTreeSet::new();
        for excess in 1..=claims.len() {
            let names = excess_of(&snapshot, &claims, excess);
            order.extend(names.difference(&before).cloned());
            before = names;
        }
        assert_eq!(order, ["zz-new", "idle", "aging", "one", "two", "pinned"]);
    }

    #[test]
    fn new_nodes_are_cheap_and_spread_over_zones() {
        let snapshot = scene().node("there", "small", |node| node.pool("fixed").zone("a")).snapshot();
        let market = Market::new(&snapshot);
        let mut zones = Zones::new(&snapshot);
        let mut choose = || {
            let (node, offers) = zones.choose(&snapshot, &market, PoolId(0)).unwrap();
            let zone = snapshot.text(node.labels.get(snapshot.names.zone).unwrap());
            let types = offers.iter().map(|&offer| {
                let of = market.offer(offer as usize);
                assert_eq!(of.labels.get(snapshot.names.zone), node.labels.get(snapshot.names.zone));
                snapshot.text(snapshot.types[of.instance_type.index()].name)
            });
            format!("{zone}: {}", types.collect::<Vec<_>>().join(" "))
        };
        assert_eq!([choose(), choose(), choose()], ["b: small large", "a: small large", "b: small large"]);
    }
}
