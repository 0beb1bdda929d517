//! Millpond's NodeClasses and their catalogues, made for pools that have none.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::super::fleet::{Field, Fleet, Machine, Original, Pool, distinct};
use super::super::gather::{Class, ClassKind};
use super::super::report::{Action, Report};
use super::super::{ConvertError, Settings, names};
use super::{clean, reference};
use crate::amounts::Amounts;
use crate::catalog::overhead::{self, DEFAULT_PODS, Overhead, Reserved};
use crate::catalog::{Catalog, InstanceType, Offering, Provider, built_in, config_map, naming, text};
use crate::karpenter::NodeClassRef;
use crate::labels::{is_key, is_value};
use crate::meta::{Kind as _, ObjectMeta};
use crate::node_class::{Backoff, Kubelet, NodeClass, NodeClassSpec};
use crate::quantity;
use crate::scaling_advisor::TEMPLATE_LABEL;
use crate::sim_script::{Script, Span};

/// The provider of classes that name none.
const PROVIDER: &str = "sim";
/// Resources that a node can keep for itself.
const RESERVABLE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// More pods than any node has.
const LIMIT_PODS: i64 = 100_000;

/// Classes that were made, and those that were there.
pub(super) struct Classes<'a> {
    settings: &'a Settings<'a>,
    /// All that a class may name, besides those that come with Millpond.
    known: &'a [&'a Catalog],
    name: String,
    made: Vec<ClassBuilder>,
    /// Classes that pools came with, as objects.
    kept: Vec<(String, Value)>,
    /// Catalogues that kept classes name and that do not come with Millpond.
    catalogs: Vec<Catalog>,
}

/// A class in the making: pools share it if their machines of one name are the same.
struct ClassBuilder {
    name: String,
    region: String,
    backoff: Option<Backoff>,
    types: BTreeMap<String, InstanceType>,
    reserved: Vec<(Amounts, Amounts)>,
}

impl<'a> Classes<'a> {
    pub(super) fn new(fleet: &Fleet, settings: &'a Settings<'a>, known: &'a [&'a Catalog]) -> Self {
        let name = settings.name.as_deref().unwrap_or(&fleet.name);
        let name = names::fitting(if name.is_empty() { "default" } else { name });
        Self { settings, known, name, made: Vec::new(), kept: Vec::new(), catalogs: Vec::new() }
    }

    /// The class of a pool, which is made if need be.
    pub(super) fn class_of(&mut self, pool: &Pool, report: &mut Report) -> NodeClassRef {
        match &pool.original {
            Some(original) => self.keep(original),
            None => self.make(pool, report),
        }
    }

    fn keep(&mut self, original: &Original) -> NodeClassRef {
        let named = &original.pool.spec.template.spec.node_class_ref;
        let own = (&*named.group, &*named.kind) == ClassKind::Millpond.names();
        self.keep_catalog(&original.catalog);
        let object = match &original.class {
            Some(class) if own => clean(&class.object),
            // Its class is defined elsewhere.
            None if own => return named.clone(),
            class => self.translated(named, class.as_ref(), &original.catalog),
        };
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if !self.kept.iter().any(|(known, _)| *known == name) {
            self.kept.push((name.clone(), object));
        }
        reference(ClassKind::Millpond, &name)
    }

    /// Millpond's class for one of another provider.
    fn translated(&self, named: &NodeClassRef, class: Option<&Class>, catalog: &str) -> Value {
        let delay = class.and_then(|class| class.object.pointer("/spec/nodeRegistrationDelay")).and_then(Value::as_str);
        let delay = delay.and_then(|text| crate::duration::parse_seconds(text).ok()).filter(|seconds| *seconds > 0);
        let made = |name: String| NodeClass {
            metadata: ObjectMeta { name, ..ObjectMeta::default() },
            spec: NodeClassSpec {
                provider: Some(PROVIDER.to_owned()),
                catalog: Some(catalog.to_owned()),
                kubelet: class.map(|class| class.class.spec.kubelet.clone()).unwrap_or_default(),
                sim: delay.map(|seconds| Script {
                    registration_delay: Some(Span::from_secs(seconds.unsigned_abs())),
                    ..Script::default()
                }),
                ..NodeClassSpec::default()
            },
            ..NodeClass::default()
        };
        // Two providers may have a class of one name.
        let differs = |name: &str| {
            self.kept.iter().any(|(known, object)| known == name && *object != made(name.to_owned()).to_object())
        };
        made(names::free(&names::fitting(&named.name), differs)).to_object()
    }

    /// A catalogue that does not come with Millpond has to come with the class.
    fn keep_catalog(&mut self, name: &str) {
        let Some(catalog) = self.known.iter().find(|catalog| catalog.name == name) else { return };
        let comes_along = built_in(name).is_some_and(|built_in| built_in == *catalog);
        if !comes_along && !self.catalogs.iter().any(|known| known.name == name) {
            self.catalogs.push((*catalog).clone());
        }
    }

    fn make(&mut self, pool: &Pool, report: &mut Report) -> NodeClassRef {
        let types = types(pool, self.settings, report);
        let reserved =
            pool.machines.iter().map(|machine| (settable(&machine.kube_reserved), settable(&machine.system_reserved)));
        let reserved: Vec<_> = reserved.collect();
        let fits = |draft: &&mut ClassBuilder| {
            let same = |of: &InstanceType| draft.types.get(&of.name).is_none_or(|known| mergeable(known, of));
            draft.region == pool.region && draft.backoff == pool.backoff && types.iter().all(same)
        };
        if let Some(draft) = self.made.iter_mut().find(fits) {
            types.into_iter().for_each(|of| merge(&mut draft.types, of));
            draft.reserved.extend(reserved);
            return reference(ClassKind::Millpond, &draft.name);
        }
        let name = names::free(&self.name, |name| self.made.iter().any(|draft| draft.name == name));
        let mut draft = ClassBuilder {
            name: name.clone(),
            region: pool.region.clone(),
            backoff: pool.backoff,
            types: BTreeMap::new(),
            reserved,
        };
        types.into_iter().for_each(|of| merge(&mut draft.types, of));
        self.made.push(draft);
        reference(ClassKind::Millpond, &name)
    }

    /// Classes, then catalogues.
    pub(super) fn objects(self) -> Result<Vec<Value>, ConvertError> {
        let mut catalogs = self.catalogs;
        let mut objects: Vec<Value> = self.kept.into_iter().map(|(_, object)| object).collect();
        for draft in self.made {
            objects.push(draft.class().to_object());
            catalogs.push(draft.catalog(self.settings));
        }
        for catalog in catalogs.iter().filter(|catalog| !catalog.types.is_empty()) {
            let bytes = text::encode(catalog).len();
            if bytes > config_map::LIMIT_BYTES {
                return Err(ConvertError::TooLarge { what: format!("catalogue `{}`", catalog.name), bytes });
            }
            objects.push(config_map::object(catalog));
        }
        Ok(objects)
    }
}

impl ClassBuilder {
    fn class(&self) -> NodeClass {
        let kubelet = match &distinct(self.reserved.iter())[..] {
            [(kube, system)] => Kubelet {
                kube_reserved: Some(kube.clone()).filter(|amounts| !amounts.is_empty()),
                system_reserved: Some(system.clone()).filter(|amounts| !amounts.is_empty()),
                ..Kubelet::default()
            },
            // These values differ between types and come from the catalogue.
            _ => Kubelet::default(),
        };
        NodeClass {
            metadata: ObjectMeta { name: self.name.clone(), ..ObjectMeta::default() },
            spec: NodeClassSpec {
                provider: Some(PROVIDER.to_owned()),
                catalog: Some(self.name.clone()),
                kubelet,
                backoff: self.backoff,
                ..NodeClassSpec::default()
            },
            ..NodeClass::default()
        }
    }

    fn catalog(self, settings: &Settings<'_>) -> Catalog {
        let types: Vec<InstanceType> = self.types.into_values().collect();
        let mut zones: Vec<Arc<str>> =
            types.iter().flat_map(|of| &of.offerings).map(|of| Arc::clone(&of.zone)).collect();
        zones.sort();
        zones.dedup();
        Catalog {
            name: self.name,
            provider: Provider::Generic,
            region: self.region,
            zones,
            spot_per_mille: None,
            source: format!("prices of catalogue {}", settings.catalog.name),
            types,
        }
    }
}

/// The resources that kubelet can be configured to reserve.
fn settable(amounts: &Amounts) -> Amounts {
    let known = amounts.iter().filter(|(name, amount)| RESERVABLE.contains(name) && *amount > 0);
    Amounts(known.map(|(name, amount)| (name.to_owned(), amount)).collect())
}

fn same_machine(a: &InstanceType, b: &InstanceType) -> bool {
    InstanceType { offerings: Vec::new(), ..a.clone() } == InstanceType { offerings: Vec::new(), ..b.clone() }
}

/// Whether two types of one name are one: the same machine, at the same price where both are offered.
fn mergeable(a: &InstanceType, b: &InstanceType) -> bool {
    let differs = |x: &Offering| {
        b.offerings
            .iter()
            .any(|y| x.zone == y.zone && x.capacity_type == y.capacity_type && x.price_nanos_hour != y.price_nanos_hour)
    };
    same_machine(a, b) && !a.offerings.iter().any(differs)
}

fn merge(types: &mut BTreeMap<String, InstanceType>, of: InstanceType) {
    match types.get_mut(&of.name) {
        None => {
            types.insert(of.name.clone(), of);
        }
        Some(known) => add_offerings(known, of.offerings),
    }
}

fn add_offerings(to: &mut InstanceType, offerings: Vec<Offering>) {
    to.offerings.extend(offerings);
    to.offerings.sort_by(|a, b| (&a.zone, a.capacity_type).cmp(&(&b.zone, b.capacity_type)));
    to.offerings.dedup_by(|a, b| a.zone == b.zone && a.capacity_type == b.capacity_type);
}

/// The machines of a pool as types of a catalogue, each name once.
fn types(pool: &Pool, settings: &Settings<'_>, report: &mut Report) -> Vec<InstanceType> {
    let mut made: Vec<InstanceType> = Vec::new();
    for machine in &pool.machines {
        let of = instance_type(pool, machine, settings, report);
        match made.iter_mut().find(|known| known.name == of.name) {
            None => made.push(of),
            Some(known) => {
                for twin in pool.machines.iter().filter(|twin| twin.instance_type == of.name) {
                    let path = if twin.field.is_empty() { pool.path(Field::Types) } else { twin.field.clone() };
                    let reason = "the pool has this type more than once; one stands for all, with the lesser amounts";
                    report.say(&pool.place.object, path, of.name.clone(), Action::Approximated, reason);
                }
                lesser(known, of);
            }
        }
    }
    made
}

/// Makes a type one that both would do for.
fn lesser(known: &mut InstanceType, of: InstanceType) {
    known.cpu_milli = known.cpu_milli.min(of.cpu_milli);
    known.memory_bytes = known.memory_bytes.min(of.memory_bytes);
    known.storage_bytes = known.storage_bytes.min(of.storage_bytes);
    known.pods = known.pods.min(of.pods);
    known.extended.retain(|name, _| of.extended.contains_key(name));
    for (name, count) in &mut known.extended {
        *count = (*count).min(of.extended[name]);
    }
    let greater = |a: Reserved, b: Reserved| Reserved {
        cpu_milli: a.cpu_milli.max(b.cpu_milli),
        memory_bytes: a.memory_bytes.max(b.memory_bytes),
        storage_bytes: a.storage_bytes.max(b.storage_bytes),
    };
    known.overhead.kube_reserved = greater(known.overhead.kube_reserved, of.overhead.kube_reserved);
    known.overhead.system_reserved = greater(known.overhead.system_reserved, of.overhead.system_reserved);
    add_offerings(known, of.offerings);
}

fn instance_type(pool: &Pool, machine: &Machine, settings: &Settings<'_>, report: &mut Report) -> InstanceType {
    let object = &pool.place.object;
    let amount = |name: &str| u64::try_from(machine.capacity.get(name).unwrap_or(0)).unwrap_or(0);
    let (cpu_milli, memory_bytes) = (amount("cpu"), amount("memory"));
    let mut labels = machine.labels.clone();
    if is_value(&machine.template) && !machine.template.is_empty() {
        labels.insert(TEMPLATE_LABEL.to_owned(), machine.template.clone());
    } else if !machine.template.is_empty() {
        let reason = "the value of a label cannot be like that";
        report.say(object, pool.part(machine, "name"), machine.template.clone(), Action::Dropped, reason);
    }
    let mut of = InstanceType {
        naming: naming::read(Provider::Generic, &machine.instance_type, cpu_milli),
        previous_generation: false,
        name: machine.instance_type.clone(),
        arch: machine.arch.clone(),
        operating_systems: vec![machine.os.clone()],
        cpu_milli,
        memory_bytes,
        storage_bytes: storage(pool, machine, settings, report),
        pods: pods(pool, machine, report),
        gpu: None,
        local_nvme_gb: None,
        network_mbps: None,
        extended: extended(pool, machine, report),
        labels,
        overhead: Overhead {
            kube_reserved: reserved(&machine.kube_reserved),
            system_reserved: reserved(&machine.system_reserved),
            ..Overhead::default()
        },
        offerings: Vec::new(),
    };
    add_offerings(&mut of, offerings(machine));
    of
}

/// The most pods; kubelet's own number where nothing is said.
fn pods(pool: &Pool, machine: &Machine, report: &mut Report) -> u32 {
    let said = machine.capacity.get("pods").filter(|pods| (1..=LIMIT_PODS).contains(pods));
    said.and_then(|pods| u32::try_from(pods).ok()).unwrap_or_else(|| {
        let reason = "a template without a number of pods has kubelet's own";
        let field = pool.part(machine, "capacity.pods");
        report.say(&pool.place.object, field, i64::from(DEFAULT_PODS), Action::Defaulted, reason);
        DEFAULT_PODS
    })
}

/// The disk; the usual one of the catalogue's provider where nothing is said, as in plans for the template.
fn storage(pool: &Pool, machine: &Machine, settings: &Settings<'_>, report: &mut Report) -> u64 {
    let said = machine.capacity.get("ephemeral-storage").and_then(|bytes| u64::try_from(bytes).ok());
    said.filter(|bytes| *bytes > 0).unwrap_or_else(|| {
        let usual = overhead::default_storage_bytes(settings.catalog.provider);
        let reason = format!("a template without a disk has the usual one of catalogue `{}`", settings.catalog.name);
        let field = pool.part(machine, "capacity.ephemeral-storage");
        report.say(&pool.place.object, field, quantity::binary(usual), Action::Defaulted, reason);
        usual
    })
}

fn reserved(amounts: &Amounts) -> Reserved {
    let amount = |name: &str| u64::try_from(amounts.get(name).unwrap_or(0)).unwrap_or(0);
    Reserved { cpu_milli: amount("cpu"), memory_bytes: amount("memory"), storage_bytes: amount("ephemeral-storage") }
}

/// Extended resources, without what is reserved of them: a catalogue reserves only what every node has.
fn extended(pool: &Pool, machine: &Machine, report: &mut Report) -> BTreeMap<String, u64> {
    let object = &pool.place.object;
    for (name, of) in
        [("kubeReservedCapacity", &machine.kube_reserved), ("systemReservedCapacity", &machine.system_reserved)]
    {
        for (resource, amount) in of.iter().filter(|(resource, amount)| !RESERVABLE.contains(resource) && *amount > 0) {
            let reason = "only cpu, memory and ephemeral-storage are reserved: the capacity is less instead";
            for path in [format!("{name}.{resource}"), format!("capacity.{resource}")] {
                report.say(object, pool.part(machine, &path), amount, Action::Approximated, reason);
            }
        }
    }
    let left = machine.allocatable();
    let mut extended = BTreeMap::new();
    let further = |(name, amount): &(&str, i64)| !RESERVABLE.contains(name) && *name != "pods" && *amount != 0;
    for (name, amount) in left.iter().filter(further) {
        if is_key(name) {
            extended.insert(name.to_owned(), u64::try_from(amount).unwrap_or(0));
        } else {
            let path = pool.part(machine, &format!("capacity.{name}"));
            report.say(object, path, amount, Action::Dropped, "no resource can have this name");
        }
    }
    extended
}

fn offerings(machine: &Machine) -> Vec<Offering> {
    let offers = machine.offers.iter().filter(|offer| is_value(&offer.zone));
    offers
        .map(|offer| Offering {
            zone: Arc::from(offer.zone.as_str()),
            capacity_type: offer.capacity_type,
            price_nanos_hour: offer.price,
            estimated: offer.estimated,
            available: true,
            reservation_count: None,
        })
        .collect()
}
