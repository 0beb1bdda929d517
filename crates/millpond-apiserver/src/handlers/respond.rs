//! Answers: objects, lists, Status errors, with the headers that clients look for.

use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde_json::Value;

use super::call::Call;
use crate::convert;
use crate::http::ApiBody;
use crate::http::negotiate::{Encoding, Form};
use crate::status::ApiError;
use crate::store::StoredObject;
use crate::table;

/// A response of this server.
pub(crate) type ApiResponse = Response<ApiBody>;

/// A JSON body.
pub(crate) fn json(status: StatusCode, value: &Value) -> ApiResponse {
    let text = serde_json::to_vec(value).expect("a tree of JSON can be written");
    with_type(status, "application/json", ApiBody::whole(text))
}

/// A body of the given type.
pub(crate) fn with_type(status: StatusCode, media_type: &'static str, body: ApiBody) -> ApiResponse {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// An error as a `Status`.
pub(crate) fn error(error: &ApiError) -> ApiResponse {
    if error.code == StatusCode::NOT_FOUND && error.reason.is_empty() {
        let text = format!("{}\n", error.message);
        return with_type(error.code, "text/plain; charset=utf-8", ApiBody::whole(text));
    }
    let mut response = json(error.code, &error.to_status());
    if let Some(seconds) = error.details.as_ref().and_then(|details| details.retry_after_s) {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// A value in the encoding that the client accepts.
pub(crate) fn encoded(call: &Call, status: StatusCode, value: &Value) -> ApiResponse {
    match call.accepted.encoding {
        Encoding::Json if call.query.pretty => {
            let text = serde_json::to_vec_pretty(value).expect("a tree of JSON can be written");
            with_type(status, "application/json", ApiBody::whole(text))
        }
        Encoding::Json => json(status, value),
        Encoding::Yaml => match serde_saphyr::to_string(value) {
            Ok(text) => with_type(status, "application/yaml", ApiBody::whole(text)),
            Err(problem) => error(&ApiError::internal(problem)),
        },
    }
}

/// An object in the form and encoding that the client accepts.
pub(crate) fn object(call: &Call, status: StatusCode, object: &StoredObject) -> ApiResponse {
    let plain = call.accepted.form == Form::Plain && call.accepted.encoding == Encoding::Json && !call.query.pretty;
    if plain && !convert::differs(&call.resource) {
        return with_type(status, "application/json", ApiBody::whole(object.bytes.clone()));
    }
    let mut value = object.to_value();
    convert::to_served(&call.resource, &mut value);
    self::value(call, status, &value)
}

/// An object in its served version, in the form and encoding that the client accepts.
pub(crate) fn value(call: &Call, status: StatusCode, object: &Value) -> ApiResponse {
    match call.accepted.form {
        Form::Plain => encoded(call, status, object),
        Form::PartialMetadata => encoded(call, status, &table::partial_metadata(object)),
        Form::Table => match table_of(call, std::iter::once(object), &object["metadata"]["resourceVersion"]) {
            Ok(table) => encoded(call, status, &table),
            Err(problem) => error(&problem),
        },
    }
}

/// A Scale, in the form and encoding that the client accepts.
pub(crate) fn scale(call: &Call, scale: &Value) -> Result<ApiResponse, ApiError> {
    let formed = match call.accepted.form {
        Form::Plain => return Ok(encoded(call, StatusCode::OK, scale)),
        Form::PartialMetadata => table::partial_metadata(scale),
        Form::Table => {
            let include = table::IncludeObject::parse(call.query.include_object.as_deref())?;
            let list_meta = serde_json::json!({"resourceVersion": scale["metadata"]["resourceVersion"]});
            let printer = table::Printer::builtin(table::scale_columns());
            printer.table(std::iter::once(scale), include, call.server.clock.now(), &list_meta, false)
        }
    };
    Ok(encoded(call, StatusCode::OK, &formed))
}

/// A Table of objects.
pub(crate) fn table_of<'a>(
    call: &Call,
    objects: impl Iterator<Item = &'a Value>,
    revision: &Value,
) -> Result<Value, ApiError> {
    let include = table::IncludeObject::parse(call.query.include_object.as_deref())?;
    let list_meta = serde_json::json!({"resourceVersion": revision});
    Ok(table::render(&call.resource, objects, include, call.server.clock.now(), &list_meta, false))
}
