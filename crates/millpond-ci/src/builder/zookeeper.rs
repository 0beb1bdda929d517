//! Image records in ZooKeeper, under the original's paths and locks: old builders and ours share one tree.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, try_join_all};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::store::{BuildRecords, Held, ImageRecords, ImageStore, LockKey, Records, StoreError, UploadKey, Write};
use crate::config::ZooKeeper;
use crate::model::{Component, ComponentKind, ImageUpload, parse, to_bytes};
use crate::zk::paths::{COMPONENTS, IMAGES, LOCK_MARK};
use crate::zk::{Client, CreateMode, Event, Op, Stat, TlsError, ZkError};

/// How deep records of an image are; a deeper tree is none of Nodepool's.
const LIMIT_DEPTH: usize = 16;
/// How often a tree is deleted again that another process adds to meanwhile.
const LIMIT_DELETES: usize = 3;
/// The most numbers that an import skips.
const LIMIT_NUMBERS: u64 = 100_000;

type Result<T> = std::result::Result<T, StoreError>;

/// Image records of an ensemble.
#[derive(Debug, Clone)]
pub struct ZooKeeperStore {
    client: Client,
    changed: Arc<watch::Sender<u64>>,
}

impl ZooKeeperStore {
    /// Connects in the background; announces a builder on this host in every session. Fails only if the files of
    /// `zookeeper-tls` cannot be used.
    pub fn start(
        config: &ZooKeeper,
        hostname: &str,
        version: &str,
        stop: &CancellationToken,
    ) -> std::result::Result<Arc<Self>, TlsError> {
        let changed = Arc::new(watch::Sender::new(0));
        let sender = Arc::clone(&changed);
        let on_event = move |event| {
            if !matches!(event, Event::Disconnected) {
                sender.send_modify(|count| *count += 1);
            }
        };
        let store = Arc::new(Self { client: Client::start(config, on_event)?, changed });
        let component = Component::running(ComponentKind::Builder, hostname, version);
        let (this, token) = (Arc::clone(&store), stop.clone());
        tokio::spawn(async move { token.run_until_cancelled(this.follow(component)).await });
        Ok(store)
    }

    /// Waits for a connection; gives the trouble if there is none in time.
    pub async fn connected(&self, limit: Duration) -> std::result::Result<(), String> {
        self.client.connected(limit).await
    }

    /// Closes the session: locks are free and the component gone at once.
    pub async fn close(&self) {
        self.client.close().await;
    }

    /// Watches the images in each connection, and announces the builder in each session.
    async fn follow(&self, component: Component) {
        let mut state = self.client.state();
        let mut announced = 0;
        loop {
            let (session, is_connected) = {
                let state = state.borrow_and_update();
                (state.session, state.is_connected)
            };
            if is_connected {
                if let Err(error) = self.prepare(&component, session, &mut announced).await {
                    tracing::debug!(%error, "not announced yet");
                }
                self.changed.send_modify(|count| *count += 1);
            }
            if state.changed().await.is_err() {
                return;
            }
        }
    }

    async fn prepare(
        &self,
        component: &Component,
        session: u64,
        announced: &mut u64,
    ) -> std::result::Result<(), ZkError> {
        self.client.ensure_chroot().await?;
        self.client.ensure(IMAGES).await?;
        self.client.call(Op::Watch { path: IMAGES.to_owned() }).await?;
        if *announced != session {
            let folder = format!("{COMPONENTS}/{}", ComponentKind::Builder.name());
            self.client.ensure(&folder).await?;
            let path = format!("{folder}/{}", component.hostname);
            self.client.create(&path, to_bytes(component), CreateMode::EphemeralSequential).await?;
            *announced = session;
        }
        Ok(())
    }

    /// Names of children, sorted; empty if the znode does not exist. Locks are no records.
    async fn children(&self, path: &str) -> Result<Vec<String>> {
        match self.client.children(path).await {
            Ok(mut names) => {
                names.retain(|name| name != "lock");
                names.sort();
                Ok(names)
            }
            Err(ZkError::NoNode) => Ok(Vec::new()),
            Err(error) => Err(failed(path, &error)),
        }
    }

    async fn stat(&self, path: &str) -> Result<Option<Stat>> {
        self.client.exists(path).await.map_err(|error| failed(path, &error))
    }

    /// A record; one that is damaged is said in the log and left out.
    async fn record<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<Option<T>> {
        let data = match self.client.get(path).await {
            Ok((data, _)) => data,
            Err(ZkError::NoNode) => return Ok(None),
            Err(error) => return Err(failed(path, &error)),
        };
        match parse(path, &data) {
            Ok(record) => Ok(Some(record)),
            Err(error) => {
                tracing::warn!(path, %error, "a damaged record is left out");
                Ok(None)
            }
        }
    }

    async fn read_all(&self) -> Result<Records> {
        let names = self.children(IMAGES).await?;
        let images = names.into_iter().map(|name| async move { Ok((name.clone(), self.read_image(&name).await?)) });
        Ok(try_join_all(images).await?.into_iter().collect())
    }

    async fn read_image(&self, name: &str) -> Result<ImageRecords> {
        let path = format!("{IMAGES}/{name}");
        let (pause, request) = (format!("{path}/pause"), format!("{path}/request-build"));
        let (builds, lock) = (format!("{path}/builds"), format!("{path}/builds/lock"));
        let (paused, request, ids, lock) =
            futures::try_join!(self.stat(&pause), self.stat(&request), self.children(&builds), self.stat(&lock))?;
        let read = ids.into_iter().map(|id| {
            let path = format!("{builds}/{id}");
            async move { Ok::<_, StoreError>((id, self.read_build(&path).await?)) }
        });
        let builds = try_join_all(read).await?.into_iter().filter_map(|(id, build)| Some((id, build?))).collect();
        Ok(ImageRecords {
            paused: paused.is_some(),
            request: request.map(|stat| stat.mtime_ms as f64 / 1000.0),
            locked: lock.is_some_and(|stat| stat.children > 0),
            builds,
        })
    }

    async fn read_build(&self, path: &str) -> Result<Option<BuildRecords>> {
        let providers_path = format!("{path}/providers");
        let (record, providers) = futures::try_join!(self.record(path), self.children(&providers_path))?;
        let Some(record) = record else { return Ok(None) };
        let mut build = BuildRecords::new(record);
        for provider in providers {
            let folder = format!("{providers_path}/{provider}/images");
            let read = self.children(&folder).await?.into_iter().map(|id| {
                let path = format!("{folder}/{id}");
                async move { Ok::<_, StoreError>((id, self.record::<ImageUpload>(&path).await?)) }
            });
            let uploads: BTreeMap<String, ImageUpload> =
                try_join_all(read).await?.into_iter().filter_map(|(id, upload)| Some((id, upload?))).collect();
            if !uploads.is_empty() {
                build.uploads.insert(provider, uploads);
            }
        }
        Ok(Some(build))
    }

    async fn write_one(&self, write: Write) -> Result<String> {
        match write {
            Write::CreateBuild { image, record } => {
                let (folder, id) = (format!("{IMAGES}/{image}/builds"), Uuid::new_v4().simple().to_string());
                self.ensure(&folder).await?;
                self.create(&format!("{folder}/{id}"), to_bytes(&record), CreateMode::Persistent).await?;
                return Ok(id);
            }
            Write::Build { image, id, record, .. } => self.set(&build_path(&image, &id), to_bytes(&record)).await?,
            Write::ImportBuild { image, id, record } => {
                self.ensure(&format!("{IMAGES}/{image}/builds")).await?;
                self.put(&build_path(&image, &id), to_bytes(&record)).await?;
            }
            Write::RemoveBuild { image, id } => {
                let build = self.read_build(&build_path(&image, &id)).await?;
                if build.is_some_and(|build| !build.uploads.is_empty()) {
                    return Err(StoreError::Conflict(format!("{image}-{id}")));
                }
                self.delete_tree(&build_path(&image, &id)).await?;
            }
            Write::CreateUpload { image, build, provider, record } => {
                if self.stat(&build_path(&image, &build)).await?.is_none() {
                    return Err(StoreError::Conflict(format!("{image}-{build}")));
                }
                let folder = uploads_path(&image, &build, &provider);
                self.ensure(&folder).await?;
                let made =
                    self.create(&format!("{folder}/"), to_bytes(&record), CreateMode::PersistentSequential).await?;
                return Ok(made.rsplit('/').next().unwrap_or_default().to_owned());
            }
            Write::Upload { key, record, .. } => self.set(&upload_path(&key), to_bytes(&record)).await?,
            Write::ImportUpload { key, record } => self.import_upload(&key, to_bytes(&record)).await?,
            Write::RemoveUpload(key) => self.delete_tree(&upload_path(&key)).await?,
            Write::Pause { image, paused: true } => self.ensure(&format!("{IMAGES}/{image}/pause")).await?,
            Write::Pause { image, paused: false } => self.delete_tree(&format!("{IMAGES}/{image}/pause")).await?,
            Write::RequestBuild { image } => {
                let path = format!("{IMAGES}/{image}/request-build");
                self.ensure(&path).await?;
                // A request that stands already is younger from here on: it does not wait for a back-off.
                self.set(&path, Vec::new()).await?;
            }
            Write::ClearRequest { image } => self.delete_tree(&format!("{IMAGES}/{image}/request-build")).await?,
        }
        Ok(String::new())
    }

    async fn ensure(&self, path: &str) -> Result<()> {
        self.client.ensure(path).await.map_err(|error| failed(path, &error))
    }

    async fn create(&self, path: &str, data: Vec<u8>, mode: CreateMode) -> Result<String> {
        self.client.create(path, data, mode).await.map_err(|error| failed(path, &error))
    }

    async fn set(&self, path: &str, data: Vec<u8>) -> Result<()> {
        self.client.set(path, data, None).await.map(drop).map_err(|error| failed(path, &error))
    }

    async fn put(&self, path: &str, data: Vec<u8>) -> Result<()> {
        match self.client.create(path, data.clone(), CreateMode::Persistent).await {
            Err(ZkError::NodeExists) => self.set(path, data).await,
            made => made.map(drop).map_err(|error| failed(path, &error)),
        }
    }

    /// Writes an upload under its number, and uses up the numbers before it, so that later uploads have higher ones.
    async fn import_upload(&self, key: &UploadKey, data: Vec<u8>) -> Result<()> {
        let folder = uploads_path(&key.image, &key.build, &key.provider);
        self.ensure(&folder).await?;
        let wanted: u64 = key.id.parse().map_err(|_| StoreError::Refused(format!("`{key}` has no number")))?;
        for _ in 0..LIMIT_NUMBERS {
            let made = self.create(&format!("{folder}/"), Vec::new(), CreateMode::PersistentSequential).await;
            let made = match made {
                Ok(made) => made,
                // The next number is taken: the folder is older than the import.
                Err(StoreError::Conflict(_)) => break,
                Err(error) => return Err(error),
            };
            let number: u64 = made.rsplit('/').next().and_then(|id| id.parse().ok()).unwrap_or(u64::MAX);
            if number == wanted {
                return self.set(&made, data).await;
            }
            self.delete_tree(&made).await?;
            if number > wanted {
                break;
            }
        }
        self.put(&upload_path(key), data).await
    }

    /// Deletes a znode and everything below. One that is gone is no error.
    fn delete_tree<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<()>> {
        self.delete_below(path, 0).boxed()
    }

    fn delete_below<'a>(&'a self, path: &'a str, depth: usize) -> BoxFuture<'a, Result<()>> {
        async move {
            if depth > LIMIT_DEPTH {
                return Err(StoreError::Refused(format!("`{path}` is deeper than records are")));
            }
            for _ in 0..LIMIT_DELETES {
                match self.client.delete(path, None).await {
                    Ok(()) | Err(ZkError::NoNode) => return Ok(()),
                    Err(ZkError::NotEmpty) => {}
                    Err(error) => return Err(failed(path, &error)),
                }
                let names = match self.client.children(path).await {
                    Ok(names) => names,
                    Err(ZkError::NoNode) => return Ok(()),
                    Err(error) => return Err(failed(path, &error)),
                };
                for name in names {
                    self.delete_below(&format!("{path}/{name}"), depth + 1).await?;
                }
            }
            Err(StoreError::Conflict(path.to_owned()))
        }
        .boxed()
    }

    /// kazoo's rule: of all contenders the one with the lowest number holds the lock.
    async fn take(&self, key: &LockKey) -> Result<Option<Box<dyn Held>>> {
        let folder = lock_path(key);
        let session = self.client.state().borrow().session;
        self.ensure(&folder).await?;
        let name = format!("{folder}/{}{LOCK_MARK}", Uuid::new_v4().simple());
        let own = self.create(&name, Vec::new(), CreateMode::EphemeralSequential).await?;
        let held = HeldZnode { client: self.client.clone(), path: own, session, is_released: false };
        let names = self.client.children(&folder).await.map_err(|error| failed(&folder, &error))?;
        let number = |name: &str| name.rsplit_once(LOCK_MARK).and_then(|(_, digits)| digits.parse::<i64>().ok());
        if names.iter().filter_map(|name| number(name)).min() == number(&held.path) {
            return Ok(Some(Box::new(held)));
        }
        Box::new(held).release().await;
        Ok(None)
    }
}

impl ImageStore for ZooKeeperStore {
    fn read(&self) -> BoxFuture<'_, Result<Records>> {
        self.read_all().boxed()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn lock<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<Box<dyn Held>>>> {
        self.take(key).boxed()
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<String>> {
        self.write_one(write).boxed()
    }

    fn connected(&self) -> BoxFuture<'_, ()> {
        async {
            // An error means that the client has ended; the write that follows will report it.
            let _ = self.client.state().wait_for(|state| state.is_connected).await;
        }
        .boxed()
    }
}

#[derive(Debug)]
struct HeldZnode {
    client: Client,
    path: String,
    session: u64,
    is_released: bool,
}

impl Held for HeldZnode {
    fn is_held(&self) -> bool {
        self.client.state().borrow().session == self.session
    }

    fn release(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        self.is_released = true;
        let (client, path) = (self.client.clone(), self.path.clone());
        async move {
            // A znode that is gone, or will be gone with its session.
            let _ = client.delete(&path, None).await;
        }
        .boxed()
    }
}

impl Drop for HeldZnode {
    fn drop(&mut self) {
        if !self.is_released {
            self.client.send(Op::Delete { path: self.path.clone(), version: None }, drop);
        }
    }
}

fn failed(path: &str, error: &ZkError) -> StoreError {
    match error {
        ZkError::ConnectionLoss | ZkError::SessionExpired => StoreError::Disconnected(error.to_string()),
        ZkError::NoNode | ZkError::NodeExists | ZkError::BadVersion | ZkError::NotEmpty => {
            StoreError::Conflict(path.to_owned())
        }
        error => StoreError::Refused(format!("`{path}`: {error}")),
    }
}

fn build_path(image: &str, build: &str) -> String {
    format!("{IMAGES}/{image}/builds/{build}")
}

fn uploads_path(image: &str, build: &str, provider: &str) -> String {
    format!("{IMAGES}/{image}/builds/{build}/providers/{provider}/images")
}

fn upload_path(key: &UploadKey) -> String {
    format!("{}/{}", uploads_path(&key.image, &key.build, &key.provider), key.id)
}

fn lock_path(key: &LockKey) -> String {
    match key {
        LockKey::Image(image) => format!("{IMAGES}/{image}/builds/lock"),
        LockKey::Build { image, build } => format!("{}/lock", build_path(image, build)),
        LockKey::Uploads { image, build, provider } => format!("{}/lock", uploads_path(image, build, provider)),
        LockKey::Upload(key) => format!("{}/lock", upload_path(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_where_nodepool_has_them() {
        let (image, build, provider) = ("i".to_owned(), "b".to_owned(), "p".to_owned());
        let key = UploadKey { image: "i".into(), build: "b".into(), provider: "p".into(), id: "0000000001".into() };
        let paths = [
            LockKey::Image("i".to_owned()),
            LockKey::Build { image: "i".to_owned(), build: "b".to_owned() },
            LockKey::Uploads { image, build, provider },
            LockKey::Upload(key),
        ]
        .map(|key| lock_path(&key));
        let expected = [
            "/nodepool/images/i/builds/lock",
            "/nodepool/images/i/builds/b/lock",
            "/nodepool/images/i/builds/b/providers/p/images/lock",
            "/nodepool/images/i/builds/b/providers/p/images/0000000001/lock",
        ];
        assert_eq!(paths, expected);
    }
}
