//! A lower bound of the cost of every plan that places the same pods.
//!
//! The packing problem is stated again with fewer rules: zones are free to choose, limits do not apply, only the
//! capacity of a node counts, and each existing node is free of charge but can be used once. Pods may go to the pools
//! that this plan used for their class, or to those of greater weight; if limits could force them into other pools, to
//! any. What the kernel proves about that problem holds for every plan by the same rules.

use std::thread::JoinHandle;

use crate::cluster_state::NodeSlotId;
use crate::market::Rank;
use crate::model::{ClassId, Resources};
use crate::pack::{self, BitSet, Bound};
use crate::plan::BoundProof;

use super::domains::{OfferSets, Part};
use super::packing_problem::{Packing, Purpose, amounts};
use super::{Planned, Solver};

/// A proof that is worked on while nodes are chosen, in the hope that every pod gets a place that some offer can hold.
#[derive(Debug)]
pub(super) struct Proving {
    /// Classes and the number of their pods that it speaks of.
    pods: Vec<(ClassId, u32)>,
    problem: pack::Problem,
    bound: Proved,
}

#[derive(Debug)]
enum Proved {
    Soon(JoinHandle<Bound>),
    Now(Bound),
}

impl Proving {
    fn start(pods: Vec<(ClassId, u32)>, problem: pack::Problem, budget: pack::Budget) -> Self {
        let given = problem.clone();
        let counts = given.rows.iter().map(|row| row.count).collect();
        let prove = move || pack::bound(&given, counts, budget);
        let bound = if budget.threads > 1 { Proved::Soon(std::thread::spawn(prove)) } else { Proved::Now(prove()) };
        Self { pods, problem, bound }
    }

    /// A proof that exists already.
    pub(super) fn done(pods: Vec<(ClassId, u32)>, problem: pack::Problem, bound: Bound) -> Self {
        Self { pods, problem, bound: Proved::Now(bound) }
    }

    fn wait(self) -> Self {
        let bound = match self.bound {
            Proved::Soon(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Proved::Now(bound) => bound,
        };
        Self { bound: Proved::Now(bound), ..self }
    }
}

impl Solver<'_> {
    /// Starts to prove what the plan costs at least, if it places every pod. With offers of several ranks it is not
    /// known before which of them will be used.
    pub(super) fn start_proof(&mut self) {
        if !self.settings.prove || self.market.ranks().len() > 1 {
            return;
        }
        let pods: Vec<(ClassId, u32)> = self
            .demand
            .classes
            .clone()
            .into_iter()
            .map(|class| {
                let hopeless = if self.may_be_bought(class) { 0 } else { self.left(class) };
                (class, self.demand.count(class) - hopeless)
            })
            .filter(|(_, count)| *count > 0)
            .collect();
        let Some(packing) = self.bound_packing(&pods) else { return };
        if self.is_plain(&pods) {
            self.plain = Some((packing, pods));
        } else {
            self.proving = Some(Proving::start(pods, packing.problem, self.settings.budget));
        }
    }

    /// Whether to buy for these pods is the very problem that the bound is about: nothing is there, nothing is limited,
    /// and no rule is about more than one pod and its node.
    fn is_plain(&self, pods: &[(ClassId, u32)]) -> bool {
        let is_plain = |class: &ClassId| {
            let of = &self.snapshot.classes[class.index()];
            of.problem.is_none() && of.host_ports.is_empty() && self.cluster.topology().is_free(*class)
        };
        !self.ledger.is_limited()
            && self.min_values.is_empty()
            && self.demand.classes.iter().all(is_plain)
            && pods.iter().map(|(_, count)| *count as usize).sum::<usize>() == self.demand.total()
            && !(0..self.snapshot.nodes.len() as u32).any(|node| self.cluster.is_open(NodeSlotId(node)))
    }

    /// Whether any offer could hold a pod of the class.
    fn may_be_bought(&mut self, class: ClassId) -> bool {
        let of = &self.snapshot.classes[class.index()];
        let (market, on_sale) = (self.market, &self.on_sale);
        let fits =
            |offer: usize| on_sale.contains(offer) && market.offer(offer).free.first_lacking(&of.requests).is_none();
        of.problem.is_none() && self.cluster.suiting_offers(class).iter().any(fits)
    }

    /// The bound that was started, if it is about all that is to be bought now.
    pub(super) fn early_bound(&mut self) -> Option<u128> {
        let proving = self.proving.take()?.wait();
        let value = match &proving.bound {
            Proved::Now(bound) => bound.value,
            Proved::Soon(_) => return None,
        };
        self.proving = Some(proving);
        self.planned.is_empty().then_some(value)
    }

    /// A lower bound on the price of what is bought, with its proof.
    pub(super) fn prove_bound(&mut self) -> Option<(u128, BoundProof)> {
        if !self.settings.prove {
            return None;
        }
        let placed = |class: &ClassId| (*class, self.demand.count(*class) - self.left(*class));
        let pods: Vec<(ClassId, u32)> =
            self.demand.classes.iter().map(placed).filter(|(_, count)| *count > 0).collect();
        let proving = match self.proving.take() {
            Some(proving) if proving.pods == pods => proving,
            _ => {
                let packing = self.bound_packing(&pods)?;
                Proving::start(pods, packing.problem, self.settings.budget)
            }
        };
        let Proving { problem, bound: Proved::Now(bound), .. } = proving.wait() else { return None };
        Some((bound.value, BoundProof { problem, certificate: bound.certificate, nodes: Vec::new() }))
    }

    /// The problem of placing some pods, without the rules that a plan could keep otherwise.
    fn bound_packing(&mut self, pods: &[(ClassId, u32)]) -> Option<Packing> {
        let free_room = self.room_before();
        let mut sets = OfferSets::default();
        let mut parts = Vec::with_capacity(pods.len());
        for &(class, count) in pods {
            parts.push(Part { class, offers: self.base_offers(class, &mut sets), count });
        }
        let lowest = lowest_ranks(self.market, &self.planned, self.snapshot.classes.len());
        let among = self.on_sale.clone();
        let mut packing = self.packing(&parts, &sets, &among, Purpose::Bound);
        if packing.problem.rows.is_empty() {
            return None;
        }
        if !self.ledger.is_limited() {
            self.drop_lower_ranks(&mut packing, &lowest);
        }
        self.add_free_room(&mut packing, &free_room);
        Some(packing)
    }

    /// Bins below the least rank that a row's classes used are none of its bins.
    fn drop_lower_ranks(&self, packing: &mut Packing, lowest: &[Option<Rank>]) {
        let ranks: Vec<Rank> = packing.offers.iter().map(|offers| self.market.offer(offers[0]).rank).collect();
        if ranks.windows(2).all(|pair| pair[0] == pair[1]) {
            return;
        }
        for (row, members) in packing.problem.rows.iter_mut().zip(&packing.members) {
            // A class that bought nothing could have bought anywhere.
            let used = members.iter().map(|(class, _)| lowest[class.index()]);
            let Some(least) = used.collect::<Option<Vec<Rank>>>().and_then(|used| used.into_iter().min()) else {
                continue;
            };
            let kept: BitSet = row.bins.iter().filter(|&bin| ranks[bin] >= least).collect();
            row.bins = kept;
        }
    }

    fn add_free_room(&mut self, packing: &mut Packing, free_room: &[(NodeSlotId, Resources)]) {
        let dimensions: Vec<_> = packing.dimensions.clone();
        for (spot, free) in free_room {
            let Some(capacity) = amounts(free, &dimensions, false) else { continue };
            let bin = packing.problem.bins.len();
            let mut used = false;
            for (row, members) in packing.problem.rows.iter_mut().zip(&packing.members) {
                if members.iter().any(|(class, _)| self.cluster.suits(*class, *spot)) {
                    row.bins.insert(bin);
                    used = true;
                }
            }
            if used {
                packing.problem.bins.push(pack::Bin { capacity, price: 0, max_nodes: Some(1) });
            }
        }
    }
}

/// For each class the lowest rank among the offers bought for it.
fn lowest_ranks(market: &crate::market::Market, planned: &[Planned], classes: usize) -> Vec<Option<Rank>> {
    let mut lowest: Vec<Option<Rank>> = vec![None; classes];
    for node in planned.iter().filter(|node| !node.dropped) {
        let rank = market.offer(node.offer as usize).rank;
        for (class, _) in &node.contents {
            let known: &mut Option<Rank> = &mut lowest[ClassId::index(*class)];
            *known = Some(known.map_or(rank, |least| least.min(rank)));
        }
    }
    lowest
}
