//! Credentials that hosts join with in tlsBootstrap mode: bootstrap tokens, kubeconfigs and kubelet's configuration.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::{Resource, ResourceExt};
use millpond_api::byoh::BootstrapKubeconfigSpec;
use millpond_api::node_class::Kubelet;
use millpond_runtime::error::Result;
use millpond_runtime::meta::{Key, controller_reference};
use rand::RngExt;

use crate::kinds::ByoHost;
use crate::secrets::{self, Wanted};
use crate::stock::Stock;

/// Lifetime of a bootstrap token, as the original provider has it.
pub(crate) const TOKEN_TTL: Duration = Duration::from_mins(30);
/// Group of kubelets that join with a bootstrap token: kubeadm's, whose certificate requests kubeadm's clusters approve.
pub(crate) const BOOTSTRAP_GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";
/// Entry of a bootstrap token's Secret: the host that the token is for.
pub(crate) const TOKEN_HOST: &str = "millpond-host";
/// Namespace of bootstrap tokens.
const TOKEN_NAMESPACE: &str = "kube-system";
/// On a Secret with credentials: the id of its bootstrap token, when that expires, and the host that it is for.
const TOKEN_ID: &str = "millpond.dev/bootstrap-token-id";
/// See [`TOKEN_ID`].
const TOKEN_EXPIRES: &str = "millpond.dev/bootstrap-token-expires";
/// See [`TOKEN_ID`].
const FOR_HOST: &str = "millpond.dev/host";
/// Entry of a ConfigMap with a KubeletConfiguration, as kubeadm names it.
const KUBELET: &str = "kubelet";
/// Type of Cluster API's Secrets.
const CLUSTER_SECRET: &str = "cluster.x-k8s.io/secret";

/// Where hosts find the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    server: String,
    /// In PEM.
    ca: Vec<u8>,
    insecure: bool,
}

/// The API server of a BootstrapKubeconfig, or why there is none.
pub(crate) async fn endpoint(
    stock: &Stock,
    namespace: &str,
    spec: &BootstrapKubeconfigSpec,
) -> Result<Result<Endpoint, String>> {
    let own = stock.options.api_server.as_ref();
    let server = match (spec.apiserver.as_str(), own) {
        ("", None) => return Ok(Err("spec.apiserver is empty".to_owned())),
        ("", Some(own)) => own.url.clone(),
        (given, _) if given.contains("://") => given.to_owned(),
        (given, _) => format!("https://{given}"),
    };
    let given = spec.certificate_authority_data.as_str();
    let ca = if given.is_empty() {
        let of_cluster = secrets::config(&stock.client, &Key::new(namespace, "kube-root-ca.crt"), "ca.crt").await?;
        of_cluster.map(String::into_bytes).or_else(|| own.map(|own| own.ca.clone())).unwrap_or_default()
    } else {
        match STANDARD.decode(given.trim()) {
            Ok(ca) => ca,
            Err(error) => return Ok(Err(format!("spec.certificate-authority-data is not base64: {error}"))),
        }
    };
    if ca.is_empty() && !spec.insecure_skip_tls_verify {
        return Ok(Err("spec.certificate-authority-data is empty".to_owned()));
    }
    Ok(Ok(Endpoint { server, ca, insecure: spec.insecure_skip_tls_verify }))
}

/// A bootstrap token. Its secret half is in no log: the type does not show it.
pub(crate) struct Token {
    id: String,
    secret: String,
    expires: Timestamp,
}

/// Makes a bootstrap token, for one host if one is named.
pub(crate) async fn make_token(stock: &Stock, purpose: &str, host: Option<&str>) -> Result<Token> {
    let lifetime = SignedDuration::try_from(TOKEN_TTL).unwrap_or(SignedDuration::MAX);
    let expires = stock.options.clock.time().0.saturating_add(lifetime).unwrap_or(Timestamp::MAX);
    let token = Token { id: random(6), secret: random(16), expires };
    let mut data = BTreeMap::from([
        ("token-id".to_owned(), token.id.clone()),
        ("token-secret".to_owned(), token.secret.clone()),
        ("expiration".to_owned(), token.expires.to_string()),
        ("usage-bootstrap-authentication".to_owned(), "true".to_owned()),
        ("auth-extra-groups".to_owned(), BOOTSTRAP_GROUP.to_owned()),
        ("description".to_owned(), purpose.to_owned()),
    ]);
    if let Some(host) = host {
        data.insert(TOKEN_HOST.to_owned(), host.to_owned());
    }
    let wanted = Wanted {
        key: token_key(&token.id),
        kind: "bootstrap.kubernetes.io/token",
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        owner: None,
        data: data.into_iter().map(|(name, text)| (name, text.into_bytes())).collect(),
    };
    secrets::put(&stock.client, wanted).await?;
    Ok(token)
}

fn token_key(id: &str) -> Key {
    Key::new(TOKEN_NAMESPACE, &format!("bootstrap-token-{id}"))
}

/// Letters and digits of bootstrap tokens, from a generator fit for secrets.
fn random(length: usize) -> String {
    const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut random = rand::rng();
    (0..length).map(|_| char::from(ALPHABET[random.random_range(0..ALPHABET.len())])).collect()
}

/// The name of the Secret that a machine joins with.
pub(crate) fn secret_name(machine: &str) -> String {
    format!("{machine}-tls-bootstrap")
}

/// Whether the token of a Secret lives for another while; a Secret of another host never does.
pub(crate) fn is_fresh(stock: &Stock, secret: &Secret, host: Option<&str>) -> bool {
    let annotation = |key: &str| secret.annotations().get(key).map(String::as_str);
    let expires = annotation(TOKEN_EXPIRES).and_then(|text| text.parse::<Timestamp>().ok());
    annotation(FOR_HOST) == host && expires.is_some_and(|expires| stock.options.clock.until(expires) > TOKEN_TTL / 3)
}

/// What a Secret with credentials is to be.
pub(crate) struct Credentials<'a, O> {
    pub(crate) key: Key,
    pub(crate) owner: &'a O,
    pub(crate) cluster: Option<&'a str>,
    pub(crate) host: Option<&'a ByoHost>,
    /// ConfigMaps with a KubeletConfiguration, the first one that exists counts.
    pub(crate) kubelet: Vec<Key>,
    /// Settings of kubelet where no ConfigMap has a configuration.
    pub(crate) settings: Kubelet,
}

/// Makes sure that a Secret holds a kubeconfig with a token that lives for another while.
pub(crate) async fn ensure<O: Resource<DynamicType = ()>>(
    stock: &Stock,
    endpoint: &Endpoint,
    wanted: Credentials<'_, O>,
) -> Result<()> {
    let host = wanted.host.map(ByoHost::name);
    let known = secrets::get(&stock.client, &wanted.key).await?;
    if known.as_ref().is_some_and(|known| is_fresh(stock, known, host)) {
        return Ok(());
    }
    let purpose = format!("joins a cluster with {}", wanted.key);
    let token = make_token(stock, &purpose, host).await?;
    let old = known.as_ref().and_then(|known| known.annotations().get(TOKEN_ID).cloned());
    let kubeconfig = kubeconfig(endpoint, &token).into_bytes();
    let mut annotations = BTreeMap::from([
        (TOKEN_ID.to_owned(), token.id.clone()),
        (TOKEN_EXPIRES.to_owned(), token.expires.to_string()),
    ]);
    annotations.extend(host.map(|host| (FOR_HOST.to_owned(), host.to_owned())));
    let mut kubelet = None;
    for key in &wanted.kubelet {
        kubelet = kubelet.or(secrets::config(&stock.client, key, KUBELET).await?);
    }
    let cgroups = wanted.host.map_or(0, |host| host.status.facts.os.cgroup_version);
    let data = BTreeMap::from([
        ("value".to_owned(), kubeconfig.clone()),
        ("bootstrap-kubeconfig".to_owned(), kubeconfig),
        ("ca.crt".to_owned(), endpoint.ca.clone()),
        (
            "kubelet-config.yaml".to_owned(),
            kubelet.unwrap_or_else(|| kubelet_config(cgroups, &wanted.settings)).into_bytes(),
        ),
    ]);
    let label = |cluster: &str| (millpond_api::capi::names::CLUSTER_NAME.to_owned(), cluster.to_owned());
    let secret = Wanted {
        key: wanted.key,
        kind: CLUSTER_SECRET,
        labels: wanted.cluster.map(label).into_iter().collect(),
        annotations,
        owner: Some(controller_reference(wanted.owner)),
        data,
    };
    secrets::put(&stock.client, secret).await?;
    match old {
        Some(old) => secrets::delete(&stock.client, &token_key(&old)).await,
        None => Ok(()),
    }
}

/// Ends the token of a Secret with credentials, and the Secret: the host has joined, or is released.
pub(crate) async fn revoke(stock: &Stock, key: &Key) -> Result<()> {
    let Some(secret) = secrets::get(&stock.client, key).await? else { return Ok(()) };
    if let Some(id) = secret.annotations().get(TOKEN_ID) {
        secrets::delete(&stock.client, &token_key(id)).await?;
    }
    secrets::delete(&stock.client, key).await
}

fn kubeconfig(endpoint: &Endpoint, token: &Token) -> String {
    let trust = if endpoint.insecure && endpoint.ca.is_empty() {
        "insecure-skip-tls-verify: true".to_owned()
    } else {
        format!("certificate-authority-data: {}", STANDARD.encode(&endpoint.ca))
    };
    let (server, Token { id, secret, .. }) = (&endpoint.server, token);
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: cluster\n  cluster:\n    server: {server}\n    {trust}\nusers:\n\
         - name: bootstrap\n  user:\n    token: {id}.{secret}\ncontexts:\n- name: bootstrap\n  context:\n    \
         cluster: cluster\n    user: bootstrap\ncurrent-context: bootstrap\n"
    )
}

/// KubeletConfiguration of a host, where no ConfigMap has one.
fn kubelet_config(cgroup_version: i64, settings: &Kubelet) -> String {
    let mut text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nauthentication:\n  \
                    anonymous:\n    enabled: false\n  webhook:\n    enabled: true\n  x509:\n    \
                    clientCAFile: /etc/kubernetes/pki/ca.crt\nauthorization:\n  mode: Webhook\n\
                    clusterDomain: cluster.local\nrotateCertificates: true\n\
                    containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n"
        .to_owned();
    if cgroup_version == 1 {
        // kubelet refuses to start on control groups of version 1 since 1.35, unless this says otherwise.
        text.push_str("failCgroupV1: false\n");
    }
    for (field, number) in [("maxPods", settings.max_pods), ("podsPerCore", settings.pods_per_core)] {
        if let Some(number) = number {
            let _ = writeln!(text, "{field}: {number}");
        }
    }
    for (field, amounts) in [("systemReserved", &settings.system_reserved), ("kubeReserved", &settings.kube_reserved)] {
        if let Some(amounts) = amounts {
            // JSON is YAML.
            let _ = writeln!(text, "{field}: {}", serde_json::json!(amounts));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_what_kubelet_reads() {
        let endpoint = Endpoint { server: "https://10.0.0.1:6443".into(), ca: b"PEM".to_vec(), insecure: false };
        let token = Token { id: "abcdef".into(), secret: "0123456789abcdef".into(), expires: Timestamp::MAX };
        let text = kubeconfig(&endpoint, &token);
        assert!(text.contains("    server: https://10.0.0.1:6443\n    certificate-authority-data: UEVN\n"), "{text}");
        assert!(text.contains("    token: abcdef.0123456789abcdef\n"), "{text}");
        let plain = |version| kubelet_config(version, &Kubelet::default());
        assert!(!plain(2).contains("failCgroupV1") && plain(1).contains("failCgroupV1: false"));
        let settings: Kubelet =
            serde_json::from_str(r#"{"maxPods": 20, "systemReserved": {"cpu": "100m", "memory": "200Mi"}}"#).unwrap();
        let set = kubelet_config(2, &settings);
        assert!(set.ends_with("maxPods: 20\nsystemReserved: {\"cpu\":\"100m\",\"memory\":\"200Mi\"}\n"), "{set}");
        let random: Vec<String> = (0..2).map(|_| random(16)).collect();
        assert!(random[0] != random[1] && random[0].len() == 16);
    }
}
