//! `millpond reference`, hidden: the pages of `docs/reference` that are made from the code itself.
//! `cargo xtask generate` writes them into the tree, and `cargo xtask test` fails when they are stale.

mod command_line;
mod convert;
mod custom_kinds;
mod metrics;

use std::io::Write;

use clap::{Args, ValueEnum};

/// Arguments of `millpond reference`.
#[derive(Debug, Args)]
pub(crate) struct ReferenceArgs {
    /// Which page
    page: Page,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Page {
    Cli,
    Convert,
    CustomKinds,
    Metrics,
    NodePoolFiles,
    PlanSchema,
    Reasons,
}

/// Prints the page.
pub(crate) fn run(args: &ReferenceArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let text = match args.page {
        Page::Cli => command_line::page(),
        Page::Convert => convert::page(),
        Page::CustomKinds => custom_kinds::page(),
        Page::Metrics => metrics::page()?,
        Page::NodePoolFiles => millpond_controllers::capi::pools::parity::page(),
        Page::PlanSchema => super::plan::schema()?,
        Page::Reasons => millpond_api::reasons::page(),
    };
    super::print(out, &text)
}

/// Text for a cell of a table: one line, and no bar that would end the cell.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
