//! Sets of completion indexes, written like `0,2-5,9`.

use std::collections::BTreeSet;
use std::fmt;

/// A set of indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes(BTreeSet<i32>);

impl Indexes {
    /// Reads a list; indexes at or above `bound` and what cannot be read are left out.
    pub fn parse(text: &str, bound: i32) -> Self {
        let mut indexes = BTreeSet::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) {
                indexes.extend((first..=last).take_while(|index| *index < bound));
            }
        }
        Self(indexes)
    }

    /// Adds an index.
    pub fn insert(&mut self, index: i32) -> bool {
        self.0.insert(index)
    }

    /// Whether an index is in the set.
    pub fn contains(&self, index: i32) -> bool {
        self.0.contains(&index)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut is_first = true;
        while let Some(first) = rest.next() {
            let mut last = first;
            while rest.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            if !is_first {
                out.write_str(",")?;
            }
            is_first = false;
            match last - first {
                0 => write!(out, "{first}")?,
                1 => write!(out, "{first},{last}")?,
                _ => write!(out, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_round_trip() {
        for text in ["", "0", "0,1", "0-2", "1,3-5,7", "0,1,4,5"] {
            assert_eq!(Indexes::parse(text, 100).to_string(), text);
        }
        let cut = Indexes::parse("0-9,20,x", 5);
        assert_eq!((cut.to_string(), cut.len()), ("0-4".to_owned(), 5));
    }
}
