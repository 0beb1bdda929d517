//! Namespace, Node, ConfigMap, Secret and ServiceAccount.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::check::{self, Errors, ReportError};
use super::hooks::{self, PLAIN};
use super::ip;
use super::json::{Fields, Fill};
use super::path::Path;
use super::pod::{amount_value, taint_effect};
use super::shape;
use crate::names;
use crate::resource::BuiltinKind;
use crate::status::{FieldError, FieldProblem};

const SPEC: Path<'static> = Path::root("spec");
const STATUS: Path<'static> = Path::root("status");
const METADATA: Path<'static> = Path::root("metadata");
/// Bytes that the values of a ConfigMap or Secret may have together.
const MAX_DATA: usize = 1024 * 1024;
/// Finalizer of every namespace: it goes when nothing is left inside.
const KUBERNETES: &str = "kubernetes";
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Namespace.
pub(super) const NAMESPACE: BuiltinKind = BuiltinKind {
    prepare_create: |namespace| {
        shape::preparing(namespace, |namespace| {
            namespace.put("status", json!({"phase": "Active"}));
            label_with_name(namespace);
            let spec = namespace.object("spec");
            if !spec.items("finalizers").iter().any(|finalizer| finalizer == KUBERNETES) {
                spec.default_to("finalizers", json!([]));
                if let Some(list) = spec["finalizers"].as_array_mut() {
                    list.push(KUBERNETES.into());
                }
            }
        });
    },
    prepare_update: |new, old| {
        hooks::keep_status(new, old);
        new.object("spec").put("finalizers", old.at("spec").at("finalizers").clone());
        label_with_name(new);
    },
    validate: |new, old| {
        let mut errors = Errors::new();
        if old.is_none() {
            namespace_finalizers(new, false, &mut errors);
        }
        errors
    },
    validate_status: |new, _| {
        let mut errors = Errors::new();
        let phase = new.at("status").text("phase");
        let deleting = new.at("metadata").has("deletionTimestamp");
        if !deleting && phase != "Active" {
            let detail = "may only be 'Active' if `deletionTimestamp` is empty";
            errors.invalid(STATUS.child("Phase"), phase, detail);
        } else if deleting && phase != "Terminating" {
            let detail = "may only be 'Terminating' if `deletionTimestamp` is not empty";
            errors.invalid(STATUS.child("Phase"), phase, detail);
        }
        errors
    },
    ..PLAIN
};

/// Node.
pub(super) const NODE: BuiltinKind = BuiltinKind {
    prepare_create: |node| {
        // As the TaintNodesByCondition admission does, so that no pod is placed on a node before it is ready.
        let spec = node.object("spec");
        let tainted = |taint: &Value| taint.text("key") == NOT_READY && taint.text("effect") == "NoSchedule";
        if !spec.items("taints").iter().any(tainted) {
            spec.default_to("taints", json!([]));
            if let Some(list) = spec["taints"].as_array_mut() {
                list.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
            }
        }
    },
    prepare_update: hooks::keep_status,
    validate: validate_node,
    validate_status: |new, old| {
        let mut errors = Errors::new();
        changed_node(new, old, &mut errors);
        errors
    },
    ..PLAIN
};

/// ConfigMap.
pub(super) const CONFIG_MAP: BuiltinKind = BuiltinKind { validate: validate_config_map, ..PLAIN };

/// Secret.
pub(super) const SECRET: BuiltinKind = BuiltinKind {
    prepare_update: |new, old| {
        if new.text("type").is_empty() {
            new.put("type", old.at("type").clone());
        }
    },
    validate: validate_secret,
    ..PLAIN
};

/// ServiceAccount.
pub(super) const SERVICE_ACCOUNT: BuiltinKind = BuiltinKind {
    prepare_create: keep_only_secret_names,
    prepare_update: |new, _| keep_only_secret_names(new),
    ..PLAIN
};

fn label_with_name(namespace: &mut Value) {
    let name = namespace.at("metadata").at("name").clone();
    namespace.object("metadata").object("labels").put("kubernetes.io/metadata.name", name);
}

/// Problems of the finalizers in a namespace's spec, also through `/finalize`.
pub fn namespace_finalizers(namespace: &Value, indexed: bool, errors: &mut Vec<FieldError>) {
    let list = SPEC.child("finalizers");
    for (index, finalizer) in namespace.at("spec").items("finalizers").iter().filter_map(Value::as_str).enumerate() {
        let path = if indexed { list.index(index) } else { list };
        errors.each(path, finalizer, names::label_key_problems(finalizer));
        if !finalizer.contains('/') && !matches!(finalizer, KUBERNETES | "orphan" | "foregroundDeletion") {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.invalid(path, finalizer, detail);
        }
    }
}

fn validate_node(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if let Some(old) = old {
        changed_node(new, old, &mut errors);
    } else {
        taints(new, &mut errors);
        node_resources(new, &mut errors);
        pod_networks(new, &mut errors);
    }
    errors
}

fn pod_networks(node: &Value, errors: &mut Errors) {
    let path = SPEC.child("podCIDRs");
    let networks: Vec<&str> = node.at("spec").items("podCIDRs").iter().filter_map(Value::as_str).collect();
    for (index, network) in networks.iter().enumerate() {
        errors.each(path.index(index), network, ip::network_problems(network));
    }
    let families: HashSet<bool> =
        networks.iter().filter_map(|network| ip::parse_cidr(network)).map(|(address, _)| address.is_ipv4()).collect();
    if networks.len() > 1 && (families.len() != 2 || networks.len() > 2) {
        let detail = "may specify no more than one CIDR for each IP family";
        errors.invalid(path, node.at("spec").at("podCIDRs").clone(), detail);
    }
}

fn node_resources(node: &Value, errors: &mut Errors) {
    for field in ["capacity", "allocatable"] {
        for (name, amount) in node.at("status").entries(field) {
            amount_value(name, amount, STATUS.child(field).child(name), errors);
        }
    }
}

fn taints(node: &Value, errors: &mut Errors) {
    // The real server names the place so.
    let path = METADATA.child("taints");
    let mut seen = HashSet::new();
    for (index, taint) in node.at("spec").items("taints").iter().enumerate() {
        let place = path.index(index);
        let (key, value, effect) = (taint.text("key"), taint.text("value"), taint.text("effect"));
        errors.each(place.child("key"), key, names::label_key_problems(key));
        let problems = names::label_value_problems(value);
        if !problems.is_empty() {
            errors.invalid(place.child("value"), value, problems.join(";"));
        }
        if effect.is_empty() {
            errors.required(place.child("effect"), "");
        } else {
            taint_effect(effect, place.child("effect"), errors);
        }
        if !seen.insert((key, effect)) {
            errors.report(FieldError {
                field: place.to_string(),
                problem: FieldProblem::Duplicate(taint.clone()),
                detail: "taints must be unique by key and effect pair".to_owned(),
            });
        }
    }
}

fn changed_node(new: &Value, old: &Value, errors: &mut Errors) {
    node_resources(new, errors);
    let addresses = new.at("status").items("addresses");
    for (index, address) in addresses.iter().enumerate() {
        if addresses[..index].contains(address) {
            errors.duplicate(STATUS.child("addresses").index(index), address.clone());
        }
    }
    let (after, before) = (new.at("spec"), old.at("spec"));
    if !before.items("podCIDRs").is_empty() && before.at("podCIDRs") != after.at("podCIDRs") {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        errors.forbidden(SPEC.child("podCIDRs"), detail);
    }
    if !before.text("providerID").is_empty() && before.text("providerID") != after.text("providerID") {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.forbidden(SPEC.child("providerID"), detail);
    }
    taints(new, errors);
    if after.text("externalID") != before.text("externalID") {
        errors.forbidden(SPEC.child("externalID"), "may not be updated");
    }
}

fn base64_len(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    text.len() / 4 * 3 - text.bytes().rev().take_while(|byte| *byte == b'=').count().min(2)
}

fn validate_config_map(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if let Some(old) = old {
        frozen(new, old, &["data", "binaryData"], &mut errors);
    }
    let mut size = 0;
    for (key, value) in new.entries("data") {
        let path = Path::root("data");
        errors.each(path.key(key), key, check::config_key_problems(key));
        if new.at("binaryData").has(key) {
            errors.invalid(path.key(key), key, "duplicate of key present in binaryData");
        }
        size += value.as_str().map_or(0, str::len);
    }
    for (key, value) in new.entries("binaryData") {
        errors.each(Path::root("binaryData").key(key), key, check::config_key_problems(key));
        size += base64_len(value);
    }
    if size > MAX_DATA {
        errors.report(FieldError::too_long(Path::root(""), MAX_DATA));
    }
    errors
}

/// Fields that are marked immutable must not change.
fn frozen(new: &Value, old: &Value, fields: &[&str], errors: &mut Errors) {
    if !old.flag("immutable") {
        return;
    }
    let detail = "field is immutable when `immutable` is set";
    if !new.flag("immutable") {
        errors.forbidden(Path::root("immutable"), detail);
    }
    for field in fields.iter().filter(|field| new.at(field) != old.at(field)) {
        errors.forbidden(Path::root(field), detail);
    }
}

fn validate_secret(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if let Some(old) = old {
        errors.immutable(Path::root("type"), new.at("type"), old.at("type"));
        frozen(new, old, &["data"], &mut errors);
    }
    let path = Path::root("data");
    let mut size = 0;
    for (key, value) in new.entries("data") {
        errors.each(path.key(key), key, check::config_key_problems(key));
        size += base64_len(value);
    }
    if size > MAX_DATA {
        errors.report(FieldError::too_long(path, MAX_DATA));
    }
    secret_of_type(new, path, &mut errors);
    errors
}

fn secret_of_type(secret: &Value, path: Path<'_>, errors: &mut Errors) {
    let data = secret.at("data");
    let mut need = |keys: &[&str]| {
        for key in keys.iter().filter(|key| !data.has(key)) {
            errors.required(path.key(key), "");
        }
    };
    match secret.text("type") {
        "kubernetes.io/service-account-token" => {
            const NAME: &str = "kubernetes.io/service-account.name";
            if secret.at("metadata").at("annotations").text(NAME).is_empty() {
                errors.required(METADATA.child("annotations").key(NAME), "");
            }
        }
        "kubernetes.io/dockercfg" => docker_config(data, ".dockercfg", path, errors),
        "kubernetes.io/dockerconfigjson" => docker_config(data, ".dockerconfigjson", path, errors),
        "kubernetes.io/basic-auth" if !data.has("username") && !data.has("password") => need(&["username", "password"]),
        "kubernetes.io/ssh-auth" if data.text("ssh-privatekey").is_empty() => {
            errors.required(path.key("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => need(&["tls.crt", "tls.key"]),
        _ => {}
    }
}

fn docker_config(data: &Value, key: &str, path: Path<'_>, errors: &mut Errors) {
    let Some(text) = data.at(key).as_str() else {
        errors.required(path.key(key), "");
        return;
    };
    let parsed = BASE64.decode(text).map_err(|error| error.to_string()).and_then(|bytes| {
        if bytes.is_empty() {
            return Err("unexpected end of JSON input".to_owned());
        }
        serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes).map_err(|error| error.to_string())
    });
    if let Err(problem) = parsed {
        errors.invalid(path.key(key), "<secret contents redacted>", problem);
    }
}

fn keep_only_secret_names(account: &mut Value) {
    for secret in account.items_mut("secrets") {
        let name = secret.at("name").clone();
        *secret = if name.is_null() { json!({}) } else { json!({"name": name}) };
    }
}

/// Puts the readable values of a Secret (`stringData`) where they are kept.
pub(super) fn encode_string_data(secret: &mut Value) {
    let Some(Value::Object(texts)) = secret.drop("stringData") else { return };
    let data = secret.object("data");
    for (key, text) in texts {
        data.put(&key, json!(BASE64.encode(text.as_str().unwrap_or_default())));
    }
}
