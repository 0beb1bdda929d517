//! Karpenter's side: NodePools with a node class, and the instance types of that class: a catalogue for Millpond's,
//! a JSON file for KWOK's.

mod classes;
mod kwok;
mod machines;
mod pool;
mod read;

use serde_json::{Value, json};

pub(super) use read::read;

use super::fleet::{Dialect, Field, Fleet, Original, Pool};
use super::gather::ClassKind;
use super::report::{Action, Report};
use super::{ConvertError, Converted, Settings, Target, names};
use crate::catalog::Catalog;
use crate::duration::NillableDuration;
use crate::karpenter::{ConsolidationPolicy, NodeClassRef};
use crate::meta::Kind as _;

/// Writes NodePools with Millpond's NodeClass, or with KWOK's.
pub(super) fn write(
    fleet: &Fleet,
    target: Target,
    settings: &Settings<'_>,
    catalogs: &[&Catalog],
    report: &mut Report,
) -> Result<Converted, ConvertError> {
    let fleet = &machines::usable(fleet, report);
    let weights = weights(fleet, report);
    say_name(fleet, settings, report);
    let kwok = target == Target::Kwok;
    let mut classes = classes::Classes::new(fleet, settings, catalogs);
    let mut pools: Vec<Value> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for (index, from) in fleet.pools.iter().enumerate() {
        let class = if kwok { kwok::class_of(from, fleet, settings) } else { classes.class_of(from, report) };
        let written = match &from.original {
            Some(original) if kwok => kwok::original(from, original, class, report),
            Some(original) => with_class(original, &class),
            None => {
                let made = pool::write(from, weights[index], class, &mut names, report);
                made.to_object()
            }
        };
        pools.push(written);
    }
    let (mut objects, files) =
        if kwok { kwok::instance_types(fleet, settings, report)? } else { (classes.objects()?, Vec::new()) };
    objects.splice(0..0, pools);
    Ok(Converted { objects, files, report: Report::default() })
}

/// Tells if what is made cannot have the name of the constraint.
fn say_name(fleet: &Fleet, settings: &Settings<'_>, report: &mut Report) {
    let constraint = fleet.pools.iter().find(|pool| pool.dialect == Dialect::Advisor);
    let name = names::fitting(settings.name.as_deref().unwrap_or(&fleet.name));
    if let Some(pool) = constraint.filter(|_| !fleet.name.is_empty() && fleet.name != name) {
        let reason = format!("the node class is `{name}`");
        report.say(&pool.place.object, "metadata.name", fleet.name.clone(), Action::Approximated, reason);
    }
}

/// A NodePool as it was, with another node class if need be.
fn with_class(original: &Original, class: &NodeClassRef) -> Value {
    let mut object = clean(&original.object);
    object["spec"]["template"]["spec"]["nodeClassRef"] =
        json!({ "group": class.group, "kind": class.kind, "name": class.name });
    object
}

/// An object as in a manifest: without what the server adds.
pub(super) fn clean(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for name in
            ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "finalizers"]
        {
            metadata.remove(name);
        }
    }
    object
}

/// Weights of the pools that were none of Karpenter's: priorities, brought into 1 to 100 so that their order stays.
fn weights(fleet: &Fleet, report: &mut Report) -> Vec<i32> {
    const MOST: i64 = 100;
    let mut priorities: Vec<i64> = fleet.pools.iter().map(|pool| pool.weight).collect();
    priorities.sort_unstable_by(|a, b| b.cmp(a));
    priorities.dedup();
    let mut chosen: Vec<(i64, i64)> = Vec::new();
    for priority in priorities {
        let below = chosen.last().map_or(MOST, |(_, weight)| weight - 1);
        // No weight is a weight of 0; more than a hundred different priorities share it.
        let weight = priority.min(below).max(i64::from(priority > 0 && below > 0)).max(0);
        chosen.push((priority, weight));
    }
    let weight =
        |pool: &Pool| chosen.iter().find(|(priority, _)| *priority == pool.weight).map_or(0, |(_, weight)| *weight);
    for pool in fleet.pools.iter().filter(|pool| pool.original.is_none()) {
        let weight = weight(pool);
        if weight != pool.weight {
            let reason = format!("a weight is 1 to {MOST}: `spec.weight` is {weight}, in the same order as before");
            report.say(&pool.place.object, pool.path(Field::Weight), pool.weight, Action::Approximated, reason);
        }
    }
    fleet.pools.iter().map(|pool| i32::try_from(weight(pool)).unwrap_or(0)).collect()
}

/// Tells of an age and of consolidation, for targets that know neither: why they go.
pub(super) fn say_disruption(pool: &Pool, report: &mut Report, [age, policy]: [&str; 2]) {
    let Some(original) = &pool.original else { return };
    let spec = &original.pool.spec;
    let object = &pool.place.object;
    match spec.template.spec.expire_after {
        Some(NillableDuration::Never) => {}
        Some(NillableDuration::Seconds(seconds)) => {
            let value = crate::duration::write(seconds);
            report.say(object, "spec.template.spec.expireAfter", value, Action::Dropped, age);
        }
        None => report.say(
            object,
            "spec.template.spec.expireAfter",
            "720h",
            Action::Dropped,
            format!("{age}; Karpenter does so after 30 days if a pool does not say `Never`"),
        ),
    }
    let name = match spec.disruption.consolidation_policy {
        Some(ConsolidationPolicy::WhenEmpty) => return,
        Some(ConsolidationPolicy::Balanced) => "Balanced",
        Some(ConsolidationPolicy::WhenEmptyOrUnderutilized) | None => "WhenEmptyOrUnderutilized",
    };
    report.say(object, "spec.disruption.consolidationPolicy", name, Action::Dropped, policy);
}

/// How a pool names a class.
fn reference(kind: ClassKind, name: &str) -> NodeClassRef {
    let (group, kind) = kind.names();
    NodeClassRef { group: group.to_owned(), kind: kind.to_owned(), name: name.to_owned() }
}
