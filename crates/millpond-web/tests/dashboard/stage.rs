//! A dashboard over an embedded API, and a browser that asks it.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use millpond_apiserver::auth::Identity;
use millpond_apiserver::clock::Clock;
use millpond_apiserver::store::Store;
use millpond_apiserver::{Server, ServerOptions};
use millpond_plan::model::Snapshot;
use millpond_plan::testing::Cluster;
use millpond_runtime::history::History;
use millpond_web::{Body, Dashboard, Mode, Options, User, Watched};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

/// What `Host` says.
pub(crate) const HOST: &str = "127.0.0.1:6480";
/// A token that the stage knows.
pub(crate) const TOKEN: &str = "the-token-of-the-administrator";
const START: &str = "2026-01-01T00:00:00Z";

/// The cluster of a test.
pub(crate) struct Shown {
    snapshot: Mutex<Result<Snapshot, String>>,
    changes: watch::Sender<u64>,
    pub(crate) history: History,
    server: Arc<Server>,
    /// How often a snapshot was asked for.
    pub(crate) asked: Mutex<usize>,
}

impl Shown {
    /// Another state of the cluster.
    pub(crate) fn show(&self, cluster: Cluster) {
        *self.snapshot.lock() = Ok(cluster.snapshot());
        self.changes.send_modify(|number| *number += 1);
    }
}

impl Watched for Shown {
    fn snapshot(&self) -> Result<Snapshot, String> {
        *self.asked.lock() += 1;
        self.snapshot.lock().clone()
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.changes.subscribe())
    }

    fn owner(&self, _: &str, pod: &str) -> Option<String> {
        pod.rsplit_once('-').map(|(owner, _)| format!("Deployment/{owner}"))
    }

    fn history(&self) -> History {
        self.history.clone()
    }

    fn authenticate(&self, token: String) -> BoxFuture<'static, Option<User>> {
        let user = (token == TOKEN).then(|| user(&self.server, Identity::administrator("admin")));
        async move { user }.boxed()
    }

    fn read(&self, client: Client) -> BoxFuture<'static, Result<Vec<Value>, kube::Error>> {
        async move {
            let mut objects = Vec::new();
            for (group, kind) in [
                ("", "Namespace"),
                ("", "Node"),
                ("", "Pod"),
                ("karpenter.sh", "NodePool"),
                ("millpond.dev", "NodeClass"),
            ] {
                let version = if group == "millpond.dev" { "v1alpha1" } else { "v1" };
                let kind = GroupVersionKind::gvk(group, version, kind);
                let resource = if kind.kind == "NodeClass" {
                    ApiResource::from_gvk_with_plural(&kind, "nodeclasses")
                } else {
                    ApiResource::from_gvk(&kind)
                };
                let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
                for object in api.list(&ListParams::default()).await?.items {
                    let mut object = json!(object);
                    object["apiVersion"] = json!(resource.api_version);
                    object["kind"] = json!(resource.kind);
                    objects.push(object);
                }
            }
            Ok(objects)
        }
        .boxed()
    }

    fn snapshot_options(&self) -> millpond_state::Options {
        millpond_state::Options::default()
    }
}

fn user(server: &Arc<Server>, identity: Identity) -> User {
    let (name, groups) = (identity.user.clone(), identity.groups.clone());
    User { name, groups, client: Client::new(server.service_for(identity), "default") }
}

/// Everything of a test.
pub(crate) struct Stage {
    pub(crate) dashboard: Dashboard,
    pub(crate) shown: Arc<Shown>,
    server: Arc<Server>,
}

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The code, and the reason and message of a Status.
    pub(crate) fn problem(&self) -> (u16, String, String) {
        let status = self.json();
        assert_eq!((&status["kind"], &status["code"]), (&json!("Status"), &json!(self.status.as_u16())));
        let text = |field: &str| status[field].as_str().expect("a Status has it").to_owned();
        (self.status.as_u16(), text("reason"), text("message"))
    }
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(false).await
    }

    /// One that changes nothing.
    pub(crate) async fn read_only() -> Self {
        Self::with(true).await
    }

    async fn with(read_only: bool) -> Self {
        let clock = Clock::virtual_from(START.parse().expect("a time"));
        let server = Server::new(Store::in_memory(clock), clock, ServerOptions::default()).expect("a server");
        millpond_apiserver::bootstrap(&server, 443).await.expect("it starts");
        let shown = Arc::new(Shown {
            snapshot: Mutex::new(Ok(small().snapshot())),
            changes: watch::Sender::new(1),
            history: History::in_memory(),
            server: Arc::clone(&server),
            asked: Mutex::default(),
        });
        let options = Options {
            mode: Mode::Acting,
            read_only,
            cluster: "test".to_owned(),
            kubernetes: "1.36".to_owned(),
            hosts: vec![HOST.to_owned(), "localhost:6480".to_owned()],
            url: format!("http://{HOST}"),
            started_at: 1_767_225_600,
        };
        let watched: Arc<dyn Watched> = Arc::<Shown>::clone(&shown);
        Self { dashboard: Dashboard::new(watched, options), shown, server }
    }

    /// The administrator's own client.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.server.service_for(Identity::administrator("admin")), "default")
    }

    pub(crate) async fn create(&self, object: Value) {
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let types = object.types.clone().expect("it has a kind");
        let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
        let kind = GroupVersionKind::gvk(group, version, &types.kind);
        let resource = match types.kind.as_str() {
            "NodeClass" => ApiResource::from_gvk_with_plural(&kind, "nodeclasses"),
            _ => ApiResource::from_gvk(&kind),
        };
        let api: Api<DynamicObject> = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(self.client(), namespace, &resource),
            None => Api::all_with(self.client(), &resource),
        };
        api.create(&PostParams::default(), &object).await.unwrap_or_else(|error| panic!("{error}: {object:?}"));
    }

    /// A user who may do this in the whole cluster.
    pub(crate) async fn user(&self, name: &str, rules: Value) -> String {
        let version = "rbac.authorization.k8s.io/v1";
        self.create(json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}))
            .await;
        let group = "rbac.authorization.k8s.io";
        self.create(json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
        }))
        .await;
        self.log_in(Identity::new(name.to_owned(), vec!["system:authenticated".to_owned()])).await
    }

    /// A user who may look at everything and change nothing.
    pub(crate) async fn viewer(&self) -> String {
        self.user("viewer", json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}])).await
    }

    /// A session of the administrator.
    pub(crate) async fn admin(&self) -> String {
        self.log_in(Identity::administrator("admin")).await
    }

    async fn log_in(&self, identity: Identity) -> String {
        let address = self.dashboard.address_for(user(&self.server, identity));
        let code = address.split_once("#code=").expect("the address has a code").1;
        let answer = self.post("/ui/api/v1/session", None, &json!({ "code": code })).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        answer.json()["session"].as_str().expect("a session").to_owned()
    }

    pub(crate) async fn get(&self, path: &str, session: &str) -> Answer {
        let path = format!("/ui/api/v1{path}");
        self.ask("GET", &path, &[("authorization", &format!("Bearer {session}"))], "").await
    }

    pub(crate) async fn post(&self, path: &str, session: Option<&str>, body: &Value) -> Answer {
        let bearer = session.map(|session| format!("Bearer {session}"));
        let headers: Vec<(&str, &str)> = bearer.iter().map(|bearer| ("authorization", bearer.as_str())).collect();
        self.ask("POST", path, &headers, &body.to_string()).await
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let response = self.response(method, path, headers, body).await;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8(bytes.to_vec()).expect("answers are text"),
        }
    }

    pub(crate) async fn response(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response<Body> {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", HOST);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.dashboard.answer(request.body(Full::new(Bytes::from(body.to_owned()))).expect("a request")).await
    }
}

/// A pool with a node and its pod.
pub(crate) fn small() -> Cluster {
    Cluster::new()
        .machine("small", "cpu=2 memory=4Gi", |machine| machine.price(50))
        .pool("general", |pool| pool)
        .node("a", "small", |node| node.pool("general"))
        .pod("web-1", "cpu=1", |pod| pod.on("a"))
}
