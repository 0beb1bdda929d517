//! The cluster as watches show it, and changes of it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::stream::{self, Stream, StreamExt as _};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt as _};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::table::Situation;

/// How long something may take; a machine under load is slow.
const PATIENCE: Duration = Duration::from_mins(3);
/// Kinds that are watched.
const WATCHED: [(&str, &str, &str); 5] = [
    ("", "v1", "Pod"),
    ("", "v1", "Node"),
    ("karpenter.sh", "v1", "NodePool"),
    ("karpenter.sh", "v1", "NodeClaim"),
    ("events.k8s.io", "v1", "Event"),
];
/// Kinds of objects that stand in a namespace.
const NAMESPACED: [&str; 7] =
    ["Pod", "Deployment", "DaemonSet", "PodDisruptionBudget", "PersistentVolumeClaim", "ConfigMap", "Event"];

type Changes = Pin<Box<dyn Stream<Item = (&'static str, Event<DynamicObject>)> + Send>>;

/// The cluster.
pub(crate) struct World {
    client: Client,
    /// By kind and name; all are in the namespace `default` or in none.
    objects: BTreeMap<(&'static str, String), Value>,
    changes: Changes,
}

fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    let kind = GroupVersionKind::gvk(group, version, kind);
    // Its plural is its name.
    let is_plural = kind.kind == "ClusterLimits";
    if is_plural { ApiResource::from_gvk_with_plural(&kind, "clusterlimits") } else { ApiResource::from_gvk(&kind) }
}

impl World {
    /// Watches a cluster.
    pub(crate) fn watch(client: Client) -> Self {
        let streams = WATCHED.map(|(group, version, kind)| {
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(group, version, kind));
            let events = watcher::watcher(api, watcher::Config::default());
            events.filter_map(move |event| async move { Some((kind, event.ok()?)) }).boxed()
        });
        let changes = Box::pin(stream::select_all(streams));
        Self { client, objects: BTreeMap::new(), changes }
    }

    fn take(&mut self, kind: &'static str, event: Event<DynamicObject>) {
        let key = |object: &DynamicObject| (kind, object.name_any());
        match event {
            Event::Apply(object) | Event::InitApply(object) => {
                if let Ok(value) = serde_json::to_value(&object) {
                    self.objects.insert(key(&object), value);
                }
            }
            Event::Delete(object) if kind != "Event" => drop(self.objects.remove(&key(&object))),
            _ => {}
        }
    }

    /// Follows the watches until a condition holds.
    pub(crate) async fn until(&mut self, what: &str, holds: impl Fn(&Self) -> Result<()>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while let Err(late) = holds(self) {
            match timeout_at(deadline, self.changes.next()).await {
                Ok(Some((kind, event))) => self.take(kind, event),
                Ok(None) => bail!("{what}: the watches ended"),
                Err(_) => bail!("{what}, but: {late}"),
            }
        }
        Ok(())
    }

    /// Asks again with every change until nothing is late. Changes that are there already are taken together.
    pub(crate) async fn until_asked(
        &mut self,
        what: &str,
        mut late: impl FnMut() -> Result<Option<String>>,
    ) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while let Some(said) = late()? {
            match timeout_at(deadline, self.changes.next()).await {
                Ok(Some((kind, event))) => self.take(kind, event),
                Ok(None) => bail!("{what}: the watches ended"),
                Err(_) => bail!("{what}, but {said}"),
            }
            while let Some(Some((kind, event))) = futures::FutureExt::now_or_never(self.changes.next()) {
                self.take(kind, event);
            }
        }
        Ok(())
    }

    fn api(&self, version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = resource(group, version, kind);
        if NAMESPACED.contains(&kind) {
            Api::namespaced_with(self.client.clone(), "default", &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        }
    }

    fn api_of(&self, kind: &str) -> Api<DynamicObject> {
        let (group, version, kind) = WATCHED.into_iter().find(|(.., known)| *known == kind).expect("a watched kind");
        self.api(&if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }, kind)
    }

    /// Makes an object.
    pub(crate) async fn create(&self, object: &Value) -> Result<()> {
        let (version, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
        let api = self.api(version.unwrap_or_default(), kind.unwrap_or_default());
        let made: DynamicObject = serde_json::from_value(object.clone())?;
        api.create(&PostParams::default(), &made).await.with_context(|| format!("create {object}"))?;
        Ok(())
    }

    /// Merges a change into an object.
    pub(crate) async fn patch(&self, kind: &str, name: &str, change: &Value) -> Result<()> {
        self.api_of(kind).patch(name, &PatchParams::default(), &Patch::Merge(change)).await?;
        Ok(())
    }

    /// Deletes an object.
    pub(crate) async fn delete(&self, kind: &str, name: &str) -> Result<()> {
        self.api_of(kind).delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    fn of(&self, kind: &'static str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |((known, _), _)| *known == kind).map(|(_, object)| object)
    }

    fn get(&self, kind: &'static str, name: &str) -> Option<&Value> {
        self.objects.get(&(kind, name.to_owned()))
    }

    /// Notes of the events of a reason about an object.
    pub(crate) fn notes(&self, kind: &str, name: &str, reason: &str) -> Vec<String> {
        let about = |event: &&Value| {
            event["regarding"]["kind"] == kind && event["regarding"]["name"] == name && event["reason"] == reason
        };
        let own = |event: &&Value| event["reportingController"] == "millpond";
        let notes = self.of("Event").filter(about).filter(own);
        notes.filter_map(|event| event["note"].as_str()).map(str::to_owned).collect()
    }

    /// Whether a pod has a node and runs there.
    pub(crate) fn pod_runs(&self, name: &str) -> Result<()> {
        let pod = self.get("Pod", name);
        let runs = pod.is_some_and(|pod| pod["status"]["phase"] == "Running" && pod["spec"]["nodeName"].is_string());
        if runs { Ok(()) } else { bail!("pod {name} does not run: {}", pod.map_or(&Value::Null, |pod| &pod["status"])) }
    }

    /// The pod of a Deployment.
    pub(crate) fn pod_of_workload(&self, name: &str) -> Result<String> {
        let mut pods = self.of("Pod").filter(|pod| pod["metadata"]["labels"]["app"] == name);
        let pod = pods.find_map(|pod| pod["metadata"]["name"].as_str());
        pod.map(str::to_owned).with_context(|| format!("deployment {name} has no pod"))
    }

    /// Whether the pod of a Deployment runs, on a node that is ready for pods.
    pub(crate) fn workload_runs(&self, name: &str) -> Result<()> {
        self.pod_runs(&self.pod_of_workload(name)?)?;
        let claim = self.claim_of(name)?;
        if self.has_condition(&claim, "Initialized") { Ok(()) } else { bail!("claim {claim} is not initialized") }
    }

    fn claims(&self, pool: &str) -> impl Iterator<Item = &Value> {
        self.of("NodeClaim").filter(move |claim| claim["metadata"]["labels"]["karpenter.sh/nodepool"] == pool)
    }

    /// The number of claims of a pool.
    pub(crate) fn claims_of(&self, pool: &str) -> usize {
        self.claims(pool).count()
    }

    /// The claim of a pool.
    pub(crate) fn claim_of(&self, pool: &str) -> Result<String> {
        let name = self.claims(pool).find_map(|claim| claim["metadata"]["name"].as_str());
        name.map(str::to_owned).with_context(|| format!("pool {pool} has no claim"))
    }

    fn has_condition(&self, claim: &str, kind: &str) -> bool {
        let conditions = self.get("NodeClaim", claim).and_then(|claim| claim["status"]["conditions"].as_array());
        conditions.into_iter().flatten().any(|it| it["type"] == kind && it["status"] == "True")
    }

    /// Whether the claim of a situation is as far as it says.
    pub(crate) fn claim_is(&self, situation: &Situation) -> Result<()> {
        let claim = self.claim_of(&situation.name)?;
        if let Some(kind) = situation.claim.as_deref().filter(|kind| !self.has_condition(&claim, kind)) {
            bail!("claim {claim} is not {kind}");
        }
        let leaves = self.get("NodeClaim", &claim).is_some_and(|it| it["metadata"]["deletionTimestamp"].is_string());
        if leaves == situation.claim_is_deleted() { Ok(()) } else { bail!("claim {claim} is being deleted: {leaves}") }
    }

    /// A condition of a pool.
    pub(crate) fn condition(&self, pool: &str, kind: &str) -> Option<&Value> {
        let conditions = self.get("NodePool", pool)?["status"]["conditions"].as_array()?;
        conditions.iter().find(|condition| condition["type"] == kind)
    }

    /// The condition of a pool that is false for a reason.
    pub(crate) fn condition_with(&self, pool: &str, reason: &str) -> Result<Value> {
        let object = self.get("NodePool", pool).with_context(|| format!("there is no pool {pool}"))?;
        let conditions = &object["status"]["conditions"];
        let found = conditions.as_array().into_iter().flatten();
        let found = found.into_iter().find(|it| it["reason"] == reason && it["status"] == "False");
        found.cloned().with_context(|| format!("pool {pool} has no condition {reason}: {conditions}"))
    }
}
