//! Objects that more than one suite needs.

use anyhow::Result;
use millpond_testkit::Kubectl;
use serde_json::{Value, json};

/// The token of [`bootstrap_token`], as kubelets show it.
pub(crate) const BOOTSTRAP_TOKEN: &str = "abcdef.0123456789abcdef";

/// What `kubeadm token create` makes.
pub(crate) fn bootstrap_token() -> Value {
    let (id, secret) = BOOTSTRAP_TOKEN.split_once('.').unwrap_or_default();
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
        "stringData": {
            "token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true",
            "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
        },
    })
}

pub(crate) fn apply(kubectl: &Kubectl, object: &Value) -> Result<()> {
    kubectl.run_with_input(&["apply", "-f", "-"], &object.to_string()).map(drop)
}
