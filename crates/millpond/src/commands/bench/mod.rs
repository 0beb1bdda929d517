//! `millpond bench`: figures as commands, so that anybody can measure them again.

mod api;
mod load;
mod report;

use clap::{Args, Subcommand};

/// Arguments of `millpond bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Measure the embedded Kubernetes API, or another API server
    Api(api::ApiArgs),
}

/// Runs a benchmark.
pub(crate) fn run(args: BenchArgs) -> anyhow::Result<()> {
    match args.what {
        What::Api(args) => api::run(args),
    }
}
