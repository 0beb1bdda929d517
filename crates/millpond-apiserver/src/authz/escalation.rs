//! Escalation checks: users can grant only rights that they have.
//!
//! To write a role, a user must hold every right in it, or may `escalate` that role; to write a binding, a user must
//! hold every right of its role, or may `bind` that role.

use serde_json::Value;

use super::Decision;
use super::rule::{self, Rule};
use crate::auth::{ADMINISTRATORS, Attributes};
use crate::handlers::call::Call;
use crate::status::ApiError;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Checks a role or binding that is created, or changed where `old` is there.
pub(crate) fn check(call: &Call, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    if call.identity.is_in(ADMINISTRATORS) || old.is_some_and(|old| changes_only_collection_fields(new, old)) {
        return Ok(());
    }
    match &*call.resource.plural {
        "roles" | "clusterroles" => check_role(call, new, old),
        _ => check_binding(call, new),
    }
}

fn check_role(call: &Call, role: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    let name = call.path.name.as_deref().unwrap_or_default();
    if may(call, "escalate", &call.resource.plural, name) {
        return Ok(());
    }
    confirm(call, role, &Rule::all_of(role))?;
    let aggregates = |role: &Value| {
        role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|selectors| !selectors.is_empty())
    };
    if aggregates(role) || old.is_some_and(aggregates) {
        let everything = serde_json::json!({"rules": [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]},
        ]});
        let why = "must have cluster-admin privileges to use the aggregationRule";
        confirm(call, role, &Rule::all_of(&everything)).map_err(|_| refuse(call, role, why))?;
    }
    Ok(())
}

fn check_binding(call: &Call, binding: &Value) -> Result<(), ApiError> {
    let text = |key: &str| binding["roleRef"][key].as_str().unwrap_or_default();
    let (kind, name) = (text("kind"), text("name"));
    let plural = match kind {
        "ClusterRole" => "clusterroles",
        "Role" => "roles",
        // Validation says what is wrong.
        _ => return Ok(()),
    };
    if may(call, "bind", plural, name) {
        return Ok(());
    }
    let namespace = call.resource.namespaced.then(|| call.namespace());
    // As from kube-apiserver: the kind is that of the binding, the name that of the role.
    let missing = |_| ApiError::not_found(GROUP, &call.resource.plural, name);
    let rules = call.server.authorizer.role(kind, name, namespace).map_err(missing)?;
    confirm(call, binding, &rules)
}

fn may(call: &Call, verb: &str, plural: &str, name: &str) -> bool {
    let attributes =
        Attributes { verb, group: GROUP, resource: plural, namespace: call.namespace(), name, ..Attributes::default() };
    matches!(call.server.authorizer.decide(&call.identity, &attributes), Decision::Allow(_))
}

/// Whether the user holds all of the rules.
fn confirm(call: &Call, object: &Value, wanted: &[Rule]) -> Result<(), ApiError> {
    let (held, _, problem) = call.server.authorizer.rules_for(&call.identity, call.namespace());
    let missing = rule::missing(&held, wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let groups: Vec<String> = call.identity.groups.iter().map(|group| crate::print::go_quoted(group)).collect();
    let mut why = format!(
        "user {} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
        crate::print::go_quoted(&call.identity.user),
        groups.join(" "),
        rule::describe(&missing).join("\n"),
    );
    if let Some(problem) = problem {
        why += &format!("; resolution errors: [{problem}]");
    }
    Err(refuse(call, object, &why))
}

fn refuse(call: &Call, object: &Value, why: &str) -> ApiError {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    ApiError::forbidden(GROUP, &call.resource.plural, name, why)
}

/// The garbage collector and finalizers change these fields; that grants no rights.
fn changes_only_collection_fields(new: &Value, old: &Value) -> bool {
    let without = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
                metadata.remove(field);
            }
        }
        object
    };
    without(new) == without(old)
}
