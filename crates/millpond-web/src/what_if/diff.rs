//! JSON merge patches, and which fields two objects differ in. Pure.

use serde_json::{Map, Value, json};

/// Fields that the API server writes: no user changes them.
const SERVERS: [&str; 6] = ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"];

/// RFC 7396.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// The fields that differ, each with its path; lists are one field.
pub(super) fn fields(old: &Value, new: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    compare("", old, new, &mut found);
    found
}

fn compare(path: &str, old: &Value, new: &Value, found: &mut Vec<Value>) {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        if old != new {
            found.push(json!({ "path": path, "before": text(old), "after": text(new) }));
        }
        return;
    };
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        if path == "metadata" && SERVERS.contains(&name.as_str()) || path.is_empty() && name == "status" {
            continue;
        }
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let step = match (path.is_empty(), is_plain) {
            (true, _) => name.clone(),
            (false, true) => format!("{path}.{name}"),
            (false, false) => format!("{path}[{name:?}]"),
        };
        compare(&step, before.get(name).unwrap_or(&Value::Null), after.get(name).unwrap_or(&Value::Null), found);
    }
}

/// A value as a person writes it; none for one that is not there.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_patch_changes_what_it_names() {
        let old = json!({"metadata": {"name": "gpu", "uid": "1"}, "spec": {"limits": {"nvidia.com/gpu": "4", "cpu": "8"}, "weight": 1}});
        let mut new = old.clone();
        merge(&mut new, &json!({"spec": {"limits": {"nvidia.com/gpu": "37"}, "weight": null}, "status": {"x": 1}}));
        assert_eq!(new["spec"], json!({"limits": {"nvidia.com/gpu": "37", "cpu": "8"}}));
        assert_eq!(
            fields(&old, &new),
            [
                json!({"path": "spec.limits[\"nvidia.com/gpu\"]", "before": "4", "after": "37"}),
                json!({"path": "spec.weight", "before": "1", "after": null}),
            ]
        );
    }
}
