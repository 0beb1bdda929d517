//! Flavors that a zone had no host for a moment ago: other zones are tried first. Whether a label is launched at all is the
//! launcher's business.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The first pause of a flavor in a zone; doubles with every failure in a row.
const FIRST: Duration = Duration::from_secs(30);
/// The longest.
const LONGEST: Duration = Duration::from_mins(10);

/// Shortages by flavor and zone.
#[derive(Debug, Default)]
pub(super) struct Shortages {
    known: Mutex<BTreeMap<(String, String), Shortage>>,
}

#[derive(Debug, Clone, Copy)]
struct Shortage {
    failures: u32,
    until: Instant,
}

impl Shortages {
    /// A zone had no host for a flavor.
    pub(super) fn lacking(&self, flavor: &str, zone: &str, now: Instant) {
        let mut known = self.known.lock();
        let shortage = known.entry((flavor.to_owned(), zone.to_owned()));
        let shortage = shortage.or_insert(Shortage { failures: 0, until: now });
        if shortage.until > now {
            // Another launch of the same time.
            return;
        }
        shortage.until = now + FIRST.saturating_mul(1 << shortage.failures.min(10)).min(LONGEST);
        shortage.failures += 1;
    }

    /// A zone had one.
    pub(super) fn found(&self, flavor: &str, zone: &str) {
        self.known.lock().remove(&(flavor.to_owned(), zone.to_owned()));
    }

    /// The zone to try: the first from `start` on without a shortage of the flavor; where all have one, the zone whose
    /// shortage ends first.
    pub(super) fn choose<'z>(&self, flavor: &str, zones: &'z [String], start: usize, now: Instant) -> Option<&'z str> {
        let known = self.known.lock();
        let ends = |zone: &str| {
            let shortage = known.get(&(flavor.to_owned(), zone.to_owned()));
            shortage.map(|shortage| shortage.until).filter(|until| *until > now)
        };
        let (before, after) = zones.split_at(start.checked_rem(zones.len())?);
        // Of equals the first.
        after.iter().chain(before).map(String::as_str).min_by_key(|zone| ends(zone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_with_a_shortage_come_last_until_it_is_over() {
        let (shortages, now) = (Shortages::default(), Instant::now());
        let zones = ["a", "b", "c"].map(ToOwned::to_owned);
        let choose = |flavor: &str, start, now| shortages.choose(flavor, &zones, start, now).unwrap();
        assert_eq!((choose("1", 1, now), choose("1", 5, now)), ("b", "c"));
        shortages.lacking("1", "b", now);
        assert_eq!((choose("1", 1, now), choose("2", 1, now)), ("c", "b"), "other flavors are not concerned");
        shortages.lacking("1", "c", now + Duration::from_secs(1));
        shortages.lacking("1", "a", now + Duration::from_secs(2));
        let later = now + Duration::from_secs(3);
        assert_eq!(choose("1", 2, later), "b", "the shortage that ends first");
        assert_eq!(choose("1", 2, now + FIRST + Duration::from_secs(1)), "c");
        // The next one is longer, and success ends it.
        shortages.lacking("1", "b", now + FIRST);
        assert_eq!(choose("1", 1, now + FIRST * 2 + Duration::from_secs(5)), "c");
        shortages.found("1", "b");
        assert_eq!(choose("1", 1, now + FIRST * 2), "b");
        assert_eq!(shortages.choose("1", &[], 3, now), None);
    }
}
