//! One module per command.

use std::io::Write;

use anyhow::Context as _;
use serde::Serialize;

pub(crate) mod agent;
mod autoscaler_pod;
pub(crate) mod bench;
pub(crate) mod catalog;
pub(crate) mod ci;
pub(crate) mod cluster;
pub(crate) mod completion;
pub(crate) mod controller;
pub(crate) mod convert;
pub(crate) mod dashboard;
pub(crate) mod dialects;
pub(crate) mod explain;
pub(crate) mod file;
pub(crate) mod gpu;
pub(crate) mod history;
pub(crate) mod host;
mod http2;
pub(crate) mod identities;
pub(crate) mod input;
pub(crate) mod install;
pub(crate) mod kinds;
pub(crate) mod lead;
pub(crate) mod list_output;
pub(crate) mod node;
pub(crate) mod node_groups;
pub(crate) mod plan;
pub(crate) mod pool;
pub(crate) mod reference;
mod request_timeout;
pub(crate) mod rights;
pub(crate) mod store;
pub(crate) mod table;
pub(crate) mod threads;
pub(crate) mod up;
pub(crate) mod version;

pub(crate) use millpond_view::{format, totals as node_totals};

/// A value as JSON, with a line break at its end.
pub(crate) fn as_json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value).context("write JSON")? + "\n")
}

/// A value as YAML, with a line break at its end.
pub(crate) fn as_yaml(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_saphyr::to_string(value).context("write YAML")?.trim_end().to_owned() + "\n")
}

/// Writes what was asked for. A reader that has seen enough (`| head`) is no failure.
pub(crate) fn print(out: &mut impl Write, text: &str) -> anyhow::Result<()> {
    print_more(out, text).map(|_| ())
}

/// The same; returns whether the reader still has the pipe open.
pub(crate) fn print_more(out: &mut impl Write, text: &str) -> anyhow::Result<bool> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(anyhow::Error::new(error).context("cannot write to stdout")),
    }
}
