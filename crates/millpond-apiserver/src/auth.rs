//! Authentication: the user of a request.
//!
//! A request carries a bearer token that this server knows or has signed, or a bootstrap token, or comes over a
//! connection with a client certificate of its CA, or from inside the process. A request without credentials is
//! `system:anonymous`. [`authorize`] is the one place where an identity is allowed or refused something.

pub(crate) mod bootstrap_token;
pub(crate) mod impersonation;

use std::collections::{BTreeMap, HashMap};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::Timestamp;
use parking_lot::RwLock;

use crate::authz::{self, Decision};
use crate::server::{Caller, Server};
use crate::service_account::{self, ISSUER, InvalidToken};
use crate::status::ApiError;

/// The group whose members have all rights.
pub const ADMINISTRATORS: &str = "system:masters";
/// The group of everybody with credentials.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of everybody without.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user of requests without credentials.
pub const ANONYMOUS: &str = "system:anonymous";

/// An authenticated user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// User name.
    pub user: String,
    /// A stable id, if there is one.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Further attributes, such as the pod that a token belongs to.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Identity {
    /// A user with groups and no further attributes.
    pub fn new(user: String, groups: Vec<String>) -> Self {
        Self { user, uid: String::new(), groups, extra: BTreeMap::new() }
    }

    /// A user in the administrators' group.
    pub fn administrator(user: &str) -> Self {
        Self::new(user.to_owned(), vec![ADMINISTRATORS.to_owned()])
    }

    /// The user of requests without credentials.
    pub(crate) fn anonymous() -> Self {
        Self::new(ANONYMOUS.to_owned(), vec![UNAUTHENTICATED.to_owned()])
    }

    /// A service account, as its tokens name it.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self::new(service_account::user_name(namespace, name), service_account::groups(namespace)).authenticated()
    }

    /// The user that a client certificate names: its common name, with its organizations as groups.
    pub fn of_certificate(der: &[u8]) -> Option<Self> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        let subject = certificate.subject();
        let user = subject.iter_common_name().next()?.as_str().ok().filter(|name| !name.is_empty())?.to_owned();
        let groups = subject.iter_organization().filter_map(|name| name.as_str().ok()).map(str::to_owned).collect();
        let mut identity = Self::new(user, groups).authenticated();
        let hash = ring::digest::digest(&ring::digest::SHA256, der);
        let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        identity
            .extra
            .insert("authentication.kubernetes.io/credential-id".to_owned(), vec![format!("X509SHA256={hash}")]);
        Some(identity)
    }

    /// Whether this is a member of a group.
    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|member| member == group)
    }

    /// The same, a member of the group of everybody with credentials.
    pub(crate) fn authenticated(mut self) -> Self {
        if !self.is_in(AUTHENTICATED) && !self.is_in(UNAUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

/// Bytes that a token has at least: shorter ones can be guessed.
pub const MIN_TOKEN_BYTES: usize = 16;

/// A token that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The token is empty.
    #[error("the token is empty")]
    Empty,
    /// The token could be guessed.
    #[error("the token has {0} bytes, and {MIN_TOKEN_BYTES} are the least")]
    TooShort(usize),
    /// The token cannot be sent in a header.
    #[error("the token holds a character other than visible ASCII")]
    NotVisible,
}

/// Checks whether a text can be a bearer token.
pub fn check_token(token: &str) -> Result<(), TokenError> {
    match token.len() {
        0 => Err(TokenError::Empty),
        length if length < MIN_TOKEN_BYTES => Err(TokenError::TooShort(length)),
        _ if !token.bytes().all(|byte| byte.is_ascii_graphic()) => Err(TokenError::NotVisible),
        _ => Ok(()),
    }
}

/// Bearer tokens and their users. Tokens never appear in logs: the type does not show them.
#[derive(Default)]
pub struct Tokens {
    known: RwLock<HashMap<String, Identity>>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").field("known", &self.known.read().len()).finish()
    }
}

impl Tokens {
    /// Makes a token known, unless it is empty or too short.
    pub fn add(&self, token: String, identity: Identity) -> Result<(), TokenError> {
        check_token(&token)?;
        self.known.write().insert(token, identity);
        Ok(())
    }

    /// The user of a token. Tokens are long random texts looked up by hash, so timing reveals nothing.
    pub fn identity(&self, token: &str) -> Option<Identity> {
        self.known.read().get(token).cloned()
    }
}

/// Identifies the user: by the connection's certificate, else the bearer token, else as anonymous.
pub(crate) fn authenticate(headers: &HeaderMap, caller: &Caller, server: &Server) -> Result<Identity, ApiError> {
    if let Some(identity) = &caller.identity {
        // A connection may outlive the certificate that it was opened with.
        let valid = caller.valid_until.is_none_or(|end| server.clock.now() <= end);
        return if valid { Ok(identity.clone()) } else { Err(ApiError::unauthorized()) };
    }
    let Some(token) = bearer_token(headers) else { return Ok(Identity::anonymous()) };
    let (identity, _) = whose(server, token, &[ISSUER.to_owned()]).map_err(|_| ApiError::unauthorized())?;
    Ok(identity.authenticated())
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

/// Until when a certificate is valid.
pub(crate) fn end_of_certificate(der: &[u8]) -> Option<Timestamp> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

/// The user of a token, and the wanted audiences that it is valid for. The error says why it is invalid.
pub(crate) fn whose(server: &Server, token: &str, wanted: &[String]) -> Result<(Identity, Vec<String>), InvalidToken> {
    let known = || server.tokens.identity(token).or_else(|| bootstrap_token::identity(server, token));
    match known() {
        Some(identity) => Ok((identity.authenticated(), wanted.to_vec())),
        None => service_account::verify(server, token, wanted, server.clock.now()),
    }
}

/// What a user wants to do.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attributes<'a> {
    pub(crate) verb: &'a str,
    /// The path of a request that is not about a resource; empty for others.
    pub(crate) path: &'a str,
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The field selector of a list, a watch or a delete of a collection.
    pub(crate) fields: &'a str,
}

/// Whether an identity may do something.
pub(crate) fn authorize(server: &Server, identity: &Identity, wanted: &Attributes<'_>) -> Result<(), ApiError> {
    match server.authorizer.decide(identity, wanted) {
        Decision::Allow(_) => Ok(()),
        Decision::NoOpinion(reason) => Err(authz::forbidden(identity, wanted, &reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::server::ServerOptions;
    use crate::store::Store;

    const TOKEN: &str = "0123456789abcdef";

    fn server() -> std::sync::Arc<Server> {
        let clock = Clock::System;
        Server::new(Store::in_memory(clock), clock, ServerOptions::default()).unwrap()
    }

    fn with(server: &Server, value: &str) -> Result<Identity, ApiError> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, value.parse().unwrap());
        authenticate(&headers, &Caller::of_connection(None), server)
    }

    #[test]
    fn only_known_tokens_get_in() {
        let server = server();
        server.tokens().add(TOKEN.to_owned(), Identity::administrator("admin")).unwrap();
        assert_eq!(with(&server, &format!("Bearer {TOKEN}")).unwrap().user, "admin");
        assert_eq!(with(&server, &format!("bearer  {TOKEN}")).unwrap().user, "admin");
        for wrong in ["Bearer other", "Bearer 0123456789abcdefg", "bearer a.b.c", "bearer abcdef.0123456789abcdef"] {
            assert_eq!(with(&server, wrong).unwrap_err().code, 401, "{wrong}");
        }
        for none in ["Bearer ", "Bearer", &format!("Basic {TOKEN}"), TOKEN] {
            assert_eq!(with(&server, none).unwrap(), Identity::anonymous(), "{none}");
        }
        let anonymous = authenticate(&HeaderMap::new(), &Caller::of_connection(None), &server).unwrap();
        assert_eq!((anonymous.user.as_str(), &anonymous.groups[..]), (ANONYMOUS, &[UNAUTHENTICATED.to_owned()][..]));
        assert!(!format!("{server:?}").contains(TOKEN));
    }

    #[test]
    fn empty_and_short_tokens_are_invalid() {
        let server = server();
        let add = |token: &str| server.tokens().add(token.to_owned(), Identity::administrator("admin"));
        assert_eq!(add(""), Err(TokenError::Empty));
        assert_eq!(add(&TOKEN[1..]), Err(TokenError::TooShort(15)));
        assert_eq!(add("0123456789 abcdef"), Err(TokenError::NotVisible));
        assert_eq!(with(&server, "Bearer 123456789abcdef").unwrap_err().code, 401);
    }

    #[test]
    fn a_certificate_without_a_common_name_is_invalid() {
        let of = |name: Option<&str>| {
            let mut params = rcgen::CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            if let Some(name) = name {
                params.distinguished_name.push(rcgen::DnType::CommonName, name);
            }
            let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
            Identity::of_certificate(certificate.der()).map(|identity| identity.user)
        };
        assert_eq!(of(Some("jane")).as_deref(), Some("jane"));
        assert_eq!((of(Some("")), of(None)), (None, None));
    }
}
