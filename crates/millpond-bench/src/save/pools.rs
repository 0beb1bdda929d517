//! Pools as NodePools.

use millpond_plan::model::{Budget, Consolidation, Nodes, Pool, Snapshot};
use serde_json::{Map, Value, json};

use super::{SaveError, amount, expressions, inexpressible, taint, yaml};

pub(super) fn texts(snapshot: &Snapshot) -> Result<Vec<String>, SaveError> {
    snapshot.pools.iter().map(|pool| Ok(yaml(&node_pool(snapshot, pool)?))).collect()
}

fn node_pool(snapshot: &Snapshot, pool: &Pool) -> Result<Value, SaveError> {
    let sees_all = pool.types.len() == snapshot.types.len();
    for (fits, what) in [
        (sees_all, "that sees only some of the types"),
        (pool.not_ready.is_none(), "that is not ready"),
        (pool.min_nodes == 0, "with a least number of nodes"),
        (pool.limits.price.is_none(), "with a limit on its price"),
    ] {
        if !fits {
            return Err(inexpressible(format!("the pool `{}` {what}", pool.name)));
        }
    }
    let never = |seconds: Option<i64>| seconds.map_or_else(|| "Never".to_owned(), |seconds| format!("{seconds}s"));
    let mut template = json!({
        "requirements": expressions(&pool.requirements, &snapshot.symbols),
        "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        "expireAfter": never(pool.disruption.expire_after),
    });
    for (name, taints) in [("taints", &pool.taints), ("startupTaints", &pool.startup_taints)] {
        if !taints.is_empty() {
            template[name] = taints.iter().map(|one| taint(&snapshot.symbols, one)).collect();
        }
    }
    let mut spec = json!({
        "template": {"spec": template},
        "disruption": {
            "consolidationPolicy": policy(pool.disruption.policy),
            "consolidateAfter": never(pool.disruption.consolidate_after),
            "budgets": pool.disruption.budgets.iter().map(budget).collect::<Vec<_>>(),
        },
    });
    if pool.weight != 0 {
        spec["weight"] = pool.weight.into();
    }
    if let Some(replicas) = pool.replicas {
        spec["replicas"] = replicas.into();
    }
    let mut limits: Map<String, Value> =
        pool.limits.resources.iter().map(|(resource, most)| amount(snapshot, *resource, *most)).collect();
    if let Some(nodes) = pool.limits.nodes {
        limits.insert("nodes".into(), nodes.to_string().into());
    }
    if !limits.is_empty() {
        spec["limits"] = limits.into();
    }
    Ok(json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": pool.name}, "spec": spec}))
}

fn policy(policy: Consolidation) -> &'static str {
    match policy {
        Consolidation::WhenEmpty => "WhenEmpty",
        Consolidation::WhenEmptyOrUnderutilized => "WhenEmptyOrUnderutilized",
        Consolidation::Balanced => "Balanced",
    }
}

fn budget(of: &Budget) -> Value {
    let mut one = json!({"nodes": match of.nodes {
        Nodes::Count(count) => count.to_string(),
        Nodes::Percent(percent) => format!("{percent}%"),
    }});
    if let Some(schedule) = &of.schedule {
        one["schedule"] = schedule.cron.clone().into();
        one["duration"] = format!("{}s", schedule.duration).into();
        if let Some(zone) = &schedule.time_zone {
            one["timeZone"] = zone.clone().into();
        }
    }
    if !of.reasons.is_empty() {
        one["reasons"] = of.reasons.iter().map(|reason| reason.name()).collect();
    }
    one
}
