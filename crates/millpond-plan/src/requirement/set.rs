//! The set of values that a label may have.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::symbol::{Symbol, Symbols};

/// The values that a label may have.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Requirement {
    /// Whether `values` are excluded and all others allowed.
    complement: bool,
    /// Sorted, each once.
    values: Box<[Symbol]>,
    /// Only integers from this one on.
    least: Option<i64>,
    /// Only integers up to this one.
    most: Option<i64>,
    /// Whether the label may be missing.
    missing: bool,
    /// Different values that the instance types of a node must leave open.
    min_values: Option<u32>,
}

fn sorted(values: impl IntoIterator<Item = Symbol>) -> Box<[Symbol]> {
    let mut values: Vec<Symbol> = values.into_iter().collect();
    values.sort_unstable();
    values.dedup();
    values.into()
}

impl Requirement {
    fn new(complement: bool, values: Box<[Symbol]>, missing: bool) -> Self {
        Self { complement, values, least: None, most: None, missing, min_values: None }
    }

    /// This value.
    pub fn is(value: Symbol) -> Self {
        Self::new(false, Box::new([value]), false)
    }

    /// One of these values.
    pub fn one_of(values: impl IntoIterator<Item = Symbol>) -> Self {
        Self::new(false, sorted(values), false)
    }

    /// None of these values, or no such label.
    pub fn none_of(values: impl IntoIterator<Item = Symbol>) -> Self {
        Self::new(true, sorted(values), true)
    }

    /// Any value.
    pub fn exists() -> Self {
        Self::new(true, Box::default(), false)
    }

    /// No such label.
    pub fn does_not_exist() -> Self {
        Self::new(false, Box::default(), true)
    }

    /// Whole numbers between two bounds, both included.
    pub fn range(least: Option<i64>, most: Option<i64>) -> Self {
        Self { least, most, ..Self::exists() }
    }

    /// Neither a value nor its absence: what no node satisfies.
    pub(super) fn nothing() -> Self {
        Self::new(false, Box::default(), false)
    }

    /// The number of different values that must stay possible (`minValues`); `None` if no number is required.
    pub fn min_values(&self) -> Option<u32> {
        self.min_values
    }

    pub(super) fn set_min_values(&mut self, min_values: u32) {
        self.min_values = Some(min_values);
    }

    /// How many values are named, where only those named are allowed.
    pub(super) fn named_values(&self) -> Option<usize> {
        (!self.complement && !self.values.is_empty()).then_some(self.values.len())
    }

    /// The only value that is allowed, if there is just one.
    pub fn only_value(&self) -> Option<Symbol> {
        match (&*self.values, self.complement, self.missing) {
            ([value], false, false) => Some(*value),
            _ => None,
        }
    }

    /// The values that are named, sorted, and whether they are those left out.
    pub fn named(&self) -> (&[Symbol], bool) {
        (&self.values, self.complement)
    }

    /// The least and the greatest whole number that are allowed, where a range is given.
    pub fn bounds(&self) -> (Option<i64>, Option<i64>) {
        (self.least, self.most)
    }

    /// Whether the label may be missing.
    pub fn allows_missing(&self) -> bool {
        self.missing
    }

    /// Whether a label with this value, or a missing one, is allowed.
    pub fn allows(&self, value: Option<Symbol>, symbols: &Symbols) -> bool {
        value.map_or(self.missing, |value| self.contains(value, symbols))
    }

    /// Whether the value is allowed.
    pub fn contains(&self, value: Symbol, symbols: &Symbols) -> bool {
        (self.values.binary_search(&value).is_ok() != self.complement) && self.in_range(value, symbols)
    }

    fn in_range(&self, value: Symbol, symbols: &Symbols) -> bool {
        if self.least.is_none() && self.most.is_none() {
            return true;
        }
        symbols.integer(value).is_some_and(|number| {
            self.least.is_none_or(|least| least <= number) && self.most.is_none_or(|most| number <= most)
        })
    }

    /// Whether no node satisfies it.
    pub fn is_impossible(&self, symbols: &Symbols) -> bool {
        !self.missing && !self.has_values(symbols)
    }

    /// Whether some value is allowed.
    fn has_values(&self, symbols: &Symbols) -> bool {
        if !self.complement {
            return self.values.iter().any(|value| self.in_range(*value, symbols));
        }
        match (self.least, self.most) {
            (Some(least), Some(most)) => least <= most && self.leaves_a_number(least, most, symbols),
            _ => true,
        }
    }

    /// Whether the excluded values leave an integer of the range. An integer can be written in several ways (`7`,
    /// `07`), and excluding one leaves the others, so only a range whose integers are all excluded in their usual form
    /// counts as empty.
    fn leaves_a_number(&self, least: i64, most: i64, symbols: &Symbols) -> bool {
        let plain = |value: &&Symbol| {
            let number = symbols.integer(**value);
            number.is_some_and(|number| (least..=most).contains(&number) && number.to_string() == symbols.text(**value))
        };
        let left_out = self.values.iter().filter(plain).count();
        i128::from(most) - i128::from(least) >= left_out as i128
    }

    /// The values that both allow.
    #[must_use]
    pub fn intersection(&self, other: &Self, symbols: &Symbols) -> Self {
        let (least, most) = (self.least.max(other.least), lesser(self.most, other.most));
        let mut both = Self {
            complement: self.complement && other.complement,
            values: self.shared_values(other),
            least,
            most,
            missing: self.missing && other.missing,
            min_values: self.min_values.max(other.min_values),
        };
        if !both.complement {
            // Listed values need no range: values outside it are dropped here.
            let kept: Vec<Symbol> =
                both.values.iter().copied().filter(|value| both.in_range(*value, symbols)).collect();
            both.values = kept.into();
            (both.least, both.most) = (None, None);
        }
        both
    }

    fn shared_values(&self, other: &Self) -> Box<[Symbol]> {
        match (self.complement, other.complement) {
            (false, false) => pick(&self.values, |value| other.values.binary_search(&value).is_ok()),
            (false, true) => pick(&self.values, |value| other.values.binary_search(&value).is_err()),
            (true, false) => pick(&other.values, |value| self.values.binary_search(&value).is_err()),
            (true, true) => sorted(self.values.iter().chain(&other.values).copied()),
        }
    }

    /// Whether some node satisfies both.
    pub fn intersects(&self, other: &Self, symbols: &Symbols) -> bool {
        if self.missing && other.missing {
            return true;
        }
        let few = match (self.complement, other.complement) {
            (false, _) => Some((&self.values, other)),
            (_, false) => Some((&other.values, self)),
            _ => None,
        };
        match few {
            Some((values, against)) => {
                let this = if std::ptr::eq(against, other) { self } else { other };
                values.iter().any(|value| this.in_range(*value, symbols) && against.contains(*value, symbols))
            }
            None => self.intersection(other, symbols).has_values(symbols),
        }
    }

    /// The requirement in words, with at most `shown` values: `In [a, b, 3 more]`.
    pub fn describe<'a>(&'a self, symbols: &'a Symbols, shown: usize) -> Described<'a> {
        Described { requirement: self, symbols, shown }
    }
}

fn lesser(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn pick(values: &[Symbol], keep: impl Fn(Symbol) -> bool) -> Box<[Symbol]> {
    values.iter().copied().filter(|value| keep(*value)).collect()
}

/// A requirement that can be displayed.
#[derive(Debug)]
pub struct Described<'a> {
    requirement: &'a Requirement,
    symbols: &'a Symbols,
    shown: usize,
}

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Requirement { complement, values, least, most, missing, .. } = self.requirement;
        match (complement, missing, values.is_empty()) {
            (false, true, true) => return f.write_str("DoesNotExist"),
            (false, false, true) => return f.write_str("nothing"),
            (false, _, false) => self.list(f, "In")?,
            (true, _, false) => self.list(f, "NotIn")?,
            (true, _, true) if least.is_none() && most.is_none() => return f.write_str("Exists"),
            (true, _, true) => {}
        }
        let mut separator = if values.is_empty() { "" } else { ", " };
        if let Some(least) = least {
            write!(f, "{separator}Gte {least}")?;
            separator = ", ";
        }
        if let Some(most) = most {
            write!(f, "{separator}Lte {most}")?;
        }
        Ok(())
    }
}

impl Described<'_> {
    fn list(&self, f: &mut fmt::Formatter<'_>, operator: &str) -> fmt::Result {
        let mut texts: Vec<&str> = self.requirement.values.iter().map(|value| self.symbols.text(*value)).collect();
        texts.sort_unstable();
        let more = texts.len().saturating_sub(self.shown);
        texts.truncate(self.shown);
        write!(f, "{operator} [{}", texts.join(", "))?;
        match (more, texts.is_empty()) {
            (0, _) => {}
            (more, true) => write!(f, "{more} values")?,
            (more, false) => write!(f, ", {more} more")?,
        }
        f.write_str("]")
    }
}
