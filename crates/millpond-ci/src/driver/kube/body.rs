//! Builds the objects of a node from its label. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::Launch;
use super::super::template;
use super::{LABEL, NODE_ID, POOL, PROVIDER};
use crate::config::{Driver, PodLabel};

/// Labels of what belongs to a node: those of the label, and Nodepool's own.
pub(super) fn labels(launch: &Launch, label: &PodLabel) -> Map<String, Value> {
    let mut labels = label.labels.clone();
    let request = launch.request.as_ref().map(|(id, request)| (id.as_str(), &**request));
    for (name, text) in &label.dynamic_labels {
        let Some(text) = text.as_str() else { continue };
        match template::format(text, request) {
            Ok(value) => drop(labels.insert(name.clone(), value.into())),
            Err(field) => tracing::warn!(label = launch.label, name, field, "cannot fill in a dynamic label"),
        }
    }
    labels.extend(own_labels(launch).into_iter().map(|(name, value)| (name, value.into())));
    labels
}

/// Nodepool's own labels.
pub(super) fn own_labels(launch: &Launch) -> BTreeMap<String, String> {
    let pairs =
        [(NODE_ID, &launch.node_id), (PROVIDER, &launch.provider), (POOL, &launch.pool.name), (LABEL, &launch.label)];
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.clone())).collect()
}

/// The pod of a node. With `account`, it runs as that service account, which the token of the node is bound to.
pub(super) fn pod(driver: Driver, name: &str, launch: &Launch, label: &PodLabel, account: Option<&str>) -> Value {
    let mut spec = label.spec.clone().unwrap_or_else(|| spec(driver, label));
    if let Some(account) = account
        && !spec.contains_key("serviceAccountName")
    {
        spec.insert("serviceAccountName".to_owned(), account.into());
        // The token is for Zuul; what the job runs in the pod needs none.
        spec.entry("automountServiceAccountToken").or_insert(false.into());
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels(launch, label), "annotations": label.annotations},
        "spec": spec,
    })
}

fn spec(driver: Driver, label: &PodLabel) -> Map<String, Value> {
    let mut container = json!({
        "name": label.name,
        "image": label.image,
        "imagePullPolicy": label.image_pull,
        "command": ["/bin/sh", "-c"],
        "args": ["while true; do sleep 30; done;"],
        "env": label.env,
    });
    let resources = resources(label);
    if !resources.is_empty() {
        container["resources"] = resources.into();
    }
    if !label.volume_mounts.is_empty() {
        container["volumeMounts"] = label.volume_mounts.clone().into();
    }
    if let Some(privileged) = label.privileged {
        container["securityContext"] = json!({"privileged": privileged});
    }
    let mut spec = Map::new();
    spec.insert("containers".to_owned(), json!([container]));
    spec.insert("restartPolicy".to_owned(), "Never".into());
    if driver != Driver::Kubernetes && !label.image_pull_secrets.is_empty() {
        spec.insert("imagePullSecrets".to_owned(), label.image_pull_secrets.clone().into());
    }
    if let Some(selector) = &label.node_selector {
        spec.insert("nodeSelector".to_owned(), selector.clone().into());
    }
    if let Some(scheduler) = &label.scheduler_name {
        spec.insert("schedulerName".to_owned(), scheduler.clone().into());
    }
    if !label.volumes.is_empty() {
        spec.insert("volumes".to_owned(), label.volumes.clone().into());
    }
    spec
}

fn resources(label: &PodLabel) -> Map<String, Value> {
    let amounts = |cpu: Option<u64>, memory: Option<u64>, storage: Option<u64>| {
        let mut amounts = Map::new();
        let mut set = |name: &str, value: Option<Value>| value.map(|value| amounts.insert(name.to_owned(), value));
        set("cpu", cpu.map(Value::from));
        set("memory", memory.map(|mib| format!("{mib}Mi").into()));
        set("ephemeral-storage", storage.map(|mb| format!("{mb}M").into()));
        if let (Some(gpu), Some(resource)) = (label.gpu, &label.gpu_resource) {
            set(resource, Some(format!("{gpu:.2}").into()));
        }
        amounts
    };
    let requests = amounts(label.cpu, label.memory, label.storage);
    let limits = amounts(label.cpu_limit, label.memory_limit, label.storage_limit);
    let both = [("requests", requests), ("limits", limits)].into_iter().filter(|(_, amounts)| !amounts.is_empty());
    both.map(|(name, amounts)| (name.to_owned(), amounts.into())).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::{self, Config, File, LabelDetails};
    use crate::model::NodeRequest;

    fn config(label: &str) -> Config {
        let text = format!(
            "providers: [{{name: pods, driver: openshiftpods, context: c, pools: [{{name: ci, labels: [{label}]}}]}}]"
        );
        config::read(File { name: "nodepool.yaml", text: &text }, None, &|_| None).valid().unwrap()
    }

    fn made(label: &str) -> Value {
        let config = config(label);
        let pool = Arc::new(config.providers[0].pools[0].clone());
        let (name, details) = pool.labels.iter().next().map(|(name, it)| (name.clone(), it.clone())).unwrap();
        let mut request = NodeRequest::new(vec![name.clone()], 0.0);
        request.tenant_name = Some("acme".to_owned());
        let launch = Launch {
            node_id: "0000000007".to_owned(),
            provider: "pods".to_owned(),
            pool,
            label: name.clone(),
            details: Arc::new(details.clone()),
            request: Some(("200-1".to_owned(), Arc::new(request))),
            image: None,
        };
        let LabelDetails::Pod(label) = details.details else { panic!("a pod") };
        pod(Driver::OpenShiftPods, &format!("{name}-0000000007"), &launch, &label, Some("my-pod-0000000007"))
    }

    #[test]
    fn every_key_of_a_label_reaches_the_pod() {
        let pod = made(
            "{name: my-pod, image: fedora, image-pull: Always, image-pull-secrets: [{name: reg}], cpu: 2, memory: 512, \
             storage: 10, cpu-limit: 4, gpu: 0.5, gpu-resource: gpu.example.com/shared, env: [{name: A, value: b}], \
             node-selector: {zone: a}, privileged: false, scheduler-name: mine, volumes: [{name: v, emptyDir: {}}], \
             volume-mounts: [{name: v, mountPath: /v}], labels: {team: ci}, \
             dynamic-labels: {tenant: '{request.tenant_name}'}, annotations: {note: x}}",
        );
        insta::assert_snapshot!(serde_json::to_string_pretty(&pod).unwrap());
    }

    #[test]
    fn a_whole_spec_takes_the_place_of_all_keys() {
        let pod = made("{name: my-pod, spec: {containers: [{name: c, image: i}], serviceAccountName: own}}");
        assert_eq!(pod["spec"], json!({"containers": [{"name": "c", "image": "i"}], "serviceAccountName": "own"}));
        assert_eq!(pod["metadata"]["labels"]["nodepool_node_id"], "0000000007");
        let pod = made("{name: my-pod, spec: {containers: [{name: c, image: i}]}}");
        assert_eq!(pod["spec"]["serviceAccountName"], "my-pod-0000000007");
    }
}
