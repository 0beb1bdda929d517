//! Conversions between types, and the parts of times and durations.

use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};

use super::super::value::{Error, Evaluated, Value};
use super::arithmetic;
use super::network;
use crate::go::text;
use crate::go::time;

const NANOS_PER_SECOND: i128 = 1_000_000_000;

pub(super) fn call<'a>(function: &str, values: &[Value<'a>]) -> Evaluated<'a> {
    let [value] = values else { return Err(Error::NoOverload) };
    match function {
        "dyn" => Ok(value.clone()),
        "type" => Ok(Value::Type(value.type_name().into())),
        "bool" => to_bool(value),
        "bytes" => match value {
            Value::Bytes(_) => Ok(value.clone()),
            Value::String(text) => Ok(Value::Bytes(text.as_bytes().into())),
            _ => Err(Error::NoOverload),
        },
        "double" => to_double(value),
        "int" => to_int(value),
        "uint" => to_uint(value),
        "string" => to_string(value),
        "duration" => match value {
            Value::Duration(_) => Ok(value.clone()),
            Value::Int(nanos) => Ok(Value::Duration(*nanos)),
            Value::String(text) => duration(text).map(Value::Duration),
            _ => Err(Error::NoOverload),
        },
        _ => match value {
            Value::Timestamp(_) => Ok(value.clone()),
            Value::Int(seconds) => arithmetic::timestamp(i128::from(*seconds) * NANOS_PER_SECOND),
            Value::String(text) => timestamp(text),
            _ => Err(Error::NoOverload),
        },
    }
}

fn cannot(from: &str, to: &str) -> Error {
    Error::new(format!("type conversion error from '{from}' to '{to}'"))
}

fn to_bool<'a>(value: &Value<'a>) -> Evaluated<'a> {
    match value {
        Value::Bool(_) => Ok(value.clone()),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
            _ => Err(cannot("string", "bool")),
        },
        _ => Err(Error::NoOverload),
    }
}

fn to_double<'a>(value: &Value<'a>) -> Evaluated<'a> {
    match value {
        Value::Double(_) => Ok(value.clone()),
        Value::Int(number) => Ok(Value::Double(*number as f64)),
        Value::Uint(number) => Ok(Value::Double(*number as f64)),
        Value::String(text) => text.parse().map(Value::Double).map_err(|_| cannot("string", "double")),
        _ => Err(Error::NoOverload),
    }
}

fn to_int<'a>(value: &Value<'a>) -> Evaluated<'a> {
    let overflow = || Error::new("integer overflow");
    match value {
        Value::Int(_) => Ok(value.clone()),
        Value::Uint(number) => i64::try_from(*number).map(Value::Int).map_err(|_| overflow()),
        Value::Double(number) => {
            let in_range = *number > -9.223_372_036_854_776e18 && *number < 9.223_372_036_854_776e18;
            if in_range { Ok(Value::Int(*number as i64)) } else { Err(overflow()) }
        }
        Value::Duration(nanos) => Ok(Value::Int(*nanos)),
        Value::Timestamp(nanos) => Ok(Value::Int(nanos.div_euclid(NANOS_PER_SECOND) as i64)),
        Value::String(text) => go_int(text).map(Value::Int).ok_or_else(|| cannot("string", "int")),
        _ => Err(Error::NoOverload),
    }
}

fn go_int(text: &str) -> Option<i64> {
    // Go takes a sign, and nothing but digits behind it.
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

fn to_uint<'a>(value: &Value<'a>) -> Evaluated<'a> {
    let overflow = || Error::new("unsigned integer overflow");
    match value {
        Value::Uint(_) => Ok(value.clone()),
        Value::Int(number) => u64::try_from(*number).map(Value::Uint).map_err(|_| overflow()),
        Value::Double(number) => {
            let in_range = *number > -1.0 && *number < 1.844_674_407_370_955_2e19;
            if in_range { Ok(Value::Uint(*number as u64)) } else { Err(overflow()) }
        }
        Value::String(text) => {
            let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let parsed = if plain { text.parse().ok() } else { None };
            parsed.map(Value::Uint).ok_or_else(|| cannot("string", "uint"))
        }
        _ => Err(Error::NoOverload),
    }
}

fn to_string<'a>(value: &Value<'a>) -> Evaluated<'a> {
    Ok(match value {
        Value::String(_) => value.clone(),
        Value::Bool(flag) => Value::text(flag.to_string()),
        Value::Int(number) => Value::text(number.to_string()),
        Value::Uint(number) => Value::text(number.to_string()),
        Value::Double(number) => Value::text(text::float(*number)),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::text(text),
            Err(_) => return Err(Error::new("invalid UTF-8 in bytes, cannot convert to string")),
        },
        Value::Duration(nanos) => Value::text(seconds(*nanos)),
        Value::Timestamp(nanos) => Value::text(rfc3339(*nanos)),
        Value::Ip(address) => Value::text(address.to_string()),
        Value::Cidr(network) => Value::text(network.to_string()),
        _ => return Err(Error::NoOverload),
    })
}

/// A duration from a text, in nanoseconds.
pub(crate) fn duration(text: &str) -> Result<i64, Error> {
    time::parse_duration(text).ok_or_else(|| cannot("string", "google.protobuf.Duration"))
}

/// A timestamp from a text.
pub(crate) fn timestamp<'a>(text: &str) -> Evaluated<'a> {
    // An offset is required here.
    let has_offset = text.ends_with('Z') || text.get(19..).is_some_and(|rest| rest.contains(['+', '-']));
    let moment = time::parse_date_time(text).filter(|_| has_offset);
    let moment = moment.ok_or_else(|| cannot("string", "google.protobuf.Timestamp"))?;
    arithmetic::timestamp(moment.nanos)
}

/// `1.5s`: seconds with as many digits as there are.
fn seconds(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let magnitude = nanos.unsigned_abs();
    let (whole, part) = (magnitude / 1_000_000_000, magnitude % 1_000_000_000);
    if part == 0 {
        return format!("{sign}{whole}s");
    }
    format!("{sign}{whole}.{}s", format!("{part:09}").trim_end_matches('0'))
}

/// A timestamp as RFC 3339 writes it, with as many digits as there are.
pub(super) fn rfc3339(nanos: i128) -> String {
    match Timestamp::from_nanosecond(nanos) {
        Ok(timestamp) => timestamp.to_string(),
        Err(_) => String::new(),
    }
}

/// A value as Go's `%v` shows it, in errors.
pub(crate) fn shown(value: &Value<'_>) -> String {
    match value {
        Value::Null => "NULL_VALUE".to_owned(),
        Value::String(text) => text.to_string(),
        Value::Duration(nanos) => time::format_duration(*nanos),
        Value::Double(number) => text::float(*number),
        other => match to_string(other) {
            Ok(Value::String(text)) => text.to_string(),
            _ => other.type_name().to_owned(),
        },
    }
}

/// `getHours()` and the like, and the parts of URLs.
pub(super) fn parts<'a>(function: &str, values: &[Value<'a>]) -> Evaluated<'a> {
    match values {
        [Value::Duration(nanos)] => {
            let unit = match function {
                "getHours" => 3_600_000_000_000,
                "getMinutes" => 60_000_000_000,
                "getSeconds" => 1_000_000_000,
                // The whole duration, as all the others are.
                "getMilliseconds" => 1_000_000,
                _ => return Err(Error::NoOverload),
            };
            Ok(Value::Int(nanos / unit))
        }
        [Value::Timestamp(nanos)] => time_part(function, *nanos, &TimeZone::UTC),
        [Value::Timestamp(nanos), Value::String(zone)] => time_part(function, *nanos, &zone_of(zone)?),
        [value] => network::accessor(function, value, values),
        _ => Err(Error::NoOverload),
    }
}

/// A time zone by name, or as an offset like `-08:00`.
fn zone_of(name: &str) -> Result<TimeZone, Error> {
    let unknown = || Error::new(format!("unknown time zone {name}"));
    let Some((hours, minutes)) = name.split_once(':') else {
        return match name {
            "" | "UTC" => Ok(TimeZone::UTC),
            _ => TimeZone::get(name).map_err(|_| unknown()),
        };
    };
    let sign = if hours.starts_with('-') { -1 } else { 1 };
    let hours: i32 = hours.trim_start_matches(['+', '-']).parse().map_err(|_| unknown())?;
    let minutes: i32 = minutes.parse().map_err(|_| unknown())?;
    let seconds = hours.checked_mul(3600).and_then(|seconds| seconds.checked_add(minutes.checked_mul(60)?));
    let offset = seconds.and_then(|seconds| Offset::from_seconds(sign * seconds).ok()).ok_or_else(unknown)?;
    Ok(TimeZone::fixed(offset))
}

fn time_part<'a>(function: &str, nanos: i128, zone: &TimeZone) -> Evaluated<'a> {
    let timestamp = Timestamp::from_nanosecond(nanos).map_err(|_| Error::new("timestamp overflow"))?;
    let time = timestamp.to_zoned(zone.clone());
    Ok(Value::Int(match function {
        "getFullYear" => i64::from(time.year()),
        "getMonth" => i64::from(time.month()) - 1,
        "getDayOfYear" => i64::from(time.day_of_year()) - 1,
        "getDayOfMonth" => i64::from(time.day()) - 1,
        "getDate" => i64::from(time.day()),
        "getDayOfWeek" => i64::from(time.weekday().to_sunday_zero_offset()),
        "getHours" => i64::from(time.hour()),
        "getMinutes" => i64::from(time.minute()),
        "getSeconds" => i64::from(time.second()),
        "getMilliseconds" => i64::from(time.subsec_nanosecond()) / 1_000_000,
        _ => return Err(Error::NoOverload),
    }))
}
