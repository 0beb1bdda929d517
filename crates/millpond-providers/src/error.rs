//! The ways in which a provider fails: a closed set, as what a controller does next depends on nothing else.

use std::time::Duration;

use crate::OfferingKey;

/// Why a provider did not do what it was asked for.
///
/// | Error | What a controller does |
/// |---|---|
/// | `CapacityUnavailable` | leaves the offerings alone for a while, plans again |
/// | `Quota` | the same, and tells people: waiting does not help |
/// | `Throttled` | asks again later, at the earliest after `retry_after` |
/// | `Denied` | tells people; asks again seldom |
/// | `NotFound` | the instance is gone: goes on with what follows |
/// | `NotReady` | waits until the NodeClass changes |
/// | `Fenced` | does nothing more: another controller leads |
/// | `Other` | asks again with back-off; what was asked for may have happened |
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// None of the choices is available now.
    #[error("{message}")]
    CapacityUnavailable {
        /// Every choice that was tried, in the order of the request.
        offerings: Vec<OfferingKey>,
        /// In words.
        message: String,
    },
    /// A quota of the account is in the way of all choices.
    #[error("{message}")]
    Quota {
        /// The choices that it bars, in the order of the request; empty when it bars every one there is.
        offerings: Vec<OfferingKey>,
        /// In words.
        message: String,
    },
    /// Too many calls.
    #[error("{message}")]
    Throttled {
        /// How long to wait, where the cloud says it.
        retry_after: Option<Duration>,
        /// In words.
        message: String,
    },
    /// The credentials do not allow it.
    #[error("{message}")]
    Denied {
        /// In words.
        message: String,
    },
    /// There is no such instance, or no longer.
    #[error("{message}")]
    NotFound {
        /// In words.
        message: String,
    },
    /// The NodeClass cannot be used as it is.
    #[error("{message}")]
    NotReady {
        /// In words, with a hint.
        message: String,
    },
    /// The call was not made, or refused: its caller does not lead any more. Nothing was done.
    #[error("{message}")]
    Fenced {
        /// The highest term that the cloud has seen; `None` if the cloud was not asked.
        seen: Option<u64>,
        /// In words.
        message: String,
    },
    /// Anything else: an error of the cloud, no answer. Whether it was done is not known.
    #[error("{message}")]
    Other {
        /// In words.
        message: String,
    },
}

impl ProviderError {
    /// The error as one word, for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::CapacityUnavailable { .. } => "CapacityUnavailable",
            Self::Quota { .. } => "QuotaExceeded",
            Self::Throttled { .. } => "Throttled",
            Self::Denied { .. } => "Denied",
            Self::NotFound { .. } => "NotFound",
            Self::NotReady { .. } => "NodeClassNotReady",
            Self::Fenced { .. } => "NotLeading",
            Self::Other { .. } => "ProviderError",
        }
    }

    /// The unavailable offerings, as far as the error names them.
    pub fn offerings(&self) -> &[OfferingKey] {
        match self {
            Self::CapacityUnavailable { offerings, .. } | Self::Quota { offerings, .. } => offerings,
            _ => &[],
        }
    }

    /// Whether the instance does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}
