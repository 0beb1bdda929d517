//! `'…'.format([…])`.

use super::super::meter::Meter;
use super::super::value::{Error, Evaluated, List, Map, Value};
use super::convert::rfc3339;
use crate::go::text;

/// Digits behind the point that may be asked for. Upstream has no bound; a double has no more than these.
const MAX_PRECISION: usize = 1100;

/// The verbs of a format in order; the error is upstream's sentence.
pub(crate) fn verbs(format: &str) -> Result<Vec<char>, String> {
    let mut verbs = Vec::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            rest = after;
            continue;
        }
        // Too large a precision is an error when it is used.
        let after =
            rest.strip_prefix('.').map_or(rest, |digits| digits.trim_start_matches(|c: char| c.is_ascii_digit()));
        let verb = after.chars().next().ok_or("unexpected end of string")?;
        if !"sdfebxXo".contains(verb) {
            return Err(format!("could not parse formatting clause: unrecognized formatting clause \"{verb}\""));
        }
        verbs.push(verb);
        rest = &after[verb.len_utf8()..];
    }
    Ok(verbs)
}

/// The types that a verb accepts, in upstream's words.
pub(crate) fn taken_by(verb: char) -> &'static str {
    match verb {
        'd' => "decimal clause can only be used on integers",
        'f' => "fixed-point clause can only be used on doubles",
        'e' => "scientific clause can only be used on doubles",
        'b' => "only integers and bools can be formatted as binary",
        'o' => "octal clause can only be used on integers",
        'x' | 'X' => "only integers, byte buffers, and strings can be formatted as hex",
        _ => {
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and \
             timestamps"
        }
    }
}

pub(super) fn call<'a>(values: &[Value<'a>], meter: &mut Meter) -> Evaluated<'a> {
    let [Value::String(format), Value::List(arguments)] = values else { return Err(Error::NoOverload) };
    let mut out = String::new();
    let mut rest: &str = format;
    let mut index = 0;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let argument = arguments.get(index).ok_or_else(|| Error::new(format!("index {index} out of range")))??;
        index += 1;
        let (precision, after) = precision(rest)?;
        let Some(verb) = after.chars().next() else { return Err(Error::new("unexpected end of string")) };
        rest = &after[verb.len_utf8()..];
        let written = clause(verb, precision, &argument, meter).map_err(|problem| match problem {
            Error::Other(text) => Error::new(format!("error during formatting: {text}")),
            other => other,
        })?;
        meter.read(written.len())?;
        meter.allocate(2 * written.len())?;
        out.push_str(&written);
    }
    out.push_str(rest);
    Ok(Value::text(out))
}

/// The digits of `%.3f`, and what follows.
fn precision(text: &str) -> Result<(Option<usize>, &str), Error> {
    let Some(after) = text.strip_prefix('.') else { return Ok((None, text)) };
    let digits = after.bytes().take_while(u8::is_ascii_digit).count();
    let parsed = after[..digits].parse::<usize>().ok().filter(|precision| *precision <= MAX_PRECISION);
    match parsed {
        Some(precision) => Ok((Some(precision), &after[digits..])),
        None => Err(Error::new(
            "could not parse formatting clause: error while parsing precision: error while converting precision to \
             integer",
        )),
    }
}

fn clause(verb: char, precision: Option<usize>, value: &Value<'_>, meter: &mut Meter) -> Result<String, Error> {
    let given = || value.type_name();
    let refuse = |what: &str| Err(Error::new(format!("{what}, was given {}", given())));
    match verb {
        's' => shown(value, meter),
        'd' => match value {
            Value::Int(number) => Ok(number.to_string()),
            Value::Uint(number) => Ok(number.to_string()),
            _ => refuse(taken_by(verb)),
        },
        'f' => match double(value) {
            Some(number) => Ok(fixed(number, precision.unwrap_or(6))),
            None => refuse(taken_by(verb)),
        },
        'e' => match double(value) {
            Some(number) => Ok(scientific(number, precision.unwrap_or(6))),
            None => refuse(taken_by(verb)),
        },
        'b' => match value {
            Value::Int(number) => Ok(signed(*number, |magnitude| format!("{magnitude:b}"))),
            Value::Uint(number) => Ok(format!("{number:b}")),
            Value::Bool(flag) => Ok(u8::from(*flag).to_string()),
            _ => refuse(taken_by(verb)),
        },
        'o' => match value {
            Value::Int(number) => Ok(signed(*number, |magnitude| format!("{magnitude:o}"))),
            Value::Uint(number) => Ok(format!("{number:o}")),
            _ => refuse(taken_by(verb)),
        },
        'x' | 'X' => {
            let digits = match value {
                Value::Int(number) => signed(*number, |magnitude| format!("{magnitude:x}")),
                Value::Uint(number) => format!("{number:x}"),
                Value::String(text) => hexadecimal(text.as_bytes()),
                Value::Bytes(bytes) => hexadecimal(bytes),
                _ => return refuse(taken_by(verb)),
            };
            Ok(if verb == 'X' { digits.to_uppercase() } else { digits })
        }
        other => Err(Error::new(format!("unrecognized formatting clause \"{other}\""))),
    }
}

fn signed(number: i64, digits: impl Fn(u64) -> String) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", digits(number.unsigned_abs()))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A double, or one of the texts for the values that JSON lacks.
fn double(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(number) => Some(*number),
        Value::Int(number) => Some(*number as f64),
        Value::Uint(number) => Some(*number as f64),
        Value::String(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn special(number: f64) -> Option<String> {
    if number.is_nan() {
        return Some("NaN".to_owned());
    }
    number.is_infinite().then(|| if number > 0.0 { "∞" } else { "-∞" }.to_owned())
}

/// Digits as they are written in English, with commas.
fn fixed(number: f64, precision: usize) -> String {
    special(number).unwrap_or_else(|| with_commas(&format!("{number:.precision$}")))
}

fn with_commas(number: &str) -> String {
    let (sign, digits) = number.strip_prefix('-').map_or(("", number), |digits| ("-", digits));
    let (whole, fraction) = digits.split_once('.').map_or((digits, None), |(whole, part)| (whole, Some(part)));
    let mut out = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// `1.500000×10⁰³`: how upstream's printer for people writes it.
fn scientific(number: f64, precision: usize) -> String {
    if let Some(text) = special(number) {
        return text;
    }
    let text = format!("{number:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { "-" } else { "" };
    let raised: String = format!("{sign}{:02}", exponent.abs())
        .chars()
        .map(|character| match character {
            '-' => '⁻',
            '0' => '⁰',
            '1' => '¹',
            '2' => '²',
            '3' => '³',
            '4' => '⁴',
            '5' => '⁵',
            '6' => '⁶',
            '7' => '⁷',
            '8' => '⁸',
            _ => '⁹',
        })
        .collect();
    format!("{digits}×10{raised}")
}

/// A value for people.
fn shown(value: &Value<'_>, meter: &mut Meter) -> Result<String, Error> {
    meter.work(1)?;
    match value {
        Value::String(text) => meter.allocate(2 * text.len())?,
        Value::Bytes(bytes) => meter.allocate(2 * bytes.len())?,
        _ => {}
    }
    Ok(match value {
        Value::String(text) => text.to_string(),
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => text::float(*number),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Type(name) => name.to_string(),
        Value::Duration(nanos) => duration(*nanos),
        Value::Timestamp(nanos) => rfc3339(*nanos),
        Value::List(list) => shown_list(list, meter)?,
        Value::Map(map) => shown_map(map, meter)?,
        other => {
            return Err(Error::new(format!(
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, \
                 durations, and timestamps, was given {}",
                other.type_name()
            )));
        }
    })
}

fn duration(nanos: i64) -> String {
    let seconds = nanos as f64 / 1e9;
    format!("{}s", if nanos % 1_000_000_000 == 0 { (nanos / 1_000_000_000).to_string() } else { seconds.to_string() })
}

/// Parts of lists and maps: texts in quotes, times by name.
fn nested(value: &Value<'_>, meter: &mut Meter) -> Result<String, Error> {
    Ok(match value {
        Value::String(text) => format!("\"{}\"", &**text),
        Value::Bytes(bytes) => format!("b\"{}\"", String::from_utf8_lossy(bytes)),
        Value::Duration(_) => format!("duration(\"{}\")", shown(value, meter)?),
        Value::Timestamp(_) => format!("timestamp(\"{}\")", shown(value, meter)?),
        Value::Double(number) => fixed(*number, 6),
        _ => shown(value, meter)?,
    })
}

fn shown_list(list: &List<'_>, meter: &mut Meter) -> Result<String, Error> {
    let mut parts = Vec::with_capacity(list.len());
    for item in list.iter() {
        let part = nested(&item?, meter)?;
        meter.read(part.len())?;
        parts.push(part);
    }
    Ok(format!("[{}]", parts.join(", ")))
}

fn shown_map(map: &Map<'_>, meter: &mut Meter) -> Result<String, Error> {
    let mut parts = Vec::with_capacity(map.len());
    for key in map.keys() {
        let Some(value) = map.find(&key) else { continue };
        let part = format!("{}:{}", nested(&key, meter)?, nested(&value?, meter)?);
        meter.read(part.len())?;
        parts.push(part);
    }
    parts.sort();
    Ok(format!("{{{}}}", parts.join(", ")))
}
