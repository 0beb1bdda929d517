//! Certificate signing requests: which users may approve and sign for which signer, and what no request may contain.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use crate::auth::{self, ADMINISTRATORS, Attributes};
use crate::builtin::certificates::API_CLIENT;
use crate::handlers::call::Call;
use crate::handlers::update::Part;
use crate::pki::SigningRequest;

/// Checks a request that is created, or changed where `old` is there.
pub(super) fn check(call: &Call, new: &Value, old: Option<&Value>, part: Part) -> Result<(), String> {
    match old {
        None => check_subject(new),
        Some(old) => check_decision(call, new, old, part),
    }
}

/// No client certificate makes an administrator.
fn check_subject(object: &Value) -> Result<(), String> {
    let spec = &object["spec"];
    if spec["signerName"] != API_CLIENT {
        return Ok(());
    }
    let pem = BASE64.decode(spec["request"].as_str().unwrap_or_default()).unwrap_or_default();
    let request = SigningRequest::from_pem(&pem).map_err(|problem| format!("failed to parse CSR: {problem}"))?;
    if request.organizations.iter().any(|group| group == ADMINISTRATORS) {
        return Err(format!("use of {API_CLIENT} signer with {ADMINISTRATORS} group is not allowed"));
    }
    Ok(())
}

/// A user who approves or signs needs the right to do so for the signer that the request names.
fn check_decision(call: &Call, new: &Value, old: &Value, part: Part) -> Result<(), String> {
    let signer = old["spec"]["signerName"].as_str().unwrap_or_default();
    let signs = || ["certificate", "conditions"].iter().any(|field| new["status"][field] != old["status"][field]);
    match part {
        Part::Other("approval") if !may(call, "approve", signer) => {
            Err(format!("user not permitted to approve requests with signerName {signer:?}"))
        }
        Part::Status if signs() && !may(call, "sign", signer) => {
            Err(format!("user not permitted to sign requests with signerName {signer:?}"))
        }
        _ => Ok(()),
    }
}

/// Whether the user may act for a signer, or for all signers of its domain.
fn may(call: &Call, verb: &str, signer: &str) -> bool {
    let domain = signer.split_once('/').map_or(signer, |(domain, _)| domain);
    let allows = |name: &str| {
        let (group, resource) = ("certificates.k8s.io", "signers");
        let attributes = Attributes { verb, group, resource, name, ..Attributes::default() };
        auth::authorize(&call.server, &call.identity, &attributes).is_ok()
    };
    allows(signer) || allows(&format!("{domain}/*"))
}
