//! The status of the ByoHost as the agent sees it: a pure function of facts, claim and progress.

use millpond_api::byoh::names::host as reasons;
use millpond_api::byoh::{ByoHost, ByoHostStatus, Claim, HostFacts, HostInfo, NetworkStatus};
use millpond_api::condition::{self, UNKNOWN};
use millpond_api::meta::{Condition, Kind as _};
use millpond_api::time::Time;
use serde_json::{Value, json};

use crate::progress::{Phase, Progress};

/// Reason of conditions of a plan whose steps are not done yet.
const APPLYING: &str = "Applying";

/// An obstacle that the plan waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// Condition that is false because of it.
    pub condition: &'static str,
    /// Reason of the condition.
    pub reason: &'static str,
    /// In a sentence.
    pub message: String,
}

/// The state that the agent reports.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The host's hardware and operating system.
    pub facts: &'a HostFacts,
    /// Its addresses.
    pub network: &'a [NetworkStatus],
    /// The claim that the agent follows.
    pub claim: Option<&'a Claim>,
    /// How far its plan is.
    pub progress: &'a Progress,
    /// What the plan waits for.
    pub obstacle: Option<&'a Obstacle>,
    /// Version of the agent.
    pub version: &'a str,
}

/// The status of the host as the agent sees it, for server-side apply. Conditions whose status equals that in `present`
/// keep their time.
pub fn object(view: View<'_>, name: &str, namespace: &str, present: &[Condition], now: Time) -> Value {
    let mut conditions = conditions(view);
    for one in &mut conditions {
        let old = condition::find(present, &one.kind).filter(|old| old.status == one.status);
        one.last_transition_time = old.and_then(|old| old.last_transition_time).or(Some(now));
    }
    let facts = view.facts;
    let status = ByoHostStatus {
        conditions,
        host_info: HostInfo {
            os_name: facts.os.name.clone(),
            os_image: facts.os.image.clone(),
            architecture: facts.cpu.architecture.clone(),
        },
        network: view.network.to_vec(),
        facts: facts.clone(),
        capacity: facts.capacity(),
        gpus: facts.gpus.len() as i64,
        epoch: view.progress.epoch,
        plan: view.progress.report(),
        agent_version: view.version.to_owned(),
        ..ByoHostStatus::default()
    };
    json!({
        "apiVersion": ByoHost::api_version(), "kind": ByoHost::KIND,
        "metadata": {"name": name, "namespace": namespace},
        "status": status,
    })
}

fn conditions(view: View<'_>) -> Vec<Condition> {
    let progress = view.progress;
    let (installed, bootstrapped) = (reasons::INSTALLED, reasons::BOOTSTRAPPED);
    let both = |make: &dyn Fn(&str) -> Condition| vec![make(installed), make(bootstrapped)];
    let outcome = progress.outcome.as_ref();
    let is_installed = outcome.is_some_and(|outcome| outcome.done >= outcome.installation);
    let installation = |reason: &str, message: &str| {
        if is_installed { Condition::holds(installed) } else { Condition::fails(installed, reason, message) }
    };
    if let Some(failure) = &progress.reset_failure {
        let reset = Condition::fails(bootstrapped, reasons::RESET_FAILED, failure);
        return vec![installation(reasons::RESET_FAILED, failure), reset];
    }
    let Some(claim) = view.claim else {
        return both(&|kind| Condition::fails(kind, reasons::WAITING_FOR_MACHINE, ""));
    };
    if let Some(obstacle) = view.obstacle {
        let of = |kind: &str| {
            if kind == obstacle.condition {
                Condition::fails(kind, obstacle.reason, &obstacle.message)
            } else {
                Condition::new(kind, UNKNOWN, obstacle.reason, "")
            }
        };
        return both(&of);
    }
    let is_of_claim = claim.epoch == progress.epoch;
    match (progress.phase().filter(|_| is_of_claim), progress.failure()) {
        (Some(Phase::Applied), _) => both(&Condition::holds),
        (Some(_), Some(failure)) if is_installed => {
            vec![Condition::holds(installed), Condition::fails(bootstrapped, reasons::CLOUD_INIT_FAILED, failure)]
        }
        (Some(_), Some(failure)) => both(&|kind| Condition::fails(kind, reasons::INSTALLATION_FAILED, failure)),
        (Some(Phase::Applying), None) => {
            let installation =
                if is_installed { Condition::holds(installed) } else { Condition::unknown(installed, APPLYING, "") };
            vec![installation, Condition::unknown(bootstrapped, APPLYING, "")]
        }
        // Another plan has to be undone first, or this one is.
        _ => both(&|kind| Condition::unknown(kind, APPLYING, "")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Outcome;

    fn shown(claim: Option<i64>, progress: &Progress, obstacle: Option<&Obstacle>) -> Vec<String> {
        let claim = claim.map(|epoch| Claim { epoch, machine_uid: "u1".into(), ..Claim::default() });
        let facts = HostFacts::default();
        let view = View { facts: &facts, network: &[], claim: claim.as_ref(), progress, obstacle, version: "1" };
        let line = |one: Condition| format!("{}={} {} {}", one.kind, one.status, one.reason, one.message);
        conditions(view).into_iter().map(line).collect()
    }

    fn progress(done: usize, failure: Option<&str>, on_host: bool) -> Progress {
        let failure = failure.map(str::to_owned);
        let outcome = Outcome { hash: "h".into(), steps: 3, installation: 1, done, failure };
        let machine_uid = on_host.then(|| "u1".to_owned());
        Progress { epoch: 2, machine_uid, outcome: Some(outcome), ..Progress::default() }
    }

    #[test]
    fn conditions_say_what_happened_and_why() {
        let waiting = "WaitingForMachineRefToBeAssigned ";
        let free = vec![
            format!("K8sComponentsInstallationSucceeded=False {waiting}"),
            format!("K8sNodeBootstrapSucceeded=False {waiting}"),
        ];
        assert_eq!(shown(None, &Progress::default(), None), free);
        assert_eq!(shown(None, &progress(3, None, false), None), free, "after a release");
        let holds = "K8sComponentsInstallationSucceeded=True K8sComponentsInstallationSucceeded ";
        assert_eq!(shown(Some(2), &progress(3, None, true), None)[0], holds);
        assert_eq!(
            shown(Some(2), &progress(3, None, true), None)[1],
            "K8sNodeBootstrapSucceeded=True K8sNodeBootstrapSucceeded "
        );
        for on_host in [true, false] {
            let failed = shown(Some(2), &progress(2, Some("step 3 failed"), on_host), None);
            assert_eq!(failed[0], holds);
            assert_eq!(failed[1], "K8sNodeBootstrapSucceeded=False CloudInitExecutionFailed step 3 failed");
        }
        let failed = shown(Some(2), &progress(0, Some("apt"), true), None);
        assert_eq!(failed[0], "K8sComponentsInstallationSucceeded=False K8sComponentsInstallationFailed apt");
        let obstacle = Obstacle {
            condition: reasons::BOOTSTRAPPED,
            reason: reasons::BOOTSTRAP_SECRET_UNAVAILABLE,
            message: "Secret default/x does not exist".into(),
        };
        let waits = shown(Some(3), &progress(3, None, false), Some(&obstacle));
        assert_eq!(
            waits[1],
            "K8sNodeBootstrapSucceeded=False BootstrapDataSecretUnavailable Secret default/x does not exist"
        );
        // The failure of an earlier epoch says nothing of this one.
        assert!(
            shown(Some(3), &progress(2, Some("old"), false), None)[1].starts_with("K8sNodeBootstrapSucceeded=Unknown")
        );
    }

    #[test]
    fn times_change_with_the_status_only() {
        let facts = HostFacts::default();
        let progress = Progress::default();
        let view = View { facts: &facts, network: &[], claim: None, progress: &progress, obstacle: None, version: "1" };
        let first = object(view, "node10", "default", &[], Time(100));
        let present: ByoHostStatus = serde_json::from_value(first["status"].clone()).unwrap();
        assert_eq!(first, object(view, "node10", "default", &present.conditions, Time(200)));
        assert_eq!(first["status"].get("state"), None, "controllers write the state");
    }
}
