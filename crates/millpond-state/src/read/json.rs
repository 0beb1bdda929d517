//! JSON: the entries of lists as slices of the text, and a tree of an object about which something has to be said.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::tree::{Key, Position, Scalar, Tree, Value, refuse_twice};
use super::yaml::{Broken, LIMIT_DEPTH};
use crate::objects::text::Text;

/// The type of a document, and its entries if it is a list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Envelope<'a> {
    #[serde(default, borrow)]
    pub(crate) api_version: Option<Text<'a>>,
    #[serde(default)]
    pub(crate) kind: Option<Text<'a>>,
    #[serde(default)]
    pub(crate) items: Option<Vec<&'a RawValue>>,
}

/// A document of a text, and what it says about itself if it is an object.
pub(crate) struct Document<'a> {
    pub(crate) text: &'a str,
    pub(crate) envelope: Option<Envelope<'a>>,
}

/// Splits a text into the documents that stand in it one after the other. Objects are looked into on the way:
/// large lists would else be walked over twice.
pub(crate) fn documents(text: &str) -> Result<Vec<Document<'_>>, Broken> {
    let mut documents = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', '\r']);
        if rest.is_empty() {
            return Ok(documents);
        }
        if rest.starts_with('{') {
            let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<Envelope<'_>>();
            if let Some(Ok(envelope)) = stream.next() {
                let (text, after) = rest.split_at(stream.byte_offset());
                documents.push(Document { text, envelope: Some(envelope) });
                rest = after;
                continue;
            }
        }
        let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
        let Some(document) = stream.next() else { return Ok(documents) };
        let document = document.map_err(|error| broken(&error, rest, super::Places::new(text).of(rest)))?;
        documents.push(Document { text: document.get(), envelope: None });
        rest = &rest[stream.byte_offset()..];
    }
}

/// Converts an error of the JSON parser, with its position in the whole file.
pub(crate) fn broken(error: &serde_json::Error, text: &str, start: Position) -> Broken {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).max(1);
    let of_error = text.split('\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    // The error counts bytes, people count letters.
    let before = of_error.bytes().take(error.column().saturating_sub(1));
    let letters = before.filter(|byte| !(0x80..0xc0).contains(byte)).count();
    let (line, column) = (number(error.line()), number(letters + 1));
    let column = if line == 1 { start.column.saturating_add(column - 1) } else { column };
    let place = Position { line: start.line.saturating_add(line - 1), column };
    let text = error.to_string();
    let words = text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]);
    Broken { place, problem: format!("is not JSON: {words}") }
}

/// `apiVersion` and `kind` of an object, looked for from its start on and no further than needed. The text is JSON.
pub(crate) fn head(text: &str) -> (Cow<'_, str>, Cow<'_, str>) {
    let mut scanner = Scanner::new(text, Position::START);
    let (mut version, mut kind) = (None, None);
    scanner.skip_space();
    if scanner.next() != Some(b'{') {
        return Default::default();
    }
    while let Ok(Some(key)) = scanner.next_key() {
        match &*key {
            "apiVersion" => version = scanner.text(),
            "kind" => kind = scanner.text(),
            _ => scanner.skip_value(),
        }
        if version.is_some() && kind.is_some() {
            break;
        }
    }
    (version.unwrap_or_default(), kind.unwrap_or_default())
}

/// Whether an object has one of these keys.
pub(crate) fn has_key(text: &str, keys: &[&str]) -> bool {
    let mut scanner = Scanner::new(text, Position::START);
    scanner.skip_space();
    if scanner.next() != Some(b'{') {
        return false;
    }
    while let Ok(Some(key)) = scanner.next_key() {
        if keys.contains(&&*key) {
            return true;
        }
        scanner.skip_value();
    }
    false
}

/// The tree of a JSON text that begins at a place of its file.
pub(crate) fn tree(text: &str, start: Position) -> Result<Tree<'_>, Broken> {
    Scanner::new(text, start).value(0)
}

/// Walks over JSON that was found to be well-formed; on any other it ends early and never panics.
struct Scanner<'a> {
    text: &'a str,
    at: usize,
    /// The place of `counted`.
    place: Position,
    counted: usize,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str, place: Position) -> Self {
        Self { text, at: 0, place, counted: 0 }
    }

    fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    fn peek(&self) -> Option<u8> {
        self.bytes().get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// The place where the scanner is, counted on from where it was last asked.
    fn here(&mut self) -> Position {
        let passed = self.text.get(self.counted..self.at).unwrap_or_default();
        for letter in passed.chars() {
            if letter == '\n' {
                self.place = Position { line: self.place.line.saturating_add(1), column: 1 };
            } else {
                self.place.column = self.place.column.saturating_add(1);
            }
        }
        self.counted = self.at;
        self.place
    }

    fn broken(&mut self) -> Broken {
        Broken { place: self.here(), problem: "is not JSON".to_owned() }
    }

    /// The end of a string whose opening quote is at `at`.
    fn string_end(&self) -> Option<usize> {
        let mut end = self.at + 1;
        loop {
            match self.bytes().get(end)? {
                b'"' => return Some(end + 1),
                b'\\' => end += 2,
                _ => end += 1,
            }
        }
    }

    fn text(&mut self) -> Option<Cow<'a, str>> {
        self.skip_space();
        if self.peek() != Some(b'"') {
            return None;
        }
        let end = self.string_end()?;
        let quoted = self.text.get(self.at..end)?;
        self.at = end;
        let inner = &quoted[1..quoted.len() - 1];
        if !inner.contains('\\') {
            return Some(Cow::Borrowed(inner));
        }
        serde_json::from_str(quoted).ok().map(Cow::Owned)
    }

    /// The next key of a map whose opening brace was consumed, with its colon; `None` at the end of the map.
    fn next_key(&mut self) -> Result<Option<Cow<'a, str>>, Broken> {
        self.skip_space();
        if self.peek() == Some(b',') {
            self.at += 1;
            self.skip_space();
        }
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(None);
        }
        let key = self.text().ok_or_else(|| self.broken())?;
        self.skip_space();
        if self.next() == Some(b':') { Ok(Some(key)) } else { Err(self.broken()) }
    }

    fn skip_value(&mut self) {
        let mut depth = 0usize;
        loop {
            self.skip_space();
            match self.peek() {
                None => return,
                Some(b'"') => self.at = self.string_end().unwrap_or(self.text.len()),
                Some(b'{' | b'[') => {
                    depth += 1;
                    self.at += 1;
                    continue;
                }
                Some(b'}' | b']') if depth == 0 => return,
                Some(b'}' | b']') => {
                    depth -= 1;
                    self.at += 1;
                }
                Some(b',' | b':') => {
                    self.at += 1;
                    continue;
                }
                Some(_) => _ = self.word(),
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// A number, `true`, `false` or `null`; at least one byte.
    fn word(&mut self) -> &'a str {
        let start = self.at;
        let ends = |byte: u8| matches!(byte, b',' | b']' | b'}' | b':' | b'"' | b' ' | b'\t' | b'\n' | b'\r');
        self.at += 1;
        while self.peek().is_some_and(|byte| !ends(byte)) {
            self.at += 1;
        }
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn value(&mut self, depth: usize) -> Result<Tree<'a>, Broken> {
        self.skip_space();
        let place = self.here();
        if depth > LIMIT_DEPTH {
            return Err(Broken { place, problem: format!("lies more than {LIMIT_DEPTH} values deep") });
        }
        let value = match self.peek() {
            Some(b'{') => Value::Map(self.map(depth)?),
            Some(b'[') => Value::List(self.list(depth)?),
            Some(b'"') => {
                let text = self.text().ok_or_else(|| self.broken())?;
                Value::Scalar(Scalar { text, plain: false })
            }
            Some(_) => Value::Scalar(Scalar { text: Cow::Borrowed(self.word()), plain: true }),
            None => return Err(self.broken()),
        };
        Ok(Tree { place, value })
    }

    fn map(&mut self, depth: usize) -> Result<Vec<(Key<'a>, Tree<'a>)>, Broken> {
        self.at += 1;
        let mut entries = Vec::new();
        loop {
            self.skip_space();
            if self.peek() == Some(b',') {
                self.at += 1;
                self.skip_space();
            }
            let place = self.here();
            let Some(text) = self.next_key()? else { break };
            entries.push((Key { place, text }, self.value(depth + 1)?));
        }
        refuse_twice(&entries)
            .map_err(|key| Broken { place: key.place, problem: format!("the key `{}` is there twice", key.text) })?;
        Ok(entries)
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Tree<'a>>, Broken> {
        self.at += 1;
        let mut entries = Vec::new();
        loop {
            self.skip_space();
            match self.peek() {
                Some(b']') => {
                    self.at += 1;
                    return Ok(entries);
                }
                Some(b',') => self.at += 1,
                None => return Err(self.broken()),
                Some(_) => entries.push(self.value(depth + 1)?),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_is_found_wherever_it_stands() {
        for text in [
            r#"{"apiVersion":"v1","kind":"Pod"}"#,
            r#"{ "kind" : "Pod", "metadata": {"a": [1, {"b": "}\""}], "kind": "x"}, "apiVersion":"v1"}"#,
            r#"{"n": -1.5e3, "t": true, "l": [], "kind":"Pod","apiVersion":"v\u0031", "rest": ["#,
        ] {
            let (version, kind) = head(text);
            assert_eq!((&*version, &*kind), ("v1", "Pod"), "{text}");
        }
        for text in ["", "[]", "{", r#"{"kind""#, r#"{"kind": 5, "x": "#, r#"{"a\"#] {
            assert_eq!(head(text), Default::default(), "{text}");
        }
    }

    #[test]
    fn places_are_counted_in_characters() {
        let tree = tree("{\n \"ä\": \"ü\", \"b\":\n  [1, true]}", Position { line: 3, column: 5 }).unwrap();
        assert_eq!(tree.place, Position { line: 3, column: 5 });
        assert_eq!(tree.locate("ä"), (Position { line: 4, column: 7 }, "ü"));
        assert_eq!(tree.locate("b[1]"), (Position { line: 5, column: 7 }, "true"));
        assert_eq!(tree.locate("b[7].x"), (Position { line: 4, column: 12 }, ""));
    }
}
