//! The order of nodes that can take a job, and when a better one replaces the last answer.

use super::{Candidate, Job, Undisturbed};

/// The parts of a node's rank, most important first; less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score {
    /// CPU demand in MHz.
    pub cpu_demand_mhz: u64,
    /// Free accelerators that the job leaves over: a large gap stays whole for a large job.
    pub gpus_left: u64,
    /// Whether the job would break up a node whose accelerators are all free: those stay together for a job that needs
    /// all of them.
    pub fragments: bool,
    /// Whether the time until a disturbance is only assumed.
    pub is_assumed: bool,
    /// Seconds of undisturbed time that the job does not use: long windows stay for long jobs.
    pub seconds_left: u64,
    /// Memory in use in MiB.
    pub memory_mib: u64,
}

impl Score {
    pub(super) fn of(job: &Job, candidate: &Candidate) -> Self {
        Self {
            cpu_demand_mhz: candidate.cpu_demand_mhz,
            gpus_left: candidate.free_gpus.saturating_sub(job.gpus),
            fragments: job.gpus > 0 && job.gpus < candidate.gpus && candidate.free_gpus == candidate.gpus,
            is_assumed: matches!(candidate.undisturbed, Undisturbed::Assumed(_)),
            seconds_left: candidate.undisturbed.seconds().saturating_sub(job.hours.saturating_mul(3600)),
            memory_mib: candidate.memory_mib,
        }
    }
}

/// How much better another node has to be before it replaces the last answer. CPU demand changes with every poll; an
/// answer that follows each change is of no use to the job that starts with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hysteresis {
    /// Percent of the CPU demand of the previous choice.
    pub percent: u64,
    /// Minimum of that margin in MHz.
    pub least_mhz: u64,
}

impl Default for Hysteresis {
    /// A fifth, but at least a tenth of one core at 2.5 GHz.
    fn default() -> Self {
        Self { percent: 20, least_mhz: 250 }
    }
}

impl Hysteresis {
    /// Whether the last answer stays although `best` ranks higher.
    pub(super) fn keeps(&self, last: &Score, best: &Score) -> bool {
        let gain = last.cpu_demand_mhz.saturating_sub(best.cpu_demand_mhz);
        let share = last.cpu_demand_mhz.saturating_mul(self.percent) / 100;
        gain < share.max(self.least_mhz)
    }
}
