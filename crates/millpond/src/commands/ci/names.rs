//! The binary under other names: `nodepool` has the verbs of the original and no others, `sf-operator` those of its
//! subcommand `nodepool`.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use super::builder_key::GetCommand;
use super::namespace::CreateCommand;
use super::{CommonArgs, Output, Verb, builder_key, namespace, run_verb};

/// A name that the binary answers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    Nodepool,
    SfOperator,
}

impl Name {
    /// The name that the first word of the command line is, if it is one of these.
    pub(crate) fn of(first: Option<OsString>) -> Option<Self> {
        let first = first?;
        match Path::new(&first).file_name()?.to_str()? {
            "nodepool" => Some(Self::Nodepool),
            "sf-operator" => Some(Self::SfOperator),
            _ => None,
        }
    }
}

/// Nodepool's command line
#[derive(Debug, Parser)]
#[command(name = "nodepool", version, disable_help_subcommand = true)]
struct Nodepool {
    /// path to config file
    #[arg(short, value_name = "CONFIG")]
    config: Option<PathBuf>,
    /// path to secure file
    #[arg(short, value_name = "SECURE")]
    secure: Option<PathBuf>,
    /// path to log config file; taken and not used
    #[arg(short, value_name = "LOGCONFIG", hide = true)]
    l: Option<PathBuf>,
    /// show DEBUG level logging
    #[arg(long)]
    debug: bool,
    /// How it is printed
    #[arg(short, long, value_enum, default_value = "table", global = true)]
    output: Output,
    #[command(subcommand)]
    command: Option<Verb>,
}

/// The part of sf-operator's command line that is about nodepool
#[derive(Debug, Parser)]
#[command(name = "sf-operator", version)]
struct SfOperator {
    #[command(flatten)]
    global: SfGlobal,
    #[command(subcommand)]
    command: SfCommand,
}

#[derive(Debug, Args)]
struct SfGlobal {
    /// The namespace on which to perform actions
    #[arg(short, long, global = true)]
    namespace: Option<String>,
    /// The cluster context on which to operate
    #[arg(short, long, global = true)]
    kube_context: Option<String>,
    /// The domain of the deployment; not used by these commands
    #[arg(short = 'd', long, global = true)]
    fqdn: Option<String>,
    /// Show debug logs
    #[arg(long, global = true)]
    debug: bool,
}

#[derive(Debug, Subcommand)]
enum SfCommand {
    /// Nodepool subcommands
    #[command(subcommand)]
    Nodepool(SfNodepool),
}

#[derive(Debug, Subcommand)]
enum SfNodepool {
    /// Create a nodepool resource
    #[command(subcommand)]
    Create(CreateCommand),
    /// Get a nodepool resource
    #[command(subcommand)]
    Get(GetCommand),
}

/// Runs the command line of another name.
pub(crate) fn run(name: Name, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<ExitCode> {
    match name {
        Name::Nodepool => nodepool(&Nodepool::parse(), out, messages),
        Name::SfOperator => sf_operator(&SfOperator::parse(), out, messages),
    }
}

fn nodepool(args: &Nodepool, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<ExitCode> {
    let Some(verb) = &args.command else {
        // As the original: the help, and exit code 1.
        use clap::CommandFactory as _;
        let help = Nodepool::command().render_help();
        crate::commands::print(out, &help.to_string())?;
        return Ok(ExitCode::FAILURE);
    };
    let common = CommonArgs {
        config: args.config.clone(),
        secure: args.secure.clone(),
        output: args.output,
        namespace: None,
        kubeconfig: None,
        context: None,
    };
    run_verb(&common, verb, out, messages)
}

fn sf_operator(args: &SfOperator, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<ExitCode> {
    let common = CommonArgs {
        config: None,
        secure: None,
        output: Output::Table,
        namespace: args.global.namespace.clone(),
        kubeconfig: None,
        context: args.global.kube_context.clone(),
    };
    let SfCommand::Nodepool(command) = &args.command;
    match command {
        SfNodepool::Create(command) => namespace::run(&common, command, out, messages),
        SfNodepool::Get(command) => builder_key::run(&common, command, out, messages),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn definitions_are_consistent() {
        Nodepool::command().debug_assert();
        SfOperator::command().debug_assert();
    }

    #[test]
    fn the_name_is_the_end_of_the_path() {
        for (first, name) in [
            ("/usr/bin/nodepool", Some(Name::Nodepool)),
            ("sf-operator", Some(Name::SfOperator)),
            ("target/debug/millpond", None),
            ("nodepool-something", None),
        ] {
            assert_eq!(Name::of(Some(first.into())), name, "{first}");
        }
    }

    #[test]
    fn nodepool_has_the_verbs_of_the_original_and_no_others() {
        let command = Nodepool::command();
        let mut verbs: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        verbs.sort_unstable();
        let original = "alien-image-list config-validate delete dib-image-delete dib-image-list erase export-image-data \
                        hold image-build image-delete image-list image-pause image-status image-unpause \
                        import-image-data info list request-list";
        assert_eq!(verbs, original.split_whitespace().collect::<Vec<_>>());
        for line in [
            "nodepool -c nodepool.yaml -s secure.conf list --detail",
            "nodepool --debug delete 0000000001 --now",
            "nodepool image-delete --provider p --image i --upload-id u --build-id b",
            "nodepool list -o json",
        ] {
            Nodepool::try_parse_from(line.split(' ')).unwrap();
        }
        let refused = Nodepool::try_parse_from(["nodepool", "request", "create"]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidSubcommand);
    }

    #[test]
    fn sf_operator_takes_global_flags_before_and_after() {
        for line in [
            "sf-operator --namespace sf nodepool get builder-ssh-key",
            "sf-operator nodepool get builder-ssh-key --pubkey key.pub -n sf",
            "sf-operator -n sf -k ctx nodepool create openshiftpods-namespace --nodepool-context c \
             --nodepool-namespace n --show-config-template --skip-providers-secrets",
        ] {
            SfOperator::try_parse_from(line.split_whitespace()).unwrap();
        }
    }
}
