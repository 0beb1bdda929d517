//! What a host remembers about NodeClaims: the one that has it, and those that had it.

use kube::ResourceExt as _;
use millpond_api::node_class::Kubelet;
use millpond_providers::{Instance, InstanceState};
use millpond_runtime::meta::annotation;
use serde::{Deserialize, Serialize};

use super::INSTANCE;
use crate::kinds::ByoHost;
use crate::state::{phase, phase_of_claim};

/// Tokens of the NodeClaims that a host was given to, the last one at the end (annotation, on a ByoHost).
const SERVED: &str = "millpond.dev/served-nodeclaims";
/// A host remembers this many; controllers ask again for a NodeClaim that ended for minutes, not for days.
const LIMIT_SERVED: usize = 16;

/// What a host was given to a NodeClaim as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) instance: Instance,
    /// Settings of kubelet of the class at that time.
    #[serde(default, skip_serializing_if = "Kubelet::is_default")]
    pub(super) kubelet: Kubelet,
}

/// The record of a host that a NodeClaim has; `None` if it is another host's.
pub(super) fn of(host: &ByoHost) -> Option<Record> {
    let mut record: Record = serde_json::from_str(annotation(host, INSTANCE)?).ok()?;
    record.instance.state = state(host, &record.instance.token);
    Some(record)
}

fn state(host: &ByoHost, token: &str) -> InstanceState {
    match &host.spec.claim {
        Some(claim) if claim.machine_uid == token => match phase_of_claim(&host.view()) {
            phase::APPLIED => InstanceState::Running,
            _ => InstanceState::Pending,
        },
        _ => InstanceState::Ending,
    }
}

/// Whether a host was given to a NodeClaim before.
pub(super) fn has_served(host: &ByoHost, token: &str) -> bool {
    served(host).contains(&token)
}

/// The annotation of a host that is given to one more NodeClaim.
pub(super) fn with_served(host: &ByoHost, token: &str) -> (&'static str, String) {
    let mut tokens = served(host);
    tokens.push(token);
    let first = tokens.len().saturating_sub(LIMIT_SERVED);
    (SERVED, tokens[first..].join(" "))
}

fn served(host: &ByoHost) -> Vec<&str> {
    host.annotations().get(SERVED).map(|text| text.split_whitespace().collect()).unwrap_or_default()
}
