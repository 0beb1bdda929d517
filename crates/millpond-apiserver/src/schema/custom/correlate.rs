//! Correlates the parts of an old object with the parts of the new one.
//!
//! An update must not be refused because of parts that it leaves unchanged (ratcheting), and transition rules compare a
//! value with its predecessor. Both need pairs of old and new values: properties are paired by name, items of a map
//! list by their keys, other items not at all.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::props::Props;

/// A value and its former self, under the schema of both.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair<'a> {
    pub(crate) new: &'a Value,
    pub(crate) old: &'a Value,
    pub(crate) schema: &'a Props,
}

impl Pair<'_> {
    /// The pair under a key that both have and the schema knows.
    pub(crate) fn child(self, key: &str) -> Option<Self> {
        let old = self.old.as_object()?.get(key)?;
        let new = self.new.as_object()?.get(key)?;
        Some(Pair { new, old, schema: self.schema.child(key)? })
    }

    /// A pair for each item of the new list; `None` for items without a predecessor.
    pub(crate) fn items(self) -> Vec<Option<Self>> {
        let Value::Array(new) = self.new else { return Vec::new() };
        let schema = self.schema.items.as_deref();
        let old = self.old.as_array().map(|old| MapList::new(self.schema, old));
        new.iter().map(|item| Some(Pair { new: item, old: old.as_ref()?.get(item)?, schema: schema? })).collect()
    }

    /// Whether nothing changed. Items of a map list may have moved.
    pub(crate) fn unchanged(self) -> bool {
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) if self.schema.is_list_map() && !new.is_empty() => {
                new.len() == old.len() && self.items().into_iter().all(|item| item.is_some_and(Self::unchanged))
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len() && new.keys().all(|key| self.child(key).is_some_and(Self::unchanged))
            }
            (new, old) => new == old,
        }
    }
}

/// Items of a map list by their keys; empty for any other list.
pub(crate) struct MapList<'a> {
    keys: &'a [Box<str>],
    items: HashMap<String, &'a Value>,
}

impl<'a> MapList<'a> {
    pub(crate) fn new(schema: &'a Props, items: &'a [Value]) -> Self {
        let mut list = Self { keys: &schema.list_map_keys, items: HashMap::new() };
        if schema.is_list_map() && &*schema.ty == "array" && !list.keys.is_empty() {
            for item in items {
                if let Some(key) = list.key_of(item) {
                    // The first of several items with the same keys counts.
                    list.items.entry(key).or_insert(item);
                }
            }
        }
        list
    }

    /// The item with the same keys as this one.
    pub(crate) fn get(&self, item: &Value) -> Option<&'a Value> {
        if self.items.is_empty() {
            return None;
        }
        self.items.get(&self.key_of(item)?).copied()
    }

    fn key_of(&self, item: &Value) -> Option<String> {
        composite_key(self.keys, item.as_object()?)
    }
}

/// One text for the values of all keys; `None` if a key is missing or not a scalar.
fn composite_key(keys: &[Box<str>], item: &Map<String, Value>) -> Option<String> {
    let mut composite = String::new();
    for key in keys {
        let value = item.get(&**key)?;
        if matches!(value, Value::Null | Value::Array(_) | Value::Object(_)) {
            return None;
        }
        composite.push('\0');
        composite.push_str(&value.to_string());
    }
    Some(composite)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Props {
        Props::parse(
            &json!({"type": "object", "properties": {
                "map": {
                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}},
                },
                "atomic": {"type": "array", "items": {"type": "integer"}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            }}),
            "",
        )
        .unwrap()
    }

    #[test]
    fn equal_up_to_the_order_of_map_lists() {
        let schema = schema();
        let base = json!({"map": [{"k": "a", "v": 1}, {"k": "b"}], "atomic": [1, 2], "labels": {"x": "y"}});
        for (new, unchanged) in [
            (base.clone(), true),
            (json!({"map": [{"k": "b"}, {"k": "a", "v": 1}], "atomic": [1, 2], "labels": {"x": "y"}}), true),
            (json!({"map": [{"k": "b"}, {"k": "a", "v": 2}], "atomic": [1, 2], "labels": {"x": "y"}}), false),
            (json!({"map": [{"k": "a", "v": 1}, {"k": "b"}], "atomic": [2, 1], "labels": {"x": "y"}}), false),
            (json!({"map": [{"k": "a", "v": 1}, {"k": "b"}], "atomic": [1, 2]}), false),
        ] {
            assert_eq!(Pair { new: &new, old: &base, schema: &schema }.unchanged(), unchanged, "{new}");
        }
        let unknown = json!({"other": 1});
        assert!(!Pair { new: &unknown, old: &unknown, schema: &schema }.unchanged());
    }

    #[test]
    fn items_find_their_former_self() {
        let schema = schema();
        let old = json!({"map": [{"k": "a", "v": 1}, {"k": 1}, {"v": 3}]});
        let new = json!({"map": [{"k": "x"}, {"k": "1"}, {"k": "a", "v": 2}, {"v": 3}, 7]});
        let pair = Pair { new: &new, old: &old, schema: &schema }.child("map").unwrap();
        let olds: Vec<_> = pair.items().iter().map(|item| item.map(|item| item.old.clone())).collect();
        assert_eq!(olds, [None, None, Some(json!({"k": "a", "v": 1})), None, None]);
    }
}
