//! Filters and sorts the types of a catalogue.

use std::cmp::Ordering;

use super::{CapacityType, Catalog, InstanceType, Offering};
use crate::quantity::QuantityError;

/// A range of numbers, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The lowest.
    pub low: u64,
    /// The highest.
    pub high: u64,
}

/// Why the text of a range is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// One end is not a quantity.
    #[error("`{text}` {source}")]
    End {
        /// The end.
        text: String,
        /// Why.
        source: QuantityError,
    },
    /// The range is empty.
    #[error("no number is in the range `{0}`")]
    Empty(String),
    /// The text is not a range.
    #[error("`{0}` is not a range such as `4`, `4..16`, `4..`, `..16` or `>=8`")]
    Syntax(String),
}

impl Range {
    /// Whether a number is in it.
    pub fn contains(self, number: u64) -> bool {
        (self.low..=self.high).contains(&number)
    }

    /// Reads `4`, `4..16`, `4..`, `..16`, `>=8`, `>8`, `<=8`, `<8`.
    pub fn parse(text: &str, end: impl Fn(&str) -> Result<u64, QuantityError>) -> Result<Self, RangeError> {
        let read = |part: &str| {
            let part = part.trim();
            end(part).map_err(|source| RangeError::End { text: part.to_owned(), source })
        };
        let trimmed = text.trim();
        let empty = || RangeError::Empty(trimmed.to_owned());
        let (low, high) = if let Some((low, high)) = trimmed.split_once("..") {
            if low.is_empty() && high.is_empty() {
                return Err(RangeError::Syntax(trimmed.to_owned()));
            }
            (
                if low.is_empty() { 0 } else { read(low)? },
                if high.is_empty() { u64::MAX } else { read(high.strip_prefix('=').unwrap_or(high))? },
            )
        } else if let Some(part) = trimmed.strip_prefix(">=") {
            (read(part)?, u64::MAX)
        } else if let Some(part) = trimmed.strip_prefix("<=") {
            (0, read(part)?)
        } else if let Some(part) = trimmed.strip_prefix('>') {
            (read(part)?.checked_add(1).ok_or_else(empty)?, u64::MAX)
        } else if let Some(part) = trimmed.strip_prefix('<') {
            (0, read(part)?.checked_sub(1).ok_or_else(empty)?)
        } else {
            let number = read(trimmed.strip_prefix('=').unwrap_or(trimmed))?;
            (number, number)
        };
        if low > high { Err(empty()) } else { Ok(Self { low, high }) }
    }
}

/// Which GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuFilter {
    /// Any.
    Any,
    /// Those whose name has this in it, in either case.
    Named(String),
}

/// How to order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// By the lowest price.
    #[default]
    Price,
    /// By the lowest price for a core.
    PricePerCore,
    /// By the lowest price for a GiB of memory.
    PricePerGib,
    /// By cores.
    Cpu,
    /// By memory.
    Memory,
    /// By name.
    Name,
}

/// A query; empty fields match everything.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Milli-cores.
    pub cpu_milli: Option<Range>,
    /// Memory as sold.
    pub memory_bytes: Option<Range>,
    /// GPUs.
    pub gpu: Option<GpuFilter>,
    /// Architectures.
    pub arch: Vec<String>,
    /// Operating systems.
    pub os: Vec<String>,
    /// Zones.
    pub zones: Vec<String>,
    /// Capacity types.
    pub capacity_types: Vec<CapacityType>,
    /// Families.
    pub families: Vec<String>,
    /// The order.
    pub sort: Sort,
    /// Turn the order round.
    pub reverse: bool,
}

/// A type that fits, with those of its offerings that do.
#[derive(Debug, Clone)]
pub struct Selected<'a> {
    /// The type.
    pub of: &'a InstanceType,
    /// Available offerings in the zones and of the capacity types asked for.
    pub offerings: Vec<&'a Offering>,
}

impl Selected<'_> {
    /// The cheapest of the offerings; of a capacity type if one is given.
    pub fn cheapest(&self, capacity_type: Option<CapacityType>) -> Option<&Offering> {
        let fits = |offering: &&&Offering| capacity_type.is_none_or(|kind| offering.capacity_type == kind);
        self.offerings.iter().filter(fits).min_by_key(|offering| offering.price_nanos_hour).copied()
    }
}

/// The types that fit, in order; equals by name.
pub fn select<'a>(catalog: &'a Catalog, query: &Query) -> Vec<Selected<'a>> {
    let fitting = catalog.types.iter().filter(|of| fits(of, query));
    let with_offerings = fitting.map(|of| {
        let offerings = of.offerings.iter().filter(|offering| offering_fits(offering, query)).collect();
        Selected { of, offerings }
    });
    let mut selected: Vec<_> = with_offerings.filter(|selected| !selected.offerings.is_empty()).collect();
    selected.sort_by(|a, b| {
        let order = compare(a, b, query.sort);
        let order = if query.reverse { order.reverse() } else { order };
        order.then_with(|| a.of.name.cmp(&b.of.name))
    });
    selected
}

fn fits(of: &InstanceType, query: &Query) -> bool {
    let in_range = |range: Option<Range>, number| range.is_none_or(|range| range.contains(number));
    let listed = |list: &[String], value: &str| list.is_empty() || list.iter().any(|entry| entry == value);
    let gpu_fits = match (&query.gpu, &of.gpu) {
        (None, _) => true,
        (Some(GpuFilter::Any), gpu) => gpu.is_some(),
        (Some(GpuFilter::Named(part)), gpu) => {
            let part = part.to_lowercase();
            let has = |text: &str| text.to_lowercase().contains(&part);
            gpu.as_ref().is_some_and(|gpu| has(&gpu.name) || has(&gpu.manufacturer))
        }
    };
    in_range(query.cpu_milli, of.cpu_milli)
        && in_range(query.memory_bytes, of.memory_bytes)
        && gpu_fits
        && listed(&query.arch, &of.arch)
        && (query.os.is_empty() || of.operating_systems.iter().any(|system| query.os.contains(system)))
        && listed(&query.families, &of.naming.family)
}

fn offering_fits(offering: &Offering, query: &Query) -> bool {
    offering.available
        && (query.zones.is_empty() || query.zones.iter().any(|zone| **zone == *offering.zone))
        && (query.capacity_types.is_empty() || query.capacity_types.contains(&offering.capacity_type))
}

fn compare(a: &Selected<'_>, b: &Selected<'_>, sort: Sort) -> Ordering {
    let price = |selected: &Selected<'_>| {
        u128::from(selected.cheapest(None).map_or(u64::MAX, |offering| offering.price_nanos_hour))
    };
    // a/x < b/y as a·y < b·x: exact, and nothing is divided by.
    let per = |amount: fn(&InstanceType) -> u64| {
        (price(a) * u128::from(amount(b.of))).cmp(&(price(b) * u128::from(amount(a.of))))
    };
    match sort {
        Sort::Price => price(a).cmp(&price(b)),
        Sort::PricePerCore => per(|of| of.cpu_milli),
        Sort::PricePerGib => per(|of| of.memory_bytes),
        Sort::Cpu => a.of.cpu_milli.cmp(&b.of.cpu_milli),
        Sort::Memory => a.of.memory_bytes.cmp(&b.of.memory_bytes),
        Sort::Name => a.of.name.cmp(&b.of.name),
    }
}
