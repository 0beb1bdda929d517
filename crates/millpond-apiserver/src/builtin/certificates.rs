//! CertificateSigningRequest, and what each of Kubernetes' signers accepts.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use x509_parser::pem::Pem;

use super::check::{Errors, ReportError};
use super::hooks::{self, PLAIN};
use super::json::{Fields, Fill};
use super::path::Path;
use super::shape;
use crate::auth::Identity;
use crate::names;
use crate::pki::SigningRequest;
use crate::resource::BuiltinKind;
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
const STATUS: Path<'static> = Path::root("status");
const DECISIONS: [&str; 2] = ["Approved", "Denied"];
const SETTLED: [&str; 3] = ["Approved", "Denied", "Failed"];

/// CertificateSigningRequest. The caller fills in the requesting user ([`set_requester`]).
pub(super) const SIGNING_REQUEST: BuiltinKind = BuiltinKind {
    prepare_create: |request| {
        shape::preparing(request, |request| {
            request.drop("status");
        });
    },
    prepare_update: |new, old| {
        for part in ["spec", "status"] {
            new.put(part, old.at(part).clone());
        }
    },
    prepare_status: |new, old| {
        hooks::keep_all_but_status(new, old);
        keep_decisions(new, old);
    },
    validate: |new, old| match old {
        None => request(new),
        Some(old) => {
            let mut errors = request(new);
            kept_conditions(new, old, &SETTLED, &mut errors);
            errors
        }
    },
    validate_status: |new, old| {
        let mut errors = request(new);
        new_certificate(new, old, &mut errors);
        kept_conditions(new, old, &SETTLED, &mut errors);
        unchanged_decisions(new, old, &mut errors);
        if !certificate(old).is_empty() && certificate(new) != certificate(old) {
            let detail = "updates may not modify existing certificate content";
            errors.forbidden(STATUS.child("certificate"), detail);
        }
        errors
    },
    ..PLAIN
};

/// Sets the requesting user, whatever the client sent.
pub fn set_requester(request: &mut Value, requester: &Identity) {
    let spec = request.object("spec");
    for field in ["uid", "extra"] {
        spec.drop(field);
    }
    spec.put("username", json!(requester.user));
    spec.put("groups", json!(requester.groups));
    if !requester.uid.is_empty() {
        spec.put("uid", json!(requester.uid));
    }
    if !requester.extra.is_empty() {
        spec.put("extra", json!(requester.extra));
    }
}

/// Who asked, as it was recorded.
pub(crate) fn requester(request: &Value) -> Identity {
    let spec = request.at("spec");
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    Identity {
        user: spec.text("username").to_owned(),
        uid: spec.text("uid").to_owned(),
        groups: texts(spec.at("groups")),
        extra: spec.entries("extra").map(|(key, values)| (key.to_owned(), texts(values))).collect(),
    }
}

/// The signer of client certificates for the API.
pub(crate) const API_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// The signer of client certificates of kubelets.
pub(crate) const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// The signer of the certificates that kubelets serve with.
pub(crate) const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";

/// Whether a signer accepts a request; `None` for signers that are not here.
pub(crate) fn check_for_signer(signer: &str, request: &SigningRequest, usages: &[&str]) -> Option<Result<(), String>> {
    match signer {
        API_CLIENT => Some(check_client_usages(usages)),
        KUBELET_CLIENT => Some(check_kubelet_client(request, usages)),
        KUBELET_SERVING => Some(check_kubelet_serving(request, usages)),
        _ => None,
    }
}

fn check_client_usages(usages: &[&str]) -> Result<(), String> {
    let known = ["digital signature", "key encipherment", "client auth"];
    if let Some(wrong) = usages.iter().find(|usage| !known.contains(usage)) {
        return Err(format!("invalid usage for client certificate: {wrong}"));
    }
    if usages.contains(&"client auth") {
        return Ok(());
    }
    Err("missing required usage for client certificate: client auth".to_owned())
}

/// Whether a request is one for the client certificate of a kubelet.
pub(crate) fn check_kubelet_client(request: &SigningRequest, usages: &[&str]) -> Result<(), String> {
    if request.organizations != ["system:nodes"] {
        return Err("subject organization is not system:nodes".to_owned());
    }
    for (is_empty, names) in [
        (request.dns_names.is_empty(), "DNS"),
        (request.emails.is_empty(), "Email"),
        (request.addresses.is_empty(), "IP"),
        (request.uris.is_empty(), "URI"),
    ] {
        if !is_empty {
            return Err(format!("{names} subjectAltNames are not allowed"));
        }
    }
    check_node_name(request)?;
    check_usages(usages, "client auth")
}

fn check_kubelet_serving(request: &SigningRequest, usages: &[&str]) -> Result<(), String> {
    if request.organizations != ["system:nodes"] {
        return Err("subject organization is not system:nodes".to_owned());
    }
    if request.dns_names.is_empty() && request.addresses.is_empty() {
        return Err("DNS or IP subjectAltName is required".to_owned());
    }
    for (is_empty, names) in [(request.emails.is_empty(), "Email"), (request.uris.is_empty(), "URI")] {
        if !is_empty {
            return Err(format!("{names} subjectAltNames are not allowed"));
        }
    }
    check_usages(usages, "server auth")?;
    check_node_name(request)
}

fn check_node_name(request: &SigningRequest) -> Result<(), String> {
    let named = request.common_name.starts_with("system:node:");
    named.then_some(()).ok_or_else(|| "subject common name does not begin with system:node:".to_owned())
}

/// A kubelet signs and does what the certificate is for; with an RSA key it also enciphers keys.
fn check_usages(usages: &[&str], purpose: &str) -> Result<(), String> {
    let mut sorted = usages.to_vec();
    sorted.sort_unstable();
    let mut wanted = vec!["digital signature", "key encipherment", purpose];
    wanted.sort_unstable();
    let without: Vec<&str> = wanted.iter().copied().filter(|usage| *usage != "key encipherment").collect();
    if sorted == wanted || sorted == without {
        return Ok(());
    }
    Err(format!("usages did not match [{}]", wanted.join(" ")))
}

/// Before a change through `/approval`: only conditions change; those without times get `now`.
pub fn prepare_approval(new: &mut Value, old: &Value, now: jiff::Timestamp) {
    let mut conditions = new.at("status").at("conditions").clone();
    stamp(&mut conditions, old, now);
    for part in ["spec", "status"] {
        new.put(part, old.at(part).clone());
    }
    new.object("status").put("conditions", conditions);
}

/// A change through `/approval`.
pub fn validate_approval(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = request(new);
    new_certificate(new, old, &mut errors);
    kept_conditions(new, old, &SETTLED, &mut errors);
    if certificate(new) != certificate(old) {
        errors.forbidden(STATUS.child("certificate"), "updates may not set certificate content");
    }
    errors
}

/// The issued certificates, as text.
fn certificate(request: &Value) -> &str {
    request.at("status").text("certificate")
}

/// What a signer sets must be certificates, unless what was there before is none either.
fn new_certificate(new: &Value, old: &Value, errors: &mut Errors) {
    if certificate(new) == certificate(old) || certificate_problem(certificate(old)).is_some() {
        return;
    }
    if let Some(problem) = certificate_problem(certificate(new)) {
        errors.invalid(STATUS.child("certificate"), "<certificate data>", problem);
    }
}

fn certificate_problem(encoded: &str) -> Option<String> {
    let pem = BASE64.decode(encoded).unwrap_or_default();
    if pem.is_empty() {
        return None;
    }
    let mut blocks = 0;
    for block in Pem::iter_from_buffer(&pem).filter_map(Result::ok) {
        if block.label != "CERTIFICATE" {
            return Some(format!("only CERTIFICATE PEM blocks are allowed, found {:?}", block.label));
        }
        if block.parse_x509().is_err() {
            return Some("x509: malformed certificate".to_owned());
        }
        blocks += 1;
    }
    (blocks == 0).then(|| "must contain at least one CERTIFICATE PEM block".to_owned())
}

fn stamp(conditions: &mut Value, old: &Value, now: jiff::Timestamp) {
    let now = json!(now.strftime("%FT%TZ").to_string());
    for condition in conditions.as_array_mut().into_iter().flatten() {
        condition.default_to("lastUpdateTime", now.clone());
        let before = old
            .at("status")
            .items("conditions")
            .iter()
            .find(|before| ["type", "status"].iter().all(|field| before.at(field) == condition.at(field)));
        let since = before.map(|before| before.at("lastTransitionTime").clone()).filter(Value::is_string);
        condition.default_to("lastTransitionTime", since.unwrap_or_else(|| now.clone()));
    }
}

fn of_type<'a>(request: &'a Value, kind: &str) -> Vec<&'a Value> {
    request.at("status").items("conditions").iter().filter(|condition| condition.text("type") == kind).collect()
}

/// Clients that do not know all fields of a decision do not change it.
fn keep_decisions(new: &mut Value, old: &Value) {
    for kind in DECISIONS {
        let before: Vec<Value> = of_type(old, kind).into_iter().cloned().collect();
        if before.len() != of_type(new, kind).len() {
            continue;
        }
        let conditions = new.object("status").items_mut("conditions");
        for (condition, before) in conditions.iter_mut().filter(|c| c.text("type") == kind).zip(before) {
            *condition = before;
        }
    }
}

fn kept_conditions(new: &Value, old: &Value, kinds: &[&str], errors: &mut Errors) {
    for kind in kinds.iter().filter(|kind| of_type(new, kind).len() < of_type(old, kind).len()) {
        let detail = format!("updates may not remove a condition of type {kind:?}");
        errors.forbidden(STATUS.child("conditions"), detail);
    }
}

fn unchanged_decisions(new: &Value, old: &Value, errors: &mut Errors) {
    for kind in DECISIONS {
        let (now, before) = (of_type(new, kind), of_type(old, kind));
        if now.len() > before.len() {
            let detail = format!("updates may not add a condition of type {kind:?}");
            errors.forbidden(STATUS.child("conditions"), detail);
        } else if now.len() == before.len() && now != before {
            let detail = format!("updates may not modify a condition of type {kind:?}\n");
            errors.forbidden(STATUS.child("conditions"), detail);
        }
    }
}

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

fn request(object: &Value) -> Errors {
    let mut errors = Errors::new();
    let spec = object.at("spec");
    if let Some(problem) = request_problem(spec.text("request")) {
        errors.invalid(SPEC.child("request"), spec.text("request"), problem);
    }
    let usages: Vec<&str> = spec.items("usages").iter().filter_map(Value::as_str).collect();
    let list = SPEC.child("usages");
    if usages.is_empty() {
        errors.required(list, "");
    }
    for (index, usage) in usages.iter().enumerate() {
        errors.one_of(list.index(index), usage, &USAGES);
    }
    let mut seen = HashSet::new();
    for (index, usage) in usages.iter().enumerate().filter(|(_, usage)| !seen.insert(**usage)) {
        errors.duplicate(list.index(index), *usage);
    }
    let signer = spec.text("signerName");
    if signer == "kubernetes.io/legacy-unknown" {
        let detail = "the legacy signerName is not allowed via this API version";
        errors.invalid(SPEC.child("signerName"), signer, detail);
    } else {
        signer_name(signer, SPEC.child("signerName"), &mut errors);
    }
    if let Some(seconds) = spec.number("expirationSeconds").filter(|seconds| *seconds < 600) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(SPEC.child("expirationSeconds"), seconds, detail);
    }
    conditions(object, &mut errors);
    errors
}

fn request_problem(encoded: &str) -> Option<String> {
    SigningRequest::from_pem(&BASE64.decode(encoded).unwrap_or_default()).err()
}

fn signer_name(name: &str, path: Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    let Some((domain, rest)) = name.split_once('/').filter(|(_, rest)| !rest.contains('/')) else {
        errors.invalid(path, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'");
        return;
    };
    for problem in names::subdomain_problems(domain) {
        errors.invalid(path, name, format!("validating label {domain:?}: {problem}"));
    }
    if !domain.contains('.') {
        errors.invalid(path, name, "should be a domain with at least two segments separated by dots");
    }
    if rest.is_empty() || names::subdomain_problems(&rest.to_lowercase()).iter().any(|p| !p.is_empty()) {
        for problem in names::subdomain_problems(rest) {
            errors.invalid(path, name, problem);
        }
    }
}

fn conditions(object: &Value, errors: &mut Errors) {
    let path = STATUS.child("conditions");
    let mut seen = HashSet::new();
    for (index, condition) in object.at("status").items("conditions").iter().enumerate() {
        let place = path.index(index);
        let kind = condition.text("type");
        if kind.is_empty() {
            errors.required(place.child("type"), "");
        }
        let statuses: &[&str] = if SETTLED.contains(&kind) { &["True"] } else { &["False", "True", "Unknown"] };
        errors.required_one_of(place.child("status"), condition.text("status"), statuses);
        let other = DECISIONS.iter().find(|decision| **decision != kind);
        if DECISIONS.contains(&kind) && other.is_some_and(|other| seen.contains(*other)) {
            errors.invalid(path, kind, "Approved and Denied conditions are mutually exclusive");
        }
        if !seen.insert(kind) {
            errors.duplicate(place.child("type"), kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> jiff::Timestamp {
        "2026-01-02T03:04:05Z".parse().unwrap()
    }

    #[test]
    fn an_approval_changes_conditions_only_and_is_stamped() {
        let old = json!({"spec": {"signerName": "a.b/c"}, "status": {"certificate": "eHg="}});
        let mut new = json!({
            "spec": {"signerName": "other"},
            "status": {"conditions": [{"type": "Approved", "status": "True"}]},
        });
        prepare_approval(&mut new, &old, now());
        let time = "2026-01-02T03:04:05Z";
        assert_eq!(
            new,
            json!({
                "spec": {"signerName": "a.b/c"},
                "status": {"certificate": "eHg=", "conditions": [
                    {"type": "Approved", "status": "True", "lastUpdateTime": time, "lastTransitionTime": time},
                ]},
            })
        );
    }

    #[test]
    fn a_decision_cannot_be_taken_back_or_contradicted() {
        let with = |kinds: &[&str]| {
            let conditions: Vec<Value> = kinds.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
            json!({"spec": {"usages": ["any"], "signerName": "a.b/c", "request": "eHg="}, "status": {"conditions": conditions}})
        };
        let told =
            |errors: Vec<FieldError>| -> Vec<String> { errors.iter().skip(1).map(ToString::to_string).collect() };
        assert_eq!(
            told(validate_approval(&with(&[]), &with(&["Approved"]))),
            ["status.conditions: Forbidden: updates may not remove a condition of type \"Approved\""]
        );
        assert_eq!(
            told(validate_approval(&with(&["Approved", "Denied"]), &with(&["Approved"]))),
            ["status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive"]
        );
        assert_eq!(
            told((SIGNING_REQUEST.validate_status)(&with(&["Approved"]), &with(&[]))),
            ["status.conditions: Forbidden: updates may not add a condition of type \"Approved\""]
        );
    }

    /// What kube-apiserver 1.36 says.
    #[test]
    fn a_signer_sets_certificates_and_nothing_else() {
        let with = |certificate: &str| json!({"spec": {"usages": ["any"], "signerName": "a.b/c"}, "status": {"certificate": BASE64.encode(certificate)}});
        let said = |new: &str, old: &str| -> Vec<String> {
            let errors = (SIGNING_REQUEST.validate_status)(&with(new), &with(old));
            errors.iter().skip(1).map(ToString::to_string).collect()
        };
        let refused = |why: &str| format!("status.certificate: Invalid value: \"<certificate data>\": {why}");
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::default().self_signed(&key).unwrap().pem();
        assert_eq!(said(&certificate, ""), [""; 0]);
        assert_eq!(said("no certificate", ""), [refused("must contain at least one CERTIFICATE PEM block")]);
        let block = "only CERTIFICATE PEM blocks are allowed, found \"PRIVATE KEY\"";
        assert_eq!(said(&key.serialize_pem(), ""), [refused(block)]);
        assert_eq!(said("odd", "odd"), [""; 0], "it was there before");
    }
}
