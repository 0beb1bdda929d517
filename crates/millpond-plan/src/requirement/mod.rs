//! Requirements on labels: one algebra for what pods ask, pools allow, types offer and nodes have.
//!
//! A [`Requirement`] is the set of values that a label may have, and whether the label may be missing. Sets are
//! finite (`In`) or all but some (`NotIn`, `Exists`), with an optional range for whole numbers. They can be
//! intersected without looking at any node, so a pool and a pod that contradict each other are found at once.
//!
//! | Operator | Values | The label may be missing |
//! |---|---|---|
//! | `In` | those named | no |
//! | `NotIn` | all but those named | yes |
//! | `Exists` | all | no |
//! | `DoesNotExist` | none | yes |
//! | `Gt` `Lt` `Gte` `Lte` | whole numbers in the range | no |
//!
//! These are kube-scheduler's rules for `matchExpressions` on an existing node, and Karpenter's for a node that is not
//! bought yet; `Gte` and `Lte` are Karpenter's additions.

mod operator;
mod set;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::symbol::{Symbol, Symbols};

pub use operator::{InvalidRequirement, Operator};
pub use set::Requirement;

/// Requirements on several labels, all of which must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Requirements {
    by_key: BTreeMap<Symbol, Requirement>,
}

/// A label on which two sets of requirements are incompatible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The label.
    pub key: Symbol,
    /// The requirement of the first side; `None` if it does not mention the label.
    pub wanted: Option<Requirement>,
    /// The requirement of the second side; `None` if it does not mention the label.
    pub offered: Option<Requirement>,
}

/// Which labels without a requirement a node that is not bought yet may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undefined<'a> {
    /// A label that the offer does not define is missing.
    IsMissing,
    /// None except these (sorted): the well-known labels, which the provider sets.
    MayBe(&'a [Symbol]),
}

impl Requirements {
    /// No requirement at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// Exactly these labels, as on an existing node.
    pub fn of_labels(labels: impl IntoIterator<Item = (Symbol, Symbol)>) -> Self {
        Self { by_key: labels.into_iter().map(|(key, value)| (key, Requirement::is(value))).collect() }
    }

    /// Adds a requirement to those on the same label.
    pub fn add(&mut self, key: Symbol, requirement: Requirement, symbols: &Symbols) {
        match self.by_key.get_mut(&key) {
            Some(present) => *present = present.intersection(&requirement, symbols),
            None => _ = self.by_key.insert(key, requirement),
        }
    }

    /// Adds all requirements of another set.
    pub fn add_all(&mut self, other: &Self, symbols: &Symbols) {
        for (key, requirement) in &other.by_key {
            self.add(*key, requirement.clone(), symbols);
        }
    }

    /// The requirement on a label.
    pub fn get(&self, key: Symbol) -> Option<&Requirement> {
        self.by_key.get(&key)
    }

    /// All requirements, in the order of their symbols.
    pub fn iter(&self) -> impl Iterator<Item = (Symbol, &Requirement)> {
        self.by_key.iter().map(|(key, requirement)| (*key, requirement))
    }

    /// Number of labels with a requirement.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there are no requirements.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// The first label, by text, that no node can satisfy: requirements that contradict each other.
    pub fn contradiction(&self, symbols: &Symbols) -> Option<Symbol> {
        let impossible = self.by_key.iter().filter(|(_, requirement)| requirement.is_impossible(symbols));
        impossible.map(|(key, _)| *key).min_by_key(|key| symbols.text(*key).to_owned())
    }

    /// Whether an existing node's labels satisfy all requirements, by kube-scheduler's rules.
    pub fn match_labels(&self, label: impl Fn(Symbol) -> Option<Symbol>, symbols: &Symbols) -> bool {
        self.by_key.iter().all(|(key, requirement)| requirement.allows(label(*key), symbols))
    }

    /// Whether some node can satisfy both sides: these requirements, and the `offer` of a pool or type.
    pub fn compatible_with(&self, offer: &Self, undefined: Undefined<'_>, symbols: &Symbols) -> Result<(), Conflict> {
        for (key, wanted) in &self.by_key {
            let agreed = match (offer.by_key.get(key), undefined) {
                (Some(offered), _) => wanted.intersects(offered, symbols),
                (None, Undefined::MayBe(keys)) if keys.binary_search(key).is_ok() => !wanted.is_impossible(symbols),
                (None, _) => wanted.allows_missing(),
            };
            if !agreed {
                let offered = offer.by_key.get(key).cloned();
                return Err(Conflict { key: *key, wanted: Some(wanted.clone()), offered });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
