//! The part of a kubeconfig that tests need.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;

/// Address and credentials of an API server.
#[derive(Clone, Debug)]
pub struct Access {
    /// `https://127.0.0.1:PORT`
    pub server: String,
    /// The certificates that the server's own is checked against, in PEM.
    pub ca_pem: String,
    /// The user's bearer token, if there is one.
    pub token: Option<String>,
    /// Client certificate and its key, in PEM, if that is how.
    pub client_pem: Option<(String, String)>,
}

impl Access {
    /// Reads the current context of a kubeconfig file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("read `{}`", path.display()))?;
        Self::parse(&text).with_context(|| format!("kubeconfig `{}`", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let file: File = serde_saphyr::from_str(text).context("parse")?;
        let context = named(file.contexts, &file.current_context, "context")?.context;
        let cluster = named(file.clusters, &context.cluster, "cluster")?.cluster;
        let user = named(file.users, &context.user, "user")?.user;
        let client_pem = match (user.client_certificate_data, user.client_key_data) {
            (Some(certificate), Some(key)) => Some((decode(&certificate)?, decode(&key)?)),
            _ => None,
        };
        Ok(Self {
            server: cluster.server,
            ca_pem: decode(&cluster.certificate_authority_data)?,
            token: user.token,
            client_pem,
        })
    }

    /// Writes a kubeconfig that only its owner can read.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut user = serde_json::Map::new();
        if let Some(token) = &self.token {
            user.insert("token".into(), token.as_str().into());
        }
        if let Some((certificate, key)) = &self.client_pem {
            user.insert("client-certificate-data".into(), BASE64.encode(certificate).into());
            user.insert("client-key-data".into(), BASE64.encode(key).into());
        }
        let cluster = serde_json::json!({
            "server": self.server,
            "certificate-authority-data": BASE64.encode(&self.ca_pem),
        });
        // JSON is YAML.
        let file = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        let text = serde_json::to_string_pretty(&file).context("render")?;
        write_private(path, text.as_bytes())
    }
}

/// A client of the server that a kubeconfig names.
#[cfg(feature = "client")]
pub(crate) async fn client(path: &Path) -> Result<kube::Client> {
    use kube::config::{KubeConfigOptions, Kubeconfig};
    let file = Kubeconfig::read_from(path).with_context(|| format!("read `{}`", path.display()))?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("use `{}`", path.display()))?;
    kube::Client::try_from(config).context("make a client")
}

/// Writes a file of mode 0600.
pub(crate) fn write_private(path: &Path, contents: &[u8]) -> Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("create `{}`", path.display()))?;
    file.write_all(contents).with_context(|| format!("write `{}`", path.display()))
}

fn decode(data: &str) -> Result<String> {
    let bytes = BASE64.decode(data.trim()).context("decode base64")?;
    String::from_utf8(bytes).context("decode PEM")
}

fn named<T: Named>(entries: Vec<T>, name: &str, what: &str) -> Result<T> {
    entries.into_iter().find(|entry| entry.name() == name).with_context(|| format!("has no {what} `{name}`"))
}

trait Named {
    fn name(&self) -> &str;
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    current_context: String,
    contexts: Vec<NamedContext>,
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority_data: String,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

impl Named for NamedContext {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Named for NamedCluster {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Named for NamedUser {
    fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn written_access_reads_back_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let access = Access {
            server: "https://127.0.0.1:6443".into(),
            ca_pem: "-----BEGIN CERTIFICATE-----\n".into(),
            token: Some("secret".into()),
            client_pem: Some(("certificate".into(), "key".into())),
        };
        access.write(&path).unwrap();
        let read = Access::read(&path).unwrap();
        assert_eq!(format!("{read:?}"), format!("{access:?}"));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn names_what_a_kubeconfig_lacks() {
        let text =
            "current-context: a\ncontexts: [{name: a, context: {cluster: b, user: c}}]\nclusters: []\nusers: []\n";
        let error = format!("{:#}", Access::parse(text).unwrap_err());
        assert_eq!(error, "has no cluster `b`");
    }
}
