//! How long pods wait for a node, and until they run.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use millpond_api::time::Time;
use millpond_runtime::meta::{node_name, phase};

use crate::context::Context;

/// Counts every pod that gets a node or begins to run from now on.
pub(crate) fn listen(context: &Arc<Context>) {
    let weak = Arc::downgrade(context);
    context.cluster.pods.on_change(move |before, after| {
        // A pod that is seen for the first time may have been running for long.
        let (Some(context), Some(before), Some(after)) = (weak.upgrade(), before, after) else { return };
        let age =
            || after.metadata.creation_timestamp.as_ref().map(|time| context.cluster.since(Time(time.0.as_second())));
        if has_come(before, after, |pod| node_name(pod).is_some()) {
            age().into_iter().for_each(|age| context.metrics.pod_bound(age));
        }
        if has_come(before, after, |pod| phase(pod) == "Running") {
            age().into_iter().for_each(|age| context.metrics.pod_started(age));
        }
    });
}

fn has_come(before: &Pod, after: &Pod, is: impl Fn(&Pod) -> bool) -> bool {
    !is(before) && is(after)
}
