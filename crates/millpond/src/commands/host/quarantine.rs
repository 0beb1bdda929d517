//! `millpond host quarantine`.

use std::io::Write;

use clap::Args;
use jiff::Timestamp;
use millpond_api::time::Time;
use serde_json::json;

use super::session::{PlaceArgs, Session, find};
use crate::commands::print;

/// Arguments of `millpond host quarantine`.
#[derive(Debug, Args)]
pub(crate) struct QuarantineArgs {
    /// Name of the host
    #[arg(value_name = "NAME")]
    name: String,
    /// Why, in a sentence; explanations repeat it
    #[arg(long, value_name = "REASON", value_parser = reason)]
    reason: String,
    #[command(flatten)]
    place: PlaceArgs,
}

fn reason(text: &str) -> Result<String, String> {
    const LIMIT_REASON: usize = 1024;
    let text = text.trim();
    match text.len() {
        0 => Err("a reason is needed".to_owned()),
        length if length > LIMIT_REASON => Err(format!("it has {length} bytes, {LIMIT_REASON} are the most")),
        _ => Ok(text.to_owned()),
    }
}

/// Runs the command.
pub(super) fn run(args: &QuarantineArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let session = Session::open(&args.place)?;
    let world = session.world(Some(&args.place.namespace))?;
    let host = find(&world, &args.place.namespace, &args.name)?;
    let quarantine = json!({"reason": args.reason, "since": Time(Timestamp::now().as_second())});
    session.patch(host, &json!({"spec": {"quarantine": quarantine}}))?;
    let holder =
        host.spec.claim.as_ref().map(|claim| format!("; machine {} keeps it until it is released", claim.name));
    print(out, &format!("byohost/{} quarantined: {}{}\n", args.name, args.reason, holder.unwrap_or_default()))
}
