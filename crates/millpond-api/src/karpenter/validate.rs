//! Karpenter's CRD rules and run-time validation of a NodePool.

use super::{Budget, LIMIT_SECONDS, NodeCount, NodePool, PRICE_LIMIT_ANNOTATION, PoolRequirement, Taint};
use crate::duration::NillableDuration;
use crate::labels::{self, CAPACITY_TYPE, HOSTNAME, NODE_POOL, is_key, is_value};
use crate::meta::Invalid;
use crate::money;
use crate::selector::{Operator, Requirement};

/// The most requirements and labels of a template.
const LIMIT_REQUIREMENTS: usize = 100;
/// The most budgets of a pool.
const LIMIT_BUDGETS: usize = 50;
/// The most values that `minValues` may ask for.
const LIMIT_MIN_VALUES: i64 = 50;

impl NodePool {
    /// The errors of the object.
    pub fn validate(&self) -> Vec<Invalid> {
        let mut invalid = Vec::new();
        let template = &self.spec.template;
        if self.metadata.name.is_empty() {
            invalid.push(Invalid::new("metadata.name", "is missing"));
        }
        check_labels(&template.metadata.labels, &mut invalid);
        check_requirements(&template.spec.requirements, &mut invalid);
        check_taints(&template.spec.taints, &template.spec.startup_taints, &mut invalid);
        check_class(self, &mut invalid);
        check_sizes(self, &mut invalid);
        check_disruption(self, &mut invalid);
        invalid
    }

    /// What is to be said of a pool whose node class no controller that runs launches nodes of.
    pub fn unmanaged_class(&self) -> String {
        let class = &self.spec.template.spec.node_class_ref;
        let group = if class.group.is_empty() { String::new() } else { format!(".{}", class.group) };
        format!("no controller that runs here launches nodes of class `{}{group}/{}`", class.kind, class.name)
    }

    /// Nano-dollars per hour that its nodes may cost together.
    pub fn price_limit(&self) -> Option<Result<u64, money::MoneyError>> {
        self.metadata.annotations.get(PRICE_LIMIT_ANNOTATION).map(|text| money::parse(text))
    }
}

/// Why a label may not be spoken of in a pool.
fn restriction(key: &str) -> Option<String> {
    if !is_key(key) {
        return Some(format!("`{key}` is not the name of a label"));
    }
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let reserved = key == HOSTNAME || key == NODE_POOL;
    let of_karpenter = domain == "karpenter.sh" || domain.ends_with(".karpenter.sh");
    let known = labels::WELL_KNOWN.contains(&key) || labels::kwok::WELL_KNOWN.contains(&key);
    (reserved || (of_karpenter && !known)).then(|| format!("`{key}` is reserved: a pool may not speak of it"))
}

fn check_labels(labels: &std::collections::BTreeMap<String, String>, invalid: &mut Vec<Invalid>) {
    const FIELD: &str = "spec.template.metadata.labels";
    if labels.len() > LIMIT_REQUIREMENTS {
        invalid.push(Invalid::new(FIELD, format!("has more than {LIMIT_REQUIREMENTS} labels")));
    }
    for (key, value) in labels {
        if let Some(problem) = restriction(key) {
            invalid.push(Invalid::new(format!("{FIELD}.{key}"), problem));
        } else if !is_value(value) {
            let problem = format!("`{value}` cannot be a value of the label `{key}`");
            invalid.push(Invalid::new(format!("{FIELD}.{key}"), problem));
        }
    }
}

fn check_requirements(requirements: &[PoolRequirement], invalid: &mut Vec<Invalid>) {
    const FIELD: &str = "spec.template.spec.requirements";
    if requirements.len() > LIMIT_REQUIREMENTS {
        invalid.push(Invalid::new(FIELD, format!("has more than {LIMIT_REQUIREMENTS} entries")));
    }
    for (index, requirement) in requirements.iter().enumerate() {
        if let Err((part, problem)) = check_requirement(requirement) {
            invalid.push(Invalid::new(format!("{FIELD}[{index}]{part}"), problem));
        }
    }
}

fn check_requirement(requirement: &PoolRequirement) -> Result<(), (&'static str, String)> {
    let PoolRequirement { key, operator, values, min_values } = requirement;
    if let Some(problem) = restriction(key) {
        return Err((".key", problem));
    }
    let plain = Requirement { key: key.clone(), operator: *operator, values: values.clone() };
    // Karpenter ignores `NotIn` without values.
    if *operator != Operator::NotIn || !values.is_empty() {
        plain.check().map_err(|error| (".values", error.to_string()))?;
    }
    let kinds = ["on-demand", "spot", "reserved"];
    if key == CAPACITY_TYPE && *operator == Operator::In && !values.iter().any(|value| kinds.contains(&value.as_str()))
    {
        return Err((".values", "names none of the capacity types on-demand, spot and reserved".to_owned()));
    }
    let Some(least) = *min_values else { return Ok(()) };
    if !(1..=LIMIT_MIN_VALUES).contains(&least) {
        return Err((".minValues", format!("is not from 1 to {LIMIT_MIN_VALUES}")));
    }
    let mut distinct: Vec<_> = values.iter().collect();
    distinct.sort_unstable();
    distinct.dedup();
    if *operator == Operator::In && (distinct.len() as i64) < least {
        return Err((
            ".minValues",
            format!("asks for {least} different values, but only {} are named", distinct.len()),
        ));
    }
    Ok(())
}

fn check_taints(taints: &[Taint], startup: &[Taint], invalid: &mut Vec<Invalid>) {
    let mut seen = Vec::new();
    for (field, list) in [("taints", taints), ("startupTaints", startup)] {
        for (index, taint) in list.iter().enumerate() {
            let field = format!("spec.template.spec.{field}[{index}]");
            if !is_key(&taint.key) {
                invalid.push(Invalid::new(format!("{field}.key"), format!("`{}` is not a name", taint.key)));
            }
            if !is_value(&taint.value) {
                invalid.push(Invalid::new(format!("{field}.value"), format!("`{}` cannot be a value", taint.value)));
            }
            if seen.contains(&(&taint.key, taint.effect)) {
                let problem = format!("the taint `{}:{:?}` is there more than once", taint.key, taint.effect);
                invalid.push(Invalid::new(field, problem));
            }
            seen.push((&taint.key, taint.effect));
        }
    }
}

fn check_class(pool: &NodePool, invalid: &mut Vec<Invalid>) {
    const FIELD: &str = "spec.template.spec.nodeClassRef";
    let class = &pool.spec.template.spec.node_class_ref;
    if class.name.is_empty() {
        invalid.push(Invalid::new(FIELD, "does not name a node class: `name` is missing"));
    }
    if class.group.contains('/') {
        invalid.push(Invalid::new(format!("{FIELD}.group"), "is a group without a version: no `/`"));
    }
}

fn check_sizes(pool: &NodePool, invalid: &mut Vec<Invalid>) {
    let spec = &pool.spec;
    if let Some(weight) = spec.weight.filter(|weight| !(1..=100).contains(weight)) {
        invalid.push(Invalid::new("spec.weight", format!("`{weight}` is not from 1 to 100")));
    }
    if let Some(Err(problem)) = pool.price_limit() {
        invalid.push(Invalid::new(format!("metadata.annotations.{PRICE_LIMIT_ANNOTATION}"), problem.to_string()));
    }
    let Some(replicas) = spec.replicas else { return };
    if replicas < 0 {
        invalid.push(Invalid::new("spec.replicas", format!("`{replicas}` is negative")));
    }
    if spec.weight.is_some() {
        invalid.push(Invalid::new("spec.weight", "means nothing beside `replicas`: the pool has a fixed size"));
    }
    let limits = spec.limits.iter().flat_map(crate::amounts::Amounts::iter);
    for (name, _) in limits.filter(|(name, _)| *name != "nodes") {
        let problem = "means nothing beside `replicas`: only `nodes` can be limited";
        invalid.push(Invalid::new(format!("spec.limits.{name}"), problem));
    }
}

fn check_disruption(pool: &NodePool, invalid: &mut Vec<Invalid>) {
    let budgets = pool.spec.disruption.budgets.as_deref().unwrap_or_default();
    if budgets.len() > LIMIT_BUDGETS {
        invalid.push(Invalid::new("spec.disruption.budgets", format!("has more than {LIMIT_BUDGETS} entries")));
    }
    for (index, budget) in budgets.iter().enumerate() {
        if let Err((part, problem)) = check_budget(budget) {
            invalid.push(Invalid::new(format!("spec.disruption.budgets[{index}]{part}"), problem));
        }
    }
    let ages = [
        ("spec.disruption.consolidateAfter", pool.spec.disruption.consolidate_after),
        ("spec.template.spec.expireAfter", pool.spec.template.spec.expire_after),
    ];
    for (field, age) in ages {
        if age.and_then(NillableDuration::seconds).is_some_and(|seconds| seconds > LIMIT_SECONDS) {
            invalid.push(Invalid::new(field, "is longer than a hundred years"));
        }
    }
}

fn check_budget(budget: &Budget) -> Result<(), (&'static str, String)> {
    if NodeCount::parse(&budget.nodes).is_none() {
        return Err((".nodes", format!("`{}` is not a number of nodes such as `3` or `10%`", budget.nodes)));
    }
    match (&budget.schedule, budget.duration) {
        (Some(_), None) => return Err((".schedule", "stands without `duration`: for how long?".to_owned())),
        (None, Some(_)) => return Err((".duration", "stands without `schedule`: from when?".to_owned())),
        (Some(_), Some(duration)) if duration.0 > LIMIT_SECONDS => {
            return Err((".duration", "is longer than a hundred years".to_owned()));
        }
        (Some(_), Some(duration)) if duration.0 == 0 => {
            return Err((".duration", "is no time at all".to_owned()));
        }
        _ => {}
    }
    if budget.time_zone.is_some() && budget.schedule.is_none() {
        return Err((".timeZone", "stands without `schedule`".to_owned()));
    }
    Ok(())
}
