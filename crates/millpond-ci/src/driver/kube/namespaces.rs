//! Nodes with a namespace of their own: `kubernetes`, and `openshift`, where the namespace is a project.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Map, Value, json};

use super::super::{DriverError, Instance, Launch, Launched};
use super::contexts::Cluster;
use super::{KubeDriver, NODE_ID, PROVIDER, WORKER, account, body, created, is_missing, pods, refused, waiting};
use crate::config::{Driver, PodLabel};
use crate::model::Json;

impl KubeDriver {
    pub(super) async fn launch_namespace(&self, launch: &Launch, label: &PodLabel) -> Result<Launched, DriverError> {
        let cluster = self.contexts.cluster(self.context.as_deref()).await?;
        let client = &cluster.client;
        let namespace = format!("{}-{}", launch.pool.name, launch.node_id);
        let with_pod = label.kind == "pod";
        self.create_namespace(client, &namespace, body::labels(launch, label)).await?;
        let named = |name: &str| ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        account::create(client, &namespace, named(WORKER)).await?;
        match (self.kind, with_pod) {
            (Driver::OpenShift, _) => {
                account::bind(client, &namespace, named("admin-0"), "ClusterRole", "admin", WORKER).await?;
            }
            (_, true) => {
                let (role, binding) = (named("zuul-restricted"), named("zuul-role"));
                account::allow(client, &namespace, role, binding, WORKER, account::restricted_rules()).await?;
            }
            (_, false) => {
                let (role, binding) = (named("zuul"), named("zuul-role"));
                account::allow(client, &namespace, role, binding, WORKER, account::namespace_rules()).await?;
            }
        }
        let mut host_id = None;
        if with_pod {
            let pod = body::pod(self.kind, &launch.label, launch, label, None);
            self.create_pod(client, &namespace, &pod).await?;
            let pod = waiting::until_running(client, &namespace, &launch.label).await?;
            host_id = pod.spec.and_then(|spec| spec.node_name);
        }
        let token = account::token(client, &namespace, WORKER, None).await?;
        let pod = with_pod.then_some(launch.label.as_str());
        let connection_type = match (with_pod, self.kind) {
            (true, _) => "kubectl",
            (false, Driver::OpenShift) => "project",
            (false, _) => "namespace",
        };
        Ok(Launched {
            external_id: Some(namespace.clone()),
            cloud: self.context.clone(),
            host_id,
            interface_ip: pod.map(ToOwned::to_owned),
            connection_port: Some(Json::of(&connection(&cluster, &namespace, &token, pod))),
            connection_type: Some(connection_type.to_owned()),
            python_path: Some(label.python_path.clone()),
            shell_type: label.shell_type.clone(),
            ..Launched::default()
        })
    }

    async fn create_namespace(
        &self,
        client: &Client,
        name: &str,
        labels: Map<String, Value>,
    ) -> Result<(), DriverError> {
        let (kind, api_version) = match self.kind {
            Driver::OpenShift => (project_request(), "project.openshift.io/v1"),
            _ => (ApiResource::erase::<Namespace>(&()), "v1"),
        };
        let body = json!({
            "apiVersion": api_version, "kind": kind.kind, "metadata": {"name": name, "labels": labels},
        });
        let object: DynamicObject = serde_json::from_value(body)
            .map_err(|error| DriverError::Permanent(format!("the labels cannot be written: {error}")))?;
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
        created(api.create(&PostParams::default(), &object).await, "create the namespace").map(drop)
    }

    /// Where namespaces of nodes are listed and deleted.
    fn namespaces(&self, client: &Client) -> Api<DynamicObject> {
        let kind = match self.kind {
            Driver::OpenShift => project(),
            _ => ApiResource::erase::<Namespace>(&()),
        };
        Api::all_with(client.clone(), &kind)
    }

    pub(super) async fn delete_namespace(&self, instance: &Instance) -> Result<(), DriverError> {
        let cluster = self.contexts.cluster(self.context.as_deref()).await?;
        let api = self.namespaces(&cluster.client);
        let pools = self.pools.iter().map(|pool| format!("{pool}-{}", instance.node_id));
        let names: Vec<String> = instance.external_id.clone().map_or_else(|| pools.collect(), |name| vec![name]);
        for name in names {
            let uid = match api.get(&name).await {
                Err(error) if is_missing(&error) => continue,
                // A project of another owner looks like one that does not exist.
                Err(kube::Error::Api(status)) if status.is_forbidden() && self.kind == Driver::OpenShift => continue,
                found => found.map_err(|error| refused("read the namespace", &error))?.uid().unwrap_or_default(),
            };
            match api.delete(&name, &DeleteParams::background()).await {
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(refused("delete the namespace", &error)),
                Ok(_) => waiting::until_gone(api.clone(), &name, &uid).await?,
            }
        }
        Ok(())
    }

    pub(super) async fn list_namespaces(&self) -> Result<Vec<Instance>, DriverError> {
        let cluster = self.contexts.cluster(self.context.as_deref()).await?;
        let api = self.namespaces(&cluster.client);
        // OpenShift does not keep the labels of a request for a project.
        let params = match self.kind {
            Driver::OpenShift => ListParams::default(),
            _ => ListParams::default().labels(&format!("{PROVIDER}={},{NODE_ID}", self.provider)),
        };
        let found = pods::list(&api, &params).await?;
        let of = |object: &DynamicObject| {
            let name = object.name_any();
            let (pool, id) = name.rsplit_once('-')?;
            let id = object.labels().get(NODE_ID).cloned().unwrap_or_else(|| id.to_owned());
            let is_ours = self.pools.iter().any(|known| known == pool) && id.bytes().all(|byte| byte.is_ascii_digit());
            let (pool, id) = (pool.to_owned(), id);
            is_ours.then(|| Instance { node_id: id, pool: Some(pool), external_id: Some(name.clone()) })
        };
        Ok(found.iter().filter_map(of).collect())
    }

    pub(super) async fn check_namespace(&self, cluster: &Cluster, name: &str) -> Result<(), DriverError> {
        match self.namespaces(&cluster.client).get(name).await {
            Ok(found) if found.metadata.deletion_timestamp.is_none() => Ok(()),
            Err(error) if !is_missing(&error) => Err(refused("read the namespace", &error)),
            _ => Err(DriverError::Transient(format!("the namespace `{name}` is gone"))),
        }
    }
}

fn project() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("project.openshift.io", "v1", "Project"))
}

fn project_request() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("project.openshift.io", "v1", "ProjectRequest"))
}

/// How Zuul reaches a namespace, or a pod in it.
fn connection(cluster: &Cluster, namespace: &str, token: &str, pod: Option<&str>) -> Value {
    let mut connection = json!({
        "name": namespace,
        "namespace": namespace,
        "host": cluster.host,
        "skiptls": cluster.skip_tls,
        "token": token,
        "user": WORKER,
    });
    if !cluster.skip_tls {
        connection["ca_crt"] = json!(cluster.ca);
    }
    if let Some(pod) = pod {
        connection["pod"] = pod.into();
    }
    connection
}
