//! Creates objects.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::call::{Call, key_of};
use super::ownership::Ownership;
use super::respond::{self, ApiResponse};
use super::update::Part;
use super::{decode, reviews};
use crate::clock::rfc3339;
use crate::lifecycle::definitions;
use crate::long_work::{self, LONG_BYTES};
use crate::resource::Verbs;
use crate::status::ApiError;
use crate::store::{CommitError, EncodeError, EncodedObject, Expect, Limits, StoredObject, Write};
use crate::{admission, convert, kind, meta};

/// How often a generated name that is taken is generated anew.
const GENERATE_NAME_TRIES: usize = 8;

/// The result of a write.
pub(crate) enum Outcome {
    /// The object was stored.
    Stored(Arc<StoredObject>),
    /// The object would have been stored (dry run); in its served version.
    DryRun(Box<Value>),
}

impl Outcome {
    /// The response to the client.
    pub(crate) fn respond(&self, call: &Call, status: StatusCode) -> ApiResponse {
        match self {
            Self::Stored(object) => respond::object(call, status, object),
            Self::DryRun(object) => respond::value(call, status, object),
        }
    }
}

/// POST to a collection.
pub(crate) async fn create(call: &mut Call, body: &Bytes) -> Result<ApiResponse, ApiError> {
    let object = long_work::run(call.is_long(), || {
        let mut object = decode::object(call, body)?;
        place(call, &mut object)?;
        if call.resource.verbs != Verbs::CreateOnly {
            kind::default(&call.resource, &mut object);
        }
        Ok::<_, ApiError>(object)
    })?;
    if call.resource.verbs == Verbs::CreateOnly {
        return reviews::answer(call, object);
    }
    let outcome = create_object(call, object, true).await?;
    Ok(outcome.respond(call, StatusCode::CREATED))
}

/// Puts the object into the namespace of the path.
pub(crate) fn place(call: &Call, object: &mut Value) -> Result<(), ApiError> {
    let metadata = &mut object["metadata"];
    let given = metadata["namespace"].as_str().unwrap_or_default();
    if !call.resource.namespaced {
        if !given.is_empty() {
            return Err(ApiError::bad_request("namespace field should not be set for a cluster-scoped resource"));
        }
        return Ok(());
    }
    if call.path.namespace.is_none() {
        return Err(ApiError::bad_request("an empty namespace may not be set during creation"));
    }
    if given.is_empty() {
        metadata["namespace"] = json!(call.namespace());
    } else if given != call.namespace() {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Creates an object that is decoded and defaulted. `track` is off when apply has set the owners already.
pub(crate) async fn create_object(call: &mut Call, mut object: Value, track: bool) -> Result<Outcome, ApiError> {
    let generated = generate_base(&object);
    let server = call.server.clone();
    let _turn = server.addresses.turn_of(&call.resource).await;
    let Some(base) = generated else { return try_create(call, object, track).await };
    for _ in 1..GENERATE_NAME_TRIES {
        object["metadata"]["name"] = json!(meta::generate_name(&base, &mut rand::rng()));
        match try_create(call, object.clone(), track).await {
            Err(error) if error.reason == "AlreadyExists" => {}
            result => return result,
        }
    }
    object["metadata"]["name"] = json!(meta::generate_name(&base, &mut rand::rng()));
    try_create(call, object, track).await
}

fn generate_base(object: &Value) -> Option<String> {
    let metadata = &object["metadata"];
    let named = metadata["name"].as_str().is_some_and(|name| !name.is_empty());
    metadata["generateName"].as_str().filter(|base| !named && !base.is_empty()).map(str::to_owned)
}

async fn try_create(call: &mut Call, mut object: Value, track: bool) -> Result<Outcome, ApiError> {
    let resource = call.resource.clone();
    if object["metadata"]["resourceVersion"].as_str().is_some_and(|version| !version.is_empty()) {
        let mut error = ApiError::internal("");
        error.reason = "";
        error.details = None;
        "resourceVersion should not be set on objects to be created".clone_into(&mut error.message);
        return Err(error);
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let managed_fields = long_work::run(call.is_long(), || prepare(call, &mut object, track))?;
    admission::check(call, &object, None, Part::Main).await?;
    let served = call.query.dry_run.then(|| object.clone());
    let draft = long_work::run(call.body_bytes > LONG_BYTES, || {
        convert::to_stored(&resource, &mut object);
        EncodedObject::encode(&object, managed_fields.as_deref(), Limits::NEW)
    });
    let draft = draft.map_err(|error| not_storable(&error))?;
    if let Some(served) = served {
        return dry_run(call, served, &name);
    }
    let key = key_of(&resource, call.namespace(), &name);
    let write = Write { collection: resource.storage.clone(), key, expect: Expect::Absent, draft, delete: false };
    match call.server.store.commit(write).await {
        Ok(stored) => {
            call.server.after_write(&resource, &stored);
            Ok(Outcome::Stored(stored))
        }
        Err(CommitError::Raced) => Err(ApiError::already_exists(&resource.group, &resource.plural, &name)),
        Err(error) => Err(unavailable(&error)),
    }
}

/// Fills in what the server decides, and validates the new object. Gives the owners of its fields if they are not in it.
fn prepare(call: &mut Call, object: &mut Value, track: bool) -> Result<Option<String>, ApiError> {
    let resource = call.resource.clone();
    let managed_fields = if track { track_owner(call, object) } else { None };
    set_system_fields(call, object);
    admission::before_create(call, object);
    kind::prepare_create(&resource, object);
    admission::on_create(call, object)?;
    if &*resource.storage == definitions::COLLECTION {
        call.warnings.extend(definitions::warnings(object, None));
    }
    let idle = call.server.options.idle_kinds.iter();
    let idle = idle.filter(|idle| idle.group == &*resource.group && idle.kind == &*resource.kind);
    call.warnings.extend(idle.map(|idle| idle.warning.to_owned()));
    let mut errors = meta::validate_create(&resource, object);
    errors.extend(kind::validate(&resource, object, None, false));
    if errors.is_empty() {
        return Ok(managed_fields);
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Err(ApiError::invalid(&resource.group, &resource.kind, name, &errors))
}

/// Records the author of a new object. Where possible, what is recorded goes straight into the stored text and
/// is returned as such: owners take as much room as the object itself.
fn track_owner(call: &Call, object: &mut Value) -> Option<String> {
    let ownership = Ownership::new(call, Part::Main);
    let direct = !call.query.dry_run && object["metadata"].get("managedFields").is_none();
    let managed_fields = if direct { ownership.new_managed_fields(object) } else { None };
    if managed_fields.is_none() {
        ownership.track_create(object);
    }
    managed_fields
}

fn dry_run(call: &Call, object: Value, name: &str) -> Result<Outcome, ApiError> {
    let resource = &call.resource;
    let key = key_of(resource, call.namespace(), name);
    if call.server.store.get(&resource.storage, &key).is_some() {
        return Err(ApiError::already_exists(&resource.group, &resource.plural, name));
    }
    Ok(Outcome::DryRun(Box::new(object)))
}

/// Sets the fields that only the server sets.
fn set_system_fields(call: &Call, object: &mut Value) {
    let metadata = &mut object["metadata"];
    metadata["uid"] = json!(new_uid());
    metadata["creationTimestamp"] = json!(rfc3339(call.server.clock.now()));
    if let Value::Object(fields) = metadata {
        for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"] {
            fields.remove(key);
        }
        fields.retain(|_, value| !value.is_null());
    }
}

/// A random uid. From the thread's generator: asking the system for each costs a call into the kernel.
fn new_uid() -> String {
    uuid::Builder::from_random_bytes(rand::random()).into_uuid().to_string()
}

/// The answer to a write that did not happen: the object's fault, or 500 for a store that cannot write.
pub(crate) fn unavailable(error: &CommitError) -> ApiError {
    match error {
        CommitError::Refused(error) => not_storable(error),
        _ => ApiError::internal(error),
    }
}

/// The answer to an object that is too deep or too large to be stored.
pub(crate) fn not_storable(error: &EncodeError) -> ApiError {
    match error {
        EncodeError::TooDeep { .. } => ApiError::bad_request(format!("exceeded max depth: {error}")),
        EncodeError::TooLarge { .. } => ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            format!("Request entity too large: {error}"),
        ),
    }
}
