//! Pools of every dialect as rows.

use millpond_plan::model::{CPU, CapacityType, MEMORY, Node, NodeId, NodeState, Pool, PoolId, Snapshot};
use serde::Serialize;

use crate::format::amount;
use crate::totals::{Load, Totals};
use crate::units::{Money, Share, permille};

/// A pool.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolRow {
    /// Whose kind of pool it is.
    pub dialect: &'static str,
    /// Its namespace, if it has one.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Where its page is: dialect, namespace or `-`, name.
    pub id: String,
    /// Its node class.
    pub class: Option<String>,
    /// Higher first.
    pub weight: i32,
    /// Whether nodes can be bought for it.
    pub ready: Option<bool>,
    /// Why not.
    pub why_not_ready: Option<String>,
    /// Nodes, those that start or leave included.
    pub nodes: usize,
    /// Nodes that start.
    pub starting: usize,
    /// Nodes that leave.
    pub leaving: usize,
    /// The least number of nodes.
    pub min: Option<u64>,
    /// The most nodes.
    pub max: Option<u64>,
    /// Pods on its nodes.
    pub pods: usize,
    /// What its nodes cost.
    pub cost: Money,
    /// The part of that cost that no pod asked for.
    pub idle: Money,
    /// How much of cpu is requested.
    pub cpu: Share,
    /// How much of memory is requested.
    pub memory: Share,
    /// How many of its nodes are spot, in thousandths.
    pub spot_permille: Option<i64>,
    /// Limits and what is used of them.
    pub limits: Vec<LimitRow>,
    /// When it was made.
    pub created_at: Option<i64>,
    /// Groups of pods that wait for it.
    pub pending: Vec<String>,
}

/// A limit of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LimitRow {
    /// Of what.
    pub resource: String,
    /// How much is used.
    pub used: String,
    /// How much there may be.
    pub limit: String,
    /// The share in thousandths.
    pub permille: Option<i64>,
    /// It in words.
    pub text: String,
}

impl LimitRow {
    fn new(resource: &str, used: i64, most: i64) -> Self {
        let (used_text, limit) = if resource == "dollars per hour" {
            let dollars = |nanos: i64| format!("${:.4}", nanos as f64 / 1e9);
            (dollars(used), dollars(most))
        } else {
            (amount(resource, used), amount(resource, most))
        };
        // A limit of nothing is used up.
        let permille = permille(used, most).or(Some(1000));
        let text = format!("{}% of {resource} limit {limit}", permille.unwrap_or_default() / 10);
        Self { resource: resource.to_owned(), used: used_text, limit, permille, text }
    }
}

/// The dialect, namespace and name behind a name of the snapshot: node groups of Cluster API are
/// `[KIND/]NAMESPACE/NAME`.
pub fn identity(name: &str) -> (&'static str, String, String) {
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        [namespace, name] | [_, namespace, name] => ("cluster-api", namespace.to_owned(), name.to_owned()),
        _ => ("karpenter", String::new(), name.to_owned()),
    }
}

/// Where the page of a pool is.
pub fn id(name: &str) -> String {
    let (dialect, namespace, name) = identity(name);
    format!("{dialect}/{}/{name}", if namespace.is_empty() { "-" } else { &namespace })
}

/// The rows of all pools, in the order of the snapshot.
pub fn rows(snapshot: &Snapshot, loads: &[Load]) -> Vec<PoolRow> {
    let mut nodes: Vec<Vec<NodeId>> = vec![Vec::new(); snapshot.pools.len()];
    for (index, node) in snapshot.nodes.iter().enumerate() {
        if let Some(pool) = node.pool {
            nodes[pool.index()].push(index.into());
        }
    }
    let row = |(index, pool): (usize, &Pool)| row(snapshot, loads, pool, &nodes[PoolId::from(index).index()]);
    snapshot.pools.iter().enumerate().map(row).collect()
}

fn row(snapshot: &Snapshot, loads: &[Load], pool: &Pool, nodes: &[NodeId]) -> PoolRow {
    let (dialect, namespace, name) = identity(&pool.name);
    let sum = Totals::of(snapshot, loads, nodes.iter().copied());
    let of = |id: &NodeId| &snapshot.nodes[id.index()];
    let in_state = |state: NodeState| nodes.iter().filter(|id| of(id).state == state).count();
    let spot = nodes.iter().filter(|id| of(id).capacity_type == Some(CapacityType::Spot)).count();
    let idle: u128 = nodes.iter().map(|id| idle(of(id), &loads[id.index()])).sum();
    PoolRow {
        dialect,
        id: id(&pool.name),
        namespace,
        name,
        class: None,
        weight: pool.weight,
        ready: Some(pool.not_ready.is_none()),
        why_not_ready: pool.not_ready.clone(),
        nodes: sum.nodes,
        starting: in_state(NodeState::Starting),
        leaving: in_state(NodeState::Leaving),
        min: pool.replicas.or(Some(pool.min_nodes).filter(|min| *min > 0)),
        max: pool.replicas.or(pool.limits.nodes),
        pods: sum.pods,
        cost: Money::new(sum.price, sum.nodes, sum.unpriced),
        idle: Money::new(idle, sum.nodes, sum.unpriced),
        cpu: Share::new("cpu", sum.requests.get(CPU), sum.allocatable.get(CPU)),
        memory: Share::new("memory", sum.requests.get(MEMORY), sum.allocatable.get(MEMORY)),
        spot_permille: permille(spot as i64, nodes.len() as i64),
        limits: limits(snapshot, pool, &sum),
        created_at: None,
        pending: Vec::new(),
    }
}

/// The part of a node's price that pods do not ask for, by the resource that they ask most of.
fn idle(node: &Node, load: &Load) -> u128 {
    let used = [CPU, MEMORY]
        .into_iter()
        .filter_map(|resource| permille(load.requests.get(resource), node.allocatable.get(resource)))
        .max()
        .unwrap_or(0)
        .clamp(0, 1000);
    u128::from(node.price.unwrap_or_default()) * u128::from((1000 - used).unsigned_abs()) / 1000
}

fn limits(snapshot: &Snapshot, pool: &Pool, sum: &Totals) -> Vec<LimitRow> {
    let of_resource = |&(resource, most): &(_, i64)| {
        LimitRow::new(snapshot.resources.name(resource), sum.capacity.get(resource), most)
    };
    let mut all: Vec<LimitRow> = pool.limits.resources.iter().map(of_resource).collect();
    let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    all.extend(pool.limits.nodes.map(|most| LimitRow::new("nodes", sum.nodes as i64, whole(most))));
    let price = i64::try_from(sum.price).unwrap_or(i64::MAX);
    all.extend(pool.limits.price.map(|most| LimitRow::new("dollars per hour", price, whole(most))));
    all
}
