//! MachineSets: as many Machines as asked for, each with its infrastructure and bootstrap configuration.

pub mod order;
pub mod status;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use millpond_api::capi::{self, Bootstrap, DeletionOrder, Reference, Version, names};
use millpond_controllers::kinds::{CapiCluster, Machine, MachineSet};
use serde_json::{Map, Value, json};

use super::conditions::{self, Answer, find};
use super::deployment::sets::{DISABLE_CREATE, revision, wanted};
use super::externals::External;
use super::machine::FINALIZER as MACHINE_FINALIZER;
use super::{Capi, at, is_paused, owner_reference, put, template, text, with_owner, without};
use crate::error::Result;
use crate::events::EventReason;
use crate::meta::{Key, annotation, controller_of, is_leaving, status_patch};
use crate::queue::Queue;
use crate::scheduler::fit::labels::Selector;
use crate::worker::Reconcile;
use order::{Candidate, Order};
use status::MissingTemplates;

const COMPONENT: &str = "machineset-controller";
/// Keeps a MachineSet until its Machines are gone.
const FINALIZER: &str = "cluster.x-k8s.io/machineset";
/// A missing template is looked up again after this long: templates are not watched.
const TEMPLATE_AGAIN: Duration = Duration::from_secs(2);
/// A set makes at most this many Machines before it looks again.
const BURST: usize = 100;

/// The MachineSet controller.
pub struct MachineSets {
    capi: Arc<Capi>,
}

/// The templates of a set, where they are there.
struct Templates {
    infrastructure: Option<External>,
    bootstrap: Option<External>,
    missing: MissingTemplates,
}

impl MachineSets {
    /// The controller, and the work queue that watches fill.
    pub fn new(capi: &Arc<Capi>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new());
        let own = Arc::clone(&queue);
        capi.sets.on_change(move |_, new| {
            if let Some(set) = new {
                own.add(Key::of(&**set));
            }
        });
        let (own, batch, sets) = (Arc::clone(&queue), capi.cluster.options.batch, Arc::clone(&capi.sets));
        capi.machines.on_change(move |old, new| {
            let is_urgent = new.is_none() || old.is_none();
            for machine in old.into_iter().chain(new) {
                let namespace = machine.namespace().unwrap_or_default();
                match controller_of(&**machine) {
                    Some(owner) if owner.kind == "MachineSet" => {
                        let key = Key::new(&namespace, &owner.name);
                        if is_urgent { own.add(key) } else { own.add_after(key, batch) }
                    }
                    Some(_) => {}
                    None => sets
                        .list_in(&namespace)
                        .iter()
                        .filter(|set| adopts(set, machine))
                        .for_each(|set| own.add(Key::of(&**set))),
                }
            }
        });
        // The counters of v1beta1 follow the Nodes themselves.
        let (own, shared) = (Arc::clone(&queue), Arc::clone(capi));
        capi.cluster.nodes.on_change(move |old, new| {
            let ready = |node: Option<&Arc<_>>| node.and_then(|node| status::ready_since(node));
            if ready(old) != ready(new)
                && let Some(node) = new.or(old)
                && let Some(machine) = shared.machine_of(node)
                && let Some(owner) = controller_of(&*machine)
            {
                own.add_after(Key::new(&machine.namespace().unwrap_or_default(), &owner.name), batch);
            }
        });
        capi.wake_with_cluster(&capi.sets, |set| &set.spec, &queue);
        (Arc::new(Self { capi: Arc::clone(capi) }), queue)
    }

    fn record_event(&self, set: &MachineSet, reason: &'static str, warning: bool, note: String) {
        let event_reason = EventReason { component: COMPONENT, action: "Scaling", reason, warning };
        self.capi.cluster.recorder.record(set, event_reason, note);
    }

    /// Adds finalizer, labels and owner.
    async fn fill(&self, set: Arc<MachineSet>, cluster: &CapiCluster) -> Result<Arc<MachineSet>> {
        let mut metadata = Map::new();
        let finalizers = set.metadata.finalizers.clone().unwrap_or_default();
        if !finalizers.iter().any(|known| known == FINALIZER) {
            let all: Vec<String> = finalizers.into_iter().chain([FINALIZER.to_owned()]).collect();
            metadata.insert("finalizers".to_owned(), json!(all));
        }
        let name = cluster.name_any();
        if set.labels().get(names::CLUSTER_NAME) != Some(&name) {
            metadata.insert("labels".to_owned(), json!({names::CLUSTER_NAME: name}));
        }
        let is_of_deployment = set.labels().contains_key(names::DEPLOYMENT_NAME);
        if !is_of_deployment
            && let Some(owners) = with_owner(set.metadata.owner_references.as_deref(), owner_reference(cluster, false))
        {
            metadata.insert("ownerReferences".to_owned(), json!(owners));
        }
        let mut spec = set.spec.clone();
        put(&mut spec, &["selector", "matchLabels", names::CLUSTER_NAME], json!(name));
        put(&mut spec, &["template", "metadata", "labels", names::CLUSTER_NAME], json!(name));
        if at(&spec, &["replicas"]).is_null() {
            spec["replicas"] = json!(1);
        }
        let changes = crate::meta::merge_diff(&set.spec, &spec);
        if metadata.is_empty() && changes.is_none() {
            return Ok(set);
        }
        metadata.insert("resourceVersion".to_owned(), json!(set.metadata.resource_version));
        let patch = json!({"metadata": metadata, "spec": changes.unwrap_or_else(|| json!({}))});
        self.capi.sets.patch(&Key::of(&*set), &patch).await
    }

    /// The templates. A missing template of an old revision is no problem: no Machine is made from it any more.
    async fn templates(&self, set: &MachineSet, cluster: &CapiCluster) -> Result<Templates> {
        let template = capi::MachineSet::of(&set.spec).template;
        let config = match &template.bootstrap {
            Bootstrap::Config(reference) => Some(reference),
            _ => None,
        };
        let config = config.filter(|reference| template::is_template(reference));
        let machine = template.infrastructure.as_ref().filter(|reference| template::is_template(reference));
        let (infrastructure, bootstrap) =
            (self.template(machine, cluster).await?, self.template(config, cluster).await?);
        let lacks = |reference: Option<&Reference>, found: &Option<External>| {
            reference.filter(|_| found.is_none()).map(|reference| reference.kind.clone())
        };
        let missing =
            MissingTemplates { infrastructure: lacks(machine, &infrastructure), bootstrap: lacks(config, &bootstrap) };
        Ok(Templates { infrastructure, bootstrap, missing })
    }

    /// One template, which becomes owned by the Cluster.
    async fn template(&self, reference: Option<&Reference>, cluster: &CapiCluster) -> Result<Option<External>> {
        let Some(reference) = reference else { return Ok(None) };
        let found = self.capi.externals.get(reference, &cluster.namespace().unwrap_or_default()).await?;
        if let Some(found) = &found {
            self.capi.give_to_cluster(found, cluster).await?;
        }
        Ok(found)
    }

    /// The Machines of a MachineSet, after adopting those without an owner.
    async fn machines(&self, set: &MachineSet) -> Result<Vec<Arc<Machine>>> {
        if !is_leaving(set) {
            for machine in self.capi.machines.ownerless(&set.namespace().unwrap_or_default()) {
                if adopts(set, &machine) && !is_leaving(&*machine) {
                    let owners = with_owner(machine.metadata.owner_references.as_deref(), owner_reference(set, true));
                    let patch = json!({"metadata": {
                        "resourceVersion": machine.metadata.resource_version, "ownerReferences": owners,
                    }});
                    self.capi.machines.patch(&Key::of(&*machine), &patch).await?;
                }
            }
        }
        Ok(self.capi.machines.owned_by(&set.uid().unwrap_or_default()))
    }

    /// Updates fields of existing Machines that need no replacement.
    async fn update(&self, set: &MachineSet, machines: &[Arc<Machine>]) -> Result<()> {
        for machine in machines {
            if let Some(patch) = in_place(set, machine) {
                self.capi.machines.patch(&Key::of(&**machine), &patch).await?;
            }
        }
        Ok(())
    }

    /// Makes or removes Machines.
    async fn manage(&self, set: &MachineSet, machines: &[Arc<Machine>], templates: &Templates) -> Result<()> {
        let wanted = usize::try_from(wanted(set)).unwrap_or_default();
        if machines.len() < wanted {
            if annotation(set, DISABLE_CREATE) == Some("true") || templates.missing.any() {
                return Ok(());
            }
            return self.create(set, templates, (wanted - machines.len()).min(BURST)).await;
        }
        let candidates: Vec<Candidate> = machines.iter().map(|machine| candidate(machine)).collect();
        let order = match capi::MachineSet::of(&set.spec).deletion_order {
            DeletionOrder::Random => Order::Random,
            DeletionOrder::Newest => Order::Newest,
            DeletionOrder::Oldest => Order::Oldest,
        };
        for index in order::choose(&candidates, order, machines.len() - wanted) {
            self.delete(set, &machines[index]).await?;
        }
        Ok(())
    }

    async fn create(&self, set: &MachineSet, templates: &Templates, count: usize) -> Result<()> {
        let mut calls: FuturesUnordered<_> = (0..count).map(|_| self.create_one(set, templates)).collect();
        let mut failure = Ok(());
        while let Some(outcome) = calls.next().await {
            if let Err(error) = outcome {
                failure = Err(error);
            }
        }
        failure
    }

    /// Bootstrap configuration and infrastructure first: a Machine is born with references to them.
    async fn create_one(&self, set: &MachineSet, templates: &Templates) -> Result<()> {
        let name = machine_name(set, &self.capi.cluster.names);
        let mut made = Vec::new();
        let outcome = self.create_parts(set, templates, &name, &mut made).await;
        if outcome.is_err() {
            for part in &made {
                self.capi.externals.delete(part).await?;
            }
        }
        match &outcome {
            Ok(()) => self.record_event(set, "SuccessfulCreate", false, format!("Created Machine \"{name}\"")),
            Err(error) => {
                let note = format!("Failed to create Machine \"{name}\": {}", error.cause());
                self.record_event(set, "FailedCreate", true, note);
            }
        }
        outcome
    }

    async fn create_parts(
        &self,
        set: &MachineSet,
        templates: &Templates,
        name: &str,
        made: &mut Vec<External>,
    ) -> Result<()> {
        let mut machine = make(set, name);
        for (template, path) in [
            (&templates.bootstrap, &["bootstrap", "configRef"][..]),
            (&templates.infrastructure, &["infrastructureRef"][..]),
        ] {
            let Some(template) = template else { continue };
            let part = self.clone_for(set, template, &machine).await?;
            let reference = Reference {
                group: part.resource.group.clone(),
                version: Some(part.resource.version.clone()),
                kind: part.resource.kind.clone(),
                name: name.to_owned(),
                namespace: None,
            };
            put(&mut machine.spec, path, reference.write(Version::V1Beta2, &part.resource.version, ""));
            made.push(part);
        }
        self.capi.machines.create(&machine).await.map(drop)
    }

    async fn clone_for(&self, set: &MachineSet, from: &External, machine: &Machine) -> Result<External> {
        let kind = from.resource.kind.strip_suffix("Template").unwrap_or(&from.resource.kind);
        let resource = self.capi.externals.resource(&from.resource.group, kind).await?;
        let Some(resource) = resource else {
            let problem =
                format!("{kind} of {} is not served, so that nothing can be made from it", from.resource.group);
            return Err(crate::error::Error::Malformed { kind: "MachineSet", key: Key::of(set), problem });
        };
        let clone = template::Cloning {
            namespace: &set.namespace().unwrap_or_default(),
            name: &machine.name_any(),
            cluster: text(&set.spec, &["clusterName"]).unwrap_or_default(),
            labels: machine.labels(),
            annotations: machine.annotations(),
            owner: owner_reference(set, false),
        };
        self.capi.externals.create(&resource, &clone.of(from, &resource)).await
    }

    async fn delete(&self, set: &MachineSet, machine: &Machine) -> Result<()> {
        if is_leaving(machine) {
            return Ok(());
        }
        self.capi.machines.delete(machine, None).await?;
        self.record_event(set, "SuccessfulDelete", false, format!("Deleted Machine \"{}\"", machine.name_any()));
        Ok(())
    }

    /// Machines that a health check gave up on are replaced, unless their revision is on its way out anyway.
    async fn remediate(&self, set: &MachineSet, machines: &[Arc<Machine>]) -> Result<()> {
        let deployment = self.capi.deployment_of(set);
        if deployment.is_some_and(|deployment| revision(&*deployment) != revision(set)) {
            return Ok(());
        }
        for machine in machines.iter().filter(|machine| !is_leaving(&***machine)) {
            let asked = find(&machine.status, "OwnerRemediated").is_some_and(|condition| condition.status == "False");
            if asked && conditions::answer(&machine.status, "HealthCheckSucceeded") == Answer::False {
                self.delete(set, machine).await?;
            }
        }
        Ok(())
    }

    async fn end(&self, set: &MachineSet, machines: &[Arc<Machine>]) -> Result<()> {
        for machine in machines.iter().filter(|machine| !is_leaving(&***machine)) {
            self.capi.machines.delete(machine, None).await?;
        }
        if self.capi.machines.count_owned_by(&set.uid().unwrap_or_default()) > 0 {
            return Ok(());
        }
        let finalizers = without(set.metadata.finalizers.as_deref(), FINALIZER);
        let patch = json!({"metadata": {"resourceVersion": set.metadata.resource_version, "finalizers": finalizers}});
        self.capi.sets.patch(&Key::of(set), &patch).await.map(drop)
    }

    async fn write_status(&self, key: &Key, missing: &MissingTemplates) -> Result<()> {
        let Some(set) = self.capi.sets.get(key) else { return Ok(()) };
        let owned = self.capi.machines.owned_by(&set.uid().unwrap_or_default());
        let node = |machine: &Arc<Machine>| {
            text(&machine.status, &["nodeRef", "name"])
                .and_then(|name| self.capi.cluster.nodes.get(&Key::new("", name)))
        };
        let machines: Vec<_> = owned.iter().map(|machine| (Arc::clone(machine), node(machine))).collect();
        let now = self.capi.cluster.clock.time();
        let status = status::compute(&status::Facts { set: &set, machines: &machines, missing, now });
        if let Some(patch) = status_patch(&*set, Some(&set.status), &status) {
            self.capi.sets.patch_status(key, &patch).await?;
        }
        Ok(())
    }

    async fn pause(&self, set: &MachineSet) -> Result<()> {
        let status = status::paused(&set.status, set.metadata.generation, &self.capi.cluster.clock.time());
        if let Some(patch) = status_patch(set, Some(&set.status), &status) {
            self.capi.sets.patch_status(&Key::of(set), &patch).await?;
        }
        Ok(())
    }

    async fn step(&self, set: Arc<MachineSet>, cluster: &CapiCluster) -> Result<Option<Duration>> {
        let key = Key::of(&*set);
        let set = self.fill(set, cluster).await?;
        let templates = self.templates(&set, cluster).await?;
        let machines = self.machines(&set).await?;
        self.remediate(&set, &machines).await?;
        self.update(&set, &machines).await?;
        let machines = self.machines(&set).await?;
        let managed = self.manage(&set, &machines, &templates).await;
        self.write_status(&key, &templates.missing).await?;
        managed?;
        Ok((templates.missing.any() && wanted(&set) > machines.len() as i64).then_some(TEMPLATE_AGAIN))
    }
}

impl Reconcile for MachineSets {
    const NAME: &'static str = COMPONENT;

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(set) = self.capi.sets.get(key) else { return Ok(None) };
        let cluster = self.capi.cluster_of(&key.namespace, &set.spec);
        if cluster.as_ref().is_some_and(|cluster| is_paused(cluster, &*set)) {
            return self.pause(&set).await.map(|()| None);
        }
        if is_leaving(&*set) {
            let machines = self.machines(&set).await?;
            self.update(&set, &machines).await?;
            self.write_status(key, &MissingTemplates::default()).await?;
            let Some(set) = self.capi.sets.get(key) else { return Ok(None) };
            return self.end(&set, &machines).await.map(|()| None);
        }
        match cluster {
            Some(cluster) => self.step(set, &cluster).await,
            None => Ok(None),
        }
    }
}

/// Whether a MachineSet adopts a Machine without an owner.
fn adopts(set: &MachineSet, machine: &Machine) -> bool {
    let selector = serde_json::from_value(set.spec["selector"].clone()).ok();
    let selector = Selector::compile(selector.as_ref());
    let same_cluster = text(&set.spec, &["clusterName"]) == text(&machine.spec, &["clusterName"]);
    same_cluster && !selector.is_unrestricted() && selector.matches(machine.labels())
}

fn candidate(machine: &Machine) -> Candidate {
    let answer = |kind: &str| find(&machine.status, kind).map(|condition| condition.status);
    let is_ill =
        ["NodeHealthy", "HealthCheckSucceeded"].into_iter().any(|kind| answer(kind).as_deref() == Some("False"));
    Candidate {
        name: machine.name_any(),
        leaving: is_leaving(machine),
        marked: annotation(machine, names::DELETE_MACHINE).is_some(),
        healthy: text(&machine.status, &["nodeRef", "name"]).is_some() && !is_ill,
        created: machine.creation_timestamp().map_or(jiff::Timestamp::MAX, |time| time.0),
    }
}

/// `<set>-<random>`, or as the set's own rule says.
fn machine_name(set: &MachineSet, random: &crate::name_generator::NameGenerator) -> String {
    const RANDOM: &str = "{{ .random }}";
    let usual = format!("{}-", set.name_any());
    let Some(rule) = text(&set.spec, &["machineNaming", "template"]).filter(|rule| rule.contains(RANDOM)) else {
        return random.generate(&usual);
    };
    let cluster = text(&set.spec, &["clusterName"]).unwrap_or_default();
    let filled = rule.replace("{{ .cluster.name }}", cluster).replace("{{ .machineSet.name }}", &set.name_any());
    let (before, after) = filled.split_once(RANDOM).unwrap_or((&filled, ""));
    format!("{}{after}", random.generate(before))
}

/// The labels of the Machines of a set.
fn machine_labels(set: &MachineSet) -> BTreeMap<String, String> {
    let labels = at(&set.spec, &["template", "metadata", "labels"]);
    let mut labels: BTreeMap<String, String> = serde_json::from_value(labels.clone()).unwrap_or_default();
    labels.insert(names::SET_NAME.to_owned(), set.name_any());
    if let Some(deployment) = set.labels().get(names::DEPLOYMENT_NAME) {
        labels.insert(names::DEPLOYMENT_NAME.to_owned(), deployment.clone());
    }
    labels
}

fn machine_annotations(set: &MachineSet) -> BTreeMap<String, String> {
    serde_json::from_value(at(&set.spec, &["template", "metadata", "annotations"]).clone()).unwrap_or_default()
}

/// A Machine as it is born, without the references to what is made for it.
fn make(set: &MachineSet, name: &str) -> Machine {
    let mut spec = at(&set.spec, &["template", "spec"]).clone();
    put(&mut spec, &["clusterName"], at(&set.spec, &["clusterName"]).clone());
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: set.namespace(),
        labels: Some(machine_labels(set)),
        annotations: Some(machine_annotations(set)),
        finalizers: Some(vec![MACHINE_FINALIZER.to_owned()]),
        owner_references: Some(vec![owner_reference(set, true)]),
        ..ObjectMeta::default()
    };
    Machine::new(metadata, spec)
}

/// The patch that brings a Machine up to date in what does not need a new one.
fn in_place(set: &MachineSet, machine: &Machine) -> Option<Value> {
    const FIELDS: [&[&str]; 6] = [
        &["readinessGates"],
        &["minReadySeconds"],
        &["taints"],
        &["deletion", "nodeDrainTimeoutSeconds"],
        &["deletion", "nodeDeletionTimeoutSeconds"],
        &["deletion", "nodeVolumeDetachTimeoutSeconds"],
    ];
    let template = at(&set.spec, &["template", "spec"]);
    let mut spec = machine.spec.clone();
    for field in FIELDS {
        let value = at(template, field);
        if at(&spec, field) != value {
            put(&mut spec, field, value.clone());
        }
    }
    let mut patch = json!({});
    if let Some(changes) = crate::meta::merge_diff(&machine.spec, &spec) {
        patch["spec"] = changes;
    }
    if !is_leaving(machine) {
        for (key, known, wanted) in [
            ("labels", machine.labels(), machine_labels(set)),
            ("annotations", machine.annotations(), machine_annotations(set)),
        ] {
            let news: BTreeMap<_, _> =
                wanted.into_iter().filter(|(name, value)| known.get(name) != Some(value)).collect();
            if !news.is_empty() {
                patch["metadata"][key] = json!(news);
            }
        }
    }
    patch.as_object().is_some_and(|patch| !patch.is_empty()).then_some(patch)
}
