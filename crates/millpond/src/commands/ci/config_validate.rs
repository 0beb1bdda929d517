//! `millpond ci config-validate`.

use std::io::Write;
use std::process::ExitCode;

use millpond_ci::builder::Images;
use millpond_ci::builder::cloud::{Clouds as _, ProviderClouds};

use super::CommonArgs;

pub(super) fn run(args: &CommonArgs, messages: &mut impl Write) -> anyhow::Result<ExitCode> {
    let reading = args.read()?;
    for warning in &reading.warnings {
        writeln!(messages, "warning: {warning}")?;
    }
    if let Some(config) = &reading.config {
        let clouds = ProviderClouds::new();
        // Without the cloud's credentials, its format is taken to be the usual one.
        let format = |provider: &_| Some(clouds.format(provider).unwrap_or_else(|_| "qcow2".to_owned()));
        for warning in Images::of(config, &format).warnings() {
            writeln!(messages, "warning: {warning}")?;
        }
    }
    for error in &reading.errors {
        writeln!(messages, "error: {error}")?;
    }
    Ok(if reading.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
