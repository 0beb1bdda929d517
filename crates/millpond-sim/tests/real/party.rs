//! A real API server with one of the two parties on it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use millpond_sim::cluster::Cluster;
use millpond_sim::{Nodes, Options, Part, StandIns};
use millpond_testkit::{RealCluster, RealClusterBuilder};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long a party may take for one step; only a party that never gets there takes so long.
const PATIENCE: Duration = Duration::from_secs(90);

/// A real API server with the controllers under test.
pub(crate) struct Party {
    pub(crate) client: Client,
    pub(crate) cluster: Arc<Cluster>,
    changed: watch::Receiver<u64>,
    token: CancellationToken,
    stand_ins: StandIns,
    /// Ends with the party.
    _real: RealCluster,
}

impl Party {
    /// Starts a server with real parts and with stand-ins for the rest.
    pub(crate) async fn start(real: &RealClusterBuilder, parts: &[Part]) -> Result<Self> {
        let real = real.start()?;
        let client = real.client().await?;
        let token = CancellationToken::new();
        let options = Options {
            nodes: Nodes::All,
            pod_startup: Duration::from_millis(50),
            pod_shutdown: Duration::ZERO,
            job_duration: Duration::from_secs(1),
            lease_interval: Some(Duration::from_secs(10)),
            ..Options::default()
        };
        let every = StandIns::builder(client.clone()).only(parts.iter().copied()).options(options);
        let stand_ins = every.spawn(token.clone());
        let cluster = Arc::clone(stand_ins.cluster());
        let (sender, changed) = watch::channel(0);
        let sender = Arc::new(sender);
        macro_rules! follow {
            ($($mirror:ident),+) => {$(
                let told = Arc::clone(&sender);
                cluster.$mirror.on_change(move |_, _| told.send_modify(|count| *count += 1));
            )+};
        }
        follow!(pods, nodes);
        Ok(Self { client, cluster, changed, token, stand_ins, _real: real })
    }

    pub(crate) async fn stop(self) {
        self.token.cancel();
        self.stand_ins.ended().await;
    }

    pub(crate) fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        if ["Node", "PriorityClass", "Namespace"].contains(&kind) {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), "default", &resource)
        }
    }

    pub(crate) async fn create(&self, object: Value) -> Result<DynamicObject> {
        let object: DynamicObject = serde_json::from_value(object)?;
        let types = object.types.clone().context("a kind")?;
        let api = self.api(&types.api_version, &types.kind);
        api.create(&PostParams::default(), &object).await.with_context(|| format!("create {object:?}"))
    }

    pub(crate) async fn patch(&self, api_version: &str, kind: &str, name: &str, patch: Value) -> Result<()> {
        let api = self.api(api_version, kind);
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Reads an object; `null` when it is not there.
    pub(crate) async fn read(&self, api_version: &str, kind: &str, name: &str) -> Result<Value> {
        Ok(serde_json::to_value(self.api(api_version, kind).get_opt(name).await?)?)
    }

    /// Reads an object until it is as wanted, looking again whenever pods or nodes change.
    pub(crate) async fn read_until(
        &self,
        (api_version, kind, name): (&str, &str, &str),
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let mut changed = self.changed.clone();
        let mut last = Value::Null;
        let waited = tokio::time::timeout(PATIENCE, async {
            loop {
                changed.mark_unchanged();
                last = self.read(api_version, kind, name).await?;
                if wanted(&last) {
                    return Ok(());
                }
                // Statuses change without a pod changing: look at least twice a second.
                let _ = tokio::time::timeout(Duration::from_millis(500), changed.changed()).await;
            }
        })
        .await;
        match waited {
            Ok(outcome) => outcome.map(|()| last),
            Err(_) => bail!("{kind} {name} never came to be as wanted: {last:#}"),
        }
    }

    /// The first version of a new pod that is as wanted. Sees each version, also those that the next one follows at once.
    pub(crate) async fn first_version(
        &self,
        created: &DynamicObject,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let name = created.name_any();
        let params = WatchParams::default().fields(&format!("metadata.name={name}"));
        let since = created.resource_version().context("a resource version")?;
        let mut versions = self.api("v1", "Pod").watch(&params, &since).await?.boxed();
        let wanted = async {
            while let Some(event) = versions.try_next().await? {
                if let WatchEvent::Modified(pod) = event {
                    let pod = serde_json::to_value(pod)?;
                    if wanted(&pod) {
                        return Ok(pod);
                    }
                }
            }
            bail!("the watch of pod {name} ended")
        };
        tokio::time::timeout(PATIENCE, wanted)
            .await
            .with_context(|| format!("pod {name} never came to be as wanted"))?
    }

    /// The pods that are there, by name.
    pub(crate) async fn pod_names(&self) -> Result<Vec<String>> {
        let pods = self.api("v1", "Pod").list(&ListParams::default()).await?;
        Ok(pods.items.iter().map(ResourceExt::name_any).collect())
    }

    /// Removes all pods at once.
    pub(crate) async fn remove_pods(&self) -> Result<()> {
        let api = self.api("v1", "Pod");
        api.delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default()).await?;
        let mut changed = self.changed.clone();
        while !self.cluster.pods.is_empty() {
            tokio::time::timeout(PATIENCE, changed.changed()).await.context("pods stay")??;
        }
        Ok(())
    }

    /// A node that the kubelets make ready.
    pub(crate) async fn node(&self, name: &str, cpu: &str, labels: Value, spec: Value, extended: Value) -> Result<()> {
        let mut labels = labels;
        labels["kubernetes.io/hostname"] = json!(name);
        let mut resources = json!({"cpu": cpu, "memory": "16Gi", "pods": "20", "ephemeral-storage": "10Gi"});
        for (key, value) in extended.as_object().into_iter().flatten() {
            resources[key] = value.clone();
        }
        self.create(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec,
            "status": {"capacity": resources, "allocatable": resources},
        }))
        .await?;
        let is_settled = |node: &Value| {
            let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            !taints.iter().any(|taint| taint["key"] == "node.kubernetes.io/not-ready")
        };
        self.read_until(("v1", "Node", name), is_settled).await?;
        Ok(())
    }
}
