//! Pods that hold reserved GPUs on their node, so that kube-scheduler and kubelet give them to no other pod.
//!
//! ```text
//!   reserved ─▶ holder pod on the node ── a pod with the label comes ─▶ it is nominated for the node ─▶ holder deleted
//!                                      └─ the reservation ends ─────────────────────────────────────▶ holder deleted
//! ```
//!
//! A pod that must run nowhere else carries the scheduling gate `millpond.dev/gpuinfo` besides the label: the gate is
//! taken off when the pod is pinned to the node.
//!
//! From its nomination on kube-scheduler counts the claiming pod on that node, so that no other pod of its priority or a
//! lower one slips in while the holder ends.

use std::collections::{HashMap, HashSet};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use millpond_api::gpu_info::{CLAIM_GATE, HOLDER_LABEL, NodeReservation};
use millpond_api::labels::HOSTNAME;
use millpond_runtime::meta::{Key, has_ended, node_name};
use serde_json::{Value, json};

use super::{Controller, tell_failure};
use crate::estate::{Estate, Facts};
use crate::reservations::{Claims, gates};

/// Brings holders to where they should be; false if something could not be written.
pub(super) async fn keep(controller: &Controller, estate: &Estate, facts: &Facts, claims: &Claims<'_>) -> bool {
    let mut wanted: HashMap<String, (&str, &NodeReservation)> = HashMap::new();
    for node in &estate.nodes {
        for entry in node.reservations.iter().filter(|entry| entry.pod.is_none()) {
            wanted.insert(entry.uid.clone(), (&node.name, entry));
        }
    }
    let mut done = true;
    let handed_over = hand_over(controller, estate, facts, claims, &wanted, &mut done).await;
    let mut there: HashSet<String> = HashSet::new();
    for pod in &facts.pods {
        let Some(uid) = pod.labels().get(HOLDER_LABEL) else { continue };
        let belongs = wanted.get(uid).is_some_and(|(node, _)| node_name(pod) == Some(*node));
        if belongs && !handed_over.contains(uid) && !has_ended(pod) && pod.metadata.deletion_timestamp.is_none() {
            there.insert(uid.clone());
        } else if pod.metadata.deletion_timestamp.is_none()
            && let Err(error) = controller.pods.delete(&**pod, None).await
        {
            done &= tell_failure("holder", &Key::of(&**pod), &error);
        }
        if pod.metadata.deletion_timestamp.is_some() {
            // Another one of this name can come when this one has ended.
            there.insert(uid.clone());
        }
    }
    for (uid, (node, entry)) in wanted.iter().filter(|(uid, _)| !there.contains(*uid) && !handed_over.contains(*uid)) {
        let Some(pod) = holder(controller, uid, node, entry) else { continue };
        match controller.pods.create(&pod).await {
            Ok(_) => {}
            Err(error) if error.is_already_exists() => done = false,
            Err(error) => done &= tell_failure("holder", &Key::of(&pod), &error),
        }
    }
    done
}

/// Nominates pods that claim a reservation; returns those whose holders are to be deleted.
async fn hand_over(
    controller: &Controller,
    estate: &Estate,
    facts: &Facts,
    claims: &Claims<'_>,
    wanted: &HashMap<String, (&str, &NodeReservation)>,
    done: &mut bool,
) -> HashSet<String> {
    let mut handed_over = HashSet::new();
    for info in &facts.infos {
        let uid = info.uid().unwrap_or_default();
        let Some((node, _)) = wanted.get(&uid) else { continue };
        if let Some(pod) = claims.gated(info) {
            // The answer of this write is what the next pass begins with.
            if let Err(error) = controller.pods.patch(&Key::of(&**pod), &pin(estate, pod, node)).await {
                *done &= tell_failure("claim", &Key::of(&**pod), &error);
            }
            continue;
        }
        let Some(pod) = claims.waiting(info) else { continue };
        let nominated = pod.status.as_ref().and_then(|status| status.nominated_node_name.as_deref());
        if nominated != Some(*node) {
            let patch = json!({
                "metadata": {"resourceVersion": pod.metadata.resource_version},
                "status": {"nominatedNodeName": node},
            });
            if let Err(error) = controller.pods.patch_status(&Key::of(&**pod), &patch).await {
                *done &= tell_failure("nomination", &Key::of(&**pod), &error);
                continue;
            }
        }
        handed_over.insert(uid);
    }
    handed_over
}

/// Takes the gate off a pod, and says which node it is for.
fn pin(estate: &Estate, pod: &Pod, node: &str) -> Value {
    let gates: Vec<Value> =
        gates(pod).iter().filter(|gate| gate.name != CLAIM_GATE).map(|gate| json!({"name": gate.name})).collect();
    let host = estate.node(node).and_then(|view| view.labels.get(HOSTNAME)).map_or(node, String::as_str);
    json!({
        "metadata": {"resourceVersion": pod.metadata.resource_version},
        "spec": {"schedulingGates": gates, "nodeSelector": {HOSTNAME: host}},
    })
}

/// The pod that holds the GPUs of a reservation.
fn holder(controller: &Controller, uid: &str, node: &str, entry: &NodeReservation) -> Option<Pod> {
    let amount = json!({entry.resource.as_str(): entry.gpus.to_string()});
    let pod = json!({
        "metadata": {
            "name": format!("gpu-reservation-{uid}"),
            "namespace": controller.options.namespace,
            "labels": {HOLDER_LABEL: uid, "app.kubernetes.io/name": "millpond", "app.kubernetes.io/component": "gpu-reservation"},
            "annotations": {"millpond.dev/gpuinfo": entry.gpuinfo},
        },
        "spec": {
            "nodeName": node,
            "priorityClassName": "system-node-critical",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65535, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "holder",
                "image": controller.options.image,
                "securityContext": {
                    "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
                },
                "resources": {"requests": amount, "limits": amount},
            }],
        },
    });
    serde_json::from_value(pod).ok()
}
