//! Whether a policy or a binding matches a request.

use serde_json::Value;

use super::Admission;
use crate::builtin::json::Fields;
use crate::handlers::call::Call;
use crate::selector::LabelSelector;

/// Whether `matchConstraints` or `matchResources` are about a request. What is not there is about everything.
pub(super) fn matches(criteria: &Value, call: &Call, admission: &Admission<'_>) -> bool {
    if criteria.is_null() {
        return true;
    }
    let equivalent = criteria.text("matchPolicy") != "Exact";
    let any = |list: &str| criteria.items(list).iter().any(|rule| rule_matches(rule, call, admission, equivalent));
    selects_namespace(criteria, call, admission)
        && selects_object(criteria, admission)
        && !any("excludeResourceRules")
        && (criteria.items("resourceRules").is_empty() || any("resourceRules"))
}

fn rule_matches(rule: &Value, call: &Call, admission: &Admission<'_>, equivalent: bool) -> bool {
    let has = |list: &str, wanted: &str| rule.items(list).iter().any(|item| item == "*" || *item == *wanted);
    let (resource, subresource) = (&*call.resource.plural, admission.subresource);
    let is_resource = rule.items("resources").iter().filter_map(Value::as_str).any(|item| {
        let (own, part) = item.split_once('/').unwrap_or((item, ""));
        (own == "*" || own == resource) && (part == "*" || part == subresource)
    });
    // Other versions of a resource hold the same.
    let is_version = || {
        let resources = call.server.registry.current();
        let serves = |version: &str| resources.find(&call.resource.group, version, resource).is_some();
        rule.items("apiVersions").iter().filter_map(Value::as_str).any(serves)
    };
    let in_namespace = call.resource.namespaced;
    let names = rule.items("resourceNames");
    has("operations", admission.operation)
        && has("apiGroups", &call.resource.group)
        && (has("apiVersions", &call.resource.version) || (equivalent && is_version()))
        && is_resource
        && match rule.text("scope") {
            "Namespaced" => in_namespace,
            "Cluster" => !in_namespace,
            _ => true,
        }
        && (names.is_empty() || names.iter().any(|name| *name == *admission.name))
}

fn selector(criteria: &Value, field: &str) -> Option<LabelSelector> {
    let selector = criteria.at(field);
    let is_everything = selector.as_object().is_none_or(|fields| fields.values().all(is_empty));
    if is_everything { None } else { LabelSelector::from_object(selector).ok() }
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(serde_json::Map::is_empty)
}

fn selects_namespace(criteria: &Value, call: &Call, admission: &Admission<'_>) -> bool {
    let Some(selector) = selector(criteria, "namespaceSelector") else { return true };
    if &*call.resource.storage == "namespaces" {
        return selector.matches_object(if admission.object.is_null() { admission.old } else { admission.object });
    }
    if !call.resource.namespaced {
        return true;
    }
    let namespace = call.server.store.get("namespaces", call.namespace());
    namespace.is_some_and(|namespace| selector.matches(|label| namespace.label(label)))
}

fn selects_object(criteria: &Value, admission: &Admission<'_>) -> bool {
    let Some(selector) = selector(criteria, "objectSelector") else { return true };
    [admission.object, admission.old].iter().any(|object| !object.is_null() && selector.matches_object(object))
}
