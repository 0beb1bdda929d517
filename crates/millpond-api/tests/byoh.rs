//! The kinds of own hosts on the embedded API: manifests in use apply unchanged, and what cannot be is refused.

#![expect(clippy::unwrap_used, reason = "what a test needs and does not get ends it")]

use http::{Method, Request};
use kube::Client;
use millpond_api::byoh::{
    BootstrapKubeconfig, BootstrapKubeconfigTemplate, ByoCluster, ByoClusterTemplate, ByoHost, ByoMachine,
    ByoMachineTemplate, JoinMode, K8sInstallerConfig, K8sInstallerConfigTemplate, names,
};
use millpond_api::crd;
use millpond_api::meta::Kind;
use millpond_apiserver::auth::Identity;
use millpond_apiserver::clock::Clock;
use millpond_apiserver::store::Store;
use millpond_apiserver::{Server, ServerOptions};
use serde_json::{Value, json};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// The templates of the guide for pools of own hosts, as its readers apply them.
const TEMPLATES: &str = "
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: ByoMachineTemplate
metadata:
  name: worker-template
  namespace: default
spec:
  template:
    spec:
      selector:
        matchLabels:
          purpose: worker
      bootstrapConfigRef:
        apiGroup: infrastructure.cluster.x-k8s.io/v1beta1
        kind: BootstrapKubeconfig
        name: my-cluster-workers-bootstrap-kubeconfig
      installerRef:
        apiGroup: infrastructure.cluster.x-k8s.io/v1beta1
        kind: K8sInstallerConfigTemplate
        name: my-cluster-worker-installer
      joinMode: tlsBootstrap
";

struct Api(Client);

impl Api {
    async fn start() -> Self {
        let server = Server::new(Store::in_memory(Clock::System), Clock::System, ServerOptions::default()).unwrap();
        millpond_apiserver::bootstrap(&server, 443).await.unwrap();
        let api = Self(Client::new(server.service_for(Identity::administrator("test")), "default"));
        for definition in crd::all().iter().filter(|one| one["spec"]["group"] == millpond_api::byoh::GROUP) {
            api.send(
                Method::POST,
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                "application/json",
                definition,
            )
            .await
            .unwrap();
        }
        api
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: &Value) -> Result<Value, String> {
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let sent = self.0.request::<Value>(request.body(serde_json::to_vec(body).unwrap()).unwrap()).await;
        sent.map_err(|error| error.to_string())
    }

    async fn create<K: Kind>(&self, object: &Value) -> Result<Value, String> {
        let path = format!("{}?fieldValidation=Strict", collection::<K>());
        self.send(Method::POST, &path, "application/json", object).await
    }

    async fn merge<K: Kind>(&self, name: &str, part: &str, change: Value) -> Result<Value, String> {
        let path = format!("{}/{name}{part}?fieldValidation=Strict", collection::<K>());
        self.send(Method::PATCH, &path, "application/merge-patch+json", &change).await
    }
}

fn collection<K: Kind>() -> String {
    format!("/apis/{}/{}/namespaces/default/{}", K::GROUP, K::VERSION, K::PLURAL)
}

fn object<K: Kind>(name: &str, spec: Value) -> Value {
    json!({"apiVersion": K::api_version(), "kind": K::KIND, "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn templates_apply_as_they_are_written() {
    let api = Api::start().await;
    let written: Value = serde_saphyr::from_str(TEMPLATES).unwrap();
    let made = api.create::<ByoMachineTemplate>(&written).await.unwrap();
    assert_eq!(made["spec"], written["spec"], "nothing is pruned, the version in the group included");
    let template: ByoMachineTemplate = serde_json::from_value(made).unwrap();
    let spec = &template.spec.template.spec;
    assert_eq!(spec.join_mode, Some(JoinMode::TlsBootstrap));
    let installer = spec.installer_ref.as_ref().unwrap().resolve("default").unwrap();
    assert_eq!(installer.to_string(), "K8sInstallerConfigTemplate default/my-cluster-worker-installer");
    assert_eq!(installer.group, millpond_api::byoh::GROUP);
    assert_eq!(serde_json::to_value(&template.spec).unwrap(), written["spec"]);
}

#[tokio::test]
async fn every_kind_is_served_and_keeps_the_contract() {
    let api = Api::start().await;
    let template = |spec: Value| json!({"template": {"spec": spec}});
    let bootstrap = json!({
        "apiserver": "https://10.0.0.1:6443", "certificate-authority-data": "Zm9v", "insecure-skip-tls-verify": false,
    });
    let installer = json!({"bundleRepo": "registry.example.com", "bundleType": "k8s"});
    let endpoint = json!({"controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443}});
    api.create::<ByoHost>(&object::<ByoHost>("a", json!({}))).await.unwrap();
    api.create::<ByoMachine>(&object::<ByoMachine>("a", json!({"joinMode": "kubeadm"}))).await.unwrap();
    api.create::<ByoCluster>(&object::<ByoCluster>("a", endpoint.clone())).await.unwrap();
    api.create::<ByoClusterTemplate>(&object::<ByoClusterTemplate>("a", template(endpoint))).await.unwrap();
    api.create::<BootstrapKubeconfig>(&object::<BootstrapKubeconfig>("a", bootstrap.clone())).await.unwrap();
    let of_template = object::<BootstrapKubeconfigTemplate>("a", template(bootstrap));
    api.create::<BootstrapKubeconfigTemplate>(&of_template).await.unwrap();
    api.create::<K8sInstallerConfig>(&object::<K8sInstallerConfig>("a", installer.clone())).await.unwrap();
    let of_template = object::<K8sInstallerConfigTemplate>("a", template(installer));
    api.create::<K8sInstallerConfigTemplate>(&of_template).await.unwrap();
    let status = json!({"status": {"initialization": {"dataSecretCreated": true}, "dataSecretName": "s"}});
    let kubeconfig = api.merge::<BootstrapKubeconfig>("a", "/status", status).await.unwrap();
    let kubeconfig: BootstrapKubeconfig = serde_json::from_value(kubeconfig).unwrap();
    assert_eq!(kubeconfig.status.initialization.data_secret_created, Some(true));
    for definition in crd::all().iter().filter(|one| one["spec"]["group"] == millpond_api::byoh::GROUP) {
        assert_eq!(
            definition["metadata"]["labels"]["cluster.x-k8s.io/v1beta2"],
            "v1beta1",
            "{}",
            crd::name(definition)
        );
        assert_eq!(definition["spec"]["versions"][0]["name"], "v1beta1");
    }
}

#[tokio::test]
async fn hosts_are_labelled_and_shown() {
    let api = Api::start().await;
    let mut host = ByoHost::default();
    host.metadata.name = "node11".to_owned();
    api.create::<ByoHost>(&host.to_object()).await.unwrap();
    let labels = json!({"metadata": {"labels": {"purpose": "gpu", "gpu": "true"}}});
    api.merge::<ByoHost>("node11", "", labels).await.unwrap();
    host.status.facts = serde_json::from_value(json!({
        "cpu": {"architecture": "amd64", "sockets": 1, "cores": 8, "threads": 16}, "memory": {"totalBytes": 68_719_476_736_i64},
        "gpus": [{"address": "0000:3b:00.0", "vendorID": "10de", "deviceID": "1eb8", "resource": "nvidia.com/gpu"}],
    }))
    .unwrap();
    let facts = serde_json::to_value(&host.status.facts).unwrap();
    let status = json!({"status": {
        "state": "Available", "facts": facts, "capacity": host.status.facts.capacity(), "gpus": 1,
        "hostinfo": {"osname": "linux", "architecture": "amd64"},
    }});
    let read = api.merge::<ByoHost>("node11", "/status", status).await.unwrap();
    let read: ByoHost = serde_json::from_value(read).unwrap();
    assert_eq!(read.status.facts, host.status.facts, "no fact is pruned");
    assert!(read.is_free());
    let request = Request::get(format!("{}/node11", collection::<ByoHost>())).header("accept", TABLE);
    let table: Value = api.0.request(request.body(Vec::new()).unwrap()).await.unwrap();
    let columns: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(columns[..8], ["Name", "State", "Pool", "Machine", "CPU", "Memory", "GPUs", "Age"]);
    let cells = &table["rows"][0]["cells"];
    assert_eq!(
        (&cells[1], &cells[4], &cells[5], &cells[6]),
        (&json!("Available"), &json!("16"), &json!("64Gi"), &json!(1))
    );
}

#[tokio::test]
async fn what_cannot_be_is_refused() {
    let api = Api::start().await;
    let bad_machines = [
        (json!({"joinMode": "ssh"}), "spec.joinMode"),
        (json!({"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}), "needs at least one value"),
        (json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}}), "operator"),
        (json!({"selectors": {}}), "spec.selectors"),
        (json!({"capacityRequirements": {"cpu": "-1"}}), "capacityRequirements"),
        (json!({"bootstrapConfigRef": {"kind": "BootstrapKubeconfig"}}), "name"),
    ];
    for (spec, blamed) in bad_machines {
        let answer = api.create::<ByoMachine>(&object::<ByoMachine>("bad", spec.clone())).await.unwrap_err();
        let blamed = blamed.replace("needs", "need");
        assert!(answer.contains(&blamed), "{spec}: {answer}");
    }
    let long = "n".repeat(64);
    assert!(api.create::<ByoHost>(&object::<ByoHost>(&long, json!({}))).await.is_err());
}

/// The server itself keeps a claim from being replaced by an older one, or taken over without a new epoch.
#[tokio::test]
async fn claims_move_forward_only() {
    let api = Api::start().await;
    api.create::<ByoHost>(&object::<ByoHost>("node1", json!({}))).await.unwrap();
    let claim = |uid: &str, epoch: i64| json!({"spec": {"claim": {"machineUID": uid, "namespace": "default", "name": uid, "epoch": epoch}}});
    api.merge::<ByoHost>("node1", "", claim("m1", 3)).await.unwrap();
    let older = api.merge::<ByoHost>("node1", "", claim("m1", 2)).await.unwrap_err();
    assert!(older.contains("older epoch"), "{older}");
    let other = api.merge::<ByoHost>("node1", "", claim("m2", 3)).await.unwrap_err();
    assert!(other.contains("another machine holds the host"), "{other}");
    api.merge::<ByoHost>("node1", "", claim("m2", 4)).await.unwrap();
    api.merge::<ByoHost>("node1", "", json!({"spec": {"claim": null}})).await.unwrap();
    assert_eq!(names::provider_id("node1"), "byoh://node1");
}
