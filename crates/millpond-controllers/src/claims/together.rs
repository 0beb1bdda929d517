//! Nodes that come at the same time begin to take pods at the same time.
//!
//! Whenever a node begins to take pods, kube-scheduler tries every pod that waits, and those whose own node is not there
//! yet fail: their nomination is gone, and they are left alone for a while that doubles each time. Nodes that are let in
//! one by one would make the last pods wait for ten seconds and more.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

/// Nobody waits for others longer than this.
const LONGEST: Duration = Duration::from_secs(3);

#[derive(Default)]
struct Group {
    next: u64,
    /// Those who are not ready yet.
    busy: BTreeSet<u64>,
}

/// Lets those through together who came at the same time.
#[derive(Default)]
pub(super) struct Together {
    group: Mutex<Group>,
    ready: watch::Sender<()>,
}

/// Somebody who is not ready yet.
pub(super) struct Busy<'t> {
    all: &'t Together,
    number: u64,
}

impl Together {
    /// Somebody came.
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
    /// Is ready, and waits for those who came until now.
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
    async fn the_first_waits_for_those_who_came_meanwhile_but_not_for_later_ones() {
        let together = Together::default();
        let (first, second) = (together.enter(), together.enter());
        let mut first = Box::pin(first.wait_for_others());
        assert!(first.as_mut().now_or_never().is_none());
        let late = together.enter();
        second.wait_for_others().now_or_never();
        assert!(first.as_mut().now_or_never().is_some());
        drop(late);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever() {
        let together = Together::default();
        let (first, _second) = (together.enter(), together.enter());
        let begun = tokio::time::Instant::now();
        first.wait_for_others().await;
        assert_eq!(begun.elapsed(), LONGEST);
    }
}
