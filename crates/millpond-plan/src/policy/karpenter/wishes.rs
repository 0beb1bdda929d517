//! Preferences of pods, as Karpenter treats them: required at first, relaxed one by one.
//!
//! A class with wishes gets a row of stand-ins, from the most to the least demanding. The order in which a pod
//! gives in: alternatives of its required node affinity (of which only the first is looked at), preferred pod
//! affinity, preferred anti-affinity, preferred node affinity, soft spreads, and last taints that only discourage.
//! Of preferences of one kind the heaviest goes first.

use std::cmp::Reverse;

use crate::model::{AffinityTerm, ClassId, PodClass, Snapshot, Spread};
use crate::requirement::Requirements;

/// One step of giving in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Level {
    /// The class that stands in for the pod's own where places are looked for.
    pub(super) class: ClassId,
    /// Whether taints that discourage count as forbidding.
    pub(super) strict: bool,
}

/// A snapshot with stand-ins, and which they are.
pub(super) struct Wishes {
    /// The snapshot with the stand-ins behind its own classes.
    pub(super) snapshot: Snapshot,
    /// For each class of the original, its levels.
    pub(super) levels: Vec<Vec<Level>>,
}

impl Wishes {
    pub(super) fn new(snapshot: &Snapshot) -> Self {
        let mut with = snapshot.clone();
        let soft = |pool: &crate::model::Pool| pool.taints.iter().any(|taint| !taint.effect.forbids());
        let soft_taints = snapshot.pools.iter().any(soft);
        let mut levels = Vec::with_capacity(snapshot.classes.len());
        for (index, class) in snapshot.classes.iter().enumerate() {
            levels.push(levels_of(ClassId::from(index), class, soft_taints, &mut with));
        }
        Self { snapshot: with, levels }
    }
}

fn levels_of(id: ClassId, class: &PodClass, soft_taints: bool, with: &mut Snapshot) -> Vec<Level> {
    let mut wish = Wish::new(class);
    let mut levels = Vec::new();
    loop {
        let own = wish.is_empty() && wish.terms.len() <= 1;
        let stand_in = if own {
            id
        } else {
            with.classes.push(wish.class(class, with));
            ClassId::from(with.classes.len() - 1)
        };
        levels.push(Level { class: stand_in, strict: soft_taints });
        if !wish.give_in() {
            break;
        }
    }
    if soft_taints && let Some(last) = levels.last().copied() {
        levels.push(Level { strict: false, ..last });
    }
    levels
}

/// What is still asked for.
struct Wish {
    terms: Vec<Requirements>,
    near: Vec<AffinityTerm>,
    apart: Vec<AffinityTerm>,
    nodes: Vec<Requirements>,
    spread: Vec<Spread>,
}

impl Wish {
    fn new(class: &PodClass) -> Self {
        let mut weighted: Vec<&(i32, AffinityTerm)> = class.affinity_preferences.iter().collect();
        weighted.sort_by_key(|(weight, _)| Reverse(weight.abs()));
        let terms = |near: bool| {
            let of_kind = weighted.iter().filter(move |(weight, _)| (*weight > 0) == near);
            of_kind.map(|(_, term)| term.clone()).collect::<Vec<_>>()
        };
        let mut nodes: Vec<&(i32, Requirements)> = class.node_preferences.iter().collect();
        nodes.sort_by_key(|(weight, _)| Reverse(*weight));
        Self {
            terms: class.node_terms.clone(),
            near: terms(true),
            apart: terms(false),
            nodes: nodes.into_iter().map(|(_, term)| term.clone()).collect(),
            spread: class.spread.iter().filter(|spread| !spread.hard).cloned().collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.near.is_empty() && self.apart.is_empty() && self.nodes.is_empty() && self.spread.is_empty()
    }

    /// Gives one thing up; false if nothing is left.
    fn give_in(&mut self) -> bool {
        if self.terms.len() > 1 {
            self.terms.remove(0);
        } else if !self.near.is_empty() {
            self.near.remove(0);
        } else if !self.apart.is_empty() {
            self.apart.remove(0);
        } else if !self.nodes.is_empty() {
            self.nodes.remove(0);
        } else if !self.spread.is_empty() {
            self.spread.remove(0);
        } else {
            return false;
        }
        true
    }

    fn class(&self, class: &PodClass, snapshot: &Snapshot) -> PodClass {
        let mut term = self.terms.first().cloned();
        if let (Some(term), Some(liked)) = (&mut term, self.nodes.first()) {
            term.add_all(liked, &snapshot.symbols);
        }
        let hard = class.spread.iter().filter(|spread| spread.hard).cloned();
        let wished = self.spread.iter().cloned().map(|spread| Spread { hard: true, ..spread });
        PodClass {
            node_terms: term.into_iter().collect(),
            node_preferences: Vec::new(),
            affinity: class.affinity.iter().chain(&self.near).cloned().collect(),
            anti_affinity: class.anti_affinity.iter().chain(&self.apart).cloned().collect(),
            affinity_preferences: Vec::new(),
            spread: hard.chain(wished).collect(),
            ..class.clone()
        }
    }
}
