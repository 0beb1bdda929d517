//! A node that was launched, or a slot of a static host.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::{Json, or_default};
use crate::config::Resources;

/// Where a node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// Its record exists, nothing else.
    Init,
    /// It is being launched.
    Building,
    /// It is being tested.
    Testing,
    /// It can be used.
    Ready,
    /// A job runs on it.
    InUse,
    /// A job ran on it.
    Used,
    /// Kept for a person.
    Hold,
    /// It is being deleted.
    Deleting,
    /// It is deleted; the record follows.
    Deleted,
    /// Its launch failed.
    Failed,
    /// Its launch found no capacity.
    Aborted,
}

impl NodeState {
    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Building => "building",
            Self::Testing => "testing",
            Self::Ready => "ready",
            Self::InUse => "in-use",
            Self::Used => "used",
            Self::Hold => "hold",
            Self::Deleting => "deleting",
            Self::Deleted => "deleted",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
        }
    }

    /// Whether a node that no process holds a lock on is deleted in this state: its job or its launcher is gone.
    pub fn is_deleted_when_unlocked(self) -> bool {
        !matches!(self, Self::Ready | Self::Hold)
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A node. Its id is the name of its znode: ten digits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub struct Node {
    /// Where it stands.
    pub state: NodeState,
    /// Since when, in seconds since 1970.
    pub state_time: f64,
    /// The cloud.
    pub cloud: Option<String>,
    /// The provider.
    pub provider: Option<String>,
    /// The provider's pool.
    pub pool: Option<String>,
    /// Its labels.
    #[serde(rename = "type")]
    pub labels: Vec<String>,
    /// The request that it is for.
    pub allocated_to: Option<String>,
    /// Availability zone.
    pub az: Option<String>,
    /// Region.
    pub region: Option<String>,
    /// Public IPv4 address.
    pub public_ipv4: Option<String>,
    /// Private IPv4 address.
    pub private_ipv4: Option<String>,
    /// Public IPv6 address.
    pub public_ipv6: Option<String>,
    /// The cloud's id of the hypervisor.
    pub host_id: Option<String>,
    /// The address that Zuul connects to.
    pub interface_ip: Option<String>,
    /// The port; for pods and namespaces an object with credentials.
    pub connection_port: Json,
    /// A copy of the port for old readers.
    pub ssh_port: Json,
    /// The image.
    pub image_id: Option<String>,
    /// The launcher that made it.
    pub launcher: Option<String>,
    /// When it was made.
    pub created_time: Option<f64>,
    /// The cloud's id of the server.
    pub external_id: Option<String>,
    /// Its name.
    pub hostname: Option<String>,
    /// A person's remark.
    pub comment: Option<String>,
    /// Data of its user's own.
    pub user_data: Option<Json>,
    /// The job that it is held for.
    pub hold_job: Option<String>,
    /// SSH host keys.
    pub host_keys: Vec<String>,
    /// The user that Zuul logs in as.
    pub username: Option<String>,
    /// ssh, winrm, kubectl …
    pub connection_type: Option<String>,
    /// Its shell.
    pub shell_type: Option<String>,
    /// After how many seconds on hold it is deleted.
    pub hold_expiration: Option<i64>,
    /// What it takes of the limits.
    pub resources: Option<Resources>,
    /// The slot of a static host.
    pub slot: Option<u32>,
    /// Attributes of its pool.
    pub attributes: Option<Map<String, Value>>,
    /// Its Python.
    pub python_path: Option<String>,
    /// The tenant whose limits it counts against.
    pub tenant_name: Option<String>,
    /// Data of the driver's own.
    pub driver_data: Option<Json>,
    /// Who asked for it.
    pub requestor: Option<String>,
    /// Spot, fleet …
    pub node_properties: Option<Map<String, Value>>,
    /// Keys that are not known here.
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

impl Node {
    /// A node of a pool, with nothing known about it yet.
    pub fn new(state: NodeState, now: f64) -> Self {
        Self {
            state,
            state_time: now,
            cloud: None,
            provider: None,
            pool: None,
            labels: Vec::new(),
            allocated_to: None,
            az: None,
            region: None,
            public_ipv4: None,
            private_ipv4: None,
            public_ipv6: None,
            host_id: None,
            interface_ip: None,
            connection_port: Json::of(&22),
            ssh_port: Json::of(&22),
            image_id: None,
            launcher: None,
            created_time: Some(now),
            external_id: None,
            hostname: None,
            comment: None,
            user_data: None,
            hold_job: None,
            host_keys: Vec::new(),
            username: None,
            connection_type: None,
            shell_type: None,
            hold_expiration: None,
            resources: None,
            slot: None,
            attributes: None,
            python_path: None,
            tenant_name: None,
            driver_data: None,
            requestor: None,
            node_properties: Some(Map::new()),
            others: BTreeMap::new(),
        }
    }

    /// Sets the state and its time.
    pub fn set_state(&mut self, state: NodeState, now: f64) {
        self.state = state;
        self.state_time = now;
    }

    /// Sets the port under both of its names.
    pub fn set_port(&mut self, port: Json) {
        self.ssh_port = port.clone();
        self.connection_port = port;
    }
}

/// A node as others may have written it: fields absent, labels as one text, the port under its old name only.
#[derive(Deserialize)]
struct Stored {
    state: NodeState,
    #[serde(default, deserialize_with = "or_default")]
    state_time: f64,
    cloud: Option<String>,
    provider: Option<String>,
    pool: Option<String>,
    #[serde(default, rename = "type", deserialize_with = "labels")]
    labels: Vec<String>,
    allocated_to: Option<String>,
    az: Option<String>,
    region: Option<String>,
    public_ipv4: Option<String>,
    private_ipv4: Option<String>,
    public_ipv6: Option<String>,
    host_id: Option<String>,
    interface_ip: Option<String>,
    connection_port: Option<Json>,
    ssh_port: Option<Json>,
    image_id: Option<String>,
    launcher: Option<String>,
    created_time: Option<f64>,
    external_id: Option<String>,
    hostname: Option<String>,
    comment: Option<String>,
    user_data: Option<Json>,
    hold_job: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    host_keys: Vec<String>,
    #[serde(default = "zuul")]
    username: Option<String>,
    connection_type: Option<String>,
    shell_type: Option<String>,
    #[serde(default, deserialize_with = "seconds")]
    hold_expiration: Option<i64>,
    resources: Option<Resources>,
    slot: Option<u32>,
    attributes: Option<Map<String, Value>>,
    python_path: Option<String>,
    tenant_name: Option<String>,
    driver_data: Option<Json>,
    requestor: Option<String>,
    node_properties: Option<Map<String, Value>>,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

impl From<Stored> for Node {
    fn from(stored: Stored) -> Self {
        let port = stored.connection_port.or(stored.ssh_port).unwrap_or_else(|| Json::of(&22));
        Self {
            state: stored.state,
            state_time: stored.state_time,
            cloud: stored.cloud,
            provider: stored.provider,
            pool: stored.pool,
            labels: stored.labels,
            allocated_to: stored.allocated_to,
            az: stored.az,
            region: stored.region,
            public_ipv4: stored.public_ipv4,
            private_ipv4: stored.private_ipv4,
            public_ipv6: stored.public_ipv6,
            host_id: stored.host_id,
            interface_ip: stored.interface_ip,
            ssh_port: port.clone(),
            connection_port: port,
            image_id: stored.image_id,
            launcher: stored.launcher,
            created_time: stored.created_time,
            external_id: stored.external_id,
            hostname: stored.hostname,
            comment: stored.comment,
            user_data: stored.user_data,
            hold_job: stored.hold_job,
            host_keys: stored.host_keys,
            username: stored.username,
            connection_type: stored.connection_type,
            shell_type: stored.shell_type,
            hold_expiration: stored.hold_expiration,
            resources: stored.resources,
            slot: stored.slot,
            attributes: stored.attributes,
            python_path: stored.python_path,
            tenant_name: stored.tenant_name,
            driver_data: stored.driver_data,
            requestor: stored.requestor,
            node_properties: stored.node_properties,
            others: stored.others,
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the default of a field that may be null")]
fn zuul() -> Option<String> {
    Some("zuul".to_owned())
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Labels {
    One(String),
    Several(Vec<String>),
}

fn labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(match Option::<Labels>::deserialize(deserializer)? {
        None => Vec::new(),
        Some(Labels::One(label)) => vec![label],
        Some(Labels::Several(labels)) => labels,
    })
}

/// Seconds as a number or as a text; a text that is no number means that the hold does not expire.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    Ok(match Option::<Value>::deserialize(deserializer)? {
        None => None,
        Some(Value::Number(number)) => number.as_i64().or_else(|| number.as_f64().map(|seconds| seconds as i64)),
        Some(Value::String(text)) => Some(text.trim().parse().unwrap_or(0)),
        Some(_) => Some(0),
    })
}
