//! Two pools and workloads that move, for a first look: load comes and goes, and nodes with it.
//!
//! [`scene`] has the initial objects, [`script`] the later events; this file writes both. Everything lives in the
//! namespace `demo` except the pools, whose names begin with `demo`, and their nodes. Existing objects are left as they
//! are, so that a demo can be resumed.

pub mod scene;
pub mod script;

use std::time::Duration;

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use script::{Move, Script};

/// The namespace of the demo.
pub const NAMESPACE: &str = "demo";

/// Settings of a demo.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Decides what moves when.
    pub seed: u64,
    /// How often something moves.
    pub pace: Duration,
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self { seed: 1, pace: Duration::from_secs(10) }
    }
}

/// Creates what is there at the beginning, so that a first look finds it.
pub async fn set_scene(client: &Client) {
    for object in scene::objects() {
        ensure(client, &object).await;
    }
}

/// Creates the demo's objects and changes them until the token is cancelled. Refused writes are logged, not returned: a
/// user may delete parts of the demo while it runs.
pub async fn run(client: Client, options: DemoOptions, token: CancellationToken) {
    set_scene(&client).await;
    let mut script = Script::new(options.seed);
    loop {
        tokio::select! {
            biased;
            () = token.cancelled() => return,
            () = tokio::time::sleep(options.pace) => {}
        }
        for step in script.next_moves() {
            take(&client, &step).await;
        }
    }
}

async fn take(client: &Client, step: &Move) {
    match step {
        Move::Scale { deployment, replicas } => {
            let api = api(client, "apps/v1", "Deployment");
            let patch = json!({"spec": {"replicas": replicas}});
            let outcome = api.patch(deployment, &PatchParams::default(), &Patch::Merge(&patch)).await;
            if let Err(error) = outcome {
                tracing::debug!(deployment, %error, "demo: not scaled");
            }
        }
        Move::Update { deployment, image } => {
            let api = api(client, "apps/v1", "Deployment");
            // A strategic patch finds the container by its name.
            let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}});
            let outcome = api.patch(deployment, &PatchParams::default(), &Patch::Strategic(&patch)).await;
            if let Err(error) = outcome {
                tracing::debug!(deployment, %error, "demo: not updated");
            }
        }
        Move::Run(job) => ensure(client, job).await,
    }
}

async fn ensure(client: &Client, object: &Value) {
    let Ok(object) = serde_json::from_value::<DynamicObject>(object.clone()) else {
        return;
    };
    let types = object.types.clone().unwrap_or_default();
    let created = api(client, &types.api_version, &types.kind).create(&PostParams::default(), &object).await;
    match created {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(error) => {
            let name = object.metadata.name.as_deref().unwrap_or_default();
            tracing::warn!(kind = types.kind, name, %error, "demo: not created");
        }
        Ok(_) => {}
    }
}

fn api(client: &Client, api_version: &str, kind: &str) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    if matches!(kind, "Namespace" | "NodeClass" | "NodePool" | "PriorityClass") {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), NAMESPACE, &resource)
    }
}
