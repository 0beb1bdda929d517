//! Macros: calls that are expanded into larger expressions.

use std::sync::Arc;

use super::ast::{ACCUMULATOR, Comprehension, Expr, Item, Kind, Literal, operators};
use super::parser::{Builder, Stop};

/// The result of an expansion.
pub(super) enum Expansion {
    /// A macro, expanded.
    Done(Expr),
    /// An ordinary call.
    NoMacro(Option<Expr>, Vec<Expr>),
}

type Expand<T> = Result<T, Stop>;

/// Expands a call if it is one of a macro.
pub(super) fn expand(
    builder: &mut Builder,
    position: u32,
    function: &str,
    target: Option<Expr>,
    arguments: Vec<Expr>,
) -> Expand<Expansion> {
    let mut at = At { builder, position };
    let Some(target) = target else {
        return match (function, arguments.as_slice()) {
            ("has", [_]) => at.has(arguments).map(Expansion::Done),
            _ => Ok(Expansion::NoMacro(None, arguments)),
        };
    };
    let expanded = match (function, arguments.len()) {
        ("all" | "exists" | "exists_one", 2) => at.quantifier(function, target, arguments),
        ("all" | "exists" | "exists_one" | "existsOne", 3) => at.quantifier(function, target, arguments),
        ("map", 2 | 3) => at.map(target, arguments),
        ("filter", 2) => at.filter(target, arguments),
        ("optMap" | "optFlatMap", 2) => at.opt_map(function, target, arguments),
        ("transformList", 3 | 4) => at.transform_list(target, arguments),
        ("transformMap" | "transformMapEntry", 3 | 4) => at.transform_map(function, target, arguments),
        ("sortBy", 2) => at.sort_by(target, arguments),
        _ => return Ok(Expansion::NoMacro(Some(target), arguments)),
    };
    expanded.map(Expansion::Done)
}

/// Makes nodes at the place of the macro's call.
struct At<'a> {
    builder: &'a mut Builder,
    position: u32,
}

/// Names of the variables of a loop.
struct Variables {
    first: Arc<str>,
    second: Option<Arc<str>>,
}

impl At<'_> {
    fn node(&mut self, kind: Kind) -> Expand<Expr> {
        self.builder.node(self.position, kind)
    }

    fn literal(&mut self, literal: Literal) -> Expand<Expr> {
        self.node(Kind::Literal(literal))
    }

    fn call(&mut self, function: &str, arguments: Vec<Expr>) -> Expand<Expr> {
        self.builder.call(self.position, function, arguments)
    }

    fn accumulated(&mut self) -> Expand<Expr> {
        self.node(Kind::Ident(ACCUMULATOR.into()))
    }

    fn list_of(&mut self, value: Expr) -> Expand<Expr> {
        self.node(Kind::List { items: vec![Item { value, optional: false }] })
    }

    /// The expression that replaces a misused macro.
    fn misused(&mut self, position: u32, message: impl Into<String>) -> Expand<Expr> {
        self.builder.report(position, message);
        self.literal(Literal::Null)
    }

    fn fold(&mut self, range: Expr, names: Variables, init: Expr, condition: Expr, step: Expr) -> Expand<Expr> {
        let result = self.accumulated()?;
        self.fold_to(range, names, init, condition, step, result)
    }

    fn fold_to(
        &mut self,
        range: Expr,
        names: Variables,
        init: Expr,
        condition: Expr,
        step: Expr,
        result: Expr,
    ) -> Expand<Expr> {
        self.node(Kind::Comprehension(Box::new(Comprehension {
            range,
            variable: names.first,
            second_variable: names.second,
            accumulator: ACCUMULATOR.into(),
            init,
            condition,
            step,
            result,
        })))
    }

    fn has(&mut self, mut arguments: Vec<Expr>) -> Expand<Expr> {
        let argument = arguments.remove(0);
        match argument.kind {
            Kind::Select { operand, field, test: false } => self.node(Kind::Select { operand, field, test: true }),
            _ => self.misused(argument.position, "invalid argument to has() macro"),
        }
    }

    /// The variables in the first one or two arguments, which are taken out. An error is a place and a sentence.
    fn variables(
        &mut self,
        arguments: &mut Vec<Expr>,
        count: usize,
        problem: &str,
    ) -> Result<Variables, (u32, String)> {
        let mut names: Vec<Arc<str>> = Vec::new();
        for argument in arguments.drain(..count) {
            let Kind::Ident(name) = argument.kind else { return Err((argument.position, problem.to_owned())) };
            if names.contains(&name) {
                return Err((argument.position, format!("duplicate variable name: {name}")));
            }
            if matches!(&*name, ACCUMULATOR | "__result__") {
                let message = "iteration variable overwrites accumulator variable";
                return Err((argument.position, message.to_owned()));
            }
            names.push(name);
        }
        let mut names = names.into_iter();
        Ok(Variables { first: names.next().unwrap_or_else(|| "".into()), second: names.next() })
    }

    fn quantifier(&mut self, function: &str, target: Expr, mut arguments: Vec<Expr>) -> Expand<Expr> {
        let count = arguments.len() - 1;
        let names = match self.variables(&mut arguments, count, "argument must be a simple name") {
            Ok(names) => names,
            Err((position, message)) => return self.misused(position, message),
        };
        let predicate = arguments.remove(0);
        match function {
            "all" => {
                let init = self.literal(Literal::Bool(true))?;
                let accumulated = self.accumulated()?;
                let condition = self.call(operators::NOT_STRICTLY_FALSE, vec![accumulated])?;
                let accumulated = self.accumulated()?;
                let step = self.call(operators::AND, vec![accumulated, predicate])?;
                self.fold(target, names, init, condition, step)
            }
            "exists" => {
                let init = self.literal(Literal::Bool(false))?;
                let accumulated = self.accumulated()?;
                let negated = self.call(operators::NOT, vec![accumulated])?;
                let condition = self.call(operators::NOT_STRICTLY_FALSE, vec![negated])?;
                let accumulated = self.accumulated()?;
                let step = self.call(operators::OR, vec![accumulated, predicate])?;
                self.fold(target, names, init, condition, step)
            }
            _ => {
                let init = self.literal(Literal::Int(0))?;
                let condition = self.literal(Literal::Bool(true))?;
                let (accumulated, one) = (self.accumulated()?, self.literal(Literal::Int(1))?);
                let counted = self.call(operators::ADD, vec![accumulated, one])?;
                let accumulated = self.accumulated()?;
                let step = self.call(operators::CONDITIONAL, vec![predicate, counted, accumulated])?;
                let (accumulated, one) = (self.accumulated()?, self.literal(Literal::Int(1))?);
                let result = self.call(operators::EQUALS, vec![accumulated, one])?;
                self.fold_to(target, names, init, condition, step, result)
            }
        }
    }

    /// A list of the results of `transform` for the elements that pass `filter`.
    fn collect(&mut self, target: Expr, names: Variables, filter: Option<Expr>, transform: Expr) -> Expand<Expr> {
        let init = self.node(Kind::List { items: Vec::new() })?;
        let condition = self.literal(Literal::Bool(true))?;
        let accumulated = self.accumulated()?;
        let item = self.list_of(transform)?;
        let step = self.call(operators::ADD, vec![accumulated, item])?;
        let step = self.filtered(filter, step)?;
        self.fold(target, names, init, condition, step)
    }

    fn filtered(&mut self, filter: Option<Expr>, step: Expr) -> Expand<Expr> {
        let Some(filter) = filter else { return Ok(step) };
        let accumulated = self.accumulated()?;
        self.call(operators::CONDITIONAL, vec![filter, step, accumulated])
    }

    fn map(&mut self, target: Expr, mut arguments: Vec<Expr>) -> Expand<Expr> {
        let names = match self.variables(&mut arguments, 1, "argument is not an identifier") {
            Ok(names) => names,
            Err((position, message)) => return self.misused(position, message),
        };
        let filter = (arguments.len() == 2).then(|| arguments.remove(0));
        self.collect(target, names, filter, arguments.remove(0))
    }

    fn filter(&mut self, target: Expr, mut arguments: Vec<Expr>) -> Expand<Expr> {
        let variable = arguments[0].clone();
        let names = match self.variables(&mut arguments, 1, "argument is not an identifier") {
            Ok(names) => names,
            Err((position, message)) => return self.misused(position, message),
        };
        self.collect(target, names, Some(arguments.remove(0)), variable)
    }

    fn transform_list(&mut self, target: Expr, mut arguments: Vec<Expr>) -> Expand<Expr> {
        let names = match self.variables(&mut arguments, 2, "argument must be a simple name") {
            Ok(names) => names,
            Err((position, message)) => return self.misused(position, message),
        };
        let filter = (arguments.len() == 2).then(|| arguments.remove(0));
        self.collect(target, names, filter, arguments.remove(0))
    }

    fn transform_map(&mut self, function: &str, target: Expr, mut arguments: Vec<Expr>) -> Expand<Expr> {
        let names = match self.variables(&mut arguments, 2, "argument must be a simple name") {
            Ok(names) => names,
            Err((position, message)) => return self.misused(position, message),
        };
        let filter = (arguments.len() == 2).then(|| arguments.remove(0));
        let transform = arguments.remove(0);
        let init = self.node(Kind::Map { entries: Vec::new() })?;
        let condition = self.literal(Literal::Bool(true))?;
        let accumulated = self.accumulated()?;
        let inserted = if function == "transformMap" {
            let key = self.node(Kind::Ident(names.first.clone()))?;
            vec![accumulated, key, transform]
        } else {
            vec![accumulated, transform]
        };
        let step = self.call(operators::MAP_INSERT, inserted)?;
        let step = self.filtered(filter, step)?;
        self.fold(target, names, init, condition, step)
    }

    /// Names a value: a loop over an empty list whose accumulator is the name.
    fn bind(&mut self, name: Arc<str>, value: Expr, body: Expr) -> Expand<Expr> {
        let range = self.node(Kind::List { items: Vec::new() })?;
        let condition = self.literal(Literal::Bool(false))?;
        let step = self.node(Kind::Ident(name.clone()))?;
        self.node(Kind::Comprehension(Box::new(Comprehension {
            range,
            variable: "#unused".into(),
            second_variable: None,
            accumulator: name,
            init: value,
            condition,
            step,
            result: body,
        })))
    }

    fn opt_map(&mut self, function: &str, target: Expr, mut arguments: Vec<Expr>) -> Expand<Expr> {
        let variable = arguments.remove(0);
        let body = arguments.remove(0);
        let Kind::Ident(name) = variable.kind else {
            let message = format!("{function}() variable name must be a simple identifier");
            return self.misused(variable.position, message);
        };
        let copy = self.builder.copy(&target)?;
        let member = |function: &str, target: Expr| Kind::Call {
            function: function.into(),
            target: Some(Box::new(target)),
            arguments: Vec::new(),
        };
        let has_value = self.node(member("hasValue", target))?;
        let value = self.node(member("value", copy))?;
        let mut then = self.bind(name, value, body)?;
        if function == "optMap" {
            then = self.call("optional.of", vec![then])?;
        }
        let none = self.call("optional.none", Vec::new())?;
        self.call(operators::CONDITIONAL, vec![has_value, then, none])
    }

    fn sort_by(&mut self, target: Expr, arguments: Vec<Expr>) -> Expand<Expr> {
        const INPUT: &str = "@__sortBy_input__";
        if matches!(target.kind, Kind::Literal(_) | Kind::Map { .. } | Kind::Struct { .. }) {
            let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return self.misused(target.position, message);
        }
        let input = self.node(Kind::Ident(INPUT.into()))?;
        let keys = self.map(input, arguments)?;
        let input = self.node(Kind::Ident(INPUT.into()))?;
        let sorted = self.node(Kind::Call {
            function: operators::SORT_BY_KEYS.into(),
            target: Some(Box::new(input)),
            arguments: vec![keys],
        })?;
        self.bind(INPUT.into(), target, sorted)
    }
}
