//! ConfigMaps for pools.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::super::fleet::{Field, Fleet, Machine, Offer, Pool, distinct};
use super::super::report::{Action, Report};
use super::super::{ConvertError, Converted, Settings, karpenter, names};
use super::{
    CONFIG, DEFAULT_MOST, DESIRED, GROUP, LEAST, MOST, NAMESPACE, PRICE, PRIORITIES, TEMPLATES, TemplateMeta,
    TemplateNode, TemplateSpec, TemplateStatus,
};
use crate::amounts::Amounts;
use crate::catalog::overhead::DEFAULT_PODS;
use crate::catalog::{CapacityType, config_map};
use crate::karpenter::PoolRequirement;
use crate::labels;
use crate::money;
use crate::scaling_advisor::{POOL_LABEL, TEMPLATE_LABEL};
use crate::selector::Operator;

/// A group: one type of a pool in one zone, bought in one way.
struct Group<'a> {
    name: String,
    pool: &'a Pool,
    machine: &'a Machine,
    offer: &'a Offer,
}

/// Writes the ConfigMaps.
pub(in super::super) fn write(
    fleet: &Fleet,
    settings: &Settings<'_>,
    report: &mut Report,
) -> Result<Converted, ConvertError> {
    let groups = groups(fleet);
    let nodes: Vec<Value> = groups.iter().map(|group| node(group, &groups)).collect();
    for pool in &fleet.pools {
        say_pool(pool, report);
    }
    let types = distinct(groups.iter().map(|group| &group.machine.instance_type)).len();
    let reason = "the kwok provider has no prices, and the price expander does not run with it; kept as annotations";
    let catalog = format!("catalogue {}", settings.catalog.name);
    report.say(&catalog, "prices", format!("of {types} types"), Action::Dropped, reason);
    let templates = yaml(&json!({ "apiVersion": "v1", "kind": "List", "items": nodes }));
    if templates.len() > config_map::LIMIT_BYTES {
        let what = format!("the list of {} node groups", groups.len());
        return Err(ConvertError::TooLarge { what, bytes: templates.len() });
    }
    // Tolerations for the provider's own taint would have to be on every pod.
    let config = json!({
        "apiVersion": "v1alpha1",
        "readNodesFrom": "configmap",
        "nodegroups": { "fromNodeLabelKey": labels::NODE_POOL },
        "nodes": { "skipTaint": true },
        "configmap": { "name": TEMPLATES.0 },
    });
    let mut objects = vec![map(CONFIG, yaml(&config)), map(TEMPLATES, templates)];
    objects.extend(priorities(fleet, &groups, report));
    Ok(Converted { objects, files: Vec::new(), report: Report::default() })
}

fn map((name, key): (&str, &str), text: String) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "data": { key: text },
    })
}

fn yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).map_or_else(|_| format!("{value:#}\n"), |text| text.trim_end().to_owned() + "\n")
}

fn groups(fleet: &Fleet) -> Vec<Group<'_>> {
    let mut groups = Vec::new();
    let mut taken = BTreeSet::new();
    for pool in &fleet.pools {
        for machine in &pool.machines {
            for offer in &machine.offers {
                let kind = if machine.template.is_empty() { &machine.instance_type } else { &machine.template };
                let mut wanted = format!("{}-{kind}-{}", pool.name, offer.zone);
                if offer.capacity_type != CapacityType::OnDemand {
                    wanted += &format!("-{}", offer.capacity_type);
                }
                let name = names::free(&names::fitting(&wanted), |name| taken.contains(name));
                taken.insert(name.clone());
                groups.push(Group { name, pool, machine, offer });
            }
        }
    }
    groups
}

fn node(group: &Group<'_>, groups: &[Group<'_>]) -> Value {
    let Group { name, pool, machine, offer } = group;
    let mut annotations = pool.annotations.clone();
    annotations.insert(GROUP.to_owned(), name.clone());
    annotations.insert(PRICE.to_owned(), money::exact(offer.price));
    if let Some(most) = most(pool, machine) {
        annotations.insert(MOST.to_owned(), most.to_string());
    }
    if pool.least > 0 && is_cheapest(group, groups) {
        // The count at the start may not be below the least.
        annotations.insert(LEAST.to_owned(), pool.least.to_string());
        annotations.insert(DESIRED.to_owned(), pool.least.to_string());
    }
    let node = TemplateNode {
        metadata: TemplateMeta { name: name.clone(), labels: node_labels(group), annotations },
        spec: TemplateSpec { taints: pool.taints.clone() },
        status: TemplateStatus { capacity: with_pods(machine), allocatable: allocatable(machine) },
    };
    let mut object = serde_json::to_value(node).unwrap_or_default();
    object["apiVersion"] = "v1".into();
    object["kind"] = "Node".into();
    object
}

/// A node that takes no pods is no use: without a number, kubelet's own.
fn with_pods(machine: &Machine) -> Amounts {
    let mut capacity = machine.capacity.clone();
    capacity.0.entry("pods".to_owned()).or_insert(i64::from(DEFAULT_PODS));
    capacity
}

fn allocatable(machine: &Machine) -> Amounts {
    Machine { capacity: with_pods(machine), ..machine.clone() }.allocatable()
}

fn node_labels(group: &Group<'_>) -> BTreeMap<String, String> {
    let Group { pool, machine, offer, .. } = group;
    let mut all = pool.labels.clone();
    all.remove(labels::HOSTNAME);
    all.extend(machine.labels.clone());
    for (_, PoolRequirement { key, operator, values, .. }) in &pool.own {
        if let (Operator::In, [value]) = (operator, &values[..]) {
            all.insert(key.clone(), value.clone());
        }
    }
    let known = [
        (labels::INSTANCE_TYPE, machine.instance_type.as_str()),
        (labels::ARCH, &machine.arch),
        (labels::OS, &machine.os),
        (labels::ZONE, &offer.zone),
        (labels::REGION, &pool.region),
        (labels::CAPACITY_TYPE, offer.capacity_type.name()),
        (labels::NODE_POOL, &pool.name),
        (POOL_LABEL, &pool.name),
        (TEMPLATE_LABEL, &machine.template),
    ];
    all.extend(
        known
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
    );
    all
}

/// The most nodes of a group that the limits of its pool leave.
fn most(pool: &Pool, machine: &Machine) -> Option<i64> {
    let each = pool.limits.iter().filter_map(|(name, limit)| match name {
        "nodes" => Some(limit),
        _ => machine.capacity.get(name).filter(|amount| *amount > 0).map(|amount| limit / amount),
    });
    each.min()
}

fn is_cheapest(group: &Group<'_>, groups: &[Group<'_>]) -> bool {
    let of_pool = groups.iter().filter(|other| std::ptr::eq(other.pool, group.pool));
    let cheapest = of_pool.min_by_key(|other| (other.offer.price, &other.name));
    cheapest.is_some_and(|cheapest| cheapest.name == group.name)
}

fn say_pool(pool: &Pool, report: &mut Report) {
    let object = &pool.place.object;
    if pool.limits.is_empty() {
        let reason = "a group of Cluster Autoscaler's kwok provider has at most so many nodes unless its annotation says otherwise";
        report.say(object, pool.path(Field::Limits), DEFAULT_MOST, Action::Defaulted, reason);
    } else {
        let reason = "a limit of each group, not of all together; --max-nodes-total, --cores-total and --memory-total limit the cluster";
        let value = serde_json::to_value(&pool.limits).unwrap_or_default();
        report.say(object, pool.path(Field::Limits), value, Action::Approximated, reason);
    }
    if let Some(name) = pool.labels.get(labels::HOSTNAME) {
        let field = format!("{}.{}", pool.path(Field::Labels), labels::HOSTNAME);
        report.say(object, field, name.clone(), Action::Dropped, "every node has a name of its own");
    }
    for machine in &pool.machines {
        say_machine(pool, machine, report);
    }
    if pool.least > 0 {
        let reason = "of the cheapest group; Cluster Autoscaler holds it with --enforce-node-group-min-size";
        report.say(object, pool.path(Field::Least), pool.least, Action::Approximated, reason);
    }
    for (index, requirement) in &pool.own {
        if requirement.operator != Operator::In || requirement.values.len() != 1 {
            let field = format!("{}[{index}]", pool.path(Field::Requirements));
            let value = serde_json::to_value(requirement).unwrap_or_default();
            report.say(object, field, value, Action::Dropped, "a label of a template has one value");
        }
    }
    karpenter::say_disruption(
        pool,
        report,
        [
            "Cluster Autoscaler never replaces a node for its age",
            "Cluster Autoscaler takes nodes away that are empty or half empty, and replaces none by a cheaper one",
        ],
    );
}

fn say_machine(pool: &Pool, machine: &Machine, report: &mut Report) {
    let object = &pool.place.object;
    let reserved =
        [("kubeReservedCapacity", &machine.kube_reserved), ("systemReservedCapacity", &machine.system_reserved)];
    // What was a difference already is none to speak of.
    let parts = if machine.field.is_empty() || machine.system_reserved.is_empty() { &[][..] } else { &reserved[..] };
    for (name, amounts) in parts {
        let reason = "the difference of capacity and allocatable is one: what kubelet and the system keep, together";
        let value = serde_json::to_value(amounts).unwrap_or_default();
        report.say(object, pool.part(machine, name), value, Action::Approximated, reason);
    }
    for (name, amounts) in reserved {
        for (resource, amount) in amounts.iter().filter(|(resource, _)| machine.capacity.get(resource).is_none()) {
            let reason = "nothing can be reserved of what the capacity does not have";
            report.say(object, pool.part(machine, &format!("{name}.{resource}")), amount, Action::Dropped, reason);
        }
    }
    let kept = |resource: &str| {
        machine
            .kube_reserved
            .get(resource)
            .unwrap_or(0)
            .saturating_add(machine.system_reserved.get(resource).unwrap_or(0))
    };
    for (resource, _) in machine.capacity.iter().filter(|(resource, all)| kept(resource) > *all) {
        let reason = "more is reserved than the capacity has: nothing is left";
        let field = pool.part(machine, &format!("kubeReservedCapacity.{resource}"));
        report.say(object, field, kept(resource), Action::Approximated, reason);
    }
    if machine.capacity.get("pods").is_none() {
        let reason = "a template without a number of pods has kubelet's own";
        report.say(object, pool.part(machine, "capacity.pods"), i64::from(DEFAULT_PODS), Action::Defaulted, reason);
    }
}

/// The priority expander's ConfigMap, where pools or templates have a priority: higher first.
fn priorities(fleet: &Fleet, groups: &[Group<'_>], report: &mut Report) -> Option<Value> {
    let step = groups.iter().map(|group| i64::from(group.machine.priority)).max().unwrap_or(0) + 1;
    let number = |group: &Group<'_>| group.pool.weight.saturating_mul(step) + i64::from(group.machine.priority);
    let mut numbers: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for group in groups {
        numbers.entry(number(group)).or_default().push(format!("^{}$", group.name));
    }
    if numbers.keys().all(|number| *number == 0) {
        return None;
    }
    let reason = format!("takes effect with --expander=priority, by the ConfigMap `{}`", PRIORITIES.0);
    for pool in &fleet.pools {
        let object = &pool.place.object;
        let ranked = pool.machines.iter().filter(|machine| machine.priority != 0);
        for machine in ranked.clone() {
            let field = pool.part(machine, "priority");
            report.say(object, field, machine.priority, Action::Approximated, reason.clone());
        }
        if pool.weight != 0 || ranked.count() > 0 {
            report.say(object, pool.path(Field::Weight), pool.weight, Action::Approximated, reason.clone());
        }
    }
    // Numbers are the keys there, and no JSON has such; each list stands below its own.
    let lists = numbers.iter().rev().map(|(number, names)| {
        let names: String = names.iter().map(|name| format!("  - {name}\n")).collect();
        format!("{number}:\n{names}")
    });
    Some(map(PRIORITIES, lists.collect()))
}
