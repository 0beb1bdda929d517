//! Checks constants of a correct type for invalid values.

use super::ast::{Expr, Kind, Literal};
use super::checker::Facts;
use super::functions;
use super::issues::Issues;
use super::types::Type;
use crate::go::regexp;

/// Reports constants that no function takes, and lists and maps of mixed types.
pub(super) fn check(expression: &Expr, facts: &Facts, issues: &mut Issues) {
    Check { facts, issues }.visit(expression, false);
}

struct Check<'a> {
    facts: &'a Facts,
    issues: &'a mut Issues,
}

impl Check<'_> {
    /// `in_format` says that the expression stands inside of a call of `format`, where types may be mixed.
    fn visit(&mut self, expression: &Expr, in_format: bool) {
        match &expression.kind {
            Kind::Literal(_) | Kind::Ident(_) | Kind::Struct { .. } => {}
            Kind::Select { operand, .. } => self.visit(operand, in_format),
            Kind::Call { function, target, arguments } => {
                self.check_call(expression, function, target.as_deref(), arguments);
                let in_format = in_format || &**function == "format";
                for part in target.as_deref().into_iter().chain(arguments) {
                    self.visit(part, in_format);
                }
            }
            Kind::List { items } => {
                if !in_format {
                    self.same_types(items.iter().map(|item| (&item.value, item.optional)), true);
                }
                items.iter().for_each(|item| self.visit(&item.value, in_format));
            }
            Kind::Map { entries } => {
                if !in_format {
                    self.same_types(entries.iter().map(|entry| (&entry.key, false)), false);
                    self.same_types(entries.iter().map(|entry| (&entry.value, entry.optional)), false);
                }
                for entry in entries {
                    self.visit(&entry.key, in_format);
                    self.visit(&entry.value, in_format);
                }
            }
            Kind::Comprehension(fold) => {
                for part in [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result] {
                    self.visit(part, in_format);
                }
            }
        }
    }

    fn check_call(&mut self, expression: &Expr, function: &str, target: Option<&Expr>, arguments: &[Expr]) {
        if function == "format" {
            return self.check_format(expression, target, arguments);
        }
        let Some(argument) = arguments.first() else { return };
        let Kind::Literal(literal) = &argument.kind else { return };
        let is_wrong = match (function, literal) {
            ("duration", Literal::String(text)) => functions::duration(text).is_err(),
            // A number of nanoseconds has the right type, and yet upstream takes it only when it is no constant.
            ("duration", Literal::Int(_)) => true,
            ("timestamp", Literal::String(text)) => functions::timestamp(text).is_err(),
            ("matches", Literal::String(text)) => regexp::check(text).is_err(),
            _ => false,
        };
        if is_wrong {
            self.issues.report(argument.position, format!("invalid {function} argument"));
        }
    }

    /// Whether a constant format and a list of arguments that is written out go together.
    fn check_format(&mut self, expression: &Expr, target: Option<&Expr>, arguments: &[Expr]) {
        let (Some(Kind::Literal(Literal::String(format))), [Expr { kind: Kind::List { items }, .. }]) =
            (target.map(|target| &target.kind), arguments)
        else {
            return;
        };
        let verbs = match functions::verbs(format) {
            Ok(verbs) => verbs,
            Err(problem) => return self.issues.report(expression.position, problem),
        };
        for (index, verb) in verbs.iter().enumerate() {
            let Some(item) = items.get(index) else {
                return self.issues.report(expression.position, format!("index {index} out of range"));
            };
            let ty = self.facts.type_of(&item.value);
            if !is_formatted(ty, *verb) {
                let given = match ty {
                    Type::Optional(_) => "optional_type".to_owned(),
                    Type::List(_) => "list".to_owned(),
                    Type::Map(_) => "map".to_owned(),
                    other => other.to_string(),
                };
                let message = format!("error during formatting: {}, was given {given}", functions::taken_by(*verb));
                return self.issues.report(item.value.position, message);
            }
        }
        if verbs.len() < items.len() {
            let (expected, got) = (verbs.len(), items.len());
            let message = format!("too many arguments supplied to string.format (expected {expected}, got {got})");
            self.issues.report(expression.position, message);
        }
    }

    fn same_types<'e>(&mut self, parts: impl Iterator<Item = (&'e Expr, bool)>, first_only: bool) {
        let mut expected: Option<Type> = None;
        for (part, optional) in parts {
            let ty = match self.facts.type_of(part) {
                Type::Optional(value) if optional => value.as_ref().clone(),
                other => other.clone(),
            };
            match &expected {
                None => expected = Some(ty),
                Some(expected) if expected.is_exactly(&ty) => {}
                Some(expected) => {
                    let message = format!("expected type '{expected}' but found '{ty}'");
                    self.issues.report(part.position, message);
                    if first_only {
                        return;
                    }
                }
            }
        }
    }
}

/// Whether a verb of a format takes values of the type; what is unknown is looked at when it is there.
fn is_formatted(ty: &Type, verb: char) -> bool {
    match ty {
        Type::Dyn | Type::Error | Type::Parameter(_) => true,
        Type::Int | Type::Uint => !matches!(verb, 'f' | 'e'),
        Type::Double => matches!(verb, 'f' | 'e' | 's'),
        Type::String => matches!(verb, 'f' | 'e' | 's' | 'x' | 'X'),
        Type::Bytes => matches!(verb, 's' | 'x' | 'X'),
        Type::Bool => matches!(verb, 's' | 'b'),
        Type::Optional(_) | Type::Named(_) | Type::Object(_) => false,
        _ => verb == 's',
    }
}
