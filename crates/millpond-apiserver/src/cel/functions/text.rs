//! Functions of texts. Positions count characters.

use super::super::meter::Meter;
use super::super::value::{Error, Evaluated, List, Text, Value};
use super::pattern_of;

/// How much slower it is to go through characters than through bytes.
const SLOWNESS: usize = 8;

pub(super) fn call<'a>(function: &str, text: &Text<'a>, values: &[Value<'a>], meter: &mut Meter) -> Evaluated<'a> {
    if !matches!(function, "startsWith" | "endsWith") {
        // Characters are looked at one by one.
        meter.read(text.len().saturating_mul(SLOWNESS))?;
    }
    let arguments = &values[1..];
    match (function, arguments) {
        ("startsWith", [Value::String(part)]) => Ok(Value::Bool(text.starts_with(&**part))),
        ("endsWith", [Value::String(part)]) => Ok(Value::Bool(text.ends_with(&**part))),
        ("contains", [Value::String(part)]) => Ok(Value::Bool(text.contains(&**part))),
        ("charAt", [Value::Int(index)]) => char_at(text, *index),
        ("indexOf", [Value::String(part)]) => index_of(text, part, 0),
        ("indexOf", [Value::String(part), Value::Int(from)]) => index_of(text, part, *from),
        ("lastIndexOf", [Value::String(part)]) => last_index_of(text, part, None),
        ("lastIndexOf", [Value::String(part), Value::Int(to)]) => last_index_of(text, part, Some(*to)),
        ("lowerAscii", []) => Ok(Value::text(text.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Value::text(text.to_ascii_uppercase())),
        ("trim", []) => Ok(Value::text(text.trim())),
        ("substring", [Value::Int(start)]) => substring(text, *start, None),
        ("substring", [Value::Int(start), Value::Int(end)]) => substring(text, *start, Some(*end)),
        ("replace", [Value::String(from), Value::String(to)]) => Ok(replace(text, from, to, -1)),
        ("replace", [Value::String(from), Value::String(to), Value::Int(times)]) => Ok(replace(text, from, to, *times)),
        ("split", [Value::String(separator)]) => split(text, separator, -1, meter),
        ("split", [Value::String(separator), Value::Int(limit)]) => split(text, separator, *limit, meter),
        ("strings.quote", []) => Ok(Value::text(quote(text))),
        ("find", [Value::String(pattern)]) => {
            let regex = pattern_of(pattern, meter).map_err(illegal)?;
            Ok(Value::text(regex.find(text).map_or("", |found| found.as_str())))
        }
        ("findAll", [Value::String(pattern)]) => find_all(text, pattern, -1, meter),
        ("findAll", [Value::String(pattern), Value::Int(limit)]) => find_all(text, pattern, *limit, meter),
        _ => Err(Error::NoOverload),
    }
}

fn illegal(error: Error) -> Error {
    match error {
        Error::Other(text) => Error::new(format!("Illegal regex: {text}")),
        other => other,
    }
}

fn out_of_range(index: i64) -> Error {
    Error::new(format!("index out of range: {index}"))
}

/// The byte at which a character starts; the end counts as one.
fn byte_of(text: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    text.char_indices().map(|(byte, _)| byte).chain([text.len()]).nth(index)
}

fn char_at<'a>(text: &str, index: i64) -> Evaluated<'a> {
    let start = byte_of(text, index).ok_or_else(|| out_of_range(index))?;
    let character = text[start..].chars().next();
    Ok(Value::text(character.map(String::from).unwrap_or_default()))
}

fn index_of<'a>(text: &str, part: &str, from: i64) -> Evaluated<'a> {
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    let Some(start) = byte_of(text, from) else {
        return if from < 0 { Err(out_of_range(from)) } else { Ok(Value::Int(-1)) };
    };
    if start == text.len() && from > 0 {
        return Ok(Value::Int(-1));
    }
    Ok(Value::Int(match text[start..].find(part) {
        Some(found) => from + text[start..start + found].chars().count() as i64,
        None => -1,
    }))
}

fn last_index_of<'a>(text: &str, part: &str, to: Option<i64>) -> Evaluated<'a> {
    let length = text.chars().count() as i64;
    if part.is_empty() {
        return Ok(Value::Int(to.unwrap_or(length)));
    }
    let part_length = part.chars().count() as i64;
    let last = length - part_length;
    let limit = to.unwrap_or(last);
    if limit < 0 {
        return if to.is_some() { Err(out_of_range(limit)) } else { Ok(Value::Int(-1)) };
    }
    if limit >= length {
        return Ok(Value::Int(-1));
    }
    let end = byte_of(text, limit.min(last).max(0) + part_length).unwrap_or(text.len());
    Ok(Value::Int(match text[..end].rfind(part) {
        Some(found) if last >= 0 => text[..found].chars().count() as i64,
        _ => -1,
    }))
}

fn substring<'a>(text: &str, start: i64, end: Option<i64>) -> Evaluated<'a> {
    if let Some(end) = end.filter(|end| start > *end) {
        return Err(Error::new(format!("invalid substring range. start: {start}, end: {end}")));
    }
    let from = byte_of(text, start).ok_or_else(|| out_of_range(start))?;
    let to = match end {
        Some(end) => byte_of(text, end).ok_or_else(|| out_of_range(end))?,
        None => text.len(),
    };
    Ok(Value::text(&text[from..to]))
}

fn replace<'a>(text: &str, from: &str, to: &str, times: i64) -> Value<'a> {
    Value::text(match usize::try_from(times) {
        Ok(times) => text.replacen(from, to, times),
        Err(_) => text.replace(from, to),
    })
}

fn split<'a>(text: &str, separator: &str, limit: i64, meter: &mut Meter) -> Evaluated<'a> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let most = if separator.is_empty() { text.chars().count() } else { text.matches(separator).count() + 1 };
    meter.make(most.min(limit))?;
    meter.allocate(text.len())?;
    let parts: Vec<&str> = if limit == 0 {
        Vec::new()
    } else if separator.is_empty() {
        characters(text, limit)
    } else {
        text.splitn(limit, separator).collect()
    };
    Ok(strings(parts))
}

/// Each character as a text; with a limit, the last one contains the remainder.
fn characters(text: &str, limit: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        if parts.len() + 1 == limit {
            parts.push(rest);
            return parts;
        }
        let (character, left) = rest.split_at(next.len_utf8());
        parts.push(character);
        rest = left;
    }
    parts
}

fn strings<'a>(parts: Vec<&str>) -> Value<'a> {
    Value::List(List::made(parts.into_iter().map(Value::text).collect()))
}

fn find_all<'a>(text: &str, pattern: &str, limit: i64, meter: &mut Meter) -> Evaluated<'a> {
    let regex = pattern_of(pattern, meter).map_err(illegal)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut found = Vec::new();
    for part in regex.find_iter(text).take(limit) {
        meter.make(1)?;
        meter.allocate(part.len())?;
        found.push(part.as_str());
    }
    Ok(strings(found))
}

/// The text in quotes, with backslashes before what needs one.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
