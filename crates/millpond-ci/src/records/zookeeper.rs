//! Records in ZooKeeper, as Nodepool's own command line reads and changes them: without watches, each verb for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all, try_join_all};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{Build, BuildRequest, Change, Image, Images, NodeEntry, RequestEntry, Result, Source, SourceError, Upload};
use crate::config::ZooKeeper;
use crate::launcher::Key;
use crate::model::{Node, NodeRequest, NodeState, PoolComponent, parse, to_bytes};
use crate::zk::paths::{self, IMAGES, LOCK_MARK, NODES, POOLS, REQUESTS};
use crate::zk::{Client, CreateMode, Stat, ZkError};

/// How long the connection may take.
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);
/// How long the lock of a node may take; Nodepool's own figure.
const LOCKED_WITHIN: Duration = Duration::from_secs(5);
/// How often a lock that another process holds is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How deep records of a provider are; a deeper tree is none of Nodepool's.
const LIMIT_DEPTH: usize = 16;

/// Nodes, requests and images of an ensemble.
#[derive(Debug, Clone)]
pub struct ZooKeeperSource {
    client: Client,
}

impl ZooKeeperSource {
    /// Connects; fails if the files of `zookeeper-tls` cannot be used, or no server answers.
    pub async fn connect(config: &ZooKeeper) -> Result<Self> {
        let client = Client::start(config, |_| {}).map_err(|error| SourceError::Store(error.to_string()))?;
        client
            .connected(CONNECTED_WITHIN)
            .await
            .map_err(|trouble| SourceError::Store(format!("cannot connect to ZooKeeper: {trouble}")))?;
        Ok(Self { client })
    }

    /// Reads through an existing session.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Names of children, sorted; none of a znode that is not there.
    async fn children(&self, path: &str) -> Result<Vec<String>> {
        match self.client.children(path).await {
            Ok(mut names) => {
                names.sort();
                Ok(names)
            }
            Err(ZkError::NoNode) => Ok(Vec::new()),
            Err(error) => Err(failed("list", path, &error)),
        }
    }

    async fn get(&self, path: &str) -> Result<Option<(Vec<u8>, Stat)>> {
        match self.client.get(path).await {
            Ok(found) => Ok(Some(found)),
            Err(ZkError::NoNode) => Ok(None),
            Err(error) => Err(failed("read", path, &error)),
        }
    }

    async fn stat(&self, path: &str) -> Result<Option<Stat>> {
        self.client.exists(path).await.map_err(|error| failed("read", path, &error))
    }

    /// A record; one that is damaged is said in the log and left out.
    async fn record<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<Option<T>> {
        let Some((data, _)) = self.get(path).await? else { return Ok(None) };
        if data.is_empty() {
            return Ok(None);
        }
        match parse(path, &data) {
            Ok(record) => Ok(Some(record)),
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(path, %error, cause, "a damaged record is left out");
                Ok(None)
            }
        }
    }

    async fn read_nodes(&self) -> Result<Vec<NodeEntry>> {
        let ids = self.children(NODES).await?;
        let read = ids.into_iter().map(|id| async move {
            let key = Key::Node(id.clone());
            let (path, lock) = (paths::record(&key), paths::lock(&key));
            let (node, contenders) = tokio::join!(self.record::<Node>(&path), self.children(&lock));
            let locked = contenders?.iter().any(|name| name.contains(LOCK_MARK));
            Ok::<_, SourceError>(node?.map(|node| NodeEntry { id, node, locked }))
        });
        Ok(try_join_all(read).await?.into_iter().flatten().collect())
    }

    async fn read_requests(&self) -> Result<Vec<RequestEntry>> {
        let ids = self.children(REQUESTS).await?;
        let read = ids.into_iter().map(|id| async move {
            let request = self.record::<NodeRequest>(&paths::record(&Key::Request(id.clone()))).await?;
            Ok::<_, SourceError>(request.map(|request| RequestEntry { id, request }))
        });
        Ok(try_join_all(read).await?.into_iter().flatten().collect())
    }

    async fn read_labels(&self) -> Result<BTreeSet<String>> {
        let pools = self.children(POOLS).await?;
        let read =
            pools.into_iter().map(|name| async move { self.record::<PoolComponent>(&format!("{POOLS}/{name}")).await });
        let pools = try_join_all(read).await?;
        Ok(pools.into_iter().flatten().flat_map(|pool| pool.supported_labels).collect())
    }

    async fn read_images(&self) -> Result<Images> {
        let names = self.children(IMAGES).await?;
        Ok(Images { images: try_join_all(names.into_iter().map(|name| self.read_image(name))).await? })
    }

    async fn read_image(&self, name: String) -> Result<Image> {
        let path = format!("{IMAGES}/{name}");
        let (pause, request) = (format!("{path}/pause"), format!("{path}/request-build"));
        let (paused, request) = tokio::join!(self.stat(&pause), self.stat(&request));
        let builds_path = format!("{path}/builds");
        let mut ids = self.children(&builds_path).await?;
        ids.retain(|id| id != "lock");
        let mut builds = Vec::new();
        let mut newest = None;
        for (build, stat) in
            try_join_all(ids.into_iter().map(|id| self.read_build(&builds_path, id))).await?.into_iter().flatten()
        {
            newest = newest.max(Some(stat.ctime_ms));
            builds.push(build);
        }
        let request = match request? {
            Some(asked) => {
                let lock = self.stat(&format!("{builds_path}/lock")).await?.filter(|lock| lock.children > 0);
                let building = lock.is_some_and(|lock| newest.is_some_and(|newest| newest >= lock.ctime_ms));
                Some(BuildRequest { since: asked.ctime_ms as f64 / 1000.0, building })
            }
            None => None,
        };
        Ok(Image { name, paused: paused?.is_some(), request, builds })
    }

    async fn read_build(&self, builds: &str, id: String) -> Result<Option<(Build, Stat)>> {
        let path = format!("{builds}/{id}");
        let Some((data, stat)) = self.get(&path).await? else { return Ok(None) };
        let record: Value = serde_json::from_slice(&data).unwrap_or_default();
        let mut uploads = Vec::new();
        for provider in self.children(&format!("{path}/providers")).await? {
            let folder = format!("{path}/providers/{provider}/images");
            let ids = self.children(&folder).await?.into_iter().filter(|id| id != "lock");
            let read = ids.map(|id| {
                let path = format!("{folder}/{id}");
                async move { Ok::<_, SourceError>((id, self.get(&path).await?)) }
            });
            for (id, found) in try_join_all(read).await? {
                let Some((data, _)) = found else { continue };
                uploads.push(upload(id, &provider, &serde_json::from_slice(&data).unwrap_or_default()));
            }
        }
        let mut formats: Vec<String> =
            text(&record, "formats").iter().flat_map(|all| all.split(',')).map(ToOwned::to_owned).collect();
        formats.sort();
        let build = Build {
            id,
            builder: text(&record, "builder"),
            formats,
            state: text(&record, "state").unwrap_or_default(),
            state_time: record["state_time"].as_f64().unwrap_or_default(),
            uploads,
        };
        Ok(Some((build, stat)))
    }

    /// Takes a lock of kazoo's; gives the znode that holds it, or nothing if another process holds it for too long.
    async fn lock(&self, folder: &str) -> Result<Option<String>> {
        self.client.ensure(folder).await.map_err(|error| failed("lock", folder, &error))?;
        let name = format!("{folder}/{}{LOCK_MARK}", uuid::Uuid::new_v4().simple());
        let created = self.client.create(&name, Vec::new(), CreateMode::EphemeralSequential).await;
        let own = created.map_err(|error| failed("lock", folder, &error))?;
        let give_up = Instant::now() + LOCKED_WITHIN;
        loop {
            let sequence = |name: &str| name.rsplit_once(LOCK_MARK).and_then(|(_, digits)| digits.parse::<i64>().ok());
            let first = self.children(folder).await?.iter().filter_map(|name| sequence(name)).min();
            if first == sequence(&own) {
                return Ok(Some(own));
            }
            if Instant::now() >= give_up {
                let _ = self.client.delete(&own, None).await;
                return Ok(None);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn write_state(&self, id: &str, state: NodeState) -> Result<Change> {
        let key = Key::Node(id.to_owned());
        let path = paths::record(&key);
        // Taking the lock of a node that is not there would make a folder for it.
        if self.record::<Node>(&path).await?.is_none() {
            return Ok(Change::NotFound);
        }
        let Some(lock) = self.lock(&paths::lock(&key)).await? else {
            let seconds = LOCKED_WITHIN.as_secs();
            return Ok(Change::Refused(format!("node {id} is locked by another process for more than {seconds} s")));
        };
        let changed = async {
            let Some(mut node) = self.record::<Node>(&path).await? else { return Ok(Change::NotFound) };
            node.set_state(state, crate::web::now());
            let written = self.client.set(&path, to_bytes(&node), None).await;
            written.map_err(|error| failed("write", &path, &error))?;
            Ok(Change::Done)
        };
        let changed = changed.await;
        let _ = self.client.delete(&lock, None).await;
        changed
    }

    /// Sets the state of a build or an upload, unless it is in a state that forbids it.
    async fn mark(&self, path: &str, busy: &str, refusal: &str) -> Result<Change> {
        let Some((data, stat)) = self.get(path).await? else { return Ok(Change::NotFound) };
        let mut record: Map<String, Value> =
            serde_json::from_slice(&data).map_err(|error| SourceError::Store(format!("read `{path}`: {error}")))?;
        if record.get("state").and_then(Value::as_str) == Some(busy) {
            return Ok(Change::Refused(refusal.to_owned()));
        }
        record.insert("state".to_owned(), "deleting".into());
        record.insert("state_time".to_owned(), crate::web::now().into());
        let written = self.client.set(path, to_bytes(&record), Some(stat.version)).await;
        written.map_err(|error| failed("write", path, &error))?;
        Ok(Change::Done)
    }

    fn remove(&self, path: String, depth: usize) -> BoxFuture<'_, Result<()>> {
        async move {
            if depth > LIMIT_DEPTH {
                return Err(SourceError::Store(format!("`{path}` is deeper than records are")));
            }
            let children = self.children(&path).await?;
            let below = children.iter().map(|name| self.remove(format!("{path}/{name}"), depth + 1));
            try_join_all(below).await?;
            match self.client.delete(&path, None).await {
                Ok(()) | Err(ZkError::NoNode) => Ok(()),
                Err(error) => Err(failed("remove", &path, &error)),
            }
        }
        .boxed()
    }

    async fn remove_builds(&self, provider: &str) -> Result<()> {
        for image in self.children(IMAGES).await? {
            for build in self.children(&format!("{IMAGES}/{image}/builds")).await? {
                self.remove(format!("{IMAGES}/{image}/builds/{build}/providers/{provider}"), 0).await?;
            }
        }
        Ok(())
    }

    async fn remove_nodes(&self, provider: &str) -> Result<()> {
        let nodes = self.read_nodes().await?.into_iter();
        let nodes = nodes.filter(|entry| entry.node.provider.as_deref() == Some(provider));
        let removed = join_all(nodes.map(|entry| self.remove(paths::record(&Key::Node(entry.id)), 0))).await;
        removed.into_iter().collect()
    }

    async fn export(&self) -> Result<Map<String, Value>> {
        let mut data = Map::new();
        let images = self.read_images().await?;
        let mut wanted = Vec::new();
        for image in &images.images {
            let path = format!("{IMAGES}/{}", image.name);
            if image.paused {
                data.insert(format!("{path}/pause"), "".into());
            }
            for build in &image.builds {
                let path = format!("{path}/builds/{}", build.id);
                wanted.push(path.clone());
                let uploads = build.uploads.iter();
                wanted.extend(uploads.map(|it| format!("{path}/providers/{}/images/{}", it.provider, it.id)));
            }
        }
        let read = try_join_all(wanted.iter().map(|path| self.get(path))).await?;
        for (path, found) in wanted.into_iter().zip(read) {
            if let Some((bytes, _)) = found {
                data.insert(path, String::from_utf8_lossy(&bytes).into_owned().into());
            }
        }
        Ok(data)
    }

    /// Sequence numbers below those that are imported are used up first, so that no later upload collides with one.
    async fn import(&self, data: Map<String, Value>) -> Result<()> {
        for path in data.keys() {
            if !path.starts_with(&format!("{IMAGES}/")) || path.split('/').any(|part| part == "." || part == "..") {
                return Err(SourceError::Store(format!("`{path}` is no record of an image")));
            }
        }
        let mut highest: BTreeMap<&str, u64> = BTreeMap::new();
        for path in data.keys().filter(|path| path.split('/').count() == 10) {
            if let Some((folder, number)) = path.rsplit_once('/').and_then(|(at, it)| Some((at, it.parse().ok()?))) {
                let known = highest.entry(folder).or_default();
                *known = (*known).max(number);
            }
        }
        for (folder, number) in highest {
            self.client.ensure(folder).await.map_err(|error| failed("create", folder, &error))?;
            for _ in 0..number {
                let made =
                    self.client.create(&format!("{folder}/"), Vec::new(), CreateMode::PersistentSequential).await;
                let made = made.map_err(|error| failed("create", folder, &error))?;
                if !data.contains_key(&made) {
                    self.client.delete(&made, None).await.map_err(|error| failed("remove", &made, &error))?;
                }
            }
        }
        for (path, value) in &data {
            let bytes = value.as_str().unwrap_or_default().as_bytes().to_vec();
            self.client.ensure(path).await.map_err(|error| failed("create", path, &error))?;
            self.client.set(path, bytes, None).await.map_err(|error| failed("write", path, &error))?;
        }
        Ok(())
    }
}

fn upload(id: String, provider: &str, record: &Value) -> Upload {
    Upload {
        id,
        provider: provider.to_owned(),
        external_id: text(record, "external_id"),
        external_name: text(record, "external_name"),
        state: text(record, "state").unwrap_or_default(),
        state_time: record["state_time"].as_f64().unwrap_or_default(),
    }
}

fn text(record: &Value, key: &str) -> Option<String> {
    record[key].as_str().map(ToOwned::to_owned)
}

fn failed(verb: &str, path: &str, error: &ZkError) -> SourceError {
    SourceError::Store(format!("cannot {verb} `{path}`: {error}"))
}

impl Source for ZooKeeperSource {
    fn nodes(&self) -> BoxFuture<'_, Result<Vec<NodeEntry>>> {
        self.read_nodes().boxed()
    }

    fn requests(&self) -> BoxFuture<'_, Result<Vec<RequestEntry>>> {
        self.read_requests().boxed()
    }

    fn labels(&self) -> BoxFuture<'_, Result<BTreeSet<String>>> {
        self.read_labels().boxed()
    }

    fn images(&self) -> BoxFuture<'_, Result<Images>> {
        self.read_images().boxed()
    }

    fn set_node_state<'a>(&'a self, id: &'a str, state: NodeState) -> BoxFuture<'a, Result<Change>> {
        self.write_state(id, state).boxed()
    }

    fn set_paused<'a>(&'a self, image: &'a str, paused: bool) -> BoxFuture<'a, Result<()>> {
        async move {
            let folder = format!("{IMAGES}/{image}");
            let path = format!("{folder}/pause");
            let written = if paused {
                self.client.ensure(&path).await
            } else {
                match self.client.delete(&path, None).await {
                    Err(ZkError::NoNode) => Ok(()),
                    deleted => deleted,
                }
            };
            written.map_err(|error| failed("write", &path, &error))
        }
        .boxed()
    }

    fn request_build<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<()>> {
        async move {
            let path = format!("{IMAGES}/{image}/request-build");
            let written = async {
                self.client.ensure(&path).await?;
                // One that stands already is renewed: builders tell by its time that it comes after their last failure.
                self.client.set(&path, Vec::new(), None).await
            };
            written.await.map(drop).map_err(|error| failed("write", &path, &error))
        }
        .boxed()
    }

    fn delete_build<'a>(&'a self, image: &'a str, build: &'a str) -> BoxFuture<'a, Result<Change>> {
        async move {
            let path = format!("{IMAGES}/{image}/builds/{build}");
            self.mark(&path, "building", "Cannot delete a build in progress").await
        }
        .boxed()
    }

    fn delete_upload<'a>(
        &'a self,
        image: &'a str,
        build: &'a str,
        provider: &'a str,
        upload: &'a str,
    ) -> BoxFuture<'a, Result<Change>> {
        async move {
            let path = format!("{IMAGES}/{image}/builds/{build}/providers/{provider}/images/{upload}");
            self.mark(&path, "uploading", "Cannot delete because image upload in progress").await
        }
        .boxed()
    }

    fn erase_builds<'a>(&'a self, provider: &'a str) -> BoxFuture<'a, Result<()>> {
        self.remove_builds(provider).boxed()
    }

    fn erase_nodes<'a>(&'a self, provider: &'a str) -> BoxFuture<'a, Result<()>> {
        self.remove_nodes(provider).boxed()
    }

    fn export_images(&self) -> BoxFuture<'_, Result<Map<String, Value>>> {
        self.export().boxed()
    }

    fn import_images(&self, data: Map<String, Value>) -> BoxFuture<'_, Result<()>> {
        self.import(data).boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.client.close().boxed()
    }
}
