//! The first plan: buy the pattern that earns most of its price, as often as it fits.
//!
//! Rows are dealt to groups so that each has a share of every kind. Within a group a heap holds the
//! best pattern of each promising bin. What patterns can earn only falls while pods are placed, so
//! a pattern is built anew only when it comes to the top and no longer fits.

use std::collections::BinaryHeap;

use super::instance::{Instance, mix};
use super::knapsack::{Content, Items, Knapsack, Order};
use super::parallel;
use super::plan::{Nodes, Stock};
use super::prices::Prices;
use super::scopes::Hand;

/// Rows of a group: enough for a good mix, few enough for a quick scan. With a hundred the plan of ten
/// thousand pods costs two per cent more; with a thousand the best rows of all are used up first.
const GROUP_ROWS: usize = 500;
/// Limit on the promising bins of a group.
const GROUP_BINS: usize = 24;
/// Items that one fill looks at where there are at least twice as many: those that suit the bin best. With all of them
/// the first plan of ten thousand pods takes twice as long, and costs half a per cent less.
const MENU: usize = 64;
/// Bins for a row that fits none of the promising ones.
const BINS_FOR_STRAY: usize = 4;
/// A group stops when its best pattern earns less of its price than this; the remaining pods are pooled with those of
/// other groups.
const POOL_BELOW: f64 = 0.95;

/// Places the pods that are left in `left`; those that nothing can hold remain in it.
pub(super) fn place(
    instance: &Instance,
    prices: &Prices,
    left: &mut [u64],
    stock: &mut Stock,
    threads: usize,
) -> (Vec<Nodes>, u64) {
    let mut plan = Vec::new();
    let mut work = 0;
    let count = |left: &[u64]| left.iter().map(|&count| u128::from(count)).sum::<u128>();
    let all = count(left);
    loop {
        let rows: Vec<usize> = prices.strata.iter().copied().filter(|&row| left[row] > 0).collect();
        if rows.is_empty() {
            return (plan, work);
        }
        let groups = prices.scopes.deal(&rows, GROUP_ROWS);
        let last = groups.len() == 1;
        let threshold = if last { 0.0 } else { POOL_BELOW };
        let before = count(left);
        if !last && before < all && before * 3 > all && !instance.limited_stock {
            // Little was good enough the first time; looking for more of it would take longer than it saves.
            work += finish(instance, prices, left, stock, &groups, &mut plan, threads);
            return (plan, work);
        }
        let run = |knapsack: &mut Knapsack, group: &Hand, stock: &mut Stock| {
            let mut greedy = Greedy::new(instance, prices, group, stock, |row| left[row]);
            greedy.run(knapsack, stock, threshold);
            (greedy.plan, greedy.work)
        };
        let results = if instance.limited_stock {
            let mut knapsack = Knapsack::default();
            groups.iter().map(|group| run(&mut knapsack, group, stock)).collect()
        } else {
            parallel::map(threads, groups.len(), Knapsack::default, |knapsack, index| {
                run(knapsack, &groups[index], &mut stock.clone())
            })
        };
        for (nodes, spent) in results {
            work += spent;
            subtract(left, &nodes);
            plan.extend(nodes);
        }
        let after = count(left);
        if last && (after == before || !instance.limited_stock) {
            return (plan, work);
        }
        if !last && after * 10 > before * 9 {
            // Pooling has stopped to help: finish the groups one by one.
            work += finish(instance, prices, left, stock, &groups, &mut plan, threads);
            return (plan, work);
        }
    }
}

/// Places what is left of each group without pooling.
fn finish(
    instance: &Instance,
    prices: &Prices,
    left: &mut [u64],
    stock: &mut Stock,
    groups: &[Hand],
    plan: &mut Vec<Nodes>,
    threads: usize,
) -> u64 {
    let run = |knapsack: &mut Knapsack, group: &Hand, left: &[u64], stock: &mut Stock| {
        let mut greedy = Greedy::new(instance, prices, group, stock, |row| left[row]);
        greedy.run(knapsack, stock, 0.0);
        (greedy.plan, greedy.work)
    };
    let mut work = 0;
    if !instance.limited_stock {
        let known = &*left;
        let results = parallel::map(threads, groups.len(), Knapsack::default, |knapsack, index| {
            run(knapsack, &groups[index], known, &mut stock.clone())
        });
        for (nodes, spent) in results {
            work += spent;
            subtract(left, &nodes);
            plan.extend(nodes);
        }
        return work;
    }
    let mut knapsack = Knapsack::default();
    for group in groups {
        loop {
            let (nodes, spent) = run(&mut knapsack, group, left, stock);
            work += spent;
            subtract(left, &nodes);
            // A bin with limited stock may have run out, so other bins replace it.
            let again = !nodes.is_empty();
            plan.extend(nodes);
            if !again {
                break;
            }
        }
    }
    work
}

/// Subtracts the pods of the nodes from those that are left.
pub(super) fn subtract(left: &mut [u64], plan: &[Nodes]) {
    for nodes in plan {
        for &(row, count) in &nodes.content {
            left[row] -= count * nodes.times;
        }
    }
}

/// The most promising bins in stock for the rows, a number of them for each scope that the rows may use; at least one
/// for each row that fits any.
pub(super) fn candidates(instance: &Instance, prices: &Prices, hand: &Hand, stock: &Stock, most: usize) -> Vec<usize> {
    let fits = |bin: usize, row: usize| instance.bins[bin].fits(&instance.rows[row], instance.dims);
    let in_stock = || prices.promising.iter().copied().filter(|&bin| stock.left(bin) > 0);
    let useful = || in_stock().filter(|&bin| hand.rows.iter().any(|&row| fits(bin, row)));
    let mut chosen: Vec<usize> = match prices.scopes.of_hand(hand) {
        [] => useful().take(most).collect(),
        scopes => {
            let mut left = vec![most; scopes.len()];
            let wanted = |bin: &usize| {
                let scope = (0..scopes.len()).find(|&scope| left[scope] > 0 && scopes[scope].contains(*bin));
                scope.inspect(|&scope| left[scope] -= 1).is_some()
            };
            useful().filter(wanted).collect()
        }
    };
    for &row in &hand.rows {
        if !chosen.iter().any(|&bin| fits(bin, row)) {
            let others = in_stock().filter(|&bin| fits(bin, row));
            let others: Vec<usize> = others.take(BINS_FOR_STRAY).collect();
            chosen.extend(others);
        }
    }
    chosen
}

/// A pattern in the heap; the best is the greatest.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Offer {
    /// Share of the price that is earned, in billionths: ties are decided on integers.
    earned: u64,
    /// Among equals the larger bin, which has the lower number.
    bin: std::cmp::Reverse<usize>,
    content: Content,
    /// Index of the bin in the group.
    at: usize,
}

/// The items that are tried on the nodes of a bin.
struct Menu {
    items: Vec<u32>,
    /// Items before this index are used up.
    from: usize,
    order: Order,
    /// How many items are tried at a time.
    most: usize,
}

impl Menu {
    /// The next items that still have pods. Items without pods are skipped permanently; the others move to the end of
    /// the visited part, so that nothing after it has to be moved.
    fn next(&mut self, left: &[u64]) -> &[u32] {
        let (mut end, mut found) = (self.from, 0);
        while end < self.items.len() && found < self.most {
            found += usize::from(left[self.items[end] as usize] > 0);
            end += 1;
        }
        let mut to = end;
        for at in (self.from..end).rev() {
            if left[self.items[at] as usize] > 0 {
                to -= 1;
                self.items[to] = self.items[at];
            }
        }
        self.from = to;
        &self.items[to..end]
    }
}

/// A bin and its content, in items of a group.
pub(super) struct Pattern {
    pub(super) bin: usize,
    pub(super) content: Content,
}

/// The greedy plan of a group.
pub(super) struct Greedy<'a> {
    instance: &'a Instance,
    prices: &'a Prices,
    items: Items,
    values: Vec<f64>,
    left: Vec<u64>,
    bins: Vec<usize>,
    plan: Vec<Nodes>,
    patterns: Vec<Pattern>,
    pub(super) work: u64,
}

impl<'a> Greedy<'a> {
    /// `left` tells how many pods of a row there are to place.
    pub(super) fn new(
        instance: &'a Instance,
        prices: &'a Prices,
        hand: &Hand,
        stock: &Stock,
        left: impl Fn(usize) -> u64,
    ) -> Self {
        let counts = hand.rows.iter().map(|&row| left(row)).collect();
        Self::with_counts(instance, prices, hand, stock, counts, GROUP_BINS)
    }

    /// Starts with a number of pods for each row and a number of bins.
    pub(super) fn with_counts(
        instance: &'a Instance,
        prices: &'a Prices,
        hand: &Hand,
        stock: &Stock,
        counts: Vec<u64>,
        bins: usize,
    ) -> Self {
        Self {
            instance,
            prices,
            items: Items::new(instance, hand.rows.clone()),
            values: hand.rows.iter().map(|&row| prices.packing[row]).collect(),
            left: counts,
            bins: candidates(instance, prices, hand, stock, bins),
            plan: Vec::new(),
            patterns: Vec::new(),
            work: 0,
        }
    }

    /// Multiplies the values by a factor for each row.
    pub(super) fn disturb(&mut self, factor: impl Fn(usize) -> f64) {
        for (value, &row) in self.values.iter_mut().zip(&self.items.rows) {
            *value *= factor(row);
        }
    }

    /// The nodes, if all pods are placed.
    pub(super) fn finished(self) -> Option<Vec<Nodes>> {
        self.left.iter().all(|&left| left == 0).then_some(self.plan)
    }

    /// The patterns bought so far.
    pub(super) fn patterns(self) -> Vec<Pattern> {
        self.patterns
    }

    /// Buys until nothing is left, or the best pattern earns less than the threshold.
    pub(super) fn run(&mut self, knapsack: &mut Knapsack, stock: &mut Stock, threshold: f64) {
        let mut heap: BinaryHeap<Offer> = BinaryHeap::new();
        let mut menus: Vec<Menu> = self.bins.iter().map(|&bin| self.menu(bin)).collect();
        for (at, menu) in menus.iter_mut().enumerate() {
            heap.extend(self.offer(knapsack, stock, at, menu));
        }
        while let Some(offer) = heap.pop() {
            let bin = offer.bin.0;
            let fits = |&(item, count): &(usize, u64)| self.left[item] / count;
            let times = offer.content.iter().map(fits).min().unwrap_or(0).min(stock.left(bin));
            if times == 0 {
                heap.extend(self.offer(knapsack, stock, offer.at, &mut menus[offer.at]));
                continue;
            }
            if (offer.earned as f64) < threshold * 1e9 {
                return;
            }
            for &(item, count) in &offer.content {
                self.left[item] -= count * times;
            }
            stock.take(bin, times);
            let rows = offer.content.iter().map(|&(item, count)| (self.items.rows[item], count));
            self.plan.push(Nodes { bin, content: rows.collect(), times });
            self.patterns.push(Pattern { bin, content: offer.content.clone() });
            heap.push(offer);
        }
    }

    /// The items that a bin may hold; of many, those that earn most for the capacity that they use. Ties are broken at
    /// random: neighbouring rows are similar, and a node needs different ones.
    fn menu(&self, bin: usize) -> Menu {
        let mut items = self.items.fitting(self.instance, bin);
        if self.items.len() <= 2 * MENU {
            return Menu { items, from: 0, order: Order::Any, most: usize::MAX };
        }
        let at = &self.prices.vectors[self.prices.of_bin[bin]];
        // Capacity used per value earned, in ten-thousandths; then the random number; then the item.
        let key = |item: u32| {
            let cost = self.items.cost_at(at, item as usize);
            let wasted = (cost / self.values[item as usize] * 1e4).min(1e5) as u64;
            wasted << 44 | mix(self.items.rows[item as usize] as u64) >> 44 << 24 | u64::from(item)
        };
        let mut keys: Vec<u64> = items.iter().map(|&item| key(item)).collect();
        keys.sort_unstable();
        items.clear();
        items.extend(keys.into_iter().map(|key| (key & 0xff_ffff) as u32));
        Menu { items, from: 0, order: Order::Best, most: MENU }
    }

    fn offer(&mut self, knapsack: &mut Knapsack, stock: &Stock, at: usize, menu: &mut Menu) -> Option<Offer> {
        let bin = self.bins[at];
        if stock.left(bin) == 0 {
            return None;
        }
        self.work += 1;
        let mut content = Content::new();
        let left = &self.left;
        let order = menu.order;
        let offered = menu.next(left).iter().copied();
        let kind = &self.instance.bins[bin];
        let value = knapsack.fill(self.instance, &self.items, kind, offered, order, &self.values, left, &mut content);
        if content.is_empty() {
            return None;
        }
        let price = self.prices.cost(self.instance, bin);
        let earned = (value / price * 1e9).round() as u64;
        Some(Offer { earned, bin: std::cmp::Reverse(bin), content, at })
    }
}
