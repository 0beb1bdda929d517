//! A better plan from a good one: nodes are taken back a few at a time and bought anew.
//!
//! Where every row has only a handful of pods, hardly any pattern is bought twice, and the whole parts
//! of a relaxation are small. There a plan is improved by small pieces: the pods of a few nodes are
//! packed again at slightly other values, and what comes out cheaper stays. The pieces of a pass have
//! no node in common, so they are tried side by side.

use super::greedy::{Greedy, subtract};
use super::instance::{Instance, mix};
use super::knapsack::Knapsack;
use super::parallel;
use super::plan::{Nodes, Stock, merge};
use super::prices::Prices;
use super::scopes::Hand;

/// Limit on the kinds of nodes in a piece.
const PIECE: usize = 200;
/// Nodes that are alike more often than this are the work of a relaxation; it knows better.
const MAX_TIMES: u64 = 8;
/// Limit on the promising bins of a piece.
const PIECE_BINS: usize = 24;
/// The most passes, and the share of the cost that a pass must save for another one, unless little of
/// the budget is used: then only passes that save nothing end it.
const MAX_PASSES: u64 = 24;
const MAX_IDLE_PASSES: usize = 4;
const LEAST_GAIN: f64 = 1.5e-3;
/// Values are raised and lowered by up to this share.
const NOISE: f64 = 0.12;
/// Nodes that earn this share of their price are left alone.
const GOOD_ENOUGH: f64 = 0.995;

/// Improves a plan with about this many evaluations; returns the number used.
pub(super) fn improve(
    instance: &Instance,
    prices: &Prices,
    plan: Vec<Nodes>,
    evaluations: u64,
    threads: usize,
) -> (Vec<Nodes>, u64) {
    let mut plan = merge(plan);
    let mut work = 0;
    let mut idle = 0;
    let stock = Stock::endless_only(instance);
    for pass in 0..MAX_PASSES {
        if work >= evaluations {
            break;
        }
        let pieces = pieces(instance, prices, &plan, pass);
        let tried = parallel::map(threads, pieces.len(), Knapsack::default, |knapsack, index| {
            again(instance, prices, &plan, &pieces[index], &stock, pass, knapsack)
        });
        let cost = super::plan::cost(instance, &plan);
        let mut saved = 0;
        for (piece, (nodes, spent)) in pieces.iter().zip(tried) {
            work += spent;
            if let Some((nodes, less)) = nodes {
                saved += less;
                for &place in &piece.places {
                    plan[place].times = 0;
                }
                plan.extend(nodes);
            }
        }
        plan = merge(plan);
        idle = if saved == 0 { idle + 1 } else { 0 };
        let little = (saved as f64) < cost as f64 * LEAST_GAIN && work > evaluations / 8;
        if little || idle == MAX_IDLE_PASSES {
            break;
        }
    }
    (plan, work)
}

/// Nodes of one scope that are packed anew together.
struct Piece {
    places: Vec<usize>,
    scope: Option<usize>,
}

/// Deals the nodes that can be improved to pieces, in another way in each pass.
fn pieces(instance: &Instance, prices: &Prices, plan: &[Nodes], pass: u64) -> Vec<Piece> {
    let improvable = |&place: &usize| {
        let nodes = &plan[place];
        nodes.times <= MAX_TIMES
            && instance.bins[nodes.bin].stock == u64::MAX
            && value(prices, nodes) < instance.price(nodes.bin) * GOOD_ENOUGH
    };
    let mut order: Vec<(Option<usize>, u64, usize)> = (0..plan.len())
        .filter(improvable)
        .map(|place| {
            let scope = prices.scopes.bins.iter().position(|bins| bins.contains(plan[place].bin));
            (scope, mix(pass << 32 ^ place as u64), place)
        })
        .collect();
    order.sort_unstable();
    // A small plan is tried as a whole, in halves and in quarters.
    let size = if order.len() > PIECE { PIECE } else { (order.len() >> (pass % 3)).max(4) };
    let mut pieces = Vec::new();
    for same in order.chunk_by(|a, b| a.0 == b.0) {
        for chunk in same.chunks(size) {
            pieces.push(Piece { places: chunk.iter().map(|&(_, _, place)| place).collect(), scope: chunk[0].0 });
        }
    }
    pieces
}

fn value(prices: &Prices, nodes: &Nodes) -> f64 {
    nodes.content.iter().map(|&(row, count)| prices.packing[row] * count as f64).sum()
}

/// Packs the pods of a piece anew: the nodes and what they save, if they do.
fn again(
    instance: &Instance,
    prices: &Prices,
    plan: &[Nodes],
    piece: &Piece,
    stock: &Stock,
    pass: u64,
    knapsack: &mut Knapsack,
) -> (Option<(Vec<Nodes>, u128)>, u64) {
    let mut pods: Vec<(usize, u64)> = Vec::new();
    let mut cost = 0_u128;
    for nodes in piece.places.iter().map(|&place| &plan[place]) {
        cost += u128::from(instance.bins[nodes.bin].price) * u128::from(nodes.times);
        pods.extend(nodes.content.iter().map(|&(row, count)| (row, count * nodes.times)));
    }
    pods.sort_unstable();
    pods.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 += next.1;
        }
        same
    });
    let hand = Hand { rows: pods.iter().map(|&(row, _)| row).collect(), scope: piece.scope };
    let counts = pods.iter().map(|&(_, count)| count).collect();
    let mut greedy = Greedy::with_counts(instance, prices, &hand, stock, counts, PIECE_BINS);
    greedy.disturb(|row| {
        let draw = (mix(mix(pass) ^ row as u64) >> 11) as f64 / (1_u64 << 53) as f64;
        1.0 + NOISE * (2.0 * draw - 1.0)
    });
    greedy.run(knapsack, &mut stock.clone(), 0.0);
    let work = greedy.work;
    let Some(nodes) = greedy.finished() else { return (None, work) };
    let after = super::plan::cost(instance, &nodes);
    debug_assert!({
        let mut left = vec![0; instance.rows.len()];
        for &(row, count) in &pods {
            left[row] = count;
        }
        subtract(&mut left, &nodes);
        left.iter().all(|&count| count == 0)
    });
    (cost.checked_sub(after).filter(|&less| less > 0).map(|less| (nodes, less)), work)
}
