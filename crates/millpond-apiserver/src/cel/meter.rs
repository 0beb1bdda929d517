//! The runtime cost limit of an evaluation.
//!
//! Three counters run: the cost in upstream's units, which decides and is shown to users; the work really done, which
//! keeps expressions from being slow where upstream's units do not see it (comparing large objects, counting
//! characters, constants in loops); and the memory of what is made, see [`MAX_MADE_BYTES`].

use super::value::{Error, Value};

/// Bytes of text that count as one unit of work.
const BYTES_PER_WORK: usize = 256;
/// Work of one new item of a list.
const WORK_PER_ITEM: u64 = 8;
/// Work of compiling a pattern that is not a constant.
pub(super) const PATTERN_WORK: u64 = 10_000;
/// Work of compiling a constant pattern that is too large to be kept.
pub(super) const LARGE_PATTERN_WORK: u64 = 5_000_000;

/// Bytes that the values of one evaluation may take. Upstream's costs follow the arguments of most functions, not
/// their results: `replace` on a megabyte may make gigabytes for the price of a megabyte. What does not amplify
/// stays well below, as its costs end at ten million characters.
const MAX_MADE_BYTES: usize = 64 << 20;
/// Bytes of one item of a list or entry of a map: the value, and what is around it.
const ITEM_BYTES: usize = 64;

/// Counts cost, work and memory.
#[derive(Debug)]
pub(crate) struct Meter {
    cost: u64,
    limit: u64,
    /// Work left.
    work: u64,
    /// Memory left, in bytes.
    bytes: usize,
}

impl Meter {
    /// Counts up to a cost and an amount of work: roughly nodes visited and values compared, some thirty
    /// nanoseconds each.
    pub(crate) fn new(limit: u64, work: u64) -> Self {
        Self { cost: 0, limit, work, bytes: MAX_MADE_BYTES }
    }

    /// The cost so far.
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// The work that is left.
    pub(crate) fn work_left(&self) -> u64 {
        self.work
    }

    /// Adds to the cost.
    pub(super) fn spend(&mut self, cost: u64) -> Result<(), Error> {
        self.cost = self.cost.saturating_add(cost);
        self.work(1)?;
        if self.cost > self.limit { Err(Error::Limit) } else { Ok(()) }
    }

    /// Refuses an operation of known cost before it is performed.
    pub(super) fn afford(&self, cost: u64) -> Result<(), Error> {
        if self.cost.saturating_add(cost) > self.limit { Err(Error::Limit) } else { Ok(()) }
    }

    /// Adds to the work.
    pub(super) fn work(&mut self, units: u64) -> Result<(), Error> {
        let left = self.work.checked_sub(units);
        self.work = left.unwrap_or(0);
        left.map(drop).ok_or(Error::Limit)
    }

    /// Adds the work and the memory of creating this many list items.
    pub(super) fn make(&mut self, items: usize) -> Result<(), Error> {
        self.allocate(items.saturating_mul(ITEM_BYTES))?;
        self.work((items as u64).saturating_mul(WORK_PER_ITEM))
    }

    /// Adds the memory of a value that is about to be made.
    pub(super) fn allocate(&mut self, bytes: usize) -> Result<(), Error> {
        let left = self.bytes.checked_sub(bytes);
        self.bytes = left.unwrap_or(0);
        left.map(drop).ok_or(Error::Limit)
    }

    /// Adds the work of reading this many bytes.
    pub(super) fn read(&mut self, bytes: usize) -> Result<(), Error> {
        self.work((bytes / BYTES_PER_WORK) as u64)
    }

    /// The size of a value as costs count it: characters, bytes, items, entries; 1 for everything else.
    pub(super) fn size(&mut self, value: &Value<'_>) -> Result<u64, Error> {
        Ok(match value {
            Value::String(text) => {
                self.read(text.len())?;
                text.chars().count() as u64
            }
            Value::Bytes(bytes) => bytes.len() as u64,
            Value::List(list) => list.len() as u64,
            Value::Map(map) => map.len() as u64,
            Value::Ip(address) => {
                if address.is_ipv4() {
                    4
                } else {
                    16
                }
            }
            Value::Cidr(network) => u64::from(network.bits).div_ceil(8),
            Value::Optional(Some(value)) => self.size(value)?,
            _ => 1,
        })
    }
}
