//! Scopes: the rows that are packed together, and the choice among equal bins.
//!
//! Zones offer the same types at the same price. A row that must be in one zone is best packed with
//! others that must be there too and with some that may be anywhere. So rows are dealt to scopes, sets
//! of bins with as a rule one of each kind of equal ones: looking at the same type once for each zone
//! would only take longer.

use super::bits::BitSet;
use super::instance::Instance;

/// More scopes than this cut the rows into pieces too small to mix well; then there is only one.
const MAX_SCOPES: usize = 16;
/// Comparing sets of bins takes time: with more of them there is only one scope.
const MAX_CLASSES: usize = 64;

/// So few rows are packed together, all scopes at once: what a row is worth in each of them decides how much of it goes
/// where, instead of an even split. That saves a per cent, but one programme for more rows takes too long.
const JOINT_ROWS: usize = 100;
/// Rows that are split without second thoughts, counted once for each scope.
const MANY_ROWS: usize = 480;
/// With more than [`MANY_ROWS`] and up to this many rows in total, none is split: it would make rounding harder for a
/// third of a per cent.
const FEW_ROWS: usize = 1_000;
/// Parts of a few pods are more trouble than they are worth: this many pods a scope make a row worth splitting.
const PODS_TO_DIVIDE: u64 = 15;

/// Rows that are packed together.
pub(super) struct Hand {
    pub(super) rows: Vec<usize>,
    /// The scope whose bins are preferred; `None` prefers none.
    pub(super) scope: Option<usize>,
}

#[derive(Default)]
pub(super) struct Scopes {
    /// The bins of each scope.
    pub(super) bins: Vec<BitSet>,
    /// The scope of each row.
    of_row: Vec<usize>,
}

/// Sets of bins that rows are pinned to, and the pinned rows.
struct Pins {
    /// Per scope and kind the bins that pinned rows may use.
    scopes: Vec<Vec<BitSet>>,
    /// The scope of each class that is confined to one.
    of_class: Vec<Option<usize>>,
    /// For each class and kind, its bins.
    bins: Vec<Vec<BitSet>>,
}

impl Pins {
    /// `None` if zones do not matter, or if too many sets of bins do.
    fn new(instance: &Instance, kind_of: &[usize]) -> Option<Self> {
        let kinds = kind_of.iter().max().map_or(0, |last| last + 1);
        let classes = instance.rows.iter().map(|row| row.class + 1).max().unwrap_or(0);
        if kinds == instance.bins.len() || classes > MAX_CLASSES {
            return None;
        }
        let mut of_class: Vec<Vec<BitSet>> = vec![vec![BitSet::new(); kinds]; classes];
        let mut size = vec![0_usize; kinds];
        for (bin, offered) in instance.bins.iter().enumerate() {
            size[kind_of[bin]] += 1;
            for class in offered.classes.iter().filter(|&class| class < classes) {
                of_class[class][kind_of[bin]].insert(bin);
            }
        }
        let used: BitSet = instance.rows.iter().map(|row| row.class).collect();
        let total = |class: usize| of_class[class].iter().map(BitSet::len).sum::<usize>();
        let pinned = |class: &usize| {
            let part = |(bins, &size): (&BitSet, &usize)| !bins.is_empty() && bins.len() < size;
            used.contains(*class) && of_class[*class].iter().zip(&size).any(part)
        };
        let mut order: Vec<usize> = (0..classes).filter(pinned).collect();
        // Sorted by content, because classes are numbered in the order of the input.
        order.sort_by_key(|&class| (std::cmp::Reverse(total(class)), of_class[class].clone()));
        let mut scopes: Vec<Vec<BitSet>> = Vec::new();
        let mut of: Vec<Option<usize>> = vec![None; classes];
        for class in order {
            let bins = &of_class[class];
            let scope = scopes.iter().position(|scope| agree(scope, bins)).unwrap_or_else(|| {
                scopes.push(vec![BitSet::new(); kinds]);
                scopes.len() - 1
            });
            narrow(&mut scopes[scope], bins);
            of[class] = Some(scope);
        }
        let several = (2..=MAX_SCOPES).contains(&scopes.len());
        several.then_some(Self { scopes, of_class: of, bins: of_class })
    }

    /// Whether every scope has bins of its own for everything that a class can use.
    fn divide(&self, class: usize) -> bool {
        let everywhere = |(kind, bins): (usize, &BitSet)| {
            let mut seen = BitSet::new();
            self.scopes.iter().all(|scope| {
                let mut inside = scope[kind].clone();
                inside.intersect(bins);
                let new = !inside.is_empty() && !inside.meets(&seen);
                seen.unite(&inside);
                new
            })
        };
        let used = self.bins[class].iter().enumerate().filter(|(_, bins)| !bins.is_empty());
        self.of_class[class].is_none() && used.into_iter().all(everywhere)
    }
}

/// Splits rows that may be anywhere among the scopes, where there are enough pods for it: so each scope has a share of
/// every size.
pub(super) fn divide(instance: &mut Instance) {
    if instance.rows.len() <= JOINT_ROWS {
        return;
    }
    let Some(pins) = Pins::new(instance, &instance.kinds()) else { return };
    let many = instance.rows.len() * pins.scopes.len() > MANY_ROWS;
    if many && instance.rows.len() <= FEW_ROWS {
        return;
    }
    let least = if many { PODS_TO_DIVIDE } else { 1 } * pins.scopes.len() as u64;
    let divisible: BitSet = (0..pins.of_class.len()).filter(|&class| pins.divide(class)).collect();
    let union = |scope: &Vec<BitSet>| {
        let mut all = BitSet::new();
        scope.iter().for_each(|bins| all.unite(bins));
        all
    };
    let sets: Vec<BitSet> = pins.scopes.iter().map(union).collect();
    instance.split(&sets, |row| divisible.contains(row.class) && row.count >= least);
}

impl Scopes {
    /// `kinds` groups bins that differ only in which rows may use them; `strata` lists all rows, similar ones adjacent.
    pub(super) fn new(instance: &Instance, kind_of: &[usize], strata: &[usize]) -> Self {
        let Some(Pins { scopes, of_class, .. }) = Pins::new(instance, kind_of) else { return Self::default() };
        let mut rows = vec![0_usize; scopes.len()];
        let mut of_row = vec![0; instance.rows.len()];
        for &row in strata {
            let fewest = (0..scopes.len()).min_by_key(|&scope| (rows[scope], scope)).unwrap_or(0);
            let scope = of_class[instance.rows[row].class].unwrap_or(fewest);
            rows[scope] += 1;
            of_row[row] = scope;
        }
        let bins = |scope: Vec<BitSet>| {
            // Kinds that no pinned row may use are open to all.
            let open = (0..instance.bins.len())
                .filter(|&bin| scope[kind_of[bin]].is_empty() || scope[kind_of[bin]].contains(bin));
            open.collect()
        };
        Self { bins: scopes.into_iter().map(bins).collect(), of_row }
    }

    /// Deals rows to hands of about the given size, one by one; few rows are one hand.
    pub(super) fn deal(&self, rows: &[usize], size: usize) -> Vec<Hand> {
        if self.bins.is_empty() || rows.len() <= size {
            return dealt(rows, size, None);
        }
        let mut hands = Vec::new();
        for scope in 0..self.bins.len() {
            let inside: Vec<usize> = rows.iter().copied().filter(|&row| self.of_row[row] == scope).collect();
            if !inside.is_empty() {
                hands.extend(dealt(&inside, size, Some(scope)));
            }
        }
        hands
    }

    /// The sets of bins that a hand chooses from; empty if zones do not matter.
    pub(super) fn of_hand(&self, hand: &Hand) -> &[BitSet] {
        match hand.scope {
            Some(scope) => &self.bins[scope..=scope],
            None => &self.bins,
        }
    }
}

fn dealt(rows: &[usize], size: usize, scope: Option<usize>) -> Vec<Hand> {
    let count = rows.len().div_ceil(size).max(1);
    let mut hands: Vec<Hand> = (0..count).map(|_| Hand { rows: Vec::new(), scope }).collect();
    for (index, &row) in rows.iter().enumerate() {
        hands[index % count].rows.push(row);
    }
    hands
}

/// Whether there is a common bin of every kind that both have.
fn agree(scope: &[BitSet], bins: &[BitSet]) -> bool {
    scope.iter().zip(bins).all(|(mine, theirs)| mine.is_empty() || theirs.is_empty() || mine.meets(theirs))
}

/// Keeps the common bins of every kind that both have.
fn narrow(scope: &mut [BitSet], bins: &[BitSet]) {
    for (mine, theirs) in scope.iter_mut().zip(bins) {
        if mine.is_empty() {
            *mine = theirs.clone();
        } else if !theirs.is_empty() {
            mine.intersect(theirs);
        }
    }
}
