//! Types of all parts of an expression, and which overloads its calls mean.

use std::sync::Arc;

use super::ast::{Expr, Kind, Literal, operators};
use super::issues::Issues;
use super::stdlib::{self, Overload};
use super::types::{Bindings, Type};

/// The results for each node, by its number.
#[derive(Debug)]
pub(crate) struct Facts {
    types: Vec<Type>,
    overloads: Vec<Vec<&'static str>>,
}

impl Facts {
    pub(crate) fn type_of(&self, expression: &Expr) -> &Type {
        &self.types[expression.id as usize]
    }

    /// Overloads that a call may mean.
    pub(crate) fn overloads_of(&self, expression: &Expr) -> &[&'static str] {
        &self.overloads[expression.id as usize]
    }
}

/// Checks an expression of `nodes` nodes; `variables` are the names it may use. Calls of functions with dots in
/// their names are rewritten. Problems go to the issues.
pub(super) fn check(expression: &mut Expr, nodes: usize, variables: &[(Arc<str>, Type)], issues: &mut Issues) -> Facts {
    let mut checker = Checker {
        facts: Facts { types: vec![Type::Error; nodes], overloads: vec![Vec::new(); nodes] },
        bindings: Bindings::default(),
        scope: variables.to_vec(),
        fresh: 0,
        issues,
    };
    checker.check(expression);
    let Checker { mut facts, bindings, issues, .. } = checker;
    for ty in &mut facts.types {
        *ty = bindings.resolve(ty, true);
    }
    if bindings.is_exhausted() {
        issues.report_whole("the types of the expression are too complicated");
    }
    facts
}

struct Checker<'a> {
    facts: Facts,
    bindings: Bindings,
    scope: Vec<(Arc<str>, Type)>,
    fresh: usize,
    issues: &'a mut Issues,
}

impl Checker<'_> {
    fn get(&self, expression: &Expr) -> Type {
        self.facts.types[expression.id as usize].clone()
    }

    fn set(&mut self, expression: &Expr, ty: Type) {
        self.facts.types[expression.id as usize] = ty;
    }

    fn fresh(&mut self) -> Type {
        self.fresh += 1;
        Type::Parameter(format!("_var{}", self.fresh - 1).into())
    }

    fn lookup(&self, name: &str) -> Option<Type> {
        let name = name.strip_prefix('.').unwrap_or(name);
        let variable = self.scope.iter().rev().find(|(known, _)| &**known == name);
        variable.map(|(_, ty)| ty.clone()).or_else(|| stdlib::type_name(name))
    }

    fn undeclared(&mut self, expression: &Expr, name: &str) {
        self.issues.report(expression.position, format!("undeclared reference to '{name}' (in container '')"));
        self.set(expression, Type::Error);
    }

    fn mismatch(&mut self, expression: &Expr, expected: &Type, found: &Type) {
        self.issues.report(expression.position, format!("expected type '{expected}' but found '{found}'"));
    }

    fn check(&mut self, expression: &mut Expr) {
        match &expression.kind {
            Kind::Literal(literal) => {
                let ty = literal_type(literal);
                self.set(expression, ty);
            }
            Kind::Ident(name) => match self.lookup(name) {
                Some(ty) => self.set(expression, ty),
                None => self.undeclared(expression, &name.clone()),
            },
            Kind::Struct { name } => self.undeclared(expression, &name.clone()),
            Kind::Select { .. } => self.check_select(expression),
            Kind::Call { .. } => self.check_call(expression),
            Kind::List { .. } => self.check_list(expression),
            Kind::Map { .. } => self.check_map(expression),
            Kind::Comprehension(_) => self.check_fold(expression),
        }
    }

    fn check_select(&mut self, expression: &mut Expr) {
        // `google.protobuf.Duration` is a name with dots.
        if let Some(name) = expression.qualified_name()
            && let Some(ty) = self.lookup(&name)
        {
            expression.kind = Kind::Ident(name.into());
            self.set(expression, ty);
            return;
        }
        let position = expression.position;
        let Kind::Select { operand, field, test } = &mut expression.kind else { return };
        let (field, test) = (field.clone(), *test);
        let ty = self.select_field(operand, &field, position, false);
        let ty = if test { Type::Bool } else { self.bindings.resolve(&ty, false) };
        self.set(expression, ty);
    }

    /// The type of a field of an operand.
    fn select_field(&mut self, operand: &mut Expr, field: &str, position: u32, optional: bool) -> Type {
        self.check(operand);
        let operand_type = self.bindings.resolve(&self.get(operand), false);
        let (target, was_optional) = match operand_type {
            Type::Optional(value) => (value.as_ref().clone(), true),
            other => (other, false),
        };
        let ty = match &target {
            Type::Map(types) => types.1.clone(),
            Type::Object(object) => match object.field(field) {
                Some(ty) => ty.clone(),
                None => {
                    self.issues.report(position, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Named(_) if !matches!(target, Type::Named(super::types::Named::Ip | super::types::Named::Cidr)) => {
                self.issues.report(position, format!("undefined field '{field}'"));
                Type::Error
            }
            Type::Parameter(_) => {
                self.bindings.unify(&Type::Dyn, &target);
                Type::Dyn
            }
            other => {
                if !other.is_dyn_or_error() {
                    self.issues.report(position, format!("type '{other}' does not support field selection"));
                }
                Type::Dyn
            }
        };
        if was_optional || optional { Type::optional(ty) } else { ty }
    }

    fn check_call(&mut self, expression: &mut Expr) {
        let position = expression.position;
        let Kind::Call { function, target, arguments } = &mut expression.kind else { return };
        if &**function == operators::OPTIONAL_SELECT {
            let field = match arguments.get(1).map(|field| &field.kind) {
                Some(Kind::Literal(Literal::String(field))) => field.clone(),
                _ => return,
            };
            let ty = self.select_field(&mut arguments[0], &field, position, true);
            let ty = self.bindings.resolve(&ty, false);
            self.set(expression, ty);
            self.facts.overloads[expression.id as usize] = vec!["select_optional_field"];
            return;
        }
        for argument in arguments.iter_mut() {
            self.check(argument);
        }
        let qualified = target.as_deref().and_then(Expr::qualified_name).map(|prefix| format!("{prefix}.{function}"));
        let namespaced = qualified.filter(|name| stdlib::overloads(name).is_some());
        if let Some(name) = namespaced {
            *function = name.into();
            *target = None;
        } else if let Some(target) = target {
            self.check(target);
        }
        let name = function.strip_prefix('.').unwrap_or(function).to_owned();
        match stdlib::overloads(&name) {
            Some(overloads) => self.resolve_overload(expression, &name, overloads),
            None => self.undeclared(expression, &name),
        }
    }

    fn resolve_overload(&mut self, expression: &Expr, name: &str, overloads: &'static [Overload]) {
        let Kind::Call { target, arguments, .. } = &expression.kind else { return };
        let types: Vec<Type> = target.as_deref().into_iter().chain(arguments).map(|part| self.get(part)).collect();
        if matches!(name, operators::AND | operators::OR) {
            return self.resolve_logical(expression, overloads);
        }
        let mut result: Option<Type> = None;
        let mut ids = Vec::new();
        for overload in overloads.iter().filter(|overload| overload.member == target.is_some()) {
            let (parameters, own_result) = self.instantiate(overload);
            if !self.bindings.unify_all(&types, &parameters) {
                continue;
            }
            ids.push(overload.id);
            let found = self.bindings.resolve(&own_result, false);
            result = Some(match result {
                None => found,
                Some(before) if matches!(before, Type::Dyn) || found.is_exactly(&before) => before,
                Some(_) => Type::Dyn,
            });
        }
        match result {
            Some(ty) => {
                self.set(expression, ty);
                self.facts.overloads[expression.id as usize] = ids;
            }
            None => {
                let is_member = target.is_some();
                self.no_overload(expression, name, &types, is_member);
            }
        }
    }

    fn no_overload(&mut self, expression: &Expr, name: &str, types: &[Type], is_member: bool) {
        let shown: Vec<String> = types.iter().map(|ty| self.bindings.resolve(ty, true).to_string()).collect();
        let signature = match shown.split_first() {
            Some((target, arguments)) if is_member => format!("{target}.({})", arguments.join(", ")),
            _ => format!("({})", shown.join(", ")),
        };
        let message = format!("found no matching overload for '{name}' applied to '{signature}'");
        self.issues.report(expression.position, message);
        self.set(expression, Type::Error);
    }

    fn resolve_logical(&mut self, expression: &Expr, overloads: &'static [Overload]) {
        let Kind::Call { arguments, .. } = &expression.kind else { return };
        let mut fits = true;
        for argument in arguments {
            let ty = self.get(argument);
            if !self.bindings.unify(&ty, &Type::Bool) {
                self.mismatch(argument, &Type::Bool, &ty);
                fits = false;
            }
        }
        if fits {
            self.set(expression, Type::Bool);
            self.facts.overloads[expression.id as usize] = overloads.iter().map(|overload| overload.id).collect();
        } else {
            self.set(expression, Type::Error);
        }
    }

    /// The types of an overload, with variables of its own.
    fn instantiate(&mut self, overload: &Overload) -> (Vec<Type>, Type) {
        if overload.variables.is_empty() {
            return (overload.arguments.clone(), overload.result.clone());
        }
        let fresh: Vec<(Arc<str>, Type)> = overload.variables.iter().map(|name| (name.clone(), self.fresh())).collect();
        let arguments = overload.arguments.iter().map(|ty| rename(ty, &fresh)).collect();
        (arguments, rename(&overload.result, &fresh))
    }

    /// The type that covers both. If mixed types are not allowed, [`super::literals`] reports them later.
    fn join(&mut self, before: Option<Type>, next: Type) -> Type {
        let Some(before) = before else { return next };
        if self.bindings.unify(&before, &next) { before.wider(next) } else { Type::Dyn }
    }

    /// The type of the value of an optional item or entry.
    fn unwrap_optional(&mut self, expression: &Expr, ty: Type) -> Type {
        match ty {
            Type::Optional(value) => value.as_ref().clone(),
            Type::Dyn => Type::Dyn,
            other => {
                self.mismatch(expression, &Type::optional(other.clone()), &other);
                other
            }
        }
    }

    fn check_list(&mut self, expression: &mut Expr) {
        let Kind::List { items } = &mut expression.kind else { return };
        let mut item_type = None;
        for item in items {
            self.check(&mut item.value);
            let mut ty = self.get(&item.value);
            if item.optional {
                ty = self.unwrap_optional(&item.value, ty);
            }
            item_type = Some(self.join(item_type, ty));
        }
        let item_type = item_type.unwrap_or_else(|| self.fresh());
        self.set(expression, Type::list(item_type));
    }

    fn check_map(&mut self, expression: &mut Expr) {
        let Kind::Map { entries } = &mut expression.kind else { return };
        let mut types: Option<(Type, Type)> = None;
        for entry in entries {
            self.check(&mut entry.key);
            self.check(&mut entry.value);
            let key = self.get(&entry.key);
            let mut value = self.get(&entry.value);
            let (key_type, value_type) = types.take().unzip();
            let key = self.join(key_type, key);
            if entry.optional {
                value = self.unwrap_optional(&entry.value, value);
            }
            let value = self.join(value_type, value);
            types = Some((key, value));
        }
        let (key, value) = types.unwrap_or_else(|| (self.fresh(), self.fresh()));
        self.set(expression, Type::map(key, value));
    }

    fn check_fold(&mut self, expression: &mut Expr) {
        let Kind::Comprehension(fold) = &mut expression.kind else { return };
        self.check(&mut fold.range);
        self.check(&mut fold.init);
        let range_type = self.bindings.resolve(&self.get(&fold.range), false);
        let accumulator_type = self.get(&fold.init);
        let has_second = fold.second_variable.is_some();
        let (first, second) = match &range_type {
            Type::List(item) if has_second => (Type::Int, item.as_ref().clone()),
            Type::List(item) => (item.as_ref().clone(), Type::Error),
            Type::Map(types) => (types.0.clone(), types.1.clone()),
            Type::Dyn | Type::Error | Type::Parameter(_) => {
                self.bindings.unify(&Type::Dyn, &range_type);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.issues.report(fold.range.position, message);
                (Type::Error, Type::Error)
            }
        };
        let outer = self.scope.len();
        self.scope.push((fold.accumulator.clone(), accumulator_type.clone()));
        self.scope.push((fold.variable.clone(), first));
        if let Some(variable) = &fold.second_variable {
            self.scope.push((variable.clone(), second));
        }
        self.check(&mut fold.condition);
        self.require(&fold.condition, &Type::Bool);
        self.check(&mut fold.step);
        self.require(&fold.step, &accumulator_type);
        self.scope.truncate(outer + 1);
        self.check(&mut fold.result);
        self.scope.truncate(outer);
        let ty = self.bindings.resolve(&self.get(&fold.result), false);
        self.set(expression, ty);
    }

    fn require(&mut self, expression: &Expr, ty: &Type) {
        let found = self.get(expression);
        if !self.bindings.unify(ty, &found) {
            self.mismatch(expression, ty, &found);
        }
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

fn rename(ty: &Type, fresh: &[(Arc<str>, Type)]) -> Type {
    match ty {
        Type::Parameter(name) => {
            fresh.iter().find(|(known, _)| known == name).map_or_else(|| ty.clone(), |(_, fresh)| fresh.clone())
        }
        Type::List(item) => Type::list(rename(item, fresh)),
        Type::Optional(value) => Type::optional(rename(value, fresh)),
        Type::Type(Some(of)) => Type::Type(Some(Arc::new(rename(of, fresh)))),
        Type::Map(types) => Type::map(rename(&types.0, fresh), rename(&types.1, fresh)),
        other => other.clone(),
    }
}
