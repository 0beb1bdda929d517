//! Labels and annotations that steer stand-ins.

/// On a node, as a label or annotation: a stand-in kubelet runs this node.
pub const NODE: &str = "sim.millpond.dev/node";
/// kwok's annotation with the same meaning, when its value is `fake`.
pub const KWOK_NODE: &str = "kwok.x-k8s.io/node";
/// On a node: how long it takes to become ready, such as `30s`.
pub const READY_AFTER: &str = "sim.millpond.dev/ready-after";
/// On a pod: how long it takes to start, such as `5s`.
pub const START_AFTER: &str = "sim.millpond.dev/start-after";
/// On a pod: how long its containers run before they exit, such as `30s`.
pub const RUN_FOR: &str = "sim.millpond.dev/run-for";
/// On a pod: the exit code of its containers; zero is success.
pub const EXIT_CODE: &str = "sim.millpond.dev/exit-code";
/// On a pod: how long its containers take to stop, such as `10s`.
pub const STOP_AFTER: &str = "sim.millpond.dev/stop-after";
