//! Builds the NodeClaim for a planned node. Pure.

use std::collections::BTreeMap;

use kube::api::ObjectMeta;
use millpond_api::amounts::Amounts;
use millpond_api::karpenter::{
    HASH_ANNOTATION, HASH_VERSION, HASH_VERSION_ANNOTATION, NodeClaimResources, NodeClaimSpec, PoolRequirement,
    TERMINATION_FINALIZER, node_class_label,
};
use millpond_api::labels;
use millpond_api::selector::Operator;
use millpond_plan::fallback_offers::{Contents, FallbackOffers};
use millpond_plan::market::Market;
use millpond_plan::model::{ResourceId, Resources, Snapshot, TypeId};
use millpond_plan::plan::NewNode;

use crate::context::Context;
use crate::kinds::{NodeClaim, NodePool};
use crate::limits::{RESERVED_ANNOTATION, Usage};

/// Volumes that a driver can attach are no resource that a node reports.
const ATTACHABLE: &str = "attachable-volumes-";

/// Offerings that a claim leaves open: the planned one, and those that would do as well.
pub(crate) const ALTERNATIVES: usize = 60;

/// Builds claims for the new nodes of a plan.
pub(crate) struct ClaimBuilder<'p> {
    context: &'p Context,
    snapshot: &'p Snapshot,
    market: &'p Market,
    alternatives: FallbackOffers<'p>,
}

impl<'p> ClaimBuilder<'p> {
    /// For plans of this snapshot.
    pub(crate) fn new(context: &'p Context, snapshot: &'p Snapshot, market: &'p Market) -> Self {
        Self { context, snapshot, market, alternatives: FallbackOffers::new(snapshot, market) }
    }

    /// The claim of a planned node with these pods; `None` if its pool no longer exists. Its requirements also allow
    /// equivalent offers that use no more of what is limited and cost at most `most`.
    pub(crate) fn claim(&mut self, node: &NewNode, contents: &Contents, most: Option<u64>) -> Option<NodeClaim> {
        let (snapshot, market) = (self.snapshot, self.market);
        let name = &snapshot.pools[node.pool.index()].name;
        let pool = self.context.pool(name)?;
        let mut offers = self.alternatives.of(node, contents, ALTERNATIVES);
        offers.retain(|&offer| {
            let price = market.offer(offer as usize).price;
            counts_no_more(snapshot, market, node, offer)
                && (price <= node.price || most.is_none_or(|most| price <= most))
        });
        let intent = NewClaim { snapshot, market, pool: &pool, node, contents, offers: &offers };
        Some(intent.claim(self.context.cluster.claim_name(name)))
    }
}

/// Whether an offer takes no more of what is limited than the node that was planned within the limits.
pub(crate) fn counts_no_more(snapshot: &Snapshot, market: &Market, node: &NewNode, offer: u32) -> bool {
    let offer = market.offer(offer as usize);
    let capacity = |of: TypeId, resource: ResourceId| snapshot.types[of.index()].capacity.get(resource);
    [&snapshot.pools[node.pool.index()].limits, &snapshot.limits].into_iter().all(|limits| {
        let mut resources = limits.resources.iter();
        resources
            .all(|&(resource, _)| capacity(offer.instance_type, resource) <= capacity(node.instance_type, resource))
            && (limits.price.is_none() || offer.price <= node.price)
    })
}

/// A planned node with all that its claim depends on.
pub(crate) struct NewClaim<'p> {
    /// The snapshot of the plan.
    pub(crate) snapshot: &'p Snapshot,
    /// The market of the plan.
    pub(crate) market: &'p Market,
    /// The pool.
    pub(crate) pool: &'p NodePool,
    /// The node.
    pub(crate) node: &'p NewNode,
    /// Its pods.
    pub(crate) contents: &'p Contents,
    /// The offers that may be bought for it, the planned one first.
    pub(crate) offers: &'p [u32],
}

impl NewClaim<'_> {
    /// The claim, under a name.
    pub(crate) fn claim(&self, name: String) -> NodeClaim {
        let mut owner = millpond_runtime::meta::controller_reference(self.pool);
        owner.controller = None;
        let metadata = ObjectMeta {
            name: Some(name),
            labels: Some(self.labels()),
            annotations: Some(self.annotations()),
            finalizers: Some(vec![TERMINATION_FINALIZER.to_owned()]),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        };
        let template = &self.pool.spec.template.spec;
        let spec = NodeClaimSpec {
            requirements: self.requirements(),
            taints: template.taints.clone(),
            startup_taints: template.startup_taints.clone(),
            resources: NodeClaimResources { requests: self.requests() },
            node_class_ref: template.node_class_ref.clone(),
            expire_after: template.expire_after,
            termination_grace_period: template.termination_grace_period,
        };
        NodeClaim::new(metadata, spec)
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let template = &self.pool.spec.template;
        let mut all = template.metadata.labels.clone();
        all.insert(labels::NODE_POOL.to_owned(), self.pool.name().to_owned());
        let class = &template.spec.node_class_ref;
        all.insert(node_class_label(&class.group, &class.kind), class.name.clone());
        for requirement in self.requirements() {
            if let (Operator::In, [value], true) =
                (requirement.operator, requirement.values.as_slice(), self.is_own(&requirement.key))
            {
                all.insert(requirement.key.clone(), value.clone());
            }
        }
        all
    }

    fn annotations(&self) -> BTreeMap<String, String> {
        let mut all = self.pool.spec.template.metadata.annotations.clone();
        let hash = crate::pools::hash(self.pool);
        all.insert(HASH_ANNOTATION.to_owned(), hash);
        all.insert(HASH_VERSION_ANNOTATION.to_owned(), HASH_VERSION.to_owned());
        let reserved = serde_json::to_string(&self.take()).unwrap_or_default();
        all.insert(RESERVED_ANNOTATION.to_owned(), reserved);
        all
    }

    /// The usage that counts against limits until the node reports its capacity. None of the offers uses more of what
    /// is limited.
    fn take(&self) -> Usage {
        let capacity = &self.snapshot.types[self.node.instance_type.index()].capacity;
        Usage { resources: self.amounts(capacity), nanos_hour: self.node.price, nodes: 1 }
    }

    /// Whether a label is the pool's own, not one that comes with the machine.
    fn is_own(&self, key: &str) -> bool {
        let of = &self.snapshot.types[self.node.instance_type.index()];
        let known = self.snapshot.symbols.find(key);
        known.is_none_or(|key| of.labels.get(key).is_none())
            && ![labels::NODE_POOL, labels::ZONE, labels::CAPACITY_TYPE, labels::INSTANCE_TYPE].contains(&key)
    }

    /// The pool's requirements, narrowed to the planned offer and its equivalents.
    fn requirements(&self) -> Vec<PoolRequirement> {
        let narrowed = [labels::INSTANCE_TYPE, labels::ZONE, labels::CAPACITY_TYPE];
        let mut all = vec![
            one_of(labels::INSTANCE_TYPE, self.offered(|offer| self.type_name(offer))),
            one_of(labels::ZONE, self.offered(|offer| self.offering(offer).0)),
            one_of(labels::CAPACITY_TYPE, self.offered(|offer| self.offering(offer).1)),
        ];
        for requirement in &self.pool.spec.template.spec.requirements {
            let key = requirement.key.as_str();
            if narrowed.contains(&key) {
                if let Some(same) = all.iter_mut().find(|same| same.key == key) {
                    same.min_values = requirement.min_values.filter(|least| same.values.len() as i64 >= *least);
                }
                continue;
            }
            // A label of the pool's own that it leaves open got a value when pods were planned by it.
            let planned = self.snapshot.symbols.find(key).and_then(|key| self.node.labels.get(key));
            match planned.filter(|_| self.is_own(key)) {
                Some(value) => all.push(one_of(key, vec![self.snapshot.text(value).to_owned()])),
                None => all.push(requirement.clone()),
            }
        }
        all
    }

    fn offered<'a>(&self, of: impl Fn(u32) -> &'a str) -> Vec<String> {
        let mut values: Vec<String> = Vec::new();
        for &offer in self.offers {
            let value = of(offer);
            if !values.iter().any(|known| known == value) {
                values.push(value.to_owned());
            }
        }
        values
    }

    fn type_name(&self, offer: u32) -> &str {
        let offer = self.market.offer(offer as usize);
        self.snapshot.text(self.snapshot.types[offer.instance_type.index()].name)
    }

    fn offering(&self, offer: u32) -> (&str, &'static str) {
        let offer = self.market.offer(offer as usize);
        let offering = &self.snapshot.types[offer.instance_type.index()].offerings[offer.offering as usize];
        (self.snapshot.text(offering.zone), offering.capacity_type.name())
    }

    /// The sum of the requests of its pods and DaemonSet pods.
    fn requests(&self) -> Amounts {
        let mut total = Resources::new();
        for &(class, count) in self.contents {
            total.add_times(&self.snapshot.classes[class.index()].requests, i64::from(count));
        }
        if let Some(&planned) = self.offers.first() {
            let offer = self.market.offer(planned as usize);
            let mut daemons = self.snapshot.types[offer.instance_type.index()].allocatable.clone();
            daemons.subtract(&offer.free);
            total.add(&daemons);
        }
        self.amounts(&total)
    }

    fn amounts(&self, resources: &Resources) -> Amounts {
        let named = resources.iter().map(|(resource, amount)| (self.snapshot.resources.name(resource), amount));
        let real = named.filter(|(name, amount)| *amount > 0 && !name.starts_with(ATTACHABLE));
        Amounts(real.map(|(name, amount)| (name.to_owned(), amount)).collect())
    }
}

fn one_of(key: &str, values: Vec<String>) -> PoolRequirement {
    PoolRequirement { key: key.to_owned(), operator: Operator::In, values, min_values: None }
}
