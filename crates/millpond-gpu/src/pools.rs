//! The nodes that the NodePools of a cluster could add for a job that no node fits: the planner gets the pools without
//! any node, and one pod of the job.

use std::collections::HashMap;
use std::sync::Arc;

use kube::Client;
use millpond_api::capi::gpu::Vendor;
use millpond_api::catalog::config_map;
use millpond_api::duration::NillableDuration;
use millpond_api::gpu_info::{GPUInfoSpec, Proposal};
use millpond_api::{money, quantity};
use millpond_plan::model::Snapshot;
use millpond_plan::plan::{NewNode, Settings};
use millpond_state::{Options, PoolsOf, Reader};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::devices::Model;

const NODE_POOLS: &str = "/apis/karpenter.sh/v1/nodepools";
/// Kinds that determine prices and types of pools.
const MORE: [&str; 2] = ["/apis/millpond.dev/v1alpha1/nodeclasses", "/apis/karpenter.sh/v1alpha1/nodeoverlays"];
/// Labels by which catalogues tell the model of their GPUs; values are in lower case.
const MODEL_LABELS: [&str; 2] = ["karpenter.k8s.aws/instance-gpu-name", "cloud.google.com/gke-accelerator"];
/// Labels by which catalogues tell the memory of one GPU in MiB.
const MEMORY_LABEL: &str = "karpenter.k8s.aws/instance-gpu-memory";

/// The pools of a cluster at one moment.
#[derive(Debug, Default)]
pub struct Pools {
    /// Lists of objects, as JSON.
    lists: Vec<String>,
    /// Results by the spec of the job.
    found: Mutex<HashMap<String, Option<Proposal>>>,
}

impl Pools {
    /// Reads them. A list that the cluster does not have, or does not give, is left out.
    pub async fn fetch(client: &Client) -> Arc<Self> {
        let catalogues = format!("/api/v1/configmaps?labelSelector={}", config_map::LABEL);
        let paths = [NODE_POOLS].into_iter().chain(MORE).chain([catalogues.as_str()]);
        let mut lists = Vec::new();
        for path in paths {
            let Ok(request) = http::Request::get(path).body(Vec::new()) else { continue };
            match client.request_text(request).await {
                Ok(text) => lists.push(text),
                Err(error) => tracing::debug!(path, %error, "left out of proposals"),
            }
        }
        Arc::new(Self::of(lists))
    }

    /// From lists of objects, as an API server writes them.
    pub fn of(lists: Vec<String>) -> Self {
        Self { lists, found: Mutex::default() }
    }

    /// The cheapest node that would fit a job; `None` if no pool can add one.
    pub(crate) fn proposal(&self, spec: &GPUInfoSpec, now: i64) -> Option<Proposal> {
        if spec.gpus() == 0 {
            return None;
        }
        let key = serde_json::to_string(spec).unwrap_or_default();
        if let Some(found) = self.found.lock().get(&key) {
            return found.clone();
        }
        let found = self.plan(spec, now).map(|offer| offer.proposal());
        self.found.lock().insert(key, found.clone());
        found
    }

    /// Plans one pod of the job for each maker of GPUs, and takes the cheapest node: pods ask by the maker's resource.
    fn plan(&self, spec: &GPUInfoSpec, now: i64) -> Option<Offer> {
        let mut reader = Reader::new();
        for list in &self.lists {
            let Ok(mut list) = serde_json::from_str::<Value>(list) else { continue };
            if let Some(items) = list["items"].as_array_mut() {
                items.retain(|item| lasts(item, spec));
                items.iter_mut().for_each(leave_what_is_free);
            }
            reader.add("list.json", list.to_string().as_bytes());
        }
        for vendor in Vendor::ALL {
            reader.add("pod.json", pod(spec, vendor).to_string().as_bytes());
        }
        let options = Options { pools_of: PoolsOf::NodePools, require_classes: true, ..Options::default() };
        let snapshot = reader.finish().state.snapshot(now, &options).snapshot;
        let outcome = millpond_plan::plan(&snapshot, &Settings::default());
        let offers = outcome.plan.new_nodes.iter().map(|node| Offer::of(&snapshot, node));
        offers.filter(|offer| offer.fits(spec)).min_by_key(|offer| offer.price)
    }
}

/// Whether nodes of a pool live at least as long as the job runs. Objects of other kinds pass.
fn lasts(item: &Value, spec: &GPUInfoSpec) -> bool {
    let expiry = &item["spec"]["template"]["spec"]["expireAfter"];
    match serde_json::from_value(expiry.clone()) {
        Ok(NillableDuration::Seconds(seconds)) => seconds / 3600 >= spec.des_acc_time,
        _ => true,
    }
}

/// Takes from the limits of a pool what its nodes have already: the planner sees none of them.
fn leave_what_is_free(item: &mut Value) {
    let used = item["status"]["resources"].clone();
    let limits = item.pointer_mut("/spec/limits").and_then(Value::as_object_mut);
    for (resource, limit) in limits.into_iter().flatten() {
        let milli = |value: &Value| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            quantity::parse_milli(&text).ok()
        };
        if let (Some(most), Some(used)) = (milli(limit), milli(&used[resource.as_str()])) {
            *limit = format!("{}m", most.saturating_sub(used)).into();
        }
    }
}

/// A pod of the job, which waits.
fn pod(spec: &GPUInfoSpec, vendor: Vendor) -> Value {
    let resource = vendor.resource();
    let amount = json!({resource: spec.gpus().to_string()});
    let mut tolerations: Vec<Value> = spec.tolerations.iter().map(|toleration| json!(toleration)).collect();
    tolerations.push(json!({"key": resource, "operator": "Exists"}));
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": vendor.name().to_ascii_lowercase(), "namespace": "default"},
        "spec": {
            "nodeSelector": spec.node_selector,
            "tolerations": tolerations,
            "containers": [{"name": "job", "image": "job", "resources": {"requests": amount, "limits": amount}}],
        },
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
        },
    });
    let terms = model_terms(spec);
    if !terms.is_empty() {
        let required = json!({"nodeSelectorTerms": terms});
        pod["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
    }
    pod
}

/// Where the model and the memory that are asked for are: one term for each way in which a catalogue tells them.
fn model_terms(spec: &GPUInfoSpec) -> Vec<Value> {
    let memory = spec.min_memory_gib.and_then(|memory| memory.checked_shl(10)).map(|mib| mib.saturating_sub(1));
    let more = memory.map(|mib| json!({"key": MEMORY_LABEL, "operator": "Gt", "values": [mib.to_string()]}));
    let Some(model) = &spec.gpu_model else {
        return more.into_iter().map(|memory| json!({"matchExpressions": [memory]})).collect();
    };
    let is_value = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let names = Model::asked(model).names().into_iter().map(|name| name.to_ascii_lowercase());
    let names = names.filter(|name| name.chars().all(is_value));
    let names: Vec<String> =
        names.flat_map(|name| [format!("nvidia-{name}"), format!("nvidia-tesla-{name}"), name]).collect();
    let term = |label: &&str| {
        let mut expressions = vec![json!({"key": label, "operator": "In", "values": names})];
        expressions.extend(more.clone().filter(|_| *label == MODEL_LABELS[0]));
        json!({"matchExpressions": expressions})
    };
    MODEL_LABELS.iter().map(term).collect()
}

/// A node that a pool could bring.
struct Offer {
    pool: String,
    instance_type: String,
    /// Nano-dollars an hour.
    price: u64,
    model: Model,
}

impl Offer {
    fn of(snapshot: &Snapshot, node: &NewNode) -> Self {
        let text = |(key, value)| (snapshot.text(key).to_owned(), snapshot.text(value).to_owned());
        Self {
            pool: snapshot.pools[node.pool.index()].name.clone(),
            instance_type: snapshot.text(snapshot.types[node.instance_type.index()].name).to_owned(),
            price: node.price,
            model: Model::of_labels(&node.labels.iter().map(text).collect()),
        }
    }

    /// Whether its GPUs meet the requirements that the planner does not know.
    fn fits(&self, spec: &GPUInfoSpec) -> bool {
        let names = self.model.names();
        let is_model = |model: &String| names.iter().any(|name| name.eq_ignore_ascii_case(model));
        let least = spec.min_memory_gib.and_then(|memory| u64::try_from(memory).ok()).map(|memory| memory << 10);
        spec.gpu_model.as_ref().is_none_or(is_model)
            && least.is_none_or(|least| self.model.memory_mib.is_some_and(|memory| memory >= least))
    }

    fn proposal(&self) -> Proposal {
        let price = money::exact(self.price);
        let message =
            format!("one node of pool {} ({}, ${price} an hour) would fit the job", self.pool, self.instance_type);
        Proposal {
            pool: Some(self.pool.clone()),
            nodes: 1,
            instance_type: Some(self.instance_type.clone()),
            price_per_hour: Some(price),
            message,
        }
    }
}

#[cfg(test)]
mod tests {
    use millpond_api::labels;
    use serde_json::Map;

    use super::*;

    fn pool(name: &str, more: Value) -> Value {
        let requirements = |kind: &str, values: &[&str]| json!({"key": kind, "operator": "In", "values": values});
        let mut pool = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
            "spec": {"template": {"spec": {
                "nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": "default"},
                "requirements": [
                    requirements("karpenter.sh/capacity-type", &["on-demand"]),
                    requirements(labels::INSTANCE_TYPE, &["g4dn.xlarge", "g4dn.12xlarge", "p4d.24xlarge", "m5.large"]),
                ],
            }}},
        });
        merge(&mut pool, more);
        pool
    }

    fn merge(value: &mut Value, more: Value) {
        match (value, more) {
            (Value::Object(value), Value::Object(more)) => {
                more.into_iter().for_each(|(key, more)| merge(value.entry(key).or_insert(Value::Null), more));
            }
            (value, more) => *value = more,
        }
    }

    /// Pool, type and price of a proposal.
    fn check(pools: &[Value], spec: Value, expected: Option<(&str, &str, &str)>) {
        let class = json!({
            "apiVersion": "millpond.dev/v1alpha1", "kind": "NodeClass", "metadata": {"name": "default"},
            "spec": {"provider": "sim", "catalog": "aws"},
        });
        let list = |kind: &str, items: &[Value]| json!({"apiVersion": "v1", "kind": kind, "items": items}).to_string();
        let pools = Pools::of(vec![list("List", pools), list("List", &[class])]);
        let mut whole =
            Map::from_iter([("desAccTime".to_owned(), json!(100)), ("gpuRequired".to_owned(), json!(true))]);
        whole.extend(spec.as_object().cloned().unwrap_or_default());
        let found = pools.proposal(&serde_json::from_value(Value::Object(whole)).unwrap(), 1_794_803_400);
        let shown = found.as_ref().map(|found| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            (text(&found.pool), text(&found.instance_type), text(&found.price_per_hour))
        });
        let expected = expected.map(|(pool, kind, price)| (pool.to_owned(), kind.to_owned(), price.to_owned()));
        assert_eq!(shown, expected);
        assert!(found.is_none_or(|found| found.nodes == 1));
    }

    #[test]
    fn the_cheapest_node_of_the_pools_is_proposed() {
        let t4 = Some(("gpu", "g4dn.xlarge", "0.526"));
        let gpu = pool("gpu", json!({}));
        check(std::slice::from_ref(&gpu), json!({}), t4);
        check(std::slice::from_ref(&gpu), json!({"gpuModel": "T4"}), t4);
        check(std::slice::from_ref(&gpu), json!({"gpuModel": "10de:1eb8"}), t4);
        check(std::slice::from_ref(&gpu), json!({"minMemoryGiB": 16}), t4);
        check(std::slice::from_ref(&gpu), json!({"gpuCount": 4}), Some(("gpu", "g4dn.12xlarge", "3.912")));
        check(std::slice::from_ref(&gpu), json!({"gpuModel": "H100"}), None);
        check(std::slice::from_ref(&gpu), json!({"gpuCount": 16}), None);
        check(std::slice::from_ref(&gpu), json!({"nodeSelector": {"team": "a"}}), None);
        check(std::slice::from_ref(&gpu), json!({"gpuRequired": false}), None);
        // Its nodes would not live that long, its limit is reached, its taint is not tolerated, its class is missing.
        let short = pool("short", json!({"spec": {"template": {"spec": {"expireAfter": "72h"}}}}));
        check(std::slice::from_ref(&short), json!({}), None);
        check(std::slice::from_ref(&short), json!({"desAccTime": 72}), Some(("short", "g4dn.xlarge", "0.526")));
        let used =
            json!({"spec": {"limits": {"nvidia.com/gpu": "4"}}, "status": {"resources": {"nvidia.com/gpu": "3"}}});
        check(&[pool("full", used.clone())], json!({"gpuCount": 4}), None);
        check(&[pool("full", used)], json!({}), Some(("full", "g4dn.xlarge", "0.526")));
        let taints = json!([{"key": "team", "value": "a", "effect": "NoSchedule"}]);
        let tainted = pool("tainted", json!({"spec": {"template": {"spec": {"taints": taints}}}}));
        check(std::slice::from_ref(&tainted), json!({}), None);
        check(
            &[tainted],
            json!({"tolerations": [{"key": "team", "operator": "Exists"}]}),
            Some(("tainted", "g4dn.xlarge", "0.526")),
        );
        let lost = pool("lost", json!({"spec": {"template": {"spec": {"nodeClassRef": {"name": "other"}}}}}));
        check(&[lost], json!({}), None);
        check(&[], json!({}), None);
        check(&[short, gpu], json!({}), t4);
    }
}
