//! `LabelSelector`, by which machines select hosts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::meta::Invalid;
use crate::selector::{Operator, Requirement};

/// A Kubernetes label selector. An empty one selects every host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels with the value that each must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<MatchExpression>,
}

/// An entry of `matchExpressions`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct MatchExpression {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: Operator,
    /// Values to compare with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl LabelSelector {
    /// Whether it selects every host.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// The selector as a list of requirements, all of which must hold.
    pub fn requirements(&self) -> Result<Vec<Requirement>, Invalid> {
        let exact = self.match_labels.iter().map(|(key, value)| {
            let requirement = Requirement { key: key.clone(), operator: Operator::In, values: vec![value.clone()] };
            (format!("matchLabels[{key}]"), requirement)
        });
        let expressions = self.match_expressions.iter().enumerate().map(|(index, expression)| {
            let MatchExpression { key, operator, values } = expression.clone();
            (format!("matchExpressions[{index}]"), Requirement { key, operator, values })
        });
        let mut requirements = Vec::new();
        for (field, requirement) in exact.chain(expressions) {
            if matches!(requirement.operator, Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte) {
                return Err(Invalid::new(field, "a label selector compares by In, NotIn, Exists or DoesNotExist"));
            }
            requirement.check().map_err(|error| Invalid::new(field, error.to_string()))?;
            requirements.push(requirement);
        }
        Ok(requirements)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_and_expressions_are_requirements() {
        let selector: LabelSelector = serde_json::from_value(json!({
            "matchLabels": {"purpose": "gpu"},
            "matchExpressions": [{"key": "rack", "operator": "NotIn", "values": ["r1"]}, {"key": "gpu", "operator": "Exists"}],
        }))
        .unwrap();
        let requirements = selector.requirements().unwrap();
        assert_eq!(requirements.len(), 3);
        let labels = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), vec![(*value).to_owned()])).collect()
        };
        let holds = |pairs: &[(&str, &str)]| requirements.iter().all(|one| one.matches(&labels(pairs)));
        assert!(holds(&[("purpose", "gpu"), ("gpu", "true")]));
        assert!(!holds(&[("purpose", "gpu"), ("gpu", "true"), ("rack", "r1")]));
        assert!(!holds(&[("purpose", "worker"), ("gpu", "true")]));
    }

    #[test]
    fn wrong_expressions_are_named() {
        let wrong: LabelSelector =
            serde_json::from_value(json!({"matchExpressions": [{"key": "a", "operator": "In"}]})).unwrap();
        assert_eq!(wrong.requirements().unwrap_err().field, "matchExpressions[0]");
        let numeric: LabelSelector =
            serde_json::from_value(json!({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}))
                .unwrap();
        assert!(numeric.requirements().is_err());
    }
}
