//! `millpond host get`.

use std::io::Write;

use clap::Args;
use millpond_hosts::kinds::ByoHost;
use millpond_hosts::report::{self, HostReport};

use super::session::{Output, PlaceArgs, Session, find};
use crate::commands::explain::hosts::host_page;
use crate::commands::{as_json, as_yaml, print};

/// Arguments of `millpond host get`.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Name of the host
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    place: PlaceArgs,
    /// How it is printed
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// Runs the command.
pub(super) fn run(args: &GetArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let session = Session::open(&args.place)?;
    let world = session.world(Some(&args.place.namespace))?;
    let host = find(&world, &args.place.namespace, &args.name)?;
    let report = report::host(&world, host);
    let text = match args.output {
        Output::Table => page(host, &report),
        Output::Json => as_json(&report)?,
        Output::Yaml => as_yaml(&report)?,
    };
    print(out, &text)
}

fn page(host: &ByoHost, report: &HostReport) -> String {
    let mut text = host_page(report);
    let facts = &host.status.facts;
    let mut lines = Vec::new();
    if !facts.cpu.model.is_empty() {
        lines.push(format!(
            "{}, {} sockets, {} cores, {} threads",
            facts.cpu.model, facts.cpu.sockets, facts.cpu.cores, facts.cpu.threads
        ));
    }
    lines.extend(facts.gpus.iter().map(|gpu| {
        let name = if gpu.name.is_empty() { format!("{}:{}", gpu.vendor_id, gpu.device_id) } else { gpu.name.clone() };
        format!("GPU {} at {}", name, gpu.address)
    }));
    if !facts.os.image.is_empty() {
        lines.push(format!("{}, kernel {}", facts.os.image, facts.os.kernel));
    }
    if let Some(plan) = &host.status.plan {
        let message = if plan.message.is_empty() { String::new() } else { format!(": {}", plan.message) };
        lines.push(format!(
            "plan of epoch {}: {}, {} of {} steps{message}",
            plan.epoch, plan.phase, plan.done, plan.steps
        ));
    }
    if !lines.is_empty() {
        text.push_str("\nFacts\n");
        lines.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
    }
    text
}
