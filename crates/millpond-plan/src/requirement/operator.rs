//! Parses an operator and its values, as written in YAML, into a requirement.

use std::fmt;
use std::str::FromStr;

use super::Requirement;
use crate::symbol::{Symbols, parse_integer};

/// The operator of a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    /// One of the values.
    In,
    /// None of the values, or the label is missing.
    NotIn,
    /// Any value.
    Exists,
    /// No such label.
    DoesNotExist,
    /// An integer greater than the value.
    Gt,
    /// An integer less than the value.
    Lt,
    /// An integer greater than or equal to the value.
    Gte,
    /// An integer less than or equal to the value.
    Lte,
}

impl Operator {
    /// All operators.
    pub const ALL: [Self; 8] =
        [Self::In, Self::NotIn, Self::Exists, Self::DoesNotExist, Self::Gt, Self::Lt, Self::Gte, Self::Lte];

    /// Its name in YAML.
    pub fn name(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
            Self::Gt => "Gt",
            Self::Lt => "Lt",
            Self::Gte => "Gte",
            Self::Lte => "Lte",
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a requirement is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequirement {
    /// The operator is unknown.
    #[error("operator {0:?} is not one of In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte")]
    UnknownOperator(String),
    /// `In` and `NotIn` need values.
    #[error("{0} needs at least one value")]
    NoValues(Operator),
    /// `Exists` and `DoesNotExist` take no values.
    #[error("{0} takes no values")]
    UnwantedValues(Operator),
    /// Comparisons take one value.
    #[error("{operator} takes exactly one value, not {count}")]
    NotOneValue {
        /// The operator.
        operator: Operator,
        /// Values that were given.
        count: usize,
    },
    /// Comparisons need an integer.
    #[error("{operator} takes a whole number, not {value:?}")]
    NotAnInteger {
        /// The operator.
        operator: Operator,
        /// The value that was given.
        value: String,
    },
    /// `minValues` exceeds the number of values.
    #[error("minValues is {min_values}, but In names only {count} different values")]
    TooFewValues {
        /// The value of `minValues`.
        min_values: u32,
        /// The number of values.
        count: usize,
    },
}

impl FromStr for Operator {
    type Err = InvalidRequirement;

    fn from_str(text: &str) -> Result<Self, InvalidRequirement> {
        let found = Self::ALL.into_iter().find(|operator| operator.name() == text);
        found.ok_or_else(|| InvalidRequirement::UnknownOperator(text.to_owned()))
    }
}

impl Requirement {
    /// Parses a requirement and interns its values.
    pub fn parse<'t>(
        operator: Operator,
        values: impl IntoIterator<Item = &'t str>,
        symbols: &mut Symbols,
    ) -> Result<Self, InvalidRequirement> {
        let values: Vec<&str> = values.into_iter().collect();
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => Err(InvalidRequirement::NoValues(operator)),
            Operator::In => Ok(Self::one_of(values.iter().map(|value| symbols.intern(value)))),
            Operator::NotIn => Ok(Self::none_of(values.iter().map(|value| symbols.intern(value)))),
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                Err(InvalidRequirement::UnwantedValues(operator))
            }
            Operator::Exists => Ok(Self::exists()),
            Operator::DoesNotExist => Ok(Self::does_not_exist()),
            Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte => Self::parse_range(operator, &values),
        }
    }

    fn parse_range(operator: Operator, values: &[&str]) -> Result<Self, InvalidRequirement> {
        let [value] = values else {
            return Err(InvalidRequirement::NotOneValue { operator, count: values.len() });
        };
        let invalid = || InvalidRequirement::NotAnInteger { operator, value: (*value).to_owned() };
        let number = parse_integer(value).ok_or_else(invalid)?;
        // No integer is above the largest one: the result is an empty range, not an overflow.
        Ok(match operator {
            Operator::Gt => number.checked_add(1).map_or_else(Self::nothing, |least| Self::range(Some(least), None)),
            Operator::Lt => number.checked_sub(1).map_or_else(Self::nothing, |most| Self::range(None, Some(most))),
            Operator::Gte => Self::range(Some(number), None),
            _ => Self::range(None, Some(number)),
        })
    }

    /// The operators and values, sorted by text, that together say the same: what goes back into YAML.
    pub fn expressions(&self, symbols: &Symbols) -> Vec<(Operator, Vec<String>)> {
        let (named, left_out) = self.named();
        let values = || {
            let mut texts: Vec<String> = named.iter().map(|value| symbols.text(*value).to_owned()).collect();
            texts.sort_unstable();
            texts
        };
        if !left_out {
            return match (named.is_empty(), self.allows_missing()) {
                (false, _) => vec![(Operator::In, values())],
                (true, true) => vec![(Operator::DoesNotExist, Vec::new())],
                (true, false) => vec![(Operator::Exists, Vec::new()), (Operator::DoesNotExist, Vec::new())],
            };
        }
        let mut all = Vec::new();
        if !named.is_empty() {
            all.push((Operator::NotIn, values()));
        }
        let (least, most) = self.bounds();
        all.extend(least.map(|least| (Operator::Gte, vec![least.to_string()])));
        all.extend(most.map(|most| (Operator::Lte, vec![most.to_string()])));
        if least.is_none() && most.is_none() && !self.allows_missing() {
            all.push((Operator::Exists, Vec::new()));
        }
        all
    }

    /// The same requirement with `minValues`: the instance types of a node must have at least that many different
    /// values.
    pub fn with_min_values(mut self, min_values: u32) -> Result<Self, InvalidRequirement> {
        if let Some(count) = self.named_values().filter(|count| *count < min_values as usize) {
            return Err(InvalidRequirement::TooFewValues { min_values, count });
        }
        self.set_min_values(min_values);
        Ok(self)
    }
}
