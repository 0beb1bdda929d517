//! Tables and JSON beside what PrettyTable and Nodepool print.

use super::*;
use crate::model::{Json, Node, NodeRequest, NodeState, parse};

const NOW: f64 = 1_000_000.5;

#[test]
fn ages_are_nodepools() {
    let cases =
        [(0.0, "00:00:00:00"), (59.9, "00:00:00:59"), (86_400.0 + 3_661.0, "01:01:01:01"), (1e7, "115:17:46:40")];
    for (seconds, expected) in cases {
        assert_eq!(age(NOW - seconds, NOW), expected);
    }
    // A clock of another machine is ahead.
    assert_eq!(age(NOW + 0.5, NOW), "-1:23:59:59");
}

fn nodes() -> (Node, Node) {
    let mut ready = Node::new(NodeState::Ready, NOW - 61.0);
    ready.provider = Some("rack".to_owned());
    ready.pool = Some("main".to_owned());
    ready.labels = vec!["small".to_owned(), "large".to_owned()];
    ready.external_id = Some("host-1".to_owned());
    ready.user_data = Some(parse("x", br#"{"zuul_system": "s", "project_name": null}"#).unwrap());
    let mut pod = Node::new(NodeState::InUse, NOW);
    pod.set_port(Json::of(&serde_json::json!({"token": "hunter2"})));
    (ready, pod)
}

#[test]
fn nodes_as_a_table() {
    let (ready, pod) = nodes();
    let listed = [
        ListedNode { id: "0000000001", node: &ready, locked: false },
        ListedNode { id: "0000000002", node: &pod, locked: true },
    ];
    let listing = node_list(&listed, NOW);
    insta::assert_snapshot!(listing.table(Some(NODE_FIELDS), NOW), @r#"
+------------+----------+-------------+-----------+-------------+------+--------+-------------+----------+
| ID         | Provider | Label       | Server ID | Public IPv4 | IPv6 | State  | Age         | Locked   |
+------------+----------+-------------+-----------+-------------+------+--------+-------------+----------+
| 0000000001 | rack     | small,large | host-1    |             |      | ready  | 00:00:01:01 | unlocked |
| 0000000002 |          |             |           |             |      | in-use | 00:00:00:00 | locked   |
+------------+----------+-------------+-----------+-------------+------+--------+-------------+----------+
"#);
    insta::assert_snapshot!(listing.table(Some(&["id", "AZ", "connection_port", "user_data", "none"]), NOW), @r#"
+------------+----+----------+--------------------------------------------+
| ID         | AZ | Port     | User Data                                  |
+------------+----+----------+--------------------------------------------+
| 0000000001 |    | 22       | {'zuul_system': 's', 'project_name': None} |
| 0000000002 |    | redacted |                                            |
+------------+----+----------+--------------------------------------------+
"#);
    assert!(!listing.table(None, NOW).contains("hunter2"));
}

#[test]
fn nodes_as_json() {
    let (ready, pod) = nodes();
    let listed =
        [ListedNode { id: "1", node: &ready, locked: false }, ListedNode { id: "2", node: &pod, locked: true }];
    let json = node_list(&listed, NOW).json();
    assert!(!json.contains("hunter2"));
    insta::assert_snapshot!(json, @r#"
[{"id":"1","provider":"rack","label":["small","large"],"server_id":"host-1","public_ipv4":null,"ipv6":null,"state":"ready","age":"00:00:01:01","locked":"unlocked","pool":"main","hostname":null,"private_ipv4":null,"AZ":null,"username":null,"connection_port":22,"launcher":null,"allocated_to":null,"hold_job":null,"comment":null,"user_data":{"zuul_system": "s", "project_name": null},"driver_data":null},{"id":"2","provider":null,"label":[],"server_id":null,"public_ipv4":null,"ipv6":null,"state":"in-use","age":"00:00:00:00","locked":"locked","pool":null,"hostname":null,"private_ipv4":null,"AZ":null,"username":null,"connection_port":"redacted","launcher":null,"allocated_to":null,"hold_job":null,"comment":null,"user_data":null,"driver_data":null}]
"#);
}

#[test]
fn an_empty_table_has_its_header() {
    insta::assert_snapshot!(request_list(&[]).table(None, NOW), @r#"
+------------+----------+-------+-----------+------------+-------+-------------+----------+
| Request ID | Priority | State | Requestor | Node Types | Nodes | Declined By | Event ID |
+------------+----------+-------+-----------+------------+-------+-------------+----------+
+------------+----------+-------+-----------+------------+-------+-------------+----------+
"#);
    assert_eq!(request_list(&[]).json(), "[]");
}

#[test]
fn requests() {
    let mut request = NodeRequest::new(vec!["small".to_owned(), "small".to_owned()], NOW);
    request.nodes = vec!["0000000001".to_owned()];
    let listing = request_list(&[ListedRequest { id: "100-0000000000", request: &request }]);
    insta::assert_snapshot!(listing.table(None, NOW), @r#"
+----------------+----------+-----------+-----------+-------------+------------+-------------+----------+
| Request ID     | Priority | State     | Requestor | Node Types  | Nodes      | Declined By | Event ID |
+----------------+----------+-----------+-----------+-------------+------------+-------------+----------+
| 100-0000000000 | 0        | requested |           | small,small | 0000000001 |             |          |
+----------------+----------+-----------+-----------+-------------+------------+-------------+----------+
"#);
    insta::assert_snapshot!(listing.json(), @r#"
[{"id":"100-0000000000","relative_priority":0,"state":"requested","requestor":null,"node_types":["small","small"],"nodes":["0000000001"],"declined_by":[],"event_id":null}]
"#);
}

#[test]
fn images() {
    let build = BuildEntry {
        image: "fedora".to_owned(),
        id: "abc".to_owned(),
        builder: Some("nb01".to_owned()),
        formats: vec!["qcow2".to_owned(), "raw".to_owned()],
        state: "ready".to_owned(),
        state_time: NOW - 3600.0,
        paused: true,
    };
    insta::assert_snapshot!(dib_image_list(std::slice::from_ref(&build)).table(None, NOW), @r#"
+------------+--------+---------+-----------+--------+-------------+
| ID         | Image  | Builder | Formats   | State  | Age         |
+------------+--------+---------+-----------+--------+-------------+
| fedora-abc | fedora | nb01    | qcow2,raw | paused | 00:01:00:00 |
+------------+--------+---------+-----------+--------+-------------+
"#);
    insta::assert_snapshot!(dib_image_list(std::slice::from_ref(&build)).json(), @r#"
[{"id":"fedora-abc","image":"fedora","builder":"nb01","formats":["qcow2","raw"],"state":"paused","age":996400}]
"#);
    let status = [
        ImageStatusEntry { image: "fedora".to_owned(), paused: false, build_request: Some((NOW - 5.0, false)) },
        ImageStatusEntry { image: "debian".to_owned(), paused: true, build_request: None },
    ];
    insta::assert_snapshot!(image_status(&status).table(None, NOW), @r#"
+--------+--------+---------------+-------------------+
| Image  | Paused | Build Request | Build Request Age |
+--------+--------+---------------+-------------------+
| fedora | False  | pending       | 00:00:00:05       |
| debian | True   |               |                   |
+--------+--------+---------------+-------------------+
"#);
    insta::assert_snapshot!(image_status(&status).json(), @r#"
[{"image":"fedora","paused":false,"build_request":"pending","build_request_age":999995},{"image":"debian","paused":true,"build_request":null,"build_request_age":null}]
"#);
    let upload = UploadEntry {
        build_id: "abc".to_owned(),
        id: "0000000001".to_owned(),
        provider: "cloud".to_owned(),
        image: "fedora".to_owned(),
        external_name: Some("fedora-1".to_owned()),
        external_id: None,
        state: "uploading".to_owned(),
        state_time: NOW,
    };
    insta::assert_snapshot!(image_list(&[upload]).table(None, NOW), @r#"
+----------+------------+----------+--------+---------------------+-------------------+-----------+-------------+
| Build ID | Upload ID  | Provider | Image  | Provider Image Name | Provider Image ID | State     | Age         |
+----------+------------+----------+--------+---------------------+-------------------+-----------+-------------+
| abc      | 0000000001 | cloud    | fedora | fedora-1            |                   | uploading | 00:00:00:00 |
+----------+------------+----------+--------+---------------------+-------------------+-----------+-------------+
"#);
}

#[test]
fn cells_with_several_lines() {
    let listing = Listing {
        columns: &[("a", "A"), ("b", "B")],
        rows: vec![vec![Cell::Text("x\nyy".to_owned()), Cell::Bool(true)]],
    };
    insta::assert_snapshot!(listing.table(None, NOW), @r#"
+----+------+
| A  | B    |
+----+------+
| x  | True |
| yy |      |
+----+------+
"#);
}
