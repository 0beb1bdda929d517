//! What is read of an object is written again, and what is unknown is not in the way.

use millpond_api::capacity_buffer::CapacityBuffer;
use millpond_api::cluster_limits::ClusterLimits;
use millpond_api::karpenter::{NodeClaim, NodeOverlay, NodePool};
use millpond_api::meta::Kind;
use millpond_api::node_class::NodeClass;
use millpond_api::scaling_advisor::{ScalingAdvice, ScalingConstraint, ScalingFeedback};
use serde_json::{Value, json};

/// Reads an object, with an unknown field beside each that it has, and writes it.
fn round_trip<K: Kind>(parts: Value) {
    let mut object = parts;
    object["apiVersion"] = K::api_version().into();
    object["kind"] = K::KIND.into();
    let mut more = object.clone();
    for part in ["metadata", "spec", "status"] {
        if let Some(part) = more.get_mut(part) {
            part["fieldOfTheFuture"] = json!({"a": [1]});
        }
    }
    let read: K = serde_json::from_value(more).unwrap_or_else(|error| panic!("{}: {error}", K::KIND));
    assert_eq!(read.to_object(), object, "{}", K::KIND);
    assert_eq!(read.metadata().name, "first");
}

fn metadata() -> Value {
    json!({
        "name": "first", "uid": "1-2", "resourceVersion": "7", "generation": 3,
        "labels": {"a": "b"}, "annotations": {"c": "d"},
        "creationTimestamp": "2026-11-16T04:30:00Z", "deletionTimestamp": "2026-11-16T04:31:00Z",
        "finalizers": ["karpenter.sh/termination"],
        "ownerReferences": [{
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "pool", "uid": "0-1",
            "controller": true, "blockOwnerDeletion": true,
        }],
    })
}

fn conditions() -> Value {
    json!([{
        "type": "Ready", "status": "True", "reason": "Ready", "message": "",
        "lastTransitionTime": "2026-11-16T04:30:00Z", "observedGeneration": 3,
    }])
}

fn requirements() -> Value {
    json!([
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"], "minValues": 2},
        {"key": "example.com/size", "operator": "Gte", "values": ["4"]},
        {"key": "gpu", "operator": "DoesNotExist"},
    ])
}

fn node_class_ref() -> Value {
    json!({"group": "millpond.dev", "kind": "NodeClass", "name": "default"})
}

#[test]
fn karpenter() {
    round_trip::<NodePool>(json!({
        "metadata": metadata(),
        "spec": {
            "template": {
                "metadata": {"labels": {"team": "web"}, "annotations": {"note": "1"}},
                "spec": {
                    "requirements": requirements(), "nodeClassRef": node_class_ref(),
                    "taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}],
                    "startupTaints": [{"key": "c", "effect": "NoExecute"}],
                    "expireAfter": "720h0m0s", "terminationGracePeriod": "1h0m0s",
                },
            },
            "disruption": {
                "consolidateAfter": "Never", "consolidationPolicy": "Balanced",
                "budgets": [
                    {"nodes": "10%", "reasons": ["Drifted", "Empty", "Underutilized"]},
                    {"nodes": "0", "schedule": "@daily", "duration": "8h0m0s", "timeZone": "Europe/Berlin"},
                ],
            },
            "limits": {"cpu": "100", "memory": "1Ti", "nodes": "10"}, "weight": 10, "replicas": 3,
        },
        "status": {
            "resources": {"cpu": "12", "memory": "48Gi", "nodes": "3"}, "nodes": 3, "nodeClassObservedGeneration": 2,
            "conditions": conditions(),
        },
    }));
    round_trip::<NodeClaim>(json!({
        "metadata": metadata(),
        "spec": {
            "requirements": requirements(), "nodeClassRef": node_class_ref(),
            "taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}],
            "startupTaints": [{"key": "c", "effect": "NoExecute"}],
            "resources": {"requests": {"cpu": "1500m", "memory": "2Gi", "pods": "5"}},
            "expireAfter": "Never", "terminationGracePeriod": "30s",
        },
        "status": {
            "nodeName": "first", "providerID": "sim://default/i-1", "imageID": "image-1",
            "capacity": {"cpu": "2"}, "allocatable": {"cpu": "1900m"},
            "conditions": conditions(), "lastPodEventTime": "2026-11-16T04:30:00Z",
        },
    }));
    round_trip::<NodeOverlay>(json!({
        "metadata": metadata(),
        "spec": {
            "requirements": [{"key": "kubernetes.io/arch", "operator": "Exists"}], "priceAdjustment": "-30%",
            "surcharge": "0.5", "capacity": {"example.com/licence": "1"}, "weight": 10,
        },
        "status": {"conditions": conditions()},
    }));
}

#[test]
fn millpond() {
    round_trip::<NodeClass>(json!({
        "metadata": metadata(),
        "spec": {
            "provider": "sim", "catalog": "aws", "overlays": ["ours"],
            "kubelet": {"maxPods": 110, "podsPerCore": 10, "systemReserved": {"cpu": "100m"}, "kubeReserved": {}},
            "backoff": {"initial": "3m0s", "max": "1h0m0s"}, "sim": {"registrationDelay": "30s", "image": "image-2"},
        },
        "status": {
            "instanceTypes": 144, "conditions": conditions(),
            "unavailable": [{
                "instanceType": "m5.large", "zone": "a", "capacityType": "spot", "until": "2026-11-16T04:33:00Z",
                "failures": 1, "message": "none left",
            }],
        },
    }));
    round_trip::<ClusterLimits>(json!({
        "metadata": metadata(),
        "spec": {"limits": {"cpu": "2000", "nodes": "100"}, "dollarsPerHour": "120.5"},
        "status": {"used": {"cpu": "12"}, "dollarsPerHour": "1.5", "conditions": conditions()},
    }));
    round_trip::<CapacityBuffer>(json!({
        "metadata": metadata(),
        "spec": {
            "provisioningStrategy": "buffer.x-k8s.io/active-capacity", "podTemplateRef": {"name": "a"},
            "scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}, "replicas": 3,
            "percentage": 20, "limits": {"cpu": "10"},
        },
        "status": {
            "podTemplateRef": {"name": "a"}, "replicas": 3, "podTemplateGeneration": 1,
            "provisioningStrategy": "buffer.x-k8s.io/active-capacity", "conditions": conditions(),
        },
    }));
}

#[test]
fn scaling_advisor() {
    let placement = json!({
        "poolName": "p", "templateName": "t", "instanceType": "m5.large", "region": "r", "availabilityZone": "a",
    });
    let with = |more: Value| {
        let mut item = placement.clone();
        item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        item
    };
    let backoff = json!({"initialBackoff": "3m0s", "maxBackoff": "30m0s"});
    round_trip::<ScalingConstraint>(json!({
        "metadata": metadata(),
        "spec": {
            "consumerID": "me", "defaultBackoffPolicy": backoff, "scaleInPolicy": {},
            "nodePools": [{
                "name": "p", "region": "r", "availabilityZones": ["a"], "labels": {"a": "b"}, "annotations": {"c": "d"},
                "taints": [{"key": "a", "effect": "NoSchedule"}], "quota": {"cpu": "100"}, "priority": 1,
                "scaleInPolicy": {}, "defaultBackoffPolicy": backoff, "min": 1,
                "nodeTemplates": [{
                    "name": "t", "architecture": "amd64", "instanceType": "m5.large", "capacity": {"cpu": "2"},
                    "kubeReservedCapacity": {"cpu": "80m"}, "systemReservedCapacity": {"cpu": "20m"},
                    "maxVolumes": 20, "priority": 1,
                }],
            }],
        },
        "status": {"conditions": conditions()},
    }));
    round_trip::<ScalingAdvice>(json!({
        "metadata": metadata(),
        "spec": {
            "constraintRef": {"namespace": "n", "name": "c"},
            "scaleOutPlan": {
                "items": [with(json!({"currentReplicas": 1, "delta": 2}))], "unsatisfiedPodNames": ["default/web-0"],
            },
            "scaleInPlan": {"items": [with(json!({"nodeName": "worker-1"}))]},
        },
        "status": {
            "conditions": conditions(),
            "diagnostic": {
                "traceLogName": "log",
                "simRunResults": [{
                    "nodePoolName": "p", "nodeTemplateName": "t", "availabilityZone": "a",
                    "scheduledPodNames": ["default/web-1"], "nodeScore": 5, "numUnscheduledPods": 1,
                }],
            },
        },
    }));
    round_trip::<ScalingFeedback>(json!({
        "metadata": metadata(),
        "spec": {
            "constraintRef": {"name": "c"},
            "scaleOutErrorInfos": [
                {
                    "availabilityZone": "a", "instanceType": "m5.large", "errorType": "ResourceExhaustedError",
                    "failCount": 2,
                },
                {"availabilityZone": "b", "instanceType": "m5.large", "errorType": "CreationTimeoutError", "failCount": 1},
            ],
            "scaleInErrorInfo": {"nodeNames": ["worker-1"]},
        },
    }));
}

/// Go writes its empty lists as `null`.
#[test]
fn nulls_are_nothing() {
    let advice = json!({"spec": {
        "constraintRef": {"name": "c"}, "scaleInPlan": null,
        "scaleOutPlan": {"items": null, "unsatisfiedPodNames": null},
    }});
    let advice: ScalingAdvice = serde_json::from_value(advice).unwrap();
    assert!(advice.spec.scale_out_plan.unwrap().items.is_empty());
    let feedback = json!({"spec": {"constraintRef": {"name": "c"}, "scaleInErrorInfo": {"nodeNames": null}}});
    assert!(
        serde_json::from_value::<ScalingFeedback>(feedback).unwrap().spec.scale_in_error_info.node_names.is_empty()
    );
}
