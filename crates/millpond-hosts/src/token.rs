//! Bootstrap tokens: Secrets of type `bootstrap.kubernetes.io/token` that let a host, or a host's kubelet, in once.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;

/// Namespace of the Secrets.
pub const NAMESPACE: &str = "kube-system";
/// Type of the Secrets.
pub const TYPE: &str = "bootstrap.kubernetes.io/token";
/// The group of users that authenticate with tokens.
pub const GROUP: &str = "system:bootstrappers:byoh";
/// User names of tokens begin with this; the ID of the token follows.
pub const USER: &str = "system:bootstrap:";
/// Label of the Secrets with what the token is for.
pub const LABEL: &str = "millpond.dev/token";
/// Value of the label: hosts register with the token.
pub const FOR_HOSTS: &str = "host";
/// Annotation with the host and the key that have used the token.
pub const USED_BY: &str = "millpond.dev/used-by";
/// Data key with the only host that may register with the token.
const HOST: &str = "byoh-host";
/// Data key with the host whose kubelet joins with the token; hosts do not register with it.
pub const KUBELET_OF: &str = "millpond-host";

/// A token without its secret part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Its first part.
    pub id: String,
    /// When it ends; never without one.
    pub expires: Option<Timestamp>,
    /// Whether clients can authenticate with it.
    pub authenticates: bool,
    /// Whether these clients are members of [`GROUP`].
    pub registers: bool,
    /// The only host that may register with it.
    pub host: Option<String>,
    /// The host whose kubelet joins with it.
    pub kubelet_of: Option<String>,
    /// The host that has used it.
    pub used_by: Option<UsedBy>,
    /// Version of the Secret.
    pub version: Option<String>,
    pub(crate) is_labelled: bool,
}

/// The use of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedBy {
    /// Name of the host.
    pub host: String,
    /// The key of the host.
    pub key: String,
}

impl UsedBy {
    /// As the annotation has it.
    pub fn text(&self) -> String {
        format!("{}/{}", self.host, self.key)
    }

    fn read(text: &str) -> Self {
        let (host, key) = text.split_once('/').unwrap_or((text, ""));
        Self { host: host.to_owned(), key: key.to_owned() }
    }
}

impl Token {
    /// The token of a Secret; `None` if the Secret is of another type.
    pub fn read(secret: &Secret) -> Option<Self> {
        if secret.type_.as_deref() != Some(TYPE) {
            return None;
        }
        let data = |key: &str| {
            let bytes = secret.data.as_ref().and_then(|data| data.get(key)).map(|bytes| bytes.0.clone());
            let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
            text.or_else(|| secret.string_data.as_ref()?.get(key).cloned()).filter(|text| !text.is_empty())
        };
        let meta = &secret.metadata;
        let groups = data("auth-extra-groups").unwrap_or_default();
        Some(Self {
            id: data("token-id")?,
            expires: data("expiration").map(|text| text.parse().unwrap_or(Timestamp::UNIX_EPOCH)),
            authenticates: data("usage-bootstrap-authentication").as_deref() == Some("true"),
            registers: groups.split(',').any(|group| group.trim() == GROUP),
            host: data(HOST),
            kubelet_of: data(KUBELET_OF),
            used_by: meta.annotations.as_ref().and_then(|all| all.get(USED_BY)).map(|text| UsedBy::read(text)),
            version: meta.resource_version.clone(),
            is_labelled: meta.labels.as_ref().and_then(|all| all.get(LABEL)).is_some_and(|value| value == FOR_HOSTS),
        })
    }

    /// Whether its time is over.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|end| end <= now)
    }

    /// Whether `millpond host token create` made it.
    pub fn is_for_hosts(&self) -> bool {
        self.is_labelled
    }
}

/// Name of the Secret of a token.
pub fn secret_name(id: &str) -> String {
    format!("bootstrap-token-{id}")
}

/// The Secret of a token that a host registers with.
pub fn secret(id: &str, secret: &str, expires: Timestamp, host: Option<&str>) -> Secret {
    let expiration = expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut data = BTreeMap::from(
        [
            ("token-id", id),
            ("token-secret", secret),
            ("expiration", &expiration),
            ("usage-bootstrap-authentication", "true"),
            ("auth-extra-groups", GROUP),
            ("description", "lets one host register"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    if let Some(host) = host {
        data.insert(HOST.to_owned(), host.to_owned());
    }
    let labels = BTreeMap::from([(LABEL.to_owned(), FOR_HOSTS.to_owned())]);
    Secret {
        metadata: ObjectMeta {
            name: Some(secret_name(id)),
            namespace: Some(NAMESPACE.to_owned()),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        type_: Some(TYPE.to_owned()),
        string_data: Some(data),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_read_what_is_written() {
        let end: Timestamp = "2026-11-18T12:00:00Z".parse().unwrap();
        let token = Token::read(&secret("abcdef", "0123456789abcdef", end, Some("node10"))).unwrap();
        assert_eq!((token.id.as_str(), token.host.as_deref(), token.expires), ("abcdef", Some("node10"), Some(end)));
        assert!(token.authenticates && token.registers && token.is_for_hosts() && token.is_expired(end));
        assert!(!token.is_expired(end - jiff::SignedDuration::from_secs(1)));
        assert!(!format!("{token:?}").contains("0123456789abcdef"));
        assert_eq!(Token::read(&Secret::default()), None);
        let used = UsedBy { host: "node10".into(), key: "ab12".into() };
        assert_eq!(UsedBy::read(&used.text()), used);
    }
}
