//! Cluster roles that are made of others: their rules are those of the roles that they select.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{internal_call, resource_of};
use crate::handlers::update::{Changed, Part, change};
use crate::selector::LabelSelector;
use crate::server::Server;

/// The collection of cluster roles.
const COLLECTION: &str = "clusterroles.rbac.authorization.k8s.io";

/// Follows the cluster roles until the server shuts down.
pub(super) async fn run(server: Arc<Server>) {
    let mut changed = server.store.subscribe(&COLLECTION.into());
    loop {
        changed.borrow_and_update();
        aggregate(&server).await;
        tokio::select! {
            _ = changed.changed() => {}
            () = server.shutdown.cancelled() => return,
        }
    }
}

/// Brings every aggregated role in line. What one of them gets, another one may select: the change starts this anew.
async fn aggregate(server: &Arc<Server>) {
    let listing = server.store.list(COLLECTION, "", None, 0, |_, _| true);
    let roles: Vec<(Arc<str>, Value)> = listing.items.into_iter().map(|(name, role)| (name, role.to_value())).collect();
    for (name, role) in roles.iter().filter(|(_, role)| role["aggregationRule"].is_object()) {
        let rules = selected(role, name, &roles);
        if *role["rules"].as_array().unwrap_or(&Vec::new()) == rules {
            continue;
        }
        let Some(resource) = resource_of(server, COLLECTION) else { return };
        let mut call = internal_call(server, &resource, name);
        let result = change(&mut call, Part::Main, |_, old| {
            let mut object = old.clone();
            object["rules"] = json!(rules);
            Ok(Changed { object, precondition: None, track: true })
        });
        match result.await {
            Err(problem) if problem.reason != "NotFound" => {
                tracing::warn!(%problem, name = &**name, "cannot aggregate a cluster role");
            }
            _ => {}
        }
    }
}

/// The rules of the roles that a role selects, each once, in the order of the selectors and of the names.
fn selected(role: &Value, name: &str, roles: &[(Arc<str>, Value)]) -> Vec<Value> {
    let mut rules: Vec<Value> = Vec::new();
    let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array();
    for selector in selectors.into_iter().flatten() {
        let Ok(selector) = LabelSelector::from_object(selector) else { continue };
        for (other, object) in roles {
            let label = |label: &str| object["metadata"]["labels"][label].as_str();
            if **other == *name || !selector.matches(label) {
                continue;
            }
            for rule in object["rules"].as_array().into_iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    rules
}
