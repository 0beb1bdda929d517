//! Rules for `metadata`, the same for every kind: names, labels, annotations, owners, finalizers.
//!
//! The order and the words of the errors are the real API server's. What belongs to one kind alone is in
//! [`crate::builtin`].

use rand::RngExt as _;
use serde_json::Value;

use crate::builtin::ip;
use crate::builtin::json::{Fields, group_of, version_of};
use crate::builtin::path::Path;
use crate::names;
use crate::print::go_quoted;
use crate::resource::{Behaviour, NameRule, Resource};
use crate::status::FieldError;

/// Bytes that all annotations of an object may have together.
const MAX_ANNOTATIONS: usize = 256 * 1024;
/// Longest name that is generated, so that it also is a label value.
const MAX_GENERATED: usize = 63;
/// Random characters behind `generateName`.
const SUFFIX: usize = 5;
/// Letters and digits of generated names: no vowels, and none that look alike.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Longest name of a field manager.
const MAX_MANAGER: usize = 128;
/// Longest name of a subresource in managedFields.
const MAX_SUBRESOURCE: usize = 256;
/// Finalizers that need no domain before them.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
/// Groups whose kinds accept any well-formed finalizer, as custom resources do.
const FREE_FINALIZER_GROUPS: [&str; 4] =
    ["admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "coordination.k8s.io"];

const METADATA: Path<'static> = Path::root("metadata");

/// A name from a prefix: the prefix, cut if need be, and five random characters.
pub fn generate_name(prefix: &str, random: &mut impl rand::Rng) -> String {
    let mut cut = prefix.len().min(MAX_GENERATED - SUFFIX);
    while !prefix.is_char_boundary(cut) {
        cut -= 1;
    }
    let mut name = prefix[..cut].to_owned();
    name.extend((0..SUFFIX).map(|_| char::from(ALPHABET[random.random_range(..ALPHABET.len())])));
    name
}

/// Problems of a name. A prefix (`generateName`) may end with a dash.
pub fn name_problems(rule: NameRule, name: &str, prefix: bool) -> Vec<String> {
    // As in the real server, the last two characters are replaced for the dash and the generated suffix.
    let masked = match name.strip_suffix('-') {
        Some(before) if prefix && name.len() > 1 => {
            let mut chars = before.chars();
            chars.next_back();
            Some(format!("{}a", chars.as_str()))
        }
        _ => None,
    };
    let dns = masked.as_deref().unwrap_or(name);
    match rule {
        NameRule::Subdomain => names::subdomain_problems(dns),
        NameRule::Label => names::label_problems(dns),
        NameRule::PathSegment => names::path_segment_problems(name),
        NameRule::Ip => ip::problems(name),
    }
}

/// Problems of a new object's metadata, its name already generated.
pub fn validate_create(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let meta = object.at("metadata");
    let mut errors = Vec::new();
    validate_new(meta, resource.name_rule, resource.namespaced, &mut errors);
    if has_strict_finalizers(resource) {
        validate_standard_finalizers(meta, &mut errors);
    }
    errors
}

/// The errors in a change of metadata. The real server checks some fields twice, and lists their errors twice in the
/// causes.
pub fn validate_update(resource: &Resource, new: &Value, old: &Value) -> Vec<FieldError> {
    let (new, old) = (new.at("metadata"), old.at("metadata"));
    let mut errors = Vec::new();
    validate_new(new, NameRule::PathSegment, resource.namespaced, &mut errors);
    validate_change(new, old, &mut errors);
    validate_change(new, old, &mut errors);
    if has_strict_finalizers(resource) {
        validate_standard_finalizers(new, &mut errors);
    }
    errors
}

/// Problems of the metadata of an object inside of another one, which must have a name.
pub(crate) fn validate_embedded(meta: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_new(meta, NameRule::PathSegment, !meta.text("namespace").is_empty(), &mut errors);
    errors
}

fn has_strict_finalizers(resource: &Resource) -> bool {
    matches!(resource.behaviour, Behaviour::Builtin(_)) && !FREE_FINALIZER_GROUPS.contains(&&*resource.group)
}

fn validate_new(meta: &Value, rule: NameRule, namespaced: bool, errors: &mut Vec<FieldError>) {
    let generate_name = meta.text("generateName");
    if !generate_name.is_empty() {
        invalid_all(errors, &METADATA.child("generateName"), generate_name, name_problems(rule, generate_name, true));
    }
    let name = meta.text("name");
    if name.is_empty() {
        errors.push(FieldError::required(METADATA.child("name"), "name or generateName is required"));
    } else {
        invalid_all(errors, &METADATA.child("name"), name, name_problems(rule, name, false));
    }
    validate_namespace(meta, namespaced, errors);
    let generation = meta.number("generation").unwrap_or_default();
    if generation < 0 {
        errors.push(FieldError::invalid(
            METADATA.child("generation"),
            generation,
            "must be greater than or equal to 0",
        ));
    }
    validate_labels(meta.at("labels"), &METADATA.child("labels"), errors);
    validate_annotations(meta.at("annotations"), &METADATA.child("annotations"), errors);
    validate_owners(meta, errors);
    validate_finalizers(meta, errors);
    validate_managed_fields(meta, errors);
}

fn validate_change(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if old.has("deletionTimestamp") {
        validate_no_new_finalizers(new, old, errors);
    }
    if new.text("resourceVersion").is_empty() {
        errors.push(FieldError::invalid(METADATA.child("resourceVersion"), "", "must be specified for an update"));
    }
    let generation = |meta: &Value| meta.number("generation").unwrap_or_default();
    if generation(new) < generation(old) {
        errors.push(FieldError::invalid(METADATA.child("generation"), generation(new), "must not be decremented"));
    }
    for field in ["name", "namespace", "uid"] {
        if new.text(field) != old.text(field) {
            errors.push(FieldError::invalid(METADATA.child(field), new.text(field), "field is immutable"));
        }
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if new.at(field) != old.at(field) {
            errors.push(FieldError::invalid(METADATA.child(field), new.at(field).clone(), "field is immutable"));
        }
    }
    validate_labels(new.at("labels"), &METADATA.child("labels"), errors);
    validate_annotations(new.at("annotations"), &METADATA.child("annotations"), errors);
    validate_owners(new, errors);
    validate_managed_fields(new, errors);
}

fn validate_namespace(meta: &Value, namespaced: bool, errors: &mut Vec<FieldError>) {
    let namespace = meta.text("namespace");
    let path = METADATA.child("namespace");
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.push(FieldError::required(path, "")),
        (true, false) => invalid_all(errors, &path, namespace, names::label_problems(namespace)),
        (false, false) => errors.push(FieldError::forbidden(path, "not allowed on this type")),
        (false, true) => {}
    }
}

/// Problems of a map of labels.
pub(crate) fn validate_labels(labels: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        invalid_all(errors, path, key, names::label_key_problems(key));
        let value = value.as_str().unwrap_or_default();
        invalid_all(errors, path, value, names::label_value_problems(value));
    }
}

/// Problems of a map of annotations.
pub(crate) fn validate_annotations(annotations: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        invalid_all(errors, path, key, names::label_key_problems(&key.to_lowercase()));
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > MAX_ANNOTATIONS {
        errors.push(FieldError::too_long(path, MAX_ANNOTATIONS));
    }
}

fn validate_owners(meta: &Value, errors: &mut Vec<FieldError>) {
    let path = METADATA.child("ownerReferences");
    let owners = meta.items("ownerReferences");
    let mut controller: Option<String> = None;
    for owner in owners {
        validate_owner(owner, &path, errors);
        if !owner.flag("controller") {
            continue;
        }
        let name = format!("{}/{}", owner.text("kind"), owner.text("name"));
        match &controller {
            None => controller = Some(name),
            Some(first) => {
                let shown: Vec<String> = owners.iter().map(owner_as_go_shows_it).collect();
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                );
                errors.push(FieldError::invalid_as(path, format!("[{}]", shown.join(",")), detail));
            }
        }
    }
}

fn validate_owner(owner: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let api_version = owner.text("apiVersion");
    let (group, version) = match api_version.matches('/').count() {
        0 | 1 => (group_of(api_version), version_of(api_version)),
        _ => ("", ""),
    };
    if version.is_empty() {
        errors.push(FieldError::invalid(path.child("apiVersion"), api_version, "version must not be empty"));
    }
    for field in ["kind", "name", "uid"] {
        if owner.text(field).is_empty() {
            errors.push(FieldError::invalid(path.child(field), "", "must not be empty"));
        }
    }
    if (group, version, owner.text("kind")) == ("", "v1", "Event") {
        let shown = owner_as_go_shows_it(owner);
        errors.push(FieldError::invalid_as(path, shown, "/v1, Kind=Event is disallowed from being an owner"));
    }
}

/// JSON with the keys in the order of the Go type.
fn owner_as_go_shows_it(owner: &Value) -> String {
    let fields: Vec<String> = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"]
        .into_iter()
        .filter(|key| owner.has(key))
        .map(|key| format!("\"{key}\":{}", owner.at(key)))
        .collect();
    format!("{{{}}}", fields.join(","))
}

fn finalizers(meta: &Value) -> impl Iterator<Item = &str> {
    meta.items("finalizers").iter().filter_map(Value::as_str)
}

fn validate_finalizers(meta: &Value, errors: &mut Vec<FieldError>) {
    let path = METADATA.child("finalizers");
    for finalizer in finalizers(meta) {
        invalid_all(errors, &path, finalizer, names::label_key_problems(finalizer));
    }
    let has = |name| finalizers(meta).any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path, meta.at("finalizers").clone(), detail));
    }
}

fn validate_standard_finalizers(meta: &Value, errors: &mut Vec<FieldError>) {
    for (index, finalizer) in finalizers(meta).enumerate() {
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(METADATA.child("finalizers").index(index), finalizer, detail));
        }
    }
}

fn validate_no_new_finalizers(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let mut added: Vec<&str> = finalizers(new).filter(|name| !finalizers(old).any(|known| known == *name)).collect();
    if added.is_empty() {
        return;
    }
    added.sort_unstable();
    added.dedup();
    let quoted: Vec<String> = added.into_iter().map(go_quoted).collect();
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        quoted.join(", ")
    );
    errors.push(FieldError::forbidden(METADATA.child("finalizers"), detail));
}

fn validate_managed_fields(meta: &Value, errors: &mut Vec<FieldError>) {
    let list = METADATA.child("managedFields");
    for (index, entry) in meta.items("managedFields").iter().enumerate() {
        let path = list.index(index);
        let operation = entry.text("operation");
        if !matches!(operation, "Apply" | "Update") {
            errors.push(FieldError::invalid(path.child("operation"), operation, "must be `Apply` or `Update`"));
        }
        let fields_type = entry.text("fieldsType");
        if !matches!(fields_type, "" | "FieldsV1") {
            errors.push(FieldError::invalid(path.child("fieldsType"), fields_type, "must be `FieldsV1`"));
        }
        validate_manager(entry.text("manager"), &path.child("manager"), errors);
        if entry.text("subresource").len() > MAX_SUBRESOURCE {
            errors.push(FieldError::too_long(path.child("subresource"), MAX_SUBRESOURCE));
        }
    }
}

/// Problems of the name of a field manager.
pub(crate) fn validate_manager(manager: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if manager.len() > MAX_MANAGER {
        errors.push(FieldError::too_long(path, MAX_MANAGER));
    }
    for (index, c) in manager.char_indices().filter(|(_, c)| c.is_control()) {
        let detail = format!("invalid character U+{:04X} (at position {index})", u32::from(c));
        errors.push(FieldError::invalid(path, manager, detail));
    }
}

/// One error for each problem of a value.
pub(crate) fn invalid_all(errors: &mut Vec<FieldError>, path: &Path<'_>, value: &str, problems: Vec<String>) {
    errors.extend(problems.into_iter().map(|problem| FieldError::invalid(path, value, problem)));
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use serde_json::json;

    use super::*;
    use crate::builtin;

    fn resource(kind: &str) -> Resource {
        builtin::resources().into_iter().find(|resource| &*resource.kind == kind).unwrap()
    }

    fn told(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    fn created(kind: &str, metadata: &Value) -> Vec<String> {
        told(&validate_create(&resource(kind), &json!({"metadata": metadata})))
    }

    #[test]
    fn generated_names_are_labels() {
        let mut random = rand::rngs::StdRng::seed_from_u64(1);
        let name = generate_name("web-", &mut random);
        assert!(name.starts_with("web-") && name.len() == 9);
        let long = generate_name(&"ä".repeat(100), &mut random);
        assert!(long.len() <= MAX_GENERATED);
        let other = generate_name("web-", &mut random);
        assert_ne!(name, other);
    }

    #[test]
    fn a_prefix_may_end_with_a_dash() {
        assert!(name_problems(NameRule::Subdomain, "a-", true).is_empty());
        assert_eq!(name_problems(NameRule::Subdomain, "a-", false).len(), 1);
        assert_eq!(name_problems(NameRule::Subdomain, "-", true).len(), 1);
        assert!(name_problems(NameRule::PathSegment, "system:a-", true).is_empty());
    }

    #[test]
    fn good_metadata_has_no_errors() {
        let meta = json!({
            "name": "a", "namespace": "b", "labels": {"app.example.com/x": "y", "z": ""},
            "annotations": {"Example.COM/X": "anything\n"}, "finalizers": ["example.com/x", "orphan"],
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true}],
            "managedFields": [{"manager": "kubectl", "operation": "Apply", "fieldsType": "FieldsV1"}],
        });
        assert_eq!(created("ConfigMap", &meta), Vec::<String>::new());
    }

    #[test]
    fn scope_and_name_are_required() {
        assert_eq!(
            created("ConfigMap", &json!({})),
            ["metadata.name: Required value: name or generateName is required", "metadata.namespace: Required value"]
        );
        assert_eq!(
            created("Node", &json!({"name": "n", "namespace": "x"})),
            ["metadata.namespace: Forbidden: not allowed on this type"]
        );
    }

    #[test]
    fn names_follow_the_rule_of_their_kind() {
        assert_eq!(
            created("Service", &json!({"name": "1a.b", "namespace": "x"})),
            ["metadata.name: Invalid value: \"1a.b\": must not contain dots"]
        );
        assert_eq!(
            created("ClusterRole", &json!({"name": "a:b/c"})),
            ["metadata.name: Invalid value: \"a:b/c\": may not contain '/'"]
        );
        assert_eq!(
            created("IPAddress", &json!({"name": "010.0.0.1"})),
            ["metadata.name: Invalid value: \"010.0.0.1\": must not have leading 0s"]
        );
    }

    #[test]
    fn owners_and_finalizers_are_reported_as_by_the_real_server() {
        let owners = json!([
            {"apiVersion": "v1", "kind": "Event", "name": "x", "uid": "u"},
            {"apiVersion": "", "kind": "", "name": "", "uid": ""},
        ]);
        assert_eq!(
            created("ConfigMap", &json!({"name": "a", "namespace": "b", "ownerReferences": owners})),
            [
                r#"metadata.ownerReferences: Invalid value: {"apiVersion":"v1","kind":"Event","name":"x","uid":"u"}: /v1, Kind=Event is disallowed from being an owner"#,
                "metadata.ownerReferences.apiVersion: Invalid value: \"\": version must not be empty",
                "metadata.ownerReferences.kind: Invalid value: \"\": must not be empty",
                "metadata.ownerReferences.name: Invalid value: \"\": must not be empty",
                "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
            ]
        );
        let controllers = json!([
            {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u", "controller": true},
            {"apiVersion": "v1", "kind": "Pod", "name": "y", "uid": "u", "controller": true},
        ]);
        assert_eq!(
            created("ConfigMap", &json!({"name": "a", "namespace": "b", "ownerReferences": controllers})),
            [
                r#"metadata.ownerReferences: Invalid value: [{"apiVersion":"v1","kind":"Pod","name":"x","uid":"u","controller":true},{"apiVersion":"v1","kind":"Pod","name":"y","uid":"u","controller":true}]: Only one reference can have Controller set to true. Found "true" in references for Pod/x and Pod/y"#
            ]
        );
        assert_eq!(
            created("ConfigMap", &json!({"name": "a", "namespace": "b", "finalizers": ["x"]})),
            [
                "metadata.finalizers[0]: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified"
            ]
        );
        assert_eq!(
            created("Lease", &json!({"name": "a", "namespace": "b", "finalizers": ["x"]})),
            Vec::<String>::new()
        );
        assert_eq!(
            created(
                "ConfigMap",
                &json!({"name": "a", "namespace": "b", "finalizers": ["orphan", "foregroundDeletion"]})
            ),
            [
                r#"metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and foregroundDeletion cannot be both set"#
            ]
        );
    }

    #[test]
    fn annotations_have_a_common_limit() {
        let annotations = json!({"a": "x".repeat(MAX_ANNOTATIONS)});
        assert_eq!(
            created("ConfigMap", &json!({"name": "a", "namespace": "b", "annotations": annotations})),
            ["metadata.annotations: Too long: may not be more than 262144 bytes"]
        );
    }

    #[test]
    fn identity_cannot_change() {
        let old = json!({"metadata": {"name": "a", "namespace": "b", "uid": "1", "resourceVersion": "1"}});
        let new = json!({"metadata": {"name": "a", "namespace": "b", "uid": "2", "resourceVersion": "1"}});
        let errors = validate_update(&resource("ConfigMap"), &new, &old);
        let expected = "metadata.uid: Invalid value: \"2\": field is immutable";
        assert_eq!(told(&errors), [expected, expected]);
    }

    #[test]
    fn what_is_being_deleted_gets_no_new_finalizers() {
        let old = json!({"metadata": {
            "name": "a", "namespace": "b", "resourceVersion": "1", "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["x/y"],
        }});
        let mut new = old.clone();
        new["metadata"]["finalizers"] = json!(["x/z", "x/a"]);
        let errors = told(&validate_update(&resource("ConfigMap"), &new, &old));
        assert_eq!(
            errors[0],
            r#"metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"x/a", "x/z"}"#
        );
        new["metadata"]["finalizers"] = json!([]);
        assert!(validate_update(&resource("ConfigMap"), &new, &old).is_empty());
    }
}
