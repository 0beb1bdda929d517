//! One edit that helps: candidates are derived from the rules that failed, and each is verified by planning again.
//!
//! Candidates come from the rule that fails in each pool, the pool that came nearest first. The first one with
//! which the pod has a place, and no other pod loses its place, is the suggestion. What is not found this way is not
//! suggested: no advice is better than advice that does not work.

use std::collections::BTreeSet;

use super::edit::{Edit, LimitOf};
use super::funnel::{Inquiry, Step, Subject};
use super::{reason, verdict, words};
use crate::market::Usage;
use crate::model::{CPU, Limits, PODS, PodId, PoolId, ResourceId};
use crate::pack::BitSet;
use crate::plan::{Outcome, Rule, Target};
use crate::requirement::Requirement;
use crate::symbol::Symbol;
use crate::taint;
use crate::topology::Domain;

/// Plans that a suggestion may cost. What is not found among the first candidates is rarely found later, and a
/// plan of a large cluster takes a tenth of a second.
const MAX_TRIALS: usize = 24;
/// How alike two values must be to pass for a slip of the pen, out of one.
const ALIKE: f64 = 0.75;
/// Lowering a request by up to this share (in per cent) is tried before a pool is changed.
const SMALL_CUT_PERCENT: i64 = 25;

/// An edit that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    /// What to change.
    pub edit: Edit,
    /// The change as an imperative sentence, and what comes of it.
    pub message: String,
}

/// Finds an edit that gives a pod a place.
pub(super) fn suggest(
    inquiry: &Inquiry<'_>,
    outcome: &Outcome,
    funnels: &[Vec<Step>],
    pod: PodId,
) -> Option<Suggestion> {
    if inquiry.class().problem.is_some() {
        return None;
    }
    let mut candidates = Vec::new();
    for pool in by_nearness(inquiry, funnels) {
        let (step, before) = failing(inquiry, pool, &funnels[pool.index()])?;
        propose(inquiry, pool, step, before, &mut candidates);
    }
    let mut tried: Vec<Edit> = Vec::new();
    for edit in candidates {
        if tried.contains(&edit) {
            continue;
        }
        if tried.len() == MAX_TRIALS {
            break;
        }
        if let Some(result) = try_out(inquiry, outcome, &edit, pod) {
            let message = format!("{}: {result}", edit.describe(inquiry.snapshot, inquiry.class));
            return Some(Suggestion { edit, message });
        }
        tried.push(edit);
    }
    None
}

/// Pools, the one that came closest first.
fn by_nearness(inquiry: &Inquiry<'_>, funnels: &[Vec<Step>]) -> Vec<PoolId> {
    let mut verdicts: Vec<_> = (0..funnels.len())
        .map(PoolId::from)
        .map(|pool| verdict::of_pool(inquiry, pool, &funnels[pool.index()]))
        .collect();
    let mut order = Vec::with_capacity(verdicts.len());
    while let Some(pool) = verdict::nearest(inquiry, &verdicts, funnels).map(|verdict| verdict.pool) {
        order.push(pool);
        verdicts.retain(|verdict| verdict.pool != pool);
    }
    order
}

fn failing<'f>(inquiry: &'f Inquiry<'_>, pool: PoolId, steps: &'f [Step]) -> Option<(&'f Step, &'f BitSet)> {
    let (last, earlier) = steps.split_last()?;
    Some((last, earlier.last().map_or(inquiry.market.of_pool(pool), |step| &step.left)))
}

/// Plans again with an edit; says where the pod goes if that helps and no other pod loses its place.
fn try_out(inquiry: &Inquiry<'_>, outcome: &Outcome, edit: &Edit, pod: PodId) -> Option<String> {
    let edited = edit.apply(inquiry.snapshot, inquiry.class);
    let again = super::plan(&edited);
    let target = again.plan.target(pod)?;
    let before: BTreeSet<PodId> = outcome.report.unplaced.iter().map(|(pod, _)| *pod).collect();
    if again.report.unplaced.iter().any(|(pod, _)| !before.contains(pod)) {
        return None;
    }
    Some(match target {
        Target::Existing(node) => format!("it then fits on node {}", edited.nodes[node.index()].name),
        Target::New(number) => {
            let node = &again.plan.new_nodes[number as usize];
            let kind = &edited.types[node.instance_type.index()];
            let offering = &kind.offerings[node.offering as usize];
            format!(
                "it then goes to a new {} {} in {} of pool {}",
                offering.capacity_type.name(),
                edited.text(kind.name),
                edited.text(offering.zone),
                words::pool(&edited, node.pool),
            )
        }
    })
}

fn propose(inquiry: &Inquiry<'_>, pool: PoolId, step: &Step, before: &BitSet, edits: &mut Vec<Edit>) {
    match (step.rule, step.subject) {
        (Rule::PoolRequirements, _) => propose_dropping(inquiry, pool, edits),
        (Rule::Taints, _) => propose_toleration(inquiry, pool, edits),
        (Rule::NodeAffinity, Subject::Label(key)) => {
            let wanted = inquiry.class().node_terms.first().and_then(|term| term.get(key));
            wanted.into_iter().for_each(|wanted| propose_label(inquiry, pool, before, key, wanted, edits));
        }
        (Rule::NodeAffinity, _) => {
            for term in &inquiry.class().node_terms {
                let failing = |(key, wanted): &(Symbol, &Requirement)| {
                    !inquiry.market.satisfying(*key, wanted, inquiry.snapshot).intersects(before)
                };
                term.iter().filter(failing).for_each(|(key, wanted)| {
                    propose_label(inquiry, pool, before, key, wanted, edits);
                });
            }
        }
        (Rule::Volumes, Subject::Volume(index)) => {
            for term in &inquiry.class().volume_terms[index as usize] {
                for (key, wanted) in term.iter() {
                    edits.extend(wanted.named().0.iter().map(|&value| Edit::Allow { pool, key, value }));
                }
            }
        }
        (Rule::Resources, Subject::Resource(resource)) => propose_size(inquiry, pool, before, resource, edits),
        (Rule::Unavailable, _) => propose_stock(inquiry, pool, before, edits),
        (Rule::MinValues, Subject::Label(key)) => {
            let requirement = inquiry.snapshot.pools[pool.index()].requirements.get(key);
            let left = requirement.map_or(0, |one| inquiry.values_left(key, one, before).len());
            edits.push(Edit::LowerMinValues { pool, key, to: left as u32 });
        }
        (Rule::PodAffinity, _) => {
            propose_domains(inquiry, pool, inquiry.class().affinity.iter().map(|term| term.key), edits);
            edits.extend((0..inquiry.class().affinity.len() as u32).map(Edit::SoftenAffinity));
        }
        (Rule::PodAntiAffinity, _) => {
            propose_domains(inquiry, pool, inquiry.class().anti_affinity.iter().map(|term| term.key), edits);
            edits.extend((0..inquiry.class().anti_affinity.len() as u32).map(Edit::SoftenAntiAffinity));
        }
        (Rule::TopologySpread, _) => {
            let spread = &inquiry.class().spread;
            let keys = || spread.iter().filter(|one| one.hard).map(|one| one.key);
            propose_domains(inquiry, pool, keys(), edits);
            propose_waiting(inquiry, pool, keys(), edits);
            let hard = spread.iter().enumerate().filter(|(_, one)| one.hard);
            edits.extend(hard.map(|(index, _)| Edit::SoftenSpread(index as u32)));
        }
        (Rule::PoolLimit, what) => {
            let limits = &inquiry.snapshot.pools[pool.index()].limits;
            let usage = &inquiry.usage[pool.index()];
            edits.push(raised(inquiry, before, LimitOf::Pool(pool), what, limits, usage));
        }
        (Rule::ClusterLimit, what) => {
            let usage = &inquiry.usage[inquiry.snapshot.pools.len()];
            edits.push(raised(inquiry, before, LimitOf::Cluster, what, &inquiry.snapshot.limits, usage));
        }
        _ => {}
    }
}

/// The pool's own requirements, one by one: the first that leaves nothing is what is in the way.
fn propose_dropping(inquiry: &Inquiry<'_>, pool: PoolId, edits: &mut Vec<Edit>) {
    let snapshot = inquiry.snapshot;
    let mut keys: Vec<Symbol> = snapshot.pools[pool.index()].requirements.iter().map(|(key, _)| key).collect();
    keys.retain(|key| *key != snapshot.names.pool);
    let first = reason::first_impossible(snapshot, pool);
    keys.sort_by_key(|key| (Some(*key) != first, snapshot.text(*key)));
    edits.extend(keys.into_iter().map(|key| Edit::DropRequirement { pool, key }));
}

fn propose_toleration(inquiry: &Inquiry<'_>, pool: PoolId, edits: &mut Vec<Edit>) {
    let taints = &inquiry.snapshot.pools[pool.index()].taints;
    let forbidding = taint::first_forbidding(taints, &inquiry.class().tolerations, &inquiry.snapshot.symbols);
    edits.extend(forbidding.map(|taint| Edit::Tolerate(*taint)));
}

/// A label that no offer has as it is wanted: a slip of the pen, something that the pool could allow, or too much
/// asked for.
fn propose_label(
    inquiry: &Inquiry<'_>,
    pool: PoolId,
    before: &BitSet,
    key: Symbol,
    wanted: &Requirement,
    edits: &mut Vec<Edit>,
) {
    let snapshot = inquiry.snapshot;
    let (named, complement) = wanted.named();
    if !complement {
        let found: BTreeSet<Symbol> =
            before.iter().filter_map(|offer| inquiry.market.offer(offer).labels.get(key)).collect();
        // Only a value that some type has can be what the user meant.
        let known = |value: &Symbol| {
            let of = &snapshot.pools[pool.index()];
            let mut labels = of.types.iter().filter_map(|of| snapshot.types[of.index()].labels.get(key));
            labels.any(|label| label.named().0.contains(value))
        };
        for &instead_of in named.iter().filter(|value| !known(value)) {
            edits.extend(alike(inquiry, instead_of, &found).map(|value| Edit::AskFor { key, instead_of, value }));
        }
        let own =
            [snapshot.names.hostname, snapshot.names.node_name, snapshot.names.pool, snapshot.names.instance_type];
        if !own[..3].contains(&key) {
            edits.extend(named.iter().map(|&value| Edit::Allow { pool, key, value }));
        }
    }
    edits.push(Edit::DropLabel(key));
}

/// The value most similar to another one, if any is similar.
fn alike(inquiry: &Inquiry<'_>, of: Symbol, among: &BTreeSet<Symbol>) -> Option<Symbol> {
    let text = |value: Symbol| inquiry.snapshot.text(value).to_lowercase();
    let likeness = |value: &Symbol| strsim::normalized_levenshtein(&text(of), &text(*value));
    let alike = among.iter().copied().filter(|value| *value != of && likeness(value) >= ALIKE);
    alike.max_by(|a, b| likeness(a).total_cmp(&likeness(b)).then_with(|| text(*b).cmp(&text(*a))))
}

/// Nothing is large enough: propose a smaller request, or a pool that allows larger types.
fn propose_size(inquiry: &Inquiry<'_>, pool: PoolId, before: &BitSet, resource: ResourceId, edits: &mut Vec<Edit>) {
    let from = inquiry.class().requests.get(resource);
    let largest = before.iter().map(|offer| inquiry.market.offer(offer).free.get(resource)).max().unwrap_or(0);
    let to = rounded(resource, largest);
    let volumes = inquiry.snapshot.resources.name(resource).starts_with("attachable-volumes-");
    let lower = (to > 0 && resource != PODS && !volumes).then_some(Edit::Lower { resource, from, to });
    let small = i128::from(from - to) * 100 <= i128::from(from) * i128::from(SMALL_CUT_PERCENT);
    if small {
        edits.extend(lower.clone());
    }
    propose_dropping(inquiry, pool, edits);
    let asked: BTreeSet<Symbol> =
        inquiry.class().node_terms.iter().flat_map(|term| term.iter().map(|(key, _)| key)).collect();
    let mut asked: Vec<Symbol> = asked.into_iter().collect();
    asked.sort_by_key(|key| inquiry.snapshot.text(*key));
    edits.extend(asked.into_iter().map(Edit::DropLabel));
    edits.extend(lower);
}

/// Down to what people write: ten millicores, whole Mi.
fn rounded(resource: ResourceId, amount: i64) -> i64 {
    let step = match resource {
        CPU => 10,
        resource if resource == crate::model::MEMORY || resource == crate::model::STORAGE => 1 << 20,
        _ => 1,
    };
    if amount < step { amount } else { amount - amount % step }
}

/// The suitable offerings are out of stock: propose other capacity types and zones that the pool could allow, or
/// waiting.
fn propose_stock(inquiry: &Inquiry<'_>, pool: PoolId, before: &BitSet, edits: &mut Vec<Edit>) {
    let snapshot = inquiry.snapshot;
    for key in [snapshot.names.capacity_type, snapshot.names.zone] {
        let Some(allowed) = snapshot.pools[pool.index()].requirements.get(key) else { continue };
        let types = inquiry.types(before);
        let offerings = types.iter().flat_map(|of| &snapshot.types[of.index()].offerings).filter(|one| one.available);
        let values: BTreeSet<Symbol> = offerings
            .filter_map(|one| {
                let zone = (key == snapshot.names.zone).then_some(one.zone);
                zone.or_else(|| snapshot.symbols.find(one.capacity_type.name()))
            })
            .collect();
        let mut more: Vec<Symbol> =
            values.into_iter().filter(|value| !allowed.contains(*value, &snapshot.symbols)).collect();
        more.sort_by_key(|value| snapshot.text(*value));
        edits.extend(more.into_iter().map(|value| Edit::Allow { pool, key, value }));
    }
    propose_wait(inquiry, before, edits);
}

/// Domains that the rules between pods allow and the pool does not.
fn propose_domains(inquiry: &Inquiry<'_>, pool: PoolId, keys: impl Iterator<Item = Symbol>, edits: &mut Vec<Edit>) {
    let snapshot = inquiry.snapshot;
    for key in keys.filter(|key| *key != snapshot.names.hostname) {
        let of = &snapshot.pools[pool.index()];
        let Some(allowed) = of.requirements.get(key) else { continue };
        let labels = of.types.iter().filter_map(|of| snapshot.types[of.index()].labels.get(key));
        let values: BTreeSet<Symbol> = labels.flat_map(|label| label.named().0.iter().copied()).collect();
        let helps = |value: &Symbol| {
            !allowed.contains(*value, &snapshot.symbols)
                && inquiry.topology.check_domain(inquiry.class, key, Domain::value(*value)).is_ok()
        };
        let mut values: Vec<Symbol> = values.into_iter().filter(helps).collect();
        values.sort_by_key(|value| snapshot.text(*value));
        edits.extend(values.into_iter().map(|value| Edit::Allow { pool, key, value }));
    }
}

/// Domains that the rules between pods allow and that are out of stock.
fn propose_waiting(inquiry: &Inquiry<'_>, pool: PoolId, keys: impl Iterator<Item = Symbol>, edits: &mut Vec<Edit>) {
    for key in keys.filter(|key| *key != inquiry.snapshot.names.hostname) {
        propose_wait(inquiry, &reason::sold_out(inquiry, pool, key), edits);
    }
}

/// Patience until the cheapest of some offers is in stock again.
fn propose_wait(inquiry: &Inquiry<'_>, offers: &BitSet, edits: &mut Vec<Edit>) {
    let rank = |offer: &usize| (inquiry.market.offer(*offer).price, reason::offer_name(inquiry, *offer));
    let cheapest = offers.iter().min_by_key(rank).map(|offer| inquiry.market.offer(offer));
    edits.extend(cheapest.map(|offer| Edit::Wait { instance_type: offer.instance_type, offering: offer.offering }));
}

/// A limit that leaves room for the smallest node that would do.
fn raised(inquiry: &Inquiry<'_>, before: &BitSet, of: LimitOf, what: Subject, limits: &Limits, usage: &Usage) -> Edit {
    let to = match what {
        Subject::Resource(resource) => {
            let smallest = before.iter().map(|offer| inquiry.capacity(offer, resource)).min().unwrap_or(0);
            usage.capacity.get(resource).saturating_add(smallest).max(0).unsigned_abs()
        }
        Subject::Nodes => usage.nodes.max(limits.nodes.unwrap_or(0)) + 1,
        _ => {
            let cheapest = before.iter().map(|offer| inquiry.market.offer(offer).price).min().unwrap_or(0);
            u64::try_from(usage.price + u128::from(cheapest)).unwrap_or(u64::MAX)
        }
    };
    Edit::RaiseLimit { of, what, to }
}
