//! `millpond agent`: makes this machine a host of the capacity pool, and a node when a pool needs it.

mod install;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use millpond_agent::agent::{AgentError, Entry, Options};
use millpond_agent::credentials::CredentialsError;
use millpond_agent::discovery::{CaHash, DiscoveryError};
use millpond_agent::executor::describe;
use tokio_util::sync::CancellationToken;

use super::up::Signals;
use crate::failure::{Code, Failure};

/// Where credentials and the journal are.
const STATE_DIR: &str = "/var/lib/millpond-agent";
/// The agent waits most of the time; its work is done by commands.
const BLOCKING_THREADS: usize = 2;
/// Memory for the stack of a thread.
const STACK: usize = 1 << 20;

/// Arguments of `millpond agent`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AgentArgs {
    #[command(subcommand)]
    command: Option<AgentCommand>,
    #[command(flatten)]
    flags: AgentFlags,
}

/// Commands other than running the agent.
#[derive(Debug, Subcommand)]
enum AgentCommand {
    /// Write, enable and start millpond-agent.service, which runs the agent with these flags
    #[command(after_help = "Examples:
  millpond agent install --server https://10.0.0.1:6443 --token ID.SECRET --ca-hash sha256:0011223344556677889900112233445566778899001122334455667788990011")]
    Install(Box<install::InstallArgs>),
    /// Stop and remove millpond-agent.service; by default the state of the agent stays
    #[command(after_help = "Examples:
  millpond agent uninstall
  millpond agent uninstall --purge")]
    Uninstall(install::UninstallArgs),
}

/// The flags of the agent, and of its service.
#[derive(Debug, Args)]
pub(crate) struct AgentFlags {
    /// Address of the API server, for the first registration
    #[arg(long, value_name = "URL", requires = "token")]
    server: Option<String>,
    /// One-time token, for the first registration: `millpond host token create` makes one
    #[arg(long, value_name = "ID.SECRET", requires = "server", requires = "ca_hash", hide_env_values = true)]
    token: Option<Token>,
    /// Hash of the public key of the server's certificate authority: sha256:HEX
    #[arg(long, value_name = "HASH", requires = "token")]
    ca_hash: Option<CaHash>,
    /// Kubeconfig with a token, for the first registration
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    bootstrap_kubeconfig: Option<PathBuf>,
    /// Namespace of the ByoHost
    #[arg(long, value_name = "NAMESPACE", default_value = "default")]
    namespace: String,
    /// Labels of the ByoHost at its first registration; repeat, or separate with commas
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = label)]
    label: Vec<(String, String)>,
    /// kubelet and kubeadm are there already: installation scripts are not run
    #[arg(long)]
    skip_installation: bool,
    /// Offer the GPUs of the host to kubelet, unless a vendor's device plugin is there
    #[arg(long)]
    device_plugin: bool,
    /// Name of the host, of its ByoHost and of its Node [default: the host name]
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,
    /// Directory of the host's files
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Directory of the credentials and of the journal
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    state_dir: PathBuf,
}

/// A token that is not shown.
#[derive(Clone)]
struct Token(String);

impl std::str::FromStr for Token {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is no KEY=VALUE"))?;
    if !millpond_api::labels::is_key(key) {
        return Err(format!("`{key}` is no key of a label"));
    }
    if !millpond_api::labels::is_value(value) {
        return Err(format!("`{value}` is no value of a label"));
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// A name that objects and Nodes may have, and that fits into a label.
fn name(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let parts = || text.split('.');
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        let ends = bytes.first().zip(bytes.last());
        ends.is_some_and(|(first, last)| is_plain(*first) && is_plain(*last))
            && bytes.iter().all(|byte| is_plain(*byte) || *byte == b'-')
    };
    if text.len() <= 63 && parts().all(is_part) {
        Ok(text.to_owned())
    } else {
        Err(format!("`{text}` is no name of a host: up to 63 lower-case letters, digits, `-` and `.`"))
    }
}

impl AgentFlags {
    /// The flags as the agent takes them.
    fn options(&self) -> anyhow::Result<Options> {
        let entry = match (&self.server, &self.token, self.ca_hash, &self.bootstrap_kubeconfig) {
            (Some(server), Some(token), Some(ca), _) => {
                let server = server.trim_end_matches('/').to_owned();
                Some(Entry::Token { server, token: token.0.clone(), ca })
            }
            (.., Some(path)) => Some(Entry::Kubeconfig(path.clone())),
            _ => None,
        };
        let name = match &self.name {
            Some(name) => name.clone(),
            None => host_name()?,
        };
        Ok(Options {
            entry,
            namespace: self.namespace.clone(),
            labels: self.label.iter().cloned().collect::<BTreeMap<_, _>>(),
            skip_installation: self.skip_installation,
            device_plugin: self.device_plugin,
            root: self.root.clone(),
            state: self.state(),
            name,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }

    /// The state directory. That of another root lies below it, unless it was named.
    fn state(&self) -> PathBuf {
        let is_default = self.state_dir == Path::new(STATE_DIR);
        match self.state_dir.strip_prefix("/") {
            Ok(relative) if is_default => self.root.join(relative),
            _ => self.state_dir.clone(),
        }
    }

    /// The flags as a command line has them.
    fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let mut flag = |flag: &str, value: Option<String>| {
            if let Some(value) = value {
                words.extend([flag.to_owned(), value]);
            }
        };
        let path = |path: &PathBuf| path.display().to_string();
        flag("--server", self.server.clone());
        flag("--token", self.token.as_ref().map(|token| token.0.clone()));
        flag("--ca-hash", self.ca_hash.map(|hash| hash.to_string()));
        flag("--bootstrap-kubeconfig", self.bootstrap_kubeconfig.as_ref().map(path));
        flag("--namespace", Some(self.namespace.clone()).filter(|namespace| namespace != "default"));
        flag("--name", self.name.clone());
        flag("--state-dir", Some(path(&self.state_dir)).filter(|path| path != STATE_DIR));
        for (key, value) in &self.label {
            flag("--label", Some(format!("{key}={value}")));
        }
        if self.skip_installation {
            words.push("--skip-installation".to_owned());
        }
        if self.device_plugin {
            words.push("--device-plugin".to_owned());
        }
        words
    }
}

fn host_name() -> anyhow::Result<String> {
    let own = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    name(&own).map_err(|message| {
        let hint = Some("choose a name with `--name`".to_owned());
        Failure { message, code: Some(Code::Usage), hint }.into()
    })
}

/// Runs the agent, or does what else was asked for.
pub(crate) fn run(args: AgentArgs, out: &mut impl std::io::Write) -> anyhow::Result<()> {
    match args.command {
        Some(AgentCommand::Install(args)) => install::install(&args, out),
        Some(AgentCommand::Uninstall(args)) => install::uninstall(&args, out),
        None => serve(&args.flags),
    }
}

fn serve(flags: &AgentFlags) -> anyhow::Result<()> {
    let options = flags.options()?;
    // One thread for the network and another one for commands, because the agent should be small.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_stack_size(STACK)
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        let stop = CancellationToken::new();
        let told = stop.clone();
        tokio::spawn(async move {
            signals.next().await;
            told.cancel();
            // A second signal ends at once; the journal is on the disk.
            signals.next().await;
            std::process::exit(1);
        });
        Box::pin(millpond_agent::agent::run(options, stop)).await.map_err(explain)
    })
}

/// The error in one line, with a hint.
fn explain(error: AgentError) -> anyhow::Error {
    let refused = error.is_refusal();
    let (code, hint) = match &error {
        AgentError::Copy { .. } => (
            Some(Code::NotAllowed),
            Some("remove that directory, and register this machine with a token and a name of its own"),
        ),
        AgentError::Expired { .. } => {
            (Some(Code::NotAllowed), Some("`millpond host token create --host NAME` makes a token to register it anew"))
        }
        AgentError::Discovery(DiscoveryError::Unknown { .. }) => (
            Some(Code::NotAllowed),
            Some("the server is not the one that the token was made for, or its CA was replaced"),
        ),
        AgentError::Discovery(DiscoveryError::Address(_)) | AgentError::Token => (Some(Code::Usage), None),
        AgentError::NoEntry => (Some(Code::Usage), Some("paste the command that `millpond host token create` prints")),
        AgentError::NoKind(_) => {
            (Some(Code::NotFound), Some("`millpond install crds | kubectl apply -f -` brings the kinds"))
        }
        AgentError::OtherName { .. } => (
            Some(Code::Conflict),
            Some("choose another directory with `--state-dir`, or the registered name with `--name`"),
        ),
        AgentError::Credentials(CredentialsError::Locked(_)) => {
            (Some(Code::Conflict), Some("stop it, or choose another directory with `--state-dir`"))
        }
        AgentError::Credentials(CredentialsError::File { source, .. }) => {
            (Code::of_io(source), Some("the agent needs a state directory that it may write; it usually runs as root"))
        }
        _ if refused => {
            (Some(Code::NotAllowed), Some("`millpond host token create` makes a new token; each lets one host in"))
        }
        _ => (None, None),
    };
    Failure { message: describe(&error), code, hint: hint.map(str::to_owned) }.into()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: AgentArgs,
    }

    fn parse(line: &str) -> Result<AgentArgs, clap::Error> {
        let hash = format!("sha256:{}", "0a".repeat(32));
        let line = format!("agent {line}").replace("HASH", &hash);
        Cli::try_parse_from(line.split_whitespace()).map(|cli| cli.args)
    }

    #[test]
    fn a_token_comes_with_its_server_and_hash() {
        parse("--server https://a --token abcdef.0123456789abcdef --ca-hash HASH").unwrap();
        for wrong in
            ["--token abcdef.0123456789abcdef", "--server https://a", "--ca-hash HASH", "--name Node_1", "--label a"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_service_runs_with_the_same_flags() {
        let line = "--server https://a --token abcdef.0123456789abcdef --ca-hash HASH --namespace pool --name node10 \
                    --label purpose=gpu --label a=b --skip-installation --device-plugin";
        let flags = parse(line).unwrap().flags;
        let words = flags.words().join(" ");
        let again = parse(&words).unwrap().flags;
        assert_eq!(format!("{:?}", again.options().unwrap()), format!("{:?}", flags.options().unwrap()));
        assert!(!format!("{flags:?}").contains("0123456789abcdef"), "tokens are not shown");
        let comma = parse("--label purpose=gpu,a=b").unwrap().flags;
        assert_eq!(comma.label, flags.label);
    }

    #[test]
    fn the_state_lies_below_the_root() {
        let state = |line: &str| parse(line).unwrap().flags.state().display().to_string();
        assert_eq!(state(""), "/var/lib/millpond-agent");
        assert_eq!(state("--root /hosts/a"), "/hosts/a/var/lib/millpond-agent");
        assert_eq!(state("--root /hosts/a --state-dir /state"), "/state");
    }
}
