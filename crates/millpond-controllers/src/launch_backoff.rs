//! Pools whose claims fail before the launch: left out of plans for a time that grows with each failure.
//!
//! Stock-outs are known by offering ([`crate::stock_outs`]). Everything else that keeps a claim from being launched (a class that
//! is not ready, credentials that do not allow it, a quota without a name, requirements that no type satisfies) would fail
//! for the next claim of the pool as well. So the pool takes no part in plans until the wait is over, and then one claim
//! finds out for all ([`LaunchBackoff::is_probing`]). A change of the pool or of its class is a new try.

use std::collections::BTreeMap;
use std::time::Duration;

use millpond_plan::model::Snapshot;
use parking_lot::{Mutex, RwLock};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;

/// The wait after the first failure; it doubles with each further one.
const FIRST: Duration = Duration::from_secs(5);
/// The longest backoff (before jitter), so that a repaired fault is noticed.
const LONGEST: Duration = Duration::from_mins(5);
/// A wait differs from that by up to this share in both directions, so that pools that failed together are not tried
/// together.
const JITTER: f64 = 0.1;
/// A pool without failures for this long starts again with the shortest backoff.
const FORGOTTEN_AFTER: Duration = Duration::from_hours(1);

/// How the reason of a closed pool begins.
pub(crate) const CLOSED: &str = "its last launch failed";

#[derive(Debug, Clone)]
struct Entry {
    failures: u32,
    until: Instant,
    why: String,
}

type Listener = Box<dyn Fn(&str) + Send + Sync>;

/// Pools whose claims fail before the launch.
pub(crate) struct LaunchBackoff {
    entries: Mutex<(BTreeMap<String, Entry>, StdRng)>,
    listeners: RwLock<Vec<Listener>>,
}

impl LaunchBackoff {
    /// Without failures; the seed decides the jitter.
    pub(crate) fn new(seed: u64) -> Self {
        Self { entries: Mutex::new((BTreeMap::new(), StdRng::seed_from_u64(seed))), listeners: RwLock::default() }
    }

    /// Calls `listener` with the name of a pool that is closed, or open again before its time.
    pub(crate) fn on_change(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        self.listeners.write().push(Box::new(listener));
    }

    fn notify(&self, pool: &str) {
        self.listeners.read().iter().for_each(|listener| listener(pool));
    }

    /// A claim of a pool could not be launched. Claims that were under way together count once.
    pub(crate) fn failed(&self, pool: &str, why: &str) {
        let now = Instant::now();
        {
            let mut locked = self.entries.lock();
            let (entries, random) = &mut *locked;
            entries.retain(|_, entry| now.saturating_duration_since(entry.until) < FORGOTTEN_AFTER);
            let new = Entry { failures: 0, until: now, why: String::new() };
            let entry = entries.entry(pool.to_owned()).or_insert(new);
            if entry.failures > 0 && entry.until > now {
                return;
            }
            let wait = FIRST.saturating_mul(1 << entry.failures.min(16)).min(LONGEST);
            let wait = wait.mul_f64(random.random_range(1.0 - JITTER..1.0 + JITTER));
            *entry = Entry { failures: entry.failures + 1, until: now + wait, why: why.to_owned() };
            tracing::info!(pool, failures = entry.failures, ?wait, why, "no launches for a while");
        }
        self.notify(pool);
    }

    /// Drops the failures of a pool: a claim of it was launched, or the pool or its class changed.
    pub(crate) fn forget(&self, pool: &str) {
        if self.entries.lock().0.remove(pool).is_some() {
            self.notify(pool);
        }
    }

    /// How long a pool is still left out, and why; `None` if it is not.
    pub(crate) fn closed(&self, pool: &str) -> Option<(Duration, String)> {
        let entries = self.entries.lock();
        let entry = entries.0.get(pool)?;
        let left = entry.until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then(|| (left, entry.why.clone()))
    }

    /// Whether the pool's last launch failed and its backoff is over: a single claim then probes whether launches work
    /// again.
    pub(crate) fn is_probing(&self, pool: &str) -> bool {
        self.entries.lock().0.get(pool).is_some_and(|entry| entry.until <= Instant::now())
    }

    /// When the backoffs of pools end.
    pub(crate) fn reopens(&self) -> Vec<Instant> {
        self.entries.lock().0.values().map(|entry| entry.until).collect()
    }

    /// Closes the pools that are backing off in a snapshot.
    pub(crate) fn mark(&self, snapshot: &mut Snapshot) {
        let now = Instant::now();
        let entries = self.entries.lock();
        for pool in &mut snapshot.pools {
            if let Some(entry) = entries.0.get(&pool.name).filter(|entry| entry.until > now) {
                pool.not_ready.get_or_insert_with(|| format!("{CLOSED}: {}", entry.why));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_grow_around_what_is_documented_and_are_bounded() {
        let backoff = LaunchBackoff::new(1);
        let mut waits = Vec::new();
        for _ in 0..12 {
            backoff.failed("web", "denied");
            backoff.failed("web", "of the same moment");
            let (wait, why) = backoff.closed("web").unwrap();
            assert_eq!(why, "denied");
            waits.push(wait);
            assert!(!backoff.is_probing("web") && backoff.closed("other").is_none());
            tokio::time::advance(wait).await;
            assert!(backoff.closed("web").is_none() && backoff.is_probing("web"));
        }
        for (index, wait) in waits.iter().enumerate() {
            let middle = FIRST.saturating_mul(1 << index).min(LONGEST);
            let share = wait.as_secs_f64() / middle.as_secs_f64();
            assert!((1.0 - JITTER..=1.0 + JITTER).contains(&share), "{wait:?} instead of {middle:?}");
        }
        let in_both_directions = |longer: bool| waits[6..].iter().any(|wait| (*wait > LONGEST) == longer);
        assert!(in_both_directions(true) && in_both_directions(false), "{waits:?}");
        backoff.forget("web");
        backoff.failed("web", "denied");
        assert!(backoff.closed("web").unwrap().0 < FIRST * 2, "it begins anew");
    }
}
