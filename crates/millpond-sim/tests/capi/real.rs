//! The stories against Cluster API's own manager, with our providers, on a real API server; each is then told again
//! by the stand-in, and the two tellings must agree.

use std::time::Duration;

use anyhow::Result;
use millpond_sim::{Nodes, Options, Part, Providers, StandIns};
use millpond_testkit::{ClusterApi, RealCluster};
use tokio_util::sync::CancellationToken;

use crate::pond::{Pond, install};
use crate::scene::{Scene, fake_kinds};
use crate::stories::Told;
use crate::{stories, verbs};

/// How long a step may take; only one that never gets there takes so long.
const PATIENCE: Duration = Duration::from_mins(4);
const LOOK: Duration = Duration::from_millis(200);

/// The parts that are played beside Cluster API's manager.
const PLAYED: [Part; 4] = [Part::Infrastructure, Part::Kubelets, Part::NodeLifecycle, Part::Scheduler];

/// Tells a story in virtual time, in a runtime of its own.
fn told_by_stand_in(story: impl AsyncFnOnce(&Scene) -> Told + Send + 'static) -> Told {
    let telling = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let pond = Pond::start().await;
            let told = story(&pond.scene).await;
            pond.stop().await;
            told
        })
    });
    telling.join().expect("the stand-in tells the story to its end")
}

fn compare(story: &str, real: &Told, stand_in: &Told) {
    for ((what, real), (_, stand_in)) in real.iter().zip(stand_in) {
        assert_eq!(stand_in, real, "{story}, {what}: the stand-in (left) differs from Cluster API (right)");
    }
    assert_eq!(real.len(), stand_in.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the real parts"]
async fn real_cluster_api_and_the_stand_in_agree() -> Result<()> {
    let real =
        RealCluster::builder().controller_manager("namespace-controller,garbage-collector-controller").start()?;
    let client = real.client().await?;
    for definition in [millpond_api::crd::all(), fake_kinds()].concat() {
        install(&client, &definition).await;
    }
    let mut manager = ClusterApi::start(&real)?;
    let token = CancellationToken::new();
    let providers = ["FakeMachine", "FakeCluster", "FakeControlPlane"].map(str::to_owned).into();
    let options = Options {
        nodes: Nodes::Marked,
        machine_boot: Duration::from_millis(200),
        providers: Providers::Only(providers),
        ..Options::default()
    };
    let stand_ins = StandIns::builder(client.clone()).only(PLAYED).options(options).spawn(token.clone());
    let port = real.access().server.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let kubeconfig = std::fs::read_to_string(real.kubeconfig())?;
    let scene = Scene { client, look: LOOK, patience: PATIENCE, port, kubeconfig, clock: None };
    macro_rules! tell {
        ($($room:ident::$story:ident),+) => {$(
            let started = std::time::Instant::now();
            let told = $room::$story(&scene).await;
            manager.ensure_running()?;
            println!("{}: {:.1} s", stringify!($story), started.elapsed().as_secs_f64());
            compare(stringify!($story), &told, &told_by_stand_in(async |scene: &Scene| $room::$story(scene).await));
        )+};
    }
    tell!(
        stories::scale,
        stories::marked,
        stories::rollout,
        stories::versions,
        stories::paused,
        stories::end,
        verbs::verbs,
        verbs::autoscale
    );
    token.cancel();
    stand_ins.ended().await;
    Ok(())
}
