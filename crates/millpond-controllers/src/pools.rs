//! The status of NodePools: whether they are valid, whether their class is ready, whether what they launch
//! becomes nodes ([`crate::health`]), and what their nodes add up to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use millpond_api::condition::{self, Conditions, FALSE};
use millpond_api::karpenter::{self as api, NODE_CLASS_NOT_MANAGED, conditions};
use millpond_api::labels::NODE_POOL;
use millpond_api::meta::Condition;
use millpond_api::time::Time;
use millpond_api::{amounts, meta::Invalid};
use millpond_runtime::error::Result;
use millpond_runtime::events::EventReason;
use millpond_runtime::meta::{Key, status_patch};
use millpond_runtime::queue::Queue;
use millpond_runtime::worker::Reconcile;
use millpond_state::objects::Kind as StateKind;

use crate::cluster::{is_ours, pool_name};
use crate::context::{Context, api_meta};
use crate::kinds::{NodeClass, NodePool};
use crate::standings::Standing;

/// Changes of nodes are gathered for this long: a hundred nodes that come together cost their pool one write.
const GATHER: Duration = Duration::from_millis(200);

/// Pools of other providers are left to their own controller for this long.
const FOREIGN_AFTER: Duration = Duration::from_secs(30);
const NOT_MANAGED: EventReason =
    EventReason { component: "millpond", action: "Plan", reason: "NodeClassNotManaged", warning: true };

/// Keeps the status of pools.
pub struct Pools {
    context: Arc<Context>,
}

impl Pools {
    /// Works on this cluster.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Asks for work on a pool whenever it, its class, its claims or its nodes change.
    pub fn listen(context: &Arc<Context>, queue: &Arc<Queue<Key>>) {
        let (pools, weak) = (Arc::clone(queue), Arc::downgrade(context));
        context.cluster.pools.on_change(move |before, after| match (before, after) {
            (_, Some(pool)) => pools.add(Key::of(&**pool)),
            (Some(gone), None) => {
                if let Some(context) = weak.upgrade() {
                    context.health.forget(gone);
                }
            }
            (None, None) => {}
        });
        let standings = Arc::clone(queue);
        context.standings.on_change(move |pool| standings.add(Key::new("", pool)));
        let health = Arc::clone(queue);
        context.health.on_change(move |pool| health.add_after(Key::new("", pool), GATHER));
        let (classes, weak) = (Arc::clone(queue), Arc::downgrade(context));
        context.cluster.classes.on_change(move |before, after| {
            let (Some(context), Some(class)) = (weak.upgrade(), after.or(before)) else { return };
            let of_class = |pool: &&Arc<NodePool>| pool.spec.template.spec.node_class_ref.name == class.name();
            context.cluster.pools.list().iter().filter(of_class).for_each(|pool| classes.add(Key::of(&**pool)));
        });
        let claims = Arc::clone(queue);
        context.cluster.claims.on_change(move |before, after| {
            if let Some(name) = after.or(before).and_then(|claim| pool_name(claim)) {
                claims.add_after(Key::new("", name), GATHER);
            }
        });
        let nodes = Arc::clone(queue);
        context.cluster.nodes.on_change(move |before, after| {
            if let Some(name) = after.or(before).and_then(|node| node.labels().get(NODE_POOL)) {
                nodes.add_after(Key::new("", name), GATHER);
            }
        });
    }
}

impl Reconcile for Pools {
    const NAME: &'static str = "pools";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let cluster = &self.context.cluster;
        let Some(pool) = cluster.pools.get(key) else { return Ok(None) };
        if !is_ours(&pool) {
            return self.look_after_foreign(key, &pool).await;
        }
        let class = self.context.class(&pool.spec.template.spec.node_class_ref.name);
        let class_generation = class.as_ref().and_then(|class| class.metadata.generation);
        // A class that is away for a while is no change of it.
        let class_generation = class_generation.unwrap_or(pool.status.node_class_observed_generation);
        let mut status = pool.status.clone();
        (status.resources, status.nodes) = self.sums(key);
        let generation = pool.metadata.generation.unwrap_or_default();
        let standing = self.context.standings.of(&key.name);
        let is_hopeless = standing.as_ref().is_some_and(|standing| standing.is_permanent);
        let dependents = if is_hopeless { conditions::OF_HOPELESS_POOL } else { conditions::OF_POOL };
        let was_held = condition::find(&status.conditions, conditions::LAUNCHABLE).is_some();
        let mut known = Conditions::new(&mut status.conditions, dependents, generation, cluster.now());
        known.initialize();
        match &standing {
            Some(Standing { event_reason, message, .. }) => {
                let held = Condition::new(conditions::LAUNCHABLE, FALSE, event_reason.reason, message.as_str());
                let is_new = known.set(held);
                if is_new {
                    self.context.events.record(&*pool, *event_reason, message.as_str());
                }
            }
            None if was_held => drop(known.set(Condition::holds(conditions::LAUNCHABLE))),
            None => {}
        }
        known.set(self.validity(&pool));
        known.set(class_readiness(&pool, class.as_deref()));
        known.set(self.context.health.condition(cluster, &pool, class_generation));
        status.node_class_observed_generation = class_generation;
        if let Some(patch) = status_patch(&*pool, Some(&pool.status), &status) {
            cluster.pools.patch_status(key, &patch).await?;
        }
        Ok(None)
    }
}

impl Pools {
    /// A pool whose class is of another provider. If nothing has looked at it after a while, nothing will: it says so
    /// itself. A controller that does look after it writes the same conditions, and is left alone.
    async fn look_after_foreign(&self, key: &Key, pool: &NodePool) -> Result<Option<Duration>> {
        let cluster = &self.context.cluster;
        let is_own = |it: &Condition| it.reason == NODE_CLASS_NOT_MANAGED || it.reason == "UnhealthyDependents";
        if pool.metadata.deletion_timestamp.is_some() || !pool.status.conditions.iter().all(is_own) {
            return Ok(None);
        }
        let created = pool.metadata.creation_timestamp.as_ref().map(|time| Time(time.0.as_second()));
        let age = created.map_or(Duration::ZERO, |created| cluster.since(created));
        if age < FOREIGN_AFTER {
            return Ok(Some(FOREIGN_AFTER - age));
        }
        let mut status = pool.status.clone();
        let generation = pool.metadata.generation.unwrap_or_default();
        let message = api_pool(pool).unmanaged_class();
        let class = Condition::fails(conditions::NODE_CLASS_READY, NODE_CLASS_NOT_MANAGED, message.as_str());
        Conditions::new(&mut status.conditions, conditions::OF_POOL, generation, cluster.now()).set(class);
        if let Some(patch) = status_patch(pool, Some(&pool.status), &status) {
            self.context.events.record(pool, NOT_MANAGED, message);
            cluster.pools.patch_status(key, &patch).await?;
        }
        Ok(None)
    }

    /// The total resources of a pool's nodes, and their number. A claim without a node counts with the capacity of its
    /// status.
    fn sums(&self, pool: &Key) -> (amounts::Amounts, Option<i64>) {
        let mut sums: BTreeMap<String, i64> = BTreeMap::new();
        let mut nodes = 0;
        for claim in self.context.cluster.claims.indexed(&pool.name) {
            if claim.status.provider_id.is_empty() {
                continue;
            }
            nodes += 1;
            for (name, amount) in claim.status.capacity.iter() {
                *sums.entry(name.to_owned()).or_default() += amount;
            }
        }
        sums.insert("nodes".to_owned(), nodes);
        (amounts::Amounts(sums), Some(nodes))
    }

    fn validity(&self, pool: &NodePool) -> Condition {
        let refused = self.context.cluster.refused(StateKind::NodePool, &Key::of(pool));
        let first = || api_pool(pool).validate().into_iter().next();
        match refused.or_else(first) {
            Some(Invalid { field, problem }) => {
                let message = if field.is_empty() { problem } else { format!("{field}: {problem}") };
                Condition::fails(conditions::VALIDATION_SUCCEEDED, "NodePoolValidationFailed", message)
            }
            None => Condition::holds(conditions::VALIDATION_SUCCEEDED),
        }
    }
}

fn class_readiness(pool: &NodePool, class: Option<&NodeClass>) -> Condition {
    let kind = conditions::NODE_CLASS_READY;
    let name = &pool.spec.template.spec.node_class_ref.name;
    let Some(class) = class else {
        return Condition::fails(kind, "NodeClassNotFound", format!("there is no node class `{name}`"));
    };
    if class.metadata.deletion_timestamp.is_some() {
        return Condition::fails(kind, "NodeClassTerminating", format!("the node class `{name}` is being deleted"));
    }
    match condition::find(&class.status.conditions, condition::READY) {
        Some(ready) if ready.is_true() => Condition::holds(kind),
        Some(ready) if ready.is_false() => Condition::fails(kind, &ready.reason, ready.message.clone()),
        _ => {
            Condition::unknown(kind, "NodeClassReadinessUnknown", "the node class has not said yet whether it is ready")
        }
    }
}

/// The hash of a pool's template.
pub fn hash(pool: &NodePool) -> String {
    api_pool(pool).hash()
}

/// A pool as the planner reads it.
pub fn api_pool(pool: &NodePool) -> api::NodePool {
    api::NodePool { metadata: api_meta(&pool.metadata), spec: pool.spec.clone(), status: pool.status.clone() }
}
