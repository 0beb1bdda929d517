//! Types as OpenAPI definitions.
//!
//! The two versions of OpenAPI differ in details: the location of definitions, whether a reference may have siblings,
//! and that v2 has neither defaults nor alternatives.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::custom;
use super::descriptions::Descriptions;
use crate::resource::Resource;
use crate::schema::{ListType, Property, Schema, SchemaRef, Type, Zero, builtin};

/// Version of OpenAPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Swagger.
    V2,
    /// OpenAPI 3.0.
    V3,
}

/// The definitions of one document: those that were referred to, and those that they refer to.
pub(super) struct Definitions<'a> {
    pub(super) dialect: Dialect,
    pub(super) descriptions: &'a Descriptions,
    /// Groups and versions that the document is about: types that all groups know name these.
    group_versions: Vec<(String, String)>,
    done: BTreeMap<String, Value>,
    /// Types of the table that are still to be described.
    waiting: Vec<u16>,
}

impl<'a> Definitions<'a> {
    pub(super) fn new(
        dialect: Dialect,
        descriptions: &'a Descriptions,
        mut group_versions: Vec<(String, String)>,
    ) -> Self {
        let core = (String::new(), "v1".to_owned());
        if !group_versions.contains(&core) {
            group_versions.insert(0, core);
        }
        Self { dialect, descriptions, group_versions, done: BTreeMap::new(), waiting: Vec::new() }
    }

    /// `{"$ref": …}` to a built-in type.
    pub(super) fn builtin(&mut self, name: &str) -> Option<Value> {
        match builtin::lookup(name) {
            Some(SchemaRef::Named(index)) => Some(self.named(index)),
            _ => None,
        }
    }

    /// `{"$ref": …}` to a kind of the table.
    pub(super) fn kind(&mut self, group: &str, version: &str, kind: &str) -> Option<Value> {
        match builtin::kind(group, version, kind) {
            Some(SchemaRef::Named(index)) => Some(self.named(index)),
            _ => None,
        }
    }

    /// References to the type of a resource's objects and to that of their lists.
    pub(super) fn resource(&mut self, resource: &Resource) -> (Value, Value) {
        let (group, version) = (&*resource.group, &*resource.version);
        if let Some(one) = self.kind(group, version, &resource.kind) {
            let list = self.kind(group, version, &resource.list_kind).unwrap_or_else(|| one.clone());
            return (one, list);
        }
        let names = [&resource.kind, &resource.list_kind].map(|kind| custom::definition_name(group, version, kind));
        if !self.done.contains_key(&names[0]) {
            let one = custom::object(self, resource);
            let list = custom::list(self, resource, &names[0]);
            self.done.insert(names[0].clone(), one);
            self.done.insert(names[1].clone(), list);
        }
        (self.reference(&names[0]), self.reference(&names[1]))
    }

    /// All definitions.
    pub(super) fn finish(mut self) -> Map<String, Value> {
        while let Some(index) = self.waiting.pop() {
            let schema = builtin::type_at(index);
            let name = schema.name.as_deref().expect("types of the table have names");
            if !self.done.contains_key(name) {
                let definition = self.describe(index, schema, name);
                self.done.insert(name.to_owned(), definition);
            }
        }
        self.done.into_iter().collect()
    }

    /// `{"$ref": …}` to a definition of this document.
    pub(super) fn reference(&self, name: &str) -> Value {
        match self.dialect {
            Dialect::V2 => json!({"$ref": format!("#/definitions/{name}")}),
            Dialect::V3 => json!({"$ref": format!("#/components/schemas/{name}")}),
        }
    }

    /// A reference with the description of this use. OpenAPI 3.0 ignores siblings of a `$ref`.
    pub(super) fn described_reference(&self, reference: Value, description: Option<&str>) -> Value {
        self.dressed_reference(reference, description, None)
    }

    fn dressed_reference(&self, reference: Value, description: Option<&str>, default: Option<Value>) -> Value {
        if description.is_none() && default.is_none() {
            return reference;
        }
        let mut dressed = match self.dialect {
            Dialect::V2 => reference,
            Dialect::V3 => json!({"allOf": [reference]}),
        };
        if let Some(description) = description {
            dressed["description"] = description.into();
        }
        if let Some(default) = default {
            dressed["default"] = default;
        }
        dressed
    }

    fn named(&mut self, index: u16) -> Value {
        self.waiting.push(index);
        self.reference(builtin::type_at(index).name.as_deref().unwrap_or_default())
    }

    /// The definition of a type of the table.
    fn describe(&mut self, index: u16, schema: &Schema, name: &str) -> Value {
        let mut definition = self.shape(schema);
        if let Some(description) = self.descriptions.of_type(name) {
            definition.insert("description".to_owned(), description.into());
        }
        let mut properties = Map::new();
        for (property_name, property) in schema.properties.iter() {
            let description = self.descriptions.of_property(name, property_name);
            properties.insert(property_name.to_string(), self.property(property, description.as_deref()));
        }
        if !properties.is_empty() {
            definition.insert("properties".to_owned(), Value::Object(properties));
        }
        if !schema.required.is_empty() {
            definition.insert("required".to_owned(), json!(schema.required));
        }
        if schema.atomic_map {
            definition.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
        }
        let kinds = self.kinds(index);
        if !kinds.is_empty() {
            definition.insert("x-kubernetes-group-version-kind".to_owned(), Value::Array(kinds));
        }
        Value::Object(definition)
    }

    fn kinds(&self, index: u16) -> Vec<Value> {
        let mut kinds = Vec::new();
        for (group, version, kind) in builtin::kinds_of(index) {
            if group == "*" {
                let known = self.group_versions.iter();
                kinds.extend(known.map(|(group, version)| json!({"group": group, "version": version, "kind": kind})));
            } else {
                kinds.push(json!({"group": group, "version": version, "kind": kind}));
            }
        }
        kinds
    }

    /// Type and format.
    fn shape(&self, schema: &Schema) -> Map<String, Value> {
        let v3 = self.dialect == Dialect::V3;
        let shape = match (schema.ty, schema.format.as_deref()) {
            (Type::Any, _) => json!({}),
            (Type::IntOrString, format) if v3 => {
                json!({"format": format, "oneOf": [{"type": "integer"}, {"type": "string"}]})
            }
            (Type::String, Some("quantity")) if v3 => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
            (Type::String, Some("quantity")) => json!({"type": "string"}),
            (ty, None) => json!({"type": type_name(ty)}),
            (ty, Some(format)) => json!({"type": type_name(ty), "format": format}),
        };
        match shape {
            Value::Object(shape) => shape,
            _ => unreachable!("all shapes are objects"),
        }
    }

    fn property(&mut self, property: &Property, description: Option<&str>) -> Value {
        let default = self.default(property);
        let mut value = match &property.schema {
            SchemaRef::Named(index) => {
                let reference = self.named(*index);
                self.dressed_reference(reference, description, default)
            }
            // A named type that is granular in this place alone.
            SchemaRef::Inline(schema) if schema.name.is_some() => {
                let reference = schema.name.as_deref().and_then(|name| self.builtin(name));
                let mut value = self.dressed_reference(reference.unwrap_or_default(), description, default);
                value["x-kubernetes-map-type"] = "granular".into();
                value
            }
            SchemaRef::Inline(schema) => {
                let mut value = self.inline(schema);
                if let Some(description) = description {
                    value.insert("description".to_owned(), description.into());
                }
                if let Some(default) = default {
                    value.insert("default".to_owned(), default);
                }
                Value::Object(value)
            }
        };
        if let Some(strategy) = strategy(property) {
            value["x-kubernetes-patch-strategy"] = strategy.into();
        }
        if let Some(key) = &property.patch_merge_key {
            value["x-kubernetes-patch-merge-key"] = json!(key);
        }
        value
    }

    /// A scalar, list or map.
    fn inline(&mut self, schema: &Schema) -> Map<String, Value> {
        let mut value = self.shape(schema);
        if let Some(items) = &schema.items {
            let items = self.element(items);
            value.insert("items".to_owned(), items);
        }
        if let Some(values) = &schema.additional {
            let values = self.element(values);
            value.insert("additionalProperties".to_owned(), values);
        }
        if schema.atomic_map {
            value.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
        }
        match schema.list_type {
            ListType::Set => drop(value.insert("x-kubernetes-list-type".to_owned(), "set".into())),
            ListType::Map => {
                value.insert("x-kubernetes-list-type".to_owned(), "map".into());
                value.insert("x-kubernetes-list-map-keys".to_owned(), json!(schema.list_map_keys));
            }
            ListType::Atomic if schema.items.is_some() => {
                value.insert("x-kubernetes-list-type".to_owned(), "atomic".into());
            }
            ListType::Atomic => {}
        }
        value
    }

    /// An item of a list or a value of a map, which Go starts as its empty value.
    fn element(&mut self, schema: &SchemaRef) -> Value {
        let default = if self.dialect == Dialect::V3 { starting_value(schema) } else { None };
        match schema {
            SchemaRef::Named(index) => {
                let reference = self.named(*index);
                self.dressed_reference(reference, None, default)
            }
            SchemaRef::Inline(schema) => {
                let mut value = self.inline(schema);
                if let Some(default) = default {
                    value.insert("default".to_owned(), default);
                }
                Value::Object(value)
            }
        }
    }

    fn default(&self, property: &Property) -> Option<Value> {
        if self.dialect == Dialect::V2 {
            return None;
        }
        let starting = || if property.zero == Zero::Always { starting_value(&property.schema) } else { None };
        property.default.clone().or_else(starting)
    }
}

/// Go's zero value, for types whose zero value OpenAPI states: scalars and plain structs.
fn starting_value(schema: &Schema) -> Option<Value> {
    match (schema.ty, schema.format.as_deref()) {
        (Type::String, None) => Some(json!("")),
        (Type::Integer | Type::Number, _) => Some(json!(0)),
        (Type::Boolean, _) => Some(json!(false)),
        (Type::Object, _) if schema.additional.is_none() && !schema.preserve_unknown => Some(json!({})),
        _ => None,
    }
}

fn type_name(ty: Type) -> &'static str {
    match ty {
        Type::Any | Type::Object => "object",
        Type::Array => "array",
        Type::String | Type::IntOrString => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
    }
}

fn strategy(property: &Property) -> Option<&'static str> {
    match (property.patch.merge, property.patch.retain_keys) {
        (true, true) => Some("merge,retainKeys"),
        (true, false) => Some("merge"),
        (false, true) => Some("retainKeys"),
        (false, false) => property.patch.replace.then_some("replace"),
    }
}
