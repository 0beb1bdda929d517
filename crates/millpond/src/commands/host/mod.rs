//! `millpond host`: the hosts of the capacity pool.

mod token;

use std::io::Write;

use clap::Subcommand;

/// See and steer the hosts of the capacity pool
#[derive(Debug, Subcommand)]
pub(crate) enum HostCommand {
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
pub(crate) fn run(command: &HostCommand, out: &mut impl Write, talk: &mut impl Write) -> anyhow::Result<()> {
    match command {
        HostCommand::Token(command) => token::run(command, out, talk),
    }
}
