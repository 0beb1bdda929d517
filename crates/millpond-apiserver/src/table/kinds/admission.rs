//! Admission: webhooks, policies and their bindings.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::read::{list, map, name, present, text};
use super::{AGE, NAME, age, integer, plain, text as column};
use crate::resource::{BuiltinColumns, ColumnDefinition};

const PARAM_KIND: ColumnDefinition = column("ParamKind", "Kind of the policy's parameters");

pub(super) static WEBHOOK_CONFIGURATION: BuiltinColumns =
    plain(&[NAME, integer("Webhooks", "Number of webhooks"), AGE], |object, now| {
        vec![json!(name(object)), json!(list(object, "/webhooks").len()), json!(age(object, now))]
    });

pub(super) static VALIDATING_POLICY: BuiltinColumns =
    plain(&[NAME, integer("Validations", "Number of rules"), PARAM_KIND, AGE], |object, now| {
        policy_cells(object, list(object, "/spec/validations").len(), now)
    });

pub(super) static MUTATING_POLICY: BuiltinColumns =
    plain(&[NAME, integer("Mutations", "Number of changes"), PARAM_KIND, AGE], |object, now| {
        policy_cells(object, list(object, "/spec/mutations").len(), now)
    });

fn policy_cells(policy: &Value, rules: usize, now: Timestamp) -> Vec<Value> {
    let parameters = if present(policy, "/spec/paramKind") {
        format!("{}/{}", text(policy, "/spec/paramKind/apiVersion"), text(policy, "/spec/paramKind/kind"))
    } else {
        "<unset>".to_owned()
    };
    vec![json!(name(policy)), json!(rules), json!(parameters), json!(age(policy, now))]
}

pub(super) static POLICY_BINDING: BuiltinColumns = plain(
    &[
        NAME,
        column("PolicyName", "Policy that is bound"),
        column("ParamRef", "Objects with the policy's parameters"),
        AGE,
    ],
    |object, now| {
        vec![
            json!(name(object)),
            json!(text(object, "/spec/policyName")),
            json!(parameters(object)),
            json!(age(object, now)),
        ]
    },
);

fn parameters(binding: &Value) -> String {
    let namespace = text(binding, "/spec/paramRef/namespace");
    match text(binding, "/spec/paramRef/name") {
        "" if present(binding, "/spec/paramRef/selector") => go_selector(&binding["spec"]["paramRef"]["selector"]),
        "" => "<unset>".to_owned(),
        name if namespace.is_empty() => format!("*/{name}"),
        name => format!("{namespace}/{name}"),
    }
}

/// A `LabelSelector` as Go prints the structure.
fn go_selector(selector: &Value) -> String {
    let mut shown = "&LabelSelector{MatchLabels:map[string]string{".to_owned();
    for (key, value) in map(selector, "/matchLabels").into_iter().flatten() {
        push(&mut shown, format_args!("{key}: {},", value.as_str().unwrap_or_default()));
    }
    shown.push_str("},MatchExpressions:[]LabelSelectorRequirement{");
    for expression in list(selector, "/matchExpressions") {
        let values: Vec<&str> = list(expression, "/values").iter().filter_map(Value::as_str).collect();
        push(
            &mut shown,
            format_args!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
                text(expression, "/key"),
                text(expression, "/operator"),
                values.join(" "),
            ),
        );
    }
    shown.push_str("},}");
    shown
}

fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("writing to a String cannot fail");
}
