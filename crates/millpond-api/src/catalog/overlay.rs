//! Overlays: own prices and own resources laid over a catalogue.
//!
//! An overlay is a `karpenter.sh/v1alpha1` NodeOverlay: requirements on labels,
//! and `price` or `priceAdjustment` (`-30%`, `+12.5%`, `-0.05`, `+0.1`), and
//! extended resources (`capacity`). Millpond adds `surcharge`: dollars an hour
//! for each node, on top of whatever price holds, for licences.
//!
//! When several overlays match one offering, the price comes from the one with
//! the greatest `weight`, on equal weights from the one whose name is last in
//! the alphabet (Karpenter's order); the same holds for each extended resource
//! by itself. Surcharges of all that match add up. A price never falls below 0.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::Catalog;
use super::import::{FileError, Place};
use crate::labels::{CAPACITY_TYPE, ZONE, is_key};
use crate::selector::{LabelValues, Requirement};
use crate::spelling::nearest;
use crate::{money, quantity};

/// The greatest weight of an overlay in a file; the command line's are above it.
pub const LIMIT_WEIGHT: u32 = 10_000;
/// The most overlays that are applied at once, as each looks at every offering.
pub const LIMIT_OVERLAYS: usize = 1000;
/// The largest overlay file.
pub const LIMIT_BYTES: usize = 4 << 20;

/// Resources that a node has anyway; an overlay may not change them.
const STANDARD: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];

/// How an overlay changes a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriceRule {
    /// It is this many nano-dollars an hour.
    Absolute(u64),
    /// So many nano-dollars an hour more or less.
    Add(i64),
    /// So many millionths more or less.
    Scale(i64),
}

impl PriceRule {
    /// The price under the rule.
    pub fn apply(self, nanos: u64) -> u64 {
        match self {
            Self::Absolute(price) => price,
            Self::Add(change) => nanos.saturating_add_signed(change),
            Self::Scale(millionths) => {
                let factor = 1_000_000 + i128::from(millionths);
                let scaled = i128::from(nanos).saturating_mul(factor.max(0)).saturating_add(500_000) / 1_000_000;
                u64::try_from(scaled).unwrap_or(u64::MAX)
            }
        }
    }

    /// Reads `-30%`, `+12.5%`, `-0.05`, `+0.1`.
    pub fn parse_adjustment(text: &str) -> Result<Self, &'static str> {
        const WRONG: &str = "is not an adjustment such as `-30%`, `+12.5%`, `-0.05` or `+0.1`";
        let (sign, rest) = match text.as_bytes().first() {
            Some(b'+') => (1, &text[1..]),
            Some(b'-') => (-1, &text[1..]),
            _ => return Err(WRONG),
        };
        let number = |text| money::parse(text).map_err(|_| WRONG);
        let Some(percent) = rest.strip_suffix('%') else {
            return Ok(Self::Add(sign * number(rest)? as i64));
        };
        // One per cent is ten thousand millionths; money counts a unit in 10⁹.
        let millionths = (number(percent)? / 100_000) as i64;
        if sign < 0 && millionths > 1_000_000 {
            return Err("is a discount of more than 100%");
        }
        Ok(Self::Scale(sign * millionths))
    }
}

/// One overlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    /// Its name.
    pub name: String,
    /// The greater goes first.
    pub weight: u32,
    /// All must hold.
    pub requirements: Vec<Requirement>,
    /// What becomes of the price.
    pub price: Option<PriceRule>,
    /// Nano-dollars an hour for each node, on top.
    pub surcharge_nanos_hour: u64,
    /// Extended resources of the node.
    pub capacity: BTreeMap<String, u64>,
}

/// What an overlay did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The overlay.
    pub name: String,
    /// Offerings that it matches.
    pub offerings: usize,
}

impl Overlay {
    fn matches(&self, labels: &LabelValues) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(labels))
    }
}

/// Lays overlays over a catalogue; tells in order of precedence what each matched.
pub fn apply(catalog: &mut Catalog, overlays: &[Overlay]) -> Vec<Applied> {
    let mut ordered: Vec<_> = overlays.iter().collect();
    ordered.sort_by(|a, b| (b.weight, &b.name).cmp(&(a.weight, &a.name)));
    let mut applied: Vec<_> =
        ordered.iter().map(|overlay| Applied { name: overlay.name.clone(), offerings: 0 }).collect();
    let mut types = std::mem::take(&mut catalog.types);
    for of in &mut types {
        let mut labels = catalog.labels(of);
        for overlay in ordered.iter().rev().filter(|overlay| overlay.matches(&labels)) {
            of.extended.extend(overlay.capacity.iter().map(|(name, count)| (name.clone(), *count)));
        }
        for offering in &mut of.offerings {
            labels.insert(ZONE.to_owned(), vec![offering.zone.to_string()]);
            labels.insert(CAPACITY_TYPE.to_owned(), vec![offering.capacity_type.name().to_owned()]);
            let mut rule = None;
            let mut surcharge = 0u64;
            for (overlay, applied) in ordered.iter().zip(&mut applied) {
                if overlay.matches(&labels) {
                    applied.offerings += 1;
                    rule = rule.or(overlay.price);
                    surcharge = surcharge.saturating_add(overlay.surcharge_nanos_hour);
                }
            }
            let price = rule.map_or(offering.price_nanos_hour, |rule| rule.apply(offering.price_nanos_hour));
            offering.estimated &= !matches!(rule, Some(PriceRule::Absolute(_)));
            offering.price_nanos_hour = price.saturating_add(surcharge);
        }
    }
    catalog.types = types;
    applied
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    api_version: String,
    kind: String,
    metadata: Metadata,
    spec: Spec,
    #[serde(default, rename = "status")]
    _status: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Metadata {
    name: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    #[serde(default)]
    requirements: Vec<Spanned<Requirement>>,
    #[serde(default)]
    weight: Option<Spanned<u32>>,
    #[serde(default)]
    price: Option<Spanned<String>>,
    #[serde(default)]
    price_adjustment: Option<Spanned<String>>,
    #[serde(default)]
    surcharge: Option<Spanned<String>>,
    #[serde(default)]
    capacity: BTreeMap<String, Spanned<String>>,
}

/// Reads overlays from YAML, one document each.
pub fn parse(file: &str, text: &str) -> Result<Vec<Overlay>, FileError> {
    let first = Place { file, line: 1 };
    if text.len() > LIMIT_BYTES {
        return Err(first.at(1, "", format!("larger than {} MiB", LIMIT_BYTES >> 20)));
    }
    let documents: Vec<Document> = serde_saphyr::from_multiple(text).map_err(|error| {
        let location = error.location();
        let (line, column) = location.map_or((1, 1), |location| (location.line(), location.column()));
        Place { file, line }.at(column, "", message(&error))
    })?;
    if documents.len() > LIMIT_OVERLAYS {
        return Err(first.at(1, "", format!("more than {LIMIT_OVERLAYS} overlays")));
    }
    let mut overlays: Vec<Overlay> = Vec::with_capacity(documents.len());
    for document in documents {
        let name = &document.metadata.name;
        if overlays.iter().any(|overlay| overlay.name == name.value) {
            return Err(wrong(file, name, "metadata.name", &name.value, "is there more than once"));
        }
        overlays.push(overlay(file, document)?);
    }
    Ok(overlays)
}

/// The reader's words without its drawing of the place.
fn message(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let end = [" at line ", " (line "].iter().filter_map(|mark| text.rfind(mark)).min();
    text[..end.unwrap_or(text.len())].to_owned()
}

fn wrong<T>(file: &str, place: &Spanned<T>, field: &str, text: &str, problem: impl Into<String>) -> FileError {
    let location = place.referenced;
    Place { file, line: location.line() }.field(location.column(), field, text, problem)
}

fn overlay(file: &str, document: Document) -> Result<Overlay, FileError> {
    let Document { api_version, kind, metadata: Metadata { name }, spec, .. } = document;
    if (api_version.as_str(), kind.as_str()) != ("karpenter.sh/v1alpha1", "NodeOverlay") {
        let text = format!("{api_version} {kind}");
        return Err(wrong(file, &name, "kind", &text, "is not `karpenter.sh/v1alpha1 NodeOverlay`"));
    }
    for requirement in &spec.requirements {
        let checked = requirement.value.check();
        checked.map_err(|error| wrong(file, requirement, "spec.requirements", "", error.to_string()))?;
    }
    if let Some(weight) = spec.weight.as_ref().filter(|weight| !(1..=LIMIT_WEIGHT).contains(&weight.value)) {
        let text = weight.value.to_string();
        return Err(wrong(file, weight, "spec.weight", &text, format!("is not from 1 to {LIMIT_WEIGHT}")));
    }
    let dollars = |field: &str, text: &Spanned<String>| {
        money::parse(&text.value).map_err(|error| wrong(file, text, field, &text.value, error.to_string()))
    };
    let price = match (&spec.price, &spec.price_adjustment) {
        (Some(price), Some(_)) => {
            return Err(wrong(file, price, "spec.price", "", "stands beside `priceAdjustment`; only one of them may"));
        }
        (Some(price), None) => Some(PriceRule::Absolute(dollars("spec.price", price)?)),
        (None, Some(text)) => {
            let rule = PriceRule::parse_adjustment(&text.value);
            Some(rule.map_err(|problem| wrong(file, text, "spec.priceAdjustment", &text.value, problem))?)
        }
        (None, None) => None,
    };
    let surcharge = spec.surcharge.as_ref().map(|text| dollars("spec.surcharge", text)).transpose()?;
    let mut capacity = BTreeMap::new();
    for (resource, count) in &spec.capacity {
        let units = extended(resource, &count.value)
            .map_err(|problem| wrong(file, count, &format!("spec.capacity.{resource}"), &count.value, problem))?;
        capacity.insert(resource.clone(), units);
    }
    Ok(Overlay {
        name: name.value,
        weight: spec.weight.map_or(0, |weight| weight.value),
        requirements: spec.requirements.into_iter().map(|requirement| requirement.value).collect(),
        price,
        surcharge_nanos_hour: surcharge.unwrap_or(0),
        capacity,
    })
}

/// Checks an extended resource and reads its amount.
pub fn extended(name: &str, amount: &str) -> Result<u64, String> {
    if STANDARD.contains(&name) {
        return Err("would change a resource that the node has itself".to_owned());
    }
    if !is_key(name) || !name.contains('/') {
        let hint = nearest(name, STANDARD).map_or("", |_| "; standard resources cannot be changed");
        return Err(format!("is of a resource without a domain, such as `example.com/licence`{hint}"));
    }
    quantity::parse_units(amount).map_err(|error| error.to_string())
}
