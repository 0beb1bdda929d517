//! The hash of a pool's template, written on the pool, and carried over to its claims when the way it is made changes.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use millpond_api::condition::find;
use millpond_api::karpenter::{HASH_ANNOTATION, HASH_VERSION, HASH_VERSION_ANNOTATION, conditions};
use millpond_runtime::error::Result;
use millpond_runtime::meta::{Key, is_leaving};
use millpond_runtime::queue::Queue;
use millpond_runtime::worker::Reconcile;
use serde_json::{Map, Value, json};

use crate::cluster::is_ours;
use crate::context::Context;
use crate::kinds::{NodeClaim, NodePool};

/// Writes the hashes of pools.
pub struct Hashes {
    context: Arc<Context>,
}

impl Hashes {
    /// Requeues a pool when it changes.
    pub fn listen(context: &Arc<Context>, queue: &Arc<Queue<Key>>) -> Self {
        let pools = Arc::clone(queue);
        context.cluster.pools.on_change(move |_, after| {
            if let Some(pool) = after {
                pools.add(Key::of(&**pool));
            }
        });
        Self { context: Arc::clone(context) }
    }
}

impl Reconcile for Hashes {
    const NAME: &'static str = "hashes";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let cluster = &self.context.cluster;
        let pool = cluster.pools.get(key).filter(|pool| is_ours(pool) && !is_leaving(&**pool));
        let Some(pool) = pool else { return Ok(None) };
        let hash = crate::pools::hash(&pool);
        if pool.annotations().get(HASH_VERSION_ANNOTATION).map(String::as_str) != Some(HASH_VERSION) {
            // Claims first: as long as the pool has the old version, this is done again after a crash.
            for claim in cluster.claims.indexed(&key.name) {
                if let Some(annotations) = carried_over(&claim, &hash) {
                    let patch = json!({"metadata": {"annotations": annotations}});
                    cluster.claims.patch(&Key::of(&*claim), &patch).await?;
                }
            }
        }
        if let Some(annotations) = missing(&pool, &hash) {
            cluster.pools.patch(key, &json!({"metadata": {"annotations": annotations}})).await?;
        }
        Ok(None)
    }
}

/// The annotations that a pool lacks.
fn missing(pool: &NodePool, hash: &str) -> Option<Map<String, Value>> {
    let wanted = [(HASH_ANNOTATION, hash), (HASH_VERSION_ANNOTATION, HASH_VERSION)];
    let lacking =
        wanted.into_iter().filter(|(name, value)| pool.annotations().get(*name).map(String::as_str) != Some(*value));
    let lacking: Map<String, Value> = lacking.map(|(name, value)| (name.to_owned(), json!(value))).collect();
    (!lacking.is_empty()).then_some(lacking)
}

/// The annotations for a claim with a hash of another version. Whether it would have drifted by the new hash is
/// unknown: a claim that has not drifted gets the pool's current hash, one that has drifted stays drifted.
fn carried_over(claim: &NodeClaim, hash: &str) -> Option<Map<String, Value>> {
    if claim.annotations().get(HASH_VERSION_ANNOTATION).map(String::as_str) == Some(HASH_VERSION) {
        return None;
    }
    let mut carried = Map::new();
    carried.insert(HASH_VERSION_ANNOTATION.to_owned(), json!(HASH_VERSION));
    if find(&claim.status.conditions, conditions::DRIFTED).is_none() {
        carried.insert(HASH_ANNOTATION.to_owned(), json!(hash));
    }
    Some(carried)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(version: &str, conditions: Value) -> NodeClaim {
        serde_json::from_value(json!({
            "metadata": {"name": "a", "annotations": {HASH_VERSION_ANNOTATION: version, HASH_ANNOTATION: "old"}},
            "spec": {"requirements": [], "nodeClassRef": {}},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    #[test]
    fn hashes_of_an_older_version_are_carried_over() {
        let reported = |claim: &NodeClaim| carried_over(claim, "new").map(Value::Object);
        assert_eq!(reported(&claim(HASH_VERSION, json!([]))), None);
        assert_eq!(
            reported(&claim("v1", json!([]))),
            Some(json!({HASH_VERSION_ANNOTATION: HASH_VERSION, HASH_ANNOTATION: "new"}))
        );
        let drifted = json!([{"type": "Drifted", "status": "True"}]);
        assert_eq!(reported(&claim("v1", drifted)), Some(json!({HASH_VERSION_ANNOTATION: HASH_VERSION})));
    }

    #[test]
    fn a_pool_is_written_only_where_something_is_missing() {
        let pool = |annotations: Value| -> NodePool {
            serde_json::from_value(json!({
                "metadata": {"name": "a", "annotations": annotations},
                "spec": {"template": {"spec": {"requirements": [], "nodeClassRef": {}}}},
            }))
            .unwrap()
        };
        let full = json!({HASH_ANNOTATION: "1", HASH_VERSION_ANNOTATION: HASH_VERSION});
        assert_eq!(missing(&pool(full.clone()), "1"), None);
        assert_eq!(missing(&pool(full.clone()), "2").map(Value::Object), Some(json!({HASH_ANNOTATION: "2"})));
        assert_eq!(missing(&pool(json!({})), "1").map(Value::Object), Some(full));
    }
}
