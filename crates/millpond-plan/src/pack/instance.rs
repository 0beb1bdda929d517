//! The problem in the form that the solver works on: canonical order, useful bins only, and
//! resources scaled to floating point.
//!
//! The result must not depend on the order of the input, so rows and bins are sorted by content first. Bins that differ
//! only in which rows may use them are distinguished by those rows (and rows by their bins), with a few rounds of hash
//! mixing.

use std::borrow::Cow;

use super::HashMap;
use super::bits::BitSet;
use super::model::{MAX_RESOURCES, Problem};

/// Exclusive groups that the relaxations see, as resources of which a node has one. Further groups
/// are kept by every pattern but priced at nothing.
const MAX_DENSE_GROUPS: usize = 4;
/// Resources and dense groups.
pub(super) const MAX_DIMS: usize = MAX_RESOURCES + MAX_DENSE_GROUPS;

/// Amounts per dimension.
pub(super) type Dims<T> = [T; MAX_DIMS];

#[derive(Clone)]
pub(super) struct InstanceRow {
    pub(super) request: Dims<i64>,
    pub(super) count: u64,
    pub(super) cap: u64,
    /// Rows with the same set of bins share a class.
    pub(super) class: usize,
    /// Exclusive groups with more than one row, as indices of [`Instance::groups`].
    pub(super) groups: Vec<usize>,
    /// The row of the problem; several rows have the same where one was split.
    pub(super) origin: usize,
}

pub(super) struct InstanceBin {
    pub(super) capacity: Dims<i64>,
    pub(super) price: u64,
    /// `u64::MAX` if unlimited.
    pub(super) stock: u64,
    /// The classes of rows that may use the bin.
    pub(super) classes: BitSet,
    pub(super) origin: usize,
}

/// Rows and bins in canonical order.
pub(super) struct Instance {
    pub(super) dims: usize,
    /// Dimensions below this are resources, the others exclusive groups.
    pub(super) resources: usize,
    /// The caller's name of the group of each dimension from `resources` on.
    pub(super) dense_groups: Vec<u32>,
    pub(super) rows: Vec<InstanceRow>,
    /// Larger bins first.
    pub(super) bins: Vec<InstanceBin>,
    /// Members of each exclusive group.
    pub(super) groups: Vec<Vec<usize>>,
    /// Scale of a dimension in floating point: the largest capacity becomes one.
    pub(super) unit: Dims<f64>,
    /// Scale of money in floating point: the median price becomes one.
    pub(super) money: f64,
    /// Rows of the problem that fit no bin.
    pub(super) hopeless: Vec<usize>,
    /// Bins of the problem that were dropped, each with one that replaces it; a replacement that was
    /// itself dropped stands earlier in the list.
    pub(super) replaced: Vec<(usize, usize)>,
    pub(super) limited_stock: bool,
}

impl InstanceBin {
    pub(super) fn fits(&self, row: &InstanceRow, dims: usize) -> bool {
        self.classes.contains(row.class) && within(&row.request, &self.capacity, dims)
    }

    /// How many pods of a row that fits a node could hold if it held nothing else.
    pub(super) fn most(&self, row: &InstanceRow, resources: usize) -> u64 {
        (0..resources)
            .filter(|&dim| row.request[dim] > 0)
            .map(|dim| (self.capacity[dim] / row.request[dim]) as u64)
            .fold(row.count.min(row.cap), u64::min)
    }
}

/// Whether no amount exceeds its limit.
pub(super) fn within(amounts: &Dims<i64>, limits: &Dims<i64>, dims: usize) -> bool {
    amounts[..dims].iter().zip(&limits[..dims]).all(|(amount, limit)| amount <= limit)
}

impl Instance {
    pub(super) fn new(problem: &Problem) -> Self {
        let counts: Vec<u64> = problem.rows.iter().map(|row| row.count).collect();
        Self::with_counts(problem, &counts)
    }

    /// Builds the instance with other counts than those of the rows.
    pub(super) fn with_counts(problem: &Problem, counts: &[u64]) -> Self {
        let resources = problem.resources.min(MAX_RESOURCES);
        let order = CanonicalOrder::new(problem, counts, resources);
        let mut this = Self {
            dims: resources,
            resources,
            dense_groups: Vec::new(),
            rows: order.rows(problem, counts, resources),
            bins: order.bins(problem, counts, resources),
            groups: Vec::new(),
            unit: [1.0; MAX_DIMS],
            money: 1.0,
            hopeless: Vec::new(),
            replaced: Vec::new(),
            limited_stock: false,
        };
        this.drop_hopeless_rows();
        this.prune_bins();
        this.add_groups(problem);
        this.scale();
        this
    }

    /// Rows that no bin can hold are reported and take no part.
    fn drop_hopeless_rows(&mut self) {
        let (bins, dims, hopeless) = (&self.bins, self.dims, &mut self.hopeless);
        self.rows.retain(|row| {
            let fits = row.cap > 0 && bins.iter().any(|bin| bin.fits(row, dims));
            if !fits {
                hopeless.push(row.origin);
            }
            fits
        });
        hopeless.sort_unstable();
    }

    /// For each bin its kind: unlimited bins that differ only in which rows may use them share a kind.
    pub(super) fn kinds(&self) -> Vec<usize> {
        let alike = |a: &InstanceBin, b: &InstanceBin| {
            a.capacity == b.capacity && a.price == b.price && a.stock == u64::MAX && b.stock == u64::MAX
        };
        let mut kind = 0;
        // Equal bins are adjacent.
        (0..self.bins.len())
            .map(|bin| {
                kind += usize::from(bin > 0 && !alike(&self.bins[bin - 1], &self.bins[bin]));
                kind
            })
            .collect()
    }

    /// The instance with one bin of each kind, open to every row that may use any of them: a relaxation, in
    /// which zones do not matter.
    pub(super) fn merged(&self, kind_of: &[usize]) -> Self {
        let mut numbers: HashMap<BitSet, usize> = HashMap::default();
        let classes = self.rows.iter().map(|row| row.class + 1).max().unwrap_or(0);
        let mut sets = vec![BitSet::new(); classes];
        for (bin, offered) in self.bins.iter().enumerate() {
            for class in offered.classes.iter().filter(|&class| class < classes) {
                sets[class].insert(kind_of[bin]);
            }
        }
        let class_of: Vec<usize> = sets
            .into_iter()
            .map(|set| {
                let next = numbers.len();
                *numbers.entry(set).or_insert(next)
            })
            .collect();
        let mut bins: Vec<InstanceBin> = Vec::new();
        for (bin, offered) in self.bins.iter().enumerate() {
            if kind_of[bin] == bins.len() {
                let InstanceBin { capacity, price, stock, origin, .. } = *offered;
                bins.push(InstanceBin { capacity, price, stock, classes: BitSet::new(), origin });
            }
            for class in offered.classes.iter().filter(|&class| class < classes) {
                bins[kind_of[bin]].classes.insert(class_of[class]);
            }
        }
        let rows = self.rows.iter().map(|row| InstanceRow { class: class_of[row.class], ..row.clone() });
        Self {
            rows: rows.collect(),
            bins,
            dense_groups: self.dense_groups.clone(),
            groups: self.groups.clone(),
            hopeless: Vec::new(),
            replaced: Vec::new(),
            ..*self
        }
    }

    /// Splits rows evenly into one for each of the given sets of bins, and confines each part to its set. The sets have
    /// no bin in common.
    pub(super) fn split(&mut self, sets: &[BitSet], divisible: impl Fn(&InstanceRow) -> bool) {
        let mut next = self.rows.iter().map(|row| row.class + 1).max().unwrap_or(0);
        let mut first_of: HashMap<usize, usize> = HashMap::default();
        let mut rows = Vec::with_capacity(self.rows.len());
        for row in std::mem::take(&mut self.rows) {
            if !divisible(&row) {
                rows.push(row);
                continue;
            }
            let first = *first_of.entry(row.class).or_insert_with(|| {
                for (index, set) in sets.iter().enumerate() {
                    for bin in set.iter() {
                        if self.bins[bin].classes.contains(row.class) {
                            self.bins[bin].classes.insert(next + index);
                        }
                    }
                }
                next += sets.len();
                next - sets.len()
            });
            let parts = sets.len() as u64;
            for part in 0..parts {
                let count = row.count / parts + u64::from(part < row.count % parts);
                rows.push(InstanceRow { class: first + part as usize, count, ..row.clone() });
            }
        }
        for group in &mut self.groups {
            group.clear();
        }
        for (index, row) in rows.iter().enumerate() {
            for &group in &row.groups {
                self.groups[group].push(index);
            }
        }
        self.rows = rows;
    }

    /// Drops bins that can hold no row, and bins that another one replaces at no higher price.
    fn prune_bins(&mut self) {
        let dims = self.dims;
        let live: BitSet = self.rows.iter().map(|row| row.class).collect();
        let mut bins = std::mem::take(&mut self.bins);
        for bin in &mut bins {
            bin.classes = bin.classes.iter().filter(|&class| live.contains(class)).collect();
        }
        // Small rows come last, and most bins fit one of them.
        bins.retain(|bin| !bin.classes.is_empty() && self.rows.iter().rev().any(|row| bin.fits(row, dims)));
        let mut order: Vec<usize> = (0..bins.len()).collect();
        // Stable: among equal bins the canonical order decides. Without limit before limited.
        order.sort_by_key(|&index| (bins[index].price, std::cmp::Reverse(bins[index].stock)));
        let mut kept = BitSet::new();
        // Only what can be had without limit replaces others.
        let mut endless: Vec<usize> = Vec::new();
        for (place, &index) in order.iter().enumerate() {
            let bin = &bins[index];
            let replaces = |&&other: &&usize| {
                let other = &bins[other];
                within(&bin.capacity, &other.capacity, dims) && other.classes.is_superset(&bin.classes)
            };
            // At equal prices a later bin may still be larger.
            let later = order[place + 1..]
                .iter()
                .take_while(|&&other| bins[other].price == bin.price && bins[other].stock == u64::MAX)
                .find(|other| replaces(other) && bins[**other].capacity[..dims] != bin.capacity[..dims]);
            match endless.iter().find(replaces).or(later) {
                Some(&other) => self.replaced.push((bin.origin, bins[other].origin)),
                None => {
                    kept.insert(index);
                    if bin.stock == u64::MAX {
                        endless.push(index);
                    }
                }
            }
        }
        let mut index = 0;
        bins.retain(|_| {
            index += 1;
            kept.contains(index - 1)
        });
        // Bins that were replaced by a later one come first, so that a walk from the back ends at one that is kept.
        self.replaced.reverse();
        self.limited_stock = bins.iter().any(|bin| bin.stock != u64::MAX);
        self.bins = bins;
    }

    /// Numbers the exclusive groups that have several rows; the largest become dimensions.
    fn add_groups(&mut self, problem: &Problem) {
        let mut members: HashMap<u32, Vec<usize>> = HashMap::default();
        for (index, row) in self.rows.iter().enumerate() {
            for &group in &problem.rows[row.origin].exclusive {
                let rows = members.entry(group).or_default();
                if rows.last() != Some(&index) {
                    rows.push(index);
                }
            }
        }
        // Sorted by members, so that the caller's group numbers have no influence.
        let mut groups: Vec<(Vec<usize>, u32)> =
            members.into_iter().filter(|(_, rows)| rows.len() > 1).map(|(group, rows)| (rows, group)).collect();
        groups.sort();
        groups.dedup_by(|a, b| a.0 == b.0);
        let pods = |rows: &[usize]| -> u128 { rows.iter().map(|&row| u128::from(self.rows[row].count)).sum() };
        groups.sort_by_key(|(rows, _)| std::cmp::Reverse(pods(rows)));
        for (index, (rows, group)) in groups.into_iter().enumerate() {
            if index < MAX_DENSE_GROUPS {
                for &row in &rows {
                    self.rows[row].request[self.dims] = 1;
                }
                for bin in &mut self.bins {
                    bin.capacity[self.dims] = 1;
                }
                self.dense_groups.push(group);
                self.dims += 1;
            }
            for &row in &rows {
                self.rows[row].groups.push(index);
            }
            self.groups.push(rows);
        }
    }

    fn scale(&mut self) {
        for dim in 0..self.dims {
            let largest = self.bins.iter().map(|bin| bin.capacity[dim]).max().unwrap_or(1);
            self.unit[dim] = 1.0 / largest.max(1) as f64;
        }
        let mut prices: Vec<u64> = self.bins.iter().map(|bin| bin.price).filter(|&price| price > 0).collect();
        prices.sort_unstable();
        let median = prices.get(prices.len() / 2).copied().unwrap_or(1);
        self.money = 1.0 / median.max(1) as f64;
    }

    /// Whether the bin costs nothing and is limited, like room on running nodes.
    pub(super) fn is_free_stock(&self, bin: usize) -> bool {
        self.bins[bin].price == 0 && self.bins[bin].stock != u64::MAX
    }

    /// The price in floating point. Nothing is quite free: a free node must still be better full.
    pub(super) fn price(&self, bin: usize) -> f64 {
        (self.bins[bin].price as f64 * self.money).max(1e-9)
    }
}

/// Sort keys of rows and bins that depend on their content alone.
struct CanonicalOrder {
    class_of_row: Vec<usize>,
    classes: Vec<BitSet>,
    class_keys: Vec<u64>,
    bin_keys: Vec<u64>,
    group_keys: HashMap<u32, u64>,
}

impl CanonicalOrder {
    fn new(problem: &Problem, counts: &[u64], resources: usize) -> Self {
        let mut numbers: HashMap<Cow<'_, BitSet>, usize> = HashMap::default();
        let mut classes: Vec<BitSet> = Vec::new();
        let class_of_row: Vec<usize> = problem
            .rows
            .iter()
            .map(|row| {
                let bins = row.bins.below(problem.bins.len());
                *numbers.entry(bins).or_insert_with_key(|bins| {
                    classes.push(bins.clone().into_owned());
                    classes.len() - 1
                })
            })
            .collect();
        let mut class_keys = vec![0_u64; classes.len()];
        let mut group_keys: HashMap<u32, u64> = HashMap::default();
        for ((row, &class), &count) in problem.rows.iter().zip(&class_of_row).zip(counts) {
            let mut key = mix(count ^ (u64::from(row.per_node_cap) << 20));
            for &amount in &row.request[..resources] {
                key = mix(key ^ amount as u64);
            }
            class_keys[class] = class_keys[class].wrapping_add(key);
            for &group in &row.exclusive {
                let sum = group_keys.entry(group).or_default();
                *sum = sum.wrapping_add(key);
            }
        }
        let mut bin_keys: Vec<u64> = problem
            .bins
            .iter()
            .map(|bin| {
                let start = mix(bin.price ^ mix(bin.max_nodes.unwrap_or(u64::MAX)));
                bin.capacity[..resources].iter().fold(start, |key, &amount| mix(key ^ amount as u64))
            })
            .collect();
        // Two rounds tell apart what one round of neighbours can; real ties are interchangeable.
        for _ in 0..2 {
            for (class, set) in classes.iter().enumerate() {
                for bin in set.iter() {
                    bin_keys[bin] = bin_keys[bin].wrapping_add(mix(class_keys[class]));
                }
            }
            for (class, set) in classes.iter().enumerate() {
                let sum = set.iter().fold(0_u64, |sum, bin| sum.wrapping_add(mix(bin_keys[bin])));
                class_keys[class] = mix(class_keys[class] ^ sum);
            }
        }
        Self { class_of_row, classes, class_keys, bin_keys, group_keys }
    }

    /// Rows that have pods, larger requests first.
    fn rows(&self, problem: &Problem, counts: &[u64], resources: usize) -> Vec<InstanceRow> {
        let mut order: Vec<usize> = (0..problem.rows.len()).filter(|&row| counts[row] > 0).collect();
        let clean = |index: usize| {
            let mut request = [0; MAX_DIMS];
            for (to, &from) in request.iter_mut().zip(&problem.rows[index].request[..resources]) {
                *to = from.max(0);
            }
            request
        };
        let groups = |index: usize| -> u64 {
            let keys = problem.rows[index].exclusive.iter().map(|group| mix(self.group_keys[group]));
            keys.fold(0, u64::wrapping_add)
        };
        order.sort_by_cached_key(|&index| {
            let row = &problem.rows[index];
            let class = self.class_keys[self.class_of_row[index]];
            let size = std::cmp::Reverse((clean(index), counts[index]));
            (size, row.per_node_cap, class, groups(index), index)
        });
        let row = |index: usize| {
            let row = &problem.rows[index];
            let cap = if row.exclusive.is_empty() { u64::from(row.per_node_cap) } else { 1 };
            InstanceRow {
                request: clean(index),
                count: counts[index],
                cap: cap.min(u64::from(row.per_node_cap)),
                class: self.class_of_row[index],
                groups: Vec::new(),
                origin: index,
            }
        };
        order.into_iter().map(row).collect()
    }

    /// Bins that can hold some row, larger ones first.
    fn bins(&self, problem: &Problem, counts: &[u64], resources: usize) -> Vec<InstanceBin> {
        let pods = counts.iter().fold(0_u64, |sum, &count| sum.saturating_add(count));
        let count = problem.bins.len();
        let mut classes = vec![BitSet::new(); count];
        for (class, set) in self.classes.iter().enumerate() {
            for bin in set.iter() {
                classes[bin].insert(class);
            }
        }
        let usable = |bin: usize| {
            let offered = &problem.bins[bin];
            offered.capacity[..resources].iter().all(|&amount| amount >= 0) && offered.max_nodes != Some(0)
        };
        let mut order: Vec<usize> = (0..problem.bins.len()).filter(|&bin| usable(bin)).collect();
        order.sort_by_cached_key(|&bin| {
            let offered = &problem.bins[bin];
            let size = std::cmp::Reverse((offered.capacity[..resources].to_vec(), offered.price));
            (size, offered.max_nodes.is_some(), offered.max_nodes, self.bin_keys[bin], bin)
        });
        order
            .into_iter()
            .map(|origin| {
                let offered = &problem.bins[origin];
                let mut capacity = [0; MAX_DIMS];
                capacity[..resources].copy_from_slice(&offered.capacity[..resources]);
                InstanceBin {
                    capacity,
                    price: offered.price,
                    // A stock of one node for every pod is the same as no limit.
                    stock: offered.max_nodes.filter(|&stock| stock < pods).unwrap_or(u64::MAX),
                    classes: std::mem::take(&mut classes[origin]),
                    origin,
                }
            })
            .collect()
    }
}

/// The finalizer of splitmix64: a fixed, well-mixing permutation.
pub(super) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
