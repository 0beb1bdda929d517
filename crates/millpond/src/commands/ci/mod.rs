//! `millpond ci`: CI nodes with Nodepool's configuration and its command line. The formats are in `millpond_ci`; here
//! they get arguments and exit codes.

mod config_validate;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use millpond_ci::config::{self, File, Reading};

use crate::failure::{Code, Failure};

/// Arguments of every verb.
#[derive(Debug, Args)]
pub(crate) struct CiArgs {
    /// nodepool.yaml
    #[arg(short, long = "config", value_name = "FILE", default_value = "/etc/nodepool/nodepool.yaml", global = true)]
    config: PathBuf,

    /// A file with secrets, which overrides the connection to ZooKeeper and variables of disk images
    #[arg(short, long = "secure", value_name = "FILE", global = true)]
    secure: Option<PathBuf>,

    #[command(subcommand)]
    command: CiCommand,
}

#[derive(Debug, Subcommand)]
enum CiCommand {
    /// Check a configuration: exit code 0 if it is right, 1 if not
    ///
    /// Every mistake is printed to stderr with its line and column.
    #[command(after_help = "Examples:
  millpond ci -c nodepool.yaml config-validate
  millpond ci -c nodepool.yaml -s secure.conf config-validate")]
    ConfigValidate,
}

/// Runs the command: data to `out`, messages to `messages`.
pub(crate) fn run(args: &CiArgs, _out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<ExitCode> {
    match &args.command {
        CiCommand::ConfigValidate => config_validate::run(args, messages),
    }
}

impl CiArgs {
    /// Reads the configuration files.
    fn read(&self) -> anyhow::Result<Reading> {
        let (main, main_name) = read_file(&self.config)?;
        let secure = self.secure.as_ref().map(read_file).transpose()?;
        let secure = secure.as_ref().map(|(text, name)| File { name, text });
        Ok(config::read(File { name: &main_name, text: &main }, secure, &|name| std::env::var(name).ok()))
    }
}

fn read_file(path: &PathBuf) -> anyhow::Result<(String, String)> {
    let name = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok((text, name)),
        Err(error) => {
            let hint =
                (error.kind() == std::io::ErrorKind::NotFound).then(|| "`-c FILE` names the configuration".to_owned());
            // As the original: whatever is wrong with the configuration is exit code 1.
            let code = Code::of_io(&error).filter(|code| *code == Code::NotAllowed);
            let message = format!("cannot read `{name}`");
            Err(anyhow::Error::new(error).context(Failure { message, code, hint }))
        }
    }
}
