//! JSON patch, with the habits of the library inside the real API server.
//!
//! Against RFC 6902: negative indices count from the end, `replace` of an absent key adds it, `copy` of an
//! absent key copies `null`, `test` takes an absent key for `null`, and what stands before a path's first
//! `/` is passed over. Whatever does not apply is refused with one and the same sentence.

use http::StatusCode;
use serde_json::{Map, Value};

use super::{Checking, Patched, does_not_apply, json_type, wrong_type};
use crate::json_text::{self, MAX_DEPTH, Path, Step};
use crate::status::ApiError;

/// Operations that one patch may hold.
pub const MAX_OPERATIONS: usize = 10_000;

/// Bytes by which the `copy` operations of one patch may let an object grow.
pub const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// Applies a patch to an object.
pub fn apply(target: &Value, patch: &[u8], checking: Checking) -> Result<Patched, ApiError> {
    let document = json_text::parse_strict(patch, is_known).map_err(|error| undecodable(checking, error))?;
    let operations = operations(&document.value, checking)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(too_many(operations.len()));
    }
    let problems = match checking {
        Checking::Strict => document.problems.iter().map(|problem| format!("json patch {problem}")).collect(),
        Checking::Ignore => Vec::new(),
    };
    let mut state = State { object: target.clone(), copied_bytes: 0 };
    for operation in operations {
        state.apply(operation).ok_or_else(does_not_apply)?;
    }
    Ok(Patched::new(state.object, problems))
}

/// Keys of an operation stand at depth two: `[0].op`.
fn is_known(path: &Path) -> bool {
    !matches!(path, [Step::Index(_), Step::Key(key)] if !matches!(key.as_str(), "op" | "path" | "from" | "value"))
}

fn undecodable(checking: Checking, error: String) -> ApiError {
    ApiError::bad_request(match checking {
        Checking::Strict => format!("error decoding patch: {error}"),
        Checking::Ignore => error,
    })
}

fn too_many(count: usize) -> ApiError {
    ApiError::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "RequestEntityTooLarge",
        format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}"
        ),
    )
}

/// The operations of a patch. A `null` patch has none, and a `null` operation is an empty one.
fn operations(patch: &Value, checking: Checking) -> Result<Vec<Option<&Map<String, Value>>>, ApiError> {
    let (list_type, operation_type) = match checking {
        Checking::Strict => ("[]handlers.jsonPatchOp", "handlers.jsonPatchOp"),
        Checking::Ignore => ("jsonpatch.Patch", "jsonpatch.Operation"),
    };
    let refuse = |error: String| undecodable(checking, error);
    let items = match patch {
        Value::Null => return Ok(Vec::new()),
        Value::Array(items) => items,
        other => return Err(refuse(wrong_type(other, list_type))),
    };
    items
        .iter()
        .map(|item| match item {
            Value::Null => Ok(None),
            Value::Object(operation) => {
                if checking == Checking::Strict {
                    check_texts(operation).map_err(refuse)?;
                }
                Ok(Some(operation))
            }
            other => Err(refuse(wrong_type(other, operation_type))),
        })
        .collect()
}

fn check_texts(operation: &Map<String, Value>) -> Result<(), String> {
    for key in ["op", "path", "from"] {
        match operation.get(key) {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(other) => {
                let found = json_type(other);
                return Err(format!(
                    "json: cannot unmarshal {found} into Go struct field jsonPatchOp.{key} of type string"
                ));
            }
        }
    }
    Ok(())
}

struct State {
    object: Value,
    copied_bytes: usize,
}

impl State {
    /// Applies an operation; `None` if it cannot be applied.
    fn apply(&mut self, operation: Option<&Map<String, Value>>) -> Option<()> {
        let operation = operation?;
        let text = |key: &str| operation.get(key).and_then(Value::as_str);
        let value = || operation.get("value").cloned().unwrap_or(Value::Null);
        match text("op")? {
            "add" => self.add(text("path")?, value()),
            "remove" => self.remove(text("path")?).map(drop),
            "replace" => self.replace(text("path")?, value()),
            "test" => self.test(text("path")?, &value()),
            "move" => {
                let moved = self.remove(text("from")?)?;
                self.add(text("path")?, moved)
            }
            "copy" => self.copy(text("from")?, text("path")?),
            _ => None,
        }
    }

    fn add(&mut self, path: &str, value: Value) -> Option<()> {
        check_depth(path, &value)?;
        match self.locate(path)? {
            (Container::Object(map), key) => {
                map.insert(key, value);
            }
            (Container::Array(items), key) if key == "-" => items.push(value),
            (Container::Array(items), key) => {
                let index = index(&key, items.len() + 1)?;
                items.insert(index, value);
            }
        }
        Some(())
    }

    fn remove(&mut self, path: &str) -> Option<Value> {
        match self.locate(path)? {
            (Container::Object(map), key) => map.remove(&key),
            (Container::Array(items), key) => {
                let index = index(&key, items.len())?;
                Some(items.remove(index))
            }
        }
    }

    fn replace(&mut self, path: &str, value: Value) -> Option<()> {
        if path.is_empty() {
            if !(value.is_object() || value.is_array()) {
                return None;
            }
            self.object = value;
            return Some(());
        }
        check_depth(path, &value)?;
        match self.locate(path)? {
            (Container::Object(map), key) => {
                map.insert(key, value);
            }
            (Container::Array(items), key) => {
                let index = index(&key, items.len())?;
                items[index] = value;
            }
        }
        Some(())
    }

    fn test(&mut self, path: &str, expected: &Value) -> Option<()> {
        let equal = if path.is_empty() { self.object == *expected } else { *self.get(path)? == *expected };
        equal.then_some(())
    }

    fn copy(&mut self, from: &str, path: &str) -> Option<()> {
        let copied = self.get(from)?.clone();
        self.locate(path)?;
        self.copied_bytes += serde_json::to_vec(&copied).ok()?.len();
        if self.copied_bytes > MAX_COPIED_BYTES {
            return None;
        }
        self.add(path, copied)
    }

    /// The value at a path; an absent key of a present object counts as `null`.
    fn get(&mut self, path: &str) -> Option<&Value> {
        match self.locate(path)? {
            (Container::Object(map), key) => Some(map.get(&key).unwrap_or(&Value::Null)),
            (Container::Array(items), key) => {
                let index = index(&key, items.len())?;
                items.get(index)
            }
        }
    }

    /// The container that a path points into, and the key in it.
    fn locate(&mut self, path: &str) -> Option<(Container<'_>, String)> {
        let (_, below) = path.split_once('/')?;
        let (parents, key) = below.rsplit_once('/').map_or((None, below), |(parents, key)| (Some(parents), key));
        let mut value = &mut self.object;
        for part in parents.into_iter().flat_map(|parents| parents.split('/')) {
            let part = decoded(part);
            value = match value {
                Value::Object(map) => map.get_mut(&part)?,
                Value::Array(items) => {
                    let index = index(&part, items.len())?;
                    items.get_mut(index)?
                }
                _ => return None,
            };
        }
        let container = match value {
            Value::Object(map) => Container::Object(map),
            Value::Array(items) => Container::Array(items),
            _ => return None,
        };
        Some((container, decoded(key)))
    }
}

/// Keeps objects readable: what is nested too deeply could not be read back, nor dropped, safely.
fn check_depth(path: &str, value: &Value) -> Option<()> {
    let above = path.bytes().filter(|byte| *byte == b'/').count();
    (above + json_text::depth(value) <= MAX_DEPTH).then_some(())
}

enum Container<'a> {
    Object(&'a mut Map<String, Value>),
    Array(&'a mut Vec<Value>),
}

/// A position below `length`; negative ones count from there.
fn index(text: &str, length: usize) -> Option<usize> {
    let number: i64 = text.parse().ok()?;
    let length = i64::try_from(length).ok()?;
    let index = if number < 0 { number + length } else { number };
    (0..length).contains(&index).then_some(index as usize)
}

fn decoded(part: &str) -> String {
    if !part.contains('~') {
        return part.to_owned();
    }
    // One pass, so that `~01` becomes `~1`.
    let mut decoded = String::with_capacity(part.len());
    let mut rest = part;
    while let Some(at) = rest.find('~') {
        decoded.push_str(&rest[..at]);
        let (c, length) = match rest.as_bytes().get(at + 1) {
            Some(b'0') => ('~', 2),
            Some(b'1') => ('/', 2),
            _ => ('~', 1),
        };
        decoded.push(c);
        rest = &rest[at + length..];
    }
    decoded.push_str(rest);
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn patched(target: &Value, patch: &Value) -> Result<Value, ApiError> {
        apply(target, patch.to_string().as_bytes(), Checking::Strict).map(|patched| patched.object)
    }

    /// Each was asked of the real API server, version 1.36.
    #[test]
    fn operations_apply_as_in_kubernetes() {
        let target = json!({"data": {"k": "v"}, "list": ["a", "b"], "a/b~c": 1});
        for (patch, expected) in [
            (json!([{"op": "add", "path": "/data/n", "value": 1}]), json!({"data": {"k": "v", "n": 1}})),
            (json!([{"op": "add", "path": "/data/q"}]), json!({"data": {"k": "v", "q": null}})),
            (json!([{"op": "replace", "path": "/data/z", "value": "1"}]), json!({"data": {"k": "v", "z": "1"}})),
            (json!([{"op": "remove", "path": "/data/k"}]), json!({"data": {}})),
            (json!([{"op": "add", "path": "/list/-", "value": "c"}]), json!({"list": ["a", "b", "c"]})),
            (json!([{"op": "add", "path": "/list/2", "value": "c"}]), json!({"list": ["a", "b", "c"]})),
            (json!([{"op": "add", "path": "/list/-1", "value": "c"}]), json!({"list": ["a", "b", "c"]})),
            (json!([{"op": "add", "path": "/list/0", "value": "c"}]), json!({"list": ["c", "a", "b"]})),
            (json!([{"op": "remove", "path": "/list/-1"}]), json!({"list": ["a"]})),
            (json!([{"op": "replace", "path": "/list/1", "value": "c"}]), json!({"list": ["a", "c"]})),
            (json!([{"op": "copy", "from": "/data/k", "path": "/data/z"}]), json!({"data": {"k": "v", "z": "v"}})),
            (json!([{"op": "copy", "from": "/data/x", "path": "/data/z"}]), json!({"data": {"k": "v", "z": null}})),
            (json!([{"op": "move", "from": "/data/k", "path": "/data/y"}]), json!({"data": {"y": "v"}})),
            (json!([{"op": "test", "path": "/data/x"}, {"op": "test", "path": "/data/x", "value": null}]), json!({})),
            (json!([{"op": "test", "path": "/data", "value": {"k": "v"}}]), json!({})),
            (json!([{"op": "replace", "path": "/a~1b~0c", "value": 2}]), json!({"a/b~c": 2})),
            (json!([{"op": "add", "path": "x/data/n", "value": 1}]), json!({"data": {"k": "v", "n": 1}})),
            (json!([]), json!({})),
            (Value::Null, json!({})),
        ] {
            let mut whole = target.clone();
            whole.as_object_mut().unwrap().append(&mut expected.as_object().unwrap().clone());
            assert_eq!(patched(&target, &patch).unwrap(), whole, "{patch}");
        }
    }

    #[test]
    fn what_does_not_apply_is_refused_without_a_cause() {
        let target = json!({"data": {"k": "v"}, "list": ["a", "b"]});
        for patch in [
            json!([{"op": "test", "path": "/data/k", "value": "w"}]),
            json!([{"op": "test", "path": "/dat/k", "value": null}]),
            json!([{"op": "test", "path": "", "value": {}}]),
            json!([{"op": "remove", "path": "/data/zz"}]),
            json!([{"op": "add", "path": "/dat/zz", "value": 1}]),
            json!([{"op": "add", "path": "/list/3", "value": 1}]),
            json!([{"op": "add", "path": "/list/-4", "value": 1}]),
            json!([{"op": "add", "path": "/list/x", "value": 1}]),
            json!([{"op": "replace", "path": "/list/2", "value": 1}]),
            json!([{"op": "remove", "path": "/list/-3"}]),
            json!([{"op": "add", "path": "", "value": {}}]),
            json!([{"op": "add", "path": "data", "value": {}}]),
            json!([{"op": "replace", "path": "", "value": 5}]),
            json!([{"op": "move", "from": "/data/y", "path": "/data/z"}]),
            json!([{"op": "copy", "path": "/data/z"}]),
            json!([{"op": "bogus", "path": "/data"}]),
            json!([{"path": "/data"}]),
            json!([{"op": "add", "value": 1}]),
            json!([null]),
        ] {
            let error = patched(&target, &patch).unwrap_err();
            assert_eq!(error.code, StatusCode::UNPROCESSABLE_ENTITY, "{patch}");
            assert_eq!(error.message, "the server rejected our request due to an error in our request");
        }
    }

    #[test]
    fn undecodable_patches_are_bad_requests() {
        let message = |text: &str, checking| apply(&json!({}), text.as_bytes(), checking).unwrap_err().message;
        for (text, expected) in [
            ("[{", "error decoding patch: unexpected end of JSON input"),
            ("{}", "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
            ("[1]", "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
            (
                r#"[{"op":"add","path":5}]"#,
                "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.path of type string",
            ),
        ] {
            assert_eq!(message(text, Checking::Strict), expected);
        }
        assert_eq!(
            message("{}", Checking::Ignore),
            "json: cannot unmarshal object into Go value of type jsonpatch.Patch"
        );
    }

    #[test]
    fn strict_reading_notes_unknown_and_repeated_keys() {
        let text = br#"[{"op":"add","path":"/a","value":{"x":1,"foo":2},"foo":1,"op":"add"}]"#;
        let patched = apply(&json!({}), text, Checking::Strict).unwrap();
        assert_eq!(patched.problems, ["json patch unknown field \"[0].foo\"", "json patch duplicate field \"[0].op\""]);
        assert!(apply(&json!({}), text, Checking::Ignore).unwrap().problems.is_empty());
    }

    #[test]
    fn growth_is_bounded() {
        let operation = json!({"op": "test", "path": "/x", "value": null});
        let error = patched(&json!({}), &json!(vec![operation.clone(); MAX_OPERATIONS + 1])).unwrap_err();
        assert_eq!(error.code, StatusCode::PAYLOAD_TOO_LARGE);
        patched(&json!({}), &json!(vec![operation; MAX_OPERATIONS])).unwrap();

        let doubling = vec![json!({"op": "copy", "from": "/a", "path": "/a/-"}); 200];
        patched(&json!({"a": ["x"]}), &json!(doubling)).unwrap_err();
        let nesting = vec![json!({"op": "copy", "from": "/a", "path": "/a/b"}); 200];
        patched(&json!({"a": {}}), &json!(nesting)).unwrap_err();
        let moving = json!([
            {"op": "add", "path": "/a", "value": nested(100)},
            {"op": "add", "path": &format!("{}/k", "/a".repeat(100)), "value": nested(100)},
        ]);
        patched(&json!({}), &moving).unwrap_err();
    }

    fn nested(depth: usize) -> Value {
        (0..depth).fold(json!({}), |inner, _| json!({"a": inner}))
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), (0..3).prop_map(Value::from)];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::btree_map("[ab]", inner, 0..3).prop_map(|map| json!(map)),
            ]
        })
    }

    fn operation() -> impl Strategy<Value = Value> {
        let path = "(/[ab01-]){0,3}";
        ("add|remove|replace|test|move|copy", path, path, value())
            .prop_map(|(op, from, path, value)| json!({"op": op, "from": from, "path": path, "value": value}))
    }

    proptest! {
        #[test]
        fn added_values_are_found_again(key in "[a-c/~]{1,3}", added in value()) {
            let path = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
            let patch = json!([
                {"op": "add", "path": path, "value": added},
                {"op": "test", "path": path, "value": added},
            ]);
            prop_assert_eq!(&patched(&json!({}), &patch).unwrap()[&key], &added);
        }

        #[test]
        fn random_patches_stay_bounded(
            target in proptest::collection::btree_map("[ab]", value(), 0..3),
            operations in proptest::collection::vec(operation(), 0..12),
        ) {
            if let Ok(object) = patched(&json!(target), &json!(operations)) {
                prop_assert!(json_text::depth(&object) <= MAX_DEPTH);
            }
        }
    }
}
