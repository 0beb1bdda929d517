//! Validation of the schema of a version.

use serde_json::{Value, json};

use super::json_schema_defaults;
use super::rules::{self, Costs};
use crate::schema::custom::props::{Additional, Props, Rule};
use crate::schema::custom::{field_path, structural};
use crate::status::FieldError;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
/// The fields allowed at the root if `/status` exists, so that the status can be validated on its own.
const ALLOWED_AT_ROOT: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum \
     MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs \
     Example XPreserveUnknownFields XValidations]";

/// Further properties of the version.
pub(super) struct Options {
    /// `/status` exists.
    pub(super) status: bool,
    /// The schema is what it was.
    pub(super) unchanged: bool,
}

/// Problems of a schema at a path.
pub(super) fn check(schema: &Value, path: &str, options: &Options) -> Vec<FieldError> {
    let props = match Props::parse(schema, path) {
        Ok(props) => props,
        Err(errors) => return errors,
    };
    let mut errors = Vec::new();
    if options.status {
        check_root(&props, schema, path, &mut errors);
    }
    if props.nullable {
        errors.push(FieldError::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    let unreadable = structural::unreadable(&props);
    let mut usable = unreadable.is_none();
    if usable {
        let mut problems = structural::check(&props, path);
        if problems.is_empty() {
            problems = json_schema_defaults::check(&props, path);
        }
        usable = problems.is_empty();
        errors.extend(problems);
    }
    let root = Context { allow_defaults: true, cardinality: Some(1), ..Context::default() };
    let mut checker = Checker { costs: usable.then(|| Costs::new(options.unchanged)) };
    let found = checker.check(&props, path, &root, true);
    errors.extend(found.schema);
    errors.extend(found.rules);
    if let Some(problem) = unreadable.filter(|_| errors.is_empty()) {
        errors.push(FieldError::invalid(path, "", problem));
    }
    if let Some(costs) = checker.costs {
        costs.finish(path, &mut errors);
    }
    errors
}

/// With `/status`, the root may have little beyond properties.
fn check_root(props: &Props, schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let noted = &props.noted;
    let others = [
        noted.id,
        noted.schema,
        noted.reference.is_some(),
        noted.pattern_properties,
        noted.definitions,
        noted.dependencies.is_some(),
        noted.additional_items,
        props.nullable,
        props.default.is_some(),
        props.max_properties.is_some(),
        props.min_properties.is_some(),
        !props.enumeration.is_empty(),
        !props.all_of.is_empty(),
        !props.one_of.is_empty(),
        !props.any_of.is_empty(),
        props.not.is_some(),
        props.additional.is_some(),
        props.embedded_resource,
        props.int_or_string,
        !props.list_map_keys.is_empty(),
        props.list_type.is_some(),
        props.map_type.is_some(),
    ];
    if !props.ty.is_empty() && &*props.ty != "object" {
        let detail =
            r#"only "object" is allowed as the type at the root of the schema if the status subresource is enabled"#;
        errors.push(FieldError::invalid(format!("{path}.type"), &*props.ty, detail));
    } else if others.contains(&true) {
        let detail = format!(
            "only {ALLOWED_AT_ROOT} fields are allowed at the root of the schema if the status subresource is enabled"
        );
        errors.push(FieldError::invalid(path, schema.clone(), detail));
    }
}

/// The properties of a node that follow from its position.
#[derive(Clone, Default)]
struct Context {
    allow_defaults: bool,
    no_defaults_reason: String,
    /// Inside of `apiVersion`, `kind` or `metadata` of an object.
    in_meta: bool,
    /// The nearest list or map above whose items cannot be correlated between old and new.
    uncorrelatable: Option<String>,
    /// The maximum number of values; `None` if it is unlimited.
    cardinality: Option<u64>,
    /// Inside of `allOf` and its kin, where rules have no place.
    in_branch: bool,
}

impl Context {
    fn without_defaults(&self, reason: String) -> Self {
        Self { allow_defaults: false, no_defaults_reason: reason, ..self.clone() }
    }

    fn uncorrelatable_at(&self, path: &str) -> Self {
        let mut context = self.clone();
        context.uncorrelatable.get_or_insert_with(|| path.to_owned());
        context
    }
}

/// Problems of the schema itself, and of its rules.
#[derive(Default)]
struct SchemaErrors {
    schema: Vec<FieldError>,
    rules: Vec<FieldError>,
}

impl SchemaErrors {
    fn append(&mut self, other: Self) {
        self.schema.extend(other.schema);
        self.rules.extend(other.rules);
    }
}

struct Checker {
    /// The costs of rules; `None` if the schema is not structural, so that its rules cannot be compiled.
    costs: Option<Costs>,
}

impl Checker {
    fn check(&mut self, props: &Props, path: &str, context: &Context, is_root: bool) -> SchemaErrors {
        let mut found = SchemaErrors::default();
        check_keywords(props, path, context, &mut found.schema);
        if props.unique_items {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            found.schema.push(FieldError::forbidden(format!("{path}.uniqueItems"), detail));
        }
        self.check_additional(props, path, context, &mut found);
        self.check_properties(props, path, context, is_root, &mut found);
        self.check_branches(props, path, context, &mut found);
        if let Some(items) = &props.items {
            let mut below = if props.is_list_map() { context.clone() } else { context.uncorrelatable_at(path) };
            below.cardinality = cardinality_below(props, context.cardinality);
            found.append(self.check(items, &format!("{path}.items"), &below, false));
        }
        if props.preserve_unknown == Some(false) {
            let field = format!("{path}.x-kubernetes-preserve-unknown-fields");
            found.schema.push(FieldError::invalid(field, false, "must be true or undefined"));
        }
        check_map_type(props, path, &mut found.schema);
        check_list_type(props, path, &mut found.schema);
        check_list_map(props, path, &mut found.schema);
        check_set_and_map_items(props, path, &mut found.schema);
        for (index, rule) in props.rules.iter().enumerate() {
            check_rule_texts(props, rule, &format!("{path}.x-kubernetes-validations[{index}]"), &mut found.schema);
        }
        if let Some(costs) = self.costs.as_mut().filter(|_| found.schema.is_empty() && !context.in_branch) {
            let place = rules::SchemaLocation {
                path,
                is_resource: is_root || props.embedded_resource,
                cardinality: context.cardinality,
                uncorrelatable: context.uncorrelatable.as_deref(),
            };
            found.rules.extend(costs.check(props, &place));
        }
        found
    }

    fn check_additional(&mut self, props: &Props, path: &str, context: &Context, found: &mut SchemaErrors) {
        let path = format!("{path}.additionalProperties");
        if !props.properties.is_empty() && !matches!(props.additional, None | Some(Additional::Allowed(true))) {
            let detail = "additionalProperties and properties are mutual exclusive";
            found.schema.push(FieldError::forbidden(&path, detail));
        }
        if let Some(schema) = props.additional_schema() {
            let mut below = if context.in_meta {
                context.without_defaults("inside additionalProperties applying to object metadata".to_owned())
            } else {
                context.clone()
            };
            below.cardinality = cardinality_below(props, context.cardinality);
            found.append(self.check(schema, &path, &below, false));
        }
    }

    fn check_properties(
        &mut self,
        props: &Props,
        path: &str,
        context: &Context,
        is_root: bool,
        found: &mut SchemaErrors,
    ) {
        for (name, property) in &props.properties {
            let mut below = context.clone();
            below.cardinality = cardinality_below(props, context.cardinality);
            if !matches!(props.map_type.as_deref(), None | Some("granular" | "atomic")) {
                below = below.uncorrelatable_at(path);
            }
            let is_meta = matches!(&**name, "metadata" | "kind" | "apiVersion");
            if (is_root || props.embedded_resource) && is_meta {
                below.in_meta = true;
                if is_root {
                    below = below.without_defaults(format!("in top-level {name}"));
                }
            }
            found.append(self.check(property, &format!("{path}.properties[{name}]"), &below, false));
        }
    }

    fn check_branches(&mut self, props: &Props, path: &str, context: &Context, found: &mut SchemaErrors) {
        let context = &Context { in_branch: true, ..context.clone() };
        if let Some(not) = &props.not {
            found.append(self.check(not, &format!("{path}.not"), context, false));
        }
        for (kind, branches) in [("allOf", &props.all_of), ("oneOf", &props.one_of), ("anyOf", &props.any_of)] {
            for (index, branch) in branches.iter().enumerate() {
                found.append(self.check(branch, &format!("{path}.{kind}[{index}]"), context, false));
            }
        }
    }
}

/// The maximum number of values one level below a schema that has at most `own`.
fn cardinality_below(props: &Props, own: Option<u64>) -> Option<u64> {
    let bound = match &*props.ty {
        "object" if props.additional.is_some() => props.max_properties,
        "array" => props.max_items,
        _ => Some(1),
    };
    Some(own?.saturating_mul(bound?.max(0) as u64))
}

/// Keywords that CRDs do not have.
fn check_keywords(props: &Props, path: &str, context: &Context, errors: &mut Vec<FieldError>) {
    let ty = &*props.ty;
    if !ty.is_empty() && !TYPES.contains(&ty) {
        errors.push(FieldError::not_supported(format!("{path}.type"), ty, &TYPES));
    }
    if props.default.is_some() && !context.allow_defaults {
        let reason = &context.no_defaults_reason;
        let detail = if reason.is_empty() { "must not be set".to_owned() } else { format!("must not be set {reason}") };
        errors.push(FieldError::forbidden(format!("{path}.default"), detail));
    }
    let noted = &props.noted;
    let forbidden = [
        (noted.id, "id", "id is not supported"),
        (noted.additional_items, "additionalItems", "additionalItems is not supported"),
        (noted.pattern_properties, "patternProperties", "patternProperties is not supported"),
        (noted.definitions, "definitions", "definitions is not supported"),
        (noted.dependencies.is_some(), "dependencies", "dependencies is not supported"),
        (noted.reference.is_some(), "$ref", "$ref is not supported"),
        (ty == "null", "type", "type cannot be set to null, use nullable as an alternative"),
        (noted.items_list, "items", "items must be a schema object and not an array"),
        (
            context.in_meta && props.embedded_resource,
            "x-kubernetes-embedded-resource",
            "must not be used inside of resource meta",
        ),
    ];
    for (is_there, name, detail) in forbidden {
        if is_there {
            errors.push(FieldError::forbidden(format!("{path}.{name}"), detail));
        }
    }
}

/// A type that an extension asks for.
fn require_type(props: &Props, wanted: &str, detail: &str, path: &str, errors: &mut Vec<FieldError>) -> bool {
    let field = format!("{path}.type");
    match &*props.ty {
        ty if ty == wanted => return true,
        "" => errors.push(FieldError::required(field, detail)),
        ty => errors.push(FieldError::invalid(field, ty, detail)),
    }
    false
}

fn check_map_type(props: &Props, path: &str, errors: &mut Vec<FieldError>) {
    let Some(map_type) = props.map_type.as_deref() else { return };
    require_type(props, "object", "must be object if x-kubernetes-map-type is specified", path, errors);
    if !matches!(map_type, "atomic" | "granular") {
        let field = format!("{path}.x-kubernetes-map-type");
        errors.push(FieldError::not_supported(field, map_type, &["atomic", "granular"]));
    }
}

fn check_list_type(props: &Props, path: &str, errors: &mut Vec<FieldError>) {
    let Some(list_type) = props.list_type.as_deref() else { return };
    let is_array = require_type(props, "array", "must be array if x-kubernetes-list-type is specified", path, errors);
    if is_array
        && list_type == "set"
        && let Some(items) = &props.items
    {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let shown = items.list_type.as_deref().map_or(Value::Null, |list_type| json!(list_type));
        let items_list = items.list_type.as_deref();
        if &*items.ty == "array" && !matches!(items_list, None | Some("atomic")) {
            errors.push(FieldError::invalid(format!("{path}.items.x-kubernetes-list-type"), shown, detail));
        } else if &*items.ty == "object" && items.map_type.as_deref() != Some("atomic") {
            errors.push(FieldError::invalid(format!("{path}.items.x-kubernetes-map-type"), shown, detail));
        }
    }
    if !matches!(list_type, "atomic" | "set" | "map") {
        let field = format!("{path}.x-kubernetes-list-type");
        errors.push(FieldError::not_supported(field, list_type, &["atomic", "set", "map"]));
    }
}

fn check_list_map(props: &Props, path: &str, errors: &mut Vec<FieldError>) {
    let keys_field = format!("{path}.x-kubernetes-list-map-keys");
    if !props.list_map_keys.is_empty() && !props.is_list_map() {
        let field = format!("{path}.x-kubernetes-list-type");
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match props.list_type.as_deref() {
            None => FieldError::required(field, detail),
            Some(list_type) => FieldError::invalid(field, list_type, detail),
        });
    }
    if !props.is_list_map() {
        return;
    }
    if props.list_map_keys.is_empty() {
        errors.push(FieldError::required(&keys_field, "must not be empty if x-kubernetes-list-type is map"));
    }
    let Some(items) = &props.items else {
        let field = format!("{path}.items");
        errors.push(if props.noted.items_list {
            FieldError::invalid(field, Value::Null, "must only have a single schema if x-kubernetes-list-type is map")
        } else {
            FieldError::required(field, "must have a schema if x-kubernetes-list-type is map")
        });
        return;
    };
    if &*items.ty != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(format!("{path}.items.type"), &*items.ty, detail));
        return;
    }
    let shown = || json!(props.list_map_keys.iter().map(|key| &**key).collect::<Vec<_>>());
    let mut seen = std::collections::BTreeSet::new();
    for key in &props.list_map_keys {
        match items.properties.get(key) {
            Some(property) if matches!(&*property.ty, "array" | "object") => {
                let field = format!("{path}.items.properties[{key}].type");
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.push(FieldError::invalid(field, &*items.ty, detail));
            }
            Some(_) => {}
            None => {
                errors.push(FieldError::invalid(&keys_field, shown(), "entries must all be names of item properties"));
            }
        }
        if !seen.insert(key) {
            errors.push(FieldError::invalid(&keys_field, shown(), "must not contain duplicate entries"));
        }
    }
}

/// Items of sets and maps are there; keys of maps are known.
fn check_set_and_map_items(props: &Props, path: &str, errors: &mut Vec<FieldError>) {
    let (Some(items), Some(list_type @ ("set" | "map"))) = (&props.items, props.list_type.as_deref()) else { return };
    if items.nullable {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(format!("{path}.items.nullable"), detail));
    }
    if list_type == "set" {
        return;
    }
    for key in &props.list_map_keys {
        let Some(property) = items.properties.get(key) else { continue };
        let path = format!("{path}.items.properties[{key}]");
        if !items.required.contains(key) && property.default.is_none() {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(format!("{path}.default"), detail));
        }
        if property.nullable {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(format!("{path}.nullable"), detail));
        }
    }
}

fn has_newlines(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

/// The texts of a rule, before anything is compiled.
fn check_rule_texts(props: &Props, rule: &Rule, path: &str, errors: &mut Vec<FieldError>) {
    let message_field = format!("{path}.message");
    if rule.rule.trim().is_empty() {
        errors.push(FieldError::required(format!("{path}.rule"), "rule is not specified"));
    } else if !rule.message.is_empty() && rule.message.trim().is_empty() {
        errors.push(FieldError::invalid(message_field, &*rule.message, "must be non-empty if specified"));
    } else if has_newlines(rule.message.trim()) {
        errors.push(FieldError::invalid(message_field, &*rule.message, "must not contain line breaks"));
    } else if has_newlines(rule.rule.trim()) && rule.message.trim().is_empty() {
        errors.push(FieldError::required(message_field, "message must be specified if rule contains line breaks"));
    }
    if !rule.message_expression.is_empty() && rule.message_expression.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(format!("{path}.messageExpression"), detail));
    }
    if let Some(reason) = rule.reason.as_deref().filter(|reason| !REASONS.contains(reason)) {
        errors.push(FieldError::not_supported(format!("{path}.reason"), reason, &REASONS));
    }
    let field = format!("{path}.fieldPath");
    if rule.field_path.is_empty() {
        return;
    }
    if rule.field_path.trim().is_empty() {
        errors.push(FieldError::invalid(&field, &*rule.field_path, "must be non-empty if specified"));
    }
    if has_newlines(&rule.field_path) {
        errors.push(FieldError::invalid(&field, &*rule.field_path, "must not contain line breaks"));
    }
    if structural::unreadable(props).is_none() && field_path::resolve(&rule.field_path, props, true).is_err() {
        errors.push(FieldError::invalid(field, &*rule.field_path, "must be a valid path"));
    }
}
