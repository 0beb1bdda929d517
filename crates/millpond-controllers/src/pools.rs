//! What pools and classes say about themselves: whether they are ready, and what their nodes add up to.

use millpond_api::karpenter as api;

use crate::context::api_meta;
use crate::kinds::NodePool;

/// The hash of what a pool's template says.
pub fn hash(pool: &NodePool) -> String {
    api_pool(pool).hash()
}

/// A pool as the planner reads it.
pub fn api_pool(pool: &NodePool) -> api::NodePool {
    api::NodePool { metadata: api_meta(&pool.metadata), spec: pool.spec.clone(), status: pool.status.clone() }
}
