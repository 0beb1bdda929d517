//! `resource.Quantity`: amounts with SI and binary suffixes, and the text form in which they are stored.
//!
//! The real API server parses every quantity and writes it back in canonical form (`1000m` becomes `1`,
//! `1024Mi` becomes `1Gi`), with one wrinkle: a text that is already short enough is kept as it was written
//! (`1.500`, `1E3`). Both are followed here, because clients compare what they sent with what they get.

use std::cmp::Ordering;
use std::fmt;

/// Digits that Go's fast path can hold in an `int64` without overflow.
const FAST_DIGITS: usize = 18;
/// Finest unit: 10⁻⁹. Smaller amounts are rounded up, away from zero.
const NANO: i32 = -9;
/// Nanos in one.
const NANOS: u128 = 1_000_000_000;
/// Cap of amounts with a binary suffix.
const MAX_BINARY: u128 = i64::MAX as u128;
/// Fraction digits that are looked at one by one; later ones only matter by being there.
const FRACTION_DIGITS: usize = 18;

/// A parsed amount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantity {
    /// Amount in 10⁻⁹, capped at the ends of the range.
    nanos: i128,
    /// How it is stored.
    text: String,
    format: Format,
}

/// Why a text is no quantity; the sentences are Kubernetes' own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text does not have the form of a quantity.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// How an amount was written, and so how it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    DecimalSi,
    DecimalExponent,
    BinarySi,
}

/// The pieces of a quantity's text.
struct Parts<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros; `0` if there are none.
    whole: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    suffix: &'a str,
}

impl Quantity {
    /// Parses a text such as `100m`, `1.5Gi` or `1e3`.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let parts = Parts::split(text)?;
        let (format, exponent) = suffix(parts.suffix)?;
        Ok(match format {
            Format::BinarySi => binary(text, &parts, exponent),
            Format::DecimalSi | Format::DecimalExponent => decimal(text, &parts, format, exponent),
        })
    }

    /// The stored form.
    pub fn canonical(&self) -> &str {
        &self.text
    }

    /// The amount in thousand millionths, capped at the ends of the range.
    pub fn nanos(&self) -> i128 {
        self.nanos
    }

    /// Whether both are the same amount, however written.
    pub fn same_amount(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }

    /// Whether the amount is nothing.
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// Whether the amount is below nothing.
    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// Whether the amount is a whole number.
    pub fn is_whole(&self) -> bool {
        self.nanos % NANOS as i128 == 0
    }

    /// The amount in thousandths, rounded up.
    pub fn milli(&self) -> i64 {
        ceil(self.nanos, (NANOS / 1000) as i128)
    }

    /// The amount as a whole number, rounded up.
    pub fn whole(&self) -> i64 {
        ceil(self.nanos, NANOS as i128)
    }

    /// A plain whole number.
    pub fn count(number: u64) -> Self {
        let nanos = i128::from(number).saturating_mul(NANOS as i128);
        Self::shown(nanos, Format::DecimalSi)
    }

    /// The sum, written as this amount is; nothing has no style of its own.
    pub fn plus(&self, other: &Self) -> Self {
        Self::shown(self.nanos.saturating_add(other.nanos), if self.is_zero() { other.format } else { self.format })
    }

    /// The difference, written as [`plus`](Self::plus) writes a sum.
    pub fn minus(&self, other: &Self) -> Self {
        Self::shown(self.nanos.saturating_sub(other.nanos), if self.is_zero() { other.format } else { self.format })
    }

    fn shown(nanos: i128, format: Format) -> Self {
        let magnitude = nanos.unsigned_abs();
        let text = match format {
            _ if nanos == 0 => "0".to_owned(),
            Format::BinarySi => show_binary(nanos < 0, magnitude),
            format => show_decimal(nanos < 0, &magnitude.to_string(), NANO, format),
        };
        Self { nanos, text, format }
    }

    /// Rounded up to thousandths, the finest amount of a resource list.
    pub fn rounded_up_to_milli(self) -> Self {
        self.rounded_up_to(NANOS as i128 / 1000)
    }

    /// Rounded up to a whole number.
    pub fn rounded_up_to_whole(self) -> Self {
        self.rounded_up_to(NANOS as i128)
    }

    fn rounded_up_to(mut self, unit: i128) -> Self {
        let magnitude = self.nanos.abs();
        if magnitude % unit != 0 && magnitude < i128::MAX {
            let rounded = (magnitude / unit + 1) * unit;
            let digits = rounded.to_string();
            self.text = match self.format {
                Format::BinarySi => show_binary(self.nanos < 0, rounded.unsigned_abs()),
                format => show_decimal(self.nanos < 0, &digits, NANO, format),
            };
            self.nanos = rounded * self.nanos.signum();
        }
        self
    }

    fn zero(format: Format) -> Self {
        Self { nanos: 0, text: "0".to_owned(), format }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos).then_with(|| self.text.cmp(&other.text))
    }
}

/// Canonical form of a text, or the text itself if it is no quantity.
pub fn canonical(text: &str) -> String {
    Quantity::parse(text).map_or_else(|_| text.to_owned(), |quantity| quantity.text)
}

/// Whether two texts mean the same amount; texts that are no quantities must be equal as texts.
pub fn same(a: &str, b: &str) -> bool {
    match (Quantity::parse(a), Quantity::parse(b)) {
        (Ok(a), Ok(b)) => a.nanos == b.nanos,
        _ => a == b,
    }
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, QuantityError> {
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let digits_end = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, rest) = unsigned.split_at(digits_end(unsigned));
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(after) => after.split_at(digits_end(after)),
            None => ("", rest),
        };
        let letters = rest.find(|c: char| !"eEinumkKMGTP".contains(c)).unwrap_or(rest.len());
        let tail = rest[letters..].strip_prefix(['-', '+']).unwrap_or(&rest[letters..]);
        if !tail.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        let whole = digits.trim_start_matches('0');
        Ok(Self { negative, whole: if whole.is_empty() { "0" } else { whole }, fraction, suffix: rest })
    }
}

fn suffix(text: &str) -> Result<(Format, i32), QuantityError> {
    let known = match text {
        "n" => (Format::DecimalSi, -9),
        "u" => (Format::DecimalSi, -6),
        "m" => (Format::DecimalSi, -3),
        "" => (Format::DecimalSi, 0),
        "k" => (Format::DecimalSi, 3),
        "M" => (Format::DecimalSi, 6),
        "G" => (Format::DecimalSi, 9),
        "T" => (Format::DecimalSi, 12),
        "P" => (Format::DecimalSi, 15),
        "E" => (Format::DecimalSi, 18),
        "Ki" => (Format::BinarySi, 10),
        "Mi" => (Format::BinarySi, 20),
        "Gi" => (Format::BinarySi, 30),
        "Ti" => (Format::BinarySi, 40),
        "Pi" => (Format::BinarySi, 50),
        "Ei" => (Format::BinarySi, 60),
        _ => {
            let digits = text.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
            // Go takes the low half of a 64-bit exponent; amounts that large are nonsense anyway.
            let exponent = digits.parse::<i64>().map_err(|_| QuantityError::Suffix)?;
            (Format::DecimalExponent, i32::try_from(exponent).map_err(|_| QuantityError::Suffix)?)
        }
    };
    Ok(known)
}

fn decimal(text: &str, parts: &Parts<'_>, format: Format, exponent: i32) -> Quantity {
    let mut digits = format!("{}{}", parts.whole, parts.fraction);
    let scale = exponent.saturating_sub(parts.fraction.len() as i32);
    let fast = digits.len() <= FAST_DIGITS && scale >= NANO;
    let zero = digits.bytes().all(|byte| byte == b'0');
    if fast && scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0') {
        return Quantity { nanos: decimal_nanos(parts.negative, &digits, scale), text: text.to_owned(), format };
    }
    if zero {
        return Quantity::zero(format);
    }
    let scale = round_up_to_nano(&mut digits, scale);
    let shown = show_decimal(parts.negative, &digits, scale, format);
    Quantity { nanos: decimal_nanos(parts.negative, &digits, scale), text: shown, format }
}

/// Cuts digits below 10⁻⁹, rounding away from zero; returns the new scale.
fn round_up_to_nano(digits: &mut String, scale: i32) -> i32 {
    if scale >= NANO {
        return scale;
    }
    let cut = (NANO - scale) as usize;
    let (kept, dropped) = if cut >= digits.len() { ("", digits.as_str()) } else { digits.split_at(digits.len() - cut) };
    let round = dropped.bytes().any(|byte| byte != b'0');
    let mut kept = if kept.is_empty() { "0".to_owned() } else { kept.to_owned() };
    if round {
        increment(&mut kept);
    }
    *digits = kept;
    NANO
}

fn increment(digits: &mut String) {
    let mut bytes = std::mem::take(digits).into_bytes();
    for byte in bytes.iter_mut().rev() {
        if *byte == b'9' {
            *byte = b'0';
        } else {
            *byte += 1;
            *digits = String::from_utf8(bytes).expect("digits are ASCII");
            return;
        }
    }
    bytes.insert(0, b'1');
    *digits = String::from_utf8(bytes).expect("digits are ASCII");
}

fn decimal_nanos(negative: bool, digits: &str, scale: i32) -> i128 {
    let shift = i64::from(scale) - i64::from(NANO);
    let magnitude = digits
        .parse::<i128>()
        .ok()
        .and_then(|value| {
            Some(if value == 0 { 0 } else { value.checked_mul(10_i128.checked_pow(u32::try_from(shift).ok()?)?)? })
        })
        .unwrap_or(i128::MAX);
    if negative { -magnitude } else { magnitude }
}

/// Digits with the exponent brought to a multiple of three, and its suffix.
fn show_decimal(negative: bool, digits: &str, scale: i32, format: Format) -> String {
    let digits = digits.trim_start_matches('0');
    let trimmed = digits.trim_end_matches('0');
    let exponent = scale + (digits.len() - trimmed.len()) as i32;
    let padding = exponent.rem_euclid(3);
    let exponent = exponent - padding;
    let sign = if negative { "-" } else { "" };
    let zeros = &"00"[..padding as usize];
    let suffix = match (format, exponent) {
        (_, 0) => String::new(),
        (Format::DecimalExponent, exponent) => format!("e{exponent}"),
        (_, exponent) => si_suffix(exponent).to_owned(),
    };
    format!("{sign}{trimmed}{zeros}{suffix}")
}

/// Beyond the known suffixes the real server shows none.
fn si_suffix(exponent: i32) -> &'static str {
    match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        18 => "E",
        _ => "",
    }
}

fn binary(text: &str, parts: &Parts<'_>, exponent: i32) -> Quantity {
    // The number of digits that Go's fast path assumes for a binary shift.
    let shift_digits = (exponent as f32 * 3.0 / 10.0) as i32;
    let fast = parts.fraction.is_empty() && 15 - parts.whole.len() as i32 - shift_digits > 0;
    if fast {
        let value: i128 = parts.whole.parse().expect("at most 15 digits");
        let magnitude = value << exponent;
        if value & 0x07 != 0 {
            let nanos = signed(parts.negative, magnitude as u128 * NANOS);
            return Quantity { nanos, text: text.to_owned(), format: Format::BinarySi };
        }
    }
    let nanos = binary_nanos(parts, exponent as u32);
    let text = show_binary(parts.negative, nanos);
    Quantity { nanos: signed(parts.negative, nanos), text, format: Format::BinarySi }
}

fn signed(negative: bool, magnitude: u128) -> i128 {
    let magnitude = i128::try_from(magnitude).unwrap_or(i128::MAX);
    if negative { -magnitude } else { magnitude }
}

/// Amount in nanos: rounded up, capped.
fn binary_nanos(parts: &Parts<'_>, exponent: u32) -> u128 {
    let whole = match parts.whole.parse::<u64>() {
        Ok(whole) => u128::from(whole) << exponent,
        Err(_) => return MAX_BINARY * NANOS,
    };
    let (head, tail) = parts.fraction.split_at(parts.fraction.len().min(FRACTION_DIGITS));
    let divisor = 10_u128.pow(head.len() as u32);
    let scaled = head.parse::<u128>().unwrap_or_default() << exponent;
    let more = u128::from(tail.bytes().any(|byte| byte != b'0'));
    let fraction_nanos = (scaled / divisor) * NANOS + ((scaled % divisor) * NANOS).div_ceil(divisor);
    whole.saturating_mul(NANOS).saturating_add(fraction_nanos + more).min(MAX_BINARY * NANOS)
}

fn show_binary(negative: bool, nanos: u128) -> String {
    if nanos == 0 {
        return "0".to_owned();
    }
    if nanos < 1024 * NANOS || !nanos.is_multiple_of(NANOS) {
        return show_decimal(negative, &nanos.to_string(), NANO, Format::DecimalSi);
    }
    let mut value = nanos / NANOS;
    let mut suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].into_iter();
    let mut suffix = suffixes.next().unwrap_or_default();
    while value.is_multiple_of(1024) {
        let Some(next) = suffixes.next() else { break };
        value /= 1024;
        suffix = next;
    }
    format!("{}{value}{suffix}", if negative { "-" } else { "" })
}

fn ceil(nanos: i128, unit: i128) -> i64 {
    let whole = nanos.div_euclid(unit) + i128::from(nanos.rem_euclid(unit) != 0);
    i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Texts, and what kube-apiserver 1.36 stored for them in a resource list.
    const CANONICAL: &str = include_str!("builtin/testdata/quantities.txt");

    #[test]
    fn canonical_forms_are_those_of_the_real_server() {
        let mut checked = 0;
        for line in CANONICAL.lines().filter(|line| !line.starts_with('#')) {
            let (text, expected) = line.split_once(' ').expect("two columns");
            match Quantity::parse(text) {
                Ok(quantity) => assert_eq!(quantity.rounded_up_to_milli().canonical(), expected, "{text}"),
                Err(error) => assert_eq!(format!("!{error}"), expected, "{text}"),
            }
            checked += 1;
        }
        assert!(checked > 60, "only {checked} lines");
    }

    #[test]
    fn amounts_compare_across_suffixes() {
        for (small, large) in [("999m", "1"), ("1G", "1Gi"), ("-1", "0"), ("1e3", "1001"), ("1023Mi", "1Gi")] {
            assert!(Quantity::parse(small).unwrap() < Quantity::parse(large).unwrap(), "{small} {large}");
        }
        assert!(same("1000m", "1") && same("1024Mi", "1Gi") && !same("1", "2") && same("x", "x"));
        let sum = |a, b| Quantity::parse(a).unwrap().plus(&Quantity::parse(b).unwrap()).to_string();
        assert_eq!([sum("1", "500m"), sum("1Gi", "1M"), sum("1e3", "1")], ["1500m", "1074741824", "1001"]);
        assert_eq!([sum("0", "1Gi"), sum("0", "0")], ["1Gi", "0"]);
        let difference = |a, b| Quantity::parse(a).unwrap().minus(&Quantity::parse(b).unwrap()).to_string();
        assert_eq!([difference("1", "500m"), difference("1Gi", "2Gi"), difference("2", "2")], ["500m", "-1Gi", "0"]);
        assert_eq!([Quantity::count(0).to_string(), Quantity::count(2000).to_string()], ["0", "2k"]);
        assert_eq!(Quantity::parse("1m").unwrap().whole(), 1);
        assert_eq!(Quantity::parse("1500u").unwrap().milli(), 2);
        assert_eq!(Quantity::parse("-1500m").unwrap().whole(), -1);
    }

    #[test]
    fn outside_of_resource_lists_nanos_count() {
        for (text, expected) in
            [("1n", "1n"), ("0.1n", "1n"), ("1500u", "1500u"), ("0.0001", "100u"), ("0.3Ki", "307200m")]
        {
            assert_eq!(canonical(text), expected);
        }
        assert_eq!(canonical("1E-4"), "100e-6");
    }

    proptest! {
        #[test]
        fn the_canonical_form_is_stable(text in "[+-]?[0-9]{0,22}(\\.[0-9]{0,22})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e[0-9]|E-[0-9])?") {
            if let Ok(quantity) = Quantity::parse(&text) {
                // Beyond the known suffixes the real server itself loses the exponent.
                prop_assume!(quantity.nanos.unsigned_abs() < 1_000_000_000_000_000_000_000_000_000_000);
                let again = Quantity::parse(quantity.canonical()).unwrap();
                prop_assert_eq!(again.nanos, quantity.nanos);
            }
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = Quantity::parse(&text);
        }
    }
}
