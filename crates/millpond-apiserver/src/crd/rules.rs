//! Validation of rules in CEL: they compile, and cannot cost too much.

use serde_json::json;

use crate::cel::{MAX_REQUEST_BYTES, Program};
use crate::go::text::json as go_json;
use crate::schema::custom::props::{Props, Rule};
use crate::schema::custom::rules::{self, CompiledRule};
use crate::status::{FieldError, FieldProblem};

/// Limit on the estimated cost of one expression.
const EXPRESSION_LIMIT: u64 = 10_000_000;
/// Limit on the estimated cost of all expressions of a schema.
const SCHEMA_LIMIT: u64 = 100_000_000;
/// How many of the most expensive expressions are named when they cost too much together.
const NAMED: usize = 4;

/// Where a schema stands, as far as its rules are concerned.
pub(super) struct SchemaLocation<'a> {
    pub(super) path: &'a str,
    /// Values are whole objects.
    pub(super) is_resource: bool,
    /// The maximum number of values; `None` if it is unlimited.
    pub(super) cardinality: Option<u64>,
    /// The nearest list or map above whose items cannot be correlated between old and new.
    pub(super) uncorrelatable: Option<&'a str>,
}

/// Checks the rules of a version's schema and adds up what they cost.
pub(super) struct Costs {
    /// The schema was accepted before, so the cost of its expressions does not matter.
    unchanged: bool,
    total: u64,
    most_expensive: Vec<(String, u64)>,
}

impl Costs {
    pub(super) fn new(unchanged: bool) -> Self {
        Self { unchanged, total: 0, most_expensive: Vec::new() }
    }

    /// Problems of the rules of one schema.
    pub(super) fn check(&mut self, schema: &Props, place: &SchemaLocation<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if schema.rules.is_empty() {
            return errors;
        }
        let path = format!("{}.x-kubernetes-validations", place.path);
        let Some((Some(decl), compiled)) = rules::compile_all(schema, place.is_resource) else {
            let detail = "internal error: failed to construct type information for x-kubernetes-validations rules: \
                          unable to convert structural schema to CEL declarations";
            errors.push(FieldError { field: path, problem: FieldProblem::Internal, detail: detail.to_owned() });
            return errors;
        };
        let most = (MAX_REQUEST_BYTES / (decl.min_size + 1)).max(0) as u64;
        let times = place.cardinality.unwrap_or(most);
        for (index, (rule, compiled)) in schema.rules.iter().zip(&compiled).enumerate() {
            let path = format!("{path}[{index}]");
            let max_cost = |program: &Program| program.max_cost(&decl);
            let cost = compiled.program.as_ref().map_or(0, max_cost).saturating_mul(times);
            self.observe("estimated rule cost", format!("{path}.rule"), cost, &mut errors);
            check_programs(rule, compiled, &path, &mut errors);
            if let Some(Ok(message)) = &compiled.message {
                let field = format!("{path}.messageExpression");
                self.observe("estimated messageExpression cost", field, max_cost(message), &mut errors);
            }
            check_old_self(rule, compiled, place, &path, &mut errors);
        }
        errors
    }

    /// Notes what an expression costs.
    fn observe(&mut self, what: &str, field: String, cost: u64, errors: &mut Vec<FieldError>) {
        if cost > EXPRESSION_LIMIT && !self.unchanged {
            errors.push(FieldError::forbidden(&field, too_expensive(what, cost, EXPRESSION_LIMIT)));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_LIMIT / 100 {
            let place = self.most_expensive.partition_point(|(_, known)| *known >= cost);
            self.most_expensive.insert(place, (field, cost));
            self.most_expensive.truncate(NAMED);
        }
    }

    /// The errors about the costs of all rules together. `path` is the path of the schema.
    pub(super) fn finish(self, path: &str, errors: &mut Vec<FieldError>) {
        if self.total <= SCHEMA_LIMIT {
            return;
        }
        for (field, _) in self.most_expensive {
            let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.push(FieldError::forbidden(field, detail));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(path, too_expensive(what, self.total, SCHEMA_LIMIT)));
    }
}

fn too_expensive(what: &str, cost: u64, limit: u64) -> String {
    let factor = match cost as f64 / limit as f64 {
        factor if factor > 100.0 => "more than 100x".to_owned(),
        // Or else it would be 1.0.
        factor if factor < 1.5 => format!("{factor:.6}x"),
        factor => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

fn check_programs(rule: &Rule, compiled: &CompiledRule, path: &str, errors: &mut Vec<FieldError>) {
    let mut fail = |field: &str, detail: &str| {
        errors.push(FieldError {
            field: format!("{path}.{field}"),
            problem: FieldProblem::InvalidAs(shown(rule)),
            detail: detail.to_owned(),
        });
    };
    if let Err(problem) = &compiled.program {
        fail("rule", problem);
    }
    if let Some(Err(problem)) = &compiled.message {
        fail("messageExpression", problem);
    }
}

fn check_old_self(
    rule: &Rule,
    compiled: &CompiledRule,
    place: &SchemaLocation<'_>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if !compiled.uses_old_self {
        if let Some(flag) = rule.optional_old_self {
            let detail = "may not be set if oldSelf is not used in rule";
            errors.push(FieldError::invalid(format!("{path}.optionalOldSelf"), flag, detail));
        }
    } else if let Some(within) = place.uncorrelatable {
        let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
        errors.push(FieldError::invalid(format!("{path}.rule"), &*rule.rule, detail));
    }
}

/// A rule as upstream shows it in errors: with the names that it has in Go.
fn shown(rule: &Rule) -> String {
    format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{},"FieldPath":{},"OptionalOldSelf":{}}}"#,
        go_json(&json!(&*rule.rule)),
        go_json(&json!(&*rule.message)),
        go_json(&json!(&*rule.message_expression)),
        go_json(&json!(rule.reason.as_deref())),
        go_json(&json!(&*rule.field_path)),
        go_json(&json!(rule.optional_old_self)),
    )
}
