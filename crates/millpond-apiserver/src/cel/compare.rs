//! Equality and order of values.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use super::meter::Meter;
use super::value::{Error, List, ListKind, Map, Value};

/// Whether two values are equal. Numbers are compared across types; other values of different types differ.
pub(super) fn equal<'a>(a: &Value<'a>, b: &Value<'a>, meter: &mut Meter) -> Result<bool, Error> {
    meter.work(1)?;
    Ok(match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::String(a), Value::String(b)) => {
            meter.read(a.len().min(b.len()))?;
            **a == **b
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            meter.read(a.len().min(b.len()))?;
            a == b
        }
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a == b,
        (Value::Quantity(a), Value::Quantity(b)) => a == b,
        (Value::Url(a), Value::Url(b)) => a.text() == b.text(),
        (Value::Semver(a), Value::Semver(b)) => a.compare(b).is_eq(),
        (Value::Ip(a), Value::Ip(b)) => a == b,
        (Value::Cidr(a), Value::Cidr(b)) => a == b,
        (Value::Format(a), Value::Format(b)) => a.name == b.name,
        (Value::Unknown(a), Value::Unknown(b)) => {
            meter.read(a.to_string().len())?;
            a == b
        }
        (Value::Optional(a), Value::Optional(b)) => match (a, b) {
            (Some(a), Some(b)) => equal(a, b, meter)?,
            (a, b) => a.is_none() && b.is_none(),
        },
        (Value::List(a), Value::List(b)) => equal_lists(a, b, meter)?,
        (Value::Map(a), Value::Map(b)) => equal_maps(a, b, meter)?,
        (Value::Int(_) | Value::Uint(_) | Value::Double(_), Value::Int(_) | Value::Uint(_) | Value::Double(_)) => {
            compare_numbers(a, b) == Some(Ordering::Equal)
        }
        _ => false,
    })
}

fn equal_lists<'a>(a: &List<'a>, b: &List<'a>, meter: &mut Meter) -> Result<bool, Error> {
    if a.len() != b.len() {
        return Ok(false);
    }
    match a.kind {
        ListKind::Plain => {
            for (a, b) in a.iter().zip(b.iter()) {
                if !equal(&a?, &b?, meter)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        ListKind::Set => {
            let mut known = Distinct::default();
            for item in a.iter() {
                known.insert(item?, meter)?;
            }
            for item in b.iter() {
                if !known.contains(&item?, meter)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        ListKind::Map(keys) => {
            let mut known = HashMap::new();
            for item in a.iter() {
                let item = item?;
                meter.work(1)?;
                known.insert(List::key_of(keys, &item), item);
            }
            for item in b.iter() {
                let item = item?;
                match known.get(&List::key_of(keys, &item)) {
                    Some(own) if equal(own, &item, meter)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
    }
}

/// A text that is equal for two values exactly if the values are equal; `None` for values without such a text.
pub(super) fn scalar_key(value: &Value<'_>) -> Option<String> {
    Some(match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => number.to_string(),
        Value::String(text) => format!("\"{}", &**text),
        Value::Duration(nanos) => format!("duration {nanos}"),
        Value::Timestamp(nanos) => format!("time {nanos}"),
        _ => return None,
    })
}

/// Values of which no two are the same.
#[derive(Default)]
pub(super) struct Distinct<'a> {
    scalars: HashSet<String>,
    others: Vec<Value<'a>>,
}

impl<'a> Distinct<'a> {
    pub(super) fn contains(&self, value: &Value<'a>, meter: &mut Meter) -> Result<bool, Error> {
        meter.work(1)?;
        if let Some(key) = scalar_key(value) {
            meter.read(key.len())?;
            return Ok(self.scalars.contains(&key));
        }
        for known in &self.others {
            if equal(known, value, meter)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds a value; false when it was there.
    pub(super) fn insert(&mut self, value: Value<'a>, meter: &mut Meter) -> Result<bool, Error> {
        if self.contains(&value, meter)? {
            return Ok(false);
        }
        match scalar_key(&value) {
            Some(key) => {
                self.scalars.insert(key);
            }
            None => self.others.push(value),
        }
        Ok(true)
    }
}

fn equal_maps<'a>(a: &Map<'a>, b: &Map<'a>, meter: &mut Meter) -> Result<bool, Error> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for key in a.keys() {
        match (a.find(&key), b.find(&key)) {
            (None, None) => {}
            (Some(own), Some(other)) => {
                if !equal(&own?, &other?, meter)? {
                    return Ok(false);
                }
            }
            _ => return Ok(false),
        }
    }
    // Fields that no schema describes are compared as they are.
    if let (Map::Json { fields: a, schema, .. }, Map::Json { fields: b, .. }) = (a, b) {
        for (name, value) in *a {
            if schema.child(name).is_none()
                && let Some(other) = b.get(name)
            {
                meter.read(value.to_string().len())?;
                if value != other {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}

/// The order of two numbers of any types; `None` if one is not a number.
fn compare_numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    let whole = |value: &Value<'_>| match value {
        Value::Int(number) => Some(i128::from(*number)),
        Value::Uint(number) => Some(i128::from(*number)),
        _ => None,
    };
    match (whole(a), whole(b)) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        (Some(a), None) => Some(compare_with_double(a, double_of(b)?)?),
        (None, Some(b)) => Some(compare_with_double(b, double_of(a)?)?.reverse()),
        (None, None) => double_of(a)?.partial_cmp(&double_of(b)?),
    }
}

fn double_of(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(number) => Some(*number),
        _ => None,
    }
}

fn compare_with_double(whole: i128, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    if double.abs() >= 1e30 {
        return Some(if double > 0.0 { Ordering::Less } else { Ordering::Greater });
    }
    let truncated = double as i128;
    Some(whole.cmp(&truncated).then_with(|| 0.0.partial_cmp(&double.fract()).unwrap_or(Ordering::Equal)))
}

/// The order of two values that have one.
pub(super) fn compare(a: &Value<'_>, b: &Value<'_>, meter: &mut Meter) -> Result<Ordering, Error> {
    meter.work(1)?;
    if let (Value::String(a), Value::String(b)) = (a, b) {
        meter.read(a.len().min(b.len()))?;
    }
    order(a, b)
}

/// The same, where the cost is already charged.
pub(super) fn order(a: &Value<'_>, b: &Value<'_>) -> Result<Ordering, Error> {
    Ok(match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::String(a), Value::String(b)) => (**a).cmp(&**b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (Value::Duration(a), Value::Duration(b)) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        (Value::Int(_) | Value::Uint(_) | Value::Double(_), Value::Int(_) | Value::Uint(_) | Value::Double(_)) => {
            compare_numbers(a, b).ok_or_else(|| Error::new("NaN values cannot be ordered"))?
        }
        _ => return Err(Error::NoOverload),
    })
}
