//! Rules in CEL at work: every value is held against the rules of its schema.

use std::cell::OnceCell;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::correlate::{MapList, Pair};
use super::props::{Props, Rule};
use super::rules::{CompiledRule, RuleTree};
use super::validate::MAX_ERRORS;
use crate::cel::{Error, Evaluated, Program, Value as CelValue};
use crate::print::go_quoted;
use crate::status::{FieldError, FieldProblem};

/// Cost limit of one expression.
const CALL_LIMIT: u64 = 1_000_000;
/// Cost limit of all expressions for one object.
const OBJECT_BUDGET: u64 = 10_000_000;
/// Work limit of all expressions for one object, in units of [`crate::cel`]: about a second.
const OBJECT_WORK: u64 = 30_000_000;
const MAX_MESSAGE_BYTES: usize = 5 * 1024;
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The remaining budget.
#[derive(Debug)]
pub(crate) struct Budget {
    cost: u64,
    work: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { cost: OBJECT_BUDGET, work: OBJECT_WORK }
    }
}

/// Signals that no further rule is evaluated.
struct Stop;

type Walk = Result<(), Stop>;

/// Problems that the rules of a schema find in a value. `pair` is the change that the value may be part of: what
/// did not change is forgiven.
pub(crate) fn evaluate<'a>(
    tree: &'a RuleTree,
    schema: &'a Props,
    new: &'a Value,
    old: Option<&'a Value>,
    pair: Option<Pair<'a>>,
    path: &str,
    budget: &mut Budget,
) -> Vec<FieldError> {
    let root = pair.map(Change::new);
    let changes = Changes { current: root.as_ref(), nearest: None };
    let mut evaluation = Evaluation { errors: Vec::new(), budget };
    let place = EvaluatedValue { schema, new, old, changes };
    // The reason for an early end is among the errors.
    let _ = evaluation.value(tree, place, &mut path.to_owned());
    evaluation.errors
}

/// A pair that remembers whether anything changed.
struct Change<'a> {
    pair: Pair<'a>,
    unchanged: OnceCell<bool>,
}

impl<'a> Change<'a> {
    fn new(pair: Pair<'a>) -> Self {
        Self { pair, unchanged: OnceCell::new() }
    }

    fn unchanged(&self) -> bool {
        *self.unchanged.get_or_init(|| self.pair.unchanged())
    }
}

/// The change that contains a value, if it is known, and the nearest enclosing one.
#[derive(Clone, Copy)]
struct Changes<'a, 'c> {
    current: Option<&'c Change<'a>>,
    nearest: Option<&'c Change<'a>>,
}

impl Changes<'_, '_> {
    /// Whether an old value fails, which may stay.
    fn forgives(self) -> bool {
        self.current.or(self.nearest).is_some_and(Change::unchanged)
    }
}

/// A value with its type and correlation.
#[derive(Clone, Copy)]
struct EvaluatedValue<'a, 'c> {
    schema: &'a Props,
    new: &'a Value,
    old: Option<&'a Value>,
    changes: Changes<'a, 'c>,
}

struct Evaluation<'b> {
    errors: Vec<FieldError>,
    budget: &'b mut Budget,
}

impl Evaluation<'_> {
    fn value<'a>(&mut self, tree: &'a RuleTree, place: EvaluatedValue<'a, '_>, path: &mut String) -> Walk {
        // Rules about null belong to the schema around.
        if place.new.is_null() {
            return Ok(());
        }
        self.own_rules(tree, place, path)?;
        match place.new {
            Value::Object(fields) => self.fields(tree, place, fields, path),
            Value::Array(items) => self.items(tree, place, items, path),
            _ => Ok(()),
        }
    }

    fn fields<'a>(
        &mut self,
        tree: &'a RuleTree,
        place: EvaluatedValue<'a, '_>,
        fields: &'a Map<String, Value>,
        path: &mut String,
    ) -> Walk {
        let old = place.old.and_then(Value::as_object);
        let length = path.len();
        for (name, value) in fields {
            let additional = tree.additional.as_deref().zip(place.schema.additional_schema());
            let property = tree.properties.get(name.as_str()).zip(place.schema.properties.get(name.as_str()));
            for (below, is_property) in [(additional, false), (property, true)] {
                let Some((tree, schema)) = below else { continue };
                if is_property {
                    path.push_str(if length == 0 { "" } else { "." });
                    path.push_str(name);
                } else {
                    path.push_str(&format!("[{name}]"));
                }
                let changes = place.changes;
                let child = changes.current.and_then(|change| change.pair.child(name)).map(Change::new);
                // Changes of apiVersion and kind cannot be seen: both objects have been converted.
                let is_type_meta = changes.nearest.is_none() && matches!(name.as_str(), "apiVersion" | "kind");
                let below = match changes.current {
                    Some(_) if is_type_meta => Changes { current: None, nearest: None },
                    Some(current) => Changes { current: child.as_ref(), nearest: Some(current) },
                    None => changes,
                };
                let old = old.and_then(|old| old.get(name)).filter(|old| !old.is_null());
                self.value(tree, EvaluatedValue { schema, new: value, old, changes: below }, path)?;
                path.truncate(length);
            }
        }
        Ok(())
    }

    fn items<'a>(
        &mut self,
        tree: &'a RuleTree,
        place: EvaluatedValue<'a, '_>,
        items: &'a [Value],
        path: &mut String,
    ) -> Walk {
        let (Some(tree), Some(schema)) = (tree.items.as_deref(), place.schema.items.as_deref()) else {
            return Ok(());
        };
        let old_items = place.old.and_then(Value::as_array).map(|old| MapList::new(place.schema, old));
        let pairs = place.changes.current.map(|change| change.pair.items()).unwrap_or_default();
        let length = path.len();
        for (index, item) in items.iter().enumerate() {
            path.push_str(&format!("[{index}]"));
            let child = pairs.get(index).copied().flatten().map(Change::new);
            let changes = match place.changes.current {
                Some(current) => Changes { current: child.as_ref(), nearest: Some(current) },
                None => place.changes,
            };
            let old = old_items.as_ref().and_then(|old| old.get(item));
            self.value(tree, EvaluatedValue { schema, new: item, old, changes }, path)?;
            path.truncate(length);
        }
        Ok(())
    }

    fn own_rules<'a>(&mut self, tree: &'a RuleTree, place: EvaluatedValue<'a, '_>, path: &str) -> Walk {
        if tree.own.is_empty() {
            return Ok(());
        }
        if self.budget.cost == 0 {
            return Err(self.stop(path, place.schema, OUT_OF_BUDGET.to_owned()));
        }
        let variables = Variables::new(tree, place);
        for (rule, compiled) in place.schema.rules.iter().zip(&tree.own) {
            self.rule(rule, compiled, &variables, place, path)?;
        }
        Ok(())
    }

    fn rule<'a>(
        &mut self,
        rule: &Rule,
        compiled: &CompiledRule,
        variables: &Variables<'a>,
        place: EvaluatedValue<'a, '_>,
        path: &str,
    ) -> Walk {
        let program = match &compiled.program {
            Ok(program) => program,
            Err(problem) => {
                self.fail(path, place.schema, format!("rule compile error: {problem}"));
                return Ok(());
            }
        };
        let takes_absence = rule.optional_old_self == Some(true);
        if compiled.uses_old_self && place.old.is_none() && !takes_absence {
            return Ok(());
        }
        let (result, cost) = self.run(program, variables.list(takes_absence));
        let Some(left) = self.budget.cost.checked_sub(cost) else {
            return Err(self.stop(path, place.schema, OUT_OF_BUDGET.to_owned()));
        };
        self.budget.cost = left;
        match result {
            Ok(CelValue::Bool(true)) => Ok(()),
            Ok(_) => {
                let error = self.broken(rule, compiled, variables, place, path);
                let is_forgiven = !compiled.uses_old_self && place.changes.forgives();
                let (error, goes_on) = match error {
                    Ok(error) => (error, Ok(())),
                    Err(error) => (error, Err(Stop)),
                };
                if !is_forgiven {
                    self.push(error);
                }
                goes_on
            }
            Err(error) => self.failed(&error, rule, place.schema, path),
        }
    }

    fn run<'a>(&mut self, program: &Program, variables: Vec<(Arc<str>, Evaluated<'a>)>) -> (Evaluated<'a>, u64) {
        program.evaluate(variables, CALL_LIMIT, &mut self.budget.work)
    }

    /// A rule that could not be evaluated.
    fn failed(&mut self, error: &Error, rule: &Rule, schema: &Props, path: &str) -> Walk {
        let shown = shown_rule(rule);
        match error {
            Error::Limit => {
                let detail = format!(
                    "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {shown}"
                );
                Err(self.stop(path, schema, detail))
            }
            Error::NoOverload => {
                let detail = format!(
                    "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {shown}"
                );
                self.fail(path, schema, detail);
                Ok(())
            }
            Error::Other(_) => {
                self.fail(path, schema, format!("{error} evaluating rule: {shown}"));
                Ok(())
            }
        }
    }

    /// The error of a rule that says no. It is an error itself when it must be the last.
    fn broken<'a>(
        &mut self,
        rule: &Rule,
        compiled: &CompiledRule,
        variables: &Variables<'a>,
        place: EvaluatedValue<'a, '_>,
        path: &str,
    ) -> Result<FieldError, FieldError> {
        let field = match &compiled.field_path {
            Some(below) if path.is_empty() => below.clone(),
            Some(below) => format!("{path}.{below}"),
            None => path_or_root(path),
        };
        let message = match &compiled.message {
            Some(Ok(program)) => match self.message(program, rule, variables) {
                Ok(message) => message,
                Err(detail) => return Err(FieldError::invalid(field, &*place.schema.ty, detail)),
            },
            _ => None,
        };
        let detail = message.unwrap_or_else(|| match rule.message.trim() {
            "" => format!("failed rule: {}", shown_rule(rule)),
            message => message.to_owned(),
        });
        let is_shown = !matches!(&*place.schema.ty, "object" | "array");
        let value = || place.new.clone();
        let (problem, detail) = match rule.reason.as_deref() {
            Some("FieldValueForbidden") => (FieldProblem::Forbidden, detail),
            Some("FieldValueRequired") => (FieldProblem::Required, detail),
            Some("FieldValueDuplicate") if is_shown => (FieldProblem::Duplicate(value()), String::new()),
            Some("FieldValueDuplicate") => (FieldProblem::DuplicateUnshown, String::new()),
            _ if is_shown => (FieldProblem::Invalid(value()), detail),
            _ => (FieldProblem::InvalidUnshown, detail),
        };
        Ok(FieldError { field, problem, detail })
    }

    /// The result of `messageExpression`, if it is usable. The error ends the evaluation of all rules.
    fn message(&mut self, program: &Program, rule: &Rule, variables: &Variables<'_>) -> Result<Option<String>, String> {
        let (result, cost) = self.run(program, variables.list(false));
        let Some(left) = self.budget.cost.checked_sub(cost) else {
            return Err(
                "messageExpression evaluation failed due to running out of cost budget, no further validation \
                        rules will be run"
                    .to_owned(),
            );
        };
        self.budget.cost = left;
        match result {
            Ok(CelValue::String(text)) => {
                let text = text.trim();
                let is_usable = !text.is_empty() && text.len() <= MAX_MESSAGE_BYTES && !text.contains('\n');
                Ok(is_usable.then(|| text.to_owned()))
            }
            Err(Error::Limit) => Err(format!(
                "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
                go_quoted(&rule.message_expression)
            )),
            _ => Ok(None),
        }
    }

    fn push(&mut self, error: FieldError) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(error);
        }
    }

    fn fail(&mut self, path: &str, schema: &Props, detail: String) {
        self.push(FieldError::invalid(path_or_root(path), &*schema.ty, detail));
    }

    fn stop(&mut self, path: &str, schema: &Props, detail: String) -> Stop {
        self.fail(path, schema, detail);
        Stop
    }
}

/// Where errors of the whole object stand.
fn path_or_root(path: &str) -> String {
    if path.is_empty() { "<nil>".to_owned() } else { path.to_owned() }
}

fn shown_rule(rule: &Rule) -> &str {
    let text = if rule.message.is_empty() { &rule.rule } else { &rule.message };
    text.trim()
}

/// `self` and `oldSelf`.
struct Variables<'a> {
    new: Evaluated<'a>,
    /// Only when one of the rules of the same schema looks at it.
    old: Option<Evaluated<'a>>,
    has_old: bool,
}

impl<'a> Variables<'a> {
    fn new(tree: &RuleTree, place: EvaluatedValue<'a, '_>) -> Self {
        let has_old = tree.uses_old_self();
        let of = |value: &'a Value| CelValue::of(value, place.schema, tree.is_resource);
        Self { new: of(place.new), old: place.old.filter(|_| has_old).map(of), has_old }
    }

    /// The variables, with an old value that may be absent if asked for.
    fn list(&self, optional: bool) -> Vec<(Arc<str>, Evaluated<'a>)> {
        let mut list = vec![(Arc::from("self"), self.new.clone())];
        if optional && self.has_old {
            let old = self.old.clone().transpose().map(|old| CelValue::Optional(old.map(Arc::new)));
            list.push((Arc::from("oldSelf"), old));
        } else if let Some(old) = &self.old {
            list.push((Arc::from("oldSelf"), old.clone()));
        }
        list
    }
}
