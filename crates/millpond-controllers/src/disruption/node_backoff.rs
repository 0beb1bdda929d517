//! Backoff of nodes whose command failed: they are skipped for a time that grows with each failure.
//!
//! Kept in memory only: a new process may retry at once.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

/// The longest backoff, so that a repaired fault is noticed.
const LONGEST: Duration = Duration::from_mins(30);

/// When a command failed, how long its nodes are left alone at first.
#[derive(Debug, Clone, Copy)]
pub(super) enum After {
    /// The cluster changed, or an offering was out of stock: the next plan takes that into account.
    Change,
    /// Machines are launched but do not become ready.
    Timeout,
}

impl After {
    fn first(self) -> Duration {
        match self {
            Self::Change => Duration::from_secs(10),
            Self::Timeout => Duration::from_mins(1),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct NodeBackoff {
    failures: u32,
    until: Instant,
}

/// Backoffs by node name.
#[derive(Debug, Default)]
pub(super) struct NodeBackoffs(HashMap<String, NodeBackoff>);

impl NodeBackoffs {
    /// Records that a command of the node failed.
    pub(super) fn add(&mut self, node: &str, after: After) {
        let failures = self.0.get(node).map_or(0, |hold| hold.failures);
        let wait = after.first().saturating_mul(1 << failures.min(16)).min(LONGEST);
        self.0.insert(node.to_owned(), NodeBackoff { failures: failures + 1, until: Instant::now() + wait });
    }

    /// Nodes that are backing off now.
    pub(super) fn names(&mut self) -> BTreeSet<String> {
        let now = Instant::now();
        self.0.retain(|_, hold| hold.until + LONGEST > now);
        self.0.iter().filter(|(_, hold)| hold.until > now).map(|(name, _)| name.clone()).collect()
    }

    /// When the next backoff ends.
    pub(super) fn next(&self) -> Option<Instant> {
        let now = Instant::now();
        self.0.values().map(|hold| hold.until).filter(|until| *until > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn backoffs_grow_and_are_forgotten() {
        let mut backoffs = NodeBackoffs::default();
        let start = Instant::now();
        backoffs.add("a", After::Change);
        backoffs.add("b", After::Timeout);
        assert_eq!(backoffs.names().into_iter().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(backoffs.next(), Some(start + Duration::from_secs(10)));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(backoffs.names().into_iter().collect::<Vec<_>>(), ["b"]);
        backoffs.add("a", After::Change);
        assert_eq!(backoffs.next(), Some(start + Duration::from_secs(30)));
        tokio::time::advance(Duration::from_hours(1)).await;
        assert!(backoffs.names().is_empty() && backoffs.next().is_none() && backoffs.0.is_empty());
    }
}
