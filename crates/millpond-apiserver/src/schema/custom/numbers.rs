//! Bounds of numbers, with upstream's distinction between whole and other numbers.

use serde_json::{Number, Value, json};

use super::formats::Format;
use super::props::Props;
use crate::go::text;

/// Integers that a JSON number holds exactly.
const MAX_EXACT: f64 = 9_007_199_254_740_991.0;
const EPSILON: f64 = 1e-9;

/// Why a number is invalid.
pub(super) enum Failure {
    /// It, or a bound of its schema, does not fit the type.
    Range(String),
    /// It is outside a bound.
    Bound {
        /// The number as the message shows it.
        value: Value,
        /// The sentence.
        detail: String,
    },
}

/// A number and the type that its schema asks for.
struct Check<'a> {
    path: &'a str,
    integer_type: bool,
    format: Option<Format>,
}

/// Reports every bound that the number breaks.
pub(super) fn check(schema: &Props, number: &Number, path: &str, report: &mut dyn FnMut(Failure)) {
    let typed = !schema.int_or_string;
    let check = Check {
        path,
        integer_type: typed && &*schema.ty == "integer",
        format: schema.checked_format.filter(|format| typed && !matches!(format, Format::Text(_))),
    };
    let real = number.as_f64().unwrap_or_default();
    let integer = number.as_i64();
    let checked = match integer {
        Some(integer) => check.fits_integer(integer),
        None => check.fits(real),
    };
    if !checked {
        report(check.range("Checked"));
    }
    if let Some(factor) = schema.multiple_of {
        let exact = check.exact("MultipleOf", factor, integer, report);
        check.multiple_of(factor, exact, real, report);
    }
    if let Some(minimum) = schema.minimum {
        let exact = check.exact("Minimum boundary", minimum, integer, report);
        let exclusive = schema.exclusive_minimum;
        let words = if exclusive { "greater than" } else { "greater than or equal to" };
        let broken = |ordering: std::cmp::Ordering| ordering.is_lt() || (exclusive && ordering.is_eq());
        check.bound(minimum, exact, real, words, broken, report);
    }
    if let Some(maximum) = schema.maximum {
        let exact = check.exact("Maximum boundary", maximum, integer, report);
        let exclusive = schema.exclusive_maximum;
        let words = if exclusive { "less than" } else { "less than or equal to" };
        let broken = |ordering: std::cmp::Ordering| ordering.is_gt() || (exclusive && ordering.is_eq());
        check.bound(maximum, exact, real, words, broken, report);
    }
}

impl Check<'_> {
    /// Whether a number that is not an integer fits the type.
    fn fits(&self, number: f64) -> bool {
        if self.integer_type {
            let in_64_bits =
                number.fract() == 0.0 && (-9.223_372_036_854_776e18..9.223_372_036_854_776e18).contains(&number);
            return in_64_bits && self.fits_integer(number as i64);
        }
        !matches!(self.format, Some(Format::Float)) || number.abs() <= f64::from(f32::MAX)
    }

    fn fits_integer(&self, number: i64) -> bool {
        !(self.integer_type && matches!(self.format, Some(Format::Int32))) || i32::try_from(number).is_ok()
    }

    fn range(&self, what: &str) -> Failure {
        let ty = if self.integer_type { "integer" } else { "number" };
        let format = match self.format {
            Some(Format::Int32) => "with format int32",
            Some(Format::Int64) => "with format int64",
            Some(Format::Float) => "with format float",
            Some(Format::Double) => "with format double",
            _ => "(default format)",
        };
        Failure::Range(format!("{what} value must be of type {ty} {format} in {}", self.path))
    }

    /// The number as an integer when it is to be compared as one: the bound must fit the type.
    fn exact(&self, what: &str, bound: f64, integer: Option<i64>, report: &mut dyn FnMut(Failure)) -> Option<i64> {
        if self.fits(bound) {
            return integer;
        }
        report(self.range(what));
        None
    }

    fn multiple_of(&self, factor: f64, integer: Option<i64>, real: f64, report: &mut dyn FnMut(Failure)) {
        let path = self.path;
        let positive = |shown: Value| Failure::Bound {
            detail: format!("factor MultipleOf declared for {path} must be positive: {}", shown_number(&shown)),
            value: shown,
        };
        let failed = |value: Value, factor: Value| Failure::Bound {
            value,
            detail: format!("{path} in body should be a multiple of {}", shown_number(&factor)),
        };
        match integer {
            Some(integer) => match factor as i64 {
                factor if factor <= 0 => report(positive(json!(factor))),
                factor if integer % factor != 0 => report(failed(json!(integer), json!(factor))),
                _ => {}
            },
            None if factor <= 0.0 => report(positive(json!(factor))),
            None => {
                let quotient = if factor < 1.0 { 1.0 / factor * real } else { real / factor };
                if !is_whole(quotient) {
                    report(failed(json!(real), json!(factor)));
                }
            }
        }
    }

    fn bound(
        &self,
        bound: f64,
        integer: Option<i64>,
        real: f64,
        words: &str,
        broken: impl Fn(std::cmp::Ordering) -> bool,
        report: &mut dyn FnMut(Failure),
    ) {
        let (value, shown, ordering) = match integer {
            Some(integer) => {
                let bound = bound as i64;
                (json!(integer), bound.to_string(), Some(integer.cmp(&bound)))
            }
            None => (json!(real), text::float(bound), real.partial_cmp(&bound)),
        };
        if ordering.is_some_and(broken) {
            report(Failure::Bound { value, detail: format!("{} in body should be {words} {shown}", self.path) });
        }
    }
}

fn shown_number(value: &Value) -> String {
    match value {
        Value::Number(number) => text::number(number),
        other => other.to_string(),
    }
}

/// Whether a float is, up to rounding, a whole number that JSON holds exactly.
pub(super) fn is_whole(number: f64) -> bool {
    if !number.is_finite() || number.abs() > MAX_EXACT {
        return false;
    }
    if number.fract() == 0.0 {
        return true;
    }
    let truncated = number.abs().trunc();
    let difference = (number.abs() - truncated).abs();
    truncated != 0.0 && difference / (number.abs() + truncated) < EPSILON
}

/// Equality for `enum`: numbers are compared in the type of the allowed value. Null equals nothing. What
/// `Choices` looks up is compared one by one here, to test it.
#[cfg(test)]
pub(super) fn same(value: &Value, allowed: &Value) -> bool {
    match (value, allowed) {
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Number(value), Value::Number(allowed)) => match (allowed.as_i64(), value.as_i64()) {
            (Some(allowed), Some(value)) => value == allowed,
            (Some(allowed), None) => value.as_f64().is_some_and(|value| value as i64 == allowed),
            (None, _) => value.as_f64() == allowed.as_f64(),
        },
        (value, allowed) => value == allowed,
    }
}
