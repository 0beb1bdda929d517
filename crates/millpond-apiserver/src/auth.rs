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
        let user = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
        let groups = subject.iter_organization().filter_map(|name| name.as_str().ok()).map(str::to_owned).collect();
        Some(Self::new(user, groups))
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
    /// Makes a token known.
    pub fn add(&self, token: String, identity: Identity) {
        self.known.write().insert(token, identity);
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
    let (_, token) = token.ok_or_else(ApiError::unauthorized)?;
    let (mut identity, _) = whose(server, token.trim(), &[ISSUER.to_owned()]).map_err(|_| ApiError::unauthorized())?;
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

    #[test]
    fn only_known_tokens_get_in() {
        let clock = Clock::System;
        let server = Server::new(Store::in_memory(clock), clock, ServerOptions::default()).unwrap();
        server.tokens().add("secret".to_owned(), Identity::administrator("admin"));
        let with = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            authenticate(&headers, None, &server)
        };
        assert_eq!(with("Bearer secret").unwrap().user, "admin");
        assert_eq!(with("bearer  secret").unwrap().user, "admin");
        for wrong in ["Bearer other", "Bearer ", "Bearer", "Basic secret", "secret"] {
            assert_eq!(with(wrong).unwrap_err().code, 401, "{wrong}");
        }
        assert_eq!(authenticate(&HeaderMap::new(), None, &server).unwrap_err().code, 401);
        assert!(!format!("{server:?}").contains("secret"));
    }
}
