//! Estimates the maximum cost of an expression before it is evaluated.
//!
//! Units are those of the real server: reading a name or field costs one, traversing text a tenth per character,
//! and so on. Sizes come from the schema's limits; where there are none, from the largest request. The estimate
//! decides whether a rule is accepted, so each formula, with its quirks, is upstream's.

use std::sync::Arc;

use super::ast::{Comprehension, Expr, Kind, Literal, operators};
use super::checker::Facts;
use super::schema_type::SchemaType;
use super::types::{Named, Type};

/// Cost of traversing text, per character.
pub(crate) const STRING_FACTOR: f64 = 0.1;
/// Cost of a regular expression, per character of its pattern and unit of text.
pub(crate) const REGEX_FACTOR: f64 = 0.25;
/// Cost of making a list.
pub(crate) const LIST_COST: u64 = 10;
/// Cost of making a map.
pub(crate) const MAP_COST: u64 = 30;
/// Length that is assumed for the patterns of named formats.
pub(crate) const FORMAT_PATTERN: f64 = 128.0;

/// The least and the most of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Range {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl Range {
    const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    fn exactly(value: u64) -> Self {
        Self { min: value, max: value }
    }

    fn add(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    fn scaled(self, factor: f64) -> Self {
        Self { min: scale(self.min, factor), max: scale(self.max, factor) }
    }

    fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// Rounded up; too much stays too much.
fn scale(value: u64, factor: f64) -> u64 {
    let scaled = (value as f64 * factor).ceil();
    if scaled >= 18_446_744_073_709_551_616.0 { u64::MAX } else { scaled as u64 }
}

/// The cost of a call, and the size of its result if that is known.
struct Estimate {
    cost: Range,
    size: Option<Range>,
}

impl Estimate {
    fn of(cost: Range) -> Self {
        Self { cost, size: None }
    }
}

/// Sizes of the keys (or indices) and values of a list or map.
#[derive(Clone, Copy)]
struct EntrySizes {
    is_list: bool,
    key: Range,
    value: Range,
}

/// The steps that lead from a variable to a value.
type Path = Option<Vec<Arc<str>>>;

struct Local {
    name: Arc<str>,
    path: Path,
    size: Option<Range>,
    entries: Option<EntrySizes>,
}

/// The cost of an expression over a variable with the given schema.
pub(super) fn estimate(expression: &Expr, facts: &Facts, root: &SchemaType, nodes: usize) -> Range {
    let mut estimator = CostEstimator {
        facts,
        root,
        paths: vec![None; nodes],
        sizes: vec![None; nodes],
        entries: vec![None; nodes],
        locals: Vec::new(),
    };
    estimator.cost(expression)
}

struct CostEstimator<'a> {
    facts: &'a Facts,
    root: &'a SchemaType,
    paths: Vec<Path>,
    sizes: Vec<Option<Range>>,
    entries: Vec<Option<EntrySizes>>,
    locals: Vec<Local>,
}

/// A target or argument of a call.
struct Node<'a> {
    expression: &'a Expr,
    ty: &'a Type,
    path: Path,
    size: Option<Range>,
}

impl<'a> CostEstimator<'a> {
    fn cost(&mut self, expression: &'a Expr) -> Range {
        match &expression.kind {
            Kind::Literal(_) | Kind::Struct { .. } => Range::default(),
            Kind::Ident(name) => {
                let path = self.local(name).map_or_else(|| Some(vec![name.clone()]), |local| local.path.clone());
                self.paths[expression.id as usize] = path;
                Range::exactly(1)
            }
            Kind::Select { operand, field, test } => self.select(expression, operand, field, *test),
            Kind::Call { function, target, arguments } => self.call(expression, function, target.as_deref(), arguments),
            Kind::List { items } => self.list(expression, items.iter().map(|item| &item.value)),
            Kind::Map { entries } => {
                let parts = entries.iter().map(|entry| (&entry.key, &entry.value));
                self.map(expression, parts)
            }
            Kind::Comprehension(fold) => self.fold(expression, fold),
        }
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| &*local.name == name)
    }

    fn path_of(&self, expression: &Expr) -> Path {
        if let Kind::Ident(name) = &expression.kind
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths[expression.id as usize].clone()
    }

    /// A path with one step more.
    fn extended(path: Path, step: &str) -> Vec<Arc<str>> {
        let mut path = path.unwrap_or_default();
        path.push(step.into());
        path
    }

    fn select(&mut self, expression: &'a Expr, operand: &'a Expr, field: &str, test: bool) -> Range {
        let cost = self.cost(operand);
        if test {
            return cost;
        }
        let is_counted = matches!(self.facts.type_of(operand), Type::Map(_) | Type::Object(_) | Type::Named(_));
        self.paths[expression.id as usize] = Some(Self::extended(self.path_of(operand), field));
        cost.add(Range::exactly(u64::from(is_counted)))
    }

    /// The size that the schema allows at a path.
    fn size_at(&self, path: &Path) -> Option<Range> {
        let steps = path.as_ref().filter(|path| !path.is_empty())?;
        let mut decl = self.root;
        for step in &steps[1..] {
            match &**step {
                "@items" | "@values" => decl = decl.element.as_deref()?,
                // Keys of maps are strings of unknown length.
                "@keys" if matches!(decl.ty, Type::Map(_)) => return Some(Range::default()),
                field => decl = decl.fields.get(field)?,
            }
        }
        Some(Range { min: 0, max: decl.max_elements.max(0) as u64 })
    }

    fn size_of(&mut self, expression: &Expr) -> Option<Range> {
        if let Some(size) = self.sizes[expression.id as usize] {
            return Some(size);
        }
        if let Some(size) = written_size(expression) {
            return Some(Range::exactly(size));
        }
        if let Some(size) = self.size_at(&self.path_of(expression)) {
            self.sizes[expression.id as usize] = Some(size);
            return Some(size);
        }
        if self.facts.type_of(expression).is_scalar() {
            return Some(Range::exactly(1));
        }
        match &expression.kind {
            Kind::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    fn size_or_unknown(&mut self, expression: &Expr) -> Range {
        self.size_of(expression).unwrap_or(Range::UNKNOWN)
    }

    fn entries_of(&self, expression: &Expr) -> Option<EntrySizes> {
        self.entries[expression.id as usize].or_else(|| match &expression.kind {
            Kind::Ident(name) => self.local(name).and_then(|local| local.entries),
            _ => None,
        })
    }

    fn list(&mut self, expression: &'a Expr, items: impl ExactSizeIterator<Item = &'a Expr>) -> Range {
        let mut cost = Range::exactly(LIST_COST);
        let mut value = Range { min: if items.len() == 0 { 0 } else { u64::MAX }, max: 0 };
        for item in items {
            cost = cost.add(self.cost(item));
            value = value.union(self.size_or_unknown(item));
        }
        let entries = EntrySizes { is_list: true, key: Range::exactly(1), value };
        self.entries[expression.id as usize] = Some(entries);
        cost
    }

    fn map(&mut self, expression: &'a Expr, entries: impl ExactSizeIterator<Item = (&'a Expr, &'a Expr)>) -> Range {
        let mut cost = Range::exactly(MAP_COST);
        let empty = Range { min: if entries.len() == 0 { 0 } else { u64::MAX }, max: 0 };
        let (mut keys, mut values) = (empty, empty);
        for (key, value) in entries {
            cost = cost.add(self.cost(key)).add(self.cost(value));
            keys = keys.union(self.size_or_unknown(key));
            values = values.union(self.size_or_unknown(value));
        }
        self.entries[expression.id as usize] = Some(EntrySizes { is_list: false, key: keys, value: values });
        cost
    }

    fn fold(&mut self, expression: &'a Expr, fold: &'a Comprehension) -> Range {
        if fold.is_bind() {
            return self.bind(expression, fold);
        }
        let mut cost = self.cost(&fold.range).add(self.cost(&fold.init));
        self.push_bound(&fold.accumulator, &fold.init);
        self.push_variables(fold);
        let turn = self.cost(&fold.condition).add(self.cost(&fold.step));
        self.locals.truncate(self.locals.len() - 1 - usize::from(fold.second_variable.is_some()));
        cost = cost.add(self.cost(&fold.result));
        self.locals.pop();
        let turns = self.size_or_unknown(&fold.range);
        cost = cost.add(turns.times(turn));
        match &fold.init.kind {
            Kind::Literal(_) => self.sizes[expression.id as usize] = self.size_of(&fold.init),
            Kind::List { .. } | Kind::Map { .. } => {
                self.sizes[expression.id as usize] = Some(turns);
                if let Some(entries) = self.entries_of(&fold.step) {
                    self.entries[expression.id as usize] = Some(entries);
                }
            }
            _ => {}
        }
        cost
    }

    fn bind(&mut self, expression: &'a Expr, fold: &'a Comprehension) -> Range {
        let mut cost = self.cost(&fold.range).add(self.cost(&fold.init));
        self.push_bound(&fold.accumulator, &fold.init);
        cost = cost.add(self.cost(&fold.result));
        self.locals.pop();
        self.copy_sizes(expression, &fold.result);
        cost
    }

    fn copy_sizes(&mut self, to: &Expr, from: &Expr) {
        if let Some(size) = self.size_of(from) {
            self.sizes[to.id as usize] = Some(size);
        }
        if let Some(entries) = self.entries_of(from) {
            self.entries[to.id as usize] = Some(entries);
        }
    }

    /// Binds a variable to an expression.
    fn push_bound(&mut self, name: &Arc<str>, value: &Expr) {
        let (path, size, entries) = (self.path_of(value), self.size_of(value), self.entries_of(value));
        self.locals.push(Local { name: name.clone(), path, size, entries });
    }

    /// The variables of a loop.
    fn push_variables(&mut self, fold: &Comprehension) {
        let entries = self.entries_of(&fold.range);
        let is_list =
            entries.map_or_else(|| matches!(self.facts.type_of(&fold.range), Type::List(_)), |entries| entries.is_list);
        let path = self.path_of(&fold.range);
        let mut push = |name: &Arc<str>, step: &str, size: Option<Range>| {
            let path = Some(Self::extended(path.clone(), step));
            self.locals.push(Local { name: name.clone(), path, size, entries: None });
        };
        let key = entries.map(|entries| entries.key);
        let value = entries.map(|entries| entries.value);
        match (&fold.second_variable, is_list) {
            (None, true) => push(&fold.variable, "@items", value),
            (None, false) => push(&fold.variable, "@keys", key),
            (Some(second), true) => {
                push(&fold.variable, "@indices", key);
                push(second, "@items", value);
            }
            (Some(second), false) => {
                push(&fold.variable, "@keys", key);
                push(second, "@values", value);
            }
        }
    }

    fn node(&mut self, expression: &'a Expr) -> Node<'a> {
        let path = self.path_of(expression);
        Node { expression, ty: self.facts.type_of(expression), path, size: self.size_of(expression) }
    }

    fn call(&mut self, expression: &'a Expr, function: &str, target: Option<&'a Expr>, arguments: &'a [Expr]) -> Range {
        if let ("dyn", [argument]) = (function, arguments) {
            let cost = self.cost(argument).add(Range::exactly(1));
            self.copy_sizes(expression, argument);
            return cost;
        }
        let mut costs = Vec::with_capacity(arguments.len());
        let mut nodes = Vec::with_capacity(arguments.len());
        for argument in arguments {
            costs.push(self.cost(argument));
            nodes.push(self.node(argument));
        }
        let overloads = self.facts.overloads_of(expression);
        if overloads.is_empty() {
            return Range::default();
        }
        let target_cost = target.map(|target| self.cost(target)).unwrap_or_default();
        let target = target.map(|target| self.node(target));
        let mut cost = Range { min: u64::MAX, max: 0 };
        let mut size: Option<Range> = None;
        for overload in overloads {
            let estimate = self.overload(expression, function, overload, target.as_ref(), &nodes, &costs);
            cost = cost.union(estimate.cost);
            size = match (size, estimate.size) {
                (Some(size), Some(other)) => Some(size.union(other)),
                (size, other) => size.or(other),
            };
            let step = match *overload {
                "index_list" => Some("@items"),
                "index_map" => Some("@values"),
                _ => None,
            };
            if let (Some(step), Some(container)) = (step, arguments.first()) {
                size = self.entries_of(container).map(|entries| entries.value);
                self.paths[expression.id as usize] = Some(Self::extended(self.path_of(container), step));
            }
            size = size.or_else(|| self.size_of(expression));
        }
        if size.is_some() {
            self.sizes[expression.id as usize] = size;
        }
        target_cost.add(cost)
    }

    fn overload(
        &mut self,
        expression: &Expr,
        function: &str,
        overload: &str,
        target: Option<&Node<'a>>,
        nodes: &[Node<'a>],
        costs: &[Range],
    ) -> Estimate {
        let arguments = costs.iter().fold(Range::default(), |sum, cost| sum.add(*cost));
        let mut own = self.list_function(overload, target, nodes);
        if own.is_none() {
            own = self.library_function(function, overload, target, nodes);
        }
        if let Some(mut estimate) = own {
            estimate.cost = estimate.cost.add(arguments);
            return estimate;
        }
        self.standard_function(expression, overload, target, nodes, costs, arguments)
    }

    fn sized(&self, node: &Node<'_>) -> Range {
        node.size.or_else(|| self.size_at(&node.path)).unwrap_or(Range::UNKNOWN)
    }

    /// Lists and sets, which are judged by overload.
    fn list_function(&self, overload: &str, target: Option<&Node<'a>>, nodes: &[Node<'a>]) -> Option<Estimate> {
        let allocating = |factor: f64, size: Range| {
            let cost = size.scaled(factor).add(Range::exactly(1 + LIST_COST));
            Some(Estimate { cost, size: Some(size) })
        };
        let squared = |node: &Node<'_>, ty: &str| {
            let factor = if matches!(ty, "string" | "bytes") { 2.0 + STRING_FACTOR } else { 2.0 };
            let size = self.sized(node);
            allocating(factor, size.times(size))
        };
        match (overload, target, nodes) {
            ("list_slice", Some(target), [start, end]) => {
                let size = self.sized(target);
                let (start, end) = (int_value(start, 0), int_value(end, size.max));
                allocating(1.0, Range::exactly(end.wrapping_sub(start)))
            }
            ("lists_range", None, [count]) => allocating(1.0, Range::exactly(int_value(count, u64::MAX))),
            ("list_reverse", Some(target), []) => allocating(1.0, self.sized(target)),
            ("list_flatten", Some(target), []) => allocating(1.0, self.sized(target)),
            ("list_flatten_int", Some(target), [depth]) => {
                allocating(int_value(depth, u64::MAX) as f64, self.sized(target))
            }
            ("list_distinct", Some(target), []) => squared(target, ""),
            ("list_sets_contains_list" | "list_sets_intersects_list", None, [a, b]) => {
                Some(Estimate::of(self.sized(a).times(self.sized(b)).add(Range::exactly(1))))
            }
            ("list_sets_equivalent_list", None, [a, b]) => {
                Some(Estimate::of(self.sized(a).times(self.sized(b)).scaled(2.0).add(Range::exactly(1))))
            }
            _ => {
                let ty = overload.strip_prefix("list_")?;
                if let (Some(ty), Some(target), []) = (ty.strip_suffix("_sort"), target, nodes) {
                    return squared(target, ty);
                }
                match (ty.strip_suffix("_sortByAssociatedKeys"), nodes) {
                    (Some(ty), [keys]) => squared(keys, ty),
                    _ => None,
                }
            }
        }
    }

    /// Kubernetes' own functions, which are judged by name.
    fn library_function(
        &self,
        function: &str,
        overload: &str,
        target: Option<&Node<'a>>,
        nodes: &[Node<'a>],
    ) -> Option<Estimate> {
        let text = |node: &Node<'_>| self.sized(node).scaled(STRING_FACTOR);
        match (function, target, nodes) {
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(target), _) => {
                Some(Estimate::of(match self.element(target) {
                    None => text(target),
                    Some((ty, size)) => {
                        let mut each = Range::exactly(1);
                        if matches!(ty, Type::String | Type::Bytes) {
                            each = each.add(size.scaled(STRING_FACTOR));
                        }
                        self.sized(target).times(each)
                    }
                }))
            }
            ("url", _, [argument]) => Some(Estimate { cost: text(argument), size: Some(self.sized(argument)) }),
            ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(target), _) => {
                Some(Estimate { cost: text(target), size: Some(self.sized(target)) })
            }
            ("replace", Some(target), [from, to, ..]) => Some(Estimate {
                cost: self.sized(target).scaled(2.0 * STRING_FACTOR),
                size: Some(replaced_size(self.sized(target), self.sized(from), self.sized(to))),
            }),
            ("split", Some(target), _) => {
                let size = self.sized(target);
                let limit = nodes.get(1).and_then(|limit| literal_int(limit.expression));
                let max = limit.map_or(size.max, |limit| limit as u64);
                Some(Estimate { cost: size.scaled(2.0 * STRING_FACTOR), size: Some(Range { min: 0, max }) })
            }
            ("join", Some(target), _) => {
                let count = self.sized(target);
                let mut size = self.element(target).map(|(_, size)| count.times(size)).unwrap_or_default();
                if let Some(separator) = nodes.first() {
                    let gaps = Range { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
                    size = size.add(self.sized(separator).times(gaps));
                }
                Some(Estimate { cost: size.scaled(STRING_FACTOR), size: Some(size) })
            }
            ("find" | "findAll", Some(target), [pattern, ..]) => {
                let size = self.sized(target);
                let strings = size.add(Range::exactly(1)).scaled(STRING_FACTOR);
                let cost = strings.times(self.sized(pattern).scaled(REGEX_FACTOR));
                Some(Estimate { cost, size: Some(Range { min: 0, max: size.max }) })
            }
            ("ip", _, _) if overload == "cidr_ip" => Some(Estimate::of(Range::exactly(1))),
            (
                "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver",
                _,
                [text_node, ..],
            ) => Some(Estimate::of(text(text_node))),
            ("ip.isCanonical", _, [argument]) => Some(Estimate::of(self.sized(argument).scaled(2.0 * STRING_FACTOR))),
            ("containsIP" | "containsCIDR", _, [other]) => {
                let address = Range { min: 4, max: 16 };
                let mut cost = address.add(address).scaled(STRING_FACTOR);
                if function == "containsCIDR" {
                    cost = cost.add(address.scaled(STRING_FACTOR)).add(Range::exactly(1));
                }
                if overload.ends_with("_string") {
                    cost = cost.add(text(other));
                }
                Some(Estimate::of(cost))
            }
            ("validate", _, [argument, ..]) => Some(Estimate::of(text(argument).scaled(FORMAT_PATTERN * REGEX_FACTOR))),
            (operators::EQUALS, _, [left, right]) => named_equality(left, right),
            _ => is_nominal(function).then(|| Estimate::of(Range::exactly(1))),
        }
    }

    /// Type and size of the items of a list; `None` for a value without items.
    fn element<'n>(&self, node: &Node<'n>) -> Option<(&'n Type, Range)> {
        let ty = match node.ty {
            Type::List(item) | Type::Optional(item) | Type::Type(Some(item)) => item.as_ref(),
            Type::Map(types) => &types.0,
            _ => return None,
        };
        let size = node.path.as_ref().and_then(|_| self.size_at(&Some(Self::extended(node.path.clone(), "@items"))));
        Some((ty, size.unwrap_or(Range::UNKNOWN)))
    }

    /// The functions of the language itself.
    fn standard_function(
        &mut self,
        expression: &Expr,
        overload: &str,
        target: Option<&Node<'a>>,
        nodes: &[Node<'a>],
        costs: &[Range],
        arguments: Range,
    ) -> Estimate {
        let size = |node: &Node<'_>| node.size.unwrap_or(Range::UNKNOWN);
        match (overload, target, nodes) {
            ("string_format", Some(target), _) => Estimate::of(size(target).scaled(STRING_FACTOR).add(arguments)),
            ("string_to_bytes", _, [text]) => {
                let size = size(text);
                let bytes = Range { min: size.min, max: size.max.wrapping_mul(4) };
                Estimate { cost: size.scaled(STRING_FACTOR).add(arguments), size: Some(bytes) }
            }
            ("bytes_to_string", _, [bytes]) => {
                let size = size(bytes);
                let text = Range { min: size.min / 4, max: size.max };
                Estimate { cost: size.scaled(STRING_FACTOR).add(arguments), size: Some(text) }
            }
            ("strings_quote", _, [text]) => {
                let size = size(text);
                let quoted = Range { min: size.min.wrapping_add(2), max: size.max.wrapping_mul(2).wrapping_add(2) };
                Estimate { cost: size.scaled(STRING_FACTOR).add(arguments), size: Some(quoted) }
            }
            ("starts_with_string" | "ends_with_string", _, [part]) => {
                Estimate::of(size(part).scaled(STRING_FACTOR).add(arguments))
            }
            ("in_list", _, [_, list]) => Estimate::of(size(list).add(arguments)),
            ("matches_string", Some(target), [pattern]) => {
                let text = size(target).add(Range::exactly(1)).scaled(STRING_FACTOR);
                Estimate::of(text.times(size(pattern).scaled(REGEX_FACTOR)).add(arguments))
            }
            ("contains_string", Some(target), [part]) => {
                let cost = size(target).scaled(STRING_FACTOR).times(size(part).scaled(STRING_FACTOR));
                Estimate::of(cost.add(arguments))
            }
            ("logical_or" | "logical_and", _, _) => {
                let (left, right) = (costs[0], costs[1]);
                Estimate::of(Range { min: left.min, max: left.add(right).max })
            }
            ("conditional", _, [_, then, otherwise]) => {
                let both = size(then).union(size(otherwise));
                let entries = (self.entries_of(then.expression), self.entries_of(otherwise.expression));
                if let (Some(then), Some(otherwise)) = entries {
                    self.entries[expression.id as usize] = Some(then.union(otherwise));
                }
                Estimate { cost: costs[0].add(costs[1].union(costs[2])), size: Some(both) }
            }
            ("add_string" | "add_bytes" | "add_list", _, [left, right]) => {
                let sum = size(left).add(size(right));
                let entries = (self.entries_of(left.expression), self.entries_of(right.expression));
                if let (Some(left), Some(right)) = entries {
                    self.entries[expression.id as usize] = Some(left.union(right));
                }
                let cost = if overload == "add_list" { Range::exactly(1) } else { sum.scaled(STRING_FACTOR) };
                Estimate { cost: cost.add(arguments), size: Some(sum) }
            }
            (overload, _, [left, right]) if compares_by_size(overload) => {
                let max = size(left).max.min(size(right).max);
                let compared = Range { min: u64::from(max > 0), max };
                Estimate::of(compared.scaled(STRING_FACTOR).add(arguments))
            }
            _ => Estimate::of(Range::exactly(1).add(arguments)),
        }
    }
}

impl EntrySizes {
    fn union(self, other: Self) -> Self {
        Self { is_list: self.is_list, key: self.key.union(other.key), value: self.value.union(other.value) }
    }
}

impl Comprehension {
    /// Whether this only gives a name to a value.
    pub(crate) fn is_bind(&self) -> bool {
        matches!(&self.range.kind, Kind::List { items } if items.is_empty())
            && matches!(self.condition.kind, Kind::Literal(Literal::Bool(false)))
    }
}

/// Overloads that cost as much as reading the shorter operand.
pub(crate) fn compares_by_size(overload: &str) -> bool {
    matches!(
        overload,
        "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes"
            | "equals"
            | "not_equals"
    )
}

/// Functions that only look something up.
pub(crate) fn is_nominal(function: &str) -> bool {
    matches!(
        function,
        "masked"
            | "prefixLength"
            | "family"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast"
            | "format.named"
            | "sign"
            | "asInteger"
            | "isInteger"
            | "asApproximateFloat"
            | "isGreaterThan"
            | "isLessThan"
            | "compareTo"
            | "add"
            | "sub"
            | "major"
            | "minor"
            | "patch"
            | "getScheme"
            | "getHostname"
            | "getHost"
            | "getPort"
            | "getEscapedPath"
            | "getQuery"
    )
}

fn named_equality(left: &Node<'_>, right: &Node<'_>) -> Option<Estimate> {
    let (Type::Named(left), Type::Named(named)) = (left.ty, right.ty) else { return None };
    if left != named {
        return None;
    }
    let cost = match named {
        Named::Format => Range { min: 1, max: 64 }.scaled(STRING_FACTOR),
        Named::Url => {
            let size = right.size.unwrap_or(Range::exactly(1));
            Range { min: 1, max: size.max }.scaled(STRING_FACTOR)
        }
        _ => Range::exactly(1),
    };
    Some(Estimate::of(cost))
}

/// The size of a constant, or of a list or map that is written out.
fn written_size(expression: &Expr) -> Option<u64> {
    Some(match &expression.kind {
        Kind::Literal(Literal::String(text)) => text.chars().count() as u64,
        Kind::Literal(Literal::Bytes(bytes)) => bytes.len() as u64,
        Kind::Literal(_) => 1,
        Kind::List { items } => items.len() as u64,
        Kind::Map { entries } => entries.len() as u64,
        _ => return None,
    })
}

fn literal_int(expression: &Expr) -> Option<i64> {
    match expression.kind {
        Kind::Literal(Literal::Int(value)) => Some(value),
        _ => None,
    }
}

fn int_value(node: &Node<'_>, default: u64) -> u64 {
    literal_int(node.expression).map_or(default, |value| value.max(0) as u64)
}

/// The size of a text in which parts are replaced.
fn replaced_size(text: Range, from: Range, to: Range) -> Range {
    let quotient = |size: u64, by: u64| (size as f64 / by as f64).ceil() as u64;
    let (most, kept_most) = if from.min == 0 {
        (text.max.saturating_add(1), text.max)
    } else if to.max <= from.min {
        (0, text.max)
    } else {
        (quotient(text.max, from.min), 0)
    };
    let (least, kept_least) = if from.max == 0 {
        (text.min.saturating_add(1), text.min)
    } else if from.max <= to.min {
        (0, text.min)
    } else {
        (quotient(text.min, from.max), 0)
    };
    Range { min: least, max: most }.times(to).add(Range { min: kept_least, max: kept_most })
}
