//! Small printing rules that Kubernetes shares everywhere: Go's quoting, and durations for people.

use std::fmt::Write as _;
use std::sync::LazyLock;

use jiff::SignedDuration;
use regex::Regex;
use serde_json::Value;

/// A text as Go's `%q` shows it.
pub fn go_quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\x0c' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\x0b' => quoted.push_str("\\v"),
            c if is_printable(c) => quoted.push(c),
            c => push_code(&mut quoted, c),
        }
    }
    quoted.push('"');
    quoted
}

fn push_code(text: &mut String, c: char) {
    let code = u32::from(c);
    let written = match code {
        0..0x80 => write!(text, "\\x{code:02x}"),
        0x80..0x1_0000 => write!(text, "\\u{code:04x}"),
        _ => write!(text, "\\U{code:08x}"),
    };
    written.expect("writing to a String cannot fail");
}

/// Whether Go calls the character printable: letters, marks, numbers, punctuation, symbols and the space.
pub(crate) fn is_printable(c: char) -> bool {
    static VISIBLE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^[\p{L}\p{M}\p{N}\p{P}\p{S}]$").expect("the pattern is well formed"));
    if c.is_ascii() {
        return c == ' ' || c.is_ascii_graphic();
    }
    VISIBLE.is_match(c.encode_utf8(&mut [0; 4]))
}

/// A JSON value as Go's `%v` shows a decoded one: `map[a:1 b:[x <nil>]]`.
pub fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => {
            number.as_i64().map_or_else(|| go_float(number.as_f64().unwrap_or(0.0)), |n| n.to_string())
        }
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_value).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let entries: Vec<String> = map.iter().map(|(key, value)| format!("{key}:{}", go_value(value))).collect();
            format!("map[{}]", entries.join(" "))
        }
    }
}

/// A number as Go's `%v` shows a `float64`: shortest digits, an exponent for very large and small ones.
pub fn go_float(number: f64) -> String {
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..21).contains(&exponent) {
        return number.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// A span of time as ages are shown: `47s`, `2m3s`, `5h`, `3d4h`, `2y`. A little less than nothing is `0s`, as
/// clocks differ; more than that is `<invalid>`.
pub fn human_duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let years = days / 365;
    let parts = |large: i64, unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{small_unit}"),
    };
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => parts(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => parts(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => parts(days, "d", hours % 24, "h"),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => parts(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quotes_as_go_does() {
        assert_eq!(go_quoted("a\"b\\c'd é"), "\"a\\\"b\\\\c'd é\"");
        assert_eq!(go_quoted("\0\n\t\x7f"), r#""\x00\n\t\x7f""#);
        assert_eq!(go_quoted("\u{200b}\u{e000}\u{f0000}e\u{301}"), "\"\\u200b\\ue000\\U000f0000e\u{301}\"");
    }

    #[test]
    fn values_print_as_in_go() {
        let value = json!({"b": [1, 1.5, true, null, "x y"], "a": {}, "c": [1e21, 1e20, 1e-5, 0.0001, -2.5e300]});
        assert_eq!(
            go_value(&value),
            "map[a:map[] b:[1 1.5 true <nil> x y] c:[1e+21 100000000000000000000 1e-05 0.0001 -2.5e+300]]"
        );
    }

    #[test]
    fn durations_are_shown_as_ages() {
        const M: i64 = 60;
        const H: i64 = 3600;
        const D: i64 = 86_400;
        const Y: i64 = 365 * D;
        for (seconds, shown) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (123, "2m3s"),
            (10 * M - 1, "9m59s"),
            (10 * M, "10m"),
            (3 * H - 1, "179m"),
            (3 * H, "3h"),
            (3 * H + 61, "3h1m"),
            (8 * H, "8h"),
            (48 * H - 1, "47h"),
            (2 * D, "2d"),
            (7 * D + 23 * H, "7d23h"),
            (8 * D, "8d"),
            (2 * Y - 1, "729d"),
            (2 * Y, "2y"),
            (2 * Y + D, "2y1d"),
            (8 * Y - 1, "7y364d"),
            (8 * Y + 200 * D, "8y"),
        ] {
            assert_eq!(human_duration(SignedDuration::from_secs(seconds)), shown, "{seconds}");
        }
        assert_eq!(human_duration(SignedDuration::from_millis(-1999)), "0s");
    }
}
