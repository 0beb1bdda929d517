//! Types of values against the schema of a built-in type, with the sentences of Go's decoder.

use serde_json::Value;

use super::is_open;
use crate::go::time;
use crate::quantity::Quantity;
use crate::schema::{Schema, Type, custom};

/// The name of a value's type in Go's decoder.
pub fn go_json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Checks the types of all known fields. The error is the sentence that Go's decoder would say first, e.g.
/// `json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32`.
///
/// Checks the types of a value. Of custom resources only `metadata` has types that Go knows.
pub fn check_types(value: &Value, schema: &Schema) -> Result<(), String> {
    if custom::definition(schema).is_some() {
        let metadata = schema.properties.get("metadata").map(|property| &*property.schema);
        let (Some(value), Some(schema)) = (value.get("metadata"), metadata) else { return Ok(()) };
        return check_types(value, schema);
    }
    Checker { path: String::new(), owner: None }.check(value, schema)
}

/// Whether all fields are known and have the right types, by the schema of a built-in type: then neither
/// [`check_types`] nor [`super::unknown_fields`] has anything to report. That holds for nearly every body, and this
/// check is faster because it does not track paths.
pub fn fits(value: &Value, schema: &Schema) -> bool {
    match (value, schema.ty) {
        (Value::Null, _) => true,
        (Value::Object(fields), Type::Object) if schema.properties.is_empty() => {
            schema.additional.as_ref().is_none_or(|values| fields.values().all(|field| fits(field, values)))
        }
        (Value::Object(fields), Type::Object) => fields
            .iter()
            .all(|(key, field)| schema.properties.get(key).is_some_and(|property| fits(field, &property.schema))),
        (Value::Array(items), Type::Array) => {
            schema.items.as_ref().is_none_or(|schema| items.iter().all(|item| fits(item, schema)))
        }
        (Value::Object(_) | Value::Array(_), Type::Any) => is_open(schema) && schema.items.is_none(),
        (Value::Object(_) | Value::Array(_), _) => false,
        (scalar, _) => Checker { path: String::new(), owner: None }.check(scalar, schema).is_ok(),
    }
}

struct Checker<'a> {
    /// Names of fields on the way; indices and keys of maps do not count.
    path: String,
    /// Name of the innermost type with fields.
    owner: Option<&'a str>,
}

impl<'a> Checker<'a> {
    fn check(&mut self, value: &Value, schema: &'a Schema) -> Result<(), String> {
        if value.is_null() {
            return Ok(());
        }
        match schema.ty {
            Type::Any => Ok(()),
            Type::Object => self.check_object(value, schema),
            Type::Array => self.check_array(value, schema),
            Type::String => self.check_string(value, schema),
            Type::Boolean => {
                if value.is_boolean() {
                    Ok(())
                } else {
                    Err(self.mismatch(value, schema))
                }
            }
            Type::Integer => self.check_integer(value, schema),
            Type::Number => {
                if value.is_number() {
                    Ok(())
                } else {
                    Err(self.mismatch(value, schema))
                }
            }
            Type::IntOrString => match value {
                Value::String(_) => Ok(()),
                Value::Number(number) if number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()) => Ok(()),
                other => Err(format!("json: cannot unmarshal {} into Go value of type int32", shown(other))),
            },
        }
    }

    fn check_object(&mut self, value: &Value, schema: &'a Schema) -> Result<(), String> {
        let Value::Object(fields) = value else {
            return if schema.preserve_unknown { Ok(()) } else { Err(self.mismatch(value, schema)) };
        };
        if schema.properties.is_empty() {
            let Some(values) = &schema.additional else { return Ok(()) };
            return fields.values().try_for_each(|field| self.check(field, values));
        }
        let owner = self.owner;
        self.owner = schema.name.as_deref().or(owner);
        let length = self.path.len();
        for (key, field) in fields {
            let Some(property) = schema.properties.get(key.as_str()) else { continue };
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(key);
            self.check(field, &property.schema)?;
            self.path.truncate(length);
        }
        self.owner = owner;
        Ok(())
    }

    fn check_array(&mut self, value: &Value, schema: &'a Schema) -> Result<(), String> {
        let Value::Array(items) = value else { return Err(self.mismatch(value, schema)) };
        let Some(schema) = &schema.items else { return Ok(()) };
        items.iter().try_for_each(|item| self.check(item, schema))
    }

    fn check_string(&mut self, value: &Value, schema: &Schema) -> Result<(), String> {
        let format = schema.format.as_deref();
        let Value::String(text) = value else {
            // A number is a quantity, too.
            return match (format, value) {
                (Some("quantity"), Value::Number(_)) => Ok(()),
                _ => Err(self.mismatch(value, schema)),
            };
        };
        match format {
            Some("date-time") => check_time(text),
            Some("quantity") => check_quantity(text),
            Some("byte") => check_base64(text),
            _ => Ok(()),
        }
    }

    fn check_integer(&mut self, value: &Value, schema: &Schema) -> Result<(), String> {
        let fits = |number: i64| schema.format.as_deref() != Some("int32") || i32::try_from(number).is_ok();
        match value {
            Value::Number(number) if number.as_i64().is_some_and(fits) => Ok(()),
            _ => Err(self.mismatch(value, schema)),
        }
    }

    fn mismatch(&self, value: &Value, schema: &Schema) -> String {
        let found = shown(value);
        let wanted = go_type(schema);
        match self.owner.filter(|_| !self.path.is_empty()) {
            Some(owner) => {
                let owner = last_part(owner);
                format!("json: cannot unmarshal {found} into Go struct field {owner}.{} of type {wanted}", self.path)
            }
            None => format!("json: cannot unmarshal {found} into Go value of type {wanted}"),
        }
    }
}

/// A value as the decoder names it: numbers that do not fit are shown.
fn shown(value: &Value) -> String {
    match value {
        Value::Number(number) if !number.is_i64() || i32::try_from(number.as_i64().unwrap_or(0)).is_err() => {
            format!("number {number}")
        }
        other => go_json_type(other).to_owned(),
    }
}

fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// The Go type of a schema, as far as the schema tells.
fn go_type(schema: &Schema) -> String {
    if let Some(name) = &schema.name {
        let mut parts = name.rsplit('.');
        let (ty, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        return format!("{package}.{ty}");
    }
    match schema.ty {
        Type::Any => "interface {}".to_owned(),
        Type::Object => {
            format!("map[string]{}", schema.additional.as_deref().map_or("interface {}".to_owned(), go_type))
        }
        Type::Array => format!("[]{}", schema.items.as_deref().map_or("interface {}".to_owned(), go_type)),
        Type::String => match schema.format.as_deref() {
            Some("byte") => "[]uint8".to_owned(),
            _ => "string".to_owned(),
        },
        Type::Integer => schema.format.as_deref().unwrap_or("int64").to_owned(),
        Type::Number => "float64".to_owned(),
        Type::Boolean => "bool".to_owned(),
        Type::IntOrString => "intstr.IntOrString".to_owned(),
    }
}

fn check_time(text: &str) -> Result<(), String> {
    if time::parse_date_time(text).is_some() {
        return Ok(());
    }
    let quoted = crate::print::go_quoted(text);
    Err(format!("parsing time {quoted} as \"2006-01-02T15:04:05Z07:00\": cannot parse {quoted} as \"2006\""))
}

fn check_quantity(text: &str) -> Result<(), String> {
    // An empty quantity is zero.
    if text.is_empty() || Quantity::parse(text).is_ok() {
        return Ok(());
    }
    Err("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'".to_owned())
}

fn check_base64(text: &str) -> Result<(), String> {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let compact: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    match STANDARD.decode(&compact) {
        Ok(_) => Ok(()),
        Err(base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _)) => {
            Err(format!("illegal base64 data at input byte {at}"))
        }
        Err(_) => Err(format!("illegal base64 data at input byte {}", compact.len() / 4 * 4)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::unknown_fields;
    use super::*;
    use crate::schema::builtin;

    fn problem(group: &str, kind: &str, value: Value) -> Option<String> {
        let schema = builtin::kind(group, "v1", kind).unwrap();
        let problem = check_types(&value, &schema).err();
        let fine = problem.is_none() && unknown_fields(&value, &schema).is_empty();
        assert_eq!(fits(&value, &schema), fine, "the quick walk and the two others agree about {value}");
        problem
    }

    #[test]
    fn mismatches_are_reported_as_go_reports_them() {
        for (value, expected) in [
            (
                json!({"spec": {"replicas": "three"}}),
                "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                json!({"spec": {"replicas": 3_000_000_000_i64}}),
                "json: cannot unmarshal number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                json!({"spec": {"replicas": 1.5}}),
                "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                json!({"spec": []}),
                "json: cannot unmarshal array into Go struct field Deployment.spec of type v1.DeploymentSpec",
            ),
            (
                json!({"metadata": {"labels": {"a": 1}}}),
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
            ),
            (
                json!({"spec": {"template": {"spec": {"containers": [{"image": 7}]}}}}),
                "json: cannot unmarshal number into Go struct field Container.spec.template.spec.containers.image of type string",
            ),
            (
                json!({"spec": {"template": {"spec": {"containers": {}}}}}),
                "json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
            ),
            (json!([]), "json: cannot unmarshal array into Go value of type v1.Deployment"),
        ] {
            assert_eq!(problem("apps", "Deployment", value).as_deref(), Some(expected));
        }
        assert_eq!(problem("apps", "Deployment", json!({"spec": {"replicas": null, "unknown": {"x": 1}}})), None);
    }

    #[test]
    fn forms_with_a_meaning_of_their_own() {
        assert_eq!(
            problem("", "Secret", json!({"data": {"a": "?"}})).as_deref(),
            Some("illegal base64 data at input byte 0")
        );
        assert_eq!(problem("", "Secret", json!({"data": {"a": "YQ=="}})), None);
        assert!(
            problem("", "Pod", json!({"metadata": {"creationTimestamp": "soon"}})).unwrap().starts_with("parsing time")
        );
        let limits = |value: Value| json!({"spec": {"containers": [{"resources": {"limits": {"cpu": value}}}]}});
        assert!(problem("", "Pod", limits(json!("1x"))).unwrap().starts_with("quantities must match"));
        assert_eq!(problem("", "Pod", limits(json!(2))), None);
        assert_eq!(problem("", "Pod", limits(json!("500m"))), None);
        let port = |value: Value| json!({"spec": {"ports": [{"targetPort": value}]}});
        assert_eq!(problem("", "Service", port(json!("http"))), None);
        assert_eq!(problem("", "Service", port(json!(80))), None);
        assert!(problem("", "Service", port(json!(true))).is_some());
    }
}
