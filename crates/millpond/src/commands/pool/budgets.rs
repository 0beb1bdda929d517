//! When the nodes of a pool may go: its policy and its budgets, in words and for scripts.

use std::fmt::Write as _;

use millpond_plan::disruption::{BudgetLedger, REASONS, Window};
use millpond_plan::model::{Budget, Consolidation, Disruption, DisruptionReason, Nodes, PoolId, Seconds, Snapshot};
use serde_json::{Value, json};

use super::summary::PoolSummary;
use crate::commands::format::span;
use crate::commands::node_totals::moment;
use crate::commands::table::{Side, Table};

/// The name of what consolidation looks at.
pub(super) fn policy(disruption: &Disruption) -> &'static str {
    match (disruption.consolidate_after, disruption.policy) {
        (None, _) => "Never",
        (_, Consolidation::WhenEmpty) => "WhenEmpty",
        (_, Consolidation::WhenEmptyOrUnderutilized) => "WhenEmptyOrUnderutilized",
        (_, Consolidation::Balanced) => "Balanced",
    }
}

/// The number of nodes that the budgets of a pool allow now, and when that changes.
pub(super) struct Budgets<'s> {
    snapshot: &'s Snapshot,
    pool: PoolId,
    ledger: BudgetLedger,
}

impl<'s> Budgets<'s> {
    pub(super) fn new(snapshot: &'s Snapshot, pool: PoolId) -> Self {
        Self { snapshot, pool, ledger: BudgetLedger::new(snapshot) }
    }

    fn disruption(&self) -> &'s Disruption {
        &self.snapshot.pools[self.pool.index()].disruption
    }

    /// Policy, budgets, and what they come to.
    pub(super) fn add_to(&self, page: &mut String, pool: &PoolSummary<'_>) {
        let disruption = self.disruption();
        let quiet = match disruption.consolidate_after {
            Some(0) => ", at once".to_owned(),
            Some(after) => format!(", {} after a pod came or went", span(after)),
            None => String::new(),
        };
        let age = disruption.expire_after.map_or_else(|| "never".to_owned(), |age| format!("after {}", span(age)));
        _ = writeln!(page, "\nNodes may go: {}{quiet}; they expire {age}", policy(disruption));
        if pool.pool.replicas.is_some() {
            _ = writeln!(page, "  The pool has a fixed number of nodes: none goes because it is empty or underused");
        }
        let mut table = Table::new(&[
            ("BUDGET", Side::Left),
            ("FOR", Side::Left),
            ("WHEN", Side::Left),
            ("HOLDS NOW", Side::Left),
            ("CHANGES", Side::Left),
        ]);
        for budget in &disruption.budgets {
            let holds = self.holds(budget);
            table.row(vec![
                nodes(budget.nodes),
                reasons(budget),
                when(budget),
                holds.as_ref().map_or_else(Clone::clone, |holds| if holds.0 { "yes" } else { "no" }.to_owned()),
                self.time(holds.ok().and_then(|(_, next)| next)),
            ]);
        }
        if !disruption.budgets.is_empty() {
            table.add_to(page);
            _ = writeln!(page);
        }
        let mut table = Table::new(&[
            ("REASON", Side::Left),
            ("AT ONCE", Side::Right),
            ("AWAY", Side::Right),
            ("MORE MAY GO NOW", Side::Right),
            ("NEXT CHANCE", Side::Left),
        ]);
        let number = |number: Option<u64>| number.map_or_else(|| "any".to_owned(), |number| number.to_string());
        for reason in REASONS {
            let left = self.ledger.left(self.pool, reason);
            table.row(vec![
                reason.name().to_owned(),
                number(self.ledger.allowance(self.pool, reason).nodes),
                self.ledger.busy(self.pool).to_string(),
                number(left),
                if left == Some(0) { self.time(self.opens(reason)) } else { "now".to_owned() },
            ]);
        }
        table.add_to(page);
    }

    /// Whether a budget holds, and when that changes; or why that is unknown.
    fn holds(&self, budget: &Budget) -> Result<(bool, Option<Seconds>), String> {
        let Some(schedule) = &budget.schedule else { return Ok((true, None)) };
        let window = Window::new(schedule).map_err(|error| error.to_string())?;
        Ok((window.holds(self.snapshot.now), window.next_change(self.snapshot.now)))
    }

    /// When one more may go, as far as the clock decides.
    fn opens(&self, reason: DisruptionReason) -> Option<Seconds> {
        self.ledger.opens(self.pool, reason, self.snapshot.now)
    }

    fn time(&self, then: Option<Seconds>) -> String {
        let told = then.and_then(|then| Some(format!("{} (in {})", moment(then)?, span(then - self.snapshot.now))));
        told.unwrap_or_else(|| "-".to_owned())
    }

    /// For scripts.
    pub(super) fn view(&self) -> Value {
        let disruption = self.disruption();
        let budgets: Vec<Value> = disruption
            .budgets
            .iter()
            .map(|budget| {
                let holds = self.holds(budget);
                json!({
                    "nodes": nodes(budget.nodes),
                    "reasons": budget.reasons.iter().map(|reason| reason.name()).collect::<Vec<_>>(),
                    "schedule": budget.schedule.as_ref().map(|schedule| &schedule.cron),
                    "timeZone": budget.schedule.as_ref().and_then(|schedule| schedule.time_zone.as_ref()),
                    "durationSeconds": budget.schedule.as_ref().map(|schedule| schedule.duration),
                    "holds": holds.as_ref().ok().map(|(holds, _)| holds),
                    "changes": holds.as_ref().ok().and_then(|(_, next)| moment((*next)?)),
                    "error": holds.as_ref().err(),
                })
            })
            .collect();
        let reasons: Vec<Value> = REASONS
            .into_iter()
            .map(|reason| {
                json!({
                    "reason": reason.name(),
                    "atOnce": self.ledger.allowance(self.pool, reason).nodes,
                    "away": self.ledger.busy(self.pool),
                    "left": self.ledger.left(self.pool, reason),
                    "opens": self.opens(reason).and_then(moment),
                })
            })
            .collect();
        json!({
            "consolidation": policy(disruption),
            "consolidateAfterSeconds": disruption.consolidate_after,
            "expireAfterSeconds": disruption.expire_after,
            "budgets": budgets,
            "reasons": reasons,
        })
    }
}

fn nodes(nodes: Nodes) -> String {
    match nodes {
        Nodes::Count(count) => count.to_string(),
        Nodes::Percent(percent) => format!("{percent}%"),
    }
}

fn reasons(budget: &Budget) -> String {
    let names: Vec<&str> = budget.reasons.iter().map(|reason| reason.name()).collect();
    if names.is_empty() { "every reason".to_owned() } else { names.join(", ") }
}

fn when(budget: &Budget) -> String {
    budget.schedule.as_ref().map_or_else(
        || "always".to_owned(),
        |schedule| {
            let zone = schedule.time_zone.as_deref().filter(|zone| !zone.is_empty()).unwrap_or("UTC");
            format!("`{}` {zone} for {}", schedule.cron, span(schedule.duration))
        },
    )
}
