//! The project's own tools: `cargo xtask help` lists them.
//!
//! A task is a module with one public entry. Whatever a task needs beyond the
//! Rust toolchain it builds or names; see `docs/ARCHITECTURE.md` for how the
//! rooms of the tree hang together.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool speaks on stdout and stderr")]

mod generate;
mod tree;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "Tasks of the Millpond tree")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Write the files of the tree that are made from others
    Generate(generate::Args),
}

fn main() -> std::process::ExitCode {
    let result = match Cli::parse().task {
        Task::Generate(args) => generate::run(&args),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
