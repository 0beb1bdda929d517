//! Update and patch: read, change, check, write; retried after a conflict.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::call::Call;
use super::create::{self, Outcome, not_storable, unavailable};
use super::decode;
use super::ownership::Ownership;
use super::read::served;
use super::respond::ApiResponse;
use crate::apply;
use crate::builtin;
use crate::http::negotiate::content_type;
use crate::http::query::FieldValidation;
use crate::lifecycle::definitions;
use crate::long_work::{self, LONG_BYTES};
use crate::patch;
use crate::resource::{Behaviour, Resource};
use crate::status::{ApiError, FieldError};
use crate::store::{CommitError, EncodedObject, Expect, StoredObject, Write};
use crate::{admission, convert, kind, meta};

/// How often a change is retried when other writers change the same object. Each round means that another writer made
/// progress.
const RETRIES: usize = 64;

const MODIFIED: &str = "the object has been modified; please apply your changes to the latest version and try again";

/// The part of an object that a request may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything except status, if that is a subresource.
    Main,
    /// Only status.
    Status,
    /// The fields of a subresource with its own handler (its name): nothing else is carried over.
    Other(&'static str),
}

impl Part {
    /// Whether the object is not validated as a whole, as for an update. Every write is, except for those that the
    /// real server has other rules for: these subresources, and metadata that the garbage collector edits.
    fn has_own_validation(self) -> bool {
        const OWN: &[&str] = &["", "approval", "binding", "ephemeralcontainers", "eviction", "finalize", "resize"];
        matches!(self, Self::Other(name) if OWN.contains(&name))
    }

    /// The subresource through which the part is changed; empty for the object itself.
    pub(crate) fn subresource(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Other(name) => name,
        }
    }
}

/// The object as the request changes it.
pub(crate) struct Changed {
    /// The new object in the served version, defaulted.
    pub(crate) object: Value,
    /// The resourceVersion that the client requires.
    pub(crate) precondition: Option<String>,
    /// Owners of fields are still to be computed (apply has done it already).
    pub(crate) track: bool,
}

/// PUT.
pub(crate) async fn put(call: &mut Call, body: &Bytes, part: Part) -> Result<ApiResponse, ApiError> {
    let object = long_work::run(call.is_long(), || {
        let mut object = decode::object(call, body)?;
        check_name(call, &mut object)?;
        kind::default(&call.resource, &mut object);
        Ok::<_, ApiError>(object)
    })?;
    let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    if call.server.store.get(&call.resource.storage, &call.key()).is_none() {
        return create_by_put(call, object, &version, part).await;
    }
    if version.is_empty() && needs_version(&call.resource) {
        let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
        return Err(ApiError::invalid(&call.resource.group, &call.resource.kind, call.name(), &[error]));
    }
    let precondition = Some(version).filter(|version| !version.is_empty());
    let outcome = change(call, part, |_, _| {
        Ok(Changed { object: object.clone(), precondition: precondition.clone(), track: true })
    })
    .await?;
    Ok(outcome.respond(call, StatusCode::OK))
}

fn needs_version(resource: &Resource) -> bool {
    match resource.behaviour {
        Behaviour::Builtin(kind) => !kind.unconditional_update,
        Behaviour::Custom => true,
    }
}

async fn create_by_put(call: &mut Call, object: Value, version: &str, part: Part) -> Result<ApiResponse, ApiError> {
    let creates = matches!(call.resource.behaviour, Behaviour::Builtin(kind) if kind.create_on_update);
    if part != Part::Main || !creates {
        return Err(call.not_found());
    }
    if !version.is_empty() {
        return Err(ApiError::conflict(&call.resource.group, &call.resource.plural, call.name(), MODIFIED));
    }
    let outcome = create::create_object(call, object, true).await?;
    Ok(outcome.respond(call, StatusCode::CREATED))
}

/// The object must be the one that the path names; its namespace may be left out.
fn check_name(call: &Call, object: &mut Value) -> Result<(), ApiError> {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    if call.resource.namespaced && !namespace.is_empty() && namespace != call.namespace() {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::bad_request(message));
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            call.name()
        )));
    }
    if name != call.name() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.name()
        )));
    }
    if call.resource.namespaced {
        object["metadata"]["namespace"] = json!(call.namespace());
    } else if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("namespace");
    }
    Ok(())
}

/// PATCH.
pub(crate) async fn patch(call: &mut Call, body: &Bytes, part: Part) -> Result<ApiResponse, ApiError> {
    let media_type = content_type(&call.headers).to_owned();
    if matches!(media_type.as_str(), "application/apply-patch+yaml" | "application/apply-patch+cbor") {
        return apply_patch(call, body, part).await;
    }
    let patch = Patch::of(&media_type, &call.resource)?;
    let outcome = change(call, part, |call, old| {
        let mut object = decode::patched(call, patch.apply(old, body, call)?)?;
        check_name(call, &mut object)?;
        check_uid(call, &object, old)?;
        kind::default(&call.resource, &mut object);
        let given = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let precondition = Some(given.to_owned()).filter(|given| old["metadata"]["resourceVersion"] != *given);
        Ok(Changed { object, precondition: precondition.filter(|given| !given.is_empty()), track: true })
    })
    .await?;
    Ok(outcome.respond(call, StatusCode::OK))
}

/// A patch cannot change the uid. (In a PUT the uid is a precondition instead.)
fn check_uid(call: &Call, object: &Value, old: &Value) -> Result<(), ApiError> {
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    if uid.is_empty() || old["metadata"]["uid"] == uid {
        return Ok(());
    }
    let error = FieldError::invalid("metadata.uid", uid, "field is immutable");
    // The real server checks metadata twice, and tells it twice.
    Err(ApiError::invalid(&call.resource.group, &call.resource.kind, call.name(), &[error.clone(), error]))
}

/// The patches other than server-side apply.
#[derive(Clone, Copy)]
pub(crate) enum Patch {
    Json,
    Merge,
    Strategic,
}

impl Patch {
    pub(crate) fn of(media_type: &str, resource: &Resource) -> Result<Self, ApiError> {
        match (media_type, &resource.behaviour) {
            (patch::JSON_PATCH, _) => Ok(Self::Json),
            (patch::MERGE_PATCH, _) => Ok(Self::Merge),
            (patch::STRATEGIC_MERGE_PATCH, Behaviour::Builtin(_)) => Ok(Self::Strategic),
            (_, Behaviour::Builtin(_)) => Err(patch::unsupported_media_type()),
            (_, Behaviour::Custom) => Err(patch::unsupported_media_type_of_custom_resource()),
        }
    }

    pub(crate) fn apply(self, target: &Value, body: &[u8], call: &Call) -> Result<patch::Patched, ApiError> {
        let checking = match call.query.field_validation {
            FieldValidation::Ignore => patch::Checking::Ignore,
            FieldValidation::Warn | FieldValidation::Strict => patch::Checking::Strict,
        };
        match self {
            Self::Json => patch::json::apply(target, body, checking),
            Self::Merge => patch::merge::apply(target, body, checking),
            Self::Strategic => patch::strategic::apply(target, body, checking, &call.resource.schema),
        }
    }
}

/// Server-side apply.
async fn apply_patch(call: &mut Call, body: &Bytes, part: Part) -> Result<ApiResponse, ApiError> {
    let (config, duplicates) = parse_config(body)?;
    let force = call.query.force.unwrap_or(false);
    for _ in 0..RETRIES {
        if call.server.store.get(&call.resource.storage, &call.key()).is_some() {
            break;
        }
        if part != Part::Main {
            return Err(call.not_found());
        }
        match create_by_apply(call, &config, &duplicates, force).await {
            Err(error) if error.reason == "AlreadyExists" => {}
            result => return result,
        }
    }
    let outcome = change(call, part, |call, old| {
        let object = applied(call, Some(old), &config, &duplicates, part, force)?;
        let given = config["metadata"]["resourceVersion"].as_str();
        Ok(Changed { object, precondition: given.map(str::to_owned), track: false })
    })
    .await?;
    Ok(outcome.respond(call, StatusCode::OK))
}

/// Parses an applied configuration, and returns duplicate fields with it. An empty body is an empty configuration.
pub(crate) fn parse_config(body: &Bytes) -> Result<(Value, Vec<String>), ApiError> {
    let refuse = |why: &str| ApiError::bad_request(format!("error decoding YAML: {why}"));
    let (config, duplicates) = decode::parse_as("application/yaml", body).map_err(|error| refuse(&error.message))?;
    let found = match config {
        Value::Object(_) => return Ok((config, duplicates)),
        Value::Null => return Ok((json!({}), duplicates)),
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
    };
    Err(refuse(&format!(
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
    )))
}

/// The object that an apply makes of the live one, defaulted.
pub(crate) fn applied(
    call: &mut Call,
    live: Option<&Value>,
    config: &Value,
    duplicates: &[String],
    part: Part,
    force: bool,
) -> Result<Value, ApiError> {
    let mut object = Ownership::new(call, part).apply(live, config, force)?.object;
    if !duplicates.is_empty() {
        let problem = format!("error strict decoding YAML: {}", duplicates.join(", "));
        match call.query.field_validation {
            FieldValidation::Strict => return Err(ApiError::bad_request(problem)),
            FieldValidation::Warn => call.warnings.extend(duplicates.iter().cloned()),
            FieldValidation::Ignore => {}
        }
    }
    create::place(call, &mut object)?;
    if object["metadata"]["name"].as_str().is_none_or(str::is_empty) {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            call.name()
        )));
    }
    check_name(call, &mut object)?;
    // Fields of a custom resource were checked by the apply; nulls that it left are for validation to judge.
    if matches!(call.resource.behaviour, Behaviour::Builtin(_)) {
        decode::conform(call, &mut object, Vec::new(), None)?;
    }
    kind::default(&call.resource, &mut object);
    Ok(object)
}

async fn create_by_apply(
    call: &mut Call,
    config: &Value,
    duplicates: &[String],
    force: bool,
) -> Result<ApiResponse, ApiError> {
    let mut object = applied(call, None, config, duplicates, Part::Main, force)?;
    if let Some(uid) = object["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty()) {
        return Err(ApiError::conflict(
            &call.resource.group,
            &call.resource.plural,
            call.name(),
            &format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found"),
        ));
    }
    // An apply may name the version that it comes from; where there is none, any will do.
    if let Value::Object(metadata) = &mut object["metadata"] {
        metadata.remove("resourceVersion");
    }
    let outcome = create::create_object(call, object, false).await?;
    Ok(outcome.respond(call, StatusCode::CREATED))
}

/// Changes the object that the path names by `make`, retried until there is no conflict.
pub(crate) async fn change(
    call: &mut Call,
    part: Part,
    mut make: impl FnMut(&mut Call, &Value) -> Result<Changed, ApiError>,
) -> Result<Outcome, ApiError> {
    let warnings = call.warnings.len();
    let server = call.server.clone();
    let _turn = server.addresses.turn_of(&call.resource).await;
    for _ in 0..RETRIES {
        call.warnings.truncate(warnings);
        let stored = call.fetch()?;
        let long = call.is_long() || stored.bytes.len() > LONG_BYTES;
        let (old, new) = long_work::run(long, || {
            let old = served(&call.resource, &stored);
            let changed = make(call, &old)?;
            prepare(call, part, changed, &old, &stored).map(|new| (old, new))
        })?;
        match write_change(call, part, new, old, &stored).await? {
            Some(outcome) => return Ok(outcome),
            None => tokio::task::yield_now().await,
        }
    }
    Err(ApiError::conflict(&call.resource.group, &call.resource.plural, call.name(), MODIFIED))
}

/// The validated object after a change.
fn prepare(
    call: &mut Call,
    part: Part,
    changed: Changed,
    old: &Value,
    stored: &StoredObject,
) -> Result<Value, ApiError> {
    let resource = call.resource.clone();
    let mut new = changed.object;
    if changed.precondition.is_some_and(|version| version != stored.revision.to_string()) {
        return Err(ApiError::conflict(&resource.group, &resource.plural, call.name(), MODIFIED));
    }
    keep_system_fields(call, &mut new, old)?;
    if changed.track {
        Ownership::new(call, part).track_update(old, &mut new);
    }
    match part {
        Part::Main | Part::Other("scale") => kind::prepare_update(&resource, &mut new, old),
        Part::Status => kind::prepare_status(&resource, &mut new, old),
        Part::Other("ephemeralcontainers" | "resize") => builtin::pod::count_generation(&mut new, old),
        Part::Other(_) => {}
    }
    admission::on_update(call, &mut new, old, part)?;
    if &*resource.storage == definitions::COLLECTION && part == Part::Main {
        call.warnings.extend(definitions::warnings(&new, Some(old)));
    }
    let mut errors = meta::validate_update(&resource, &new, old);
    if !part.has_own_validation() {
        errors.extend(kind::validate(&resource, &new, Some(old), part == Part::Status));
    }
    if !errors.is_empty() {
        return Err(ApiError::invalid(&resource.group, &resource.kind, call.name(), &errors));
    }
    apply::settle_times(old, &mut new);
    Ok(new)
}

/// Writes one change; `None` when the object moved on meanwhile.
async fn write_change(
    call: &mut Call,
    part: Part,
    mut new: Value,
    old: Value,
    stored: &Arc<StoredObject>,
) -> Result<Option<Outcome>, ApiError> {
    let resource = call.resource.clone();
    admission::check(call, &new, Some(&old), part).await?;
    if new == old {
        let unchanged = Outcome::Stored(stored.clone());
        return Ok(Some(if call.query.dry_run { Outcome::DryRun(Box::new(new)) } else { unchanged }));
    }
    let delete = is_finished(&resource, &new);
    let served = call.query.dry_run.then(|| new.clone());
    let draft = long_work::run(call.body_bytes > LONG_BYTES || stored.bytes.len() > LONG_BYTES, || {
        convert::to_stored(&resource, &mut new);
        EncodedObject::update_of(stored, &new)
    });
    let draft = draft.map_err(|error| not_storable(&error))?;
    if let Some(served) = served {
        return Ok(Some(Outcome::DryRun(Box::new(served))));
    }
    let write = Write {
        collection: resource.storage.clone(),
        key: call.key(),
        expect: Expect::Revision(stored.revision),
        draft,
        delete,
    };
    match call.server.store.commit(write).await {
        Ok(stored) => {
            call.server.after_write(&resource, &stored);
            Ok(Some(Outcome::Stored(stored)))
        }
        Err(CommitError::Raced) => Ok(None),
        Err(error) => Err(unavailable(&error)),
    }
}

/// An object that waits to be deleted goes with its last finalizer, once its time to end has passed.
pub(crate) fn is_finished(resource: &Resource, object: &Value) -> bool {
    let metadata = &object["metadata"];
    let empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    metadata["deletionTimestamp"].is_string()
        && empty(&metadata["finalizers"])
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && (&*resource.storage != "namespaces" || empty(&object["spec"]["finalizers"]))
}

/// Restores the fields that an update cannot change, and compares those that it must not contradict.
fn keep_system_fields(call: &Call, new: &mut Value, old: &Value) -> Result<(), ApiError> {
    let resource = &call.resource;
    let uid = new["metadata"]["uid"].as_str().unwrap_or_default();
    let old_uid = old["metadata"]["uid"].as_str().unwrap_or_default();
    if !uid.is_empty() && uid != old_uid {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {uid}, UID in object meta: {old_uid}",
            resource.plural,
            call.key(),
        );
        return Err(ApiError::conflict(&resource.group, &resource.plural, call.name(), &why));
    }
    let Value::Object(metadata) = &mut new["metadata"] else { return Ok(()) };
    metadata.retain(|_, value| !value.is_null());
    for key in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
        "generateName",
        "selfLink",
    ] {
        match old["metadata"].get(key) {
            Some(value) => metadata.insert(key.to_owned(), value.clone()),
            None => metadata.remove(key),
        };
    }
    Ok(())
}
