//! The project's own tools: `cargo xtask help` lists them.
//!
//! A task is a module with one public entry. Whatever a task needs beyond the
//! Rust toolchain it builds or names; see `docs/ARCHITECTURE.md` for how the
//! crates of the tree depend on each other.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool speaks on stdout and stderr")]

mod cargo;
mod conformance;
mod dependencies;
mod fuzz;
mod generate;
mod ginkgo;
mod image;
mod karpenter;
mod race;
mod real_cluster;
mod repeat;
mod rival;
mod suites;
mod test;
mod tidy;
mod tree;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "Tasks of the Millpond tree")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run every check and test of the tree, and say what ran
    Test(test::Args),
    /// Run tests many times, on an idle machine and under load
    Repeat(repeat::Args),
    /// Run the fuzz tests with further seeds
    Fuzz(fuzz::Args),
    /// Check the habits of the tree: arrows, dead files, module docs
    Tidy,
    /// Check licences, sources, bans and duplicates of all dependencies, as `deny.toml` states them
    Dependencies,
    /// Write the files of the tree that are made from others
    Generate(generate::Args),
    /// Start a real Kubernetes control plane on loopback, until Ctrl-C
    RealCluster(real_cluster::Args),
    /// Build the real parts that the tests need into the cache, ahead of them
    RealParts,
    /// Make a container image of `millpond`, without Docker
    Image(image::Args),
    /// Run Kubernetes' own conformance tests against Millpond
    K8sConformance(conformance::Args),
    /// Run Karpenter's own end-to-end suite against Millpond
    KarpenterSuite(karpenter::Args),
    /// Run Millpond and Karpenter with KWOK side by side on a real control plane
    Race(race::Args),
    /// Compare plans with those of Karpenter's own scheduler
    Rival(rival::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Test(args) => test::run(&args),
        Task::Repeat(args) => repeat::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Tidy => tidy::run(),
        Task::Dependencies => dependencies::run().map(|summary| println!("{summary}")),
        Task::Generate(args) => generate::run(&args),
        Task::RealCluster(args) => real_cluster::run(&args),
        Task::RealParts => real_cluster::ensure_parts(&test::wanted_parts()).map(drop),
        Task::Image(args) => image::run(&args),
        Task::K8sConformance(args) => conformance::run(&args),
        Task::KarpenterSuite(args) => karpenter::run(&args).map(|summary| println!("{summary}")),
        Task::Race(args) => race::run(&args),
        Task::Rival(args) => rival::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
