//! The embedded API with the stand-ins of Cluster API on it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client};
use millpond_apiserver::auth::Identity;
use millpond_apiserver::clock::Clock;
use millpond_apiserver::store::Store;
use millpond_apiserver::{LifecycleOptions, Server, ServerOptions, lifecycle};
use millpond_sim::{Nodes, Options, Part, StandIns};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::scene::{Scene, fake_kinds};

/// How long a test waits for something, in virtual time.
const PATIENCE: Duration = Duration::from_mins(30);
/// How often it looks, in virtual time.
const LOOK: Duration = Duration::from_millis(500);

pub(crate) struct Pond {
    pub(crate) scene: Scene,
    pub(crate) server: Arc<Server>,
    token: CancellationToken,
    stand_ins: StandIns,
}

impl Pond {
    pub(crate) async fn start() -> Self {
        // Silent unless `RUST_LOG` says otherwise.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        let start = "2026-01-01T00:00:00Z".parse().expect("a time");
        let clock = Clock::virtual_from(start);
        let server = Server::new(Store::in_memory(clock), clock, ServerOptions::default()).expect("a server");
        millpond_apiserver::bootstrap(&server, 443).await.expect("the first objects");
        tokio::spawn(lifecycle::run(Arc::clone(&server), LifecycleOptions { controllers: true }));
        let client = Client::new(server.service_for(Identity::administrator("test")), "default");
        for definition in [millpond_api::crd::all(), millpond_api::crd::cluster_api(), fake_kinds()].concat() {
            install(&client, &definition).await;
        }
        let token = CancellationToken::new();
        let options = Options { seed: 1, virtual_start: Some(start), nodes: Nodes::Marked, ..Options::default() };
        let parts = StandIns::builder(client.clone()).with_all(Part::CLUSTER_API);
        let stand_ins = parts.options(options).spawn(token.clone());
        let clock = Some(millpond_sim::clock::Clock::virtual_from(start));
        let scene = Scene { client, look: LOOK, patience: PATIENCE, port: 6443, kubeconfig: "none".to_owned(), clock };
        Self { scene, server, token, stand_ins }
    }

    /// Waits until nothing has been written for a while.
    pub(crate) async fn until_quiet(&self) {
        let give_up = tokio::time::Instant::now() + PATIENCE;
        loop {
            let before = self.server.store().revision();
            tokio::time::sleep(Duration::from_mins(1)).await;
            if self.server.store().revision() == before {
                return;
            }
            assert!(tokio::time::Instant::now() < give_up, "never quiet");
        }
    }

    pub(crate) async fn stop(self) {
        self.token.cancel();
        self.stand_ins.ended().await;
    }
}

pub(crate) async fn install(client: &Client, definition: &Value) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = definition["metadata"]["name"].as_str().expect("a name");
    let params = PatchParams::apply("test").force();
    api.patch(name, &params, &Patch::Apply(definition)).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    await_condition(api, name, conditions::is_crd_established()).await.expect("served");
}
