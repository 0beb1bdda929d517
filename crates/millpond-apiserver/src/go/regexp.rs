//! Regular expressions as Go's `regexp` reads them, run by the `regex` crate.
//!
//! The two engines are both linear in time and nearly the same language. The differences are translated here:
//! Perl classes are ASCII only in Go, `\Q…\E` and octal escapes exist, set operators inside brackets do not, a
//! brace that starts no repetition is a literal, and the sentences about mistakes are Go's own.

use std::fmt;

use regex::{Regex, RegexBuilder};

/// Memory that one compiled program may take. Go bounds the number of instructions instead; patterns of real
/// CRDs stay below a megabyte.
const MAX_PROGRAM_BYTES: usize = 10 << 20;
/// The same for patterns that are compiled for one use: a fraction of a millisecond's work.
const SMALL_PROGRAM_BYTES: usize = 256 << 10;
const TOO_LARGE: &str = "expression too large";
/// How deep groups may nest, Go's own limit.
const MAX_DEPTH: u32 = 1000;
/// The largest repetition count, Go's own limit; nested counts multiply.
const MAX_REPEAT: u32 = 1000;

/// A mistake in a pattern: Go's words for it and the part of the pattern that they are about.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) struct RegexpError {
    problem: &'static str,
    part: String,
}

impl fmt::Display for RegexpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error parsing regexp: {}: `{}`", self.problem, self.part)
    }
}

/// Compiles a pattern written for Go.
pub(crate) fn compile(pattern: &str) -> Result<Regex, RegexpError> {
    build(pattern, MAX_PROGRAM_BYTES)
}

/// Compiles a pattern that will be used once, perhaps chosen by the author of an object.
pub(crate) fn compile_small(pattern: &str) -> Result<Regex, RegexpError> {
    build(pattern, SMALL_PROGRAM_BYTES)
}

/// Whether the pattern is well formed for Go (the engine's own limits aside).
pub(crate) fn check(pattern: &str) -> Result<(), RegexpError> {
    match build(pattern, SMALL_PROGRAM_BYTES) {
        Err(error) if error.problem != TOO_LARGE => Err(error),
        _ => Ok(()),
    }
}

fn build(pattern: &str, max_bytes: usize) -> Result<Regex, RegexpError> {
    let translated = Translator::new(pattern).run()?;
    let mut builder = RegexBuilder::new(&translated);
    builder.size_limit(max_bytes).nest_limit(4 * MAX_DEPTH).build().map_err(|error| RegexpError {
        // The regex engine still refuses what is too large or names an unknown Unicode class.
        problem: match error {
            regex::Error::CompiledTooBig(_) => TOO_LARGE,
            _ => "invalid character class range",
        },
        part: pattern.to_owned(),
    })
}

struct Translator<'a> {
    pattern: &'a str,
    rest: &'a str,
    out: String,
    /// One entry for each open group, the whole pattern first.
    groups: Vec<Group>,
    /// The operand of a repetition operator.
    last: Last,
}

/// State of one group while it is read.
#[derive(Default)]
struct Group {
    /// The largest product of nested repetition counts inside.
    repeats: u32,
}

/// The element before the current position.
#[derive(Clone, Copy, PartialEq)]
enum Last {
    /// No element that can be repeated.
    Nothing,
    /// An atom whose nested repetitions multiply to this number.
    Atom { repeats: u32 },
    /// A repetition, which takes no further operator.
    Repetition { start: usize, repeats: u32 },
}

type Step = Result<(), RegexpError>;

impl<'a> Translator<'a> {
    fn new(pattern: &'a str) -> Self {
        Self {
            pattern,
            rest: pattern,
            out: String::with_capacity(pattern.len() + 16),
            groups: vec![Group { repeats: 1 }],
            last: Last::Nothing,
        }
    }

    fn run(mut self) -> Result<String, RegexpError> {
        while let Some(next) = self.rest.chars().next() {
            match next {
                '(' => self.open_group()?,
                ')' => self.close_group()?,
                '|' => {
                    self.take(1);
                    self.out.push('|');
                    self.settle();
                    self.last = Last::Nothing;
                }
                '[' => self.class()?,
                '*' | '+' | '?' => self.repeat_operator()?,
                '{' => self.braces()?,
                '\\' => self.escape()?,
                '^' | '$' | '.' => {
                    self.take(1);
                    self.out.push(next);
                    self.atom();
                }
                literal => {
                    self.take(literal.len_utf8());
                    self.literal(literal);
                }
            }
        }
        if self.groups.len() > 1 {
            return Err(self.error("missing closing )", self.pattern));
        }
        Ok(self.out)
    }

    fn error(&self, problem: &'static str, part: &str) -> RegexpError {
        RegexpError { problem, part: part.to_owned() }
    }

    fn position(&self) -> usize {
        self.pattern.len() - self.rest.len()
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    /// Counts the last atom's repetitions towards its group.
    fn settle(&mut self) {
        if let Last::Atom { repeats } | Last::Repetition { repeats, .. } = self.last
            && let Some(group) = self.groups.last_mut()
        {
            group.repeats = group.repeats.max(repeats);
        }
    }

    fn atom(&mut self) {
        self.settle();
        self.last = Last::Atom { repeats: 1 };
    }

    fn literal(&mut self, literal: char) {
        self.out.push_str(&regex::escape(literal.encode_utf8(&mut [0; 4])));
        self.atom();
    }

    fn open_group(&mut self) -> Step {
        if self.groups.len() > MAX_DEPTH as usize {
            return Err(self.error("expression nests too deeply", self.pattern));
        }
        let rest = self.rest;
        if !rest.starts_with("(?") {
            self.take(1);
            return self.push_group("(?:");
        }
        for named in ["(?P<", "(?<"] {
            if rest.starts_with(named) {
                let Some(end) = rest.find('>') else {
                    return Err(self.error("invalid named capture", rest));
                };
                let name = &rest[named.len()..end];
                if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
                    return Err(self.error("invalid named capture", &rest[..=end]));
                }
                self.take(end + 1);
                return self.push_group("(?:");
            }
        }
        self.flags()
    }

    #[allow(clippy::unnecessary_wraps, reason = "one step among others that can fail")]
    fn push_group(&mut self, opening: &str) -> Step {
        self.settle();
        self.out.push_str(opening);
        self.groups.push(Group { repeats: 1 });
        self.last = Last::Nothing;
        Ok(())
    }

    /// `(?i)` and `(?i:`: Go knows the flags i, m, s and U.
    fn flags(&mut self) -> Step {
        let rest = self.rest;
        let mut seen_flag = false;
        let mut negative = false;
        for (offset, character) in rest.char_indices().skip(2) {
            match character {
                'i' | 'm' | 's' | 'U' => seen_flag = true,
                '-' if !negative => {
                    negative = true;
                    // A sign must be followed by a flag.
                    seen_flag = false;
                }
                ':' | ')' if seen_flag || !negative => {
                    let flags = self.take(offset + 1);
                    if character == ':' {
                        return self.push_group(flags);
                    }
                    // `(?)` is nothing to Go and a mistake to the engine.
                    if flags.len() > 3 {
                        self.settle();
                        self.out.push_str(flags);
                    }
                    self.last = Last::Nothing;
                    return Ok(());
                }
                _ => {
                    let end = offset + character.len_utf8();
                    return Err(self.error("invalid or unsupported Perl syntax", &rest[..end]));
                }
            }
        }
        Err(self.error("missing closing )", self.pattern))
    }

    fn close_group(&mut self) -> Step {
        if self.groups.len() == 1 {
            return Err(self.error("unexpected )", self.pattern));
        }
        self.take(1);
        self.settle();
        let inner = self.groups.pop().map_or(1, |group| group.repeats);
        self.out.push(')');
        self.last = Last::Atom { repeats: inner };
        Ok(())
    }

    fn repeat_operator(&mut self) -> Step {
        let start = self.position();
        self.take(1);
        if self.rest.starts_with('?') {
            self.take(1);
        }
        self.repeat(start, 1)
    }

    /// Ends a repetition that began at `start` and repeats its operand up to `count` times in Go's sense of cost.
    fn repeat(&mut self, start: usize, count: u32) -> Step {
        let text = &self.pattern[start..self.position()];
        let repeats = match self.last {
            Last::Nothing => return Err(self.error("missing argument to repetition operator", text)),
            Last::Repetition { start: first, .. } => {
                let both = &self.pattern[first..self.position()];
                return Err(self.error("invalid nested repetition operator", both));
            }
            Last::Atom { repeats } => repeats.saturating_mul(count.max(1)),
        };
        if repeats > MAX_REPEAT {
            return Err(self.error("invalid repeat count", text));
        }
        self.out.push_str(text);
        self.last = Last::Repetition { start, repeats };
        Ok(())
    }

    fn braces(&mut self) -> Step {
        let start = self.position();
        let Some((length, low, high)) = repetition(self.rest) else {
            self.take(1);
            self.literal('{');
            return Ok(());
        };
        self.take(length);
        let text = &self.pattern[start..self.position()];
        let bound = high.unwrap_or(low);
        if low > MAX_REPEAT || bound > MAX_REPEAT || high.is_some_and(|high| high < low) {
            return Err(self.error("invalid repeat count", text));
        }
        if self.rest.starts_with('?') {
            self.take(1);
        }
        self.repeat(start, bound)
    }

    fn escape(&mut self) -> Step {
        let rest = self.rest;
        let Some(kind) = rest[1..].chars().next() else {
            return Err(self.error("trailing backslash at end of expression", ""));
        };
        match kind {
            'A' | 'z' => self.pass(2, &rest[..2]),
            'b' => self.pass(2, r"(?-u:\b)"),
            'B' => self.pass(2, r"\B"),
            'Q' => self.quoted(),
            'p' | 'P' => {
                let class = unicode_class(rest).ok_or_else(|| self.error("invalid character class range", rest))?;
                self.pass(class.len(), class);
            }
            _ => match perl_class(kind) {
                Some(class) => self.pass(2, class),
                None => {
                    let (literal, length) = self.escaped_char(rest)?;
                    self.take(length);
                    self.literal(literal);
                }
            },
        }
        Ok(())
    }

    fn pass(&mut self, length: usize, translated: &str) {
        self.take(length);
        self.out.push_str(translated);
        self.atom();
    }

    /// `\Q…\E`: literal text, up to the end when `\E` is missing.
    fn quoted(&mut self) {
        self.take(2);
        let (text, skipped) = match self.rest.find(r"\E") {
            Some(end) => (&self.rest[..end], end + 2),
            None => (self.rest, self.rest.len()),
        };
        for literal in text.chars() {
            self.literal(literal);
        }
        self.take(skipped);
    }

    /// The character of an escape at the start of `text`, and its length.
    fn escaped_char(&self, text: &str) -> Result<(char, usize), RegexpError> {
        let mut characters = text[1..].chars();
        let Some(kind) = characters.next() else {
            return Err(self.error("trailing backslash at end of expression", ""));
        };
        let invalid = || self.error("invalid escape sequence", &text[..=kind.len_utf8()]);
        let simple = match kind {
            'a' => Some('\u{7}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\u{b}'),
            other if other.is_ascii() && !other.is_ascii_alphanumeric() => Some(other),
            _ => None,
        };
        if let Some(character) = simple {
            return Ok((character, 2));
        }
        match kind {
            '0'..='7' => octal(text, kind).ok_or_else(invalid),
            'x' => hexadecimal(text).ok_or_else(invalid),
            _ => Err(invalid()),
        }
    }

    fn class(&mut self) -> Step {
        let whole = self.rest;
        let missing = |this: &Self| this.error("missing closing ]", whole);
        self.take(1);
        self.out.push('[');
        if self.rest.starts_with('^') {
            self.take(1);
            self.out.push('^');
        }
        let mut first = true;
        loop {
            let Some(next) = self.rest.chars().next() else { return Err(missing(self)) };
            if next == ']' && !first {
                break;
            }
            first = false;
            if self.named_class()? {
                continue;
            }
            self.class_range(&missing)?;
        }
        self.take(1);
        self.out.push(']');
        self.atom();
        Ok(())
    }

    /// `[:alpha:]`, `\d`, `\pL` inside brackets; false when none stands here.
    fn named_class(&mut self) -> Result<bool, RegexpError> {
        let rest = self.rest;
        if rest.starts_with("[:")
            && let Some(end) = rest[2..].find(":]")
        {
            let text = &rest[..end + 4];
            let name = text[2..text.len() - 2].trim_start_matches('^');
            if !POSIX_CLASSES.contains(&name) {
                return Err(self.error("invalid character class range", text));
            }
            self.out.push_str(text);
            self.take(text.len());
            return Ok(true);
        }
        let Some(kind) = rest.strip_prefix('\\').and_then(|rest| rest.chars().next()) else { return Ok(false) };
        if matches!(kind, 'p' | 'P') {
            let class = unicode_class(rest).ok_or_else(|| self.error("invalid character class range", rest))?;
            self.out.push_str(class);
            self.take(class.len());
            return Ok(true);
        }
        let Some(class) = perl_class(kind) else { return Ok(false) };
        self.out.push_str(class);
        self.take(2);
        Ok(true)
    }

    fn class_range(&mut self, missing: &dyn Fn(&Self) -> RegexpError) -> Step {
        let start = self.position();
        let low = self.class_char(missing)?;
        let mut high = low;
        if self.rest.starts_with('-') && !self.rest.starts_with("-]") && self.rest.len() > 1 {
            self.take(1);
            high = self.class_char(missing)?;
            if high < low {
                let part = &self.pattern[start..self.position()];
                return Err(self.error("invalid character class range", part));
            }
        }
        for (separator, bound) in [("", low), ("-", high)] {
            self.out.push_str(separator);
            self.out.push_str(&format!("\\x{{{:x}}}", u32::from(bound)));
        }
        Ok(())
    }

    fn class_char(&mut self, missing: &dyn Fn(&Self) -> RegexpError) -> Result<char, RegexpError> {
        let rest = self.rest;
        let Some(next) = rest.chars().next() else { return Err(missing(self)) };
        if next != '\\' {
            self.take(next.len_utf8());
            return Ok(next);
        }
        let (character, length) = self.escaped_char(rest)?;
        self.take(length);
        Ok(character)
    }
}

const POSIX_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// Perl's classes, ASCII only as in Go. The form fits inside and outside of brackets.
fn perl_class(kind: char) -> Option<&'static str> {
    Some(match kind {
        'd' => "[0-9]",
        'D' => "[^0-9]",
        's' => r"[\t\n\x0c\r ]",
        'S' => r"[^\t\n\x0c\r ]",
        'w' => "[0-9A-Za-z_]",
        'W' => "[^0-9A-Za-z_]",
        _ => return None,
    })
}

/// The text of `\pL` or `\p{Greek}` at the start.
fn unicode_class(text: &str) -> Option<&str> {
    let body = &text[2..];
    let length = if body.starts_with('{') { body.find('}')? + 1 } else { body.chars().next()?.len_utf8() };
    Some(&text[..2 + length])
}

/// `{n}`, `{n,}`, `{n,m}` at the start: length, lower and upper bound.
fn repetition(text: &str) -> Option<(usize, u32, Option<u32>)> {
    let end = text.find('}')?;
    let body = &text[1..end];
    let (low, high) = match body.split_once(',') {
        None => (count(body)?, Some(count(body)?)),
        Some((low, "")) => (count(low)?, None),
        Some((low, high)) => (count(low)?, Some(count(high)?)),
    };
    Some((end + 1, low, high))
}

/// A repetition count; absurdly large ones become one that is refused.
fn count(digits: &str) -> Option<u32> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // A leading zero makes Go read the braces literally.
    if digits.len() > 1 && digits.starts_with('0') {
        return None;
    }
    Some(digits.parse().unwrap_or(u32::MAX))
}

/// `\0`, `\12`, `\123`; a lone digit other than zero would be a back reference, which does not exist.
fn octal(text: &str, first: char) -> Option<(char, usize)> {
    let digits: String = text[1..].chars().take(3).take_while(|digit| matches!(digit, '0'..='7')).collect();
    if first != '0' && digits.len() == 1 {
        return None;
    }
    let code = u32::from_str_radix(&digits, 8).ok()?;
    Some((char::from_u32(code)?, 1 + digits.len()))
}

/// `\x41` or `\x{1F600}`.
fn hexadecimal(text: &str) -> Option<(char, usize)> {
    let body = &text[2..];
    if let Some(body) = body.strip_prefix('{') {
        let end = body.find('}')?;
        let code = u32::from_str_radix(&body[..end], 16).ok()?;
        return Some((char::from_u32(code)?, 2 + end + 2));
    }
    let digits = body.get(..2)?;
    let code = u32::from_str_radix(digits, 16).ok()?;
    Some((char::from_u32(code)?, 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_go() {
        for (pattern, yes, no) in [
            (r"^\d+$", "12", "١٢"),
            (r"^\w+$", "a_1", "ä"),
            (r"^\s$", "\t", "\u{b}"),
            (r"^[\d\-x]+$", "1-x", "y"),
            (r"^[^\W_]$", "a", "_"),
            (r"^[a&&b]+$", "a&b", "c"),
            (r"^[[a]+$", "[a", "b"),
            (r"^[]a]$", "]", "b"),
            (r"^a{,2}$", "a{,2}", "aa"),
            (r"^a{2,3}$", "aaa", "a"),
            (r"^\Qa.b\E+$", "a.bb", "axb"),
            (r"^\012\x41\x{1F600}$", "\nA😀", "A"),
            (r"^(?P<n>a)(?<m>b)$", "ab", "a"),
            (r"(?i)^straße$", "STRAßE", "x"),
            (r"^[[:alpha:][:digit:]]$", "7", "-"),
            (r"^\p{Greek}\PL$", "α1", "aa"),
            (r"^a\b.", "a ", "ab"),
            (r"^[a-]$", "-", "b"),
            (r"^x*?$", "", "y"),
            (r"(?)a", "a", "b"),
        ] {
            let regex = compile(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert!(regex.is_match(yes), "{pattern} should match {yes:?}");
            assert!(!regex.is_match(no), "{pattern} should not match {no:?}");
        }
    }

    #[test]
    fn mistakes_are_reported_as_in_go() {
        for (pattern, expected) in [
            ("[", "missing closing ]: `[`"),
            ("a[b", "missing closing ]: `[b`"),
            ("(a", "missing closing ): `(a`"),
            ("a)", "unexpected ): `a)`"),
            ("*", "missing argument to repetition operator: `*`"),
            ("(|+)", "missing argument to repetition operator: `+`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("a{3,2}", "invalid repeat count: `{3,2}`"),
            ("((a{100}){100}){100}", "invalid repeat count: `{100}`"),
            (r"\1", r"invalid escape sequence: `\1`"),
            (r"\y", r"invalid escape sequence: `\y`"),
            ("a\\", "trailing backslash at end of expression: ``"),
            ("[b-a]", "invalid character class range: `b-a`"),
            ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
            ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?P<a", "invalid named capture: `(?P<a`"),
            ("(?P<a-b>c)", "invalid named capture: `(?P<a-b>`"),
        ] {
            let error = compile(pattern).expect_err(pattern);
            assert_eq!(error.to_string(), format!("error parsing regexp: {expected}"));
        }
    }

    #[test]
    fn deep_and_large_patterns_are_refused_quickly() {
        assert!(check(&"(".repeat(100_000)).is_err());
        assert!(check(&format!("{}a{}", "(".repeat(2000), ")".repeat(2000))).is_err());
        assert!(check(&format!("{}a{}", "(".repeat(500), ")".repeat(500))).is_ok());
        assert!(check(&r"\p{L}{1000}".repeat(100)).is_ok());
        assert!(compile(&r"\p{L}{1000}".repeat(100)).is_err());
        assert!(compile_small(r"\p{L}{1000}").is_err());
    }
}
