//! The dashboard of `millpond up`: the controllers' own copies of the cluster are shown, and users act as themselves
//! through the embedded API.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use clap::Args;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use kube::api::PostParams;
use kube::{Api, Client};
use millpond_apiserver::Server;
use millpond_apiserver::auth::Identity;
use millpond_controllers::context::Context;
use millpond_plan::model::Snapshot;
use millpond_runtime::history::History;
use millpond_web::{Dashboard, Mode, Options, User, Watched};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::cluster;
use super::lead::{Monitor, Readiness};
use crate::failure::{Code, Failure};

/// The port where nothing else is said.
const PORT: u16 = 6480;
/// The Kubernetes that is served.
const KUBERNETES: &str = "1.36";

/// Whether and where there is a dashboard.
#[derive(Debug, Clone, Args)]
pub(crate) struct DashboardArgs {
    /// Port of the dashboard on 127.0.0.1; 0 takes a free one, and so does the default where it is in use
    #[arg(long, value_name = "PORT", env = "MILLPOND_UI_PORT", default_value_t = PORT)]
    ui_port: u16,
    /// No dashboard
    #[arg(long)]
    no_ui: bool,
    /// A dashboard that changes nothing
    #[arg(long, conflicts_with = "no_ui")]
    ui_read_only: bool,
}

impl DashboardArgs {
    /// Takes the port; none without a dashboard.
    pub(crate) async fn bind(&self) -> anyhow::Result<Option<TcpListener>> {
        if self.no_ui {
            return Ok(None);
        }
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let bound = match TcpListener::bind(at(self.ui_port)).await {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && self.ui_port == PORT => {
                TcpListener::bind(at(0)).await
            }
            other => other,
        };
        bound.map(Some).map_err(|source| {
            let code = Code::of_io(&source);
            let hint = Some("choose another one with `--ui-port`, or none with `--no-ui`".to_owned());
            let message = format!("cannot listen on {} for the dashboard", at(self.ui_port));
            anyhow::Error::new(source).context(Failure { message, code, hint })
        })
    }
}

/// A dashboard that is served.
pub(crate) struct Served {
    /// Its address, with a code that logs the administrator in once.
    pub(crate) address: String,
    /// Ends with the token.
    pub(crate) serving: JoinHandle<()>,
}

/// Serves the dashboard of an embedded API.
pub(crate) fn serve(
    args: &DashboardArgs,
    listener: TcpListener,
    server: &Arc<Server>,
    (monitor, history, advise): (Monitor, History, bool),
    stop: CancellationToken,
) -> anyhow::Result<Served> {
    let port = listener.local_addr()?.port();
    let hosts = ["127.0.0.1", "localhost", "[::1]"].map(|name| format!("{name}:{port}"));
    let options = Options {
        mode: if advise { Mode::Advice } else { Mode::Acting },
        read_only: args.ui_read_only,
        cluster: "millpond up".to_owned(),
        kubernetes: KUBERNETES.to_owned(),
        url: format!("http://{}", hosts[0]),
        hosts: hosts.into(),
        started_at: jiff::Timestamp::now().as_second(),
    };
    let watched = Arc::new(EmbeddedCluster { server: Arc::clone(server), monitor, history });
    let administrator = watched.user(Identity::administrator("admin"));
    let dashboard = Dashboard::new(watched, options);
    let address = dashboard.address_for(administrator);
    Ok(Served { address, serving: tokio::spawn(millpond_web::serve(dashboard, listener, stop)) })
}

/// The cluster as the controllers of this process see it.
struct EmbeddedCluster {
    server: Arc<Server>,
    monitor: Monitor,
    history: History,
}

impl EmbeddedCluster {
    fn user(&self, identity: Identity) -> User {
        let (name, groups) = (identity.user.clone(), identity.groups.clone());
        User { name, groups, client: Client::new(self.server.service_for(identity), "default") }
    }

    fn context(&self) -> Result<Arc<Context>, String> {
        let waiting = match self.monitor.readiness() {
            Readiness::Leads => return self.monitor.context().ok_or_else(|| "the controllers are ending".to_owned()),
            Readiness::Syncing => "not all objects are listed yet",
            Readiness::Starting => "the controllers are starting",
            Readiness::Follows => "another controller leads on this API; its dashboard shows the cluster",
        };
        Err(waiting.to_owned())
    }
}

impl Watched for EmbeddedCluster {
    fn snapshot(&self) -> Result<Snapshot, String> {
        Ok(self.context()?.snapshot_for_pods())
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.context().ok()?.cluster.changes())
    }

    fn owner(&self, namespace: &str, pod: &str) -> Option<String> {
        self.context().ok()?.owner_of(namespace, pod)
    }

    fn history(&self) -> History {
        self.history.clone()
    }

    fn authenticate(&self, token: String) -> BoxFuture<'static, Option<User>> {
        let server = Arc::clone(&self.server);
        let own = Client::new(self.server.service_for(Identity::administrator("system:millpond")), "default");
        async move {
            let spec = TokenReviewSpec { token, ..TokenReviewSpec::default() };
            let review = TokenReview { spec, ..TokenReview::default() };
            let answer = Api::<TokenReview>::all(own).create(&PostParams::default(), &review).await.ok()?;
            let status = answer.status.filter(|status| status.authenticated == Some(true))?;
            let identity = identity(status.user?)?;
            let (name, groups) = (identity.user.clone(), identity.groups.clone());
            Some(User { name, groups, client: Client::new(server.service_for(identity), "default") })
        }
        .boxed()
    }

    fn read(&self, client: Client) -> BoxFuture<'static, Result<Vec<Value>, kube::Error>> {
        async move { cluster::read_everything(&client).await }.boxed()
    }

    fn snapshot_options(&self) -> millpond_state::Options {
        let of_controllers = self.context().map(|context| context.cluster.options.snapshot.clone());
        millpond_state::Options { require_classes: true, ..of_controllers.unwrap_or_default() }
    }
}

fn identity(user: UserInfo) -> Option<Identity> {
    let mut identity = Identity::new(user.username?, user.groups.unwrap_or_default());
    identity.uid = user.uid.unwrap_or_default();
    identity.extra = user.extra.unwrap_or_default();
    Some(identity)
}
