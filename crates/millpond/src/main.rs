//! The `millpond` command: parses the command line, runs one command, tells how it went.

mod cli;
mod commands;
mod failure;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Parser as _;
use tracing_subscriber::EnvFilter;

use cli::{Cli, Command};
use failure::{Code, Failure};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What is logged; the reference of the command line names it too.
const LOG_VARIABLE: &str = "MILLPOND_LOG";

fn main() -> ExitCode {
    let cli = Cli::parse();
    match start_logging().and_then(|()| run(cli.command)) {
        Ok(code) => code,
        Err(problem) => failure::report(&problem),
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    if let Command::Plan(args) = &command {
        let changes = commands::plan::run(args, &mut out, &mut std::io::stderr().lock())?;
        return Ok(changes.exit_code());
    }
    if let Command::Ci(args) = &command {
        return commands::ci::run(args, &mut out, &mut std::io::stderr().lock());
    }
    match command {
        Command::Up(args) => {
            drop(out);
            commands::up::run(args)
        }
        Command::Controller(args) => {
            drop(out);
            commands::controller::run(args)
        }
        Command::Bench(args) => {
            drop(out);
            commands::bench::run(args)
        }
        Command::Plan(_) | Command::Ci(_) => Ok(()),
        Command::Explain(args) => commands::explain::run(&args, &mut out, &mut std::io::stderr().lock()),
        Command::Install(command) => commands::install::run(&command, &mut out),
        Command::Pool(command) => commands::pool::run(&command, &mut out, &mut std::io::stderr().lock()),
        Command::Node(command) => commands::node::run(&command, &mut out, &mut std::io::stderr().lock()),
        Command::Store(command) => commands::store::run(&command, &mut out),
        Command::Catalog(command) => commands::catalog::run(&command, &mut out, &mut std::io::stderr().lock()),
        Command::Export(args) => commands::convert::export(&args, &mut out, &mut std::io::stderr().lock()),
        Command::Import(args) => commands::convert::import(&args, &mut out, &mut std::io::stderr().lock()),
        Command::Completion(args) => commands::completion::run(&args, &mut out),
        Command::Version(args) => commands::version::run(&args, &mut out),
        Command::Reference(args) => commands::reference::run(&args, &mut out),
    }
    .map(|()| ExitCode::SUCCESS)
}

fn start_logging() -> anyhow::Result<()> {
    let filter = match std::env::var(LOG_VARIABLE) {
        Ok(text) => text.parse::<EnvFilter>().map_err(|_| Failure {
            message: format!("`{LOG_VARIABLE}={text}` does not say what to log"),
            code: Some(Code::Usage),
            hint: Some("give a level (`info`), or levels of rooms (`warn,millpond_apiserver=debug`)".to_owned()),
        })?,
        // A request that fails is told once, by the command that made it.
        Err(_) => EnvFilter::new("warn,kube_client::client=off"),
    };
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
    Ok(())
}
