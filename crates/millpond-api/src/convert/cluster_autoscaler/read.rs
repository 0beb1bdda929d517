//! ConfigMaps to pools.

use std::collections::BTreeMap;

use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

use super::super::fleet::{Dialect, Field, Machine, Offer, Pool, SourceField};
use super::super::report::{Action, Report};
use super::super::{ConvertError, Settings};
use super::{CONFIG, DEFAULT_MOST, DESIRED, GROUP, LEAST, MOST, PRICE, PRIORITIES, TEMPLATES, TemplateNode, Templates};
use crate::amounts::Amounts;
use crate::catalog::CapacityType;
use crate::duration::NillableDuration;
use crate::karpenter::{ConsolidationPolicy, Disruption, Taint};
use crate::labels::{self, current_name};
use crate::money;
use crate::scaling_advisor::{POOL_LABEL, TEMPLATE_LABEL};

/// The taint that the provider puts on its nodes unless it is told not to.
const PROVIDER_TAINT: &str = "kwok-provider";
/// The annotation by which kwok knows its nodes.
const KWOK_NODE: &str = "kwok.x-k8s.io/node";
/// Labels by which clouds and tools name the pool of a node.
const POOL_LABELS: [&str; 7] = [
    POOL_LABEL,
    labels::NODE_POOL,
    "worker.gardener.cloud/pool",
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "kwok-nodegroup",
];
/// The zone of templates that name none.
const NO_ZONE: &str = "default";

/// Takes what a ConfigMap holds for Cluster Autoscaler; false if it holds nothing of it.
pub(in super::super) fn read_config_map(
    name: &str,
    object: &Value,
    templates: &mut Templates,
) -> Result<bool, ConvertError> {
    let data = |key: &str| object.pointer("/data").and_then(|data| data.get(key)).and_then(Value::as_str);
    let broken = |key: &str| {
        let place = format!("ConfigMap/{name} data.{key}");
        move |problem: String| ConvertError::Text { place: place.clone(), problem }
    };
    if let Some(text) = data(PRIORITIES.1).filter(|_| name == PRIORITIES.0) {
        let read: BTreeMap<String, Vec<String>> =
            serde_saphyr::from_str(text).map_err(|error| broken(PRIORITIES.1)(error.to_string()))?;
        for (number, patterns) in read {
            let number =
                number.trim().parse().map_err(|_| broken(PRIORITIES.1)(format!("`{number}` is no priority")))?;
            templates.priorities.push((number, patterns));
        }
        return Ok(true);
    }
    if let Some(text) = data(CONFIG.1).filter(|_| name == CONFIG.0) {
        let config: Value = serde_saphyr::from_str(text).map_err(|error| broken(CONFIG.1)(error.to_string()))?;
        let label = config.pointer("/nodegroups/fromNodeLabelKey").and_then(Value::as_str);
        templates.group_label = label.filter(|label| !label.is_empty()).map(ToOwned::to_owned);
        return Ok(true);
    }
    let Some(text) = data(TEMPLATES.1) else { return Ok(false) };
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| broken(TEMPLATES.1)(error.to_string()))?;
    for document in documents {
        let items = document.get("items").and_then(Value::as_array).cloned();
        for node in items.unwrap_or_else(|| vec![document]) {
            if node.get("kind").and_then(Value::as_str) != Some("Node") {
                continue;
            }
            let read = TemplateNode::deserialize(&node).map_err(|error| broken(TEMPLATES.1)(error.to_string()))?;
            templates.nodes.push((read, node));
        }
    }
    Ok(true)
}

/// Reads the pools of the templates.
pub(in super::super) fn read(
    templates: &Templates,
    settings: &Settings<'_>,
    report: &mut Report,
) -> Result<Vec<Pool>, ConvertError> {
    let priorities = patterns(templates)?;
    let mut pools: Vec<Pool> = Vec::new();
    let mut counts: Vec<Counts> = Vec::new();
    for (node, _) in &templates.nodes {
        let group = Group::new(node, templates);
        let pool = group.pool(&priorities);
        let same = |known: &Pool| {
            known.region == pool.region
                && known.labels == pool.labels
                && known.taints == pool.taints
                && known.annotations == pool.annotations
        };
        let index = pools.iter().position(|known| is_named(&known.name, &pool.name) && same(known));
        let index = index.unwrap_or_else(|| add(&mut pools, &mut counts, pool, report));
        let of = &mut pools[index];
        let machine = group.machine(settings, report);
        group.count(&mut counts[index]);
        of.weight = of.weight.min(group.priority(&priorities));
        put(of, machine, group.priority(&priorities));
    }
    for (pool, counts) in pools.iter_mut().zip(counts) {
        finish(pool, &counts, settings, report);
    }
    Ok(pools)
}

/// Whether a pool has that name, or was made of it for a difference.
fn is_named(known: &str, name: &str) -> bool {
    let rest = known.strip_prefix(name).map(|rest| rest.strip_prefix('-').unwrap_or(rest));
    rest.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
}

fn add(pools: &mut Vec<Pool>, counts: &mut Vec<Counts>, mut pool: Pool, report: &mut Report) -> usize {
    let name = super::super::names::free(&pool.name, |name| pools.iter().any(|known| known.name == name));
    if name != pool.name {
        let reason = format!(
            "templates of one pool differ in labels, annotations, taints or region: these are the pool `{name}`"
        );
        report.say(&pool.place.object, pool.path(Field::Name), pool.name.clone(), Action::Approximated, reason);
        pool.name = name;
    }
    pools.push(pool);
    counts.push(Counts::default());
    pools.len() - 1
}

/// Adds a machine to its pool, or its offers to the same machine.
fn put(pool: &mut Pool, mut machine: Machine, priority: i64) {
    machine.priority = i32::try_from(priority).unwrap_or(i32::MAX);
    let same = |known: &&mut Machine| {
        let (known, machine) =
            (Machine { offers: Vec::new(), ..(**known).clone() }, Machine { offers: Vec::new(), ..machine.clone() });
        known == machine
    };
    match pool.machines.iter_mut().find(same) {
        Some(known) => {
            let new = machine.offers.into_iter().filter(|offer| {
                !known.offers.iter().any(|there| there.zone == offer.zone && there.capacity_type == offer.capacity_type)
            });
            let new: Vec<Offer> = new.collect();
            known.offers.extend(new);
        }
        None => pool.machines.push(machine),
    }
}

/// Nodes of all groups of a pool.
#[derive(Default)]
struct Counts {
    least: u64,
    most: u64,
}

fn finish(pool: &mut Pool, counts: &Counts, settings: &Settings<'_>, report: &mut Report) {
    // What a template has beyond its pool is its own.
    for machine in &mut pool.machines {
        machine.priority -= i32::try_from(pool.weight).unwrap_or(0);
    }
    pool.least = counts.least;
    pool.limits = Amounts(BTreeMap::from([("nodes".to_owned(), i64::try_from(counts.most).unwrap_or(i64::MAX))]));
    pool.drain = settings.drain_timeout;
    let reason = "a limit of each group: together they are the limit of the pool";
    let field = format!("{}.{MOST}", pool.path(Field::Limits));
    report.say(&pool.place.object, field, counts.most, Action::Approximated, reason);
    super::super::scaling_advisor::say_prices(pool, settings, report);
}

/// Priorities with the patterns of the groups that have them.
fn patterns(templates: &Templates) -> Result<Vec<(i64, Regex)>, ConvertError> {
    let mut all = Vec::new();
    for (number, patterns) in &templates.priorities {
        for pattern in patterns {
            let regex = Regex::new(pattern).map_err(|error| ConvertError::Text {
                place: format!("ConfigMap/{} data.{}", PRIORITIES.0, PRIORITIES.1),
                problem: error.to_string(),
            })?;
            all.push((*number, regex));
        }
    }
    Ok(all)
}

/// A template with the names that it goes by.
struct Group<'a> {
    node: &'a TemplateNode,
    /// Its labels under today's names.
    labels: BTreeMap<&'a str, &'a str>,
    /// The name of the group.
    name: &'a str,
    pool: &'a str,
}

impl<'a> Group<'a> {
    fn new(node: &'a TemplateNode, templates: &'a Templates) -> Self {
        let pairs = node.metadata.labels.iter();
        let labels: BTreeMap<&str, &str> = pairs.map(|(key, value)| (current_name(key), value.as_str())).collect();
        let of_label = |key: &str| labels.get(key).copied().filter(|value| !value.is_empty());
        let grouped = templates.group_label.as_deref();
        let annotated = node.metadata.annotations.get(GROUP).map(String::as_str);
        let name = annotated.or_else(|| grouped.and_then(of_label)).unwrap_or(&node.metadata.name);
        let own = grouped.filter(|key| !labels::WELL_KNOWN.contains(key) && *key != labels::HOSTNAME);
        let pool = POOL_LABELS.into_iter().chain(own).find_map(of_label).unwrap_or(name);
        Self { node, labels, name, pool }
    }

    fn label(&self, key: &str) -> Option<&'a str> {
        self.labels.get(key).copied().filter(|value| !value.is_empty())
    }

    fn number(&self, annotation: &str) -> Option<u64> {
        self.node.metadata.annotations.get(annotation)?.parse().ok()
    }

    /// The greatest priority whose pattern the group's name matches.
    fn priority(&self, priorities: &[(i64, Regex)]) -> i64 {
        let matching = priorities.iter().filter(|(_, pattern)| pattern.is_match(self.name));
        matching.map(|(number, _)| *number).max().unwrap_or(0)
    }

    fn count(&self, counts: &mut Counts) {
        counts.least += self.number(LEAST).unwrap_or(0);
        counts.most += self.number(MOST).unwrap_or(DEFAULT_MOST);
    }

    /// The pool without its machines.
    fn pool(&self, priorities: &[(i64, Regex)]) -> Pool {
        let own = |key: &&str| {
            let of_all =
                [labels::HOSTNAME, POOL_LABEL, TEMPLATE_LABEL].contains(key) || labels::WELL_KNOWN.contains(key);
            !of_all && !is_of_type(key)
        };
        let counts = [GROUP, LEAST, MOST, DESIRED, PRICE, KWOK_NODE];
        let annotations = self.node.metadata.annotations.iter().filter(|(key, _)| !counts.contains(&key.as_str()));
        let taints: Vec<Taint> =
            self.node.spec.taints.iter().filter(|taint| taint.key != PROVIDER_TAINT).cloned().collect();
        Pool {
            dialect: Dialect::Autoscaler,
            place: SourceField { object: format!("Node/{}", self.node.metadata.name), field: String::new() },
            name: self.pool.to_owned(),
            region: self.label(labels::REGION).unwrap_or_default().to_owned(),
            weight: self.priority(priorities),
            labels: self
                .labels
                .keys()
                .filter(|key| own(key))
                .map(|key| ((*key).to_owned(), self.labels[key].to_owned()))
                .collect(),
            annotations: annotations.map(|(key, value)| (key.clone(), value.clone())).collect(),
            taints,
            // It takes nodes away and never replaces one.
            disruption: Disruption {
                consolidation_policy: Some(ConsolidationPolicy::WhenEmpty),
                ..Disruption::default()
            },
            expire_after: Some(NillableDuration::Never),
            ..Pool::default()
        }
    }

    fn machine(&self, settings: &Settings<'_>, report: &mut Report) -> Machine {
        let status = &self.node.status;
        let object = format!("Node/{}", self.node.metadata.name);
        let mut or = |key: &str, default: &str, reason: &str| {
            self.label(key).map_or_else(
                || {
                    report.say(&object, format!("metadata.labels.{key}"), default, Action::Defaulted, reason);
                    default.to_owned()
                },
                ToOwned::to_owned,
            )
        };
        let instance_type = or(labels::INSTANCE_TYPE, self.name, "a template without a type is a type of its own");
        let zone = or(labels::ZONE, NO_ZONE, "a template without a zone is in a zone of its own");
        let arch = or(labels::ARCH, "amd64", "the usual one");
        let os = or(labels::OS, "linux", "the usual one");
        let allocatable = if status.allocatable.is_empty() { &status.capacity } else { &status.allocatable };
        let missing = status.capacity.iter().map(|(name, all)| (name, all - allocatable.get(name).unwrap_or(0)));
        let reserved = missing.filter(|(_, amount)| *amount > 0).map(|(name, amount)| (name.to_owned(), amount));
        let of_type = self.labels.iter().filter(|(key, _)| is_of_type(key));
        let mut machine = Machine {
            field: String::new(),
            template: self.label(TEMPLATE_LABEL).unwrap_or_default().to_owned(),
            instance_type,
            arch,
            os,
            capacity: status.capacity.clone(),
            kube_reserved: Amounts(reserved.collect()),
            labels: of_type.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ..Machine::default()
        };
        machine.offers = vec![self.offer(&machine, zone, settings)];
        machine
    }

    /// The offer of a group: the price that the template carries, else the catalogue's.
    fn offer(&self, machine: &Machine, zone: String, settings: &Settings<'_>) -> Offer {
        let capacity_type = self.label(labels::CAPACITY_TYPE).and_then(CapacityType::from_name);
        let capacity_type = capacity_type.unwrap_or(CapacityType::OnDemand);
        let carried = self.node.metadata.annotations.get(PRICE).and_then(|text| money::parse(text).ok());
        let prices = settings.prices();
        if let Some(price) = carried.or_else(|| prices.listed(&machine.instance_type, &zone, capacity_type)) {
            return Offer { zone, capacity_type, price, estimated: false };
        }
        let (estimates, estimated) = prices.estimated(machine, std::slice::from_ref(&zone));
        Offer { zone, capacity_type, price: estimates.first().copied().unwrap_or(0), estimated }
    }
}

/// Whether a label is one that a provider gives to types.
fn is_of_type(key: &str) -> bool {
    let lists = [labels::aws::WELL_KNOWN, labels::gcp::WELL_KNOWN, labels::kwok::WELL_KNOWN];
    lists.iter().any(|list| list.contains(&key))
}
