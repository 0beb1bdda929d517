//! Scaling Advisor's pools: every template of a pool is a type of its own, offered on demand in the pool's zones.
//!
//! | Scaling Advisor | here |
//! |---|---|
//! | `priority` of a pool | weight: higher first |
//! | `priority` of a template | the same among the types of the pool |
//! | `quota` | limits |
//! | `kubeReservedCapacity`, `systemReservedCapacity` | what allocatable lacks of the capacity |
//! | `maxVolumes` | volumes that any driver can attach |
//! | price | the catalogue's, by instance type |

use millpond_api::amounts::Amounts;
use millpond_api::catalog::{self, Catalog, synthetic};
use millpond_api::labels;
use millpond_api::scaling_advisor::{NodePool, NodeTemplate, POOL_LABEL, TEMPLATE_LABEL};
use millpond_plan::model::{
    CPU, CapacityType, Consolidation, Disruption, InstanceType, Limits, MEMORY, Nanos, Offering, PODS, Pool, Resources,
    STORAGE, TypeId,
};
use millpond_plan::requirement::{Requirement, Requirements};
use millpond_plan::symbol::Symbol;

use super::SnapshotBuilder;
use super::pools::Catalogs;
use crate::state::Origin;

/// Limit on the pods of a node whose template has none: the kubelet's default.
const DEFAULT_PODS: i64 = 110;

impl SnapshotBuilder<'_> {
    pub(super) fn advisor_pools(&mut self, catalogs: &mut Catalogs) {
        let state = self.state;
        let all = state.constraints.iter().flat_map(|(namespace, names)| names.iter().map(move |of| (namespace, of)));
        let chosen = all.filter(|(namespace, (name, _))| self.options.pools_of.has_constraint(namespace, name));
        for (_, (_, (constraint, origin))) in chosen {
            for pool in &constraint.spec.node_pools {
                if self.snapshot.find_pool(&pool.name).is_some() {
                    self.warn(origin.as_ref(), format!("pool `{}` is there already; this one is left out", pool.name));
                } else {
                    self.advisor_pool(pool, origin.as_ref(), catalogs);
                }
            }
        }
    }

    fn advisor_pool(&mut self, pool: &NodePool, origin: Option<&Origin>, catalogs: &mut Catalogs) {
        let mut types = Vec::with_capacity(pool.node_templates.len());
        for template in &pool.node_templates {
            let id = TypeId::from(self.snapshot.types.len());
            let of = self.advisor_type(pool, template, origin);
            catalogs.add_named(of.name, id);
            if let Some(most) = template.max_volumes.filter(|most| *most > 0) {
                catalogs.most_volumes.insert(id, i64::from(most));
            }
            self.snapshot.types.push(of);
            types.push(id);
        }
        let lowered = Pool {
            weight: pool.priority,
            requirements: self.advisor_requirements(pool),
            taints: self.taints(&pool.taints),
            types,
            limits: self.quota(pool.quota.as_ref()),
            min_nodes: pool.min.map_or(0, |min| u64::try_from(min).unwrap_or(0)),
            // The controller that acts on advice has budgets of its own.
            disruption: Disruption {
                policy: Consolidation::WhenEmpty,
                consolidate_after: Some(0),
                expire_after: None,
                budgets: Vec::new(),
            },
            ..Pool::new(&pool.name)
        };
        self.snapshot.add_pool(lowered);
    }

    fn quota(&mut self, quota: Option<&Amounts>) -> Limits {
        let mut limits = Limits::default();
        for (name, amount) in quota.iter().flat_map(|quota| quota.iter()) {
            if name == "nodes" {
                limits.nodes = Some(u64::try_from(amount).unwrap_or(0));
            } else {
                limits.resources.push((self.snapshot.resources.intern(name), amount));
            }
        }
        limits.resources.sort_unstable();
        limits
    }

    fn advisor_requirements(&mut self, pool: &NodePool) -> Requirements {
        let mut all = Requirements::new();
        let own = [(labels::NODE_POOL, pool.name.as_str()), (POOL_LABEL, &pool.name), (labels::REGION, &pool.region)];
        let given = pool.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        // Labels of a template cannot change the name of its pool or its placement.
        for (key, value) in given.filter(|(key, _)| !own.iter().any(|(own, _)| own == key)).chain(own) {
            let (key, value) = (self.snapshot.symbols.intern(key), self.snapshot.symbols.intern(value));
            all.add(key, Requirement::is(value), &self.snapshot.symbols);
        }
        all
    }

    fn advisor_type(&mut self, pool: &NodePool, template: &NodeTemplate, origin: Option<&Origin>) -> InstanceType {
        let name = self.snapshot.symbols.intern(&template.instance_type);
        let arch = if template.architecture.is_empty() { "amd64" } else { &template.architecture };
        let zones: Vec<Symbol> =
            pool.availability_zones.iter().map(|zone| self.snapshot.symbols.intern(zone)).collect();
        let fixed = [
            (labels::INSTANCE_TYPE, template.instance_type.as_str()),
            (labels::ARCH, arch),
            (labels::OS, "linux"),
            (labels::REGION, &pool.region),
            (labels::CAPACITY_TYPE, CapacityType::OnDemand.name()),
            (TEMPLATE_LABEL, &template.name),
        ];
        let symbols = &mut self.snapshot.symbols;
        let mut all = Requirements::new();
        all.add(self.snapshot.names.zone, Requirement::one_of(zones.iter().copied()), symbols);
        for (key, value) in fixed {
            let (key, value) = (symbols.intern(key), symbols.intern(value));
            all.add(key, Requirement::is(value), symbols);
        }
        let capacity = self.advisor_capacity(&template.capacity);
        let mut allocatable = capacity.clone();
        for (name, amount) in template.kube_reserved.iter().chain(template.system_reserved.iter()) {
            let resource = self.snapshot.resources.intern(name);
            allocatable.set(resource, (allocatable.get(resource) - amount).max(0));
        }
        let prices = self.advisor_prices(pool, template, &capacity, origin);
        let offerings = zones.into_iter().zip(prices).map(|(zone, price)| Offering {
            zone,
            capacity_type: CapacityType::OnDemand,
            price,
            available: true,
            left: None,
        });
        let priority = template.priority;
        InstanceType { name, offerings: offerings.collect(), capacity, allocatable, labels: all.into(), priority }
    }

    fn advisor_capacity(&mut self, amounts: &Amounts) -> Resources {
        let mut capacity: Resources =
            amounts.iter().map(|(name, amount)| (self.snapshot.resources.intern(name), amount)).collect();
        if capacity.get(PODS) == 0 {
            capacity.set(PODS, DEFAULT_PODS);
        }
        // Templates have no storage, and without it a pod that requests some would fit nowhere.
        if capacity.get(STORAGE) == 0 {
            let usual = catalog::overhead::default_storage_bytes(self.options.default_catalog().provider);
            capacity.set(STORAGE, i64::try_from(usual).unwrap_or(i64::MAX));
        }
        capacity
    }

    /// On-demand prices in the pool's zones.
    fn advisor_prices(
        &mut self,
        pool: &NodePool,
        template: &NodeTemplate,
        capacity: &Resources,
        origin: Option<&Origin>,
    ) -> Vec<Nanos> {
        let catalog = self.options.default_catalog();
        let known = pool.availability_zones.iter().map(|zone| listed(catalog, &template.instance_type, zone));
        if let Some(prices) = known.collect() {
            return prices;
        }
        let message = format!(
            "pool `{}`: catalogue `{}` has no on-demand price of `{}`; it is estimated from its size",
            pool.name, catalog.name, template.instance_type
        );
        self.warn(origin, message);
        let amount = |resource| u64::try_from(capacity.get(resource)).unwrap_or(0);
        vec![synthetic::kwok_price(amount(CPU), amount(MEMORY)); pool.availability_zones.len()]
    }
}

/// The price of a type in a zone, or in any where the catalogue does not know the zone.
fn listed(catalog: &Catalog, name: &str, zone: &str) -> Option<Nanos> {
    let of = catalog.find(name)?;
    let on_demand = |offering: &catalog::Offering| offering.capacity_type == catalog::CapacityType::OnDemand;
    let here = of.cheapest(|offering| on_demand(offering) && &*offering.zone == zone);
    here.or_else(|| of.cheapest(on_demand)).map(|offering| offering.price_nanos_hour)
}
