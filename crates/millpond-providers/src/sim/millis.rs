//! Time inside the cloud: whole milliseconds since 1970.

use std::time::Duration;

use jiff::Timestamp;
use millpond_api::time::Time;
use serde::{Deserialize, Serialize};

/// Milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub(super) struct Millis(pub(super) i64);

impl Millis {
    pub(super) fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    /// From an earlier time; zero when it was not earlier.
    pub(super) fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    pub(super) fn of_seconds(time: Time) -> Self {
        Self(time.0.saturating_mul(1000))
    }

    /// In whole seconds, as objects have it.
    pub(super) fn time(self) -> Time {
        Time(self.0.div_euclid(1000))
    }

    /// As the clock shows it.
    pub(super) fn timestamp(self) -> Timestamp {
        Timestamp::from_millisecond(self.0).unwrap_or(Timestamp::MAX)
    }
}

impl From<Timestamp> for Millis {
    fn from(time: Timestamp) -> Self {
        Self(time.as_millisecond())
    }
}
