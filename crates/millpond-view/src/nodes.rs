//! Nodes as rows.

use millpond_plan::disruption::{DisruptionBlocker, NodeVerdicts};
use millpond_plan::model::{CPU, MEMORY, NodeId, Snapshot};
use millpond_plan::symbol::Symbol;
use serde_json::{Value, json};

use crate::format::{memory, percent, span};
use crate::totals::{Load, moment, price, share, state};

/// The facts of a node.
pub struct NodeRow {
    /// Its name.
    pub name: String,
    /// Its pool.
    pub pool: Option<String>,
    /// Its type.
    pub instance_type: Option<String>,
    /// Its zone.
    pub zone: Option<String>,
    /// How it was bought.
    pub capacity_type: Option<&'static str>,
    /// Nano-dollars per hour; none where that is not known.
    pub price: Option<u64>,
    /// When it was made; 0 where that is not known.
    pub created: i64,
    /// Seconds since then.
    pub age: i64,
    /// How much of its cpu is requested.
    pub cpu_percent: Option<i64>,
    /// How much of its memory is requested.
    pub memory_percent: Option<i64>,
    /// Its cpu, in thousandths.
    pub cpu: i64,
    /// Its memory, in bytes.
    pub memory: i64,
    /// Its pods.
    pub pods: usize,
    /// Where it is in its life.
    pub state: String,
    /// Whether it may be taken away.
    pub is_disruptable: bool,
    /// Why it may, or may not.
    pub why: String,
    /// What keeps it, in one word.
    pub blocker: Option<&'static str>,
}

impl NodeRow {
    /// Of a node with what runs on it.
    pub fn new(snapshot: &Snapshot, verdicts: &NodeVerdicts, id: NodeId, load: &Load) -> Self {
        let node = &snapshot.nodes[id.index()];
        let verdict = verdicts.of(id);
        let text = |symbol: Option<Symbol>| symbol.map(|symbol| snapshot.text(symbol).to_owned());
        Self {
            name: node.name.clone(),
            pool: node.pool.map(|pool| snapshot.pools[pool.index()].name.clone()),
            instance_type: text(node.instance_type),
            zone: text(node.zone),
            capacity_type: node.capacity_type.map(millpond_plan::model::CapacityType::name),
            price: node.price,
            created: node.created,
            age: snapshot.now - node.created,
            cpu_percent: percent(load.requests.get(CPU), node.allocatable.get(CPU)),
            memory_percent: percent(load.requests.get(MEMORY), node.allocatable.get(MEMORY)),
            cpu: node.capacity.get(CPU),
            memory: node.capacity.get(MEMORY),
            pods: load.pods,
            state: state(node),
            is_disruptable: verdict.is_disruptable(),
            why: verdict.why(snapshot),
            blocker: verdict.blocker.map(DisruptionBlocker::name),
        }
    }

    /// The cells of a table: name, pool, type, zone, capacity type, price, age, cpu and memory if wide, shares, pods, state,
    /// why.
    pub fn cells(&self, wide: bool) -> Vec<String> {
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let mut cells = vec![
            self.name.clone(),
            or_dash(&self.pool),
            or_dash(&self.instance_type),
            or_dash(&self.zone),
            self.capacity_type.unwrap_or("-").to_owned(),
            price(self.price),
            if self.created == 0 { "?".to_owned() } else { span(self.age) },
        ];
        if wide {
            cells.extend([millpond_api::quantity::cores(self.cpu.max(0) as u64), memory(self.memory)]);
        }
        let why = if self.is_disruptable { format!("disruptable: {}", self.why) } else { self.why.clone() };
        cells.extend([
            share(self.cpu_percent),
            share(self.memory_percent),
            self.pods.to_string(),
            self.state.clone(),
            why,
        ]);
        cells
    }

    /// For scripts.
    pub fn view(&self) -> Value {
        json!({
            "name": self.name,
            "pool": self.pool,
            "instanceType": self.instance_type,
            "zone": self.zone,
            "capacityType": self.capacity_type,
            "pricePerHour": self.price.map(millpond_api::money::dollars),
            "created": moment(self.created).filter(|_| self.created != 0),
            "cpuPercent": self.cpu_percent,
            "memoryPercent": self.memory_percent,
            "pods": self.pods,
            "state": self.state,
            "disruptable": self.is_disruptable,
            "blocker": self.blocker,
            "why": self.why,
        })
    }
}
