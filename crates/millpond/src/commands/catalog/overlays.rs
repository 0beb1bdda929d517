//! Overlays from files and from flags.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use millpond_api::catalog::overlay::{self, LIMIT_WEIGHT, Overlay, PriceRule};
use millpond_api::selector::{self, Requirement};
use millpond_api::{labels, money};

use crate::failure::{Code, Failure};

/// Own prices and resources. A flag with `@SELECTOR` holds for offerings with
/// such labels, without it for all. Flags go before files, `--price` before
/// `--discount`, and of two alike the later.
#[derive(Debug, Args)]
pub(super) struct OverlayArgs {
    /// A file of NodeOverlays (repeatable)
    #[arg(long, value_name = "FILE")]
    overlay: Vec<PathBuf>,

    /// Reduce prices by this percentage (repeatable)
    #[arg(long, value_name = "PERCENT[@SELECTOR]", value_parser = discount)]
    discount: Vec<Overlay>,

    /// Set the price in dollars an hour; SELECTOR may be the name of a type (repeatable)
    #[arg(long, value_name = "USD@SELECTOR", value_parser = price)]
    price: Vec<Overlay>,

    /// Add dollars an hour for each node, for licences (repeatable)
    #[arg(long, value_name = "USD[@SELECTOR]", value_parser = surcharge)]
    surcharge: Vec<Overlay>,

    /// Add an extended resource to nodes (repeatable)
    #[arg(long, value_name = "NAME=COUNT[@SELECTOR]", value_parser = resource)]
    resource: Vec<Overlay>,
}

impl OverlayArgs {
    pub(super) fn read(&self) -> anyhow::Result<Vec<Overlay>> {
        let mut overlays: Vec<Overlay> = Vec::new();
        for path in &self.overlay {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path).map_err(|error| {
                let missing = (error.kind() == std::io::ErrorKind::NotFound).then_some(Code::NotFound);
                let code = missing.or_else(|| Code::of_io(&error));
                let message = format!("cannot read the overlays of `{name}`");
                anyhow::Error::new(error).context(Failure { message, code, hint: None })
            })?;
            overlays.extend(overlay::parse(&name, &text).map_err(|error| {
                let message = "cannot read the overlays".to_owned();
                let hint = Some("the fields of an overlay are in docs/guides/catalog.md".to_owned());
                anyhow::Error::new(error).context(Failure { message, code: None, hint })
            })?);
        }
        let flags = [&self.discount, &self.price, &self.surcharge, &self.resource];
        for (flag, weight) in flags.into_iter().flatten().zip(LIMIT_WEIGHT + 1..) {
            overlays.push(Overlay { weight, ..flag.clone() });
        }
        Ok(overlays)
    }
}

fn split(text: &str) -> Result<(&str, Vec<Requirement>), String> {
    let Some((value, selector)) = text.split_once('@') else { return Ok((text, Vec::new())) };
    let requirements = selector::parse(selector).map_err(|error| error.to_string())?;
    Ok((value, requirements))
}

fn made(flag: &str, text: &str, requirements: Vec<Requirement>) -> Overlay {
    Overlay {
        name: format!("--{flag} {text}"),
        weight: 0,
        requirements,
        price: None,
        surcharge_nanos_hour: 0,
        capacity: BTreeMap::new(),
    }
}

fn discount(text: &str) -> Result<Overlay, String> {
    let (value, requirements) = split(text)?;
    let number = value.strip_suffix('%').unwrap_or(value);
    let rule = PriceRule::parse_adjustment(&format!("-{number}%"));
    let rule = rule.map_err(|_| format!("`{value}` is not a discount from 0% to 100%"))?;
    Ok(Overlay { price: Some(rule), ..made("discount", text, requirements) })
}

fn price(text: &str) -> Result<Overlay, String> {
    let (value, selector) = text.split_once('@').ok_or("say for what, as in `0.05@m5.large`")?;
    let requirements = if selector.contains(['=', '(', '!', '/']) {
        selector::parse(selector).map_err(|error| error.to_string())?
    } else {
        selector::parse(&format!("{}={selector}", labels::INSTANCE_TYPE)).map_err(|error| error.to_string())?
    };
    let nanos = money::parse(value).map_err(|error| format!("`{value}` {error}"))?;
    Ok(Overlay { price: Some(PriceRule::Absolute(nanos)), ..made("price", text, requirements) })
}

fn surcharge(text: &str) -> Result<Overlay, String> {
    let (value, requirements) = split(text)?;
    let surcharge_nanos_hour = money::parse(value).map_err(|error| format!("`{value}` {error}"))?;
    Ok(Overlay { surcharge_nanos_hour, ..made("surcharge", text, requirements) })
}

fn resource(text: &str) -> Result<Overlay, String> {
    let (value, requirements) = split(text)?;
    let (name, count) = value.split_once('=').ok_or("say how many, as in `example.com/licence=1`")?;
    let count = overlay::extended(name, count).map_err(|problem| format!("`{value}` {problem}"))?;
    Ok(Overlay { capacity: BTreeMap::from([(name.to_owned(), count)]), ..made("resource", text, requirements) })
}
