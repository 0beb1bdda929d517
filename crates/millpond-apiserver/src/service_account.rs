//! Tokens of service accounts: JSON web tokens that this server signs, and believes as long as what they are
//! bound to is there.
//!
//! No state is kept per token. The key is stored with the certificates, so tokens outlive a restart; they end at the
//! time written in them, with their account, and with the pod, secret or node that they are bound to.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use ring::digest;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::auth::Identity;
use crate::server::Server;
use crate::store::StoredObject;

/// The issuer of tokens, and their audience unless another one is requested.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc";
/// Objects that are being deleted keep their tokens alive this long, as Kubernetes has it: pods still need them
/// while they end.
const DELETED_LEEWAY_S: i64 = 60;

/// A key that cannot sign.
#[derive(Debug, thiserror::Error)]
#[error("the key for service account tokens is not usable: {0}")]
pub struct KeyError(String);

/// Signs tokens and knows its own signatures.
pub struct TokenSigner {
    key: EcdsaKeyPair,
    /// Names the key in the header of a token.
    id: String,
    random: SystemRandom,
}

impl fmt::Debug for TokenSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSigner").field("id", &self.id).finish_non_exhaustive()
    }
}

impl TokenSigner {
    /// A signer with a P-256 key in PKCS#8 form.
    pub fn from_pkcs8(der: &[u8]) -> Result<Self, KeyError> {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &random)
            .map_err(|problem| KeyError(problem.to_string()))?;
        let id = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, key.public_key().as_ref()));
        Ok(Self { key, id, random })
    }

    /// A signer whose tokens become invalid with this process.
    pub fn ephemeral() -> Result<Self, KeyError> {
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
            .map_err(|problem| KeyError(problem.to_string()))?;
        Self::from_pkcs8(key.as_ref())
    }

    /// A token with these claims.
    pub(crate) fn sign(&self, claims: &Claims) -> Result<String, KeyError> {
        let header = json!({"alg": "ES256", "kid": self.id}).to_string();
        let claims = serde_json::to_string(claims).map_err(|problem| KeyError(problem.to_string()))?;
        let mut token = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature =
            self.key.sign(&self.random, token.as_bytes()).map_err(|problem| KeyError(problem.to_string()))?;
        token.push('.');
        token.push_str(&URL_SAFE_NO_PAD.encode(signature));
        Ok(token)
    }

    /// The claims of a token that this key has signed. Refusals have the words of kube-apiserver, whose tokens are read by
    /// go-jose.
    fn open(&self, token: &str) -> Result<Claims, InvalidToken> {
        let (header, claims, signature) = parts(token).ok_or(InvalidToken::Unknown)?;
        let signed = &token[..token.rfind('.').unwrap_or_default()];
        let issuer: Issuer = serde_json::from_slice(&claims).map_err(|_| InvalidToken::Unknown)?;
        if issuer.iss != ISSUER {
            return Err(InvalidToken::Unknown);
        }
        let header: Header = serde_json::from_slice(&header).map_err(|_| InvalidToken::Unknown)?;
        if !header.kid.is_empty() && header.kid != self.id {
            return Err(InvalidToken::Refused("invalid signature, no keys found".to_owned()));
        }
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key());
        if header.alg != "ES256" || public.verify(signed.as_bytes(), &signature).is_err() {
            return Err(InvalidToken::Refused("go-jose/go-jose: error in cryptographic primitive".to_owned()));
        }
        serde_json::from_slice(&claims).map_err(|_| InvalidToken::Unknown)
    }
}

/// Header, claims and signature of a token.
fn parts(token: &str) -> Option<(Vec<u8>, Vec<u8>, Vec<u8>)> {
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
    Some((decode(header)?, decode(claims)?, decode(signature)?))
}

/// Why a bearer token is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidToken {
    /// It is none of this cluster's.
    #[error("invalid bearer token")]
    Unknown,
    /// It says that it is.
    #[error("[invalid bearer token, {0}]")]
    Refused(String),
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
}

#[derive(Deserialize)]
struct Issuer {
    #[serde(default)]
    iss: String,
}

/// The claims of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claims {
    pub(crate) aud: Vec<String>,
    pub(crate) exp: i64,
    pub(crate) iat: i64,
    pub(crate) iss: String,
    pub(crate) jti: String,
    #[serde(rename = "kubernetes.io")]
    pub(crate) kubernetes: Bound,
    pub(crate) nbf: i64,
    pub(crate) sub: String,
}

/// The objects that a token depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bound {
    pub(crate) namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<Reference>,
    pub(crate) serviceaccount: Reference,
}

/// One object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reference {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
}

/// A token's claims for an account, from now on.
pub(crate) fn claims(bound: Bound, audiences: Vec<String>, now: Timestamp, lifetime_s: i64) -> Claims {
    let issued = now.as_second();
    Claims {
        aud: audiences,
        exp: issued.saturating_add(lifetime_s),
        iat: issued,
        iss: ISSUER.to_owned(),
        jti: uuid::Uuid::new_v4().to_string(),
        nbf: issued,
        sub: user_name(&bound.namespace, &bound.serviceaccount.name),
        kubernetes: bound,
    }
}

/// The user name of a service account.
pub(crate) fn user_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// The groups of a service account.
pub(crate) fn groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// The user of a token, and the wanted audiences that it is valid for. The error says why it is invalid.
pub(crate) fn verify(
    server: &Server,
    token: &str,
    wanted: &[String],
    now: Timestamp,
) -> Result<(Identity, Vec<String>), InvalidToken> {
    let claims = server.token_signer.open(token)?;
    let audiences: Vec<String> = claims.aud.iter().filter(|audience| wanted.contains(audience)).cloned().collect();
    if audiences.is_empty() {
        return Err(InvalidToken::Refused(format!(
            "token audiences {} is invalid for the target audiences {}",
            quoted(&claims.aud),
            quoted(wanted)
        )));
    }
    // The same clock has set the times, so there is no leeway.
    if now.as_second() >= claims.exp {
        return Err(InvalidToken::Refused("service account token has expired".to_owned()));
    }
    if now.as_second() < claims.nbf {
        return Err(InvalidToken::Refused("service account token is not valid yet".to_owned()));
    }
    check_bound(server, &claims.kubernetes, now).map_err(InvalidToken::Refused)?;
    Ok((identity(&claims), audiences))
}

/// A list as Go shows it.
fn quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", texts.join(" "))
}

fn check_bound(server: &Server, bound: &Bound, now: Timestamp) -> Result<(), String> {
    let (namespace, account) = (&bound.namespace, &bound.serviceaccount);
    let found = server.store.get("serviceaccounts", &format!("{namespace}/{}", account.name));
    let found = found.ok_or_else(|| format!("serviceaccounts {:?} not found", account.name))?;
    if *found.index.uid != *account.uid {
        return Err(format!("service account UID ({}) does not match claim ({})", found.index.uid, account.uid));
    }
    if is_gone(&found, now) {
        return Err(format!("service account {namespace}/{} has been deleted", account.name));
    }
    let in_namespace = |reference: &Reference| format!("{namespace}/{}", reference.name);
    // The node of a pod is informative only.
    let node = bound.node.as_ref().filter(|_| bound.pod.is_none());
    let objects = [
        ("secret", "secrets", bound.secret.as_ref().map(|secret| (secret, in_namespace(secret)))),
        ("pod", "pods", bound.pod.as_ref().map(|pod| (pod, in_namespace(pod)))),
        ("node", "nodes", node.map(|node| (node, node.name.clone()))),
    ];
    for (kind, collection, reference) in objects {
        let Some((reference, key)) = reference else { continue };
        let found = server.store.get(collection, &key).filter(|found| !is_gone(found, now));
        let found = found.ok_or("service account token has been invalidated")?;
        if *found.index.uid != *reference.uid {
            return Err(format!(
                "{kind} UID ({}) does not match service account {kind} ref claim ({})",
                found.index.uid, reference.uid
            ));
        }
    }
    Ok(())
}

/// Whether an object should have been gone for a while.
fn is_gone(object: &StoredObject, now: Timestamp) -> bool {
    if !object.index.deleting {
        return false;
    }
    let deleted = object.to_value()["metadata"]["deletionTimestamp"].as_str().and_then(|text| text.parse().ok());
    let end = deleted.and_then(|at: Timestamp| at.checked_add(SignedDuration::from_secs(DELETED_LEEWAY_S)).ok());
    end.is_some_and(|end| end < now)
}

fn identity(claims: &Claims) -> Identity {
    let bound = &claims.kubernetes;
    let mut extra = BTreeMap::new();
    let mut tell = |key: &str, value: String| extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value]);
    tell("credential-id", format!("JTI={}", claims.jti));
    for (reference, keys) in [(&bound.pod, ["pod-name", "pod-uid"]), (&bound.node, ["node-name", "node-uid"])] {
        if let Some(reference) = reference {
            tell(keys[0], reference.name.clone());
            if !reference.uid.is_empty() {
                tell(keys[1], reference.uid.clone());
            }
        }
    }
    let (user, uid) = (claims.sub.clone(), bound.serviceaccount.uid.clone());
    Identity { user, uid, groups: groups(&bound.namespace), extra }.authenticated()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_claims() -> Claims {
        let account = Reference { name: "builder".to_owned(), uid: "1-2-3".to_owned() };
        let bound = Bound { namespace: "ci".to_owned(), serviceaccount: account, ..Bound::default() };
        claims(bound, vec![ISSUER.to_owned()], Timestamp::UNIX_EPOCH, 600)
    }

    #[test]
    fn a_token_says_what_kubernetes_says() {
        let shown = serde_json::to_value(some_claims()).unwrap();
        let jti = shown["jti"].as_str().unwrap();
        assert_eq!(
            shown,
            json!({
                "aud": [ISSUER], "exp": 600, "iat": 0, "iss": ISSUER, "jti": jti, "nbf": 0,
                "kubernetes.io": {"namespace": "ci", "serviceaccount": {"name": "builder", "uid": "1-2-3"}},
                "sub": "system:serviceaccount:ci:builder",
            })
        );
    }

    #[test]
    fn only_what_the_key_has_signed_is_opened() {
        let signer = TokenSigner::ephemeral().unwrap();
        let claims = some_claims();
        let token = signer.sign(&claims).unwrap();
        assert_eq!(signer.open(&token), Ok(claims.clone()));
        let said = |signer: &TokenSigner, token: &str| signer.open(token).unwrap_err().to_string();
        let other_key = said(&TokenSigner::ephemeral().unwrap(), &token);
        assert_eq!(other_key, "[invalid bearer token, invalid signature, no keys found]");

        // What kube-apiserver 1.36 says.
        let broken = "[invalid bearer token, go-jose/go-jose: error in cryptographic primitive]";
        let parts: Vec<&str> = token.split('.').collect();
        let forged = serde_json::to_string(&Claims { exp: i64::MAX, ..claims }).unwrap();
        assert_eq!(said(&signer, &format!("{}.{}.{}", parts[0], URL_SAFE_NO_PAD.encode(forged), parts[2])), broken);
        let none = URL_SAFE_NO_PAD.encode(json!({"alg": "none"}).to_string());
        assert_eq!(said(&signer, &format!("{none}.{}.", parts[1])), broken);
        assert_eq!(said(&signer, &format!("{none}.{}.{}", parts[1], parts[2])), broken);
        assert_eq!(said(&signer, &format!("{}.{}.AAAA", parts[0], parts[1])), broken);
        let elsewhere = URL_SAFE_NO_PAD.encode(json!({"iss": "https://elsewhere.example"}).to_string());
        let elsewhere = format!("{none}.{elsewhere}.AAAA");
        for wrong in ["", ".", "..", "a.b.c", "malformed", &elsewhere, &format!("{token}.")] {
            assert_eq!(signer.open(wrong), Err(InvalidToken::Unknown), "{wrong}");
        }
    }
}
