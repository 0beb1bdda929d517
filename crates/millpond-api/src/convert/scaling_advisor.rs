//! Scaling Advisor's side: a ScalingConstraint and the list of prices that its planner reads.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::fleet::{Dialect, Field, Fleet, Machine, Offer, Pool, SourceField, distinct};
use super::gather::title;
use super::prices::Prices;
use super::report::{Action, Report};
use super::{Converted, File, Settings, karpenter, names};
use crate::amounts::Amounts;
use crate::catalog::CapacityType;
use crate::duration::{Duration, NillableDuration};
use crate::karpenter::{ConsolidationPolicy, Disruption, PoolRequirement};
use crate::labels;
use crate::meta::{Kind as _, ObjectMeta};
use crate::money;
use crate::node_class::Backoff;
use crate::scaling_advisor::{
    BackoffPolicy, NodePool, NodeTemplate, POOL_LABEL, ScalingConstraint, ScalingConstraintSpec,
};
use crate::selector::Operator;

/// The file of prices beside a constraint.
pub(super) const PRICES_FILE: &str = "instance-type-infos.json";

/// Reads the pools of a constraint.
pub(super) fn read(
    constraint: &ScalingConstraint,
    object: &Value,
    settings: &Settings<'_>,
    fleet: &mut Fleet,
    report: &mut Report,
) {
    let ScalingConstraintSpec { consumer_id, default_backoff_policy, node_pools, .. } = &constraint.spec;
    if fleet.name.is_empty() {
        fleet.name.clone_from(&constraint.metadata.name);
        fleet.namespace.clone_from(&constraint.metadata.namespace);
        fleet.labels.clone_from(&constraint.metadata.labels);
        fleet.annotations.clone_from(&constraint.metadata.annotations);
        fleet.consumer_id.clone_from(consumer_id);
    }
    for (index, pool) in node_pools.iter().enumerate() {
        let place = SourceField { object: title(object), field: format!("spec.nodePools[{index}]") };
        let backoff = pool.backoff_policy.or(*default_backoff_policy);
        let read = read_pool(pool, place, backoff, settings, report);
        fleet.pools.push(read);
    }
}

fn read_pool(
    pool: &NodePool,
    place: SourceField,
    backoff: Option<BackoffPolicy>,
    settings: &Settings<'_>,
    report: &mut Report,
) -> Pool {
    let prices = settings.prices();
    let machines = pool.node_templates.iter().enumerate().map(|(index, template)| {
        let field = place.field(&format!("nodeTemplates[{index}]"));
        read_template(pool, template, field, prices)
    });
    let read = Pool {
        dialect: Dialect::Advisor,
        name: pool.name.clone(),
        region: pool.region.clone(),
        weight: i64::from(pool.priority),
        labels: own_labels(pool, &place, report),
        annotations: pool.annotations.clone(),
        taints: pool.taints.clone(),
        limits: pool.quota.clone().unwrap_or_default(),
        least: pool.min.and_then(|min| u64::try_from(min).ok()).unwrap_or(0),
        // Advice takes empty nodes away and never replaces one.
        disruption: Disruption { consolidation_policy: Some(ConsolidationPolicy::WhenEmpty), ..Disruption::default() },
        expire_after: Some(NillableDuration::Never),
        drain: settings.drain_timeout,
        backoff: backoff.map(|policy| Backoff { initial: Some(policy.initial_backoff), max: Some(policy.max_backoff) }),
        machines: machines.collect(),
        place,
        ..Pool::default()
    };
    say_prices(&read, settings, report);
    read
}

/// Labels of nodes; where they come from and what they belong to is not for the labels of a pool to say.
fn own_labels(pool: &NodePool, place: &SourceField, report: &mut Report) -> BTreeMap<String, String> {
    let mut own = pool.labels.clone();
    let said = [(labels::NODE_POOL, &pool.name), (POOL_LABEL, &pool.name), (labels::REGION, &pool.region)];
    for (key, value) in said {
        if let Some(other) = own.remove(key).filter(|other| other != value) {
            let field = place.field(&format!("labels.{key}"));
            report.say(
                &place.object,
                field,
                other,
                Action::Dropped,
                format!("it is `{value}`, by the name and region of the pool"),
            );
        }
    }
    own
}

fn read_template(pool: &NodePool, template: &NodeTemplate, field: String, prices: Prices<'_>) -> Machine {
    let arch = if template.architecture.is_empty() { "amd64" } else { &template.architecture };
    let mut machine = Machine {
        field,
        template: template.name.clone(),
        instance_type: template.instance_type.clone(),
        arch: arch.to_owned(),
        os: "linux".to_owned(),
        capacity: template.capacity.clone(),
        kube_reserved: template.kube_reserved.clone(),
        system_reserved: template.system_reserved.clone(),
        most_volumes: template.max_volumes,
        priority: template.priority,
        labels: BTreeMap::new(),
        offers: Vec::new(),
    };
    machine.offers = prices.on_demand(&machine, &pool.availability_zones);
    machine
}

/// Tells whose prices stand in for others.
pub(super) fn say_prices(pool: &Pool, settings: &Settings<'_>, report: &mut Report) {
    let catalog = settings.catalog;
    let of = |machine: &&Machine| machine.offers.iter().any(|offer| offer.estimated);
    for machine in pool.machines.iter().filter(of) {
        let reason = format!(
            "catalogue `{}` has no price of it: estimated from its size; `--catalog` names another, `--price USD@{}` sets it",
            catalog.name, machine.instance_type
        );
        let price = money::exact(machine.price());
        let field = format!("{}.{}", machine.field, "instanceType").trim_start_matches('.').to_owned();
        let field = if pool.dialect == Dialect::Advisor { field } else { pool.path(Field::Prices) };
        let value = format!("{} at ${price}", machine.instance_type);
        report.say(&pool.place.object, field, value, Action::Defaulted, reason);
    }
    let listed = pool.machines.iter().any(|machine| machine.offers.iter().any(|offer| !offer.estimated));
    if listed && !catalog.region.is_empty() && !pool.region.is_empty() && catalog.region != pool.region {
        let reason = format!(
            "prices are those of {} in catalogue `{}`; `--catalog` names another",
            catalog.region, catalog.name
        );
        report.say(&pool.place.object, pool.place.field("region"), pool.region.clone(), Action::Approximated, reason);
    }
}

/// Writes a constraint and its prices.
pub(super) fn write(fleet: &Fleet, settings: &Settings<'_>, report: &mut Report) -> Converted {
    let mut pools = Vec::new();
    for pool in &fleet.pools {
        if let Some(written) = write_pool(pool, settings, report) {
            pools.push((pool, written));
        }
    }
    let backoffs = distinct(pools.iter().map(|(pool, _)| pool.backoff));
    let shared = if let [Some(one)] = backoffs[..] { Some(one) } else { None };
    let prices = price_infos(pools.iter().map(|(pool, written)| (*pool, written.region.as_str())));
    let mut written: Vec<NodePool> = Vec::new();
    for (pool, mut made) in pools {
        made.backoff_policy = if shared.is_some() { None } else { pool.backoff.map(policy) };
        written.push(made);
    }
    let name = settings.name.clone().unwrap_or_else(|| fleet.name.clone());
    let namespace = if fleet.namespace.is_empty() { "default".to_owned() } else { fleet.namespace.clone() };
    let constraint = ScalingConstraint {
        metadata: ObjectMeta {
            name: if name.is_empty() { "millpond".to_owned() } else { name },
            namespace,
            labels: fleet.labels.clone(),
            annotations: fleet.annotations.clone(),
            ..ObjectMeta::default()
        },
        spec: ScalingConstraintSpec {
            consumer_id: fleet.consumer_id.clone(),
            default_backoff_policy: shared.map(policy),
            scale_in_policy: None,
            node_pools: written,
        },
        status: Default::default(),
    };
    let files = vec![File { name: PRICES_FILE.to_owned(), text: pretty(&prices) }];
    Converted { objects: vec![constraint.to_object()], files, report: Report::default() }
}

fn policy(backoff: Backoff) -> BackoffPolicy {
    BackoffPolicy { initial_backoff: Duration(backoff.initial_s()), max_backoff: Duration(backoff.max_s()) }
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

fn write_pool(pool: &Pool, settings: &Settings<'_>, report: &mut Report) -> Option<NodePool> {
    let object = &pool.place.object;
    let machines: Vec<&Machine> = pool.machines.iter().filter(|machine| machine.os == "linux").collect();
    say_systems(pool, machines.len(), report);
    if machines.is_empty() {
        let reason = "no type of its catalogue is left for it: the pool is left out";
        report.say(object, pool.path(Field::Types), pool.name.clone(), Action::Dropped, reason);
        return None;
    }
    let zones = pool.zones();
    let mut taken = BTreeSet::new();
    let mut templates = Vec::new();
    for machine in &machines {
        let wanted = if machine.template.is_empty() { &machine.instance_type } else { &machine.template };
        let name = names::free(wanted, |name| taken.contains(name));
        taken.insert(name.clone());
        templates.push(write_template(machine, name));
    }
    say_offers(pool, &machines, &zones, report);
    say_disruption(pool, report);
    Some(NodePool {
        name: pool.name.clone(),
        region: region(pool, settings, report),
        availability_zones: zones,
        labels: written_labels(pool, report),
        annotations: pool.annotations.clone(),
        taints: pool.taints.clone(),
        quota: Some(pool.limits.clone()).filter(|limits| !limits.is_empty()),
        priority: i32::try_from(pool.weight).unwrap_or(i32::MAX),
        node_templates: templates,
        min: i32::try_from(pool.least).ok().filter(|least| *least > 0),
        scale_in_policy: None,
        backoff_policy: None,
    })
}

fn write_template(machine: &Machine, name: String) -> NodeTemplate {
    NodeTemplate {
        name,
        architecture: machine.arch.clone(),
        instance_type: machine.instance_type.clone(),
        capacity: machine.capacity.clone(),
        kube_reserved: without_zeros(&machine.kube_reserved),
        system_reserved: without_zeros(&machine.system_reserved),
        max_volumes: machine.most_volumes,
        priority: machine.priority,
    }
}

fn without_zeros(amounts: &Amounts) -> Amounts {
    Amounts(amounts.iter().filter(|(_, amount)| *amount != 0).map(|(name, amount)| (name.to_owned(), amount)).collect())
}

/// Scaling Advisor needs a region and looks prices up by it.
fn region(pool: &Pool, settings: &Settings<'_>, report: &mut Report) -> String {
    if let Some(region) = &settings.region {
        return region.clone();
    }
    if !pool.region.is_empty() {
        return pool.region.clone();
    }
    let name = pool.original.as_ref().map_or(settings.catalog.name.as_str(), |original| &original.catalog).to_owned();
    let object = format!("pool {}", pool.name);
    let reason =
        "its catalogue has no region, and Scaling Advisor needs one: the catalogue's name; `--region` names one";
    report.say(&object, "region", name.clone(), Action::Defaulted, reason);
    name
}

/// Labels of the template, and requirements on own labels that leave one value.
fn written_labels(pool: &Pool, report: &mut Report) -> BTreeMap<String, String> {
    let mut written = pool.labels.clone();
    written.remove(POOL_LABEL);
    for (index, requirement) in &pool.own {
        let PoolRequirement { key, operator, values, .. } = requirement;
        if let (Operator::In, [value]) = (operator, &values[..]) {
            written.insert(key.clone(), value.clone());
        } else {
            let field = format!("{}[{index}]", pool.path(Field::Requirements));
            let value = serde_json::to_value(requirement).unwrap_or_default();
            let reason = "a label of the pool's own has one value in Scaling Advisor";
            report.say(&pool.place.object, field, value, Action::Dropped, reason);
        }
    }
    written
}

fn say_systems(pool: &Pool, linux: usize, report: &mut Report) {
    let other = pool.machines.len() - linux;
    if other > 0 {
        let reason = "Scaling Advisor's nodes are linux: types for other systems are left out";
        report.say(&pool.place.object, pool.path(Field::Types), format!("{other} types"), Action::Dropped, reason);
    }
}

/// Tells what of the offers is not as the constraint says: bought on demand, every template in every zone.
fn say_offers(pool: &Pool, machines: &[&Machine], zones: &[String], report: &mut Report) {
    let object = &pool.place.object;
    let other: Vec<String> = pool
        .capacity_types()
        .into_iter()
        .filter(|kind| *kind != CapacityType::OnDemand)
        .map(|kind| kind.to_string())
        .collect();
    if !other.is_empty() {
        let reason = "Scaling Advisor knows no capacity types: nodes are planned at the on-demand price";
        report.say(object, pool.path(Field::Requirements), other.join(", "), Action::Approximated, reason);
    }
    let everywhere =
        |machine: &&&Machine| zones.iter().all(|zone| machine.offers.iter().any(|offer| offer.zone == *zone));
    let missing = machines.len() - machines.iter().filter(everywhere).count();
    if missing > 0 {
        let reason = "Scaling Advisor takes every template to be in every zone; these are not";
        report.say(object, pool.path(Field::Types), format!("{missing} types"), Action::Approximated, reason);
    }
    let keys = distinct(machines.iter().flat_map(|machine| machine.labels.keys()).cloned());
    if !keys.is_empty() {
        let reason = "templates have no labels of their own: pods that select by these find no place";
        report.say(object, pool.path(Field::Types), keys.join(", "), Action::Dropped, reason);
    }
}

/// An age and consolidation are Karpenter's alone.
fn say_disruption(pool: &Pool, report: &mut Report) {
    karpenter::say_disruption(
        pool,
        report,
        ["Scaling Advisor never replaces a node for its age", "Scaling Advisor is to take away empty nodes, no others"],
    );
}

/// What Scaling Advisor looks up: a type of a region at a price.
fn price_infos<'a>(pools: impl Iterator<Item = (&'a Pool, &'a str)>) -> Value {
    let mut infos: BTreeMap<(String, String), Value> = BTreeMap::new();
    for (pool, region) in pools {
        for machine in pool.machines.iter().filter(|machine| machine.os == "linux") {
            let key = (region.to_owned(), machine.instance_type.clone());
            infos.entry(key).or_insert_with(|| price_info(machine, region));
        }
    }
    infos.into_values().collect()
}

fn price_info(machine: &Machine, region: &str) -> Value {
    let amount = |name: &str| machine.capacity.get(name).unwrap_or(0);
    let on_demand = |offer: &&Offer| offer.capacity_type == CapacityType::OnDemand;
    let price =
        machine.offers.iter().filter(on_demand).map(|offer| offer.price).min().unwrap_or_else(|| machine.price());
    let gpus = machine.capacity.iter().filter(|(name, _)| name.ends_with("/gpu")).map(|(_, count)| count).sum::<i64>();
    json!({
        "instanceType": machine.instance_type,
        "region": region,
        "os": "Linux",
        // Whole cores: a share of one counts as one.
        "VCPU": amount("cpu").unsigned_abs().div_ceil(1000),
        "memory": amount("memory"),
        "GPU": gpus,
        "GPUMemory": 0,
        "hourlyPrice": money::dollars(price),
    })
}
