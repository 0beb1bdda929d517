//! `millpond ci builder-ssh-key` and `millpond ci builder-accept-host-key`: how image-builders and the builder come to
//! trust each other. With a cluster, keys are in a Secret and a ConfigMap; without one, in a folder.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use millpond_ci::builder::ssh::{
    self, CONFIG_MAP, Host, HostKey, KNOWN_HOSTS, KeyPair, PRIVATE, PUBLIC, SECRET, SshError, SshFolder,
};
use serde_json::json;

use super::builder::SshArgs;
use super::{CommonArgs, source};
use crate::commands::{cluster, print};
use crate::failure::{Code, Failure};

#[derive(Debug, Args)]
pub(super) struct KeyArgs {
    /// Write it to this file instead
    #[arg(long, value_name = "FILE")]
    pubkey: Option<PathBuf>,
    #[command(flatten)]
    ssh: SshArgs,
}

#[derive(Debug, Args)]
pub(super) struct AcceptArgs {
    /// The image-builder: HOST or HOST:PORT
    host: String,
    /// Accept the host only if one of its keys has this fingerprint, and do not ask
    #[arg(long, value_name = "SHA256:…")]
    fingerprint: Option<String>,
    /// Accept what the host shows, and do not ask
    #[arg(long)]
    yes: bool,
    /// Accept keys that differ from accepted ones: the host was set up again
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    ssh: SshArgs,
}

/// Where keys are.
enum KeyLocation {
    Cluster(Client, String),
    Folder(SshFolder),
}

impl KeyLocation {
    /// A folder if one is named, or if the configuration has ZooKeeper and no cluster is named.
    async fn find(args: &CommonArgs, ssh: &SshArgs, messages: &mut impl Write) -> anyhow::Result<Self> {
        if let Some(folder) = &ssh.ssh_dir {
            return Ok(Self::Folder(SshFolder(folder.clone())));
        }
        let config = args.configuration(messages)?;
        let is_named = args.kubeconfig.is_some() || args.context.is_some();
        let in_zookeeper = config.as_ref().is_some_and(|config| !config.zookeeper.servers.is_empty());
        if in_zookeeper && !is_named && !cluster::has_service_account() {
            let folder = ssh.folder(config.as_ref()).context("`--ssh-dir DIR` names the folder of keys")?;
            return Ok(Self::Folder(folder));
        }
        let client = cluster::connect(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
        Ok(Self::Cluster(client, args.namespace().to_owned()))
    }

    async fn key_pair(&self) -> anyhow::Result<KeyPair> {
        match self {
            Self::Folder(folder) => folder.ensure().map_err(explain),
            Self::Cluster(client, namespace) => ensure_secret(client, namespace).await,
        }
    }

    async fn known_hosts(&self) -> anyhow::Result<String> {
        match self {
            Self::Folder(folder) => folder.known_hosts().map_err(explain),
            Self::Cluster(client, namespace) => read_known_hosts(client, namespace).await,
        }
    }

    async fn write_known_hosts(&self, text: &str) -> anyhow::Result<()> {
        match self {
            Self::Folder(folder) => folder.write_known_hosts(text).map_err(explain),
            Self::Cluster(client, namespace) => {
                let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
                let data = BTreeMap::from([(KNOWN_HOSTS.to_owned(), text.to_owned())]);
                let metadata = ObjectMeta { name: Some(CONFIG_MAP.to_owned()), ..ObjectMeta::default() };
                let object = ConfigMap { metadata, data: Some(data.clone()), ..ConfigMap::default() };
                match api.create(&PostParams::default(), &object).await {
                    Err(kube::Error::Api(status)) if status.is_already_exists() => {
                        let patch = Patch::Merge(json!({"data": data}));
                        api.patch(CONFIG_MAP, &PatchParams::default(), &patch).await.map(drop)
                    }
                    created => created.map(drop),
                }
                .with_context(|| format!("cannot write the ConfigMap `{namespace}/{CONFIG_MAP}`"))
            }
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Folder(folder) => folder.file(KNOWN_HOSTS).display().to_string(),
            Self::Cluster(_, namespace) => format!("ConfigMap {namespace}/{CONFIG_MAP}"),
        }
    }
}

/// The key pair of the Secret, made if there is none.
pub(super) async fn ensure_secret(client: &Client, namespace: &str) -> anyhow::Result<KeyPair> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let read = || async {
        let found = api.get_opt(SECRET).await;
        let found = found.with_context(|| format!("cannot read the Secret `{namespace}/{SECRET}`"))?;
        let text = |secret: &Secret, key: &str| {
            let bytes = secret.data.as_ref()?.get(key)?;
            String::from_utf8(bytes.0.clone()).ok()
        };
        let pair = found.as_ref().map(|secret| (text(secret, PRIVATE), text(secret, PUBLIC)));
        match pair {
            None => Ok(None),
            Some((Some(private), Some(public))) => Ok(Some(KeyPair { private, public })),
            Some(_) => {
                let message = format!("the Secret `{namespace}/{SECRET}` lacks `{PRIVATE}` or `{PUBLIC}`");
                let hint = Some("delete it, and a new key pair is made".to_owned());
                Err(anyhow::Error::from(Failure { message, code: None, hint }))
            }
        }
    };
    if let Some(pair) = read().await? {
        return Ok(pair);
    }
    let pair = tokio::task::spawn_blocking(ssh::generate).await.context("make a key pair")?.map_err(explain)?;
    let secret = Secret {
        metadata: ObjectMeta { name: Some(SECRET.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([
            (PRIVATE.to_owned(), ByteString(pair.private.clone().into_bytes())),
            (PUBLIC.to_owned(), ByteString(pair.public.clone().into_bytes())),
        ])),
        ..Secret::default()
    };
    match api.create(&PostParams::default(), &secret).await {
        Ok(_) => Ok(pair),
        // Another builder was first.
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            read().await?.context("the Secret is gone again")
        }
        Err(error) => Err(error).with_context(|| format!("cannot create the Secret `{namespace}/{SECRET}`")),
    }
}

async fn read_known_hosts(client: &Client, namespace: &str) -> anyhow::Result<String> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let found = api.get_opt(CONFIG_MAP).await;
    let found = found.with_context(|| format!("cannot read the ConfigMap `{namespace}/{CONFIG_MAP}`"))?;
    Ok(found.and_then(|map| map.data?.remove(KNOWN_HOSTS)).unwrap_or_default())
}

/// Puts the cluster's keys into a folder, where ssh finds them. Host keys that were accepted in the folder itself (by
/// `ssh` in the builder's container) stay.
pub(super) async fn bring(client: &Client, namespace: &str, folder: &SshFolder) -> anyhow::Result<()> {
    let pair = ensure_secret(client, namespace).await?;
    folder.write(&pair).map_err(explain)?;
    let accepted = read_known_hosts(client, namespace).await?;
    let local = folder.known_hosts().map_err(explain)?;
    let text = ssh::merge(&accepted, &local);
    folder.write_known_hosts(&text).map_err(explain)
}

/// Prints the public key, made if there is none.
pub(super) fn run_key(
    args: &CommonArgs,
    key: &KeyArgs,
    out: &mut impl Write,
    messages: &mut impl Write,
) -> anyhow::Result<ExitCode> {
    let pair =
        source::runtime()?.block_on(async { KeyLocation::find(args, &key.ssh, messages).await?.key_pair().await })?;
    match &key.pubkey {
        None => print(out, &format!("{}\n", pair.public.trim_end()))?,
        Some(path) => {
            std::fs::write(path, &pair.public).with_context(|| format!("cannot write `{}`", path.display()))?;
            writeln!(messages, "File {} saved", path.display())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows the keys of a host and accepts them.
pub(super) fn run_accept(
    args: &CommonArgs,
    accept: &AcceptArgs,
    out: &mut impl Write,
    messages: &mut impl Write,
) -> anyhow::Result<ExitCode> {
    let host = Host::parse(&accept.host).map_err(|error| usage(error.to_string()))?;
    let runtime = source::runtime()?;
    let place = runtime.block_on(KeyLocation::find(args, &accept.ssh, messages))?;
    let before = runtime.block_on(place.known_hosts())?;
    let keys = ssh::scan(&host).map_err(explain)?;
    for key in &keys {
        print(out, &format!("{} {} {}\n", host.pattern(), key.kind, key.fingerprint()))?;
    }
    let after = ssh::accept(&before, &host, &keys, accept.replace).map_err(explain)?;
    if after == before {
        writeln!(messages, "{} is accepted already", host.pattern())?;
        return Ok(ExitCode::SUCCESS);
    }
    agree(accept, &host, &keys, messages)?;
    runtime.block_on(place.write_known_hosts(&after))?;
    writeln!(messages, "accepted: {}", place.shown())?;
    Ok(ExitCode::SUCCESS)
}

/// A person, or the fingerprint that a person gave, agrees.
fn agree(accept: &AcceptArgs, host: &Host, keys: &[HostKey], messages: &mut impl Write) -> anyhow::Result<()> {
    if let Some(wanted) = &accept.fingerprint {
        if keys.iter().any(|key| key.fingerprint() == *wanted) {
            return Ok(());
        }
        let message = format!("no key of `{}` has the fingerprint {wanted}", host.pattern());
        return Err(Failure { message, code: Some(Code::Conflict), hint: None }.into());
    }
    if accept.yes {
        return Ok(());
    }
    write!(messages, "Accept these keys of {}? [y/N] ", host.pattern())?;
    messages.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context("read the answer")?;
    if matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    let hint = Some("`--fingerprint SHA256:…` or `--yes` accepts without asking".to_owned());
    Err(Failure { message: "not accepted".to_owned(), code: None, hint }.into())
}

fn usage(message: String) -> anyhow::Error {
    Failure { message, code: Some(Code::Usage), hint: None }.into()
}

fn explain(error: SshError) -> anyhow::Error {
    let (code, hint) = match &error {
        SshError::Changed { .. } => {
            (Some(Code::Conflict), Some("if the host was set up again, `--replace` accepts its new key".to_owned()))
        }
        SshError::NoKeys(_) => (Some(Code::NotFound), None),
        _ => (None, None),
    };
    Failure { message: error.to_string(), code, hint }.into()
}
