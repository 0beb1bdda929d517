//! GPUs of the whole estate, as `millpond gpu list` shows them: one item a node, and the spare cards of hosts.

use serde::Serialize;

use millpond_api::time::Time;
use millpond_plan::gpu::Undisturbed;

use crate::estate::{Estate, NodeView, SpareCards};

/// GPUs of a node, or spare cards of one model of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// The node; `None` for spare cards.
    pub node: Option<String>,
    /// The host.
    pub host: Option<String>,
    /// The model as people read it.
    pub model: Option<String>,
    /// Vendor and device.
    pub id: Option<String>,
    /// Memory of one GPU.
    #[serde(rename = "memoryMiB")]
    pub memory_mib: Option<u64>,
    /// GPUs that pods may use.
    pub gpus: u64,
    /// Those that neither a pod nor a reservation holds.
    pub free: u64,
    /// Whole hours until it is disturbed.
    pub available_hours: u64,
    /// When that is; `None` without a known event.
    pub until: Option<Time>,
    /// Whether the hours are only assumed.
    pub assumed: bool,
}

/// All of them: nodes by name, then spare cards by host.
pub fn items(estate: &Estate) -> Vec<Item> {
    let nodes = estate.nodes.iter().filter(|node| node.gpus.is_some()).map(of_node);
    nodes.chain(estate.spare.iter().map(of_host)).collect()
}

fn of_node(node: &NodeView) -> Item {
    let usable = node.excluded.is_none();
    Item {
        node: Some(node.name.clone()),
        host: Some(node.host.clone()).filter(|host| !host.is_empty()),
        model: node.model.clone(),
        id: node.model_id.clone(),
        memory_mib: node.gpu_memory_mib,
        gpus: node.gpus.as_ref().map_or(0, |gpus| gpus.total),
        free: node.free(None),
        available_hours: if usable { node.undisturbed.hours() } else { 0 },
        until: node.event.as_ref().and_then(|event| event.at).map(Time),
        assumed: matches!(node.undisturbed, Undisturbed::Assumed(_)),
    }
}

fn of_host(cards: &SpareCards) -> Item {
    Item {
        node: None,
        host: Some(cards.host.clone()),
        model: Some(cards.model.clone()).filter(|model| !model.is_empty()),
        id: Some(cards.id.clone()),
        memory_mib: Some(cards.memory_mib).filter(|memory| *memory > 0),
        gpus: cards.count,
        free: if cards.is_usable { cards.count } else { 0 },
        available_hours: if cards.is_usable { cards.undisturbed.hours() } else { 0 },
        until: cards.event.as_ref().and_then(|event| event.at).map(Time),
        assumed: matches!(cards.undisturbed, Undisturbed::Assumed(_)),
    }
}
