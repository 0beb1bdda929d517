//! Rules in CEL (`x-kubernetes-validations`), compiled.
//!
//! [`RuleTree`] mirrors those parts of a schema that have rules at or below them. Registering a CRD compiles single
//! rules with [`compile`]; objects go through [`super::evaluate`].

use std::collections::BTreeMap;
use std::sync::Arc;

use super::field_path;
use super::props::{Props, Rule};
use crate::cel::{CompileError, Program, SchemaType, Type};

/// The type name of unnamed objects in messages.
const SELF_TYPE: &str = "selfType";

/// The rules of a schema and of what is below.
#[derive(Debug)]
pub(crate) struct RuleTree {
    /// One for each rule of the schema, in order.
    pub(crate) own: Vec<CompiledRule>,
    pub(crate) properties: BTreeMap<Box<str>, RuleTree>,
    pub(crate) additional: Option<Box<RuleTree>>,
    pub(crate) items: Option<Box<RuleTree>>,
    /// Values are whole objects.
    pub(crate) is_resource: bool,
}

impl RuleTree {
    /// Compiles all rules of a schema; `None` if it has none.
    pub(crate) fn new(schema: &Props, is_resource: bool) -> Option<Self> {
        // A value without a type is hidden from expressions, with everything below it.
        if !has_type(schema) {
            return None;
        }
        let below = |schema: &Props| Self::new(schema, schema.embedded_resource);
        let properties: BTreeMap<_, _> =
            schema.properties.iter().filter_map(|(name, property)| Some((name.clone(), below(property)?))).collect();
        let additional = schema.additional_schema().and_then(below).map(Box::new);
        let items = schema.items.as_deref().and_then(below).map(Box::new);
        if schema.rules.is_empty() && properties.is_empty() && additional.is_none() && items.is_none() {
            return None;
        }
        let own = compile_all(schema, is_resource).map(|(_, rules)| rules).unwrap_or_default();
        Some(Self { own, properties, additional, items, is_resource })
    }

    /// Whether one of the schema's own rules looks at the old value.
    pub(crate) fn uses_old_self(&self) -> bool {
        self.own.iter().any(|rule| rule.uses_old_self)
    }
}

/// Whether expressions can see values of the schema.
fn has_type(schema: &Props) -> bool {
    match &*schema.ty {
        _ if schema.int_or_string => true,
        "array" => schema.items.as_deref().is_some_and(has_type),
        "object" => schema.additional_schema().is_none_or(has_type),
        "string" | "boolean" | "number" | "integer" => true,
        _ => false,
    }
}

/// A rule, compiled.
#[derive(Debug)]
pub(crate) struct CompiledRule {
    /// The rule's program; the error is upstream's sentence.
    pub(crate) program: Result<Program, String>,
    /// The program of `messageExpression`, if there is one.
    pub(crate) message: Option<Result<Program, String>>,
    pub(crate) uses_old_self: bool,
    /// `fieldPath` in the notation of errors.
    pub(crate) field_path: Option<String>,
}

/// Compiles the rules of one schema, and returns the type that expressions see; `None` when they see nothing.
pub(crate) fn compile_all(schema: &Props, is_resource: bool) -> Option<(Option<SchemaType>, Vec<CompiledRule>)> {
    if schema.rules.is_empty() {
        return Some((None, Vec::new()));
    }
    let decl = SchemaType::new(schema, is_resource, SELF_TYPE)?;
    let rules = schema.rules.iter().map(|rule| compile(rule, schema, &decl)).collect();
    Some((Some(decl), rules))
}

fn compile(rule: &Rule, schema: &Props, decl: &SchemaType) -> CompiledRule {
    let old_type = match rule.optional_old_self {
        Some(true) => Type::optional(decl.ty.clone()),
        _ => decl.ty.clone(),
    };
    let variables: [(Arc<str>, Type); 2] = [("self".into(), decl.ty.clone()), ("oldSelf".into(), old_type)];
    let program = Program::compile(&rule.rule, &variables, &Type::Bool);
    let uses_old_self = match &program {
        Ok(program) => program.uses("oldSelf"),
        Err(_) => false,
    };
    let program = program.map_err(|error| match error {
        CompileError::ResultType => "cel expression must evaluate to a bool".to_owned(),
        other => other.to_string(),
    });
    let has_message = program.is_ok() && !rule.message_expression.is_empty();
    let message = has_message.then(|| {
        Program::compile(&rule.message_expression, &variables, &Type::String).map_err(|error| match error {
            CompileError::Issues(text) => format!("messageExpression compilation failed: {text}"),
            CompileError::ResultType => "messageExpression must evaluate to a string".to_owned(),
            CompileError::Constants(text) => format!("messageExpression instantiation failed: {text}"),
        })
    });
    let path = Some(&*rule.field_path).filter(|path| !path.is_empty());
    let field_path = path.and_then(|path| field_path::resolve(path, schema, true).ok()).map(|found| found.text);
    CompiledRule { program, message, uses_old_self, field_path }
}
