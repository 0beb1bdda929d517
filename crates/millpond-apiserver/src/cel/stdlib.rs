//! The functions and operators that expressions know.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use super::types::{Named, Type};

/// One signature of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    /// Name of this way.
    pub(crate) id: &'static str,
    /// Called as `target.f()`; the first of the types is the target's.
    pub(crate) member: bool,
    pub(crate) arguments: Vec<Type>,
    pub(crate) result: Type,
    /// Names of the type variables.
    pub(crate) variables: Vec<Arc<str>>,
}

/// The overloads of a function; `None` if it does not exist.
pub(crate) fn overloads(function: &str) -> Option<&'static [Overload]> {
    LIBRARY.get(function).map(Vec::as_slice)
}

/// The type of a name that is always there: the types themselves.
pub(crate) fn type_name(name: &str) -> Option<Type> {
    let of = match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "int" => Type::Int,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "net.CIDR" => Type::Named(Named::Cidr),
        "net.IP" => Type::Named(Named::Ip),
        "null_type" => Type::Null,
        "string" => Type::String,
        "type" => Type::Type(None),
        "uint" => Type::Uint,
        _ => return None,
    };
    Some(Type::Type(Some(Arc::new(of))))
}

static LIBRARY: LazyLock<HashMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
    let mut library: HashMap<&'static str, Vec<Overload>> = HashMap::new();
    for line in include_str!("library.txt").lines().filter(|line| !line.starts_with('#')) {
        let (name, overload) = read_line(line).expect("the table is well formed");
        library.entry(name).or_default().push(overload);
    }
    library
});

fn read_line(line: &'static str) -> Option<(&'static str, Overload)> {
    let (head, result) = line.split_once(" -> ")?;
    let mut words = head.splitn(4, ' ');
    let (name, id, style, arguments) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let mut arguments = Reader { rest: arguments.strip_prefix('(')?.strip_suffix(')')? };
    let mut types = Vec::new();
    while !arguments.rest.is_empty() {
        types.push(arguments.read()?);
        arguments.rest = arguments.rest.trim_start_matches(", ");
    }
    let result = Reader { rest: result }.read()?;
    let mut variables = Vec::new();
    types.iter().chain([&result]).for_each(|ty| collect_variables(ty, &mut variables));
    Some((name, Overload { id, member: style == ".", arguments: types, result, variables }))
}

struct Reader {
    rest: &'static str,
}

impl Reader {
    fn read(&mut self) -> Option<Type> {
        let end = self.rest.find(['(', ',', ')']).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        if !self.rest.starts_with('(') {
            return Some(simple(name));
        }
        self.rest = &self.rest[1..];
        let first = self.read()?;
        let ty = match name {
            "list" => Type::list(first),
            "optional_type" => Type::optional(first),
            "type" => Type::Type(Some(Arc::new(first))),
            "map" => {
                self.rest = self.rest.strip_prefix(", ")?;
                Type::map(first, self.read()?)
            }
            _ => return None,
        };
        self.rest = self.rest.strip_prefix(')')?;
        Some(ty)
    }
}

fn simple(name: &str) -> Type {
    match name {
        "dyn" => Type::Dyn,
        "null" => Type::Null,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "type" => Type::Type(None),
        "kubernetes.Quantity" => Type::Named(Named::Quantity),
        "kubernetes.URL" => Type::Named(Named::Url),
        "kubernetes.Semver" => Type::Named(Named::Semver),
        "kubernetes.NamedFormat" => Type::Named(Named::Format),
        "net.IP" => Type::Named(Named::Ip),
        "net.CIDR" => Type::Named(Named::Cidr),
        variable => Type::Parameter(variable.into()),
    }
}

fn collect_variables(ty: &Type, variables: &mut Vec<Arc<str>>) {
    match ty {
        Type::Parameter(name) if !variables.contains(name) => variables.push(name.clone()),
        Type::List(inner) | Type::Optional(inner) | Type::Type(Some(inner)) => collect_variables(inner, variables),
        Type::Map(types) => {
            collect_variables(&types.0, variables);
            collect_variables(&types.1, variables);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_read() {
        assert!(LIBRARY.len() > 100);
        let index = overloads("_[_]").unwrap();
        assert_eq!(index[1].arguments[0].to_string(), "map(A, B)");
        assert_eq!(index[1].variables.len(), 2);
        assert!(overloads("join").unwrap()[1].member);
        assert_eq!(overloads("optional.unwrap").unwrap()[0].arguments[0].to_string(), "list(optional_type(V))");
        assert!(overloads("nothing").is_none());
        for overload in LIBRARY.values().flatten() {
            for ty in overload.arguments.iter().chain([&overload.result]) {
                // A misspelt type would be read as a variable.
                if let Type::Parameter(name) = ty {
                    assert_eq!(name.len(), 1, "{}", overload.id);
                }
            }
        }
    }
}
