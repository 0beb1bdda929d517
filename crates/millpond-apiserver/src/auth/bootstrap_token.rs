//! Bootstrap tokens: `ID.SECRET`, each kept in a Secret `kube-system/bootstrap-token-ID` of type
//! `bootstrap.kubernetes.io/token`. A machine that knows one may ask for a certificate, and verify with it that
//! `kube-public/cluster-info` is from this cluster.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use ring::hmac;
use serde_json::{Value, json};

use super::Identity;
use crate::server::Server;

/// Keys of the Secrets under which bootstrap tokens are kept start with this.
pub(crate) const KEY_PREFIX: &str = "kube-system/bootstrap-token-";
/// The type of those Secrets.
const TYPE: &str = "bootstrap.kubernetes.io/token";
const GROUP: &str = "system:bootstrappers";
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;

/// The user of a bootstrap token, if the token is known, not expired and usable for authentication.
pub(super) fn identity(server: &Server, token: &str) -> Option<Identity> {
    let (id, secret) = token.split_once('.').filter(|(id, secret)| {
        is_plain(id) && id.len() == ID_LENGTH && is_plain(secret) && secret.len() == SECRET_LENGTH
    })?;
    let stored = server.store.get("secrets", &format!("{KEY_PREFIX}{id}")).filter(|stored| !stored.index.deleting)?;
    let stored = BootstrapToken::of(&stored.to_value())?;
    let now = server.clock.now();
    let right = is_same(&stored.secret, secret) && stored.id == id && stored.authenticates && !stored.has_expired(now);
    let groups = stored.groups.filter(|_| right)?;
    Some(Identity::new(format!("system:bootstrap:{id}"), groups))
}

fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
}

/// Compares all bytes in any case, so that timing reveals nothing.
fn is_same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, |seen, (a, b)| seen | (a ^ b)) == 0
}

/// A bootstrap token as its Secret describes it.
pub(crate) struct BootstrapToken {
    pub(crate) id: String,
    secret: String,
    expiration: Expiration,
    authenticates: bool,
    signs: bool,
    /// `None` if the token names a group that tokens may not give.
    groups: Option<Vec<String>>,
}

enum Expiration {
    Never,
    At(Timestamp),
    /// The time cannot be parsed, so the token counts as expired.
    Unreadable,
}

impl BootstrapToken {
    /// Reads a Secret; `None` for one of another type.
    pub(crate) fn of(secret: &Value) -> Option<Self> {
        if secret["type"] != TYPE {
            return None;
        }
        let data = |key: &str| {
            let bytes = secret["data"][key].as_str().and_then(|text| STANDARD.decode(text).ok());
            bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
        };
        let expiration = match data("expiration").as_str() {
            "" => Expiration::Never,
            text => text.parse().map_or(Expiration::Unreadable, Expiration::At),
        };
        Some(Self {
            id: data("token-id"),
            secret: data("token-secret"),
            expiration,
            authenticates: data("usage-bootstrap-authentication") == "true",
            signs: data("usage-bootstrap-signing") == "true",
            groups: groups(&data("auth-extra-groups")),
        })
    }

    /// Whether the token is of no use any more.
    pub(crate) fn has_expired(&self, now: Timestamp) -> bool {
        match self.expiration {
            Expiration::Never => false,
            Expiration::At(end) => end <= now,
            Expiration::Unreadable => true,
        }
    }

    /// How long the token still lives, if it ends.
    pub(crate) fn time_left(&self, now: Timestamp) -> Option<SignedDuration> {
        match self.expiration {
            Expiration::At(end) => Some(end.duration_since(now)),
            Expiration::Never | Expiration::Unreadable => None,
        }
    }

    /// Whether the token signs the cluster's description. `key` is that of its Secret.
    pub(crate) fn signs(&self, key: &str, now: Timestamp) -> bool {
        let named = key
            .strip_prefix(KEY_PREFIX)
            .is_some_and(|name| name == self.id && is_plain(name) && name.len() == ID_LENGTH);
        named && !self.secret.is_empty() && self.signs && !self.has_expired(now)
    }

    /// The token's signature of a text: a JSON web signature without its content.
    pub(crate) fn signature(&self, content: &str) -> String {
        let header = URL_SAFE_NO_PAD.encode(json!({"alg": "HS256", "kid": self.id}).to_string());
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
        let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, self.secret.as_bytes()), signed.as_bytes());
        format!("{header}..{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// The groups of a token; `None` when one of the extra groups is not below `system:bootstrappers:`.
fn groups(extra: &str) -> Option<Vec<String>> {
    const MAX: usize = 256;
    let mut groups = BTreeSet::from([GROUP.to_owned()]);
    for group in extra.split(',').filter(|_| !extra.is_empty()) {
        let name = group.strip_prefix(GROUP)?.strip_prefix(':')?;
        let allowed = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase() || matches!(byte, b':' | b'-');
        let ends_well = name.bytes().last().is_some_and(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase());
        if !ends_well || name.len() > MAX || !name.bytes().all(allowed) {
            return None;
        }
        groups.insert(group.to_owned());
    }
    Some(groups.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(id: &str, secret: &str) -> Value {
        let data = |text: &str| STANDARD.encode(text);
        json!({"type": TYPE, "data": {"token-id": data(id), "token-secret": data(secret)}})
    }

    #[test]
    fn signatures_are_those_of_kubernetes() {
        let token = BootstrapToken::of(&secret("joshua", "my voice is my passcode")).unwrap();
        assert_eq!(
            token.signature("Hello from the other side. I must have called a thousand times."),
            "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8"
        );
        assert_eq!(
            token.signature(""),
            "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..7Ui1ALizW4jXphVUB7xUqC9vLYLL9RZeOFfVLoB7Tgk"
        );
    }

    #[test]
    fn extra_groups_must_be_below_the_bootstrappers() {
        assert_eq!(groups(""), Some(vec![GROUP.to_owned()]));
        let two = "system:bootstrappers:b,system:bootstrappers:a:x-1,system:bootstrappers:b";
        let wanted = [GROUP, "system:bootstrappers:a:x-1", "system:bootstrappers:b"];
        assert_eq!(groups(two), Some(wanted.map(str::to_owned).to_vec()));
        for wrong in
            ["system:masters", "system:bootstrappers:", "system:bootstrappers:A", "system:bootstrappers:a,", "a"]
        {
            assert_eq!(groups(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_time_that_cannot_be_read_has_passed() {
        let at = |text: &str| {
            let mut secret = secret("abcdef", "0123456789abcdef");
            secret["data"]["expiration"] = json!(STANDARD.encode(text));
            BootstrapToken::of(&secret).unwrap().has_expired("2026-03-10T03:22:11Z".parse().unwrap())
        };
        assert_eq!([at(""), at("2026-03-10T03:22:12Z"), at("2026-03-10T04:22:12+01:00")], [false, false, false]);
        assert_eq!([at("2026-03-10T03:22:11Z"), at("tomorrow")], [true, true]);
    }
}
