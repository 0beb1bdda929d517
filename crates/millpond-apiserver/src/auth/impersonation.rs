//! Impersonation (`kubectl --as`): a user acts as another one, if they may.
//!
//! Kubernetes 1.36 knows several modes and takes the first that allows the request. Each of the newer ones asks two
//! questions: may the user make this request as another user (`impersonate-on:MODE:VERB`), and may they impersonate
//! that user (`impersonate:MODE`)? The oldest mode asks only the latter (`impersonate`). The first refusal is the
//! answer.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName};

use super::{ADMINISTRATORS, ANONYMOUS, AUTHENTICATED, Attributes, Identity, UNAUTHENTICATED};
use crate::authz::{self, Decision};
use crate::http::path;
use crate::names;
use crate::server::Server;
use crate::service_account;
use crate::status::ApiError;

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";
const API_GROUP: &str = "authentication.k8s.io";
/// With at least this many names, a single check for all names comes first; if it passes, the names are not checked one
/// by one.
const MANY: usize = 4;
const NODE_KEY: &str = "authentication.kubernetes.io/node-name";

/// Whom the headers name, as they say it; `None` when there are no such headers.
pub(crate) fn wanted(headers: &HeaderMap) -> Result<Option<Identity>, ApiError> {
    let text = |value: &http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let first = |name: &str| headers.get(name).map(text).unwrap_or_default();
    let mut wanted = Identity::new(first(USER), headers.get_all(GROUP).iter().map(text).collect());
    wanted.uid = first(UID);
    for name in headers.keys() {
        if let Some(key) = extra_key(name) {
            wanted.extra.entry(key).or_default().extend(headers.get_all(name).iter().map(text));
        }
    }
    if !wanted.user.is_empty() {
        return Ok(Some(wanted));
    }
    if wanted.groups.is_empty() && wanted.uid.is_empty() && wanted.extra.is_empty() {
        return Ok(None);
    }
    Err(ApiError::bad_request(format!("requested {} without impersonating a user name", shown(&wanted))))
}

fn extra_key(name: &HeaderName) -> Option<String> {
    let key = name.as_str().strip_prefix(EXTRA)?;
    Some(path::decode(key).map_or_else(|_| key.to_owned(), std::borrow::Cow::into_owned))
}

/// As Go shows the struct.
fn shown(wanted: &Identity) -> String {
    let list = |texts: &[String]| {
        let quoted: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
        if texts.is_empty() { "[]string(nil)".to_owned() } else { format!("[]string{{{}}}", quoted.join(", ")) }
    };
    let extra: Vec<String> = wanted.extra.iter().map(|(key, values)| format!("{key:?}:{}", list(values))).collect();
    let extra = if extra.is_empty() {
        "map[string][]string(nil)".to_owned()
    } else {
        format!("map[string][]string{{{}}}", extra.join(", "))
    };
    format!("&user.DefaultInfo{{Name:\"\", UID:{:?}, Groups:{}, Extra:{extra}}}", wanted.uid, list(&wanted.groups))
}

/// Whom a request acts as, if its user may act as the wanted one in it.
pub(crate) fn assume(
    server: &Server,
    user: &Identity,
    wanted: &Identity,
    request: &Attributes<'_>,
) -> Result<Identity, ApiError> {
    let mut refusal = None;
    for mode in Mode::ALL {
        if !mode.suits(user, wanted) {
            continue;
        }
        match (Question { server, user, mode }).assume(wanted, request) {
            Ok(identity) => return Ok(identity),
            Err(error) => {
                refusal.get_or_insert(error);
            }
        }
    }
    Err(refusal.unwrap_or_else(|| ApiError::internal("all impersonation modes failed")))
}

/// A mode of impersonation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    Legacy,
}

impl Mode {
    const ALL: [Self; 5] =
        [Self::AssociatedNode, Self::ArbitraryNode, Self::ServiceAccount, Self::UserInfo, Self::Legacy];

    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    /// Whether the mode is for such users.
    fn suits(self, user: &Identity, wanted: &Identity) -> bool {
        let only_name = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = node_of(&wanted.user);
        match self {
            Self::AssociatedNode => {
                let own = user.extra.get(NODE_KEY).map(Vec::as_slice);
                let is_own = node.is_some_and(|node| own.is_some_and(|own| own == [node]));
                only_name && is_own && account_of(&user.user).is_some()
            }
            Self::ArbitraryNode => only_name && node.is_some(),
            Self::ServiceAccount => only_name && account_of(&wanted.user).is_some(),
            Self::UserInfo => node.is_none() && account_of(&wanted.user).is_none(),
            Self::Legacy => true,
        }
    }
}

/// The question whether a user may act as another one, in one mode.
struct Question<'a> {
    server: &'a Server,
    user: &'a Identity,
    mode: Mode,
}

impl Question<'_> {
    fn assume(&self, wanted: &Identity, request: &Attributes<'_>) -> Result<Identity, ApiError> {
        if self.is_constrained() {
            let verb = format!("impersonate-on:{}:{}", self.mode.name(), request.verb);
            self.ask(&Attributes { verb: &verb, ..*request })?;
        }
        let mut assumed = wanted.clone();
        self.name(wanted, &mut assumed)?;
        if !wanted.uid.is_empty() {
            self.ask_for(API_GROUP, "uids", "", &wanted.uid)?;
        }
        self.groups(&wanted.groups)?;
        self.extra(&wanted.extra)?;
        let everybody = match assumed.user.as_str() {
            ANONYMOUS => UNAUTHENTICATED,
            _ if assumed.is_in(UNAUTHENTICATED) => return Ok(assumed),
            _ => AUTHENTICATED,
        };
        if !assumed.is_in(everybody) {
            assumed.groups.push(everybody.to_owned());
        }
        Ok(assumed)
    }

    fn is_constrained(&self) -> bool {
        self.mode != Mode::Legacy
    }

    fn name(&self, wanted: &Identity, assumed: &mut Identity) -> Result<(), ApiError> {
        let group = self.group();
        if let Some((namespace, name)) = account_of(&wanted.user) {
            if wanted.groups.is_empty() {
                assumed.groups = service_account::groups(namespace);
            }
            let verb = self.verb();
            return self.ask(&Attributes {
                verb: &verb,
                group,
                resource: "serviceaccounts",
                namespace,
                name,
                ..Attributes::default()
            });
        }
        if let Some(node) = node_of(&wanted.user).filter(|_| self.is_constrained()) {
            assumed.groups = vec!["system:nodes".to_owned()];
            // A pod that may impersonate its own node may do so on any node.
            let name = if self.mode == Mode::AssociatedNode { "*" } else { node };
            return self.ask_for(group, "nodes", "", name);
        }
        self.ask_for(group, "users", "", &wanted.user)
    }

    fn groups(&self, groups: &[String]) -> Result<(), ApiError> {
        let group = self.group();
        if self.is_constrained() {
            let refuse = |name: &str, why: &str| {
                let verb = self.verb();
                let wanted = Attributes { verb: &verb, group, resource: "groups", name, ..Attributes::default() };
                Err(authz::forbidden(self.user, &wanted, why))
            };
            if groups.iter().any(String::is_empty) {
                return refuse("", "impersonating the empty string group is not allowed");
            }
            if groups.iter().any(|name| name == ADMINISTRATORS) {
                return refuse(ADMINISTRATORS, "impersonating the system:masters group is not allowed");
            }
            if groups.len() >= MANY && self.ask_for(group, "groups", "", "*").is_ok() {
                return Ok(());
            }
        }
        groups.iter().try_for_each(|name| self.ask_for(group, "groups", "", name))
    }

    fn extra(&self, extra: &BTreeMap<String, Vec<String>>) -> Result<(), ApiError> {
        if self.is_constrained() {
            if let Some(why) = extra.iter().find_map(|(key, values)| extra_problem(key, values)) {
                let verb = self.verb();
                let wanted =
                    Attributes { verb: &verb, group: API_GROUP, resource: "userextras", ..Attributes::default() };
                return Err(authz::forbidden(self.user, &wanted, &why));
            }
            let count: usize = extra.values().map(Vec::len).sum();
            if count >= MANY && self.ask_for(API_GROUP, "userextras", "*", "*").is_ok() {
                return Ok(());
            }
        }
        let mut pairs = extra.iter().flat_map(|(key, values)| values.iter().map(move |value| (key, value)));
        pairs.try_for_each(|(key, value)| self.ask_for(API_GROUP, "userextras", key, value))
    }

    /// The API group of users and groups.
    fn group(&self) -> &'static str {
        if self.is_constrained() { API_GROUP } else { "" }
    }

    fn verb(&self) -> String {
        if self.is_constrained() { format!("impersonate:{}", self.mode.name()) } else { "impersonate".to_owned() }
    }

    fn ask_for(&self, group: &str, resource: &str, subresource: &str, name: &str) -> Result<(), ApiError> {
        let verb = self.verb();
        self.ask(&Attributes { verb: &verb, group, resource, subresource, name, ..Attributes::default() })
    }

    fn ask(&self, wanted: &Attributes<'_>) -> Result<(), ApiError> {
        match self.server.authorizer.decide(self.user, wanted) {
            Decision::Allow(_) => Ok(()),
            Decision::NoOpinion(reason) => Err(authz::forbidden(self.user, wanted, &reason)),
        }
    }
}

fn extra_problem(key: &str, values: &[String]) -> Option<String> {
    let is_path = key
        .split_once('/')
        .is_some_and(|(domain, path)| names::subdomain_problems(domain).is_empty() && !path.is_empty());
    if key.is_empty() {
        Some("impersonating the empty string key in extra is not allowed".to_owned())
    } else if !is_path {
        Some(format!(
            "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {key:?}: must be a \
             domain-prefixed path (such as \"acme.io/foo\")"
        ))
    } else if values.iter().any(String::is_empty) {
        Some("impersonating the empty string value in extra is not allowed".to_owned())
    } else {
        None
    }
}

/// The node that a user name is that of.
fn node_of(user: &str) -> Option<&str> {
    user.strip_prefix("system:node:").filter(|name| names::subdomain_problems(name).is_empty())
}

/// Namespace and name of the service account that a user name is that of.
fn account_of(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let is_well_formed = names::label_problems(namespace).is_empty() && names::subdomain_problems(name).is_empty();
    is_well_formed.then_some((namespace, name))
}
