//! Pools as the command line shows them.

use std::collections::BTreeMap;

use millpond_api::capi::{
    Bootstrap, Deployment, DeploymentStatus, NodeOffer, Phase, Problems, Sources, Strategy, node_group,
};
use serde_json::{Value, json};

use super::plan::texts;
use super::{Current, Path, RejectedChange, find, name_of, topology};

/// A pool.
#[derive(Debug, Clone)]
pub struct PoolView {
    /// Its name: short, unless that is ambiguous.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its MachineDeployment; `None` until the topology has created it.
    pub deployment: Option<String>,
    /// Desired number of machines.
    pub desired: Option<i64>,
    /// The status of the MachineDeployment.
    pub status: DeploymentStatus,
    /// Kubernetes version of its machines.
    pub version: Option<String>,
    /// The bounds of the autoscaler.
    pub bounds: Option<(i64, i64)>,
    /// What one of its nodes offers to pods.
    pub offer: NodeOffer,
    /// The template of its machines.
    pub template: Option<String>,
    /// How machines are replaced.
    pub strategy: Strategy,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether it is left alone.
    pub paused: bool,
    /// When it was created.
    pub created: Option<String>,
    /// Inconsistencies.
    pub warnings: Vec<String>,
    /// The object as read from the API.
    pub raw: Value,
}

/// All pools of a cluster, by name.
pub fn views(current: &Current) -> Vec<PoolView> {
    let mut all: Vec<PoolView> = match current.path {
        Path::Plain => current.deployments.iter().map(|it| of_deployment(current, it, None)).collect(),
        Path::Topology | Path::Tanzu => {
            let of_entry = |entry: &Value| {
                let made = current.deployments.iter().find(|it| find::is_of_entry(current, it, entry));
                made.map_or_else(|| of_entry(current, entry), |it| of_deployment(current, it, Some(entry)))
            };
            let mut all: Vec<PoolView> = find::entries(current).iter().map(of_entry).collect();
            // MachineDeployments beside a topology are pools too.
            all.extend(topology::strangers(current).map(|it| of_deployment(current, it, None)));
            all
        }
    };
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// One pool.
pub fn view(current: &Current, name: &str) -> Result<PoolView, RejectedChange> {
    let found = find::find(current, name).map_err(|missing| find::refuse(current, "NAME", name, &missing))?;
    Ok(match (found.deployment, found.entry) {
        (Some(deployment), entry) => of_deployment(current, deployment, entry),
        (None, Some(entry)) => of_entry(current, entry),
        (None, None) => return Err(find::refuse(current, "NAME", name, &find::LookupError::Unknown)),
    })
}

fn of_deployment(current: &Current, deployment: &Value, entry: Option<&Value>) -> PoolView {
    let problems = Problems::new();
    let view = Deployment::read(&deployment["spec"], &problems);
    let annotations = texts(&deployment["metadata"]["annotations"]);
    node_group::misspelt(&annotations, &problems);
    let bounds = node_group::bounds(&annotations, &problems);
    let offer = offer(current, &view, &annotations, &problems);
    let mut warnings: Vec<String> = problems.into_inner().iter().map(ToString::to_string).collect();
    let bounds = bounds.unwrap_or_else(|errors| {
        warnings.extend(errors.iter().map(ToString::to_string));
        None
    });
    let name = entry.and_then(|entry| entry["name"].as_str()).map(ToOwned::to_owned);
    PoolView {
        name: name.unwrap_or_else(|| find::display_name(current, deployment)),
        namespace: current.namespace.clone(),
        deployment: Some(name_of(deployment).to_owned()),
        desired: view.replicas,
        status: DeploymentStatus::of(&deployment["status"]),
        version: view.template.version.clone(),
        bounds,
        offer,
        template: view.template.infrastructure.as_ref().map(ToString::to_string),
        strategy: view.strategy,
        deleting: !deployment["metadata"]["deletionTimestamp"].is_null(),
        paused: view.paused || annotations.contains_key(millpond_api::capi::names::PAUSED),
        created: deployment["metadata"]["creationTimestamp"].as_str().map(ToOwned::to_owned),
        warnings,
        raw: deployment.clone(),
    }
}

fn of_entry(current: &Current, entry: &Value) -> PoolView {
    let annotations = texts(&entry["metadata"]["annotations"]);
    PoolView {
        name: entry["name"].as_str().unwrap_or_default().to_owned(),
        namespace: current.namespace.clone(),
        deployment: None,
        desired: entry["replicas"].as_i64(),
        status: DeploymentStatus { phase: Phase::Unknown, ..DeploymentStatus::default() },
        version: None,
        bounds: node_group::bounds(&annotations, &Problems::new()).ok().flatten(),
        offer: NodeOffer::default(),
        template: None,
        strategy: Strategy::default(),
        deleting: false,
        paused: false,
        created: None,
        warnings: Vec::new(),
        raw: entry.clone(),
    }
}

/// What a node of a pool will offer to kube-scheduler.
pub fn offer(
    current: &Current,
    view: &Deployment,
    annotations: &BTreeMap<String, String>,
    problems: &Problems,
) -> NodeOffer {
    let infrastructure = view.template.infrastructure.as_ref().and_then(|it| current.template(&it.kind, &it.name));
    let bootstrap = match &view.template.bootstrap {
        Bootstrap::Config(it) => current.template(&it.kind, &it.name),
        Bootstrap::DataSecret(_) | Bootstrap::Missing => None,
    };
    NodeOffer::read(&Sources { annotations, template: &view.template, infrastructure, bootstrap }, problems)
}

impl PoolView {
    /// Resources of a node in one line: `cpu: 8, memory: 32Gi, nvidia.com/gpu: 1`.
    pub fn offers(&self) -> String {
        let amounts = self.offer.capacity.iter().filter(|(name, _)| *name != "pods");
        let parts: Vec<String> =
            amounts.map(|(name, amount)| format!("{name}: {}", millpond_api::amounts::write(name, amount))).collect();
        if parts.is_empty() { "?".to_owned() } else { parts.join(", ") }
    }

    /// For scripts: the object itself, and the view of it.
    pub fn value(&self) -> Value {
        json!({
            "name": self.name, "namespace": self.namespace, "machineDeployment": self.deployment,
            "phase": self.status.phase.name(), "desired": self.desired, "replicas": self.status.replicas,
            "ready": self.status.ready, "updated": self.status.updated, "unavailable": self.status.unavailable,
            "minSize": self.bounds.map(|(min, _)| min), "maxSize": self.bounds.map(|(_, max)| max),
            "version": self.version, "template": self.template, "paused": self.paused, "deleting": self.deleting,
            "offers": self.offer.capacity, "labels": self.offer.labels, "taints": self.offer.taints,
            "warnings": self.warnings, "object": self.raw,
        })
    }
}
