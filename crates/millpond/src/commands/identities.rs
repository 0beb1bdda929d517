//! Who the parts of `millpond up` are on its own API: service accounts with just the rights that they need. The
//! controllers have those that `millpond install rbac` prints for other clusters.

use anyhow::Context as _;
use futures::future::try_join_all;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, Client};
use millpond_apiserver::auth::Identity;
use serde_json::{Value, json};

use super::install::rbac;
use super::lead;

/// Namespace of the service accounts: that of the Lease of the controllers.
const NAMESPACE: &str = lead::NAMESPACE;
/// The name of the stand-ins' service account, role and binding.
const STAND_INS: &str = "millpond-stand-ins";
/// The bindings of the controllers inside this process end with this, so that those of controllers outside, which
/// `millpond install rbac` prints, can stand beside them.
const EMBEDDED: &str = "-embedded";
/// Who these objects belong to.
const MANAGER: &str = "millpond";

/// The controllers.
pub(crate) fn controller() -> Identity {
    Identity::service_account(NAMESPACE, rbac::NAME)
}

/// The stand-ins for scheduler, kubelets, workload controllers and Cluster API.
pub(crate) fn stand_ins() -> Identity {
    Identity::service_account(NAMESPACE, STAND_INS)
}

/// Puts accounts, roles and bindings in place. What is there already is not written again.
pub(crate) async fn install(client: &Client) -> anyhow::Result<()> {
    // The namespace of the Leases of hosts is there before the API is ready, whenever the controllers of hosts start.
    let leases = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": millpond_api::byoh::names::LEASE_NAMESPACE}});
    let objects: Vec<Value> = of_controller().chain(of_stand_ins()).chain([leases]).collect();
    try_join_all(objects.iter().map(|object| apply(client, object))).await.map(drop)
}

fn of_controller() -> impl Iterator<Item = Value> {
    let objects = rbac::of_controller(NAMESPACE, None, &[]).into_iter().filter(|object| object["kind"] != "Namespace");
    objects.map(|mut object| {
        if object["kind"].as_str().is_some_and(|kind| kind.ends_with("Binding")) {
            let name = object["metadata"]["name"].as_str().unwrap_or(rbac::NAME);
            object["metadata"]["name"] = json!(format!("{name}{EMBEDDED}"));
        }
        object
    })
}

fn of_stand_ins() -> impl Iterator<Item = Value> {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let version = format!("{GROUP}/v1");
    let metadata = json!({"name": STAND_INS});
    [
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": STAND_INS, "namespace": NAMESPACE},
        }),
        json!({
            "apiVersion": version, "kind": "ClusterRole", "metadata": metadata,
            "rules": millpond_sim::rights::rules(),
        }),
        json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": STAND_INS},
            "subjects": [{"kind": "ServiceAccount", "name": STAND_INS, "namespace": NAMESPACE}],
        }),
    ]
    .into_iter()
}

async fn apply(client: &Client, object: &Value) -> anyhow::Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    let version = text(&object["apiVersion"]);
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let params = PatchParams::apply(MANAGER).force();
    let applied = api.patch(&name, &params, &Patch::Apply(object)).await;
    applied.with_context(|| format!("cannot put the {kind} `{name}` in place")).map(drop)
}
