//! Strict decoding of bodies: unknown and duplicate fields and wrong types are found, and reported as Go's decoder
//! reports them.
//!
//! [`parse_json`] and [`parse_yaml`] read bytes; [`check_types`] and [`unknown_fields`] judge the result by a
//! schema, built-in or custom. Whether a finding is an error, a warning or nothing is the caller's business.

mod parse;
mod types;

use serde_json::Value;

pub use parse::{ParseError, in_document_order, parse_json, parse_yaml};
pub use types::{check_types, fits, go_json_type};

use super::{Schema, custom};
use crate::print::go_quoted;

/// Findings that Go's decoder collects before it stops counting.
pub(crate) const MAX_FINDINGS: usize = 100;

/// `unknown field "spec.foo"` for each field that the schema does not know, in the order of sorted keys.
pub fn unknown_fields(value: &Value, schema: &Schema) -> Vec<String> {
    let paths = match custom::definition(schema) {
        Some(definition) => definition.unknown_paths(value),
        None => unknown_paths(value, schema),
    };
    paths.into_iter().map(|path| format!("unknown field {}", go_quoted(&path))).collect()
}

/// Whether the schema takes any field: free-form JSON, or a type without known fields.
pub(crate) fn is_open(schema: &Schema) -> bool {
    schema.preserve_unknown || (schema.properties.is_empty() && schema.additional.is_none())
}

/// Paths of unknown fields, by a schema of a built-in type.
pub(crate) fn unknown_paths(value: &Value, schema: &Schema) -> Vec<String> {
    let mut paths = Vec::new();
    find_unknown(value, schema, &mut String::new(), &mut paths);
    paths
}

fn find_unknown(value: &Value, schema: &Schema, path: &mut String, paths: &mut Vec<String>) {
    let length = path.len();
    match value {
        Value::Object(fields) if !is_open(schema) => {
            for (key, field) in fields {
                if paths.len() >= MAX_FINDINGS {
                    return;
                }
                if length > 0 {
                    path.push('.');
                }
                path.push_str(key);
                match child(schema, key) {
                    Some(schema) => find_unknown(field, schema, path, paths),
                    None => paths.push(path.clone()),
                }
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                find_unknown(item, schema, path, paths);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// Schema of the value under a key.
pub(crate) fn child<'a>(schema: &'a Schema, key: &str) -> Option<&'a Schema> {
    schema.properties.get(key).map(|property| &*property.schema).or(schema.additional.as_deref())
}

/// Drops unknown fields, by a schema of a built-in type.
pub(crate) fn drop_unknown(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(fields) if !is_open(schema) => fields.retain(|key, field| {
            let Some(schema) = child(schema, key) else { return false };
            drop_unknown(field, schema);
            true
        }),
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                items.iter_mut().for_each(|item| drop_unknown(item, schema));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::builtin;

    #[test]
    fn unknown_fields_of_built_ins() {
        let schema = builtin::kind("apps", "v1", "Deployment").unwrap();
        let mut deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "other": 1,
            "metadata": {"name": "a", "labels": {"any": "thing"}, "unknownMeta": 1},
            "spec": {
                "unknownField": {"below": 1},
                "template": {"spec": {"containers": [{"name": "c"}, {"name": "d", "foo": 1, "resources": {"limits": {"x/y": "1"}}}]}},
            },
        });
        assert_eq!(
            unknown_fields(&deployment, &schema),
            [
                "unknown field \"metadata.unknownMeta\"",
                "unknown field \"other\"",
                "unknown field \"spec.template.spec.containers[1].foo\"",
                "unknown field \"spec.unknownField\"",
            ]
        );
        drop_unknown(&mut deployment, &schema);
        assert_eq!(unknown_fields(&deployment, &schema), Vec::<String>::new());
        assert_eq!(deployment["spec"]["template"]["spec"]["containers"][1]["resources"]["limits"]["x/y"], "1");
    }

    #[test]
    fn free_form_fields_take_anything() {
        let schema = builtin::kind("apps", "v1", "ControllerRevision").unwrap();
        let revision = json!({"data": {"anything": {"goes": 1}}, "revision": 1, "metadata": {"managedFields": [
            {"fieldsV1": {"f:spec": {"f:x": {}}}},
        ]}});
        assert_eq!(unknown_fields(&revision, &schema), Vec::<String>::new());
    }
}
