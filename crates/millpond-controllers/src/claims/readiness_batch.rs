//! Nodes that register at the same time become ready for pods at the same time.
//!
//! Whenever a node becomes schedulable, kube-scheduler retries every pending pod. Pods whose planned node is not
//! schedulable yet fail, lose their nomination and back off, twice as long each time. If nodes became schedulable one
//! by one, the last pods would wait for ten seconds and more.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

/// The longest time that a node waits for others.
const LONGEST: Duration = Duration::from_secs(3);

#[derive(Default)]
struct Group {
    next: u64,
    /// Members that are not ready yet.
    busy: BTreeSet<u64>,
}

/// Releases the members that joined at the same time together.
#[derive(Default)]
pub(super) struct ReadinessBatch {
    group: Mutex<Group>,
    ready: watch::Sender<()>,
}

/// A member that is not ready yet.
pub(super) struct Busy<'t> {
    all: &'t ReadinessBatch,
    number: u64,
}

impl ReadinessBatch {
    /// Joins the batch.
    pub(super) fn enter(&self) -> Busy<'_> {
        let mut group = self.group.lock();
        let number = group.next;
        group.next += 1;
        group.busy.insert(number);
        Busy { all: self, number }
    }

    fn is_busy(&self, before: u64) -> bool {
        self.group.lock().busy.first().is_some_and(|first| *first < before)
    }
}

impl Busy<'_> {
    /// Marks this member ready, and waits for those that joined before now.
    pub(super) async fn wait_for_others(self) {
        let (all, until) = (self.all, self.all.group.lock().next);
        let mut ready = all.ready.subscribe();
        drop(self);
        let others = async {
            while all.is_busy(until) {
                // An error would mean that the sender is gone, but it lives as long as `all`.
                let _ = ready.changed().await;
            }
        };
        let _ = tokio::time::timeout(LONGEST, others).await;
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.all.group.lock().busy.remove(&self.number);
        self.all.ready.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_waits_for_members_that_joined_meanwhile_but_not_for_later_ones() {
        let readiness_batch = ReadinessBatch::default();
        let (first, second) = (readiness_batch.enter(), readiness_batch.enter());
        let mut first = Box::pin(first.wait_for_others());
        assert!(first.as_mut().now_or_never().is_none());
        let late = readiness_batch.enter();
        second.wait_for_others().now_or_never();
        assert!(first.as_mut().now_or_never().is_some());
        drop(late);
    }

    #[tokio::test(start_paused = true)]
    async fn no_member_waits_for_ever() {
        let readiness_batch = ReadinessBatch::default();
        let (first, _second) = (readiness_batch.enter(), readiness_batch.enter());
        let begun = tokio::time::Instant::now();
        first.wait_for_others().await;
        assert_eq!(begun.elapsed(), LONGEST);
    }
}
