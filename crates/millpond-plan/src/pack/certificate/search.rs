//! The maximum value of whole pods that one node can hold, by search.
//!
//! Prices alone let a node hold fractions of pods, which says little about pods that are large for it.
//! Here contents are built pod by pod, in a fixed order of rows, so each is met once. Prices still
//! help: pods from row `k` on are worth at most `max dⱼ/(λ·wⱼ)` times what the room that is left
//! costs, so rows in the order of that ratio allow most contents to be passed over.

use super::{CertificateError, NodePrices, alone};
use crate::pack::model::{Amounts, Problem};

/// Numbers stay below this, so that products of two of them fit 128 bits.
const MAX_NUMBER: i128 = 1 << 62;

/// Rows that are equal for this node.
struct Kind {
    request: Amounts,
    exclusive: Vec<u32>,
    value: i128,
    /// The cost of the request at the prices.
    cost: i128,
    most: u64,
    /// The largest value beyond cost that this kind and the later ones can have.
    over: i128,
}

/// The most that pods on one node of the bin can be worth, or `least` if that is less. Takes off
/// `looks` what it spends.
pub(super) fn worth(
    problem: &Problem,
    bin: usize,
    counts: &[u64],
    values: &[u64],
    prices: &NodePrices,
    least: i128,
    looks: &mut u64,
) -> Result<i128, CertificateError> {
    let capacity = &problem.bins[bin].capacity;
    if capacity[..problem.resources].iter().any(|&amount| amount < 0) {
        return Ok(least);
    }
    let kinds = kinds(problem, bin, counts, values, prices)?;
    let groups: i128 = prices.groups.iter().map(|&(_, price)| i128::from(price)).sum();
    let resources = resource_cost(problem.resources, prices, capacity)?;
    let room_cost = in_range(resources.checked_add(groups).ok_or(CertificateError::Range)?)?;
    let search = Search {
        resources: problem.resources,
        taken: vec![0; kinds.len()],
        kinds,
        room: *capacity,
        room_cost,
        value: 0,
        groups: Vec::new(),
        best: in_range(least)?,
    };
    search.run(looks)
}

fn in_range(number: i128) -> Result<i128, CertificateError> {
    if number < MAX_NUMBER { Ok(number) } else { Err(CertificateError::Range) }
}

fn resource_cost(resources: usize, prices: &NodePrices, amounts: &Amounts) -> Result<i128, CertificateError> {
    let pairs = prices.resources[..resources].iter().zip(amounts);
    let paid = pairs.map(|(&price, &amount)| i128::from(price) * i128::from(amount.max(0)));
    let sum = paid.into_iter().try_fold(0_i128, i128::checked_add);
    in_range(sum.ok_or(CertificateError::Range)?)
}

/// The rows of value that the node can hold, equal ones together, by value for cost.
fn kinds(
    problem: &Problem,
    bin: usize,
    counts: &[u64],
    values: &[u64],
    prices: &NodePrices,
) -> Result<Vec<Kind>, CertificateError> {
    let mut kinds: Vec<Kind> = Vec::new();
    for (index, row) in problem.rows.iter().enumerate() {
        let most = alone(problem, bin, row, counts[index]);
        if values[index] == 0 || most == 0 {
            continue;
        }
        let mut request = row.request.map(|amount| amount.max(0));
        request[problem.resources..].fill(0);
        let mut exclusive = row.exclusive.clone();
        exclusive.sort_unstable();
        exclusive.dedup();
        let paid = prices.groups.iter().filter(|(group, _)| exclusive.contains(group));
        let groups: i128 = paid.map(|&(_, price)| i128::from(price)).sum();
        let cost = in_range(resource_cost(problem.resources, prices, &request)? + groups)?;
        let value = in_range(i128::from(values[index]))?;
        kinds.push(Kind { request, exclusive, value, cost, most, over: 0 });
    }
    kinds.sort_by(|a, b| {
        let by_ratio = (b.value * a.cost).cmp(&(a.value * b.cost));
        by_ratio.then(b.value.cmp(&a.value)).then_with(|| (&a.request, &a.exclusive).cmp(&(&b.request, &b.exclusive)))
    });
    kinds.dedup_by(|next, kept| {
        let same = (next.value, &next.request, &next.exclusive) == (kept.value, &kept.request, &kept.exclusive);
        if same && kept.exclusive.is_empty() {
            kept.most = kept.most.saturating_add(next.most);
        }
        same
    });
    let mut over: i128 = 0;
    for kind in kinds.iter_mut().rev() {
        over = over.saturating_add((kind.value - kind.cost).max(0).saturating_mul(i128::from(kind.most)));
        kind.over = over;
    }
    Ok(kinds)
}

/// A content while it is built.
struct Search {
    resources: usize,
    kinds: Vec<Kind>,
    taken: Vec<u64>,
    room: Amounts,
    /// The cost of the remaining capacity at the prices.
    room_cost: i128,
    value: i128,
    /// Exclusive groups that have their pod.
    groups: Vec<u32>,
    best: i128,
}

impl Search {
    fn run(mut self, looks: &mut u64) -> Result<i128, CertificateError> {
        let mut path: Vec<usize> = Vec::new();
        let mut at = 0;
        loop {
            *looks = looks.checked_sub(1).ok_or(CertificateError::TooLarge)?;
            if at < self.kinds.len() && self.may_improve(at) {
                if self.fits(at) {
                    self.take(at);
                    self.best = in_range(self.best.max(self.value))?;
                    path.push(at);
                } else {
                    at += 1;
                }
                continue;
            }
            let Some(last) = path.pop() else { return Ok(self.best) };
            self.put_back(last);
            at = last + 1;
        }
    }

    /// Whether pods from this kind on could make the content worth more than the best so far.
    fn may_improve(&self, at: usize) -> bool {
        let kind = &self.kinds[at];
        let missing = self.best - self.value;
        if kind.value > kind.cost {
            return kind.over.saturating_add(self.room_cost) > missing;
        }
        kind.value * self.room_cost > missing * kind.cost
    }

    fn fits(&self, at: usize) -> bool {
        let kind = &self.kinds[at];
        let request = &kind.request[..self.resources];
        self.taken[at] < kind.most
            && request.iter().zip(&self.room).all(|(asked, room)| asked <= room)
            && !kind.exclusive.iter().any(|group| self.groups.contains(group))
    }

    fn take(&mut self, at: usize) {
        let kind = &self.kinds[at];
        for (room, asked) in self.room.iter_mut().zip(&kind.request) {
            *room -= asked;
        }
        self.room_cost -= kind.cost;
        self.value += kind.value;
        self.groups.extend(&kind.exclusive);
        self.taken[at] += 1;
    }

    /// Reverts the last pod added.
    fn put_back(&mut self, at: usize) {
        let kind = &self.kinds[at];
        for (room, asked) in self.room.iter_mut().zip(&kind.request) {
            *room += asked;
        }
        self.room_cost += kind.cost;
        self.value -= kind.value;
        self.groups.truncate(self.groups.len() - kind.exclusive.len());
        self.taken[at] -= 1;
    }
}
