//! The facts about a pool that `pool list` and `pool get` show, for every kind of pool.

use millpond_api::condition::READY;
use millpond_api::karpenter::NodePool;
use millpond_api::meta::Condition;
use millpond_plan::explain::PoolStanding;
use millpond_plan::model::{CPU, Limits, MEMORY, NodeId, Pool, PoolId, Snapshot};
use serde_json::{Value, json};

use crate::commands::format::{self, percent};
use crate::commands::input::Input;
use crate::commands::node_totals::{Load, Totals, moment};

/// A pool with what its nodes add up to.
pub(super) struct PoolSummary<'i> {
    pub(super) id: PoolId,
    pub(super) pool: &'i Pool,
    /// The object, of pools that have one of their own.
    object: Option<&'i NodePool>,
    pub(super) nodes: Vec<NodeId>,
    pub(super) sum: Totals,
    now: i64,
    /// What it can make.
    standing: &'i PoolStanding,
    /// Limits and what is used of them.
    pub(super) limits: Vec<Limit>,
}

/// A limit of a pool.
pub(super) struct Limit {
    pub(super) resource: String,
    pub(super) used: String,
    pub(super) most: String,
    pub(super) percent: Option<i64>,
}

impl<'i> PoolSummary<'i> {
    pub(super) fn new(input: &'i Input, loads: &[Load], standing: &'i PoolStanding) -> Self {
        let id = standing.pool;
        let snapshot = &input.snapshot;
        let pool = &snapshot.pools[id.index()];
        let all = (0..snapshot.nodes.len()).map(NodeId::from);
        let nodes: Vec<NodeId> = all.filter(|node| snapshot.nodes[node.index()].pool == Some(id)).collect();
        let sum = Totals::of(snapshot, loads, nodes.iter().copied());
        let limits = limits(snapshot, &pool.limits, &sum);
        Self { id, pool, object: input.state.pool(&pool.name), nodes, sum, now: snapshot.now, standing, limits }
    }

    /// The name of its class; `None` for pools without a class.
    pub(super) fn class(&self) -> Option<&'i str> {
        self.object.map(|pool| pool.spec.template.spec.node_class_ref.name.as_str())
    }

    /// The kind of its class.
    pub(super) fn class_kind(&self) -> Option<String> {
        let class = &self.object?.spec.template.spec.node_class_ref;
        Some(if class.group.is_empty() { class.kind.clone() } else { format!("{}/{}", class.group, class.kind) })
    }

    /// Conditions, as a controller wrote them.
    pub(super) fn conditions(&self) -> &'i [Condition] {
        self.object.map_or(&[], |pool| &pool.status.conditions)
    }

    /// Whether nodes can be bought for it: what a controller says, and else what a plan finds.
    pub(super) fn ready(&self) -> &'i str {
        if self.pool.not_ready.is_some() || self.standing.is_permanent {
            return "False";
        }
        let ready = self.conditions().iter().find(|condition| condition.kind == READY);
        ready.map_or("True", |condition| condition.status.as_str())
    }

    /// Why no node can be made for it now, ready or not: the planner's reason, which conditions and events have too.
    pub(super) fn why_no_node(&self) -> Option<&'i str> {
        let ready = self.conditions().iter().find(|condition| condition.kind == READY && condition.status != "True");
        self.standing.why().or_else(|| ready.map(|condition| condition.message.as_str()))
    }

    /// The same, of a pool that is not ready.
    fn why_not_ready(&self) -> Option<&'i str> {
        self.why_no_node().filter(|_| self.ready() != "True")
    }

    /// Its age; `None` without a creation timestamp.
    pub(super) fn age(&self) -> Option<i64> {
        Some(self.now - self.created()?)
    }

    fn created(&self) -> Option<i64> {
        self.object?.metadata.creation_timestamp.map(|time| time.0)
    }

    pub(super) fn cpu(&self) -> i64 {
        self.sum.capacity.get(CPU)
    }

    pub(super) fn memory(&self) -> i64 {
        self.sum.capacity.get(MEMORY)
    }

    /// The limit that is reached first.
    pub(super) fn tightest(&self) -> Option<&Limit> {
        // The first of equals, because `max_by_key` returns the last.
        self.limits.iter().rev().max_by_key(|limit| limit.percent)
    }

    /// For scripts.
    pub(super) fn view(&self) -> Value {
        let limits: Vec<Value> = self
            .limits
            .iter()
            .map(|it| json!({ "resource": it.resource, "used": it.used, "limit": it.most, "percent": it.percent }))
            .collect();
        json!({
            "name": self.pool.name,
            "class": self.class(),
            "classKind": self.class_kind(),
            "weight": self.pool.weight,
            "replicas": self.pool.replicas,
            "ready": self.ready() == "True",
            "whyNotReady": self.why_not_ready(),
            "whyNoNode": self.why_no_node(),
            "rule": self.standing.verdict.as_ref().map(|verdict| verdict.rule.name()),
            "created": self.created().and_then(moment),
            "cpu": format::amount("cpu", self.cpu()),
            "memory": format::amount("memory", self.memory()),
            "limits": limits,
            "total": self.sum.view(),
        })
    }
}

fn limits(snapshot: &Snapshot, limits: &Limits, sum: &Totals) -> Vec<Limit> {
    let mut all: Vec<Limit> = Vec::new();
    let mut named: Vec<(&str, i64, i64)> = limits
        .resources
        .iter()
        .map(|&(resource, most)| (snapshot.resources.name(resource), sum.capacity.get(resource), most))
        .collect();
    named.extend(limits.nodes.map(|most| ("nodes", sum.nodes as i64, i64::try_from(most).unwrap_or(i64::MAX))));
    for (resource, used, most) in named {
        all.push(Limit {
            resource: resource.to_owned(),
            used: format::amount(resource, used),
            most: format::amount(resource, most),
            percent: share(used, most),
        });
    }
    if let Some(most) = limits.price {
        let (used, most) = (i64::try_from(sum.price).unwrap_or(i64::MAX), i64::try_from(most).unwrap_or(i64::MAX));
        let dollars = |nanos: i64| format!("${:.4}", nanos as f64 / 1e9);
        all.push(Limit {
            resource: "dollars per hour".to_owned(),
            used: dollars(used),
            most: dollars(most),
            percent: share(used, most),
        });
    }
    all
}

/// A limit of nothing is used up.
fn share(used: i64, most: i64) -> Option<i64> {
    percent(used, most).or(Some(100))
}
