//! Reads the text of a path. The grammar is that of kubectl's templates, with its words for mistakes.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::{Node, Operator, Slice};

/// How deeply filters and unions may hold paths that hold filters and unions.
const MAX_DEPTH: usize = 16;

static DICTIONARY_KEY: LazyLock<Regex> = LazyLock::new(|| pattern(r"^'([^']*)'$"));
static SLICE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(-?[0-9]*)(:-?[0-9]*)?(:-?[0-9]*)?$"));
static COMPARISON: LazyLock<Regex> = LazyLock::new(|| pattern(r"^([^!<>=]+)([!<>=]+)(.+?)$"));

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is well formed")
}

/// Reads a template: text with paths in braces. Text is a section of its own.
pub(super) fn parse(template: &str) -> Result<Vec<Vec<Node>>, String> {
    parse_at(template, 0)
}

fn parse_at(template: &str, depth: usize) -> Result<Vec<Vec<Node>>, String> {
    if depth > MAX_DEPTH {
        return Err("nested too deeply".to_owned());
    }
    let mut sections = Vec::new();
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        if open > 0 {
            sections.push(vec![text(&rest[..open])]);
        }
        let mut parser = Parser { input: &rest[open + 1..], position: 0, depth };
        sections.push(parser.action()?);
        rest = &parser.input[parser.position..];
    }
    if !rest.is_empty() {
        sections.push(vec![text(rest)]);
    }
    Ok(sections)
}

/// Reads one path that stands inside another.
fn inner(path: &str, depth: usize) -> Result<Vec<Node>, String> {
    let sections = parse_at(&format!("{{{path}}}"), depth + 1)?;
    Ok(sections.into_iter().next().unwrap_or_default())
}

fn text(text: &str) -> Node {
    Node::Literal(Value::String(text.to_owned()))
}

struct Parser<'a> {
    input: &'a str,
    position: usize,
    depth: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.input[self.position..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.position += c.len_utf8();
        Some(c)
    }

    /// Everything up to the closing brace, which is read too.
    fn action(&mut self) -> Result<Vec<Node>, String> {
        let mut nodes = Vec::new();
        loop {
            if self.rest().starts_with("[?(") {
                self.position += 3;
                nodes.push(self.filter()?);
                continue;
            }
            if self.rest().starts_with("..") {
                self.descent(&mut nodes)?;
                continue;
            }
            let start = self.position;
            match self.next() {
                Some('}') => return Ok(nodes),
                None | Some('\r' | '\n') => return Err("unclosed action".to_owned()),
                Some(' ' | '@' | '$') => {}
                Some('[') => self.array(&mut nodes)?,
                Some(quote @ ('"' | '\'')) => nodes.push(self.quoted(quote)?),
                Some('.') => nodes.push(self.field()),
                Some(c) if c == '+' || c == '-' || c.is_numeric() => {
                    self.position = start;
                    nodes.push(self.number()?);
                }
                Some(c) if c == '_' || c.is_alphanumeric() => {
                    self.position = start;
                    nodes.push(self.word());
                }
                Some(c) => return Err(unrecognized(c)),
            }
        }
    }

    fn descent(&mut self, nodes: &mut Vec<Node>) -> Result<(), String> {
        if nodes.last() == Some(&Node::Descent) {
            return Err("invalid multiple recursive descent".to_owned());
        }
        self.position += 2;
        nodes.push(Node::Descent);
        if self.peek().is_some_and(|c| c == '_' || c.is_alphanumeric()) {
            nodes.push(self.field());
        }
        Ok(())
    }

    /// A field name up to something that ends it; `\` takes away the meaning of what follows.
    fn field(&mut self) -> Node {
        let start = self.position;
        while let Some(c) = self.peek().filter(|c| !is_terminator(*c)) {
            self.next();
            if c == '\\' {
                self.next();
            }
        }
        match &self.input[start..self.position] {
            "*" => Node::Wildcard,
            name => Node::Field(name.replace('\\', "")),
        }
    }

    fn word(&mut self) -> Node {
        let start = self.position;
        while self.peek().is_some_and(|c| !is_terminator(c)) {
            self.next();
        }
        match &self.input[start..self.position] {
            "true" => Node::Literal(Value::Bool(true)),
            "false" => Node::Literal(Value::Bool(false)),
            _ => Node::Word,
        }
    }

    fn number(&mut self) -> Result<Node, String> {
        let start = self.position;
        if matches!(self.peek(), Some('+' | '-')) {
            self.next();
        }
        while self.peek().is_some_and(|c| c == '.' || c.is_numeric()) {
            self.next();
        }
        let text = &self.input[start..self.position];
        let whole = text.parse::<i64>().ok().map(Value::from);
        let number = whole.or_else(|| text.parse::<f64>().ok().map(Value::from));
        number.map(Node::Literal).ok_or_else(|| format!("cannot parse number {text}"))
    }

    fn quoted(&mut self, quote: char) -> Result<Node, String> {
        let start = self.position - 1;
        loop {
            let escaped = self.input[..self.position].ends_with('\\');
            match self.next() {
                None | Some('\n') => return Err("unterminated quoted string".to_owned()),
                Some(c) if c == quote && !escaped => break,
                Some(_) => {}
            }
        }
        let value = &self.input[start..self.position];
        let inner = &value[1..value.len() - 1];
        unquoted(inner, quote)
            .map(|inner| text(&inner))
            .ok_or_else(|| format!("unquote string {value} error invalid syntax"))
    }

    fn array(&mut self, nodes: &mut Vec<Node>) -> Result<(), String> {
        let start = self.position;
        loop {
            match self.next() {
                None | Some('\n') => return Err("unterminated array".to_owned()),
                Some(']') => break,
                Some(_) => {}
            }
        }
        let text = &self.input[start..self.position - 1];
        if text.contains(',') {
            let parts = text.split(',').map(|part| inner(&format!("[{}]", part.trim_matches(' ')), self.depth));
            nodes.push(Node::Union(parts.collect::<Result<_, _>>()?));
        } else if let Some(key) = DICTIONARY_KEY.captures(text) {
            nodes.extend(inner(&format!(".{}", &key[1]), self.depth)?);
        } else {
            nodes.push(Node::Slice(slice(text)?));
        }
        Ok(())
    }

    fn filter(&mut self) -> Result<Node, String> {
        let start = self.position;
        let mut quote = None;
        let mut closed = false;
        loop {
            let escaped = self.input[..self.position].ends_with('\\');
            match self.next() {
                None | Some('\n') => return Err("unterminated filter".to_owned()),
                Some(c @ ('"' | '\'')) => match quote {
                    None => quote = Some(c),
                    Some(open) if open == c && !escaped => closed = true,
                    Some(_) => {}
                },
                Some(')') if quote.is_some() == closed => break,
                Some(_) => {}
            }
        }
        let end = self.position - 1;
        if self.next() != Some(']') {
            return Err("unclosed array expect ]".to_owned());
        }
        let text = &self.input[start..end];
        let Some(comparison) = COMPARISON.captures(text) else {
            let left = inner(text, self.depth)?;
            return Ok(Node::Filter { left, operator: Operator::Exists, right: Vec::new() });
        };
        let operator = match &comparison[2] {
            "==" => Operator::Equal,
            "!=" => Operator::NotEqual,
            "<" => Operator::Less,
            "<=" => Operator::LessOrEqual,
            ">" => Operator::Greater,
            ">=" => Operator::GreaterOrEqual,
            _ => Operator::Unknown,
        };
        let left = inner(&comparison[1], self.depth)?;
        Ok(Node::Filter { left, operator, right: inner(&comparison[3], self.depth)? })
    }
}

fn slice(text: &str) -> Result<Slice, String> {
    let text = if text == "*" { ":" } else { text };
    let parts = SLICE.captures(text).ok_or_else(|| format!("invalid array index {text}"))?;
    let number = |text: &str| match text {
        "" => Ok(None),
        text => text.parse::<i64>().map(Some).map_err(|_| format!("array index {text} is not a number")),
    };
    let part = |index: usize| parts.get(index).map(|part| part.as_str()).filter(|part| !part.is_empty());
    let start = number(part(1).unwrap_or_default())?;
    let end = part(2);
    Ok(Slice {
        start,
        end: match end {
            Some(end) => number(&end[1..])?,
            None => Some(start.unwrap_or(0).saturating_add(1)),
        },
        step: number(part(3).map_or("", |step| &step[1..]))?,
        single: end.is_none(),
    })
}

fn is_terminator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

fn unrecognized(c: char) -> String {
    format!("unrecognized character in action: U+{:04X} '{c}'", u32::from(c))
}

/// A quoted text without its escapes, which are Go's; nothing when one of them is malformed.
fn unquoted(text: &str, quote: char) -> Option<String> {
    let mut unquoted = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        unquoted.push(match c {
            c if c == quote => return None,
            '\\' => match chars.next()? {
                'a' => '\x07',
                'b' => '\x08',
                'f' => '\x0c',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\x0b',
                '\\' => '\\',
                'x' => coded(&mut chars, 2, 16, 0)?,
                'u' => coded(&mut chars, 4, 16, 0)?,
                'U' => coded(&mut chars, 8, 16, 0)?,
                first @ '0'..='7' => coded(&mut chars, 2, 8, first.to_digit(8)?)?,
                c if c == quote => c,
                _ => return None,
            },
            c => c,
        });
    }
    Some(unquoted)
}

fn coded(chars: &mut std::str::Chars<'_>, digits: usize, radix: u32, first: u32) -> Option<char> {
    let mut code = first;
    for _ in 0..digits {
        code = code.checked_mul(radix)?.checked_add(chars.next()?.to_digit(radix)?)?;
    }
    char::from_u32(code)
}
