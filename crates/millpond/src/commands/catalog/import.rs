//! `millpond catalog import`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use millpond_api::catalog::import::{self, Options};
use millpond_api::catalog::{Catalog, Provider, text};

use super::{provider, refused};
use crate::commands::file::{self, Readers};
use crate::failure::{Code, Failure};

/// Arguments of `import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The file to read; `-` is standard input
    #[arg(value_name = "FILE")]
    from: PathBuf,

    /// How it is written; seen from its contents when not given
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,

    /// The catalogue file to write; standard output when not given
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Replace an existing file
    #[arg(long)]
    force: bool,

    /// Name of the catalogue; that of the file when not given
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Whose machines: aws, gcp, kwok or generic. Decides labels and what nodes keep for themselves
    #[arg(long, value_name = "PROVIDER", value_parser = provider)]
    provider: Option<Provider>,

    /// The region of all types; of a price list with several, the one to take
    #[arg(long, value_name = "REGION", default_value = "", hide_default_value = true)]
    region: String,

    /// Zones of types that name none
    #[arg(long, value_name = "ZONE", value_delimiter = ',')]
    zones: Vec<String>,

    /// Estimate missing spot prices as this percentage of the on-demand price
    #[arg(long, value_name = "PERCENT", value_parser = per_mille)]
    estimate_spot: Option<u32>,

    /// A line on where the facts come from
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    source: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Csv,
    KwokJson,
    ScalingAdvisorJson,
    Millpond,
}

fn per_mille(text: &str) -> Result<u32, String> {
    let wrong = || format!("`{text}` is not a number of per cent from 0% to 100% with one decimal");
    let number = text.strip_suffix('%').unwrap_or(text);
    let nanos = millpond_api::money::parse(number).map_err(|_| wrong())?;
    let fits = nanos.is_multiple_of(100_000_000) && nanos <= 100_000_000_000;
    if fits { Ok((nanos / 100_000_000) as u32) } else { Err(wrong()) }
}

pub(super) fn run(args: &ImportArgs, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<()> {
    let catalog = read(args, messages)?;
    let encoded = text::encode(&catalog);
    let Some(to) = &args.out else {
        return super::say(out, encoded.trim_end());
    };
    write_file(to, &encoded, args.force)?;
    let offerings: usize = catalog.types.iter().map(|of| of.offerings.len()).sum();
    writeln!(messages, "wrote {}: {} types, {offerings} offerings", to.display(), catalog.types.len())?;
    Ok(())
}

fn read(args: &ImportArgs, messages: &mut impl Write) -> anyhow::Result<Catalog> {
    let shown = args.from.display().to_string();
    let stem = args.from.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let reader: Box<dyn Read> = if shown == "-" {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(&args.from).map_err(|error| {
            let missing = (error.kind() == io::ErrorKind::NotFound).then_some(Code::NotFound);
            let code = missing.or_else(|| Code::of_io(&error));
            let message = format!("cannot open `{shown}`");
            anyhow::Error::new(error).context(Failure { message, code, hint: None })
        })?)
    };
    let format = args.format.map(|format| match format {
        Format::Csv => import::Format::Csv,
        Format::KwokJson => import::Format::KwokJson,
        Format::ScalingAdvisorJson => import::Format::AdvisorJson,
        Format::Millpond => import::Format::Millpond,
    });
    let options = Options {
        name: args.name.clone().unwrap_or(stem),
        provider: args.provider,
        region: args.region.clone(),
        zones: args.zones.clone(),
        spot_per_mille: args.estimate_spot,
        source: args.source.clone(),
    };
    let imported = import::read(&shown, reader, format, &options).map_err(refused)?;
    for warning in &imported.warnings {
        writeln!(messages, "warning: {warning}")?;
    }
    Ok(imported.catalog)
}

/// An existing file is replaced only if a flag says so.
fn write_file(to: &Path, text: &str, force: bool) -> anyhow::Result<()> {
    if to.exists() && !force {
        let message = format!("`{}` exists already", to.display());
        let hint = Some("`--force` replaces it".to_owned());
        return Err(Failure { message, code: Some(Code::Conflict), hint }.into());
    }
    file::write(to, text, Readers::Others)
}
