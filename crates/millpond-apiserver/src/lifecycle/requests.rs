//! Certificate signing requests: those of nodes are approved if their author may have them, approved ones are signed,
//! old ones are removed. The rules and the texts are those of kube-controller-manager.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{delete_quietly, internal_call, resource_of};
use crate::auth::{self, Attributes};
use crate::builtin::certificates::{self, KUBELET_CLIENT};
use crate::clock::rfc3339;
use crate::handlers::delete::Options;
use crate::handlers::update::{Changed, Part, change};
use crate::pki::{Authority, SigningRequest, Usages};
use crate::server::Server;
use crate::status::ApiError;

/// The collection of requests.
const COLLECTION: &str = "certificatesigningrequests.certificates.k8s.io";
/// How often old requests are looked for.
const CLEANING: Duration = Duration::from_secs(3600);
/// How long a settled request is kept,
const SETTLED: SignedDuration = SignedDuration::from_hours(1);
/// and one that is neither approved nor denied.
const PENDING: SignedDuration = SignedDuration::from_hours(24);
/// Certificates live this long unless less is asked for.
const LIFETIME: SignedDuration = SignedDuration::from_hours(365 * 24);
/// The least that is given.
const MIN_LIFETIME: SignedDuration = SignedDuration::from_mins(10);

/// Follows the requests until the server shuts down.
pub(super) async fn run(server: Arc<Server>) {
    let mut changed = server.store.subscribe(&COLLECTION.into());
    let mut cleaning = tokio::time::interval(CLEANING);
    let mut seen = 0;
    loop {
        changed.borrow_and_update();
        let listing = server.store.list(COLLECTION, "", None, 0, |request, _| request.revision > seen);
        seen = listing.revision;
        for (name, request) in listing.items {
            settle(&server, &name, &request.to_value()).await;
        }
        tokio::select! {
            _ = changed.changed() => {}
            _ = cleaning.tick() => clean(&server).await,
            () = server.shutdown.cancelled() => return,
        }
    }
}

/// Approves or signs a request, where that is due.
async fn settle(server: &Arc<Server>, name: &str, request: &Value) {
    let result = match next_step(server, request) {
        Some(Step::Approve(message)) => approve(server, name, message).await,
        Some(Step::Sign(certificate)) => {
            update_status(server, name, |status, _| status["certificate"] = json!(BASE64.encode(&certificate))).await
        }
        Some(Step::Fail(why)) => update_status(server, name, |status, now| add_failure(status, &why, now)).await,
        None => return,
    };
    match result {
        Err(problem) if !matches!(problem.reason, "NotFound" | "Conflict") => {
            tracing::warn!(%problem, name, "cannot settle a certificate signing request");
        }
        _ => {}
    }
}

/// The next step for a request.
enum Step {
    Approve(&'static str),
    Sign(String),
    Fail(String),
}

fn next_step(server: &Server, request: &Value) -> Option<Step> {
    if request["status"]["certificate"].as_str().is_some_and(|text| !text.is_empty()) {
        return None;
    }
    let pem = BASE64.decode(request["spec"]["request"].as_str().unwrap_or_default()).ok()?;
    let parsed = SigningRequest::from_pem(&pem).ok()?;
    let has = |kind: &str| condition(request, kind).is_some();
    if has("Denied") || has("Failed") {
        return None;
    }
    if !has("Approved") {
        return approval(server, request, &parsed).map(Step::Approve);
    }
    let authority = server.options.authority.as_deref()?;
    sign(authority, request, &parsed, server.clock.now())
}

/// The message of an approval, if the author of the request may have what they ask for.
fn approval(server: &Server, request: &Value, parsed: &SigningRequest) -> Option<&'static str> {
    let spec = &request["spec"];
    if spec["signerName"] != KUBELET_CLIENT || certificates::check_kubelet_client(parsed, &usages(spec)).is_err() {
        return None;
    }
    let author = certificates::requester(request);
    let may = |subresource: &str| {
        let attributes = Attributes {
            verb: "create",
            group: "certificates.k8s.io",
            resource: "certificatesigningrequests",
            subresource,
            ..Attributes::default()
        };
        auth::authorize(server, &author, &attributes).is_ok()
    };
    if author.user == parsed.common_name && may("selfnodeclient") {
        Some("Auto approving self kubelet client certificate after SubjectAccessReview.")
    } else if may("nodeclient") {
        Some("Auto approving kubelet client certificate after SubjectAccessReview.")
    } else {
        None
    }
}

/// Signs an approved request for one of the signers that are here.
fn sign(authority: &Authority, request: &Value, parsed: &SigningRequest, now: Timestamp) -> Option<Step> {
    let spec = &request["spec"];
    let usages = usages(spec);
    let checked = certificates::check_for_signer(spec["signerName"].as_str().unwrap_or_default(), parsed, &usages)?;
    if let Err(why) = checked {
        return Some(Step::Fail(why));
    }
    let has = |usage: &str| usages.contains(&usage);
    let wanted = Usages {
        digital_signature: has("digital signature"),
        key_encipherment: has("key encipherment"),
        server_auth: has("server auth"),
        client_auth: has("client auth"),
    };
    let lifetime = spec["expirationSeconds"].as_i64().map(SignedDuration::from_secs);
    let lifetime = lifetime.unwrap_or(LIFETIME).clamp(MIN_LIFETIME, LIFETIME);
    match authority.sign(parsed, wanted, lifetime, now) {
        Ok(certificate) => Some(Step::Sign(certificate)),
        Err(problem) => {
            tracing::warn!(problem, "cannot sign a certificate");
            None
        }
    }
}

fn usages(spec: &Value) -> Vec<&str> {
    spec["usages"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn condition<'a>(request: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = request["status"]["conditions"].as_array();
    conditions?.iter().find(|condition| condition["type"] == kind && condition["status"] == "True")
}

async fn approve(server: &Arc<Server>, name: &str, message: &str) -> Result<(), ApiError> {
    let resource = resource_of(server, COLLECTION).ok_or_else(ApiError::no_such_path)?;
    let mut call = internal_call(server, &resource, name);
    let result = change(&mut call, Part::Other("approval"), |call, old| {
        let mut object = old.clone();
        if condition(old, "Approved").or_else(|| condition(old, "Denied")).is_none() {
            push_condition(
                &mut object["status"],
                json!({"type": "Approved", "status": "True", "reason": "AutoApproved", "message": message}),
            );
            certificates::prepare_approval(&mut object, old, call.server.clock.now());
        }
        Ok(Changed { object, precondition: None, track: true })
    });
    result.await.map(|_| ())
}

async fn update_status(
    server: &Arc<Server>,
    name: &str,
    fill: impl Fn(&mut Value, Timestamp) + Send,
) -> Result<(), ApiError> {
    let resource = resource_of(server, COLLECTION).ok_or_else(ApiError::no_such_path)?;
    let mut call = internal_call(server, &resource, name);
    let result = change(&mut call, Part::Status, |call, old| {
        let mut object = old.clone();
        fill(&mut object["status"], call.server.clock.now());
        Ok(Changed { object, precondition: None, track: true })
    });
    result.await.map(|_| ())
}

fn add_failure(status: &mut Value, why: &str, now: Timestamp) {
    let now = rfc3339(now);
    push_condition(
        status,
        json!({
            "type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": why,
            "lastUpdateTime": now, "lastTransitionTime": now,
        }),
    );
}

fn push_condition(status: &mut Value, condition: Value) {
    if !status.is_object() {
        *status = json!({});
    }
    match status["conditions"].as_array_mut() {
        Some(conditions) => conditions.push(condition),
        None => status["conditions"] = json!([condition]),
    }
}

/// Removes requests that have served their time.
async fn clean(server: &Arc<Server>) {
    let now = server.clock.now();
    let requests = server.store.list(COLLECTION, "", None, 0, |request, _| !request.index.deleting);
    for (name, _) in requests.items.iter().filter(|(_, request)| is_old(&request.to_value(), now)) {
        tracing::info!(name = &**name, "removing an old certificate signing request");
        delete_quietly(server, COLLECTION, name, &Options::default()).await;
    }
}

/// Whether a request has served its time.
fn is_old(request: &Value, now: Timestamp) -> bool {
    let older = |time: &Value, than: SignedDuration| {
        let time = time.as_str().and_then(|text| text.parse::<Timestamp>().ok());
        time.is_some_and(|time| now.duration_since(time) > than)
    };
    let settled = |kind: &str, than| {
        let conditions = request["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|c| c["type"] == kind && older(&c["lastUpdateTime"], than))
    };
    let is_pending = request["status"]["conditions"].as_array().is_none_or(Vec::is_empty);
    let certificate = request["status"]["certificate"].as_str().filter(|text| !text.is_empty());
    let has_expired = || {
        let pem = BASE64.decode(certificate.unwrap_or_default()).ok()?;
        let (pem, _) = x509_parser::pem::Pem::read(std::io::Cursor::new(pem)).ok()?;
        auth::end_of_certificate(&pem.contents).map(|end| now > end)
    };
    (is_pending && older(&request["metadata"]["creationTimestamp"], PENDING))
        || settled("Denied", SETTLED)
        || settled("Failed", SETTLED)
        || settled("Approved", if certificate.is_some() { SETTLED } else { PENDING })
        || has_expired().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_requests_are_those_that_kubernetes_removes() {
        let now: Timestamp = "2026-11-18T12:00:00Z".parse().unwrap();
        let request = |created: &str, kind: &str, at: &str| {
            let conditions = if kind.is_empty() { json!([]) } else { json!([{"type": kind, "lastUpdateTime": at}]) };
            json!({"metadata": {"creationTimestamp": created}, "status": {"conditions": conditions}})
        };
        let yesterday = "2026-11-17T11:59:59Z";
        assert!(is_old(&request(yesterday, "", ""), now));
        assert!(!is_old(&request("2026-11-17T12:00:00Z", "", ""), now));
        for kind in ["Denied", "Failed"] {
            assert!(is_old(&request(yesterday, kind, "2026-11-18T10:59:59Z"), now), "{kind}");
            assert!(!is_old(&request(yesterday, kind, "2026-11-18T11:00:00Z"), now), "{kind}");
        }
        let mut approved = request(yesterday, "Approved", "2026-11-18T10:59:59Z");
        assert!(!is_old(&approved, now), "it is not signed yet");
        approved["status"]["certificate"] = json!("LS0=");
        assert!(is_old(&approved, now));
    }
}
