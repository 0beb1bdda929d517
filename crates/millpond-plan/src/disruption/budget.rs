//! Disruption budgets: how many nodes of a pool may be disrupted now, and when that changes.
//!
//! Of the budgets that hold and are for the reason, the least counts; a percentage is of the pool's initialised nodes
//! and rounds up. Nodes that leave already, for whatever reason, and nodes that are not ready use the budget up. A
//! budget whose schedule cannot be understood allows nothing.
//!
//! Expiry keeps to budgets like every other reason. Karpenter's does not: there, a pool whose nodes were all made in
//! one hour loses them all in one hour.

use super::window::{ScheduleError, Window};
use crate::model::{Budget, DisruptionReason, Node, NodeState, Nodes, Pool, PoolId, Seconds, Snapshot};

/// How many changes of budgets are followed to find the next time that a node may go.
const MAX_CHANGES: usize = 1_000;

/// What the budgets of a pool allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowance {
    /// Nodes that may be away at once; none for any number.
    pub nodes: Option<u64>,
    /// Which of the pool's budgets says so.
    pub budget: Option<usize>,
    /// Why that budget cannot be understood, if so.
    pub error: Option<ScheduleError>,
}

/// The budgets of a pool, understood.
#[derive(Debug)]
pub struct PoolBudgets {
    budgets: Vec<(Budget, Result<Option<Window>, ScheduleError>)>,
}

impl PoolBudgets {
    /// Understands the budgets of a pool.
    pub fn new(pool: &Pool) -> Self {
        let understand = |budget: &Budget| {
            let window = budget.schedule.as_ref().map(Window::new).transpose();
            (budget.clone(), window)
        };
        Self { budgets: pool.disruption.budgets.iter().map(understand).collect() }
    }

    /// What they allow at a time, of so many nodes.
    pub fn allowance(&self, nodes: u64, reason: DisruptionReason, now: Seconds) -> Allowance {
        let mut least = Allowance { nodes: None, budget: None, error: None };
        for (index, (budget, window)) in self.budgets.iter().enumerate() {
            if !budget.reasons.is_empty() && !budget.reasons.contains(&reason) {
                continue;
            }
            let allowed = match window {
                Err(_) => 0,
                Ok(Some(window)) if !window.holds(now) => continue,
                Ok(_) => budget.nodes.of(nodes),
            };
            if least.nodes.is_none_or(|nodes| allowed < nodes) {
                least = Allowance { nodes: Some(allowed), budget: Some(index), error: window.clone().err() };
            }
        }
        least
    }

    /// When one of them begins or ends to hold after now.
    pub fn next_change(&self, now: Seconds) -> Option<Seconds> {
        let windows = self.budgets.iter().filter_map(|(_, window)| window.as_ref().ok()?.as_ref());
        windows.filter_map(|window| window.next_change(now)).min()
    }

    /// The first time from now on at which more than `busy` of so many nodes may be away.
    pub fn opens(&self, nodes: u64, busy: u64, reason: DisruptionReason, now: Seconds) -> Option<Seconds> {
        let mut time = now;
        for _ in 0..MAX_CHANGES {
            if self.allowance(nodes, reason, time).nodes.is_none_or(|allowed| allowed > busy) {
                return Some(time);
            }
            time = self.next_change(time)?;
        }
        None
    }
}

impl Nodes {
    /// So many of a pool's nodes.
    fn of(self, nodes: u64) -> u64 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => (nodes.saturating_mul(u64::from(percent))).div_ceil(100),
        }
    }
}

/// The first mistake in the schedules of a pool's budgets, with the budget's place.
pub fn first_mistake(budgets: &[Budget]) -> Option<(usize, ScheduleError)> {
    let schedules = budgets.iter().enumerate().filter_map(|(index, budget)| Some((index, budget.schedule.as_ref()?)));
    schedules.map(|(index, schedule)| (index, Window::new(schedule))).find_map(|(index, window)| {
        let error = window.err()?;
        Some((index, error))
    })
}

/// What is left of all budgets while a plan is made.
#[derive(Debug)]
pub struct BudgetLedger {
    pools: Vec<PoolLedger>,
}

#[derive(Debug)]
struct PoolLedger {
    budgets: PoolBudgets,
    nodes: u64,
    busy: u64,
    /// By reason, in the order of [`REASONS`].
    allowances: [Allowance; 4],
}

/// All reasons, in the order of the enum.
pub const REASONS: [DisruptionReason; 4] =
    [DisruptionReason::Empty, DisruptionReason::Drifted, DisruptionReason::Expired, DisruptionReason::Underutilized];

impl BudgetLedger {
    /// What the budgets allow now.
    pub fn new(snapshot: &Snapshot) -> Self {
        let mut counts = vec![(0, 0); snapshot.pools.len()];
        for node in &snapshot.nodes {
            if let (Some(pool), Some(_)) = (node.pool, node.initialized) {
                counts[pool.index()].0 += 1;
                counts[pool.index()].1 += u64::from(uses_budget(node));
            }
        }
        let pool = |(pool, (nodes, busy)): (&Pool, (u64, u64))| {
            let budgets = PoolBudgets::new(pool);
            let allowances = REASONS.map(|reason| budgets.allowance(nodes, reason, snapshot.now));
            PoolLedger { budgets, nodes, busy, allowances }
        };
        Self { pools: snapshot.pools.iter().zip(counts).map(pool).collect() }
    }

    /// What a pool allows for a reason, before what is used up.
    pub fn allowance(&self, pool: PoolId, reason: DisruptionReason) -> &Allowance {
        &self.pools[pool.index()].allowances[reason as usize]
    }

    /// Nodes of the pool that use its budgets up.
    pub fn busy(&self, pool: PoolId) -> u64 {
        self.pools[pool.index()].busy
    }

    /// How many more nodes may go for a reason; none for any number.
    pub fn left(&self, pool: PoolId, reason: DisruptionReason) -> Option<u64> {
        let allowed = self.allowance(pool, reason).nodes?;
        Some(allowed.saturating_sub(self.busy(pool)))
    }

    /// Takes one node away, if that is allowed. All reasons share what is used up.
    pub fn take(&mut self, pool: PoolId, reason: DisruptionReason) -> bool {
        let free = self.left(pool, reason) != Some(0);
        self.pools[pool.index()].busy += u64::from(free);
        free
    }

    /// A node stays after all.
    pub fn give_back(&mut self, pool: PoolId) {
        self.pools[pool.index()].busy -= 1;
    }

    /// It goes after all.
    pub(super) fn take_back(&mut self, pool: PoolId) {
        self.pools[pool.index()].busy += 1;
    }

    /// When the next node of a pool may go for a reason.
    pub fn opens(&self, pool: PoolId, reason: DisruptionReason, now: Seconds) -> Option<Seconds> {
        let ledger = &self.pools[pool.index()];
        ledger.budgets.opens(ledger.nodes, ledger.busy, reason, now)
    }
}

fn uses_budget(node: &Node) -> bool {
    !node.ready || node.state == NodeState::Leaving
}
