//! Why pods of a class have no place, in one sentence for each pool and one for all of them.

use super::funnel::{Inquiry, Step, Subject};
use super::{reason, words};
use crate::cluster_state::ClusterState;
use crate::market::{Market, Usage};
use crate::model::{ClassId, PoolId, Snapshot};
use crate::plan::{PoolVerdict, Rule, Verdict};

/// Why one more pod of the class has no place. `cluster` holds what is planned so far; `usage` is
/// [`Usage::by_pool`] with the planned nodes added, the sum over all pools last.
pub fn verdict(
    snapshot: &Snapshot,
    market: &Market,
    cluster: &mut ClusterState<'_>,
    usage: &[Usage],
    class: ClassId,
) -> Verdict {
    let inquiry = Inquiry::new(snapshot, market, cluster, usage, class);
    let funnels: Vec<Vec<Step>> = (0..snapshot.pools.len()).map(|pool| inquiry.funnel(PoolId::from(pool))).collect();
    of_funnels(&inquiry, &funnels)
}

/// The verdict that the funnels of all pools come to.
pub(super) fn of_funnels(inquiry: &Inquiry<'_>, funnels: &[Vec<Step>]) -> Verdict {
    let snapshot = inquiry.snapshot;
    let pools: Vec<PoolVerdict> =
        funnels.iter().enumerate().map(|(pool, steps)| of_pool(inquiry, PoolId::from(pool), steps)).collect();
    if let Some(problem) = &inquiry.class().problem {
        return Verdict { rule: Rule::Pod, message: reason::problem(problem), pools };
    }
    let Some(nearest) = nearest(inquiry, &pools, funnels) else {
        return Verdict { rule: Rule::PoolNotReady, message: "there is no pool to buy nodes from".to_owned(), pools };
    };
    let message = format!("pool {}: {}", words::pool(snapshot, nearest.pool), nearest.message);
    Verdict { rule: nearest.rule, message, pools: pools.clone() }
}

/// The pool that came nearest: one whose labels are what the pod asks for, whose rule is the last to fail, with most
/// left before it; then by weight and name. A pool without any of a resource never was near. One that is not ready comes
/// after those that fail by what they are, unless it would take the pod if it were ready.
pub(super) fn nearest<'p>(
    inquiry: &Inquiry<'_>,
    pools: &'p [PoolVerdict],
    funnels: &[Vec<Step>],
) -> Option<&'p PoolVerdict> {
    let snapshot = inquiry.snapshot;
    let rule = |verdict: &PoolVerdict| match funnels[verdict.pool.index()].last() {
        Some(step) if is_of_another_kind(inquiry, verdict.pool, step) => None,
        _ if verdict.rule == Rule::PoolNotReady && inquiry.would_take(verdict.pool) => Some(Rule::Unavailable),
        _ => Some(verdict.rule),
    };
    let before = |pool: PoolId| {
        let steps = &funnels[pool.index()];
        steps.len().checked_sub(2).map_or(0, |index| steps[index].left.len())
    };
    pools.iter().max_by(|a, b| {
        let (of_a, of_b) = (&snapshot.pools[a.pool.index()], &snapshot.pools[b.pool.index()]);
        let by_labels = inquiry.label_distance(b.pool).cmp(&inquiry.label_distance(a.pool));
        let by_rule = by_labels.then_with(|| rule(a).cmp(&rule(b))).then_with(|| before(a.pool).cmp(&before(b.pool)));
        by_rule.then_with(|| of_a.weight.cmp(&of_b.weight)).then_with(|| of_b.name.cmp(&of_a.name))
    })
}

fn is_of_another_kind(inquiry: &Inquiry<'_>, pool: PoolId, step: &Step) -> bool {
    match (step.rule, step.subject) {
        (Rule::NodeAffinity, Subject::Label(key)) => step.left.is_empty() && key == inquiry.snapshot.names.pool,
        (Rule::Resources, Subject::Resource(resource)) => {
            let mut offers = inquiry.market.of_pool(pool).iter().map(|offer| inquiry.market.offer(offer));
            step.left.is_empty() && !offers.any(|offer| offer.free.get(resource) > 0)
        }
        _ => false,
    }
}

pub(super) fn of_pool(inquiry: &Inquiry<'_>, pool: PoolId, steps: &[Step]) -> PoolVerdict {
    let all = inquiry.market.of_pool(pool);
    let Some((last, earlier)) = steps.split_last() else {
        return PoolVerdict { pool, rule: Rule::PoolRequirements, message: "has nothing to buy".to_owned() };
    };
    let before = earlier.last().map_or(all, |step| &step.left);
    if last.left.is_empty() {
        return PoolVerdict { pool, rule: last.rule, message: reason::sentence(inquiry, pool, before, last) };
    }
    // Every rule leaves an offer, but the plan did not use it. The last rule is named, as the one that
    // other pods' plans can still change.
    let cheapest = last.left.iter().min_by_key(|&offer| (inquiry.market.offer(offer).price, offer));
    let name = cheapest.map(|offer| reason::offer_name(inquiry, offer)).unwrap_or_default();
    let message = format!("{name} would do for one more pod; it was not planned in this round");
    PoolVerdict { pool, rule: last.rule, message }
}
