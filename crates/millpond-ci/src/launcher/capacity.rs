//! Labels that a pool has no capacity for: each has its own backoff, which grows with every consecutive failure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

/// The first pause.
const FIRST: Duration = Duration::from_secs(5);
/// The longest.
const LONGEST: Duration = Duration::from_secs(300);

/// Labels without capacity, by the pool's id.
#[derive(Debug, Default)]
pub(super) struct Capacity {
    labels: BTreeMap<(String, String), BackOff>,
}

#[derive(Debug)]
struct BackOff {
    failures: u32,
    until: Instant,
}

impl Capacity {
    /// A launch found none.
    pub(super) fn lacking(&mut self, pool: &str, label: &str, now: Instant) {
        let back_off = self.labels.entry((pool.to_owned(), label.to_owned()));
        let back_off = back_off.or_insert(BackOff { failures: 0, until: now });
        if back_off.until > now {
            // Another launch of the same time.
            return;
        }
        let pause = FIRST.saturating_mul(1 << back_off.failures.min(10)).min(LONGEST);
        back_off.failures += 1;
        back_off.until = now + pause.mul_f64(rand::random_range(0.8..1.2));
    }

    /// A launch succeeded.
    pub(super) fn found(&mut self, pool: &str, label: &str) {
        self.labels.remove(&(pool.to_owned(), label.to_owned()));
    }

    /// Labels that are not tried now.
    pub(super) fn backing_off(&self, now: Instant) -> BTreeSet<(String, String)> {
        self.labels.iter().filter(|(_, it)| it.until > now).map(|(key, _)| key.clone()).collect()
    }

    /// When the next label is tried again.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        self.labels.values().map(|it| it.until).filter(|until| *until > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end_with_success() {
        let (mut capacity, mut now) = (Capacity::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..3 {
            capacity.lacking("p", "a", now);
            capacity.lacking("p", "a", now);
            let until = capacity.next(now).unwrap();
            pauses.push((until - now).as_secs_f64());
            assert_eq!(capacity.backing_off(now).len(), 1);
            now = until + Duration::from_millis(1);
            assert!(capacity.backing_off(now).is_empty());
        }
        assert!(pauses[0] < 6.1 && pauses[2] > 15.9, "{pauses:?}");
        capacity.found("p", "a");
        capacity.lacking("p", "a", now);
        assert!(capacity.next(now).unwrap() - now < Duration::from_secs(7));
    }
}
