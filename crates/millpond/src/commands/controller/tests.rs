//! What probes see of controllers that start, that panic, and that are given up.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use k8s_openapi::api::coordination::v1::Lease;
use kube::client::Body;
use kube::{Api, Client};
use millpond_apiserver::auth::Identity;
use millpond_apiserver::clock::Clock;
use millpond_apiserver::store::Store;
use millpond_apiserver::{Server, ServerOptions};
use millpond_controllers::cluster::Options;
use millpond_providers::sim::Cloud;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use super::endpoints::Report as _;
use super::lead::{CloudLocation, ControllerRunner, Monitor, Stuck};
use super::{kinds, lead, loops};

/// How long a test waits for something, in virtual time.
const PATIENCE: Duration = Duration::from_mins(5);
/// How often it looks, in virtual time.
const LOOK: Duration = Duration::from_millis(100);

/// What happens to lists and watches of NodeOverlays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overlays {
    Answered,
    Held,
    /// What handles the answer panics.
    Panic,
}

/// Controllers that may lead, on an API of their own.
struct Stage {
    client: Client,
    overlays: watch::Sender<Overlays>,
    monitor: Monitor,
    work: JoinHandle<anyhow::Result<()>>,
    stop: CancellationToken,
}

impl Stage {
    async fn start(overlays: Overlays) -> Self {
        let server = Server::new(Store::in_memory(Clock::System), Clock::System, ServerOptions::default()).unwrap();
        millpond_apiserver::bootstrap(&server, 443).await.unwrap();
        let overlays = watch::Sender::new(overlays);
        let client = client(server, overlays.subscribe());
        kinds::install(&client).await.unwrap();
        let cloud = CloudLocation::Memory(Arc::new(Cloud::in_memory()));
        let runner = ControllerRunner::new(client.clone(), cloud, Options::default());
        let (monitor, stop) = (runner.monitor(), CancellationToken::new());
        assert_eq!(failing(&monitor), ["leader-election"], "nothing is elected yet");
        let work = tokio::spawn(runner.lead(lead::candidate(client.clone(), lead::NAMESPACE), stop.clone()));
        Self { client, overlays, monitor, work, stop }
    }

    async fn until(&self, what: &str, holds: impl Fn(&Monitor) -> bool) {
        let give_up = Instant::now() + PATIENCE;
        while !holds(&self.monitor) {
            assert!(Instant::now() < give_up, "never: {what}: {:?}", self.monitor.ready());
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Who holds the Lease.
    async fn leader(&self) -> String {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), lead::NAMESPACE);
        leases.get(lead::LEASE).await.unwrap().spec.and_then(|spec| spec.holder_identity).unwrap_or_default()
    }
}

fn client(server: Arc<Server>, overlays: watch::Receiver<Overlays>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let mut service = server.service_for(Identity::administrator("test"));
        let mut overlays = overlays.clone();
        async move {
            if request.method() == Method::GET && request.uri().path().ends_with("/nodeoverlays") {
                let now = *overlays.wait_for(|now| *now != Overlays::Held).await.unwrap();
                assert!(now != Overlays::Panic, "on purpose");
            }
            service.call(request).await
        }
    });
    Client::new(service, "default")
}

/// Checks of `/readyz` that fail.
fn failing(monitor: &Monitor) -> Vec<String> {
    monitor.ready().into_iter().filter(|check| check.failure.is_some()).map(|check| check.name).collect()
}

#[tokio::test(start_paused = true)]
async fn a_leader_is_ready_once_everything_was_listed() {
    let stage = Stage::start(Overlays::Held).await;
    stage.until("it leads", |monitor| failing(monitor) == ["informer-sync"]).await;
    tokio::time::sleep(PATIENCE).await;
    assert_eq!(failing(&stage.monitor), ["informer-sync"], "one list has not come");
    assert!(stage.monitor.live().iter().all(|check| check.failure.is_none()), "a restart would not help");
    stage.overlays.send_replace(Overlays::Answered);
    stage.until("it is ready", |monitor| failing(monitor).is_empty()).await;
    assert_ne!(stage.leader().await, "");
    stage.stop.cancel();
    stage.work.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_process_whose_controllers_panic_again_and_again_gives_its_lease_back_and_fails() {
    let mut stage = Stage::start(Overlays::Panic).await;
    let panicked = |monitor: &Monitor| {
        let mut notes = monitor.live().into_iter().filter_map(|check| check.note);
        notes.any(|note| note == "watch of overlays panicked 3 times in ten minutes")
    };
    stage.until("liveness shows the panics", panicked).await;
    assert_ne!(stage.leader().await, "");
    let ended = tokio::time::timeout(PATIENCE, &mut stage.work).await.expect("it ends").unwrap();
    let error = format!("{:#}", ended.unwrap_err());
    assert!(error.contains("`watch of overlays` panicked again and again") && error.contains("on purpose"), "{error}");
    assert_eq!(stage.leader().await, "", "others need not wait for the Lease to lapse");
}

#[test]
fn liveness_names_the_loops_that_ended_or_hang() {
    assert_eq!(loops(&Stuck::default()).failure, None);
    let stuck = Stuck { stopped: vec!["events"], hanging: vec![("provisioner", Duration::from_mins(16))] };
    let failure = loops(&stuck).failure.unwrap();
    assert_eq!(failure, "events has ended, provisioner hangs for 16 min");
}
