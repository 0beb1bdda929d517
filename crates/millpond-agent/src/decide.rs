//! The next action: a pure function of the ByoHost and the journal.

use millpond_api::byoh::{ByoHost, Claim, names};

use crate::progress::{Phase, Progress};

/// What the agent does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Rest,
    /// Makes the plan of the claim, and applies it.
    Apply,
    /// Continues with the plan of the journal.
    Resume,
    /// Undoes the plan of the journal.
    Reset,
}

/// The claim to follow; `None` while the host is being deleted or asked to reset.
pub fn claim(host: &ByoHost) -> Option<&Claim> {
    let is_unwanted = host.metadata.is_deleting() || host.metadata.annotations.contains_key(names::UNREGISTERING);
    host.spec.claim.as_ref().filter(|_| !is_unwanted)
}

/// Decides what to do next.
pub fn next(host: &ByoHost, progress: &Progress) -> Action {
    let claim = claim(host);
    match (claim, progress.phase()) {
        // What was undone, and what was never begun.
        (Some(claim), None | Some(Phase::Reset)) if claim.epoch > progress.epoch => Action::Apply,
        (_, None | Some(Phase::Reset)) => Action::Rest,
        // A reset that has begun is completed; a failed bootstrap is reset at once.
        (_, Some(Phase::Resetting | Phase::ResetFailed | Phase::Failed)) | (None, _) => Action::Reset,
        (Some(claim), Some(_)) if claim.epoch < progress.epoch => Action::Rest,
        (Some(claim), Some(_)) if !is_of(claim, progress) => Action::Reset,
        (Some(_), Some(Phase::Applying)) => Action::Resume,
        (Some(_), Some(Phase::Applied)) => Action::Rest,
    }
}

/// Whether the plan of the journal is that of the claim.
pub fn is_of(claim: &Claim, progress: &Progress) -> bool {
    claim.epoch == progress.epoch && progress.machine_uid.as_ref() == Some(&claim.machine_uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Outcome;

    fn host(claim: Option<(i64, &str)>) -> ByoHost {
        let mut host = ByoHost::default();
        host.spec.claim = claim.map(|(epoch, uid)| Claim { epoch, machine_uid: uid.to_owned(), ..Claim::default() });
        host
    }

    fn progress(phase: Option<Phase>, epoch: i64) -> Progress {
        let Some(phase) = phase else { return Progress::default() };
        let (failed, done) = (phase == Phase::Failed, if phase == Phase::Applied { 3 } else { 1 });
        let failure = failed.then(|| "no".to_owned());
        Progress {
            epoch,
            machine_uid: (phase != Phase::Reset).then(|| "u1".to_owned()),
            resetting: matches!(phase, Phase::Resetting | Phase::ResetFailed),
            outcome: Some(Outcome { steps: 3, done, failure, ..Outcome::default() }),
            reset_failure: (phase == Phase::ResetFailed).then(|| "no".to_owned()),
        }
    }

    #[test]
    fn every_combination_has_one_answer() {
        use Phase::{Applied, Applying, Failed, Reset, ResetFailed, Resetting};
        let same = Some((4, "u1"));
        for (phase, claim, action) in [
            (None, None, Action::Rest),
            (None, same, Action::Apply),
            (Some(Applying), same, Action::Resume),
            (Some(Applying), None, Action::Reset),
            (Some(Applying), Some((5, "u2")), Action::Reset),
            (Some(Applying), Some((4, "u2")), Action::Reset),
            // An API server that was put back to an old state says nothing of now.
            (Some(Applying), Some((3, "u1")), Action::Rest),
            (Some(Applied), same, Action::Rest),
            (Some(Applied), None, Action::Reset),
            (Some(Applied), Some((5, "u2")), Action::Reset),
            (Some(Applied), Some((3, "u0")), Action::Rest),
            (Some(Failed), same, Action::Reset),
            (Some(Failed), None, Action::Reset),
            (Some(Resetting), same, Action::Reset),
            (Some(Resetting), Some((3, "u0")), Action::Reset),
            (Some(ResetFailed), None, Action::Reset),
            (Some(Reset), None, Action::Rest),
            (Some(Reset), same, Action::Rest),
            (Some(Reset), Some((3, "u0")), Action::Rest),
            (Some(Reset), Some((5, "u2")), Action::Apply),
        ] {
            let progress = progress(phase, 4);
            assert_eq!(progress.phase(), phase);
            assert_eq!(next(&host(claim), &progress), action, "{phase:?} {claim:?}");
        }
    }

    #[test]
    fn a_host_that_is_asked_to_reset_has_no_claim() {
        let mut host = host(Some((4, "u1")));
        host.metadata.annotations.insert(names::UNREGISTERING.to_owned(), String::new());
        assert_eq!(next(&host, &progress(Some(Phase::Applied), 4)), Action::Reset);
        assert_eq!(next(&host, &progress(Some(Phase::Reset), 3)), Action::Rest);
    }
}
