//! Probes: one claim is launched before others like it.
//!
//! Ten pods that may not share a node need ten nodes of one offering. If that is out of stock, ten claims would be
//! written, fail and be deleted; the same holds for everything else that prevents launches. So where an offering was
//! not launched lately, or the last claim of a pool failed, the first claim is written and launched before the others.
//! The others wait no longer than [`LONGEST_PROBE`]: a slow cloud does not hold up many pods for one answer.
//!
//! Nodes for pods with a topology spread are launched together all the same, unless the pool has just failed.
//! kube-scheduler places such pods by itself: a node that becomes ready before the others takes pods that were planned
//! for those, which would then stay empty.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use millpond_api::labels;
use millpond_providers::OfferingKey;
use millpond_runtime::error::Result;
use tokio::sync::broadcast::error::RecvError;

use crate::cluster::pool_name;
use crate::context::Context;
use crate::kinds::NodeClaim;
use crate::limits;
use crate::nominations::nominated_pods;
use crate::turn::Turn;

use super::spread_order::spreads;

/// The answer to the first launch is waited for this long.
const LONGEST_PROBE: Duration = Duration::from_secs(1);

/// What equal claims have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// The pool, and the instance types, zones and capacity types to choose from.
    Offerings(String, [BTreeSet<String>; 3]),
    /// The pool, if its last claim failed.
    Pool(String),
}

/// Writes claims as [`limits::create`] does, the first of each kind before the others. Those are not written if the first
/// one cannot be launched.
pub(super) async fn create(
    context: &Context,
    turn: &Turn<'_>,
    claims: Vec<Option<NodeClaim>>,
    reason: &str,
) -> Result<Vec<Option<String>>> {
    let followers = followers(context, &claims);
    if followers.is_empty() {
        return limits::create(context, turn, claims, reason).await;
    }
    let mut outcomes = context.launched.subscribe();
    let of = |claims: &[Option<NodeClaim>], take: &dyn Fn(usize) -> bool| -> Vec<Option<NodeClaim>> {
        let all = claims.iter().enumerate();
        all.map(|(index, claim)| claim.clone().filter(|_| take(index))).collect()
    };
    let mut created =
        limits::create(context, turn, of(&claims, &|index| !followers.contains_key(&index)), reason).await?;
    // A first one that was not written finds nothing out: the others are planned again with it.
    let mut open: BTreeMap<String, usize> = BTreeMap::new();
    for &first in followers.values() {
        open.extend(created[first].clone().map(|name| (name, first)));
    }
    let mut good: BTreeSet<usize> = BTreeSet::new();
    let answers = async {
        while !open.is_empty() {
            match outcomes.recv().await {
                Ok((name, others_too)) => {
                    if let Some(first) = open.remove(&name).filter(|_| others_too) {
                        good.insert(first);
                    }
                }
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    };
    if tokio::time::timeout(LONGEST_PROBE, answers).await.is_err() {
        tracing::debug!(claims = open.len(), "the first launches take long, others are not held up");
        good.extend(open.values());
    }
    let rest = of(&claims, &|index| followers.get(&index).is_some_and(|first| good.contains(first)));
    for (written, name) in created.iter_mut().zip(limits::create(context, turn, rest, reason).await?) {
        *written = written.take().or(name);
    }
    Ok(created)
}

/// Claims that wait for another, and for which one.
fn followers(context: &Context, claims: &[Option<NodeClaim>]) -> BTreeMap<usize, usize> {
    let mut first_of: BTreeMap<Kind, usize> = BTreeMap::new();
    let mut followers = BTreeMap::new();
    for (index, claim) in claims.iter().enumerate() {
        let Some(kind) = claim.as_ref().and_then(|claim| unproven(context, claim)) else { continue };
        let first = *first_of.entry(kind).or_insert(index);
        if first != index {
            followers.insert(index, first);
        }
    }
    followers
}

/// What has not been proved to work for a claim; `None` if nothing is known against it.
fn unproven(context: &Context, claim: &NodeClaim) -> Option<Kind> {
    let pool = pool_name(claim)?;
    if context.launch_backoff.is_probing(pool) {
        return Some(Kind::Pool(pool.to_owned()));
    }
    if has_spread_pods(context, claim) {
        return None;
    }
    let [types, zones, capacity_types] = [labels::INSTANCE_TYPE, labels::ZONE, labels::CAPACITY_TYPE].map(|key| {
        let of_key = claim.spec.requirements.iter().find(|requirement| requirement.key == key);
        of_key.map_or(&[][..], |requirement| requirement.values.as_slice())
    });
    // The planned offering is the first of each list.
    let planned = OfferingKey::new(types.first()?.as_str(), zones.first()?.as_str(), capacity_types.first()?.as_str());
    let choice = || [types, zones, capacity_types].map(|values| values.iter().cloned().collect());
    (!context.stock_outs.is_proven(&planned)).then(|| Kind::Offerings(pool.to_owned(), choice()))
}

/// Whether a claim was made for pods that kube-scheduler deals out by a hard spread.
fn has_spread_pods(context: &Context, claim: &NodeClaim) -> bool {
    nominated_pods(claim).filter_map(|pod| context.cluster.pods.get(&pod)).any(|pod| spreads(&pod))
}
