//! Plans by the published rules of others, so that one scenario can be judged side by side.
//!
//! | Policy | Buys | Chooses by |
//! |---|---|---|
//! | [`karpenter`] | claims that keep every type that still fits | first pool by weight; the cheapest type at the end |
//! | [`cluster_autoscaler`] | nodes of one group at a time | least waste of what the option adds |
//! | [`scaling_advisor`] | one node at a time | value of the pods that it takes, per dollar |
//!
//! All of them fill existing nodes first, respect kube-scheduler's rules ([`ClusterState::check`]) and limits, and give
//! the same plan for the same snapshot: where the original breaks a tie by chance, the order used is documented beside
//! the rule. None computes a lower bound, so their reports have none.
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

/// Plans by the rules of [`Settings::policy`]; `None` for Millpond's own policy, which is not implemented here.
pub fn plan(snapshot: &Snapshot, settings: &Settings) -> Option<Outcome> {
    match settings.policy {
        Policy::Millpond => None,
        Policy::Karpenter => Some(karpenter::plan(snapshot, settings)),
        Policy::ClusterAutoscaler => Some(cluster_autoscaler::plan(snapshot, settings)),
        Policy::ScalingAdvisor => Some(scaling_advisor::plan(snapshot, settings)),
    }
}
