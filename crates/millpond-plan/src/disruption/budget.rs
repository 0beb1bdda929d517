//! Disruption budgets: how many nodes of a pool may be disrupted now, and when that number changes.
//!
//! Of the budgets that are active and apply to the reason, the smallest limit counts. A percentage is of the pool's
//! initialized nodes and rounds up. Nodes that are being removed for any reason, and nodes that are not ready, use the
//! budget up. A budget whose schedule is invalid allows nothing.
//!
//! Expiry respects budgets like every other reason. Karpenter's expiry ignores them, so a pool whose nodes were all
//! created within one hour loses them all within one hour.

use super::window::{ScheduleError, Window};
use crate::model::{Budget, DisruptionReason, Node, NodeState, Nodes, Pool, PoolId, Seconds, Snapshot};

/// Limit on the schedule changes that [`PoolBudgets::opens`] follows to find the next time at which a node may be
/// removed.
const MAX_CHANGES: usize = 1_000;

/// How many nodes the budgets of a pool allow to be disrupted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowance {
    /// Nodes that may be disrupted at the same time; `None` means no limit.
    pub nodes: Option<u64>,
    /// Index of the pool's budget that sets this limit.
    pub budget: Option<usize>,
    /// Why the schedule of that budget is invalid, if it is.
    pub error: Option<ScheduleError>,
}

/// The budgets of a pool with their schedules parsed.
#[derive(Debug)]
pub struct PoolBudgets {
    budgets: Vec<(Budget, Result<Option<Window>, ScheduleError>)>,
}

impl PoolBudgets {
    /// Parses the schedules of a pool's budgets.
    pub fn new(pool: &Pool) -> Self {
        let understand = |budget: &Budget| {
            let window = budget.schedule.as_ref().map(Window::new).transpose();
            (budget.clone(), window)
        };
        Self { budgets: pool.disruption.budgets.iter().map(understand).collect() }
    }

    /// The limit at time `now` for a pool with this many nodes.
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

    /// The next time after `now` at which one of the budgets becomes active or inactive.
    pub fn next_change(&self, now: Seconds) -> Option<Seconds> {
        let windows = self.budgets.iter().filter_map(|(_, window)| window.as_ref().ok()?.as_ref());
        windows.filter_map(|window| window.next_change(now)).min()
    }

    /// The first time from `now` on at which more than `busy` of the pool's `nodes` may be disrupted.
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
    /// The limit for a pool with this many nodes.
    fn of(self, nodes: u64) -> u64 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => (nodes.saturating_mul(u64::from(percent))).div_ceil(100),
        }
    }
}

/// The first invalid schedule among a pool's budgets, with the index of its budget.
pub fn first_mistake(budgets: &[Budget]) -> Option<(usize, ScheduleError)> {
    let schedules = budgets.iter().enumerate().filter_map(|(index, budget)| Some((index, budget.schedule.as_ref()?)));
    schedules.map(|(index, schedule)| (index, Window::new(schedule))).find_map(|(index, window)| {
        let error = window.err()?;
        Some((index, error))
    })
}

/// What the budgets of all pools still allow while a plan is made.
#[derive(Debug)]
pub struct BudgetLedger {
    pools: Vec<PoolLedger>,
}

#[derive(Debug)]
struct PoolLedger {
    budgets: PoolBudgets,
    nodes: u64,
    busy: u64,
    /// In the order of [`REASONS`].
    allowances: [Allowance; 4],
}

/// All reasons, in the order of the enum, so that `reason as usize` is the index.
pub const REASONS: [DisruptionReason; 4] =
    [DisruptionReason::Empty, DisruptionReason::Drifted, DisruptionReason::Expired, DisruptionReason::Underutilized];

impl BudgetLedger {
    /// Counts the nodes of each pool and evaluates its budgets at the snapshot's time.
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

    /// The limit of a pool for a reason, without subtracting the nodes that are disrupted already.
    pub fn allowance(&self, pool: PoolId, reason: DisruptionReason) -> &Allowance {
        &self.pools[pool.index()].allowances[reason as usize]
    }

    /// Nodes of the pool that are being removed or are not ready.
    pub fn busy(&self, pool: PoolId) -> u64 {
        self.pools[pool.index()].busy
    }

    /// How many more nodes may be disrupted for a reason; `None` means no limit.
    pub fn left(&self, pool: PoolId, reason: DisruptionReason) -> Option<u64> {
        let allowed = self.allowance(pool, reason).nodes?;
        Some(allowed.saturating_sub(self.busy(pool)))
    }

    /// Counts one more node as disrupted if the budget allows it, and returns whether it did. All reasons share the
    /// count.
    pub fn take(&mut self, pool: PoolId, reason: DisruptionReason) -> bool {
        let free = self.left(pool, reason) != Some(0);
        self.pools[pool.index()].busy += u64::from(free);
        free
    }

    /// Reverts [`Self::take`]: the node stays.
    pub fn give_back(&mut self, pool: PoolId) {
        self.pools[pool.index()].busy -= 1;
    }

    /// Counts a node as disrupted again after [`Self::give_back`], without asking the budget.
    pub(super) fn take_back(&mut self, pool: PoolId) {
        self.pools[pool.index()].busy += 1;
    }

    /// When the budgets next allow a node of the pool to be disrupted for a reason.
    pub fn opens(&self, pool: PoolId, reason: DisruptionReason, now: Seconds) -> Option<Seconds> {
        let ledger = &self.pools[pool.index()];
        ledger.budgets.opens(ledger.nodes, ledger.busy, reason, now)
    }
}

fn uses_budget(node: &Node) -> bool {
    !node.ready || node.state == NodeState::Leaving
}
