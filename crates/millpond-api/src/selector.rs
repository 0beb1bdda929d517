//! Requirements on labels, as overlays select instance types by: the operators
//! of a node selector, and kubectl's short text for them.
//!
//! A label may have several values (a type that comes with two operating
//! systems); a requirement holds when one of them satisfies it. The planner has
//! an algebra of its own; this only answers yes or no.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::labels::{is_key, is_value};

/// Labels with all values that each may take.
pub type LabelValues = BTreeMap<String, Vec<String>>;

/// How a requirement compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub enum Operator {
    /// One of the values.
    In,
    /// None of the values, or no such label.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
    /// A number above the value.
    Gt,
    /// A number below the value.
    Lt,
    /// A number not below the value.
    Gte,
    /// A number not above the value.
    Lte,
}

/// One requirement on one label.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// How to compare.
    pub operator: Operator,
    /// What to compare with.
    #[serde(default)]
    pub values: Vec<String>,
}

/// What is wrong with a requirement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    /// The key is no label's.
    #[error("`{0}` is not the name of a label")]
    Key(String),
    /// A value is no label's.
    #[error("`{value}` cannot be a value of the label `{key}`")]
    Value {
        /// The label.
        key: String,
        /// The value.
        value: String,
    },
    /// Too many or too few values.
    #[error("`{operator:?}` on `{key}` takes {expected}, not {count}")]
    Count {
        /// The label.
        key: String,
        /// The operator.
        operator: Operator,
        /// What it takes.
        expected: &'static str,
        /// What it got.
        count: usize,
    },
    /// Not kubectl's syntax.
    #[error("`{0}` is not a selector such as `key=value`, `key in (a,b)`, `key` or `!key`")]
    Syntax(String),
}

impl Requirement {
    /// Checks key, values and their number.
    pub fn check(&self) -> Result<(), RequirementError> {
        if !is_key(&self.key) {
            return Err(RequirementError::Key(self.key.clone()));
        }
        let (fits, expected) = match self.operator {
            Operator::In | Operator::NotIn => (!self.values.is_empty(), "at least one value"),
            Operator::Exists | Operator::DoesNotExist => (self.values.is_empty(), "no values"),
            _ => (self.values.len() == 1, "one whole number"),
        };
        if !fits {
            let (key, operator, count) = (self.key.clone(), self.operator, self.values.len());
            return Err(RequirementError::Count { key, operator, expected, count });
        }
        let numeric = matches!(self.operator, Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte);
        let wrong = self.values.iter().find(|value| !is_value(value) || (numeric && number(value).is_none()));
        wrong.map_or(Ok(()), |value| Err(RequirementError::Value { key: self.key.clone(), value: value.clone() }))
    }

    /// Whether labels satisfy the requirement.
    pub fn matches(&self, labels: &LabelValues) -> bool {
        let Some(found) = labels.get(&self.key).filter(|values| !values.is_empty()) else {
            return matches!(self.operator, Operator::NotIn | Operator::DoesNotExist);
        };
        let bound = self.values.first().and_then(|value| number(value));
        let compares = |test: fn(&u64, &u64) -> bool| {
            let numbers = found.iter().filter_map(|value| number(value));
            bound.is_some_and(|bound| numbers.into_iter().any(|value| test(&value, &bound)))
        };
        match self.operator {
            Operator::In => found.iter().any(|value| self.values.contains(value)),
            Operator::NotIn => found.iter().any(|value| !self.values.contains(value)),
            Operator::Exists => true,
            Operator::DoesNotExist => false,
            Operator::Gt => compares(|value, bound| value > bound),
            Operator::Lt => compares(|value, bound| value < bound),
            Operator::Gte => compares(|value, bound| value >= bound),
            Operator::Lte => compares(|value, bound| value <= bound),
        }
    }
}

fn number(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// Reads kubectl's text: `a=b,c!=d,e in (f,g),h notin (i),j,!k`.
pub fn parse(text: &str) -> Result<Vec<Requirement>, RequirementError> {
    let mut requirements = Vec::new();
    for part in split(text) {
        let requirement = parse_one(part.trim()).ok_or_else(|| RequirementError::Syntax(part.trim().to_owned()))?;
        requirement.check()?;
        requirements.push(requirement);
    }
    Ok(requirements)
}

/// Splits at the commas outside parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0u32);
    for (index, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn parse_one(part: &str) -> Option<Requirement> {
    let make = |key: &str, operator, values: Vec<String>| {
        let key = key.trim();
        let word = !key.is_empty() && !key.contains(char::is_whitespace);
        word.then(|| Requirement { key: key.to_owned(), operator, values })
    };
    let one = |value: &str| vec![value.trim().to_owned()];
    if let Some(inner) = part.strip_suffix(')') {
        let (head, values) = inner.split_once('(')?;
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        let (key, word) = head.trim().rsplit_once(char::is_whitespace)?;
        return match word {
            "in" => make(key, Operator::In, values),
            "notin" => make(key, Operator::NotIn, values),
            _ => None,
        };
    }
    if let Some((key, value)) = part.split_once("!=") {
        return make(key, Operator::NotIn, one(value));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return make(key, Operator::In, one(value));
    }
    match part.strip_prefix('!') {
        Some(key) => make(key, Operator::DoesNotExist, Vec::new()),
        None => make(part, Operator::Exists, Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(selector: &str) -> bool {
        let labels = [("os", vec!["linux", "windows"]), ("size", vec!["large"]), ("cpu", vec!["16"])];
        let labels = labels.map(|(key, values)| (key.to_owned(), values.into_iter().map(str::to_owned).collect()));
        let labels = LabelValues::from(labels);
        parse(selector).unwrap().iter().all(|requirement| requirement.matches(&labels))
    }

    #[test]
    fn selectors_match() {
        for selector in ["size=large", "size==large,os", "os in (darwin, linux)", "!gpu", "gpu!=t4", "os notin (linux)"]
        {
            assert!(holds(selector), "{selector}");
        }
        for selector in ["size=small", "gpu", "!os", "size notin (large,small)", "os in (darwin)", "size!=large"] {
            assert!(!holds(selector), "{selector}");
        }
    }

    #[test]
    fn numbers_compare_as_numbers() {
        let labels = LabelValues::from([("cpu".to_owned(), vec!["16".to_owned()])]);
        let holds = |operator, value: &str| {
            let requirement = Requirement { key: "cpu".to_owned(), operator, values: vec![value.to_owned()] };
            requirement.check().unwrap();
            requirement.matches(&labels)
        };
        assert!(holds(Operator::Gt, "9") && !holds(Operator::Gt, "16"));
        assert!(holds(Operator::Lt, "100") && !holds(Operator::Lt, "16"));
        assert!(holds(Operator::Gte, "16") && !holds(Operator::Gte, "17"));
        assert!(holds(Operator::Lte, "16") && !holds(Operator::Lte, "15"));
    }

    #[test]
    fn mistakes_are_named() {
        let problem = |text: &str| parse(text).unwrap_err().to_string();
        let syntax = "is not a selector such as `key=value`, `key in (a,b)`, `key` or `!key`";
        assert_eq!(problem("a=b,,c"), format!("`` {syntax}"));
        assert_eq!(problem("a of (b)"), format!("`a of (b)` {syntax}"));
        assert_eq!(problem("a b"), format!("`a b` {syntax}"));
        assert_eq!(problem("A.B/c=d"), "`A.B/c` is not the name of a label");
        assert_eq!(problem("a=b c"), "`b c` cannot be a value of the label `a`");
        let greater = Requirement { key: "cpu".into(), operator: Operator::Gt, values: vec!["1".into(), "2".into()] };
        assert_eq!(greater.check().unwrap_err().to_string(), "`Gt` on `cpu` takes one whole number, not 2");
    }
}
