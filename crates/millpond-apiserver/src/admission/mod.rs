//! Checks and changes that need a look at other objects: live namespaces, priority classes, service addresses,
//! runtime classes, limit ranges, quotas.
//!
//! [`before_create`] and [`on_create`] may change the object, [`check`] sees it as it will be written and comes last.

mod certificates;
mod limits;
pub(crate) mod node_restriction;
pub(crate) mod policies;
mod quota;
mod runtime_class;

use serde_json::{Value, json};

use self::policies::Admission;
use crate::authz::escalation;
use crate::builtin;
use crate::handlers::call::{Call, key_of};
use crate::handlers::read::served;
use crate::handlers::update::Part;
use crate::lifecycle::definitions;
use crate::status::{ApiError, Cause};

/// Namespaces that cannot be deleted.
const ETERNAL_NAMESPACES: &[&str] = &["default", "kube-system", "kube-public"];

/// Before the kind prepares a new object: what its preparation takes into account.
pub(crate) fn before_create(call: &Call, object: &mut Value) {
    if &*call.resource.storage == "pods" {
        limits::fill(call, object);
    }
}

/// Before an object is created.
pub(crate) fn on_create(call: &Call, object: &mut Value) -> Result<(), ApiError> {
    if call.resource.namespaced {
        check_namespace(call, object)?;
    }
    node_restriction::on_create(call, object)?;
    match &*call.resource.storage {
        "pods" => {
            let node = object["spec"]["nodeName"].as_str().and_then(|name| call.server.store.get("nodes", name));
            if let Some(node) = node {
                builtin::pod::copy_topology_labels(object, &node.to_value());
            }
            resolve_priority(call, object)?;
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            runtime_class::admit(call, object).map_err(|why| ApiError::forbidden("", "pods", &name, &why))
        }
        "persistentvolumeclaims" => {
            default_storage_class(call, object);
            Ok(())
        }
        "services" => crate::service_ip::assign(call, object, None),
        "certificatesigningrequests.certificates.k8s.io" => {
            builtin::certificates::set_requester(object, &call.identity);
            Ok(())
        }
        definitions::COLLECTION => {
            definitions::on_write(call, object, None);
            Ok(())
        }
        _ if is_role_or_binding(call) => escalation::check(call, object, None),
        _ => Ok(()),
    }
}

/// Before an object is changed.
pub(crate) fn on_update(call: &Call, new: &mut Value, old: &Value, part: Part) -> Result<(), ApiError> {
    node_restriction::on_update(call, new, old, part)?;
    match (&*call.resource.storage, part) {
        ("services", Part::Main) => crate::service_ip::assign(call, new, Some(old)),
        ("customresourcedefinitions.apiextensions.k8s.io", Part::Main) => {
            definitions::on_write(call, new, Some(old));
            Ok(())
        }
        (_, Part::Main) if is_role_or_binding(call) => escalation::check(call, new, Some(old)),
        _ => Ok(()),
    }
}

fn is_role_or_binding(call: &Call) -> bool {
    &*call.resource.group == "rbac.authorization.k8s.io"
}

/// The last checks of a valid object: limits and quotas of its namespace.
pub(crate) async fn check(call: &mut Call, new: &Value, old: Option<&Value>, part: Part) -> Result<(), ApiError> {
    let refuse = |why: String| {
        let name = new["metadata"]["name"].as_str().unwrap_or_default();
        ApiError::forbidden(&call.resource.group, &call.resource.plural, name, &why)
    };
    if &*call.resource.storage == "pods" && old.is_none() {
        runtime_class::validate(call, new).map_err(refuse)?;
    }
    if &*call.resource.storage == "certificatesigningrequests.certificates.k8s.io" {
        certificates::check(call, new, old, part).map_err(refuse)?;
    }
    let limited = match (&*call.resource.storage, part) {
        ("pods", Part::Main) => old.is_none(),
        ("persistentvolumeclaims", Part::Main) | ("pods", Part::Other("resize")) => true,
        _ => false,
    };
    if limited && !old.is_some_and(|old| old["metadata"]["deletionTimestamp"].is_string()) {
        limits::check(call, new).map_err(refuse)?;
    }
    let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    let (subresource, old_object) = (part.subresource(), old.unwrap_or(&Value::Null));
    policies::check(call, &Admission { operation, subresource, name, object: new, old: old_object })?;
    quota::charge(call, new, old, part).await
}

/// Before an object is deleted.
pub(crate) fn on_delete(call: &mut Call, name: &str) -> Result<(), ApiError> {
    node_restriction::on_delete(call, name)?;
    let key = key_of(&call.resource, call.namespace(), name);
    if let Some(stored) = call.server.store.get(&call.resource.storage, &key) {
        let (operation, object) = ("DELETE", &Value::Null);
        let old = served(&call.resource, &stored);
        policies::check(call, &Admission { operation, subresource: "", name, object, old: &old })?;
    }
    if &*call.resource.storage == "namespaces" && ETERNAL_NAMESPACES.contains(&name) {
        return Err(ApiError::forbidden("", "namespaces", name, "this namespace may not be deleted"));
    }
    Ok(())
}

/// Objects are created only in namespaces that exist and are not terminating.
fn check_namespace(call: &Call, object: &Value) -> Result<(), ApiError> {
    let namespace = call.namespace();
    let Some(found) = call.server.store.get("namespaces", namespace) else {
        return Err(ApiError::not_found("", "namespaces", namespace));
    };
    if !found.index.deleting {
        return Ok(());
    }
    let resource = &call.resource;
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut error = ApiError::forbidden(&resource.group, &resource.plural, name, &why);
    error.details.get_or_insert_default().causes = vec![Cause {
        reason: "NamespaceTerminating",
        message: format!("namespace {namespace} is being terminated"),
        field: "metadata.namespace".to_owned(),
    }];
    Err(error)
}

/// Classes that are always there.
const SYSTEM_PRIORITIES: &[(&str, i64)] =
    &[("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// Turns a priority class into numbers, as the Priority admission does.
fn resolve_priority(call: &Call, pod: &mut Value) -> Result<(), ApiError> {
    let name = pod["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
    let (value, policy) = if name.is_empty() {
        match default_priority_class(call) {
            Some(class) => {
                pod["spec"]["priorityClassName"] = class["metadata"]["name"].clone();
                (class["value"].as_i64().unwrap_or(0), class["preemptionPolicy"].clone())
            }
            None => (0, Value::Null),
        }
    } else if let Some((_, value)) = SYSTEM_PRIORITIES.iter().find(|(system, _)| *system == name) {
        (*value, Value::Null)
    } else {
        let class = call.server.store.get("priorityclasses.scheduling.k8s.io", &name).ok_or_else(|| {
            let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let why = format!("no PriorityClass with name {name} was found");
            ApiError::forbidden("", "pods", pod_name, &why)
        })?;
        let class = class.to_value();
        (class["value"].as_i64().unwrap_or(0), class["preemptionPolicy"].clone())
    };
    let given = pod["spec"]["priority"].as_i64();
    if given.is_some_and(|given| given != value) {
        let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let why = format!(
            "the integer value of priority ({}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name",
            given.unwrap_or_default()
        );
        return Err(ApiError::forbidden("", "pods", pod_name, &why));
    }
    pod["spec"]["priority"] = json!(value);
    let policy = policy.as_str().unwrap_or("PreemptLowerPriority");
    if let Some(given) = pod["spec"]["preemptionPolicy"].as_str().filter(|given| *given != policy) {
        let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let why = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        );
        return Err(ApiError::forbidden("", "pods", pod_name, &why));
    }
    pod["spec"]["preemptionPolicy"] = json!(policy);
    Ok(())
}

fn default_priority_class(call: &Call) -> Option<Value> {
    const DEFAULT: &str = "\"globalDefault\":true";
    let classes = call.server.store.list("priorityclasses.scheduling.k8s.io", "", None, 0, |_, _| true);
    // Every pod asks, and hardly any class is the default: only those that say so are parsed.
    let says_so = |text: &[u8]| std::str::from_utf8(text).is_ok_and(|text| text.contains(DEFAULT));
    let candidates = classes.items.iter().filter(|(_, class)| says_so(&class.bytes)).map(|(_, class)| class.to_value());
    let defaults = candidates.filter(|class| class["globalDefault"] == true);
    defaults.min_by_key(|class| class["value"].as_i64())
}

/// A claim that names no class gets the default one.
fn default_storage_class(call: &Call, claim: &mut Value) {
    const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
    if !claim["spec"]["storageClassName"].is_null() {
        return;
    }
    let classes = call.server.store.list("storageclasses.storage.k8s.io", "", None, 0, |_, _| true);
    let defaults = classes.items.iter().map(|(_, class)| class.to_value());
    let mut defaults: Vec<Value> =
        defaults.filter(|class| class["metadata"]["annotations"][DEFAULT] == "true").collect();
    // The newest default wins, then the first by name.
    defaults.sort_by_key(|class| {
        let created = class["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
        (std::cmp::Reverse(created), class["metadata"]["name"].as_str().unwrap_or_default().to_owned())
    });
    if let Some(class) = defaults.first() {
        claim["spec"]["storageClassName"] = class["metadata"]["name"].clone();
    }
}
