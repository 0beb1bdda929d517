//! A state: all rows of the page, made from one snapshot. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond_plan::disruption::node_verdicts;
use millpond_plan::model::{CPU, MEMORY, Node, NodeId, NodeState, PodId, ResourceId, Snapshot};
use millpond_plan::plan::{Outcome, Settings};
use millpond_view::overview::{Overview, overview};
use millpond_view::pending::{self, GroupRow};
use millpond_view::pools::{self, PoolRow};
use millpond_view::totals::{Load, Totals, loads};
use millpond_view::units::{Money, permille};
use serde_json::{Map, Value, json};

use super::{Strings, appended, rows_changed};

/// The columns of a node, without its name.
pub(crate) const COLUMNS: [&str; 16] = [
    "pool",
    "type",
    "zone",
    "capacityType",
    "state",
    "cpu",
    "mem",
    "gpu",
    "cpuTotal",
    "memTotal",
    "pods",
    "priceNanos",
    "why",
    "disruptable",
    "doNotDisrupt",
    "since",
];
/// The place of the column that is one text of letters.
const STATE: usize = 4;
/// Resources that count as GPUs, the first one that a node has.
const GPUS: [&str; 3] = ["nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915"];

/// A state.
pub(crate) struct Frame {
    pub(crate) number: u64,
    pub(crate) snapshot: Snapshot,
    pub(crate) outcome: Outcome,
    pub(crate) loads: Vec<Load>,
    pub(crate) nodes: BTreeMap<String, Vec<Value>>,
    pub(crate) pools: Vec<PoolRow>,
    pub(crate) groups: Vec<(GroupRow, PodId)>,
    pub(crate) overview: Overview,
}

impl Frame {
    pub(crate) fn new(snapshot: Snapshot, strings: &mut Strings, owner: &dyn Fn(&str, &str) -> Option<String>) -> Self {
        let outcome = millpond_plan::plan(&snapshot, &Settings::default());
        let loads = loads(&snapshot);
        let groups = pending::groups(&snapshot, &outcome, owner);
        let mut pools = pools::rows(&snapshot, &loads);
        name_pending(&snapshot, &outcome, &groups, &mut pools);
        let rows: Vec<GroupRow> = groups.iter().map(|(row, _)| row.clone()).collect();
        let overview = overview(&snapshot, &outcome, &loads, &pools, &rows);
        let nodes = nodes(&snapshot, &loads, strings);
        Self { number: 0, snapshot, outcome, loads, nodes, pools, groups, overview }
    }

    /// What is different from a state before: topics with their data. `new` are texts that the dictionary got.
    pub(crate) fn deltas(&self, before: &Self, new: &[Arc<str>], from: usize) -> Vec<(&'static str, Value)> {
        let mut deltas = Vec::new();
        let (put, added, gone) = rows_changed(&before.nodes, &self.nodes);
        let strings = appended(new, from);
        if !put.is_empty() || !added.is_empty() || !gone.is_empty() || strings.is_some() {
            let mut data = json!({ "put": put, "new": added, "gone": gone });
            if let Some(strings) = strings {
                data["strings"] = strings;
            }
            deltas.push(("nodes", data));
        }
        deltas.extend(self.pending_delta(before).map(|data| ("pending", data)));
        if self.pools != before.pools {
            deltas.push(("pools", self.pools_json()));
        }
        let timeless = Overview { now: before.overview.now, ..self.overview.clone() };
        if timeless != before.overview {
            deltas.push(("overview", json!(self.overview)));
        }
        deltas
    }

    fn pending_delta(&self, before: &Self) -> Option<Value> {
        let known: BTreeMap<&str, &GroupRow> = before.groups.iter().map(|(row, _)| (row.id.as_str(), row)).collect();
        let now: BTreeMap<&str, &GroupRow> = self.groups.iter().map(|(row, _)| (row.id.as_str(), row)).collect();
        let put: Map<String, Value> = now
            .iter()
            .filter(|(id, row)| known.get(*id) != Some(row))
            .map(|(id, row)| ((*id).to_owned(), json!(row)))
            .collect();
        let gone: Vec<&str> = known.keys().filter(|id| !now.contains_key(*id)).copied().collect();
        (!put.is_empty() || !gone.is_empty())
            .then(|| json!({ "groups": now.len(), "pods": self.overview.pods.waiting, "put": put, "gone": gone }))
    }

    pub(crate) fn pools_json(&self) -> Value {
        let sum = self.totals();
        let cost = Money::new(sum.price, sum.nodes, sum.unpriced);
        json!({ "pools": self.pools, "total": { "nodes": sum.nodes, "cost": cost } })
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals::of(&self.snapshot, &self.loads, (0..self.snapshot.nodes.len()).map(NodeId::from))
    }

    /// The columns of all nodes.
    pub(crate) fn columns(&self) -> Value {
        let mut columns = Map::new();
        columns.insert("name".to_owned(), json!(self.nodes.keys().collect::<Vec<_>>()));
        for (place, column) in COLUMNS.iter().enumerate() {
            let values = self.nodes.values().map(|row| &row[place]);
            let all = if place == STATE {
                Value::String(values.filter_map(Value::as_str).collect())
            } else {
                Value::Array(values.cloned().collect())
            };
            columns.insert((*column).to_owned(), all);
        }
        Value::Object(columns)
    }

    /// Nodes that are to be bought, as the planner sees it.
    pub(crate) fn planned(&self) -> Vec<Value> {
        let mut pods = millpond_view::plan::pods_by_target(&self.snapshot, &self.outcome);
        let nodes = self.outcome.plan.new_nodes.iter().enumerate();
        let planned = nodes.map(|(index, node)| {
            let of = &self.snapshot.types[node.instance_type.index()];
            let offering = &of.offerings[node.offering as usize];
            json!({
                "pool": self.snapshot.pools[node.pool.index()].name,
                "type": self.snapshot.text(of.name),
                "zone": self.snapshot.text(offering.zone),
                "pods": pods.remove(&millpond_plan::plan::Target::New(index as u32)).unwrap_or_default(),
            })
        });
        planned.collect()
    }
}

/// A new row as an object.
pub(super) fn object(name: &str, row: &[Value]) -> Value {
    let fields = COLUMNS.iter().zip(row).map(|(column, value)| ((*column).to_owned(), value.clone()));
    let name = std::iter::once(("name".to_owned(), json!(name)));
    Value::Object(name.chain(fields).collect())
}

/// Groups that wait for nodes of a pool are named there.
fn name_pending(snapshot: &Snapshot, outcome: &Outcome, groups: &[(GroupRow, PodId)], pools: &mut [PoolRow]) {
    for (group, pod) in groups {
        let kept = snapshot.pods[pod.index()].node.and_then(|node| snapshot.nodes[node.index()].pool);
        let bought = match outcome.plan.target(*pod) {
            Some(millpond_plan::plan::Target::New(node)) => Some(outcome.plan.new_nodes[node as usize].pool),
            Some(millpond_plan::plan::Target::Existing(node)) => snapshot.nodes[node.index()].pool,
            None => None,
        };
        if let Some(pool) = kept.or(bought) {
            pools[pool.index()].pending.push(group.id.clone());
        }
    }
}

fn nodes(snapshot: &Snapshot, loads: &[Load], strings: &mut Strings) -> BTreeMap<String, Vec<Value>> {
    let verdicts = node_verdicts(snapshot, &Settings { consolidate: true, ..Settings::default() });
    let gpus: Vec<ResourceId> = GPUS.iter().filter_map(|name| snapshot.resources.find(name)).collect();
    let rows = snapshot.nodes.iter().enumerate().map(|(index, node)| {
        let (load, verdict) = (&loads[index], verdicts.of(index.into()));
        let share = |resource| permille(load.requests.get(resource), node.allocatable.get(resource));
        let gpu = gpus.iter().find(|gpu| node.allocatable.get(**gpu) > 0).and_then(|gpu| share(*gpu));
        let mut text = |text: Option<&str>| strings.number(text.unwrap_or_default());
        let of = |symbol| snapshot.text(symbol);
        let row = vec![
            json!(text(node.pool.map(|pool| snapshot.pools[pool.index()].name.as_str()))),
            json!(text(node.instance_type.map(of))),
            json!(text(node.zone.map(of))),
            json!(text(node.capacity_type.map(millpond_plan::model::CapacityType::name))),
            json!(letter(node)),
            json!(share(CPU)),
            json!(share(MEMORY)),
            json!(gpu),
            json!(node.allocatable.get(CPU)),
            json!(node.allocatable.get(MEMORY) >> 20),
            json!(load.pods),
            json!(node.price),
            json!(text(Some(&verdict.why(snapshot)))),
            json!(u8::from(verdict.is_disruptable())),
            json!(u8::from(node.do_not_disrupt)),
            json!(Some(node.created).filter(|created| *created != 0)),
        ];
        (node.name.clone(), row)
    });
    rows.collect()
}

/// Where a node is in its life, in one letter.
pub(crate) fn letter(node: &Node) -> &'static str {
    match node.state {
        NodeState::Leaving => "d",
        NodeState::Starting => "s",
        NodeState::Running if !node.ready => "n",
        NodeState::Running if !node.schedulable => "c",
        NodeState::Running => "r",
    }
}
