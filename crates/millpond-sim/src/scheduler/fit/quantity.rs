//! Kubernetes quantities as exact integers.
//!
//! A quantity is parsed to billionths (`n` is the smallest suffix that the API knows) in 128 bits;
//! readers then round up to whole units or to thousandths, as the scheduler does.

/// Billionths per unit.
const NANOS: i128 = 1_000_000_000;

/// A parsed quantity in billionths of its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(i128);

impl Amount {
    /// Parses `250m`, `1.5Gi`, `2e3` and the like; `None` when it is not a quantity.
    pub fn parse(text: &str) -> Option<Self> {
        let split = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
        let (number, suffix) = text.split_at(split);
        let (mantissa, decimals) = decimal(number)?;
        let Some(shift) = binary_shift(suffix) else {
            let exponent = decimal_exponent(suffix)?;
            return Self::scale_decimal(mantissa, exponent + 9 - decimals);
        };
        let scaled = mantissa.checked_mul(NANOS)?.checked_mul(1_i128 << shift)?;
        Some(Self(div_up(scaled, pow10(decimals)?)))
    }

    /// Whole units, rounded away from zero.
    pub fn units(self) -> i64 {
        clamp(div_up(self.0, NANOS))
    }

    /// Thousandths of a unit, rounded away from zero.
    pub fn millis(self) -> i64 {
        clamp(div_up(self.0, NANOS / 1000))
    }

    fn scale_decimal(mantissa: i128, exponent: i32) -> Option<Self> {
        if exponent >= 0 {
            mantissa.checked_mul(pow10(exponent)?).map(Self)
        } else {
            Some(Self(div_up(mantissa, pow10(-exponent)?)))
        }
    }
}

/// Splits `12.50` into its digits (1250) and the number of decimals (2).
fn decimal(number: &str) -> Option<(i128, i32)> {
    let (negative, digits) = match number.as_bytes().first()? {
        b'-' => (true, &number[1..]),
        b'+' => (false, &number[1..]),
        _ => (false, number),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
    }
    Some((if negative { -value } else { value }, fraction.len() as i32))
}

fn binary_shift(suffix: &str) -> Option<u32> {
    Some(match suffix {
        "Ki" => 10,
        "Mi" => 20,
        "Gi" => 30,
        "Ti" => 40,
        "Pi" => 50,
        "Ei" => 60,
        _ => return None,
    })
}

fn decimal_exponent(suffix: &str) -> Option<i32> {
    Some(match suffix {
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "" => 0,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        _ => suffix.strip_prefix(['e', 'E'])?.parse().ok()?,
    })
}

fn pow10(exponent: i32) -> Option<i128> {
    10_i128.checked_pow(u32::try_from(exponent).ok()?)
}

/// Division that rounds away from zero.
fn div_up(value: i128, by: i128) -> i128 {
    let quotient = value / by;
    if value % by == 0 { quotient } else { quotient + value.signum() }
}

fn clamp(value: i128) -> i64 {
    value.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

#[cfg(test)]
mod tests {
    use super::Amount;

    #[test]
    fn quantities_round_up_and_keep_their_suffix() {
        let cases = [
            ("1", 1, 1000),
            ("250m", 1, 250),
            ("0.1", 1, 100),
            ("1.5", 2, 1500),
            ("1.0005", 2, 1001),
            ("100n", 1, 1),
            ("2Ki", 2048, 2_048_000),
            ("1.5Gi", 1_610_612_736, 1_610_612_736_000),
            ("0.5Ki", 512, 512_000),
            ("1k", 1000, 1_000_000),
            ("3e2", 300, 300_000),
            ("12E2", 1200, 1_200_000),
            ("2E", 2_000_000_000_000_000_000, i64::MAX),
            ("-5", -5, -5000),
            ("+3", 3, 3000),
            (".5", 1, 500),
        ];
        for (text, units, millis) in cases {
            let amount = Amount::parse(text).unwrap_or_else(|| panic!("{text} is a quantity"));
            assert_eq!((amount.units(), amount.millis()), (units, millis), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_quantity_is_refused() {
        for text in ["", "Gi", "1x", "1 Gi", "1.2.3", "--1", "1e", "one", "."] {
            assert_eq!(Amount::parse(text), None, "{text:?}");
        }
    }
}
