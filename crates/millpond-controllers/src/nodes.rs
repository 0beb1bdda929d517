//! Functions that read Node objects.

use k8s_openapi::api::core::v1::{Node, NodeCondition};

/// The condition of a node of that type.
pub(crate) fn condition<'n>(node: &'n Node, kind: &str) -> Option<&'n NodeCondition> {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref());
    conditions.unwrap_or_default().iter().find(|condition| condition.type_ == kind)
}

/// Whether its kubelet reports it as ready.
pub(crate) fn is_ready(node: &Node) -> bool {
    condition(node, "Ready").is_some_and(|condition| condition.status == "True")
}

/// Its provider id.
pub(crate) fn machine(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref().filter(|id| !id.is_empty())
}
