//! Records as Nodepool and Zuul write them.

use super::*;

fn text<T: serde::Serialize>(record: &T) -> String {
    String::from_utf8(to_bytes(record)).unwrap()
}

#[test]
fn a_request_has_all_thirteen_keys_in_order() {
    let short = br#"{"state": "requested", "state_time": 1.5, "node_types": ["fedora"]}"#;
    let request: NodeRequest = parse("/nodepool/requests/100-0000000000", short).unwrap();
    insta::assert_snapshot!(text(&request), @r#"
{"state":"requested","state_time":1.5,"declined_by":[],"node_types":["fedora"],"nodes":[],"reuse":true,"requestor":null,"requestor_data":null,"provider":null,"relative_priority":0,"event_id":null,"created_time":null,"tenant_name":null}
"#);
}

#[test]
fn unknown_keys_of_a_request_survive() {
    let stored = br#"{"_oldid": 7, "state": "pending", "state_time": 2, "declined_by": null, "node_types": ["a", "b"],
        "nodes": ["0000000001"], "reuse": false, "requestor": "zuul", "requestor_data": {"z": 1, "a": null},
        "provider": "p", "relative_priority": 3, "event_id": "e", "created_time": 1.25, "tenant_name": "t"}"#;
    let mut request: NodeRequest = parse("x", stored).unwrap();
    assert_eq!((request.reuse, request.relative_priority, request.declined_by.len()), (false, 3, 0));
    request.set_state(RequestState::Fulfilled, 3.5);
    insta::assert_snapshot!(text(&request), @r#"
{"state":"fulfilled","state_time":3.5,"declined_by":[],"node_types":["a","b"],"nodes":["0000000001"],"reuse":false,"requestor":"zuul","requestor_data":{"z": 1, "a": null},"provider":"p","relative_priority":3,"event_id":"e","created_time":1.25,"tenant_name":"t","_oldid":7}
"#);
}

#[test]
fn a_node_has_nodepools_keys_in_order() {
    let mut node = Node::new(NodeState::Ready, 10.0);
    node.labels = vec!["fedora".to_owned()];
    insta::assert_snapshot!(text(&node), @r#"
{"state":"ready","state_time":10.0,"cloud":null,"provider":null,"pool":null,"type":["fedora"],"allocated_to":null,"az":null,"region":null,"public_ipv4":null,"private_ipv4":null,"public_ipv6":null,"host_id":null,"interface_ip":null,"connection_port":22,"ssh_port":22,"image_id":null,"launcher":null,"created_time":10.0,"external_id":null,"hostname":null,"comment":null,"user_data":null,"hold_job":null,"host_keys":[],"username":null,"connection_type":null,"shell_type":null,"hold_expiration":null,"resources":null,"slot":null,"attributes":null,"python_path":null,"tenant_name":null,"driver_data":null,"requestor":null,"node_properties":{}}
"#);
}

#[test]
fn old_nodes_are_understood() {
    let stored = br#"{"state": "in-use", "type": "fedora", "ssh_port": 2222, "hold_expiration": "60", "id": "1"}"#;
    let node: Node = parse("x", stored).unwrap();
    assert_eq!(node.labels, ["fedora"]);
    assert_eq!((node.connection_port.as_i64(), node.hold_expiration), (Some(2222), Some(60)));
    assert_eq!(node.username.as_deref(), Some("zuul"));
    assert_eq!(node.others["id"], "1");
    let node: Node =
        parse("x", br#"{"state": "hold", "connection_port": {"token": "t"}, "hold_expiration": "x"}"#).unwrap();
    assert_eq!((node.connection_port.as_i64(), node.hold_expiration), (None, Some(0)));
    assert_eq!(node.ssh_port, node.connection_port);
}

#[test]
fn damaged_records_name_their_path() {
    for damaged in [&b""[..], b"{", b"[]", br#"{"state": "dancing"}"#, b"\xff"] {
        let error = parse::<Node>("/nodepool/nodes/0000000007", damaged).unwrap_err();
        assert_eq!(error.to_string(), "read `/nodepool/nodes/0000000007`");
    }
    let error = parse::<Node>("/x", &vec![b' '; LIMIT_BYTES + 1]).unwrap_err();
    assert_eq!(error.to_string(), "`/x` has 1048577 bytes, more than 1048576");
}

#[test]
fn components_are_written_as_nodepool_does() {
    insta::assert_snapshot!(text(&Component::running(ComponentKind::Launcher, "nl01", "1.0")), @r#"
{"hostname":"nl01","kind":"launcher","model_api":0,"state":"running","version":"1.0"}
"#);
    let pool: PoolComponent =
        parse("x", br#"{"hostname": "h", "kind": "pool", "state": "running", "later": 1}"#).unwrap();
    insta::assert_snapshot!(text(&pool), @r#"
{"hostname":"h","id":null,"kind":"pool","model_api":0,"name":null,"paused":false,"priority":100,"provider_name":null,"state":"running","supported_labels":[],"version":null}
"#);
}
