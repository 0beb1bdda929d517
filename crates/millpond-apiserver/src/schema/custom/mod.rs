//! Custom resources: their schema, read from a CRD, and what it does to objects.
//!
//! ```text
//!   openAPIV3Schema ─▶ Props ─┬─▶ Schema      what all readers share (convert)
//!                             └─▶ Definition  prune ─▶ default ─▶ validate (+ rules in CEL)
//! ```
//!
//! A [`Definition`] hangs at the root of the shared [`Schema`], so that a resource carries all of it. Objects are plain
//! JSON; all functions are pure. Upstream's order, messages and corner cases are kept: see each module.

mod choices;
mod convert;
mod correlate;
mod defaults;
mod evaluate;
pub(crate) mod field_path;
mod formats;
mod lists;
mod metadata;
mod numbers;
pub(crate) mod props;
mod prune;
pub(crate) mod rules;
mod scale;
pub(crate) mod structural;
mod validate;

use std::sync::Arc;

use serde_json::Value;

pub(crate) use self::formats::{is_base64, is_uuid};

pub(crate) use self::evaluate::Budget;

use self::correlate::Pair;
use self::props::Props;
use self::rules::RuleTree;
use super::{Schema, strict};
use crate::resource::Scale;
use crate::status::{FieldError, FieldProblem};

const NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing \
                           errors to complete validation";

/// The validation rules of a custom resource. At the root of a resource's schema.
#[derive(Debug, Clone)]
pub struct Rules {
    definition: Arc<Definition>,
}

/// The schema of one version of a custom resource.
#[derive(Debug)]
pub struct Definition {
    schema: Props,
    rules: Option<RuleTree>,
    open_api: Value,
    scale: Option<Scale>,
}

impl Definition {
    /// Reads a schema that has been validated with its CRD.
    pub(crate) fn new(open_api: &Value, scale: Option<Scale>, path: &str) -> Result<Self, Vec<FieldError>> {
        let schema = Props::parse(open_api, path)?;
        let rules = RuleTree::new(&schema, true);
        Ok(Self { schema, rules, open_api: open_api.clone(), scale })
    }

    /// The shared form of the schema, with this definition at its root.
    pub(crate) fn into_schema(self) -> Schema {
        let mut schema = convert::resource_schema(&self.schema, &self.open_api);
        schema.rules = Some(Box::new(Rules { definition: Arc::new(self) }));
        schema
    }

    /// Whether there are CEL rules, whose evaluation may take long.
    pub(crate) fn has_rules(&self) -> bool {
        self.rules.is_some()
    }

    /// The schema as the CRD has it.
    pub fn open_api(&self) -> &Value {
        &self.open_api
    }

    /// Paths of fields that would be pruned.
    pub(crate) fn unknown_paths(&self, object: &Value) -> Vec<String> {
        let mut paths = Vec::new();
        if let Some(metadata) = object.get("metadata") {
            let below = strict::unknown_paths(metadata, &metadata::OBJECT_META);
            paths.extend(below.into_iter().map(|path| format!("metadata.{path}")));
        }
        paths.extend(prune::unknown(&self.schema, object, true));
        paths.extend(metadata::unknown_embedded(&self.schema, object));
        paths
    }

    fn prune(&self, object: &mut Value) {
        if let Some(metadata) = object.get_mut("metadata") {
            // Metadata that cannot be read is refused by the type checks.
            let _ = metadata::tidy(metadata);
        }
        prune::prune(&self.schema, object, true);
        defaults::drop_nulls(Some(&self.schema), object);
        // Likewise for the metadata of embedded objects, which validation refuses.
        let _ = metadata::tidy_embedded(&self.schema, object);
    }

    fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let pair = old.map(|old| Pair { new, old, schema: &self.schema });
        let mut errors = validate::validate(&self.schema, new, None, pair);
        if let Some(scale) = &self.scale {
            scale::validate_spec(scale, new, &mut errors);
            scale::validate_status(scale, new, &mut errors);
        }
        errors.extend(metadata::validate_embedded(&self.schema, new));
        self.validate_lists(new, old, &mut errors);
        self.validate_rules(new, old, &mut errors);
        errors
    }

    fn validate_status(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let pair = Pair { new, old, schema: &self.schema };
        if let (Some(schema), Some(status)) = (self.schema.properties.get("status"), new.get("status")) {
            errors.extend(validate::validate(schema, status, Some("status"), pair.child("status")));
        }
        if let Some(scale) = &self.scale {
            scale::validate_status(scale, new, &mut errors);
        }
        self.validate_lists(new, Some(old), &mut errors);
        self.validate_rules(new, Some(old), &mut errors);
        errors
    }

    /// Duplicates are forgiven when the old object has some, too.
    fn validate_lists(&self, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        let duplicates = lists::duplicates(&self.schema, new);
        let forgiven = || old.is_some_and(|old| !lists::duplicates(&self.schema, old).is_empty());
        if !duplicates.is_empty() && !forgiven() {
            errors.extend(duplicates);
        }
    }

    /// Rules can rely on types and sizes, so they are not evaluated when one of these is wrong.
    fn validate_rules(&self, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        let Some(rules) = &self.rules else { return };
        if errors.iter().any(is_blocking) {
            errors.push(FieldError::invalid("<nil>", Value::Null, NOT_CHECKED));
            return;
        }
        let pair = old.map(|old| Pair { new, old, schema: &self.schema });
        errors.extend(evaluate::evaluate(rules, &self.schema, new, old, pair, "", &mut Budget::default()));
    }
}

/// The definition behind a resource's schema; `None` for built-in types.
pub fn definition(schema: &Schema) -> Option<&Definition> {
    schema.rules.as_ref().map(|rules| &*rules.definition)
}

/// Drops fields that the schema does not know, and nulls where null is no value. For built-in types too.
pub fn prune(object: &mut Value, schema: &Schema) {
    match definition(schema) {
        Some(definition) => definition.prune(object),
        None => strict::drop_unknown(object, schema),
    }
}

/// Fills in the schema's defaults.
pub fn default(object: &mut Value, schema: &Schema) {
    if let Some(definition) = definition(schema) {
        defaults::fill(&definition.schema, object);
    }
}

/// Problems of a new object, or of a change when there is an old one. `metadata` of the object itself is not
/// looked at.
pub fn validate(new: &Value, old: Option<&Value>, schema: &Schema) -> Vec<FieldError> {
    definition(schema).map(|definition| definition.validate(new, old)).unwrap_or_default()
}

/// Problems of a change that comes through `/status`.
pub fn validate_status(new: &Value, old: &Value, schema: &Schema) -> Vec<FieldError> {
    definition(schema).map(|definition| definition.validate_status(new, old)).unwrap_or_default()
}

/// Problems of a default at a path. `is_resource` says that the value is a whole object.
pub(crate) fn check_default(
    schema: &Props,
    default: &Value,
    is_resource: bool,
    path: &str,
    budget: &mut Budget,
    errors: &mut Vec<FieldError>,
) {
    if !prune::unknown(schema, default, is_resource).is_empty() {
        errors.push(FieldError::invalid(path, default.clone(), "must not have unknown fields"));
    }
    let mut tidied = default.clone();
    let mut found = match metadata::tidy_embedded(schema, &mut tidied) {
        Err(error) => vec![error],
        Ok(_) => metadata::validate_embedded(schema, default),
    };
    for error in &mut found {
        error.field = format!("{path}.{}", error.field);
    }
    if found.is_empty() {
        found = validate::validate(schema, default, Some(path), None);
    }
    if found.is_empty() {
        found = broken_by_default(schema, default, is_resource, path, budget);
    }
    errors.extend(found);
}

/// The rules that a default breaks, be it new or as it was.
fn broken_by_default(
    schema: &Props,
    default: &Value,
    is_resource: bool,
    path: &str,
    budget: &mut Budget,
) -> Vec<FieldError> {
    let Some(tree) = RuleTree::new(schema, is_resource) else { return Vec::new() };
    let found = evaluate::evaluate(&tree, schema, default, Some(default), None, path, budget);
    if !found.is_empty() {
        return found;
    }
    evaluate::evaluate(&tree, schema, default, None, None, path, budget)
}

/// Problems of a default inside of `metadata`, `kind` or `apiVersion` of an object, which must stay valid with
/// it. `steps` lead from the object to the value.
pub(crate) fn check_meta_default(
    schema: &Props,
    default: &Value,
    steps: &[Step],
    path: &str,
    budget: &mut Budget,
    errors: &mut Vec<FieldError>,
) {
    let mut object = surround(default, steps);
    let problem = match object.get_mut("metadata").map(metadata::tidy) {
        Some(Err(problem)) => Some(problem),
        _ => {
            let mut found = Vec::new();
            metadata::validate("", &object, &mut found);
            let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
            match texts.as_slice() {
                [] => None,
                [one] => Some(one.clone()),
                many => Some(format!("[{}]", many.join(", "))),
            }
        }
    };
    match problem {
        Some(problem) => {
            let detail = format!("must result in valid metadata: {problem}");
            errors.push(FieldError::invalid(path, default.clone(), detail));
        }
        None => {
            let mut found = validate::validate(schema, default, Some(path), None);
            if found.is_empty() {
                found = broken_by_default(schema, default, false, path, budget);
            }
            errors.extend(found);
        }
    }
}

/// An otherwise empty object with a value at the end of some steps.
fn surround(value: &Value, steps: &[Step]) -> Value {
    let mut object = steps.iter().rev().fold(value.clone(), |value, step| match step {
        Step::Key(key) => Value::Object([(key.to_string(), value)].into_iter().collect()),
        Step::Item => Value::Array(vec![value]),
    });
    if let Value::Object(fields) = &mut object {
        fields.entry("kind").or_insert_with(|| "Validation".into());
        fields.entry("apiVersion").or_insert_with(|| "validation/v1".into());
    }
    object
}

/// One step into an object.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Under a key.
    Key(Box<str>),
    /// In a list.
    Item,
}

/// Whether an error keeps rules from being evaluated: they may rely on types, sizes and required fields.
fn is_blocking(error: &FieldError) -> bool {
    matches!(
        error.problem,
        FieldProblem::NotSupported(_)
            | FieldProblem::Required
            | FieldProblem::TooLong
            | FieldProblem::TooMany(_)
            | FieldProblem::TypeInvalid(_)
    )
}
