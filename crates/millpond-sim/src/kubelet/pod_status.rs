//! The next step in the life of a pod that is bound to a node.
//!
//! ```text
//!   bound ──start──▶ running ──run──▶ succeeded | failed
//!     │                │  ▲ └──▶ backing off ─┘ (restart policy)
//!     └── deleted ──stop──▶ ended ──▶ removed
//! ```

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::containers::{self, ASKED_TO_END, is_sidecar};
use super::durations::Durations;
use crate::clock::{after_seconds, whole_seconds};
use crate::meta::{has_ended, is_leaving, phase, pod_condition};

/// A start that takes longer than this gets a status write of its own.
const SHOW_START_AFTER: Duration = Duration::from_secs(2);
/// The wait before a container that failed once is started again; it doubles each time.
const FIRST_RESTART: Duration = Duration::from_secs(10);
/// The longest such wait.
const LONGEST_RESTART: Duration = Duration::from_mins(5);

/// The next step for a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing, until the pod changes.
    Rest,
    /// Nothing, for this long.
    Wait(Duration),
    /// Write a status, and look again after a while.
    Write {
        /// The status.
        status: Box<PodStatus>,
        /// When to look again.
        then: Option<Duration>,
    },
    /// Delete the object.
    Remove,
}

/// The inputs of the next step.
pub struct Facts<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The time.
    pub now: Timestamp,
    /// How long the phases of the pod take.
    pub durations: Durations,
    /// The address of its node.
    pub host_address: String,
}

impl Facts<'_> {
    /// Decides the next step; `new_address` is asked when the pod needs one.
    pub fn step(&self, new_address: impl FnOnce() -> String) -> Step {
        if is_leaving(self.pod) {
            return self.leave();
        }
        match phase(self.pod) {
            "Succeeded" | "Failed" => Step::Rest,
            "Running" => self.continue_running(),
            _ => self.start(new_address),
        }
    }

    fn time(&self) -> Time {
        Time(whole_seconds(self.now))
    }

    fn spec(&self) -> PodSpec {
        self.pod.spec.clone().unwrap_or_default()
    }

    fn old_status(&self) -> PodStatus {
        self.pod.status.clone().unwrap_or_default()
    }

    fn until(&self, moment: Timestamp) -> Duration {
        Duration::try_from(moment.duration_since(self.now)).unwrap_or_default()
    }

    fn scheduled_at(&self) -> Timestamp {
        pod_condition(self.pod, "PodScheduled")
            .filter(|condition| condition.status == "True")
            .and_then(|condition| condition.last_transition_time.as_ref())
            .or(self.pod.metadata.creation_timestamp.as_ref())
            .map_or(self.now, |time| time.0)
    }

    // Starting

    fn start(&self, new_address: impl FnOnce() -> String) -> Step {
        let due = add(self.scheduled_at(), self.durations.start);
        let left = self.until(due);
        if left.is_zero() {
            let status = self.running_status(new_address);
            return Step::Write { status: Box::new(status), then: None };
        }
        let is_shown = self.old_status().start_time.is_some();
        if left > SHOW_START_AFTER && !is_shown {
            return Step::Write { status: Box::new(self.creating_status()), then: Some(left) };
        }
        Step::Wait(left)
    }

    fn creating_status(&self) -> PodStatus {
        let spec = self.spec();
        let mut status = self.old_status();
        status.phase = Some("Pending".to_owned());
        status.start_time = Some(self.time());
        self.set_host(&mut status);
        let names: Vec<&str> = spec.containers.iter().map(|container| container.name.as_str()).collect();
        let unready = format!("containers with unready status: [{}]", names.join(" "));
        self.set(&mut status, "PodReadyToStartContainers", false, None);
        self.set(&mut status, "Initialized", true, None);
        self.set(&mut status, "Ready", false, Some(("ContainersNotReady", &unready)));
        self.set(&mut status, "ContainersReady", false, Some(("ContainersNotReady", &unready)));
        let make = |container| containers::creating(self.pod, container);
        status.container_statuses = Some(spec.containers.iter().map(make).collect());
        status.init_container_statuses = spec.init_containers.as_ref().map(|list| list.iter().map(make).collect());
        status
    }

    fn running_status(&self, new_address: impl FnOnce() -> String) -> PodStatus {
        let spec = self.spec();
        let mut status = self.old_status();
        let now = self.time();
        status.phase = Some("Running".to_owned());
        status.start_time.get_or_insert_with(|| now.clone());
        self.set_host(&mut status);
        let on_host = spec.host_network == Some(true);
        let address =
            status.pod_ip.clone().unwrap_or_else(|| if on_host { self.host_address.clone() } else { new_address() });
        status.pod_ips = Some(vec![PodIP { ip: address.clone() }]);
        status.pod_ip = Some(address);
        let running = |container| containers::running(self.pod, container, None, &now);
        status.container_statuses = Some(spec.containers.iter().map(running).collect());
        status.init_container_statuses = spec.init_containers.as_ref().map(|list| {
            let make = |container| {
                if is_sidecar(container) {
                    running(container)
                } else {
                    // An init container that has done its work counts as ready.
                    let ended = containers::ended(self.pod, container, None, 0, None, &now);
                    ContainerStatus { ready: true, ..ended }
                }
            };
            list.iter().map(make).collect()
        });
        self.set(&mut status, "PodReadyToStartContainers", true, None);
        self.set(&mut status, "Initialized", true, None);
        self.set(&mut status, "ContainersReady", true, None);
        self.set_ready(&mut status);
        status
    }

    fn set_host(&self, status: &mut PodStatus) {
        // A pod that was made for its node never saw a scheduler.
        self.set(status, "PodScheduled", true, None);
        status.host_ip = Some(self.host_address.clone());
        status.host_ips = Some(vec![HostIP { ip: self.host_address.clone() }]);
        status.observed_generation = self.pod.metadata.generation;
        if status.qos_class.is_none() {
            status.qos_class = Some(qos_class(&self.spec()).to_owned());
        }
    }

    /// Ready follows the containers and the pod's readiness gates.
    fn set_ready(&self, status: &mut PodStatus) {
        let missing: Vec<String> = self
            .spec()
            .readiness_gates
            .into_iter()
            .flatten()
            .map(|gate| gate.condition_type)
            .filter(|gate| pod_condition(self.pod, gate).is_none_or(|condition| condition.status != "True"))
            .collect();
        let containers_ready = status
            .conditions
            .iter()
            .flatten()
            .any(|condition| condition.type_ == "ContainersReady" && condition.status == "True");
        if !containers_ready {
            self.set(status, "Ready", false, Some(("ContainersNotReady", "")));
        } else if missing.is_empty() {
            self.set(status, "Ready", true, None);
        } else {
            let message = missing
                .iter()
                .map(|gate| format!("corresponding condition of pod readiness gate \"{gate}\" does not exist."))
                .collect::<Vec<_>>()
                .join(", ");
            self.set(status, "Ready", false, Some(("ReadinessGatesNotReady", &message)));
        }
    }

    // Running

    fn continue_running(&self) -> Step {
        if let Some(step) = self.check_deadline() {
            return step;
        }
        if let Some(step) = self.check_restart() {
            return step;
        }
        let mut gated = self.old_status();
        self.set_ready(&mut gated);
        gated.observed_generation = self.pod.metadata.generation;
        if Some(&gated) != self.pod.status.as_ref() {
            return Step::Write { status: Box::new(gated), then: Some(Duration::ZERO) };
        }
        let ends = self.durations.run.and_then(|run| Some(add(self.running_since()?, run)));
        let deadline = self.deadline();
        match ends {
            Some(moment) if moment <= self.now => self.end(),
            _ => match ends.into_iter().chain(deadline).min() {
                Some(moment) => Step::Wait(self.until(moment)),
                None => Step::Rest,
            },
        }
    }

    fn running_since(&self) -> Option<Timestamp> {
        let status = self.pod.status.as_ref()?;
        status.container_statuses.iter().flatten().filter_map(containers::started_at).map(|time| time.0).max()
    }

    fn deadline(&self) -> Option<Timestamp> {
        let seconds = self.pod.spec.as_ref()?.active_deadline_seconds?;
        Some(after_seconds(self.pod.status.as_ref()?.start_time.as_ref()?.0, seconds))
    }

    fn check_deadline(&self) -> Option<Step> {
        self.deadline().filter(|moment| *moment <= self.now)?;
        let mut status = self.ended_status("Failed", ASKED_TO_END);
        status.reason = Some("DeadlineExceeded".to_owned());
        status.message = Some("Pod was active on the node longer than the specified deadline".to_owned());
        Some(Step::Write { status: Box::new(status), then: None })
    }

    /// The containers have come to their own end.
    fn end(&self) -> Step {
        let code = self.durations.exit_code;
        let policy = self.spec().restart_policy.unwrap_or_else(|| "Always".to_owned());
        let status = match (policy.as_str(), code) {
            ("Never" | "OnFailure", 0) => self.ended_status("Succeeded", 0),
            ("Never", _) => self.ended_status("Failed", code),
            _ => self.backing_off_status(code),
        };
        let then = (!matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))).then_some(Duration::ZERO);
        Step::Write { status: Box::new(status), then }
    }

    fn ended_status(&self, phase: &str, code: i32) -> PodStatus {
        let spec = self.spec();
        let now = self.time();
        let mut status = self.old_status();
        status.phase = Some(phase.to_owned());
        status.observed_generation = self.pod.metadata.generation;
        let known = status.container_statuses.take().unwrap_or_default();
        let find = |known: &[ContainerStatus], name: &str| known.iter().find(|one| one.name == name).cloned();
        status.container_statuses = Some(
            spec.containers
                .iter()
                .map(|one| containers::ended(self.pod, one, find(&known, &one.name).as_ref(), code, None, &now))
                .collect(),
        );
        let known = status.init_container_statuses.take().unwrap_or_default();
        status.init_container_statuses = spec.init_containers.as_ref().map(|list| {
            let make = |one| {
                let known = find(&known, one_name(one));
                match known {
                    Some(done) if !is_sidecar(one) => done,
                    known => containers::ended(self.pod, one, known.as_ref(), 0, None, &now),
                }
            };
            list.iter().map(make).collect()
        });
        let reason = if phase == "Succeeded" { "PodCompleted" } else { "PodFailed" };
        self.set(&mut status, "PodReadyToStartContainers", false, None);
        self.set(&mut status, "Initialized", true, (phase == "Succeeded").then_some((reason, "")));
        self.set(&mut status, "Ready", false, Some((reason, "")));
        self.set(&mut status, "ContainersReady", false, Some((reason, "")));
        status
    }

    fn backing_off_status(&self, code: i32) -> PodStatus {
        let now = self.time();
        let mut status = self.old_status();
        let restarts = status.container_statuses.iter().flatten().map(|one| one.restart_count).max().unwrap_or(0);
        let wait = restart_wait(restarts);
        let spec = self.spec();
        let known = status.container_statuses.take().unwrap_or_default();
        let make = |one: &k8s_openapi::api::core::v1::Container| {
            let known = known.iter().find(|known| known.name == one.name);
            containers::backing_off(self.pod, one, known, code, wait.as_secs(), &now)
        };
        status.container_statuses = Some(spec.containers.iter().map(make).collect());
        let names: Vec<&str> = spec.containers.iter().map(|one| one.name.as_str()).collect();
        let message = format!("containers with unready status: [{}]", names.join(" "));
        self.set(&mut status, "ContainersReady", false, Some(("ContainersNotReady", &message)));
        self.set(&mut status, "Ready", false, Some(("ContainersNotReady", &message)));
        status
    }

    /// Restarts containers whose back-off is over.
    fn check_restart(&self) -> Option<Step> {
        let mut status = self.old_status();
        let known = status.container_statuses.clone()?;
        let ended = known
            .iter()
            .filter(|one| one.state.as_ref().is_some_and(|state| state.waiting.is_some()))
            .filter_map(|one| one.last_state.as_ref()?.terminated.as_ref()?.finished_at.as_ref())
            .map(|time| time.0)
            .max()?;
        let restarts = known.iter().map(|one| one.restart_count).max().unwrap_or(0);
        let left = self.until(add(ended, restart_wait(restarts)));
        if !left.is_zero() {
            return Some(Step::Wait(left));
        }
        let now = self.time();
        let spec = self.spec();
        let make = |one: &k8s_openapi::api::core::v1::Container| {
            let known = known.iter().find(|known| known.name == one.name);
            let fresh = containers::running(self.pod, one, known, &now);
            ContainerStatus { restart_count: restarts + 1, ..fresh }
        };
        status.container_statuses = Some(spec.containers.iter().map(make).collect());
        self.set(&mut status, "ContainersReady", true, None);
        self.set_ready(&mut status);
        Some(Step::Write { status: Box::new(status), then: Some(Duration::ZERO) })
    }

    // Leaving

    fn leave(&self) -> Step {
        let meta = &self.pod.metadata;
        let grace = meta.deletion_grace_period_seconds.unwrap_or_default();
        let is_over = has_ended(self.pod) || phase(self.pod) != "Running" || grace == 0;
        if !is_over {
            let deadline = meta.deletion_timestamp.as_ref().map_or(self.now, |time| time.0);
            let asked = after_seconds(deadline, -grace);
            let stopped = add(asked, self.durations.stop).min(deadline);
            let left = self.until(stopped);
            if !left.is_zero() {
                return Step::Wait(left);
            }
        }
        let holds = !self.pod.finalizers().is_empty();
        if holds && !has_ended(self.pod) {
            // A finalizer holds the object, and its owner reads how the pod ended.
            let status = self.ended_status("Failed", ASKED_TO_END);
            return Step::Write { status: Box::new(status), then: Some(Duration::ZERO) };
        }
        if holds && grace == 0 {
            return Step::Rest;
        }
        Step::Remove
    }

    // Conditions

    fn set(&self, status: &mut PodStatus, type_: &str, holds: bool, why: Option<(&str, &str)>) {
        let value = if holds { "True" } else { "False" };
        let words = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let mut fresh = PodCondition {
            type_: type_.to_owned(),
            status: value.to_owned(),
            reason: why.and_then(|(reason, _)| words(reason)),
            message: why.and_then(|(_, message)| words(message)),
            observed_generation: self.pod.metadata.generation,
            last_transition_time: Some(self.time()),
            last_probe_time: None,
        };
        let conditions = status.conditions.get_or_insert_default();
        match conditions.iter_mut().find(|condition| condition.type_ == type_) {
            Some(known) => {
                if known.status == value {
                    fresh.last_transition_time.clone_from(&known.last_transition_time);
                }
                *known = fresh;
            }
            None => conditions.push(fresh),
        }
    }
}

fn one_name(container: &k8s_openapi::api::core::v1::Container) -> &str {
    &container.name
}

fn add(moment: Timestamp, duration: Duration) -> Timestamp {
    let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    moment.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

fn restart_wait(restarts: i32) -> Duration {
    let doublings = u32::try_from(restarts).unwrap_or_default().min(16);
    FIRST_RESTART.saturating_mul(1 << doublings).min(LONGEST_RESTART)
}

/// How a pod fares when its node runs out of memory.
fn qos_class(spec: &PodSpec) -> &'static str {
    let lists = || {
        spec.containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
            .map(|container| container.resources.clone().unwrap_or_default())
    };
    let is_empty = |list: &Option<std::collections::BTreeMap<String, _>>| {
        list.as_ref().is_none_or(std::collections::BTreeMap::is_empty)
    };
    if lists().all(|list| is_empty(&list.requests) && is_empty(&list.limits)) {
        return "BestEffort";
    }
    let guaranteed = lists().all(|list| {
        let limits = list.limits.unwrap_or_default();
        ["cpu", "memory"].iter().all(|name| {
            limits.get(*name).is_some_and(|limit| {
                list.requests.as_ref().and_then(|requests| requests.get(*name)).is_none_or(|request| request == limit)
            })
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}

#[cfg(test)]
mod tests;
