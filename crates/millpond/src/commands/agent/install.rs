//! `millpond agent install|uninstall`: the agent as a service of systemd.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use clap::Args;
use millpond_agent::journal::write_durably;
use millpond_agent::service;

use super::{AgentFlags, STATE_DIR};
use crate::commands::print;
use crate::failure::{Code, Failure};

/// Where unit files go.
const UNITS: &str = "/etc/systemd/system";

/// Arguments of `millpond agent install`.
#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    flags: AgentFlags,
    /// Write and enable the unit, and do not start it now
    #[arg(long)]
    no_start: bool,
}

/// Arguments of `millpond agent uninstall`.
#[derive(Debug, Args)]
pub(crate) struct UninstallArgs {
    /// Directory of the host's files
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Remove the credentials too: the host needs a new token afterwards
    #[arg(long)]
    purge: bool,
}

fn unit_path(root: &Path) -> PathBuf {
    root.join(UNITS.trim_start_matches('/')).join(service::UNIT)
}

/// Writes, enables and starts the unit.
pub(super) fn install(args: &InstallArgs, out: &mut impl Write) -> anyhow::Result<()> {
    // Errors in the flags are reported here instead of in the unit's log.
    let options = args.flags.options()?;
    let has_credentials = options.state.join("kubeconfig").exists();
    if options.entry.is_none() && !has_credentials {
        return Err(Failure {
            message: "the host is not registered, and neither a token nor a bootstrap kubeconfig was given".to_owned(),
            code: Some(Code::Usage),
            hint: Some("paste the flags that `millpond host token create` prints".to_owned()),
        }
        .into());
    }
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let words: Vec<String> = std::iter::once("agent".to_owned()).chain(args.flags.words()).collect();
    let path = unit_path(&args.flags.root);
    let parent = path.parent().context("the unit has a directory")?;
    fs::create_dir_all(parent).map_err(|error| failed("cannot create", parent, error))?;
    // The token on its command line is for root alone, and used up after the first start.
    write_durably(&path, service::unit(&program, &words, "info").as_bytes(), 0o600)
        .map_err(|error| failed("cannot write", &path, error))?;
    systemctl(&["daemon-reload"])?;
    let enable: &[&str] = if args.no_start { &["enable", service::UNIT] } else { &["enable", "--now", service::UNIT] };
    systemctl(enable)?;
    print(
        out,
        &format!("{} runs `{} agent`; its log: journalctl -u {}\n", service::UNIT, program.display(), service::UNIT),
    )
}

/// Stops and removes the unit.
pub(super) fn uninstall(args: &UninstallArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let path = unit_path(&args.root);
    if !path.exists() {
        return Err(Failure {
            message: format!("there is no `{}`", path.display()),
            code: Some(Code::NotFound),
            hint: None,
        }
        .into());
    }
    let state = args.root.join(STATE_DIR.trim_start_matches('/'));
    if args.purge && holds_a_plan(&state) {
        return Err(Failure {
            message: "the host is a node now: the journal says how to undo that".to_owned(),
            code: Some(Code::Conflict),
            hint: Some("release the host first, with `millpond host release NAME`".to_owned()),
        }
        .into());
    }
    systemctl(&["disable", "--now", service::UNIT])?;
    fs::remove_file(&path).map_err(|error| failed("cannot remove", &path, error))?;
    systemctl(&["daemon-reload"])?;
    if args.purge && state.exists() {
        fs::remove_dir_all(&state).map_err(|error| failed("cannot remove", &state, error))?;
    }
    print(out, &format!("{} is removed\n", service::UNIT))
}

fn holds_a_plan(state: &Path) -> bool {
    let journal = fs::read_to_string(state.join("journal.json")).ok();
    let journal = journal.and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok());
    journal.is_some_and(|journal| !journal["plan"].is_null())
}

fn failed(what: &str, path: &Path, error: std::io::Error) -> anyhow::Error {
    let code = Code::of_io(&error);
    Failure { message: format!("{what} `{}`: {error}", path.display()), code, hint: None }.into()
}

fn systemctl(words: &[&str]) -> anyhow::Result<()> {
    let line = format!("systemctl {}", words.join(" "));
    let output = Command::new("systemctl").args(words).output().with_context(|| format!("cannot run `{line}`"))?;
    if output.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Failure { message: format!("`{line}` failed: {told}"), code: None, hint: None }.into())
}
