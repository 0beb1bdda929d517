//! The `millpond` command: parses the command line, runs one command, tells how it went.

mod commands;
mod failure;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// One control plane for every kind of node pool.
#[derive(Debug, Parser)]
#[command(name = "millpond", version, propagate_version = true, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  millpond up                      start the embedded control plane; kubectl works seconds later
  millpond up --demo               the same, with nodes and workloads that move
  millpond store check             verify the store of the default data directory

Environment:
  MILLPOND_LOG   what is logged to stderr, e.g. `info` or `millpond_apiserver=debug` (default: warn)";

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the embedded control plane
    Up(commands::up::UpArgs),
    /// Measure the product on this machine
    Bench(commands::bench::BenchArgs),
    /// Look after the store of the embedded API
    #[command(subcommand)]
    Store(commands::store::StoreCommand),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_logging();
    let result = match cli.command {
        Command::Up(args) => commands::up::run(args),
        Command::Bench(args) => commands::bench::run(args),
        Command::Store(command) => commands::store::run(&command, &mut std::io::stdout().lock()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => failure::report(&problem),
    }
}

fn start_logging() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("MILLPOND_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}
