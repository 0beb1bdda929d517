//! Waiting for pods, by watches.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, Resource};

use super::super::DriverError;

/// How long a pod may take to run; Nodepool's own figure.
const RUNS_WITHIN: Duration = Duration::from_secs(300);
/// How long something may take to be gone; Nodepool's own figure.
const GONE_WITHIN: Duration = Duration::from_secs(300);

/// Waits until a pod runs.
pub(super) async fn until_running(client: &Client, namespace: &str, name: &str) -> Result<Pod, DriverError> {
    let api = Api::<Pod>::namespaced(client.clone(), namespace);
    let settled = |pod: Option<&Pod>| pod.is_none_or(|pod| !matches!(phase(pod), "Pending" | "Unknown"));
    let waited = tokio::time::timeout(RUNS_WITHIN, await_condition(api.clone(), name, settled)).await;
    let pod = match waited {
        Ok(Ok(pod)) => pod.ok_or_else(|| DriverError::Transient(format!("the pod `{name}` was deleted")))?,
        Ok(Err(error)) => return Err(DriverError::Transient(format!("cannot watch the pod `{name}`: {error}"))),
        Err(_) => {
            let why = api.get(name).await.ok().and_then(|pod| obstacle(&pod));
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            let seconds = RUNS_WITHIN.as_secs();
            return Err(DriverError::Transient(format!("the pod `{name}` does not run after {seconds} s{why}")));
        }
    };
    match phase(&pod) {
        "Running" => Ok(pod),
        other => Err(DriverError::Transient(format!("the pod `{name}` ended as {other}"))),
    }
}

/// The phase of a pod.
pub(super) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

/// Why a pod is not running.
fn obstacle(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let waiting = status.container_statuses.iter().flatten().find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        Some((waiting.reason.clone()?, waiting.message.clone()))
    });
    let unscheduled = || {
        let condition =
            status.conditions.iter().flatten().find(|it| it.type_ == "PodScheduled" && it.status == "False")?;
        Some((condition.reason.clone()?, condition.message.clone()))
    };
    let (reason, message) = waiting.or_else(unscheduled)?;
    Some(message.map_or_else(|| reason.clone(), |message| format!("{reason}: {message}")))
}

/// Waits until an object of this uid is gone.
pub(super) async fn until_gone<K>(api: Api<K>, name: &str, uid: &str) -> Result<(), DriverError>
where
    K: Resource + Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + 'static,
{
    let gone = tokio::time::timeout(GONE_WITHIN, await_condition(api, name, conditions::is_deleted(uid))).await;
    match gone {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(DriverError::Transient(format!("cannot watch the end of `{name}`: {error}"))),
        Err(_) => Err(DriverError::Transient(format!("`{name}` is not gone after {} s", GONE_WITHIN.as_secs()))),
    }
}
