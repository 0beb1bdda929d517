//! Dollars as integers: a price is a whole number of nano-dollars per hour.
//!
//! Nine decimals hold every published price; the few that clouds compute to
//! more digits are rounded to the nearest, halves up.

use std::fmt::{self, Write as _};

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Nano-dollars in a dollar.
pub const NANOS: u64 = 1_000_000_000;

/// Hours in a month, as clouds bill it: 365 × 24 / 12.
pub const HOURS_MONTH: u64 = 730;

/// No machine costs this much in an hour; a price above it is a mistake.
pub const LIMIT_NANOS_HOUR: u64 = 1_000_000 * NANOS;

/// Why the text of a price is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    /// Not digits with at most one point.
    #[error("is not a price in dollars such as `0.096`")]
    NotANumber,
    /// Below zero.
    #[error("is a negative price")]
    Negative,
    /// Above [`LIMIT_NANOS_HOUR`].
    #[error("is more than a million dollars an hour")]
    TooLarge,
}

/// Reads dollars (`0.096`, `12`, `.5`) as nano-dollars.
pub fn parse(text: &str) -> Result<u64, MoneyError> {
    let text = text.trim();
    if let Some(rest) = text.strip_prefix('-') {
        return Err(if parse(rest).is_ok() { MoneyError::Negative } else { MoneyError::NotANumber });
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !digits(whole) || !digits(fraction) {
        return Err(MoneyError::NotANumber);
    }
    let whole = whole.trim_start_matches('0');
    if whole.len() > 7 {
        return Err(MoneyError::TooLarge);
    }
    let number = |part: &str| part.bytes().fold(0, |sum, byte| sum * 10 + u64::from(byte - b'0'));
    let nine: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let up = u64::from(fraction.as_bytes().get(9).is_some_and(|digit| *digit >= b'5'));
    let nanos = number(whole) * NANOS + number(&nine) + up;
    if nanos > LIMIT_NANOS_HOUR { Err(MoneyError::TooLarge) } else { Ok(nanos) }
}

/// The shortest decimal text that [`parse`] reads back as the same price.
pub fn exact(nanos: u64) -> String {
    let mut text = (nanos / NANOS).to_string();
    if !nanos.is_multiple_of(NANOS) {
        let _ = write!(text, ".{:09}", nanos % NANOS);
        text.truncate(text.trim_end_matches('0').len());
    }
    text
}

/// Dollars with this many decimals (at most nine), rounded to the nearest.
pub fn rounded(nanos: u64, decimals: u32) -> String {
    let decimals = decimals.min(9);
    let unit = 10u64.pow(9 - decimals);
    let value = nanos.saturating_add(unit / 2) / unit;
    let scale = 10u64.pow(decimals);
    if decimals == 0 {
        return value.to_string();
    }
    format!("{}.{:0width$}", value / scale, value % scale, width = decimals as usize)
}

/// Dollars as a floating point number, for JSON.
pub fn dollars(nanos: u64) -> f64 {
    nanos as f64 / NANOS as f64
}

/// Nano-dollars per hour in a field of a kind: written as a text (`"12.5"`), read from a number too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Dollars(pub u64);

impl Serialize for Dollars {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&exact(self.0))
    }
}

impl<'de> Deserialize<'de> for Dollars {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Amount;

        impl Visitor<'_> for Amount {
            type Value = Dollars;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("dollars such as `0.096`")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Dollars, E> {
                parse(text).map(Dollars).map_err(E::custom)
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Dollars, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Dollars, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Dollars, E> {
                self.visit_str(&number.to_string())
            }
        }

        deserializer.deserialize_any(Amount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read_and_written_exactly() {
        for (text, nanos) in [
            ("0.096", 96_000_000),
            ("0", 0),
            ("12", 12 * NANOS),
            (".5", 500_000_000),
            ("0.000000001", 1),
            ("2.75954630136986", 2_759_546_301),
            ("0.0000000005", 1),
            ("0.00000000049", 0),
            ("1000000", LIMIT_NANOS_HOUR),
        ] {
            assert_eq!(parse(text), Ok(nanos), "{text}");
            assert_eq!(parse(&exact(nanos)), Ok(nanos), "{text}");
        }
        assert_eq!(exact(96_000_000), "0.096");
        assert_eq!(exact(12 * NANOS), "12");
    }

    #[test]
    fn wrong_prices_are_distinguished() {
        for text in ["", ".", "1e3", "NaN", "inf", "0,5", "1.2.3", "--1", "$1", "٣"] {
            assert_eq!(parse(text), Err(MoneyError::NotANumber), "{text}");
        }
        assert_eq!(parse("-0.1"), Err(MoneyError::Negative));
        assert_eq!(parse("1000000.000000001"), Err(MoneyError::TooLarge));
        assert_eq!(parse(&"9".repeat(400)), Err(MoneyError::TooLarge));
    }

    #[test]
    fn rounding_is_to_the_nearest() {
        assert_eq!(rounded(96_000_000, 4), "0.0960");
        assert_eq!(rounded(1_999_950_000, 4), "2.0000");
        assert_eq!(rounded(1_500_000_000, 0), "2");
        assert_eq!(rounded(u64::MAX, 9), "18446744073.709551615");
    }

    #[test]
    fn fields_hold_texts_and_numbers() {
        for text in [r#""12.5""#, "12.5"] {
            assert_eq!(serde_json::from_str::<Dollars>(text).unwrap(), Dollars(12_500_000_000));
        }
        assert_eq!(serde_json::from_str::<Dollars>("120").unwrap(), Dollars(120 * NANOS));
        assert_eq!(serde_json::to_string(&Dollars(96_000_000)).unwrap(), r#""0.096""#);
        for text in ["-1", r#""a""#, "true", "1e30", r#""-0.5""#] {
            assert!(serde_json::from_str::<Dollars>(text).is_err(), "{text}");
        }
    }
}
