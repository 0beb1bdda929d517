//! Metadata, selectors, taints: what several kinds share.

use millpond_api::karpenter::TaintEffect;
use millpond_api::selector::Operator;
use millpond_api::time::Time;
use serde::Deserialize;

use super::text::{Annotations, Pairs, Text};

/// `metadata` of an object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata<'a> {
    /// Its name.
    #[serde(borrow)]
    pub name: Text<'a>,
    /// Prefix of a name that the server generates.
    pub generate_name: Text<'a>,
    /// Its namespace.
    pub namespace: Text<'a>,
    /// Its uid.
    pub uid: Text<'a>,
    /// Changes with every write.
    pub resource_version: Text<'a>,
    /// Labels.
    pub labels: Pairs<'a>,
    /// Annotations that mean something here.
    pub annotations: Annotations<'a>,
    /// Its owners.
    pub owner_references: Vec<Owner<'a>>,
    /// When it was made.
    pub creation_timestamp: Option<Time>,
    /// When it was asked to go.
    pub deletion_timestamp: Option<Time>,
}

impl<'a> Metadata<'a> {
    /// The owner that looks after it.
    pub fn controller(&self) -> Option<&Owner<'a>> {
        self.owner_references.iter().find(|owner| owner.controller)
    }

    /// Its namespace; `default` if none is given.
    pub fn namespace(&self) -> &str {
        if self.namespace.is_empty() { "default" } else { &self.namespace }
    }
}

/// A reference to an owner.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Owner<'a> {
    /// Its kind.
    #[serde(borrow)]
    pub kind: Text<'a>,
    /// Its name.
    pub name: Text<'a>,
    /// Its identity.
    pub uid: Text<'a>,
    /// Whether the owner is the managing controller.
    pub controller: bool,
}

/// A selector of labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector<'a> {
    /// Labels with their values.
    #[serde(borrow)]
    pub match_labels: Pairs<'a>,
    /// Further requirements.
    pub match_expressions: Vec<Expression<'a>>,
}

/// A requirement on a label.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
pub struct Expression<'a> {
    /// The label.
    #[serde(borrow)]
    pub key: Text<'a>,
    /// How to compare.
    pub operator: Operator,
    /// The values to compare with.
    #[serde(default)]
    pub values: Vec<Text<'a>>,
}

/// Alternatives of which one must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector<'a> {
    /// The alternatives.
    #[serde(borrow)]
    pub node_selector_terms: Vec<NodeTerm<'a>>,
}

/// Requirements on a node, all of which must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeTerm<'a> {
    /// Requirements on labels.
    #[serde(borrow)]
    pub match_expressions: Vec<Expression<'a>>,
    /// Requirements on fields: `metadata.name`.
    pub match_fields: Vec<Expression<'a>>,
}

/// A taint.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
pub struct Taint<'a> {
    /// Its key.
    #[serde(borrow)]
    pub key: Text<'a>,
    /// Its value.
    #[serde(default)]
    pub value: Text<'a>,
    /// Its effect.
    pub effect: TaintEffect,
}

/// An entry of `status.conditions`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition<'a> {
    /// `Ready`.
    #[serde(rename = "type", borrow)]
    pub kind: Text<'a>,
    /// `True`, `False` or `Unknown`.
    pub status: Text<'a>,
    /// In one word.
    pub reason: Text<'a>,
    /// Since when.
    pub last_transition_time: Option<Time>,
}

/// The condition of that type.
pub fn condition<'c, 'a>(conditions: &'c [Condition<'a>], kind: &str) -> Option<&'c Condition<'a>> {
    conditions.iter().find(|condition| &*condition.kind == kind)
}
