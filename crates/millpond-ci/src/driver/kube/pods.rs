//! Nodes that are pods of an existing namespace: `openshiftpods`. The pool's name is the namespace.

use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::super::{DriverError, Instance, Launch, Launched};
use super::contexts::Cluster;
use super::{KubeDriver, NODE_ID, POOL, PROVIDER, WORKER, account, body, created, is_missing, refused, waiting};
use crate::config::{Driver, PodLabel};
use crate::model::{Json, Node};

/// A pod that CI is done with has nothing to save.
const GRACE_SECONDS: u32 = 1;

impl KubeDriver {
    pub(super) async fn launch_pod(&self, launch: &Launch, label: &PodLabel) -> Result<Launched, DriverError> {
        let cluster = self.contexts.cluster(self.context.as_deref()).await?;
        let (client, namespace) = (&cluster.client, launch.pool.name.as_str());
        let name = format!("{}-{}", launch.label, launch.node_id);
        let labels = body::own_labels(launch);
        let has_account = match account::create(client, namespace, account::metadata(&name, &labels)).await {
            Ok(()) => true,
            // A namespace that the original command has set up gives no rights on service accounts.
            Err(DriverError::Permanent(message)) if cluster.token.is_some() => {
                self.tell_of_shared_token(&message);
                false
            }
            Err(error) => return Err(error),
        };
        let own = has_account.then_some(name.as_str());
        self.create_pod(client, namespace, &body::pod(Driver::OpenShiftPods, &name, launch, label, own)).await?;
        let pod = waiting::until_running(client, namespace, &name).await?;
        let token = if has_account {
            let meta = || {
                let mut meta = account::metadata(&name, &labels);
                meta.owner_references = Some(vec![account::owned_by(&pod)]);
                meta
            };
            account::allow(client, namespace, meta(), meta(), &name, account::pod_rules(&name)).await?;
            // A token cannot be bound to a pod whose spec names another service account.
            let runs_as = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
            account::token(client, namespace, &name, Some(&pod).filter(|_| runs_as == Some(name.as_str()))).await?
        } else {
            cluster.token.clone().unwrap_or_default()
        };
        Ok(Launched {
            external_id: Some(format!("{namespace}-{name}")),
            cloud: self.context.clone(),
            host_id: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            interface_ip: Some(name.clone()),
            connection_port: Some(Json::of(&connection(&cluster, &name, namespace, &token))),
            connection_type: Some("kubectl".to_owned()),
            python_path: Some(label.python_path.clone()),
            shell_type: label.shell_type.clone(),
            ..Launched::default()
        })
    }

    /// Creates a pod; an existing one that belongs to another node is not used.
    pub(super) async fn create_pod(&self, client: &Client, namespace: &str, pod: &Value) -> Result<(), DriverError> {
        // Not as the typed kind, so that the label's `spec` reaches the API unchanged.
        let kind = ApiResource::erase::<Pod>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
        let object: DynamicObject = serde_json::from_value(pod.clone())
            .map_err(|error| DriverError::Permanent(format!("the pod of the label cannot be written: {error}")))?;
        if created(api.create(&PostParams::default(), &object).await, "create the pod")?.is_some() {
            return Ok(());
        }
        let name = object.name_any();
        let there = api.get(&name).await.map_err(|error| refused("read the pod", &error))?;
        if there.labels().get(NODE_ID) != object.labels().get(NODE_ID) || there.metadata.deletion_timestamp.is_some() {
            return Err(DriverError::Transient(format!("another pod has the name `{name}`")));
        }
        Ok(())
    }

    pub(super) async fn delete_pod(&self, instance: &Instance) -> Result<(), DriverError> {
        let cluster = self.contexts.cluster(self.context.as_deref()).await?;
        let client = &cluster.client;
        let params =
            ListParams::default().labels(&format!("{NODE_ID}={},{PROVIDER}={}", instance.node_id, self.provider));
        let pools: Vec<&String> = match &instance.pool {
            Some(pool) if self.pools.contains(pool) => vec![pool],
            _ => self.pools.iter().collect(),
        };
        for pool in pools {
            let api = Api::<Pod>::namespaced(client.clone(), pool);
            for pod in list(&api, &params).await? {
                let name = pod.name_any();
                match api.delete(&name, &DeleteParams::default().grace_period(GRACE_SECONDS)).await {
                    Err(error) if is_missing(&error) => {}
                    Err(error) => return Err(refused("delete the pod", &error)),
                    Ok(_) => waiting::until_gone(api.clone(), &name, &pod.uid().unwrap_or_default()).await?,
                }
                account::delete(client, pool, &name).await?;
            }
            // A launch that was cut off early has an account and no pod.
            let accounts = Api::<ServiceAccount>::namespaced(client.clone(), pool);
            for found in list(&accounts, &params).await? {
                account::delete(client, pool, &found.name_any()).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn list_pods(&self) -> Result<Vec<Instance>, DriverError> {
        let cluster = self.contexts.cluster(self.context.as_deref()).await?;
        let params = ListParams::default().labels(&format!("{PROVIDER}={},{NODE_ID}", self.provider));
        let mut found = Vec::new();
        for pool in &self.pools {
            let pods = list(&Api::<Pod>::namespaced(cluster.client.clone(), pool), &params).await?;
            let pods: Vec<Instance> = pods.iter().filter_map(|pod| instance(pod, pool, true)).collect();
            let accounts = list(&Api::<ServiceAccount>::namespaced(cluster.client.clone(), pool), &params).await?;
            let alone = accounts.iter().filter_map(|account| instance(account, pool, false));
            let alone: Vec<Instance> =
                alone.filter(|account| pods.iter().all(|pod| pod.node_id != account.node_id)).collect();
            found.extend(pods);
            found.extend(alone);
        }
        Ok(found)
    }

    pub(super) async fn check_node(&self, node_id: &str, node: &Node) -> Result<(), DriverError> {
        let cluster = self.contexts.cluster(self.context.as_deref()).await?;
        let port: Value = serde_json::from_str(node.connection_port.text()).unwrap_or(Value::Null);
        let Some(namespace) = port["namespace"].as_str() else { return Ok(()) };
        let Some(pod) = port["pod"].as_str() else { return self.check_namespace(&cluster, namespace).await };
        match Api::<Pod>::namespaced(cluster.client.clone(), namespace).get(pod).await {
            Ok(pod) if waiting::phase(&pod) == "Running" && pod.metadata.deletion_timestamp.is_none() => Ok(()),
            Ok(pod) => {
                let phase = waiting::phase(&pod);
                Err(DriverError::Transient(format!("the pod of node {node_id} is {phase} and not Running")))
            }
            Err(error) if is_missing(&error) => {
                Err(DriverError::Transient(format!("the pod of node {node_id} is gone")))
            }
            Err(error) => Err(refused("read the pod", &error)),
        }
    }
}

/// How Zuul reaches a pod.
fn connection(cluster: &Cluster, pod: &str, namespace: &str, token: &str) -> Value {
    json!({
        "pod": pod,
        "namespace": namespace,
        "host": cluster.host,
        "ca_crt": cluster.ca,
        "skiptls": cluster.skip_tls,
        "token": token,
        "user": WORKER,
    })
}

fn instance<K: kube::Resource>(object: &K, pool: &str, named: bool) -> Option<Instance> {
    let node_id = object.labels().get(NODE_ID)?.clone();
    let pool = object.labels().get(POOL).cloned().unwrap_or_else(|| pool.to_owned());
    let external_id = named.then(|| format!("{pool}-{}", object.name_any()));
    Some(Instance { node_id, pool: Some(pool), external_id })
}

/// Lists what there is; a namespace that is not there, or a kind that may not be listed, has nothing.
pub(super) async fn list<K>(api: &Api<K>, params: &ListParams) -> Result<Vec<K>, DriverError>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match api.list(params).await {
        Ok(list) => Ok(list.items),
        Err(error) if is_missing(&error) => Ok(Vec::new()),
        Err(kube::Error::Api(status)) if status.is_forbidden() && status.message.contains("serviceaccounts") => {
            Ok(Vec::new())
        }
        Err(error) => Err(refused("list what there is", &error)),
    }
}
