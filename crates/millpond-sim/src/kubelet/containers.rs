//! The statuses of containers.

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    Pod,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

/// The code with which a process ends that was asked to.
pub const ASKED_TO_END: i32 = 143;

/// Whether an init container runs beside the others.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn base(pod: &Pod, container: &Container, known: Option<&ContainerStatus>) -> ContainerStatus {
    let image = container.image.clone().unwrap_or_default();
    ContainerStatus {
        name: container.name.clone(),
        image_id: if image.is_empty() { String::new() } else { format!("{image}@sha256:{:064x}", 0) },
        image,
        container_id: Some(format!("millpond://{}/{}", pod.uid().unwrap_or_default(), container.name)),
        restart_count: known.map_or(0, |known| known.restart_count),
        last_state: known.and_then(|known| known.last_state.clone()),
        ..ContainerStatus::default()
    }
}

/// A container that is being made.
pub fn creating(pod: &Pod, container: &Container) -> ContainerStatus {
    let waiting = ContainerStateWaiting { reason: Some("ContainerCreating".to_owned()), message: None };
    ContainerStatus {
        state: Some(ContainerState { waiting: Some(waiting), ..ContainerState::default() }),
        container_id: None,
        image_id: String::new(),
        started: Some(false),
        ..base(pod, container, None)
    }
}

/// A container that runs.
pub fn running(pod: &Pod, container: &Container, known: Option<&ContainerStatus>, since: &Time) -> ContainerStatus {
    let running = ContainerStateRunning { started_at: Some(since.clone()) };
    ContainerStatus {
        state: Some(ContainerState { running: Some(running), ..ContainerState::default() }),
        ready: true,
        started: Some(true),
        ..base(pod, container, known)
    }
}

/// A container that has ended.
pub fn ended(
    pod: &Pod,
    container: &Container,
    known: Option<&ContainerStatus>,
    code: i32,
    reason: Option<&str>,
    now: &Time,
) -> ContainerStatus {
    let own_reason = if code == 0 { "Completed" } else { "Error" };
    let terminated = ContainerStateTerminated {
        exit_code: code,
        reason: Some(reason.unwrap_or(own_reason).to_owned()),
        started_at: Some(known.and_then(started_at).unwrap_or_else(|| now.clone())),
        finished_at: Some(now.clone()),
        container_id: Some(format!("millpond://{}/{}", pod.uid().unwrap_or_default(), container.name)),
        ..ContainerStateTerminated::default()
    };
    ContainerStatus {
        state: Some(ContainerState { terminated: Some(terminated), ..ContainerState::default() }),
        started: Some(false),
        ..base(pod, container, known)
    }
}

/// A container that ended and waits to be started again.
pub fn backing_off(
    pod: &Pod,
    container: &Container,
    known: Option<&ContainerStatus>,
    code: i32,
    wait_seconds: u64,
    now: &Time,
) -> ContainerStatus {
    let last = ended(pod, container, known, code, None, now).state;
    let message =
        format!("back-off {wait_seconds}s restarting failed container={} pod={}", container.name, pod.name_any());
    let waiting = ContainerStateWaiting { reason: Some("CrashLoopBackOff".to_owned()), message: Some(message) };
    ContainerStatus {
        state: Some(ContainerState { waiting: Some(waiting), ..ContainerState::default() }),
        last_state: last,
        started: Some(false),
        ..base(pod, container, known)
    }
}

/// When a container started, if it runs.
pub fn started_at(status: &ContainerStatus) -> Option<Time> {
    status.state.as_ref()?.running.as_ref()?.started_at.clone()
}
