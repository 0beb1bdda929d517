//! Records that are objects of the Kubernetes API.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use millpond_runtime::clock::Clock;
use serde_json::{Map, Value, json};

use super::of_store;
use super::{Change, Images, NodeEntry, RequestEntry, Result, Source, SourceError};
use crate::builder::objects::ObjectStore;
use crate::builder::store::Write;
use crate::model::NodeState;
use crate::objects::kinds::{CINode, NodeRequest};
use crate::objects::{node_of, request_name, request_of};

/// Names of a page; a list goes on until there are no more.
const PAGE: u32 = 500;

/// Requests, nodes and images of a cluster.
#[derive(Clone)]
pub struct ObjectSource {
    client: Client,
    image_store: Arc<ObjectStore>,
    labels: Labels,
}

/// The labels of the pools that are served, as they are now.
pub type Labels = Arc<dyn Fn() -> BTreeSet<String> + Send + Sync>;

impl ObjectSource {
    /// Reads through this client.
    pub fn new(client: Client, labels: Labels) -> Self {
        // A reader takes no locks.
        let image_store = ObjectStore::new(client.clone(), "default", "", Clock::Machine);
        Self { client, image_store, labels }
    }

    async fn list<K>(&self, what: &str) -> Result<Vec<K>>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let (api, mut all) = (Api::<K>::all(self.client.clone()), Vec::new());
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = api.list(&params).await.map_err(|source| failed("list", what, source))?;
            all.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(all),
            }
        }
    }

    async fn read_nodes(&self) -> Result<Vec<NodeEntry>> {
        let requests = self.list::<NodeRequest>("NodeRequests").await?;
        let names: BTreeMap<&str, String> =
            requests.iter().filter_map(|it| Some((it.metadata.uid.as_deref()?, request_name(it)))).collect();
        let nodes = self.list::<CINode>("CINodes").await?;
        let entry = |object: &CINode| {
            let request = object.status.request.as_ref();
            let name = request.map(|it| format!("{}/{}", it.namespace, it.name));
            let node = node_of(object, name);
            let held = request.is_some_and(|it| names.contains_key(it.uid.as_str()));
            let works = matches!(node.state, NodeState::Building | NodeState::Init | NodeState::Testing);
            let locked = works || (held && node.state == NodeState::InUse);
            NodeEntry { id: object.name().to_owned(), node, locked }
        };
        Ok(nodes.iter().map(entry).collect())
    }

    async fn read_requests(&self) -> Result<Vec<RequestEntry>> {
        let requests = self.list::<NodeRequest>("NodeRequests").await?;
        let entry = |object: &NodeRequest| RequestEntry { id: request_name(object), request: request_of(object) };
        Ok(requests.iter().map(entry).collect())
    }

    async fn write_state(&self, id: &str, state: NodeState) -> Result<Change> {
        let now = jiff::Timestamp::now().as_millisecond() as f64 / 1000.0;
        let patch = json!({"status": {"state": state.name(), "stateTime": now}});
        let api = Api::<CINode>::all(self.client.clone());
        match api.patch(id, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => Ok(Change::Done),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_invalid() => Ok(Change::NotFound),
            Err(source) => Err(failed("change", &format!("node `{id}`"), source)),
        }
    }

    async fn remove_nodes(&self, provider: &str) -> Result<()> {
        let api = Api::<CINode>::all(self.client.clone());
        for node in self.list::<CINode>("CINodes").await? {
            if node.spec.provider.as_deref() != Some(provider) {
                continue;
            }
            match api.delete(node.name(), &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                deleted => {
                    deleted.map_err(|source| failed("remove", &format!("node `{}`", node.name()), source))?;
                }
            }
        }
        Ok(())
    }
}

fn failed(verb: &'static str, what: &str, source: kube::Error) -> SourceError {
    SourceError::Api { verb, what: what.to_owned(), source: Box::new(source) }
}

impl Source for ObjectSource {
    fn nodes(&self) -> BoxFuture<'_, Result<Vec<NodeEntry>>> {
        self.read_nodes().boxed()
    }

    fn requests(&self) -> BoxFuture<'_, Result<Vec<RequestEntry>>> {
        self.read_requests().boxed()
    }

    fn labels(&self) -> BoxFuture<'_, Result<BTreeSet<String>>> {
        std::future::ready(Ok((self.labels)())).boxed()
    }

    fn images(&self) -> BoxFuture<'_, Result<Images>> {
        of_store::images(&*self.image_store).boxed()
    }

    fn set_node_state<'a>(&'a self, id: &'a str, state: NodeState) -> BoxFuture<'a, Result<Change>> {
        self.write_state(id, state).boxed()
    }

    fn set_paused<'a>(&'a self, image: &'a str, paused: bool) -> BoxFuture<'a, Result<()>> {
        of_store::write(&*self.image_store, Write::Pause { image: image.to_owned(), paused }).boxed()
    }

    fn request_build<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<()>> {
        of_store::write(&*self.image_store, Write::RequestBuild { image: image.to_owned() }).boxed()
    }

    fn delete_build<'a>(&'a self, image: &'a str, build: &'a str) -> BoxFuture<'a, Result<Change>> {
        of_store::delete_build(&*self.image_store, image, build).boxed()
    }

    fn delete_upload<'a>(
        &'a self,
        image: &'a str,
        build: &'a str,
        provider: &'a str,
        upload: &'a str,
    ) -> BoxFuture<'a, Result<Change>> {
        of_store::delete_upload(&*self.image_store, [image, build, provider, upload]).boxed()
    }

    fn erase_builds<'a>(&'a self, provider: &'a str) -> BoxFuture<'a, Result<()>> {
        of_store::erase(&*self.image_store, provider).boxed()
    }

    fn erase_nodes<'a>(&'a self, provider: &'a str) -> BoxFuture<'a, Result<()>> {
        self.remove_nodes(provider).boxed()
    }

    fn export_images(&self) -> BoxFuture<'_, Result<Map<String, Value>>> {
        of_store::export(&*self.image_store).boxed()
    }

    fn import_images(&self, data: Map<String, Value>) -> BoxFuture<'_, Result<()>> {
        async move { of_store::import(&*self.image_store, &data).await }.boxed()
    }
}
