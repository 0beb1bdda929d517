//! The time, as the server tells it: the machine's, or tokio's, which tests can pause and turn forward.

use jiff::Timestamp;
use tokio::time::Instant;

/// A source of wall-clock time.
#[derive(Debug, Clone, Copy)]
pub enum Clock {
    /// The machine's clock.
    System,
    /// `start` plus what tokio's clock has moved since `origin`.
    Virtual {
        /// Wall-clock time at the origin.
        start: Timestamp,
        /// The instant that `start` belongs to.
        origin: Instant,
    },
}

impl Clock {
    /// A clock that follows tokio's time from `start` on. Must be called inside a runtime.
    pub fn virtual_from(start: Timestamp) -> Self {
        Self::Virtual { start, origin: Instant::now() }
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::now(),
            Self::Virtual { start, origin } => start
                .checked_add(jiff::SignedDuration::try_from(origin.elapsed()).unwrap_or(jiff::SignedDuration::MAX))
                .unwrap_or(Timestamp::MAX),
        }
    }

    /// Now, in milliseconds since 1970.
    pub fn unix_ms(&self) -> u64 {
        self.now().as_millisecond().max(0) as u64
    }
}

/// A time as Kubernetes writes it: whole seconds, UTC.
pub fn rfc3339(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
