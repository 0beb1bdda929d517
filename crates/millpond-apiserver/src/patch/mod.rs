//! The three patches: JSON patch, merge patch, strategic merge patch. Pure functions from one value to another.
//!
//! Results and refusals follow the real API server, also where it departs from the RFCs: its libraries take
//! negative indices, let `replace` create keys, and keep what they were never asked to clean up.
//! Server-side apply is not a patch in this sense; it lives with field ownership.

pub mod json;
pub mod merge;
pub mod strategic;

use http::StatusCode;
use serde_json::{Value, json};

use crate::print::{go_quoted, go_value};
use crate::resource::{Behaviour, Resource};
use crate::schema::Schema;
use crate::status::{ApiError, Details, FieldError};

/// Media type of JSON patches.
pub const JSON_PATCH: &str = "application/json-patch+json";
/// Media type of merge patches.
pub const MERGE_PATCH: &str = "application/merge-patch+json";
/// Media type of strategic merge patches.
pub const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";
/// Media type of server-side apply.
pub const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// Whether repeated and unknown keys are looked for (`fieldValidation` is `Warn` or `Strict`) or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checking {
    /// Problems of the patch text are collected.
    Strict,
    /// Problems of the patch text are passed over.
    Ignore,
}

/// A patched object that still has to be decoded, defaulted and validated.
#[derive(Debug, Clone)]
pub struct Patched {
    /// The object with the patch applied.
    pub object: Value,
    /// The problems that strict reading found in the patch text: warnings, or with `Strict` the error of
    /// [`Patched::rejection`].
    pub problems: Vec<String>,
    /// The value that an error shows: the patch for strategic merges, otherwise the patched object.
    shown: Option<Value>,
}

impl Patched {
    fn new(object: Value, problems: Vec<String>) -> Self {
        Self { object, problems, shown: None }
    }

    /// The 422 for a patched object that cannot be decoded; `detail` says why.
    pub fn rejection(&self, detail: impl Into<String>) -> ApiError {
        let shown = self.shown.as_ref().map_or_else(|| self.object.to_string(), go_value);
        ApiError::invalid("", "", "", &[FieldError::invalid("patch", shown, detail)])
    }

    /// Makes sure that the object is still of its kind. A strategic merge patch cannot change the kind: what it
    /// says about it is passed over.
    pub fn check_kind(&mut self, resource: &Resource, name: &str) -> Result<(), ApiError> {
        let api_version = resource.api_version();
        let Value::Object(fields) = &mut self.object else {
            let found = json_type(&self.object);
            return Err(self.rejection(format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type \
                 struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; \
                 Kind string \"json:\\\"kind,omitempty\\\"\" }}"
            )));
        };
        let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (given_version, given_kind) = (text("apiVersion"), text("kind"));
        let custom = matches!(resource.behaviour, Behaviour::Custom);
        let absent = given_version.is_empty() || given_kind.is_empty();
        if self.shown.is_some() {
            fields.insert("apiVersion".to_owned(), json!(api_version));
            fields.insert("kind".to_owned(), json!(resource.kind));
        } else if absent && !custom {
            // Without a kind the real server reads an internal form, which has no `metadata` in JSON.
            return Err(ApiError::bad_request(format!(
                "the name of the object ({name} based on URL) was undeterminable: name must be provided"
            )));
        } else if absent {
            let missing = if given_kind.is_empty() { "Kind" } else { "apiVersion" };
            return Err(self.rejection(format!("Object '{missing}' is missing in '{}'", self.object)));
        } else if custom {
            let pairs = [("kind", given_kind.as_str(), &*resource.kind), ("apiVersion", &given_version, &api_version)];
            let changed = pairs.into_iter().filter(|(_, given, expected)| given != expected);
            let errors: Vec<FieldError> = changed
                .map(|(key, given, expected)| FieldError::invalid(key, given, format!("must be {expected}")))
                .collect();
            if !errors.is_empty() {
                return Err(ApiError::invalid(&resource.group, &given_kind, name, &errors));
            }
        } else if given_version != api_version || given_kind != *resource.kind {
            return Err(self.rejection(format!(
                "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
                go_quoted(&given_kind),
                go_quoted(&given_version)
            )));
        }
        Ok(())
    }

    /// Where the object does not fit its types, in the words that strategic merge patches have of their own.
    pub fn type_problem(&self, schema: &Schema) -> Option<String> {
        self.shown.as_ref().and_then(|_| strategic::misfit(&self.object, schema))
    }

    /// The refusal of a strict request when `problems` (of the patch, then of the object) were found.
    pub fn strict_rejection(&self, problems: &[String]) -> ApiError {
        self.rejection(format!("strict decoding error: {}", problems.join(", ")))
    }
}

/// The 415 for a media type that a custom resource cannot be patched with (strategic merge among them).
pub fn unsupported_media_type_of_custom_resource() -> ApiError {
    let accepted = [JSON_PATCH, MERGE_PATCH, APPLY_PATCH].join(", ");
    ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "UnsupportedMediaType",
        format!("the body of the request was in an unknown format - accepted media types include: {accepted}"),
    )
}

/// The 415 for a media type that a built-in resource cannot be patched with.
pub fn unsupported_media_type() -> ApiError {
    let message = "415: Unsupported Media Type";
    let mut error = ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message);
    error.details = Some(Box::default());
    error
}

/// The 422 error without a cause, which is all that the real server reports about a patch that cannot be applied.
fn does_not_apply() -> ApiError {
    let message = "the server rejected our request due to an error in our request";
    let mut error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
    error.details = Some(Box::<Details>::default());
    error
}

/// The name of a value's type in Go's JSON decoder.
fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The error of Go's JSON decoder for a value of the wrong type.
fn wrong_type(value: &Value, expected: &str) -> String {
    format!("json: cannot unmarshal {} into Go value of type {expected}", json_type(value))
}

/// The Go type that objects of no known type are decoded into.
const GO_MAP: &str = "map[string]interface {}";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_text::{MAX_DEPTH, depth};
    use crate::schema::builtin;
    use proptest::prelude::*;

    #[test]
    fn rejections_show_the_object_or_the_patch() {
        let mut patched = Patched::new(json!({"a": [1, "x"]}), Vec::new());
        let error = patched.rejection("json: no");
        assert_eq!(error.message, r#" "" is invalid: patch: Invalid value: "{\"a\":[1,\"x\"]}": json: no"#);
        patched.shown = Some(json!({"a": [1, "x"]}));
        let error = patched.strict_rejection(&["unknown field \"a\"".to_owned(), "duplicate field \"b\"".to_owned()]);
        assert_eq!(
            error.message,
            " \"\" is invalid: patch: Invalid value: \"map[a:[1 x]]\": \
             strict decoding error: unknown field \"a\", duplicate field \"b\""
        );
    }

    /// Valid patches with bytes changed at random: whatever comes out, nothing panics or grows without bound.
    #[test]
    fn fuzz_patch() {
        let corpus: [&[u8]; 4] = [
            br#"[{"op":"add","path":"/a/b","value":{"c":[1,"x",null]}},{"op":"copy","from":"/a","path":"/l/-"}]"#,
            br#"[{"op":"move","from":"/l/0","path":"/a/-1"},{"op":"test","path":"/s","value":"t"}]"#,
            br#"{"a":{"b":null,"c":[{"d":1}]},"l":[1,2],"s":{"x":"y"},"$patch":"replace"}"#,
            br#"{"$setElementOrder/l":[{"n":"b"}],"l":[{"n":"a","$patch":"delete"}],"$retainKeys":["l"]}"#,
        ];
        let target = json!({"a": {"b": 1}, "l": [{"n": "a"}, {"n": "b"}], "s": "t"});
        let schema = Schema::default();
        let strategy = (0..corpus.len(), proptest::collection::vec((any::<usize>(), any::<u8>(), 0..3_u8), 0..6));
        proptest!(ProptestConfig::with_cases(2000), |((seed, changes) in strategy)| {
            let mut text = corpus[seed].to_vec();
            for (at, byte, how) in changes {
                let at = at % (text.len() + 1);
                match how {
                    0 => text.insert(at, byte),
                    1 if at < text.len() => text[at] = byte,
                    _ => text.truncate(at.max(1)),
                }
            }
            for checking in [Checking::Strict, Checking::Ignore] {
                for result in [
                    json::apply(&target, &text, checking),
                    merge::apply(&target, &text, checking),
                    strategic::apply(&target, &text, checking, &schema),
                ].into_iter().flatten() {
                    prop_assert!(depth(&result.object) <= MAX_DEPTH);
                }
            }
        });
    }

    fn check_recorded(text: &str, apply: impl Fn(&Value, &Value, &[u8]) -> Result<Patched, ApiError>) {
        for line in text.lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let result = apply(&case["kind"], &case["target"], case["patch"].to_string().as_bytes());
            match (result, &case["error"]) {
                (Ok(patched), Value::Null) => assert_eq!(patched.object, case["result"], "{line}"),
                (Err(error), Value::String(expected)) => assert_eq!(error.message, *expected, "{line}"),
                (Err(_), Value::Bool(true)) => {}
                (result, _) => panic!("{result:?} for {line}"),
            }
        }
    }

    /// Random cases, answered by the libraries inside kube-apiserver 1.36.
    #[test]
    fn recorded_patches_give_the_recorded_results() {
        let deployment = builtin::kind("apps", "v1", "Deployment").unwrap();
        let budget = builtin::kind("policy", "v1", "PodDisruptionBudget").unwrap();
        check_recorded(include_str!("testdata/json.jsonl"), |_, target, patch| {
            json::apply(target, patch, Checking::Ignore)
        });
        check_recorded(include_str!("testdata/merge.jsonl"), |_, target, patch| {
            merge::apply(target, patch, Checking::Ignore)
        });
        check_recorded(include_str!("testdata/strategic.jsonl"), |kind, target, patch| {
            let schema = if kind == "Deployment" { &deployment } else { &budget };
            strategic::apply(target, patch, Checking::Ignore, schema)
        });
    }
}
