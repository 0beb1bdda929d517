//! Strings, numbers and JSON values as Go prints them.

use std::fmt::Write as _;

use serde_json::{Number, Value};

pub(crate) use crate::print::{go_quoted as quote, is_printable};

/// A float as the verb `%v` prints it: the shortest form, with an exponent below 1e-04 and from 1e+06 on.
pub(crate) fn float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let exponent = decimal_exponent(number);
    if (-4..6).contains(&exponent) { plain_form(number) } else { exponent_form(number) }
}

/// A float as `encoding/json` prints it.
pub(crate) fn json_float(number: f64) -> String {
    let magnitude = number.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let text = exponent_form(number);
        // JSON drops the leading zero of a small negative exponent: e-09 becomes e-9.
        return text.replace("e-0", "e-");
    }
    plain_form(number)
}

/// The power of ten of the first digit.
fn decimal_exponent(number: f64) -> i32 {
    if number == 0.0 {
        return 0;
    }
    let text = format!("{number:e}");
    text.rsplit_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0)
}

fn plain_form(number: f64) -> String {
    format!("{number}")
}

/// `1.5e+06`: two digits of exponent at least, and always its sign.
fn exponent_form(number: f64) -> String {
    let text = format!("{number:e}");
    let Some((digits, exponent)) = text.rsplit_once('e') else { return text };
    let (sign, magnitude) = match exponent.strip_prefix('-') {
        Some(magnitude) => ('-', magnitude),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{magnitude:0>2}")
}

/// A number as `%v` prints it: integers as they are, floats by [`float`].
pub(crate) fn number(number: &Number) -> String {
    match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(integer), _, _) => integer.to_string(),
        (None, Some(integer), _) => integer.to_string(),
        (None, None, Some(real)) => float(real),
        (None, None, None) => number.to_string(),
    }
}

/// A value as `encoding/json` writes it: keys sorted, `<`, `>`, `&` and the two line separators escaped.
pub(crate) fn json(value: &Value) -> String {
    let mut out = String::new();
    write_json(value, &mut out);
    out
}

fn write_json(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&json_number(number)),
        Value::String(text) => write_json_string(text, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            for (index, (key, field)) in fields.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json_string(key, out);
                out.push(':');
                write_json(field, out);
            }
            out.push('}');
        }
    }
}

fn json_number(number: &Number) -> String {
    match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(integer), _, _) => integer.to_string(),
        (None, Some(integer), _) => integer.to_string(),
        (None, None, Some(real)) => json_float(real),
        (None, None, None) => number.to_string(),
    }
}

fn write_json_string(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn floats_like_go() {
        for (number, verb, json) in [
            (0.0, "0", "0"),
            (1.0, "1", "1"),
            (1.5, "1.5", "1.5"),
            (100_000.0, "100000", "100000"),
            (1_234_567.0, "1.234567e+06", "1234567"),
            (1e21, "1e+21", "1e+21"),
            (0.0001, "0.0001", "0.0001"),
            (0.000_01, "1e-05", "0.00001"),
            (0.000_000_1, "1e-07", "1e-7"),
            (-2.5e-12, "-2.5e-12", "-2.5e-12"),
        ] {
            assert_eq!(float(number), verb);
            assert_eq!(json_float(number), json);
        }
        assert_eq!(float(f64::NAN), "NaN");
        assert_eq!(float(f64::NEG_INFINITY), "-Inf");
    }

    #[test]
    fn json_like_go() {
        let value = json!({"b": [1, 2.0, null, true], "a": "<&>\u{2028}\u{1}"});
        assert_eq!(json(&value), r#"{"a":"\u003c\u0026\u003e\u2028\u0001","b":[1,2,null,true]}"#);
    }
}
