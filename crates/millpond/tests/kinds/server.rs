//! An API server that the definitions are put on, spoken to in JSON.

use http::{Method, Request};
use http_body_util::BodyExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::client::Body;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client};
use millpond_api::crd;
use millpond_apiserver::auth::Identity;
use millpond_apiserver::clock::Clock;
use millpond_apiserver::store::Store;
use millpond_apiserver::{Server, ServerOptions};
use serde_json::Value;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Requests until a definition must be served; a thousandth of them is enough.
const LIMIT_TRIES: u32 = 100_000;
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// An API server.
pub(crate) struct ApiServer {
    client: Client,
}

/// An answer: its code, its body and the warnings beside it.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

/// The embedded server, in process and in memory.
pub(crate) async fn embedded() -> ApiServer {
    let server = Server::new(Store::in_memory(Clock::System), Clock::System, ServerOptions::default()).unwrap();
    millpond_apiserver::bootstrap(&server, 443).await.unwrap();
    ApiServer::new(Client::new(server.service_for(Identity::administrator("test")), "default"))
}

impl ApiServer {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Creates every definition, and waits until it is served.
    pub(crate) async fn install(&self) {
        let api = Api::<CustomResourceDefinition>::all(self.client.clone());
        for definition in crd::all() {
            let name = crd::name(&definition);
            let answer = self.send(Method::POST, DEFINITIONS, "application/json", &definition).await;
            assert_eq!(answer.code, 201, "{name}: {:#}", answer.body);
            assert_eq!(answer.warnings, [""; 0], "{name}");
            await_condition(api.clone(), name, conditions::is_crd_established()).await.unwrap();
            self.wait_served(&definition).await;
        }
    }

    /// A definition that is established may still take some requests to be served.
    async fn wait_served(&self, definition: &Value) {
        let path = collection(&definition["spec"], "default");
        for _ in 0..LIMIT_TRIES {
            if self.send(Method::GET, &path, "", &Value::Null).await.code == 200 {
                return;
            }
        }
        panic!("`{path}` is not served");
    }

    /// Creates an object; a field that the schema does not know is an error.
    pub(crate) async fn create(&self, object: &Value) -> Answer {
        let path = format!("{}?fieldValidation=Strict", collection_of(object));
        self.send(Method::POST, &path, "application/json", object).await
    }

    /// Merges a change into an object, or into one of its subresources (`/status`).
    pub(crate) async fn merge(&self, object: &Value, part: &str, change: &Value) -> Answer {
        let path = format!("{}{part}?fieldValidation=Strict", path_of(object));
        self.send(Method::PATCH, &path, "application/merge-patch+json", change).await
    }

    /// Reads an object, or one of its subresources.
    pub(crate) async fn read(&self, object: &Value, part: &str) -> Answer {
        self.send(Method::GET, &format!("{}{part}", path_of(object)), "", &Value::Null).await
    }

    /// What `kubectl get` prints for an object: the names of columns with their cells, wide ones too.
    pub(crate) async fn table(&self, object: &Value) -> Vec<(String, Value)> {
        let request = Request::get(path_of(object)).header("accept", TABLE).body(Vec::new()).unwrap();
        let table: Value = self.client.request(request).await.unwrap();
        let columns = table["columnDefinitions"].as_array().unwrap();
        let cells = table["rows"][0]["cells"].as_array().unwrap();
        columns.iter().map(|column| column["name"].as_str().unwrap().to_owned()).zip(cells.iter().cloned()).collect()
    }

    pub(crate) async fn delete(&self, object: &Value) {
        let answer = self.send(Method::DELETE, &path_of(object), "application/json", &Value::Null).await;
        assert_eq!(answer.code, 200, "{:#}", answer.body);
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: &Value) -> Answer {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header("accept", "application/json");
        let request = if body.is_empty() { request } else { request.header("content-type", kind) };
        let response = self.client.send(request.body(Body::from(body)).unwrap()).await.unwrap();
        let (head, body) = response.into_parts();
        let warnings = head.headers.get_all("warning").iter().map(|one| one.to_str().unwrap().to_owned()).collect();
        let body = body.collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        Answer { code: head.status.as_u16(), body, warnings }
    }
}

fn collection(spec: &Value, namespace: &str) -> String {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (group, version) = (text(&spec["group"]), text(&spec["versions"][0]["name"]));
    let namespace = if spec["scope"] == "Namespaced" { format!("namespaces/{namespace}/") } else { String::new() };
    format!("/apis/{group}/{version}/{namespace}{}", text(&spec["names"]["plural"]))
}

fn collection_of(object: &Value) -> String {
    let of_kind = |definition: &Value| definition["spec"]["names"]["kind"] == object["kind"];
    let definition = crd::all().into_iter().find(of_kind).unwrap_or_else(|| panic!("no definition of {object}"));
    collection(&definition["spec"], "default")
}

fn path_of(object: &Value) -> String {
    format!("{}/{}", collection_of(object), object["metadata"]["name"].as_str().unwrap())
}
