//! Objects as records and back.

use serde_json::json;

use super::kinds::{CINode, NodeRequest};
use super::record;
use crate::engine::Lock;
use crate::launcher::Key;
use crate::model::{Json, Node, NodeState, RequestState};
use crate::objects::state::State;
use std::sync::Arc;

fn request(uid: &str, state: Option<&str>) -> Arc<NodeRequest> {
    let mut object = json!({
        "metadata": {
            "name": "build-1", "namespace": "ci", "uid": uid, "resourceVersion": "7",
            "creationTimestamp": "2026-11-16T04:30:00Z",
        },
        "spec": {"labels": ["a", "b"], "priority": 3, "tenant": "acme", "reuse": false},
    });
    if let Some(state) = state {
        object["status"] = json!({"state": state, "nodes": [{"id": "0000000001"}]});
    }
    Arc::new(serde_json::from_value(object).unwrap())
}

fn node(state: &str, uid: &str, version: u32) -> Arc<CINode> {
    let object = json!({
        "metadata": {"name": "0000000001", "resourceVersion": version.to_string()},
        "spec": {"provider": "rack", "pool": "main", "labels": ["a"]},
        "status": {"state": state, "request": {"namespace": "ci", "name": "build-1", "uid": uid}},
    });
    Arc::new(serde_json::from_value(object).unwrap())
}

#[test]
fn a_request_is_read_with_all_that_the_engine_asks_for() {
    let object = request("u-1", Some("pending"));
    assert_eq!(record::request_id(&object), "200-1794803400-u-1");
    assert_eq!(record::uid_of("200-1794803400-u-1"), "u-1");
    let request = record::request_of(&object);
    assert_eq!(
        (request.state, request.node_types, request.reuse),
        (RequestState::Pending, vec!["a".into(), "b".into()], false)
    );
    assert_eq!((request.relative_priority, request.tenant_name.as_deref()), (3, Some("acme")));
    assert_eq!(request.nodes, ["0000000001"]);
}

#[test]
fn a_node_comes_back_as_it_was_without_its_token() {
    let mut node = Node::new(NodeState::Ready, 5.5);
    node.provider = Some("pods".to_owned());
    node.labels = vec!["a".to_owned()];
    node.interface_ip = Some("a-0000000001".to_owned());
    node.python_path = Some("auto".to_owned());
    node.host_keys = vec!["ssh-ed25519 AAAA".to_owned()];
    node.region = Some("here".to_owned());
    node.set_port(Json::of(&json!({"pod": "a-0000000001", "namespace": "ci", "token": "hunter2"})));
    node.others.insert("of-others".to_owned(), json!({"kept": true}));
    let (object, credentials) = record::object_of("0000000001", &node, None);
    let text = serde_json::to_string(&object).unwrap();
    assert!(!text.contains("hunter2"), "{text}");
    assert_eq!(credentials.unwrap()["token"], "hunter2");
    let mut again = record::node_of(&object, None);
    assert_eq!(again.connection_port.text(), r#"{"namespace":"ci","pod":"a-0000000001"}"#);
    again.set_port(node.connection_port.clone());
    assert_eq!(again, node);
}

#[test]
fn a_node_in_use_counts_as_used_once_its_request_is_gone() {
    let mut state = State::default();
    let fulfilled = request("u-1", Some("fulfilled"));
    state.request_changed(None, Some(&fulfilled));
    state.node_changed(None, Some(&node("in-use", "u-1", 8)));
    let seen = |state: &State| {
        let records = state.records();
        let node = &records.nodes["0000000001"];
        (node.record.state, node.lock, node.revision)
    };
    assert_eq!(seen(&state), (NodeState::InUse, Lock::Other, 8));
    assert!(!state.lock(&Key::Node("0000000001".to_owned())));
    state.request_changed(Some(&fulfilled), None);
    assert_eq!(seen(&state), (NodeState::Used, Lock::Free, 8));
    assert!(state.lock(&Key::Node("0000000001".to_owned())));
    assert!(!state.lock(&Key::Node("0000000001".to_owned())), "it is held already");
    // A request of the same name is another one.
    state.request_changed(None, Some(&request("u-2", Some("fulfilled"))));
    assert_eq!(seen(&state).0, NodeState::Used);
}

#[test]
fn a_lost_hand_out_is_never_given_to_another() {
    let mut state = State::default();
    let pending = request("u-1", Some("pending"));
    state.request_changed(None, Some(&pending));
    state.node_changed(None, Some(&node("in-use", "u-1", 8)));
    assert_eq!(state.records().nodes["0000000001"].lock, Lock::Other);
    // After a restart the engine releases the request; its nodes are then deleted, as they may have been used.
    let requested = request("u-1", Some("requested"));
    state.request_changed(Some(&pending), Some(&requested));
    let records = state.records();
    assert_eq!(
        (records.nodes["0000000001"].record.state, records.nodes["0000000001"].lock),
        (NodeState::Used, Lock::Free)
    );
}

#[test]
fn a_request_that_is_being_deleted_holds_nothing() {
    let mut state = State::default();
    let before = request("u-1", Some("fulfilled"));
    state.request_changed(None, Some(&before));
    state.node_changed(None, Some(&node("in-use", "u-1", 8)));
    let mut leaving = (*before).clone();
    leaving.metadata.deletion_timestamp = before.metadata.creation_timestamp.clone();
    state.request_changed(Some(&before), Some(&Arc::new(leaving)));
    assert!(state.records().requests.is_empty());
    assert_eq!(state.records().nodes["0000000001"].record.state, NodeState::Used);
}

#[test]
fn reasons_alone_are_no_new_revision() {
    let mut state = State::default();
    let before = request("u-1", Some("requested"));
    state.request_changed(None, Some(&before));
    let mut after = (*before).clone();
    after.metadata.resource_version = Some("9".to_owned());
    after.status.reasons = vec![millpond_api::ci::PoolReason::default()];
    state.request_changed(Some(&before), Some(&Arc::new(after)));
    let (object, _, revision) = state.request("200-1794803400-u-1").unwrap();
    assert_eq!((object.metadata.resource_version.as_deref(), revision), (Some("9"), 7));
}
