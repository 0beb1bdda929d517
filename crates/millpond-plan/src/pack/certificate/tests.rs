//! Proofs about single nodes: good ones hold, and those that are a little off do not.

use super::{Certificate, CertificateError, NodePrices, NodeProof, Proof, verify};
use crate::pack::model::MAX_RESOURCES;
use crate::pack::{Bin, BitSet, Problem, Row};

const NODE: i64 = 2_000;

fn bin(capacity: i64, price: u64) -> Bin {
    let mut amounts = [0; MAX_RESOURCES];
    amounts[0] = capacity;
    Bin { capacity: amounts, price, max_nodes: None }
}

fn row(request: i64, count: u64) -> Row {
    let mut amounts = [0; MAX_RESOURCES];
    amounts[0] = request;
    Row { request: amounts, count, bins: BitSet::full(8), per_node_cap: u32::MAX, exclusive: Vec::new() }
}

fn problem(bins: Vec<Bin>, rows: Vec<Row>) -> Problem {
    Problem { resources: 1, bins, rows }
}

/// Prices of one unit of the resource.
fn at(price: u64) -> NodePrices {
    let mut prices = NodePrices::default();
    prices.resources[0] = price;
    prices
}

fn proved(
    problem: &Problem,
    values: &[u64],
    prices: &[NodePrices],
    bins: &[NodeProof],
) -> Result<u128, CertificateError> {
    let proof = Proof::Prices { scale: 1, values: values.to_vec(), prices: prices.to_vec(), bins: bins.to_vec() };
    verify(problem, &Certificate { counts: problem.rows.iter().map(|row| row.count).collect(), proof })
}

/// No two of these pods fit one node.
fn bulky() -> Problem {
    problem(vec![bin(NODE, 6_000)], vec![row(1_200, 10), row(1_100, 7)])
}

#[test]
fn whole_pods_prove_what_prices_do_not() {
    let problem = bulky();
    let values = [6_000, 6_000];
    for price in 0..6 {
        assert_eq!(proved(&problem, &values, &[at(price)], &[NodeProof::Search(0)]), Ok(17 * 6_000));
        let by_prices = proved(&problem, &values, &[at(price)], &[NodeProof::Prices(0)]);
        assert_eq!(by_prices, Err(CertificateError::Worth { bin: 0 }));
    }
}

#[test]
fn a_value_too_high_by_one_is_refused() {
    for values in [[6_001, 6_000], [6_000, 6_001]] {
        let result = proved(&bulky(), &values, &[at(3)], &[NodeProof::Search(0)]);
        assert_eq!(result, Err(CertificateError::Worth { bin: 0 }));
    }
    // Three of 600 and one of 200 fill the node; four of 600 do not fit.
    let filled = problem(vec![bin(NODE, 6_000)], vec![row(600, 50), row(200, 50)]);
    assert_eq!(proved(&filled, &[1_900, 300], &[at(3)], &[NodeProof::Search(0)]), Ok(50 * 2_200));
    let result = proved(&filled, &[1_901, 300], &[at(3)], &[NodeProof::Search(0)]);
    assert_eq!(result, Err(CertificateError::Worth { bin: 0 }));
}

#[test]
fn counts_caps_and_groups_limit_a_content() {
    let price = || vec![bin(NODE, 6_000)];
    let search = |rows: Vec<Row>| proved(&problem(price(), rows), &[5_000, 1_000], &[at(3)], &[NodeProof::Search(0)]);
    let refused = Err(CertificateError::Worth { bin: 0 });
    assert_eq!(search(vec![row(800, 2), row(100, 2)]), refused);
    assert_eq!(search(vec![row(800, 1), row(100, 2)]), refused);
    assert_eq!(search(vec![row(800, 1), row(100, 1)]), Ok(6_000));
    let capped = |request| Row { per_node_cap: 1, ..row(request, 9) };
    assert_eq!(search(vec![capped(800), capped(100)]), Ok(9 * 6_000));
    let exclusive = |request, group| Row { exclusive: vec![group, group], ..row(request, 9) };
    assert_eq!(search(vec![exclusive(800, 4), exclusive(100, 7)]), Ok(9 * 6_000));
    // Equal rows of one group are one pod, of none they add up.
    let equal = |rows: Vec<Row>, values| proved(&problem(price(), rows), values, &[at(3)], &[NodeProof::Search(0)]);
    assert_eq!(equal(vec![exclusive(800, 4), exclusive(800, 4)], &[6_000, 6_000]), Ok(18 * 6_000));
    assert_eq!(equal(vec![row(800, 1), row(800, 1)], &[3_001, 3_001]), refused);
}

#[test]
fn a_short_stock_pays_for_what_it_is_worth_more() {
    let mut problem = bulky();
    problem.bins.push(Bin { max_nodes: Some(3), ..bin(NODE, 1_000) });
    let bins = [NodeProof::Search(0), NodeProof::Search(0)];
    assert_eq!(proved(&problem, &[6_000, 6_000], &[at(3)], &bins), Ok(17 * 6_000 - 3 * 5_000));
}

#[test]
fn a_bin_within_another_needs_no_proof() {
    let outer = || bin(NODE, 6_000);
    let with = |inner: Bin, outer: Bin, rows: Vec<Row>| {
        let bins = [NodeProof::Within(1), NodeProof::Search(0)];
        proved(&problem(vec![inner, outer], rows), &[6_000, 6_000], &[at(3)], &bins)
    };
    let rows = || bulky().rows;
    let not_within = Err(CertificateError::NotWithin { bin: 0, other: 1 });
    assert_eq!(with(outer(), outer(), rows()), Ok(17 * 6_000));
    assert_eq!(with(bin(NODE - 1, 6_001), outer(), rows()), Ok(17 * 6_000));
    assert_eq!(with(bin(NODE, 5_999), outer(), rows()), not_within);
    assert_eq!(with(bin(NODE + 1, 6_000), outer(), rows()), not_within);
    let stocked = Bin { max_nodes: Some(2), ..outer() };
    assert_eq!(with(outer(), stocked, rows()), not_within);
    let mut only_inside = rows();
    only_inside[1].bins = BitSet::full(1);
    assert_eq!(with(outer(), outer(), only_inside), not_within);
    let mut only_outside = rows();
    only_outside[1].bins = [1].into_iter().collect();
    assert_eq!(with(outer(), outer(), only_outside), Ok(17 * 6_000));
}

#[test]
fn proofs_that_point_nowhere_have_the_wrong_shape() {
    let mut problem = bulky();
    problem.bins.push(bin(NODE, 6_000));
    let with = |bins: &[NodeProof]| proved(&problem, &[6_000, 6_000], &[at(3)], bins);
    assert_eq!(with(&[NodeProof::Search(0), NodeProof::Search(1)]), Err(CertificateError::Shape));
    assert_eq!(with(&[NodeProof::Search(0)]), Err(CertificateError::Shape));
    assert_eq!(with(&[NodeProof::Search(0), NodeProof::Within(2)]), Err(CertificateError::Shape));
    // Neither in circles nor by way of a third.
    assert_eq!(with(&[NodeProof::Within(1), NodeProof::Within(0)]), Err(CertificateError::Shape));
    assert_eq!(with(&[NodeProof::Within(0), NodeProof::Search(0)]), Err(CertificateError::Shape));
    assert_eq!(with(&[NodeProof::Search(0), NodeProof::Nothing]), Err(CertificateError::Unpriced { bin: 1, row: 0 }));
}

#[test]
fn a_search_without_end_and_numbers_without_bounds_are_refused() {
    let rows: Vec<Row> = (0..40).map(|index| row(10 + index, 100)).collect();
    let values: Vec<u64> = (0..40).map(|index| 10 + index).collect();
    let problem = problem(vec![bin(NODE, NODE as u64)], rows);
    // At the right prices nothing needs to be looked at, at none everything.
    assert!(proved(&problem, &values, &[at(1)], &[NodeProof::Search(0)]).is_ok());
    assert_eq!(proved(&problem, &values, &[at(0)], &[NodeProof::Search(0)]), Err(CertificateError::TooLarge));
    assert_eq!(proved(&problem, &values, &[at(u64::MAX)], &[NodeProof::Search(0)]), Err(CertificateError::Range));
    let huge = vec![u64::MAX; 40];
    assert_eq!(proved(&problem, &huge, &[at(1)], &[NodeProof::Search(0)]), Err(CertificateError::Range));
}
