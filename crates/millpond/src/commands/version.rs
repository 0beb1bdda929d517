//! `millpond version`: the version of millpond, and of the Kubernetes API that it serves.

use std::io::Write;

use clap::{Args, ValueEnum};
use serde_json::json;

/// Arguments of `millpond version`.
#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// How to print it
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Output,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// Prints the versions.
pub(crate) fn run(args: &VersionArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let (own, kubernetes) = (env!("CARGO_PKG_VERSION"), millpond_apiserver::KUBERNETES_VERSION);
    let text = match args.output {
        Output::Table => format!("millpond    {own}\nKubernetes  {kubernetes} (API)\n"),
        Output::Json => format!("{:#}\n", json!({"millpond": own, "kubernetes": kubernetes})),
    };
    super::print(out, &text)
}
