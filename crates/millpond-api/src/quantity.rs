//! Kubernetes quantities (`500m`, `4`, `16Gi`, `1.5Gi`, `2k`, `1e3`) as
//! integers, and back in the form that Kubernetes writes.

/// Why the text of a quantity is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a number with a known suffix.
    #[error("is not a quantity such as `500m`, `4` or `16Gi`")]
    NotAQuantity,
    /// Below zero.
    #[error("is a negative quantity")]
    Negative,
    /// Beyond 64 bits.
    #[error("is too large a quantity")]
    TooLarge,
}

/// Suffix and its factor as numerator and denominator.
const SUFFIXES: [(&str, u128, u128); 16] = [
    ("Ki", 1 << 10, 1),
    ("Mi", 1 << 20, 1),
    ("Gi", 1 << 30, 1),
    ("Ti", 1 << 40, 1),
    ("Pi", 1 << 50, 1),
    ("Ei", 1 << 60, 1),
    ("n", 1, 1_000_000_000),
    ("u", 1, 1_000_000),
    ("m", 1, 1000),
    ("k", 1000, 1),
    ("M", 1_000_000, 1),
    ("G", 1_000_000_000, 1),
    ("T", 1_000_000_000_000, 1),
    ("P", 1_000_000_000_000_000, 1),
    ("E", 1_000_000_000_000_000_000, 1),
    ("", 1, 1),
];

/// What lies below this power of ten is no more than the least unit, for all numbers that fit.
const LEAST_EXPONENT: u32 = 28;

/// A quantity in thousandths (cores as milli-cores), rounded up as Kubernetes does.
pub fn parse_milli(text: &str) -> Result<u64, QuantityError> {
    parse(text, 1000)
}

/// A quantity in whole units (bytes, pods), rounded up as Kubernetes does.
pub fn parse_units(text: &str) -> Result<u64, QuantityError> {
    parse(text, 1)
}

fn parse(text: &str, scale: u128) -> Result<u64, QuantityError> {
    match text.strip_prefix('-') {
        None => parse_unsigned(text.strip_prefix('+').unwrap_or(text), scale),
        Some(rest) => match parse_unsigned(rest, scale) {
            Ok(0) => Ok(0),
            Err(QuantityError::NotAQuantity) => Err(QuantityError::NotAQuantity),
            _ => Err(QuantityError::Negative),
        },
    }
}

fn parse_unsigned(text: &str, scale: u128) -> Result<u64, QuantityError> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (numerator, denominator) = factor(suffix)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 || fraction.contains('.') {
        return Err(QuantityError::NotAQuantity);
    }
    // Kubernetes keeps nine decimals; more digits than this hold no quantity.
    if whole.trim_start_matches('0').len() > 20 {
        return Err(QuantityError::TooLarge);
    }
    let fraction = &fraction[..fraction.len().min(9)];
    let digits: u128 = whole.bytes().chain(fraction.bytes()).fold(0, |sum, byte| sum * 10 + u128::from(byte - b'0'));
    let denominator = denominator * 10u128.pow(fraction.len() as u32);
    let value = digits.checked_mul(numerator).and_then(|value| value.checked_mul(scale));
    let value = value.ok_or(QuantityError::TooLarge)?.div_ceil(denominator);
    u64::try_from(value).map_err(|_| QuantityError::TooLarge)
}

fn factor(suffix: &str) -> Result<(u128, u128), QuantityError> {
    if let Some((_, numerator, denominator)) = SUFFIXES.iter().find(|(name, ..)| *name == suffix) {
        return Ok((*numerator, *denominator));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).ok_or(QuantityError::NotAQuantity)?;
    let exponent: i32 = exponent.parse().map_err(|_| QuantityError::NotAQuantity)?;
    match exponent {
        0..=18 => Ok((10u128.pow(exponent.unsigned_abs()), 1)),
        19.. => Err(QuantityError::TooLarge),
        // Whatever is there counts as one of the least unit; more digits would not change that.
        _ => Ok((1, 10u128.pow(exponent.unsigned_abs().min(LEAST_EXPONENT)))),
    }
}

/// Bytes with the largest binary suffix that divides them: `2Ti`, `1536Mi`, `1000`.
pub fn binary(bytes: u64) -> String {
    const NAMES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let steps = if bytes == 0 { 0 } else { (bytes.trailing_zeros() / 10).min(6) };
    format!("{}{}", bytes >> (10 * steps), NAMES[steps as usize])
}

/// Milli-cores as Kubernetes writes them: `4`, `500m`.
pub fn cores(milli: u64) -> String {
    if milli.is_multiple_of(1000) { (milli / 1000).to_string() } else { format!("{milli}m") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        for (text, milli) in [
            ("500m", 500),
            ("4", 4000),
            ("0.5", 500),
            ("1.5", 1500),
            ("100u", 1),
            ("1e-10", 1),
            ("-0", 0),
            ("0e-99", 0),
            ("2k", 2_000_000),
            ("1e3", 1_000_000),
        ] {
            assert_eq!(parse_milli(text), Ok(milli), "{text}");
        }
        for (text, units) in
            [("16Gi", 16 << 30), ("1.5Gi", 3 << 29), ("1G", 1_000_000_000), ("1500m", 2), ("0", 0), ("12E-1", 2)]
        {
            assert_eq!(parse_units(text), Ok(units), "{text}");
        }
    }

    #[test]
    fn wrong_quantities_are_distinguished() {
        for text in ["", "Gi", "1gi", "1 Gi", "1..2", "1.2.3", "abc", "--1", "0x10", "1e", "NaN"] {
            assert_eq!(parse_units(text), Err(QuantityError::NotAQuantity), "{text}");
        }
        for text in ["-1Gi", "-99999999999999999999999999", "-1n"] {
            assert_eq!(parse_units(text), Err(QuantityError::Negative), "{text}");
        }
        for text in ["-+1".to_owned(), "+-1".to_owned(), "-".repeat(1 << 20), "-".repeat(1 << 20) + "1"] {
            assert_eq!(parse_units(&text), Err(QuantityError::NotAQuantity));
        }
        for text in ["16Ei", "1e99", "99999999999999999999999999"] {
            assert_eq!(parse_units(text), Err(QuantityError::TooLarge), "{text}");
        }
    }

    #[test]
    fn canonical_forms() {
        assert_eq!(binary(2048 << 30), "2Ti");
        assert_eq!(binary(1536 << 20), "1536Mi");
        assert_eq!(binary(0), "0");
        assert_eq!(cores(4000), "4");
        assert_eq!(cores(1930), "1930m");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(bytes: u64, milli in 0u64..1 << 50) {
            prop_assert_eq!(parse_units(&binary(bytes)), Ok(bytes));
            prop_assert_eq!(parse_milli(&cores(milli)), Ok(milli));
        }

        #[test]
        fn nothing_panics(text in "\\PC{0,40}") {
            let _ = (parse_units(&text), parse_milli(&text), crate::money::parse(&text));
        }
    }
}
