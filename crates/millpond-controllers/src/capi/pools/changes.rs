//! Edits a raw object and records every difference.

use millpond_api::capi::Version;
use serde_json::{Map, Value, json};

use super::{Change, Effect};

/// A list of changes to a pool.
#[derive(Debug, Default)]
pub(super) struct Changes(pub(super) Vec<Change>);

impl Changes {
    /// Puts a value at a path and notes it, if it is not there already. Tells whether it was not.
    pub(super) fn put(&mut self, target: &mut Value, path: &[&str], value: Value, field: &str, effect: Effect) -> bool {
        let before = at(target, path).cloned().filter(|before| !before.is_null());
        if before.as_ref() == Some(&value) {
            return false;
        }
        let to = shown(&value);
        put(target, path, value);
        self.note(field, before.as_ref().map(shown), Some(to), effect);
        true
    }

    /// Removes a value and records the change.
    pub(super) fn take(&mut self, target: &mut Value, path: &[&str], field: &str, effect: Effect) -> bool {
        let Some((last, parents)) = path.split_last() else { return false };
        let Some(Value::Object(parent)) = at_mut(target, parents) else { return false };
        let Some(before) = parent.remove(*last).filter(|before| !before.is_null()) else { return false };
        self.note(field, Some(shown(&before)), None, effect);
        true
    }

    pub(super) fn note(&mut self, field: &str, from: Option<String>, to: Option<String>, effect: Effect) {
        self.0.push(Change { field: field.to_owned(), from, to, effect });
    }
}

/// The value at a path.
pub(super) fn at<'v>(value: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, key| value.get(*key))
}

fn at_mut<'v>(value: &'v mut Value, path: &[&str]) -> Option<&'v mut Value> {
    path.iter().try_fold(value, |value, key| value.get_mut(*key))
}

/// Puts a value at a path; what is missing on the way is made, what is no object is replaced.
pub(super) fn put(target: &mut Value, path: &[&str], value: Value) {
    let mut here = target;
    for key in path {
        if !here.is_object() {
            *here = Value::Object(Map::new());
        }
        here = &mut here[*key];
    }
    *here = value;
}

/// A value in short form, for messages.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Eight letters that depend only on the content of a template.
pub(super) fn content_hash(object: &Value) -> String {
    let mut text = String::new();
    canonical(&json!([object["kind"], object["spec"]]), &mut text);
    let hash = fnv(text.as_bytes());
    format!("{:08x}", (hash ^ (hash >> 32)) as u32)
}

/// JSON with sorted keys, so that equal content has one text.
fn canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort();
            text.push('{');
            for (index, key) in keys.into_iter().enumerate() {
                text.push_str(if index == 0 { "" } else { "," });
                text.push_str(&json!(key).to_string());
                text.push(':');
                canonical(&fields[key], text);
            }
            text.push('}');
        }
        Value::Array(entries) => {
            text.push('[');
            for (index, entry) in entries.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { "," });
                canonical(entry, text);
            }
            text.push(']');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}

/// FNV-1a, 64 bits: in the names of templates, so it must never change.
fn fnv(bytes: &[u8]) -> u64 {
    const START: u64 = 0xcbf2_9ce4_8422_2325;
    bytes.iter().fold(START, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The version in whose shape a MachineDeployment or Cluster is written. A server without conversion returns objects as
/// they were written, whatever version is requested.
pub(super) fn shape(deployment: &Value, served: Version) -> Version {
    let reference = &deployment["spec"]["template"]["spec"]["infrastructureRef"];
    match (reference.get("apiGroup"), reference.get("apiVersion")) {
        (Some(_), _) => Version::V1Beta2,
        (None, Some(_)) => Version::V1Beta1,
        (None, None) => served,
    }
}

/// The parts of an object that are written: identity, labels, annotations and spec, with the resourceVersion that was
/// read, so that a concurrent change causes a conflict.
pub(super) fn writable(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut kept = json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"],
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "spec": object["spec"],
    });
    for key in ["labels", "annotations", "resourceVersion"] {
        if !metadata[key].is_null() {
            kept["metadata"][key] = metadata[key].clone();
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_follow_content_alone() {
        let one = json!({"kind": "K", "metadata": {"name": "a"}, "spec": {"b": 1, "a": 2}});
        let same = json!({"kind": "K", "metadata": {"name": "b"}, "spec": {"a": 2, "b": 1}});
        assert_eq!(content_hash(&one), content_hash(&same));
        assert_eq!(content_hash(&one), "b3b838c7", "names of templates in clusters depend on it");
        assert_ne!(content_hash(&one), content_hash(&json!({"kind": "K", "spec": {"a": 2}})));
    }

    #[test]
    fn only_differences_are_noted() {
        let (mut target, mut changes) = (json!({"a": {"b": 1}}), Changes::default());
        assert!(!changes.put(&mut target, &["a", "b"], json!(1), "b", Effect::InPlace));
        assert!(changes.put(&mut target, &["x", "y", "z"], json!("t"), "z", Effect::Rollout));
        assert!(changes.take(&mut target, &["a", "b"], "b", Effect::InPlace));
        assert!(!changes.take(&mut target, &["a", "b"], "b", Effect::InPlace));
        assert_eq!(target, json!({"a": {}, "x": {"y": {"z": "t"}}}));
        let told: Vec<_> =
            changes.0.iter().map(|it| (it.field.as_str(), it.from.as_deref(), it.to.as_deref())).collect();
        assert_eq!(told, [("z", None, Some("t")), ("b", Some("1"), None)]);
    }
}
