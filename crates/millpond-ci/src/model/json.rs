//! A JSON value whose text is kept: data of other programs is written back as it was.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Opaque JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Json(Box<RawValue>);

impl Json {
    /// A value as JSON.
    pub fn of<T: Serialize>(value: &T) -> Self {
        let text = serde_json::value::to_raw_value(value);
        Self(text.expect("values have text keys and finite numbers"))
    }

    /// Its text.
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// The number that it is.
    pub fn as_i64(&self) -> Option<i64> {
        self.text().trim().parse().ok()
    }

    /// The value as Python prints it, which is what Nodepool's tables show.
    pub fn python(&self) -> String {
        python(self.text())
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

/// Translates JSON to the text that Python prints for the same value.
fn python(json: &str) -> String {
    let (mut out, mut rest) = (String::new(), json);
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            '"' => {
                let end = string_end(rest);
                let text: String = serde_json::from_str(&rest[..end]).unwrap_or_default();
                out.push_str(&quote(&text));
                end
            }
            ':' | ',' => {
                out.push(first);
                out.push(' ');
                1
            }
            't' if rest.starts_with("true") => literal(&mut out, "True", 4),
            'f' if rest.starts_with("false") => literal(&mut out, "False", 5),
            'n' if rest.starts_with("null") => literal(&mut out, "None", 4),
            _ if first.is_whitespace() => first.len_utf8(),
            _ => {
                out.push(first);
                first.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    out
}

fn literal(out: &mut String, word: &str, length: usize) -> usize {
    out.push_str(word);
    length
}

/// The length of the string literal that the text starts with.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Single quotes, unless the text has some and no double ones.
fn quote(text: &str) -> String {
    let mark = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(mark);
    for letter in text.chars() {
        match letter {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            _ if letter == mark => {
                out.push('\\');
                out.push(letter);
            }
            _ if letter.is_control() => out.push_str(&format!("\\x{:02x}", u32::from(letter))),
            _ => out.push(letter),
        }
    }
    out.push(mark);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_print_as_in_python() {
        let cases = [
            ("null", "None"),
            ("22", "22"),
            (r#"{"b":1,"a":[true,false,null]}"#, "{'b': 1, 'a': [True, False, None]}"),
            (r#"{ "it's" : "\"x\"\n" }"#, r#"{"it's": '"x"\n'}"#),
            (r#""both ' and \"""#, r#"'both \' and "'"#),
            ("-1.5e3", "-1.5e3"),
        ];
        for (json, expected) in cases {
            assert_eq!(python(json), expected, "{json}");
        }
    }
}
