//! A growable set of small indices.

/// A set of indices, one bit each. Equal sets compare equal however they were built.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BitSet {
    /// No trailing zero word, so that equality of words is equality of sets.
    words: Vec<u64>,
}

impl BitSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The set of all indices below `len`.
    pub fn full(len: usize) -> Self {
        let mut words = vec![u64::MAX; len.div_ceil(64)];
        if let (Some(last), rest @ 1..) = (words.last_mut(), len % 64) {
            *last = (1 << rest) - 1;
        }
        Self { words }
    }

    /// Adds an index.
    pub fn insert(&mut self, index: usize) {
        let word = index / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (index % 64);
    }

    /// Whether the index is in the set.
    pub fn contains(&self, index: usize) -> bool {
        self.words.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Whether every index of `other` is in this set.
    pub fn is_superset(&self, other: &Self) -> bool {
        self.words.len() >= other.words.len()
            && self.words.iter().zip(&other.words).all(|(mine, theirs)| theirs & !mine == 0)
    }

    /// Whether some index is in both.
    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(mine, theirs)| mine & theirs != 0)
    }

    /// Keeps the indices that are in `other` too.
    pub fn intersect(&mut self, other: &Self) {
        self.words.truncate(other.words.len());
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine &= theirs;
        }
        self.trim();
    }

    /// Adds the indices of `other`.
    pub fn unite(&mut self, other: &Self) {
        if other.words.len() > self.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine |= theirs;
        }
    }

    /// Takes the indices of `other` out.
    pub fn subtract(&mut self, other: &Self) {
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine &= !theirs;
        }
        self.trim();
    }

    /// How many indices there are.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }

    /// A copy with the indices below `len` only.
    pub(super) fn below(&self, len: usize) -> std::borrow::Cow<'_, Self> {
        let inside = self.words.last().is_none_or(|last| {
            let highest = self.words.len() * 64 - 1 - last.leading_zeros() as usize;
            highest < len
        });
        if inside {
            std::borrow::Cow::Borrowed(self)
        } else {
            std::borrow::Cow::Owned(self.iter().take_while(|&index| index < len).collect())
        }
    }

    /// Whether the sets have an index in common.
    pub(super) fn meets(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(mine, theirs)| mine & theirs != 0)
    }

    /// Whether the set has no index.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The indices in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(word, &bits)| {
            let mut rest = bits;
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                Some(word * 64 + bit)
            })
        })
    }
}

impl FromIterator<usize> for BitSet {
    fn from_iter<I: IntoIterator<Item = usize>>(indices: I) -> Self {
        let mut set = Self::new();
        for index in indices {
            set.insert(index);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::BitSet;

    #[test]
    fn holds_what_was_put_in() {
        let set: BitSet = [0, 63, 64, 200].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64, 200]);
        assert!(set.contains(64) && !set.contains(65) && !set.contains(10_000));
        assert!(BitSet::full(201).is_superset(&set) && !set.is_superset(&BitSet::full(2)));
        assert!(set.len() == 4 && BitSet::full(128).len() == 128 && BitSet::full(65).len() == 65);
        assert!(set.meets(&BitSet::full(1)) && !set.meets(&BitSet::full(0)) && !set.meets(&[1].into_iter().collect()));
        assert!(BitSet::new().is_empty() && BitSet::full(0) == BitSet::new());
        assert!(set.intersects(&BitSet::full(1)) && !set.intersects(&[1, 65].into_iter().collect()));
    }

    #[test]
    fn sets_are_combined() {
        let of = |indices: &[usize]| indices.iter().copied().collect::<BitSet>();
        let mut set = of(&[1, 70, 300]);
        set.intersect(&of(&[1, 70, 71]));
        assert_eq!((&set, set.len()), (&of(&[1, 70]), 2));
        set.unite(&of(&[500]));
        set.subtract(&of(&[500, 70]));
        assert_eq!(set, of(&[1]));
    }
}
