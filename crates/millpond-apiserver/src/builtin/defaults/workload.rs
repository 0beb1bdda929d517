//! Defaults of workloads and autoscalers.

use serde_json::{Value, json};

use crate::builtin::conversion;
use crate::builtin::json::{Fields, Fill};

/// Old template sets or revisions that are kept for a rollback.
const REVISION_HISTORY: i64 = 10;

pub(super) fn deployment(deployment: &mut Value) {
    let spec = deployment.object("spec");
    spec.default_to("replicas", 1);
    let strategy = spec.object("strategy");
    strategy.default_to("type", "RollingUpdate");
    if strategy.text("type") == "RollingUpdate" {
        let rolling = strategy.object("rollingUpdate");
        rolling.default_to("maxUnavailable", "25%");
        rolling.default_to("maxSurge", "25%");
    }
    spec.default_to("revisionHistoryLimit", REVISION_HISTORY);
    spec.default_to("progressDeadlineSeconds", 600);
}

pub(super) fn replica_set(set: &mut Value) {
    set.object("spec").default_to("replicas", 1);
}

pub(super) fn daemon_set(set: &mut Value) {
    let spec = set.object("spec");
    let strategy = spec.object("updateStrategy");
    strategy.default_to("type", "RollingUpdate");
    if strategy.text("type") == "RollingUpdate" {
        let rolling = strategy.object("rollingUpdate");
        rolling.default_to("maxUnavailable", 1);
        rolling.default_to("maxSurge", 0);
    }
    spec.default_to("revisionHistoryLimit", REVISION_HISTORY);
}

pub(super) fn stateful_set(set: &mut Value) {
    let spec = set.object("spec");
    spec.default_to("podManagementPolicy", "OrderedReady");
    let strategy = spec.object("updateStrategy");
    if strategy.text("type").is_empty() {
        strategy.put("type", json!("RollingUpdate"));
        strategy.object("rollingUpdate");
    }
    if strategy.text("type") == "RollingUpdate"
        && let Some(rolling) = strategy.object_if("rollingUpdate")
    {
        rolling.default_to("partition", 0);
    }
    let retention = spec.object("persistentVolumeClaimRetentionPolicy");
    retention.default_to("whenDeleted", "Retain");
    retention.default_to("whenScaled", "Retain");
    spec.default_to("replicas", 1);
    spec.default_to("revisionHistoryLimit", REVISION_HISTORY);
    for claim in spec.items_mut("volumeClaimTemplates") {
        claim.put("apiVersion", json!("v1"));
        claim.put("kind", json!("PersistentVolumeClaim"));
    }
}

pub(super) fn replication_controller(controller: &mut Value) {
    let labels = controller.at("spec").at("template").at("metadata").at("labels").clone();
    if labels.is_null() {
        return;
    }
    controller.object("spec").default_to("selector", labels.clone());
    controller.object("metadata").default_to("labels", labels);
}

pub(super) fn job(job: &mut Value) {
    let spec = job.object("spec");
    if !spec.has("completions") && !spec.has("parallelism") {
        spec.put("completions", json!(1));
    }
    spec.default_to("parallelism", 1);
    let retries = if spec.has("backoffLimitPerIndex") { i64::from(i32::MAX) } else { 6 };
    spec.default_to("backoffLimit", retries);
    spec.default_to("completionMode", "NonIndexed");
    spec.default_to("suspend", false);
    let replacement = if spec.has("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    spec.default_to("podReplacementPolicy", replacement);
    spec.default_to("manualSelector", false);
}

pub(super) fn cron_job(job: &mut Value) {
    let spec = job.object("spec");
    spec.default_to("concurrencyPolicy", "Allow");
    spec.default_to("suspend", false);
    spec.default_to("successfulJobsHistoryLimit", 3);
    spec.default_to("failedJobsHistoryLimit", 1);
}

pub(super) fn pod_condition_pattern(pattern: &mut Value) {
    pattern.default_to("status", "True");
}

pub(super) fn autoscaler_v1(autoscaler: &mut Value) {
    autoscaler.object("spec").default_to("minReplicas", 1);
}

pub(super) fn autoscaler(autoscaler: &mut Value) {
    let spec = autoscaler.object("spec");
    spec.default_to("minReplicas", 1);
    if spec.items("metrics").is_empty() {
        spec.put("metrics", json!([conversion::cpu_metric(&conversion::DEFAULT_CPU_UTILIZATION.into())]));
    }
    let Some(behavior) = spec.object_if("behavior") else { return };
    let up = behavior.object("scaleUp");
    up.default_to("stabilizationWindowSeconds", 0);
    up.default_to("selectPolicy", "Max");
    if up.at("policies").is_null() {
        up.put(
            "policies",
            json!([
                {"type": "Pods", "value": 4, "periodSeconds": 15},
                {"type": "Percent", "value": 100, "periodSeconds": 15},
            ]),
        );
    }
    let down = behavior.object("scaleDown");
    down.default_to("selectPolicy", "Max");
    if down.at("policies").is_null() {
        down.put("policies", json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]));
    }
}
