//! The lexer: from text to tokens.

use super::issues::Issues;

/// A token and where it starts, in characters.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) position: u32,
    /// The token as written.
    pub(super) text: String,
}

impl Token {
    pub(super) fn is_symbol(&self, symbol: &str) -> bool {
        self.kind == TokenKind::Symbol && self.text == symbol
    }

    /// Whether an operand can begin with this.
    pub(super) fn starts_operand(&self) -> bool {
        match self.kind {
            TokenKind::End | TokenKind::EscapedIdentifier => false,
            TokenKind::Symbol => matches!(self.text.as_str(), "[" | "{" | "(" | "." | "-" | "!"),
            TokenKind::Identifier => self.text != "in",
            _ => true,
        }
    }
}

/// Kinds of tokens. Operators and brackets differ by their text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    End,
    Symbol,
    Identifier,
    /// An identifier in backticks.
    EscapedIdentifier,
    Int,
    Uint,
    Float,
    String,
    Bytes,
}

const SYMBOLS: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":", "+", "*",
    "/", "%",
];

/// Cuts a text into tokens; the last one is [`TokenKind::End`]. What is no token is reported and skipped.
pub(super) fn tokens(source: &str, issues: &mut Issues) -> Vec<Token> {
    let characters: Vec<char> = source.chars().collect();
    let mut lexer = Lexer { characters: &characters, position: 0 };
    let mut tokens = Vec::new();
    while let Some(next) = lexer.peek(0) {
        if matches!(next, ' ' | '\t' | '\r' | '\n' | '\u{c}') {
            lexer.position += 1;
        } else if next == '/' && lexer.peek(1) == Some('/') {
            while lexer.peek(0).is_some_and(|next| next != '\n') {
                lexer.position += 1;
            }
        } else {
            lexer.token(&mut tokens, issues);
        }
    }
    tokens.push(Token { kind: TokenKind::End, position: lexer.position as u32, text: "<EOF>".to_owned() });
    tokens
}

struct Lexer<'a> {
    characters: &'a [char],
    position: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.characters.get(self.position + ahead).copied()
    }

    fn token(&mut self, tokens: &mut Vec<Token>, issues: &mut Issues) {
        let start = self.position;
        let kind = self.kind();
        let text: String = self.characters[start..self.position.max(start + 1)].iter().collect();
        self.position = self.position.max(start + 1);
        match kind {
            Some(kind) => tokens.push(Token { kind, position: start as u32, text }),
            None => {
                let shown = text.replace('\n', "\\n").replace('\t', "\\t").replace('\r', "\\r");
                issues.report(start as u32, format!("Syntax error: token recognition error at: '{shown}'"));
            }
        }
    }

    /// Consumes a token; `None` if there is none at this position.
    fn kind(&mut self) -> Option<TokenKind> {
        let next = self.peek(0)?;
        if let Some(kind) = self.quoted() {
            return kind;
        }
        if next.is_ascii_alphabetic() || next == '_' {
            while self.peek(0).is_some_and(|next| next.is_ascii_alphanumeric() || next == '_') {
                self.position += 1;
            }
            return Some(TokenKind::Identifier);
        }
        if next.is_ascii_digit() || (next == '.' && self.peek(1).is_some_and(|next| next.is_ascii_digit())) {
            return Some(self.number());
        }
        if next == '`' {
            return self.escaped_identifier();
        }
        if matches!(next, '=' | '&' | '|') && self.peek(1) != Some(next) {
            // Half an operator takes the character with it that should have been the other half.
            self.position = (self.position + 2).min(self.characters.len());
            return None;
        }
        let symbol =
            SYMBOLS.iter().find(|symbol| symbol.chars().zip(0..).all(|(c, ahead)| self.peek(ahead) == Some(c)))?;
        self.position += symbol.len();
        Some(TokenKind::Symbol)
    }

    fn escaped_identifier(&mut self) -> Option<TokenKind> {
        let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | ' ');
        let length = (1..self.characters.len()).take_while(|ahead| self.peek(*ahead).is_some_and(is_inner)).count();
        let closes = length > 0 && self.peek(length + 1) == Some('`');
        self.position = (self.position + length + 2).min(self.characters.len());
        closes.then_some(TokenKind::EscapedIdentifier)
    }

    fn digits(&mut self, is_digit: fn(char) -> bool) -> usize {
        let start = self.position;
        while self.peek(0).is_some_and(is_digit) {
            self.position += 1;
        }
        self.position - start
    }

    fn number(&mut self) -> TokenKind {
        let is_decimal = |c: char| c.is_ascii_digit();
        let mut kind = TokenKind::Int;
        if self.peek(0) == Some('0') && self.peek(1) == Some('x') && self.peek(2).is_some_and(|c| c.is_ascii_hexdigit())
        {
            self.position += 2;
            self.digits(|c| c.is_ascii_hexdigit());
        } else {
            self.digits(is_decimal);
            if self.peek(0) == Some('.') && self.peek(1).is_some_and(is_decimal) {
                kind = TokenKind::Float;
                self.position += 1;
                self.digits(is_decimal);
            }
            let sign = usize::from(matches!(self.peek(1), Some('+' | '-')));
            if matches!(self.peek(0), Some('e' | 'E')) && self.peek(1 + sign).is_some_and(is_decimal) {
                kind = TokenKind::Float;
                self.position += 1 + sign;
                self.digits(is_decimal);
            }
        }
        if kind == TokenKind::Int && matches!(self.peek(0), Some('u' | 'U')) {
            self.position += 1;
            kind = TokenKind::Uint;
        }
        kind
    }

    /// A string or bytes literal; the inner option is `None` if it is not terminated.
    fn quoted(&mut self) -> Option<Option<TokenKind>> {
        let start = self.position;
        let mut ahead = 0;
        let is_bytes = matches!(self.peek(ahead), Some('b' | 'B'));
        ahead += usize::from(is_bytes);
        let is_raw = matches!(self.peek(ahead), Some('r' | 'R'));
        ahead += usize::from(is_raw);
        let quote = self.peek(ahead).filter(|c| matches!(c, '"' | '\''))?;
        let is_triple = self.peek(ahead + 1) == Some(quote) && self.peek(ahead + 2) == Some(quote);
        self.position += ahead + if is_triple { 3 } else { 1 };
        if self.skip_to_end(quote, is_triple, is_raw) {
            return Some(Some(if is_bytes { TokenKind::Bytes } else { TokenKind::String }));
        }
        // The literal is not terminated. An empty literal may still stand at its start, or a name before its quote.
        if is_triple {
            self.position = start + ahead + 2;
            return Some(Some(if is_bytes { TokenKind::Bytes } else { TokenKind::String }));
        }
        if ahead > 0 {
            self.position = start;
            return None;
        }
        Some(None)
    }

    /// Goes behind the closing quote, or behind what cannot stand in a string.
    fn skip_to_end(&mut self, quote: char, is_triple: bool, is_raw: bool) -> bool {
        loop {
            let Some(next) = self.peek(0) else { return false };
            let closes = next == quote && (!is_triple || (self.peek(1) == Some(quote) && self.peek(2) == Some(quote)));
            if closes {
                self.position += if is_triple { 3 } else { 1 };
                return true;
            }
            self.position += 1;
            let fits = match next {
                '\n' | '\r' => is_triple,
                '\\' => is_raw || self.escape(),
                _ => true,
            };
            if !fits {
                self.position = self.position.min(self.characters.len());
                return false;
            }
        }
    }

    /// Skips an escape whose backslash was consumed, or the text that makes it invalid.
    fn escape(&mut self) -> bool {
        let kind = self.peek(0);
        self.position += 1;
        let (digits, is_digit): (_, fn(char) -> bool) = match kind {
            Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`') => return true,
            Some('x' | 'X') => (2, |c| c.is_ascii_hexdigit()),
            Some('u') => (4, |c| c.is_ascii_hexdigit()),
            Some('U') => (8, |c| c.is_ascii_hexdigit()),
            Some('0'..='3') => (2, |c| matches!(c, '0'..='7')),
            _ => return false,
        };
        (0..digits).all(|_| {
            let fits = self.peek(0).is_some_and(is_digit);
            self.position += 1;
            fits
        })
    }
}

/// The value of a string or bytes token. The error is upstream's sentence.
pub(super) fn unquote(token: &str, is_bytes: bool) -> Result<Vec<u8>, &'static str> {
    const BROKEN: &str = "unable to unescape string";
    let token = if is_bytes { &token[1..] } else { token };
    let is_raw = token.starts_with(['r', 'R']);
    let body = if is_raw { &token[1..] } else { token };
    let quotes = if body.len() >= 6 && (body.starts_with("\"\"\"") || body.starts_with("'''")) { 3 } else { 1 };
    let text = body.get(quotes..body.len().saturating_sub(quotes)).ok_or(BROKEN)?;
    // Carriage returns are not part of strings over several lines.
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    if is_raw {
        return Ok(text.into_bytes());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(next) = rest.chars().next() {
        if next != '\\' {
            let (character, left) = rest.split_at(next.len_utf8());
            out.extend_from_slice(character.as_bytes());
            rest = left;
            continue;
        }
        rest = unescape(&rest[1..], is_bytes, &mut out).ok_or(BROKEN)?;
    }
    Ok(out)
}

/// Appends the character of an escape whose backslash was consumed, and returns the text after it.
fn unescape<'a>(text: &'a str, is_bytes: bool, out: &mut Vec<u8>) -> Option<&'a str> {
    let kind = text.chars().next()?;
    let rest = &text[kind.len_utf8()..];
    let simple = match kind {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '\\' | '\'' | '"' | '`' | '?' => kind as u8,
        'x' | 'X' => return push_code(rest, 2, 16, is_bytes, out),
        'u' if !is_bytes => return push_code(rest, 4, 16, false, out),
        'U' if !is_bytes => return push_code(rest, 8, 16, false, out),
        '0'..='3' => return push_code(text, 3, 8, is_bytes, out),
        _ => return None,
    };
    out.push(simple);
    Some(rest)
}

fn push_code<'a>(text: &'a str, digits: usize, radix: u32, is_byte: bool, out: &mut Vec<u8>) -> Option<&'a str> {
    let code = u32::from_str_radix(text.get(..digits)?, radix).ok()?;
    if is_byte {
        out.push(u8::try_from(code).ok()?);
    } else {
        let character = char::from_u32(code)?;
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
    Some(&text[digits..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(source: &str) -> Vec<(TokenKind, String)> {
        let mut issues = Issues::new(source);
        let tokens = tokens(source, &mut issues);
        assert!(issues.is_empty(), "{issues}");
        tokens.into_iter().map(|token| (token.kind, token.text)).collect()
    }

    #[test]
    fn texts_become_tokens() {
        use TokenKind::*;
        let expected = [
            (Identifier, "self"),
            (Symbol, "."),
            (Identifier, "a"),
            (Symbol, ">="),
            (Float, "1.5e3"),
            (Symbol, "&&"),
            (Uint, "0x1Fu"),
            (Symbol, "!="),
            (Int, "3"),
            (Symbol, "."),
            (Identifier, "b"),
            (String, "r'a\\d'"),
            (Bytes, "b\"x\\\"\""),
            (String, "'''a\n'b'''"),
            (Float, ".5"),
            (EscapedIdentifier, "`a-b`"),
            (Identifier, "bar"),
            (End, "<EOF>"),
        ];
        let found = kinds("self.a >= 1.5e3 && 0x1Fu != 3.b r'a\\d' b\"x\\\"\" '''a\n'b''' .5 `a-b` bar // comment");
        assert_eq!(found, expected.map(|(kind, text)| (kind, text.to_owned())));
    }

    #[test]
    fn what_is_no_token_is_reported() {
        let mut issues = Issues::new("a # 'b");
        let tokens = tokens("a # 'b", &mut issues);
        assert_eq!(tokens.len(), 2);
        assert!(issues.to_string().contains("Syntax error: token recognition error at: '#'"));
        assert!(issues.to_string().contains("Syntax error: token recognition error at: ''b'"));
    }

    #[test]
    fn strings_are_unquoted() {
        for (token, is_bytes, expected) in [
            ("'a\\n\\x41\\u00e4\\101'", false, Some("a\nAäA".as_bytes())),
            ("r'a\\n'", false, Some(b"a\\n".as_slice())),
            ("\"\"\"a\"b\"\"\"", false, Some(b"a\"b".as_slice())),
            ("b'\\xff\\377'", true, Some(b"\xff\xff".as_slice())),
            ("''", false, Some(b"".as_slice())),
            ("'\\ud800'", false, None),
        ] {
            assert_eq!(unquote(token, is_bytes).ok().as_deref(), expected, "{token}");
        }
    }
}
