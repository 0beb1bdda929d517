//! Texts that occur again and again (label keys, label values, names of resources) as small numbers.
//!
//! A million pods share a few thousand texts. Comparing numbers instead is what makes grouping them cheap.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::FixedState;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A text in a [`Symbols`] table. Two symbols of one table are equal exactly if their texts are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Symbol(u32);

impl Symbol {
    /// Index of its text in the table; dense from zero.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A table of distinct texts.
///
/// The numbers follow the order in which texts arrive. Nothing that a plan shows may depend on them: whatever is sorted
/// for display or to break a tie is sorted by text ([`Symbols::text`]).
///
/// Every snapshot has a copy, and a cluster that is watched has many snapshots: copies share all texts but the latest.
#[derive(Debug, Clone, Default)]
pub struct Symbols {
    shared: Arc<Texts>,
    /// Texts that arrived since; their numbers follow the shared ones.
    latest: Texts,
}

/// The latest texts are moved to the shared ones when there are this many, plus a share of the shared ones: a copy of
/// the table then copies few texts, and each text moves only a few times.
const LATEST: usize = 512;
const ONE_OF: usize = 16;

#[derive(Debug, Clone, Default)]
struct Texts {
    texts: Vec<Arc<str>>,
    /// The text as a whole number, where it is one: `Gt` and `Lt` ask often.
    integers: Vec<Option<i64>>,
    index: HashMap<Arc<str>, Symbol, FixedState>,
}

impl Texts {
    fn append(&mut self, others: Self) {
        self.texts.extend(others.texts);
        self.integers.extend(others.integers);
        self.index.extend(others.index);
    }
}

impl Symbols {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// The symbol of a text; adds a new text.
    ///
    /// # Panics
    ///
    /// With more than four billion different texts.
    pub fn intern(&mut self, text: &str) -> Symbol {
        if let Some(symbol) = self.find(text) {
            return symbol;
        }
        let symbol = Symbol(u32::try_from(self.len()).expect("fewer than four billion texts"));
        let text: Arc<str> = text.into();
        let latest = &mut self.latest;
        latest.texts.push(text.clone());
        latest.integers.push(parse_integer(&text));
        latest.index.insert(text, symbol);
        if latest.texts.len() >= LATEST.max(self.shared.texts.len() / ONE_OF) {
            Arc::make_mut(&mut self.shared).append(std::mem::take(&mut self.latest));
        }
        symbol
    }

    /// The symbol of a text that the table has.
    pub fn find(&self, text: &str) -> Option<Symbol> {
        self.shared.index.get(text).or_else(|| self.latest.index.get(text)).copied()
    }

    /// The text of a symbol.
    pub fn text(&self, symbol: Symbol) -> &str {
        self.text_at(symbol.index())
    }

    /// The text at a place of the table, see [`Symbol::index`].
    pub fn text_at(&self, index: usize) -> &str {
        let shared = &self.shared.texts;
        shared.get(index).unwrap_or_else(|| &self.latest.texts[index - shared.len()])
    }

    /// The text of a symbol as a whole number, read as kube-scheduler reads it.
    pub fn integer(&self, symbol: Symbol) -> Option<i64> {
        let shared = &self.shared.integers;
        *shared.get(symbol.index()).unwrap_or_else(|| &self.latest.integers[symbol.index() - shared.len()])
    }

    /// All symbols, in the order in which they arrived.
    pub fn iter(&self) -> impl Iterator<Item = Symbol> + use<> {
        (0..self.len() as u32).map(Symbol)
    }

    /// How many texts there are.
    pub fn len(&self) -> usize {
        self.shared.texts.len() + self.latest.texts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// As the list of its texts: a symbol is the place of its text in the list.
impl Serialize for Symbols {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((0..self.len()).map(|index| self.text_at(index)))
    }
}

impl<'de> Deserialize<'de> for Symbols {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut symbols = Self::new();
        for text in Vec::<String>::deserialize(deserializer)? {
            symbols.intern(&text);
        }
        Ok(symbols)
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
    fn copies_go_on_by_themselves_and_agree_on_what_they_had() {
        let mut symbols = Symbols::new();
        let number = |symbols: &mut Symbols, index: usize| symbols.intern(&index.to_string());
        let first: Vec<Symbol> = (0..LATEST * 3 + 7).map(|index| number(&mut symbols, index)).collect();
        let mut copy = symbols.clone();
        assert!(Arc::ptr_eq(&symbols.shared, &copy.shared));
        let (own, other) = (symbols.intern("own"), copy.intern("other"));
        assert_eq!((own, copy.find("own"), symbols.find("other")), (other, None, None), "each has the next number");
        for index in 0..LATEST * 2 {
            copy.intern(&format!("copy {index}"));
        }
        for (index, symbol) in first.iter().enumerate() {
            for table in [&symbols, &copy] {
                assert_eq!(table.find(&index.to_string()), Some(*symbol));
                assert_eq!((table.text(*symbol), table.integer(*symbol)), (&*index.to_string(), Some(index as i64)));
            }
        }
        assert_eq!((symbols.text(own), symbols.len()), ("own", first.len() + 1));
        assert_eq!((copy.text(other), copy.len()), ("other", first.len() + 1 + LATEST * 2));
        assert!(copy.iter().map(Symbol::index).eq(0..copy.len()));
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
