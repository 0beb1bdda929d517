//! Who asks, and whether they may.
//!
//! Nobody is anonymous: a request carries a bearer token that this server knows or has signed, or comes over a
//! connection with a client certificate of its CA, or from inside the process. [`authorize`] is the one place where
//! a known identity is allowed or refused something.

use std::collections::{BTreeMap, HashMap};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use parking_lot::RwLock;

use crate::server::Server;
use crate::service_account::{self, ISSUER};
use crate::status::ApiError;

/// The group whose members may do everything.
pub const ADMINISTRATORS: &str = "system:masters";

/// A known user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// User name.
    pub user: String,
    /// Stable id, where there is one.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// What else is known, e.g. the pod that a token belongs to.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Identity {
    /// A user of whom only groups are known.
    pub fn new(user: String, groups: Vec<String>) -> Self {
        Self { user, uid: String::new(), groups, extra: BTreeMap::new() }
    }

    /// A user in the administrators' group.
    pub fn administrator(user: &str) -> Self {
        Self::new(user.to_owned(), vec![ADMINISTRATORS.to_owned()])
    }

    /// The user that a client certificate names: its common name, with its organizations as groups.
    pub fn of_certificate(der: &[u8]) -> Option<Self> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        let subject = certificate.subject();
        let user = subject.iter_common_name().next()?.as_str().ok().filter(|name| !name.is_empty())?.to_owned();
        let groups = subject.iter_organization().filter_map(|name| name.as_str().ok()).map(str::to_owned).collect();
        Some(Self::new(user, groups))
    }
}

/// Bytes that a token has at least: shorter ones can be guessed.
pub const MIN_TOKEN_BYTES: usize = 16;

/// A token that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// There is none.
    #[error("the token is empty")]
    Empty,
    /// It could be guessed.
    #[error("the token has {0} bytes, and {MIN_TOKEN_BYTES} are the least")]
    TooShort(usize),
    /// It cannot be sent in a header.
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

/// Bearer tokens and whom they stand for. Tokens never appear in logs: the type does not show them.
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

    /// Whom a token stands for. Tokens are long random texts looked up by hash, so timing tells nothing.
    pub fn identity(&self, token: &str) -> Option<Identity> {
        self.known.read().get(token).cloned()
    }
}

/// Finds out who asks: the connection's certificate, else the bearer token.
pub(crate) fn authenticate(
    headers: &HeaderMap,
    certificate: Option<&Identity>,
    server: &Server,
) -> Result<Identity, ApiError> {
    if let Some(identity) = certificate {
        return Ok(identity.clone());
    }
    let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token =
        header.and_then(|value| value.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let token = token.map(|(_, token)| token.trim()).filter(|token| !token.is_empty());
    let token = token.ok_or_else(ApiError::unauthorized)?;
    let (mut identity, _) = whose(server, token, &[ISSUER.to_owned()]).map_err(|_| ApiError::unauthorized())?;
    if !identity.groups.iter().any(|group| group == "system:authenticated") {
        identity.groups.push("system:authenticated".to_owned());
    }
    Ok(identity)
}

/// Whom a token stands for, and for which of the wanted audiences; the error says why nobody.
pub(crate) fn whose(server: &Server, token: &str, wanted: &[String]) -> Result<(Identity, Vec<String>), String> {
    match server.tokens.identity(token) {
        Some(identity) => Ok((identity, wanted.to_vec())),
        None => service_account::verify(server, token, wanted, server.clock.now()),
    }
}

/// What somebody wants to do.
#[derive(Debug)]
pub(crate) struct Attributes<'a> {
    pub(crate) verb: &'a str,
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

/// Whether a known identity may do something. For now everyone who is known may do everything.
#[expect(clippy::unnecessary_wraps, reason = "roles will refuse here")]
pub(crate) fn authorize(identity: &Identity, attributes: &Attributes<'_>) -> Result<(), ApiError> {
    tracing::trace!(
        user = identity.user,
        verb = attributes.verb,
        group = attributes.group,
        resource = attributes.resource,
        subresource = attributes.subresource,
        namespace = attributes.namespace,
        name = attributes.name,
        "allowed"
    );
    Ok(())
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
        authenticate(&headers, None, server)
    }

    #[test]
    fn only_known_tokens_get_in() {
        let server = server();
        server.tokens().add(TOKEN.to_owned(), Identity::administrator("admin")).unwrap();
        assert_eq!(with(&server, &format!("Bearer {TOKEN}")).unwrap().user, "admin");
        assert_eq!(with(&server, &format!("bearer  {TOKEN}")).unwrap().user, "admin");
        for wrong in ["Bearer other", "Bearer ", "Bearer", &format!("Basic {TOKEN}"), TOKEN] {
            assert_eq!(with(&server, wrong).unwrap_err().code, 401, "{wrong}");
        }
        assert_eq!(authenticate(&HeaderMap::new(), None, &server).unwrap_err().code, 401);
        assert!(!format!("{server:?}").contains(TOKEN));
    }

    #[test]
    fn empty_and_short_tokens_are_nobody() {
        let server = server();
        let add = |token: &str| server.tokens().add(token.to_owned(), Identity::administrator("admin"));
        assert_eq!(add(""), Err(TokenError::Empty));
        assert_eq!(add(&TOKEN[1..]), Err(TokenError::TooShort(15)));
        assert_eq!(add("0123456789 abcdef"), Err(TokenError::NotVisible));
        for header in ["Bearer ", "Bearer  ", "Bearer 123456789abcdef"] {
            assert_eq!(with(&server, header).unwrap_err().code, 401, "{header:?}");
        }
    }

    #[test]
    fn a_certificate_without_a_common_name_is_nobody() {
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
