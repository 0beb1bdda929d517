//! MachineDeployments: MachineSets that replace one another.

pub mod defaults;
pub mod rollout;
pub mod sets;
pub mod status;

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use millpond_api::capi::{self, Bootstrap, names};
use millpond_controllers::kinds::{CapiCluster, MachineDeployment, MachineSet};
use serde_json::{Value, json};

use super::machine_set::status::MissingTemplates;
use super::{Capi, is_paused, number, owner_reference, template, text, with_owner, without};
use crate::error::Result;
use crate::events::EventReason;
use crate::meta::{Key, annotation, controller_of, is_leaving, status_patch};
use crate::queue::Queue;
use crate::scheduler::fit::labels::Selector;
use crate::worker::Reconcile;
use defaults::FINALIZER;
use sets::Sets;

const COMPONENT: &str = "machinedeployment-controller";
/// A missing template is looked up again after this long: templates are not watched.
const TEMPLATE_AGAIN: Duration = Duration::from_secs(2);

/// The MachineDeployment controller.
pub struct Deployments {
    capi: Arc<Capi>,
}

impl Deployments {
    /// The controller, and the work queue that watches fill.
    pub fn new(capi: &Arc<Capi>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new());
        let own = Arc::clone(&queue);
        capi.deployments.on_change(move |_, new| {
            if let Some(deployment) = new {
                own.add(Key::of(&**deployment));
            }
        });
        let (own, all) = (Arc::clone(&queue), Arc::clone(&capi.deployments));
        capi.sets.on_change(move |old, new| {
            for set in old.into_iter().chain(new) {
                let namespace = set.namespace().unwrap_or_default();
                match controller_of(&**set) {
                    Some(owner) if owner.kind == "MachineDeployment" => own.add(Key::new(&namespace, &owner.name)),
                    Some(_) => {}
                    None => all
                        .list_in(&namespace)
                        .iter()
                        .filter(|deployment| adopts(deployment, set))
                        .for_each(|deployment| own.add(Key::of(&**deployment))),
                }
            }
        });
        let (own, batch) = (Arc::clone(&queue), capi.cluster.options.batch);
        capi.machines.on_change(move |_, new| {
            // Its conditions show the progress of a rollout.
            if let Some(machine) = new
                && let Some(name) = machine.labels().get(names::DEPLOYMENT_NAME)
            {
                own.add_after(Key::new(&machine.namespace().unwrap_or_default(), name), batch);
            }
        });
        capi.wake_with_cluster(&capi.deployments, |deployment| &deployment.spec, &queue);
        (Arc::new(Self { capi: Arc::clone(capi) }), queue)
    }

    fn record_event(&self, deployment: &MachineDeployment, reason: &'static str, note: String) {
        let event_reason = EventReason { component: COMPONENT, action: "Scaling", reason, warning: false };
        self.capi.cluster.recorder.record(deployment, event_reason, note);
    }

    /// The MachineSets of a deployment, after adopting those without an owner.
    async fn sets(&self, deployment: &MachineDeployment) -> Result<Vec<Arc<MachineSet>>> {
        if !is_leaving(deployment) {
            for set in self.capi.sets.ownerless(&deployment.namespace().unwrap_or_default()) {
                if adopts(deployment, &set) && !is_leaving(&*set) {
                    let owners =
                        with_owner(set.metadata.owner_references.as_deref(), owner_reference(deployment, true));
                    let patch = json!({"metadata": {
                        "resourceVersion": set.metadata.resource_version,
                        "ownerReferences": owners,
                        "labels": {names::DEPLOYMENT_NAME: deployment.name_any()},
                    }});
                    self.capi.sets.patch(&Key::of(&*set), &patch).await?;
                }
            }
        }
        Ok(self.capi.sets.owned_by(&deployment.uid().unwrap_or_default()))
    }

    /// Looks for the templates, and gives them to the Cluster.
    async fn templates(
        &self,
        view: &capi::Deployment,
        cluster: &CapiCluster,
        namespace: &str,
    ) -> Result<MissingTemplates> {
        let mut missing = MissingTemplates::default();
        let infrastructure = view.template.infrastructure.as_ref();
        let bootstrap = match &view.template.bootstrap {
            Bootstrap::Config(reference) => Some(reference),
            _ => None,
        };
        for (reference, is_bootstrap) in
            bootstrap.map(|it| (it, true)).into_iter().chain(infrastructure.map(|it| (it, false)))
        {
            if !template::is_template(reference) {
                continue;
            }
            match self.capi.externals.get(reference, namespace).await? {
                Some(found) => self.capi.give_to_cluster(&found, cluster).await?,
                None if is_bootstrap => missing.bootstrap = Some(reference.kind.clone()),
                None => missing.infrastructure = Some(reference.kind.clone()),
            }
        }
        Ok(missing)
    }

    /// Moves the rollout by one step. Old Machines stay while new ones could not be made.
    async fn roll(&self, deployment: &MachineDeployment, sets: &mut Sets, missing: &MissingTemplates) -> Result<()> {
        if sets.new.is_none() && missing.any() {
            return Ok(());
        }
        let view = capi::Deployment::of(&deployment.spec);
        let limits = sets::limits(&view);
        let new = sets.new.as_deref().map_or_else(sets::nothing, sets::size);
        let old: Vec<_> = sets.old.iter().map(|set| sets::size(set)).collect();
        let resizes = rollout::step(&limits, &new, &old);
        match sets.new.clone() {
            None => self.create(deployment, &view, sets, resizes.new.unwrap_or_default()).await?,
            Some(set) => {
                let to = resizes.new.unwrap_or(new.wanted);
                sets.new = Some(self.update(deployment, &view, sets, &set, to).await?);
            }
        }
        for (index, size) in old.iter().enumerate() {
            let to = resizes.old.iter().find(|(place, _)| *place == index).map_or(size.wanted, |(_, to)| *to);
            let set = Arc::clone(&sets.old[index]);
            sets.old[index] = self.update(deployment, &view, sets, &set, to).await?;
        }
        Ok(())
    }

    /// Follows `replicas` while a deployment does not roll out.
    async fn scale(&self, deployment: &MachineDeployment, sets: &mut Sets) -> Result<()> {
        let view = capi::Deployment::of(&deployment.spec);
        let limits = sets::limits(&view);
        let active: Vec<Arc<MachineSet>> = sets.all().filter(|set| sets::wanted(set) > 0).cloned().collect();
        let sizes: Vec<_> = active.iter().map(|set| sets::size(set)).collect();
        let resizes: Vec<(Arc<MachineSet>, i64)> = match active.as_slice() {
            [] => {
                let latest = sets.new.clone().or_else(|| sets.old.last().cloned());
                latest.into_iter().map(|set| (set, limits.replicas)).collect()
            }
            [only] => vec![(Arc::clone(only), limits.replicas)],
            _ => {
                let known = number(&deployment.status, &["replicas"]).unwrap_or_default();
                let resizes = rollout::proportionally(&limits, &sizes, known);
                resizes.into_iter().map(|(index, to)| (Arc::clone(&active[index]), to)).collect()
            }
        };
        for (set, to) in resizes {
            self.update(deployment, &view, sets, &set, to).await?;
        }
        Ok(())
    }

    async fn create(
        &self,
        deployment: &MachineDeployment,
        view: &capi::Deployment,
        sets: &mut Sets,
        replicas: i64,
    ) -> Result<()> {
        let name = self.capi.cluster.names.generate(&format!("{}-", deployment.name_any()));
        let mut set = sets::make(deployment, view, &name, sets);
        set.spec["replicas"] = json!(replicas);
        let created = self.capi.sets.create(&set).await?;
        self.record_event(
            deployment,
            "SuccessfulCreate",
            format!("Created MachineSet {name} with {replicas} replicas"),
        );
        sets.new = Some(created);
        Ok(())
    }

    async fn update(
        &self,
        deployment: &MachineDeployment,
        view: &capi::Deployment,
        sets: &Sets,
        set: &Arc<MachineSet>,
        replicas: i64,
    ) -> Result<Arc<MachineSet>> {
        let Some(patch) = sets::update(deployment, view, set, sets, replicas) else { return Ok(Arc::clone(set)) };
        let updated = self.capi.sets.patch(&Key::of(&**set), &patch).await?;
        let (from, name) = (sets::wanted(set), set.name_any());
        if from != replicas {
            let direction = if from < replicas { "up" } else { "down" };
            let note = format!("Scaled {direction} MachineSet {name}: {from} -> {replicas}");
            self.record_event(deployment, "SuccessfulScale", note);
        }
        Ok(updated)
    }

    /// Deletes old sets that have nothing left.
    async fn clean_up(&self, deployment: &MachineDeployment, sets: &Sets) -> Result<()> {
        for set in sets.old.iter().filter(|set| !is_leaving(&***set)) {
            let observed = number(&set.status, &["observedGeneration"]).unwrap_or_default();
            let is_empty = sets::wanted(set) == 0 && number(&set.status, &["replicas"]) == Some(0);
            if is_empty && set.metadata.generation.unwrap_or_default() <= observed {
                self.capi.sets.delete(set, None).await?;
                self.record_event(deployment, "SuccessfulDelete", format!("Deleted MachineSet \"{}\"", set.name_any()));
            }
        }
        Ok(())
    }

    async fn end(&self, deployment: &MachineDeployment) -> Result<()> {
        let sets = self.sets(deployment).await?;
        for set in sets.iter().filter(|set| !is_leaving(&***set)) {
            self.capi.sets.delete(set, None).await?;
        }
        let left: Vec<Arc<MachineSet>> = self.capi.sets.owned_by(&deployment.uid().unwrap_or_default());
        let key = Key::of(deployment);
        if left.is_empty() {
            let finalizers = without(deployment.metadata.finalizers.as_deref(), FINALIZER);
            let patch = json!({"metadata": {
                "resourceVersion": deployment.metadata.resource_version, "finalizers": finalizers,
            }});
            return self.capi.deployments.patch(&key, &patch).await.map(drop);
        }
        self.write_status(&key, &Sets { new: None, old: left }, &MissingTemplates::default()).await.map(drop)
    }

    /// Writes the status if it differs; says what it is.
    async fn write_status(&self, key: &Key, sets: &Sets, missing: &MissingTemplates) -> Result<Value> {
        let Some(deployment) = self.capi.deployments.get(key) else { return Ok(Value::Null) };
        let latest = |set: &Arc<MachineSet>| self.capi.sets.get(&Key::of(&**set));
        let fresh = Sets { new: sets.new.as_ref().and_then(latest), old: sets.old.iter().filter_map(latest).collect() };
        let all: Vec<Arc<MachineSet>> = fresh.all().cloned().collect();
        let facts = status::Facts {
            deployment: &deployment,
            sets: all.iter().map(|set| &**set).collect(),
            new: fresh.new.as_deref(),
            machines: &self.capi.machines_of(&all),
            missing,
            now: self.capi.cluster.clock.time(),
        };
        let status = status::compute(&facts);
        if let Some(patch) = status_patch(&*deployment, Some(&deployment.status), &status) {
            self.capi.deployments.patch_status(key, &patch).await?;
        }
        Ok(status)
    }

    async fn pause(&self, deployment: &MachineDeployment) -> Result<()> {
        let status = status::paused(deployment, &self.capi.cluster.clock.time());
        if let Some(patch) = status_patch(deployment, Some(&deployment.status), &status) {
            self.capi.deployments.patch_status(&Key::of(deployment), &patch).await?;
        }
        Ok(())
    }

    /// Fills in the defaults that Cluster API's webhooks would set.
    async fn fill(&self, deployment: Arc<MachineDeployment>, cluster: &CapiCluster) -> Result<Arc<MachineDeployment>> {
        let sets = self.capi.sets.owned_by(&deployment.uid().unwrap_or_default());
        let latest = sets.iter().max_by_key(|set| sets::revision(&***set));
        let before = latest.and_then(|set| annotation(&**set, sets::DESIRED)?.parse().ok());
        match defaults::missing(&deployment, cluster, before) {
            Some(patch) => self.capi.deployments.patch(&Key::of(&*deployment), &patch).await,
            None => Ok(deployment),
        }
    }

    async fn step(&self, deployment: Arc<MachineDeployment>, cluster: &CapiCluster) -> Result<Option<Duration>> {
        let key = Key::of(&*deployment);
        let deployment = self.fill(deployment, cluster).await?;
        let view = capi::Deployment::of(&deployment.spec);
        let missing = self.templates(&view, cluster, &key.namespace).await?;
        let mut sets = Sets::sort(self.sets(&deployment).await?, &view, self.capi.cluster.clock.now());
        if view.paused {
            self.scale(&deployment, &mut sets).await?;
        } else {
            self.roll(&deployment, &mut sets, &missing).await?;
        }
        if let Some(number) = sets.new.as_deref().and_then(|set| annotation(set, names::REVISION))
            && annotation(&*deployment, names::REVISION) != Some(number)
        {
            let patch = json!({"metadata": {"annotations": {names::REVISION: number}}});
            self.capi.deployments.patch(&key, &patch).await?;
        }
        let status = self.write_status(&key, &sets, &missing).await?;
        if !view.paused && status::is_complete(&deployment, &status) {
            self.clean_up(&deployment, &sets).await?;
        }
        Ok(missing.any().then_some(TEMPLATE_AGAIN))
    }
}

impl Reconcile for Deployments {
    const NAME: &'static str = COMPONENT;

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(deployment) = self.capi.deployments.get(key) else { return Ok(None) };
        let cluster = self.capi.cluster_of(&key.namespace, &deployment.spec);
        if cluster.as_ref().is_some_and(|cluster| is_paused(cluster, &*deployment)) {
            return self.pause(&deployment).await.map(|()| None);
        }
        if is_leaving(&*deployment) {
            return self.end(&deployment).await.map(|()| None);
        }
        match cluster {
            Some(cluster) => self.step(deployment, &cluster).await,
            // It is reconciled again when its Cluster is created.
            None => Ok(None),
        }
    }
}

/// Whether a deployment adopts a MachineSet without an owner.
fn adopts(deployment: &MachineDeployment, set: &MachineSet) -> bool {
    let selector = serde_json::from_value(deployment.spec["selector"].clone()).ok();
    let selector = Selector::compile(selector.as_ref());
    let same_cluster = text(&deployment.spec, &["clusterName"]) == text(&set.spec, &["clusterName"]);
    same_cluster && !selector.is_unrestricted() && selector.matches(set.labels())
}
