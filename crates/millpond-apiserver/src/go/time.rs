//! Durations, dates and times as Go and go-openapi's `strfmt` read them.

use jiff::civil::{Date, DateTime};
use jiff::tz::Offset;

/// A moment: nanoseconds since 1970, in the offset in which it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Nanoseconds since the start of 1970, UTC. An `i128` because years 0001 to 9999 do not fit in 64 bits.
    pub(crate) nanos: i128,
}

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// A duration in nanoseconds as `time.ParseDuration` reads it: `1h30m`, `-1.5s`, `0`.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    // One more than `i64::MAX`, for the smallest negative duration.
    const LIMIT: u64 = 1 << 63;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (nanos, left) = duration_part(rest)?;
        total = total.checked_add(nanos).filter(|total| *total <= LIMIT)?;
        rest = left;
    }
    if negative {
        return Some(0i64.wrapping_sub_unsigned(total));
    }
    i64::try_from(total).ok()
}

/// One number with its unit.
fn duration_part(text: &str) -> Option<(u64, &str)> {
    let whole_digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let whole: u64 = if whole_digits == 0 { 0 } else { text[..whole_digits].parse().ok()? };
    let mut rest = &text[whole_digits..];
    let mut fraction = "";
    if let Some(after) = rest.strip_prefix('.') {
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        fraction = &after[..digits];
        rest = &after[digits..];
    }
    if whole_digits == 0 && fraction.is_empty() {
        return None;
    }
    let unit_length = rest.find(|next: char| next == '.' || next.is_ascii_digit()).unwrap_or(rest.len());
    let unit: u64 = match &rest[..unit_length] {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let mut nanos = whole.checked_mul(unit).filter(|nanos| *nanos <= 1 << 63)?;
    if !fraction.is_empty() {
        nanos = nanos.checked_add(fraction_of(fraction, unit))?;
    }
    Some((nanos, &rest[unit_length..]))
}

/// `0.fraction × unit`, rounded down; digits beyond what 63 bits hold do not count, as in Go.
fn fraction_of(fraction: &str, unit: u64) -> u64 {
    let mut digits: u64 = 0;
    let mut scale: f64 = 1.0;
    for digit in fraction.bytes() {
        let Some(next) = digits.checked_mul(10).and_then(|n| n.checked_add(u64::from(digit - b'0'))) else { break };
        if next > 1 << 63 {
            break;
        }
        digits = next;
        scale *= 10.0;
    }
    (digits as f64 * (unit as f64 / scale)) as u64
}

/// A duration as OpenAPI's format `duration` takes it: Go's form, or numbers with the names of units
/// (`3 days`, `2w`).
pub(crate) fn parse_loose_duration(text: &str) -> Option<i64> {
    if let Some(nanos) = parse_duration(text) {
        return Some(nanos);
    }
    let mut total: Option<i64> = None;
    let mut rest = text;
    while let Some(start) = rest.find(|next: char| next.is_ascii_digit()) {
        rest = &rest[start..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let after = rest[digits..].trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']);
        let unit_length = after.find(|next: char| !(next.is_ascii_alphabetic() || next == 'µ')).unwrap_or(after.len());
        if unit_length > 0 {
            let count: i64 = rest[..digits].parse().ok()?;
            if let Some(unit) = named_unit(&after[..unit_length].to_lowercase()) {
                total = Some(total.unwrap_or(0).wrapping_add(count.wrapping_mul(unit)));
            }
        }
        rest = &after[unit_length..];
    }
    total
}

/// Nanoseconds of a unit by name. The last name of each line also covers longer names that start with it.
fn named_unit(name: &str) -> Option<i64> {
    const UNITS: [(&[&str], i64); 8] = [
        (&["ns", "nano"], 1),
        (&["us", "µs", "micro"], 1_000),
        (&["ms", "milli"], 1_000_000),
        (&["s", "sec"], 1_000_000_000),
        (&["m", "min"], 60_000_000_000),
        (&["h", "hr", "hour"], 3_600_000_000_000),
        (&["d", "day"], 86_400_000_000_000),
        (&["w", "wk", "week"], 604_800_000_000_000),
    ];
    UNITS.iter().find_map(|(names, nanos)| {
        let long = names.last().is_some_and(|long| name.starts_with(long));
        (long || names.contains(&name)).then_some(*nanos)
    })
}

/// A duration as Go prints it: `1h0m0s`, `1.5s`, `300ms`.
pub(crate) fn format_duration(nanos: i64) -> String {
    if nanos == 0 {
        return "0s".to_owned();
    }
    let sign = if nanos < 0 { "-" } else { "" };
    let magnitude = nanos.unsigned_abs();
    let body = match magnitude {
        0..1_000 => format!("{magnitude}ns"),
        1_000..1_000_000 => format!("{}µs", decimal(magnitude, 1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", decimal(magnitude, 1_000_000)),
        _ => {
            let seconds = decimal(magnitude % 60_000_000_000, 1_000_000_000);
            let minutes = magnitude / 60_000_000_000;
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    };
    format!("{sign}{body}")
}

fn decimal(value: u64, unit: u64) -> String {
    let whole = value / unit;
    let part = value % unit;
    if part == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    format!("{whole}.{part:0width$}").trim_end_matches('0').to_owned()
}

/// Whether the text is a date like `2006-01-02`.
pub(crate) fn parse_date(text: &str) -> Option<Moment> {
    let date = strict_date(text)?;
    moment(date.at(0, 0, 0, 0), 0)
}

fn strict_date(text: &str) -> Option<Date> {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let number = |range: std::ops::Range<usize>| digits(text.get(range)?);
    Date::new(number(0..4)? as i16, number(5..7)? as i8, number(8..10)? as i8).ok()
}

fn digits(text: &str) -> Option<u32> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn moment(time: DateTime, offset_seconds: i32) -> Option<Moment> {
    let offset = Offset::from_seconds(0).ok()?;
    let timestamp = offset.to_timestamp(time).ok();
    let nanos = match timestamp {
        Some(timestamp) => timestamp.as_nanosecond(),
        // The first and last day that a civil date has may lie outside of what a timestamp holds.
        None => return None,
    };
    Some(Moment { nanos: nanos - i128::from(offset_seconds) * NANOS_PER_SECOND })
}

/// Whether the text passes as OpenAPI's format `date-time`, which looks less closely than a parser.
pub(crate) fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    if text.len() < 4 || strict_date(date).is_none() {
        return false;
    }
    let Some((clock, offset)) = clock_and_rest(time) else { return false };
    let in_range = clock[0] <= 23 && clock[1] <= 59 && clock[2] <= 59;
    in_range && (offset == "z" || numeric_offset(offset).is_some())
}

/// Splits `15:04:05[.999]` from what follows. The character before the fraction may be any, as upstream's
/// expression has it.
fn clock_and_rest(text: &str) -> Option<([u32; 3], &str)> {
    let bytes = text.as_bytes();
    if bytes.len() < 8 || bytes[2] != b':' || bytes[5] != b':' {
        return None;
    }
    let clock = [digits(text.get(0..2)?)?, digits(text.get(3..5)?)?, digits(text.get(6..8)?)?];
    let rest = text.get(8..)?;
    let mut after = rest.chars();
    after.next();
    let fraction = after.as_str();
    let count = fraction.bytes().take_while(u8::is_ascii_digit).count();
    let is_offset = rest.starts_with(['z', '+', '-']) && (rest == "z" || numeric_offset(rest).is_some());
    if count > 0 && !is_offset { Some((clock, &fraction[count..])) } else { Some((clock, rest)) }
}

/// `+02:00` in seconds.
fn numeric_offset(text: &str) -> Option<i32> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let body = &text[1..];
    if body.len() != 5 || body.as_bytes()[2] != b':' {
        return None;
    }
    let hours = digits(body.get(..2)?)? as i32;
    let minutes = digits(body.get(3..)?)? as i32;
    Some(sign * (hours * 3600 + minutes * 60))
}

/// A time as RFC 3339 writes it, or without an offset (then UTC).
pub(crate) fn parse_date_time(text: &str) -> Option<Moment> {
    let date = strict_date(text.get(..10)?)?;
    let rest = text.get(10..)?.strip_prefix('T')?;
    let bytes = rest.as_bytes();
    if bytes.len() < 8 || bytes[2] != b':' || bytes[5] != b':' {
        return None;
    }
    let number = |range: std::ops::Range<usize>| digits(rest.get(range)?);
    let (hour, minute, second) = (number(0..2)?, number(3..5)?, number(6..8)?);
    let mut rest = rest.get(8..)?;
    let mut nanos: u32 = 0;
    if let Some(fraction) = rest.strip_prefix(['.', ',']) {
        let count = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if count == 0 {
            return None;
        }
        nanos = nanoseconds(&fraction[..count]);
        rest = &fraction[count..];
    }
    let offset = match rest {
        "" | "Z" => 0,
        other => numeric_offset(other)?,
    };
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    moment(date.at(hour as i8, minute as i8, second as i8, nanos as i32), offset)
}

fn nanoseconds(fraction: &str) -> u32 {
    let padded: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    padded.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, nanos) in [
            ("0", Some(0)),
            ("1h30m", Some(5_400_000_000_000)),
            ("-1.5s", Some(-1_500_000_000)),
            ("1.5h.5m", Some(5_430_000_000_000)),
            (".5ns", Some(0)),
            ("1µs", Some(1000)),
            ("-9223372036854775808ns", Some(i64::MIN)),
            ("9223372036854775808ns", None),
            ("", None),
            ("1", None),
            ("s", None),
            ("1d", None),
            (".s", None),
        ] {
            assert_eq!(parse_duration(text), nanos, "{text}");
        }
        for (text, nanos) in [
            ("3 days", Some(259_200_000_000_000)),
            ("1w 2d", Some(777_600_000_000_000)),
            ("22 ns", Some(22)),
            ("1 fortnight", None),
            ("days", None),
            ("1 minute", Some(60_000_000_000)),
        ] {
            assert_eq!(parse_loose_duration(text), nanos, "{text}");
        }
        for (nanos, text) in [
            (0, "0s"),
            (999, "999ns"),
            (1_500, "1.5µs"),
            (300_000_000, "300ms"),
            (3_600_000_000_000, "1h0m0s"),
            (-61_500_000_000, "-1m1.5s"),
        ] {
            assert_eq!(format_duration(nanos), text);
        }
    }

    #[test]
    fn dates_and_times() {
        assert!(parse_date("2024-02-29").is_some());
        assert!(parse_date("2023-02-29").is_none());
        assert!(parse_date("2023-2-9").is_none());
        assert_eq!(parse_date_time("1970-01-01T00:00:01.5Z").map(|m| m.nanos), Some(1_500_000_000));
        assert_eq!(parse_date_time("1970-01-01T02:00:00+02:00").map(|m| m.nanos), Some(0));
        assert!(parse_date_time("1970-01-01T24:00:00Z").is_none());
        for (text, fine) in [
            ("2014-12-15T19:30:20.000Z", true),
            ("2014-12-15t19:30:20z", true),
            ("2014-12-15T19:30:20+02:00", true),
            ("2014-12-15T19:30:20", false),
            ("2014-12-15", false),
            ("2014-12-15T24:30:20Z", false),
            ("x", false),
        ] {
            assert_eq!(is_date_time(text), fine, "{text}");
        }
    }
}
