//! A small language for structural schemas: what `openAPIV3Schema` of a CustomResourceDefinition is written in here.

use serde_json::{Map, Value, json};

/// A schema while it is written.
#[derive(Debug, Clone)]
pub(super) struct Schema(Map<String, Value>);

/// Text.
pub(super) fn string(description: &str) -> Schema {
    typed("string", description)
}

/// A whole number of 32 bits.
pub(super) fn int32(description: &str) -> Schema {
    typed("integer", description).with("format", "int32")
}

/// A whole number of 64 bits.
pub(super) fn int64(description: &str) -> Schema {
    typed("integer", description).with("format", "int64")
}

/// Yes or no.
pub(super) fn boolean(description: &str) -> Schema {
    typed("boolean", description)
}

/// An object; [`Schema::field`] adds what it has.
pub(super) fn object(description: &str) -> Schema {
    typed("object", description)
}

/// An object with any keys.
pub(super) fn map(description: &str, values: Schema) -> Schema {
    object(description).with("additionalProperties", values)
}

/// A list that clients replace as a whole (`atomic`).
pub(super) fn list(description: &str, items: Schema) -> Schema {
    typed("array", description).with("items", items).with("x-kubernetes-list-type", "atomic")
}

fn typed(kind: &str, description: &str) -> Schema {
    let schema = Schema(Map::new()).with("type", kind);
    if description.is_empty() { schema } else { schema.with("description", description) }
}

impl Schema {
    fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.to_owned(), value.into());
        self
    }

    fn push(mut self, key: &str, value: Value) -> Self {
        match self.0.entry(key).or_insert_with(|| json!([])) {
            Value::Array(list) => list.push(value),
            other => *other = json!([value]),
        }
        self
    }

    /// A field of an object.
    pub(super) fn field(mut self, name: &str, schema: Schema) -> Self {
        self.0.entry("properties").or_insert_with(|| json!({}))[name] = schema.into();
        self
    }

    /// A required field of an object.
    pub(super) fn required(self, name: &str, schema: Schema) -> Self {
        self.field(name, schema).push("required", name.into())
    }

    /// The default.
    pub(super) fn default(self, value: impl Into<Value>) -> Self {
        self.with("default", value)
    }

    /// A rule in CEL with the message of a violation.
    pub(super) fn rule(self, rule: &str, message: &str) -> Self {
        self.push("x-kubernetes-validations", json!({"rule": rule, "message": message}))
    }

    /// A rule whose error is reported for one field.
    pub(super) fn rule_at(self, field: &str, rule: &str, message: &str) -> Self {
        self.push("x-kubernetes-validations", json!({"rule": rule, "message": message, "fieldPath": field}))
    }

    /// One of these words.
    pub(super) fn one_of(self, words: &[&str]) -> Self {
        self.with("enum", words.to_vec())
    }

    /// Text of this form.
    pub(super) fn pattern(self, pattern: &str) -> Self {
        self.with("pattern", pattern)
    }

    /// Text in this format of OpenAPI.
    pub(super) fn format(self, format: &str) -> Self {
        self.with("format", format)
    }

    /// Text with a length between `least` and `most` characters.
    pub(super) fn length(self, least: u32, most: u32) -> Self {
        let schema = self.with("maxLength", most);
        if least == 0 { schema } else { schema.with("minLength", least) }
    }

    /// Text that is not empty.
    pub(super) fn not_empty(self) -> Self {
        self.with("minLength", 1)
    }

    /// A number from here.
    pub(super) fn at_least(self, least: i64) -> Self {
        self.with("minimum", least)
    }

    /// A number up to here.
    pub(super) fn at_most(self, most: i64) -> Self {
        self.with("maximum", most)
    }

    /// At least this many items.
    pub(super) fn min_items(self, least: u32) -> Self {
        self.with("minItems", least)
    }

    /// At most this many items.
    pub(super) fn max_items(self, most: u32) -> Self {
        self.with("maxItems", most)
    }

    /// At most this many keys.
    pub(super) fn max_properties(self, most: u32) -> Self {
        self.with("maxProperties", most)
    }

    /// At least this many keys.
    pub(super) fn min_properties(self, least: u32) -> Self {
        self.with("minProperties", least)
    }

    /// Fields that are not declared are preserved.
    pub(super) fn open(self) -> Self {
        self.with("x-kubernetes-preserve-unknown-fields", true)
    }

    /// A rule whose message is computed by a CEL expression; `message` is used if the expression fails.
    pub(super) fn rule_with_message(self, rule: &str, message: &str, expression: &str) -> Self {
        self.push(
            "x-kubernetes-validations",
            json!({"rule": rule, "message": message, "messageExpression": expression}),
        )
    }

    /// A list without equal entries.
    pub(super) fn set(self) -> Self {
        self.with("x-kubernetes-list-type", "set")
    }

    /// A list whose items are identified by a field.
    pub(super) fn keyed_by(self, key: &str) -> Self {
        self.with("x-kubernetes-list-type", "map").push("x-kubernetes-list-map-keys", key.into())
    }

    /// A map that clients replace as a whole (`atomic`).
    pub(super) fn atomic_map(self) -> Self {
        self.with("x-kubernetes-map-type", "atomic")
    }

    /// A number, with or without a fraction.
    pub(super) fn number(description: &str) -> Self {
        typed("number", description)
    }

    /// Any value.
    pub(super) fn any(description: &str) -> Self {
        Self(Map::new()).with("description", description).open()
    }

    /// A number or a text.
    pub(super) fn int_or_string(description: &str) -> Self {
        let schema = Self(Map::new()).with("x-kubernetes-int-or-string", true);
        let schema = schema.with("anyOf", json!([{"type": "integer"}, {"type": "string"}]));
        if description.is_empty() { schema } else { schema.with("description", description) }
    }
}

impl From<Schema> for Value {
    fn from(schema: Schema) -> Self {
        Self::Object(schema.0)
    }
}
