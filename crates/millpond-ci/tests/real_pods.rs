//! `openshiftpods` on the real kube-apiserver, with kwok as kubelet: a pod in a namespace that is there, a token that works
//! for this pod alone and ends with it, and nothing left behind.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Namespace, Node as KubernetesNode, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Config};
use millpond_ci::config::{self, File};
use millpond_ci::driver::kube::{Contexts, KubeDriver};
use millpond_ci::driver::{Driver, Instance, Launch};
use millpond_ci::model::NodeRequest;
use millpond_testkit::RealCluster;
use serde_json::{Value, json};

/// A bound for what takes a second or two; a test that reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(120);

const NODEPOOL: &str = "
providers:
  - name: openshift-pods
    driver: openshiftpods
    context: CONTEXT
    pools:
      - name: ci-pods
        labels:
          - name: my-pod
            image: quay.io/fedora/fedora:latest
            cpu: 1
            labels: {team: ci}
            dynamic-labels: {tenant: '{request.tenant_name}'}
";

async fn create<K>(api: Api<K>, object: Value) -> Result<K>
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    Ok(api.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
}

/// A namespace and a node of kwok's.
async fn furnish(client: &Client) -> Result<()> {
    create(Api::<Namespace>::all(client.clone()), json!({"metadata": {"name": "ci-pods"}})).await?;
    let resources = json!({"cpu": "4", "memory": "16Gi", "pods": "110"});
    let node = json!({
        "metadata": {"name": "worker", "labels": {"kubernetes.io/hostname": "worker"}},
        "status": {"capacity": resources, "allocatable": resources},
    });
    let nodes = Api::<KubernetesNode>::all(client.clone());
    create(nodes.clone(), node).await?;
    let untainted = json!({"spec": {"taints": null}});
    nodes.patch("worker", &PatchParams::default(), &Patch::Merge(untainted)).await?;
    Ok(())
}

fn launch(config: &config::Config, node_id: &str) -> Launch {
    let pool = Arc::new(config.providers[0].pools[0].clone());
    let details = Arc::new(pool.labels["my-pod"].clone());
    let mut request = NodeRequest::new(vec!["my-pod".to_owned()], 0.0);
    request.tenant_name = Some("acme".to_owned());
    Launch {
        node_id: node_id.to_owned(),
        provider: "openshift-pods".to_owned(),
        pool,
        label: "my-pod".to_owned(),
        details,
        request: Some(("200-0000000001".to_owned(), Arc::new(request))),
        image: None,
    }
}

/// A client with the credentials of a node.
fn client_of(connection: &Value) -> Result<Client> {
    let text = |key: &str| connection[key].as_str().map(str::to_owned).with_context(|| key.to_owned());
    let mut config = Config::new(text("host")?.parse()?);
    config.accept_invalid_certs = true;
    config.auth_info.token = Some(text("token")?.into());
    Ok(Client::try_from(config)?)
}

/// What a token says of itself.
fn claims(token: &str) -> Result<Value> {
    use base64::Engine as _;
    let payload = token.split('.').nth(1).context("a token has three parts")?;
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(payload).context("decode a token")?;
    serde_json::from_slice(&bytes).context("read a token")
}

fn code<T: std::fmt::Debug>(outcome: kube::Result<T>) -> Option<u16> {
    match outcome {
        Err(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

#[tokio::test]
#[ignore = "needs the real cluster"]
async fn real_openshiftpods_makes_a_pod_with_a_token_of_its_own() -> Result<()> {
    let cluster = RealCluster::builder().controller_manager("*").scheduler().kwok().start()?;
    let client = cluster.client().await?;
    furnish(&client).await?;
    let kubeconfig = std::fs::read_to_string(cluster.kubeconfig())?;
    let context = kube::config::Kubeconfig::from_yaml(&kubeconfig)?.current_context.context("a context")?;
    let text = NODEPOOL.replace("CONTEXT", &context);
    let read = config::read(File { name: "nodepool.yaml", text: &text }, None, &|_| None);
    let config = read.valid().map_err(|errors| anyhow::anyhow!("{errors:?}"))?;
    let contexts = Contexts::new(vec![cluster.kubeconfig().to_owned()], None);
    let driver = KubeDriver::new(&config.providers[0], contexts);
    let pods = Api::<Pod>::namespaced(client.clone(), "ci-pods");

    let first = launch(&config, "0000000001");
    let launched = tokio::time::timeout(PATIENCE, driver.launch(&first)).await??;
    let other = tokio::time::timeout(PATIENCE, driver.launch(&launch(&config, "0000000002"))).await??;
    assert_eq!(launched.external_id.as_deref(), Some("ci-pods-my-pod-0000000001"));
    assert_eq!(launched.host_id.as_deref(), Some("worker"));
    let pod = pods.get("my-pod-0000000001").await?;
    let labels = pod.metadata.labels.clone().context("labels")?;
    for (name, value) in [("team", "ci"), ("tenant", "acme"), ("nodepool_node_id", "0000000001")] {
        assert_eq!(labels.get(name).map(String::as_str), Some(value));
    }
    // The same id never makes two pods.
    let again = tokio::time::timeout(PATIENCE, driver.launch(&first)).await??;
    assert_eq!(again.external_id, launched.external_id);
    assert_eq!(pods.list(&ListParams::default()).await?.items.len(), 2);

    let connection: Value = serde_json::from_str(launched.connection_port.context("a connection")?.text())?;
    assert_eq!((&connection["user"], &connection["namespace"]), (&"zuul-worker".into(), &"ci-pods".into()));
    let claims = claims(connection["token"].as_str().context("a token")?)?;
    assert_eq!(claims["kubernetes.io"]["pod"]["name"], "my-pod-0000000001", "the token is bound to the pod");
    let lasts_s = claims["exp"].as_i64().context("an end")? - claims["iat"].as_i64().context("a beginning")?;
    assert!((1..=24 * 3600).contains(&lasts_s), "{lasts_s}");
    let own = client_of(&connection)?;
    let own_pods = Api::<Pod>::namespaced(own.clone(), "ci-pods");
    assert_eq!(own_pods.get("my-pod-0000000001").await?.metadata.uid, pod.metadata.uid);
    assert_eq!(code(own_pods.get("my-pod-0000000002").await), Some(403));
    assert_eq!(code(own_pods.list(&ListParams::default()).await), Some(403));
    let secrets = Api::<k8s_openapi::api::core::v1::Secret>::namespaced(own.clone(), "ci-pods");
    assert_eq!(code(secrets.list(&ListParams::default()).await), Some(403));

    let mut known: Vec<String> = driver.list().await?.into_iter().map(|instance| instance.node_id).collect();
    known.sort();
    assert_eq!(known, ["0000000001", "0000000002"]);
    let instance = |id: &str, external_id: Option<String>| Instance {
        node_id: id.to_owned(),
        pool: Some("ci-pods".to_owned()),
        external_id,
    };
    tokio::time::timeout(PATIENCE, driver.delete(&instance("0000000001", launched.external_id))).await??;
    // Its token ends with it; the API server remembers for some seconds that it was valid, its rights are gone at once.
    let ended = code(own_pods.get("my-pod-0000000001").await);
    assert!(matches!(ended, Some(401 | 403)), "{ended:?}");
    // The other pod is untouched.
    pods.get("my-pod-0000000002").await?;
    // Without the provider's id the node id is enough; what is gone is gone.
    assert!(other.external_id.is_some());
    tokio::time::timeout(PATIENCE, driver.delete(&instance("0000000002", None))).await??;
    driver.delete(&instance("0000000002", None)).await?;
    assert!(driver.list().await?.is_empty());
    assert!(pods.list(&ListParams::default()).await?.items.is_empty());
    let left = Api::<ServiceAccount>::namespaced(client.clone(), "ci-pods").list(&ListParams::default()).await?;
    assert!(left.items.iter().all(|account| account.metadata.name.as_deref() == Some("default")));
    assert!(Api::<Role>::namespaced(client.clone(), "ci-pods").list(&ListParams::default()).await?.items.is_empty());
    assert!(Api::<RoleBinding>::namespaced(client, "ci-pods").list(&ListParams::default()).await?.items.is_empty());
    Ok(())
}
