//! Filling in defaults, and dropping nulls where null is no value.

use serde_json::Value;

use super::props::Props;

/// Removes properties that are null although their schema takes no null and has no default to put there.
pub(crate) fn drop_nulls(schema: Option<&Props>, value: &mut Value) {
    match value {
        Value::Object(fields) => fields.retain(|key, field| {
            let schema = schema.and_then(|schema| schema.child(key));
            let is_dropped =
                field.is_null() && schema.is_some_and(|schema| !schema.nullable && schema.default.is_none());
            if !is_dropped {
                drop_nulls(schema, field);
            }
            !is_dropped
        }),
        Value::Array(items) => {
            let schema = schema.and_then(|schema| schema.items.as_deref());
            items.iter_mut().for_each(|item| drop_nulls(schema, item));
        }
        _ => {}
    }
}

/// Fills in the defaults of properties that are missing, or null where null is no value.
pub(crate) fn fill(schema: &Props, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, property) in &schema.properties {
                let Some(default) = &property.default else { continue };
                let is_missing = fields.get(&**name).is_none_or(|field| field.is_null() && !property.nullable);
                if is_missing {
                    fields.insert(name.to_string(), default.clone());
                }
            }
            for (key, field) in fields.iter_mut() {
                if let Some(property) = schema.properties.get(key.as_str()) {
                    fill(property, field);
                } else if let Some(additional) = schema.additional_schema() {
                    fill_element(additional, field);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                items.iter_mut().for_each(|item| fill_element(schema, item));
            }
        }
        _ => {}
    }
}

/// An item of a list or a value of a map.
fn fill_element(schema: &Props, value: &mut Value) {
    if value.is_null() && !schema.nullable {
        *value = schema.default.clone().unwrap_or_default();
    }
    fill(schema, value);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nulls_and_defaults() {
        let schema = Props::parse(
            &json!({"type": "object", "properties": {
                "plain": {"type": "string"},
                "nullable": {"type": "string", "nullable": true, "default": "d"},
                "defaulted": {"type": "string", "default": "d"},
                "nested": {"type": "object", "default": {}, "properties": {"x": {"type": "integer", "default": 7}}},
                "list": {"type": "array", "items": {"type": "object", "default": {"y": 1}, "properties": {
                    "x": {"type": "integer", "default": 7},
                }}},
                "map": {"type": "object", "additionalProperties": {"type": "integer", "default": 3}},
                "maps": {"type": "object", "additionalProperties": {"type": "integer"}},
            }}),
            "",
        )
        .unwrap();
        for (object, expected) in [
            (
                json!({"plain": null, "nullable": null, "defaulted": null}),
                json!({"nullable": null, "defaulted": "d", "nested": {"x": 7}}),
            ),
            (
                json!({"nested": {"x": 1}, "list": [null, {"x": 2}, {}], "map": {"a": null, "b": 1}, "maps": {"a": null}}),
                json!({
                    "nullable": "d", "defaulted": "d", "nested": {"x": 1},
                    "list": [{"x": 7, "y": 1}, {"x": 2}, {"x": 7}], "map": {"a": 3, "b": 1}, "maps": {},
                }),
            ),
            (json!({"unknown": null}), json!({"unknown": null, "nullable": "d", "defaulted": "d", "nested": {"x": 7}})),
        ] {
            let mut value = object;
            drop_nulls(Some(&schema), &mut value);
            fill(&schema, &mut value);
            assert_eq!(value, expected);
        }
    }
}
