//! How far the plan of the journal is, without its content: what the agent decides by, and what it reports.

use millpond_api::byoh::PlanProgress;

use crate::journal::{Journal, Outcome};

/// The journal in short.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// Greatest epoch that was ever begun.
    pub epoch: i64,
    /// Machine of the plan that is on the host, if one is.
    pub machine_uid: Option<String>,
    /// Whether the plan is being undone.
    pub resetting: bool,
    /// The outcome of the last plan.
    pub outcome: Option<Outcome>,
    /// Why the last attempt to reset failed.
    pub reset_failure: Option<String>,
}

/// Phases of a plan, as `status.plan.phase` has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Its steps are done one after another.
    Applying,
    /// All of them are done.
    Applied,
    /// One failed.
    Failed,
    /// It is being undone.
    Resetting,
    /// It is undone.
    Reset,
    /// It could not be undone.
    ResetFailed,
}

impl Phase {
    /// As objects write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Applying => "Applying",
            Self::Applied => "Applied",
            Self::Failed => "Failed",
            Self::Resetting => "Resetting",
            Self::Reset => "Reset",
            Self::ResetFailed => "ResetFailed",
        }
    }
}

impl Progress {
    /// The progress that a journal tells of.
    pub fn of(journal: &Journal) -> Self {
        Self {
            epoch: journal.epoch,
            machine_uid: journal.plan.as_ref().map(|plan| plan.machine_uid.clone()),
            resetting: journal.resetting,
            outcome: journal.outcome.clone(),
            reset_failure: None,
        }
    }

    /// Whether anything of a plan is on the host.
    pub fn has_plan(&self) -> bool {
        self.machine_uid.is_some()
    }

    /// Why the plan failed, if it did.
    pub fn failure(&self) -> Option<&str> {
        self.outcome.as_ref()?.failure.as_deref()
    }

    /// The phase of the last plan; `None` before the first.
    pub fn phase(&self) -> Option<Phase> {
        let outcome = self.outcome.as_ref()?;
        Some(match (self.has_plan(), self.resetting) {
            (false, _) => Phase::Reset,
            (true, true) if self.reset_failure.is_some() => Phase::ResetFailed,
            (true, true) => Phase::Resetting,
            (true, false) if outcome.failure.is_some() => Phase::Failed,
            (true, false) if outcome.done < outcome.steps => Phase::Applying,
            (true, false) => Phase::Applied,
        })
    }

    /// `status.plan`.
    pub fn report(&self) -> Option<PlanProgress> {
        let (outcome, phase) = (self.outcome.as_ref()?, self.phase()?);
        let message = self.reset_failure.as_ref().or(outcome.failure.as_ref());
        Some(PlanProgress {
            hash: outcome.hash.clone(),
            epoch: self.epoch,
            steps: outcome.steps as i64,
            done: outcome.done as i64,
            phase: phase.name().to_owned(),
            message: message.cloned().unwrap_or_default(),
        })
    }
}
