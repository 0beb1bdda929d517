//! Money and shares as a number with its words. What is not known is never zero.

use serde::Serialize;

use crate::format::grouped;

/// Hours of a month, as clouds count them.
pub const HOURS_PER_MONTH: f64 = 730.0;

/// Nano-dollars per hour of some nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Money {
    /// The sum of those that are known; none if none is.
    pub nanos: Option<i64>,
    /// Nodes whose price is not known.
    pub unpriced: usize,
    /// `$0.0960/h`, `≥ $0.0960/h` or `?`.
    pub text: String,
}

impl Money {
    /// Of so many nodes, of which some have no price.
    pub fn new(nanos: u128, nodes: usize, unpriced: usize) -> Self {
        if unpriced > 0 && unpriced >= nodes {
            return Self { nanos: None, unpriced, text: "?".to_owned() };
        }
        let least = if unpriced > 0 { "≥ " } else { "" };
        let text = format!("{least}${}/h", grouped(nanos as f64 / 1e9, 4));
        Self { nanos: Some(i64::try_from(nanos).unwrap_or(i64::MAX)), unpriced, text }
    }

    /// Of one node.
    pub fn of_node(price: Option<u64>) -> Self {
        Self::new(u128::from(price.unwrap_or_default()), 1, usize::from(price.is_none()))
    }

    /// The same for a month, in a sentence.
    pub fn per_month(&self) -> String {
        let Some(nanos) = self.nanos else { return "?".to_owned() };
        let least = if self.unpriced > 0 { "≥ " } else { "" };
        format!("{least}${} a month", grouped(nanos as f64 / 1e9 * HOURS_PER_MONTH, 2))
    }
}

/// A part of a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Share {
    /// In thousandths; none of nothing.
    pub permille: Option<i64>,
    /// The part.
    pub used: String,
    /// The whole.
    pub total: String,
    /// `96%` or `?`.
    pub text: String,
}

impl Share {
    /// Of a resource.
    pub fn new(resource: &str, used: i64, total: i64) -> Self {
        let permille = permille(used, total);
        Self {
            permille,
            used: crate::format::amount(resource, used),
            total: crate::format::amount(resource, total),
            text: permille.map_or_else(|| "?".to_owned(), |permille| format!("{}%", permille / 10)),
        }
    }
}

/// A part of a whole in thousandths, rounded down; none of nothing.
pub fn permille(part: i64, whole: i64) -> Option<i64> {
    let share = i128::from(part) * 1000 / i128::from(whole).max(1);
    (whole > 0).then(|| i64::try_from(share).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_never_zero() {
        assert_eq!(Money::new(0, 0, 0).text, "$0.0000/h", "no nodes cost nothing");
        assert_eq!(Money::new(96_000_000, 2, 1).text, "≥ $0.0960/h");
        assert_eq!(Money::new(96_000_000, 2, 1).per_month(), "≥ $70.08 a month");
        let unknown = Money::of_node(None);
        assert_eq!((unknown.nanos, unknown.text.as_str(), unknown.per_month().as_str()), (None, "?", "?"));
        assert_eq!(Share::new("cpu", 1900, 2000).text, "95%");
        assert_eq!((Share::new("cpu", 0, 0).permille, Share::new("cpu", 0, 0).text.as_str()), (None, "?"));
    }
}
