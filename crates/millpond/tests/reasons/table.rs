//! `situations.yaml`, and the objects of each situation.

use anyhow::Result;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::world::World;

/// One situation.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Situation {
    pub(crate) name: String,
    #[serde(default)]
    class: Option<Value>,
    #[serde(default)]
    pool: Value,
    #[serde(default)]
    pod: Option<Value>,
    /// Metadata of the pod of a Deployment whose node is looked at.
    #[serde(default)]
    pub(crate) workload: Option<Value>,
    #[serde(default)]
    first: Vec<Value>,
    #[serde(default)]
    with: Vec<Value>,
    /// A change of the pool, once its pods run.
    #[serde(default)]
    later: Option<Value>,
    /// A condition that the claim has then.
    #[serde(default)]
    pub(crate) claim: Option<String>,
    #[serde(default)]
    delete_claim: bool,
    /// The node of the first pods is looked at.
    #[serde(default)]
    node: bool,
    /// Its pods never run.
    #[serde(default, rename = "pods", deserialize_with = "wait")]
    pub(crate) pods_wait: bool,
    #[serde(default)]
    pub(crate) says: String,
    #[serde(default)]
    pub(crate) pool_says: Option<String>,
    #[serde(default)]
    pub(crate) reason: Option<String>,
    #[serde(default)]
    pub(crate) ready: Option<String>,
    #[serde(default, rename = "then")]
    pub(crate) fate: Fate,
}

/// What becomes of the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fate {
    #[default]
    Waits,
    Runs,
    Gated,
}

fn wait<'de, D: serde::Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    Ok(String::deserialize(from)? == "wait")
}

/// All of them.
pub(crate) fn situations() -> Vec<Situation> {
    serde_saphyr::from_str(include_str!("situations.yaml")).expect("situations that can be read")
}

impl Situation {
    /// Whether a node of the pool is what is asked about.
    pub(crate) fn is_about_node(&self) -> bool {
        self.workload.is_some() || self.node
    }

    pub(crate) fn has_pod(&self) -> bool {
        !self.is_about_node() && !self.says.is_empty()
    }

    pub(crate) fn is_said(&self, sentence: &str) -> bool {
        sentence.contains(&self.says)
    }

    /// The event that a node gets for its blocker.
    pub(crate) fn node_event(&self) -> Option<&'static str> {
        match self.reason.as_deref() {
            Some("PodDoNotDisrupt" | "NodeDoNotDisrupt" | "PodWithoutOwner" | "PodDisruptionBudget") => {
                Some("DisruptionBlocked")
            }
            Some("ConsolidationOff" | "OnlyWhenEmpty") | None => Some("Unconsolidatable"),
            Some(_) => None,
        }
    }

    /// Whether the pool's condition comes with an event: what its class says is the class's own.
    pub(crate) fn has_pool_event(&self) -> bool {
        !matches!(self.reason.as_deref(), Some("NodeClassNotFound" | "NotReady"))
    }

    pub(crate) fn first_pods(&self) -> impl Iterator<Item = String> {
        (0..self.first.len()).map(|number| format!("{}-{number}", self.name))
    }

    /// What is there before the pod.
    pub(crate) fn first_objects(&self) -> Vec<Value> {
        let mut objects: Vec<Value> = self.class.iter().map(|spec| class(&self.name, spec)).collect();
        let mut own = json!({});
        if self.class.is_some() {
            own["spec"]["template"]["spec"]["nodeClassRef"]["name"] = self.name.as_str().into();
        }
        merge(&mut own, &self.pool);
        objects.push(pool(&self.name, &own));
        objects.extend(self.with.iter().cloned());
        let first = self.first_pods().zip(&self.first);
        objects.extend(first.map(|(name, spec)| pod(&name, &self.name, &json!({}), spec)));
        objects.extend(self.workload.iter().filter(|_| !self.pods_wait).map(|metadata| self.deployment(metadata)));
        objects
    }

    /// What comes when all of that stands.
    pub(crate) fn second_objects(&self) -> Vec<Value> {
        let waiting = self.workload.iter().filter(|_| self.pods_wait).map(|metadata| self.deployment(metadata));
        let spec = self.pod.clone().unwrap_or_else(|| json!({}));
        let pod = self.has_pod().then(|| pod(&self.name, &self.name, &json!({}), &spec));
        waiting.chain(pod).collect()
    }

    fn deployment(&self, metadata: &Value) -> Value {
        let pod = pod(&self.name, &self.name, metadata, &json!({}));
        let mut metadata = pod["metadata"].clone();
        metadata.as_object_mut().expect("an object").remove("name");
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": self.name},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": self.name}},
                "template": {"metadata": metadata, "spec": pod["spec"]},
            },
        })
    }

    /// What changes once its pods run.
    pub(crate) async fn change_later(&self, world: &World) -> Result<()> {
        if let Some(change) = &self.later {
            world.patch("NodePool", &self.name, change).await?;
        }
        if self.delete_claim {
            world.delete("NodeClaim", &world.claim_of(&self.name)?).await?;
        }
        Ok(())
    }

    pub(crate) fn claim_is_deleted(&self) -> bool {
        self.delete_claim
    }
}

/// Types of machines, some of them for one situation only: what is out of stock is so for all classes.
pub(crate) fn catalog() -> Value {
    let types = "name,cpu,memory,price,spot,arch,zones,gpu_resource,gpu_count,gpu_name\n\
        small,2,4Gi,0.05,0.02,amd64,za zb,,,\n\
        medium,4,8Gi,0.10,0.04,amd64,za zb,,,\n\
        large,8,16Gi,0.20,0.08,amd64,za zb,,,\n\
        gpu,4,16Gi,1.00,0.40,amd64,za zb,nvidia.com/gpu,1,t4\n\
        arm,4,8Gi,0.08,0.03,arm64,za zb,,,\n\
        scarce,2,4Gi,0.05,0.02,amd64,za zb,,,\n\
        rationed,2,4Gi,0.05,0.02,amd64,za zb,,,\n";
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "catalog-lab", "labels": {"millpond.dev/catalog": "lab"}},
        "data": {"catalog": types},
    })
}

/// A class whose machines are nodes at once.
pub(crate) fn class(name: &str, own: &Value) -> Value {
    let mut spec = json!({
        "provider": "sim", "catalog": "lab", "sim": {"registrationDelay": "0s"}, "backoff": {"initial": "1h", "max": "1h"},
    });
    merge(&mut spec, own);
    json!({"apiVersion": "millpond.dev/v1alpha1", "kind": "NodeClass", "metadata": {"name": name}, "spec": spec})
}

/// A pool whose nodes are for the pods of one situation.
pub(crate) fn pool(name: &str, own: &Value) -> Value {
    let mut pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
        "spec": {
            "disruption": {"consolidateAfter": "Never"},
            "template": {
                "metadata": {"labels": {"situation": name}},
                "spec": {
                    "expireAfter": "Never",
                    "nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": "plain"},
                    "requirements": [
                        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["small", "medium"]},
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                    ],
                },
            },
        },
    });
    merge(&mut pool, own);
    pool
}

/// A pod that asks for the nodes of one situation.
pub(crate) fn pod(name: &str, situation: &str, metadata: &Value, own: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": situation}},
        "spec": {
            "nodeSelector": {"situation": situation},
            "containers": [{"name": "main", "image": "main", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}],
        },
    });
    merge(&mut pod["metadata"], metadata);
    merge(&mut pod["spec"], own);
    pod
}

/// Objects are merged, everything else is replaced.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (_, Value::Null) => {}
        (into, from) => *into = from.clone(),
    }
}
