//! Karpenter with its KWOK provider: NodePools that name a KWOKNodeClass, and the file of instance types that the
//! provider reads (`--instance-types-file-path`).
//!
//! A KWOK type has one amount of each resource, of which the provider keeps [`OWN`] for itself. What is written is
//! capacity − kubeReserved − systemReserved + [`OWN`], and never more than the capacity: pods find what they would
//! find on the real machine.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::fleet::{Field, Fleet, Machine, Offer, Original, Pool};
use super::super::gather::ClassKind;
use super::super::report::{Action, Report};
use super::super::{ConvertError, File, Settings, names};
use super::read::provider_labels;
use super::{clean, reference, with_class};
use crate::amounts::Amounts;
use crate::catalog::{CapacityType, Provider, config_map};
use crate::karpenter::{NodeClassRef, PRICE_LIMIT_ANNOTATION, PoolRequirement};
use crate::labels;
use crate::money;
use crate::selector::Operator;

/// Cpu (thousandths) and memory (bytes) that KWOK reserves.
const OWN: [(&str, i64); 2] = [("cpu", 100), ("memory", 10 << 20)];
/// The file of instance types, and the ConfigMap that carries it.
const FILE: &str = "instance-types.json";
const CONFIG_MAP: &str = "karpenter-instance-types";
/// Where Karpenter is usually installed.
const NAMESPACE: &str = "kube-system";

/// The class of a pool.
pub(super) fn class_of(pool: &Pool, fleet: &Fleet, settings: &Settings<'_>) -> NodeClassRef {
    let named = pool.original.as_ref().map(|original| original.pool.spec.template.spec.node_class_ref.name.as_str());
    let name = named.or(settings.name.as_deref()).unwrap_or(&fleet.name);
    reference(ClassKind::Kwok, &names::fitting(if name.is_empty() { "default" } else { name }))
}

/// A NodePool of another provider: requirements on labels that KWOK's types lack become a list of types.
pub(super) fn original(pool: &Pool, original: &Original, class: NodeClassRef, report: &mut Report) -> Value {
    let object = &pool.place.object;
    let mut written = with_class(original, &class);
    let strange = |key: &str| {
        let key = labels::current_name(key);
        let of = [Provider::Aws, Provider::Gcp];
        of.iter().any(|provider| provider_labels(*provider).contains(&key))
            || pool
                .machines
                .iter()
                .any(|machine| machine.labels.contains_key(key) && !provider_labels(Provider::Kwok).contains(&key))
    };
    let mut kept: Vec<&PoolRequirement> = Vec::new();
    let mut lost = false;
    for (index, requirement) in original.pool.spec.template.spec.requirements.iter().enumerate() {
        if strange(&requirement.key) {
            lost = true;
            let field = format!("{}[{index}]", pool.path(Field::Requirements));
            let value = serde_json::to_value(requirement).unwrap_or_default();
            let reason = format!("KWOK's types have no such label: `{}` names the types", labels::INSTANCE_TYPE);
            report.say(object, field, value, Action::Approximated, reason);
        } else {
            kept.push(requirement);
        }
    }
    if lost {
        let values = pool.machines.iter().map(|machine| machine.instance_type.clone()).collect();
        let types =
            PoolRequirement { key: labels::INSTANCE_TYPE.to_owned(), operator: Operator::In, values, min_values: None };
        kept.push(&types);
        written["spec"]["template"]["spec"]["requirements"] = json!(kept);
    }
    say_additions(original, object, report, &mut written);
    written
}

/// What Millpond adds to a NodePool means nothing to Karpenter, and its CRD refuses some of it.
fn say_additions(original: &Original, object: &str, report: &mut Report, written: &mut Value) {
    for (index, budget) in original.pool.spec.disruption.budgets.iter().flatten().enumerate() {
        if let Some(zone) = &budget.time_zone {
            let field = format!("spec.disruption.budgets[{index}].timeZone");
            let reason = "Karpenter's schedules are in UTC: the schedule holds at other hours";
            report.say(object, field, zone.clone(), Action::Dropped, reason);
            if let Some(budget) = written["spec"]["disruption"]["budgets"][index].as_object_mut() {
                budget.remove("timeZone");
            }
        }
    }
    if let Some(limit) = original.pool.metadata.annotations.get(PRICE_LIMIT_ANNOTATION) {
        let field = format!("metadata.annotations.{PRICE_LIMIT_ANNOTATION}");
        report.say(object, field, limit.clone(), Action::Dropped, "Karpenter has no limits in dollars");
    }
}

/// The classes, the types of all pools in a ConfigMap to be mounted, and the same as a file.
pub(super) fn instance_types(
    fleet: &Fleet,
    settings: &Settings<'_>,
    report: &mut Report,
) -> Result<(Vec<Value>, Vec<File>), ConvertError> {
    let mut types: BTreeMap<&str, Kwok<'_>> = BTreeMap::new();
    for pool in &fleet.pools {
        say_limits(pool, report);
        for machine in &pool.machines {
            let resources = resources(pool, machine, report);
            match types.get_mut(machine.instance_type.as_str()) {
                None => {
                    types.insert(&machine.instance_type, Kwok { machine, resources, offers: offers(machine) });
                }
                Some(known) => {
                    if known.lessen(&resources) {
                        let reason = "KWOK has one list of types for all pools, and the type differs between them: it has the lesser amounts";
                        let path = pool.part(machine, "capacity");
                        report.say(
                            &pool.place.object,
                            path,
                            machine.instance_type.clone(),
                            Action::Approximated,
                            reason,
                        );
                    }
                    known.offers.extend(offers(machine));
                }
            }
        }
    }
    let text = format!("{:#}\n", types.into_values().map(Kwok::write).collect::<Value>());
    if text.len() > config_map::LIMIT_BYTES {
        return Err(ConvertError::TooLarge { what: "the list of instance types".to_owned(), bytes: text.len() });
    }
    let mut objects = class_objects(fleet, settings);
    objects.push(json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": CONFIG_MAP, "namespace": NAMESPACE },
        "data": { FILE: text },
    }));
    Ok((objects, vec![File { name: FILE.to_owned(), text }]))
}

/// A type of KWOK's in the making.
struct Kwok<'a> {
    machine: &'a Machine,
    resources: Amounts,
    /// Prices by zone and capacity type.
    offers: BTreeMap<(String, CapacityType), u64>,
}

fn offers(machine: &Machine) -> BTreeMap<(String, CapacityType), u64> {
    machine
        .offers
        .iter()
        .map(|Offer { zone, capacity_type, price, .. }| ((zone.clone(), *capacity_type), *price))
        .collect()
}

impl Kwok<'_> {
    /// Takes the lesser of each amount; true if they differ.
    fn lessen(&mut self, other: &Amounts) -> bool {
        let differs = self.resources != *other;
        self.resources.0.retain(|name, _| other.get(name).is_some());
        for (name, amount) in &mut self.resources.0 {
            *amount = (*amount).min(other.get(name).unwrap_or(0));
        }
        differs
    }

    fn write(self) -> Value {
        let one = |key: &str, value: &str| json!({ "key": key, "operator": "In", "values": [value] });
        let offering = |((zone, kind), price): ((String, CapacityType), u64)| {
            json!({
                "Price": money::dollars(price),
                "Available": true,
                "Requirements": [one(labels::CAPACITY_TYPE, kind.name()), one(labels::ZONE, &zone)],
            })
        };
        json!({
            "name": self.machine.instance_type,
            "architecture": self.machine.arch,
            "operatingSystems": [self.machine.os],
            "offerings": self.offers.into_iter().map(offering).collect::<Vec<_>>(),
            "resources": self.resources,
        })
    }
}

/// Amounts from which KWOK takes its own, so that pods are left what they should be.
fn resources(pool: &Pool, machine: &Machine, report: &mut Report) -> Amounts {
    let mut resources = machine.allocatable();
    for (name, own) in OWN {
        let (Some(left), Some(all)) = (resources.get(name), machine.capacity.get(name)) else { continue };
        resources.0.insert(name.to_owned(), (left + own).min(all));
        if left + own > all {
            let reserved = crate::amounts::write(name, all - left);
            let reason = format!(
                "KWOK keeps {} of every node itself, which is more: pods have that much less",
                crate::amounts::write(name, own)
            );
            report.say(
                &pool.place.object,
                pool.part(machine, "kubeReservedCapacity"),
                format!("{name} {reserved}"),
                Action::Approximated,
                reason,
            );
        }
    }
    resources
}

/// KWOK's capacity is what is left for pods, so that limits count less of each node.
fn say_limits(pool: &Pool, report: &mut Report) {
    let reserves = |machine: &Machine| machine.allocatable() != machine.capacity;
    let counted = pool.limits.iter().any(|(name, _)| name != "nodes");
    if counted && pool.machines.iter().any(reserves) {
        let reason = "limits count the capacity, and KWOK's is without what is reserved: a few more nodes fit";
        let value = serde_json::to_value(&pool.limits).unwrap_or_default();
        report.say(&pool.place.object, pool.path(Field::Limits), value, Action::Approximated, reason);
    }
}

fn class_objects(fleet: &Fleet, settings: &Settings<'_>) -> Vec<Value> {
    let mut objects: Vec<Value> = Vec::new();
    for pool in &fleet.pools {
        let name = class_of(pool, fleet, settings).name;
        let class = pool.original.as_ref().and_then(|original| original.class.as_ref());
        let object = match class {
            Some(class) if class.kind == ClassKind::Kwok => clean(&class.object),
            class => {
                let delay =
                    class.and_then(|class| class.class.spec.sim.as_ref()).and_then(|sim| sim.registration_delay);
                let spec = delay.map_or_else(|| json!({}), |delay| json!({ "nodeRegistrationDelay": delay }));
                json!({
                    "apiVersion": "karpenter.kwok.sh/v1alpha1",
                    "kind": "KWOKNodeClass",
                    "metadata": { "name": name },
                    "spec": spec,
                })
            }
        };
        if !objects.iter().any(|known| known["metadata"]["name"] == name.as_str()) {
            objects.push(object);
        }
    }
    objects
}
