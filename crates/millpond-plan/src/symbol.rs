//! Texts that occur again and again (label keys, label values, names of resources) as small numbers.
//!
//! A million pods share a few thousand texts. Comparing numbers instead is what makes grouping them cheap.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::FixedState;

/// A text in a [`Symbols`] table. Two symbols of one table are equal exactly if their texts are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol(u32);

impl Symbol {
    /// Where its text stands in the table; dense from zero.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The table: each text once.
///
/// The numbers follow the order in which texts arrive. Nothing that a plan shows may depend on them: whatever is
/// sorted for the eye or to break a tie is sorted by text ([`Symbols::text`]).
#[derive(Debug, Clone, Default)]
pub struct Symbols {
    texts: Vec<Arc<str>>,
    /// The text as a whole number, where it is one: `Gt` and `Lt` ask often.
    integers: Vec<Option<i64>>,
    index: HashMap<Arc<str>, Symbol, FixedState>,
}

impl Symbols {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// The symbol of a text, new if need be.
    ///
    /// # Panics
    ///
    /// With more than four billion different texts.
    pub fn intern(&mut self, text: &str) -> Symbol {
        if let Some(symbol) = self.index.get(text) {
            return *symbol;
        }
        let symbol = Symbol(u32::try_from(self.texts.len()).expect("fewer than four billion texts"));
        let text: Arc<str> = text.into();
        self.texts.push(text.clone());
        self.integers.push(parse_integer(&text));
        self.index.insert(text, symbol);
        symbol
    }

    /// The symbol of a text that is known.
    pub fn find(&self, text: &str) -> Option<Symbol> {
        self.index.get(text).copied()
    }

    /// The text of a symbol.
    pub fn text(&self, symbol: Symbol) -> &str {
        &self.texts[symbol.index()]
    }

    /// The text at a place of the table, see [`Symbol::index`].
    pub fn text_at(&self, index: usize) -> &str {
        &self.texts[index]
    }

    /// The text of a symbol as a whole number, read as kube-scheduler reads it.
    pub fn integer(&self, symbol: Symbol) -> Option<i64> {
        self.integers[symbol.index()]
    }

    /// All of them, in the order in which they arrived.
    pub fn iter(&self) -> impl Iterator<Item = Symbol> + use<> {
        (0..self.texts.len() as u32).map(Symbol)
    }

    /// How many texts there are.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}

/// Go's `strconv.ParseInt(text, 10, 64)`: a sign and digits, nothing else.
pub(crate) fn parse_integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one_symbol() {
        let mut symbols = Symbols::new();
        let (a, b, again) = (symbols.intern("a"), symbols.intern("b"), symbols.intern("a"));
        assert_eq!(a, again);
        assert_ne!(a, b);
        assert_eq!((symbols.text(b), symbols.len(), symbols.find("c")), ("b", 2, None));
    }

    #[test]
    fn integers_are_read_as_go_reads_them() {
        let cases = [
            ("7", Some(7)),
            ("-7", Some(-7)),
            ("+7", Some(7)),
            ("007", Some(7)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("", None),
            ("-", None),
            ("1_000", None),
            (" 1", None),
            ("1.0", None),
            ("0x10", None),
        ];
        let mut symbols = Symbols::new();
        for (text, expected) in cases {
            let symbol = symbols.intern(text);
            assert_eq!(symbols.integer(symbol), expected, "{text:?}");
        }
    }
}
