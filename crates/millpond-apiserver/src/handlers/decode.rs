//! Decodes a body to an object of the kind that the path names.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::call::Call;
use crate::http::negotiate::content_type;
use crate::http::query::FieldValidation;
use crate::patch::Patched;
use crate::protobuf;
use crate::resource::{Behaviour, Resource};
use crate::schema::strict;
use crate::schema::{SchemaRef, custom};
use crate::status::ApiError;

/// Parses a body in any of the accepted forms; duplicate fields are returned beside the tree.
pub(crate) fn parse(call: &Call, body: &Bytes) -> Result<(Value, Vec<String>), ApiError> {
    let media_type = content_type(&call.headers);
    if media_type == protobuf::MEDIA_TYPE {
        return Ok((parse_protobuf(&call.resource, body)?, Vec::new()));
    }
    parse_as(media_type, body)
}

/// The same for a body of the given media type.
pub(crate) fn parse_as(media_type: &str, body: &Bytes) -> Result<(Value, Vec<String>), ApiError> {
    match media_type {
        "application/json" => strict::parse_json(body).map_err(|problem| ApiError::bad_request(problem.to_string())),
        "application/yaml" => strict::parse_yaml(body).map_err(|problem| ApiError::bad_request(problem.to_string())),
        other => Err(unsupported(other, "application/json, application/yaml, application/vnd.kubernetes.protobuf")),
    }
}

/// A body that does not say its kind is of the resource's.
fn parse_protobuf(resource: &Resource, body: &Bytes) -> Result<Value, ApiError> {
    let default = protobuf::Kind {
        group: resource.group.to_string(),
        version: resource.version.to_string(),
        kind: resource.kind.to_string(),
    };
    protobuf::decode(body, &default).map_err(|error| error.to_api_error(&resource.kind, body))
}

/// The error 415.
pub(crate) fn unsupported(_media_type: &str, accepted: &str) -> ApiError {
    ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "UnsupportedMediaType",
        format!("the body of the request was in an unknown format - accepted media types include: {accepted}"),
    )
}

/// Parses and checks a body that is an object of the call's kind.
pub(crate) fn object(call: &mut Call, body: &Bytes) -> Result<Value, ApiError> {
    let resource = call.resource.clone();
    let media_type = content_type(&call.headers);
    if media_type == protobuf::MEDIA_TYPE && matches!(resource.behaviour, Behaviour::Custom) {
        return Err(unsupported(media_type, "application/json, application/yaml"));
    }
    let (mut object, duplicates) = parse(call, body).map_err(|problem| match problem.code {
        StatusCode::BAD_REQUEST if media_type != protobuf::MEDIA_TYPE => {
            unrecognized(&resource, &format!("couldn't get version/kind; json parse error: {}", problem.message), body)
        }
        _ => problem,
    })?;
    if !object.is_object() {
        let found = strict::go_json_type(&object);
        let target =
            r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
        let problem = format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type {target}"
        );
        return Err(unrecognized(&resource, &problem, body));
    }
    check_kind(&resource, &mut object)?;
    let text = (media_type == "application/json").then_some(&body[..]);
    conform(call, &mut object, duplicates, text)?;
    Ok(object)
}

/// 400 for a body of unknown kind, with the start of the body.
fn unrecognized(resource: &Resource, problem: &str, body: &[u8]) -> ApiError {
    const SHOWN: usize = 30;
    let start = &body[..body.len().min(SHOWN)];
    let more = if body.len() > SHOWN { " ..." } else { "" };
    let summary = match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(start)),
        Some(_) => {
            let hex: String = start.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{more}")
        }
    };
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {problem} ({summary})",
        resource.kind
    ))
}

/// The name of the Go package that holds the internal form of a group's kinds.
fn go_package(group: &str) -> &str {
    if group.is_empty() { "core" } else { group.split('.').next().unwrap_or(group) }
}

/// Makes sure that `apiVersion` and `kind` are those of the path, filling them in for built-ins.
pub(crate) fn check_kind(resource: &Resource, object: &mut Value) -> Result<(), ApiError> {
    let Value::Object(fields) = object else {
        return Err(ApiError::bad_request(format!("a {} must be an object", resource.kind)));
    };
    let expected_version = resource.api_version();
    for (key, expected) in [("apiVersion", expected_version.as_str()), ("kind", &*resource.kind)] {
        if fields.get(key).is_none_or(|value| value.is_null() || value == "") {
            fields.insert(key.to_owned(), json!(expected));
        }
    }
    let (version, kind) =
        (fields["apiVersion"].as_str().unwrap_or_default(), fields["kind"].as_str().unwrap_or_default());
    if version != expected_version {
        return Err(ApiError::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {}: no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:110\"",
            version.rsplit('/').next().unwrap_or(version),
            resource.kind,
        )));
    }
    if kind != &*resource.kind {
        return Err(ApiError::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {expected}: converting ({}.{kind}) to ({}.{expected}): unknown conversion",
            resource.version,
            resource.version,
            go_package(&resource.group),
            expected = resource.kind,
        )));
    }
    if !fields.get("metadata").is_some_and(Value::is_object) {
        fields.insert("metadata".to_owned(), json!({}));
    }
    Ok(())
}

/// Checks types, drops unknown fields, and reports them as the client requested. For built-in types they are reported
/// in the order of the JSON text, if the object was read from one.
pub(crate) fn conform(
    call: &mut Call,
    object: &mut Value,
    duplicates: Vec<String>,
    text: Option<&[u8]>,
) -> Result<(), ApiError> {
    let resource = call.resource.clone();
    let builtin = matches!(resource.behaviour, Behaviour::Builtin(_));
    if builtin && duplicates.is_empty() && strict::fits(object, &resource.schema) {
        return Ok(());
    }
    let kind = &resource.kind;
    strict::check_types(object, &resource.schema).map_err(|problem| {
        ApiError::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {kind}: {problem}",
            resource.version
        ))
    })?;
    let mut problems = duplicates;
    problems.extend(drop_unknown(&resource.schema, object, &resource.behaviour));
    if problems.is_empty() {
        return Ok(());
    }
    if let (true, Some(text)) = (builtin, text) {
        problems = strict::in_document_order(text, &resource.schema);
    }
    match call.query.field_validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => call.warnings.extend(problems),
        FieldValidation::Strict => {
            let list = problems.join(", ");
            return Err(ApiError::bad_request(format!(
                "{kind} in version {:?} cannot be handled as a {kind}: strict decoding error: {list}",
                resource.version
            )));
        }
    }
    Ok(())
}

/// The same for an object that a patch was applied to; refusals show what came out of it.
pub(crate) fn patched(call: &mut Call, mut patched: Patched) -> Result<Value, ApiError> {
    let resource = call.resource.clone();
    patched.check_kind(&resource, call.name())?;
    if let Some(problem) = patched.type_problem(&resource.schema) {
        return Err(patched.rejection(problem));
    }
    strict::check_types(&patched.object, &resource.schema).map_err(|problem| patched.rejection(problem))?;
    let mut problems = std::mem::take(&mut patched.problems);
    problems.extend(strict::unknown_fields(&patched.object, &resource.schema));
    if !problems.is_empty() {
        match call.query.field_validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => call.warnings.extend(problems),
            FieldValidation::Strict => return Err(patched.strict_rejection(&problems)),
        }
    }
    drop_unknown(&resource.schema, &mut patched.object, &resource.behaviour);
    Ok(patched.object)
}

fn drop_unknown(schema: &SchemaRef, object: &mut Value, behaviour: &Behaviour) -> Vec<String> {
    let unknown = strict::unknown_fields(object, schema);
    if !unknown.is_empty() || matches!(behaviour, Behaviour::Custom) {
        custom::prune(object, schema);
    }
    unknown
}
