//! Kinds that are answered and not stored: access reviews, token reviews, tokens of service accounts.

use bytes::Bytes;
use http::StatusCode;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::call::Call;
use super::decode;
use super::respond::{self, ApiResponse};
use super::review_selectors;
use crate::admission::node_restriction;
use crate::auth::{Attributes, Identity, whose};
use crate::authz::Decision;
use crate::authz::rule::Rule;
use crate::builtin::json::{group_of, version_of};
use crate::clock::rfc3339;
use crate::http::negotiate::{self, Form};
use crate::service_account::{self, Bound, ISSUER, Reference};
use crate::status::{ApiError, FieldError};

/// Lifetime of a service account's token where the request names none.
const TOKEN_LIFETIME_S: i64 = 3600;
/// Shorter lifetimes are refused, as Kubernetes does.
const TOKEN_MIN_LIFETIME_S: i64 = 600;
/// Longest lifetime of a token that a client may request, in seconds.
const TOKEN_MAX_LIFETIME_S: i64 = 1 << 32;
/// The group of token requests.
const GROUP: &str = "authentication.k8s.io";

/// Fills in the status of a review.
pub(crate) fn answer(call: &Call, mut review: Value) -> Result<ApiResponse, ApiError> {
    if call.accepted.form != Form::Plain {
        // Nothing is stored, so there is no metadata for a table row.
        return Err(negotiate::not_acceptable());
    }
    let status = match &*call.resource.kind {
        "SelfSubjectAccessReview" | "SubjectAccessReview" | "LocalSubjectAccessReview" => access(call, &review)?,
        "SelfSubjectRulesReview" => rules(call, &review)?,
        "SelfSubjectReview" => json!({"userInfo": user_info(&call.identity)}),
        "TokenReview" => token_review(call, &review)?,
        _ => return Err(ApiError::method_not_allowed()),
    };
    review["status"] = status;
    if !review["metadata"].is_object() {
        review["metadata"] = json!({});
    }
    // The one review that is dated.
    if &*call.resource.kind == "SelfSubjectReview" {
        review["metadata"]["creationTimestamp"] = json!(rfc3339(call.server.clock.now()));
    }
    Ok(respond::encoded(call, StatusCode::CREATED, &review))
}

fn access(call: &Call, review: &Value) -> Result<Value, ApiError> {
    let spec = &review["spec"];
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let errors = access_problems(call, review);
    if !errors.is_empty() {
        return Err(ApiError::invalid(&call.resource.group, "", "", &errors));
    }
    let text = |key: &str| resource[key].as_str().unwrap_or_default();
    let fields = field_selector(&resource["fieldSelector"]);
    let attributes = if other.is_object() {
        let path = other["path"].as_str().unwrap_or_default();
        Attributes { verb: other["verb"].as_str().unwrap_or_default(), path, ..Attributes::default() }
    } else {
        Attributes {
            verb: text("verb"),
            path: "",
            group: text("group"),
            resource: text("resource"),
            subresource: text("subresource"),
            namespace: text("namespace"),
            name: text("name"),
            fields: &fields,
        }
    };
    let subject = if is_about_others(call) { subject(spec) } else { call.identity.clone() };
    let (allowed, reason) = match call.server.authorizer.decide(&subject, &attributes) {
        Decision::Allow(reason) => (true, reason),
        Decision::NoOpinion(reason) => (false, reason),
    };
    let mut status = json!({"allowed": allowed});
    if !reason.is_empty() {
        status["reason"] = json!(reason);
    }
    if let Some(ignored) = review_selectors::ignored(resource) {
        status["evaluationError"] = json!(ignored);
    }
    Ok(status)
}

/// Whether the review names a subject; the others are about their author.
fn is_about_others(call: &Call) -> bool {
    !call.resource.kind.starts_with("Self")
}

fn subject(spec: &Value) -> Identity {
    let mut subject = Identity::new(spec["user"].as_str().unwrap_or_default().to_owned(), texts(&spec["groups"]));
    spec["uid"].as_str().unwrap_or_default().clone_into(&mut subject.uid);
    for (key, values) in spec["extra"].as_object().into_iter().flatten() {
        subject.extra.insert(key.to_lowercase(), texts(values));
    }
    subject
}

/// A field selector of a review as the text form has it; requirements that no text can say are left out.
fn field_selector(selector: &Value) -> String {
    if let Some(text) = selector["rawSelector"].as_str() {
        return text.to_owned();
    }
    let term = |requirement: &Value| {
        let key = requirement["key"].as_str()?;
        let [value] = &texts(&requirement["values"])[..] else { return None };
        match requirement["operator"].as_str()? {
            "In" => Some(format!("{key}={value}")),
            "NotIn" => Some(format!("{key}!={value}")),
            _ => None,
        }
    };
    let requirements = selector["requirements"].as_array().into_iter().flatten();
    requirements.filter_map(term).collect::<Vec<_>>().join(",")
}

fn access_problems(call: &Call, review: &Value) -> Vec<FieldError> {
    let spec = &review["spec"];
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    // Shown with the names of its fields in Go.
    let shown =
        |attributes: &Value| json!({"Path": text_of(&attributes["path"]), "Verb": text_of(&attributes["verb"])});
    let mut errors = Vec::new();
    let mut refuse = |field: &str, value: &Value, detail: &str| {
        errors.push(FieldError::invalid(field, value.clone(), detail));
    };
    if resource.is_object() && other.is_object() {
        let detail = "cannot be specified in combination with resourceAttributes";
        refuse("spec.nonResourceAttributes", &shown(other), detail);
    }
    if !resource.is_object() && !other.is_object() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        refuse("spec.resourceAttributes", &Value::Null, detail);
    }
    if is_about_others(call)
        && spec["user"].as_str().unwrap_or_default().is_empty()
        && texts(&spec["groups"]).is_empty()
    {
        refuse("spec.user", &json!(""), "at least one of user or group must be specified");
    }
    if &*call.resource.kind == "LocalSubjectAccessReview" {
        let namespace = resource["namespace"].as_str().unwrap_or_default();
        if resource.is_object() && namespace != call.namespace() {
            refuse("spec.resourceAttributes.namespace", &json!(namespace), "must match metadata.namespace");
        }
        if other.is_object() {
            refuse("spec.nonResourceAttributes", &shown(other), "disallowed on this kind of request");
        }
    }
    errors.extend(review_selectors::problems(resource));
    errors
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The rights of the review's author in a namespace.
fn rules(call: &Call, review: &Value) -> Result<Value, ApiError> {
    let namespace = review["spec"]["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let (rules, incomplete, problem) = call.server.authorizer.rules_for(&call.identity, namespace);
    let of =
        |wanted: fn(&Rule) -> bool| rules.iter().filter(|rule| wanted(rule)).map(Rule::to_value).collect::<Value>();
    let mut status = json!({
        "resourceRules": of(|rule| !rule.resources.is_empty()),
        "nonResourceRules": of(|rule| !rule.urls.is_empty()),
        "incomplete": incomplete,
    });
    if let Some(problem) = problem {
        status["evaluationError"] = json!(problem);
    }
    Ok(status)
}

fn user_info(identity: &Identity) -> Value {
    let mut info = json!({"username": identity.user, "groups": identity.groups});
    if !identity.uid.is_empty() {
        info["uid"] = json!(identity.uid);
    }
    if !identity.extra.is_empty() {
        info["extra"] = json!(identity.extra);
    }
    info
}

fn token_review(call: &Call, review: &Value) -> Result<Value, ApiError> {
    let token = review["spec"]["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    }
    let mut wanted = texts(&review["spec"]["audiences"]);
    if wanted.is_empty() {
        wanted.push(ISSUER.to_owned());
    }
    Ok(match whose(&call.server, token, &wanted) {
        Ok((identity, audiences)) => {
            json!({"authenticated": true, "user": user_info(&identity), "audiences": audiences})
        }
        Err(why) => json!({"user": {}, "error": why.to_string()}),
    })
}

/// POST to `serviceaccounts/NAME/token`.
pub(crate) fn service_account_token(call: &mut Call, body: &Bytes) -> Result<ApiResponse, ApiError> {
    let (mut request, _) = decode::parse(call, body)?;
    let invalid = |name: &str, error| Err(ApiError::invalid(GROUP, "TokenRequest", name, &[error]));
    for (field, own, what) in [("name", call.name(), "name"), ("namespace", call.namespace(), "namespace")] {
        let given = request["metadata"][field].as_str().unwrap_or_default();
        if !given.is_empty() && given != own {
            let detail = format!("must match the service account {what} if specified");
            return invalid(call.name(), FieldError::invalid(format!("metadata.{field}"), given, detail));
        }
    }
    let account = call.fetch()?;
    node_restriction::on_token(call, &request)?;
    let uid = &*account.index.uid;
    let given = request["metadata"]["uid"].as_str().unwrap_or_default();
    if !given.is_empty() && given != uid {
        let why =
            format!("the UID in the token request ({given}) does not match the UID of the service account ({uid})");
        return Err(ApiError::conflict(GROUP, "TokenRequest", call.name(), &why));
    }
    let lifetime_s = request["spec"]["expirationSeconds"].as_i64().unwrap_or(TOKEN_LIFETIME_S);
    let detail = match lifetime_s {
        ..TOKEN_MIN_LIFETIME_S => Some("may not specify a duration less than 10 minutes"),
        TOKEN_MIN_LIFETIME_S..=TOKEN_MAX_LIFETIME_S => None,
        _ => Some("may not specify a duration larger than 2^32 seconds"),
    };
    if let Some(detail) = detail {
        return invalid("", FieldError::invalid("spec.expirationSeconds", lifetime_s, detail));
    }
    let account = Reference { name: call.name().to_owned(), uid: uid.to_owned() };
    let mut bound = Bound { namespace: call.namespace().to_owned(), serviceaccount: account, ..Bound::default() };
    bind(call, &request["spec"]["boundObjectRef"], &mut bound)?;
    let mut audiences = texts(&request["spec"]["audiences"]);
    if audiences.is_empty() {
        audiences.push(ISSUER.to_owned());
    }
    let now = call.server.clock.now();
    let claims = service_account::claims(bound, audiences, now, lifetime_s);
    let token = call.server.token_signer.sign(&claims).map_err(ApiError::internal)?;
    let end = now.checked_add(SignedDuration::from_secs(lifetime_s)).unwrap_or(now);
    request["apiVersion"] = json!("authentication.k8s.io/v1");
    request["kind"] = json!("TokenRequest");
    request["metadata"]["name"] = json!(call.name());
    request["metadata"]["namespace"] = json!(call.namespace());
    request["metadata"]["uid"] = json!(uid);
    request["metadata"]["creationTimestamp"] = json!(rfc3339(now));
    request["spec"]["audiences"] = json!(claims.aud);
    request["spec"]["expirationSeconds"] = json!(lifetime_s);
    // The field is present even if there is no reference.
    let reference = request["spec"]["boundObjectRef"].take();
    request["spec"]["boundObjectRef"] = reference;
    request["status"] = json!({"token": token, "expirationTimestamp": rfc3339(end)});
    Ok(respond::encoded(call, StatusCode::CREATED, &request))
}

/// Binds a token to the object that the request names, if any.
fn bind(call: &Call, reference: &Value, bound: &mut Bound) -> Result<(), ApiError> {
    if !reference.is_object() {
        return Ok(());
    }
    let text = |key: &str| reference[key].as_str().unwrap_or_default();
    let (api_version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
    let store = &call.server.store;
    let find = |plural: &str, key: &str| store.get(plural, key).ok_or_else(|| ApiError::not_found("", plural, name));
    let in_namespace = format!("{}/{name}", call.namespace());
    let (slot, found) = match kind {
        _ if !group_of(api_version).is_empty() => return Err(cannot_bind(api_version, kind)),
        "Pod" => {
            let pod = find("pods", &in_namespace)?;
            let spec = &pod.to_value()["spec"];
            if spec["serviceAccountName"].as_str().unwrap_or_default() != call.name() {
                return Err(ApiError::bad_request(format!(
                    "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                    call.name()
                )));
            }
            if let Some(node) = spec["nodeName"].as_str().filter(|node| !node.is_empty()) {
                let uid = store.get("nodes", node).map_or_else(String::new, |node| node.index.uid.to_string());
                bound.node = Some(Reference { name: node.to_owned(), uid });
            }
            (&mut bound.pod, pod)
        }
        "Node" => (&mut bound.node, find("nodes", name)?),
        "Secret" => (&mut bound.secret, find("secrets", &in_namespace)?),
        _ => return Err(cannot_bind(api_version, kind)),
    };
    let (given, uid) = (text("uid"), found.index.uid.to_string());
    if !given.is_empty() && given != uid {
        let why = format!(
            "the UID in the bound object reference ({given}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(ApiError::conflict("", kind, name, &why));
    }
    *slot = Some(Reference { name: name.to_owned(), uid });
    Ok(())
}

fn cannot_bind(api_version: &str, kind: &str) -> ApiError {
    let (group, version) = (group_of(api_version), version_of(api_version));
    ApiError::bad_request(format!("cannot bind token to object of type {group}/{version}, Kind={kind}"))
}
