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
//! by itself, which a type has if one of its offerings matches. Surcharges of
//! all that match add up. A price never falls below 0.
//!
//! One more rule applies to overlays in a cluster: of two with the same weight that set something for the same
//! offering, the one that would lose is not applied, and its status says so ([`conflicts`]).

mod conflict;
mod file;
mod object;

use std::cmp::Reverse;
use std::collections::BTreeMap;

pub use conflict::{Conflict, Target, conflicts};
pub use file::parse;

use super::{Catalog, InstanceType};
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
    /// Adds nano-dollars per hour; may be negative.
    Add(i64),
    /// Scales the price by millionths; may be negative.
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
    /// Overlays of higher weight win.
    pub weight: u32,
    /// All must hold.
    pub requirements: Vec<Requirement>,
    /// The price rule.
    pub price: Option<PriceRule>,
    /// Nano-dollars an hour for each node, on top.
    pub surcharge_nanos_hour: u64,
    /// Extended resources of the node.
    pub capacity: BTreeMap<String, u64>,
}

/// The effect of an overlay.
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

    /// Higher weight first.
    fn precedence(&self) -> (Reverse<u32>, Reverse<&str>) {
        (Reverse(self.weight), Reverse(&self.name))
    }
}

/// In the order in which they count.
fn ordered(overlays: &[Overlay]) -> Vec<&Overlay> {
    let mut ordered: Vec<_> = overlays.iter().collect();
    ordered.sort_by(|a, b| a.precedence().cmp(&b.precedence()));
    ordered
}

/// The labels of a type's offerings, those of its pool included, one after the other.
fn each_offering(catalog: &Catalog, of: &InstanceType, pool: &LabelValues, mut look: impl FnMut(usize, &LabelValues)) {
    let mut labels = catalog.labels(of);
    for (key, values) in pool {
        labels.entry(key.clone()).or_insert_with(|| values.clone());
    }
    for (index, offering) in of.offerings.iter().enumerate() {
        labels.insert(ZONE.to_owned(), vec![offering.zone.to_string()]);
        labels.insert(CAPACITY_TYPE.to_owned(), vec![offering.capacity_type.name().to_owned()]);
        look(index, &labels);
    }
}

/// Lays overlays over a catalogue; tells in order of precedence what each matched.
pub fn apply(catalog: &mut Catalog, overlays: &[Overlay]) -> Vec<Applied> {
    apply_for(catalog, &LabelValues::new(), overlays)
}

/// The same for nodes of a pool, whose labels overlays may require as well.
pub fn apply_for(catalog: &mut Catalog, pool: &LabelValues, overlays: &[Overlay]) -> Vec<Applied> {
    let ordered = ordered(overlays);
    let mut applied: Vec<_> =
        ordered.iter().map(|overlay| Applied { name: overlay.name.clone(), offerings: 0 }).collect();
    let mut types = std::mem::take(&mut catalog.types);
    for of in &mut types {
        let mut prices: Vec<(Option<PriceRule>, u64)> = vec![(None, 0); of.offerings.len()];
        let mut matched = vec![false; ordered.len()];
        each_offering(catalog, of, pool, |index, labels| {
            let (rule, surcharge) = &mut prices[index];
            for (number, overlay) in ordered.iter().enumerate().filter(|(_, overlay)| overlay.matches(labels)) {
                matched[number] = true;
                applied[number].offerings += 1;
                *rule = rule.or(overlay.price);
                *surcharge = surcharge.saturating_add(overlay.surcharge_nanos_hour);
            }
        });
        for (offering, (rule, surcharge)) in of.offerings.iter_mut().zip(prices) {
            let price = rule.map_or(offering.price_nanos_hour, |rule| rule.apply(offering.price_nanos_hour));
            offering.estimated &= !matches!(rule, Some(PriceRule::Absolute(_)));
            offering.price_nanos_hour = price.saturating_add(surcharge);
        }
        for (overlay, _) in ordered.iter().zip(matched).rev().filter(|(_, matched)| *matched) {
            of.extended.extend(overlay.capacity.iter().map(|(name, count)| (name.clone(), *count)));
        }
    }
    catalog.types = types;
    applied
}

/// The price of a node with these labels under overlays.
pub fn price_of<'o>(nanos: u64, labels: &LabelValues, overlays: impl Iterator<Item = &'o Overlay>) -> u64 {
    let matching: Vec<Overlay> = overlays.filter(|overlay| overlay.matches(labels)).cloned().collect();
    let rule = ordered(&matching).into_iter().find_map(|overlay| overlay.price);
    let surcharges = matching.iter().map(|overlay| overlay.surcharge_nanos_hour).fold(0, u64::saturating_add);
    rule.map_or(nanos, |rule| rule.apply(nanos)).saturating_add(surcharges)
}

/// What an overlay makes of a price.
fn price_rule(price: Option<&str>, adjustment: Option<&str>) -> Result<Option<PriceRule>, (&'static str, String)> {
    match (price, adjustment) {
        (Some(_), Some(_)) => Err(("spec.price", "stands beside `priceAdjustment`; only one of them may".to_owned())),
        (Some(price), None) => {
            let nanos = money::parse(price).map_err(|error| ("spec.price", error.to_string()))?;
            Ok(Some(PriceRule::Absolute(nanos)))
        }
        (None, Some(text)) => {
            let rule = PriceRule::parse_adjustment(text);
            rule.map(Some).map_err(|problem| ("spec.priceAdjustment", problem.to_owned()))
        }
        (None, None) => Ok(None),
    }
}

fn is_weight(weight: u32) -> bool {
    (1..=LIMIT_WEIGHT).contains(&weight)
}

/// Checks an extended resource and reads its amount.
pub fn extended(name: &str, amount: &str) -> Result<u64, String> {
    check_extended(name)?;
    quantity::parse_units(amount).map_err(|error| error.to_string())
}

fn check_extended(name: &str) -> Result<(), String> {
    if STANDARD.contains(&name) {
        return Err("would change a resource that the node has itself".to_owned());
    }
    if !is_key(name) || !(name.contains('/') || name.starts_with("hugepages-")) {
        let hint = nearest(name, STANDARD).map_or("", |_| "; standard resources cannot be changed");
        return Err(format!("is of a resource without a domain, such as `example.com/licence`{hint}"));
    }
    Ok(())
}
