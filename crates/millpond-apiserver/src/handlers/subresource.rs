//! Subresources with rules of their own: scale, binding, eviction, finalize, approval, token.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::call::{Call, key_of};
use super::delete::{self, Options};
use super::ownership::{Ownership, ScaleOwnership};
use super::read::served;
use super::respond::{self, ApiResponse};
use super::update::{Changed, Part, Patch, applied, change, parse_config};
use super::{create, decode, kubelet, reviews};
use crate::admission::node_restriction;
use crate::builtin;
use crate::clock::rfc3339;
use crate::http::negotiate::content_type;
use crate::kind;
use crate::patch;
use crate::selector::LabelSelector;
use crate::status::{ApiError, Cause};
use crate::store::{CommitError, EncodedObject, Expect, Write};

/// Dispatches a request for a subresource other than `status`.
pub(crate) async fn handle(call: &mut Call, body: &Bytes, name: &str) -> Result<ApiResponse, ApiError> {
    match (name, call.method.clone()) {
        ("scale", Method::GET) => scale_get(call),
        ("scale", Method::PUT | Method::PATCH) => scale_write(call, body).await,
        ("binding", Method::POST) => bind(call, body).await,
        ("eviction", Method::POST) => evict(call, body).await,
        ("log", Method::GET) | ("exec" | "attach" | "portforward", Method::GET | Method::POST) => {
            kubelet::connect(call, name).await
        }
        ("token", Method::POST) => reviews::service_account_token(call, body),
        ("finalize", Method::PUT) => write_part(call, body, "finalize").await,
        ("approval" | "resize" | "ephemeralcontainers", Method::GET) => super::read::get(call),
        ("approval", Method::PUT | Method::PATCH) => write_part(call, body, "approval").await,
        ("resize", Method::PUT | Method::PATCH) => write_part(call, body, "resize").await,
        ("ephemeralcontainers", Method::PUT | Method::PATCH) => write_part(call, body, "ephemeralcontainers").await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// The change of a subresource that a request asks for.
enum Wish {
    Put(Value),
    Patch(Patch),
    /// A configuration, and the fields that it names twice.
    Apply(Value, Vec<String>),
}

impl Wish {
    fn of(call: &mut Call, body: &Bytes) -> Result<Self, ApiError> {
        if call.method == Method::PUT {
            return Ok(Self::Put(decode::object(call, body)?));
        }
        match content_type(&call.headers) {
            patch::APPLY_PATCH => parse_config(body).map(|(config, duplicates)| Self::Apply(config, duplicates)),
            other => Patch::of(other, &call.resource).map(Self::Patch),
        }
    }
}

/// PUT or PATCH of a subresource that takes the whole object and changes one part of it.
async fn write_part(call: &mut Call, body: &Bytes, name: &'static str) -> Result<ApiResponse, ApiError> {
    let wish = Wish::of(call, body)?;
    let (part, force) = (Part::Other(name), call.query.force.unwrap_or(false));
    let outcome = change(call, part, |call, old| {
        let (given, insists) = match &wish {
            Wish::Put(given) => (given.clone(), given),
            Wish::Patch(patch) => (decode::patched(call, patch.apply(old, body, call)?)?, &Value::Null),
            Wish::Apply(config, duplicates) => (applied(call, Some(old), config, duplicates, part, force)?, config),
        };
        let version = insists["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let object = changed_part(call, name, given, old)?;
        let precondition = Some(version).filter(|version| !version.is_empty());
        Ok(Changed { object, precondition, track: !matches!(wish, Wish::Apply(..)) })
    })
    .await?;
    Ok(outcome.respond(call, StatusCode::OK))
}

/// The object with only that part of it changed, checked.
fn changed_part(call: &Call, name: &str, mut given: Value, old: &Value) -> Result<Value, ApiError> {
    kind::default(&call.resource, &mut given);
    let errors = match name {
        "finalize" => {
            let mut object = old.clone();
            object["spec"]["finalizers"] = given["spec"]["finalizers"].take();
            given = object;
            let mut errors = Vec::new();
            builtin::core::namespace_finalizers(&given, true, &mut errors);
            errors
        }
        "approval" => {
            builtin::certificates::prepare_approval(&mut given, old, call.server.clock.now());
            builtin::certificates::validate_approval(&given, old)
        }
        "ephemeralcontainers" => {
            builtin::pod::prepare_ephemeral_containers(&mut given, old);
            builtin::pod::validate_ephemeral_containers(&given, old)
        }
        "resize" => {
            builtin::pod::prepare_resize(&mut given, old);
            builtin::pod::validate_resize(&given, old)
        }
        _ => unreachable!("only the names above are dispatched here"),
    };
    if errors.is_empty() {
        return Ok(given);
    }
    Err(ApiError::invalid(&call.resource.group, &call.resource.kind, call.name(), &errors))
}

fn scale_get(call: &mut Call) -> Result<ApiResponse, ApiError> {
    let object = served(&call.resource, &*call.fetch()?);
    let scale = scale_of(call, &object)?;
    respond::scale(call, &scale)
}

/// The Scale of an object.
fn scale_of(call: &Call, object: &Value) -> Result<Value, ApiError> {
    let paths = call.resource.subresources.scale.as_ref().ok_or_else(ApiError::no_such_path)?;
    let mut metadata = json!({});
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(key) {
            metadata[key] = value.clone();
        }
    }
    let mut status = json!({"replicas": at_path(object, &paths.status_replicas).as_i64().unwrap_or(0)});
    if let Some(path) = &paths.label_selector {
        let selector = match at_path(object, path) {
            Value::String(text) => text.clone(),
            Value::Object(map) if map.contains_key("matchLabels") || map.contains_key("matchExpressions") => {
                LabelSelector::from_object(at_path(object, path))
                    .map(|selector| selector.to_string())
                    .unwrap_or_default()
            }
            labels @ Value::Object(_) => LabelSelector::from_labels(labels).to_string(),
            _ => String::new(),
        };
        if !selector.is_empty() {
            status["selector"] = json!(selector);
        }
    }
    let replicas = at_path(object, &paths.spec_replicas).as_i64();
    let spec = match replicas {
        Some(replicas) if replicas != 0 => json!({"replicas": replicas}),
        _ => json!({}),
    };
    Ok(json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}))
}

fn at_path<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').filter(|step| !step.is_empty()).fold(object, |at, step| &at[step])
}

fn set_path(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for step in path.split('.').filter(|step| !step.is_empty()) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[step];
    }
    *at = value;
}

async fn scale_write(call: &mut Call, body: &Bytes) -> Result<ApiResponse, ApiError> {
    let paths = call.resource.subresources.scale.clone().ok_or_else(ApiError::no_such_path)?;
    let put = call.method == Method::PUT;
    let given = if put { Some(decode::parse(call, body)?.0) } else { None };
    let applied = !put && content_type(&call.headers) == patch::APPLY_PATCH;
    let config = if applied { Some(parse_config(body)?.0) } else { None };
    let patch = match content_type(&call.headers) {
        _ if put || applied => None,
        // A Scale has no lists: strategic merge and merge are the same.
        patch::STRATEGIC_MERGE_PATCH => Some(Patch::Merge),
        other => Some(Patch::of(other, &call.resource)?),
    };
    let force = call.query.force.unwrap_or(false);
    let outcome = change(call, Part::Other("scale"), |call, old| {
        let ownership = Ownership::new(call, Part::Other("scale"));
        let ownership = ownership.of_scale();
        let mut live = scale_of(call, old)?;
        ownership.enter(&mut live, old);
        let scale = match (&given, &config, &patch) {
            (Some(given), ..) => tracked(&ownership, &live, given.clone()),
            (_, Some(config), _) => match ownership.apply(&live, config, force) {
                Some(applied) => applied?.object,
                None => return Err(ApiError::no_such_path()),
            },
            (_, _, Some(patch)) => tracked(&ownership, &live, patch.apply(&live, body, call)?.object),
            (None, None, None) => unreachable!("a request is a put or a patch"),
        };
        let version = scale["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
        if replicas < 0 {
            let error =
                crate::status::FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
            return Err(ApiError::invalid("autoscaling", "Scale", call.name(), &[error]));
        }
        let mut object = old.clone();
        set_path(&mut object, &paths.spec_replicas, json!(replicas));
        ownership.leave(&scale, &mut object);
        Ok(Changed { object, precondition: Some(version).filter(|version| !version.is_empty()), track: false })
    })
    .await?;
    let object = match &outcome {
        create::Outcome::Stored(stored) => served(&call.resource, stored),
        create::Outcome::DryRun(object) => (**object).clone(),
    };
    respond::scale(call, &scale_of(call, &object)?)
}

/// A Scale with its author among its managers.
fn tracked(ownership: &ScaleOwnership<'_>, live: &Value, mut scale: Value) -> Value {
    ownership.track_update(live, &mut scale);
    scale
}

fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

/// POST of a Binding: the pod goes to a node, once.
pub(crate) async fn bind(call: &mut Call, body: &Bytes) -> Result<ApiResponse, ApiError> {
    let (binding, _) = decode::parse(call, body)?;
    let errors = builtin::pod::validate_binding(&binding);
    if !errors.is_empty() {
        return Err(ApiError::invalid("", "Binding", call.name(), &errors));
    }
    let node = binding["target"]["name"].as_str().unwrap_or_default().to_owned();
    let name = call.name().to_owned();
    let refuse = |why: String| Err(ApiError::conflict("", "pods/binding", &name, &why));
    change(call, Part::Other("binding"), |call, old| {
        let uid = binding["metadata"]["uid"].as_str().unwrap_or_default();
        if !uid.is_empty() && old["metadata"]["uid"] != uid {
            return refuse(format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                old["metadata"]["uid"].as_str().unwrap_or_default()
            ));
        }
        if old["metadata"]["deletionTimestamp"].is_string() {
            return refuse(format!("pod {} is being deleted, cannot be assigned to a host", call.name()));
        }
        if let Some(assigned) = old["spec"]["nodeName"].as_str().filter(|assigned| !assigned.is_empty()) {
            return refuse(format!("pod {} is already assigned to node {assigned:?}", call.name()));
        }
        if old["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
            return refuse(format!("pod {} has non-empty .spec.schedulingGates", call.name()));
        }
        let mut object = old.clone();
        object["spec"]["nodeName"] = json!(node);
        for part in ["annotations", "labels"] {
            for (key, value) in binding["metadata"][part].as_object().into_iter().flatten() {
                object["metadata"][part][key] = value.clone();
            }
        }
        if let Some(target) = call.server.store.get("nodes", &node) {
            builtin::pod::copy_topology_labels(&mut object, &target.to_value());
        }
        if let Some(status) = object["status"].as_object_mut() {
            status.remove("nominatedNodeName");
        }
        let now = rfc3339(call.server.clock.now());
        set_condition(
            &mut object,
            json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": now, "lastProbeTime": null}),
        );
        Ok(Changed { object, precondition: None, track: false })
    })
    .await?;
    Ok(respond::encoded(call, StatusCode::CREATED, &success()))
}

fn set_condition(object: &mut Value, condition: Value) {
    if !object["status"]["conditions"].is_array() {
        object["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = object["status"]["conditions"].as_array_mut() else { return };
    match conditions.iter_mut().find(|known| known["type"] == condition["type"]) {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

/// POST of an Eviction: a delete that asks the pod's disruption budget first.
async fn evict(call: &mut Call, body: &Bytes) -> Result<ApiResponse, ApiError> {
    let (eviction, _) = decode::parse(call, body)?;
    let options = match eviction.get("deleteOptions") {
        Some(options) if !options.is_null() => Options::of_value(options)?,
        _ => Options::default(),
    };
    let options = Options { dry_run: options.dry_run || call.query.dry_run, ..options };
    let given = eviction["metadata"]["name"].as_str().unwrap_or_default();
    if !given.is_empty() && given != call.name() {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    let pod = served(&call.resource, &*call.fetch()?);
    node_restriction::on_evict(call, &pod)?;
    if needs_budget(&pod) {
        spend_budget(call, &pod, options.dry_run).await?;
        if !options.dry_run {
            mark_disrupted(call).await?;
        }
    }
    let key = call.key();
    delete::delete_object(call, &key, &options).await?.ok_or_else(|| call.not_found())?;
    Ok(respond::encoded(call, StatusCode::CREATED, &success()))
}

/// Pods that have ended, never started, or already go need no budget.
fn needs_budget(pod: &Value) -> bool {
    !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed" | "Pending"))
        && !pod["metadata"]["deletionTimestamp"].is_string()
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

const BUDGETS: &str = "poddisruptionbudgets.policy";

/// Takes one disruption off the budget that covers the pod.
async fn spend_budget(call: &Call, pod: &Value, dry_run: bool) -> Result<(), ApiError> {
    let store = &call.server.store;
    for _ in 0..64 {
        let listing = store.list(BUDGETS, &format!("{}/", call.namespace()), None, 0, |_, _| true);
        let matching: Vec<_> = listing
            .items
            .into_iter()
            .map(|(key, stored)| (key, stored.to_value(), stored))
            .filter(|(_, budget, _)| covers(budget, pod))
            .collect();
        let (key, mut budget, stored) = match <[_; 1]>::try_from(matching) {
            Ok([one]) => one,
            Err(none) if none.is_empty() => return Ok(()),
            Err(_) => {
                return Err(ApiError::internal(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        if !is_ready(pod) && may_evict_unready(&budget) {
            return Ok(());
        }
        check_budget(&budget)?;
        if dry_run {
            return Ok(());
        }
        let allowed = budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0);
        budget["status"]["disruptionsAllowed"] = json!(allowed - 1);
        budget["status"]["disruptedPods"][call.name()] = json!(rfc3339(call.server.clock.now()));
        let write = Write {
            collection: Arc::from(BUDGETS),
            key,
            expect: Expect::Revision(stored.revision),
            draft: EncodedObject::update_of(&stored, &budget).map_err(|error| create::not_storable(&error))?,
            delete: false,
        };
        match store.commit(write).await {
            Ok(_) => return Ok(()),
            Err(CommitError::Raced) => tokio::task::yield_now().await,
            Err(error) => return Err(create::unavailable(&error)),
        }
    }
    Err(ApiError::too_many_requests("Cannot evict pod: its disruption budget keeps changing.", 10))
}

fn covers(budget: &Value, pod: &Value) -> bool {
    let selector = &budget["spec"]["selector"];
    !selector.is_null() && LabelSelector::from_object(selector).is_ok_and(|selector| selector.matches_object(pod))
}

/// An unready pod may go without spending: always, or while the budget's healthy pods suffice.
fn may_evict_unready(budget: &Value) -> bool {
    let status = &budget["status"];
    let healthy = status["currentHealthy"].as_i64().unwrap_or(0) >= status["desiredHealthy"].as_i64().unwrap_or(0);
    match budget["spec"]["unhealthyPodEvictionPolicy"].as_str() {
        Some("AlwaysAllow") => true,
        _ => healthy && status["desiredHealthy"].as_i64().unwrap_or(0) > 0,
    }
}

fn check_budget(budget: &Value) -> Result<(), ApiError> {
    let (status, name) = (&budget["status"], budget["metadata"]["name"].as_str().unwrap_or_default());
    let number = |key: &str| status[key].as_i64().unwrap_or(0);
    let refuse = |message: String, retry_s: u32| {
        let mut error =
            ApiError::too_many_requests("Cannot evict pod as it would violate the pod's disruption budget.", retry_s);
        error.details.get_or_insert_default().causes =
            vec![Cause { reason: "DisruptionBudget", message, field: String::new() }];
        Err(error)
    };
    if number("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        return refuse(format!("The disruption budget {name} is still being processed by the server."), 10);
    }
    if number("disruptionsAllowed") <= 0 {
        return refuse(
            format!(
                "The disruption budget {name} needs {} healthy pods and has {} currently",
                number("desiredHealthy"),
                number("currentHealthy")
            ),
            0,
        );
    }
    Ok(())
}

/// Writes to the pod why it is evicted.
async fn mark_disrupted(call: &mut Call) -> Result<(), ApiError> {
    let result = change(call, Part::Other("eviction"), |call, old| {
        let mut object = old.clone();
        set_condition(
            &mut object,
            json!({
                "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting", "lastTransitionTime": rfc3339(call.server.clock.now()), "lastProbeTime": null,
            }),
        );
        Ok(Changed { object, precondition: None, track: false })
    })
    .await;
    match result {
        Err(error) if error.reason == "NotFound" => Ok(()),
        other => other.map(|_| ()),
    }
}

/// POST to `/namespaces/NS/bindings`: the old form, which names the pod in the body.
pub(crate) async fn create_binding(call: &mut Call, body: &Bytes) -> Result<ApiResponse, ApiError> {
    let (binding, _) = decode::parse(call, body)?;
    let pods = call.server.registry.current().find("", "v1", "pods").cloned().ok_or_else(ApiError::no_such_path)?;
    call.resource = pods;
    call.path.name = binding["metadata"]["name"].as_str().map(str::to_owned);
    debug_assert!(key_of(&call.resource, call.namespace(), call.name()).contains('/'));
    bind(call, body).await
}
