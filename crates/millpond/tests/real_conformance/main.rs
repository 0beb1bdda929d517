//! Conformance, both ways: the same kubectl commands and the same raw requests against the embedded API and the real
//! kube-apiserver. The real one is the oracle: whatever differs after normalising fails, unless the script says
//! `differs:` with a reason.

mod exchanges;
mod normal;
mod script;
mod transcript;

use std::path::Path;
use std::sync::OnceLock;

use anyhow::Result;
use millpond_testkit::{Controllers, EmbeddedServer, Kubectl, RealCluster};

/// Controllers of kube-controller-manager that both servers get: those that finish deletions.
const CONTROLLERS: &str = "namespace-controller,garbage-collector-controller";

/// Both servers, each with the same real controllers.
struct Pair {
    real: RealCluster,
    embedded: EmbeddedServer,
    /// Kept alive as long as the pair is.
    _controllers: Controllers,
}

impl Pair {
    fn start() -> Result<Self> {
        let real = RealCluster::builder().controller_manager(CONTROLLERS).start()?;
        let embedded = EmbeddedServer::start(Path::new(env!("CARGO_BIN_EXE_millpond")), &["--bare"])?;
        let controllers =
            Controllers::builder().controller_manager(CONTROLLERS).start(real.parts(), &embedded.kubeconfig())?;
        Ok(Self { real, embedded, _controllers: controllers })
    }

    fn kubectls(&self) -> Result<[Kubectl; 2]> {
        let embedded = Kubectl::new(self.real.parts(), &self.embedded.kubeconfig(), self.embedded.folder())?;
        Ok([self.real.kubectl()?, embedded])
    }
}

/// One pair for all tests: they use namespaces of their own.
fn pair() -> &'static Pair {
    static PAIR: OnceLock<Pair> = OnceLock::new();
    PAIR.get_or_init(|| Pair::start().expect("both servers start"))
}

#[test]
#[ignore = "needs the real cluster"]
fn real_kubectl_sees_no_difference() {
    let kubectls = pair().kubectls().expect("kubectl is there");
    let commands = script::read(include_str!("kubectl.txt"));
    assert!(commands.len() >= 100, "only {} commands", commands.len());
    let differences = transcript::compare(&kubectls, &commands);
    assert!(differences.is_empty(), "{} of {} differ:\n{}", differences.len(), commands.len(), differences.join("\n"));
}

#[tokio::test]
#[ignore = "needs the real cluster"]
async fn real_requests_get_the_same_answers() {
    let pair = pair();
    let clients = [pair.real.client().await.expect("client"), pair.embedded.client().await.expect("client")];
    let requests = script::read(include_str!("exchanges.txt"));
    let differences = exchanges::compare(&clients, &requests).await;
    assert!(differences.is_empty(), "{} of {} differ:\n{}", differences.len(), requests.len(), differences.join("\n"));
}
