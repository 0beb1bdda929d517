//! Merge patch (RFC 7386): objects merge, `null` removes, all else replaces.
//!
//! Nulls inside a value that is newly put in place are left out, as the RFC says, but those inside a value
//! that takes the place of an object stay, as in the real API server; only custom resources show them.

use serde_json::{Map, Value};

use super::{Checking, GO_MAP, Patched, wrong_type};
use crate::json_text;
use crate::status::ApiError;

/// Applies a patch to an object.
pub fn apply(target: &Value, patch: &[u8], checking: Checking) -> Result<Patched, ApiError> {
    let invalid = || ApiError::bad_request("Invalid JSON Patch");
    let document = json_text::parse(patch).map_err(|error| match checking {
        Checking::Strict => ApiError::bad_request(format!("error decoding patch: {error}")),
        Checking::Ignore => invalid(),
    })?;
    let problems = if checking == Checking::Strict { document.problems } else { Vec::new() };
    match (document.value, checking) {
        (Value::Object(patch), _) => {
            let mut object = target.as_object().cloned().unwrap_or_default();
            merge_objects(&mut object, patch);
            Ok(Patched::new(Value::Object(object), problems))
        }
        (Value::Null, _) => Err(invalid()),
        (other, Checking::Strict) => {
            Err(ApiError::bad_request(format!("error decoding patch: {}", wrong_type(&other, GO_MAP))))
        }
        // A list is taken as the object itself, and is refused there.
        (list @ Value::Array(_), Checking::Ignore) => Ok(Patched::new(list, problems)),
        (_, Checking::Ignore) => Err(invalid()),
    }
}

/// Merges one decoded patch into an object.
pub fn merge_objects(object: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (key, value) in patch {
        match (object.get_mut(&key), value) {
            (_, Value::Null) => {
                object.remove(&key);
            }
            (Some(Value::Object(current)), Value::Object(inner)) => merge_objects(current, inner),
            (Some(current @ Value::Object(_)), value) => *current = value,
            (_, mut value) => {
                drop_nulls(&mut value);
                object.insert(key, value);
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn patched(target: &Value, patch: &Value) -> Value {
        apply(target, patch.to_string().as_bytes(), Checking::Strict).unwrap().object
    }

    /// The examples of RFC 7386, and what the real API server answered.
    #[test]
    fn merges() {
        for (target, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
            (json!({}), json!({"a": [null, {"q": null}]}), json!({"a": [null, {}]})),
            (json!({"a": "x"}), json!({"a": [{"z": null}]}), json!({"a": [{}]})),
            (json!({"a": {"x": 1}}), json!({"a": [{"z": null}]}), json!({"a": [{"z": null}]})),
            (json!({"a": null}), json!({"a": {"z": null}}), json!({"a": {}})),
        ] {
            assert_eq!(patched(&target, &patch), expected, "{target} {patch}");
        }
    }

    #[test]
    fn bad_patches_are_refused() {
        let message = |text: &str, checking| apply(&json!({}), text.as_bytes(), checking).unwrap_err().message;
        for (text, expected) in [
            ("[1]", "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"),
            ("5", "error decoding patch: json: cannot unmarshal number into Go value of type map[string]interface {}"),
            ("null", "Invalid JSON Patch"),
            ("{", "error decoding patch: unexpected end of JSON input"),
            ("{} x", "error decoding patch: invalid character 'x' after top-level value"),
        ] {
            assert_eq!(message(text, Checking::Strict), expected);
        }
        for text in ["{", "5", "null"] {
            assert_eq!(message(text, Checking::Ignore), "Invalid JSON Patch");
        }
        assert_eq!(apply(&json!({}), b"[1]", Checking::Ignore).unwrap().object, json!([1]));
    }

    #[test]
    fn repeated_keys_are_noted() {
        let text = br#"{"data":{"a":"b","a":"c"}}"#;
        let patched = apply(&json!({}), text, Checking::Strict).unwrap();
        assert_eq!(patched.problems, ["duplicate field \"data.a\""]);
        assert_eq!(patched.object, json!({"data": {"a": "c"}}));
        assert!(apply(&json!({}), text, Checking::Ignore).unwrap().problems.is_empty());
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), (0..3).prop_map(Value::from), "[xy]".prop_map(Value::from)];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::btree_map("[a-c]", inner, 0..3).prop_map(|map| json!(map)),
            ]
        })
    }

    fn object() -> impl Strategy<Value = Value> {
        proptest::collection::btree_map("[a-c]", value(), 0..4).prop_map(|map| json!(map))
    }

    proptest! {
        #[test]
        fn a_second_application_changes_nothing(target in object(), patch in object()) {
            let once = patched(&target, &patch);
            // A value with nulls that took the place of an object loses them the second time.
            prop_assume!(!once.to_string().contains("null"));
            prop_assert_eq!(patched(&once, &patch), once);
        }

        #[test]
        fn agrees_with_the_rfc_where_no_null_stands_in_a_list(target in object(), patch in object()) {
            let mut expected = target.clone();
            json_patch::merge(&mut expected, &patch);
            let mut actual = patched(&target, &patch);
            drop_nulls(&mut actual);
            drop_nulls(&mut expected);
            prop_assert_eq!(actual, expected);
        }
    }
}
