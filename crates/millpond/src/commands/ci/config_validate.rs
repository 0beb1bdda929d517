//! `millpond ci config-validate`.

use std::io::Write;
use std::process::ExitCode;

use super::CommonArgs;

pub(super) fn run(args: &CommonArgs, messages: &mut impl Write) -> anyhow::Result<ExitCode> {
    let reading = args.read()?;
    for warning in &reading.warnings {
        writeln!(messages, "warning: {warning}")?;
    }
    for error in &reading.errors {
        writeln!(messages, "error: {error}")?;
    }
    Ok(if reading.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
