//! The end of a claim.

use std::sync::Arc;
use std::time::Duration;

use millpond_runtime::error::Result;

use crate::context::Context;
use crate::kinds::NodeClaim;

/// Brings a claim that is being deleted to its end.
pub async fn reconcile(_context: &Arc<Context>, _claim: &Arc<NodeClaim>) -> Result<Option<Duration>> {
    Ok(None)
}
