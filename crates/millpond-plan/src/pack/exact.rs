//! Solves tiny problems by enumeration.
//!
//! Heuristics are up to half above the optimum when there are only a handful of pods, and bounds from
//! relaxations are far below it. With a few hundred states all ways to pack can be looked at. A state
//! is a number whose digits, in mixed radix, are the pods dealt with of each row and then the nodes
//! taken of each bin whose stock could run out.

use super::certificate::MAX_STATES;
use super::instance::Instance;
use super::plan::{Nodes, Stock, cheapest};

/// The best nodes, and the pods that cannot be placed; `None` if there are too many states.
pub(super) fn place(instance: &Instance, by_price: &[usize]) -> Option<(Vec<Nodes>, Vec<u64>)> {
    let table = Table::new(instance, by_price)?;
    Some(table.run())
}

struct Table<'a> {
    instance: &'a Instance,
    rows: usize,
    /// Bins whose stock could run out.
    scarce: Vec<usize>,
    radix: Vec<usize>,
    /// The weight of each digit in a state.
    weight: Vec<usize>,
    contents: usize,
    /// For each content, the cheapest bin with sufficient stock, and the bins whose stock could run out.
    plentiful: Vec<Option<usize>>,
    holding: Vec<Vec<usize>>,
}

#[derive(Clone)]
struct Best {
    /// Pods given up, cost, nodes: compared in this order.
    key: (u64, u128, u64),
    /// The state before, and the bin and content of the node; `None` for a pod that was given up.
    from: Option<(usize, Option<(usize, usize)>)>,
}

impl<'a> Table<'a> {
    fn new(instance: &'a Instance, by_price: &[usize]) -> Option<Self> {
        let pods = instance.rows.iter().try_fold(0_u64, |sum, row| sum.checked_add(row.count))?;
        let scarce: Vec<usize> = (0..instance.bins.len()).filter(|&bin| instance.bins[bin].stock < pods).collect();
        let counts = instance.rows.iter().map(|row| row.count);
        let stocks = scarce.iter().map(|&bin| instance.bins[bin].stock);
        let mut radix = Vec::new();
        let mut weight = Vec::new();
        let mut states = 1_usize;
        for digit in counts.chain(stocks) {
            weight.push(states);
            radix.push(usize::try_from(digit).ok()?.checked_add(1)?);
            states = states.checked_mul(*radix.last()?)?;
            if states > MAX_STATES {
                return None;
            }
        }
        let rows = instance.rows.len();
        let contents = radix[..rows].iter().product();
        let plenty: Vec<usize> = by_price.iter().copied().filter(|bin| !scarce.contains(bin)).collect();
        let stock = Stock::new(instance);
        let mut this =
            Self { instance, rows, radix, weight, contents, plentiful: Vec::new(), holding: Vec::new(), scarce };
        for content in 0..contents {
            let pods = this.pods(content);
            let valid = this.is_valid(&pods);
            let holds = |bins: &[usize]| cheapest(instance, bins, &stock, &pods, 1);
            this.plentiful.push(if valid { holds(&plenty) } else { None });
            let places = 0..this.scarce.len();
            let able = places.filter(|&at| valid && holds(&this.scarce[at..=at]).is_some());
            this.holding.push(able.collect());
        }
        Some(this)
    }

    fn digit(&self, state: usize, place: usize) -> usize {
        state / self.weight[place] % self.radix[place]
    }

    fn pods(&self, content: usize) -> Vec<(usize, u64)> {
        (0..self.rows).map(|row| (row, self.digit(content, row) as u64)).filter(|&(_, count)| count > 0).collect()
    }

    /// Whether caps and exclusive groups allow the content on one node.
    fn is_valid(&self, pods: &[(usize, u64)]) -> bool {
        let rows = &self.instance.rows;
        let mut groups: Vec<usize> = pods.iter().flat_map(|&(row, _)| rows[row].groups.clone()).collect();
        let named = groups.len();
        groups.sort_unstable();
        groups.dedup();
        groups.len() == named && pods.iter().all(|&(row, count)| count <= rows[row].cap)
    }

    /// Each step handles the first pod that is left: on a node, with others, or unplaced.
    fn run(&self) -> (Vec<Nodes>, Vec<u64>) {
        let states: usize = self.radix.iter().product();
        let mut best: Vec<Option<Best>> = vec![None; states];
        best[0] = Some(Best { key: (0, 0, 0), from: None });
        for state in 0..states {
            let Some(Best { key, .. }) = best[state].clone() else { continue };
            let open = |row: &usize| self.digit(state, *row) + 1 < self.radix[*row];
            let Some(first) = (0..self.rows).find(open) else { continue };
            let dealt = state % self.contents;
            for content in self.weight[first]..self.contents - dealt {
                if self.digit(content, first) == 0 || !self.fits_beside(dealt, content) {
                    continue;
                }
                let mut offer = |bin: usize, to: usize| {
                    let price = u128::from(self.instance.bins[bin].price);
                    let key = (key.0, key.1 + price, key.2 + 1);
                    improve(&mut best[to], key, (state, Some((bin, content))));
                };
                if let Some(bin) = self.plentiful[content] {
                    offer(bin, state + content);
                }
                for &place in &self.holding[content] {
                    if self.digit(state, self.rows + place) + 1 < self.radix[self.rows + place] {
                        let taken = self.weight[self.rows + place];
                        offer(self.scarce[place], state + content + taken);
                    }
                }
            }
            let given_up = (key.0 + 1, key.1, key.2);
            improve(&mut best[state + self.weight[first]], given_up, (state, None));
        }
        self.read_off(&best)
    }

    fn fits_beside(&self, dealt: usize, content: usize) -> bool {
        let sum = |row: usize| self.digit(dealt, row) + self.digit(content, row);
        (0..self.rows).all(|row| sum(row) < self.radix[row])
    }

    /// Walks back from the best state in which every pod is dealt with.
    fn read_off(&self, best: &[Option<Best>]) -> (Vec<Nodes>, Vec<u64>) {
        let ends = (0..best.len()).filter(|state| state % self.contents == self.contents - 1);
        let reached = ends.filter_map(|state| Some((best[state].as_ref()?.key, state)));
        let mut state = reached.min().map_or(0, |(_, state)| state);
        let mut nodes = Vec::new();
        let mut left = vec![0; self.rows];
        while let Some((before, step)) = best[state].as_ref().and_then(|best| best.from) {
            match step {
                Some((bin, content)) => {
                    nodes.push(Nodes { bin, content: self.pods(content), times: 1 });
                }
                None => {
                    let gone = (0..self.rows).find(|&row| self.weight[row] == state - before);
                    left[gone.unwrap_or(0)] += 1;
                }
            }
            state = before;
        }
        (nodes, left)
    }
}

fn improve(best: &mut Option<Best>, key: (u64, u128, u64), from: (usize, Option<(usize, usize)>)) {
    if best.as_ref().is_none_or(|known| key < known.key) {
        *best = Some(Best { key, from: Some(from) });
    }
}
