//! Lower bounds that can be checked without the solver.
//!
//! A [`Certificate`] is data; [`verify`] derives the bound from it and the problem alone, in
//! integers. It shares no code with the solver.
//!
//! **Prices.** Give every pod of row `i` a value `dᵢ ≥ 0`. If no node of bin `b` can hold pods worth
//! more than its price, every plan costs at least `Σ nᵢ·dᵢ`. What a node can hold at most is bounded
//! with prices `λ ≥ 0` on its resources and groups: any content `x` satisfies
//! `d·x ≤ λ·capacity + Σ uᵢ·max(0, dᵢ − λ·wᵢ)`, where `uᵢ` is how many pods of the row the node
//! could hold if it held nothing else. A bin with a limited stock may be worth more than its price;
//! each of its nodes then takes the difference off the bound.
//!
//! Pods that are large for a node leave room that prices count as used. There whole contents are
//! looked at instead, in the order and within the limits that prices suggest. A bin that offers no
//! more than another one, to no one else and no cheaper, needs no proof of its own.
//!
//! **Exhaustive.** Tiny problems are solved by enumeration; so is their proof.

mod search;
#[cfg(test)]
mod tests;

use super::model::{MAX_RESOURCES, Problem, Row};

/// The largest number of states of an exhaustive proof. It compares all pairs of states, about a hundred thousand.
pub(super) const MAX_STATES: usize = 512;
/// Steps of all searches of one proof; they take about a tenth of a second.
const MAX_LOOKS: u64 = 1 << 23;

/// The data that a bound is derived from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// For each row of the problem, the number of pods that the bound covers.
    pub counts: Vec<u64>,
    /// Why these pods cost at least that much.
    pub proof: Proof,
}

/// Why the pods of a certificate cost at least the bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Values of pods such that no node holds more than its price.
    Prices {
        /// Values and prices are in units of a nano-dollar divided by this.
        scale: u64,
        /// The value of one pod, for each row of the problem.
        values: Vec<u64>,
        /// Prices of what a node offers; several bins may share one entry.
        prices: Vec<NodePrices>,
        /// For each bin of the problem, why its nodes are not worth more than they cost.
        bins: Vec<NodeProof>,
    },
    /// All ways to pack were enumerated.
    Exhaustive,
}

/// Why the pods on a node are not worth more than its price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeProof {
    /// The node can hold no pod of value.
    Nothing,
    /// By these prices, an index.
    Prices(u32),
    /// Whole contents, which a search finds with the help of prices, by index.
    Search(u32),
    /// Whatever it holds a node of another bin could hold, which costs no more.
    Within(u32),
}

/// Prices of what a node offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodePrices {
    /// For one unit of each resource.
    pub resources: [u64; MAX_RESOURCES],
    /// Price of the single slot of an exclusive group, ascending by group; groups that are not named cost nothing.
    pub groups: Vec<(u32, u64)>,
}

/// Why a certificate is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// A list does not have one entry per row or bin, or an index points nowhere.
    #[error("the certificate does not have the shape of the problem")]
    Shape,
    /// It counts more pods than the row has.
    #[error("the certificate counts {counted} pods of row {row}, which has {count}")]
    Count {
        /// Index of the row.
        row: usize,
        /// Number in the certificate.
        counted: u64,
        /// Number in the problem.
        count: u64,
    },
    /// A bin that can hold a pod of value has no prices.
    #[error("bin {bin} can hold pods of row {row} but has no prices")]
    Unpriced {
        /// Index of the bin.
        bin: usize,
        /// Index of the row.
        row: usize,
    },
    /// A node could hold pods worth more than its price.
    #[error("a node of bin {bin} could hold pods worth more than its price")]
    Worth {
        /// Index of the bin.
        bin: usize,
    },
    /// A bin does not lie within the one that is said to limit it.
    #[error("bin {bin} is not within bin {other}")]
    NotWithin {
        /// Index of the bin.
        bin: usize,
        /// Index of the other bin.
        other: usize,
    },
    /// A number exceeds the range of 128 bits.
    #[error("the numbers of the certificate are out of range")]
    Range,
    /// The problem is too large for a proof by enumeration.
    #[error("the problem is too large for a proof by enumeration")]
    TooLarge,
    /// The stock cannot hold the pods that the certificate counts.
    #[error("the pods of the certificate cannot be placed at all")]
    Impossible,
}

/// Derives the bound from the certificate: the least cost of the counted pods in any plan, in nano-dollars per hour.
pub fn verify(problem: &Problem, certificate: &Certificate) -> Result<u128, CertificateError> {
    if problem.resources > MAX_RESOURCES || certificate.counts.len() != problem.rows.len() {
        return Err(CertificateError::Shape);
    }
    for (row, (&counted, given)) in certificate.counts.iter().zip(&problem.rows).enumerate() {
        if counted > given.count {
            return Err(CertificateError::Count { row, counted, count: given.count });
        }
    }
    match &certificate.proof {
        Proof::Prices { scale, values, prices, bins } => {
            verify_prices(problem, &certificate.counts, *scale, values, prices, bins)
        }
        Proof::Exhaustive => Exhaustive::new(problem, &certificate.counts)?.run(),
    }
}

/// How many pods of the row a node of the bin could hold if it held nothing else.
fn alone(problem: &Problem, bin: usize, row: &Row, count: u64) -> u64 {
    let capacity = &problem.bins[bin].capacity[..problem.resources];
    if !row.bins.contains(bin) || capacity.iter().any(|&amount| amount < 0) {
        return 0;
    }
    let mut most = count.min(u64::from(row.per_node_cap));
    if !row.exclusive.is_empty() {
        most = most.min(1);
    }
    for (&amount, &request) in capacity.iter().zip(&row.request) {
        if request > 0 {
            most = most.min((amount / request) as u64);
        }
    }
    most
}

fn verify_prices(
    problem: &Problem,
    counts: &[u64],
    scale: u64,
    values: &[u64],
    prices: &[NodePrices],
    bins: &[NodeProof],
) -> Result<u128, CertificateError> {
    if values.len() != problem.rows.len() || bins.len() != problem.bins.len() || scale == 0 {
        return Err(CertificateError::Shape);
    }
    let mut nodes = NodeWorth { problem, counts, scale, values, prices, looks: MAX_LOOKS, residuals: Vec::new() };
    nodes.residuals.resize(prices.len(), None);
    let mut total: i128 = 0;
    for (bin, &proof) in bins.iter().enumerate() {
        if let NodeProof::Within(other) = proof {
            nodes.is_within(bin, other as usize, bins)?;
            continue;
        }
        let over = nodes.of(bin, proof)? - nodes.price(bin)?;
        if over > 0 {
            let stock = problem.bins[bin].max_nodes.ok_or(CertificateError::Worth { bin })?;
            let off = over.checked_mul(i128::from(stock)).ok_or(CertificateError::Range)?;
            total = total.checked_sub(off).ok_or(CertificateError::Range)?;
        }
    }
    for (&count, &value) in counts.iter().zip(values) {
        let worth = i128::from(count).checked_mul(i128::from(value));
        let worth = worth.ok_or(CertificateError::Range)?;
        total = total.checked_add(worth).ok_or(CertificateError::Range)?;
    }
    // Plans cost whole nano-dollars, so a fraction of one rounds up.
    Ok((total.max(0) as u128).div_ceil(u128::from(scale)))
}

/// Upper limits on what nodes can be worth.
struct NodeWorth<'a> {
    problem: &'a Problem,
    counts: &'a [u64],
    scale: u64,
    values: &'a [u64],
    prices: &'a [NodePrices],
    /// Search steps left.
    looks: u64,
    /// Residual values by price entry, computed when needed.
    residuals: Vec<Option<Vec<(usize, i128)>>>,
}

impl NodeWorth<'_> {
    fn price(&self, bin: usize) -> Result<i128, CertificateError> {
        let price = i128::from(self.problem.bins[bin].price).checked_mul(i128::from(self.scale));
        price.ok_or(CertificateError::Range)
    }

    fn of(&mut self, bin: usize, proof: NodeProof) -> Result<i128, CertificateError> {
        let Self { problem, counts, values, .. } = *self;
        match proof {
            NodeProof::Nothing => unpriced(problem, bin, counts, values),
            NodeProof::Prices(index) => {
                let index = index as usize;
                let prices = self.prices.get(index).ok_or(CertificateError::Shape)?;
                if self.residuals[index].is_none() {
                    self.residuals[index] = Some(residual_values(problem, counts, values, prices)?);
                }
                let over = self.residuals[index].as_deref().unwrap_or_default();
                worth(problem, bin, counts, prices, over)
            }
            NodeProof::Search(index) => {
                let prices = self.prices.get(index as usize).ok_or(CertificateError::Shape)?;
                let price = self.price(bin)?;
                search::worth(problem, bin, counts, values, prices, price, &mut self.looks)
            }
            NodeProof::Within(_) => Err(CertificateError::Shape),
        }
    }

    /// Whether nodes of the other bin, which has a proof of its own, can hold whatever nodes of this one can, at no
    /// higher price.
    fn is_within(&self, bin: usize, other: usize, bins: &[NodeProof]) -> Result<(), CertificateError> {
        let problem = self.problem;
        if other >= bins.len() || matches!(bins[other], NodeProof::Within(_)) {
            return Err(CertificateError::Shape);
        }
        let (inner, outer) = (&problem.bins[bin], &problem.bins[other]);
        let valued = problem.rows.iter().zip(self.values).zip(self.counts).filter(|((_, value), _)| **value > 0);
        let mut rows = valued.filter(|(_, count)| **count > 0).map(|((row, _), _)| row);
        // A limited stock may be worth more than its price.
        let within = outer.max_nodes.is_none()
            && inner.price >= outer.price
            && (0..problem.resources).all(|resource| inner.capacity[resource] <= outer.capacity[resource])
            && rows.all(|row| !row.bins.contains(bin) || row.bins.contains(other));
        if within { Ok(()) } else { Err(CertificateError::NotWithin { bin, other }) }
    }
}

/// A bin without prices must not be able to hold anything of value.
fn unpriced(problem: &Problem, bin: usize, counts: &[u64], values: &[u64]) -> Result<i128, CertificateError> {
    for (row, given) in problem.rows.iter().enumerate() {
        if values[row] > 0 && alone(problem, bin, given, counts[row]) > 0 {
            return Err(CertificateError::Unpriced { bin, row });
        }
    }
    Ok(0)
}

/// Rows whose value exceeds the cost of their request at the prices, with the excess.
fn residual_values(
    problem: &Problem,
    counts: &[u64],
    values: &[u64],
    prices: &NodePrices,
) -> Result<Vec<(usize, i128)>, CertificateError> {
    let mut over = Vec::new();
    for (index, row) in problem.rows.iter().enumerate() {
        if counts[index] == 0 {
            continue;
        }
        let mut left = i128::from(values[index]);
        for (&price, &request) in prices.resources[..problem.resources].iter().zip(&row.request) {
            let paid = i128::from(price) * i128::from(request.max(0));
            left = left.checked_sub(paid).ok_or(CertificateError::Range)?;
        }
        for &(group, price) in &prices.groups {
            if row.exclusive.contains(&group) {
                left = left.checked_sub(i128::from(price)).ok_or(CertificateError::Range)?;
            }
        }
        if left > 0 {
            over.push((index, left));
        }
    }
    // Sorted by request, so that a bin considers only those that are not too large for it.
    over.sort_by_key(|&(index, _)| first_request(&problem.rows[index]));
    Ok(over)
}

fn first_request(row: &Row) -> i64 {
    row.request[0].max(0)
}

/// The most that pods on one node of the bin can be worth.
fn worth(
    problem: &Problem,
    bin: usize,
    counts: &[u64],
    prices: &NodePrices,
    residuals: &[(usize, i128)],
) -> Result<i128, CertificateError> {
    let mut sum: i128 = prices.groups.iter().map(|&(_, price)| i128::from(price)).sum();
    let capacity = &problem.bins[bin].capacity[..problem.resources];
    if capacity.iter().any(|&amount| amount < 0) {
        return Ok(0);
    }
    for (&price, &amount) in prices.resources.iter().zip(capacity) {
        let paid = i128::from(price) * i128::from(amount);
        sum = sum.checked_add(paid).ok_or(CertificateError::Range)?;
    }
    let largest = capacity.first().copied().unwrap_or(i64::MAX);
    for &(row, over) in residuals {
        if first_request(&problem.rows[row]) > largest {
            break;
        }
        let most = alone(problem, bin, &problem.rows[row], counts[row]);
        let extra = over.checked_mul(i128::from(most)).ok_or(CertificateError::Range)?;
        sum = sum.checked_add(extra).ok_or(CertificateError::Range)?;
    }
    Ok(sum)
}

/// Enumerates states: a number whose digits, in mixed radix, are the pods placed of each row and the nodes used of each
/// bin with limited stock.
struct Exhaustive<'a> {
    problem: &'a Problem,
    rows: Vec<usize>,
    /// Highest digit of each place: pods of `rows`, then stock of `stocked`.
    limits: Vec<u64>,
    stocked: Vec<usize>,
    /// Cheapest bin without a limit for each content; contents are numbered like states.
    unlimited: Vec<Option<u64>>,
    /// For each bin with limited stock, the contents that it can hold.
    limited: Vec<Vec<bool>>,
}

impl<'a> Exhaustive<'a> {
    fn new(problem: &'a Problem, counts: &[u64]) -> Result<Self, CertificateError> {
        let rows: Vec<usize> = (0..counts.len()).filter(|&row| counts[row] > 0).collect();
        let pods = counts.iter().try_fold(0_u64, |sum, &count| sum.checked_add(count));
        let pods = pods.ok_or(CertificateError::TooLarge)?;
        let allowed = |bin: usize| rows.iter().any(|&row| problem.rows[row].bins.contains(bin));
        let bins: Vec<usize> = (0..problem.bins.len()).filter(|&bin| allowed(bin)).collect();
        let (stocked, mut free): (Vec<usize>, Vec<usize>) =
            bins.into_iter().partition(|&bin| problem.bins[bin].max_nodes.is_some_and(|stock| stock < pods));
        let stock = |&bin: &usize| problem.bins[bin].max_nodes.unwrap_or(pods);
        let limits: Vec<u64> = rows.iter().map(|&row| counts[row]).chain(stocked.iter().map(stock)).collect();
        if count_states(&limits).is_none_or(|states| states > MAX_STATES) {
            return Err(CertificateError::TooLarge);
        }
        let contents = count_states(&limits[..rows.len()]).unwrap_or(0);
        free.sort_by_key(|&bin| problem.bins[bin].price);
        let mut this = Self { problem, rows, limits, stocked, unlimited: Vec::new(), limited: Vec::new() };
        this.limited = vec![vec![false; contents]; this.stocked.len()];
        for content in 0..contents {
            let Some((rows, used)) = this.usage(content) else {
                this.unlimited.push(None);
                continue;
            };
            let bin = free.iter().find(|&&bin| this.holds(bin, &rows, &used));
            this.unlimited.push(bin.map(|&bin| problem.bins[bin].price));
            for place in 0..this.stocked.len() {
                this.limited[place][content] = this.holds(this.stocked[place], &rows, &used);
            }
        }
        Ok(this)
    }

    /// Visits the states in ascending order: a node adds pods, so it leads to a higher state.
    fn run(self) -> Result<u128, CertificateError> {
        let states = count_states(&self.limits).unwrap_or(0);
        let contents = self.unlimited.len();
        let mut best: Vec<Option<u128>> = vec![None; states];
        best[0] = Some(0);
        let mut answer: Option<u128> = None;
        for state in 0..states {
            let Some(cost) = best[state] else { continue };
            let placed = state % contents;
            if placed == contents - 1 {
                answer = Some(answer.map_or(cost, |known| known.min(cost)));
                continue;
            }
            for content in 1..contents - placed {
                if !self.fits_beside(placed, content) {
                    continue;
                }
                if let Some(price) = self.unlimited[content] {
                    improve(&mut best[state + content], cost + u128::from(price));
                }
                let mut step = contents;
                for (place, &bin) in self.stocked.iter().enumerate() {
                    let limit = self.limits[self.rows.len() + place] as usize;
                    let taken = state / step % (limit + 1);
                    if taken < limit && self.limited[place][content] {
                        let price = u128::from(self.problem.bins[bin].price);
                        improve(&mut best[state + content + step], cost + price);
                    }
                    step *= limit + 1;
                }
            }
        }
        answer.ok_or(CertificateError::Impossible)
    }

    /// Whether no digit of the sum exceeds its limit.
    fn fits_beside(&self, mut placed: usize, mut content: usize) -> bool {
        self.limits[..self.rows.len()].iter().all(|&limit| {
            let radix = limit as usize + 1;
            let sum = placed % radix + content % radix;
            placed /= radix;
            content /= radix;
            sum < radix
        })
    }

    /// The rows of a content and what they ask for; `None` if no node may hold it.
    fn usage(&self, mut content: usize) -> Option<(Vec<usize>, [i128; MAX_RESOURCES])> {
        let mut rows = Vec::new();
        let mut used = [0_i128; MAX_RESOURCES];
        let mut groups: Vec<u32> = Vec::new();
        for (&index, &limit) in self.rows.iter().zip(&self.limits) {
            let radix = limit as usize + 1;
            let count = (content % radix) as u64;
            content /= radix;
            if count == 0 {
                continue;
            }
            let row = &self.problem.rows[index];
            let excluded = row.exclusive.iter().any(|group| count > 1 || groups.contains(group));
            if excluded || count > u64::from(row.per_node_cap) {
                return None;
            }
            rows.push(index);
            groups.extend(&row.exclusive);
            for (sum, &request) in used.iter_mut().zip(&row.request) {
                *sum += i128::from(request.max(0)) * i128::from(count);
            }
        }
        Some((rows, used))
    }

    fn holds(&self, bin: usize, rows: &[usize], used: &[i128; MAX_RESOURCES]) -> bool {
        let capacity = &self.problem.bins[bin].capacity[..self.problem.resources];
        capacity.iter().zip(used).all(|(&amount, &sum)| i128::from(amount) >= sum)
            && rows.iter().all(|&row| self.problem.rows[row].bins.contains(bin))
    }
}

fn count_states(limits: &[u64]) -> Option<usize> {
    limits.iter().try_fold(1_usize, |product, &limit| product.checked_mul(usize::try_from(limit.checked_add(1)?).ok()?))
}

fn improve(best: &mut Option<u128>, cost: u128) {
    *best = Some(best.map_or(cost, |known| known.min(cost)));
}
