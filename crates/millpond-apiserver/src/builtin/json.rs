//! Reading and filling JSON with Go's idea of absence: what is not there is the zero value.

use serde_json::{Map, Value, json};

/// Reading a field of a JSON object; anything that is not there, or not of the type, reads as empty.
pub(crate) trait Fields {
    /// The value of a field; null where there is none.
    fn at(&self, key: &str) -> &Value;

    /// A text.
    fn text(&self, key: &str) -> &str {
        self.at(key).as_str().unwrap_or_default()
    }

    /// A whole number.
    fn number(&self, key: &str) -> Option<i64> {
        self.at(key).as_i64()
    }

    /// A flag.
    fn flag(&self, key: &str) -> bool {
        self.at(key).as_bool().unwrap_or_default()
    }

    /// The items of a list.
    fn items(&self, key: &str) -> &[Value] {
        self.at(key).as_array().map_or(&[], Vec::as_slice)
    }

    /// The entries of a map, in order of their keys.
    fn entries(&self, key: &str) -> impl Iterator<Item = (&str, &Value)> {
        self.at(key).as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value))
    }

    /// Whether the field is there.
    fn has(&self, key: &str) -> bool {
        !self.at(key).is_null()
    }
}

impl Fields for Value {
    fn at(&self, key: &str) -> &Value {
        self.get(key).unwrap_or(&Value::Null)
    }
}

/// Filling in fields of a JSON object.
pub(crate) trait Fill {
    /// Sets the field unless it is there.
    fn default_to(&mut self, key: &str, value: impl Into<Value>);

    /// Sets or, with null, removes the field.
    fn put(&mut self, key: &str, value: Value);

    /// Removes the field.
    fn drop(&mut self, key: &str) -> Option<Value>;

    /// The object in this field, made if it is not there.
    fn object(&mut self, key: &str) -> &mut Value;

    /// The object in this field, if there is one.
    fn object_if(&mut self, key: &str) -> Option<&mut Value>;

    /// The items of a list, if there is one.
    fn items_mut(&mut self, key: &str) -> &mut [Value];
}

impl Fill for Value {
    fn default_to(&mut self, key: &str, value: impl Into<Value>) {
        if let Some(map) = self.as_object_mut()
            && map.get(key).is_none_or(Value::is_null)
        {
            map.insert(key.to_owned(), value.into());
        }
    }

    fn put(&mut self, key: &str, value: Value) {
        let Some(map) = self.as_object_mut() else { return };
        if value.is_null() {
            map.remove(key);
        } else {
            map.insert(key.to_owned(), value);
        }
    }

    fn drop(&mut self, key: &str) -> Option<Value> {
        self.as_object_mut().and_then(|map| map.remove(key))
    }

    fn object(&mut self, key: &str) -> &mut Value {
        if !self.is_object() {
            *self = json!({});
        }
        let map: &mut Map<String, Value> = self.as_object_mut().expect("made an object above");
        let value = map.entry(key).or_insert_with(|| json!({}));
        if value.is_null() {
            *value = json!({});
        }
        value
    }

    fn object_if(&mut self, key: &str) -> Option<&mut Value> {
        self.get_mut(key).filter(|value| value.is_object())
    }

    fn items_mut(&mut self, key: &str) -> &mut [Value] {
        self.get_mut(key).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
    }
}

/// Group of an `apiVersion`.
pub(crate) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Version of an `apiVersion`.
pub(crate) fn version_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or(api_version, |(_, version)| version)
}
