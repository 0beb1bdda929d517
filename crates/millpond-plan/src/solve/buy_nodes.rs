//! Buys nodes: packs the pending pods, and assigns pods to the nodes that were bought.

use crate::market::Rank;
use crate::model::ClassId;
use crate::pack::{self, BitSet};

use super::Solver;
use super::bound::Proving;
use super::domains::{OfferSets, Part};
use super::offers;
use super::packing_problem::{Packing, Purpose};

/// Nodes that are looked at to find a place for a pod by moving another.
const MOST_EXCHANGES: usize = 200;

/// Whether nodes are chosen again with surcharges on what is limited ([`super::limits`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Surcharges {
    Try,
    Skip,
}

impl Solver<'_> {
    /// Buys nodes for what is waiting: greater ranks first, each as far as its limits go ([`super::weights`]) and,
    /// where something is limited, higher priorities first.
    pub(super) fn buy(&mut self) {
        if let Some((packing, pods)) = self.plain.take() {
            debug_assert!(self.would_buy(&packing), "what is proved is what is bought");
            self.buy_plain(packing, pods);
            return;
        }
        let mut sets = OfferSets::to_fill();
        let ranks = self.ranks();
        for classes in self.priority_groups() {
            for (index, among) in ranks.iter().enumerate() {
                self.buy_of_rank(&classes, &mut sets, among);
                if index + 1 < ranks.len() {
                    self.top_up(&classes, &mut sets, among);
                }
            }
        }
    }

    fn priority_groups(&self) -> Vec<Vec<ClassId>> {
        let waiting = self.waiting();
        if !self.ledger.is_limited() {
            return vec![waiting];
        }
        let priority = |class: &ClassId| self.snapshot.classes[class.index()].priority;
        waiting.chunk_by(|a, b| priority(a) == priority(b)).map(<[ClassId]>::to_vec).collect()
    }

    /// Offers of each rank, highest rank first.
    pub(super) fn ranks(&self) -> Vec<BitSet> {
        let of_rank = |rank: Rank| self.on_sale.iter().filter(|&offer| self.market.offer(offer).rank == rank).collect();
        self.market.ranks().into_iter().map(of_rank).filter(|among: &BitSet| !among.is_empty()).collect()
    }

    /// Packs parts into offers and buys what the kernel chooses. Surcharges on what is limited are tried if asked for.
    pub(super) fn buy_among(&mut self, parts: &[Part], sets: &OfferSets, among: &BitSet, surcharges: Surcharges) {
        let packing = self.packing(parts, sets, among, Purpose::Plan);
        if packing.problem.rows.is_empty() || packing.problem.bins.is_empty() {
            return;
        }
        let solution = match surcharges {
            Surcharges::Try => self.choose_within_limits(&packing),
            Surcharges::Skip => self.choose_nodes(&packing),
        };
        self.buy_chosen(packing, &solution, sets, among);
    }

    /// Whether the problem of all that is waiting is this one.
    fn would_buy(&mut self, packing: &Packing) -> bool {
        let mut sets = OfferSets::to_fill();
        let waiting = self.waiting();
        let parts = self.deal(&waiting, &mut sets);
        let on_sale = self.on_sale.clone();
        self.packing(&parts, &sets, &on_sale, Purpose::Plan).problem == packing.problem
    }

    /// Buys for all pods at once, where no rule is about more than a pod and its node.
    fn buy_plain(&mut self, mut packing: Packing, pods: Vec<(ClassId, u32)>) {
        if packing.problem.bins.is_empty() {
            return;
        }
        let (choice, bound) = pack::choose_and_bound(&packing.problem, self.settings.budget);
        self.proving = Some(Proving::done(pods, std::mem::take(&mut packing.problem), bound));
        self.buy_chosen(packing, &choice, &OfferSets::default(), &BitSet::new());
    }

    fn buy_chosen(&mut self, packing: Packing, solution: &pack::Choice, sets: &OfferSets, among: &BitSet) {
        self.work += solution.work;
        let is_ruled = |members: &Vec<(ClassId, u32)>| members.iter().any(|(class, _)| self.is_ruled(*class));
        let ruled_rows: Vec<bool> = packing.members.iter().map(is_ruled).collect();
        let ruled = ruled_rows.contains(&true);
        if ruled {
            self.add_planned_nodes();
        }
        let mut rows = Rows::new(packing, ruled_rows);
        for group in &solution.nodes {
            for _ in 0..group.multiplicity {
                if !self.buy_node(group, &mut rows) {
                    break;
                }
            }
        }
        if ruled {
            self.exchange_leftovers(&mut rows);
            self.place_leftovers(&rows, sets, among);
        }
    }

    /// Fills slots that stayed empty: with unplaced pods of the same row, or with pods of other nodes whose slots
    /// unplaced pods can use.
    fn exchange_leftovers(&mut self, rows: &mut Rows) {
        for (row, node) in std::mem::take(&mut rows.empty_slots) {
            for index in 0..rows.packing.members[row].len() {
                let (class, left) = rows.packing.members[row][index];
                let left = left.min(self.left(class));
                if left > 0 && (self.put_checked(node, class, 1) == 1 || self.exchange(class, node, row, rows)) {
                    rows.packing.members[row][index].1 -= 1;
                    break;
                }
            }
        }
    }

    /// Brings a pod from another node to an empty slot, and puts one of the class in its place.
    fn exchange(&mut self, class: ClassId, empty: usize, row: usize, rows: &Rows) -> bool {
        let of_row = |other: ClassId| rows.packing.members[row].iter().any(|(member, _)| *member == other);
        for &node in rows.nodes[row].iter().filter(|node| **node != empty).take(MOST_EXCHANGES) {
            for (other, _) in self.planned[node].contents.clone() {
                if other == class || !of_row(other) || !self.may_hold(empty, other) {
                    continue;
                }
                self.take_off(node, other, 1);
                if self.put_checked(node, class, 1) == 1 {
                    self.put(empty, other, 1);
                    return true;
                }
                self.put(node, other, 1);
            }
        }
        false
    }

    /// Pods that found no slot, for rules about the host: on other nodes that were bought for the same domain, or on
    /// nodes of their own there, so that what was dealt to each zone stays as it was dealt.
    fn place_leftovers(&mut self, rows: &Rows, sets: &OfferSets, among: &BitSet) {
        for (members, set) in rows.packing.members.iter().zip(&rows.packing.sets) {
            let mut offers = sets.get(*set).clone();
            offers.intersect(among);
            for &(class, left) in members.iter().filter(|(_, left)| *left > 0) {
                self.place_among(class, left, &offers);
            }
        }
    }

    /// Buys one node and fills it; not if a limit is in the way.
    fn buy_node(&mut self, group: &pack::NodeGroup, rows: &mut Rows) -> bool {
        let Some(offer) = self.choose_offer(group, rows) else { return false };
        let node = self.add_planned(offer);
        for &(row, count) in &group.contents {
            self.fill_slots(node, row, count as u32, rows);
        }
        self.empty_if_inflexible(node);
        if self.planned[node].contents.is_empty() {
            self.give_back(node);
        }
        true
    }

    /// The offer that a node of a bin is bought from.
    fn choose_offer(&self, group: &pack::NodeGroup, rows: &Rows) -> Option<usize> {
        let all = &rows.packing.offers[group.bin];
        let wanted = if self.has_node_preferences { rows.next(group) } else { Vec::new() };
        let choose = |offers: &[usize]| offers::choose(offers, &wanted, &self.balance, self.market, self.snapshot);
        if !self.ledger.is_limited() {
            return choose(all);
        }
        let allowed: Vec<usize> = all.iter().copied().filter(|&offer| self.ledger.allows(offer).is_ok()).collect();
        choose(&allowed)
    }

    /// Gives slots of a row on a node to pods of the classes in it. Slots that rules about the host leave empty
    /// stay so; their pods are placed one by one later.
    fn fill_slots(&mut self, node: usize, row: usize, count: u32, rows: &mut Rows) {
        let mut left = count;
        let members = rows.packing.members[row].len();
        let ruled = rows.ruled[row];
        let mut tried = 0;
        while left > 0 && tried < members {
            let index = (rows.cursor[row] + tried) % members;
            let (class, waiting) = rows.packing.members[row][index];
            let mut taken = waiting.min(left).min(self.left(class));
            if ruled {
                taken = self.put_checked(node, class, taken);
            } else if taken > 0 {
                self.put(node, class, taken);
            }
            rows.packing.members[row][index].1 -= taken;
            left -= taken;
            tried += 1;
        }
        if ruled {
            rows.nodes[row].push(node);
            rows.empty_slots.extend((0..left).map(|_| (row, node)));
        }
        rows.advance(row, ruled);
    }

    pub(super) fn put_checked(&mut self, node: usize, class: ClassId, most: u32) -> u32 {
        let mut taken = 0;
        while taken < most && self.may_hold(node, class) {
            self.put(node, class, 1);
            taken += 1;
        }
        taken
    }

    /// Whether rules about the host allow one more pod of a class on a planned node.
    fn may_hold(&mut self, node: usize, class: ClassId) -> bool {
        let spot = self.spot_of(node);
        self.cluster.check_host(class, spot).is_ok() && self.stays_flexible(node, class)
    }

    /// Whether pods of a class must be checked in the cluster state before they are put on a new node.
    fn is_ruled(&self, class: ClassId) -> bool {
        self.cluster.topology().has_host_rules(class) || !self.snapshot.classes[class.index()].host_ports.is_empty()
    }

    /// Puts all planned nodes in the cluster state; from now on they stay there.
    pub(super) fn add_planned_nodes(&mut self) {
        if self.in_cluster_state {
            return;
        }
        self.in_cluster_state = true;
        for index in 0..self.planned.len() {
            let spot = self.cluster.open(self.planned[index].offer as usize);
            for &(class, count) in &self.planned[index].contents {
                self.cluster.place(class, spot, count);
            }
        }
    }
}

/// The pods left of each row.
struct Rows {
    packing: Packing,
    /// Whether pods of each row must be checked in the cluster state before they are put on a new node.
    ruled: Vec<bool>,
    /// For each row, the class whose pods come next.
    cursor: Vec<usize>,
    /// Nodes with pods of each row, and slots that rules about the host left empty: row and node.
    nodes: Vec<Vec<usize>>,
    empty_slots: Vec<(usize, usize)>,
}

impl Rows {
    fn new(packing: Packing, ruled: Vec<bool>) -> Self {
        let rows = packing.members.len();
        Self { ruled, cursor: vec![0; rows], nodes: vec![Vec::new(); rows], empty_slots: Vec::new(), packing }
    }

    /// The classes that will probably go on a node, to ask what they like.
    fn next(&self, group: &pack::NodeGroup) -> Vec<(ClassId, u32)> {
        let next = |&(row, count): &(usize, u64)| {
            let members = &self.packing.members[row];
            let (class, _) = members[self.cursor[row] % members.len()];
            (class, count as u32)
        };
        group.contents.iter().map(next).collect()
    }

    /// Goes on with the next class that has pods. Classes with rules about the host take turns: those of one
    /// group may not meet on a node.
    fn advance(&mut self, row: usize, take_turns: bool) {
        let members = &self.packing.members[row];
        if take_turns {
            self.cursor[row] = (self.cursor[row] + 1) % members.len();
        }
        let ended = |index: usize| members[index].1 == 0;
        for _ in 0..members.len() {
            if !ended(self.cursor[row]) {
                break;
            }
            self.cursor[row] = (self.cursor[row] + 1) % members.len();
        }
    }
}
