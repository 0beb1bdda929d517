//! Drift: whether a claim still matches its pool and its class.

use std::collections::HashMap;
use std::time::Duration;

use kube::ResourceExt;
use millpond_api::catalog::Catalog;
use millpond_api::karpenter::{HASH_ANNOTATION, HASH_VERSION, HASH_VERSION_ANNOTATION, PoolRequirement};
use millpond_api::labels::{self, CAPACITY_TYPE, INSTANCE_TYPE, ZONE};
use millpond_api::selector::{LabelValues, Requirement};
use millpond_providers::ProviderError;
use millpond_runtime::meta::Key;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::context::{Context, api_class};
use crate::kinds::{NodeClaim, NodeClass, NodePool};

/// A provider is asked again about a machine after this long, as Karpenter does; sooner when the class changes.
pub(super) const ASK_AGAIN: Duration = Duration::from_mins(5);

/// The pool's template has changed.
const NODE_POOL_DRIFTED: &str = "NodePoolDrifted";
/// The labels of the node are none that the pool allows.
const REQUIREMENTS_DRIFTED: &str = "RequirementsDrifted";
/// The catalogue knows nothing of the machine any more.
const INSTANCE_TYPE_NOT_FOUND: &str = "InstanceTypeNotFound";

/// Capacity that was reserved may have become on-demand since.
const RESERVED: &str = "reserved";
const ON_DEMAND: &str = "on-demand";

/// The drift of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Drift {
    /// It is what its pool would launch.
    None,
    /// It differs, for this reason.
    Reason(String),
    /// The provider cannot tell now; the last result stands.
    Unknown,
}

/// The drift that providers reported.
#[derive(Default)]
pub(super) struct ProviderDrifts(Mutex<HashMap<Key, ProviderDrift>>);

struct ProviderDrift {
    asked: Instant,
    /// The generation of the class that it was asked about.
    generation: Option<i64>,
    drift: Drift,
}

impl ProviderDrifts {
    pub(super) fn forget(&self, claim: &Key) {
        self.0.lock().remove(claim);
    }

    fn standing(&self, claim: &Key, class: &NodeClass) -> Option<Drift> {
        let opinions = self.0.lock();
        let opinion = opinions.get(claim)?;
        let stands = opinion.asked.elapsed() < ASK_AGAIN && opinion.generation == class.metadata.generation;
        stands.then(|| opinion.drift.clone())
    }

    /// Compares hashes and requirements, then asks the provider if its last answer is too old.
    pub(super) async fn of(&self, context: &Context, pool: &NodePool, claim: &NodeClaim) -> Drift {
        if let Some(reason) = by_pool(pool, claim) {
            return Drift::Reason(reason.to_owned());
        }
        let Some(class) = context.class(&claim.spec.node_class_ref.name) else { return Drift::Unknown };
        let key = Key::of(claim);
        if let Some(standing) = self.standing(&key, &class) {
            return standing;
        }
        let drift = by_provider(context, &class, claim).await;
        let opinion =
            ProviderDrift { asked: Instant::now(), generation: class.metadata.generation, drift: drift.clone() };
        self.0.lock().insert(key, opinion);
        drift
    }
}

async fn by_provider(context: &Context, class: &NodeClass, claim: &NodeClaim) -> Drift {
    let asked: Result<Drift, ProviderError> = async {
        let provider = context.provider(class)?;
        let class = api_class(class);
        let catalog = provider.catalog(&class)?;
        if !is_sold(&catalog, claim) {
            return Ok(Drift::Reason(INSTANCE_TYPE_NOT_FOUND.to_owned()));
        }
        let instance = provider.get(&claim.status.provider_id).await?;
        Ok(provider.drifted(&instance, &class).await?.map_or(Drift::None, Drift::Reason))
    }
    .await;
    asked.unwrap_or_else(|error| {
        tracing::debug!(claim = claim.name(), %error, "the provider cannot report drift now");
        Drift::Unknown
    })
}

/// Why a claim is no longer what its pool asks for.
fn by_pool(pool: &NodePool, claim: &NodeClaim) -> Option<&'static str> {
    let said = |name: &str| claim.annotations().get(name).map(String::as_str);
    // Hashes of different versions cannot be compared.
    let comparable = said(HASH_VERSION_ANNOTATION) == Some(HASH_VERSION);
    if comparable && said(HASH_ANNOTATION).is_some_and(|hash| hash != crate::pools::hash(pool)) {
        return Some(NODE_POOL_DRIFTED);
    }
    let requirements = &pool.spec.template.spec.requirements;
    (!satisfies(claim, requirements)).then_some(REQUIREMENTS_DRIFTED)
}

/// Whether the labels of a claim satisfy requirements, under the names of today.
fn satisfies(claim: &NodeClaim, requirements: &[PoolRequirement]) -> bool {
    let known = claim.labels().iter();
    let known: LabelValues =
        known.map(|(key, value)| (labels::current_name(key).to_owned(), vec![value.clone()])).collect();
    requirements.iter().all(|one| {
        let key = labels::current_name(&one.key).to_owned();
        Requirement { key, operator: one.operator, values: one.values.clone() }.matches(&known)
    })
}

/// Whether the catalogue has what a claim was launched as; whether it is in stock does not matter.
fn is_sold(catalog: &Catalog, claim: &NodeClaim) -> bool {
    let label = |key: &str| claim.labels().get(key).map_or("", String::as_str);
    let (zone, bought) = (label(ZONE), label(CAPACITY_TYPE));
    let fits = |name: &str| name == bought || (bought == RESERVED && name == ON_DEMAND);
    catalog
        .types
        .iter()
        .filter(|of| of.name == label(INSTANCE_TYPE))
        .any(|of| of.offerings.iter().any(|offering| &*offering.zone == zone && fits(offering.capacity_type.name())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pool(more: Value) -> NodePool {
        let mut spec = json!({
            "nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": "default"},
            "requirements": [
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]},
                {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["c"]},
                {"key": "cores", "operator": "Gt", "values": ["3"]},
            ],
        });
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {"template": {"spec": spec}}})).unwrap()
    }

    fn claim(version: &str, hash: &str, labels: Value) -> NodeClaim {
        serde_json::from_value(json!({
            "metadata": {
                "name": "web-1", "labels": labels,
                "annotations": {HASH_ANNOTATION: hash, HASH_VERSION_ANNOTATION: version},
            },
            "spec": {"requirements": [], "nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": "default"}},
        }))
        .unwrap()
    }

    #[test]
    fn a_pool_that_asks_for_something_else_makes_drift() {
        let labels = || json!({"karpenter.sh/capacity-type": "spot", "failure-domain.beta.kubernetes.io/zone": "a", "cores": "4"});
        let hash = crate::pools::hash(&pool(json!({})));
        let same = claim(HASH_VERSION, &hash, labels());
        assert_eq!(by_pool(&pool(json!({})), &same), None);
        let tainted = pool(json!({"taints": [{"key": "new", "effect": "NoSchedule"}]}));
        assert_eq!(by_pool(&tainted, &same), Some(NODE_POOL_DRIFTED));
        assert_eq!(by_pool(&tainted, &claim("v2", &hash, labels())), None, "hashes of two versions");
        for (key, value) in [
            ("karpenter.sh/capacity-type", "reserved"),
            ("failure-domain.beta.kubernetes.io/zone", "c"),
            ("cores", "3"),
        ] {
            let mut other = labels();
            other[key] = json!(value);
            assert_eq!(
                by_pool(&pool(json!({})), &claim(HASH_VERSION, &hash, other)),
                Some(REQUIREMENTS_DRIFTED),
                "{key}"
            );
        }
        let silent = claim(HASH_VERSION, &hash, json!({"karpenter.sh/capacity-type": "spot"}));
        assert_eq!(by_pool(&pool(json!({})), &silent), Some(REQUIREMENTS_DRIFTED), "a label is missing");
    }

    #[test]
    fn machines_that_are_no_longer_sold_are_noticed() {
        let catalog = millpond_api::catalog::built_in("kwok").unwrap();
        let is_sold = |name: &str, zone: &str, bought: &str| {
            let labels = json!({INSTANCE_TYPE: name, ZONE: zone, CAPACITY_TYPE: bought});
            is_sold(catalog, &claim("", "", labels))
        };
        assert!(is_sold("c-4x-amd64-linux", "test-zone-a", "spot"));
        assert!(is_sold("c-4x-amd64-linux", "test-zone-a", "reserved"), "it may be on-demand by now");
        assert!(!is_sold("c-5x-amd64-linux", "test-zone-a", "spot"));
        assert!(!is_sold("c-4x-amd64-linux", "elsewhere", "spot"));
    }
}
