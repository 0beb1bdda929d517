//! The builder's process: workers that build, upload and clean up until they are stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::decide::{self, Failures};
use super::figures::Figures;
use super::files::{self, Identity};
use super::logs::Logs;
use super::process;
use super::source::{Loaded, Source};
use super::store::{ImageRecords, ImageStore, ImageSummary, LockKey, Records, StoreError, UploadKey, Write};
use super::{ansible::Ansible, decide::Images};

/// Now, in seconds since 1970.
pub type Now = Arc<dyn Fn() -> f64 + Send + Sync>;

/// The inputs of a builder.
pub struct Settings {
    /// The configuration.
    pub source: Source,
    /// The builder's id, which belongs to the images directory.
    pub identity: Identity,
    /// The records.
    pub store: Arc<dyn ImageStore>,
    /// This host's full name, for records.
    pub hostname: String,
    /// How many images are built at a time.
    pub build_workers: usize,
    /// How many images are uploaded at a time.
    pub upload_workers: usize,
    /// How remote builds reach their hosts.
    pub ansible: Ansible,
    /// The time.
    pub now: Now,
}

/// A worker looks at the records at least this often.
const LOOK: Duration = Duration::from_secs(10);
/// Records that another builder may be working on are tried this often.
const GUARDED: Duration = Duration::from_secs(20);
/// After a change, others that belong to it are waited for.
const GATHER: Duration = Duration::from_millis(200);

/// A builder.
pub struct Builder {
    pub(super) source: Source,
    pub(super) store: Arc<dyn ImageStore>,
    pub(super) hostname: String,
    pub(super) ansible: Ansible,
    pub(super) identity: Identity,
    now: Now,
    workers: (usize, usize),
    /// Builds that this process works on, and uploads as pairs of build and provider.
    busy: Mutex<BTreeSet<(String, String)>>,
    /// Failed builds by image, since the last one that succeeded.
    build_failures: Mutex<BTreeMap<String, Failures>>,
    /// Failed uploads by build and provider.
    upload_failures: Mutex<BTreeMap<(String, String), Failures>>,
    pub(super) figures: Figures,
}

/// Why a builder does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// What a builder before it left.
    #[error("look after what the builder before left in `{path}`")]
    Leftovers {
        /// The images directory.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
}

impl Builder {
    /// Ends what a killed builder left running. Nothing else happens yet.
    pub fn new(settings: Settings) -> Result<Arc<Self>, StartError> {
        let images = settings.source.current().folders.images.clone();
        process::end_leftovers(&images).map_err(|source| StartError::Leftovers { path: images, source })?;
        Ok(Arc::new(Self {
            source: settings.source,
            store: settings.store,
            hostname: settings.hostname,
            ansible: settings.ansible,
            identity: settings.identity,
            now: settings.now,
            workers: (settings.build_workers, settings.upload_workers),
            busy: Mutex::default(),
            build_failures: Mutex::default(),
            upload_failures: Mutex::default(),
            figures: Figures::default(),
        }))
    }

    /// Build logs, as the configuration of now has them.
    pub fn logs(&self) -> Logs {
        self.source.current().logs.clone()
    }

    /// Metrics in Prometheus' text format.
    pub fn metrics(&self) -> String {
        self.figures.text()
    }

    /// The builder's id.
    pub fn id(&self) -> &str {
        &self.identity.id
    }

    /// Works until it is stopped. A build that is under way then is given up.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut workers = JoinSet::new();
        for _ in 0..self.workers.0 {
            workers.spawn(Arc::clone(&self).work(Work::Build, stop.clone()));
        }
        for _ in 0..self.workers.1 {
            workers.spawn(Arc::clone(&self).work(Work::Upload, stop.clone()));
        }
        workers.spawn(Arc::clone(&self).work(Work::Clean, stop.clone()));
        while let Some(ended) = workers.join_next().await {
            if let Err(error) = ended
                && error.is_panic()
            {
                tracing::error!("a worker panicked");
            }
        }
    }

    async fn work(self: Arc<Self>, work: Work, stop: CancellationToken) {
        let mut changes = self.store.changes();
        let mut guarded: Option<tokio::time::Instant> = None;
        while !stop.is_cancelled() {
            changes.mark_unchanged();
            let loaded = self.source.current();
            let done = match work {
                Work::Build => self.build_due(&loaded, &stop).await,
                // An upload is dropped when the builder stops; its record stays without a lock, and is cleaned up.
                Work::Upload => tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    done = self.upload_due(&loaded) => done,
                },
                Work::Clean => {
                    // A lock that is tried is a change too: tried at every change, it would never be quiet.
                    let tries = guarded.is_none_or(|last| last.elapsed() >= GUARDED);
                    if tries {
                        guarded = Some(tokio::time::Instant::now());
                    }
                    self.clean_some(&loaded, tries).await.map(|()| Next::In(GUARDED))
                }
            };
            let wait = match done {
                Ok(Next::Now) => continue,
                Ok(Next::In(wait)) => wait,
                Err(error) => {
                    tracing::warn!(worker = work.name(), %error, "tried again later");
                    LOOK
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep(GATHER) => {}
                    }
                }
            }
        }
    }

    /// Builds the first image that is due. `Now` if it built one: the configuration may have changed meanwhile.
    pub async fn build_due(&self, loaded: &Loaded, stop: &CancellationToken) -> Result<Next, StoreError> {
        let records = self.store.read().await?;
        self.announce(&loaded.images, &records).await?;
        self.figures.requested(records.values().filter(|image| image.request.is_some()).count());
        let mut next: Option<f64> = None;
        for (name, image) in &loaded.images.images {
            if stop.is_cancelled() {
                break;
            }
            let records = records.get(name);
            // The release of the lock changes the records, which triggers another round.
            if records.is_some_and(|records| records.locked) {
                continue;
            }
            if let Err(idle) = self.decide_build(loaded, name, records) {
                let until = idle.until();
                next = next.into_iter().chain(until).min_by(f64::total_cmp);
                continue;
            }
            let Some(lock) = self.store.lock(&LockKey::Image(name.clone())).await? else { continue };
            // Another builder may have built it since the records were read.
            let records = self.store.read().await?;
            let result = match self.decide_build(loaded, name, records.get(name)) {
                Ok(reason) => {
                    tracing::info!(image = name, reason = reason.word(), "building: {reason}");
                    self.build_image(loaded, image, &*lock, stop).await.map(|()| true)
                }
                Err(_) => Ok(false),
            };
            lock.release().await;
            if result? {
                return Ok(Next::Now);
            }
        }
        Ok(Next::In(self.wait_until(next)))
    }

    fn decide_build(
        &self,
        loaded: &Loaded,
        name: &str,
        records: Option<&ImageRecords>,
    ) -> Result<decide::BuildReason, decide::IdleReason> {
        let failures = self.build_failures.lock().get(name).copied().unwrap_or_default();
        let none = ImageRecords::default();
        decide::build(&loaded.images.images[name], records.unwrap_or(&none), failures, self.now())
    }

    /// Makes the first upload that is due. `Now` if it succeeded.
    pub async fn upload_due(&self, loaded: &Loaded) -> Result<Next, StoreError> {
        let records = self.store.read().await?;
        let folder = &loaded.folders.images;
        let is_local = |image: &str, build: &str, format: &str| files::path(folder, image, build, format).is_file();
        let failures = |build: &str, provider: &str| {
            let key = (build.to_owned(), provider.to_owned());
            self.upload_failures.lock().get(&key).copied().unwrap_or_default()
        };
        let (tasks, next) = decide::uploads(&loaded.images, &records, &is_local, &failures, self.now());
        for task in tasks {
            let Some(cloud) = loaded.clouds.get(&task.provider) else { continue };
            let (image, build, provider) = (task.image.clone(), task.build.clone(), task.provider.clone());
            let Some(lock) = self.store.lock(&LockKey::Uploads { image, build, provider }).await? else { continue };
            let records = self.store.read().await?;
            let (still, _) = decide::uploads(&loaded.images, &records, &is_local, &failures, self.now());
            let result = match records.get(&task.image).and_then(|image| image.builds.get(&task.build)) {
                Some(build) if still.contains(&task) => self.upload(loaded, &task, build, &**cloud, &*lock).await,
                _ => Ok(false),
            };
            lock.release().await;
            if result? {
                return Ok(Next::Now);
            }
        }
        Ok(Next::In(self.wait_until(next)))
    }

    fn wait_until(&self, next: Option<f64>) -> Duration {
        let wait =
            next.map_or(LOOK, |next| Duration::from_secs_f64((next - self.now()).clamp(0.0, LOOK.as_secs_f64())));
        // A time that has come is looked at a moment later, not at once.
        wait.max(GATHER)
    }

    /// Shows what happens next with each image, where the store has a place for it.
    pub(super) async fn announce(&self, images: &Images, records: &Records) -> Result<(), StoreError> {
        let none = ImageRecords::default();
        let summary = |name: &String, image: &decide::Image| {
            let records = records.get(name).unwrap_or(&none);
            let failures = self.build_failures.lock().get(name).copied().unwrap_or_default();
            let building = !records.in_state(crate::model::BuildState::Building).is_empty();
            let (reason, message) = match decide::build(image, records, failures, self.now()) {
                Ok(_) if building => ("Building", "a builder works on it".to_owned()),
                Ok(reason) => (reason.word(), reason.to_string()),
                Err(idle) => (idle.word(), idle.to_string()),
            };
            let takes = images.providers.iter().filter(|provider| provider.images.contains_key(name));
            ImageSummary {
                formats: image.formats.iter().cloned().collect(),
                providers: takes.map(|provider| provider.name.clone()).collect(),
                paused_by_config: image.settings.pause,
                reason: reason.to_owned(),
                // Ages change all the time, and what does not change is not written.
                message: if reason == "RebuildAge" { "the newest build is old".to_owned() } else { message },
                latest: records.in_state(crate::model::BuildState::Ready).first().map(|(id, _)| (*id).to_owned()),
                uploaded: images
                    .providers
                    .iter()
                    .filter(|provider| provider.images.contains_key(name))
                    .all(|provider| records.newest_ready_upload(&provider.name).is_some()),
            }
        };
        let summaries: BTreeMap<String, ImageSummary> =
            images.images.iter().map(|(name, image)| (name.clone(), summary(name, image))).collect();
        self.store.announce(&summaries).await
    }

    pub(super) fn now(&self) -> f64 {
        (self.now)()
    }

    /// Tells clean-ups of this process that a build, or an upload of it to a provider, is being worked on.
    pub(super) fn begin(&self, build: &str, provider: &str) -> Busy<'_> {
        let key = (build.to_owned(), provider.to_owned());
        self.busy.lock().insert(key.clone());
        Busy { set: &self.busy, key }
    }

    pub(super) fn is_busy(&self, build: &str, provider: &str) -> bool {
        self.busy.lock().contains(&(build.to_owned(), provider.to_owned()))
    }

    pub(super) fn build_failed(&self, image: &str) {
        let now = self.now();
        self.build_failures.lock().entry(image.to_owned()).or_default().add(now);
    }

    pub(super) fn build_succeeded(&self, image: &str) {
        self.build_failures.lock().remove(image);
    }

    pub(super) fn upload_failed(&self, build: &str, provider: &str) {
        let now = self.now();
        let mut failures = self.upload_failures.lock();
        failures.entry((build.to_owned(), provider.to_owned())).or_default().add(now);
    }

    /// Forgets failures of builds that are gone.
    pub(super) fn forget_uploads(&self, records: &Records) {
        let known: BTreeSet<&str> =
            records.values().flat_map(|image| image.builds.keys().map(String::as_str)).collect();
        self.upload_failures.lock().retain(|(build, _), _| known.contains(build.as_str()));
    }

    /// The log of a build.
    pub(super) fn log_of(&self, logs: &Logs, image: &str, build: &str) -> PathBuf {
        logs.path(image, build)
    }

    pub(super) async fn remove_upload(&self, key: &UploadKey) -> Result<(), StoreError> {
        self.store.write(Write::RemoveUpload(key.clone())).await.map(drop)
    }
}

/// Work of this process; over when it is dropped.
pub(super) struct Busy<'b> {
    set: &'b Mutex<BTreeSet<(String, String)>>,
    key: (String, String),
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.set.lock().remove(&self.key);
    }
}

/// When a worker looks again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// At once.
    Now,
    /// After this time, or after a change.
    In(Duration),
}

#[derive(Debug, Clone, Copy)]
enum Work {
    Build,
    Upload,
    Clean,
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Upload => "upload",
            Self::Clean => "cleanup",
        }
    }
}
