//! Errors as Kubernetes tells them: `ApiError` becomes a `metav1.Status`, `FieldError` one of its causes.
//!
//! Messages and reasons follow the real API server word for word where clients read them.

use std::fmt;

use http::StatusCode;
use serde_json::{Value, json};

use crate::go;
use crate::print::go_quoted;

/// A request that was refused: everything a `metav1.Status` of kind `Failure` carries.
#[derive(Debug, Clone)]
pub struct ApiError {
    /// HTTP status, also `status.code`.
    pub code: StatusCode,
    /// Machine-readable reason, e.g. `NotFound`.
    pub reason: &'static str,
    /// The sentence shown to the user.
    pub message: String,
    /// The object of the error; boxed to keep `Result<_, ApiError>` small.
    pub details: Option<Box<Details>>,
    /// `metadata.continue`: where an expired list may go on.
    pub continue_token: Option<Box<str>>,
}

/// `status.details`.
#[derive(Debug, Clone, Default)]
pub struct Details {
    /// Object name.
    pub name: String,
    /// API group of the resource.
    pub group: String,
    /// Resource (or kind, for validation errors).
    pub kind: String,
    /// Uid of the object, where known.
    pub uid: String,
    /// Single causes, e.g. one per invalid field.
    pub causes: Vec<Cause>,
    /// Seconds after which a retry is welcome.
    pub retry_after_s: Option<u32>,
}

/// One entry of `status.details.causes`.
#[derive(Debug, Clone)]
pub struct Cause {
    /// e.g. `FieldValueInvalid`.
    pub reason: &'static str,
    /// Human-readable text without the field path.
    pub message: String,
    /// Field path.
    pub field: String,
}

impl std::error::Error for ApiError {}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// `pods "x"` or `deployments.apps "x"`: how Kubernetes names an object in errors.
pub fn qualified(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

impl ApiError {
    /// An error without details.
    pub fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, continue_token: None }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        let details = self.details.get_or_insert_default();
        details.group = group.to_owned();
        details.kind = kind.to_owned();
        details.name = name.to_owned();
        self
    }

    /// 400 with the given sentence.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 404 for an object.
    pub fn not_found(group: &str, plural: &str, name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", format!("{} {name:?} not found", qualified(group, plural)))
            .about(group, plural, name)
    }

    /// 404 for a path that nothing serves.
    pub fn no_such_path() -> Self {
        let mut error =
            Self::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource");
        error.details = Some(Box::default());
        error
    }

    /// 404 for a path whose group is unknown: plain text, as Go's server responds.
    pub fn page_not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "", "404 page not found")
    }

    /// 409 because the name is taken.
    pub fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", qualified(group, plural));
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(group, plural, name)
    }

    /// 409 because the object moved on, or a precondition does not hold.
    pub fn conflict(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", qualified(group, plural));
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(group, plural, name)
    }

    /// 422 with one cause per field.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for text in errors.iter().map(ToString::to_string) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let joined = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let subject = qualified(group, kind);
        let mut error =
            Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", format!("{subject} {name:?} is invalid: {joined}"))
                .about(group, kind, name);
        error.details.get_or_insert_default().causes = errors.iter().map(FieldError::cause).collect();
        error
    }

    /// 403 with the given reason text.
    pub fn forbidden(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let message = format!("{} {name:?} is forbidden: {why}", qualified(group, plural));
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(group, plural, name)
    }

    /// 403 for what a user may not do: on one object, on a collection, or on a path.
    pub(crate) fn not_allowed(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let message = match (plural, name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{} is forbidden: {why}", qualified(group, plural)),
            _ => return Self::forbidden(group, plural, name, why),
        };
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(group, plural, name)
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// 405 for a verb that a resource does not have.
    pub fn method_not_allowed() -> Self {
        let mut error = Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
        error.details = Some(Box::default());
        error
    }

    /// 410 for a resourceVersion or continue token that is too old.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// 500 with the given sentence.
    pub fn internal(message: impl fmt::Display) -> Self {
        let mut error = Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            format!("Internal error occurred: {message}"),
        );
        error.details.get_or_insert_default().causes =
            vec![Cause { reason: "", message: message.to_string(), field: String::new() }];
        error
    }

    /// 429 with a hint when to come back.
    pub fn too_many_requests(message: impl Into<String>, retry_after_s: u32) -> Self {
        let mut error = Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        error.details.get_or_insert_default().retry_after_s = Some(retry_after_s);
        error
    }

    /// The `metav1.Status` object.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(token) = &self.continue_token {
            status["metadata"]["continue"] = json!(token);
        }
        if let Some(details) = &self.details {
            status["details"] = details.to_value();
        }
        status
    }
}

impl Details {
    fn to_value(&self) -> Value {
        let mut value = json!({});
        for (key, text) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)] {
            if !text.is_empty() {
                value[key] = json!(text);
            }
        }
        if !self.causes.is_empty() {
            value["causes"] = self.causes.iter().map(Cause::to_value).collect();
        }
        if let Some(seconds) = self.retry_after_s {
            value["retryAfterSeconds"] = json!(seconds);
        }
        value
    }
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut value = json!({});
        for (key, text) in [("reason", self.reason), ("message", &self.message), ("field", &self.field)] {
            if !text.is_empty() {
                value[key] = json!(text);
            }
        }
        value
    }
}

/// An error in one field; the texts are those of Kubernetes' `field.Error`.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// Dotted path, e.g. `spec.template.spec.containers[0].name`.
    pub field: String,
    /// Which rule failed, with the offending value where the message shows it.
    pub problem: FieldProblem,
    /// Explanation that follows the colon.
    pub detail: String,
}

/// The closed set of field problems.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldProblem {
    /// A required value is missing.
    Required,
    /// The value is malformed.
    Invalid(Value),
    /// The value is malformed; the text is its form in the real server's message, for types whose fields it orders
    /// itself. Empty if the message shows no value.
    InvalidAs(String),
    /// The value is malformed, and too large or too secret to be shown.
    InvalidUnshown,
    /// The value is of another type.
    TypeInvalid(Value),
    /// The value is not one of the supported ones (listed in `detail` by [`FieldError::not_supported`]).
    NotSupported(Value),
    /// The value must be unique and is not.
    Duplicate(Value),
    /// The value must be unique and is not, and is too large to be shown.
    DuplicateUnshown,
    /// An object that this field names does not exist.
    NotFound(Value),
    /// The value may not be set here.
    Forbidden,
    /// Too many bytes; the limit stands in `detail`.
    TooLong,
    /// Too many items; the limit stands in `detail`.
    TooMany(usize),
    /// An internal failure while checking.
    Internal,
}

impl FieldError {
    /// A missing value.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: field.into(), problem: FieldProblem::Required, detail: detail.into() }
    }

    /// A malformed value.
    pub fn invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self { field: field.into(), problem: FieldProblem::Invalid(value.into()), detail: detail.into() }
    }

    /// A malformed value that is shown as the given text.
    pub fn invalid_as(field: impl Into<String>, shown: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: field.into(), problem: FieldProblem::InvalidAs(shown.into()), detail: detail.into() }
    }

    /// A value of another type.
    pub fn type_invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self { field: field.into(), problem: FieldProblem::TypeInvalid(value.into()), detail: detail.into() }
    }

    /// A value that is not in the list.
    pub fn not_supported(field: impl Into<String>, value: impl Into<Value>, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|text| go::text::quote(text)).collect();
        let detail = if quoted.is_empty() { String::new() } else { format!("supported values: {}", quoted.join(", ")) };
        Self { field: field.into(), problem: FieldProblem::NotSupported(value.into()), detail }
    }

    /// A value that occurs twice.
    pub fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self { field: field.into(), problem: FieldProblem::Duplicate(value.into()), detail: String::new() }
    }

    /// A value that may not be set.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: field.into(), problem: FieldProblem::Forbidden, detail: detail.into() }
    }

    /// A value longer than `max` bytes.
    pub fn too_long(field: impl Into<String>, max: usize) -> Self {
        let bytes = if max == 1 { "byte" } else { "bytes" };
        let detail = format!("may not be more than {max} {bytes}");
        Self { field: field.into(), problem: FieldProblem::TooLong, detail }
    }

    /// A list of `actual` items where `max` are allowed.
    pub fn too_many(field: impl Into<String>, actual: usize, max: usize) -> Self {
        let items = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {items}");
        Self { field: field.into(), problem: FieldProblem::TooMany(actual), detail }
    }

    fn cause(&self) -> Cause {
        Cause { reason: self.problem.reason(), message: self.message(), field: self.field.clone() }
    }

    /// The text without the field path.
    pub fn message(&self) -> String {
        let head = match &self.problem {
            FieldProblem::Required
            | FieldProblem::Forbidden
            | FieldProblem::TooLong
            | FieldProblem::Internal
            | FieldProblem::InvalidUnshown
            | FieldProblem::DuplicateUnshown => self.problem.text().to_owned(),
            FieldProblem::TooMany(actual) => format!("{}: {actual}", self.problem.text()),
            FieldProblem::InvalidAs(shown) if shown.is_empty() => self.problem.text().to_owned(),
            FieldProblem::InvalidAs(shown) => format!("{}: {shown}", self.problem.text()),
            FieldProblem::Invalid(value)
            | FieldProblem::TypeInvalid(value)
            | FieldProblem::NotSupported(value)
            | FieldProblem::Duplicate(value)
            | FieldProblem::NotFound(value) => format!("{}: {}", self.problem.text(), shown(value)),
        };
        if self.detail.is_empty() { head } else { format!("{head}: {}", self.detail) }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message())
    }
}

impl FieldProblem {
    fn text(&self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid(_) | Self::InvalidAs(_) | Self::InvalidUnshown | Self::TypeInvalid(_) => "Invalid value",
            Self::NotSupported(_) => "Unsupported value",
            Self::Duplicate(_) | Self::DuplicateUnshown => "Duplicate value",
            Self::NotFound(_) => "Not found",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany(_) => "Too many",
            Self::Internal => "Internal error",
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid(_) | Self::InvalidAs(_) | Self::InvalidUnshown => "FieldValueInvalid",
            Self::TypeInvalid(_) => "FieldValueTypeInvalid",
            Self::NotSupported(_) => "FieldValueNotSupported",
            Self::Duplicate(_) | Self::DuplicateUnshown => "FieldValueDuplicate",
            Self::NotFound(_) => "FieldValueNotFound",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany(_) => "FieldValueTooMany",
            Self::Internal => "InternalError",
        }
    }
}

/// How Go's `field.Error` shows a value: strings quoted, composites as JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => go_quoted(text),
        Value::Number(number) => go::text::number(number),
        other => go::text::json(other),
    }
}
