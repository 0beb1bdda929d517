//! The simulated cloud as a stage for the suite.

use std::path::PathBuf;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use millpond_api::amounts::Amounts;
use millpond_api::karpenter::PoolRequirement;
use millpond_api::node_class::NodeClass;
use millpond_api::selector::Operator;
use millpond_api::sim_script::{Pattern, StockOut};
use millpond_providers::conformance::Stage;
use millpond_providers::sim::{Cloud, Script, SimProvider};
use millpond_providers::{Choice, OfferingKey, Provider, choices};
use millpond_runtime::clock::Clock;
use parking_lot::Mutex;

/// When tests begin.
pub(crate) const START: &str = "2026-11-16T04:30:00Z";

pub(crate) fn clock() -> Clock {
    Clock::virtual_from(START.parse().expect("a time"))
}

/// A client without a server: every request fails.
pub(crate) fn no_api() -> Client {
    let service = tower::service_fn(|_: http::Request<Body>| async {
        Err::<http::Response<Body>, _>(std::io::Error::other("there is no API server"))
    });
    Client::new(service, "default")
}

/// A class of the simulated cloud.
pub(crate) fn class(name: &str, spec: &str) -> NodeClass {
    serde_saphyr::from_str(&format!("metadata: {{name: {name}}}\nspec: {spec}")).expect("a class")
}

/// A requirement.
pub(crate) fn is_in(key: &str, values: &[&str]) -> PoolRequirement {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    PoolRequirement { key: key.to_owned(), operator: Operator::In, values, min_values: None }
}

/// A few offerings of EC2.
pub(crate) fn some_choices(provider: &dyn Provider, class: &NodeClass) -> Vec<Choice> {
    let catalog = provider.catalog(class).expect("a catalogue");
    let wanted = [
        is_in("node.kubernetes.io/instance-type", &["m5.large", "c5.xlarge"]),
        is_in("topology.kubernetes.io/zone", &["us-east-1a", "us-east-1b"]),
    ];
    choices(&catalog, class, &wanted, &Amounts::default())
}

/// A cloud in memory or in a file, which a restart opens anew.
pub(crate) struct SimStage {
    /// None while the file is being opened anew.
    cloud: Mutex<Option<Arc<Cloud>>>,
    file: Option<(PathBuf, tempfile::TempDir)>,
    script: Script,
    clock: Clock,
}

impl SimStage {
    pub(crate) fn in_memory(script: &Script) -> Self {
        Self::on(Cloud::in_memory(), None, script)
    }

    pub(crate) fn in_a_file(script: &Script) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("cloud");
        Self::on(Cloud::open(&path).expect("a cloud"), Some((path, directory)), script)
    }

    fn on(cloud: Cloud, file: Option<(PathBuf, tempfile::TempDir)>, script: &Script) -> Self {
        let clock = clock();
        cloud.set_script(script, clock.now()).expect("a script");
        Self { cloud: Mutex::new(Some(Arc::new(cloud))), file, script: script.clone(), clock }
    }

    pub(crate) fn cloud(&self) -> Arc<Cloud> {
        self.cloud.lock().clone().expect("a cloud")
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn sim(&self) -> SimProvider {
        SimProvider::new(self.cloud(), no_api(), self.clock.clone())
    }
}

impl Stage for SimStage {
    fn provider(&self) -> Arc<dyn Provider> {
        Arc::new(self.sim())
    }

    fn class(&self) -> NodeClass {
        class("default", "{provider: sim, catalog: aws}")
    }

    fn choices(&self) -> Vec<Choice> {
        some_choices(&self.sim(), &self.class())
    }

    fn restarted(&self) -> BoxFuture<'_, Arc<dyn Provider>> {
        async {
            if let Some((path, _)) = &self.file {
                // Another process: the memory of this one is gone, unless a task still holds it.
                let mut cloud = self.cloud.lock();
                let alone = cloud.as_ref().is_some_and(|cloud| Arc::strong_count(cloud) == 1);
                if alone {
                    *cloud = None;
                    *cloud = Some(Arc::new(Cloud::open(path).expect("the cloud of before")));
                }
            }
            self.provider()
        }
        .boxed()
    }

    fn run_out<'a>(&'a self, offerings: &'a [OfferingKey]) -> BoxFuture<'a, bool> {
        async {
            let mut script = self.script.clone();
            script.stock_outs.extend(offerings.iter().map(|offering| StockOut {
                instance_type: Pattern::new(&offering.instance_type),
                zone: Pattern::new(&offering.zone),
                capacity_type: Pattern::new(&offering.capacity_type),
                ..StockOut::default()
            }));
            self.cloud().set_script(&script, self.now()).expect("a script");
            true
        }
        .boxed()
    }

    fn drifted_class(&self) -> Option<NodeClass> {
        Some(class("default", "{provider: sim, catalog: aws, sim: {image: sim-image-2}}"))
    }
}
