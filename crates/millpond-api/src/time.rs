//! Times as Kubernetes writes them (RFC 3339), as seconds since 1970.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Seconds since 1970, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Time(pub i64);

/// Reads `2026-11-16T04:30:00Z`, with parts of a second and other zones too.
pub fn parse(text: &str) -> Option<Time> {
    text.parse::<jiff::Timestamp>().ok().map(|time| Time(time.as_second()))
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_second(self.0) {
            Ok(time) => fmt::Display::fmt(&time, f),
            Err(_) => write!(f, "{} s after 1970", self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time such as `2026-11-16T04:30:00Z`")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Time, E> {
                parse(text).ok_or_else(|| E::custom("is not a time such as `2026-11-16T04:30:00Z`"))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-11-16T04:30:00Z", 1_794_803_400),
            ("2026-11-16T05:30:00.123456+01:00", 1_794_803_400),
        ] {
            assert_eq!(parse(text), Some(Time(seconds)), "{text}");
        }
        assert_eq!(Time(1_794_803_400).to_string(), "2026-11-16T04:30:00Z");
        for text in ["", "2026-11-16", "yesterday", "2026-13-01T00:00:00Z"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
