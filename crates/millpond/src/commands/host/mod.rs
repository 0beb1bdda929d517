//! `millpond host`: the hosts of the capacity pool.

mod get;
mod label;
mod list;
mod quarantine;
mod release;
pub(crate) mod session;
mod token;

use std::io::Write;

use clap::Subcommand;

/// See and steer the hosts of the capacity pool
#[derive(Debug, Subcommand)]
pub(crate) enum HostCommand {
    /// List hosts: what each is, which machine holds it, which pools it could serve
    #[command(after_help = "Examples:
  millpond host list
  millpond host list -A -o wide
  millpond host list -l purpose=worker -o json")]
    List(list::ListArgs),
    /// Show a host: what it has, which machine holds it, which pools it could serve
    #[command(after_help = "Examples:
  millpond host get node11
  millpond host get node11 -o json")]
    Get(get::GetArgs),
    /// Set or remove labels of a host
    ///
    /// Labels that follow from the host's facts cannot be set: the controllers keep them true.
    #[command(after_help = "Examples:
  millpond host label node11 purpose=gpu
  millpond host label node11 purpose=worker --overwrite
  millpond host label node11 rack-")]
    Label(label::LabelArgs),
    /// Give a host back: lift its quarantine, or take it from its machine
    ///
    /// A host that a machine holds is given back by deleting that Machine: its Node is drained and the host reset; the
    /// pool makes another machine. `--force` takes the host away at once, without a drain.
    #[command(after_help = "Examples:
  millpond host release node11
  millpond host release node11 --force")]
    Release(release::ReleaseArgs),
    /// Keep a host out of every pool until it is released
    ///
    /// A machine that holds the host keeps it.
    #[command(after_help = "Examples:
  millpond host quarantine node11 --reason disk")]
    Quarantine(quarantine::QuarantineArgs),
    /// Make, list and revoke the tokens that let hosts in
    #[command(
        subcommand,
        after_help = "Examples:
  millpond host token create
  millpond host token list
  millpond host token revoke abcdef"
    )]
    Token(token::TokenCommand),
}

/// Runs the command: data to `out`, talk to `talk`.
pub(crate) fn run(command: &HostCommand, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<()> {
    match command {
        HostCommand::List(args) => list::run(args, out),
        HostCommand::Get(args) => get::run(args, out),
        HostCommand::Label(args) => label::run(args, out),
        HostCommand::Release(args) => release::run(args, out),
        HostCommand::Quarantine(args) => quarantine::run(args, out),
        HostCommand::Token(command) => token::run(command, out, messages),
    }
}
