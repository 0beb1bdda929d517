//! The text form of label selectors: one pass of tokens, then one pass of grammar, both linear.
//!
//! Where the grammar of Kubernetes is odd (keywords as values, empty values in sets, a NUL byte ends the
//! text), so is this one: the same texts parse, and the others fail with the same words.

use std::collections::BTreeSet;

use super::label::{LabelOperator, LabelRequirement};
use crate::names::label_key_problems;
use crate::status::FieldError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    End,
    OpenParenthesis,
    ClosedParenthesis,
    Comma,
    Not,
    Word,
    /// `in` or `notin`, a word where a value is expected.
    SetOperator(LabelOperator),
    Operator(LabelOperator),
}

/// A token with the text it was written as.
type Item<'a> = (Token, &'a str);

/// Reads the requirements of a selector, in the order they are written.
pub(super) fn parse(text: &str) -> Result<Vec<LabelRequirement>, String> {
    let mut parser = Parser { items: scan(text), position: 0 };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            (Token::Word | Token::SetOperator(_) | Token::Not, _) => {}
            (Token::End, _) => return Ok(requirements),
            (_, found) => return Err(format!("found '{found}', expected: !, identifier, or 'end of string'")),
        }
        let requirement = parser.requirement().map_err(|error| format!("unable to parse requirement: {error}"))?;
        requirements.push(requirement);
        match parser.next() {
            (Token::End, _) => return Ok(requirements),
            (Token::Comma, _) => match parser.peek() {
                (Token::Word | Token::SetOperator(_) | Token::Not, _) => {}
                (_, found) => return Err(format!("found '{found}', expected: identifier after ','")),
            },
            (_, found) => return Err(format!("found '{found}', expected: ',' or 'end of string'")),
        }
    }
}

struct Parser<'a> {
    items: Vec<Item<'a>>,
    position: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Item<'a> {
        self.items.get(self.position).copied().unwrap_or((Token::End, ""))
    }

    fn next(&mut self) -> Item<'a> {
        let item = self.peek();
        self.position += 1;
        item
    }

    fn requirement(&mut self) -> Result<LabelRequirement, String> {
        let (mut token, mut key) = self.next();
        let negated = token == Token::Not;
        if negated {
            (token, key) = self.next();
        }
        if !matches!(token, Token::Word | Token::SetOperator(_)) {
            return Err(format!("found '{key}', expected: identifier"));
        }
        let problems = label_key_problems(key);
        if !problems.is_empty() {
            // Kubernetes has no field path at this point and writes `<nil>`.
            return Err(FieldError::invalid("<nil>", key, problems.join("; ")).to_string());
        }
        if negated {
            return LabelRequirement::new(key, LabelOperator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return LabelRequirement::new(key, LabelOperator::Exists, Vec::new());
        }
        let (operator, values) = match self.next() {
            (Token::SetOperator(operator), _) => (operator, self.set()?),
            (Token::Operator(operator), _) => (operator, vec![self.value()?]),
            (_, found) => return Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        LabelRequirement::new(key, operator, values)
    }

    fn value(&mut self) -> Result<String, String> {
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.next() {
            (Token::Word | Token::SetOperator(_), value) => Ok(value.to_owned()),
            (_, found) => Err(format!("found '{found}', expected: identifier")),
        }
    }

    fn set(&mut self) -> Result<Vec<String>, String> {
        match self.next() {
            (Token::OpenParenthesis, _) => {}
            (_, found) => return Err(format!("found '{found}' expected: '('")),
        }
        match self.peek() {
            (Token::Word | Token::SetOperator(_) | Token::Comma, _) => {}
            (Token::ClosedParenthesis, _) => {
                self.next();
                return Ok(vec![String::new()]);
            }
            (_, found) => return Err(format!("found '{found}', expected: ',', ')' or identifier")),
        }
        let values = self.set_values()?;
        self.next();
        Ok(values.into_iter().map(ToOwned::to_owned).collect())
    }

    /// The values up to the closing parenthesis, which is left to be read. Nothing between two commas,
    /// or between a comma and a parenthesis, is the empty value.
    fn set_values(&mut self) -> Result<BTreeSet<&'a str>, String> {
        let mut values = BTreeSet::new();
        loop {
            match self.next() {
                (Token::Word | Token::SetOperator(_), value) => {
                    values.insert(value);
                    match self.peek() {
                        (Token::Comma, _) => {}
                        (Token::ClosedParenthesis, _) => return Ok(values),
                        (_, found) => return Err(format!("found '{found}', expected: ',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    let following = self.peek().0;
                    if values.is_empty() || matches!(following, Token::ClosedParenthesis | Token::Comma) {
                        values.insert("");
                    }
                    if following == Token::ClosedParenthesis {
                        return Ok(values);
                    }
                }
                (_, found) => return Err(format!("found '{found}', expected: ',', or identifier")),
            }
        }
    }
}

/// Splits a text into tokens; the end is left out.
fn scan(text: &str) -> Vec<Item<'_>> {
    let bytes = text.as_bytes();
    let mut items = Vec::new();
    let mut position = 0;
    while let Some(&byte) = bytes.get(position) {
        if byte == 0 {
            break;
        }
        if is_blank(byte) {
            position += 1;
            continue;
        }
        let length = if is_symbol(byte) { symbol_length(&bytes[position..]) } else { word_length(&bytes[position..]) };
        let literal = &text[position..position + length];
        items.push((token(literal), literal));
        position += length;
        if bytes.get(position) == Some(&0) {
            position += 1;
        }
    }
    items
}

fn token(literal: &str) -> Token {
    match literal {
        "(" => Token::OpenParenthesis,
        ")" => Token::ClosedParenthesis,
        "," => Token::Comma,
        "!" => Token::Not,
        "=" => Token::Operator(LabelOperator::Equals),
        "==" => Token::Operator(LabelOperator::DoubleEquals),
        "!=" => Token::Operator(LabelOperator::NotEquals),
        ">" => Token::Operator(LabelOperator::GreaterThan),
        "<" => Token::Operator(LabelOperator::LessThan),
        "in" => Token::SetOperator(LabelOperator::In),
        "notin" => Token::SetOperator(LabelOperator::NotIn),
        _ => Token::Word,
    }
}

fn symbol_length(bytes: &[u8]) -> usize {
    if matches!(bytes, [b'=' | b'!', b'=', ..]) { 2 } else { 1 }
}

fn word_length(bytes: &[u8]) -> usize {
    bytes.iter().position(|&byte| byte == 0 || is_blank(byte) || is_symbol(byte)).unwrap_or(bytes.len())
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn is_symbol(byte: u8) -> bool {
    matches!(byte, b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<')
}

#[cfg(test)]
mod tests {
    use super::super::LabelSelector;
    use proptest::prelude::*;

    fn shown(text: &str) -> String {
        match LabelSelector::parse(text) {
            Ok(selector) => selector.to_string(),
            Err(error) => error.message,
        }
    }

    #[test]
    fn parses_to_a_canonical_text() {
        for (text, canonical) in [
            ("", ""),
            ("  ", ""),
            (" b , a ", "a,b"),
            ("a=b", "a=b"),
            ("a = b", "a=b"),
            ("a==b", "a==b"),
            ("a!=b", "a!=b"),
            ("!a,b", "!a,b"),
            ("a in (x,)", "a in (,x)"),
            ("a in (y,,x,y)", "a in (,x,y)"),
            ("a in ()", "a in ()"),
            ("a in (,)", "a in ()"),
            ("a notin(x)", "a notin (x)"),
            (
                "a>1,a<",
                "unable to parse requirement: values[0]: Invalid value: \"\": for 'Gt', 'Lt' operators, \
              the value must be an integer",
            ),
            ("a>1", "a>1"),
            ("in in (in,notin)", "in in (in,notin)"),
            ("in", "in"),
            ("notin=in", "notin=in"),
            ("x.io/a=", "x.io/a="),
        ] {
            assert_eq!(shown(text), canonical, "{text}");
        }
    }

    /// Asked of the real API server, version 1.36.
    #[test]
    fn fails_with_the_words_of_kubernetes() {
        for (text, message) in [
            ("a=b=c", "found '=', expected: ',' or 'end of string'"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            ("a in", "unable to parse requirement: found '' expected: '('"),
            ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
            ("a in (x", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("a in (x y)", "unable to parse requirement: found 'y', expected: ',' or ')'"),
            (",", "found ',', expected: !, identifier, or 'end of string'"),
            ("a,", "found '', expected: identifier after ','"),
            ("a,,b", "found ',', expected: identifier after ','"),
            ("=", "found '=', expected: !, identifier, or 'end of string'"),
            ("a in (x,-y,!z)", "unable to parse requirement: found '!', expected: ',', or identifier"),
            ("(", "found '(', expected: !, identifier, or 'end of string'"),
            ("a===b", "unable to parse requirement: found '=', expected: identifier"),
            ("a!b", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
            ("!a=b", "found '=', expected: ',' or 'end of string'"),
            ("!a in (b)", "found 'in', expected: ',' or 'end of string'"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            (
                "a>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value \
                 must be an integer",
            ),
            ("/x", "unable to parse requirement: <nil>: Invalid value: \"/x\": prefix part must be non-empty"),
            (
                "a=-x",
                "unable to parse requirement: values[0][a]: Invalid value: \"-x\": a valid label must be an empty \
                 string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                 alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
                 '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            ),
        ] {
            assert_eq!(shown(text), message, "{text}");
        }
    }

    proptest! {
        #[test]
        fn fuzz_label_selector(text in "[a-c!=<>(), \\x00é/-]{0,40}|\\PC{0,40}") {
            let _ = LabelSelector::parse(&text);
        }

        #[test]
        fn what_parses_reads_back_as_itself(text in "([!]?[a-c]{1,2}|[ab](=|==|!=)[xy]?|[ab] (in|notin) \\([xy,]{0,4}\\)|b[<>][0-9]{1,3})(,([!]?[a-c]|c=z)){0,3}") {
            let selector = LabelSelector::parse(&text).unwrap();
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
        }
    }
}
