//! `millpond host token`: one-time tokens, which are bootstrap tokens of Kubernetes.
//!
//! A token is a Secret of type `bootstrap.kubernetes.io/token` in `kube-system`. It lets one host ask for a certificate;
//! the approver (`millpond-hosts`) removes it when that host has registered.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand, ValueEnum};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use millpond_agent::discovery::CaHash;
use millpond_hosts::token::{self, Token};
use serde_json::json;

use crate::commands::cluster::connect;
use crate::commands::table::{Side, Table};
use crate::commands::{as_json, print};
use crate::failure::{Code, Failure};

/// Letters of a token: none that is mistaken for another is left out, since tokens are pasted.
const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// What is done with tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token, and print the command to paste on a host
    ///
    /// One host registers with it, once. With `--host` only the host of that name does, also when it was registered
    /// before.
    #[command(after_help = "Examples:
  millpond host token create
  millpond host token create --ttl 15m --host node10
  millpond host token create --server https://10.0.0.1:6443")]
    Create(CreateArgs),
    /// List tokens, without their secrets
    #[command(after_help = "Examples:
  millpond host token list
  millpond host token list -o json")]
    List(ListArgs),
    /// Remove a token: no host registers with it any more
    #[command(after_help = "Examples:
  millpond host token revoke abcdef")]
    Revoke(RevokeArgs),
}

#[derive(Debug, Args)]
struct ClusterArgs {
    /// Kubeconfig of the cluster; the current one without it
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// Arguments of `millpond host token create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// How long the token is valid
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = ttl)]
    ttl: Duration,
    /// Only the host of this name may use it
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Namespace that the host registers in
    #[arg(short, long, value_name = "NAMESPACE", default_value = "default")]
    namespace: String,
    /// Address of the API server as the host reaches it; default: that of the kubeconfig
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Arguments of `millpond host token list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// How it is printed
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A table for people
    Table,
    /// A list for scripts
    Json,
}

/// Arguments of `millpond host token revoke`.
#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// The first part of the token
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// `24h`, `15m`, `90s`, `2d`, and sums of them.
fn ttl(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no duration such as 24h, 15m or 2d");
    let spelled: SignedDuration = text
        .replace('d', "d ")
        .split_whitespace()
        .try_fold(SignedDuration::ZERO, |sum, part| {
            let days =
                part.strip_suffix('d').and_then(|days| days.parse::<i64>().ok()).map(|days| days.checked_mul(24));
            let next = match days {
                Some(hours) => hours.map(SignedDuration::from_hours),
                None => part.parse().ok(),
            };
            sum.checked_add(next?)
        })
        .ok_or_else(wrong)?;
    let duration = Duration::try_from(spelled).map_err(|_| wrong())?;
    if duration < Duration::from_secs(1) || duration > Duration::from_secs(366 * 86_400) {
        return Err(format!("`{text}` is not between a second and a year"));
    }
    Ok(duration)
}

/// Runs the command.
pub(super) fn run(command: &TokenCommand, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        match command {
            TokenCommand::Create(args) => create(args, out, messages).await,
            TokenCommand::List(args) => list(args, out).await,
            TokenCommand::Revoke(args) => revoke(args, messages).await,
        }
    })
}

impl ClusterArgs {
    async fn secrets(&self) -> anyhow::Result<Api<Secret>> {
        let client: Client = connect(self.kubeconfig.as_deref(), self.context.as_deref()).await?;
        Ok(Api::namespaced(client, token::NAMESPACE))
    }

    /// Address and CA of the cluster, in PEM.
    fn place(&self) -> anyhow::Result<(String, String)> {
        let read = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path).with_context(|| format!("cannot read `{}`", path.display()))?,
            None => Kubeconfig::read().context("cannot read the kubeconfig")?,
        };
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let context = options.context.or_else(|| read.current_context.clone());
        let named = read.contexts.iter().find(|one| Some(&one.name) == context.as_ref());
        let cluster = named.and_then(|one| one.context.as_ref()).map(|context| context.cluster.clone());
        let cluster = read.clusters.into_iter().find(|one| Some(&one.name) == cluster.as_ref());
        let cluster = cluster.and_then(|one| one.cluster).context("the kubeconfig has no current cluster")?;
        let server = cluster.server.context("the kubeconfig names no server")?;
        let ca = match (cluster.certificate_authority_data, cluster.certificate_authority) {
            (Some(data), _) => {
                let bytes = STANDARD.decode(data).context("the CA in the kubeconfig is not base64")?;
                String::from_utf8(bytes).context("the CA in the kubeconfig is no PEM")?
            }
            (None, Some(file)) => std::fs::read_to_string(&file).with_context(|| format!("cannot read `{file}`"))?,
            (None, None) => {
                return Err(Failure {
                    message: "the kubeconfig names no certificate authority: hosts could not know the server"
                        .to_owned(),
                    code: Some(Code::Usage),
                    hint: Some("name a kubeconfig with `certificate-authority-data` by `--kubeconfig FILE`".to_owned()),
                }
                .into());
            }
        };
        Ok((server, ca))
    }
}

async fn create(args: &CreateArgs, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<()> {
    let (server, ca) = args.cluster.place()?;
    let server = args.server.clone().unwrap_or(server);
    let hash = CaHash::of_pem(&ca).context("the CA of the kubeconfig cannot be read")?;
    let (id, secret) = (random(6), random(16));
    let expires = Timestamp::now() + args.ttl;
    let object = token::secret(&id, &secret, expires, args.host.as_deref());
    let secrets = args.cluster.secrets().await?;
    secrets.create(&PostParams::default(), &object).await.map_err(|error| refused(error, "create"))?;
    if is_loopback(&server) {
        super::super::print(
            messages,
            "hint: only this machine reaches the server by that address; name another one with `--server`\n",
        )?;
    }
    let namespace =
        if args.namespace == "default" { String::new() } else { format!(" --namespace {}", args.namespace) };
    let name = args.host.as_ref().map(|host| format!(" --name {host}")).unwrap_or_default();
    print(out, &format!("millpond agent --server {server} --token {id}.{secret} --ca-hash {hash}{namespace}{name}\n"))
}

fn is_loopback(server: &str) -> bool {
    let host = server.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_default();
    let address: Option<std::net::IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    host == "localhost" || address.is_some_and(|address| address.is_loopback())
}

fn random(length: usize) -> String {
    use rand::RngExt as _;
    let mut random = rand::rng();
    (0..length).map(|_| char::from(LETTERS[random.random_range(0..LETTERS.len())])).collect()
}

async fn list(args: &ListArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let secrets = args.cluster.secrets().await?;
    let params = ListParams::default().labels(&format!("{}={}", token::LABEL, token::FOR_HOSTS));
    let found = secrets.list(&params).await.map_err(|error| refused(error, "list"))?;
    let mut tokens: Vec<Token> = found.items.iter().filter_map(Token::read).collect();
    tokens.sort_by(|one, other| one.id.cmp(&other.id));
    let now = Timestamp::now();
    let state = |token: &Token| match (&token.used_by, token.is_expired(now)) {
        (Some(_), _) => "used",
        (None, true) => "expired",
        (None, false) => "valid",
    };
    if args.output == Output::Json {
        let view = |token: &Token| {
            json!({"id": token.id, "state": state(token), "expires": token.expires.map(|time| time.to_string()),
                   "host": token.host, "usedBy": token.used_by.as_ref().map(|used| used.host.clone())})
        };
        return print(out, &as_json(&tokens.iter().map(view).collect::<Vec<_>>())?);
    }
    let mut table =
        Table::new(&[("ID", Side::Left), ("STATE", Side::Left), ("EXPIRES", Side::Left), ("HOST", Side::Left)]);
    for token in &tokens {
        let expires = token.expires.map_or("never".to_owned(), |time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        let host = token.host.clone().or_else(|| token.used_by.as_ref().map(|used| used.host.clone()));
        table.row(vec![token.id.clone(), state(token).to_owned(), expires, host.unwrap_or_else(|| "any".to_owned())]);
    }
    print(out, &(table.text() + "\n"))
}

async fn revoke(args: &RevokeArgs, messages: &mut impl Write) -> anyhow::Result<()> {
    // The whole token is taken too: it is what people have at hand.
    let id = args.id.split_once('.').map_or(args.id.as_str(), |(id, _)| id);
    let secrets = args.cluster.secrets().await?;
    let unknown = || Failure {
        message: format!("there is no token `{id}`"),
        code: Some(Code::NotFound),
        hint: Some("`millpond host token list` shows all".to_owned()),
    };
    let name = token::secret_name(id);
    let found = secrets.get_opt(&name).await.map_err(|error| refused(error, "read"))?;
    if !found.is_some_and(|secret| Token::read(&secret).is_some_and(|token| token.is_for_hosts())) {
        return Err(unknown().into());
    }
    match secrets.delete(&name, &DeleteParams::default()).await {
        Ok(_) => print(messages, &format!("token {id} is revoked\n")),
        Err(kube::Error::Api(status)) if status.code == 404 => Err(unknown().into()),
        Err(error) => Err(refused(error, "remove")),
    }
}

fn refused(error: kube::Error, verb: &str) -> anyhow::Error {
    let code = match &error {
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => Some(Code::NotAllowed),
        _ => None,
    };
    anyhow::Error::new(error).context(Failure {
        message: format!("cannot {verb} tokens in {}", token::NAMESPACE),
        code,
        hint: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, seconds) in [("24h", 86_400), ("15m", 900), ("2d", 172_800), ("1d12h", 129_600), ("90s", 90)] {
            assert_eq!(ttl(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "0s", "-1h", "soon", "9999d", "1"] {
            assert!(ttl(text).is_err(), "{text}");
        }
    }

    #[test]
    fn loopback_is_noticed() {
        for (server, is) in
            [("https://127.0.0.1:6443", true), ("https://[::1]:6443", true), ("https://10.0.0.1", false)]
        {
            assert_eq!(is_loopback(server), is, "{server}");
        }
    }

    #[test]
    fn tokens_have_their_form() {
        let (id, secret) = (random(6), random(16));
        assert!((id.clone() + &secret).bytes().all(|byte| LETTERS.contains(&byte)));
        assert_ne!(id, random(6));
    }
}
