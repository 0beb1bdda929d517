//! Stock-outs: offerings that a provider could not supply, and when to try them again.
//!
//! One failure speaks of one offering (type × zone × capacity type), not of a pool. It is left out of plans and
//! launches for a while, which grows with every failure in a row; then one launch may probe it, and the others wait for
//! what becomes of that.
//!
//! What is known is repeated in the status of the classes ([`crate::classes`]), where people see it and a controller
//! that starts reads it back.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use millpond_api::node_class::UnavailableOffering;
use millpond_api::time::Time;
use millpond_plan::model::Snapshot;
use millpond_providers::OfferingKey;
use millpond_runtime::clock::Clock;
use parking_lot::{Mutex, RwLock};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;

/// How long an offering is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub initial: Duration,
    /// At most.
    pub longest: Duration,
}

/// Karpenter's three minutes, which the seed names; half an hour is what Karpenter's provider for GCP takes at once.
impl Default for Backoff {
    fn default() -> Self {
        Self { initial: Duration::from_mins(3), longest: Duration::from_mins(30) }
    }
}

/// A wait differs from what is configured by up to this share in both directions, so that offerings that failed together
/// are not all probed together.
const JITTER: f64 = 0.1;
/// An offering that was to be had this lately is bought for several nodes at once; of others one node comes first.
const PROVEN_FOR: Duration = Duration::from_mins(10);
/// An offering that was not tried for this long after its backoff ended starts over: the old failure says nothing about
/// now.
const FORGOTTEN_AFTER: Duration = Duration::from_hours(1);
/// A probe without a result for this long is ignored: the process that made it is gone.
const LONGEST_PROBE: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, Copy)]
struct Entry {
    failures: u32,
    until: Instant,
    /// The same as objects hold it.
    until_time: Time,
    /// How long the last wait was.
    wait: Duration,
    /// Since when a launch finds out whether it is to be had again.
    probing: Option<Instant>,
}

/// An offering that is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StockOut {
    /// Which.
    pub offering: OfferingKey,
    /// Failures in a row.
    pub failures: u32,
    /// For how long yet; zero where one launch may probe it.
    pub wait: Duration,
    /// When the wait is over, in whole seconds.
    pub until: Time,
}

impl StockOut {
    /// As the status of a class has it.
    pub fn to_status(&self) -> UnavailableOffering {
        let OfferingKey { instance_type, zone, capacity_type } = self.offering.clone();
        let failures = self.failures.into();
        UnavailableOffering { instance_type, zone, capacity_type, until: self.until, failures, message: String::new() }
    }
}

type Listener = Box<dyn Fn() + Send + Sync>;

/// What is known of the stock of offerings.
pub struct StockOuts {
    entries: Mutex<(BTreeMap<OfferingKey, Entry>, StdRng)>,
    /// When an offering was last had.
    had: Mutex<BTreeMap<OfferingKey, Instant>>,
    clock: Clock,
    listeners: RwLock<Vec<Listener>>,
}

impl StockOuts {
    /// Nothing is known to be missing; the seed decides the jitter.
    pub fn new(seed: u64, clock: Clock) -> Self {
        let entries = Mutex::new((BTreeMap::new(), StdRng::seed_from_u64(seed)));
        Self { entries, had: Mutex::default(), clock, listeners: RwLock::default() }
    }

    /// Calls `listener` whenever something else is missing, or for another time.
    pub fn on_change(&self, listener: impl Fn() + Send + Sync + 'static) {
        self.listeners.write().push(Box::new(listener));
    }

    fn notify(&self) {
        self.listeners.read().iter().for_each(|listener| listener());
    }

    /// Takes over what was known before a restart, as far as nothing newer is known.
    pub fn restore(&self, known: &[UnavailableOffering]) {
        let (now, time) = (Instant::now(), self.clock.now());
        let mut entries = self.entries.lock();
        for known in known {
            let Ok(until) = Timestamp::from_second(known.until.0) else { continue };
            let left = until.duration_since(time);
            if Duration::try_from(-left).is_ok_and(|ago| ago > FORGOTTEN_AFTER) {
                continue;
            }
            let offering = OfferingKey::new(&*known.instance_type, &*known.zone, &*known.capacity_type);
            entries.0.entry(offering).or_insert(Entry {
                failures: u32::try_from(known.failures.max(1)).unwrap_or(u32::MAX),
                until: now + Duration::try_from(left).unwrap_or_default(),
                until_time: known.until,
                wait: Duration::try_from(left).unwrap_or_default(),
                probing: None,
            });
        }
    }

    /// Offerings were not to be had.
    pub fn failed<'k>(&self, offerings: impl IntoIterator<Item = &'k OfferingKey>, backoff: Backoff) {
        self.failed_at(self.clock.now(), offerings, backoff);
    }

    /// Offerings were not to be had at a time that may be past.
    pub fn failed_at<'k>(
        &self,
        time: Timestamp,
        offerings: impl IntoIterator<Item = &'k OfferingKey>,
        backoff: Backoff,
    ) {
        let ago = Duration::try_from(self.clock.now().duration_since(time)).unwrap_or_default();
        let now = Instant::now();
        let now = now.checked_sub(ago).unwrap_or(now);
        let mut changed = false;
        let mut locked = self.entries.lock();
        let (entries, random) = &mut *locked;
        entries.retain(|_, entry| now.saturating_duration_since(entry.until) < FORGOTTEN_AFTER);
        for offering in offerings {
            self.had.lock().remove(offering);
            let (wait, until_time) = (Duration::ZERO, Time(time.as_second()));
            let new = Entry { failures: 0, until: now, until_time, wait, probing: None };
            let entry = entries.entry(offering.clone()).or_insert(new);
            // Launches that were under way together tell one thing.
            if entry.failures > 0 && entry.until > now && entry.probing.is_none() {
                continue;
            }
            let wait = backoff.initial.saturating_mul(1 << entry.failures.min(16)).min(backoff.longest);
            let wait = wait.mul_f64(random.random_range(1.0 - JITTER..1.0 + JITTER));
            let until_time = Time((time + wait).as_second() + 1);
            *entry = Entry { failures: entry.failures + 1, until: now + wait, until_time, wait, probing: None };
            changed = true;
        }
        drop(locked);
        if changed {
            self.notify();
        }
    }

    /// An offering was to be had.
    pub fn succeeded(&self, offering: &OfferingKey) {
        let now = Instant::now();
        let mut had = self.had.lock();
        had.retain(|_, at| now - *at < PROVEN_FOR);
        had.insert(offering.clone(), now);
        drop(had);
        let known = self.entries.lock().0.remove(offering).is_some();
        if known {
            self.notify();
        }
    }

    /// Whether a plan may choose it: no stock-out is known, or its backoff is over and no launch probes it yet.
    pub fn is_open(&self, offering: &OfferingKey) -> bool {
        let now = Instant::now();
        self.entries.lock().0.get(offering).is_none_or(|entry| entry.is_open(now))
    }

    /// Whether an offering was had lately.
    pub(crate) fn is_proven(&self, offering: &OfferingKey) -> bool {
        self.had.lock().get(offering).is_some_and(|at| at.elapsed() < PROVEN_FOR)
    }

    /// Takes an offering for a launch. Of one that failed before and may be probed, only the first who asks gets it.
    pub fn acquire(&self, offering: &OfferingKey) -> bool {
        let now = Instant::now();
        let mut entries = self.entries.lock();
        let Some(entry) = entries.0.get_mut(offering) else { return true };
        if !entry.is_open(now) {
            return false;
        }
        entry.probing = Some(now);
        true
    }

    /// A launch ended without telling anything about an offering that it had taken.
    pub fn release(&self, offering: &OfferingKey) {
        if let Some(entry) = self.entries.lock().0.get_mut(offering) {
            entry.probing = None;
        }
    }

    /// All that is left out, by offering.
    pub fn list(&self) -> Vec<StockOut> {
        let now = Instant::now();
        let entries = self.entries.lock();
        let missing = entries.0.iter().map(|(offering, entry)| StockOut {
            offering: offering.clone(),
            failures: entry.failures,
            wait: entry.until.saturating_duration_since(now),
            until: entry.until_time,
        });
        missing.collect()
    }

    /// When each may be probed, or might have been, and how long its wait was.
    pub(crate) fn reopens(&self) -> Vec<(Instant, Duration)> {
        self.entries.lock().0.values().map(|entry| (entry.until, entry.wait)).collect()
    }

    /// How long until the next one may be probed.
    pub fn next_probe(&self) -> Option<Duration> {
        let now = Instant::now();
        let entries = self.entries.lock();
        let waits = entries.0.values().map(|entry| entry.until.saturating_duration_since(now));
        waits.filter(|wait| !wait.is_zero()).min()
    }

    /// Marks in a snapshot what is not to be had.
    pub fn mark_unavailable(&self, snapshot: &mut Snapshot) {
        let closed: Vec<OfferingKey> = {
            let now = Instant::now();
            let entries = self.entries.lock();
            entries.0.iter().filter(|(_, entry)| !entry.is_open(now)).map(|(offering, _)| offering.clone()).collect()
        };
        if closed.is_empty() {
            return;
        }
        let symbols = &snapshot.symbols;
        for of in &mut snapshot.types {
            let name = symbols.text(of.name);
            let from = closed.partition_point(|offering| offering.instance_type.as_str() < name);
            let alike = closed[from..].iter().take_while(|offering| offering.instance_type == name);
            for closed in alike {
                let same = |offering: &&mut millpond_plan::model::Offering| {
                    symbols.text(offering.zone) == closed.zone && offering.capacity_type.name() == closed.capacity_type
                };
                of.offerings.iter_mut().filter(same).for_each(|offering| offering.available = false);
            }
        }
    }
}

impl Entry {
    fn is_open(&self, now: Instant) -> bool {
        let probed = self.probing.is_some_and(|since| now.duration_since(since) < LONGEST_PROBE);
        self.until <= now && !probed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offering(name: &str) -> OfferingKey {
        OfferingKey { instance_type: name.to_owned(), zone: "a".to_owned(), capacity_type: "spot".to_owned() }
    }

    fn stock_outs() -> StockOuts {
        StockOuts::new(1, Clock::virtual_from("2026-01-01T00:00:00Z".parse().unwrap()))
    }

    /// What classes would say.
    fn repeated(stock_outs: &StockOuts) -> Vec<UnavailableOffering> {
        stock_outs.list().iter().map(StockOut::to_status).collect()
    }

    async fn pass(minutes: u64) {
        tokio::time::advance(Duration::from_mins(minutes)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn waits_grow_and_end_with_one_probe() {
        let (stock_outs, m5) = (stock_outs(), offering("m5.large"));
        let backoff = Backoff::default();
        assert!(stock_outs.is_open(&m5) && stock_outs.acquire(&m5));
        stock_outs.failed([&m5], backoff);
        assert!(!stock_outs.is_open(&m5) && !stock_outs.acquire(&m5));
        assert!(stock_outs.is_open(&offering("m5.xlarge")), "others are not affected");
        stock_outs.failed([&m5], backoff);
        pass(4).await;
        assert!(stock_outs.is_open(&m5), "failures of the same moment count once");
        assert!(stock_outs.acquire(&m5) && !stock_outs.acquire(&m5), "one probe");
        stock_outs.failed([&m5], backoff);
        pass(5).await;
        assert!(!stock_outs.is_open(&m5), "twice as long");
        pass(3).await;
        assert!(stock_outs.acquire(&m5));
        pass(2).await;
        assert!(stock_outs.acquire(&m5), "a probe that says nothing does not hold it for ever");
        stock_outs.succeeded(&m5);
        assert!(stock_outs.acquire(&m5) && stock_outs.acquire(&m5) && stock_outs.list().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn waits_are_what_is_configured_or_a_little_more_or_less() {
        let stock_outs = stock_outs();
        let backoff = Backoff { initial: Duration::from_secs(20), longest: Duration::from_mins(5) };
        let all: Vec<OfferingKey> = (0..50).map(|index| offering(&index.to_string())).collect();
        stock_outs.failed(&all, backoff);
        let waits: Vec<u128> = stock_outs.list().iter().map(|missing| missing.wait.as_millis()).collect();
        assert!(waits.iter().all(|wait| (18_000..=22_000).contains(wait)), "{waits:?}");
        assert!(waits.iter().any(|wait| *wait < 20_000) && waits.iter().any(|wait| *wait > 20_000), "{waits:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_had_lately_is_proven_until_it_fails() {
        let (stock_outs, m5) = (stock_outs(), offering("m5.large"));
        assert!(!stock_outs.is_proven(&m5));
        stock_outs.succeeded(&m5);
        assert!(stock_outs.is_proven(&m5));
        stock_outs.failed([&m5], Backoff::default());
        assert!(!stock_outs.is_proven(&m5));
        stock_outs.succeeded(&m5);
        pass(10).await;
        assert!(!stock_outs.is_proven(&m5), "ten minutes ago says little of now");
    }

    #[tokio::test(start_paused = true)]
    async fn no_wait_is_longer_than_the_longest() {
        let (stock_outs, m5) = (stock_outs(), offering("m5.large"));
        for _ in 0..20 {
            stock_outs.failed([&m5], Backoff::default());
            pass(40).await;
            assert!(stock_outs.acquire(&m5));
        }
        stock_outs.release(&m5);
        assert!(stock_outs.is_open(&m5));
        assert_eq!(stock_outs.list()[0].failures, 20);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_known_before_a_restart_is_known_after() {
        let (before, m5, c5) = (stock_outs(), offering("m5.large"), offering("c5.large"));
        before.failed([&m5], Backoff::default());
        pass(4).await;
        before.failed([&m5, &c5], Backoff::default());
        let known = repeated(&before);
        let after = StockOuts::new(2, before.clock.clone());
        after.restore(&known);
        assert_eq!(repeated(&after), known, "to the second, so that nothing is written");
        assert!(!after.is_open(&m5) && !after.is_open(&c5));
        pass(4).await;
        assert!(!after.is_open(&m5) && after.is_open(&c5), "failures in a row are remembered too");
        after.failed([&c5], Backoff::default());
        let newer = repeated(&after);
        after.restore(&known);
        assert_eq!(repeated(&after), newer, "what is older changes nothing");
        pass(120).await;
        let late = StockOuts::new(3, before.clock.clone());
        late.restore(&known);
        assert!(repeated(&late).is_empty(), "what was two hours ago says nothing of now");
    }

    #[tokio::test(start_paused = true)]
    async fn changes_are_told_once() {
        let (stock_outs, m5) = (stock_outs(), offering("m5.large"));
        let told = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = std::sync::Arc::clone(&told);
        stock_outs.on_change(move || {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        });
        let told = || told.load(std::sync::atomic::Ordering::Relaxed);
        stock_outs.succeeded(&m5);
        assert_eq!(told(), 0);
        stock_outs.failed([&m5], Backoff::default());
        stock_outs.failed([&m5], Backoff::default());
        assert_eq!(told(), 1);
        stock_outs.succeeded(&m5);
        assert_eq!(told(), 2);
    }
}
