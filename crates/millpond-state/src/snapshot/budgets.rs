//! PodDisruptionBudgets with the disruptions that they allow now: their status, or where it is missing, what the
//! disruption controller would compute.

use millpond_plan::model::PodDisruptionBudget;

use super::Taking;
use super::pods::selected;
use crate::objects::text::CountOrShare;
use crate::state::{BudgetEntry, PodEntry, PodPhase};

impl Taking<'_> {
    pub(super) fn disruption_budgets(&mut self, pods: &[(&str, &str, &PodEntry)]) {
        let state = self.state;
        for (namespace, budgets) in &state.budgets {
            for (name, entry) in budgets {
                let allowed = entry.allowed.unwrap_or_else(|| self.allowed(namespace, entry, pods));
                let budget = PodDisruptionBudget {
                    name: format!("{namespace}/{name}"),
                    namespace: self.snapshot.symbols.intern(namespace),
                    selector: entry.selector.clone(),
                    allowed,
                    unhealthy_always: entry.unhealthy_always,
                };
                self.snapshot.disruption_budgets.push(budget);
            }
        }
    }

    fn allowed(&self, namespace: &str, entry: &BudgetEntry, pods: &[(&str, &str, &PodEntry)]) -> u32 {
        let Some(selector) = &entry.selector else { return 0 };
        let first = pods.partition_point(|(other, ..)| *other < namespace);
        let here = pods[first..].iter().take_while(|(other, ..)| *other == namespace);
        let ours = here.filter(|(.., pod)| selected(selector, &pod.shape.class.labels, self));
        let (mut expected, mut healthy) = (0u32, 0u32);
        for (.., pod) in ours {
            expected += 1;
            healthy += u32::from(pod.ready && pod.phase == PodPhase::Bound);
        }
        // Shares are rounded up, both of what must stay and of what may go.
        let of = |number: &CountOrShare| match number {
            CountOrShare::Count(count) => *count,
            CountOrShare::Percent(percent) => {
                u32::try_from((u64::from(*percent) * u64::from(expected)).div_ceil(100)).unwrap_or(u32::MAX)
            }
        };
        let stay = match (&entry.min_available, &entry.max_unavailable) {
            (Some(least), _) => of(least),
            (None, Some(most)) => expected.saturating_sub(of(most)),
            (None, None) => expected,
        };
        healthy.saturating_sub(stay)
    }
}
