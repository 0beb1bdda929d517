//! Preferences of pods, as Karpenter treats them: required at first, relaxed one by one.
//!
//! A class with preferences is replaced by a series of classes, from the most to the least demanding. A pod gives up,
//! in this order: alternatives of its required node affinity (only the first is considered), preferred pod affinity,
//! preferred anti-affinity, preferred node affinity, `ScheduleAnyway` spreads, and last the avoidance of
//! `PreferNoSchedule` taints. Of preferences of one kind the heaviest is given up first.

use std::cmp::Reverse;

use crate::model::{AffinityTerm, ClassId, PodClass, Snapshot, Spread};
use crate::requirement::Requirements;

/// One step of the relaxation of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Level {
    /// The class that replaces the pod's own while a place is looked for.
    pub(super) class: ClassId,
    /// Whether `PreferNoSchedule` taints count as `NoSchedule`.
    pub(super) strict: bool,
}

/// A snapshot extended by the relaxed classes, and an index of them.
pub(super) struct RelaxationLevels {
    /// The snapshot, with the relaxed classes after its own.
    pub(super) snapshot: Snapshot,
    /// For each class of the original snapshot, its levels.
    pub(super) levels: Vec<Vec<Level>>,
}

impl RelaxationLevels {
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
    let mut preferences = Preferences::new(class);
    let mut levels = Vec::new();
    loop {
        let own = preferences.is_empty() && preferences.terms.len() <= 1;
        let stand_in = if own {
            id
        } else {
            with.classes.push(preferences.class(class, with));
            ClassId::from(with.classes.len() - 1)
        };
        levels.push(Level { class: stand_in, strict: soft_taints });
        if !preferences.relax() {
            break;
        }
    }
    if soft_taints && let Some(last) = levels.last().copied() {
        levels.push(Level { strict: false, ..last });
    }
    levels
}

/// The preferences that have not been given up.
struct Preferences {
    terms: Vec<Requirements>,
    near: Vec<AffinityTerm>,
    apart: Vec<AffinityTerm>,
    nodes: Vec<Requirements>,
    spread: Vec<Spread>,
}

impl Preferences {
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

    /// Gives up one preference; returns false if none is left.
    fn relax(&mut self) -> bool {
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
