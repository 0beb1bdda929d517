//! The schema of a CRD (`openAPIV3Schema`), read into a tree.
//!
//! [`Props`] holds everything that pruning, defaulting and validation need, and notes what a structural schema
//! may not have. Texts for people (title, description) are only noted as present: they stand in the original.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use regex::Regex;
use serde_json::{Map, Value};

use super::choices::Choices;
use super::formats::Format;
use crate::go::regexp;
use crate::status::FieldError;

/// One node of a schema.
#[derive(Debug, Clone, Default)]
pub(crate) struct Props {
    /// `object`, `array`, …; empty when not given.
    pub(crate) ty: Box<str>,
    pub(crate) format: Box<str>,
    pub(crate) nullable: bool,
    pub(crate) default: Option<Value>,
    pub(crate) properties: BTreeMap<Box<str>, Props>,
    pub(crate) additional: Option<Additional>,
    pub(crate) items: Option<Box<Props>>,
    pub(crate) int_or_string: bool,
    pub(crate) embedded_resource: bool,
    /// `x-kubernetes-preserve-unknown-fields`, when given.
    pub(crate) preserve_unknown: Option<bool>,
    pub(crate) list_type: Option<Box<str>>,
    pub(crate) list_map_keys: Vec<Box<str>>,
    pub(crate) map_type: Option<Box<str>>,
    pub(crate) rules: Vec<Rule>,

    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) max_length: Option<i64>,
    pub(crate) min_length: Option<i64>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) max_items: Option<i64>,
    pub(crate) min_items: Option<i64>,
    pub(crate) unique_items: bool,
    pub(crate) max_properties: Option<i64>,
    pub(crate) min_properties: Option<i64>,
    pub(crate) required: Vec<Box<str>>,
    pub(crate) enumeration: Choices,
    pub(crate) all_of: Vec<Props>,
    pub(crate) any_of: Vec<Props>,
    pub(crate) one_of: Vec<Props>,
    pub(crate) not: Option<Box<Props>>,

    /// The check of [`Props::format`]; `None` for formats that are not checked.
    pub(crate) checked_format: Option<Format>,
    /// Fields that are present but not used.
    pub(crate) noted: Noted,
}

/// Parts of a schema that only matter by being there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) title: bool,
    pub(crate) description: bool,
    pub(crate) example: bool,
    pub(crate) external_docs: bool,
    pub(crate) id: bool,
    pub(crate) schema: bool,
    pub(crate) reference: Option<Box<str>>,
    pub(crate) pattern_properties: bool,
    pub(crate) definitions: bool,
    pub(crate) dependencies: Option<bool>,
    pub(crate) additional_items: bool,
    /// `items` is a list of schemas.
    pub(crate) items_list: bool,
}

/// `additionalProperties`.
#[derive(Debug, Clone)]
pub(crate) enum Additional {
    /// `true` or `false`.
    Allowed(bool),
    /// A schema for the values.
    Schema(Box<Props>),
}

/// A regular expression, compiled when it is first used.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    pub(crate) source: Box<str>,
    compiled: OnceLock<Result<Regex, String>>,
}

impl Pattern {
    fn new(source: &str) -> Self {
        Self { source: source.into(), compiled: OnceLock::new() }
    }

    /// The compiled expression, or what is wrong with it.
    pub(crate) fn regex(&self) -> Result<&Regex, &str> {
        let compiled = self.compiled.get_or_init(|| regexp::compile(&self.source).map_err(|error| error.to_string()));
        compiled.as_ref().map_err(String::as_str)
    }
}

/// One of `x-kubernetes-validations`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) rule: Box<str>,
    pub(crate) message: Box<str>,
    pub(crate) message_expression: Box<str>,
    pub(crate) reason: Option<Box<str>>,
    pub(crate) field_path: Box<str>,
    pub(crate) optional_old_self: Option<bool>,
}

impl Props {
    /// Reads a schema. `path` is where it stands, for messages about values of a wrong type.
    pub(crate) fn parse(schema: &Value, path: &str) -> Result<Self, Vec<FieldError>> {
        let mut reader = Reader { path: path.to_owned(), errors: Vec::new() };
        let props = reader.props(schema);
        if reader.errors.is_empty() { Ok(props) } else { Err(reader.errors) }
    }

    /// Schema of the values under unknown keys.
    pub(crate) fn additional_schema(&self) -> Option<&Props> {
        match &self.additional {
            Some(Additional::Schema(schema)) => Some(schema),
            _ => None,
        }
    }

    /// Schema of the value under a key: its property's, or that of additional ones.
    pub(crate) fn child(&self, key: &str) -> Option<&Props> {
        self.properties.get(key).or_else(|| self.additional_schema())
    }

    /// Whether unknown fields below stay.
    pub(crate) fn preserves_unknown(&self) -> bool {
        self.preserve_unknown == Some(true)
    }

    /// Whether the format, if there is one, is checked.
    pub(crate) fn is_format_known(&self) -> bool {
        self.format.is_empty() || self.checked_format.is_some()
    }

    /// Whether items are known by keys (`x-kubernetes-list-type: map`).
    pub(crate) fn is_list_map(&self) -> bool {
        self.list_type.as_deref() == Some("map")
    }

    /// Calls `visit` for this node and all nodes below, wherever schemas can stand. Stops at the first `true`.
    pub(crate) fn any(&self, visit: &mut dyn FnMut(&Props) -> bool) -> bool {
        visit(self)
            || self.items.as_ref().is_some_and(|items| items.any(visit))
            || self.all_of.iter().any(|branch| branch.any(visit))
            || self.any_of.iter().any(|branch| branch.any(visit))
            || self.one_of.iter().any(|branch| branch.any(visit))
            || self.not.as_ref().is_some_and(|not| not.any(visit))
            || self.properties.values().any(|property| property.any(visit))
            || self.additional_schema().is_some_and(|additional| additional.any(visit))
    }
}

/// Reads fields and notes values of a wrong type. Where Go's decoder would refuse the whole object, the
/// field's path stands in the error.
struct Reader {
    path: String,
    errors: Vec<FieldError>,
}

impl Reader {
    fn props(&mut self, schema: &Value) -> Props {
        let Some(fields) = schema.as_object() else {
            if !schema.is_null() {
                self.wrong("", schema, "object");
            }
            return Props::default();
        };
        let ty = self.text(fields, "type");
        let format = self.text(fields, "format");
        let int_or_string = self.flag(fields, "x-kubernetes-int-or-string");
        let (items, items_list) = self.items(fields);
        Props {
            checked_format: Format::new(&format, &ty, int_or_string),
            ty,
            format,
            nullable: self.flag(fields, "nullable"),
            default: fields.get("default").filter(|value| !value.is_null()).cloned(),
            properties: self.named(fields, "properties"),
            additional: self.additional(fields),
            items,
            int_or_string,
            embedded_resource: self.flag(fields, "x-kubernetes-embedded-resource"),
            preserve_unknown: self.optional_flag(fields, "x-kubernetes-preserve-unknown-fields"),
            list_type: self.optional_text(fields, "x-kubernetes-list-type"),
            list_map_keys: self.texts(fields, "x-kubernetes-list-map-keys"),
            map_type: self.optional_text(fields, "x-kubernetes-map-type"),
            rules: self.rules(fields),
            maximum: self.number(fields, "maximum"),
            exclusive_maximum: self.flag(fields, "exclusiveMaximum"),
            minimum: self.number(fields, "minimum"),
            exclusive_minimum: self.flag(fields, "exclusiveMinimum"),
            multiple_of: self.number(fields, "multipleOf"),
            max_length: self.integer(fields, "maxLength"),
            min_length: self.integer(fields, "minLength"),
            pattern: self
                .optional_text(fields, "pattern")
                .filter(|text| !text.is_empty())
                .map(|text| Pattern::new(&text)),
            max_items: self.integer(fields, "maxItems"),
            min_items: self.integer(fields, "minItems"),
            unique_items: self.flag(fields, "uniqueItems"),
            max_properties: self.integer(fields, "maxProperties"),
            min_properties: self.integer(fields, "minProperties"),
            required: self.texts(fields, "required"),
            enumeration: Choices::new(self.list(fields, "enum").to_vec()),
            all_of: self.branches(fields, "allOf"),
            any_of: self.branches(fields, "anyOf"),
            one_of: self.branches(fields, "oneOf"),
            not: self.branch(fields, "not"),
            noted: Noted { items_list, ..self.noted(fields) },
        }
    }

    fn noted(&mut self, fields: &Map<String, Value>) -> Noted {
        let there = |key: &str| fields.get(key).is_some_and(|value| !value.is_null());
        let filled = |key: &str| match fields.get(key) {
            Some(Value::Object(map)) => !map.is_empty(),
            Some(Value::String(text)) => !text.is_empty(),
            _ => false,
        };
        Noted {
            title: filled("title"),
            description: filled("description"),
            example: there("example"),
            external_docs: there("externalDocs"),
            id: filled("id"),
            schema: filled("$schema"),
            reference: self.optional_text(fields, "$ref"),
            pattern_properties: filled("patternProperties"),
            definitions: filled("definitions"),
            dependencies: there("dependencies").then(|| filled("dependencies")),
            additional_items: there("additionalItems"),
            items_list: false,
        }
    }

    fn within<T>(&mut self, key: &str, read: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        self.path.push('.');
        self.path.push_str(key);
        let result = read(self);
        self.path.truncate(length);
        result
    }

    fn at_index<T>(&mut self, index: usize, read: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        self.path.push_str(&format!("[{index}]"));
        let result = read(self);
        self.path.truncate(length);
        result
    }

    fn wrong(&mut self, key: &str, value: &Value, wanted: &str) {
        let field = if key.is_empty() { self.path.clone() } else { format!("{}.{key}", self.path) };
        let article = if wanted.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
        self.errors.push(FieldError::invalid(field, value.clone(), format!("must be {article} {wanted}")));
    }

    /// The value under a key when it is there and `read` takes it.
    fn read<'v, T>(
        &mut self,
        fields: &'v Map<String, Value>,
        key: &str,
        wanted: &str,
        read: impl FnOnce(&'v Value) -> Option<T>,
    ) -> Option<T> {
        let value = fields.get(key).filter(|value| !value.is_null())?;
        let result = read(value);
        if result.is_none() {
            self.wrong(key, value, wanted);
        }
        result
    }

    fn optional_text(&mut self, fields: &Map<String, Value>, key: &str) -> Option<Box<str>> {
        self.read(fields, key, "string", Value::as_str).map(Box::from)
    }

    fn text(&mut self, fields: &Map<String, Value>, key: &str) -> Box<str> {
        self.optional_text(fields, key).unwrap_or_default()
    }

    fn optional_flag(&mut self, fields: &Map<String, Value>, key: &str) -> Option<bool> {
        self.read(fields, key, "boolean", Value::as_bool)
    }

    fn flag(&mut self, fields: &Map<String, Value>, key: &str) -> bool {
        self.optional_flag(fields, key).unwrap_or(false)
    }

    fn number(&mut self, fields: &Map<String, Value>, key: &str) -> Option<f64> {
        self.read(fields, key, "number", Value::as_f64)
    }

    fn integer(&mut self, fields: &Map<String, Value>, key: &str) -> Option<i64> {
        self.read(fields, key, "integer", Value::as_i64)
    }

    fn list<'v>(&mut self, fields: &'v Map<String, Value>, key: &str) -> &'v [Value] {
        self.read(fields, key, "list", Value::as_array).map_or(&[], Vec::as_slice)
    }

    fn texts(&mut self, fields: &Map<String, Value>, key: &str) -> Vec<Box<str>> {
        let mut texts = Vec::new();
        for (index, item) in self.list(fields, key).iter().enumerate() {
            match item.as_str() {
                Some(text) => texts.push(text.into()),
                None => self.wrong(&format!("{key}[{index}]"), item, "string"),
            }
        }
        texts
    }

    fn branch(&mut self, fields: &Map<String, Value>, key: &str) -> Option<Box<Props>> {
        let schema = fields.get(key).filter(|value| !value.is_null())?;
        Some(Box::new(self.within(key, |reader| reader.props(schema))))
    }

    fn branches(&mut self, fields: &Map<String, Value>, key: &str) -> Vec<Props> {
        let list = self.list(fields, key);
        self.within(key, |reader| {
            list.iter()
                .enumerate()
                .map(|(index, schema)| reader.at_index(index, |reader| reader.props(schema)))
                .collect()
        })
    }

    fn named(&mut self, fields: &Map<String, Value>, key: &str) -> BTreeMap<Box<str>, Props> {
        let Some(named) = self.read(fields, key, "object", Value::as_object) else { return BTreeMap::new() };
        self.within(key, |reader| {
            named.iter().map(|(name, schema)| (name.as_str().into(), reader.named_schema(name, schema))).collect()
        })
    }

    fn named_schema(&mut self, name: &str, schema: &Value) -> Props {
        let length = self.path.len();
        self.path.push_str(&format!("[{name}]"));
        let props = self.props(schema);
        self.path.truncate(length);
        props
    }

    fn additional(&mut self, fields: &Map<String, Value>) -> Option<Additional> {
        match fields.get("additionalProperties")? {
            Value::Null => None,
            Value::Bool(allowed) => Some(Additional::Allowed(*allowed)),
            schema => {
                let props = self.within("additionalProperties", |reader| reader.props(schema));
                Some(Additional::Schema(Box::new(props)))
            }
        }
    }

    /// The schema of items, and whether several were given.
    fn items(&mut self, fields: &Map<String, Value>) -> (Option<Box<Props>>, bool) {
        match fields.get("items") {
            None | Some(Value::Null) => (None, false),
            Some(Value::Array(list)) => (None, !list.is_empty()),
            Some(schema) => (Some(Box::new(self.within("items", |reader| reader.props(schema)))), false),
        }
    }

    fn rules(&mut self, fields: &Map<String, Value>) -> Vec<Rule> {
        const KEY: &str = "x-kubernetes-validations";
        let list = self.list(fields, KEY);
        self.within(KEY, |reader| {
            list.iter().enumerate().map(|(index, rule)| reader.at_index(index, |reader| reader.rule(rule))).collect()
        })
    }

    fn rule(&mut self, rule: &Value) -> Rule {
        let Some(fields) = rule.as_object() else {
            self.wrong("", rule, "object");
            return Rule::default();
        };
        Rule {
            rule: self.text(fields, "rule"),
            message: self.text(fields, "message"),
            message_expression: self.text(fields, "messageExpression"),
            reason: self.optional_text(fields, "reason"),
            field_path: self.text(fields, "fieldPath"),
            optional_old_self: self.optional_flag(fields, "optionalOldSelf"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_every_part() {
        let props = Props::parse(
            &json!({
                "type": "object",
                "title": "t",
                "properties": {
                    "list": {
                        "type": "array", "items": {"type": "string", "pattern": "^a"},
                        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                    },
                    "map": {"type": "object", "additionalProperties": {"type": "integer", "format": "int32"}},
                    "any": {"x-kubernetes-preserve-unknown-fields": true, "default": null},
                    "open": {"type": "object", "additionalProperties": true},
                },
                "oneOf": [{"required": ["list"]}],
                "x-kubernetes-validations": [{"rule": "true", "optionalOldSelf": true, "reason": "FieldValueInvalid"}],
            }),
            "schema",
        )
        .unwrap();
        assert!(props.noted.title && !props.noted.description);
        assert!(props.properties["list"].is_list_map());
        assert!(
            props.properties["list"].items.as_ref().unwrap().pattern.as_ref().unwrap().regex().unwrap().is_match("ab")
        );
        assert_eq!(&*props.child("map").unwrap().child("whatever").unwrap().ty, "integer");
        assert!(props.properties["any"].preserves_unknown() && props.properties["any"].default.is_none());
        assert!(matches!(props.properties["open"].additional, Some(Additional::Allowed(true))));
        assert_eq!(&*props.one_of[0].required[0], "list");
        assert_eq!(props.rules[0].optional_old_self, Some(true));
    }

    #[test]
    fn values_of_a_wrong_type_are_named() {
        let errors = Props::parse(
            &json!({"type": 1, "properties": {"a.b": {"maxLength": "x"}}, "required": [true], "allOf": [{"not": 7}]}),
            "schema",
        )
        .unwrap_err();
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "schema.type: Invalid value: 1: must be a string",
                "schema.properties[a.b].maxLength: Invalid value: \"x\": must be an integer",
                "schema.required[0]: Invalid value: true: must be a string",
                "schema.allOf[0].not: Invalid value: 7: must be an object",
            ]
        );
    }
}
