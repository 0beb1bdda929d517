//! Label selectors, from their text form (`app=web,tier in (a,b),!old`) and from `LabelSelector` objects.

use std::fmt;

use serde_json::{Map, Value};

use super::label_parser;
use crate::names::{label_key_problems, label_value_problems};
use crate::print::go_quoted;
use crate::status::{ApiError, FieldError};

/// A conjunction of requirements on labels. The default one matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// Sorted by key.
    requirements: Vec<LabelRequirement>,
    /// Whether it matches nothing, as an absent `LabelSelector` object does.
    nothing: bool,
}

/// One requirement on the value of one label. Made by [`LabelRequirement::new`] only, so it is well formed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelRequirement {
    key: Box<str>,
    operator: LabelOperator,
    /// Sorted, without duplicates.
    values: Vec<Box<str>>,
}

/// How a requirement relates the label to its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelOperator {
    /// `key=value`
    Equals,
    /// `key==value`
    DoubleEquals,
    /// `key!=value`; absent labels match.
    NotEquals,
    /// `key in (a,b)`
    In,
    /// `key notin (a,b)`; absent labels match.
    NotIn,
    /// `key`
    Exists,
    /// `!key`
    DoesNotExist,
    /// `key>7`
    GreaterThan,
    /// `key<7`
    LessThan,
}

impl LabelSelector {
    /// Reads the text form. The error's sentence is that of the real API server, with 400.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        label_parser::parse(text).map(Self::from_requirements).map_err(ApiError::bad_request)
    }

    /// Reads a `LabelSelector` object. An absent one (null) selects nothing, an empty one everything.
    pub fn from_object(object: &Value) -> Result<Self, String> {
        if object.is_null() {
            return Ok(Self { requirements: Vec::new(), nothing: true });
        }
        let mut requirements = Vec::new();
        for (key, value) in object["matchLabels"].as_object().into_iter().flatten() {
            requirements.push(LabelRequirement::new(key, LabelOperator::Equals, vec![text_of(value)])?);
        }
        for expression in object["matchExpressions"].as_array().into_iter().flatten() {
            requirements.push(LabelRequirement::from_expression(expression)?);
        }
        Ok(Self::from_requirements(requirements))
    }

    /// A selector that is a plain map of labels (`Service.spec.selector`); no or null labels select everything.
    pub fn from_labels(labels: &Value) -> Self {
        let requirement = |(key, value): (&String, &Value)| LabelRequirement {
            key: key.as_str().into(),
            operator: LabelOperator::Equals,
            values: vec![text_of(value).into()],
        };
        Self::from_requirements(labels.as_object().into_iter().flatten().map(requirement).collect())
    }

    fn from_requirements(mut requirements: Vec<LabelRequirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements, nothing: false }
    }

    /// Whether every set of labels matches.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    /// The requirements, sorted by key.
    pub fn requirements(&self) -> &[LabelRequirement] {
        &self.requirements
    }

    /// Whether labels, looked up by key, satisfy every requirement.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|requirement| requirement.matches(label(&requirement.key)))
    }

    /// Whether the labels of a map of strings (`metadata.labels`) match.
    pub fn matches_map(&self, labels: Option<&Map<String, Value>>) -> bool {
        self.matches(|key| labels?.get(key)?.as_str())
    }

    /// Whether `metadata.labels` of an object match.
    pub fn matches_object(&self, object: &Value) -> bool {
        if self.is_empty() {
            return true;
        }
        self.matches_map(object.pointer("/metadata/labels").and_then(Value::as_object))
    }
}

impl LabelRequirement {
    /// Checks and builds a requirement; the error lists all that is wrong.
    pub fn new(key: &str, operator: LabelOperator, values: Vec<String>) -> Result<Self, String> {
        let mut errors = Vec::new();
        let key_problems = label_key_problems(key);
        if !key_problems.is_empty() {
            errors.push(FieldError::invalid("key", key, key_problems.join("; ")));
        }
        check_arity(operator, &values, &mut errors);
        for (index, value) in values.iter().enumerate() {
            let problems = label_value_problems(value);
            if !problems.is_empty() {
                errors.push(FieldError::invalid(
                    format!("values[{index}][{key}]"),
                    value.as_str(),
                    problems.join("; "),
                ));
            }
        }
        if errors.is_empty() {
            let mut values: Vec<Box<str>> = values.into_iter().map(Into::into).collect();
            values.sort_unstable();
            values.dedup();
            Ok(Self { key: key.into(), operator, values })
        } else {
            Err(joined(&errors))
        }
    }

    fn from_expression(expression: &Value) -> Result<Self, String> {
        let operator = match expression["operator"].as_str().unwrap_or_default() {
            "In" => LabelOperator::In,
            "NotIn" => LabelOperator::NotIn,
            "Exists" => LabelOperator::Exists,
            "DoesNotExist" => LabelOperator::DoesNotExist,
            other => return Err(format!("{} is not a valid label selector operator", go_quoted(other))),
        };
        let values = expression["values"].as_array().into_iter().flatten().map(text_of).collect();
        Self::new(expression["key"].as_str().unwrap_or_default(), operator, values)
    }

    /// The label that is looked at.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How it is looked at.
    pub fn operator(&self) -> LabelOperator {
        self.operator
    }

    /// Sorted values.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(AsRef::as_ref)
    }

    /// Whether a label's value satisfies the requirement; `None` if the label is absent.
    pub fn matches(&self, value: Option<&str>) -> bool {
        match self.operator {
            LabelOperator::Equals | LabelOperator::DoubleEquals | LabelOperator::In => {
                value.is_some_and(|value| self.has(value))
            }
            LabelOperator::NotEquals | LabelOperator::NotIn => value.is_none_or(|value| !self.has(value)),
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
            LabelOperator::GreaterThan => self.compares(value, |label, limit| label > limit),
            LabelOperator::LessThan => self.compares(value, |label, limit| label < limit),
        }
    }

    fn has(&self, value: &str) -> bool {
        self.values.binary_search_by(|own| own.as_ref().cmp(value)).is_ok()
    }

    fn compares(&self, value: Option<&str>, holds: impl Fn(i64, i64) -> bool) -> bool {
        let label = value.and_then(|value| value.parse().ok());
        let limit = self.values.first().and_then(|value| value.parse().ok());
        label.zip(limit).is_some_and(|(label, limit)| holds(label, limit))
    }
}

fn check_arity(operator: LabelOperator, values: &[String], errors: &mut Vec<FieldError>) {
    let problem = match operator {
        LabelOperator::In | LabelOperator::NotIn if values.is_empty() => {
            Some("for 'in', 'notin' operators, values set can't be empty")
        }
        LabelOperator::Equals | LabelOperator::DoubleEquals | LabelOperator::NotEquals if values.len() != 1 => {
            Some("exact-match compatibility requires one single value")
        }
        LabelOperator::Exists | LabelOperator::DoesNotExist if !values.is_empty() => {
            Some("values set must be empty for exists and does not exist")
        }
        LabelOperator::GreaterThan | LabelOperator::LessThan if values.len() != 1 => {
            Some("for 'Gt', 'Lt' operators, exactly one value is required")
        }
        _ => None,
    };
    if let Some(problem) = problem {
        errors.push(FieldError::invalid("values", values, problem));
    }
    if matches!(operator, LabelOperator::GreaterThan | LabelOperator::LessThan) {
        for (index, value) in values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err()) {
            let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
            errors.push(FieldError::invalid(format!("values[{index}]"), value.as_str(), detail));
        }
    }
}

/// One message as it is, several in brackets, as Kubernetes joins errors.
fn joined(errors: &[FieldError]) -> String {
    match errors {
        [one] => one.to_string(),
        many => {
            let texts: Vec<String> = many.iter().map(ToString::to_string).collect();
            format!("[{}]", texts.join(", "))
        }
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match self.operator {
            LabelOperator::Equals => write!(f, "{key}={values}"),
            LabelOperator::DoubleEquals => write!(f, "{key}=={values}"),
            LabelOperator::NotEquals => write!(f, "{key}!={values}"),
            LabelOperator::In => write!(f, "{key} in ({values})"),
            LabelOperator::NotIn => write!(f, "{key} notin ({values})"),
            LabelOperator::Exists => write!(f, "{key}"),
            LabelOperator::DoesNotExist => write!(f, "!{key}"),
            LabelOperator::GreaterThan => write!(f, "{key}>{values}"),
            LabelOperator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn matching(text: &str, labels: &Value) -> bool {
        LabelSelector::parse(text).unwrap().matches_map(labels.as_object())
    }

    #[test]
    fn operators_match_as_documented() {
        let labels = json!({"a": "1", "b": "x", "c": ""});
        for yes in [
            "",
            "a",
            "a=1",
            "a==1",
            "a!=2",
            "z!=1",
            "a in (1,2)",
            "a notin (2)",
            "z notin (1)",
            "!z",
            "a>0",
            "a<2",
            "c=",
            "c",
            "c in ()",
            "a,b=x,!z",
        ] {
            assert!(matching(yes, &labels), "{yes}");
        }
        for no in [
            "z",
            "a=2",
            "a!=1",
            "z=1",
            "a in (2)",
            "z in (1)",
            "a notin (1)",
            "!a",
            "a>1",
            "a<1",
            "b>0",
            "z<9",
            "a,z",
            "c!=",
            "a=",
        ] {
            assert!(!matching(no, &labels), "{no}");
        }
    }

    #[test]
    fn objects_without_labels_match_negations_only() {
        let object = json!({"metadata": {"name": "x"}});
        assert!(LabelSelector::parse("!a,b!=c,d notin (e)").unwrap().matches_object(&object));
        assert!(!LabelSelector::parse("a").unwrap().matches_object(&object));
    }

    #[test]
    fn selector_objects_read_as_their_text() {
        let object = json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["b", "a"]},
                {"key": "zone", "operator": "NotIn", "values": ["z"]},
                {"key": "on", "operator": "Exists"},
                {"key": "off", "operator": "DoesNotExist", "values": []},
            ],
        });
        let selector = LabelSelector::from_object(&object).unwrap();
        assert_eq!(selector.to_string(), "app=web,!off,on,tier in (a,b),zone notin (z)");
        assert!(LabelSelector::from_object(&json!({})).unwrap().is_empty());
        assert!(!LabelSelector::from_object(&Value::Null).unwrap().matches_object(&json!({})));
    }

    #[test]
    fn bad_selector_objects_are_reported_like_kubernetes_does() {
        let error = |object: Value| LabelSelector::from_object(&object).unwrap_err();
        assert_eq!(
            error(json!({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]})),
            "\"Gt\" is not a valid label selector operator"
        );
        assert_eq!(
            error(json!({"matchExpressions": [{"key": "a", "operator": "In"}]})),
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
        );
        let several = error(json!({"matchLabels": {"-": "-"}}));
        assert!(several.starts_with("[key: Invalid value: \"-\": name part must"), "{several}");
        assert!(several.contains(", values[0][-]: Invalid value: \"-\": a valid label must"), "{several}");
    }

    #[test]
    fn plain_label_maps_select_by_equality() {
        let selector = LabelSelector::from_labels(&json!({"b": "2", "a": "1"}));
        assert_eq!(selector.to_string(), "a=1,b=2");
        assert!(LabelSelector::from_labels(&Value::Null).is_empty());
    }
}
