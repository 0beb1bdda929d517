//! Small printing rules that Kubernetes shares everywhere: Go's quoting, and durations for people.

use std::fmt::Write as _;
use std::sync::LazyLock;

use regex::Regex;

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

/// What Go calls printable: letters, marks, numbers, punctuation, symbols and the space.
fn is_printable(c: char) -> bool {
    static VISIBLE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^[\p{L}\p{M}\p{N}\p{P}\p{S}]$").expect("the pattern is well formed"));
    if c.is_ascii() {
        return c == ' ' || c.is_ascii_graphic();
    }
    VISIBLE.is_match(c.encode_utf8(&mut [0; 4]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_as_go_does() {
        assert_eq!(go_quoted("a\"b\\c'd é"), "\"a\\\"b\\\\c'd é\"");
        assert_eq!(go_quoted("\0\n\t\x7f"), r#""\x00\n\t\x7f""#);
        assert_eq!(go_quoted("\u{200b}\u{e000}\u{f0000}e\u{301}"), "\"\\u200b\\ue000\\U000f0000e\u{301}\"");
    }
}
