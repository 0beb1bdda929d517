//! What an operator reads and changes: nodes, requests and images, wherever they are kept. The command line and the web
//! API stand on [`Source`]; `view` draws what it gives.

mod aliens;
mod images;
mod objects;
mod of_store;
pub mod uploads;
mod zookeeper;

use std::collections::BTreeSet;

use futures::future::BoxFuture;

pub use aliens::list_aliens;
pub use images::{Build, BuildRequest, Image, Images, Upload};
pub use objects::{Labels, ObjectSource};
pub use zookeeper::ZooKeeperSource;

use crate::model::{Node, NodeRequest, NodeState};
use crate::view::{
    BuildEntry, ImageStatusEntry, ListedNode, ListedRequest, Listing, UploadEntry, dib_image_list, image_list,
    image_status, info_images, info_nodes, label_list, node_list, request_list,
};

/// A node as it is listed.
#[derive(Debug, Clone)]
pub struct NodeEntry {
    /// Its id.
    pub id: String,
    /// Its record.
    pub node: Node,
    /// Whether a process or a request holds it.
    pub locked: bool,
}

/// A request as it is listed.
#[derive(Debug, Clone)]
pub struct RequestEntry {
    /// Its id, or the name of its object.
    pub id: String,
    /// Its record.
    pub request: NodeRequest,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It is done.
    Done,
    /// There is nothing of that name.
    NotFound,
    /// It cannot be done now, for this reason.
    Refused(String),
}

/// Why records could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The Kubernetes API did not do it.
    #[error("cannot {verb} {what}")]
    Api {
        /// What was tried.
        verb: &'static str,
        /// On what.
        what: String,
        /// What the client said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The store does not keep such records.
    #[error("{0} are kept in ZooKeeper only; the configuration names no `zookeeper-servers`")]
    NotKept(&'static str),
    /// The store did not answer as it should.
    #[error("{0}")]
    Store(String),
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, SourceError>;

/// Where records are.
pub trait Source: Send + Sync {
    /// All nodes, by id.
    fn nodes(&self) -> BoxFuture<'_, Result<Vec<NodeEntry>>>;

    /// All requests, by id.
    fn requests(&self) -> BoxFuture<'_, Result<Vec<RequestEntry>>>;

    /// Labels that any pool provides.
    fn labels(&self) -> BoxFuture<'_, Result<BTreeSet<String>>>;

    /// All images.
    fn images(&self) -> BoxFuture<'_, Result<Images>>;

    /// Sets the state of a node, once no process works on it.
    fn set_node_state<'a>(&'a self, id: &'a str, state: NodeState) -> BoxFuture<'a, Result<Change>>;

    /// Pauses builds of an image, or lets them go on.
    fn set_paused<'a>(&'a self, image: &'a str, paused: bool) -> BoxFuture<'a, Result<()>>;

    /// Asks for a build of an image.
    fn request_build<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<()>>;

    /// Marks a build for deletion.
    fn delete_build<'a>(&'a self, image: &'a str, build: &'a str) -> BoxFuture<'a, Result<Change>>;

    /// Marks an upload for deletion.
    fn delete_upload<'a>(
        &'a self,
        image: &'a str,
        build: &'a str,
        provider: &'a str,
        upload: &'a str,
    ) -> BoxFuture<'a, Result<Change>>;

    /// Removes the records of a provider's uploads.
    fn erase_builds<'a>(&'a self, provider: &'a str) -> BoxFuture<'a, Result<()>>;

    /// Removes the records of a provider's nodes.
    fn erase_nodes<'a>(&'a self, provider: &'a str) -> BoxFuture<'a, Result<()>>;

    /// Records of images by their path.
    fn export_images(&self) -> BoxFuture<'_, Result<serde_json::Map<String, serde_json::Value>>>;

    /// Writes records of images.
    fn import_images(&self, data: serde_json::Map<String, serde_json::Value>) -> BoxFuture<'_, Result<()>>;

    /// Ends a session, where there is one.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// `list`: all nodes, or one of them.
pub async fn list_nodes(source: &dyn Source, id: Option<&str>, now: f64) -> Result<Listing> {
    let nodes = source.nodes().await?;
    let listed: Vec<ListedNode<'_>> =
        nodes.iter().filter(|entry| id.is_none_or(|id| entry.id == id)).map(listed).collect();
    Ok(node_list(&listed, now))
}

fn listed(entry: &NodeEntry) -> ListedNode<'_> {
    ListedNode { id: &entry.id, node: &entry.node, locked: entry.locked }
}

/// `request-list`.
pub async fn list_requests(source: &dyn Source) -> Result<Listing> {
    let requests = source.requests().await?;
    let listed: Vec<ListedRequest<'_>> =
        requests.iter().map(|entry| ListedRequest { id: &entry.id, request: &entry.request }).collect();
    Ok(request_list(&listed))
}

/// `label-list` of the web API.
pub async fn list_labels(source: &dyn Source) -> Result<Listing> {
    let labels = source.labels().await?;
    Ok(label_list(&labels.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// `dib-image-list`.
pub async fn list_builds(source: &dyn Source) -> Result<Listing> {
    let images = source.images().await?;
    let entries = images.images.iter().flat_map(|image| {
        let paused = image.paused;
        image.builds.iter().map(move |build| BuildEntry {
            image: image.name.clone(),
            id: build.id.clone(),
            builder: build.builder.clone(),
            formats: build.formats.clone(),
            state: build.state.clone(),
            state_time: build.state_time,
            paused,
        })
    });
    Ok(dib_image_list(&entries.collect::<Vec<_>>()))
}

/// `image-list`.
pub async fn list_uploads(source: &dyn Source) -> Result<Listing> {
    let images = source.images().await?;
    let entries = images.uploads().map(|(image, build, upload)| UploadEntry {
        build_id: build.id.clone(),
        id: upload.id.clone(),
        provider: upload.provider.clone(),
        image: image.name.clone(),
        external_name: upload.external_name.clone(),
        external_id: upload.external_id.clone(),
        state: upload.state.clone(),
        state_time: upload.state_time,
    });
    Ok(image_list(&entries.collect::<Vec<_>>()))
}

/// `image-status`.
pub async fn list_status(source: &dyn Source) -> Result<Listing> {
    let images = source.images().await?;
    let entries = images.images.iter().map(|image| ImageStatusEntry {
        image: image.name.clone(),
        paused: image.paused,
        build_request: image.request.as_ref().map(|request| (request.since, request.building)),
    });
    Ok(image_status(&entries.collect::<Vec<_>>()))
}

/// `info`: the images and the nodes of a provider.
pub async fn info(source: &dyn Source, provider: &str) -> Result<(Listing, Listing)> {
    let images = match source.images().await {
        Ok(images) => images,
        Err(SourceError::NotKept(_)) => Images::default(),
        Err(error) => return Err(error),
    };
    let nodes = source.nodes().await?;
    let of_provider: Vec<ListedNode<'_>> =
        nodes.iter().filter(|entry| entry.node.provider.as_deref() == Some(provider)).map(listed).collect();
    Ok((info_images(&images.by_build(provider)), info_nodes(&of_provider)))
}
