//! Authorization: what an identity may do, by Kubernetes' own rules.
//!
//! ```text
//!   Attributes ─▶ system:masters? ─▶ node: is it the node's own? ─▶ rbac: does a rule of the user allow it?
//!                                       ▲                             ▲
//!                 pods, volumes … ──────┘       roles, bindings ──────┘   followed in the store, compiled once
//! ```
//!
//! [`Authorizer::decide`] is the one place where a request is allowed or refused. It sees every write that was answered
//! before the request came in: before it decides it takes in what the store has since changed.

pub(crate) mod defaults;
pub(crate) mod escalation;
pub(crate) mod node;
mod rbac;
pub(crate) mod rule;

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use self::node::Nodes;
use self::rbac::{Answer, COLLECTIONS, Rbac};
use self::rule::Rule;
use crate::auth::{ADMINISTRATORS, Attributes, Identity};
use crate::status::ApiError;
use crate::store::{EventKind, Store};

/// Decides whether a user may perform a request.
pub(crate) struct Authorizer {
    store: Store,
    changes: [watch::Receiver<u64>; 4],
    compiled: RwLock<Compiled>,
    nodes: Mutex<Nodes>,
}

#[derive(Default)]
struct Compiled {
    rbac: Rbac,
    /// Revision up to which each collection was taken in.
    seen: [u64; 4],
}

/// A decision, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    Allow(String),
    /// No rule allows it.
    NoOpinion(String),
}

impl Authorizer {
    pub(crate) fn new(store: Store) -> Self {
        let changes = COLLECTIONS.map(|collection| store.subscribe(&Arc::from(collection)));
        let authorizer =
            Self { changes, compiled: RwLock::default(), nodes: Mutex::new(Nodes::new(store.clone())), store };
        let mut compiled = authorizer.compiled.write();
        for position in 0..COLLECTIONS.len() {
            compiled.load(&authorizer.store, position);
        }
        drop(compiled);
        authorizer
    }

    /// Whether an identity may do something.
    pub(crate) fn decide(&self, identity: &Identity, wanted: &Attributes<'_>) -> Decision {
        if identity.is_in(ADMINISTRATORS) {
            return Decision::Allow(String::new());
        }
        let of_node = node::node_identity(identity).map(|node| self.nodes.lock().decide(node, wanted));
        if let Some(Decision::Allow(reason)) = of_node {
            return Decision::Allow(reason);
        }
        self.catch_up();
        let of_roles = match self.compiled.read().rbac.decide(identity, wanted) {
            Answer::Allowed(reason) => return Decision::Allow(reason),
            Answer::NoRule(reason) => reason,
        };
        let mut reasons = Vec::new();
        if let Some(Decision::NoOpinion(reason)) = of_node {
            reasons.push(reason);
        }
        reasons.push(of_roles);
        reasons.retain(|reason| !reason.is_empty());
        Decision::NoOpinion(reasons.join("\n"))
    }

    /// All rules of an identity in a namespace, whether the list may be incomplete, and the errors in its bindings.
    pub(crate) fn rules_for(&self, identity: &Identity, namespace: &str) -> (Vec<Rule>, bool, Option<String>) {
        self.catch_up();
        let (rules, problem) = self.compiled.read().rbac.rules_for(identity, namespace);
        if node::node_identity(identity).is_none() {
            return (rules, false, problem);
        }
        let of_node = "node authorizer does not support user rule resolution".to_owned();
        let problem = match problem {
            Some(problem) => format!("[{of_node}, {problem}]"),
            None => of_node,
        };
        (rules, true, Some(problem))
    }

    /// The rules of a role that a binding names.
    fn role(&self, kind: &str, name: &str, namespace: Option<&str>) -> Result<Arc<[Rule]>, String> {
        self.catch_up();
        self.compiled.read().rbac.role(kind, name, namespace)
    }

    /// Takes in what has changed.
    fn catch_up(&self) {
        let is_behind = |seen: &[u64; 4]| self.changes.iter().zip(seen).any(|(change, seen)| *change.borrow() > *seen);
        if !is_behind(&self.compiled.read().seen) {
            return;
        }
        let mut compiled = self.compiled.write();
        for position in 0..COLLECTIONS.len() {
            if *self.changes[position].borrow() > compiled.seen[position] {
                compiled.follow(&self.store, position);
            }
        }
    }
}

impl Compiled {
    /// Takes in the events of a collection since the last look.
    fn follow(&mut self, store: &Store, position: usize) {
        let collection = COLLECTIONS[position];
        let Ok((events, complete_to)) = store.events_after(collection, self.seen[position], usize::MAX) else {
            // The history does not reach back that far.
            *self = Self::default();
            (0..COLLECTIONS.len()).for_each(|position| self.load(store, position));
            return;
        };
        for event in events {
            if event.kind == EventKind::Deleted {
                self.rbac.forget(collection, &event.key);
            } else {
                self.rbac.learn(collection, &event.key, &event.object.to_value());
            }
        }
        self.seen[position] = complete_to;
    }

    /// Takes in a whole collection.
    fn load(&mut self, store: &Store, position: usize) {
        let listing = store.list(COLLECTIONS[position], "", None, 0, |_, _| true);
        for (key, object) in &listing.items {
            self.rbac.learn(COLLECTIONS[position], key, &object.to_value());
        }
        self.seen[position] = listing.revision;
    }
}

/// The 403 for something that was not allowed, in Kubernetes' words.
pub(crate) fn forbidden(identity: &Identity, wanted: &Attributes<'_>, reason: &str) -> ApiError {
    let Attributes { verb, path, group, resource, subresource, namespace, name, .. } = *wanted;
    let user = crate::print::go_quoted(&identity.user);
    let quoted = crate::print::go_quoted;
    let mut why = if resource.is_empty() {
        format!("User {user} cannot {verb} path {}", quoted(path))
    } else {
        let part = if subresource.is_empty() { resource.to_owned() } else { format!("{resource}/{subresource}") };
        let whereabouts = if namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {}", quoted(namespace))
        };
        format!("User {user} cannot {verb} resource {} in API group {} {whereabouts}", quoted(&part), quoted(group))
    };
    why = why.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    ApiError::not_allowed(group, resource, name, &why)
}

#[cfg(test)]
mod tests;
