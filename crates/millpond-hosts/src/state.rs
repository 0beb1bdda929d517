//! Where a host is in its life, and whether it can be matched: pure functions of the host and a few facts about it.

use millpond_api::byoh::{ByoHost, HostState, names};
use millpond_plan::matching::Availability;

/// The agent's phases of a plan.
pub mod phase {
    /// The agent runs the steps.
    pub const APPLYING: &str = "Applying";
    /// All steps are done.
    pub const APPLIED: &str = "Applied";
    /// A step failed.
    pub const FAILED: &str = "Failed";
    /// The agent takes everything back.
    pub const RESETTING: &str = "Resetting";
    /// Nothing of the plan is left.
    pub const RESET: &str = "Reset";
    /// Something is left.
    pub const RESET_FAILED: &str = "ResetFailed";
}

/// What is known about a host beside its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Life {
    /// The object is being deleted.
    pub deleting: bool,
    /// The agent renews its Lease.
    pub alive: bool,
    /// Seconds since the Lease was last seen renewed.
    pub silent_s: i64,
    /// The Machine that holds the host is being deleted.
    pub leaving: bool,
    /// The host is the Node of its machine.
    pub joined: bool,
}

/// Whether the agent has reported what the host is.
pub fn is_registered(host: &ByoHost) -> bool {
    host.status.facts != byoh_facts() || !host.status.capacity.is_empty()
}

fn byoh_facts() -> millpond_api::byoh::HostFacts {
    millpond_api::byoh::HostFacts::default()
}

/// Whether nothing of an earlier plan is on the host.
pub fn is_clean(host: &ByoHost) -> bool {
    host.status.plan.as_ref().is_none_or(|plan| plan.phase == phase::RESET)
}

/// Whether the last reset failed.
pub fn is_reset_failed(host: &ByoHost) -> bool {
    host.status.plan.as_ref().is_some_and(|plan| plan.phase == phase::RESET_FAILED)
}

/// The phase of the plan of the present claim; empty before the agent has begun.
pub fn phase_of_claim(host: &ByoHost) -> &str {
    let claimed = host.spec.claim.as_ref().map(|claim| claim.epoch);
    let plan = host.status.plan.as_ref().filter(|plan| Some(plan.epoch) == claimed);
    plan.map_or("", |plan| plan.phase.as_str())
}

/// Where a host is in its life.
pub fn state(host: &ByoHost, life: Life) -> HostState {
    if host.spec.claim.is_some() {
        return match phase_of_claim(host) {
            _ if !life.alive => HostState::Offline,
            _ if life.leaving => HostState::Draining,
            "" => HostState::Reserved,
            phase::APPLIED if life.joined => HostState::InUse,
            phase::RESETTING | phase::RESET | phase::RESET_FAILED => HostState::Cleaning,
            _ => HostState::Provisioning,
        };
    }
    if life.deleting {
        return HostState::Retired;
    }
    if !host.is_free() {
        return if life.alive { HostState::Cleaning } else { HostState::Offline };
    }
    match () {
        () if host.spec.quarantine.is_some() => HostState::Quarantined,
        () if !is_registered(host) => HostState::Registering,
        () if !life.alive => HostState::Offline,
        () if !is_clean(host) => HostState::Cleaning,
        () => HostState::Available,
    }
}

/// Whether a host can be given to a machine, and if not, why.
pub fn availability(host: &ByoHost, life: Life) -> Availability {
    if let Some(claim) = &host.spec.claim {
        return Availability::Attached { machine: claim.name.clone() };
    }
    if life.deleting {
        return Availability::Deleting;
    }
    if host.status.machine_ref.is_some() {
        return Availability::Cleaning;
    }
    if let Some(cluster) = host.metadata.labels.get(names::CLUSTER_NAME) {
        let machine = host.metadata.labels.get(names::BYO_MACHINE).unwrap_or(cluster);
        return Availability::Attached { machine: machine.clone() };
    }
    match &host.spec.quarantine {
        Some(quarantine) => Availability::Quarantined { reason: quarantine.reason.clone() },
        None if host.metadata.annotations.contains_key(names::PAUSED) => Availability::Paused,
        None if !is_registered(host) => Availability::Registering,
        None if !life.alive => Availability::LeaseExpired { seconds: life.silent_s },
        None if !is_clean(host) => Availability::Cleaning,
        None => Availability::Free,
    }
}

#[cfg(test)]
mod tests {
    use millpond_api::byoh::{Claim, ObjectReference, PlanProgress, Quarantine};

    use super::*;

    fn host() -> ByoHost {
        let mut host = ByoHost::default();
        host.status.facts.cpu.threads = 4;
        host
    }

    fn plan(epoch: i64, phase: &str) -> PlanProgress {
        PlanProgress { epoch, phase: phase.to_owned(), ..PlanProgress::default() }
    }

    const ALIVE: Life = Life { deleting: false, alive: true, silent_s: 0, leaving: false, joined: false };
    const DEAD: Life = Life { alive: false, silent_s: 90, ..ALIVE };

    #[test]
    fn a_host_goes_round() {
        let mut host = ByoHost::default();
        assert_eq!(state(&host, ALIVE), HostState::Registering);
        host.status.facts.cpu.threads = 4;
        assert_eq!((state(&host, ALIVE), availability(&host, ALIVE)), (HostState::Available, Availability::Free));
        assert_eq!(state(&host, DEAD), HostState::Offline);
        assert_eq!(availability(&host, DEAD), Availability::LeaseExpired { seconds: 90 });
        host.spec.claim = Some(Claim { name: "m".into(), epoch: 2, ..Claim::default() });
        host.status.plan = Some(plan(1, phase::RESET));
        assert_eq!(state(&host, ALIVE), HostState::Reserved, "a plan of an older claim says nothing");
        assert_eq!(availability(&host, ALIVE), Availability::Attached { machine: "m".into() });
        host.status.plan = Some(plan(2, phase::APPLYING));
        assert_eq!(state(&host, ALIVE), HostState::Provisioning);
        host.status.plan = Some(plan(2, phase::APPLIED));
        assert_eq!(state(&host, ALIVE), HostState::Provisioning, "the Node is not there yet");
        assert_eq!(state(&host, Life { joined: true, ..ALIVE }), HostState::InUse);
        assert_eq!(state(&host, Life { joined: true, leaving: true, ..ALIVE }), HostState::Draining);
        assert_eq!(state(&host, Life { joined: true, ..DEAD }), HostState::Offline);
        host.spec.claim = None;
        host.status.machine_ref = Some(ObjectReference::default());
        assert_eq!((state(&host, ALIVE), availability(&host, ALIVE)), (HostState::Cleaning, Availability::Cleaning));
        assert_eq!(state(&host, DEAD), HostState::Offline);
        host.status.machine_ref = None;
        assert_eq!(state(&host, ALIVE), HostState::Cleaning, "what was applied is still there");
        host.status.plan = Some(plan(2, phase::RESET));
        assert_eq!(state(&host, ALIVE), HostState::Available);
    }

    #[test]
    fn hosts_that_are_kept_out() {
        let mut host = host();
        host.spec.quarantine = Some(Quarantine { reason: "disk".into(), since: None });
        assert_eq!(state(&host, ALIVE), HostState::Quarantined);
        assert_eq!(availability(&host, ALIVE), Availability::Quarantined { reason: "disk".into() });
        host.spec.quarantine = None;
        host.metadata.annotations.insert(names::PAUSED.to_owned(), String::new());
        assert_eq!(availability(&host, ALIVE), Availability::Paused);
        assert_eq!(state(&host, Life { deleting: true, ..ALIVE }), HostState::Retired);
        host.metadata.labels.insert(names::CLUSTER_NAME.to_owned(), "other".to_owned());
        assert_eq!(availability(&host, ALIVE), Availability::Attached { machine: "other".into() });
    }
}
