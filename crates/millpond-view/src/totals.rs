//! Load and price of nodes, one by one and in total: the numbers of `pool` and `node`.

use millpond_plan::model::{CPU, MEMORY, Node, NodeId, NodeState, PodState, Resources, Snapshot};
use serde_json::{Value, json};

use crate::format::{grouped, percent, plural};

/// Hours of a month, as clouds count them.
const HOURS_PER_MONTH: f64 = 730.0;

/// The pods of a node.
#[derive(Debug, Clone, Default)]
pub struct Load {
    /// Pods, those that are going away included.
    pub pods: usize,
    /// The sum of their requests.
    pub requests: Resources,
}

/// The load of each node, in the order of the snapshot's nodes.
pub fn loads(snapshot: &Snapshot) -> Vec<Load> {
    let mut loads = vec![Load::default(); snapshot.nodes.len()];
    for pod in &snapshot.pods {
        if let (Some(node), PodState::Bound | PodState::Terminating) = (pod.node, pod.state) {
            let load = &mut loads[node.index()];
            load.pods += 1;
            load.requests.add(&snapshot.classes[pod.class.index()].requests);
        }
    }
    loads
}

/// Sums over nodes.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// Nodes.
    pub nodes: usize,
    /// Their pods.
    pub pods: usize,
    /// Nano-dollars per hour.
    pub price: u128,
    /// Nodes whose price is not known.
    pub unpriced: usize,
    /// What they report.
    pub capacity: Resources,
    /// What pods can use of those that stay.
    pub allocatable: Resources,
    /// What the pods of those that stay request.
    pub requests: Resources,
}

impl Totals {
    /// Of these nodes.
    pub fn of(snapshot: &Snapshot, loads: &[Load], nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let mut sum = Self::default();
        for id in nodes {
            let (node, load) = (&snapshot.nodes[id.index()], &loads[id.index()]);
            sum.nodes += 1;
            sum.pods += load.pods;
            sum.price += u128::from(node.price.unwrap_or_default());
            sum.unpriced += usize::from(node.price.is_none());
            sum.capacity.add(&node.capacity);
            // A node that is being removed offers no capacity.
            if node.state != NodeState::Leaving {
                sum.allocatable.add(&node.allocatable);
                sum.requests.add(&load.requests);
            }
        }
        sum
    }

    /// How much of cpu is requested.
    pub fn cpu_percent(&self) -> Option<i64> {
        percent(self.requests.get(CPU), self.allocatable.get(CPU))
    }

    /// How much of memory is requested.
    pub fn memory_percent(&self) -> Option<i64> {
        percent(self.requests.get(MEMORY), self.allocatable.get(MEMORY))
    }

    /// Dollars per hour.
    pub fn dollars(&self) -> f64 {
        self.price as f64 / 1e9
    }

    /// One line below a table.
    pub fn line(&self) -> String {
        let (hour, month) = (grouped(self.dollars(), 4), grouped(self.dollars() * HOURS_PER_MONTH, 2));
        let unpriced = match self.unpriced {
            0 => String::new(),
            count => format!(" without {} of unknown price", plural(count, "node")),
        };
        let used = match (self.cpu_percent(), self.memory_percent()) {
            (Some(cpu), Some(memory)) => format!("; pods request {cpu}% of cpu and {memory}% of memory"),
            _ => String::new(),
        };
        format!("{}, ${hour} per hour (${month} per month){unpriced}{used}", plural(self.nodes, "node"))
    }

    /// The same for scripts.
    pub fn view(&self) -> Value {
        json!({
            "nodes": self.nodes,
            "pods": self.pods,
            "pricePerHour": self.dollars(),
            "unpricedNodes": self.unpriced,
            "cpuPercent": self.cpu_percent(),
            "memoryPercent": self.memory_percent(),
        })
    }
}

/// Where a node is in its life, in one word or two.
pub fn state(node: &Node) -> String {
    let word = match node.state {
        NodeState::Leaving => "Leaving",
        NodeState::Starting => "Starting",
        NodeState::Running if node.ready => "Ready",
        NodeState::Running => "NotReady",
    };
    let cordoned = !node.schedulable && node.state != NodeState::Leaving;
    format!("{word}{}", if cordoned { ",Cordoned" } else { "" })
}

/// A share in a table.
pub fn share(percent: Option<i64>) -> String {
    percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent}%"))
}

/// Dollars in a table.
pub fn price(nanos: Option<u64>) -> String {
    nanos.map_or_else(|| "?".to_owned(), |nanos| format!("{:.4}", nanos as f64 / 1e9))
}

/// A moment for scripts.
pub fn moment(seconds: i64) -> Option<String> {
    jiff::Timestamp::from_second(seconds).ok().map(|moment| moment.to_string())
}
