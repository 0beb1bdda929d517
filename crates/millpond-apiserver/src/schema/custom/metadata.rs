//! `apiVersion`, `kind` and `metadata` of custom resources and of the objects embedded in them.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::props::Props;
use crate::builtin::shape;
use crate::meta;
use crate::names;
use crate::schema::{SchemaRef, builtin, strict};
use crate::status::FieldError;

/// The type of every object's metadata.
pub(crate) static OBJECT_META: LazyLock<SchemaRef> = LazyLock::new(|| {
    builtin::lookup("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").expect("the table has ObjectMeta")
});

/// Brings the metadata of one object into its usual form: unknown fields go, empty ones too. Returns the paths
/// of unknown fields below `metadata`; the error says which value has a wrong type.
pub(crate) fn tidy(metadata: &mut Value) -> Result<Vec<String>, String> {
    strict::check_types(metadata, &OBJECT_META)?;
    let unknown = strict::unknown_paths(metadata, &OBJECT_META);
    if !unknown.is_empty() {
        strict::drop_unknown(metadata, &OBJECT_META);
    }
    shape::tidy(&OBJECT_META, metadata);
    Ok(unknown)
}

/// Tidies the metadata of all embedded objects. Returns the paths of unknown fields, sorted.
pub(crate) fn tidy_embedded(schema: &Props, value: &mut Value) -> Result<Vec<String>, FieldError> {
    let mut walk = Walk { path: String::new(), unknown: Vec::new() };
    walk.tidy(schema, value)?;
    walk.unknown.sort();
    Ok(walk.unknown)
}

/// Paths of unknown fields in the metadata of all embedded objects, sorted; nothing is changed.
pub(crate) fn unknown_embedded(schema: &Props, value: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    visit_embedded(schema, value, &mut String::new(), &mut |path, object| {
        if let Some(metadata) = object.get("metadata") {
            let below = strict::unknown_paths(metadata, &OBJECT_META);
            unknown.extend(below.into_iter().map(|field| join(path, &format!("metadata.{field}"))));
        }
    });
    unknown.sort();
    unknown
}

/// Problems of all embedded objects.
pub(crate) fn validate_embedded(schema: &Props, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit_embedded(schema, value, &mut String::new(), &mut |path, object| validate(path, object, &mut errors));
    errors
}

/// Problems of one embedded object at a path.
pub(crate) fn validate(path: &str, object: &Value, errors: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        if object.get(name).is_none() {
            errors.push(FieldError::required(join(path, name), ""));
        }
    }
    if let Some(value) = object.get("apiVersion") {
        check_text(path, "apiVersion", value, errors, |text| match text.matches('/').count() {
            0 | 1 => Vec::new(),
            _ => vec![format!("unexpected GroupVersion string: {text}")],
        });
    }
    if let Some(value) = object.get("kind") {
        check_text(path, "kind", value, errors, |text| {
            let problems = names::label_1035_problems(&text.to_lowercase());
            if problems.is_empty() {
                return problems;
            }
            vec![format!("may have mixed case, but should otherwise match: {}", problems.join(","))]
        });
    }
    if let Some(metadata) = object.get("metadata") {
        validate_metadata(path, metadata, errors);
    }
}

fn check_text(
    path: &str,
    name: &str,
    value: &Value,
    errors: &mut Vec<FieldError>,
    problems: impl Fn(&str) -> Vec<String>,
) {
    let field = join(path, name);
    match value.as_str() {
        None => errors.push(FieldError::invalid(field, value.clone(), "must be a string")),
        Some("") => errors.push(FieldError::invalid(field, "", "must not be empty")),
        Some(text) => {
            errors.extend(problems(text).into_iter().map(|problem| FieldError::invalid(&field, text, problem)));
        }
    }
}

fn validate_metadata(path: &str, metadata: &Value, errors: &mut Vec<FieldError>) {
    if let Err(problem) = strict::check_types(metadata, &OBJECT_META) {
        errors.push(FieldError::invalid(join(path, "metadata"), metadata.clone(), problem));
        return;
    }
    let mut metadata = metadata.clone();
    if metadata.get("name").and_then(Value::as_str).is_none_or(str::is_empty)
        && let Value::Object(fields) = &mut metadata
    {
        // Embedded objects need no name.
        fields.insert("name".to_owned(), json!("fakename"));
    }
    for mut error in meta::validate_embedded(&metadata) {
        error.field = join(path, &error.field);
        errors.push(error);
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Calls `visit` with the path of each embedded object.
fn visit_embedded(schema: &Props, value: &Value, path: &mut String, visit: &mut dyn FnMut(&str, &Value)) {
    let length = path.len();
    match value {
        Value::Object(fields) => {
            if schema.embedded_resource {
                visit(path, value);
            }
            for (key, field) in fields {
                let Some((step, schema)) = step(schema, key, path.is_empty()) else { continue };
                path.push_str(&step);
                visit_embedded(schema, field, path, visit);
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                visit_embedded(schema, item, path, visit);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// How a field's path goes on, and its schema.
fn step<'a>(schema: &'a Props, key: &str, is_first: bool) -> Option<(String, &'a Props)> {
    if let Some(property) = schema.properties.get(key) {
        let separator = if is_first { "" } else { "." };
        return Some((format!("{separator}{key}"), property));
    }
    Some((format!("[{key}]"), schema.additional_schema()?))
}

struct Walk {
    path: String,
    unknown: Vec<String>,
}

impl Walk {
    fn tidy(&mut self, schema: &Props, value: &mut Value) -> Result<(), FieldError> {
        let length = self.path.len();
        match value {
            Value::Object(_) => {
                if schema.embedded_resource {
                    self.tidy_object(value)?;
                }
                let Value::Object(fields) = value else { return Ok(()) };
                for (key, field) in fields.iter_mut() {
                    let Some((step, schema)) = step(schema, key, self.path.is_empty()) else { continue };
                    self.path.push_str(&step);
                    self.tidy(schema, field)?;
                    self.path.truncate(length);
                }
            }
            Value::Array(items) => {
                let Some(schema) = &schema.items else { return Ok(()) };
                for (index, item) in items.iter_mut().enumerate() {
                    self.path.push_str(&format!("[{index}]"));
                    self.tidy(schema, item)?;
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn tidy_object(&mut self, object: &mut Value) -> Result<(), FieldError> {
        for name in ["apiVersion", "kind"] {
            if let Some(value) = object.get(name).filter(|value| !value.is_string()) {
                return Err(FieldError::invalid(join(&self.path, name), value.clone(), "must be a string"));
            }
        }
        let Some(metadata) = object.get_mut("metadata") else { return Ok(()) };
        let field = join(&self.path, "metadata");
        match tidy(metadata) {
            Ok(below) => {
                self.unknown.extend(below.into_iter().map(|name| format!("{field}.{name}")));
                Ok(())
            }
            Err(problem) => Err(FieldError::invalid(field, metadata.clone(), problem)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Props {
        let embedded = json!({
            "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
        });
        Props::parse(
            &json!({"type": "object", "properties": {
                "one": embedded,
                "list": {"type": "array", "items": embedded},
                "map": {"type": "object", "additionalProperties": embedded},
            }}),
            "",
        )
        .unwrap()
    }

    #[test]
    fn metadata_of_embedded_objects_is_tidied() {
        let mut value = json!({
            "one": {"apiVersion": "v1", "kind": "A", "metadata": {"name": "n", "x": 1, "creationTimestamp": null, "labels": {}}},
            "list": [{"metadata": {"ownerReferences": [{"name": "o", "y": 1}]}}],
            "map": {"k": {"metadata": {"z": 1}}},
        });
        let expected = ["list[0].metadata.ownerReferences[0].y", "map[k].metadata.z", "one.metadata.x"];
        assert_eq!(unknown_embedded(&schema(), &value), expected);
        assert_eq!(tidy_embedded(&schema(), &mut value).unwrap(), expected);
        assert_eq!(value["one"]["metadata"], json!({"name": "n"}));
        let mut wrong = json!({"one": {"kind": 7}});
        assert_eq!(
            tidy_embedded(&schema(), &mut wrong).unwrap_err().to_string(),
            "one.kind: Invalid value: 7: must be a string"
        );
        let mut wrong = json!({"one": {"metadata": {"labels": {"a": 1}}}});
        assert_eq!(
            tidy_embedded(&schema(), &mut wrong).unwrap_err().to_string(),
            "one.metadata: Invalid value: {\"labels\":{\"a\":1}}: json: cannot unmarshal number into Go struct field \
             ObjectMeta.labels of type string"
        );
    }

    #[test]
    fn embedded_objects_are_validated() {
        let errors = validate_embedded(
            &schema(),
            &json!({
                "one": {"kind": "a_b", "metadata": {"labels": {"?": "x"}}},
                "list": [{"apiVersion": "a/b/c", "kind": ""}],
            }),
        );
        let found: Vec<(&str, String)> =
            errors.iter().map(|error| (error.field.as_str(), error.message().chars().take(40).collect())).collect();
        let expected = [
            ("list[0].apiVersion", "Invalid value: \"a/b/c\": unexpected Group"),
            ("list[0].kind", "Invalid value: \"\": must not be empty"),
            ("one.apiVersion", "Required value"),
            ("one.kind", "Invalid value: \"a_b\": may have mixed cas"),
            ("one.metadata.labels", "Invalid value: \"?\": name part must consi"),
        ];
        assert_eq!(found, expected.map(|(field, message)| (field, message.to_owned())));
    }
}
