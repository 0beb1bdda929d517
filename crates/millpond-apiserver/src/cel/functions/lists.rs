//! Functions of lists.

use std::cmp::Ordering;

use super::super::ast::operators;
use super::super::compare;
use super::super::meter::Meter;
use super::super::value::{Error, Evaluated, List, Value};
use super::arithmetic;

pub(super) fn call<'a>(function: &str, list: &List<'a>, values: &[Value<'a>], meter: &mut Meter) -> Evaluated<'a> {
    let arguments = &values[1..];
    match (function, arguments) {
        ("isSorted", []) => is_sorted(list, meter),
        ("sum", []) => sum(list, meter),
        ("min" | "max", []) => extreme(function, list, meter),
        ("indexOf" | "lastIndexOf", [item]) => index_of(function, list, item, meter),
        ("join", []) => join(list, "", meter),
        ("join", [Value::String(separator)]) => join(list, separator, meter),
        ("first", []) => Ok(Value::Optional(list.get(0).transpose()?.map(Into::into))),
        ("last", []) => {
            let last = list.len().checked_sub(1).and_then(|index| list.get(index)).transpose()?;
            Ok(Value::Optional(last.map(Into::into)))
        }
        ("reverse", []) => {
            let mut items = list.items()?;
            items.reverse();
            Ok(Value::List(List::made(items)))
        }
        ("slice", [Value::Int(start), Value::Int(end)]) => slice(list, *start, *end),
        ("flatten", []) => flatten_to(list, 1, meter),
        ("flatten", [Value::Int(depth)]) => flatten_to(list, *depth, meter),
        ("distinct", []) => distinct(list, meter),
        ("sort", []) => sort_by(list, list, meter),
        (operators::SORT_BY_KEYS, [Value::List(keys)]) => sort_by(list, keys, meter),
        ("sets.contains", [Value::List(other)]) => Ok(Value::Bool(contains_all(list, other, meter)?)),
        ("sets.equivalent", [Value::List(other)]) => {
            Ok(Value::Bool(contains_all(list, other, meter)? && contains_all(other, list, meter)?))
        }
        ("sets.intersects", [Value::List(other)]) => {
            for item in list.iter() {
                if contains(other, &item?, meter)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        _ => Err(Error::NoOverload),
    }
}

/// The numbers from zero up to, but without, a number.
pub(super) fn range<'a>(count: i64) -> Value<'a> {
    Value::List(List::made((0..count).map(Value::Int).collect()))
}

fn contains<'a>(list: &List<'a>, item: &Value<'a>, meter: &mut Meter) -> Result<bool, Error> {
    for candidate in list.iter() {
        if compare::equal(&candidate?, item, meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn contains_all<'a>(list: &List<'a>, items: &List<'a>, meter: &mut Meter) -> Result<bool, Error> {
    for item in items.iter() {
        if !contains(list, &item?, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_sorted<'a>(list: &List<'a>, meter: &mut Meter) -> Evaluated<'a> {
    let items = list.items()?;
    for pair in items.windows(2) {
        if compare::compare(&pair[0], &pair[1], meter)? == Ordering::Greater {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(list: &List<'a>, meter: &mut Meter) -> Evaluated<'a> {
    let mut total: Option<Value<'a>> = None;
    for item in list.iter() {
        let item = item?;
        total = Some(match total {
            None => item,
            Some(total) => arithmetic::call(operators::ADD, &[total, item], meter)?,
        });
    }
    Ok(total.unwrap_or(Value::Int(0)))
}

fn extreme<'a>(function: &str, list: &List<'a>, meter: &mut Meter) -> Evaluated<'a> {
    let wanted = if function == "min" { Ordering::Less } else { Ordering::Greater };
    let mut best: Option<Value<'a>> = None;
    for item in list.iter() {
        let item = item?;
        best = Some(match best {
            Some(best) if compare::compare(&item, &best, meter)? != wanted => best,
            _ => item,
        });
    }
    best.ok_or_else(|| Error::new(format!("{function} called on empty list")))
}

fn index_of<'a>(function: &str, list: &List<'a>, item: &Value<'a>, meter: &mut Meter) -> Evaluated<'a> {
    let mut found = -1;
    for (index, candidate) in list.iter().enumerate() {
        if compare::equal(&candidate?, item, meter)? {
            found = index as i64;
            if function == "indexOf" {
                break;
            }
        }
    }
    Ok(Value::Int(found))
}

fn join<'a>(list: &List<'a>, separator: &str, meter: &mut Meter) -> Evaluated<'a> {
    let mut joined = String::new();
    for (index, item) in list.iter().enumerate() {
        let Value::String(text) = item? else { return Err(Error::NoOverload) };
        meter.read(text.len() + separator.len())?;
        // Twice: the text grows by doubling.
        meter.allocate(2 * (text.len() + separator.len()))?;
        meter.work(1)?;
        if index > 0 {
            joined.push_str(separator);
        }
        joined.push_str(&text);
    }
    Ok(Value::text(joined))
}

fn slice<'a>(list: &List<'a>, start: i64, end: i64) -> Evaluated<'a> {
    let refuse = |why: String| Err(Error::new(format!("cannot slice({start}, {end}), {why}")));
    let (Ok(from), Ok(to)) = (usize::try_from(start), usize::try_from(end)) else {
        return refuse("negative indexes not supported".to_owned());
    };
    if from > to {
        return refuse("start index must be less than or equal to end index".to_owned());
    }
    if to > list.len() {
        return refuse(format!("list is length {}", list.len()));
    }
    let items: Result<Vec<_>, Error> = (from..to).filter_map(|index| list.get(index)).collect();
    Ok(Value::List(List::made(items?)))
}

fn flatten_to<'a>(list: &List<'a>, depth: i64, meter: &mut Meter) -> Evaluated<'a> {
    if depth < 0 {
        return Err(Error::new("level must be non-negative"));
    }
    let mut items = Vec::new();
    flatten(list, depth, &mut items, meter)?;
    Ok(Value::List(List::made(items)))
}

/// Lists do not nest deeper than expressions and schemas do, so the recursion ends soon.
fn flatten<'a>(list: &List<'a>, depth: i64, items: &mut Vec<Value<'a>>, meter: &mut Meter) -> Result<(), Error> {
    for item in list.iter() {
        meter.make(1)?;
        match item? {
            Value::List(inner) if depth > 0 => flatten(&inner, depth - 1, items, meter)?,
            other => items.push(other),
        }
    }
    Ok(())
}

fn distinct<'a>(list: &List<'a>, meter: &mut Meter) -> Evaluated<'a> {
    let mut unique: Vec<Value<'a>> = Vec::new();
    for item in list.iter() {
        let item = item?;
        let mut is_new = true;
        for known in &unique {
            if compare::equal(&item, known, meter)? {
                is_new = false;
                break;
            }
        }
        if is_new {
            unique.push(item);
        }
    }
    Ok(Value::List(List::made(unique)))
}

/// The items in the order of their keys.
fn sort_by<'a>(list: &List<'a>, keys: &List<'a>, meter: &mut Meter) -> Evaluated<'a> {
    if list.len() != keys.len() {
        return Err(Error::new(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} \
             elements respectively",
            list.len(),
            keys.len()
        )));
    }
    let keys = keys.items()?;
    if let Some(first) = keys.first()
        && keys.iter().any(|key| key.type_name() != first.type_name())
    {
        return Err(Error::new("list elements must have the same type"));
    }
    // Each key is held against itself first, so that nothing can go wrong while sorting.
    let mut bytes = 0;
    for key in &keys {
        compare::compare(key, key, meter)?;
        bytes += if let Value::String(text) = key { text.len() } else { 1 };
    }
    let rounds = keys.len().checked_ilog2().unwrap_or(0) as usize + 1;
    meter.work((keys.len() * rounds) as u64)?;
    meter.read(bytes.saturating_mul(rounds))?;
    let mut keyed: Vec<(Value<'a>, Value<'a>)> = keys.into_iter().zip(list.items()?).collect();
    keyed.sort_by(|(a, _), (b, _)| compare::order(a, b).unwrap_or(Ordering::Equal));
    Ok(Value::List(List::made(keyed.into_iter().map(|(_, item)| item).collect())))
}
