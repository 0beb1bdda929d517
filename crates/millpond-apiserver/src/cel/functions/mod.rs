//! The functions and operators that expressions can call.

mod arithmetic;
mod convert;
mod format;
mod formats;
mod lists;
mod network;
mod semver;
mod text;

use std::sync::Arc;

use regex::Regex;

pub(super) use arithmetic::insert;
pub(super) use convert::{duration, shown, timestamp};
pub(super) use format::{taken_by, verbs};
pub(crate) use formats::NamedFormat;
pub(crate) use semver::Semver;

use super::ast::operators;
use super::compare;
use super::cost::{LIST_COST, REGEX_FACTOR, STRING_FACTOR, compares_by_size, is_nominal};
use super::meter::{LARGE_PATTERN_WORK, Meter, PATTERN_WORK};
use super::value::{Error, Evaluated, List, Text, Value};
use crate::go::regexp::{self, RegexpError};

/// Calls a function with the values of its target and arguments, and charges for it. `overload` is empty when it
/// could be one of several; `pattern` is the compiled pattern of `matches` if that is a constant.
pub(super) fn call<'a>(
    function: &str,
    overload: &str,
    values: &[Value<'a>],
    pattern: Option<&Regex>,
    meter: &mut Meter,
) -> Evaluated<'a> {
    // A call whose result could be far larger than its arguments is refused before it is computed.
    afford(function, values, meter)?;
    let result = dispatch(function, values, pattern, meter);
    if matches!(result, Err(Error::Limit)) {
        return result;
    }
    if let Ok(result) = &result {
        account(function, result, meter)?;
    }
    let cost = cost(function, overload, values, result.as_ref().ok(), meter)?;
    meter.spend(cost)?;
    result
}

/// Counts the memory of a result. Every function's result is counted here; a function whose result may be larger than
/// its arguments also asks before it computes it, see [`afford`].
fn account(function: &str, result: &Value<'_>, meter: &mut Meter) -> Result<(), Error> {
    // These return an existing value, or are counted while they are computed.
    if matches!(function, "dyn" | "value" | "min" | "max" | "join" | "format" | "replace" | operators::ADD) {
        return Ok(());
    }
    match result {
        Value::String(Text::Made(text)) => meter.allocate(text.len()),
        Value::Bytes(bytes) => meter.allocate(bytes.len()),
        _ => Ok(()),
    }
}

/// A pattern that is a constant. None when it is too large to be kept.
pub(super) fn constant_pattern(pattern: &str) -> Result<Option<Regex>, RegexpError> {
    regexp::check(pattern)?;
    Ok(regexp::compile_small(pattern).ok())
}

/// A pattern that is only known now, or too large to be kept.
fn pattern_of(pattern: &str, meter: &mut Meter) -> Result<Regex, Error> {
    meter.work(PATTERN_WORK)?;
    if let Ok(regex) = regexp::compile_small(pattern) {
        return Ok(regex);
    }
    meter.work(LARGE_PATTERN_WORK)?;
    regexp::compile(pattern).map_err(|error| Error::new(error.to_string()))
}

fn dispatch<'a>(function: &str, values: &[Value<'a>], pattern: Option<&Regex>, meter: &mut Meter) -> Evaluated<'a> {
    match function {
        operators::EQUALS | operators::NOT_EQUALS => {
            let [a, b] = values else { return Err(Error::NoOverload) };
            let equal = compare::equal(a, b, meter)?;
            Ok(Value::Bool(equal == (function == operators::EQUALS)))
        }
        "_<_" | "_<=_" | "_>_" | "_>=_" => {
            let [a, b] = values else { return Err(Error::NoOverload) };
            let ordering = compare::compare(a, b, meter)?;
            Ok(Value::Bool(match function {
                "_<_" => ordering.is_lt(),
                "_<=_" => ordering.is_le(),
                "_>_" => ordering.is_gt(),
                _ => ordering.is_ge(),
            }))
        }
        operators::NOT => match values {
            [Value::Bool(flag)] => Ok(Value::Bool(!flag)),
            _ => Err(Error::NoOverload),
        },
        "matches" => match values {
            [Value::String(text), Value::String(source)] => {
                meter.read(text.len())?;
                let matches = match pattern {
                    Some(pattern) => pattern.is_match(text),
                    None => pattern_of(source, meter)?.is_match(text),
                };
                Ok(Value::Bool(matches))
            }
            _ => Err(Error::NoOverload),
        },
        operators::ADD | "_-_" | "_*_" | "_/_" | "_%_" | operators::NEGATE | operators::IN => {
            arithmetic::call(function, values, meter)
        }
        operators::MAP_INSERT => match values {
            [map, rest @ ..] => insert(map.clone(), rest.to_vec()),
            [] => Err(Error::NoOverload),
        },
        "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp" | "type" | "uint" => {
            convert::call(function, values)
        }
        _ if function.starts_with("get") => convert::parts(function, values),
        "size" => match values {
            [value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_))] => {
                Ok(Value::Int(meter.size(value)? as i64))
            }
            _ => Err(Error::NoOverload),
        },
        _ if function.starts_with("optional.") || matches!(function, "hasValue" | "value" | "unwrapOpt") => {
            optional(function, values)
        }
        _ if function.starts_with("format.") || function == "validate" => formats::call(function, values),
        "format" => format::call(values, meter),
        _ => library(function, values, meter),
    }
}

/// The rest, one library after the other.
fn library<'a>(function: &str, values: &[Value<'a>], meter: &mut Meter) -> Evaluated<'a> {
    match values.first() {
        Some(Value::List(list)) => lists::call(function, list, values, meter),
        Some(Value::String(text)) => match function {
            "quantity" | "isQuantity" | "semver" | "isSemver" | "ip" | "isIP" | "cidr" | "isCIDR" | "url" | "isURL"
            | "ip.isCanonical" => network::parse(function, text, values),
            _ => text::call(function, text, values, meter),
        },
        // The cost was counted before.
        Some(Value::Int(count)) if function == "lists.range" => Ok(lists::range(*count)),
        Some(value) => network::accessor(function, value, values),
        None => Err(Error::NoOverload),
    }
}

fn optional<'a>(function: &str, values: &[Value<'a>]) -> Evaluated<'a> {
    match (function, values) {
        ("optional.none", []) => Ok(Value::Optional(None)),
        ("optional.of", [value]) => Ok(Value::some(value.clone())),
        ("optional.ofNonZeroValue", [value]) => Ok(Value::Optional((!is_zero(value)).then(|| Arc::new(value.clone())))),
        ("hasValue", [Value::Optional(value)]) => Ok(Value::Bool(value.is_some())),
        ("value", [Value::Optional(Some(value))]) => Ok(value.as_ref().clone()),
        ("value", [Value::Optional(None)]) => Err(Error::new("optional.none() dereference")),
        ("optional.unwrap" | "unwrapOpt", [Value::List(list)]) => {
            let mut present = Vec::new();
            for item in list.iter() {
                match item? {
                    Value::Optional(value) => present.extend(value.map(|value| value.as_ref().clone())),
                    other => return Err(Error::new(format!("value {} is not optional", shown(&other)))),
                }
            }
            Ok(Value::List(List::made(present)))
        }
        _ => Err(Error::NoOverload),
    }
}

fn is_zero(value: &Value<'_>) -> bool {
    match value {
        Value::Null | Value::Optional(None) => true,
        Value::Bool(flag) => !flag,
        Value::Int(number) => *number == 0,
        Value::Uint(number) => *number == 0,
        Value::Double(number) => *number == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::Duration(nanos) => *nanos == 0,
        Value::List(list) => list.len() == 0,
        Value::Map(map) => map.len() == 0,
        _ => false,
    }
}

fn rounded_up(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// Refuses calls whose result would be larger than the budget allows.
fn afford(function: &str, values: &[Value<'_>], meter: &mut Meter) -> Result<(), Error> {
    match (function, values) {
        ("lists.range", [Value::Int(count)]) => {
            let count = (*count).max(0) as u64;
            meter.afford(count)?;
            meter.make(usize::try_from(count).unwrap_or(usize::MAX))
        }
        ("replace", [Value::String(text), Value::String(from), Value::String(to), ..]) => {
            let most = if from.is_empty() { text.len() + 1 } else { text.len() / from.len() + 1 };
            meter.read(most.saturating_mul(to.len()))?;
            let limit = match values.get(3) {
                Some(Value::Int(times)) => usize::try_from(*times).unwrap_or(usize::MAX),
                _ => usize::MAX,
            };
            let times = if from.is_empty() { most } else { text.matches(&**from).count() };
            // Twice: a text is made, then shared.
            let size = text.len().saturating_add(times.min(limit).saturating_mul(to.len()));
            meter.allocate(size.saturating_mul(2))
        }
        (operators::ADD, [Value::List(a), Value::List(b)]) => meter.make(a.len() + b.len()),
        (operators::ADD, [Value::String(a), Value::String(b)]) => meter.allocate((a.len() + b.len()).saturating_mul(2)),
        (operators::ADD, [Value::Bytes(a), Value::Bytes(b)]) => meter.allocate((a.len() + b.len()).saturating_mul(2)),
        (operators::MAP_INSERT, [Value::Map(map), ..]) => meter.make(map.len() + 1),
        ("optional.unwrap" | "unwrapOpt", [Value::List(list)]) => meter.make(list.len()),
        (
            "flatten"
            | "distinct"
            | "sort"
            | "reverse"
            | "slice"
            | "isSorted"
            | "sum"
            | "min"
            | "max"
            | "indexOf"
            | "lastIndexOf"
            | operators::SORT_BY_KEYS,
            [Value::List(list), ..],
        ) => meter.make(list.len()),
        _ => Ok(()),
    }
}

/// The cost of a call in upstream's units. A failed call costs as much as one with an empty result.
fn cost(
    function: &str,
    overload: &str,
    values: &[Value<'_>],
    result: Option<&Value<'_>>,
    meter: &mut Meter,
) -> Result<u64, Error> {
    let sizes = Sizes { values };
    if let Some(cost) = list_cost(overload, &sizes, result, meter)? {
        return Ok(cost);
    }
    if let Some(cost) = library_cost(function, overload, &sizes, result, meter)? {
        return Ok(cost);
    }
    Ok(match overload {
        "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string" | "strings_quote"
        | "string_format" => rounded_up(sizes.get(0, meter)?, STRING_FACTOR),
        "in_list" => sizes.get(1, meter)?,
        overload if compares_by_size(overload) => {
            rounded_up(sizes.get(0, meter)?.min(sizes.get(1, meter)?), STRING_FACTOR)
        }
        "add_string" | "add_bytes" => {
            rounded_up(sizes.get(0, meter)?.saturating_add(sizes.get(1, meter)?), STRING_FACTOR)
        }
        "matches_string" => {
            let text = rounded_up(sizes.get(0, meter)? + 1, STRING_FACTOR);
            text.saturating_mul(rounded_up(sizes.get(1, meter)?, REGEX_FACTOR))
        }
        "contains_string" => {
            let text = rounded_up(sizes.get(0, meter)?, STRING_FACTOR);
            text.saturating_mul(rounded_up(sizes.get(1, meter)?, STRING_FACTOR))
        }
        _ => 1,
    })
}

struct Sizes<'v, 'a> {
    values: &'v [Value<'a>],
}

impl Sizes<'_, '_> {
    fn get(&self, index: usize, meter: &mut Meter) -> Result<u64, Error> {
        self.values.get(index).map_or(Ok(1), |value| meter.size(value))
    }

    /// The size of a value for functions that do not look into optional ones.
    fn text(&self, index: usize, factor: f64, meter: &mut Meter) -> Result<u64, Error> {
        Ok(rounded_up(self.get(index, meter)?, factor))
    }
}

fn list_cost(
    overload: &str,
    sizes: &Sizes<'_, '_>,
    result: Option<&Value<'_>>,
    meter: &mut Meter,
) -> Result<Option<u64>, Error> {
    let allocated = |factor: f64, size: u64| Some((size as f64 * factor) as u64 + 1 + LIST_COST);
    let compared = |index: usize, meter: &mut Meter| -> Result<Option<u64>, Error> {
        let size = sizes.get(index, meter)?;
        let first = match sizes.values.get(index) {
            Some(Value::List(list)) => list.get(0).and_then(Result::ok),
            _ => None,
        };
        let factor = match first {
            Some(Value::String(_) | Value::Bytes(_)) => 2.0 + STRING_FACTOR,
            _ => 2.0,
        };
        Ok(allocated(factor, size.saturating_mul(size)))
    };
    match overload {
        "list_slice" | "lists_range" | "list_reverse" => {
            let size = result.map_or(Ok(1), |result| meter.size(result))?;
            Ok(allocated(1.0, size))
        }
        "list_flatten" | "list_flatten_int" => {
            let depth = match sizes.values.get(1) {
                Some(Value::Int(depth)) => *depth as f64,
                _ => 1.0,
            };
            Ok(allocated(depth, sizes.get(0, meter)?))
        }
        "list_sets_contains_list" | "list_sets_intersects_list" | "list_sets_equivalent_list" => {
            let factor = if overload == "list_sets_equivalent_list" { 2 } else { 1 };
            let product = sizes.get(0, meter)?.saturating_mul(sizes.get(1, meter)?);
            Ok(Some(product.saturating_mul(factor).saturating_add(1)))
        }
        "list_distinct" => compared(0, meter),
        overload if overload.ends_with("_sortByAssociatedKeys") => compared(1, meter),
        overload if overload.starts_with("list_") && overload.ends_with("_sort") => compared(0, meter),
        _ => Ok(None),
    }
}

fn library_cost(
    function: &str,
    overload: &str,
    sizes: &Sizes<'_, '_>,
    result: Option<&Value<'_>>,
    meter: &mut Meter,
) -> Result<Option<u64>, Error> {
    Ok(Some(match function {
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => match sizes.values.first() {
            Some(value) => traversal(value, meter)?,
            None => 0,
        },
        "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "cidr" | "isIP" | "isCIDR" | "quantity"
        | "isQuantity" | "semver" | "isSemver" => sizes.text(0, STRING_FACTOR, meter)?,
        "replace" | "split" | "ip.isCanonical" => sizes.text(0, 2.0 * STRING_FACTOR, meter)?,
        "join" => {
            let size = result.map_or(Ok(1), |result| meter.size(result))?;
            rounded_up(size, 2.0 * STRING_FACTOR)
        }
        "find" | "findAll" => {
            let text = rounded_up(sizes.get(0, meter)? + 1, STRING_FACTOR);
            text.saturating_mul(sizes.text(1, REGEX_FACTOR, meter)?)
        }
        "ip" if overload == "cidr_ip" => 1,
        "ip" => sizes.text(0, STRING_FACTOR, meter)?,
        "containsIP" | "containsCIDR" => {
            let own = sizes.get(0, meter)?;
            let mut cost = rounded_up(own + own, STRING_FACTOR);
            if function == "containsCIDR" {
                cost += rounded_up(own, STRING_FACTOR) + 1;
            }
            if overload.ends_with("_string") {
                cost += sizes.text(1, STRING_FACTOR, meter)?;
            }
            cost
        }
        "validate" => {
            let pattern = match sizes.values.first() {
                Some(Value::Format(format)) => format.pattern_size,
                _ => 1,
            };
            let text = rounded_up(sizes.get(1, meter)? + 1, STRING_FACTOR);
            text.saturating_mul(rounded_up(pattern, REGEX_FACTOR))
        }
        operators::EQUALS => match sizes.values.first() {
            Some(
                Value::Quantity(_)
                | Value::Ip(_)
                | Value::Cidr(_)
                | Value::Format(_)
                | Value::Url(_)
                | Value::Semver(_),
            ) => 1,
            _ => return Ok(None),
        },
        function if is_nominal(function) => 1,
        _ => return Ok(None),
    }))
}

/// The cost of going through a value with all its parts.
fn traversal(value: &Value<'_>, meter: &mut Meter) -> Result<u64, Error> {
    meter.work(1)?;
    Ok(match value {
        Value::String(text) => (text.len() as f64 * STRING_FACTOR) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * STRING_FACTOR) as u64,
        Value::List(list) => {
            let mut cost = 0u64;
            for item in list.iter() {
                cost = cost.saturating_add(traversal(&item?, meter)?);
            }
            cost
        }
        Value::Map(map) => {
            let mut cost = 0u64;
            for key in map.keys() {
                cost = cost.saturating_add(traversal(&key, meter)?);
                if let Some(value) = map.find(&key) {
                    cost = cost.saturating_add(traversal(&value?, meter)?);
                }
            }
            cost
        }
        _ => 1,
    })
}
