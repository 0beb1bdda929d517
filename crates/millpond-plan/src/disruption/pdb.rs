//! PodDisruptionBudgets as an account: each node that is removed takes its evictions from what the budgets allow now.
//!
//! A budget that allows one eviction does not block a node with five of its pods, because the drain evicts them one
//! after the other. No second node with pods of that budget is removed at the same time: its drain would only wait.
//!
//! As in the eviction API, a pod that several budgets match cannot be evicted. A pod that has not started is not ready;
//! if its budget has `unhealthyPodEvictionPolicy: AlwaysAllow`, its eviction takes nothing from the budget.

use std::collections::BTreeMap;

use crate::model::{ClassId, PodClass, PodId, Snapshot, selects};

/// Why a pod cannot be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EvictionRefusal {
    /// This budget, an index into [`Snapshot::disruption_budgets`], allows no further eviction.
    UsedUp(u32),
    /// At least these two budgets match the pod.
    Several(u32, u32),
}

/// The budgets that match a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MatchingBudgets {
    None,
    One(u32),
    Several(u32, u32),
}

/// Evictions taken from budgets, as pairs of budget and number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evictions(Vec<(u32, u32)>);

/// What PodDisruptionBudgets still allow.
#[derive(Debug, Clone)]
pub struct EvictionLedger {
    covers: Vec<MatchingBudgets>,
    left: Vec<u32>,
}

impl EvictionLedger {
    /// Starts from the disruptions that each budget allows now.
    pub fn new(snapshot: &Snapshot) -> Self {
        let mut by_namespace: BTreeMap<_, Vec<u32>> = BTreeMap::new();
        for (index, budget) in snapshot.disruption_budgets.iter().enumerate() {
            by_namespace.entry(budget.namespace).or_default().push(index as u32);
        }
        let cover = |class: &PodClass| {
            let near = by_namespace.get(&class.namespace).map_or(&[][..], Vec::as_slice);
            let mut found = near.iter().copied().filter(|&index| {
                let selector = snapshot.disruption_budgets[index as usize].selector.as_ref();
                selector.is_some_and(|selector| selects(selector, &class.labels, &snapshot.symbols))
            });
            match (found.next(), found.next()) {
                (None, _) => MatchingBudgets::None,
                (Some(one), None) => MatchingBudgets::One(one),
                (Some(one), Some(other)) => MatchingBudgets::Several(one, other),
            }
        };
        Self {
            covers: snapshot.classes.iter().map(cover).collect(),
            left: snapshot.disruption_budgets.iter().map(|budget| budget.allowed).collect(),
        }
    }

    /// Whether a budget matches the class.
    pub fn covers(&self, class: ClassId) -> bool {
        self.covers[class.index()] != MatchingBudgets::None
    }

    /// Evictions that a budget still allows.
    pub fn left(&self, budget: usize) -> u32 {
        self.left[budget]
    }

    /// Whether a pod could be evicted now.
    pub fn check(&self, snapshot: &Snapshot, pod: PodId) -> Result<(), EvictionRefusal> {
        match self.charge(snapshot, pod)? {
            Some(budget) if self.left[budget as usize] == 0 => Err(EvictionRefusal::UsedUp(budget)),
            _ => Ok(()),
        }
    }

    /// Takes the evictions of a node's pods, as far as the budgets allow them now. Fails and takes nothing if a budget
    /// of one of them allows no eviction. The drain requests evictions one by one, so the remaining pods follow as
    /// their budget recovers.
    pub fn take(
        &mut self,
        snapshot: &Snapshot,
        pods: impl Iterator<Item = PodId>,
    ) -> Result<Evictions, (PodId, EvictionRefusal)> {
        let mut wanted: BTreeMap<u32, u32> = BTreeMap::new();
        for pod in pods {
            self.check(snapshot, pod).map_err(|blocker| (pod, blocker))?;
            if let Ok(Some(budget)) = self.charge(snapshot, pod) {
                *wanted.entry(budget).or_default() += 1;
            }
        }
        Ok(self.take_left(wanted))
    }

    /// Like [`Self::take`] for pods that are removed in the end even if a budget allows no eviction now.
    pub fn take_what_is_allowed(&mut self, snapshot: &Snapshot, pods: impl Iterator<Item = PodId>) -> Evictions {
        let mut wanted: BTreeMap<u32, u32> = BTreeMap::new();
        for budget in pods.filter_map(|pod| self.charge(snapshot, pod).ok().flatten()) {
            *wanted.entry(budget).or_default() += 1;
        }
        self.take_left(wanted)
    }

    fn take_left(&mut self, wanted: BTreeMap<u32, u32>) -> Evictions {
        let taken = wanted.into_iter().map(|(budget, count)| {
            let left = &mut self.left[budget as usize];
            let taken = count.min(*left);
            *left -= taken;
            (budget, taken)
        });
        Evictions(taken.collect())
    }

    /// Reverts [`Self::take`]: the pods stay.
    pub fn give_back(&mut self, evictions: &Evictions) {
        for &(budget, count) in &evictions.0 {
            self.left[budget as usize] += count;
        }
    }

    /// The budget that pays for an eviction; `None` if none has to.
    fn charge(&self, snapshot: &Snapshot, pod: PodId) -> Result<Option<u32>, EvictionRefusal> {
        let of = &snapshot.pods[pod.index()];
        match self.covers[of.class.index()] {
            MatchingBudgets::None => Ok(None),
            MatchingBudgets::Several(one, other) => Err(EvictionRefusal::Several(one, other)),
            MatchingBudgets::One(budget) => {
                let free = of.started.is_none() && snapshot.disruption_budgets[budget as usize].unhealthy_always;
                Ok((!free).then_some(budget))
            }
        }
    }
}
