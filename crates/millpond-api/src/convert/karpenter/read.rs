//! A NodePool with its machines: the types of its catalogue that its requirements leave.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::fleet::{Dialect, Field, Machine, Offer, Original, Pool, SourceField};
use super::super::gather::{Class, ClassKind, Input, title};
use super::super::report::{Action, Report};
use super::super::{ConvertError, Settings};
use crate::amounts::Amounts;
use crate::catalog::overhead::Reserved;
use crate::catalog::{Catalog, InstanceType, Offering, Provider, built_in};
use crate::karpenter::{NodePool, PoolRequirement};
use crate::labels::{self, current_name};
use crate::node_class::Kubelet;
use crate::scaling_advisor::TEMPLATE_LABEL;
use crate::selector::{LabelValues, Operator, Requirement};
use crate::spelling::nearest;

/// Reads a NodePool.
pub(in super::super) fn read(
    pool: &NodePool,
    object: &Value,
    input: &Input,
    settings: &Settings<'_>,
    report: &mut Report,
) -> Result<Pool, ConvertError> {
    let spec = &pool.spec;
    let class = class_of(pool, input);
    let catalog = catalog_of(pool, class, input, settings)?;
    let rules = Rules::new(pool, catalog);
    let kubelet = class.map(|class| class.class.spec.kubelet.clone()).unwrap_or_default();
    let mut machines: Vec<Machine> = catalog
        .types
        .iter()
        .filter(|of| of.generation_is_wanted(&pool.spec.template.spec.requirements))
        .filter_map(|of| rules.machine(catalog, of, &kubelet))
        .collect();
    machines.sort_by(|a, b| a.instance_type.cmp(&b.instance_type));
    let template = &spec.template;
    let mut read = Pool {
        dialect: Dialect::Karpenter,
        place: SourceField { object: title(object), field: String::new() },
        name: pool.metadata.name.clone(),
        region: catalog.region.clone(),
        weight: i64::from(spec.weight.unwrap_or(0)),
        labels: template.metadata.labels.clone(),
        annotations: template.metadata.annotations.clone(),
        taints: template.spec.taints.clone(),
        limits: spec.limits.clone().unwrap_or_default(),
        least: 0,
        own: rules.own,
        disruption: spec.disruption.clone(),
        expire_after: template.spec.expire_after,
        drain: template.spec.termination_grace_period,
        backoff: class.and_then(|class| class.class.spec.backoff),
        machines,
        original: Some(Box::new(Original {
            pool: pool.clone(),
            object: object.clone(),
            class: class.cloned(),
            catalog: catalog.name.clone(),
        })),
    };
    keep_cheapest(&mut read, settings, report);
    Ok(read)
}

/// The node class that a pool names.
fn class_of<'i>(pool: &NodePool, input: &'i Input) -> Option<&'i Class> {
    let named = &pool.spec.template.spec.node_class_ref;
    let kind = ClassKind::of(&named.group, &named.kind)?;
    input.classes.iter().find(|class| class.kind == kind && class.class.metadata.name == named.name)
}

/// The catalogue of a pool's node class.
fn catalog_of<'a>(
    pool: &NodePool,
    class: Option<&Class>,
    input: &'a Input,
    settings: &Settings<'a>,
) -> Result<&'a Catalog, ConvertError> {
    let own = || input.catalogs.iter().chain([settings.catalog]);
    if let Some(name) = class.and_then(|class| class.class.spec.catalog.as_deref()) {
        let found = own().find(|catalog| catalog.name == name).or_else(|| built_in(name));
        return found.ok_or_else(|| {
            let names = own().map(|catalog| catalog.name.as_str()).chain(crate::catalog::BUILT_IN);
            ConvertError::UnknownCatalog {
                class: class.map(|class| title(&class.object)).unwrap_or_default(),
                name: name.to_owned(),
                near: nearest(name, names).map(ToOwned::to_owned),
            }
        });
    }
    let named = &pool.spec.template.spec.node_class_ref;
    let provider = ClassKind::of(&named.group, &named.kind).and_then(ClassKind::provider);
    Ok(match provider {
        Some(provider) => {
            let found = own().find(|catalog| catalog.provider == provider);
            found.or_else(|| built_in(provider.name())).unwrap_or(settings.catalog)
        }
        None => input.catalogs.first().filter(|_| class.is_none()).unwrap_or(settings.catalog),
    })
}

/// The label requirements of a pool: on labels of its machines, and on others.
struct Rules {
    machines: Vec<Requirement>,
    own: Vec<(usize, PoolRequirement)>,
}

impl Rules {
    fn new(pool: &NodePool, catalog: &Catalog) -> Self {
        let template = &pool.spec.template;
        let known = |key: &str| {
            labels::WELL_KNOWN.contains(&key)
                || provider_labels(catalog.provider).contains(&key)
                || catalog.types.iter().any(|of| of.labels.contains_key(key))
        };
        let said = template.metadata.labels.iter().map(|(key, value)| Requirement {
            key: current_name(key).to_owned(),
            operator: Operator::In,
            values: vec![value.clone()],
        });
        let mut machines: Vec<Requirement> = said.filter(|requirement| known(&requirement.key)).collect();
        let mut own = Vec::new();
        for (index, entry) in template.spec.requirements.iter().enumerate() {
            let key = current_name(&entry.key);
            if known(key) {
                let PoolRequirement { operator, values, .. } = entry;
                machines.push(Requirement { key: key.to_owned(), operator: *operator, values: values.clone() });
            } else {
                own.push((index, entry.clone()));
            }
        }
        Self { machines, own }
    }

    /// A type as the pool's nodes would be of it, if it may have some.
    fn machine(&self, catalog: &Catalog, of: &InstanceType, kubelet: &Kubelet) -> Option<Machine> {
        let os = self.system(of)?;
        let offers: Vec<Offer> =
            of.offerings.iter().filter(|offering| self.allows(catalog, of, offering, &os)).map(offer).collect();
        if offers.is_empty() {
            return None;
        }
        let sold = of.capacity();
        let amount = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
        let mut capacity: BTreeMap<String, i64> =
            sold.extended.iter().map(|(name, count)| (name.clone(), amount(*count))).collect();
        capacity.extend([
            ("cpu".to_owned(), amount(sold.cpu_milli)),
            ("memory".to_owned(), amount(sold.memory_bytes)),
            ("ephemeral-storage".to_owned(), amount(sold.storage_bytes)),
            ("pods".to_owned(), i64::from(pods(of, kubelet))),
        ]);
        let overhead = &of.overhead;
        // Below this kubelet evicts: no pod ever gets it, as if the system kept it.
        let system = sum(overhead.system_reserved, kubelet.system_reserved.as_ref(), overhead.eviction_threshold);
        let kube = sum(overhead.kube_reserved, kubelet.kube_reserved.as_ref(), Reserved::default());
        let (template, labels) = type_labels(catalog, of);
        Some(Machine {
            field: String::new(),
            template,
            instance_type: of.name.clone(),
            arch: of.arch.clone(),
            os,
            capacity: Amounts(capacity),
            kube_reserved: kube,
            system_reserved: system,
            most_volumes: None,
            priority: 0,
            labels,
            offers,
        })
    }

    /// The operating system of the pool's nodes of a type: linux if it may be.
    fn system(&self, of: &InstanceType) -> Option<String> {
        let fits = |name: &&String| {
            let alone = LabelValues::from([(labels::OS.to_owned(), vec![(*name).clone()])]);
            self.machines.iter().filter(|rule| rule.key == labels::OS).all(|rule| rule.matches(&alone))
        };
        let allowed: Vec<&String> = of.operating_systems.iter().filter(fits).collect();
        let linux = allowed.iter().find(|name| name.as_str() == "linux");
        linux.or_else(|| allowed.first()).map(|name| (*name).clone())
    }

    fn allows(&self, catalog: &Catalog, of: &InstanceType, offering: &Offering, os: &str) -> bool {
        if !offering.available {
            return false;
        }
        let mut labels = catalog.offering_labels(of, offering);
        labels.insert(labels::OS.to_owned(), vec![os.to_owned()]);
        // The pool of its nodes is never in doubt.
        let rules = self.machines.iter().filter(|rule| rule.key != labels::NODE_POOL);
        rules.into_iter().all(|rule| rule.matches(&labels))
    }
}

/// Labels that a provider's types have.
pub(super) fn provider_labels(provider: Provider) -> &'static [&'static str] {
    match provider {
        Provider::Aws => labels::aws::WELL_KNOWN,
        Provider::Gcp => labels::gcp::WELL_KNOWN,
        Provider::Kwok => labels::kwok::WELL_KNOWN,
        Provider::Generic => &[],
    }
}

fn offer(offering: &Offering) -> Offer {
    Offer {
        zone: offering.zone.to_string(),
        capacity_type: offering.capacity_type,
        price: offering.price_nanos_hour,
        estimated: offering.estimated,
    }
}

fn pods(of: &InstanceType, kubelet: &Kubelet) -> u32 {
    let most = kubelet.max_pods.unwrap_or(of.pods);
    let cores = u32::try_from(of.cpu_milli.div_ceil(1000)).unwrap_or(u32::MAX);
    kubelet.pods_per_core.map_or(most, |per_core| most.min(per_core.saturating_mul(cores)))
}

/// The provider's rule, each part of which a setting of kubelet replaces, and what comes on top of both.
fn sum(rule: Reserved, settings: Option<&Amounts>, more: Reserved) -> Amounts {
    let setting = |name: &str| settings.and_then(|settings| settings.get(name));
    let amount = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    let parts = [
        ("cpu", rule.cpu_milli, more.cpu_milli),
        ("memory", rule.memory_bytes, more.memory_bytes),
        ("ephemeral-storage", rule.storage_bytes, more.storage_bytes),
    ];
    let part = |(name, rule, more): (&str, u64, u64)| {
        let sum = setting(name).unwrap_or(amount(rule)).saturating_add(amount(more));
        (sum != 0).then(|| (name.to_owned(), sum))
    };
    Amounts(parts.into_iter().filter_map(part).collect())
}

/// The template of a type, and its labels beyond those of every provider.
fn type_labels(catalog: &Catalog, of: &InstanceType) -> (String, BTreeMap<String, String>) {
    let all = catalog.labels(of).into_iter().filter(|(key, _)| !labels::WELL_KNOWN.contains(&key.as_str()));
    let single = |(key, mut values): (String, Vec<String>)| values.pop().map(|value| (key, value));
    let mut all: BTreeMap<String, String> = all.filter_map(single).collect();
    (all.remove(TEMPLATE_LABEL).unwrap_or_default(), all)
}

/// Keeps the types with the lowest price per core, if their number is limited.
fn keep_cheapest(pool: &mut Pool, settings: &Settings<'_>, report: &mut Report) {
    let Some(most) = settings.most_types.filter(|most| pool.machines.len() > *most) else { return };
    let per_core = |machine: &Machine| {
        let cpu = machine.capacity.get("cpu").unwrap_or(1).max(1).unsigned_abs();
        u128::from(machine.price()) * 1_000_000 / u128::from(cpu)
    };
    let all = pool.machines.len();
    pool.machines.sort_by(|a, b| (per_core(a), &a.instance_type).cmp(&(per_core(b), &b.instance_type)));
    pool.machines.truncate(most);
    pool.machines.sort_by(|a, b| a.instance_type.cmp(&b.instance_type));
    let reason = format!("the {most} types with the lowest price for a core are kept of {all}");
    report.say(
        &pool.place.object,
        pool.path(Field::Requirements),
        format!("{all} types"),
        Action::Approximated,
        reason,
    );
}
