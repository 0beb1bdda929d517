//! Fields for field selectors of built-in kinds, beyond `metadata.name` and `metadata.namespace`.
//!
//! Values are text: absent strings are empty, absent numbers `0`, absent flags `false`, as in the real API server.

use serde_json::Value;

/// Selector name and how it is read.
pub(super) type Table = &'static [(&'static str, fn(&Value) -> String)];

pub(super) const POD: Table = &[
    ("spec.nodeName", |o| text(o, "/spec/nodeName")),
    ("spec.restartPolicy", |o| text(o, "/spec/restartPolicy")),
    ("spec.schedulerName", |o| text(o, "/spec/schedulerName")),
    ("spec.serviceAccountName", |o| text(o, "/spec/serviceAccountName")),
    ("spec.hostNetwork", |o| flag(o, "/spec/hostNetwork")),
    ("status.phase", |o| text(o, "/status/phase")),
    ("status.podIP", |o| text(o, "/status/podIP")),
    // The real server accepts this name but never fills it.
    ("status.podIPs", |_| String::new()),
    ("status.nominatedNodeName", |o| text(o, "/status/nominatedNodeName")),
    // The name that clients of the first days use for spec.nodeName.
    ("spec.host", |o| text(o, "/spec/nodeName")),
];

pub(super) const NODE: Table = &[("spec.unschedulable", |o| flag(o, "/spec/unschedulable"))];

pub(super) const NAMESPACE: Table = &[("status.phase", |o| text(o, "/status/phase"))];

pub(super) const SECRET: Table = &[("type", |o| text(o, "/type"))];

pub(super) const SERVICE: Table =
    &[("spec.clusterIP", |o| text(o, "/spec/clusterIP")), ("spec.type", |o| text(o, "/spec/type"))];

pub(super) const REPLICATION_CONTROLLER: Table = &[("status.replicas", |o| number(o, "/status/replicas"))];

pub(super) const JOB: Table = &[("status.successful", |o| number(o, "/status/succeeded"))];

pub(super) const CERTIFICATE_SIGNING_REQUEST: Table = &[("spec.signerName", |o| text(o, "/spec/signerName"))];

pub(super) const RESOURCE_SLICE: Table =
    &[("spec.nodeName", |o| text(o, "/spec/nodeName")), ("spec.driver", |o| text(o, "/spec/driver"))];

pub(super) const EVENT: Table = &[
    ("involvedObject.kind", |o| text(o, "/involvedObject/kind")),
    ("involvedObject.namespace", |o| text(o, "/involvedObject/namespace")),
    ("involvedObject.name", |o| text(o, "/involvedObject/name")),
    ("involvedObject.uid", |o| text(o, "/involvedObject/uid")),
    ("involvedObject.apiVersion", |o| text(o, "/involvedObject/apiVersion")),
    ("involvedObject.resourceVersion", |o| text(o, "/involvedObject/resourceVersion")),
    ("involvedObject.fieldPath", |o| text(o, "/involvedObject/fieldPath")),
    ("reason", |o| text(o, "/reason")),
    ("reportingComponent", |o| text(o, "/reportingComponent")),
    ("source", |o| {
        let component = text(o, "/source/component");
        if component.is_empty() { text(o, "/reportingComponent") } else { component }
    }),
    ("type", |o| text(o, "/type")),
];

/// Events in `events.k8s.io` form.
pub(super) const NEW_EVENT: Table = &[
    ("regarding.kind", |o| text(o, "/regarding/kind")),
    ("regarding.namespace", |o| text(o, "/regarding/namespace")),
    ("regarding.name", |o| text(o, "/regarding/name")),
    ("regarding.uid", |o| text(o, "/regarding/uid")),
    ("regarding.apiVersion", |o| text(o, "/regarding/apiVersion")),
    ("regarding.resourceVersion", |o| text(o, "/regarding/resourceVersion")),
    ("regarding.fieldPath", |o| text(o, "/regarding/fieldPath")),
    ("reason", |o| text(o, "/reason")),
    ("reportingController", |o| text(o, "/reportingController")),
    ("type", |o| text(o, "/type")),
];

fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn flag(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_bool).unwrap_or_default().to_string()
}

fn number(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(table: Table, name: &str, object: &Value) -> String {
        let (_, read) = table.iter().find(|(field, _)| *field == name).expect("field in the table");
        read(object)
    }

    #[test]
    fn absent_values_read_as_zero_values() {
        let empty = json!({});
        assert_eq!(read(POD, "spec.nodeName", &empty), "");
        assert_eq!(read(POD, "spec.hostNetwork", &empty), "false");
        assert_eq!(read(JOB, "status.successful", &empty), "0");
    }

    #[test]
    fn event_source_falls_back_to_the_reporting_component() {
        let event = json!({"source": {}, "reportingComponent": "scheduler"});
        assert_eq!(read(EVENT, "source", &event), "scheduler");
        let event = json!({"source": {"component": "kubelet"}, "reportingComponent": "scheduler"});
        assert_eq!(read(EVENT, "source", &event), "kubelet");
    }
}
