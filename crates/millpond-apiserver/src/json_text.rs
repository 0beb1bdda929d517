//! JSON as Kubernetes reads it: the messages of its syntax errors, detection of repeated keys, and repair of invalid
//! UTF-8.
//!
//! Where these words or the repeated keys matter (patches, strict bodies), this reader is used; it is about
//! as simple as JSON. Text that is not UTF-8 and lone surrogates become U+FFFD, as they do in Go.

use std::fmt;

use serde_json::{Map, Number, Value};

use crate::print::go_quoted;

/// Deepest nesting that is read. `serde_json`, which reads objects back from the store, stops at 128.
pub const MAX_DEPTH: usize = 127;

/// Strict problems beyond this many are not collected, as in Kubernetes.
const MAX_PROBLEMS: usize = 100;

/// A value, and what a strict reader says about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The value; of repeated keys the last one holds.
    pub value: Value,
    /// `duplicate field "spec.replicas"` and what else the reader's caller objected to, in order.
    pub problems: Vec<String>,
}

/// Where a key stands, from the outermost step inwards.
pub type Path = [Step];

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A key of an object.
    Key(String),
    /// An index of an array.
    Index(usize),
}

/// Reads a document and notes repeated keys.
pub fn parse(bytes: &[u8]) -> Result<Document, String> {
    parse_strict(bytes, |_| true)
}

/// Reads a document and notes repeated keys, and keys (with their whole path) that are not `known`.
pub fn parse_strict(bytes: &[u8], known: impl Fn(&Path) -> bool) -> Result<Document, String> {
    let text = String::from_utf8_lossy(bytes);
    let mut reader = Reader { text: &text, position: 0, path: Vec::new(), problems: Vec::new(), known: &known };
    reader.skip_blanks();
    let value = reader.value()?;
    reader.skip_blanks();
    match reader.peek() {
        None => Ok(Document { value, problems: reader.problems }),
        Some(_) => Err(reader.unexpected("after top-level value")),
    }
}

/// The path as strict errors show it: `spec.containers[0].name`.
pub fn shown_path(path: &Path) -> String {
    let mut shown = String::new();
    for step in path {
        match step {
            Step::Key(key) if shown.is_empty() => shown.push_str(key),
            Step::Key(key) => {
                shown.push('.');
                shown.push_str(key);
            }
            Step::Index(index) => {
                fmt::Write::write_fmt(&mut shown, format_args!("[{index}]")).expect("writing to a String cannot fail");
            }
        }
    }
    shown
}

/// How deeply a value is nested: 0 for a scalar, 1 for `[]`.
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

struct Reader<'a> {
    text: &'a str,
    position: usize,
    path: Vec<Step>,
    problems: Vec<String>,
    known: &'a dyn Fn(&Path) -> bool,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.position += 1;
        }
    }

    /// The complaint about the byte at the current position, or about the end.
    fn unexpected(&self, context: &str) -> String {
        match self.peek() {
            None => "unexpected end of JSON input".to_owned(),
            Some(byte) => format!("invalid character {} {context}", shown_byte(byte)),
        }
    }

    fn value(&mut self) -> Result<Value, String> {
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true", Value::Bool(true)),
            Some(b'f') => self.literal("false", Value::Bool(false)),
            Some(b'n') => self.literal("null", Value::Null),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Value, String>) -> Result<Value, String> {
        if self.path.len() >= MAX_DEPTH {
            return Err("exceeded max depth".to_owned());
        }
        self.position += 1;
        self.skip_blanks();
        read(self)
    }

    fn object(&mut self) -> Result<Value, String> {
        let mut map = Map::new();
        if self.peek() == Some(b'}') {
            self.position += 1;
            return Ok(Value::Object(map));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            let key = self.string()?;
            self.skip_blanks();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("after object key"));
            }
            self.position += 1;
            self.skip_blanks();
            let repeated = map.contains_key(&key);
            self.path.push(Step::Key(key));
            self.check_key(repeated);
            let value = self.value()?;
            if let Some(Step::Key(key)) = self.path.pop() {
                map.insert(key, value);
            }
            self.skip_blanks();
            match self.peek() {
                Some(b',') => self.position += 1,
                Some(b'}') => {
                    self.position += 1;
                    return Ok(Value::Object(map));
                }
                _ => return Err(self.unexpected("after object key:value pair")),
            }
            self.skip_blanks();
        }
    }

    fn check_key(&mut self, repeated: bool) {
        let what = match (repeated, (self.known)(&self.path)) {
            (true, _) => "duplicate",
            (false, false) => "unknown",
            (false, true) => return,
        };
        let problem = format!("{what} field {}", go_quoted(&shown_path(&self.path)));
        if self.problems.len() < MAX_PROBLEMS && !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn array(&mut self) -> Result<Value, String> {
        let mut items = Vec::new();
        if self.peek() == Some(b']') {
            self.position += 1;
            return Ok(Value::Array(items));
        }
        loop {
            self.path.push(Step::Index(items.len()));
            items.push(self.value()?);
            self.path.pop();
            self.skip_blanks();
            match self.peek() {
                Some(b',') => self.position += 1,
                Some(b']') => {
                    self.position += 1;
                    return Ok(Value::Array(items));
                }
                _ => return Err(self.unexpected("after array element")),
            }
            self.skip_blanks();
        }
    }

    fn literal(&mut self, literal: &str, value: Value) -> Result<Value, String> {
        for expected in literal.bytes() {
            if self.peek() != Some(expected) {
                let context = format!("in literal {literal} (expecting {})", shown_byte(expected));
                return Err(self.unexpected(&context));
            }
            self.position += 1;
        }
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, String> {
        let start = self.position;
        if self.peek() == Some(b'-') {
            self.position += 1;
        }
        match self.peek() {
            Some(b'0') => self.position += 1,
            Some(b'1'..=b'9') => self.skip_digits(),
            _ => return Err(self.unexpected("in numeric literal")),
        }
        let mut whole = true;
        if self.peek() == Some(b'.') {
            whole = false;
            self.position += 1;
            self.some_digits("after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            whole = false;
            self.position += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.position += 1;
            }
            self.some_digits("in exponent of numeric literal")?;
        }
        let text = &self.text[start..self.position];
        let integer = whole.then(|| text.parse::<i64>().ok()).flatten().map(Number::from);
        integer
            .or_else(|| text.parse::<f64>().ok().and_then(Number::from_f64))
            .map(Value::Number)
            .ok_or_else(|| format!("json: cannot unmarshal number {text} into Go value of type float64"))
    }

    fn skip_digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.position += 1;
        }
    }

    fn some_digits(&mut self, context: &str) -> Result<(), String> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.unexpected(context));
        }
        self.skip_digits();
        Ok(())
    }

    fn string(&mut self) -> Result<String, String> {
        self.position += 1;
        let mut string = String::new();
        loop {
            let start = self.position;
            while self.peek().is_some_and(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20)) {
                self.position += 1;
            }
            string.push_str(&self.text[start..self.position]);
            match self.peek() {
                Some(b'"') => {
                    self.position += 1;
                    return Ok(string);
                }
                Some(b'\\') => string.push(self.escape()?),
                _ => return Err(self.unexpected("in string literal")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        self.position += 1;
        let c = match self.peek() {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\x08',
            Some(b'f') => '\x0c',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.unexpected("in string escape code")),
        };
        self.position += 1;
        Ok(c)
    }

    fn unicode_escape(&mut self) -> Result<char, String> {
        self.position += 1;
        let first = self.hexadecimal()?;
        if !(0xd800..0xdc00).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let behind = self.position;
        if self.text.as_bytes()[behind..].starts_with(b"\\u") {
            self.position += 2;
            let second = self.hexadecimal()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.position = behind;
        }
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn hexadecimal(&mut self) -> Result<u32, String> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            code = code * 16 + digit.ok_or_else(|| self.unexpected("in \\u hexadecimal character escape"))?;
            self.position += 1;
        }
        Ok(code)
    }
}

/// A byte as Go's JSON errors show it.
fn shown_byte(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        other => {
            let quoted = go_quoted(char::from(other).encode_utf8(&mut [0; 4]));
            format!("'{}'", &quoted[1..quoted.len() - 1])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn error(text: &str) -> String {
        parse(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn reads_values() {
        let text = r#" {"a": [1, -2.5e1, true, false, null, "x\n\u00e9\ud83d\ude00\ud800"], "b": {}, "c": []} "#;
        let expected = json!({"a": [1, -25.0, true, false, null, "x\né😀\u{fffd}"], "b": {}, "c": []});
        assert_eq!(parse(text.as_bytes()).unwrap().value, expected);
        assert_eq!(parse(b"\"\xff\"").unwrap().value, json!("\u{fffd}"));
        assert_eq!(parse(b"18446744073709551616").unwrap().value, json!(18_446_744_073_709_551_616.0));
    }

    #[test]
    fn errors_have_the_messages_of_go() {
        for (text, expected) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("\"a", "unexpected end of JSON input"),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("{\"a\":}", "invalid character '}' looking for beginning of value"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("{a", "invalid character 'a' looking for beginning of object key string"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("{\"a\" 1", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"", "invalid character '\"' after object key:value pair"),
            ("[1 '", "invalid character '\\'' after array element"),
            ("{} é", "invalid character 'Ã' after top-level value"),
            ("\"\n", "invalid character '\\n' in string literal"),
            ("\"\\x", "invalid character 'x' in string escape code"),
            ("\"\\u00g", "invalid character 'g' in \\u hexadecimal character escape"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("01", "invalid character '1' after top-level value"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1e+x", "invalid character 'x' in exponent of numeric literal"),
            ("trux", "invalid character 'x' in literal true (expecting 'e')"),
            ("1e999", "json: cannot unmarshal number 1e999 into Go value of type float64"),
        ] {
            assert_eq!(error(text), expected, "{text}");
        }
        assert_eq!(error(&"[".repeat(100_000)), "exceeded max depth");
    }

    #[test]
    fn repeated_and_unknown_keys_are_noted_in_order() {
        let text = br#"[{"a": {"x": 1, "x": 2}, "b": 1, "c": 0, "c": 1, "c": 2}]"#;
        assert_eq!(parse(text).unwrap().problems, ["duplicate field \"[0].a.x\"", "duplicate field \"[0].c\""]);
        let document = parse_strict(text, |path| path.len() != 2 || path[1] != Step::Key("b".to_owned())).unwrap();
        assert_eq!(
            document.problems,
            ["duplicate field \"[0].a.x\"", "unknown field \"[0].b\"", "duplicate field \"[0].c\""]
        );
        assert_eq!(document.value, json!([{"a": {"x": 2}, "b": 1, "c": 2}]));
    }

    proptest! {
        #[test]
        fn accepts_what_serde_json_accepts(text in "[\\[\\]{}:,\"\\\\a0-9.eE+tfn ul-]{0,24}") {
            prop_assert_eq!(parse(text.as_bytes()).is_ok(), serde_json::from_str::<Value>(&text).is_ok());
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse(&bytes);
        }
    }
}
