//! The metrics endpoint: counters, and values that are sampled from the cluster at scrape time.

use std::collections::BTreeMap;

use millpond_api::amounts::Amounts;
use millpond_api::karpenter::PRICE_LIMIT_ANNOTATION;
use millpond_api::{labels, money};
use millpond_providers::OfferingKey;
use millpond_state::groups::Use;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{Controller, Counters, Gauges, Group, Metrics, Pool, PoolReason, label, pool};
use crate::cluster::is_ours;
use crate::context::{Context, api_class};
use crate::kinds::NodeClaim;

/// A gauge with fractional values.
type Fraction = Gauge<f64, std::sync::atomic::AtomicU64>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolResource {
    resource_type: String,
    nodepool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Offering {
    instance_type: String,
    zone: String,
    capacity_type: String,
}

/// Figures that are read from the cluster at scrape time.
#[derive(Default)]
struct Seen {
    nodes: Gauge,
    synced: Gauge,
    limits: Family<PoolResource, Fraction>,
    usage: Family<PoolResource, Fraction>,
    costs: Family<Pool, Fraction>,
    allowed: Gauges<PoolReason>,
    available: Gauges<Offering>,
    out: Gauge,
    group_sizes: Gauges<Group>,
    groups_held: Gauges<Group>,
    unneeded: Gauge,
}

/// All metrics of the controllers at this moment, for the HTTP endpoint.
pub fn registry(context: &Context) -> Registry {
    let mut registry = Registry::default();
    counted(&context.metrics, &mut registry);
    panics(millpond_runtime::panics::counts(), &mut registry);
    Seen::by(context).register(&mut registry);
    registry
}

/// The same as text, without the line that ends an exposition: other registries may follow.
pub fn text(context: &Context) -> String {
    encoded(&registry(context))
}

/// The output of [`text`] with every metric present, for the reference.
pub fn sample() -> String {
    let metrics = Metrics::default();
    super::sample::count(&metrics);
    let mut registry = Registry::default();
    counted(&metrics, &mut registry);
    panics([("provisioner", 1)].into(), &mut registry);
    Seen::sample().register(&mut registry);
    encoded(&registry)
}

fn encoded(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode_registry(&mut text, registry).expect("writing to a string does not fail");
    text
}

/// Panics by controller, under controller-runtime's name.
fn panics(counts: BTreeMap<&'static str, u64>, registry: &mut Registry) {
    let family: Counters<Controller> = Family::default();
    for (controller, count) in counts {
        family.get_or_create(&Controller { controller }).inc_by(count);
    }
    let of_runtime = registry.sub_registry_with_prefix("controller_runtime");
    of_runtime.register("reconcile_panics", "Panics of controllers, which were started or tried again", family);
}

fn counted(metrics: &Metrics, registry: &mut Registry) {
    let karpenter = registry.sub_registry_with_prefix("karpenter");
    let claims = karpenter.sub_registry_with_prefix("nodeclaims");
    claims.register("created", "Claims that were written, by why", metrics.claims_created.clone());
    claims.register("terminated", "Claims that ended, and their machines with them", metrics.claims_terminated.clone());
    claims.register("disrupted", "Claims that a controller took away, by why", metrics.claims_disrupted.clone());
    let nodes = karpenter.sub_registry_with_prefix("nodes");
    nodes.register("created", "Machines that became nodes", metrics.nodes_created.clone());
    nodes.register("terminated", "Nodes that were removed", metrics.nodes_terminated.clone());
    nodes.register("drained", "Nodes whose pods are gone", metrics.nodes_drained.clone());
    let pods = karpenter.sub_registry_with_prefix("pods");
    pods.register("eviction_requests", "Evictions that were asked for, by HTTP status", metrics.evictions.clone());
    pods.register("startup_duration_seconds", "From a pod's creation until it runs", metrics.pods_startup.clone());
    pods.register("bound_duration_seconds", "From a pod's creation until it has a node", metrics.pods_bound.clone());
    let disruption = karpenter.sub_registry_with_prefix("voluntary_disruption");
    disruption.register("decisions", "Decisions to take nodes away, or to replace them", metrics.decisions.clone());
    let scheduler = karpenter.sub_registry_with_prefix("scheduler");
    scheduler.register("scheduling_duration_seconds", "Time that planning took", metrics.scheduling.clone());
    scheduler.register("queue_depth", "Pods that no plan has looked at yet", metrics.queue_depth.clone());
    let help = "Pods that the last plan found no place for";
    scheduler.register("unschedulable_pods_count", help, metrics.unschedulable.clone());
    let provider = karpenter.sub_registry_with_prefix("cloudprovider");
    provider.register("duration_seconds", "Time that calls of a provider took", metrics.provider_duration.clone());
    provider.register("errors", "Calls of a provider that failed, by why", metrics.provider_errors.clone());
    let own = registry.sub_registry_with_prefix("millpond");
    own.register("plan_gap_ratio", "How far the last plan may be above the cheapest one", metrics.plan_gap.clone());
    own.register("plan_cost_dollars_per_hour", "All nodes, once the last plan is done", metrics.plan_cost.clone());
    let help = "What no plan could have undercut, for the last one";
    own.register("plan_bound_dollars_per_hour", help, metrics.plan_bound.clone());
    let help = "Claims that were not written because a limit left no room, by what limits";
    own.register("limit_refusals", help, metrics.limits_refused.clone());
    let groups = own.sub_registry_with_prefix("node_groups");
    groups.register("scaled_up", "Machines that node groups were given for pods", metrics.groups_scaled_up.clone());
    groups.register(
        "scaled_down",
        "Machines that were taken from node groups, by why",
        metrics.groups_scaled_down.clone(),
    );
    let help = "Machines of node groups that did not become nodes, by why";
    groups.register("failed_machines", help, metrics.machines_failed.clone());
    own.register("scaling_advice", "Advice that was written because it says something new", metrics.advice.clone());
}

impl Seen {
    fn by(context: &Context) -> Self {
        let seen = Self::default();
        seen.nodes.set(context.cluster.nodes.len() as i64);
        seen.synced.set(i64::from(context.cluster.is_ready()));
        seen.look_at_pools(context);
        for missing in context.stock_outs.list().into_iter().filter(|missing| !missing.wait.is_zero()) {
            let OfferingKey { instance_type, zone, capacity_type } = missing.offering;
            seen.available.get_or_create(&Offering { instance_type, zone, capacity_type }).set(0);
            seen.out.inc();
        }
        seen.look_at_groups(context);
        seen
    }

    fn look_at_groups(&self, context: &Context) {
        let machines = &context.cluster.machines;
        let options = machines.as_pools(Use::Closed);
        context.cluster.with_node_groups(&options, |groups, _| {
            for group in groups.iter().filter(|group| group.scaled.is_some()) {
                let size = i64::try_from(group.replicas).unwrap_or(i64::MAX);
                self.group_sizes.get_or_create(&Group { node_group: group.of.to_string() }).set(size);
            }
        });
        for of in options.held.keys() {
            self.groups_held.get_or_create(&Group { node_group: of.to_string() }).set(1);
        }
        self.unneeded.set(machines.unneeded.load(std::sync::atomic::Ordering::Relaxed) as i64);
    }

    fn look_at_pools(&self, context: &Context) {
        let prices = prices(context);
        for pool in context.cluster.pools.list().iter().filter(|pool| is_ours(pool)) {
            let name = pool.name();
            pool.spec.limits.iter().for_each(|amounts| set_amounts(&self.limits, name, amounts));
            set_amounts(&self.usage, name, &pool.status.resources);
            let dollars = |nanos: u64| nanos as f64 / 1e9;
            let nanos = prices.get(name).copied().unwrap_or_default();
            self.costs.get_or_create(&Pool { nodepool: name.to_owned() }).set(dollars(nanos));
            let of_price = || PoolResource { resource_type: "dollars_per_hour".to_owned(), nodepool: name.to_owned() };
            let limit = pool.metadata.annotations.as_ref().and_then(|all| all.get(PRICE_LIMIT_ANNOTATION));
            if let Some(most) = limit.and_then(|text| money::parse(text).ok()) {
                self.limits.get_or_create(&of_price()).set(dollars(most));
                self.usage.get_or_create(&of_price()).set(dollars(nanos));
            }
        }
        for ((name, reason), nodes) in &*context.metrics.allowed_disruptions.lock() {
            if context.pool(name).is_some() {
                self.allow(name, reason, *nodes);
            }
        }
    }

    fn allow(&self, pool: &str, reason: &str, nodes: u64) {
        let labels = PoolReason { nodepool: pool.to_owned(), reason: reason.to_owned() };
        self.allowed.get_or_create(&labels).set(i64::try_from(nodes).unwrap_or(i64::MAX));
    }

    fn sample() -> Self {
        let seen = Self::default();
        let cpu = PoolResource { resource_type: "cpu".to_owned(), nodepool: "general".to_owned() };
        seen.limits.get_or_create(&cpu).set(100.0);
        seen.usage.get_or_create(&cpu).set(24.0);
        seen.costs.get_or_create(&Pool { nodepool: "general".to_owned() }).set(1.2);
        seen.allow("general", "empty", 1);
        let (instance_type, zone) = ("m5.large".to_owned(), "us-east-1a".to_owned());
        seen.available.get_or_create(&Offering { instance_type, zone, capacity_type: "spot".to_owned() }).set(0);
        let group = Group { node_group: "default/workers".to_owned() };
        seen.group_sizes.get_or_create(&group).set(3);
        seen.groups_held.get_or_create(&group).set(1);
        seen
    }

    fn register(self, registry: &mut Registry) {
        let cluster = registry.sub_registry_with_prefix("karpenter_cluster_state");
        cluster.register("node_count", "Nodes that are there", self.nodes);
        cluster.register("synced", "Whether all kinds were listed: 1 or 0", self.synced);
        let pools = registry.sub_registry_with_prefix("karpenter_nodepools");
        pools.register("limit", "What the nodes of a pool may add up to", self.limits);
        pools.register("usage", "What they add up to", self.usage);
        pools.register("cost_total", "What they cost, dollars per hour", self.costs);
        let help = "Nodes of a pool that may be disrupted at a time, by why";
        pools.register("allowed_disruptions", help, self.allowed);
        let provider = registry.sub_registry_with_prefix("karpenter_cloudprovider");
        let help = "0 for offerings that are left out because they were out of stock; no other is listed";
        provider.register("instance_type_offering_available", help, self.available);
        let own = registry.sub_registry_with_prefix("millpond");
        own.register("stock_out_offerings", "Offerings that are left out because they were out of stock", self.out);
        let groups = own.sub_registry_with_prefix("node_groups");
        groups.register("size", "Machines that a node group should have", self.group_sizes);
        let help = "1 for node groups that get nothing for now because their machines failed; no other is listed";
        groups.register("backed_off", help, self.groups_held);
        groups.register("unneeded_nodes", "Nodes of node groups that are unneeded", self.unneeded);
    }
}

/// Amounts in base units: cores, bytes, counts.
fn set_amounts(family: &Family<PoolResource, Fraction>, pool: &str, amounts: &Amounts) {
    for (name, amount) in amounts.iter() {
        let labels = PoolResource { resource_type: name.replace('-', "_"), nodepool: pool.to_owned() };
        let scale = if name == "cpu" { 1000.0 } else { 1.0 };
        family.get_or_create(&labels).set(amount as f64 / scale);
    }
}

/// Price of each pool in nano-dollars per hour.
fn prices(context: &Context) -> BTreeMap<String, u64> {
    let mut prices: BTreeMap<String, u64> = BTreeMap::new();
    for claim in context.cluster.claims.list() {
        *prices.entry(pool(&claim)).or_default() += price(context, &claim).unwrap_or_default();
    }
    prices
}

/// The price of a launched claim by the catalogue of its class, in nano-dollars per hour.
fn price(context: &Context, claim: &NodeClaim) -> Option<u64> {
    if claim.status.provider_id.is_empty() {
        return None;
    }
    let class = context.class(&claim.spec.node_class_ref.name)?;
    let catalog = context.provider(&class).ok()?.catalog(&api_class(&class)).ok()?;
    let of = catalog.find(&label(claim, labels::INSTANCE_TYPE))?;
    let (zone, kind) = (label(claim, labels::ZONE), label(claim, labels::CAPACITY_TYPE));
    let same = of.offerings.iter().find(|offering| *offering.zone == *zone && offering.capacity_type.name() == kind)?;
    Some(same.price_nanos_hour)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::metrics::sample;

    /// The lines of a metric.
    fn lines(metrics: &Metrics, name: &str) -> Vec<String> {
        let mut registry = Registry::default();
        counted(metrics, &mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect()
    }

    #[test]
    fn names_and_labels_are_those_of_karpenter() {
        let metrics = Metrics::default();
        sample::count(&metrics);
        let one = |name: &str| lines(&metrics, name).join("\n");
        assert_eq!(
            one("karpenter_nodeclaims_created"),
            r#"karpenter_nodeclaims_created_total{reason="provisioned",nodepool="general",min_values_relaxed="false"} 1"#
        );
        assert_eq!(
            one("karpenter_nodeclaims_disrupted"),
            r#"karpenter_nodeclaims_disrupted_total{reason="underutilized",nodepool="general",capacity_type="spot"} 1"#
        );
        assert_eq!(
            one("karpenter_nodeclaims_terminated"),
            r#"karpenter_nodeclaims_terminated_total{nodepool="general",capacity_type="spot",zone="a"} 1"#
        );
        assert_eq!(one("karpenter_nodes_created"), r#"karpenter_nodes_created_total{nodepool="general",zone="a"} 1"#);
        let mut decisions = lines(&metrics, "karpenter_voluntary_disruption_decisions");
        decisions.sort();
        assert_eq!(
            decisions,
            [
                r#"karpenter_voluntary_disruption_decisions_total{decision="delete",reason="drifted",consolidation_type=""} 1"#,
                r#"karpenter_voluntary_disruption_decisions_total{decision="replace",reason="underutilized",consolidation_type="multi"} 1"#,
            ]
        );
        assert_eq!(one("karpenter_pods_eviction"), r#"karpenter_pods_eviction_requests_total{code="429"} 1"#);
        assert_eq!(one("karpenter_scheduler_queue"), r#"karpenter_scheduler_queue_depth{controller="provisioner"} 3"#);
        assert_eq!(one("millpond_limit"), r#"millpond_limit_refusals_total{scope="NodePool",name="general"} 4"#);
    }

    #[test]
    fn a_plan_is_timed_within_its_bucket() {
        let metrics = Metrics::default();
        metrics.planned(super::super::PROVISIONER, Duration::from_millis(7));
        let told = lines(&metrics, "karpenter_scheduler_scheduling_duration_seconds_bucket");
        let of = |bound: &str| told.iter().find(|line| line.contains(&format!("le=\"{bound}\""))).cloned();
        assert!(of("0.005").unwrap().ends_with(" 0") && of("0.01").unwrap().ends_with(" 1"), "{told:?}");
    }
}
