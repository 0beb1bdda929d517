//! Operators on numbers, times, texts, lists and maps.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::ast::operators;
use super::super::compare::{self, Distinct};
use super::super::meter::Meter;
use super::super::value::{Error, Evaluated, Key, List, ListKind, Map, Value};
use super::shown;

/// Timestamps from year 1 to the end of year 9999, in nanoseconds since 1970.
const MIN_TIMESTAMP: i128 = -62_135_596_800_000_000_000;
const MAX_TIMESTAMP: i128 = 253_402_300_799_999_999_999;

pub(super) fn call<'a>(function: &str, values: &[Value<'a>], meter: &mut Meter) -> Evaluated<'a> {
    match (function, values) {
        (operators::NEGATE, [value]) => negate(value),
        (operators::IN, [item, container]) => contains(item, container, meter),
        (operators::ADD, [a, b]) => add(a, b, meter),
        ("_-_", [a, b]) => subtract(a, b),
        ("_*_" | "_/_" | "_%_", [a, b]) => multiply(function, a, b),
        _ => Err(Error::NoOverload),
    }
}

fn overflow(kind: &str) -> Error {
    Error::new(format!("{kind} overflow"))
}

fn int<'a>(number: Option<i64>) -> Evaluated<'a> {
    number.map(Value::Int).ok_or_else(|| overflow("integer"))
}

fn uint<'a>(number: Option<u64>) -> Evaluated<'a> {
    number.map(Value::Uint).ok_or_else(|| overflow("unsigned integer"))
}

fn duration<'a>(nanos: Option<i64>) -> Evaluated<'a> {
    nanos.map(Value::Duration).ok_or_else(|| overflow("integer"))
}

/// A timestamp within the years that there are.
pub(super) fn timestamp<'a>(nanos: i128) -> Evaluated<'a> {
    if (MIN_TIMESTAMP..=MAX_TIMESTAMP).contains(&nanos) {
        Ok(Value::Timestamp(nanos))
    } else {
        Err(overflow("timestamp"))
    }
}

fn negate<'a>(value: &Value<'a>) -> Evaluated<'a> {
    match value {
        Value::Int(number) => int(number.checked_neg()),
        Value::Double(number) => Ok(Value::Double(-number)),
        Value::Duration(nanos) => duration(nanos.checked_neg()),
        _ => Err(Error::NoOverload),
    }
}

fn add<'a>(a: &Value<'a>, b: &Value<'a>, meter: &mut Meter) -> Evaluated<'a> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_add(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_add(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Value::String(a), Value::String(b)) => {
            meter.read(a.len() + b.len())?;
            Ok(Value::text(format!("{}{}", &**a, &**b)))
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            meter.read(a.len() + b.len())?;
            Ok(Value::Bytes([&**a, &**b].concat().into()))
        }
        (Value::Duration(a), Value::Duration(b)) => duration(a.checked_add(*b)),
        (Value::Timestamp(time), Value::Duration(by)) | (Value::Duration(by), Value::Timestamp(time)) => {
            timestamp(time + i128::from(*by))
        }
        (Value::List(a), Value::List(b)) => join(a, b, meter),
        _ => Err(Error::NoOverload),
    }
}

/// Two lists as one: sets stay sets, and items of map lists replace those with the same keys.
fn join<'a>(a: &List<'a>, b: &List<'a>, meter: &mut Meter) -> Evaluated<'a> {
    let mut items = a.items()?;
    match a.kind {
        ListKind::Plain => items.extend(b.items()?),
        ListKind::Set => {
            let mut known = Distinct::default();
            for item in &items {
                known.insert(item.clone(), meter)?;
            }
            for item in b.iter() {
                let item = item?;
                if known.insert(item.clone(), meter)? {
                    items.push(item);
                }
            }
        }
        ListKind::Map(keys) => {
            let mut places: HashMap<Option<String>, usize> =
                items.iter().enumerate().map(|(index, item)| (List::key_of(keys, item), index)).collect();
            for item in b.iter() {
                let item = item?;
                let key = List::key_of(keys, &item);
                match places.get(&key) {
                    Some(index) => items[*index] = item,
                    None => {
                        places.insert(key, items.len());
                        items.push(item);
                    }
                }
            }
        }
    }
    Ok(Value::List(List::of_kind(items, a.kind)))
}

fn subtract<'a>(a: &Value<'a>, b: &Value<'a>) -> Evaluated<'a> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_sub(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_sub(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        (Value::Duration(a), Value::Duration(b)) => duration(a.checked_sub(*b)),
        (Value::Timestamp(a), Value::Timestamp(b)) => duration(i64::try_from(a - b).ok()),
        (Value::Timestamp(time), Value::Duration(by)) => timestamp(time - i128::from(*by)),
        _ => Err(Error::NoOverload),
    }
}

fn multiply<'a>(function: &str, a: &Value<'a>, b: &Value<'a>) -> Evaluated<'a> {
    let by_zero = || Error::new(if function == "_%_" { "modulus by zero" } else { "division by zero" });
    match (a, b) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) if function != "_*_" => Err(by_zero()),
        (Value::Int(a), Value::Int(b)) => int(match function {
            "_*_" => a.checked_mul(*b),
            "_/_" => a.checked_div(*b),
            _ => a.checked_rem(*b),
        }),
        (Value::Uint(a), Value::Uint(b)) => uint(match function {
            "_*_" => a.checked_mul(*b),
            "_/_" => a.checked_div(*b),
            _ => a.checked_rem(*b),
        }),
        (Value::Double(a), Value::Double(b)) => match function {
            "_*_" => Ok(Value::Double(a * b)),
            "_/_" => Ok(Value::Double(a / b)),
            _ => Err(Error::NoOverload),
        },
        _ => Err(Error::NoOverload),
    }
}

fn contains<'a>(item: &Value<'a>, container: &Value<'a>, meter: &mut Meter) -> Evaluated<'a> {
    match container {
        Value::List(list) => {
            for candidate in list.iter() {
                if compare::equal(&candidate?, item, meter)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        Value::Map(map) => Ok(Value::Bool(map.find(item).transpose()?.is_some())),
        _ => Err(Error::NoOverload),
    }
}

/// A map with a key and value more, or with all entries of another map.
pub(crate) fn insert<'a>(map: Value<'a>, inserted: Vec<Value<'a>>) -> Evaluated<'a> {
    let Value::Map(Map::Made(mut entries)) = map else { return Err(Error::NoOverload) };
    let mut added: Vec<(Value<'a>, Value<'a>)> = Vec::new();
    let mut parts = inserted.into_iter();
    match (parts.next(), parts.next()) {
        (Some(key), Some(value)) => added.push((key, value)),
        (Some(Value::Map(other)), None) => {
            for key in other.keys() {
                if let Some(value) = other.find(&key) {
                    added.push((key, value?));
                }
            }
        }
        _ => return Err(Error::NoOverload),
    }
    let map = Arc::make_mut(&mut entries);
    for (key, value) in added {
        let name = Key::new(&key).ok_or(Error::NoOverload)?;
        if map.contains_key(&name) {
            return Err(Error::new(format!("insert failed: key {} already exists", shown(&key))));
        }
        map.insert(name, (key, value));
    }
    Ok(Value::Map(Map::Made(entries)))
}
