//! Whether a request is approved: a pure function of the request, its token and the state of the host.

use jiff::Timestamp;

use super::request::{Asked, HOST_USER, NODE_USER, PREFIX};
use crate::token::{self, Token};

/// Group of hosts, and the organization in their certificates.
const HOSTS: &str = "byoh:hosts";
/// The same for kubelets.
const NODES: &str = "system:nodes";
/// Usages of a certificate of a client.
const USAGES: [&str; 3] = ["digital signature", "client auth", "key encipherment"];

/// Inputs besides the request.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances<'a> {
    /// Token that the request was made with.
    pub token: Option<&'a Token>,
    /// Whether a ByoHost of that name exists.
    pub is_registered: bool,
    /// Whether a machine holds that host.
    pub is_claimed: bool,
    /// The time.
    pub now: Timestamp,
}

/// The decision on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// An administrator or another controller has to decide.
    Leave(&'static str),
    /// It is approved.
    Approve {
        /// The host.
        host: String,
        /// For the condition.
        why: String,
    },
    /// It is denied.
    Deny(String),
}

/// Judges a request.
pub fn judge(asked: &Asked, circumstances: Circumstances<'_>) -> Verdict {
    if asked.is_kubelets { kubelet(asked, circumstances) } else { agent(asked, circumstances) }
}

/// The certificate of an agent: by a token, or by the certificate that it replaces.
fn agent(asked: &Asked, circumstances: Circumstances<'_>) -> Verdict {
    let is_member = |group: &str| asked.groups.iter().any(|one| one == group);
    let by_token = asked.user.strip_prefix(token::USER);
    if by_token.is_none() && !is_member(HOSTS) {
        return Verdict::Leave("the user is neither a token nor a host");
    }
    let Some(host) = asked.host.as_deref().filter(|host| is_host_name(host)) else {
        return Verdict::Deny(format!("the common name is not {HOST_USER}NAME"));
    };
    if let Some(problem) = problem(asked, HOSTS) {
        return Verdict::Deny(problem);
    }
    let rest = asked.name.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix(host));
    if !rest.is_some_and(is_name_ending) {
        return Verdict::Deny(format!("the request of the host {host} is not named {PREFIX}{host}"));
    }
    let Some(id) = by_token else {
        if asked.user != format!("{HOST_USER}{host}") {
            return Verdict::Deny(format!("{} may not ask for a certificate of {host}", asked.user));
        }
        if !circumstances.is_registered {
            return Verdict::Deny(format!("the host {host} is not registered any more"));
        }
        return Verdict::Approve { host: host.to_owned(), why: "the host renews its certificate".to_owned() };
    };
    if !is_member(token::GROUP) {
        return Verdict::Leave("the token is not for hosts");
    }
    match token_problem(id, host, asked, circumstances) {
        Some(problem) => Verdict::Deny(problem),
        None => Verdict::Approve { host: host.to_owned(), why: format!("the token {id} lets the host in") },
    }
}

fn token_problem(id: &str, host: &str, asked: &Asked, circumstances: Circumstances<'_>) -> Option<String> {
    let Some(token) = circumstances.token else { return Some(format!("the token {id} was used or revoked")) };
    if token.is_expired(circumstances.now) {
        return Some(format!("the token {id} has expired"));
    }
    if !(token.authenticates && token.registers) || token.kubelet_of.is_some() {
        return Some(format!("the token {id} does not let hosts in"));
    }
    if let Some(used) = &token.used_by {
        let is_same = used.host == host && used.key == asked.key;
        return (!is_same).then(|| format!("the token {id} was used already, by the host {}", used.host));
    }
    match &token.host {
        Some(bound) if bound != host => Some(format!("the token {id} is for the host {bound} only")),
        None if circumstances.is_registered => Some(format!(
            "a host {host} is registered already; `millpond host token create --host {host}` makes a token that \
             registers it anew"
        )),
        _ => None,
    }
}

/// The certificate of a kubelet: by the token that was made for its host, or by the certificate that it replaces.
fn kubelet(asked: &Asked, circumstances: Circumstances<'_>) -> Verdict {
    let Some(host) = asked.host.as_deref() else { return Verdict::Leave("it names no Node") };
    let by_token = circumstances.token.and_then(|token| token.kubelet_of.as_deref().map(|of| (token, of)));
    match by_token {
        Some((token, of)) => {
            if of != host {
                return Verdict::Deny(format!("the token {} is for the kubelet of {of} only", token.id));
            }
            if token.is_expired(circumstances.now) || !token.authenticates {
                return Verdict::Deny(format!("the token {} has expired", token.id));
            }
        }
        _ if asked.user == format!("{NODE_USER}{host}") && circumstances.is_registered => {}
        _ => return Verdict::Leave("it is not the kubelet of a host of the pool"),
    }
    if let Some(problem) = problem(asked, NODES) {
        return Verdict::Deny(problem);
    }
    if !circumstances.is_claimed {
        return Verdict::Deny(format!("no machine holds the host {host}"));
    }
    Verdict::Approve { host: host.to_owned(), why: "a machine holds the host".to_owned() }
}

/// The error in the request itself, if any.
fn problem(asked: &Asked, organization: &str) -> Option<String> {
    if asked.subject.organizations != [organization] {
        return Some(format!("the organization is not {organization} alone"));
    }
    if asked.subject.has_more {
        return Some("the request names more than a common name and an organization".to_owned());
    }
    if let Some(usage) = asked.usages.iter().find(|usage| !USAGES.contains(&usage.as_str())) {
        return Some(format!("the usage `{usage}` is not for clients"));
    }
    let is_for_clients = asked.usages.iter().any(|usage| usage == "client auth");
    (!is_for_clients).then(|| "the usage `client auth` is missing".to_owned())
}

/// Whether the text after the host's name in the name of a request is valid: empty, or the hash of a key.
fn is_name_ending(rest: &str) -> bool {
    let digits = rest.strip_prefix('-').unwrap_or_default();
    rest.is_empty() || (digits.len() == 10 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_host_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    let ends = bytes.first().zip(bytes.last());
    name.len() <= 63
        && ends.is_some_and(|(first, last)| is_plain(*first) && is_plain(*last))
        && bytes.iter().all(|byte| is_plain(*byte) || matches!(byte, b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::super::request::Subject;
    use super::*;
    use crate::token::UsedBy;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn asked(name: &str, user: &str, host: &str) -> Asked {
        let groups = match user {
            user if user.starts_with(token::USER) => words(&["system:bootstrappers", token::GROUP]),
            user if user.starts_with(HOST_USER) => words(&[HOSTS]),
            user if user.starts_with(NODE_USER) => words(&[NODES]),
            _ => words(&["system:masters"]),
        };
        let subject = Subject { name: format!("{HOST_USER}{host}"), organizations: words(&[HOSTS]), has_more: false };
        Asked {
            name: name.into(),
            user: user.into(),
            groups,
            usages: words(&["digital signature", "client auth"]),
            subject,
            key: "k1".into(),
            host: Some(host.into()),
            is_kubelets: false,
        }
    }

    fn token() -> Token {
        let end = "2026-11-18T12:00:00Z".parse().unwrap();
        Token::read(&token::secret("abcdef", "0123456789abcdef", end, None)).unwrap()
    }

    fn at(token: Option<&Token>, is_registered: bool) -> Circumstances<'_> {
        Circumstances { token, is_registered, is_claimed: false, now: "2026-11-18T11:00:00Z".parse().unwrap() }
    }

    const BY_TOKEN: &str = "system:bootstrap:abcdef";

    fn denied(verdict: Verdict, why: &str) {
        let Verdict::Deny(told) = &verdict else { panic!("{why}: {verdict:?}") };
        assert!(told.contains(why), "{told}");
    }

    #[test]
    fn a_token_lets_one_host_in() {
        let request = asked("byoh-csr-node1", BY_TOKEN, "node1");
        let verdict = judge(&request, at(Some(&token()), false));
        assert!(matches!(&verdict, Verdict::Approve { host, .. } if host == "node1"), "{verdict:?}");
        denied(judge(&request, at(None, false)), "was used or revoked");
        denied(judge(&request, at(Some(&token()), true)), "--host node1");
        let expired = Token { expires: Some("2026-11-18T11:00:00Z".parse().unwrap()), ..token() };
        denied(judge(&request, at(Some(&expired), false)), "has expired");
        let bound = Token { host: Some("node10".into()), ..token() };
        denied(judge(&request, at(Some(&bound), false)), "node10 only");
        let bound = Token { host: Some("node1".into()), ..token() };
        assert!(matches!(judge(&request, at(Some(&bound), true)), Verdict::Approve { .. }), "it registers anew");
        let of_kubelet = Token { kubelet_of: Some("node1".into()), ..token() };
        denied(judge(&request, at(Some(&of_kubelet), false)), "does not let hosts in");
        let used = |key: &str| Token { used_by: Some(UsedBy { host: "node1".into(), key: key.into() }), ..token() };
        assert!(matches!(judge(&request, at(Some(&used("k1")), false)), Verdict::Approve { .. }), "after a crash");
        denied(judge(&request, at(Some(&used("k2")), false)), "used already, by the host node1");
    }

    #[test]
    fn names_are_exact() {
        for name in ["byoh-csr-node10", "byoh-csr-node", "byoh-csr-node1-x", "node1", "byoh-csr-node1-0123456789a"] {
            denied(judge(&asked(name, BY_TOKEN, "node1"), at(Some(&token()), false)), "is not named");
        }
        let hashed = asked("byoh-csr-node1-0123456789", BY_TOKEN, "node1");
        assert!(matches!(judge(&hashed, at(Some(&token()), false)), Verdict::Approve { .. }));
        let odd = asked("byoh-csr-node1", BY_TOKEN, "node1:admin");
        denied(judge(&odd, at(Some(&token()), false)), "common name");
    }

    #[test]
    fn a_host_renews_its_own_certificate_only() {
        let own = asked("byoh-csr-node1-0123456789", "byoh:host:node1", "node1");
        assert!(matches!(judge(&own, at(None, true)), Verdict::Approve { .. }));
        denied(judge(&own, at(None, false)), "not registered any more");
        let other = asked("byoh-csr-node10", "byoh:host:node1", "node10");
        denied(judge(&other, at(None, true)), "byoh:host:node1 may not");
        let person = asked("byoh-csr-node1", "jane", "node1");
        assert!(matches!(judge(&person, at(None, true)), Verdict::Leave(_)));
    }

    #[test]
    fn nothing_more_is_asked_for() {
        let base = asked("byoh-csr-node1", BY_TOKEN, "node1");
        let with = |change: &dyn Fn(&mut Asked)| {
            let mut request = base.clone();
            change(&mut request);
            judge(&request, at(Some(&token()), false))
        };
        denied(with(&|request| request.subject.organizations = words(&["system:masters"])), "organization");
        denied(with(&|request| request.subject.organizations.push("system:masters".into())), "organization");
        denied(with(&|request| request.subject.has_more = true), "more than");
        denied(with(&|request| request.usages.push("server auth".into())), "server auth");
        denied(with(&|request| request.usages = words(&["digital signature"])), "client auth");
    }

    #[test]
    fn kubelets_join_where_a_machine_holds_their_host() {
        let mut request = asked("csr-x", BY_TOKEN, "node1");
        request.is_kubelets = true;
        request.subject = Subject { name: "system:node:node1".into(), organizations: words(&[NODES]), has_more: false };
        let of = |host: &str| Token { kubelet_of: Some(host.into()), ..token() };
        let judge = |request: &Asked, token: Option<&Token>, is_claimed: bool| {
            judge(request, Circumstances { is_claimed, ..at(token, true) })
        };
        assert!(matches!(judge(&request, Some(&of("node1")), true), Verdict::Approve { .. }));
        denied(judge(&request, Some(&of("node1")), false), "no machine holds");
        denied(judge(&request, Some(&of("node10")), true), "kubelet of node10 only");
        // A token of another kind is kube-controller-manager's business.
        assert!(matches!(judge(&request, Some(&token()), true), Verdict::Leave(_)));
        let renewal = Asked { user: "system:node:node1".into(), groups: words(&[NODES]), ..request.clone() };
        assert!(matches!(judge(&renewal, None, true), Verdict::Approve { .. }));
        let foreign = Asked { user: "system:node:node2".into(), groups: words(&[NODES]), ..request };
        assert!(matches!(judge(&foreign, None, true), Verdict::Leave(_)));
    }
}
