//! `millpond.dev/v1alpha1` MaintenanceWindow: when hosts or nodes are disturbed, again and again or once.
//!
//! ```yaml
//! apiVersion: millpond.dev/v1alpha1
//! kind: MaintenanceWindow
//! metadata: {name: patch-tuesday}
//! spec:
//!   schedule: "0 2 * * 2"
//!   timeZone: Europe/Berlin
//!   duration: 4h
//!   hosts: [esxi-dell-h.rainpole.com]
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::meta::{Condition, ObjectMeta, is_default, kind};
use crate::node_class::GROUP;
use crate::time::Time;

/// A window.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct MaintenanceWindow {
    /// Name and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// When, how long, and what.
    #[serde(default)]
    pub spec: MaintenanceWindowSpec,
    /// Whether it is understood.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<MaintenanceWindowStatus>,
}

kind!(MaintenanceWindow, GROUP, "v1alpha1", "MaintenanceWindow", "maintenancewindows", namespaced: false);

/// When, how long, and what.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MaintenanceWindowSpec {
    /// Begins by this cron expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// The time zone of the schedule; UTC without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// Begins once, at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Time>,
    /// How long it lasts.
    pub duration: String,
    /// Hosts, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Nodes, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Nodes of these pools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_pools: Vec<String>,
    /// Nodes with these labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Whether it does not happen for now.
    #[serde(default, skip_serializing_if = "is_default")]
    pub suspend: bool,
}

/// Whether a window is understood.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MaintenanceWindowStatus {
    /// `Ready`: false where the window cannot be understood, and so counts for no node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation that the conditions speak of.
    #[serde(skip_serializing_if = "is_default")]
    pub observed_generation: i64,
}
