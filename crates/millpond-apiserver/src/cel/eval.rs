//! Evaluation of a checked expression.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use regex::Regex;

use super::ast::{Comprehension, Entry, Expr, Item, Kind, Literal, operators};
use super::checker::Facts;
use super::compare;
use super::cost::{LIST_COST, MAP_COST};
use super::functions;
use super::meter::Meter;
use super::stdlib;
use super::value::{Error, Evaluated, Key, List, Map, Text, Value};

/// Work of finding out one constant.
const CONSTANT_WORK: u64 = 1_000_000;

/// The parts of an expression that can be computed before its evaluation.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    /// Values of nodes that never change.
    constants: HashMap<u32, Value<'static>>,
    /// Patterns of `matches` that are constants.
    patterns: HashMap<u32, Regex>,
}

impl Prepared {
    /// Finds constants and compiles patterns. The error is what upstream says when it makes a program.
    pub(super) fn new(expression: &Expr, facts: &Facts) -> Result<Self, String> {
        let mut prepared = Self::default();
        prepared.visit(expression, facts)?;
        Ok(prepared)
    }

    fn visit(&mut self, expression: &Expr, facts: &Facts) -> Result<(), String> {
        match &expression.kind {
            Kind::Literal(_) | Kind::Ident(_) | Kind::Struct { .. } => {}
            Kind::Select { operand, .. } => self.visit(operand, facts)?,
            Kind::Call { target, arguments, .. } => {
                for part in target.as_deref().into_iter().chain(arguments) {
                    self.visit(part, facts)?;
                }
            }
            Kind::List { items } => items.iter().try_for_each(|item| self.visit(&item.value, facts))?,
            Kind::Map { entries } => {
                for entry in entries {
                    self.visit(&entry.key, facts)?;
                    self.visit(&entry.value, facts)?;
                }
            }
            Kind::Comprehension(fold) => {
                for part in [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result] {
                    self.visit(part, facts)?;
                }
            }
        }
        if self.is_constant(expression) {
            let value = self.constant(expression, facts).map_err(|error| error.to_string())?;
            self.constants.insert(expression.id, value);
        }
        self.prepare_pattern(expression)
    }

    /// Whether a node whose parts are prepared is a constant.
    fn is_constant(&self, expression: &Expr) -> bool {
        let known = |part: &Expr| self.constants.contains_key(&part.id);
        match &expression.kind {
            Kind::Literal(_) => true,
            Kind::Ident(name) => stdlib::type_name(name).is_some(),
            Kind::List { items } => items.iter().all(|item| !item.optional && known(&item.value)),
            Kind::Map { entries } => {
                entries.iter().all(|entry| !entry.optional && known(&entry.key) && known(&entry.value))
            }
            Kind::Call { function, target: None, arguments } => match (&**function, arguments.as_slice()) {
                (
                    "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp" | "type" | "uint",
                    [argument],
                ) => known(argument),
                (operators::IN, [_, list]) => {
                    matches!(self.constants.get(&list.id), Some(Value::List(list)) if list.len() == 0)
                }
                _ => false,
            },
            _ => false,
        }
    }

    fn constant(&self, expression: &Expr, facts: &Facts) -> Evaluated<'static> {
        if let Kind::Call { function, .. } = &expression.kind
            && &**function == operators::IN
        {
            return Ok(Value::Bool(false));
        }
        let mut evaluator =
            Evaluator { facts, prepared: self, variables: Vec::new(), meter: Meter::new(u64::MAX, CONSTANT_WORK) };
        evaluator.evaluate_node(expression)
    }

    fn prepare_pattern(&mut self, expression: &Expr) -> Result<(), String> {
        let Kind::Call { function, target, arguments } = &expression.kind else { return Ok(()) };
        if &**function != "matches" {
            return Ok(());
        }
        let pattern = if target.is_some() { arguments.first() } else { arguments.get(1) };
        if let Some(Value::String(pattern)) = pattern.and_then(|pattern| self.constants.get(&pattern.id)) {
            let regex = functions::constant_pattern(pattern).map_err(|error| error.to_string())?;
            self.patterns.extend(regex.map(|regex| (expression.id, regex)));
        }
        Ok(())
    }
}

/// Evaluates an expression over variables. The meter has its cost, also when there is an error.
pub(super) fn evaluate<'a>(
    expression: &Expr,
    facts: &Facts,
    prepared: &Prepared,
    variables: Vec<(Arc<str>, Evaluated<'a>)>,
    meter: Meter,
) -> (Evaluated<'a>, Meter) {
    let variables = variables.into_iter().map(|(name, value)| (name, Variable::Known(value))).collect();
    let mut evaluator = Evaluator { facts, prepared, variables, meter };
    let result = evaluator.evaluate(expression);
    (result, evaluator.meter)
}

/// A variable: evaluated, or an expression that is evaluated on first use.
enum Variable<'p, 'a> {
    Known(Evaluated<'a>),
    Bound(&'p Expr),
}

struct Evaluator<'p, 'a> {
    facts: &'p Facts,
    prepared: &'p Prepared,
    variables: Vec<(Arc<str>, Variable<'p, 'a>)>,
    meter: Meter,
}

impl<'p, 'a> Evaluator<'p, 'a> {
    fn evaluate(&mut self, expression: &'p Expr) -> Evaluated<'a> {
        self.meter.work(1)?;
        if let Some(constant) = self.prepared.constants.get(&expression.id) {
            return Ok(constant.clone());
        }
        self.evaluate_node(expression)
    }

    fn evaluate_node(&mut self, expression: &'p Expr) -> Evaluated<'a> {
        match &expression.kind {
            Kind::Literal(literal) => Ok(literal_value(literal)),
            Kind::Ident(name) => self.ident(name, 1),
            Kind::Struct { .. } => Err(Error::NoOverload),
            Kind::Select { operand, field, test: true } => self.presence(operand, field),
            Kind::Select { .. } => self.attribute(expression, 1),
            Kind::Call { function, target, arguments } => self.call(expression, function, target.as_deref(), arguments),
            Kind::List { items } => self.list(items),
            Kind::Map { entries } => self.map(entries),
            Kind::Comprehension(fold) => self.fold(fold),
        }
    }

    fn ident(&mut self, name: &str, cost: u64) -> Evaluated<'a> {
        self.meter.spend(cost)?;
        let plain = name.strip_prefix('.').unwrap_or(name);
        if let Some(index) = self.variables.iter().rposition(|(known, _)| &**known == plain) {
            return self.variable(index);
        }
        match stdlib::type_name(plain) {
            Some(_) => Ok(Value::Type(plain.into())),
            None => Err(Error::new(format!("no such attribute(s): {plain}"))),
        }
    }

    /// The value of a variable, which is found out when it is first needed.
    fn variable(&mut self, index: usize) -> Evaluated<'a> {
        match &self.variables[index].1 {
            Variable::Known(value) => value.clone(),
            Variable::Bound(expression) => {
                // The expression stands outside of all that came later.
                let expression = *expression;
                let later = self.variables.split_off(index + 1);
                let own = self.variables.pop();
                let value = self.evaluate(expression);
                if let Some((name, _)) = own {
                    self.variables.push((name, Variable::Known(value.clone())));
                }
                self.variables.extend(later);
                value
            }
        }
    }

    /// Names, selections and indices. `cost` is what reading the name at their root costs: nothing where upstream
    /// resolves it in passing.
    fn attribute(&mut self, expression: &'p Expr, cost: u64) -> Evaluated<'a> {
        match &expression.kind {
            Kind::Ident(name) => self.ident(name, cost),
            Kind::Select { operand, field, test: false } => {
                let operand = self.operand(operand, cost)?;
                self.meter.spend(1)?;
                select(&operand, field)
            }
            Kind::Call { function, target: None, arguments } => match (&**function, arguments.as_slice()) {
                (operators::OPTIONAL_SELECT, [operand, field]) => {
                    let operand = self.operand(operand, cost)?;
                    let Kind::Literal(Literal::String(field)) = &field.kind else { return Err(Error::NoOverload) };
                    self.optional_select(&operand, &Value::String(Text::Made(field.clone())))
                }
                (operators::INDEX, [operand, index]) => {
                    let operand = self.operand(operand, cost)?;
                    let index = self.attribute_or_value(index)?;
                    self.meter.spend(1)?;
                    self.index(&operand, &index)
                }
                (operators::OPTIONAL_INDEX, [operand, index]) => {
                    let operand = self.operand(operand, cost)?;
                    let index = self.attribute_or_value(index)?;
                    self.optional_select(&operand, &index)
                }
                (operators::CONDITIONAL, [condition, then, otherwise]) => match self.evaluate(condition)? {
                    Value::Bool(true) => self.attribute_or_value(then),
                    Value::Bool(false) => self.attribute_or_value(otherwise),
                    _ => Err(Error::NoOverload),
                },
                _ => self.evaluate(expression),
            },
            _ => self.evaluate(expression),
        }
    }

    /// The operand of a selection: an attribute, or any value, which is then the root.
    fn operand(&mut self, operand: &'p Expr, cost: u64) -> Evaluated<'a> {
        if is_attribute(operand) && !self.prepared.constants.contains_key(&operand.id) {
            self.meter.work(1)?;
            return self.attribute(operand, cost);
        }
        let value = self.evaluate(operand)?;
        self.meter.spend(cost)?;
        Ok(value)
    }

    fn attribute_or_value(&mut self, expression: &'p Expr) -> Evaluated<'a> {
        if is_attribute(expression) && !self.prepared.constants.contains_key(&expression.id) {
            self.meter.work(1)?;
            return self.attribute(expression, 0);
        }
        self.evaluate(expression)
    }

    /// Selects what may be absent. Only what is there costs.
    fn optional_select(&mut self, operand: &Value<'a>, key: &Value<'_>) -> Evaluated<'a> {
        let selected = optional_select(operand, key)?;
        self.meter.spend(u64::from(matches!(selected, Value::Optional(Some(_)))))?;
        Ok(selected)
    }

    fn index(&mut self, operand: &Value<'a>, index: &Value<'a>) -> Evaluated<'a> {
        match operand {
            Value::Optional(None) => Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => optional_select(inner, index),
            _ => match find(operand, index)? {
                Some(value) => Ok(value),
                None => Err(missing(operand, index)),
            },
        }
    }

    /// `has(operand.field)`, which costs only what the operand costs.
    fn presence(&mut self, operand: &'p Expr, field: &str) -> Evaluated<'a> {
        let operand = self.evaluate(operand)?;
        let operand = match operand {
            Value::Optional(None) => return Ok(Value::Bool(false)),
            Value::Optional(Some(inner)) => inner.as_ref().clone(),
            other => other,
        };
        let found = find(&operand, &Value::String(Text::Borrowed(field)))?;
        Ok(Value::Bool(found.is_some()))
    }

    fn list(&mut self, items: &'p [Item]) -> Evaluated<'a> {
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            match (self.evaluate(&item.value)?, item.optional) {
                (Value::Optional(value), true) => values.extend(value.map(|value| value.as_ref().clone())),
                (value, _) => values.push(value),
            }
        }
        self.meter.spend(LIST_COST)?;
        self.meter.make(values.len())?;
        Ok(Value::List(List::made(values)))
    }

    fn map(&mut self, entries: &'p [Entry]) -> Evaluated<'a> {
        let mut map = BTreeMap::new();
        for entry in entries {
            let key = self.evaluate(&entry.key)?;
            let value = self.evaluate(&entry.value)?;
            let Some(name) = Key::new(&key) else {
                return Err(Error::new(format!("unsupported key type: {}", key.type_name())));
            };
            match (value, entry.optional) {
                // Takes an earlier entry away, too.
                (Value::Optional(None), true) => map.remove(&name),
                (Value::Optional(Some(value)), true) => map.insert(name, (key, value.as_ref().clone())),
                (value, _) => map.insert(name, (key, value)),
            };
        }
        self.meter.spend(MAP_COST)?;
        self.meter.make(map.len())?;
        Ok(Value::Map(Map::made(map)))
    }

    fn call(
        &mut self,
        expression: &'p Expr,
        function: &str,
        target: Option<&'p Expr>,
        arguments: &'p [Expr],
    ) -> Evaluated<'a> {
        match (function, arguments) {
            (operators::AND, [left, right]) => self.logical(left, right, false),
            (operators::OR, [left, right]) => self.logical(left, right, true),
            (operators::NOT_STRICTLY_FALSE, [argument]) => {
                let value = match self.evaluate(argument) {
                    Err(Error::Limit) => return Err(Error::Limit),
                    Ok(Value::Bool(flag)) => flag,
                    _ => true,
                };
                self.meter.spend(1)?;
                Ok(Value::Bool(value))
            }
            (operators::INDEX | operators::OPTIONAL_INDEX | operators::OPTIONAL_SELECT | operators::CONDITIONAL, _) => {
                self.attribute(expression, 1)
            }
            (operators::IN, [item, list]) => match self.prepared.constants.get(&list.id) {
                Some(Value::List(items)) => self.constant_membership(item, items),
                _ => self.plain_call(expression, function, target, arguments),
            },
            ("or" | "orValue", [alternative]) if target.is_some() => self.or(function, target, alternative),
            _ => self.plain_call(expression, function, target, arguments),
        }
    }

    fn plain_call(
        &mut self,
        expression: &'p Expr,
        function: &str,
        target: Option<&'p Expr>,
        arguments: &'p [Expr],
    ) -> Evaluated<'a> {
        let mut values = Vec::with_capacity(arguments.len() + 1);
        let mut problem = None;
        for part in target.into_iter().chain(arguments) {
            match self.evaluate(part) {
                Ok(value) => values.push(value),
                Err(Error::Limit) => return Err(Error::Limit),
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        if let Some(problem) = problem {
            // A call that is not made still costs, the least.
            self.meter.spend(1)?;
            return Err(problem);
        }
        let overload = match self.facts.overloads_of(expression) {
            [one] => one,
            _ => "",
        };
        let pattern = self.prepared.patterns.get(&expression.id);
        functions::call(function, overload, &values, pattern, &mut self.meter)
    }

    /// `&&` and `||`: the deciding value wins over an error on the other side.
    fn logical(&mut self, left: &'p Expr, right: &'p Expr, deciding: bool) -> Evaluated<'a> {
        let mut problem = None;
        for term in [left, right] {
            match self.evaluate(term) {
                Err(Error::Limit) => return Err(Error::Limit),
                Ok(Value::Bool(value)) if value == deciding => return Ok(Value::Bool(deciding)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => problem = problem.or(Some(Error::NoOverload)),
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        problem.map_or(Ok(Value::Bool(!deciding)), Err)
    }

    /// `in` with a constant list, which upstream turns into a lookup that costs nothing.
    fn constant_membership(&mut self, item: &'p Expr, items: &'p List<'static>) -> Evaluated<'a> {
        let value = self.evaluate(item)?;
        for candidate in items.iter() {
            if compare::equal(&value, &candidate?, &mut self.meter)? {
                return Ok(Value::Bool(true));
            }
        }
        Ok(Value::Bool(false))
    }

    /// `optional.or(…)` and `optional.orValue(…)`: the alternative is only looked at when it is needed.
    fn or(&mut self, function: &str, target: Option<&'p Expr>, alternative: &'p Expr) -> Evaluated<'a> {
        let Some(target) = target else { return Err(Error::NoOverload) };
        match self.evaluate(target)? {
            Value::Optional(Some(value)) if function == "orValue" => Ok(value.as_ref().clone()),
            value @ Value::Optional(Some(_)) => Ok(value),
            Value::Optional(None) => self.evaluate(alternative),
            _ => Err(Error::NoOverload),
        }
    }

    fn fold(&mut self, fold: &'p Comprehension) -> Evaluated<'a> {
        if fold.is_bind() {
            self.variables.push((fold.accumulator.clone(), Variable::Bound(&fold.init)));
            let result = self.evaluate(&fold.result);
            self.variables.pop();
            return result;
        }
        let range = self.evaluate(&fold.range)?;
        let init = self.evaluate(&fold.init)?;
        let outer = self.variables.len();
        self.variables.push((fold.accumulator.clone(), Variable::Known(Ok(init))));
        let result = self.run(fold, range, outer);
        let result = result.and_then(|()| self.evaluate(&fold.result));
        self.variables.truncate(outer);
        result
    }

    /// The turns of a loop; the accumulator is the variable at `outer`.
    fn run(&mut self, fold: &'p Comprehension, range: Value<'a>, outer: usize) -> Result<(), Error> {
        match range {
            Value::List(list) => {
                for index in 0..list.len() {
                    let Some(item) = list.get(index) else { break };
                    let (first, second) = match &fold.second_variable {
                        Some(_) => (Ok(Value::Int(index as i64)), Some(item)),
                        None => (item, None),
                    };
                    if !self.turn(fold, outer, first, second)? {
                        break;
                    }
                }
                Ok(())
            }
            Value::Map(map) => {
                for key in map.keys() {
                    let value = fold.second_variable.as_ref().and_then(|_| map.find(&key));
                    if !self.turn(fold, outer, Ok(key), value)? {
                        break;
                    }
                }
                Ok(())
            }
            _ => Err(Error::NoOverload),
        }
    }

    /// One iteration; false if the loop is over.
    fn turn(
        &mut self,
        fold: &'p Comprehension,
        outer: usize,
        first: Evaluated<'a>,
        second: Option<Evaluated<'a>>,
    ) -> Result<bool, Error> {
        self.variables.push((fold.variable.clone(), Variable::Known(first)));
        if let (Some(name), Some(value)) = (&fold.second_variable, second) {
            self.variables.push((name.clone(), Variable::Known(value)));
        }
        let goes_on = match self.evaluate(&fold.condition) {
            Ok(Value::Bool(flag)) => flag,
            Err(Error::Limit) => return Err(Error::Limit),
            _ => true,
        };
        let step = if goes_on { Some(self.step(&fold.step, outer)) } else { None };
        self.variables.truncate(outer + 1);
        match step {
            None => Ok(false),
            Some(Err(Error::Limit)) => Err(Error::Limit),
            Some(value) => {
                self.variables[outer].1 = Variable::Known(value);
                Ok(true)
            }
        }
    }

    /// The accumulator's next value. Lists and maps that only grow are not copied.
    fn step(&mut self, step: &'p Expr, outer: usize) -> Evaluated<'a> {
        let Kind::Call { function, target: None, arguments } = &step.kind else { return self.evaluate(step) };
        let accumulator = self.variables[outer].0.clone();
        let grows = arguments.first().is_some_and(|first| first.is_ident(&accumulator));
        match (&**function, arguments.as_slice()) {
            (operators::CONDITIONAL, [filter, then, otherwise]) if otherwise.is_ident(&accumulator) => {
                match self.evaluate(filter)? {
                    Value::Bool(true) => self.step(then, outer),
                    // The accumulator as a branch costs nothing to read.
                    Value::Bool(false) => self.take(outer),
                    _ => Err(Error::NoOverload),
                }
            }
            (operators::ADD, [_, Expr { kind: Kind::List { items }, .. }])
                if grows && items.len() == 1 && !items[0].optional =>
            {
                self.meter.spend(1)?;
                let item = self.evaluate(&items[0].value);
                if matches!(item, Err(Error::Limit)) {
                    return item;
                }
                let is_constant = self.prepared.constants.contains_key(&arguments[1].id);
                self.meter.spend(if is_constant { 1 } else { LIST_COST + 1 })?;
                self.meter.make(1)?;
                match self.take(outer)? {
                    Value::List(mut list) => {
                        list.push(item?);
                        Ok(Value::List(list))
                    }
                    _ => Err(Error::NoOverload),
                }
            }
            (operators::MAP_INSERT, [_, inserted @ ..]) if grows => {
                self.meter.spend(1)?;
                let mut values = Vec::with_capacity(inserted.len());
                for part in inserted {
                    values.push(self.evaluate(part)?);
                }
                self.meter.spend(1)?;
                self.meter.make(1)?;
                let map = self.take(outer)?;
                functions::insert(map, values)
            }
            _ => self.evaluate(step),
        }
    }

    /// Takes the accumulator's value out, so that it can be changed in place.
    fn take(&mut self, outer: usize) -> Evaluated<'a> {
        match std::mem::replace(&mut self.variables[outer].1, Variable::Known(Ok(Value::Null))) {
            Variable::Known(value) => value,
            Variable::Bound(expression) => self.evaluate(expression),
        }
    }
}

fn literal_value<'a>(literal: &Literal) -> Value<'a> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(flag) => Value::Bool(*flag),
        Literal::Int(number) => Value::Int(*number),
        Literal::Uint(number) => Value::Uint(*number),
        Literal::Double(number) => Value::Double(*number),
        Literal::String(text) => Value::String(Text::Made(text.clone())),
        Literal::Bytes(bytes) => Value::Bytes(bytes.clone()),
    }
}

/// Names, selections, indices, and choices between values.
fn is_attribute(expression: &Expr) -> bool {
    match &expression.kind {
        Kind::Ident(_) | Kind::Select { test: false, .. } => true,
        Kind::Call { function, target: None, .. } => matches!(
            &**function,
            operators::INDEX | operators::OPTIONAL_INDEX | operators::OPTIONAL_SELECT | operators::CONDITIONAL
        ),
        _ => false,
    }
}

/// The part of a container under a key or index; `None` if it does not exist.
fn find<'a>(container: &Value<'a>, key: &Value<'_>) -> Result<Option<Value<'a>>, Error> {
    match container {
        Value::Map(map) => map.find(key).transpose(),
        Value::List(list) => {
            let index = match key {
                Value::Int(index) => usize::try_from(*index).ok(),
                Value::Uint(index) => usize::try_from(*index).ok(),
                Value::Double(index) if index.fract() == 0.0 && *index >= 0.0 => Some(*index as usize),
                _ => return Err(Error::NoOverload),
            };
            index.and_then(|index| list.get(index)).transpose()
        }
        _ => Err(Error::NoOverload),
    }
}

fn missing(container: &Value<'_>, key: &Value<'_>) -> Error {
    let key = functions::shown(key);
    Error::new(match container {
        Value::List(_) => format!("index out of bounds: {key}"),
        _ => format!("no such key: {key}"),
    })
}

fn select<'a>(operand: &Value<'a>, field: &str) -> Evaluated<'a> {
    let key = Value::String(Text::Borrowed(field));
    match operand {
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => optional_select(inner, &key),
        _ => find(operand, &key)?.ok_or_else(|| missing(operand, &key)),
    }
}

/// The part under a key as an optional value.
fn optional_select<'a>(operand: &Value<'a>, key: &Value<'_>) -> Evaluated<'a> {
    match operand {
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => optional_select(inner, key),
        _ => Ok(Value::Optional(find(operand, key)?.map(Arc::new))),
    }
}
