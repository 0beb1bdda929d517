//! Paths into objects, as CRDs write them: simple ones for columns and `/scale`, checked ones for rules and
//! selectable fields.

use super::props::Props;
use crate::status::FieldError;

/// Problems of a path like `.spec.replicas`, which is only looked at from outside.
pub(crate) fn simple_path_problem(path: &str, field: &str) -> Option<FieldError> {
    let detail = match path.as_bytes().first() {
        None => "must not be empty",
        Some(b'.') => return None,
        Some(_) => "must be a simple json path starting with .",
    };
    Some(FieldError::invalid(field, path, detail))
}

/// A path that the schema knows.
pub(crate) struct FieldPath<'a> {
    /// The path in the notation of errors: `spec.names[x]`.
    pub(crate) text: String,
    /// The first step.
    pub(crate) root: String,
    /// Schema of the field.
    pub(crate) schema: &'a Props,
}

/// Follows a path of field and map accessors through a schema. The error is upstream's sentence.
pub(crate) fn resolve<'a>(path: &str, schema: &'a Props, allow_brackets: bool) -> Result<FieldPath<'a>, String> {
    let mut found = FieldPath { text: String::new(), root: String::new(), schema };
    let mut tokens = Tokens { rest: path };
    while let Some(token) = tokens.next() {
        match token {
            "." => {
                let name = tokens.next().ok_or("unexpected end of JSON path")?;
                found.step(name)?;
            }
            "[" => {
                if !allow_brackets {
                    return Err("array notation is not allowed".to_owned());
                }
                let quoted = tokens.next().ok_or("unexpected end of JSON path")?;
                let inner = quoted.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
                let Some(inner) = inner.filter(|_| quoted.len() >= 2) else {
                    return Err(format!("expected single quoted string but got {quoted}"));
                };
                found.step(&unescape(inner)?)?;
                match tokens.next() {
                    Some("]") => {}
                    Some(other) => return Err(format!("expected ] but got {other}")),
                    None => return Err("unexpected end of JSON path".to_owned()),
                }
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        }
    }
    Ok(found)
}

impl<'a> FieldPath<'a> {
    fn step(&mut self, name: &str) -> Result<(), String> {
        let schema: &'a Props = self.schema;
        let is_first = self.root.is_empty();
        if schema.properties.is_empty() {
            self.schema = schema.additional_schema().ok_or("does not refer to a valid field")?;
            self.text.push_str(&format!("[{name}]"));
        } else {
            self.schema = schema.properties.get(name).ok_or("does not refer to a valid field")?;
            if !is_first {
                self.text.push('.');
            }
            self.text.push_str(name);
        }
        if is_first {
            name.clone_into(&mut self.root);
        }
        Ok(())
    }
}

/// Splits a path at `.`, `[` and `]`; what stands in single quotes is one token.
struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let bytes = self.rest.as_bytes();
        let length = match bytes.first()? {
            b'.' | b'[' | b']' => 1,
            b'\'' => {
                let end = (1..bytes.len()).find(|&index| bytes[index] == b'\'' && bytes[index - 1] != b'\\');
                end.map_or(bytes.len(), |end| end + 1)
            }
            _ => bytes.iter().position(|byte| matches!(byte, b'.' | b'[' | b']')).unwrap_or(bytes.len()),
        };
        let (token, rest) = self.rest.split_at(length);
        self.rest = rest;
        Some(token)
    }
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            out.push(character);
            continue;
        }
        out.push(match characters.next() {
            Some('a') => '\u{7}',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\u{b}',
            Some('\'') => '\'',
            Some('\\') => '\\',
            Some(other) => return Err(format!("invalid string literal: invalid escape char \\{other}")),
            None => '\\',
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_follow_the_schema() {
        let schema = Props::parse(
            &json!({"type": "object", "properties": {
                "spec": {"type": "object", "properties": {
                    "a.b": {"type": "string"},
                    "map": {"type": "object", "additionalProperties": {"type": "integer"}},
                }},
            }}),
            "",
        )
        .unwrap();
        for (path, expected) in [
            (".spec", Ok("spec")),
            (".spec['a.b']", Ok("spec.a.b")),
            (".spec.map.x", Ok("spec.map[x]")),
            (".spec.map['x\\'y']", Ok("spec.map[x'y]")),
            (".other", Err("does not refer to a valid field")),
            ("spec", Err("expected [ or . but got: spec")),
            (".", Err("unexpected end of JSON path")),
            (".spec[0]", Err("expected single quoted string but got 0")),
            (".spec['a.b'", Err("unexpected end of JSON path")),
            (".spec['a\\q']", Err("invalid string literal: invalid escape char \\q")),
        ] {
            let found = resolve(path, &schema, true).map(|found| found.text);
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{path}");
        }
        assert_eq!(resolve(".spec['x']", &schema, false).err().as_deref(), Some("array notation is not allowed"));
    }
}
