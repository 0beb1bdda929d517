//! The Common Expression Language, as Kubernetes uses it for the rules of CRDs.
//!
//! ```text
//!   text ─▶ lexer ─▶ parser (+ macros) ─▶ checker ─▶ literals ─▶ Program ─┬─▶ cost   the most it can cost
//!                                            ▲                            └─▶ eval   its value, and what it cost
//!                               decl (schema) ┘
//! ```
//!
//! Rules come from any user who may create a CRD, and run on every write of its objects, so they are not trusted:
//! texts, nesting, nodes, cost and work all have limits, and no input makes the server wait or panic. That, Kubernetes'
//! own messages and its cost model are why this engine exists beside the crates for CEL: those neither check types nor
//! count cost, and some inputs make them abort the process.
//!
//! Missing on purpose: protocol buffer messages and the authorizer, which rules of CRDs do not have.

mod ast;
mod checker;
mod compare;
mod cost;
mod eval;
mod functions;
mod issues;
mod lexer;
mod literals;
mod macros;
mod meter;
mod parser;
mod schema_type;
mod stdlib;
mod types;
mod value;

use std::sync::Arc;
use std::thread;

pub(crate) use schema_type::{MAX_REQUEST_BYTES, SchemaType};
pub(crate) use types::{ObjectType, Type};
pub(crate) use value::{Error, Evaluated, Value};

use ast::{Expr, Kind};
use checker::Facts;
use eval::Prepared;
use issues::Issues;
use meter::Meter;

/// Texts up to this length cannot nest deep enough for the stack of a worker thread.
const SHORT_BYTES: usize = 100;
/// Trees up to this depth are walked on the stack of a worker thread.
const SHALLOW: u16 = 32;
/// Room for the deepest tree there can be, with what a build without optimisation takes for each level.
const DEEP_STACK_BYTES: usize = 64 << 20;
const NO_ROOM: &str = "the server cannot start a thread for a deep expression";

/// An expression that was found to be right.
#[derive(Debug)]
pub(crate) struct Program {
    expression: Expr,
    facts: Facts,
    prepared: Prepared,
    nodes: usize,
    is_deep: bool,
}

/// Why a text is no program.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum CompileError {
    /// Wrong syntax or types; the text points at each place.
    #[error("compilation failed: {0}")]
    Issues(String),
    /// The result has another type than the wanted one.
    #[error("the result has another type")]
    ResultType,
    /// A constant that has no value.
    #[error("program instantiation failed: {0}")]
    Constants(String),
}

impl Program {
    /// Compiles an expression over variables of the given types. Its own type must be exactly the wanted one.
    pub(crate) fn compile(source: &str, variables: &[(Arc<str>, Type)], wanted: &Type) -> Result<Self, CompileError> {
        let compiled = with_room(source.len() > SHORT_BYTES, || Self::compile_here(source, variables, Some(wanted)));
        compiled.unwrap_or_else(|| Err(CompileError::Issues(NO_ROOM.to_owned())))
    }

    /// Compiles an expression of any type.
    pub(crate) fn compile_any(source: &str, variables: &[(Arc<str>, Type)]) -> Result<Self, CompileError> {
        let compiled = with_room(source.len() > SHORT_BYTES, || Self::compile_here(source, variables, None));
        compiled.unwrap_or_else(|| Err(CompileError::Issues(NO_ROOM.to_owned())))
    }

    /// The type of the expression.
    pub(crate) fn output_type(&self) -> Type {
        self.facts.type_of(&self.expression).clone()
    }

    fn compile_here(source: &str, variables: &[(Arc<str>, Type)], wanted: Option<&Type>) -> Result<Self, CompileError> {
        let mut issues = Issues::new(source);
        let Some(parsed) = parser::parse(source, &mut issues) else {
            return Err(CompileError::Issues(issues.text()));
        };
        let parser::Parsed { mut expression, nodes, depth } = parsed;
        let facts = checker::check(&mut expression, nodes, variables, &mut issues);
        if issues.is_empty() {
            literals::check(&expression, &facts, &mut issues);
        }
        if !issues.is_empty() {
            return Err(CompileError::Issues(issues.text()));
        }
        if wanted.is_some_and(|wanted| !facts.type_of(&expression).is_exactly(wanted)) {
            return Err(CompileError::ResultType);
        }
        let prepared = Prepared::new(&expression, &facts).map_err(CompileError::Constants)?;
        Ok(Self { expression, facts, prepared, nodes, is_deep: depth > SHALLOW })
    }

    /// Whether the expression reads the variable.
    pub(crate) fn uses(&self, variable: &str) -> bool {
        uses(&self.expression, variable)
    }

    /// The most that an evaluation can cost, by the schema of its variables.
    pub(crate) fn max_cost(&self, schema: &SchemaType) -> u64 {
        let estimate = || cost::estimate(&self.expression, &self.facts, schema, self.nodes).max;
        with_room(self.is_deep, estimate).unwrap_or(u64::MAX)
    }

    /// Evaluates the expression up to a cost and an amount of work, which is reduced. The cost is told also when
    /// there is an error.
    pub(crate) fn evaluate<'a>(
        &self,
        variables: Vec<(Arc<str>, Evaluated<'a>)>,
        limit: u64,
        work: &mut u64,
    ) -> (Evaluated<'a>, u64) {
        let meter = Meter::new(limit, *work);
        let evaluate = || eval::evaluate(&self.expression, &self.facts, &self.prepared, variables, meter);
        match with_room(self.is_deep, evaluate) {
            Some((result, meter)) => {
                *work = meter.work_left();
                (result, meter.cost())
            }
            None => (Err(Error::new(NO_ROOM)), 0),
        }
    }
}

/// Runs something on a stack that surely holds it. None when the system gives no thread.
fn with_room<T: Send>(is_deep: bool, run: impl FnOnce() -> T + Send) -> Option<T> {
    if !is_deep {
        return Some(run());
    }
    thread::scope(|scope| {
        let deep = thread::Builder::new().stack_size(DEEP_STACK_BYTES).spawn_scoped(scope, run).ok()?;
        Some(deep.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn uses(expression: &Expr, variable: &str) -> bool {
    match &expression.kind {
        Kind::Literal(_) | Kind::Struct { .. } => false,
        Kind::Ident(name) => name.strip_prefix('.').unwrap_or(name) == variable,
        Kind::Select { operand, .. } => uses(operand, variable),
        Kind::Call { target, arguments, .. } => {
            target.as_deref().into_iter().chain(arguments).any(|part| uses(part, variable))
        }
        Kind::List { items } => items.iter().any(|item| uses(&item.value, variable)),
        Kind::Map { entries } => entries.iter().any(|entry| uses(&entry.key, variable) || uses(&entry.value, variable)),
        Kind::Comprehension(fold) => [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result]
            .into_iter()
            .any(|part| uses(part, variable)),
    }
}

#[cfg(test)]
mod tests;
