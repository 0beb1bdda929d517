//! Answers: JSON, Kubernetes Status objects, and the headers that all of them have.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY, RETRY_AFTER,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use serde::Serialize;
use serde_json::{Value, json};

/// The body of every answer.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Nothing but the page's own files runs, is shown or is asked.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'";

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Problem {
    pub(crate) code: StatusCode,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) details: Option<Value>,
}

impl Problem {
    fn new(code: StatusCode, reason: &str, message: impl Into<String>) -> Self {
        Self { code, reason: reason.to_owned(), message: message.into(), details: None }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(crate) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", message)
    }

    pub(crate) fn wrong_method() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "this path does not take that method")
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "Conflict", message)
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
    }

    pub(crate) fn too_large() -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", "the body is larger than 1 MiB")
    }

    pub(crate) fn misdirected(host: &str) -> Self {
        Self::new(StatusCode::MISDIRECTED_REQUEST, "BadRequest", format!("`{host}` is not a name of this server"))
    }

    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    pub(crate) fn with_details(self, details: Value) -> Self {
        Self { details: Some(details), ..self }
    }

    pub(crate) fn response(&self) -> Response<Body> {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code.as_u16(),
        });
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        let mut response = json_with(self.code, &status);
        if matches!(self.code, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// What the API server says, in its own words.
impl From<kube::Error> for Problem {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self {
                code: StatusCode::from_u16(status.code).unwrap_or(StatusCode::BAD_GATEWAY),
                reason: status.reason.clone(),
                message: status.message.clone(),
                details: None,
            },
            other => Self::unavailable(format!("the API server does not answer: {other}")),
        }
    }
}

/// A value as the answer.
pub(crate) fn json_of(value: &impl Serialize) -> Response<Body> {
    json_with(StatusCode::OK, value)
}

pub(crate) fn json_with(code: StatusCode, value: &impl Serialize) -> Response<Body> {
    let Ok(bytes) = serde_json::to_vec(value) else {
        return text(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be written\n");
    };
    let mut response = full(code, Bytes::from(bytes));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

pub(crate) fn text(code: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = full(code, Bytes::from_static(text.as_bytes()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

pub(crate) fn full(code: StatusCode, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(bytes).boxed_unsync());
    *response.status_mut() = code;
    response
}

/// Adds what every answer has.
pub(crate) fn protect(response: &mut Response<Body>) {
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
