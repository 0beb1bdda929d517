//! A ValidatingAdmissionPolicy whose expressions are compiled.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::builtin::json::Fields;
use crate::cel::{CompileError, ObjectType, Program, Type};
use crate::status::FieldError;

/// Programs of a policy.
#[derive(Debug)]
pub(crate) struct Policy {
    pub(super) name: Box<str>,
    /// `spec`, for what is looked up in it.
    pub(super) spec: Value,
    pub(super) conditions: Vec<Condition>,
    pub(super) variables: Vec<Variable>,
    pub(super) validations: Vec<Validation>,
    pub(super) audit_annotations: Vec<Condition>,
    /// Why it cannot be evaluated, if so.
    pub(super) problem: Option<String>,
}

/// A name and an expression.
#[derive(Debug)]
pub(super) struct Condition {
    pub(super) name: Box<str>,
    pub(super) source: Box<str>,
    pub(super) program: Program,
}

#[derive(Debug)]
pub(super) struct Variable {
    pub(super) name: Arc<str>,
    pub(super) program: Program,
}

#[derive(Debug)]
pub(super) struct Validation {
    pub(super) source: Box<str>,
    pub(super) program: Program,
    pub(super) message: Box<str>,
    pub(super) message_program: Option<Program>,
    pub(super) reason: Box<str>,
}

impl Policy {
    /// Compiles a policy. [`problems`] reports expressions that do not compile when the policy is written.
    pub(super) fn of(object: &Value) -> Self {
        let mut errors = Vec::new();
        let mut policy = compile(object.at("spec"), &mut errors);
        policy.name = object.at("metadata").text("name").into();
        policy.problem = errors.first().map(|error| error.detail.clone());
        policy
    }

    /// Whether a request is refused that the policy cannot judge.
    pub(super) fn fails_closed(&self) -> bool {
        self.spec.text("failurePolicy") != "Ignore"
    }
}

/// The errors in the expressions of a policy.
pub(crate) fn problems(policy: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    compile(policy.at("spec"), &mut errors);
    errors
}

fn compile(spec: &Value, errors: &mut Vec<FieldError>) -> Policy {
    let mut types = types(spec.has("paramKind"));
    let conditions = conditions(spec, "matchConditions", ("name", "expression"), &types, &Type::Bool, errors);
    let mut variables = Vec::new();
    let mut known = BTreeMap::new();
    for (index, variable) in spec.items("variables").iter().enumerate() {
        let (name, source): (Arc<str>, _) = (variable.text("name").into(), variable.text("expression").trim());
        match Program::compile_any(source, &types) {
            Ok(program) => {
                known.insert(name.clone(), program.output_type());
                variables.push(Variable { name, program });
            }
            Err(problem) => errors.push(refuse(format!("spec.variables[{index}].expression"), source, &problem, "")),
        }
        let of_variables = object("kubernetes.variables", known.clone());
        if let Some(slot) = types.iter_mut().find(|(name, _)| &**name == "variables") {
            slot.1 = of_variables;
        }
    }
    let mut validations = Vec::new();
    for (index, validation) in spec.items("validations").iter().enumerate() {
        let path = |field: &str| format!("spec.validations[{index}].{field}");
        let source = validation.text("expression").trim();
        let message_source = validation.text("messageExpression").trim();
        let message_program = match message_source {
            "" => None,
            source => match Program::compile(source, &types, &Type::String) {
                Ok(program) => Some(program),
                Err(problem) => {
                    errors.push(refuse(path("messageExpression"), source, &problem, "string"));
                    None
                }
            },
        };
        match Program::compile(source, &types, &Type::Bool) {
            Ok(program) => validations.push(Validation {
                source: source.into(),
                program,
                message: validation.text("message").trim().into(),
                message_program,
                reason: validation.text("reason").into(),
            }),
            Err(problem) => errors.push(refuse(path("expression"), source, &problem, "bool")),
        }
    }
    let audit_annotations = audit_annotations(spec, &types, errors);
    Policy {
        name: Box::default(),
        spec: spec.clone(),
        conditions,
        variables,
        validations,
        audit_annotations,
        problem: None,
    }
}

fn conditions(
    spec: &Value,
    list: &str,
    (name, expression): (&str, &str),
    types: &[(Arc<str>, Type)],
    wanted: &Type,
    errors: &mut Vec<FieldError>,
) -> Vec<Condition> {
    let mut conditions = Vec::new();
    for (index, condition) in spec.items(list).iter().enumerate() {
        let source = condition.text(expression).trim();
        match Program::compile(source, types, wanted) {
            Ok(program) => {
                conditions.push(Condition { name: condition.text(name).into(), source: source.into(), program });
            }
            Err(problem) => {
                let path = format!("spec.{list}[{index}].{expression}");
                errors.push(refuse(path, source, &problem, "bool"));
            }
        }
    }
    conditions
}

fn audit_annotations(spec: &Value, types: &[(Arc<str>, Type)], errors: &mut Vec<FieldError>) -> Vec<Condition> {
    let mut annotations = Vec::new();
    for (index, annotation) in spec.items("auditAnnotations").iter().enumerate() {
        let source = annotation.text("valueExpression").trim();
        match Program::compile_any(source, types) {
            Ok(program) => {
                annotations.push(Condition { name: annotation.text("key").into(), source: source.into(), program });
            }
            Err(problem) => {
                let path = format!("spec.auditAnnotations[{index}].valueExpression");
                errors.push(refuse(path, source, &problem, "string"));
            }
        }
    }
    annotations
}

fn refuse(path: String, source: &str, problem: &CompileError, wanted: &str) -> FieldError {
    let detail = match problem {
        CompileError::ResultType => format!("must evaluate to {wanted}"),
        problem => problem.to_string(),
    };
    FieldError::invalid(path, source, detail)
}

/// The variables that expressions see.
fn types(has_params: bool) -> Vec<(Arc<str>, Type)> {
    let mut types: Vec<(Arc<str>, Type)> = vec![
        ("object".into(), Type::Dyn),
        ("oldObject".into(), Type::Dyn),
        ("request".into(), request()),
        ("namespaceObject".into(), Type::Dyn),
        ("variables".into(), object("kubernetes.variables", BTreeMap::new())),
    ];
    if has_params {
        types.push(("params".into(), Type::Dyn));
    }
    types
}

fn object(name: &str, fields: BTreeMap<Arc<str>, Type>) -> Type {
    Type::Object(Arc::new(ObjectType { name: name.to_owned(), fields }))
}

fn fields<const N: usize>(name: &str, list: [(&str, Type); N]) -> Type {
    object(name, list.into_iter().map(|(name, ty)| (name.into(), ty)).collect())
}

/// `kubernetes.AdmissionRequest`.
fn request() -> Type {
    let kind = || {
        let list = [("group", Type::String), ("version", Type::String), ("kind", Type::String)];
        fields("kubernetes.GroupVersionKind", list)
    };
    let resource = || {
        let list = [("group", Type::String), ("version", Type::String), ("resource", Type::String)];
        fields("kubernetes.GroupVersionResource", list)
    };
    let user = fields(
        "kubernetes.UserInfo",
        [
            ("username", Type::String),
            ("uid", Type::String),
            ("groups", Type::list(Type::String)),
            ("extra", Type::map(Type::String, Type::list(Type::String))),
        ],
    );
    fields(
        "kubernetes.AdmissionRequest",
        [
            ("kind", kind()),
            ("resource", resource()),
            ("subResource", Type::String),
            ("requestKind", kind()),
            ("requestResource", resource()),
            ("requestSubResource", Type::String),
            ("name", Type::String),
            ("namespace", Type::String),
            ("operation", Type::String),
            ("userInfo", user),
            ("dryRun", Type::Bool),
            ("options", Type::Dyn),
        ],
    )
}
