//! What would help when no node fits: the cheapest node that a NodePool can bring; else one more node of a pool whose nodes
//! would do, were their GPUs free or their time longer; else a machine with the spare cards of a host.

use millpond_api::gpu_info::{GPUInfoSpec, Proposal};
use millpond_api::{labels, quantity};
use millpond_plan::gpu::{Excluded, Rejection};

use crate::answer::Ranking;
use crate::disturbance::POOL_LABELS;
use crate::estate::{Estate, NodeView};

/// The price of a node in dollars an hour, as its pool says it.
const PRICE: &str = "millpond.dev/price-per-hour";

/// The best proposal; `None` if nothing is known to help.
pub fn proposal(estate: &Estate, spec: &GPUInfoSpec, ranking: &Ranking<'_>) -> Option<Proposal> {
    if ranking.best().is_some() {
        return None;
    }
    if let Some(planned) = estate.pools.as_ref().and_then(|pools| pools.proposal(spec, estate.now)) {
        return Some(planned);
    }
    let would_do = |(node, why): &&(&NodeView, Rejection)| {
        let passes = matches!(
            why,
            Rejection::NoFreeGPU
                | Rejection::TimeTooShort
                | Rejection::InMaintenance
                | Rejection::Excluded(Excluded::NotReady | Excluded::Unschedulable)
        );
        passes && node.gpus.as_ref().map_or(0, |gpus| gpus.total) >= spec.gpus() && pool(node).is_some()
    };
    // The cheapest; if no price is known, the first by name.
    let price = |node: &NodeView| node.labels.get(PRICE).and_then(|text| quantity::parse_milli(text).ok());
    let nodes = ranking.rejected.iter().filter(would_do).map(|(node, _)| *node);
    let best = nodes.min_by_key(|node| (price(node).unwrap_or(u64::MAX), node.name.clone()));
    best.map(of_pool).or_else(|| of_host(estate, spec))
}

fn pool(node: &NodeView) -> Option<&str> {
    POOL_LABELS.iter().find_map(|label| node.labels.get(*label)).map(String::as_str)
}

fn of_pool(node: &NodeView) -> Proposal {
    let pool = pool(node).unwrap_or_default();
    let instance_type = node.labels.get(labels::INSTANCE_TYPE).cloned();
    let price_per_hour = node.labels.get(PRICE).cloned();
    let price = price_per_hour.as_ref().map(|price| format!(", ${price} an hour")).unwrap_or_default();
    let message = format!("one more node of pool {pool}, like {}, would fit the job{price}", node.name);
    Proposal { pool: Some(pool.to_owned()), nodes: 1, instance_type, price_per_hour, message }
}

fn of_host(estate: &Estate, spec: &GPUInfoSpec) -> Option<Proposal> {
    let wanted = spec.gpu_model.as_deref();
    let is_model = |model: &str, id: &str| {
        let words = || model.split([' ', '-']);
        wanted.is_none_or(|wanted| {
            wanted.eq_ignore_ascii_case(id)
                || wanted.eq_ignore_ascii_case(model)
                || words().any(|word| wanted.eq_ignore_ascii_case(word))
        })
    };
    let gpus = spec.gpus();
    let serves = |cards: &&crate::estate::SpareCards| {
        cards.is_usable && cards.count >= gpus && is_model(&cards.model, &cards.id)
    };
    let cards = estate.spare.iter().filter(|_| gpus > 0).find(serves)?;
    let message = format!(
        "host {} has {} spare {} ({}): a machine with {gpus} of them would fit the job",
        cards.host, cards.count, cards.model, cards.id
    );
    Some(Proposal { nodes: 1, message, ..Proposal::default() })
}
