//! Strategic merge patch: merge patch with lists that merge by key, driven by the schema.
//!
//! Directives: `$patch: replace|delete` in an object or a list item, `$retainKeys`,
//! `$deleteFromPrimitiveList/LIST`, `$setElementOrder/LIST`. Lists and orders stand in [`lists`].

mod lists;
mod misfit;
mod order;

use http::StatusCode;
use serde_json::{Map, Value};

use self::lists::{ListPatch, merge_list};
pub(super) use self::misfit::misfit;
use super::{Checking, GO_MAP, Patched, does_not_apply, wrong_type};
use crate::json_text;
use crate::print::{go_quoted, go_value};
use crate::schema::{Property, Schema, Type};
use crate::status::ApiError;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const ELEMENT_ORDER: &str = "$setElementOrder";

type Object = Map<String, Value>;

/// Applies a patch to an object of the given schema.
pub fn apply(target: &Value, patch: &[u8], checking: Checking, schema: &Schema) -> Result<Patched, ApiError> {
    let document = json_text::parse(patch).map_err(ApiError::bad_request)?;
    let patch = match document.value {
        Value::Object(patch) => patch,
        Value::Null => Object::new(),
        other => return Err(ApiError::bad_request(wrong_type(&other, GO_MAP))),
    };
    let problems = if checking == Checking::Strict { document.problems } else { Vec::new() };
    let shown = Value::Object(patch.clone());
    let object = target.as_object().cloned().unwrap_or_default();
    let object = merge_objects(object, patch, schema).map_err(ApiError::from)?;
    Ok(Patched { object: Value::Object(object), problems, shown: Some(shown) })
}

/// Why a patch cannot be merged. The real server answers most of these with 500: they are mistakes of the
/// client, but clients know these answers.
#[derive(Debug, thiserror::Error)]
enum MergeError {
    #[error("invalid patch format of primitive list")]
    PrimitiveList,
    #[error("invalid patch format of retainKeys")]
    RetainKeys,
    #[error("invalid patch format of setElementOrder list")]
    ElementOrder,
    #[error("lists of lists are not supported")]
    ListOfLists,
    #[error("{0}")]
    Other(String),
}

impl From<MergeError> for ApiError {
    fn from(error: MergeError) -> Self {
        match error {
            MergeError::PrimitiveList | MergeError::RetainKeys | MergeError::ElementOrder => {
                Self::bad_request(error.to_string())
            }
            MergeError::ListOfLists => does_not_apply(),
            MergeError::Other(message) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message),
        }
    }
}

fn no_merge_key(item: &Object, key: &str) -> MergeError {
    let shown = go_value(&Value::Object(item.clone()));
    MergeError::Other(format!("map: {shown} does not contain declared merge key: {key}"))
}

fn bad_directive(directive: &Value, patch: &Object) -> MergeError {
    let shown = match directive {
        Value::Null => "%!s(<nil>)".to_owned(),
        Value::Bool(flag) => format!("%!s(bool={flag})"),
        Value::Number(number) if number.is_i64() => format!("%!s(int64={number})"),
        Value::Number(_) => format!("%!s(float64={})", go_value(directive)),
        other => go_value(other),
    };
    MergeError::Other(format!("unknown patch type: {shown} in map: {}", go_value(&Value::Object(patch.clone()))))
}

/// A value of another type than was expected, in Go's names.
fn bad_type(expected: &str, value: &Value) -> MergeError {
    let received = match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => GO_MAP,
    };
    MergeError::Other(format!("expected a {expected}, but received a {received}"))
}

fn merge_objects(mut object: Object, mut patch: Object, schema: &Schema) -> Result<Object, MergeError> {
    match patch.get(PATCH) {
        None => {}
        Some(Value::String(directive)) if directive == "replace" => {
            patch.remove(PATCH);
            return Ok(patch);
        }
        Some(Value::String(directive)) if directive == "delete" => return Ok(Object::new()),
        Some(other) => return Err(bad_directive(other, &patch)),
    }
    retain_keys(&mut object, &mut patch)?;
    lists::merge_ordered(&mut object, &mut patch, schema)?;
    for (key, value) in patch {
        merge_field(&mut object, key, value, schema)?;
    }
    Ok(object)
}

/// `$retainKeys` names all keys that stay; the patch may set no others.
fn retain_keys(object: &mut Object, patch: &mut Object) -> Result<(), MergeError> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(retained) = retained else { return Err(MergeError::RetainKeys) };
    let is_retained = |key: &str| retained.iter().any(|item| item.as_str() == Some(key));
    let is_directive = |key: &str| key.starts_with(DELETE_FROM) || key.starts_with(ELEMENT_ORDER);
    if patch.iter().any(|(key, value)| !value.is_null() && !is_directive(key) && !is_retained(key)) {
        return Err(MergeError::RetainKeys);
    }
    object.retain(|key, _| is_retained(key));
    Ok(())
}

fn merge_field(object: &mut Object, key: String, value: Value, schema: &Schema) -> Result<(), MergeError> {
    let (key, deletes_items) = if key.starts_with(DELETE_FROM) {
        let list = below(&key, DELETE_FROM).ok_or(MergeError::PrimitiveList)?;
        (if list.is_empty() { key } else { list.to_owned() }, true)
    } else {
        (key, false)
    };
    if value.is_null() {
        object.remove(&key);
        return Ok(());
    }
    match (object.get_mut(&key), value) {
        (Some(Value::Object(current)), Value::Object(patch)) => {
            let property = property(schema, &key)?;
            *current = if property.patch.replace {
                patch
            } else {
                merge_objects(std::mem::take(current), patch, &property.schema)?
            };
        }
        (Some(Value::Array(current)), Value::Array(patch)) => {
            let list = ListPatch::of(schema, &key)?;
            *current = if list.merges || deletes_items {
                merge_list(std::mem::take(current), patch, &list, deletes_items)?
            } else {
                patch
            };
        }
        _ if deletes_items => {}
        (_, mut value) => {
            drop_nulls(&mut value);
            match without_directives(value) {
                Some(value) => object.insert(key, value),
                None => object.remove(&key),
            };
        }
    }
    Ok(())
}

/// The text after `PREFIX/` in the key of a directive.
fn below<'a>(key: &'a str, prefix: &str) -> Option<&'a str> {
    key.strip_prefix(prefix)?.strip_prefix('/')
}

/// The property of a key. The case may differ, as in Go's JSON decoder.
fn property<'a>(schema: &'a Schema, key: &str) -> Result<&'a Property, MergeError> {
    let exact = schema.properties.get(key);
    let found = exact.or_else(|| {
        let mut properties = schema.properties.iter();
        properties.find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, property)| property)
    });
    found.ok_or_else(|| {
        MergeError::Other(if schema.additional.is_some() {
            "merging an object in json but data type is not struct, instead is: map".to_owned()
        } else {
            let name = schema.name.as_deref().and_then(|name| name.rsplit('.').next()).unwrap_or_default();
            format!("unable to find api field in struct {name} for the json field {}", go_quoted(key))
        })
    })
}

fn is_list(schema: &Schema) -> bool {
    schema.ty == Type::Array
}

/// Leaves keys out whose value is null; null items of lists stay.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// A value that replaces another: parts with `$patch` are left out as a whole.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(PATCH) => None,
        Value::Object(map) => {
            let kept = map.into_iter().filter_map(|(key, value)| Some((key, without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

#[cfg(test)]
mod tests;
