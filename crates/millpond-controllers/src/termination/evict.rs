//! Evicts pods through the Eviction API, which checks their PodDisruptionBudgets.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};

use crate::cluster::FIELD_MANAGER;
use crate::metrics::Metrics;

/// An eviction that has no answer after this long is taken for refused: a client that repeats refused requests by
/// itself (kube's does, unless `default_retry` is off) would hold up the whole node.
const ANSWERED_WITHIN: Duration = Duration::from_secs(3);
/// What the API server says to a pod with several budgets; it is no refusal by status.
const SEVERAL_BUDGETS: &str = "more than one PodDisruptionBudget";

/// What came of an eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// It leaves, or has left.
    Leaves,
    /// A budget is in the way.
    Blocked(String),
    /// It did not work.
    Failed(String),
}

/// Asks a pod, this one and no other of its name, to leave.
pub(super) async fn evict(client: &Client, metrics: &Metrics, pod: &Pod) -> Answer {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
    let params = EvictParams {
        delete_options: Some(DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }),
        post_options: PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() },
    };
    match tokio::time::timeout(ANSWERED_WITHIN, api.evict(&pod.name_any(), &params)).await {
        Ok(Ok(_)) => {
            metrics.eviction_answered(200);
            Answer::Leaves
        }
        Ok(Err(error)) => {
            if let kube::Error::Api(status) = &error {
                metrics.eviction_answered(status.code);
            }
            refusal(&error)
        }
        Err(_) => Answer::Blocked(format!("not answered within {} s", ANSWERED_WITHIN.as_secs())),
    }
}

fn refusal(error: &kube::Error) -> Answer {
    let kube::Error::Api(status) = error else { return Answer::Failed(error.to_string()) };
    match status.code {
        // Gone, or another pod of that name.
        404 | 409 => Answer::Leaves,
        429 => {
            let cause = status.details.iter().flat_map(|details| &details.causes).map(|cause| &cause.message).next();
            Answer::Blocked(cause.unwrap_or(&status.message).clone())
        }
        _ if status.message.contains(SEVERAL_BUDGETS) => {
            Answer::Blocked("it has several disruption budgets, which evictions do not support".to_owned())
        }
        _ => Answer::Failed(status.message.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_of_the_server_are_told_apart() {
        let cases = [
            (json!({"code": 404}), Answer::Leaves),
            (json!({"code": 409}), Answer::Leaves),
            (
                json!({"code": 429, "message": "no", "details": {"causes": [{"message": "budget b needs 2"}]}}),
                Answer::Blocked("budget b needs 2".to_owned()),
            ),
            (json!({"code": 429, "message": "too many"}), Answer::Blocked("too many".to_owned())),
            (
                json!({"code": 500, "message": "This pod has more than one PodDisruptionBudget, which …"}),
                Answer::Blocked("it has several disruption budgets, which evictions do not support".to_owned()),
            ),
            (json!({"code": 500, "message": "broken"}), Answer::Failed("broken".to_owned())),
        ];
        for (status, expected) in cases {
            let error = kube::Error::Api(serde_json::from_value(status).unwrap());
            assert_eq!(refusal(&error), expected);
        }
    }
}
