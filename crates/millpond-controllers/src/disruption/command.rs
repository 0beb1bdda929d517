//! A command: nodes that go together, and the claims that must be ready first. Pure.
//!
//! What is under way stands in objects: every replacement names in [`REPLACES_ANNOTATION`] the claims that go for it and
//! how many replacements there are; the nodes that go have the taint `karpenter.sh/disrupted`, their claims the condition
//! `DisruptionReason`. So a controller that starts anew finds every command as the last one left it.

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

/// What a replacement says of its command; all of one command say the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Replaces {
    /// The claims that go.
    pub claims: Vec<Candidate>,
    /// How many come.
    pub replacements: usize,
}

/// A claim that goes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Its uid: a later claim of that name is another one.
    pub uid: String,
    /// Why it goes: a name of [`DisruptionReason`].
    pub reason: String,
}

impl Candidate {
    /// The reason of the disruption; an unknown reason counts as the one that is held to most rules.
    pub fn reason(&self) -> DisruptionReason {
        let known = REASONS.into_iter().find(|reason| reason.name() == self.reason);
        known.unwrap_or(DisruptionReason::Underutilized)
    }
}

/// Nodes that go together.
#[derive(Debug, Clone)]
pub(super) struct Command {
    pub(super) candidates: Vec<Candidate>,
    /// Claims that come, as far as they are there.
    pub(super) replacements: Vec<Arc<NodeClaim>>,
    /// How many there should be.
    pub(super) wanted: usize,
}

/// What a claim replaces, if it does.
pub(crate) fn replaces(claim: &NodeClaim) -> Option<Replaces> {
    serde_json::from_str(claim.annotations().get(REPLACES_ANNOTATION)?).ok()
}

/// All commands that claims tell of.
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

/// How a claim that goes is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    /// It goes already, or is gone.
    Gone,
    /// It is there; the word says whether taint and condition are.
    Stands {
        /// Both are there.
        marked: bool,
    },
}

/// How far a replacement is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is on its way.
    Coming,
    /// Its node takes pods.
    Ready,
    /// It was given up.
    Lost,
}

/// What is to be done about a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing: all nodes go or are gone.
    Finish,
    /// It cannot be done: taints and conditions come off.
    Undo(Failure),
    /// Taints and conditions are to be written.
    Mark,
    /// A replacement is not ready; after this long it is not waited for.
    Wait(Duration),
    /// All replacements are ready: the nodes may go if nothing is in the way by now.
    Verify,
}

/// Why a command cannot be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// A replacement was given up.
    Lost,
    /// A replacement is not ready in time.
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

/// What is to be done about a command whose replacements were written so long ago.
pub(super) fn next(candidates: &[Sight], replacements: &[Stage], wanted: usize, age: Duration) -> Next {
    if candidates.iter().all(|sight| *sight == Sight::Gone) {
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
    if candidates.contains(&Sight::Stands { marked: false }) {
        return Next::Mark;
    }
    if ready { Next::Verify } else { Next::Wait(READY_WITHIN - age) }
}

/// How far a replacement is.
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
        use Sight::Gone;
        use Stage::{Coming, Lost, Ready};
        let (marked, bare) = (Sight::Stands { marked: true }, Sight::Stands { marked: false });
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
