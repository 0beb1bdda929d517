//! The tree of an expression.

use std::sync::Arc;

/// A node: what it is, a number of its own, and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Expr {
    /// Numbers run from zero and index what later phases find out about the node.
    pub(crate) id: u32,
    /// Offset into the source, in characters.
    pub(crate) position: u32,
    pub(crate) kind: Kind,
}

/// The kind of a node.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// A constant.
    Literal(Literal),
    /// A variable, or the first part of a name with dots.
    Ident(Arc<str>),
    /// `operand.field`, or `has(operand.field)` when `test` is set.
    Select { operand: Box<Expr>, field: Arc<str>, test: bool },
    /// A call of a function or operator; `target` for calls like `target.f()`.
    Call { function: Arc<str>, target: Option<Box<Expr>>, arguments: Vec<Expr> },
    /// `[a, ?b]`.
    List { items: Vec<Item> },
    /// `{key: value}`.
    Map { entries: Vec<Entry> },
    /// `Name{field: value}`.
    Struct { name: Arc<str> },
    /// The expansion of a macro such as `all`.
    Comprehension(Box<Comprehension>),
}

/// An item of a list; optional ones are left out when they have no value.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// An entry of a map.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) key: Expr,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// A loop: an accumulator takes a step for each element of the range, as long as the condition holds.
#[derive(Debug, Clone)]
pub(crate) struct Comprehension {
    pub(crate) range: Expr,
    /// The element of a list or key of a map; with a second variable, the index or key.
    pub(crate) variable: Arc<str>,
    /// The element or value.
    pub(crate) second_variable: Option<Arc<str>>,
    pub(crate) accumulator: Arc<str>,
    pub(crate) init: Expr,
    pub(crate) condition: Expr,
    pub(crate) step: Expr,
    pub(crate) result: Expr,
}

/// A constant.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

/// Names of operators as functions.
pub(crate) mod operators {
    pub(crate) const ADD: &str = "_+_";
    pub(crate) const AND: &str = "_&&_";
    pub(crate) const CONDITIONAL: &str = "_?_:_";
    pub(crate) const EQUALS: &str = "_==_";
    pub(crate) const IN: &str = "@in";
    pub(crate) const INDEX: &str = "_[_]";
    pub(crate) const MAP_INSERT: &str = "cel.@mapInsert";
    pub(crate) const NEGATE: &str = "-_";
    pub(crate) const NOT: &str = "!_";
    pub(crate) const NOT_EQUALS: &str = "_!=_";
    pub(crate) const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";
    pub(crate) const OPTIONAL_INDEX: &str = "_[?_]";
    pub(crate) const OPTIONAL_SELECT: &str = "_?._";
    pub(crate) const OR: &str = "_||_";
    pub(crate) const SORT_BY_KEYS: &str = "@sortByAssociatedKeys";
}

/// The variable in which macros accumulate. It cannot be written in source.
pub(crate) const ACCUMULATOR: &str = "@result";

impl Expr {
    /// The name with dots that this expression spells, if it is nothing but names and dots.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            Kind::Ident(name) => Some(name.to_string()),
            Kind::Select { operand, field, test: false } => Some(format!("{}.{field}", operand.qualified_name()?)),
            _ => None,
        }
    }

    /// Whether this is the given variable.
    pub(crate) fn is_ident(&self, name: &str) -> bool {
        matches!(&self.kind, Kind::Ident(ident) if &**ident == name)
    }
}
