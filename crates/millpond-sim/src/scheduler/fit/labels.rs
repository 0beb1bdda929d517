//! Label and node selectors, compiled once and matched often.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Requirement {
    /// The value is one of these.
    In(String, Vec<String>),
    /// The label is absent, or its value is none of these.
    NotIn(String, Vec<String>),
    /// The label is present.
    Exists(String),
    /// The label is absent.
    DoesNotExist(String),
    /// The value is an integer above this one.
    Above(String, i64),
    /// The value is an integer below this one.
    Below(String, i64),
}

impl Requirement {
    /// Equality with one value.
    pub fn equals(key: &str, value: &str) -> Self {
        Self::In(key.to_owned(), vec![value.to_owned()])
    }

    /// Reads an operator and its operands; `None` when they make no sense together.
    pub fn new(key: &str, operator: &str, values: Option<&[String]>) -> Option<Self> {
        let key = key.to_owned();
        let values = values.unwrap_or_default();
        let number = || match values {
            [one] => one.parse::<i64>().ok(),
            _ => None,
        };
        let some = |values: &[String]| (!values.is_empty()).then(|| values.to_vec());
        Some(match operator {
            "In" => Self::In(key, some(values)?),
            "NotIn" => Self::NotIn(key, some(values)?),
            "Exists" if values.is_empty() => Self::Exists(key),
            "DoesNotExist" if values.is_empty() => Self::DoesNotExist(key),
            "Gt" => Self::Above(key, number()?),
            "Lt" => Self::Below(key, number()?),
            _ => return None,
        })
    }

    /// Whether these labels satisfy the condition.
    pub fn matches(&self, labels: &Labels) -> bool {
        let number = |key: &str| labels.get(key).and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Self::Exists(key) => labels.contains_key(key),
            Self::DoesNotExist(key) => !labels.contains_key(key),
            Self::Above(key, bound) => number(key).is_some_and(|value| value > *bound),
            Self::Below(key, bound) => number(key).is_some_and(|value| value < *bound),
        }
    }
}

/// A label selector: all of its requirements hold, or nothing is selected.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Selector {
    /// Selects no object (an absent selector, or one that cannot be read).
    Nothing,
    /// Selects the objects that satisfy every requirement; all objects when there is none.
    All(Vec<Requirement>),
}

impl Selector {
    /// Compiles a selector; absent or malformed selectors select nothing.
    pub fn compile(selector: Option<&LabelSelector>) -> Self {
        let Some(selector) = selector else {
            return Self::Nothing;
        };
        let mut requirements = Vec::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            requirements.push(Requirement::equals(key, value));
        }
        for expression in selector.match_expressions.iter().flatten() {
            let values = expression.values.as_deref();
            // Gt and Lt belong to node selectors only.
            let known = matches!(expression.operator.as_str(), "In" | "NotIn" | "Exists" | "DoesNotExist");
            match Requirement::new(&expression.key, &expression.operator, values) {
                Some(requirement) if known => requirements.push(requirement),
                _ => return Self::Nothing,
            }
        }
        Self::All(requirements)
    }

    /// A selector of exact pairs.
    pub fn of_pairs<'a>(pairs: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        Self::All(pairs.into_iter().map(|(key, value)| Requirement::equals(key, value)).collect())
    }

    /// Adds requirements; a selector of nothing stays one.
    pub fn and(mut self, more: impl IntoIterator<Item = Requirement>) -> Self {
        if let Self::All(requirements) = &mut self {
            requirements.extend(more);
        }
        self
    }

    /// The requirements; empty for a selector that matches nothing.
    pub fn into_requirements(self) -> Vec<Requirement> {
        match self {
            Self::Nothing => Vec::new(),
            Self::All(requirements) => requirements,
        }
    }

    /// Whether these labels are selected.
    pub fn matches(&self, labels: &Labels) -> bool {
        match self {
            Self::Nothing => false,
            Self::All(requirements) => requirements.iter().all(|one| one.matches(labels)),
        }
    }

    /// Whether there is no requirement, so that everything is selected.
    pub fn is_unrestricted(&self) -> bool {
        matches!(self, Self::All(requirements) if requirements.is_empty())
    }
}

/// One alternative of a node selector: all its label and name conditions hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeTerm {
    labels: Vec<Requirement>,
    names: Vec<NameRule>,
    /// A term with an unreadable condition matches no node.
    malformed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum NameRule {
    Is(String),
    IsNot(String),
}

impl NodeTerm {
    /// Compiles a term; `None` for an empty one, which selects nothing and is skipped.
    pub fn compile(term: &NodeSelectorTerm) -> Option<Self> {
        let expressions = term.match_expressions.as_deref().unwrap_or_default();
        let fields = term.match_fields.as_deref().unwrap_or_default();
        if expressions.is_empty() && fields.is_empty() {
            return None;
        }
        let mut compiled = Self { labels: Vec::new(), names: Vec::new(), malformed: false };
        for expression in expressions {
            match Requirement::new(&expression.key, &expression.operator, expression.values.as_deref()) {
                Some(requirement) => compiled.labels.push(requirement),
                None => compiled.malformed = true,
            }
        }
        for field in fields {
            match name_rule(field) {
                Some(rule) => compiled.names.push(rule),
                None => compiled.malformed = true,
            }
        }
        Some(compiled)
    }

    /// A term of label conditions; `None` for an empty one.
    pub fn of_labels(labels: Vec<Requirement>) -> Option<Self> {
        (!labels.is_empty()).then(|| Self { labels, names: Vec::new(), malformed: false })
    }

    /// Whether a node of this name and these labels satisfies the term.
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        !self.malformed
            && self.labels.iter().all(|one| one.matches(labels))
            && self.names.iter().all(|rule| match rule {
                NameRule::Is(wanted) => wanted == name,
                NameRule::IsNot(unwanted) => unwanted != name,
            })
    }

    /// The node names to which the term is tied; `None` when it is not tied to names.
    fn tied_names(&self) -> Option<Vec<&str>> {
        let mut wanted = self.names.iter().filter_map(|rule| match rule {
            NameRule::Is(name) => Some(name.as_str()),
            NameRule::IsNot(_) => None,
        });
        let first = wanted.next()?;
        Some(if wanted.all(|other| other == first) { vec![first] } else { Vec::new() })
    }
}

fn name_rule(field: &NodeSelectorRequirement) -> Option<NameRule> {
    let [value] = field.values.as_deref()? else {
        return None;
    };
    match (field.key.as_str(), field.operator.as_str()) {
        ("metadata.name", "In") => Some(NameRule::Is(value.clone())),
        ("metadata.name", "NotIn") => Some(NameRule::IsNot(value.clone())),
        _ => None,
    }
}

/// The nodes that a pod insists on: its `nodeSelector` and its required node affinity.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeFilter {
    /// Exact labels.
    pub labels: Vec<(String, String)>,
    /// Alternatives, when a required affinity is given.
    pub terms: Option<Vec<NodeTerm>>,
}

impl NodeFilter {
    /// Whether a node of this name and these labels qualifies.
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.matches(name, labels)))
    }

    /// Whether every node qualifies.
    pub fn is_unrestricted(&self) -> bool {
        self.labels.is_empty() && self.terms.is_none()
    }

    /// The only nodes that can qualify when every alternative names nodes; `None` when any node
    /// may. An empty list means that the alternatives contradict themselves.
    pub fn tied_names(&self) -> Option<Vec<&str>> {
        let terms = self.terms.as_ref().filter(|terms| !terms.is_empty())?;
        let mut names = Vec::new();
        for term in terms {
            names.extend(term.tied_names()?);
        }
        names.sort_unstable();
        names.dedup();
        Some(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn selector(value: serde_json::Value) -> Selector {
        let parsed: LabelSelector = serde_json::from_value(value).expect("a selector");
        Selector::compile(Some(&parsed))
    }

    #[test]
    fn absent_selects_nothing_and_empty_selects_all() {
        let any = labels(&[("a", "1")]);
        assert!(!Selector::compile(None).matches(&any));
        assert!(selector(serde_json::json!({})).matches(&any));
    }

    #[test]
    fn set_based_operators() {
        let set = selector(serde_json::json!({"matchExpressions": [
            {"key": "app", "operator": "In", "values": ["web", "api"]},
            {"key": "tier", "operator": "NotIn", "values": ["gold"]},
            {"key": "debug", "operator": "DoesNotExist"},
        ]}));
        assert!(set.matches(&labels(&[("app", "web")])));
        assert!(set.matches(&labels(&[("app", "api"), ("tier", "tin")])));
        assert!(!set.matches(&labels(&[("app", "web"), ("tier", "gold")])));
        assert!(!set.matches(&labels(&[("app", "web"), ("debug", "")])));
        assert!(!set.matches(&labels(&[])));
        let odd = selector(serde_json::json!({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}));
        assert_eq!(odd, Selector::Nothing);
    }

    fn filter(value: serde_json::Value) -> NodeFilter {
        let terms: Vec<NodeSelectorTerm> = serde_json::from_value(value).expect("terms");
        NodeFilter { labels: Vec::new(), terms: Some(terms.iter().filter_map(NodeTerm::compile).collect()) }
    }

    #[test]
    fn node_terms_are_alternatives() {
        let filter = filter(serde_json::json!([
            {"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["8"]}]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
            {},
        ]));
        assert!(filter.matches("n2", &labels(&[("cores", "16")])));
        assert!(!filter.matches("n2", &labels(&[("cores", "8")])));
        assert!(filter.matches("n1", &labels(&[])));
        assert_eq!(filter.tied_names(), None);
    }

    #[test]
    fn malformed_terms_match_nothing_and_no_term_matches_nothing() {
        let bad =
            filter(serde_json::json!([{"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["many"]}]}]));
        assert!(!bad.matches("n1", &labels(&[("cores", "16")])));
        assert!(!filter(serde_json::json!([{}])).matches("n1", &labels(&[])));
    }

    #[test]
    fn names_are_known_when_every_term_has_one() {
        let by_name = |names: &[&str]| {
            let fields: Vec<_> = names
                .iter()
                .map(|n| serde_json::json!({"key": "metadata.name", "operator": "In", "values": [n]}))
                .collect();
            serde_json::json!({"matchFields": fields})
        };
        let both = filter(serde_json::json!([by_name(&["b"]), by_name(&["a"])]));
        assert_eq!(both.tied_names(), Some(vec!["a", "b"]));
        let torn = filter(serde_json::json!([by_name(&["a", "b"])]));
        assert_eq!(torn.tied_names(), Some(vec![]));
    }
}
