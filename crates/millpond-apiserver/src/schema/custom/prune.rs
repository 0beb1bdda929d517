//! Dropping fields that the schema of a custom resource does not know.

use serde_json::Value;

use super::props::Props;

/// Drops unknown fields and returns their paths, sorted. `is_resource` says that the value is a whole object, whose
/// `apiVersion`, `kind` and `metadata` are always kept.
pub(crate) fn prune(schema: &Props, value: &mut Value, is_resource: bool) -> Vec<String> {
    let mut pruner = Pruner { path: String::new(), unknown: Vec::new() };
    pruner.prune(Judge::new(Some(schema), is_resource, false), value);
    pruner.unknown.sort();
    pruner.unknown
}

/// Paths of unknown fields, sorted; the value stays as it is.
pub(crate) fn unknown(schema: &Props, value: &Value, is_resource: bool) -> Vec<String> {
    let mut finder = Finder { path: String::new(), unknown: Vec::new() };
    finder.find(Judge::new(Some(schema), is_resource, false), value);
    finder.unknown.sort();
    finder.unknown
}

/// Fields of every whole object.
fn is_meta_field(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind" | "metadata")
}

/// The schema by which a value is judged.
#[derive(Clone, Copy)]
struct Judge<'a> {
    schema: Option<&'a Props>,
    /// The value is a whole object.
    is_resource: bool,
    /// Unknown fields stay, here and in the items of lists; properties are judged by their own schemas.
    lenient: bool,
}

/// How a field is treated.
enum FieldVerdict<'a> {
    /// It is kept with everything below: it belongs to the server, or unknown fields are preserved.
    Kept,
    /// It is kept, and the fields below are checked.
    Known(Judge<'a>),
    /// It is dropped.
    Unknown,
}

impl<'a> Judge<'a> {
    fn new(schema: Option<&'a Props>, is_resource: bool, lenient: bool) -> Self {
        Self {
            schema,
            is_resource: is_resource || schema.is_some_and(|schema| schema.embedded_resource),
            lenient: lenient || schema.is_some_and(Props::preserves_unknown),
        }
    }

    fn field(self, key: &str) -> FieldVerdict<'a> {
        let Some(schema) = self.schema else { return FieldVerdict::Unknown };
        if self.is_resource && is_meta_field(key) {
            return FieldVerdict::Kept;
        }
        let known = schema.properties.get(key);
        if known.is_some() || schema.additional.is_some() {
            let below = known.or_else(|| schema.additional_schema());
            return FieldVerdict::Known(Judge::new(below, false, false));
        }
        if self.lenient { FieldVerdict::Kept } else { FieldVerdict::Unknown }
    }

    /// The check for items; `None` if they are left alone.
    fn items(self) -> Option<Self> {
        let schema = self.schema.and_then(|schema| schema.items.as_deref());
        if self.lenient && schema.is_none() { None } else { Some(Judge::new(schema, false, self.lenient)) }
    }
}

fn push_key(path: &mut String, key: &str) -> usize {
    let length = path.len();
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
    length
}

fn push_index(path: &mut String, index: usize) -> usize {
    let length = path.len();
    path.push_str(&format!("[{index}]"));
    length
}

/// The unknown field's path. An object without a schema for its meta fields may have them at the top.
fn note(path: &mut String, key: &str, unknown: &mut Vec<String>) {
    if path.is_empty() && is_meta_field(key) {
        return;
    }
    let length = push_key(path, key);
    unknown.push(path.clone());
    path.truncate(length);
}

struct Pruner {
    path: String,
    unknown: Vec<String>,
}

impl Pruner {
    fn prune(&mut self, judge: Judge<'_>, value: &mut Value) {
        match value {
            Value::Object(fields) => fields.retain(|key, field| match judge.field(key) {
                FieldVerdict::Kept => true,
                FieldVerdict::Known(judge) => {
                    let length = push_key(&mut self.path, key);
                    self.prune(judge, field);
                    self.path.truncate(length);
                    true
                }
                FieldVerdict::Unknown => {
                    note(&mut self.path, key, &mut self.unknown);
                    false
                }
            }),
            Value::Array(list) => {
                let Some(judge) = judge.items() else { return };
                for (index, item) in list.iter_mut().enumerate() {
                    let length = push_index(&mut self.path, index);
                    self.prune(judge, item);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }
}

struct Finder {
    path: String,
    unknown: Vec<String>,
}

impl Finder {
    fn find(&mut self, judge: Judge<'_>, value: &Value) {
        match value {
            Value::Object(fields) => {
                for (key, field) in fields {
                    match judge.field(key) {
                        FieldVerdict::Kept => {}
                        FieldVerdict::Known(judge) => {
                            let length = push_key(&mut self.path, key);
                            self.find(judge, field);
                            self.path.truncate(length);
                        }
                        FieldVerdict::Unknown => note(&mut self.path, key, &mut self.unknown),
                    }
                }
            }
            Value::Array(list) => {
                let Some(judge) = judge.items() else { return };
                for (index, item) in list.iter().enumerate() {
                    let length = push_index(&mut self.path, index);
                    self.find(judge, item);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_go() {
        let schema = Props::parse(
            &json!({"type": "object", "properties": {
                "spec": {"type": "object", "properties": {
                    "known": {"type": "string"},
                    "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
                    "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}}},
                    "open": {"type": "object", "additionalProperties": true},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                        "strict": {"type": "object", "properties": {"a": {"type": "string"}}},
                    }},
                    "any": {"x-kubernetes-preserve-unknown-fields": true},
                    "anyItems": {
                        "type": "array", "x-kubernetes-preserve-unknown-fields": true,
                        "items": {"type": "object", "properties": {"o": {"type": "object"}}},
                    },
                    "embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
                }},
            }}),
            "",
        )
        .unwrap();
        let object = json!({
            "apiVersion": "v1", "kind": "K", "metadata": {"whatever": 1}, "other": 1,
            "spec": {
                "known": "x", "unknown": 1,
                "list": [{"a": "x"}, {"b": 1}],
                "map": {"k": {"a": "x", "b": 1}},
                "open": {"k": 1, "o": {"x": 1}},
                "free": {"x": {"y": 1}, "strict": {"a": "x", "b": 1}},
                "any": [{"x": [{"y": 1}]}],
                "anyItems": [{"x": 1, "o": {"x": 1}}],
                "embedded": {"apiVersion": "v1", "kind": "E", "metadata": {"x": 1}, "spec": {"x": 1}, "y": 1},
            },
        });
        let expected_paths = [
            "other",
            "spec.anyItems[0].o.x",
            "spec.embedded.spec.x",
            "spec.embedded.y",
            "spec.free.strict.b",
            "spec.list[1].b",
            "spec.map.k.b",
            "spec.open.o.x",
            "spec.unknown",
        ];
        assert_eq!(unknown(&schema, &object, true), expected_paths);
        let mut pruned = object;
        assert_eq!(prune(&schema, &mut pruned, true), expected_paths);
        assert_eq!(
            pruned,
            json!({
                "apiVersion": "v1", "kind": "K", "metadata": {"whatever": 1},
                "spec": {
                    "known": "x",
                    "list": [{"a": "x"}, {}],
                    "map": {"k": {"a": "x"}},
                    "open": {"k": 1, "o": {}},
                    "free": {"x": {"y": 1}, "strict": {"a": "x"}},
                    "any": [{"x": [{"y": 1}]}],
                    "anyItems": [{"x": 1, "o": {}}],
                    "embedded": {"apiVersion": "v1", "kind": "E", "metadata": {"x": 1}, "spec": {}},
                },
            })
        );
        assert!(unknown(&schema, &pruned, true).is_empty());
    }
}
