//! Between objects and the records that the engine decides on. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use millpond_api::ci::{self, CINodeSpec, CINodeStatus, ConnectedNode, RequestPhase, RequestReference};
use serde_json::{Map, Value};

use super::kinds::{CINode, NodeRequest};
use crate::engine::LIMIT_NODES;
use crate::model::{self, Json, Node, NodeState, RequestState};

/// Keys of a connection that must not be in an object that others may list.
const CREDENTIALS: [&str; 2] = ["token", "password"];
/// Keys of Nodepool's records that the object has fields of its own for.
const OWN_FIELDS: [&str; 19] = [
    "state",
    "state_time",
    "created_time",
    "provider",
    "pool",
    "type",
    "slot",
    "resources",
    "allocated_to",
    "tenant_name",
    "requestor",
    "launcher",
    "external_id",
    "hostname",
    "interface_ip",
    "connection_type",
    "connection_port",
    "username",
    "comment",
];

/// The id of a request as the engine sorts it: precedence, then age. It ends with the uid, so that a request of the same
/// name later is another one.
pub fn request_id(request: &NodeRequest) -> String {
    let created = request.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
    let uid = request.metadata.uid.as_deref().unwrap_or_default();
    format!("{}-{created:010}-{uid}", request.spec.precedence.prefix())
}

/// The uid in the id of a request.
pub(super) fn uid_of(id: &str) -> &str {
    id.splitn(3, '-').nth(2).unwrap_or(id)
}

/// A request as the engine reads it.
pub fn request_of(object: &NodeRequest) -> model::NodeRequest {
    let (spec, status) = (&object.spec, &object.status);
    let created = object.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()) as f64;
    let mut request = model::NodeRequest::new(spec.node_types(LIMIT_NODES), created);
    request.state = match status.state {
        None | Some(RequestPhase::Requested) => RequestState::Requested,
        Some(RequestPhase::Pending) => RequestState::Pending,
        Some(RequestPhase::Fulfilled) => RequestState::Fulfilled,
        Some(RequestPhase::Failed) => RequestState::Failed,
    };
    request.state_time = status.since.map_or(created, |time| time.0 as f64);
    request.declined_by.clone_from(&status.declined_by);
    request.nodes = status.nodes.iter().map(|node| node.id.clone()).collect();
    request.reuse = spec.reuse.unwrap_or(true);
    request.requestor.clone_from(&spec.requestor);
    request.provider.clone_from(&spec.provider);
    request.relative_priority = spec.priority;
    request.event_id.clone_from(&spec.event_id);
    request.tenant_name.clone_from(&spec.tenant);
    request
}

/// The state of a request in its object.
pub(super) fn phase(state: RequestState) -> RequestPhase {
    match state {
        RequestState::Requested => RequestPhase::Requested,
        RequestState::Pending => RequestPhase::Pending,
        RequestState::Fulfilled => RequestPhase::Fulfilled,
        RequestState::Failed => RequestPhase::Failed,
    }
}

/// A node as the engine reads it; `allocated_to` is the id of the request, or its uid where the request is gone.
pub fn node_of(object: &CINode, allocated_to: Option<String>) -> Node {
    let (spec, status) = (&object.spec, &object.status);
    // An unknown state is of a newer launcher: the node is kept, and not handed out.
    let state = serde_json::from_value(Value::String(status.state.clone())).unwrap_or(NodeState::Hold);
    let mut fields = status.facts.clone();
    fields.insert("state".to_owned(), Value::String(state.name().to_owned()));
    let mut node: Node =
        serde_json::from_value(Value::Object(fields)).unwrap_or_else(|_| Node::new(state, status.state_time));
    node.state_time = status.state_time;
    node.created_time = status.created_time;
    node.provider.clone_from(&spec.provider);
    node.pool.clone_from(&spec.pool);
    node.labels.clone_from(&spec.labels);
    node.slot = spec.slot;
    node.resources = (!spec.resources.is_empty()).then(|| spec.resources.clone());
    node.allocated_to = allocated_to;
    node.tenant_name.clone_from(&status.tenant);
    node.requestor.clone_from(&status.requestor);
    node.launcher.clone_from(&status.launcher);
    node.external_id.clone_from(&status.external_id);
    node.hostname.clone_from(&status.hostname);
    node.interface_ip.clone_from(&status.interface_ip);
    node.connection_type.clone_from(&status.connection_type);
    node.set_port(status.connection_port.as_ref().map_or_else(|| Json::of(&22), Json::of));
    node.username.clone_from(&status.username);
    node.comment.clone_from(&status.comment);
    // Nodepool writes an empty map where nothing is known.
    node.node_properties.get_or_insert_default();
    node
}

/// The object of a node, without its credentials, and the credentials where it has some.
pub(super) fn object_of(
    name: &str,
    node: &Node,
    request: Option<RequestReference>,
) -> (CINode, Option<Map<String, Value>>) {
    let port: Value = serde_json::from_str(node.connection_port.text()).unwrap_or(Value::Null);
    let (port, credentials) = without_credentials(port);
    let mut object = CINode::new(
        ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        CINodeSpec {
            provider: node.provider.clone(),
            pool: node.pool.clone(),
            labels: node.labels.clone(),
            slot: node.slot,
            resources: node.resources.clone().unwrap_or_default(),
        },
    );
    object.status = CINodeStatus {
        state: node.state.name().to_owned(),
        state_time: node.state_time,
        created_time: node.created_time,
        request,
        tenant: node.tenant_name.clone(),
        requestor: node.requestor.clone(),
        launcher: node.launcher.clone(),
        external_id: node.external_id.clone(),
        hostname: node.hostname.clone(),
        interface_ip: node.interface_ip.clone(),
        connection_type: node.connection_type.clone(),
        connection_port: Some(port),
        secret_name: None,
        username: node.username.clone(),
        comment: node.comment.clone(),
        facts: facts(node),
    };
    (object, credentials)
}

/// What the object has no field for.
fn facts(node: &Node) -> Map<String, Value> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(node) else { return Map::new() };
    fields.remove("ssh_port");
    fields.retain(|name, value| {
        let says_nothing = value.is_null()
            || value.as_array().is_some_and(Vec::is_empty)
            || value.as_object().is_some_and(Map::is_empty);
        !says_nothing && !OWN_FIELDS.contains(&name.as_str())
    });
    fields
}

/// Splits a connection into what everybody may read and the rest.
fn without_credentials(port: Value) -> (Value, Option<Map<String, Value>>) {
    let Value::Object(all) = port else { return (port, None) };
    let (secret, open): (Map<String, Value>, Map<String, Value>) =
        all.into_iter().partition(|(key, _)| CREDENTIALS.contains(&key.as_str()));
    (Value::Object(open), (!secret.is_empty()).then_some(secret))
}

/// A node as the status of its request shows it.
pub(super) fn connected(id: &str, label: &str, node: &CINode, secret: Option<String>) -> ConnectedNode {
    let (spec, status) = (&node.spec, &node.status);
    let fact = |key: &str| status.facts.get(key).and_then(Value::as_str).map(ToOwned::to_owned);
    let port = status.connection_port.as_ref();
    let part = |key: &str| port.and_then(|port| port.get(key)).and_then(Value::as_str).map(ToOwned::to_owned);
    let keys = status.facts.get("host_keys").and_then(Value::as_array);
    let attributes: BTreeMap<String, Value> = match status.facts.get("attributes") {
        Some(Value::Object(attributes)) => attributes.clone().into_iter().collect(),
        _ => BTreeMap::new(),
    };
    ConnectedNode {
        id: id.to_owned(),
        label: label.to_owned(),
        provider: spec.provider.clone(),
        pool: spec.pool.clone(),
        hostname: status.hostname.clone(),
        interface_ip: status.interface_ip.clone(),
        public_ipv4: fact("public_ipv4"),
        private_ipv4: fact("private_ipv4"),
        public_ipv6: fact("public_ipv6"),
        region: fact("region"),
        az: fact("az"),
        connection_type: status.connection_type.clone(),
        connection_port: port.and_then(Value::as_i64),
        username: status.username.clone(),
        host_keys: keys.into_iter().flatten().filter_map(|key| key.as_str().map(ToOwned::to_owned)).collect(),
        python_path: fact("python_path"),
        shell_type: fact("shell_type"),
        namespace: part("namespace"),
        pod: part("pod"),
        secret_name: secret,
        attributes,
    }
}

/// The request of an object, as records of its nodes name it.
pub(super) fn reference(object: &NodeRequest) -> RequestReference {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    RequestReference {
        namespace: text(&object.metadata.namespace),
        name: text(&object.metadata.name),
        uid: text(&object.metadata.uid),
    }
}

/// A status with only the state.
pub(super) fn status_of(request: &model::NodeRequest, nodes: Vec<ConnectedNode>) -> ci::NodeRequestStatus {
    ci::NodeRequestStatus {
        state: Some(phase(request.state)),
        since: Some(millpond_api::time::Time(request.state_time as i64)),
        nodes,
        declined_by: request.declined_by.clone(),
        reasons: Vec::new(),
        conditions: Vec::new(),
    }
}
