//! The time that stand-ins write into objects: the machine's, or `tokio`'s, which tests pause.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use tokio::time::Instant;

/// A source of wall-clock time.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's clock. It also counts the time that the machine sleeps, which the runtime's
    /// clock does not.
    Machine,
    /// A time that advances with the runtime's clock: it stands still with a paused runtime and
    /// jumps with it.
    Virtual {
        /// The time at the origin.
        start: Timestamp,
        /// The instant that `start` belongs to.
        origin: Instant,
    },
}

impl Clock {
    /// A clock that shows `start` now and follows the runtime's clock.
    pub fn virtual_from(start: Timestamp) -> Self {
        Self::Virtual { start, origin: Instant::now() }
    }

    /// The time with all its digits.
    pub fn now(&self) -> Timestamp {
        match self {
            Self::Machine => Timestamp::now(),
            Self::Virtual { start, origin } => {
                let elapsed = SignedDuration::try_from(origin.elapsed()).unwrap_or(SignedDuration::MAX);
                start.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
            }
        }
    }

    /// The time as objects hold it, in whole seconds.
    pub fn time(&self) -> Time {
        Time(whole_seconds(self.now()))
    }

    /// The time as events and leases hold it.
    pub fn micro_time(&self) -> MicroTime {
        MicroTime(self.now())
    }

    /// How long until `moment`; zero when it has passed.
    pub fn until(&self, moment: Timestamp) -> Duration {
        Duration::try_from(moment.duration_since(self.now())).unwrap_or_default()
    }
}

/// Cuts off what the API would not keep.
pub fn whole_seconds(moment: Timestamp) -> Timestamp {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment)
}

/// A moment some seconds after another.
pub fn after_seconds(moment: Timestamp, seconds: i64) -> Timestamp {
    moment.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_moves_only_with_the_runtime() {
        let clock = Clock::virtual_from("2026-01-01T00:00:00Z".parse().expect("a time"));
        let before = clock.now();
        assert_eq!(clock.now(), before);
        tokio::time::advance(Duration::from_millis(90_500)).await;
        assert_eq!(clock.time().0.to_string(), "2026-01-01T00:01:30Z");
        assert_eq!(clock.until(after_seconds(before, 100)), Duration::from_millis(9_500));
        assert_eq!(clock.until(before), Duration::ZERO);
    }
}
