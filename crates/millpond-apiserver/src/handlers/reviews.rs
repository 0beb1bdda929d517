//! Kinds that are answered and not stored: access reviews, token reviews, tokens of service accounts.

use base64::Engine;
use bytes::Bytes;
use http::StatusCode;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::call::Call;
use super::decode;
use super::respond::{self, ApiResponse};
use crate::auth::{Attributes, Identity, authorize};
use crate::clock::rfc3339;
use crate::http::negotiate::{self, Form};
use crate::status::{ApiError, FieldError};

/// Lifetime of a service account's token where the request names none.
const TOKEN_LIFETIME_S: i64 = 3600;
/// Shorter lifetimes are refused, as Kubernetes does.
const TOKEN_MIN_LIFETIME_S: i64 = 600;

/// Fills in the status of a review.
pub(crate) fn answer(call: &Call, mut review: Value) -> Result<ApiResponse, ApiError> {
    if call.accepted.form != Form::Plain {
        // Nothing is stored, so there is no metadata to make a row of.
        return Err(negotiate::not_acceptable());
    }
    let status = match &*call.resource.kind {
        "SelfSubjectAccessReview" | "SubjectAccessReview" | "LocalSubjectAccessReview" => access(call, &review)?,
        "SelfSubjectRulesReview" => rules(),
        "SelfSubjectReview" => json!({"userInfo": user_info(&call.identity)}),
        "TokenReview" => token_review(call, &review),
        _ => return Err(ApiError::method_not_allowed()),
    };
    review["status"] = status;
    review["metadata"]["creationTimestamp"] = json!(null);
    Ok(respond::encoded(call, StatusCode::CREATED, &review))
}

fn access(call: &Call, review: &Value) -> Result<Value, ApiError> {
    let spec = &review["spec"];
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    if resource.is_object() == other.is_object() {
        let error = FieldError::invalid(
            "spec.resourceAttributes",
            resource.clone(),
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        );
        return Err(ApiError::invalid(&call.resource.group, "", "", &[error]));
    }
    let text = |key: &str| resource[key].as_str().unwrap_or_default();
    let attributes = Attributes {
        verb: text("verb"),
        group: text("group"),
        resource: text("resource"),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
    };
    let subject = match spec["user"].as_str() {
        Some(user) => Identity { user: user.to_owned(), uid: String::new(), groups: texts(&spec["groups"]) },
        None => call.identity.clone(),
    };
    Ok(match authorize(&subject, &attributes) {
        Ok(()) => json!({"allowed": true}),
        Err(error) => json!({"allowed": false, "reason": error.message}),
    })
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn rules() -> Value {
    json!({
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        "incomplete": false,
    })
}

fn user_info(identity: &Identity) -> Value {
    let mut info = json!({"username": identity.user, "groups": identity.groups});
    if !identity.uid.is_empty() {
        info["uid"] = json!(identity.uid);
    }
    info
}

fn token_review(call: &Call, review: &Value) -> Value {
    let token = review["spec"]["token"].as_str().unwrap_or_default();
    match call.server.tokens.identity(token) {
        Some(identity) => {
            json!({"authenticated": true, "user": user_info(&identity), "audiences": review["spec"]["audiences"]})
        }
        None => json!({"user": {}, "error": "[invalid bearer token, token lookup failed]"}),
    }
}

/// POST to `serviceaccounts/NAME/token`. The token is random; this server knows it until it stops.
pub(crate) fn service_account_token(call: &mut Call, body: &Bytes) -> Result<ApiResponse, ApiError> {
    let account = call.fetch()?.to_value();
    let (mut request, _) = decode::parse(call, body)?;
    let lifetime_s = request["spec"]["expirationSeconds"].as_i64().unwrap_or(TOKEN_LIFETIME_S);
    if lifetime_s < TOKEN_MIN_LIFETIME_S {
        let error = FieldError::invalid(
            "spec.expirationSeconds",
            lifetime_s,
            "may not specify a duration less than 10 minutes",
        );
        return Err(ApiError::invalid("authentication.k8s.io", "TokenRequest", "", &[error]));
    }
    let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
    let user = format!("system:serviceaccount:{}:{}", call.namespace(), call.name());
    let groups = [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{}", call.namespace()),
        "system:authenticated".to_owned(),
    ];
    let uid = account["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    if !call.query.dry_run {
        call.server.tokens.add(token.clone(), Identity { user, uid, groups: groups.to_vec() });
    }
    let now = call.server.clock.now();
    let end = now.checked_add(SignedDuration::from_secs(lifetime_s)).unwrap_or(now);
    request["apiVersion"] = json!("authentication.k8s.io/v1");
    request["kind"] = json!("TokenRequest");
    request["metadata"] =
        json!({"name": call.name(), "namespace": call.namespace(), "creationTimestamp": rfc3339(now)});
    request["spec"]["expirationSeconds"] = json!(lifetime_s);
    request["status"] = json!({"token": token, "expirationTimestamp": rfc3339(end)});
    Ok(respond::encoded(call, StatusCode::CREATED, &request))
}
