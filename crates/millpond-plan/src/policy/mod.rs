//! Plans by the published rules of others, so that one scenario can be judged side by side.
//!
//! | Policy | Buys | Chooses by |
//! |---|---|---|
//! | [`karpenter`] | claims that keep every type that still fits | first pool by weight; the cheapest type at the end |
//! | [`cluster_autoscaler`] | nodes of one group at a time | least waste of what the option adds |
//! | [`scaling_advisor`] | one node at a time | value of the pods that it takes, per dollar |
//!
//! All of them fill nodes that are there first, keep to kube-scheduler's rules ([`ClusterState::check`]) and to limits,
//! and give the same plan for the same snapshot: where an original leaves a tie to chance, the order is written
//! down beside the rule. None of them looks at what it costs at least: their reports carry no bound.
//!
//! [`ClusterState::check`]: crate::cluster_state::ClusterState::check

pub mod cluster_autoscaler;
pub mod karpenter;
mod plan_builder;
pub mod scaling_advisor;
#[cfg(test)]
mod tests;

use crate::model::Snapshot;
use crate::plan::{Outcome, Policy, Settings};

/// Plans by the rules of [`Settings::policy`]; none for Millpond's own, which are not here.
pub fn plan(snapshot: &Snapshot, settings: &Settings) -> Option<Outcome> {
    match settings.policy {
        Policy::Millpond => None,
        Policy::Karpenter => Some(karpenter::plan(snapshot, settings)),
        Policy::ClusterAutoscaler => Some(cluster_autoscaler::plan(snapshot, settings)),
        Policy::ScalingAdvisor => Some(scaling_advisor::plan(snapshot, settings)),
    }
}
