//! How a schema looks to structured merge: which values may stand at a place, and whether they are owned
//! as a whole or part by part.
//!
//! The rules of translation are those of the real API server: an object without declared fields takes any
//! (its maps owned key by key, its lists as a whole), `x-kubernetes-preserve-unknown-fields` opens an object
//! and everything declared below it, and the metadata of a custom resource and of embedded resources is
//! always that of Kubernetes, whatever the CRD says about it.

use std::borrow::Cow;
use std::sync::LazyLock;

use serde_json::Value;

use super::path::{KeyField, PathElement};
use crate::go::text::quote;
use crate::schema::{ListType, Property, Schema, SchemaRef, Type, Zero, builtin};

const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The type of a place in an object.
#[derive(Clone, Copy)]
pub(super) enum FieldType<'s> {
    /// Described by a schema.
    Described(Described<'s>),
    /// Anything; maps are owned key by key, lists as a whole.
    Free,
    /// Any value, owned as a whole.
    Whole,
    /// The field is not declared.
    Undeclared,
}

/// A schema together with what its surroundings say about it.
#[derive(Clone, Copy)]
pub(super) struct Described<'s> {
    schema: &'s Schema,
    /// Unknown fields are kept here, or were further up.
    open: bool,
    /// An object of Kubernetes, with apiVersion, kind and metadata.
    object: bool,
}

/// The form that a value takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Map,
    Scalar,
    List,
}

/// The forms that a value may have at a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Forms {
    /// This one.
    One(Form),
    /// All forms: null does not tell.
    All,
    /// No form: the field must not exist.
    None,
}

impl Forms {
    /// The form to handle; maps come first where all are possible.
    pub(super) fn first(self) -> Option<Form> {
        match self {
            Self::One(form) => Some(form),
            Self::All => Some(Form::Map),
            Self::None => None,
        }
    }
}

/// How the items of a list are identified.
#[derive(Clone, Copy)]
pub(super) enum Relation<'s> {
    /// The list is one value.
    Atomic,
    /// Scalars, each an item.
    Set,
    /// Objects identified by these key fields.
    Keys(&'s [Box<str>]),
}

/// A field of a map or object.
#[derive(Clone, Copy)]
pub(super) struct Field<'s> {
    pub place: FieldType<'s>,
    /// A field of the schema, not a key of a map.
    pub named: bool,
    pub property: Option<&'s Property>,
}

impl<'s> FieldType<'s> {
    /// The place of a whole object.
    pub(super) fn object(schema: &'s Schema) -> Self {
        Self::Described(Described { schema, open: schema.preserve_unknown, object: true })
    }

    fn of(schema: &'s SchemaRef, open_above: bool) -> Self {
        // A named type is the same wherever it is used: it is not opened by what is above.
        let open_above = open_above && matches!(schema, SchemaRef::Inline(_));
        let schema: &'s Schema = schema;
        if schema.ty == Type::Object && schema.name.as_deref() == Some(RAW_EXTENSION) {
            return Self::Whole;
        }
        let open = open_above || schema.preserve_unknown;
        Self::Described(Described { schema, open, object: schema.embedded_resource })
    }

    /// The form in which a value of this place is to be handled.
    pub(super) fn forms(self, value: &Value) -> Forms {
        let only = match self {
            Self::Undeclared => return Forms::None,
            Self::Described(Described { schema, .. }) => match schema.ty {
                Type::Object => Some(Form::Map),
                Type::Array => Some(Form::List),
                Type::String | Type::Integer | Type::Number | Type::Boolean => Some(Form::Scalar),
                Type::Any | Type::IntOrString => None,
            },
            Self::Free | Self::Whole => None,
        };
        match (only, value) {
            (Some(form), _) => Forms::One(form),
            (None, Value::Null) => Forms::All,
            (None, Value::Object(_)) => Forms::One(Form::Map),
            (None, Value::Array(_)) => Forms::One(Form::List),
            (None, _) => Forms::One(Form::Scalar),
        }
    }

    /// The form that values of this place take in general: a map where several are possible.
    pub(super) fn general_form(self) -> Option<Form> {
        self.forms(&Value::Null).first()
    }

    /// Whether this is a place for lists, possibly among other forms.
    pub(super) fn takes_lists(self) -> bool {
        matches!(self.forms(&Value::Null), Forms::All | Forms::One(Form::List))
    }

    /// Whether maps of this place are owned as a whole.
    pub(super) fn whole_map(self) -> bool {
        match self {
            Self::Described(Described { schema, .. }) => schema.atomic_map,
            Self::Free => false,
            Self::Whole | Self::Undeclared => true,
        }
    }

    /// How the items of lists at this place are identified.
    pub(super) fn relation(self) -> Relation<'s> {
        match self {
            Self::Described(Described { schema, .. }) => match schema.list_type {
                ListType::Set => Relation::Set,
                ListType::Map if !schema.list_map_keys.is_empty() => Relation::Keys(&schema.list_map_keys),
                ListType::Atomic | ListType::Map => Relation::Atomic,
            },
            _ => Relation::Atomic,
        }
    }

    /// The place of the items of a list.
    pub(super) fn item(self) -> Self {
        match self {
            Self::Described(Described { schema, open, .. }) => {
                schema.items.as_ref().map_or(Self::Whole, |items| Self::of(items, open))
            }
            _ => Self::Whole,
        }
    }

    /// The place of a field.
    pub(super) fn field(self, name: &str) -> Field<'s> {
        let unnamed = |place| Field { place, named: false, property: None };
        match self {
            Self::Free => unnamed(Self::Free),
            Self::Whole => unnamed(Self::Whole),
            Self::Undeclared => unnamed(Self::Undeclared),
            Self::Described(described) => described.field(name),
        }
    }

    /// The schema, if there is one.
    pub(super) fn schema(self) -> Option<&'s Schema> {
        match self {
            Self::Described(Described { schema, .. }) => Some(schema),
            _ => None,
        }
    }

    /// Whether this is a map that takes anything and declares nothing. Ownership in such maps is not adapted
    /// when the schema changes.
    pub(super) fn is_free_map(self) -> bool {
        match self {
            Self::Described(described) => {
                !described.object && described.schema.properties.is_empty() && described.others().is_untyped()
            }
            Self::Free => true,
            Self::Whole | Self::Undeclared => false,
        }
    }

    fn is_untyped(self) -> bool {
        match self {
            Self::Free => true,
            Self::Described(Described { schema, .. }) => match schema.ty {
                Type::Any | Type::IntOrString => true,
                Type::String => schema.format.as_deref().is_some_and(|format| format != "byte"),
                _ => false,
            },
            Self::Whole | Self::Undeclared => false,
        }
    }

    /// The element that leads to an item of a list of this place, or why it has none.
    pub(super) fn element<'a>(self, relation: Relation<'s>, item: &'a Value) -> Result<PathElement<'a>, String>
    where
        's: 'a,
    {
        match relation {
            Relation::Atomic => Err("invalid indexing of non-associative list".to_owned()),
            Relation::Set => match item {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
                scalar => Ok(PathElement::Value(Cow::Borrowed(scalar))),
            },
            Relation::Keys(keys) => self.item().keyed_element(keys, item),
        }
    }

    fn keyed_element<'a>(self, keys: &'s [Box<str>], item: &'a Value) -> Result<PathElement<'a>, String>
    where
        's: 'a,
    {
        let Value::Object(map) = item else {
            let what = if item.is_null() { "a null element" } else { "non-map elements" };
            return Err(format!("associative list with keys may not have {what}"));
        };
        let mut fields = Vec::with_capacity(keys.len());
        for key in keys {
            let value = map.get(&**key).or_else(|| self.default_of(key));
            fields.extend(value.map(|value| KeyField { name: Cow::Borrowed(&**key), value: Cow::Borrowed(value) }));
        }
        if fields.is_empty() {
            let keys: Vec<String> = keys.iter().map(|key| quote(key)).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                keys.join(" ")
            ));
        }
        if !fields.is_sorted_by(|left, right| left.name <= right.name) {
            fields.sort_by(|left, right| left.name.cmp(&right.name));
        }
        Ok(PathElement::Key(fields.into_boxed_slice()))
    }

    /// The default of a key field, as an absent `protocol` means `TCP`. A field that is always there is empty
    /// when it is absent.
    fn default_of(self, name: &str) -> Option<&'s Value> {
        let property = self.field(name).property?;
        let default = match (&property.default, &property.schema) {
            (Some(default), _) => Some(default),
            (None, SchemaRef::Inline(schema)) => schema.default.as_ref(),
            (None, SchemaRef::Named(_)) => None,
        };
        let empty = || match property.schema.ty {
            Type::String => Some(&EMPTY_TEXT),
            Type::Integer | Type::Number => Some(&*EMPTY_NUMBER),
            _ => None,
        };
        default
            .filter(|default| !default.is_null())
            .or_else(|| if property.zero == Zero::Always { empty() } else { None })
    }
}

impl<'s> Described<'s> {
    fn field(self, name: &str) -> Field<'s> {
        if self.object && name == "metadata" {
            let property = self.schema.properties.get(name);
            if property.is_none_or(|property| property.schema.name.as_deref() != Some(OBJECT_META)) {
                return Field { place: FieldType::of(&OBJECT_META_SCHEMA, false), named: true, property: None };
            }
        }
        if let Some(property) = self.schema.properties.get(name) {
            return Field { place: FieldType::of(&property.schema, self.open), named: true, property: Some(property) };
        }
        if self.object && (name == "apiVersion" || name == "kind") {
            return Field { place: FieldType::of(&TEXT, false), named: true, property: None };
        }
        Field { place: self.others(), named: false, property: None }
    }

    /// The place of keys that are not declared.
    fn others(self) -> FieldType<'s> {
        match &self.schema.additional {
            Some(additional) => FieldType::of(additional, self.open),
            None if self.open || (self.schema.properties.is_empty() && !self.object) => FieldType::Free,
            None => FieldType::Undeclared,
        }
    }
}

static EMPTY_TEXT: Value = Value::String(String::new());
static EMPTY_NUMBER: LazyLock<Value> = LazyLock::new(|| Value::from(0));
static TEXT: LazyLock<SchemaRef> = LazyLock::new(|| Schema { ty: Type::String, ..Schema::default() }.into());

/// The metadata that custom resources and embedded resources have.
static OBJECT_META_SCHEMA: LazyLock<SchemaRef> =
    LazyLock::new(|| builtin::lookup(OBJECT_META).expect("the table of built-in types has ObjectMeta"));
