//! The log of a decision: the lines of the operator that the kind comes from, once for each decision.

use std::collections::{HashMap, HashSet};

use kube::ResourceExt as _;
use parking_lot::Mutex;

use crate::answer::Ranking;
use crate::kinds::GPUInfo;

/// Nodes that are named besides the winner: a large cluster has thousands.
const LIMIT_OTHERS: usize = 10;

/// The last logged decision of each GPUInfo, by uid.
#[derive(Default)]
pub(super) struct Log {
    told: Mutex<HashMap<String, Told>>,
}

#[derive(PartialEq, Eq)]
struct Told {
    generation: Option<i64>,
    best: Option<String>,
    suitable: usize,
}

impl Log {
    /// Logs a decision, unless it is the one that was logged before.
    pub(super) fn tell(&self, info: &GPUInfo, nodes: usize, ranking: &Ranking<'_>, kept: bool) {
        let best = ranking.best().map(|node| node.name.clone());
        let told = Told { generation: info.metadata.generation, best, suitable: ranking.suitable.len() };
        let uid = info.uid().unwrap_or_default();
        if kept || self.told.lock().get(&uid) == Some(&told) {
            return;
        }
        self.told.lock().insert(uid, told);
        let (namespace, name) = (info.namespace().unwrap_or_default(), info.name_any());
        let gpuinfo = format!("{namespace}/{name}");
        tracing::info!(gpuinfo, "received reconcile request for \"{name}\" (namespace: \"{namespace}\")");
        tracing::info!(gpuinfo, "DEBUG: found {nodes} nodes in cluster");
        if ranking.suitable.is_empty() {
            tracing::info!(gpuinfo, "Found  *** NO *** suitable candidates for the long running job");
            return;
        }
        let count = ranking.suitable.len();
        tracing::info!(gpuinfo, "Found a total of *** {count} *** suitable candidates for the long running job");
        for (node, _) in ranking.suitable.iter().skip(1).take(LIMIT_OTHERS) {
            tracing::info!(gpuinfo, "DEBUG: multiple candidates : Node {} is not the winning candidate", node.name);
        }
        if let Some(more) = count.checked_sub(1 + LIMIT_OTHERS).filter(|more| *more > 0) {
            tracing::info!(gpuinfo, "DEBUG: multiple candidates : {more} more are not the winning candidate");
        }
    }

    /// Forgets those that are gone.
    pub(super) fn forget(&self, uids: &HashSet<String>) {
        self.told.lock().retain(|uid, _| uids.contains(uid));
    }

    /// Forgets all.
    pub(super) fn forget_all(&self) {
        self.told.lock().clear();
    }
}
