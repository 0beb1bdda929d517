//! Roles and their bindings.

use serde_json::{Value, json};

use super::check::{self, Errors, ReportError};
use super::hooks::UPSERTED;
use super::json::Fields;
use super::path::Path;
use crate::names;
use crate::resource::BuiltinKind;
use crate::status::FieldError;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Role.
pub(super) const ROLE: BuiltinKind = BuiltinKind {
    validate: |new, _| {
        let mut errors = Errors::new();
        rules(new, true, &mut errors);
        errors
    },
    ..UPSERTED
};

/// ClusterRole.
pub(super) const CLUSTER_ROLE: BuiltinKind = BuiltinKind {
    validate: |new, _| {
        let mut errors = Errors::new();
        rules(new, false, &mut errors);
        aggregation(new, &mut errors);
        errors
    },
    ..UPSERTED
};

/// RoleBinding.
pub(super) const ROLE_BINDING: BuiltinKind =
    BuiltinKind { validate: |new, old| binding(new, old, &["Role", "ClusterRole"], true), ..UPSERTED };

/// ClusterRoleBinding.
pub(super) const CLUSTER_ROLE_BINDING: BuiltinKind =
    BuiltinKind { validate: |new, old| binding(new, old, &["ClusterRole"], false), ..UPSERTED };

fn rules(role: &Value, namespaced: bool, errors: &mut Errors) {
    for (index, rule) in role.items("rules").iter().enumerate() {
        let list = Path::root("rules");
        let path = list.index(index);
        if rule.items("verbs").is_empty() {
            errors.required(path.child("verbs"), "verbs must contain at least one value");
        }
        let urls = rule.items("nonResourceURLs");
        if urls.is_empty() {
            if rule.items("apiGroups").is_empty() {
                errors.required(path.child("apiGroups"), "resource rules must supply at least one api group");
            }
            if rule.items("resources").is_empty() {
                errors.required(path.child("resources"), "resource rules must supply at least one resource");
            }
            continue;
        }
        let place = path.child("nonResourceURLs");
        if namespaced {
            let detail = "namespaced rules cannot apply to non-resource URLs";
            errors.invalid(place, rule.at("nonResourceURLs").clone(), detail);
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|field| !rule.items(field).is_empty()) {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.invalid(place, rule.at("nonResourceURLs").clone(), detail);
        }
    }
}

fn aggregation(role: &Value, errors: &mut Errors) {
    if !role.has("aggregationRule") {
        return;
    }
    let rule = Path::root("aggregationRule");
    let path = rule.child("clusterRoleSelectors");
    let selectors = role.at("aggregationRule").items("clusterRoleSelectors");
    if selectors.is_empty() {
        errors.required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil");
    }
    for (index, selector) in selectors.iter().enumerate() {
        check::label_selector(selector, path.index(index), errors);
    }
}

fn binding(new: &Value, old: Option<&Value>, kinds: &[&str], namespaced: bool) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let role = new.at("roleRef");
    let path = Path::root("roleRef");
    errors.one_of(path.child("apiGroup"), role.text("apiGroup"), &[GROUP]);
    errors.one_of(path.child("kind"), role.text("kind"), kinds);
    let name = role.text("name");
    if name.is_empty() {
        errors.required(path.child("name"), "");
    } else {
        errors.each(path.child("name"), name, names::path_segment_problems(name));
    }
    for (index, subject) in new.items("subjects").iter().enumerate() {
        let list = Path::root("subjects");
        subject_of(subject, namespaced, list.index(index), &mut errors);
    }
    if old.is_some_and(|old| old.at("roleRef") != role) {
        // Shown with the names of its fields in Go.
        let shown = json!({"APIGroup": role.text("apiGroup"), "Kind": role.text("kind"), "Name": role.text("name")});
        errors.invalid(path, shown, "cannot change roleRef");
    }
    errors
}

fn subject_of(subject: &Value, namespaced: bool, path: Path<'_>, errors: &mut Errors) {
    let name = subject.text("name");
    if name.is_empty() {
        errors.required(path.child("name"), "");
    }
    match subject.text("kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.each(path.child("name"), name, names::subdomain_problems(name));
            }
            errors.one_of(path.child("apiGroup"), subject.text("apiGroup"), &[""]);
            if !namespaced && subject.text("namespace").is_empty() {
                errors.required(path.child("namespace"), "");
            }
        }
        "User" | "Group" => errors.one_of(path.child("apiGroup"), subject.text("apiGroup"), &[GROUP]),
        other => errors.not_supported(path.child("kind"), other, &["ServiceAccount", "User", "Group"]),
    }
}
