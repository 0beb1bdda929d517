//! Node pools: requirements, limits, disruption, and the types of their node class.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use millpond_api::catalog::{Catalog, Provider};
use millpond_api::condition::{READY, find};
use millpond_api::duration::NillableDuration;
use millpond_api::karpenter::{self, ConsolidationPolicy, NodeCount, NodePool, PoolRequirement, conditions};
use millpond_api::meta::Invalid;
use millpond_api::node_class::{HOSTS_PROVIDER, Kubelet, NodeClass, UnavailableOffering};
use millpond_api::selector::LabelValues;
use millpond_api::spelling::nearest;
use millpond_plan::model::{
    Budget, CPU, Consolidation, Disruption, DisruptionReason, Limits, Nodes, Pool, Schedule, Snapshot, TypeId,
};
use millpond_plan::requirement::{Requirement, Requirements};
use millpond_plan::symbol::Symbol;
use millpond_plan::taint::Taint;

use super::types::{self, Lowered, TypesKey};
use super::{Options, SnapshotBuilder};
use crate::groups::GroupRef;
use crate::lower::pod::effect;
use crate::lower::select::{current_name, operator};
use crate::objects::ClassKind;
use crate::state::{Origin, State, pool_labels};

/// Lists of types that are in the snapshot already.
#[derive(Debug, Default)]
pub(super) struct Catalogs {
    known: Vec<(TypesKey, Vec<TypeId>)>,
    /// Lists that know their types by name, and where they begin.
    lowered: Vec<(usize, Arc<Lowered>)>,
    /// Other types by name, those of the first pools first.
    named: HashMap<Symbol, Vec<TypeId>>,
    /// Limit on the volumes attached to nodes of a type, where it is known.
    pub(super) most_volumes: HashMap<TypeId, i64>,
}

impl Catalogs {
    /// The types of that name.
    pub(super) fn named(&self, name: Symbol) -> impl Iterator<Item = TypeId> {
        let lowered =
            self.lowered.iter().flat_map(move |(first, list)| list.named(name).iter().map(move |at| first + at));
        let others = self.named.get(&name).into_iter().flatten().copied();
        lowered.map(TypeId::from).chain(others)
    }

    /// Adds a type to those that are found by name.
    pub(super) fn add_named(&mut self, name: Symbol, id: TypeId) {
        self.named.entry(name).or_default().push(id);
    }
}

/// The label requirements of a pool's template. A contradiction is an error.
pub(crate) fn requirements(pool: &NodePool, tables: &mut Snapshot) -> Result<Requirements, Invalid> {
    const FIELD: &str = "spec.template.spec.requirements";
    let mut all = Requirements::new();
    let template = &pool.spec.template;
    for (key, value) in &template.metadata.labels {
        let (key, value) = (tables.symbols.intern(current_name(key)), tables.symbols.intern(value));
        all.add(key, Requirement::is(value), &tables.symbols);
    }
    for (index, entry) in template.spec.requirements.iter().enumerate() {
        let values = entry.values.iter().map(String::as_str);
        let mut requirement = Requirement::parse(operator(entry.operator), values, &mut tables.symbols)
            .map_err(|error| Invalid::new(format!("{FIELD}[{index}].values"), error.to_string()))?;
        if let Some(least) = entry.min_values {
            let least = u32::try_from(least).unwrap_or(u32::MAX);
            requirement = requirement
                .with_min_values(least)
                .map_err(|error| Invalid::new(format!("{FIELD}[{index}].minValues"), error.to_string()))?;
        }
        let key = tables.symbols.intern(current_name(&entry.key));
        all.add(key, requirement, &tables.symbols);
        if all.contradiction(&tables.symbols) == Some(key) {
            let problem = format!("contradicts what the pool says about `{}` before: no value is left", entry.key);
            return Err(Invalid::new(format!("{FIELD}[{index}]"), problem));
        }
    }
    all.add(tables.names.pool, Requirement::is(tables.symbols.intern(&pool.metadata.name)), &tables.symbols);
    let class = &template.spec.node_class_ref;
    if !class.group.is_empty() && !class.kind.is_empty() {
        let key = tables.symbols.intern(&format!("{}/{}", class.group, class.kind.to_lowercase()));
        let name = tables.symbols.intern(&class.name);
        all.add(key, Requirement::is(name), &tables.symbols);
    }
    Ok(all)
}

/// Where the types of a pool come from, or why there are none.
struct Source<'c> {
    catalog: &'c Catalog,
    kubelet: Kubelet,
    overlays: Option<Vec<String>>,
    missing: Vec<UnavailableOffering>,
    /// Labels of the pool that overlays ask for.
    labels: LabelValues,
    not_ready: Option<String>,
}

impl<'c> Source<'c> {
    /// A catalogue as it is.
    fn of(catalog: &'c Catalog) -> Self {
        Self {
            catalog,
            kubelet: Kubelet::default(),
            overlays: None,
            missing: Vec::new(),
            labels: LabelValues::new(),
            not_ready: None,
        }
    }
}

impl Source<'_> {
    fn types_key(&self) -> TypesKey {
        TypesKey {
            catalog: self.catalog.name.clone(),
            kubelet: self.kubelet.clone(),
            overlays: self.overlays.clone(),
            missing: self.missing.clone(),
            labels: self.labels.clone(),
        }
    }
}

impl State {
    /// Gets ready for many snapshots by the same options: lists of types are translated once, not for each of them.
    /// To be called before each snapshot; it does nothing as long as nothing has changed.
    pub fn prepare(&mut self, options: &Options) {
        if !options.ignore_stock {
            // What is out of stock changes with the time.
            return;
        }
        for spread in &options.default_spread {
            self.tables.symbols.intern(&spread.key);
        }
        let missing = self.unprepared(options);
        for (key, catalog) in missing {
            let lowered = Lowered::new(key, &catalog, &mut self.tables);
            self.types.push(Arc::new(lowered));
        }
    }

    /// Lists of types that are not translated yet.
    fn unprepared(&self, options: &Options) -> Vec<(TypesKey, Arc<Catalog>)> {
        let mut missing: Vec<(TypesKey, Arc<Catalog>)> = Vec::new();
        let snapshot = Snapshot::new(0);
        let mut taking =
            SnapshotBuilder { state: self, options, overlays: self.overlays(options), snapshot, notes: Vec::new() };
        for (pool, origin) in self.pools.values() {
            let source = taking.source(pool, origin.as_ref());
            let key = source.types_key();
            if self.lowered_types(&key).is_none() && missing.iter().all(|(known, _)| *known != key) {
                let catalog = self.overlaid_of(&source, options).unwrap_or_else(|| Arc::new(source.catalog.clone()));
                missing.push((key, catalog));
            }
        }
        missing
    }

    fn lowered_types(&self, key: &TypesKey) -> Option<&Arc<Lowered>> {
        self.types.iter().find(|lowered| lowered.key == *key)
    }

    fn overlaid_of(&self, source: &Source<'_>, options: &Options) -> Option<Arc<Catalog>> {
        self.overlaid(source.catalog, &source.labels, source.overlays.as_deref(), options)
    }
}

/// Types of previous generations that a pool does not name.
fn unnamed(pool: &NodePool, source: &Source<'_>, types: &[TypeId]) -> Vec<TypeId> {
    previous_generations(source.catalog, types, &pool.spec.template.spec.requirements)
}

/// The types of a catalogue that requirements leave out for their generation. `types` are all of it, in its order.
fn previous_generations(catalog: &Catalog, types: &[TypeId], requirements: &[PoolRequirement]) -> Vec<TypeId> {
    let pairs = catalog.types.iter().zip(types);
    pairs.filter(|(of, _)| !of.generation_is_wanted(requirements)).map(|(_, id)| *id).collect()
}

impl SnapshotBuilder<'_> {
    pub(super) fn pools(&mut self, catalogs: &mut Catalogs) {
        for (pool, origin) in self.state.pools.values() {
            self.pool(pool, origin.as_ref(), catalogs);
        }
    }

    fn pool(&mut self, pool: &NodePool, origin: Option<&Origin>, catalogs: &mut Catalogs) {
        let source = self.source(pool, origin);
        let types = self.types(&source, catalogs);
        // The pool was checked when it was applied, and the tables only grow.
        let requirements = requirements(pool, &mut self.snapshot).unwrap_or_default();
        let lowered = Pool {
            name: pool.metadata.name.clone(),
            weight: pool.spec.weight.unwrap_or(0),
            requirements,
            taints: self.taints(&pool.spec.template.spec.taints),
            startup_taints: self.taints(&pool.spec.template.spec.startup_taints),
            unnamed: unnamed(pool, &source, &types),
            types,
            limits: self.limits(pool),
            min_nodes: 0,
            replicas: pool.spec.replicas.map(|replicas| u64::try_from(replicas).unwrap_or(0)),
            disruption: disruption(pool),
            not_ready: not_ready(pool)
                .or(source.not_ready)
                .or_else(|| self.options.believe_status.then(|| last_launch_failed(pool)).flatten()),
        };
        if lowered.not_ready.is_none() && !self.has_usable_type(&lowered) {
            let message = format!(
                "pool `{}`: none of the {} types of catalogue `{}` satisfies its requirements",
                lowered.name,
                lowered.types.len(),
                source.catalog.name
            );
            self.warn(origin, message);
        }
        self.snapshot.add_pool(lowered);
    }

    fn has_usable_type(&self, pool: &Pool) -> bool {
        let Snapshot { types, symbols, well_known, .. } = &self.snapshot;
        pool.types.iter().filter(|id| pool.names(**id)).map(|id| &types[id.index()]).any(|of| {
            of.offerings.iter().any(|offering| offering.available)
                && of.labels.iter().all(|(key, offered)| {
                    pool.requirements.get(key).is_none_or(|wanted| wanted.intersects(offered, symbols))
                })
                && pool.requirements.iter().all(|(key, wanted)| {
                    let known = well_known.binary_search(&key).is_ok();
                    // A label of the pool's own is put on its nodes; one of the provider's must be the type's.
                    !known || of.labels.get(key).is_some() || key == self.snapshot.names.pool || wanted.allows_missing()
                })
        })
    }

    /// The types of a source, shared with the pools that have the same.
    fn types(&mut self, source: &Source<'_>, catalogs: &mut Catalogs) -> Vec<TypeId> {
        let key = source.types_key();
        if let Some((_, types)) = catalogs.known.iter().find(|(known, _)| *known == key) {
            return types.clone();
        }
        let types = match self.state.lowered_types(&key) {
            Some(lowered) => {
                catalogs.lowered.push((self.snapshot.types.len(), Arc::clone(lowered)));
                lowered.add_to(&mut self.snapshot)
            }
            None => {
                let overlaid = self.state.overlaid_of(source, self.options);
                let catalog = overlaid.as_deref().unwrap_or(source.catalog);
                let types = types::add(catalog, &source.kubelet, &mut self.snapshot);
                types.iter().for_each(|id| catalogs.add_named(self.snapshot.types[id.index()].name, *id));
                types
            }
        };
        types::mark_missing(&source.missing, &types, &mut self.snapshot);
        catalogs.known.push((key, types.clone()));
        types
    }

    pub(super) fn taints(&mut self, taints: &[karpenter::Taint]) -> Vec<Taint> {
        let symbols = &mut self.snapshot.symbols;
        let taints = taints.iter().map(|taint| Taint {
            key: symbols.intern(&taint.key),
            value: symbols.intern(&taint.value),
            effect: effect(taint.effect),
        });
        taints.collect()
    }

    fn limits(&mut self, pool: &NodePool) -> Limits {
        let amounts = pool.spec.limits.iter().flat_map(millpond_api::amounts::Amounts::iter);
        let mut limits = Limits { price: pool.price_limit().and_then(Result::ok), ..Limits::default() };
        for (name, amount) in amounts {
            if name == "nodes" {
                limits.nodes = Some(u64::try_from(amount).unwrap_or(0));
            } else {
                limits.resources.push((self.snapshot.resources.intern(name), amount));
            }
        }
        limits.resources.sort_unstable();
        limits
    }
}

impl<'s> SnapshotBuilder<'s> {
    /// The catalogue of a pool's node class, and the settings that the class makes.
    fn source(&mut self, pool: &NodePool, origin: Option<&Origin>) -> Source<'s> {
        let (state, options) = (self.state, self.options);
        let (kind, class) = state.class_of(pool);
        let mut source = Source {
            catalog: state.catalog_of(pool, options).unwrap_or_else(|| options.default_catalog()),
            kubelet: class.map(|class| class.spec.kubelet.clone()).unwrap_or_default(),
            overlays: class.map(|class| class.spec.overlays.clone()).filter(|overlays| !overlays.is_empty()),
            missing: class.map(|class| self.missing(class)).unwrap_or_default(),
            labels: self.labels_asked_for(pool),
            not_ready: class.and_then(class_not_ready).or_else(|| class.and_then(|class| self.class_leaves(class))),
        };
        if state.catalog_of(pool, options).is_none() {
            let why = match class {
                Some(class) if has_own_catalog(class) => {
                    format!("the hosts of node class `{}` are not known yet", class.metadata.name)
                }
                _ => {
                    let name = class.and_then(|class| class.spec.catalog.as_deref()).unwrap_or_default();
                    format!("there is no catalogue `{name}`")
                }
            };
            // What the controller wrote into the class is more exact.
            source.not_ready = source.not_ready.or(Some(why));
        }
        let unknown = class.and_then(|class| self.unknown_overlay(class));
        source.not_ready = source.not_ready.or(unknown);
        self.note_class(pool, origin, kind, class.is_some(), &mut source);
        source
    }

    /// Why nothing is bought of a class that is being deleted, where classes are required.
    fn class_leaves(&self, class: &NodeClass) -> Option<String> {
        let leaves = self.options.require_classes && class.metadata.deletion_timestamp.is_some();
        leaves.then(|| format!("its node class `{}` is being deleted", class.metadata.name))
    }

    /// The offerings that a class reports as out of stock now.
    fn missing(&self, class: &NodeClass) -> Vec<UnavailableOffering> {
        if self.options.ignore_stock {
            return Vec::new();
        }
        let now = self.snapshot.now;
        let missing = class.status.unavailable.iter().filter(|missing| missing.until.0 > now);
        let mut missing: Vec<UnavailableOffering> = missing.cloned().collect();
        let name = |it: &UnavailableOffering| (it.instance_type.clone(), it.zone.clone(), it.capacity_type.clone());
        missing.sort_by_cached_key(name);
        missing
    }

    /// Labels of a pool's nodes, as far as some overlay asks for them: pools that agree in these share their types.
    fn labels_asked_for(&self, pool: &NodePool) -> LabelValues {
        let overlays = self.options.overlays.iter().chain(&self.overlays.used);
        let asked: HashSet<&str> =
            overlays.flat_map(|overlay| &overlay.requirements).map(|requirement| requirement.key.as_str()).collect();
        let mut labels = pool_labels(pool);
        labels.retain(|key, _| asked.contains(key.as_str()));
        labels
    }

    fn note_class(
        &mut self,
        pool: &NodePool,
        origin: Option<&Origin>,
        kind: Option<ClassKind>,
        found: bool,
        source: &mut Source<'_>,
    ) {
        let named = &pool.spec.template.spec.node_class_ref;
        let (pool_name, catalog) = (&pool.metadata.name, &source.catalog.name);
        if self.options.believe_status
            && kind != Some(ClassKind::Millpond)
            && let Some(reason) = not_looked_after(pool)
        {
            self.warn(origin, format!("pool `{pool_name}` is not ready: {reason}"));
            source.not_ready = Some(reason);
            return;
        }
        let Some(kind) = kind else {
            let kind =
                if named.group.is_empty() { named.kind.clone() } else { format!("{}/{}", named.group, named.kind) };
            let message = format!(
                "pool `{pool_name}`: the node class `{kind}` is none that is known; the catalogue `{catalog}` stands in"
            );
            return self.warn(origin, message);
        };
        let others: Vec<&str> =
            self.state.classes.keys().filter(|(it, _)| *it == kind).map(|(_, name)| &**name).collect();
        if found || (others.is_empty() && kind != ClassKind::Millpond) {
            if let Some(reason) = &source.not_ready {
                let message = format!("pool `{pool_name}` is not ready: {reason}");
                self.warn(origin, message);
            }
            return;
        }
        if others.is_empty() && !self.options.require_classes {
            let message = format!(
                "pool `{pool_name}`: its node class `{}` is not here; the catalogue `{catalog}` stands in",
                named.name
            );
            return self.warn(origin, message);
        }
        let hint = nearest(&named.name, others).map(|name| format!("; is `{name}` meant?"));
        let reason = format!("there is no node class `{}`{}", named.name, hint.unwrap_or_default());
        self.warn(origin, format!("pool `{pool_name}` is not ready: {reason}"));
        source.not_ready = Some(reason);
    }

    /// The problem with the overlay names of a class, if any.
    fn unknown_overlay(&self, class: &NodeClass) -> Option<String> {
        let own = self.options.overlays.iter().map(|overlay| overlay.name.as_str());
        let known = own.chain(self.state.overlays.keys().map(|name| &**name));
        class.spec.unknown_overlay(known).map(|invalid| invalid.to_string())
    }

    /// Types for nodes of no pool: they are found by name, and no pool buys them.
    pub(super) fn default_types(&mut self, catalogs: &mut Catalogs) {
        if self.options.price_unmanaged {
            let catalog = self.options.default_catalog();
            self.types(&Source::of(catalog), catalogs);
        }
    }

    /// A pool for clusters that have none: on-demand, linux, amd64, of the general families. The smallest machines
    /// are left out: their price per core is the lowest, and a plan would be hundreds of them.
    pub(super) fn default_pool(&mut self, catalogs: &mut Catalogs) {
        // Node groups of a fixed size buy nothing.
        let is_fixed = |pool: &Pool| pool.replicas.is_some() && GroupRef::of_pool(&pool.name).is_some();
        if !self.snapshot.pools.iter().all(is_fixed) || !self.options.default_pool {
            return;
        }
        let catalog = self.options.default_catalog();
        let types = self.types(&Source::of(catalog), catalogs);
        let mut wanted = vec![
            ("kubernetes.io/os", vec!["linux"]),
            ("kubernetes.io/arch", vec!["amd64"]),
            ("karpenter.sh/capacity-type", vec!["on-demand"]),
        ];
        match catalog.provider {
            Provider::Aws => wanted.push(("karpenter.k8s.aws/instance-category", vec!["c", "m", "r"])),
            Provider::Gcp => wanted.push(("karpenter.k8s.gcp/instance-category", vec!["n", "c"])),
            Provider::Kwok | Provider::Generic => {}
        }
        let symbols = &mut self.snapshot.symbols;
        let mut requirements = Requirements::new();
        for (key, values) in wanted {
            let values: Vec<_> = values.into_iter().map(|value| symbols.intern(value)).collect();
            let key = symbols.intern(key);
            requirements.add(key, Requirement::one_of(values), symbols);
        }
        requirements.add(self.snapshot.names.pool, Requirement::is(symbols.intern("default")), symbols);
        let least_milli = 2000;
        let of = |id: &TypeId| &self.snapshot.types[id.index()];
        let previous = previous_generations(catalog, &types, &[]);
        let is_bought = |id: &TypeId| of(id).capacity.get(CPU) >= least_milli && previous.binary_search(id).is_err();
        let types = types.into_iter().filter(is_bought).collect();
        self.snapshot.add_pool(Pool { requirements, types, ..Pool::new("default") });
        let message = format!(
            "no pool is given: planned with a default one over catalogue `{}` (on-demand, linux, amd64, general families)",
            catalog.name
        );
        self.warn(None, message);
    }
}

impl State {
    /// The node class that a pool names, and of which kind it is.
    fn class_of(&self, pool: &NodePool) -> (Option<ClassKind>, Option<&NodeClass>) {
        let named = &pool.spec.template.spec.node_class_ref;
        let kind = ClassKind::of(&named.group, &named.kind);
        let class = kind.and_then(|kind| self.classes.get(&(kind, named.name.as_str().into())));
        (kind, class)
    }

    /// The catalogue of a pool's NodeClass; `None` if the class does not exist.
    pub(crate) fn catalog_of<'c>(&'c self, pool: &NodePool, options: &'c Options) -> Option<&'c Catalog> {
        let (kind, class) = self.class_of(pool);
        if let Some(class) = class.filter(|class| has_own_catalog(class)) {
            return self.provided.get(&*class.metadata.name).map(|catalog| &**catalog);
        }
        if let Some(name) = class.and_then(|class| class.spec.catalog.as_deref()) {
            return self.find_catalog(name).or_else(|| options.find_catalog(name));
        }
        let provider = match kind {
            Some(ClassKind::Ec2) => Some(Provider::Aws),
            Some(ClassKind::Gce) => Some(Provider::Gcp),
            Some(ClassKind::Kwok) => Some(Provider::Kwok),
            Some(ClassKind::Millpond) | None => None,
        };
        let default = options.default_catalog();
        let other = provider.filter(|provider| *provider != default.provider);
        Some(other.and_then(|provider| options.find_catalog(provider.name())).unwrap_or(default))
    }
}

/// Whether the catalogue of a class is what its provider reports.
fn has_own_catalog(class: &NodeClass) -> bool {
    class.spec.provider.as_deref() == Some(HOSTS_PROVIDER)
}

fn class_not_ready(class: &NodeClass) -> Option<String> {
    class.not_ready().map(|condition| {
        let why = [&condition.message, &condition.reason].into_iter().find(|text| !text.is_empty());
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        format!("its node class `{}` is not ready{why}", class.metadata.name)
    })
}

fn not_ready(pool: &NodePool) -> Option<String> {
    if pool.metadata.deletion_timestamp.is_some() {
        return Some("it is being deleted".to_owned());
    }
    // A class that is not ready gives the reason itself.
    let failed = |kind: &str| {
        pool.status.conditions.iter().find(|condition| condition.kind == kind && condition.status == "False")
    };
    failed("ValidationSucceeded").map(|condition| format!("it is not valid: {}", condition.message))
}

/// Why a pool gets no nodes for a while: its last launch failed for a reason that is the pool's.
fn last_launch_failed(pool: &NodePool) -> Option<String> {
    let launchable = find(&pool.status.conditions, conditions::LAUNCHABLE)?;
    let failed = launchable.is_false() && launchable.reason == karpenter::LAUNCH_FAILED;
    failed.then(|| launchable.message.clone())
}

/// Why a pool gets no nodes whose class is of another provider: its controller is not here, or says so.
fn not_looked_after(pool: &NodePool) -> Option<String> {
    match find(&pool.status.conditions, READY) {
        Some(ready) if ready.is_true() => return None,
        Some(ready) if ready.is_false() && ready.reason != karpenter::NODE_CLASS_NOT_MANAGED => {
            let others = pool.status.conditions.iter().find(|it| it.is_false() && it.kind != READY).unwrap_or(ready);
            if others.reason != karpenter::NODE_CLASS_NOT_MANAGED {
                return Some(format!("its controller says so: {}", others.message));
            }
        }
        _ => {}
    }
    Some(pool.unmanaged_class())
}

fn disruption(pool: &NodePool) -> Disruption {
    let spec = &pool.spec.disruption;
    let default = Disruption::default();
    let budgets = spec.budgets.as_ref().map(|budgets| budgets.iter().map(budget).collect());
    let age = pool.spec.template.spec.expire_after;
    Disruption {
        policy: match spec.consolidation_policy {
            Some(ConsolidationPolicy::WhenEmpty) => Consolidation::WhenEmpty,
            Some(ConsolidationPolicy::Balanced) => Consolidation::Balanced,
            Some(ConsolidationPolicy::WhenEmptyOrUnderutilized) | None => Consolidation::WhenEmptyOrUnderutilized,
        },
        consolidate_after: spec.consolidate_after.map_or(default.consolidate_after, NillableDuration::seconds),
        expire_after: age.map_or(default.expire_after, NillableDuration::seconds),
        budgets: budgets.unwrap_or(default.budgets),
    }
}

fn budget(budget: &karpenter::Budget) -> Budget {
    let nodes = match NodeCount::parse(&budget.nodes) {
        Some(NodeCount::Count(count)) => Nodes::Count(count),
        Some(NodeCount::Percent(percent)) => Nodes::Percent(percent),
        // Refused when it was applied; nothing may go.
        None => Nodes::Count(0),
    };
    let reasons = budget.reasons.iter().flatten().map(|reason| match reason {
        karpenter::DisruptionReason::Underutilized => DisruptionReason::Underutilized,
        karpenter::DisruptionReason::Empty => DisruptionReason::Empty,
        karpenter::DisruptionReason::Drifted => DisruptionReason::Drifted,
    });
    let schedule = budget.schedule.as_ref().zip(budget.duration).map(|(cron, duration)| Schedule {
        cron: cron.clone(),
        time_zone: budget.time_zone.clone(),
        duration: duration.0,
    });
    Budget { nodes, schedule, reasons: reasons.collect() }
}
