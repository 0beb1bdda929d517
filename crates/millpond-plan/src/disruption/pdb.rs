//! PodDisruptionBudgets as an account: each node that goes takes evictions from what is allowed now.
//!
//! A budget that allows one eviction lets a node with five of its pods go: they leave one after the other. But no second
//! node with such pods goes at the same time, which would only wait.
//!
//! As the eviction API has it, a pod of several budgets cannot be evicted at all. A pod that was not started is not
//! ready; where its budget says `unhealthyPodEvictionPolicy: AlwaysAllow`, it may go for free.

use std::collections::BTreeMap;

use crate::model::{ClassId, PodClass, PodId, Snapshot, selects};

/// Why a pod cannot be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EvictionRefusal {
    /// This budget of [`Snapshot::disruption_budgets`] has nothing left.
    UsedUp(u32),
    /// These two, and perhaps more, are for the pod.
    Several(u32, u32),
}

/// Which budgets are for a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MatchingBudgets {
    None,
    One(u32),
    Several(u32, u32),
}

/// What was taken from budgets: which, how many.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evictions(Vec<(u32, u32)>);

/// What PodDisruptionBudgets still allow.
#[derive(Debug, Clone)]
pub struct EvictionLedger {
    covers: Vec<MatchingBudgets>,
    left: Vec<u32>,
}

impl EvictionLedger {
    /// What they allow now.
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

    /// Whether any budget is for the class.
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

    /// Takes the evictions of the pods of a node, as far as budgets allow them now; nothing if one allows none. The
    /// others follow as their budget recovers: evictions are asked for one by one, and it holds all the while.
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

    /// The same for pods that go in the end, allowed or not.
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

    /// The pods stay after all.
    pub fn give_back(&mut self, evictions: &Evictions) {
        for &(budget, count) in &evictions.0 {
            self.left[budget as usize] += count;
        }
    }

    /// The budget that an eviction is taken from.
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
