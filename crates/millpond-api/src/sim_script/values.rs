//! The small values of a script: spans of time, shares, moments, patterns. Each is a text that is checked where it
//! stands.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::duration::{self, DurationError};
use crate::time::{self, Time};

/// The longest span, a hundred years: sums of it and a time fit.
const LIMIT: Duration = Duration::from_secs(crate::karpenter::LIMIT_SECONDS as u64);

/// A span of time in Go's words: `2m`, `1h30m`, `250ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(pub Duration);

impl Span {
    /// From seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// From milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }
}

impl FromStr for Span {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let nanos = u64::try_from(duration::parse_nanos(text)?).map_err(|_| DurationError::TooLong);
        let span = Duration::from_nanos(nanos?);
        if span > LIMIT { Err(DurationError::TooLong) } else { Ok(Self(span)) }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.0.as_secs(), self.0.subsec_nanos());
        if seconds > 0 || nanos == 0 {
            f.write_str(&duration::write(seconds as i64))?;
        }
        match nanos {
            0 => Ok(()),
            nanos if nanos % 1_000_000 == 0 => write!(f, "{}ms", nanos / 1_000_000),
            nanos => write!(f, "{nanos}ns"),
        }
    }
}

/// A share of a hundred: `5%`, `0.5%`. In millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

/// What is wrong with the text of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// Not a number and `%`.
    #[error("is not a share such as `5%` or `0.5%`")]
    NotAShare,
    /// Above all.
    #[error("is more than 100%")]
    TooLarge,
}

impl Share {
    /// One, in the unit of shares.
    pub const WHOLE_MILLIONTHS: u32 = 1_000_000;

    /// A percentage; at most all.
    pub const fn percent(percent: u32) -> Self {
        let millionths = percent.saturating_mul(10_000);
        Self(if millionths > Self::WHOLE_MILLIONTHS { Self::WHOLE_MILLIONTHS } else { millionths })
    }

    /// The share in millionths.
    pub const fn millionths(self) -> u32 {
        self.0
    }
}

impl FromStr for Share {
    type Err = ShareError;

    fn from_str(text: &str) -> Result<Self, ShareError> {
        let number = text.strip_suffix('%').ok_or(ShareError::NotAShare)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() + fraction.len() == 0 || !digits(whole) || !digits(fraction) {
            return Err(ShareError::NotAShare);
        }
        if fraction.len() > 4 {
            return Err(ShareError::NotAShare);
        }
        let whole = whole.trim_start_matches('0');
        if whole.len() > 3 {
            return Err(ShareError::TooLarge);
        }
        let number = |part: &str| part.bytes().fold(0, |sum, byte| sum * 10 + u32::from(byte - b'0'));
        let millionths = number(whole) * 10_000 + number(&format!("{fraction:0<4}"));
        if millionths > Self::WHOLE_MILLIONTHS { Err(ShareError::TooLarge) } else { Ok(Self(millionths)) }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.0 / 10_000, self.0 % 10_000);
        if fraction == 0 {
            return write!(f, "{whole}%");
        }
        let fraction = format!("{fraction:04}");
        write!(f, "{whole}.{}%", fraction.trim_end_matches('0'))
    }
}

/// A moment: a time (`2026-11-16T04:30:00Z`), or so long after the script began to hold (`10m`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Moment {
    /// At that time.
    At(Time),
    /// So long after the script began to hold.
    After(Span),
}

/// What is wrong with the text of a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is neither a time such as `2026-11-16T04:30:00Z` nor a duration after the beginning such as `10m`")]
pub struct MomentError;

impl FromStr for Moment {
    type Err = MomentError;

    fn from_str(text: &str) -> Result<Self, MomentError> {
        let at = time::parse(text).map(Self::At);
        at.or_else(|| text.parse().ok().map(Self::After)).ok_or(MomentError)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(time) => time.fmt(f),
            Self::After(span) => span.fmt(f),
        }
    }
}

/// A name in which `*` matches any letters, including none.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Pattern(pub String);

impl Pattern {
    /// The pattern of that text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether every name matches.
    pub fn is_any(&self) -> bool {
        !self.0.is_empty() && self.0.bytes().all(|byte| byte == b'*')
    }

    /// The pattern of interruptions that name none.
    pub(super) fn spot() -> Self {
        Self::new("spot")
    }

    pub(super) fn is_spot(&self) -> bool {
        self.0 == "spot"
    }

    /// Whether it is the name of one thing.
    pub fn is_literal(&self) -> bool {
        !self.0.contains('*')
    }

    /// Whether a name matches.
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = name.strip_prefix(first) else { return false };
        if self.is_literal() {
            return rest.is_empty();
        }
        let mut parts: Vec<&str> = parts.collect();
        let last = parts.pop().unwrap_or_default();
        for part in parts {
            // The earliest place leaves most for those that follow.
            match rest.find(part) {
                Some(place) => rest = &rest[place + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

impl Default for Pattern {
    fn default() -> Self {
        Self::new("*")
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reading and writing as a text.
macro_rules! as_text {
    ($($name:ty, $expected:literal;)*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;

                impl serde::de::Visitor<'_> for Text {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(|error| E::custom(format!("`{text}` {error}")))
                    }
                }

                deserializer.deserialize_str(Text)
            }
        }
    )*};
}

as_text! {
    Span, "a duration such as `30s` or `250ms`";
    Share, "a share such as `5%`";
    Moment, "a time such as `2026-11-16T04:30:00Z`, or a duration such as `10m`";
}
