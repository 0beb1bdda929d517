//! Solutions against the rules, and tiny problems against enumeration.

use proptest::prelude::*;

use super::*;

/// Checks a solution from first principles.
fn check(problem: &Problem, solution: &Solution) -> Result<(), String> {
    let mut placed = vec![0_u128; problem.rows.len()];
    let mut bought = vec![0_u128; problem.bins.len()];
    let mut cost = 0_u128;
    for group in &solution.nodes {
        let bin = &problem.bins[group.bin];
        let times = u128::from(group.multiplicity);
        bought[group.bin] += times;
        cost += times * u128::from(bin.price);
        if group.multiplicity == 0 || group.contents.is_empty() {
            return Err(format!("empty group {group:?}"));
        }
        let mut used = [0_i128; MAX_RESOURCES];
        let mut groups: Vec<u32> = Vec::new();
        for &(index, count) in &group.contents {
            let row = &problem.rows[index];
            placed[index] += times * u128::from(count);
            if count == 0 || count > u64::from(row.per_node_cap) || !row.bins.contains(group.bin) {
                return Err(format!("row {index} ×{count} may not be on bin {}", group.bin));
            }
            let mut own = row.exclusive.clone();
            own.sort_unstable();
            own.dedup();
            if own.iter().any(|name| count > 1 || groups.contains(name)) {
                return Err(format!("two pods of one group in {group:?}"));
            }
            groups.extend(own);
            for resource in 0..problem.resources {
                used[resource] += i128::from(row.request[resource].max(0)) * i128::from(count);
            }
        }
        for resource in 0..problem.resources {
            if used[resource] > i128::from(bin.capacity[resource]) {
                return Err(format!("resource {resource} overfull in {group:?}"));
            }
        }
    }
    for &(row, count) in &solution.unplaced {
        if count == 0 {
            return Err(format!("row {row} unplaced zero times"));
        }
        placed[row] += u128::from(count);
    }
    for (index, row) in problem.rows.iter().enumerate() {
        if placed[index] != u128::from(row.count) {
            return Err(format!("row {index}: {} of {}", placed[index], row.count));
        }
    }
    for (index, bin) in problem.bins.iter().enumerate() {
        if bin.max_nodes.is_some_and(|most| bought[index] > u128::from(most)) {
            return Err(format!("bin {index} oversold"));
        }
    }
    if cost != solution.cost {
        return Err(format!("cost {} is really {cost}", solution.cost));
    }
    if solution.bound.value > solution.cost {
        return Err(format!("bound {} above cost {cost}", solution.bound.value));
    }
    match verify(problem, &solution.bound.certificate) {
        Ok(value) if value == solution.bound.value => Ok(()),
        other => Err(format!("bound {} verified as {other:?}", solution.bound.value)),
    }
}

fn checked(problem: &Problem, budget: Budget) -> Solution {
    let solution = solve(problem, budget);
    if let Err(error) = check(problem, &solution) {
        panic!("{error}\n{problem:#?}\n{solution:#?}");
    }
    solution
}

fn amounts(given: &[i64]) -> Amounts {
    let mut amounts = [0; MAX_RESOURCES];
    amounts[..given.len()].copy_from_slice(given);
    amounts
}

fn bin(capacity: &[i64], price: u64) -> Bin {
    Bin { capacity: amounts(capacity), price, max_nodes: None }
}

fn row(request: &[i64], count: u64, bins: usize) -> Row {
    Row { request: amounts(request), count, bins: BitSet::full(bins), per_node_cap: u32::MAX, exclusive: Vec::new() }
}

fn small() -> Budget {
    Budget { evaluations: 500, threads: 1, seed: 7 }
}

/// Random problems: up to `rows` rows of up to `count` pods on up to `bins` bins.
fn problems(rows: usize, count: u64, bins: usize) -> impl Strategy<Value = Problem> {
    let bin = (
        prop::collection::vec(0_i64..=40, 2),
        prop_oneof![Just(0_u64), 1_u64..=60],
        prop_oneof![4 => Just(None), 1 => (0_u64..4).prop_map(Some)],
    )
        .prop_map(|(capacity, price, max_nodes)| Bin {
            capacity: amounts(&capacity),
            price: price * 1_000,
            max_nodes,
        });
    let row = (
        prop::collection::vec(0_i64..=14, 2),
        0..=count,
        prop_oneof![3 => Just(u64::MAX), 1 => any::<u64>()],
        prop_oneof![3 => Just(u32::MAX), 1 => 0_u32..4],
        prop::collection::vec(0_u32..3, 0..2),
    )
        .prop_map(move |(request, count, mask, per_node_cap, exclusive)| Row {
            request: amounts(&request),
            count,
            bins: (0..bins).filter(|&bin| mask >> (bin % 64) & 1 == 1).collect(),
            per_node_cap,
            exclusive,
        });
    (prop::collection::vec(bin, 0..=bins), prop::collection::vec(row, 0..=rows)).prop_map(|(bins, rows)| Problem {
        resources: 2,
        bins,
        rows,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn solutions_keep_the_rules(problem in problems(12, 40, 9)) {
        checked(&problem, Budget::first_plan());
        checked(&problem, small());
    }

    #[test]
    fn many_rows_keep_the_rules(problem in problems(160, 6, 9)) {
        checked(&problem, small());
    }

    #[test]
    fn threads_and_repetition_change_nothing(problem in problems(150, 9, 9)) {
        let one = solve(&problem, small());
        let two = solve(&problem, Budget { threads: 2, ..small() });
        prop_assert_eq!(&one, &two);
        prop_assert_eq!(one, solve(&problem, small()));
    }
}

#[test]
fn nothing_to_do() {
    let nothing = checked(&Problem::default(), small());
    assert_eq!((nothing.cost, nothing.nodes.len(), nothing.bound.value), (0, 0, 0));
    let no_pods = Problem { resources: 1, bins: vec![bin(&[1], 5)], rows: vec![row(&[1], 0, 1)] };
    assert_eq!(checked(&no_pods, small()).nodes, []);
    let no_bins = Problem { resources: 1, bins: vec![], rows: vec![row(&[1], 3, 0)] };
    assert_eq!(checked(&no_bins, small()).unplaced, [(0, 3)]);
}
