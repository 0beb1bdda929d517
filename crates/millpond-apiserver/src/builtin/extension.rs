//! Kinds that configure an API server: admission, flow control, APIService.
//!
//! They are stored, so that clients and controllers that list or write them work. This server acts on validating
//! admission policies (`admission/policies`), and on no others.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::check::{self, Errors, ReportError};
use super::hooks::{self, CAUTIOUS, PLAIN};
use super::json::{Fields, Fill};
use super::path::Path;
use super::shape;
use crate::admission::policies;
use crate::cel::{CompileError, Program, Type};
use crate::names;
use crate::resource::BuiltinKind;

const SPEC: Path<'static> = Path::root("spec");

/// Policies and bindings without a status.
pub(super) const POLICY: BuiltinKind = BuiltinKind {
    prepare_create: first_generation,
    prepare_update: |new, old| hooks::set_generation(new, old, new.at("spec") != old.at("spec")),
    validate: |new, _| validate_policy(new),
    ..CAUTIOUS
};

/// ValidatingAdmissionPolicy.
pub(super) const VALIDATING_POLICY: BuiltinKind = BuiltinKind {
    prepare_create: hooks::start_anew,
    prepare_update: hooks::keep_status_and_count_spec,
    prepare_status: hooks::keep_all_but_status_and_metadata,
    validate: |new, _| {
        let mut errors = validate_policy(new);
        errors.extend(policies::problems(new));
        errors
    },
    ..CAUTIOUS
};

/// Webhook configurations of both kinds.
pub(super) const WEBHOOKS: BuiltinKind = BuiltinKind {
    prepare_create: first_generation,
    prepare_update: |new, old| hooks::set_generation(new, old, new.at("webhooks") != old.at("webhooks")),
    validate: |new, _| validate_webhooks(new),
    ..CAUTIOUS
};

/// FlowSchema and PriorityLevelConfiguration.
pub(super) const FLOW_CONTROL: BuiltinKind = BuiltinKind {
    prepare_create: hooks::start_anew,
    prepare_update: hooks::keep_status_and_count_spec,
    prepare_status: hooks::keep_all_but_status_and_metadata,
    ..PLAIN
};

/// APIService.
pub(super) const API_SERVICE: BuiltinKind = BuiltinKind {
    prepare_create: |service| {
        shape::preparing(service, |service| {
            service.drop("status");
            if service.at("spec").at("service").is_null() {
                let now = service.at("metadata").at("creationTimestamp").clone();
                let available = json!({
                    "type": "Available", "status": "True", "reason": "Local",
                    "message": "Local APIServices are always available", "lastTransitionTime": now,
                });
                service.put("status", json!({"conditions": [available]}));
            }
        });
    },
    prepare_update: hooks::keep_status,
    prepare_status: hooks::keep_all_but_status_and_metadata,
    validate: |new, _| validate_api_service(new),
    ..CAUTIOUS
};

fn first_generation(object: &mut Value) {
    object.object("metadata").put("generation", 1.into());
}

fn validate_policy(policy: &Value) -> Errors {
    let mut errors = Errors::new();
    let spec = policy.at("spec");
    if policy.text("kind").ends_with("Binding") {
        let name = spec.text("policyName");
        if name.is_empty() {
            errors.required(SPEC.child("policyName"), "");
        } else {
            errors.each(SPEC.child("policyName"), name, names::subdomain_problems(name));
        }
        if policy.text("kind").starts_with("Validating") && spec.items("validationActions").is_empty() {
            errors.required(SPEC.child("validationActions"), "");
        }
        return errors;
    }
    if spec.has("failurePolicy") {
        errors.one_of(SPEC.child("failurePolicy"), spec.text("failurePolicy"), &["Fail", "Ignore"]);
    }
    if spec.at("matchConstraints").is_null() {
        errors.required(SPEC.child("matchConstraints"), "");
    } else if spec.at("matchConstraints").items("resourceRules").is_empty() {
        errors.required(SPEC.child("matchConstraints").child("resourceRules"), "");
    }
    errors
}

fn validate_webhooks(configuration: &Value) -> Errors {
    let mut errors = Errors::new();
    let mut seen = HashSet::new();
    for (index, hook) in configuration.items("webhooks").iter().enumerate() {
        let list = Path::root("webhooks");
        let path = list.index(index);
        webhook(hook, path, &mut errors);
        let name = hook.text("name");
        if !name.is_empty() && !seen.insert(name) {
            errors.duplicate(path.child("name"), name);
        }
    }
    errors
}

fn webhook(hook: &Value, path: Path<'_>, errors: &mut Errors) {
    hook_name(hook.text("name"), path.child("name"), errors);
    for (field, known) in [("failurePolicy", ["Fail", "Ignore"]), ("matchPolicy", ["Equivalent", "Exact"])] {
        if hook.has(field) {
            errors.one_of(path.child(field), hook.text(field), &known);
        }
    }
    let effects = ["None", "NoneOnDryRun"];
    if hook.has("sideEffects") {
        errors.one_of(path.child("sideEffects"), hook.text("sideEffects"), &effects);
    } else {
        errors.required(path.child("sideEffects"), "must specify one of None, NoneOnDryRun");
    }
    if let Some(seconds) = hook.number("timeoutSeconds").filter(|seconds| !(1..=30).contains(seconds)) {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(path.child("timeoutSeconds"), seconds, detail);
    }
    for field in ["namespaceSelector", "objectSelector"] {
        check::label_selector(hook.at(field), path.child(field), errors);
    }
    match_conditions(hook.items("matchConditions"), path.child("matchConditions"), errors);
    if hook.has("reinvocationPolicy") {
        let known = ["IfNeeded", "Never"];
        errors.one_of(path.child("reinvocationPolicy"), hook.text("reinvocationPolicy"), &known);
    }
    let client = hook.at("clientConfig");
    if client.has("url") == client.has("service") {
        errors.required(path.child("clientConfig"), "exactly one of url or service is required");
    }
    let versions: Vec<&str> = hook.items("admissionReviewVersions").iter().filter_map(Value::as_str).collect();
    let place = path.child("admissionReviewVersions");
    if versions.is_empty() {
        errors.required(place, "must specify one of v1, v1beta1");
    } else if !versions.iter().any(|version| matches!(*version, "v1" | "v1beta1")) {
        let list = hook.at("admissionReviewVersions").clone();
        errors.invalid(place, list, "must include at least one of v1, v1beta1");
    }
}

/// Conditions on the requests that a webhook wants to see.
fn match_conditions(conditions: &[Value], path: Path<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        match condition.text("expression").trim() {
            "" => errors.required(path.child("expression"), ""),
            expression => match_expression(expression, path.child("expression"), errors),
        }
        match condition.text("name") {
            "" => errors.required(path.child("name"), ""),
            name => {
                errors.each(path.child("name"), name, names::label_key_problems(name));
                if !seen.insert(name) {
                    errors.duplicate(path.child("name"), name);
                }
            }
        }
    }
}

/// Whether the expression compiles. What it may ask the authorizer is not known here and passes unchecked.
fn match_expression(expression: &str, path: Path<'_>, errors: &mut Errors) {
    if expression.contains("authorizer") {
        return;
    }
    let variables = ["object", "oldObject", "request"].map(|name| (name.into(), Type::Dyn));
    let problem = match Program::compile(expression, &variables, &Type::Bool) {
        Ok(_) => return,
        Err(CompileError::ResultType) => "must evaluate to bool".to_owned(),
        Err(problem) => problem.to_string(),
    };
    errors.invalid(path, expression, problem);
}

fn hook_name(name: &str, path: Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    let problems = names::subdomain_problems(name);
    if !problems.is_empty() {
        errors.invalid(path, name, problems.join(","));
    } else if name.split('.').count() < 3 {
        errors.invalid(path, name, "should be a domain with at least three segments separated by dots");
    }
}

fn validate_api_service(service: &Value) -> Errors {
    let mut errors = Errors::new();
    let spec = service.at("spec");
    let name = service.at("metadata").text("name");
    let expected = format!("{}.{}", spec.text("version"), spec.text("group"));
    if name != expected {
        let detail = format!("must be `spec.version+\".\"+spec.group`: {expected:?}");
        errors.invalid(Path::root("metadata").child("name"), name, detail);
    }
    for (field, low, high) in [("groupPriorityMinimum", 1, 20000), ("versionPriority", 1, 1000)] {
        let number = spec.number(field).unwrap_or_default();
        if !(low..=high).contains(&number) {
            let detail = if field == "versionPriority" {
                "must be positive and less than 1000"
            } else {
                "must be positive and less than 20000"
            };
            errors.invalid(SPEC.child(field), number, detail);
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn match_conditions_must_compile_to_a_bool() {
        let conditions = json!([
            {"name": "named", "expression": "object.metadata.name != 'skip-me'"},
            {"name": "authorized", "expression": "authorizer.group('').resource('pods').check('get').allowed()"},
            {"name": "broken", "expression": "... [] bad expression"},
            {"name": "number", "expression": "1"},
            {"name": "named", "expression": "true"},
            {"name": "", "expression": " "},
        ]);
        let mut errors = Errors::new();
        match_conditions(conditions.as_array().unwrap(), Path::root("matchConditions"), &mut errors);
        let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 5, "{told:#?}");
        assert!(
            told[0].starts_with("matchConditions[2].expression: Invalid value: ")
                && told[0].contains("compilation failed"),
            "{}",
            told[0]
        );
        assert!(told[1].contains("matchConditions[3].expression") && told[1].contains("must evaluate to bool"));
        assert_eq!(told[2], "matchConditions[4].name: Duplicate value: \"named\"");
        assert_eq!(told[3], "matchConditions[5].expression: Required value");
        assert_eq!(told[4], "matchConditions[5].name: Required value");
    }
}
