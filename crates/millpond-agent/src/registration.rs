//! Gets a certificate for a token: a certificate signing request, its approval, the certificate.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::credentials::{CredentialsError, Key, REQUEST};
use crate::session::{Session, SessionError};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// The signer of certificates that clients show to the API server.
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// Time between two looks at a request that waits.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// When to say that a request waits for a person.
const PATIENCE: u32 = 15;
/// How long a request waits for its certificate. kube-controller-manager removes pending requests after a day.
const GIVE_UP: u32 = 3600;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// The server does not accept the token.
    #[error("the token `{0}` is not accepted: it was used, was revoked or has expired")]
    TokenRefused(String),
    /// The request was denied.
    #[error("the request `{name}` for a certificate was denied: {message}")]
    Denied {
        /// Name of the request.
        name: String,
        /// Why.
        message: String,
    },
    /// The request was not approved in time.
    #[error("the request `{0}` for a certificate was not approved within an hour")]
    NotApproved(String),
    /// The certificate is for another key.
    #[error("the certificate of the request `{0}` does not belong to its key")]
    WrongCertificate(String),
    /// The server refused something else, or cannot be reached.
    #[error("cannot ask for a certificate: {0}")]
    Session(#[from] SessionError),
    /// A key could not be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

impl RegistrationError {
    /// Whether the same token will never do.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::TokenRefused(_) | Self::Denied { .. } | Self::NotApproved(_))
    }
}

/// A certificate signing request, as far as the agent reads it.
#[derive(Debug, Deserialize)]
struct SigningRequest {
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Deserialize)]
struct Spec {
    request: String,
    #[serde(default)]
    username: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    certificate: String,
    conditions: Vec<Condition>,
}

#[derive(Debug, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    message: String,
}

/// The requestor's name, for messages and to recognize the agent's own requests.
#[derive(Debug, Clone)]
pub struct Requestor {
    /// Name of the user, where it is known: `system:bootstrap:ID`.
    pub user: Option<String>,
    /// The name of the credential in messages to the user: the ID of a token.
    pub title: String,
}

/// Asks for a certificate for a key, and waits until it is there.
pub async fn certificate(
    session: &Session,
    host: &str,
    key: &Key,
    requestor: &Requestor,
) -> Result<String, RegistrationError> {
    let name = submit(session, host, key, requestor).await.map_err(|error| refused(error, requestor))?;
    for attempt in 0..GIVE_UP {
        let path = format!("{REQUESTS}/{name}");
        let request: Option<SigningRequest> = match session.get(&path).await {
            Ok(request) => request,
            Err(error) if error.is_unauthorized() => {
                return Err(RegistrationError::TokenRefused(requestor.title.clone()));
            }
            // The right to read comes with the roles, and a server may be away for a while.
            Err(error) if attempt < PATIENCE => {
                tracing::debug!(%error, "cannot read the request");
                tokio::time::sleep(LOOK_AGAIN).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let Some(request) = request else {
            return Err(RegistrationError::Denied { name, message: "it was deleted".to_owned() });
        };
        if let Some(certificate) = issued(&name, &request, key)? {
            return Ok(certificate);
        }
        if attempt == PATIENCE {
            tracing::warn!(request = name, "the request waits for its approval: kubectl certificate approve {name}");
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Err(RegistrationError::NotApproved(name))
}

fn refused(error: SessionError, requestor: &Requestor) -> RegistrationError {
    if error.is_unauthorized() {
        return RegistrationError::TokenRefused(requestor.title.clone());
    }
    error.into()
}

/// Creates the request, unless it is there from before a crash; gives its name.
async fn submit(session: &Session, host: &str, key: &Key, requestor: &Requestor) -> Result<String, SessionError> {
    let pem = key.request(host).map_err(|error| SessionError::from(kube::Error::Service(error.to_string().into())))?;
    let first = format!("{REQUEST}{host}");
    // Another request of this host is there already: of a lost key, or of the certificate that is to be renewed.
    let second = format!("{first}-{}", key.fingerprint());
    for name in [&first, &second] {
        let object = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": {
                "request": STANDARD.encode(&pem), "signerName": SIGNER, "usages": ["digital signature", "client auth"],
            },
        });
        let created: Result<Value, _> = session.create(REQUESTS, &object).await;
        match created {
            Ok(_) => return Ok(name.clone()),
            Err(error) if error.code() == Some(409) => {
                let there: Option<SigningRequest> = session.get(&format!("{REQUESTS}/{name}")).await?;
                if there.is_some_and(|there| is_own(&there, key, requestor)) {
                    return Ok(name.clone());
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(second)
}

fn is_own(request: &SigningRequest, key: &Key, requestor: &Requestor) -> bool {
    let bytes = STANDARD.decode(&request.spec.request).unwrap_or_default();
    let is_user = requestor.user.as_ref().is_none_or(|user| *user == request.spec.username);
    key.is_of_request(&bytes) && is_user
}

fn issued(name: &str, request: &SigningRequest, key: &Key) -> Result<Option<String>, RegistrationError> {
    let refusal = request.status.conditions.iter().find(|one| matches!(one.kind.as_str(), "Denied" | "Failed"));
    if let Some(refusal) = refusal {
        return Err(RegistrationError::Denied { name: name.to_owned(), message: refusal.message.clone() });
    }
    if request.status.certificate.is_empty() {
        return Ok(None);
    }
    let bytes = STANDARD.decode(&request.status.certificate).unwrap_or_default();
    let certificate = String::from_utf8(bytes).unwrap_or_default();
    if key.is_of(&certificate) {
        Ok(Some(certificate))
    } else {
        Err(RegistrationError::WrongCertificate(name.to_owned()))
    }
}
