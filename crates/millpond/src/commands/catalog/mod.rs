//! `millpond catalog`: which machines can be bought and for how much. The facts
//! and the rules are in `millpond_api::catalog`; here they get arguments, tables
//! and words.

mod import;
mod overlays;
mod prices;
mod types;
mod unavailable;

use std::borrow::Cow;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use clap::{Args, Subcommand, ValueEnum};
use millpond_api::catalog::import::{ImportError, Options};
use millpond_api::catalog::overlay::Overlay;
use millpond_api::catalog::{BUILT_IN, Catalog, Provider, built_in};

use super::{as_json, as_yaml};
use crate::failure::{Code, Failure};

/// Ask what machines there are and what they cost
#[derive(Debug, Subcommand)]
pub(crate) enum CatalogCommand {
    /// List instance types that fit
    ///
    /// Numbers are given as ranges: `8`, `4..16`, `4..`, `..16`, `>=8`. Prices are
    /// dollars an hour; `~` marks a spot price that is estimated as a fraction of
    /// on-demand.
    #[command(after_help = "Examples:
  millpond catalog types --cpu 4..16 --memory 16Gi.. --limit 10
  millpond catalog types --gpu a100 --sort price
  millpond catalog types --catalog gcp --arch arm64 --sort price-per-core -o wide
  millpond catalog types --family m7g --capacity-type spot -o name
  millpond catalog types --discount 30%@karpenter.sh/capacity-type=on-demand")]
    Types(types::TypesArgs),

    /// Show the prices of instance types in every zone
    ///
    /// With `--unavailable`, show instead what node classes of a cluster say is out of
    /// stock: how often it failed in a row, and when it is tried again.
    #[command(after_help = "Examples:
  millpond catalog prices m5.large
  millpond catalog prices --unavailable
  millpond catalog prices --catalog gcp n2-standard-4 c2-standard-4 -o json")]
    Prices(prices::PricesArgs),

    /// Turn a price list into a catalogue file
    ///
    /// Reads CSV (columns name, cpu, memory and price; more in the guide), the JSON of
    /// Karpenter's KWOK provider, or the price list of Gardener's Scaling Advisor.
    /// `--catalog FILE` reads them too, without this step; a catalogue file is smaller
    /// and carries zones and provider.
    #[command(after_help = "Examples:
  millpond catalog import machines.csv --zones rack-1,rack-2 --out machines.catalog
  millpond catalog import --format kwok-json instance_types.json --out kwok.catalog
  millpond catalog import --provider aws --region eu-west-1 --zones eu-west-1a --estimate-spot 40% ec2.csv")]
    Import(import::ImportArgs),
}

/// Where the types come from, and what is laid over them.
#[derive(Debug, Args)]
pub(crate) struct Source {
    /// aws, gcp, kwok, fake, or a file: a catalogue, CSV, KWOK JSON, or prices of Scaling Advisor
    #[arg(long, value_name = "NAME|FILE", default_value = "aws")]
    catalog: String,

    #[command(flatten)]
    overlays: overlays::OverlayArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

/// Runs the command: data to `out`, talk to `talk`.
pub(crate) fn run(command: &CatalogCommand, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<()> {
    match command {
        CatalogCommand::Types(args) => types::run(args, out, messages),
        CatalogCommand::Prices(args) => prices::run(args, out, messages),
        CatalogCommand::Import(args) => import::run(args, out, messages),
    }
}

impl Source {
    /// The catalogue with all overlays on it, and the overlays themselves, for types that it does not have.
    pub(crate) fn load_with_overlays(
        &self,
        region: Option<&str>,
        messages: &mut impl Write,
    ) -> anyhow::Result<(Catalog, Vec<Overlay>)> {
        let mut catalog = match built_in(&self.catalog) {
            Some(catalog) => catalog.clone(),
            None => open(&self.catalog, region, messages)?,
        };
        let overlays = self.overlays.read()?;
        millpond_api::catalog::overlay::apply(&mut catalog, &overlays);
        Ok((catalog, overlays))
    }

    pub(crate) fn load(&self, messages: &mut impl Write) -> anyhow::Result<Cow<'static, Catalog>> {
        let mut catalog = match built_in(&self.catalog) {
            Some(catalog) => Cow::Borrowed(catalog),
            None => Cow::Owned(open(&self.catalog, None, messages)?),
        };
        let overlays = self.overlays.read()?;
        if !overlays.is_empty() {
            let applied = millpond_api::catalog::overlay::apply(catalog.to_mut(), &overlays);
            for overlay in applied.iter().filter(|applied| applied.offerings == 0) {
                writeln!(messages, "warning: overlay `{}` matches no offering", overlay.name)?;
            }
        }
        Ok(catalog)
    }
}

/// Opens a file that `--catalog` names.
fn open(name: &str, region: Option<&str>, messages: &mut impl Write) -> anyhow::Result<Catalog> {
    let file = File::open(name).map_err(|error| {
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        let message = format!("there is no catalogue `{name}`: neither one that comes with Millpond nor a file");
        let hint = format!("`--catalog` takes {} or the path of a file", BUILT_IN.join(", "));
        if missing {
            anyhow::Error::new(Failure { message, code: Some(Code::NotFound), hint: Some(hint) })
        } else {
            let (code, message) = (Code::of_io(&error), format!("cannot open the catalogue `{name}`"));
            anyhow::Error::new(error).context(Failure { message, code, hint: None })
        }
    })?;
    let stem = Path::new(name).file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let options = Options { name: stem, region: region.unwrap_or_default().to_owned(), ..Options::default() };
    let imported = millpond_api::catalog::import::read(name, file, None, &options).map_err(refused)?;
    for warning in &imported.warnings {
        writeln!(messages, "warning: {warning}")?;
    }
    Ok(imported.catalog)
}

pub(super) fn refused(error: ImportError) -> anyhow::Error {
    let hint = match &error {
        ImportError::File(_) => "the columns and fields are in docs/guides/catalog.md",
        ImportError::TooLarge { .. } => "a catalogue of every cloud is far smaller: is this the right file?",
        ImportError::Read { .. } => "check the file and its permissions",
    };
    let message = "cannot read the catalogue".to_owned();
    anyhow::Error::new(error).context(Failure { message, code: None, hint: Some(hint.to_owned()) })
}

fn provider(text: &str) -> Result<Provider, String> {
    Provider::from_name(text).ok_or_else(|| "one of aws, gcp, kwok, generic".to_owned())
}

/// Prints a value as JSON or YAML.
fn structured(output: Output, value: &serde_json::Value, out: &mut impl Write) -> anyhow::Result<()> {
    let text = if output == Output::Yaml { as_yaml(value) } else { as_json(value) };
    super::print(out, &text?)
}

/// Prints a page.
fn say(out: &mut impl Write, text: &str) -> anyhow::Result<()> {
    super::print(out, &format!("{text}\n"))
}

#[cfg(test)]
mod tests;
