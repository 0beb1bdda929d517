//! A command: nodes that go together, and the claims that must be ready first. Pure.
//!
//! The state of commands is kept in objects: every replacement names in [`REPLACES_ANNOTATION`] the claims that it
//! replaces and the number of replacements; the nodes to be removed have the taint `karpenter.sh/disrupted`, and their
//! claims the condition `DisruptionReason`. So a controller that restarts finds every command as it was.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use millpond_api::condition::is_true;
use millpond_api::karpenter::conditions;
use millpond_plan::disruption::REASONS;
use millpond_plan::model::DisruptionReason;
use millpond_runtime::meta::is_leaving;
use serde::{Deserialize, Serialize};

use crate::kinds::NodeClaim;

/// Annotation of a claim: the claims that it replaces.
pub const REPLACES_ANNOTATION: &str = "millpond.dev/replaces";

/// Replacements that are not ready after this long are not waited for, as in Karpenter.
pub(super) const READY_WITHIN: Duration = Duration::from_mins(10);

/// The command that a replacement belongs to; all replacements of one command carry the same value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Replaces {
    /// The claims to be removed.
    pub claims: Vec<Candidate>,
    /// The number of replacements.
    pub replacements: usize,
}

/// A claim to be removed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Its uid, to tell it from a later claim of the same name.
    pub uid: String,
    /// The reason: a name of [`DisruptionReason`].
    pub reason: String,
}

impl Candidate {
    /// The reason of the disruption; an unknown reason counts as the one that is held to most rules.
    pub fn reason(&self) -> DisruptionReason {
        let known = REASONS.into_iter().find(|reason| reason.name() == self.reason);
        known.unwrap_or(DisruptionReason::Underutilized)
    }
}

/// Nodes that are removed together.
#[derive(Debug, Clone)]
pub(super) struct Command {
    pub(super) candidates: Vec<Candidate>,
    /// The replacement claims that exist.
    pub(super) replacements: Vec<Arc<NodeClaim>>,
    /// The number of replacements that there should be.
    pub(super) wanted: usize,
}

/// The command that a claim is a replacement for; `None` if it is not one.
pub(crate) fn replaces(claim: &NodeClaim) -> Option<Replaces> {
    serde_json::from_str(claim.annotations().get(REPLACES_ANNOTATION)?).ok()
}

/// All commands found in annotations of claims.
pub(super) fn commands(claims: &[Arc<NodeClaim>]) -> Vec<Command> {
    let mut found: BTreeMap<Replaces, Vec<Arc<NodeClaim>>> = BTreeMap::new();
    for claim in claims {
        if let Some(replaces) = replaces(claim) {
            found.entry(replaces).or_default().push(Arc::clone(claim));
        }
    }
    let command =
        |(of, replacements): (Replaces, _)| Command { candidates: of.claims, replacements, wanted: of.replacements };
    found.into_iter().map(command).collect()
}

/// The state of a claim to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CandidateState {
    /// It is being deleted or no longer exists.
    Gone,
    /// It exists.
    Stands {
        /// Whether taint and condition are set.
        marked: bool,
    },
}

/// The state of a replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is not ready yet.
    Coming,
    /// Its node takes pods.
    Ready,
    /// It was given up.
    Lost,
}

/// The next step of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// There is nothing left to do: all nodes are being deleted or no longer exist.
    Finish,
    /// The command failed: taints and conditions are removed.
    Undo(Failure),
    /// Taints and conditions are to be written.
    Mark,
    /// A replacement is not ready; after this long it is not waited for.
    Wait(Duration),
    /// All replacements are ready: the nodes are removed if nothing blocks that now.
    Verify,
}

/// Why a command failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// A replacement was given up.
    Lost,
    /// A replacement was not ready in time.
    Late,
}

impl Failure {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Lost => "a replacement could not be had",
            Self::Late => "a replacement was not ready in 10 minutes",
        }
    }
}

/// The next step of a command whose replacements were written this long ago.
pub(super) fn next(candidates: &[CandidateState], replacements: &[Stage], wanted: usize, age: Duration) -> Next {
    if candidates.iter().all(|sight| *sight == CandidateState::Gone) {
        return Next::Finish;
    }
    let count = |stage: Stage| replacements.iter().filter(|one| **one == stage).count();
    if count(Stage::Coming) + count(Stage::Ready) < wanted {
        return Next::Undo(Failure::Lost);
    }
    let ready = count(Stage::Coming) == 0;
    if !ready && age >= READY_WITHIN {
        return Next::Undo(Failure::Late);
    }
    if candidates.contains(&CandidateState::Stands { marked: false }) {
        return Next::Mark;
    }
    if ready { Next::Verify } else { Next::Wait(READY_WITHIN - age) }
}

/// The state of a replacement.
pub(super) fn stage(claim: &NodeClaim) -> Stage {
    match (is_leaving(claim), is_true(&claim.status.conditions, conditions::INITIALIZED)) {
        (true, _) => Stage::Lost,
        (false, true) => Stage::Ready,
        (false, false) => Stage::Coming,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn replacements_come_first_and_all_of_them() {
        use CandidateState::Gone;
        use Stage::{Coming, Lost, Ready};
        let (marked, bare) = (CandidateState::Stands { marked: true }, CandidateState::Stands { marked: false });
        let minutes = Duration::from_mins;
        for (candidates, replacements, wanted, age, expected) in [
            (vec![marked], vec![Ready], 1, minutes(1), Next::Verify),
            (vec![marked, marked], vec![Ready, Coming], 2, minutes(1), Next::Wait(minutes(9))),
            (vec![marked, bare], vec![Ready, Coming], 2, minutes(1), Next::Mark),
            (vec![bare], vec![Ready], 1, minutes(30), Next::Mark),
            (vec![marked], vec![Coming], 1, minutes(10), Next::Undo(Failure::Late)),
            (vec![bare], vec![Coming], 1, minutes(10), Next::Undo(Failure::Late)),
            (vec![marked], vec![Ready], 1, minutes(11), Next::Verify),
            (vec![marked], vec![Lost], 1, minutes(1), Next::Undo(Failure::Lost)),
            // A crash between the first and the second replacement: the second never came.
            (vec![bare], vec![Ready], 2, minutes(1), Next::Undo(Failure::Lost)),
            (vec![marked], vec![Ready, Ready, Lost], 2, minutes(1), Next::Verify),
            (vec![Gone], vec![Lost], 1, minutes(1), Next::Finish),
            (vec![Gone, marked], vec![Ready], 1, minutes(1), Next::Verify),
            (vec![marked], vec![], 0, minutes(0), Next::Verify),
        ] {
            assert_eq!(
                next(&candidates, &replacements, wanted, age),
                expected,
                "{candidates:?} {replacements:?} of {wanted}"
            );
        }
    }

    fn claim(name: &str, annotation: Option<&str>) -> Arc<NodeClaim> {
        let annotations = annotation.map(|text| json!({REPLACES_ANNOTATION: text}));
        let claim = json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"requirements": [], "nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": "x"}},
        });
        Arc::new(serde_json::from_value(claim).unwrap())
    }

    #[test]
    fn commands_are_found_in_claims() {
        let gone = |name: &str| Candidate { name: name.into(), uid: format!("u-{name}"), reason: "Drifted".into() };
        let both = Replaces { claims: vec![gone("a"), gone("b")], replacements: 2 };
        let one = Replaces { claims: vec![gone("c")], replacements: 1 };
        let text = |replaces: &Replaces| serde_json::to_string(replaces).unwrap();
        let claims = [
            claim("a", None),
            claim("x", Some(&text(&both))),
            claim("y", Some(&text(&one))),
            claim("z", Some(&text(&both))),
            claim("broken", Some("{")),
        ];
        let found = commands(&claims);
        let names = |command: &Command| command.replacements.iter().map(|claim| claim.name().to_owned()).collect();
        let names: Vec<Vec<String>> = found.iter().map(names).collect();
        assert_eq!(names, [vec!["x", "z"], vec!["y"]]);
        assert_eq!((found[0].candidates.clone(), found[0].wanted), (both.claims, 2));
        assert_eq!(found[0].candidates[0].reason(), DisruptionReason::Drifted);
    }
}
