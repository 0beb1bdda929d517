//! The `millpond` command: parses the command line, runs one command, reports its outcome.

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

/// The variable with the log filter; the CLI reference names it too.
const LOG_VARIABLE: &str = "MILLPOND_LOG";
/// The default log filter: warnings, and the decisions about GPU jobs, which are few. A failed request is reported
/// once, by the command that made it.
const DEFAULT_LOG: &str = "warn,kube_client::client=off,millpond_gpu=info,millpond_agent=info";

fn main() -> ExitCode {
    let outcome = match commands::ci::names::Name::of(std::env::args_os().next()) {
        Some(name) => start_logging().and_then(|()| run_as(name)),
        None => {
            let cli = Cli::parse();
            start_logging().and_then(|()| run(cli.command))
        }
    };
    match outcome {
        Ok(code) => code,
        Err(problem) => failure::report(&problem),
    }
}

/// Runs the command line that belongs to another name of the binary.
fn run_as(name: commands::ci::names::Name) -> anyhow::Result<ExitCode> {
    commands::ci::names::run(name, &mut std::io::stdout().lock(), &mut std::io::stderr().lock())
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    if let Command::Plan(args) = &command {
        let changes = commands::plan::run(args, &mut out, &mut std::io::stderr().lock())?;
        return Ok(changes.exit_code());
    }
    if let Command::Ci(args) = &command {
        // Released, because a builder's workers log while it runs.
        drop(out);
        return commands::ci::run(args, &mut std::io::stdout(), &mut std::io::stderr());
    }
    if let Command::Gpu(command) = &command {
        return commands::gpu::run(command, &mut out, &mut std::io::stderr().lock());
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
        Command::Agent(args) => commands::agent::run(*args, &mut out),
        Command::Host(command) => commands::host::run(&command, &mut out, &mut std::io::stderr().lock()),
        Command::Plan(_) | Command::Ci(_) | Command::Gpu(_) => Ok(()),
        Command::Explain(args) => commands::explain::run(&args, &mut out, &mut std::io::stderr().lock()),
        Command::History(args) => commands::history::run(&args, &mut out),
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
            hint: Some("give a level (`info`), or levels of crates (`warn,millpond_apiserver=debug`)".to_owned()),
        })?,
        Err(_) => EnvFilter::new(DEFAULT_LOG),
    };
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
    Ok(())
}
