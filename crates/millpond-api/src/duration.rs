//! Durations as Kubernetes kinds write them: Go's (`720h`, `1h30m`, `0s`), and `Never`.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Seconds in each unit that a duration may have, and how many of the unit make a second for the small ones.
const UNITS: [(&str, u128, u128); 7] = [
    ("h", 3600, 1),
    ("ms", 1, 1000),
    ("m", 60, 1),
    ("us", 1, 1_000_000),
    ("µs", 1, 1_000_000),
    ("ns", 1, 1_000_000_000),
    ("s", 1, 1),
];

/// Why the text of a duration is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not numbers with units.
    #[error("is not a duration such as `30s`, `1h30m` or `720h`")]
    NotADuration,
    /// Below zero.
    #[error("is a negative duration")]
    Negative,
    /// Beyond what 64 bits of seconds hold.
    #[error("is too long a duration")]
    TooLong,
}

/// Reads a duration in whole seconds, parts of a second rounded up.
pub fn parse_seconds(text: &str) -> Result<i64, DurationError> {
    i64::try_from(parse_nanos(text)?.div_ceil(1_000_000_000)).map_err(|_| DurationError::TooLong)
}

/// Reads a duration in whole nanoseconds.
pub fn parse_nanos(text: &str) -> Result<u128, DurationError> {
    if let Some(rest) = text.strip_prefix('-') {
        return match parse_nanos(rest) {
            Ok(0) => Ok(0),
            Ok(_) | Err(DurationError::TooLong) => Err(DurationError::Negative),
            Err(error) => Err(error),
        };
    }
    let text = text.strip_prefix('+').unwrap_or(text);
    if text == "0" {
        return Ok(0);
    }
    let (mut rest, mut nanos) = (text, 0u128);
    if rest.is_empty() {
        return Err(DurationError::NotADuration);
    }
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
        let (number, after) = rest.split_at(end.ok_or(DurationError::NotADuration)?);
        let end = after.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        nanos = nanos.checked_add(part_nanos(number, unit)?).ok_or(DurationError::TooLong)?;
        rest = after;
    }
    Ok(nanos)
}

fn part_nanos(number: &str, unit: &str) -> Result<u128, DurationError> {
    let found = UNITS.iter().find(|(name, ..)| *name == unit);
    let (_, factor, share) = *found.ok_or(DurationError::NotADuration)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 || fraction.contains('.') {
        return Err(DurationError::NotADuration);
    }
    // Nothing that is still a duration has more digits before the point; more after it are lost in a nanosecond.
    let whole = whole.trim_start_matches('0');
    if whole.len() > 19 {
        return Err(DurationError::TooLong);
    }
    let fraction = &fraction[..fraction.len().min(9)];
    let digits = whole.bytes().chain(fraction.bytes()).fold(0u128, |sum, byte| sum * 10 + u128::from(byte - b'0'));
    Ok(digits * factor * 1_000_000_000 / share / 10u128.pow(fraction.len() as u32))
}

/// A duration, or never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NillableDuration {
    /// It does not happen.
    Never,
    /// After this many seconds.
    Seconds(i64),
}

impl NillableDuration {
    /// The seconds; `None` for never.
    pub fn seconds(self) -> Option<i64> {
        match self {
            Self::Never => None,
            Self::Seconds(seconds) => Some(seconds),
        }
    }
}

/// A duration that is not `Never`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Duration(pub i64);

struct Text;

impl Visitor<'_> for Text {
    type Value = NillableDuration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as `30s`, `1h30m` or `Never`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<NillableDuration, E> {
        if text == "Never" {
            return Ok(NillableDuration::Never);
        }
        parse_seconds(text).map(NillableDuration::Seconds).map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for NillableDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_str(Text)? {
            NillableDuration::Seconds(seconds) => Ok(Self(seconds)),
            NillableDuration::Never => Err(D::Error::custom(DurationError::NotADuration)),
        }
    }
}

/// Seconds as Go writes them: `1h30m0s`.
pub fn write(seconds: i64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds}s"),
        (hours, minutes, seconds) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

impl Serialize for NillableDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Never => serializer.serialize_str("Never"),
            Self::Seconds(seconds) => serializer.serialize_str(&write(*seconds)),
        }
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&write(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        let cases = [
            ("720h", 720 * 3600),
            ("1h30m", 5400),
            ("0s", 0),
            ("0", 0),
            ("1.5h", 5400),
            ("90s", 90),
            ("500ms", 1),
            ("1m1ns", 61),
            ("+5s", 5),
            ("-0s", 0),
            (".5m", 30),
        ];
        for (text, seconds) in cases {
            assert_eq!(parse_seconds(text), Ok(seconds), "{text}");
        }
    }

    #[test]
    fn wrong_durations_are_distinguished() {
        for text in ["", "5", "h", "5d", "1h30", "never", "1..5s", "5 s", "-"] {
            assert_eq!(parse_seconds(text), Err(DurationError::NotADuration), "{text}");
        }
        assert_eq!(parse_seconds("-5s"), Err(DurationError::Negative));
        assert_eq!(parse_seconds("99999999999999999999h"), Err(DurationError::TooLong));
        assert_eq!(parse_seconds("9999999999999999999h"), Err(DurationError::TooLong));
    }

    #[test]
    fn what_is_written_is_read_back() {
        for seconds in [0, 1, 59, 60, 3599, 3600, 5400, 720 * 3600, 86_399] {
            assert_eq!(parse_seconds(&write(seconds)), Ok(seconds));
        }
    }
}
