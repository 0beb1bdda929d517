//! All nodes with their GPUs, hosts, load and next disturbance, as of one moment. Pure: [`Facts`] in, [`Estate`] out.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use kube::ResourceExt as _;
use millpond_api::gpu_info::{CLAIM_LABEL, HOLDER_LABEL, NodeReservation, RESERVATIONS, read_reservations};
use millpond_api::karpenter::DISRUPTED_TAINT;
use millpond_api::labels;
use millpond_plan::gpu::{Excluded, Undisturbed};
use millpond_runtime::meta::{has_ended, node_name};
use millpond_vsphere::inventory::{Connection, Gpu, GpuMode, Host};
use millpond_vsphere::{Freshness, Inventory, Reason, Reference};

use crate::devices::{self, Model};
use crate::disturbance::{Calendar, Event, Subject};
use crate::kinds::{GPUInfo, MaintenanceWindow, NodeClaim};
use crate::matching::{Index, Match};
use crate::pools::Pools;

/// Load of a node: CPU, and memory in MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// MHz from vSphere, millicores otherwise.
    pub cpu: u64,
    /// MiB.
    pub memory_mib: u64,
}

/// The watched objects.
#[derive(Default)]
pub struct Facts {
    /// Nodes.
    pub nodes: Vec<Arc<Node>>,
    /// Pods of all namespaces.
    pub pods: Vec<Arc<Pod>>,
    /// GPUInfos of all namespaces.
    pub infos: Vec<Arc<GPUInfo>>,
    /// Claims of nodes.
    pub claims: Vec<Arc<NodeClaim>>,
    /// Windows.
    pub windows: Vec<Arc<MaintenanceWindow>>,
    /// Load by the metrics API; `None` if it is not served.
    pub usage: Option<HashMap<String, Load>>,
    /// The time.
    pub now: i64,
    /// Seconds that a node without a known event is assumed to stay undisturbed.
    pub assumed_s: u64,
}

/// The data of vCenter.
pub struct Vcenter<'i> {
    /// Whether it is recent enough to be used.
    pub freshness: &'i Freshness,
    /// What it has.
    pub inventory: &'i Inventory,
    /// When it last answered.
    pub observed_at: Option<i64>,
}

/// GPUs of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeGpus {
    /// The resource that pods request.
    pub resource: String,
    /// GPUs that pods may use.
    pub total: u64,
    /// GPUs that pods on the node request, those that only hold a reservation left out.
    pub requested: u64,
}

/// A node.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Its host; the node itself where there is no vCenter.
    pub host: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// Why it cannot take any job.
    pub excluded: Option<Excluded>,
    /// Machines that match, if several do.
    pub machines: usize,
    /// What of its machine or host may not be read.
    pub denied: Option<String>,
    /// Its GPUs.
    pub gpus: Option<NodeGpus>,
    /// Reservations of its annotation.
    pub reservations: Vec<NodeReservation>,
    /// Names and ids of the model.
    pub models: Vec<String>,
    /// The model as people read it.
    pub model: Option<String>,
    /// Vendor and device.
    pub model_id: Option<String>,
    /// Memory of one GPU.
    pub gpu_memory_mib: Option<u64>,
    /// CPU and memory in use.
    pub load: Load,
    /// Its next disturbance.
    pub event: Option<Event>,
    /// Until then.
    pub undisturbed: Undisturbed,
}

impl NodeView {
    /// GPUs that neither pods nor reservations hold; those of `own` count as free.
    pub fn free(&self, own: Option<&str>) -> u64 {
        let Some(gpus) = &self.gpus else { return 0 };
        let waiting = |entry: &&NodeReservation| entry.pod.is_none() && Some(entry.uid.as_str()) != own;
        let reserved: u64 = self.reservations.iter().filter(waiting).map(|entry| entry.gpus).sum();
        let claimed = |entry: &&NodeReservation| entry.pod.is_some() && Some(entry.uid.as_str()) == own;
        let own_pod: u64 = self.reservations.iter().filter(claimed).map(|entry| entry.gpus).sum();
        (gpus.total + own_pod).saturating_sub(gpus.requested + reserved).min(gpus.total)
    }
}

/// Cards of a host that no machine holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpareCards {
    /// The host.
    pub host: String,
    /// The model as people read it.
    pub model: String,
    /// Vendor and device.
    pub id: String,
    /// Memory of one card; zero if unknown.
    pub memory_mib: u64,
    /// How many.
    pub count: u64,
    /// Whether the host can take machines now.
    pub is_usable: bool,
    /// The next disturbance of the host.
    pub event: Option<Event>,
    /// Until then.
    pub undisturbed: Undisturbed,
}

/// Everything that answers are made from.
#[derive(Clone, Debug, Default)]
pub struct Estate {
    /// Nodes by name.
    pub nodes: Vec<NodeView>,
    /// Spare cards by host.
    pub spare: Vec<SpareCards>,
    /// Whether vCenter is in use, and can be trusted.
    pub freshness: Freshness,
    /// Why scheduled tasks of vCenter are not among the known events, if they are not.
    pub tasks_unreadable: Option<String>,
    /// When the data was read.
    pub observed_at: i64,
    /// The time.
    pub now: i64,
    /// Pools that can bring nodes, once a job has needed them.
    pub pools: Option<Arc<Pools>>,
}

impl Estate {
    /// Puts facts together.
    pub fn build(facts: &Facts, vcenter: Option<&Vcenter<'_>>) -> Self {
        let used = vcenter.filter(|vcenter| *vcenter.freshness != Freshness::Unused);
        let index = used.map(|vcenter| Index::new(vcenter.inventory, &facts.nodes));
        let calendar = Calendar::new(&facts.windows, &facts.claims, facts.now);
        let inventory = used.map(|vcenter| vcenter.inventory);
        let cards = inventory.map(Inventory::all_gpus).unwrap_or_default();
        let builder = Builder { facts, inventory, cards, index, calendar };
        let requests = requests_by_node(facts);
        let mut nodes: Vec<NodeView> = facts.nodes.iter().map(|node| builder.view(node, &requests)).collect();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        let spare = used.map(|vcenter| builder.spare_cards(vcenter.inventory)).unwrap_or_default();
        Self {
            nodes,
            spare,
            freshness: used.map(|vcenter| vcenter.freshness.clone()).unwrap_or_default(),
            tasks_unreadable: used.and_then(|vcenter| vcenter.inventory.tasks_unreadable.clone()),
            observed_at: used.map_or(facts.now, |vcenter| vcenter.observed_at.unwrap_or_default()),
            now: facts.now,
            pools: None,
        }
    }

    /// A node by its name.
    pub fn node(&self, name: &str) -> Option<&NodeView> {
        self.nodes.binary_search_by(|node| node.name.as_str().cmp(name)).ok().map(|at| &self.nodes[at])
    }

    /// The same, to be changed.
    pub(crate) fn node_mut(&mut self, name: &str) -> Option<&mut NodeView> {
        let at = self.nodes.binary_search_by(|node| node.name.as_str().cmp(name)).ok()?;
        self.nodes.get_mut(at)
    }

    /// Why the data cannot be trusted, if it cannot.
    pub fn stale(&self) -> Option<(&'static str, String)> {
        match &self.freshness {
            Freshness::Unused | Freshness::Fresh => None,
            Freshness::Loading => {
                Some((Reason::StaleInventory.as_str(), "the first inventory of vCenter is being read".to_owned()))
            }
            Freshness::Stale { reason, message } => Some((reason.as_str(), message.clone())),
        }
    }
}

/// Requests of the pods of a node.
#[derive(Default)]
struct Requests {
    gpus: HashMap<String, u64>,
    load: Load,
}

/// Adds up pods by node: GPUs of every resource, cores in thousandths, memory in MiB. Pods that hold a reservation are
/// left out: the annotation of the node counts those.
fn requests_by_node(facts: &Facts) -> HashMap<&str, Requests> {
    let gpu_resources: HashMap<&str, String> = facts
        .nodes
        .iter()
        .filter_map(|node| Some((node.metadata.name.as_deref()?, devices::gpu_resource(node)?.0)))
        .collect();
    let mut sums: HashMap<&str, Requests> = HashMap::new();
    for pod in facts.pods.iter().filter(|pod| !has_ended(pod) && !pod.labels().contains_key(HOLDER_LABEL)) {
        let Some(node) = node_name(pod) else { continue };
        let sum = sums.entry(node).or_default();
        sum.load.cpu += devices::requested(pod, "cpu", devices::milli);
        sum.load.memory_mib += devices::requested(pod, "memory", devices::units) >> 20;
        if let Some(resource) = gpu_resources.get(node) {
            let gpus = devices::requested(pod, resource, devices::units);
            if gpus > 0 {
                *sum.gpus.entry(resource.clone()).or_default() += gpus;
            }
        }
    }
    sums
}

struct Builder<'f> {
    facts: &'f Facts,
    inventory: Option<&'f Inventory>,
    /// The cards of every host that has some.
    cards: BTreeMap<&'f Reference, Vec<Gpu>>,
    index: Option<Index<'f>>,
    calendar: Calendar<'f>,
}

impl Builder<'_> {
    fn view(&self, node: &Node, requests: &HashMap<&str, Requests>) -> NodeView {
        let name = node.name_any();
        let found = self.index.as_ref().map(|index| index.find(node));
        let vm = match &found {
            Some(Match::One(vm)) => self.inventory.map(|inventory| (inventory, vm)),
            _ => None,
        };
        let host = vm.and_then(|(inventory, vm)| inventory.hosts.get(inventory.vms[vm].host.as_ref()?));
        let host_name = match (&host, &found) {
            (Some(host), _) => host.name.clone(),
            (None, Some(_)) => String::new(),
            (None, None) => node.labels().get(labels::HOSTNAME).cloned().unwrap_or_else(|| name.clone()),
        };
        let subject = Subject { node, labels: node.labels(), host_name: &host_name, vm };
        let denied = vm.and_then(|(inventory, vm)| {
            let found = inventory.denied.get(vm).or_else(|| inventory.denied.get(inventory.vms[vm].host.as_ref()?));
            found.map(|denied| format!("{}: {}", denied.path, denied.message))
        });
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let known = self.calendar.next(&subject).into_iter().chain(replacement(node, &taints, self.facts.now));
        let event = known.min_by_key(|event| event.at);
        let undisturbed = self.undisturbed(event.as_ref());
        let sum = requests.get(name.as_str());
        let gpus = devices::gpu_resource(node).map(|(resource, total)| {
            let requested = sum.and_then(|sum| sum.gpus.get(&resource)).copied().unwrap_or_default();
            NodeGpus { resource, total, requested }
        });
        let of_card = vm.filter(|_| gpus.is_some()).and_then(|(inventory, vm)| self.card_of(inventory, vm));
        let of_labels = Model::of_labels(node.labels());
        let model = if gpus.is_some() {
            of_card.map_or(of_labels.clone(), |card| card.or(of_labels))
        } else {
            Model::default()
        };
        NodeView {
            excluded: excluded(node, found.as_ref(), host, denied.is_some()),
            denied,
            machines: if let Some(Match::Ambiguous(count)) = found { count } else { 0 },
            reservations: read_reservations(node.annotations().get(RESERVATIONS).map(String::as_str)),
            models: model.names(),
            gpu_memory_mib: model.memory_mib,
            model: model.name,
            model_id: model.id,
            load: self.load(&name, vm, sum),
            labels: node.labels().clone(),
            host: host_name,
            name,
            taints,
            gpus,
            event,
            undisturbed,
        }
    }

    fn load(&self, name: &str, vm: Option<(&Inventory, &Reference)>, sum: Option<&Requests>) -> Load {
        if let Some((inventory, vm)) = vm {
            let vm = &inventory.vms[vm];
            let positive = |number: i64| u64::try_from(number).unwrap_or_default();
            return Load { cpu: positive(vm.cpu_demand_mhz), memory_mib: positive(vm.guest_memory_mib) };
        }
        let measured = self.facts.usage.as_ref().map(|usage| usage.get(name).copied().unwrap_or_default());
        measured.or(sum.map(|sum| sum.load)).unwrap_or_default()
    }
}

fn excluded(node: &Node, found: Option<&Match>, host: Option<&Host>, is_denied: bool) -> Option<Excluded> {
    match found {
        Some(Match::None) => return Some(Excluded::VMNotFound),
        Some(Match::Ambiguous(_)) => return Some(Excluded::AmbiguousVM),
        Some(Match::One(_)) if is_denied => return Some(Excluded::PermissionDenied),
        Some(Match::One(_)) if host.is_none_or(|host| host.connection != Connection::Connected) => {
            return Some(Excluded::HostDisconnected);
        }
        _ => {}
    }
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let is_ready = conditions.into_iter().flatten().any(|known| known.type_ == "Ready" && known.status == "True");
    if !is_ready {
        return Some(Excluded::NotReady);
    }
    let cordoned = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
    cordoned.then_some(Excluded::Unschedulable)
}

/// Taints of nodes that are being taken away: by Millpond or Karpenter, and by cluster-autoscaler.
const LEAVING_TAINTS: [&str; 2] = [DISRUPTED_TAINT, "ToBeDeletedByClusterAutoscaler"];
/// The taint of nodes that a rollout of Cluster API will replace: their machines belong to an old MachineSet.
const OUTDATED_TAINT: &str = "node.cluster.x-k8s.io/outdated-revision";

/// Whether the node is being taken away.
fn is_leaving(node: &Node, taints: &[Taint]) -> bool {
    let leaves = |taint: &Taint| LEAVING_TAINTS.contains(&taint.key.as_str());
    node.metadata.deletion_timestamp.is_some() || taints.iter().any(leaves)
}

/// The disturbance that a node's own taints announce: it is being removed, or a rollout will replace it.
fn replacement(node: &Node, taints: &[Taint], now: i64) -> Option<Event> {
    let event = |at, message: &str| Some(Event { source: "NodeReplacement", at, message: message.to_owned() });
    if is_leaving(node, taints) {
        return event(None, "the node is being taken away");
    }
    let outdated = taints.iter().any(|taint| taint.key == OUTDATED_TAINT);
    if outdated { event(Some(now), "a rollout will replace the node: its machine is of an old revision") } else { None }
}

impl Builder<'_> {
    /// The card that a machine holds; its name is that of the host's graphics manager.
    fn card_of(&self, inventory: &Inventory, vm: &Reference) -> Option<Model> {
        let cards = self.cards.get(inventory.vms.get(vm)?.host.as_ref()?)?;
        cards.iter().find(|card| card.used_by.contains(vm)).map(Model::of_card)
    }

    fn spare_cards(&self, inventory: &Inventory) -> Vec<SpareCards> {
        let mut spare = Vec::new();
        for (reference, cards) in &self.cards {
            let host = &inventory.hosts[*reference];
            let event = self.calendar.next_of_host(inventory, reference);
            let undisturbed = self.undisturbed(event.as_ref());
            let cards = spare_cards_of(host, cards);
            spare.extend(cards.into_iter().map(|cards| SpareCards { event: event.clone(), undisturbed, ..cards }));
        }
        spare.sort_by(|one, other| (&one.host, &one.id).cmp(&(&other.host, &other.id)));
        spare
    }

    fn undisturbed(&self, event: Option<&Event>) -> Undisturbed {
        event.map_or(Undisturbed::Assumed(self.facts.assumed_s), |event| event.undisturbed(self.facts.now))
    }
}

fn spare_cards_of(host: &Host, cards: &[Gpu]) -> Vec<SpareCards> {
    let mut by_model: BTreeMap<String, SpareCards> = BTreeMap::new();
    let free = |card: &Gpu| card.used_by.is_empty() && card.mode != GpuMode::HostOnly;
    for card in cards.iter().filter(|card| free(card)) {
        let known = Model::of_card(card);
        let cards = by_model.entry(card.model_id()).or_insert_with(|| SpareCards {
            host: host.name.clone(),
            model: known.name.unwrap_or_default(),
            id: card.model_id(),
            memory_mib: known.memory_mib.unwrap_or_default(),
            count: 0,
            is_usable: host.connection == Connection::Connected && !host.in_maintenance && !host.in_quarantine,
            event: None,
            undisturbed: Undisturbed::Now,
        });
        cards.count += 1;
    }
    by_model.into_values().collect()
}

/// Uids of GPUInfos by namespace and name, for the label of pods that claim one.
pub(crate) fn claiming_pods(facts: &Facts) -> HashMap<(String, String), Vec<&Arc<Pod>>> {
    let mut pods: HashMap<(String, String), Vec<&Arc<Pod>>> = HashMap::new();
    for pod in facts.pods.iter().filter(|pod| !has_ended(pod)) {
        if let Some(name) = pod.labels().get(CLAIM_LABEL) {
            pods.entry((pod.namespace().unwrap_or_default(), name.clone())).or_default().push(pod);
        }
    }
    pods
}

/// Uids of all GPUInfos.
pub(crate) fn uids(facts: &Facts) -> HashSet<String> {
    facts.infos.iter().filter_map(|info| info.uid()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: i64 = 1_794_803_400;

    fn view(taint: &str, more: Value) -> NodeView {
        let mut node = json!({
            "metadata": {"name": "a"},
            "spec": {"taints": [{"key": taint, "effect": "PreferNoSchedule"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        if let Value::Object(more) = more {
            node["metadata"].as_object_mut().unwrap().extend(more);
        }
        let nodes = vec![Arc::new(serde_json::from_value(node).unwrap())];
        let facts = Facts { nodes, now: NOW, assumed_s: 3600, ..Facts::default() };
        Estate::build(&facts, None).nodes.remove(0)
    }

    #[test]
    fn taints_tell_of_nodes_that_go() {
        let event = |view: &NodeView| view.event.clone().map(|event| (event.source, event.at));
        for leaving in ["karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler"] {
            let view = view(leaving, json!({}));
            assert_eq!(event(&view), Some(("NodeReplacement", None)), "{leaving}");
            assert_eq!(view.undisturbed, Undisturbed::Now);
        }
        let deleted = view("example.com/any", json!({"deletionTimestamp": "2026-11-16T04:00:00Z"}));
        assert_eq!(event(&deleted), Some(("NodeReplacement", None)));
        // The rollout decides when: there is no time left that a job could count on.
        let outdated = view("node.cluster.x-k8s.io/outdated-revision", json!({}));
        assert_eq!(event(&outdated), Some(("NodeReplacement", Some(NOW))));
        assert_eq!(outdated.undisturbed, Undisturbed::Known(0));
        let stays = view("example.com/any", json!({}));
        assert_eq!((event(&stays), stays.undisturbed), (None, Undisturbed::Assumed(3600)));
    }
}
