//! Creates a NodePool from a pool of another tool.

use super::super::fleet::{Field, Pool, distinct};
use super::super::names;
use super::super::report::{Action, Report};
use crate::duration::NillableDuration;
use crate::karpenter::{
    Budget, ConsolidationPolicy, Disruption, NodeClaimTemplate, NodeClaimTemplateSpec, NodeClassRef, NodePool,
    NodePoolSpec, PoolRequirement, TemplateMeta,
};
use crate::labels;
use crate::meta::{Invalid, ObjectMeta};
use crate::scaling_advisor::POOL_LABEL;
use crate::selector::Operator;

/// The share of nodes that Karpenter disrupts at a time if a pool has no budget.
const DEFAULT_BUDGET: &str = "10%";

/// Makes the NodePool; fields that Karpenter would reject are left out and reported.
pub(super) fn write(
    pool: &Pool,
    weight: i32,
    class: NodeClassRef,
    taken: &mut Vec<String>,
    report: &mut Report,
) -> NodePool {
    let name = name(pool, taken, report);
    say_defaults(pool, &name, &class, report);
    let mut labels = pool.labels.clone();
    labels.insert(POOL_LABEL.to_owned(), pool.name.clone());
    let mut made = NodePool {
        metadata: ObjectMeta { name, ..ObjectMeta::default() },
        spec: NodePoolSpec {
            template: NodeClaimTemplate {
                metadata: TemplateMeta { labels, annotations: pool.annotations.clone() },
                spec: NodeClaimTemplateSpec {
                    requirements: requirements(pool),
                    taints: pool.taints.clone(),
                    startup_taints: Vec::new(),
                    node_class_ref: class,
                    expire_after: Some(pool.expire_after.unwrap_or(NillableDuration::Never)),
                    termination_grace_period: pool.drain,
                },
            },
            disruption: disruption(&pool.disruption),
            limits: Some(pool.limits.clone()).filter(|limits| !limits.is_empty()),
            weight: Some(weight).filter(|weight| *weight > 0),
            replicas: None,
        },
        status: Default::default(),
    };
    leave_out(&mut made, pool, report);
    made
}

fn name(pool: &Pool, taken: &mut Vec<String>, report: &mut Report) -> String {
    let name = names::free(&names::fitting(&pool.name), |name| taken.iter().any(|taken| taken == name));
    if name != pool.name {
        let reason = format!("an object cannot have this name, or has it already: `metadata.name` is `{name}`");
        report.say(&pool.place.object, pool.path(Field::Name), pool.name.clone(), Action::Approximated, reason);
    }
    taken.push(name.clone());
    name
}

/// Requirements on machines, zones and capacity types.
fn requirements(pool: &Pool) -> Vec<PoolRequirement> {
    let one_of = |key: &str, values: Vec<String>| PoolRequirement {
        key: key.to_owned(),
        operator: Operator::In,
        values,
        min_values: None,
    };
    let of = |value: fn(&super::super::fleet::Machine) -> &str| {
        distinct(pool.machines.iter().map(|machine| value(machine).to_owned()))
    };
    let kinds = pool.capacity_types().into_iter().map(|kind| kind.name().to_owned());
    let mut made = vec![
        one_of(labels::INSTANCE_TYPE, of(|machine| &machine.instance_type)),
        one_of(labels::ARCH, of(|machine| &machine.arch)),
        one_of(labels::OS, of(|machine| &machine.os)),
        one_of(labels::ZONE, pool.zones()),
        one_of(labels::CAPACITY_TYPE, kinds.collect()),
    ];
    if !pool.region.is_empty() {
        made.push(one_of(labels::REGION, vec![pool.region.clone()]));
    }
    made.retain(|requirement| !requirement.values.is_empty());
    made
}

/// All of it in words, so that readers need not know Karpenter's defaults.
fn disruption(from: &Disruption) -> Disruption {
    let all =
        Budget { nodes: DEFAULT_BUDGET.to_owned(), schedule: None, time_zone: None, duration: None, reasons: None };
    Disruption {
        consolidate_after: Some(from.consolidate_after.unwrap_or(NillableDuration::Seconds(0))),
        consolidation_policy: Some(from.consolidation_policy.unwrap_or(ConsolidationPolicy::WhenEmpty)),
        budgets: Some(from.budgets.clone().unwrap_or_else(|| vec![all])),
    }
}

/// Reports the fields that had to be written though the source does not have them.
fn say_defaults(pool: &Pool, name: &str, class: &NodeClassRef, report: &mut Report) {
    let object = format!("NodePool/{name}");
    let mut say = |field: &str, value: String, reason: &str| {
        report.say(&object, field, value, Action::Defaulted, reason);
    };
    let value = format!("{}/{}", class.kind, class.name);
    say("spec.template.spec.nodeClassRef", value, "who makes the nodes is said nowhere: a class was made for them");
    if pool.drain.is_none() {
        let reason = "how long draining may take is said nowhere: as long as it takes; `--machine-drain-timeout 2h` is Gardener's default";
        say("spec.template.spec.terminationGracePeriod", "none".to_owned(), reason);
    }
    if pool.disruption.consolidate_after.is_none() {
        say(
            "spec.disruption.consolidateAfter",
            "0s".to_owned(),
            "how long a node has to be empty is said nowhere: Karpenter's default",
        );
    }
    if pool.disruption.budgets.is_none() {
        let reason = "how many nodes may go at once is said nowhere: Karpenter's default";
        say("spec.disruption.budgets", DEFAULT_BUDGET.to_owned(), reason);
    }
}

/// Takes out what a NodePool may not say, and tells it.
fn leave_out(made: &mut NodePool, pool: &Pool, report: &mut Report) {
    const LABELS: &str = "spec.template.metadata.labels.";
    const TAINTS: &str = "spec.template.spec.taints[";
    let object = &pool.place.object;
    let mut wrong_taints = Vec::new();
    for Invalid { field, problem } in made.validate() {
        if let Some(key) = field.strip_prefix(LABELS) {
            if let Some(value) = made.spec.template.metadata.labels.remove(key) {
                let path = format!("{}.{key}", pool.path(Field::Labels));
                report.say(object, path, value, Action::Dropped, format!("a NodePool may not have it: {problem}"));
            }
        } else if let Some(index) =
            field.strip_prefix(TAINTS).and_then(|rest| rest.split(']').next()?.parse::<usize>().ok())
        {
            wrong_taints.push((index, problem));
        }
    }
    wrong_taints.sort();
    wrong_taints.dedup_by_key(|(index, _)| *index);
    let taints = &mut made.spec.template.spec.taints;
    wrong_taints.retain(|(index, _)| *index < taints.len());
    for (index, problem) in wrong_taints.into_iter().rev() {
        let value = serde_json::to_value(taints.remove(index)).unwrap_or_default();
        let path = format!("{}[{index}]", pool.path(Field::Taints));
        report.say(object, path, value, Action::Dropped, format!("a NodePool may not have it: {problem}"));
    }
}
