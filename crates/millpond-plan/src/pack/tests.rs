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
    Budget { evaluations: 500, threads: 1 }
}

/// Random problems: up to `rows` rows of up to `count` pods on up to `bins` bins.
fn problems(rows: usize, count: u64, bins: usize) -> impl Strategy<Value = Problem> {
    problems_with(rows, count, bins, 1)
}

/// With a given weight of limited stock, against four for no limit.
fn problems_with(rows: usize, count: u64, bins: usize, stocked: u32) -> impl Strategy<Value = Problem> {
    let bin = (
        prop::collection::vec(0_i64..=40, 2),
        prop_oneof![Just(0_u64), 1_u64..=60],
        prop_oneof![4 => Just(None), stocked => (0_u64..4).prop_map(Some)],
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
    fn stocked_problems_keep_the_rules(problem in problems_with(30, 12, 60, 12)) {
        checked(&problem, Budget::first_plan());
        checked(&problem, small());
    }

    #[test]
    fn many_rows_keep_the_rules(problem in problems(160, 6, 9)) {
        checked(&problem, small());
    }

}

proptest! {
    // Large problems: many threads have something to share only there.
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn threads_and_repetition_change_nothing(problem in problems(150, 9, 9)) {
        let one = solve(&problem, small());
        let two = solve(&problem, Budget { threads: 2, ..small() });
        prop_assert_eq!(&one, &two);
        prop_assert_eq!(one, solve(&problem, small()));
    }
}

/// The most pods that can be placed and what they cost, by trying everything: each pod in turn
/// joins one of the nodes so far, opens a new one, or stays away.
fn brute_force(problem: &Problem) -> (usize, u128) {
    struct Search<'a> {
        problem: &'a Problem,
        pods: Vec<usize>,
        nodes: Vec<(usize, Vec<usize>)>,
        best: (usize, u128),
    }
    impl Search<'_> {
        fn holds(&self, bin: usize, pods: &[usize]) -> bool {
            let rows = pods.iter().map(|&row| &self.problem.rows[row]);
            let fits = (0..self.problem.resources).all(|resource| {
                let used: i64 = rows.clone().map(|row| row.request[resource]).sum();
                used <= self.problem.bins[bin].capacity[resource]
            });
            let allowed = rows.clone().all(|row| row.bins.contains(bin));
            let capped = pods.iter().all(|&row| {
                let count = pods.iter().filter(|&&other| other == row).count();
                count <= self.problem.rows[row].per_node_cap as usize
            });
            let alone = (0..3).all(|group| rows.clone().filter(|row| row.exclusive.contains(&group)).count() <= 1);
            fits && allowed && capped && alone
        }
        fn cost(&self) -> u128 {
            self.nodes.iter().map(|&(bin, _)| u128::from(self.problem.bins[bin].price)).sum()
        }
        fn go(&mut self, next: usize, away: usize) {
            let cost = self.cost();
            if (away, cost) >= self.best {
                return;
            }
            let Some(&pod) = self.pods.get(next) else {
                self.best = (away, cost);
                return;
            };
            for node in 0..self.nodes.len() {
                self.nodes[node].1.push(pod);
                if self.holds(self.nodes[node].0, &self.nodes[node].1) {
                    self.go(next + 1, away);
                }
                self.nodes[node].1.pop();
            }
            for bin in 0..self.problem.bins.len() {
                let taken = self.nodes.iter().filter(|node| node.0 == bin).count() as u64;
                let stock = self.problem.bins[bin].max_nodes.unwrap_or(u64::MAX);
                if taken < stock && self.holds(bin, &[pod]) {
                    self.nodes.push((bin, vec![pod]));
                    self.go(next + 1, away);
                    self.nodes.pop();
                }
            }
            self.go(next + 1, away + 1);
        }
    }
    let pods: Vec<usize> =
        (0..problem.rows.len()).flat_map(|row| std::iter::repeat_n(row, problem.rows[row].count as usize)).collect();
    let mut search = Search { problem, pods, nodes: Vec::new(), best: (usize::MAX, 0) };
    search.go(0, 0);
    search.best
}

/// The solution with rows and bins named by content instead of index.
fn by_content(problem: &Problem, solution: &Solution) -> Vec<String> {
    let bin = |bin: usize| format!("{:?}", problem.bins[bin]);
    let row = |row: usize| {
        let row = &problem.rows[row];
        format!("{:?} {} {} {:?}", row.request, row.count, row.per_node_cap, row.exclusive)
    };
    let mut lines: Vec<String> = solution
        .nodes
        .iter()
        .map(|group| {
            let mut contents: Vec<String> =
                group.contents.iter().map(|&(index, n)| format!("{}×{n}", row(index))).collect();
            contents.sort();
            format!("{} {} {contents:?}", bin(group.bin), group.multiplicity)
        })
        .chain(solution.unplaced.iter().map(|&(index, n)| format!("{} ×{n} unplaced", row(index))))
        .collect();
    lines.sort();
    lines
}

/// Rows and bins in another order.
fn shuffled(problem: &Problem, seed: u64) -> Problem {
    let order = |count: usize, salt: u64| {
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|&index| instance::mix(seed ^ salt ^ index as u64));
        order
    };
    let bins = order(problem.bins.len(), 1 << 40);
    let rows = order(problem.rows.len(), 1 << 41);
    let moved = |set: &BitSet| (0..bins.len()).filter(|&at| set.contains(bins[at])).collect();
    Problem {
        resources: problem.resources,
        bins: bins.iter().map(|&bin| problem.bins[bin].clone()).collect(),
        rows: rows
            .iter()
            .map(|&row| Row { bins: moved(&problem.rows[row].bins), ..problem.rows[row].clone() })
            .collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn tiny_problems_are_solved_exactly(problem in problems(3, 2, 4)) {
        let solution = checked(&problem, small());
        let unplaced: u64 = solution.unplaced.iter().map(|&(_, count)| count).sum();
        prop_assert_eq!((unplaced as usize, solution.cost), brute_force(&problem));
        prop_assert_eq!(solution.cost, solution.bound.value);
    }

    #[test]
    fn bounds_hold_below_the_optimum(problem in problems(3, 2, 4)) {
        // Prices instead of enumeration, on the pods that an optimal plan places.
        let instance = instance::Instance::new(&problem);
        let prices = prices::Prices::new(&instance, 1);
        let exact = solve(&problem, small());
        let counts = exact.bound.certificate.counts.clone();
        let bound = bound::certify(&problem, &instance, &prices, counts);
        prop_assert!(bound.value <= exact.cost, "{} > {}", bound.value, exact.cost);
        prop_assert_eq!(verify(&problem, &bound.certificate), Ok(bound.value));
        let whole = prices::Prices::for_bound(&instance, 1);
        let better = bound::certify(&problem, &instance, &whole, exact.bound.certificate.counts.clone());
        prop_assert!(better.value <= exact.cost, "{} > {}", better.value, exact.cost);
        // Where it proves nothing, as with free nodes of which there are none, `bound` asks for the others.
        let at_least = bound.value as f64 * (1.0 - 1e-6);
        prop_assert!(better.value == 0 || better.value as f64 >= at_least, "{} < {}", better.value, bound.value);
        prop_assert_eq!(verify(&problem, &better.certificate), Ok(better.value));
        let alone = super::bound(&problem, exact.bound.certificate.counts.clone(), small());
        prop_assert!(alone.value <= exact.cost, "{} > {}", alone.value, exact.cost);
        prop_assert!(alone.value as f64 >= at_least, "{} < {}", alone.value, bound.value);
    }

    #[test]
    fn nor_with_stock(problem in problems_with(20, 9, 40, 10), seed in any::<u64>()) {
        let shuffled = shuffled(&problem, seed);
        let (one, other) = (solve(&problem, small()), solve(&shuffled, small()));
        prop_assert_eq!(one.cost, other.cost);
        prop_assert_eq!(one.bound.value, other.bound.value);
    }

    #[test]
    fn the_order_of_the_input_does_not_matter(problem in problems(14, 9, 7), seed in any::<u64>()) {
        let shuffled = shuffled(&problem, seed);
        let (one, other) = (solve(&problem, small()), solve(&shuffled, small()));
        prop_assert_eq!(one.cost, other.cost);
        prop_assert_eq!(one.bound.value, other.bound.value);
        prop_assert_eq!(by_content(&problem, &one), by_content(&shuffled, &other));
        let bound = |problem: &Problem| super::bound(problem, vec![u64::MAX; problem.rows.len()], small()).value;
        prop_assert_eq!(bound(&problem), bound(&shuffled));
    }
}

#[test]
fn two_shapes_on_one_core_nodes() {
    let rows = vec![row(&[50], 50_000, 1), row(&[95], 1_000, 1)];
    let problem = Problem { resources: 1, bins: vec![bin(&[1_000], 1_000)], rows };
    let solution = checked(&problem, Budget::default());
    assert_eq!((solution.node_count(), solution.bound.value), (2_595, 2_595_000));
}

#[test]
fn huge_numbers_do_not_overflow() {
    let big = i64::MAX;
    let problem = Problem {
        resources: 2,
        bins: vec![bin(&[big, big], u64::MAX / 8), bin(&[big / 2, 3], u64::MAX / 16)],
        rows: vec![
            row(&[big, 1], u64::MAX, 2),
            row(&[big / 3, big / 5], 1 << 60, 2),
            row(&[0, 0], u64::MAX, 2),
            row(&[1, 1], u64::MAX, 2),
            row(&[-5, 2], 7, 2),
        ],
    };
    for budget in [Budget::first_plan(), small()] {
        assert_eq!(checked(&problem, budget).unplaced, []);
    }
}

#[test]
fn rows_that_fit_nowhere_leave_the_bound() {
    let mut forbidden = row(&[1], 3, 2);
    forbidden.bins = BitSet::new();
    let mut capped = row(&[1], 2, 2);
    capped.per_node_cap = 0;
    let rows = vec![row(&[11], 4, 2), forbidden, capped, row(&[5], 1_000, 2)];
    let problem = Problem { resources: 1, bins: vec![bin(&[10], 70), bin(&[-1], 1)], rows };
    let solution = checked(&problem, small());
    assert_eq!(solution.unplaced, [(0, 4), (1, 3), (2, 2)]);
    assert_eq!((solution.cost, solution.bound.value), (35_000, 35_000));
}

#[test]
fn free_nodes_are_free() {
    let rows = vec![row(&[4], 1_000, 2), row(&[8], 1_000, 2)];
    let problem = Problem { resources: 1, bins: vec![bin(&[4], 0), bin(&[16], 100)], rows };
    let solution = checked(&problem, small());
    assert_eq!(solution.cost, 50_000);
    assert_eq!(solution.bound.value, 50_000);
}

#[test]
fn a_short_stock_is_used_first_and_never_oversold() {
    let mut cheap = bin(&[10], 10);
    cheap.max_nodes = Some(3);
    let problem = Problem { resources: 1, bins: vec![cheap, bin(&[10], 100)], rows: vec![row(&[5], 2_000, 2)] };
    let solution = checked(&problem, small());
    assert_eq!(solution.cost, 3 * 10 + 997 * 100);
    assert_eq!(solution.bound.value, solution.cost);
    let mut only = problem.clone();
    only.bins.truncate(1);
    assert_eq!(checked(&only, small()).unplaced, [(0, 1_994)]);
}

#[test]
fn free_room_is_filled_first_and_the_bound_survives() {
    // Four hundred running nodes with room for half of the pods, all different.
    let mut bins: Vec<Bin> =
        (0..400).map(|index| Bin { max_nodes: Some(1), ..bin(&[20 + index % 7, 30 + index / 2], 0) }).collect();
    bins.push(bin(&[100, 200], 1_000));
    let count = bins.len();
    let problem = Problem {
        resources: 2,
        bins,
        rows: (1..=90).map(|index| row(&[1 + index % 9, 1 + index % 17], 40, count)).collect(),
    };
    for budget in [Budget::first_plan(), small()] {
        let solution = checked(&problem, budget);
        let free = solution.nodes.iter().filter(|group| group.bin < 400).count();
        assert_eq!((free, solution.unplaced.len()), (400, 0));
        assert!(solution.cost > 0 && solution.gap() < 0.05, "{} {}", solution.cost, solution.gap());
    }
    // Room for all of them: nothing is bought.
    let roomy = Problem { rows: problem.rows[..40].to_vec(), ..problem };
    let solution = checked(&roomy, small());
    assert_eq!((solution.cost, solution.bound.value, solution.unplaced.len()), (0, 0, 0));
}

#[test]
fn many_short_stocks_are_all_used() {
    // More kinds of nodes than are looked at together, three of each, at a price.
    let bins: Vec<Bin> =
        (0..90).map(|index| Bin { max_nodes: Some(3), ..bin(&[10 + index], 100 + index as u64) }).collect();
    let problem = Problem { resources: 1, rows: vec![row(&[6], 9_000, bins.len())], bins };
    let most: u64 = (0..90).map(|index| (10 + index) / 6 * 3).sum();
    for budget in [Budget::first_plan(), small()] {
        assert_eq!(checked(&problem, budget).unplaced, [(0, 9_000 - most)]);
    }
}

#[test]
fn a_bound_alone_is_that_of_the_solution() {
    let bins = vec![Bin { max_nodes: Some(2), ..bin(&[30, 10], 0) }, bin(&[10, 20], 70), bin(&[40, 50], 200)];
    let mut rows: Vec<Row> = (1..=20).map(|index| row(&[index % 7, index % 5], 30, 3)).collect();
    rows.push(row(&[1_000, 1], 4, 3));
    let problem = Problem { resources: 2, bins, rows };
    let solution = checked(&problem, small());
    let alone = bound(&problem, solution.bound.certificate.counts.clone(), small());
    assert_eq!(alone.value, solution.bound.value);
    let counts: Vec<u64> = problem.rows.iter().map(|row| row.count).collect();
    let all = bound(&problem, counts.clone(), small());
    assert_eq!(verify(&problem, &all.certificate), Ok(all.value));
    // Fewer pods, missing entries, more than there are.
    for counts in [vec![3; 21], vec![], vec![u64::MAX; 30]] {
        let some = bound(&problem, counts, small());
        assert_eq!(verify(&problem, &some.certificate), Ok(some.value));
        assert!(some.value <= all.value);
    }
}

#[test]
fn pods_too_large_for_company_take_a_node_each() {
    // No two of them fit two cores, but fractions would.
    let rows = vec![row(&[1_200], 300, 2), row(&[1_100], 500, 2), row(&[1_050], 200, 2)];
    let problem = Problem { resources: 1, bins: vec![bin(&[2_000], 90), bin(&[1_900], 95)], rows };
    let solution = checked(&problem, small());
    assert_eq!(solution.cost, 1_000 * 90);
    // By volume alone it could be 560 nodes.
    assert_eq!(solution.bound.value, solution.cost);
    let certificate = &solution.bound.certificate;
    let Proof::Prices { bins, .. } = &certificate.proof else { panic!("{certificate:?}") };
    assert!(matches!(bins[..], [NodeProof::Search(_), NodeProof::Within(0)]), "{bins:?}");
}

#[test]
fn a_group_takes_a_node_each() {
    let rows = (0..40).map(|index| Row { exclusive: vec![9], ..row(&[1 + index], 5, 2) }).collect();
    let problem = Problem { resources: 1, bins: vec![bin(&[50], 50), bin(&[100], 90)], rows };
    let solution = checked(&problem, small());
    assert_eq!(solution.node_count(), 200);
    assert_eq!((solution.cost, solution.bound.value), (200 * 50, 200 * 50));
}

#[test]
fn false_certificates_are_refused() {
    let problem = Problem { resources: 1, bins: vec![bin(&[10], 70)], rows: vec![row(&[5], 1_000, 1)] };
    let good = checked(&problem, small()).bound.certificate;
    let Proof::Prices { scale, values, prices, bins } = good.proof.clone() else { panic!("{good:?}") };
    let with = |values: Vec<u64>, bins: Vec<NodeProof>| {
        let proof = Proof::Prices { scale, values, prices: prices.clone(), bins };
        verify(&problem, &Certificate { proof, ..good.clone() })
    };
    assert_eq!(with(values.clone(), bins.clone()), Ok(35_000));
    assert_eq!(with(vec![values[0] * 2], bins.clone()), Err(CertificateError::Worth { bin: 0 }));
    assert_eq!(with(values.clone(), vec![NodeProof::Nothing]), Err(CertificateError::Unpriced { bin: 0, row: 0 }));
    assert_eq!(with(vec![], bins.clone()), Err(CertificateError::Shape));
    assert_eq!(with(values, vec![NodeProof::Prices(99)]), Err(CertificateError::Shape));
    let more = Certificate { counts: vec![1_001], ..good.clone() };
    let error = CertificateError::Count { row: 0, counted: 1_001, count: 1_000 };
    assert_eq!(verify(&problem, &more), Err(error));
    let exhaustive = Certificate { proof: Proof::Exhaustive, ..good };
    assert_eq!(verify(&problem, &exhaustive), Err(CertificateError::TooLarge));
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
