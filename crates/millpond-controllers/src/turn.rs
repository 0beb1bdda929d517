//! The turn: controllers that create or delete claims, or change the size of a node group, by a decision of their own act
//! one after the other.
//!
//! A [`Turn`] is an argument of everything that carries out a decision ([`crate::limits::create`], [`Turn::delete`],
//! `Machines::resize`), so that code which does not hold it does not compile. `cargo xtask tidy` finds code that writes
//! claims past this module. What protects a decision from everything else is in ADR 17.

use std::sync::Arc;

use millpond_runtime::error::Result;
use tokio::sync::{Mutex, MutexGuard};

use crate::cluster::Cluster;
use crate::decisions;
use crate::kinds::NodeClaim;

/// Hands out the turn.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<()>);

impl Turns {
    /// Waits for the turn. It is to be held from the first look at what is decided on until the last write was answered.
    pub(crate) async fn take(&self) -> Turn<'_> {
        Turn { _held: self.0.lock().await }
    }
}

/// The right to carry out a decision, until it is dropped.
#[derive(Debug)]
#[must_use = "the turn ends when it is dropped"]
pub(crate) struct Turn<'t> {
    _held: MutexGuard<'t, ()>,
}

impl Turn<'_> {
    /// Writes a claim. Limits are counted before: see [`crate::limits::create`].
    pub(crate) async fn create(&self, cluster: &Cluster, claim: &NodeClaim) -> Result<Arc<NodeClaim>> {
        cluster.claims.create(claim).await
    }

    /// Deletes a claim that was decided against during this turn.
    pub(crate) async fn delete(&self, cluster: &Cluster, claim: &NodeClaim) -> Result<()> {
        cluster.claims.delete(claim, None).await
    }
}

/// What makes a claim go whatever is decided meanwhile: no turn is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fact {
    /// The claim could not be launched, or its machine did not become a node in time.
    Failed,
    /// The Node of the claim was deleted.
    NodeDeleted,
    /// The provider announced that it takes the machine back.
    Interrupted,
    /// The provider has no such machine any more.
    MachineGone,
}

/// Deletes a claim because of something that has happened.
pub(crate) async fn delete_after(fact: Fact, cluster: &Cluster, claim: &NodeClaim) -> Result<()> {
    tracing::debug!(claim = claim.name(), ?fact, "claim deleted");
    decisions::deleted_after(cluster, fact, claim);
    cluster.claims.delete(claim, None).await
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn one_decision_waits_for_the_other() {
        let turns = Turns::default();
        let first = turns.take().await;
        assert!(turns.take().now_or_never().is_none(), "two decisions at once");
        drop(first);
        assert!(turns.take().now_or_never().is_some());
    }
}
