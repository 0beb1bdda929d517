//! Delete: at once, after a time to end, or when the last finalizer goes.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::call::{Call, Selection, split_key};
use super::create::unavailable;
use super::decode;
use super::read::served;
use super::respond::{self, ApiResponse};
use super::update::is_finished;
use crate::clock::rfc3339;
use crate::resource::{Behaviour, Resource};
use crate::status::{ApiError, FieldError};
use crate::store::{CommitError, EncodedObject, Expect, Limits, SetAside, StoredObject, Write};
use crate::{admission, convert};

/// Collections whose delete responds with the object instead of a Status.
const RETURNS_OBJECT: &[&str] = &[
    "namespaces",
    "persistentvolumes",
    "persistentvolumeclaims",
    "pods",
    "podtemplates",
    "resourcequotas",
    "services",
    "serviceaccounts",
    "deviceclasses.resource.k8s.io",
    "resourceclaims.resource.k8s.io",
    "resourceclaimtemplates.resource.k8s.io",
    "resourceslices.resource.k8s.io",
    "csidrivers.storage.k8s.io",
    "csinodes.storage.k8s.io",
    "storageclasses.storage.k8s.io",
    "volumeattachments.storage.k8s.io",
    "volumeattributesclasses.storage.k8s.io",
];

const RETRIES: usize = 64;
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// `metav1.DeleteOptions`.
#[derive(Debug, Default, Clone)]
pub(crate) struct Options {
    pub(crate) grace_period_s: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) dry_run: bool,
}

/// What happens to the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// They are kept.
    Orphan,
    /// They are deleted afterwards.
    Background,
    /// They are deleted first.
    Foreground,
}

impl Options {
    /// Reads options from the body, or from the query where there is no body.
    pub(crate) fn of(call: &Call, body: &Bytes) -> Result<Self, ApiError> {
        let mut options = if body.is_empty() { Self::of_query(call)? } else { Self::of_body(call, body)? };
        options.dry_run |= call.query.dry_run;
        if options.grace_period_s.is_some_and(|seconds| seconds < 0) {
            // Negative means: as short as possible.
            options.grace_period_s = Some(1);
        }
        Ok(options)
    }

    fn of_query(call: &Call) -> Result<Self, ApiError> {
        let query = &call.query;
        let propagation = propagation(query.propagation_policy.as_deref(), query.orphan_dependents)?;
        Ok(Self { grace_period_s: query.grace_period_s, propagation, ..Self::default() })
    }

    fn of_body(call: &Call, body: &Bytes) -> Result<Self, ApiError> {
        let (value, _) = decode::parse(call, body)?;
        Self::of_value(&value)
    }

    /// Reads options from their object form.
    pub(crate) fn of_value(value: &Value) -> Result<Self, ApiError> {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let dry_run = value["dryRun"].as_array().is_some_and(|list| !list.is_empty());
        if let Some(unknown) = value["dryRun"].as_array().into_iter().flatten().find(|entry| *entry != "All") {
            let error = FieldError::not_supported("dryRun", unknown.clone(), &["All"]);
            return Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &[error]));
        }
        Ok(Self {
            grace_period_s: value["gracePeriodSeconds"].as_i64(),
            propagation: propagation(value["propagationPolicy"].as_str(), value["orphanDependents"].as_bool())?,
            uid: text(&value["preconditions"]["uid"]),
            resource_version: text(&value["preconditions"]["resourceVersion"]),
            dry_run,
        })
    }
}

fn propagation(policy: Option<&str>, orphan: Option<bool>) -> Result<Option<Propagation>, ApiError> {
    let invalid = |error| Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &[error]));
    match (policy, orphan) {
        (Some(_), Some(_)) => invalid(FieldError::invalid(
            "propagationPolicy",
            policy.unwrap_or_default(),
            "orphanDependents and deletionPropagation cannot be both set",
        )),
        (Some("Orphan"), None) | (None, Some(true)) => Ok(Some(Propagation::Orphan)),
        (Some("Background"), None) | (None, Some(false)) => Ok(Some(Propagation::Background)),
        (Some("Foreground"), None) => Ok(Some(Propagation::Foreground)),
        (None, None) => Ok(None),
        (Some(other), None) => invalid(FieldError::not_supported(
            "propagationPolicy",
            other,
            &["Foreground", "Background", "Orphan", "nil"],
        )),
    }
}

/// The result of a delete.
pub(crate) enum Deleted {
    /// The object is gone; this was its last state.
    Gone(Value),
    /// The object is terminating.
    Going(Value),
}

/// DELETE of one object.
pub(crate) async fn delete(call: &mut Call, body: &Bytes) -> Result<ApiResponse, ApiError> {
    let options = Options::of(call, body)?;
    let name = call.name().to_owned();
    admission::on_delete(call, &name)?;
    let key = call.key();
    let deleted = delete_object(call, &key, &options).await?.ok_or_else(|| call.not_found())?;
    Ok(match deleted {
        Deleted::Going(object) => respond::value(call, StatusCode::OK, &object),
        Deleted::Gone(object) if RETURNS_OBJECT.contains(&&*call.resource.storage) => {
            respond::value(call, StatusCode::OK, &object)
        }
        Deleted::Gone(object) => respond::encoded(call, StatusCode::OK, &success(&call.resource, &object)),
    })
}

/// The Status of a completed delete.
fn success(resource: &Resource, object: &Value) -> Value {
    let mut details =
        json!({"name": object["metadata"]["name"], "kind": resource.plural, "uid": object["metadata"]["uid"]});
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

/// Deletes one object of the call's resource; `None` when there is none.
pub(crate) async fn delete_object(call: &Call, key: &Arc<str>, options: &Options) -> Result<Option<Deleted>, ApiError> {
    let resource = &call.resource;
    for _ in 0..RETRIES {
        let Some(stored) = call.server.store.get(&resource.storage, key) else {
            return delete_unreadable(call, key, options).await;
        };
        let object = served(resource, &stored);
        check_preconditions(call, options, &object)?;
        let (object, gone, changed) = marked(call, object, options);
        if options.dry_run || !changed {
            return Ok(Some(if gone { Deleted::Gone(object) } else { Deleted::Going(object) }));
        }
        match write(call, key, &stored, &object, gone).await {
            Ok(written) => {
                call.server.after_write(resource, &written);
                let object = served(resource, &written);
                return Ok(Some(if gone { Deleted::Gone(object) } else { Deleted::Going(object) }));
            }
            Err(CommitError::Raced) => tokio::task::yield_now().await,
            Err(error) => return Err(unavailable(&error)),
        }
    }
    let (_, name) = split_key(resource, key);
    Err(ApiError::conflict(&resource.group, &resource.plural, name, "the object keeps changing; please try again"))
}

async fn write(
    call: &Call,
    key: &Arc<str>,
    stored: &StoredObject,
    object: &Value,
    gone: bool,
) -> Result<Arc<StoredObject>, CommitError> {
    let mut changed = object.clone();
    convert::to_stored(&call.resource, &mut changed);
    let draft = EncodedObject::encode(&changed, None, Limits::REMOVED).or_else(|_| {
        // Defaults that a CRD got after the object was written can make it too deep. The delete does not need them.
        let mut stored = stored.to_value();
        stored["metadata"] = changed["metadata"].take();
        EncodedObject::encode(&stored, None, Limits::REMOVED)
    })?;
    call.server
        .store
        .commit(Write {
            collection: call.resource.storage.clone(),
            key: key.clone(),
            expect: Expect::Revision(stored.revision),
            draft,
            delete: gone,
        })
        .await
}

/// Deletes an object that cannot be read: at once, as its finalizers are not known; `None` when there is none.
async fn delete_unreadable(call: &Call, key: &Arc<str>, options: &Options) -> Result<Option<Deleted>, ApiError> {
    let resource = &call.resource;
    let Some(unreadable) = call.server.store.set_aside(&resource.storage, key) else { return Ok(None) };
    let object = name_only(resource, key, &unreadable);
    check_preconditions(call, options, &object)?;
    if options.dry_run {
        return Ok(Some(Deleted::Gone(object)));
    }
    let write = Write {
        collection: resource.storage.clone(),
        key: key.clone(),
        expect: Expect::Revision(unreadable.revision),
        draft: EncodedObject::new(&object).map_err(|error| unavailable(&error.into()))?,
        delete: true,
    };
    match call.server.store.commit(write).await {
        Ok(written) => {
            call.server.after_write(resource, &written);
            Ok(Some(Deleted::Gone(written.to_value())))
        }
        Err(CommitError::Raced) => Ok(None),
        Err(error) => Err(unavailable(&error)),
    }
}

/// The parts of an unreadable object that are known from its key.
fn name_only(resource: &Resource, key: &str, unreadable: &SetAside) -> Value {
    let (namespace, name) = split_key(resource, key);
    let mut metadata = json!({"name": name, "resourceVersion": unreadable.revision.to_string()});
    if resource.namespaced {
        metadata["namespace"] = json!(namespace);
    }
    json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": metadata})
}

fn check_preconditions(call: &Call, options: &Options, object: &Value) -> Result<(), ApiError> {
    let metadata = &object["metadata"];
    let conflict = |what: &str, wanted: &str, found: &Value| {
        let resource = &call.resource;
        let name = metadata["name"].as_str().unwrap_or_default();
        let found = found.as_str().unwrap_or_default();
        let tail = match what {
            "UID" => "The object might have been deleted and then recreated",
            _ => "The object might have been modified",
        };
        let why =
            format!("the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). {tail}");
        Err(ApiError::conflict(&resource.group, &resource.kind, name, &why))
    };
    match (&options.uid, &options.resource_version) {
        (Some(uid), _) if metadata["uid"] != *uid => conflict("UID", uid, &metadata["uid"]),
        (_, Some(version)) if metadata["resourceVersion"] != *version => {
            conflict("ResourceVersion", version, &metadata["resourceVersion"])
        }
        _ => Ok(()),
    }
}

/// The object as the delete leaves it, whether it is gone then, and whether that changes anything.
fn marked(call: &Call, mut object: Value, options: &Options) -> (Value, bool, bool) {
    let resource = &call.resource;
    let before = object.clone();
    set_propagation_finalizers(&mut object, options.propagation);
    let grace = grace_period(resource, &object, options);
    let already = object["metadata"]["deletionTimestamp"].is_string();
    let remaining = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    if !already || grace < remaining {
        let now = call.server.clock.now();
        let end = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(now);
        object["metadata"]["deletionTimestamp"] = json!(rfc3339(end));
        if &*resource.storage != "namespaces" {
            object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        }
    }
    if !already {
        mark_terminating(resource, &mut object);
    }
    let gone = is_finished(resource, &object);
    let changed = gone || object != before;
    // An object that is removed at once never had a deletion timestamp: the client sees its last state. Pods show their
    // deadline.
    let shown = if gone && !already && &*resource.storage != "pods" { before } else { object };
    (shown, gone, changed)
}

/// Kinds that show in their status that they end, and generations that count the deletion as a change.
fn mark_terminating(resource: &Resource, object: &mut Value) {
    if &*resource.storage == "namespaces" {
        object["status"]["phase"] = json!("Terminating");
    }
    if let Some(generation) = object["metadata"]["generation"].as_i64().filter(|generation| *generation > 0) {
        object["metadata"]["generation"] = json!(generation + 1);
    }
}

/// Only pods have a grace period: from the request, else from the pod; zero if no container runs.
fn grace_period(resource: &Resource, object: &Value, options: &Options) -> i64 {
    if &*resource.storage != "pods" {
        return 0;
    }
    let runs = object["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty())
        && !matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if !runs {
        return 0;
    }
    options.grace_period_s.or_else(|| object["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30).max(0)
}

fn set_propagation_finalizers(object: &mut Value, propagation: Option<Propagation>) {
    let Some(propagation) = propagation else { return };
    let wanted = match propagation {
        Propagation::Orphan => Some(ORPHAN),
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Background => None,
    };
    let mut finalizers: Vec<Value> = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    finalizers.retain(|finalizer| finalizer != ORPHAN && finalizer != FOREGROUND);
    finalizers.extend(wanted.map(|finalizer| json!(finalizer)));
    if finalizers.is_empty() {
        object["metadata"].as_object_mut().map(|metadata| metadata.remove("finalizers"));
    } else {
        object["metadata"]["finalizers"] = json!(finalizers);
    }
}

/// DELETE of a collection.
pub(crate) async fn delete_collection(call: &mut Call, body: &Bytes) -> Result<ApiResponse, ApiError> {
    let options = Options::of(call, body)?;
    let selection = Selection::of(call)?;
    let listing =
        call.server.store.list(&call.resource.storage, &selection.prefix, None, call.query.limit, |object, key| {
            selection.matches(object, key)
        });
    let mut items = Vec::new();
    for (key, _) in &listing.items {
        admission::on_delete(call, split_key(&call.resource, key).1)?;
        if let Some(Deleted::Gone(mut object) | Deleted::Going(mut object)) = delete_object(call, key, &options).await?
        {
            if let (Value::Object(fields), Behaviour::Builtin(_)) = (&mut object, &call.resource.behaviour) {
                fields.remove("kind");
                fields.remove("apiVersion");
            }
            items.push(object);
        }
    }
    let list = json!({
        "kind": call.resource.list_kind,
        "apiVersion": call.resource.api_version(),
        "metadata": {"resourceVersion": call.server.store.revision().to_string()},
        "items": items,
    });
    Ok(respond::encoded(call, StatusCode::OK, &list))
}
