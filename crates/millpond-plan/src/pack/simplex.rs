//! The covering programme `min c·x, A·x ≥ b, x ≥ 0` over a growing pool of columns.
//!
//! A revised simplex with an explicit dense inverse: with at most a hundred rows that is both the
//! simplest and the fastest form. Every row starts with a column of its own, so there is a feasible
//! basis from the beginning and no first phase. The inverse is rebuilt every few hundred pivots
//! and `x` with it: drift made an earlier version report values below the optimum.

/// Number of pivots between two rebuilds of the inverse.
const REBUILD_AFTER: usize = 150;
/// Number of columns that stay candidates between two scans of all columns.
const PROMISING: usize = 24;
/// Smallest relative gain of an entering column.
const EPSILON: f64 = 1e-9;

/// Costs below this count as this much in the gain of a column, or rounding would keep free ones
/// entering for ever.
const LEAST_COST: f64 = 1e-4;

pub(super) struct Column {
    pub(super) cost: f64,
    /// Row and coefficient, ascending by row.
    pub(super) entries: Vec<(usize, f64)>,
}

pub(super) struct Master {
    rows: usize,
    demand: Vec<f64>,
    costs: Vec<f64>,
    /// Entries of all columns, one after the other, and where each column ends.
    entries: Vec<(usize, f64)>,
    ends: Vec<usize>,
    basic: Vec<bool>,
    /// The column of each basis row; `SURPLUS + row` for the surplus of a row.
    basis: Vec<usize>,
    inverse: Vec<f64>,
    level: Vec<f64>,
    duals: Vec<f64>,
    since_rebuild: usize,
    /// Columns that were good when all were last looked at.
    promising: Vec<(f64, usize)>,
    scratch: Vec<f64>,
}

const SURPLUS: usize = usize::MAX / 2;

impl Master {
    /// `start[i]` covers row `i` and nothing else, with a positive coefficient; `None` for a row of
    /// the form `−x ≥ −stock`, which starts with its surplus.
    pub(super) fn new(demand: Vec<f64>, start: Vec<Option<Column>>) -> Self {
        let rows = demand.len();
        let mut this = Self {
            rows,
            demand,
            costs: Vec::new(),
            entries: Vec::new(),
            ends: Vec::new(),
            basic: Vec::new(),
            basis: Vec::with_capacity(rows),
            inverse: Vec::new(),
            level: Vec::new(),
            duals: vec![0.0; rows],
            since_rebuild: 0,
            promising: Vec::new(),
            scratch: vec![0.0; rows],
        };
        for (row, column) in start.into_iter().enumerate() {
            let place = column.map_or(SURPLUS + row, |column| this.add(column));
            this.basis.push(place);
            if place < SURPLUS {
                this.basic[place] = true;
            }
        }
        this.rebuild();
        this
    }

    /// Adds a column and returns its number.
    pub(super) fn add(&mut self, column: Column) -> usize {
        self.costs.push(column.cost);
        self.entries.extend(column.entries);
        self.ends.push(self.entries.len());
        self.basic.push(false);
        self.costs.len() - 1
    }

    /// Pivots to the optimum over the pool, or until `pivots` are spent; returns those used.
    pub(super) fn solve(&mut self, pivots: usize) -> usize {
        let mut used = 0;
        while used < pivots {
            if self.since_rebuild >= REBUILD_AFTER {
                self.rebuild();
            }
            let Some(entering) = self.choose() else { break };
            if !self.enter(entering) {
                break;
            }
            used += 1;
        }
        self.price();
        used
    }

    pub(super) fn duals(&self) -> &[f64] {
        &self.duals
    }

    pub(super) fn value(&self) -> f64 {
        (0..self.rows).map(|row| self.level[row] * self.cost(self.basis[row])).sum()
    }

    /// Columns in use and how much of each, ascending by column.
    pub(super) fn solution(&self) -> Vec<(usize, f64)> {
        let mut used: Vec<(usize, f64)> = (0..self.rows)
            .filter(|&row| self.basis[row] < SURPLUS && self.level[row] > 1e-9)
            .map(|row| (self.basis[row], self.level[row]))
            .collect();
        used.sort_by_key(|&(column, _)| column);
        used
    }

    fn cost(&self, column: usize) -> f64 {
        if column >= SURPLUS { 0.0 } else { self.costs[column] }
    }

    fn column(&self, column: usize) -> &[(usize, f64)] {
        let from = if column == 0 { 0 } else { self.ends[column - 1] };
        &self.entries[from..self.ends[column]]
    }

    /// The duals from the basis alone; between rebuilds they are carried along.
    fn price(&mut self) {
        let m = self.rows;
        self.duals.fill(0.0);
        for row in 0..m {
            let cost = self.cost(self.basis[row]);
            if cost != 0.0 {
                let inverse = &self.inverse[row * m..(row + 1) * m];
                for (dual, entry) in self.duals.iter_mut().zip(inverse) {
                    *dual += cost * entry;
                }
            }
        }
    }

    /// The worth of the column at the duals.
    pub(super) fn worth(&self, column: usize) -> f64 {
        self.column(column).iter().map(|&(row, by)| by * self.duals[row]).sum()
    }

    fn gain(&self, column: usize) -> f64 {
        if self.basic[column] {
            return 0.0;
        }
        let cost = self.costs[column];
        (self.worth(column) - cost) / cost.max(LEAST_COST)
    }

    /// The column with the largest gain per unit of cost, among those that were good lately if one of
    /// them still is, among all if not.
    fn choose(&mut self) -> Option<usize> {
        let mut list = std::mem::take(&mut self.promising);
        for (gain, column) in &mut list {
            *gain = self.gain(*column);
        }
        list.retain(|&(gain, _)| gain > EPSILON);
        if list.is_empty() {
            let all = (0..self.costs.len()).map(|column| (self.gain(column), column));
            list.extend(all.filter(|&(gain, _)| gain > EPSILON));
            list.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            list.truncate(PROMISING);
        }
        let best = list.iter().copied().reduce(|best, one| if one.0 > best.0 { one } else { best });
        self.promising = list;
        let mut choice = best.map(|(_, column)| column);
        let mut best = best.map_or(EPSILON, |(gain, _)| gain);
        for row in 0..self.rows {
            // A negative dual: the row is covered more than needed and pays to be.
            let gain = -self.duals[row] * self.demand[row].abs();
            if gain > best {
                best = gain;
                choice = Some(SURPLUS + row);
            }
        }
        choice
    }

    fn enter(&mut self, entering: usize) -> bool {
        let m = self.rows;
        let mut column = std::mem::take(&mut self.scratch);
        let reduced;
        if entering >= SURPLUS {
            let at = entering - SURPLUS;
            for (row, entry) in column.iter_mut().enumerate() {
                *entry = -self.inverse[row * m + at];
            }
            reduced = self.duals[at];
        } else {
            let entries = self.column(entering);
            for (row, entry) in column.iter_mut().enumerate() {
                let inverse = &self.inverse[row * m..(row + 1) * m];
                *entry = entries.iter().map(|&(at, by)| by * inverse[at]).sum();
            }
            reduced = self.costs[entering] - self.worth(entering);
        }
        let mut leaving: Option<usize> = None;
        let mut step = f64::INFINITY;
        for row in 0..m {
            if column[row] > 1e-9 {
                let limit = self.level[row].max(0.0) / column[row];
                let closer =
                    limit < step - 1e-12 || (limit <= step && leaving.is_some_and(|known| column[row] > column[known]));
                if closer {
                    step = limit;
                    leaving = Some(row);
                }
            }
        }
        let Some(leaving) = leaving else {
            self.scratch = column;
            return false;
        };
        for row in 0..m {
            self.level[row] -= step * column[row];
        }
        self.level[leaving] = step;
        let out = std::mem::replace(&mut self.basis[leaving], entering);
        if out < SURPLUS {
            self.basic[out] = false;
        }
        if entering < SURPLUS {
            self.basic[entering] = true;
        }
        eliminate(&mut self.inverse, &column, leaving, m);
        let pivot = &self.inverse[leaving * m..(leaving + 1) * m];
        for (dual, entry) in self.duals.iter_mut().zip(pivot) {
            *dual += reduced * entry;
        }
        self.scratch = column;
        self.since_rebuild += 1;
        true
    }

    /// Inverts the basis anew, and recomputes the levels and duals from it.
    fn rebuild(&mut self) {
        let m = self.rows;
        let mut basis = vec![0.0; m * m];
        for (place, &column) in self.basis.iter().enumerate() {
            if column >= SURPLUS {
                basis[(column - SURPLUS) * m + place] = -1.0;
            } else {
                for &(row, by) in self.column(column) {
                    basis[row * m + place] = by;
                }
            }
        }
        if let Some(inverse) = invert(basis, m) {
            self.inverse = inverse;
            self.level = (0..m)
                .map(|row| {
                    let inverse = &self.inverse[row * m..(row + 1) * m];
                    inverse.iter().zip(&self.demand).map(|(entry, demand)| entry * demand).sum()
                })
                .collect();
        }
        self.price();
        self.since_rebuild = 0;
    }
}

/// Makes `column` the unit vector of `leaving` by row operations on the inverse.
fn eliminate(inverse: &mut [f64], column: &[f64], leaving: usize, m: usize) {
    let scale = 1.0 / column[leaving];
    let (before, rest) = inverse.split_at_mut(leaving * m);
    let (pivot, after) = rest.split_at_mut(m);
    for entry in &mut *pivot {
        *entry *= scale;
    }
    let pivot = &*pivot;
    let update = |row: &mut [f64], factor: f64| {
        if factor != 0.0 {
            for (entry, pivot) in row.iter_mut().zip(pivot) {
                *entry -= factor * pivot;
            }
        }
    };
    before.chunks_exact_mut(m).zip(&column[..leaving]).for_each(|(row, &factor)| update(row, factor));
    after.chunks_exact_mut(m).zip(&column[leaving + 1..]).for_each(|(row, &factor)| update(row, factor));
}

/// Gauss-Jordan with partial pivoting; `None` if the matrix is singular.
fn invert(mut matrix: Vec<f64>, m: usize) -> Option<Vec<f64>> {
    let mut inverse = vec![0.0; m * m];
    for row in 0..m {
        inverse[row * m + row] = 1.0;
    }
    for at in 0..m {
        let largest = (at..m).max_by(|&a, &b| {
            let (a, b) = (matrix[a * m + at].abs(), matrix[b * m + at].abs());
            a.total_cmp(&b)
        })?;
        if matrix[largest * m + at].abs() < 1e-12 {
            return None;
        }
        if largest != at {
            for column in 0..m {
                matrix.swap(largest * m + column, at * m + column);
                inverse.swap(largest * m + column, at * m + column);
            }
        }
        let column: Vec<f64> = (0..m).map(|row| matrix[row * m + at]).collect();
        eliminate(&mut inverse, &column, at, m);
        eliminate(&mut matrix, &column, at, m);
    }
    Some(inverse)
}

#[cfg(test)]
mod tests {
    use super::{Column, Master};

    fn column(cost: f64, entries: &[(usize, f64)]) -> Column {
        Column { cost, entries: entries.to_vec() }
    }

    #[test]
    fn mixes_columns_to_cover_two_rows() {
        let start = vec![Some(column(3.0, &[(0, 1.0)])), Some(column(3.0, &[(1, 1.0)]))];
        let mut master = Master::new(vec![4.0, 6.0], start);
        assert!((master.value() - 30.0).abs() < 1e-9);
        master.add(column(3.0, &[(0, 2.0), (1, 1.0)]));
        master.add(column(3.0, &[(0, 1.0), (1, 2.0)]));
        master.solve(100);
        // 2/3 of the first and 8/3 of the second.
        assert!((master.value() - 10.0).abs() < 1e-9, "{}", master.value());
        assert!((master.duals()[0] - 1.0).abs() < 1e-9 && (master.duals()[1] - 1.0).abs() < 1e-9);
        assert_eq!(master.solution().len(), 2);
    }

    #[test]
    fn a_stock_row_limits_the_cheap_column() {
        let start = vec![Some(column(5.0, &[(0, 1.0)])), None];
        let mut master = Master::new(vec![10.0, -4.0], start);
        master.add(column(1.0, &[(0, 1.0), (1, -1.0)]));
        master.solve(100);
        assert!((master.value() - 34.0).abs() < 1e-9);
        assert!((master.duals()[0] - 5.0).abs() < 1e-9 && (master.duals()[1] - 4.0).abs() < 1e-9);
    }
}
