//! `millpond completion`: what a shell needs to complete our commands and options.

use std::io::Write;

use clap::{Args, CommandFactory as _, ValueEnum};
use clap_complete::aot::{Bash, Fish, Generator, Zsh};

use crate::cli::Cli;

/// Arguments of `millpond completion`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  millpond completion bash > ~/.local/share/bash-completion/completions/millpond
  millpond completion zsh > ~/.zfunc/_millpond
  millpond completion fish > ~/.config/fish/completions/millpond.fish")]
pub(crate) struct CompletionArgs {
    /// The shell that reads the script
    shell: Shell,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the script.
pub(crate) fn run(args: &CompletionArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let script = match args.shell {
        Shell::Bash => script(Bash),
        Shell::Zsh => script(Zsh),
        Shell::Fish => script(Fish),
    };
    super::print(out, &script)
}

fn script(shell: impl Generator) -> String {
    let mut bytes = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "millpond", &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_know_commands_and_options() {
        for text in [script(Bash), script(Zsh), script(Fish)] {
            for word in ["backup", "data-dir", "audit-log", "completion"] {
                assert!(text.contains(word), "no `{word}` in {text}");
            }
        }
    }
}
