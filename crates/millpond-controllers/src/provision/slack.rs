//! Plans with slack, for pods that the scheduler places by itself.
//!
//! Pods whose order matters because of a topology spread cannot be nominated (`spread_order.rs`). Where a zone has
//! several nodes for them, the scheduler mixes them by its own scores. A plan at least cost, which fills every node to
//! the brim with pods that go well together, is not reproduced that way: some pods are left over, and more nodes are
//! bought for them. Such pods need few nodes with capacity to spare. Karpenter's rules buy such nodes; they are taken
//! if they are not

use std::collections::{BTreeMap, BTreeSet};

use millpond_plan::market::Market;
use millpond_plan::model::{ClassId, Snapshot};
use millpond_plan::pack::Budget;
use millpond_plan::plan::{Outcome, Policy, Settings, Target};
use millpond_plan::symbol::Symbol;

/// What room to spare may cost, in hundredths of what is bought at least cost: about what is bought in further rounds
/// otherwise.
const WORTH_PERCENT: u128 = 125;

/// The plan at least cost, unless it leaves the scheduler a choice that it cannot be trusted with; with the settings that
/// give it again.
pub(super) fn plan(snapshot: &Snapshot, market: &Market, budget: Budget) -> (Outcome, Settings) {
    // The bound is proved later, in the background, when no pod waits for it.
    let settings = Settings { prove: false, budget, ..Settings::default() };
    let least = millpond_plan::plan_on(snapshot, market, &settings);
    if !is_loose(snapshot, &least) {
        return (least, settings);
    }
    let loose = Settings { policy: Policy::Karpenter, ..settings };
    let slack = millpond_plan::plan_on(snapshot, market, &loose);
    if is_worth_it(&least, &slack) { (slack, loose) } else { (least, settings) }
}

fn is_worth_it(least: &Outcome, slack: &Outcome) -> bool {
    let bought = |outcome: &Outcome| outcome.plan.new_nodes.iter().map(|node| u128::from(node.price)).sum::<u128>();
    slack.report.unplaced.len() <= least.report.unplaced.len()
        && slack.plan.new_nodes.len() < least.plan.new_nodes.len()
        && bought(slack) * 100 <= bought(least) * WORTH_PERCENT
}

/// Whether several new nodes of one domain are for pods that take turns.
fn is_loose(snapshot: &Snapshot, outcome: &Outcome) -> bool {
    let mut counts: BTreeMap<(u32, ClassId), u32> = BTreeMap::new();
    for &(pod, target) in &outcome.plan.placements {
        let class = snapshot.pods[pod.index()].class;
        let spreads = snapshot.classes[class.index()].spread.iter().any(|spread| spread.hard);
        if let (Target::New(node), true) = (target, spreads) {
            *counts.entry((node, class)).or_default() += 1;
        }
    }
    let mut nodes: BTreeMap<(Symbol, Symbol), BTreeSet<u32>> = BTreeMap::new();
    for ((node, class), count) in counts {
        let labels = &outcome.plan.new_nodes[node as usize].labels;
        let hard = snapshot.classes[class.index()].spread.iter().filter(|spread| spread.hard);
        for spread in hard.filter(|spread| count > spread.max_skew) {
            if let Some(domain) = labels.get(spread.key) {
                nodes.entry((spread.key, domain)).or_default().insert(node);
            }
        }
    }
    nodes.values().any(|nodes| nodes.len() > 1)
}
