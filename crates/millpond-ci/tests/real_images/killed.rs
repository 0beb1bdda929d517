//! Builders that end at any use of ZooKeeper: the next one leaves one build, uploaded once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use millpond_ci::builder::ImageStore;
use millpond_ci::builder::store::{Held, ImageSummary, LockKey, Records, StoreError, Write};
use millpond_ci::builder::zookeeper::ZooKeeperStore;
use millpond_ci::config::Config;
use millpond_ci::model::{BuildState, UploadState};
use millpond_testkit::{Scratch, ZooKeeper};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{builder, eventually, read};

/// More than a build with its upload needs.
const USES: usize = 8;

const DIB: &str = r#"#!/bin/sh
while [ "$1" != -o ]; do shift; done
echo image > "$2.qcow2"
"#;

/// A store that a builder can use so many times; then it is as if its process were killed: nothing ever returns.
struct Mortal {
    store: Arc<ZooKeeperStore>,
    left: AtomicUsize,
    died: Notify,
    /// Whether the last use still has its effect.
    is_done: bool,
}

impl Mortal {
    fn use_up<'a, T: Send + 'a>(
        &'a self,
        call: BoxFuture<'a, Result<T, StoreError>>,
    ) -> BoxFuture<'a, Result<T, StoreError>> {
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        Box::pin(async move {
            match left {
                Ok(0) | Err(_) => std::future::pending().await,
                Ok(1) => {
                    if self.is_done {
                        drop(call.await);
                    }
                    self.died.notify_one();
                    std::future::pending().await
                }
                Ok(_) => call.await,
            }
        })
    }
}

impl ImageStore for Mortal {
    fn read(&self) -> BoxFuture<'_, Result<Records, StoreError>> {
        self.store.read()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.store.changes()
    }

    fn lock<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<Box<dyn Held>>, StoreError>> {
        self.use_up(self.store.lock(key))
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<String, StoreError>> {
        self.use_up(self.store.write(write))
    }

    fn announce<'a>(&'a self, images: &'a BTreeMap<String, ImageSummary>) -> BoxFuture<'a, Result<(), StoreError>> {
        self.store.announce(images)
    }
}

async fn connect(config: &Config, stop: &CancellationToken) -> Arc<ZooKeeperStore> {
    let store = ZooKeeperStore::start(&config.zookeeper, "nb01", "1", stop).unwrap();
    store.connected(super::LIMIT).await.unwrap();
    store
}

/// A builder ends after so many uses of the store, and the next one finishes.
async fn kill(server: &ZooKeeper, uses: usize, is_done: bool) {
    let scratch = Scratch::new("killed").unwrap();
    let path = |name: &str| scratch.path().join(name);
    let (images, ssh, file) = (path("images"), path("ssh"), path("nodepool.yaml"));
    std::fs::create_dir(&images).unwrap();
    std::fs::write(path("dib"), DIB).unwrap();
    std::fs::set_permissions(path("dib"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let chroot = format!("/killed-{uses}-{is_done}");
    let text = format!(
        "{}images-dir: {}\nbuild-log-dir: {}\ndiskimages: [{{name: test, dib-cmd: {}}}]\n\
         providers:\n  - {{name: fake-one, driver: fake, cloud: fake, diskimages: [{{name: test}}]}}\n",
        server.nodepool_yaml().replacen("    port:", &format!("    chroot: {chroot}\n    port:"), 1),
        images.display(),
        path("logs").display(),
        path("dib").display(),
    );
    std::fs::write(&file, &text).unwrap();
    let config = read(&text);

    let stop = CancellationToken::new();
    let store = connect(&config, &stop).await;
    let mortal =
        Arc::new(Mortal { store: Arc::clone(&store), left: AtomicUsize::new(uses), died: Notify::new(), is_done });
    let first = builder(&file, &images, &ssh, Arc::clone(&mortal) as Arc<dyn ImageStore>);
    let works = tokio::spawn(first.run(CancellationToken::new()));
    tokio::select! {
        () = mortal.died.notified() => {}
        () = uploaded_once(&store, &images) => {}
    }
    works.abort();
    assert!(works.await.unwrap_err().is_cancelled());
    store.close().await;

    let store = connect(&config, &stop).await;
    let second = builder(&file, &images, &ssh, Arc::clone(&store) as Arc<dyn ImageStore>);
    let ends = CancellationToken::new();
    let works = tokio::spawn(second.run(ends.clone()));
    uploaded_once(&store, &images).await;
    ends.cancel();
    works.await.unwrap();
    store.close().await;
}

/// Waits until there is one build, uploaded once, with its file and no other.
async fn uploaded_once(store: &ZooKeeperStore, images: &Path) {
    eventually(async || {
        let image = store.read().await.unwrap().remove("test").unwrap_or_default();
        let builds: Vec<BuildState> = image.builds.values().map(|build| build.record.state).collect();
        let uploads = image.builds.values().flat_map(|build| build.all_uploads().map(|(.., upload)| upload.state));
        let uploads: Vec<UploadState> = uploads.collect();
        let entries = std::fs::read_dir(images).unwrap().map(|entry| entry.unwrap().file_name());
        let names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
        let files: Vec<&String> = names.iter().filter(|name| name.contains("test-")).collect();
        let whole = image.builds.keys().map(|id| format!("test-{id}.qcow2")).collect::<Vec<_>>();
        let holds = builds == [BuildState::Ready]
            && uploads == [UploadState::Ready]
            && files.iter().all(|file| whole.iter().any(|whole| file.starts_with(whole.as_str())));
        (holds, (builds, uploads, names))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper"]
async fn real_builders_that_end_at_any_use_leave_one_build() {
    let server = ZooKeeper::start().unwrap();
    let cases = (1..=USES).flat_map(|uses| [false, true].map(|is_done| kill(&server, uses, is_done)));
    futures::future::join_all(cases).await;
}
