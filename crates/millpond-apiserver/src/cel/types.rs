//! Types of expressions, and when one takes the place of another.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use super::schema_type::{escape, is_keyword};

/// How many types one may be made of. Maps of maps double with each level, as values of variables do not.
const MAX_WEIGHT: u32 = 1000;
/// Steps of finding out types of one expression.
const MAX_STEPS: u32 = 3_000_000;

/// A type.
#[derive(Debug, Clone)]
#[expect(clippy::enum_variant_names, reason = "types are values, and their type is called so")]
pub(crate) enum Type {
    /// Anything; checked when evaluated.
    Dyn,
    /// The type of an expression with an error.
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Type>),
    /// Key, value and weight.
    Map(Arc<(Type, Type, u32)>),
    Optional(Arc<Type>),
    /// A type as a value.
    Type(Option<Arc<Type>>),
    /// An object with known fields.
    Object(Arc<ObjectType>),
    /// A type of the library that nothing can be selected from.
    Named(Named),
    /// A variable, to be bound.
    Parameter(Arc<str>),
}

/// Types that the library brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Named {
    Quantity,
    Url,
    Semver,
    Format,
    Ip,
    Cidr,
}

impl Named {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Quantity => "kubernetes.Quantity",
            Self::Url => "kubernetes.URL",
            Self::Semver => "kubernetes.Semver",
            Self::Format => "kubernetes.NamedFormat",
            Self::Ip => "net.IP",
            Self::Cidr => "net.CIDR",
        }
    }
}

/// An object type. Two are the same when they have the same name.
#[derive(Debug)]
pub(crate) struct ObjectType {
    pub(crate) name: String,
    pub(crate) fields: BTreeMap<Arc<str>, Type>,
}

impl ObjectType {
    /// The type of a field. Keywords need not be escaped.
    pub(crate) fn field(&self, name: &str) -> Option<&Type> {
        self.fields.get(name).or_else(|| match escape(name) {
            Some(escaped) if is_keyword(name) => self.fields.get(escaped.as_str()),
            _ => None,
        })
    }
}

impl Type {
    pub(crate) fn list(item: Type) -> Self {
        Self::List(Arc::new(item))
    }

    /// A map; when its type would be unreasonably large, just anything.
    pub(crate) fn map(key: Type, value: Type) -> Self {
        let weight = key.weight().saturating_add(value.weight()).saturating_add(1);
        if weight > MAX_WEIGHT { Self::Dyn } else { Self::Map(Arc::new((key, value, weight))) }
    }

    /// How many types this one is made of.
    fn weight(&self) -> u32 {
        match self {
            Self::List(inner) | Self::Optional(inner) | Self::Type(Some(inner)) => inner.weight().saturating_add(1),
            Self::Map(types) => types.2,
            _ => 1,
        }
    }

    pub(crate) fn optional(value: Type) -> Self {
        Self::Optional(Arc::new(value))
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// Types of a constant size.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Self::Bool | Self::Int | Self::Uint | Self::Double | Self::Duration | Self::Timestamp => true,
            Self::Optional(value) => value.is_scalar(),
            _ => false,
        }
    }

    /// Whether both are the same, variables included.
    pub(crate) fn is_exactly(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.is_exactly(b),
            (Self::Map(a), Self::Map(b)) => a.0.is_exactly(&b.0) && a.1.is_exactly(&b.1),
            (Self::Type(Some(a)), Self::Type(Some(b))) => a.is_exactly(b),
            (Self::Type(a), Self::Type(b)) => a.is_none() && b.is_none(),
            (Self::Object(a), Self::Object(b)) => a.name == b.name,
            (Self::Named(a), Self::Named(b)) => a == b,
            (Self::Parameter(a), Self::Parameter(b)) => a == b,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }

    /// Whether this is the same as the other or takes more.
    fn is_equal_or_wider(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn | Self::Parameter(_), _) => true,
            (_, Self::Dyn | Self::Parameter(_)) => false,
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.is_equal_or_wider(b),
            (Self::Map(a), Self::Map(b)) => a.0.is_equal_or_wider(&b.0) && a.1.is_equal_or_wider(&b.1),
            (Self::Type(_), Self::Type(_)) => true,
            (a, b) => a.is_exactly(b),
        }
    }

    /// The wider of two types that go together.
    pub(crate) fn wider(self, other: Self) -> Self {
        if self.is_equal_or_wider(&other) { self } else { other }
    }

    /// Whether null is a value of the type.
    fn takes_null(&self) -> bool {
        matches!(
            self,
            Self::Null | Self::Optional(_) | Self::Object(_) | Self::Named(_) | Self::Duration | Self::Timestamp
        )
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Error => f.write_str("!error!"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::List(item) => write!(f, "list({item})"),
            Self::Map(types) => write!(f, "map({}, {})", types.0, types.1),
            Self::Optional(value) => write!(f, "optional_type({value})"),
            Self::Type(Some(of)) => write!(f, "type({of})"),
            Self::Type(None) => f.write_str("type"),
            Self::Object(object) => f.write_str(&object.name),
            Self::Named(named) => f.write_str(named.name()),
            Self::Parameter(name) => f.write_str(name),
        }
    }
}

/// The types bound to type variables.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    bound: HashMap<Arc<str>, Type>,
    /// Earlier bindings, to be restored after a failed attempt.
    undo: Vec<(Arc<str>, Option<Type>)>,
    steps: Cell<u32>,
}

impl Bindings {
    /// Counts a step. False when there were too many; then nothing is found out any more.
    fn step(&self) -> bool {
        self.steps.set(self.steps.get().saturating_add(1));
        !self.is_exhausted()
    }

    /// Whether types are too complicated to be found out.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.steps.get() > MAX_STEPS
    }

    fn bind(&mut self, name: Arc<str>, ty: Type) {
        let before = self.bound.insert(name.clone(), ty);
        self.undo.push((name, before));
    }

    fn find(&self, ty: &Type) -> Option<&Type> {
        match ty {
            Type::Parameter(name) => self.bound.get(name),
            _ => None,
        }
    }

    /// Binds variables so that each type of the first list fits the one of the second; nothing changes if that
    /// cannot be done.
    pub(crate) fn unify_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        from.len() == to.len() && self.attempt(|this| from.iter().zip(to).all(|(from, to)| this.assign(from, to)))
    }

    /// The same for one pair.
    pub(crate) fn unify(&mut self, from: &Type, to: &Type) -> bool {
        self.attempt(|this| this.assign(from, to))
    }

    fn attempt(&mut self, work: impl FnOnce(&mut Self) -> bool) -> bool {
        self.undo.clear();
        if work(self) {
            return true;
        }
        for (name, before) in std::mem::take(&mut self.undo).into_iter().rev() {
            match before {
                Some(ty) => self.bound.insert(name, ty),
                None => self.bound.remove(&name),
            };
        }
        false
    }

    fn assign(&mut self, from: &Type, to: &Type) -> bool {
        if !self.step() {
            return true;
        }
        if matches!(to, Type::Parameter(_)) {
            match self.substitution(from, to) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if matches!(from, Type::Parameter(_)) {
            return self.substitution(to, from).0;
        }
        if from.is_dyn_or_error() || to.is_dyn_or_error() {
            return true;
        }
        match (from, to) {
            (Type::Null, other) | (other, Type::Null) => other.takes_null(),
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.assign(a, b),
            (Type::Map(a), Type::Map(b)) => self.assign(&a.0, &b.0) && self.assign(&a.1, &b.1),
            (Type::Type(_), Type::Type(_)) => true,
            (a, b) => a.is_exactly(b),
        }
    }

    /// Whether a variable can be bound to a type, and whether it is bound already.
    fn substitution(&mut self, ty: &Type, variable: &Type) -> (bool, bool) {
        if ty.is_exactly(variable) {
            return (true, true);
        }
        let Type::Parameter(name) = variable else { return (false, false) };
        if let Some(bound) = self.bound.get(name).cloned() {
            if ty.is_exactly(&bound) {
                return (true, true);
            }
            if self.assign(ty, &bound) {
                let wider = ty.clone().wider(bound);
                if self.is_free_of(variable, &wider) {
                    self.bind(name.clone(), wider);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.is_free_of(variable, ty) {
            self.bind(name.clone(), ty.clone());
            return (true, false);
        }
        (false, false)
    }

    /// Whether the variable does not occur in the type.
    fn is_free_of(&self, variable: &Type, ty: &Type) -> bool {
        if !self.step() || variable.is_exactly(ty) {
            return false;
        }
        match ty {
            Type::Parameter(_) => self.find(ty).is_none_or(|bound| self.is_free_of(variable, bound)),
            Type::List(inner) | Type::Optional(inner) | Type::Type(Some(inner)) => self.is_free_of(variable, inner),
            Type::Map(types) => self.is_free_of(variable, &types.0) && self.is_free_of(variable, &types.1),
            _ => true,
        }
    }

    /// The type with all bound variables replaced; free ones become `dyn` if asked for.
    pub(crate) fn resolve(&self, ty: &Type, free_to_dyn: bool) -> Type {
        if !self.step() {
            return Type::Dyn;
        }
        if let Some(bound) = self.find(ty) {
            return self.resolve(bound, free_to_dyn);
        }
        let inner = |ty: &Type| Arc::new(self.resolve(ty, free_to_dyn));
        match ty {
            Type::Parameter(_) if free_to_dyn => Type::Dyn,
            Type::List(item) => Type::List(inner(item)),
            Type::Optional(value) => Type::Optional(inner(value)),
            Type::Type(Some(of)) => Type::Type(Some(inner(of))),
            Type::Map(types) => Type::map(self.resolve(&types.0, free_to_dyn), self.resolve(&types.1, free_to_dyn)),
            other => other.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_bound() {
        let variable = |name: &str| Type::Parameter(name.into());
        let mut bindings = Bindings::default();
        assert!(
            bindings.unify_all(&[Type::String, Type::list(Type::String)], &[variable("A"), Type::list(variable("A"))])
        );
        assert_eq!(bindings.resolve(&Type::list(variable("A")), false).to_string(), "list(string)");
        assert!(!bindings.unify(&Type::Int, &variable("A")));
        assert!(bindings.unify(&Type::Dyn, &variable("A")));
        assert_eq!(bindings.resolve(&variable("A"), false).to_string(), "dyn");
        assert!(!bindings.unify(&variable("B"), &Type::list(variable("B"))));
        assert_eq!(bindings.resolve(&variable("B"), true).to_string(), "dyn");
    }

    #[test]
    fn null_goes_where_go_takes_it() {
        let mut bindings = Bindings::default();
        assert!(bindings.unify(&Type::Null, &Type::Timestamp));
        assert!(!bindings.unify(&Type::Null, &Type::String));
        assert!(!bindings.unify(&Type::list(Type::Int), &Type::Null));
        assert!(bindings.unify(&Type::optional(Type::Int), &Type::Null));
    }
}
