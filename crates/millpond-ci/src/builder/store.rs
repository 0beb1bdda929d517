//! The store of image records: what was built and uploaded, what is asked for, and the locks of both.

use std::collections::BTreeMap;
use std::fmt;

use futures::future::BoxFuture;
use tokio::sync::watch;

use crate::model::{BuildState, ImageBuild, ImageUpload, UploadState};

/// A store of image records: ZooKeeper, objects of the Kubernetes API, or memory.
///
/// All methods may be called from several tasks concurrently. A call that is dropped may or may not have had its
/// effect.
pub trait ImageStore: Send + Sync + 'static {
    /// Everything that the store holds now.
    fn read(&self) -> BoxFuture<'_, Result<Records, StoreError>>;

    /// Tells that something may have changed: the value counts. A store may leave out changes; the builder also looks
    /// from time to time.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Takes a lock without waiting for it. `None` if another process holds it.
    fn lock<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<Box<dyn Held>>, StoreError>>;

    /// Carries out one write. Gives the id of what it created, otherwise an empty text.
    fn write(&self, write: Write) -> BoxFuture<'_, Result<String, StoreError>>;

    /// Waits until the store can be reached; at once where that is not known.
    fn connected(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Shows the images of the configuration where the store has an object for each; otherwise does nothing. What is
    /// shown already is not written again.
    fn announce<'a>(&'a self, _images: &'a BTreeMap<String, ImageSummary>) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A lock that is held. Dropping it gives it back as well, without telling when.
pub trait Held: Send + Sync + fmt::Debug {
    /// Whether it is still held: it is lost with a connection that was down for too long.
    fn is_held(&self) -> bool;

    /// Gives it back.
    fn release(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// A lock; each is a path of the original.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockKey {
    /// Building an image.
    Image(String),
    /// One build, while it is marked for deletion.
    Build {
        /// The image.
        image: String,
        /// The build.
        build: String,
    },
    /// Uploading a build to a provider.
    Uploads {
        /// The image.
        image: String,
        /// The build.
        build: String,
        /// The provider.
        provider: String,
    },
    /// One upload, while it is deleted.
    Upload(UploadKey),
}

/// Names an upload.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UploadKey {
    /// The image.
    pub image: String,
    /// The build.
    pub build: String,
    /// The provider.
    pub provider: String,
    /// The upload's id: ten digits.
    pub id: String,
}

impl fmt::Display for UploadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}/{}/{}", self.image, self.build, self.provider, self.id)
    }
}

/// One write.
#[derive(Debug, Clone)]
pub enum Write {
    /// Creates a build; the store chooses its id.
    CreateBuild {
        /// The image.
        image: String,
        /// The record.
        record: ImageBuild,
    },
    /// Replaces a build's record.
    Build {
        /// The image.
        image: String,
        /// The build.
        id: String,
        /// The new record.
        record: ImageBuild,
        /// Why, for stores that have a place for it.
        message: Option<String>,
    },
    /// Writes a build under an id of another store.
    ImportBuild {
        /// The image.
        image: String,
        /// The build.
        id: String,
        /// The record.
        record: ImageBuild,
    },
    /// Writes an upload under an id of another store; later ids are higher.
    ImportUpload {
        /// The upload.
        key: UploadKey,
        /// The record.
        record: ImageUpload,
    },
    /// Removes a build without uploads. One that is gone is no error.
    RemoveBuild {
        /// The image.
        image: String,
        /// The build.
        id: String,
    },
    /// Creates an upload; the store chooses its id.
    CreateUpload {
        /// The image.
        image: String,
        /// The build.
        build: String,
        /// The provider.
        provider: String,
        /// The record.
        record: ImageUpload,
    },
    /// Replaces an upload's record.
    Upload {
        /// The upload.
        key: UploadKey,
        /// The new record.
        record: ImageUpload,
        /// Why, for stores that have a place for it.
        message: Option<String>,
    },
    /// Removes an upload. One that is gone is no error.
    RemoveUpload(UploadKey),
    /// Pauses an image, or ends its pause.
    Pause {
        /// The image.
        image: String,
        /// Whether it is paused from now on.
        paused: bool,
    },
    /// Asks for a build. A request that stands already is renewed: it comes after every failure before it.
    RequestBuild {
        /// The image.
        image: String,
    },
    /// A build that was asked for is done.
    ClearRequest {
        /// The image.
        image: String,
    },
}

/// Everything in a store, by image.
pub type Records = BTreeMap<String, ImageRecords>;

/// The records of one image.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImageRecords {
    /// Whether a person paused it.
    pub paused: bool,
    /// Since when a build is asked for, in seconds since 1970.
    pub request: Option<f64>,
    /// Whether a process holds or awaits the lock of builds.
    pub locked: bool,
    /// Builds by id.
    pub builds: BTreeMap<String, BuildRecords>,
}

/// A build and its uploads.
#[derive(Debug, Clone, PartialEq)]
pub struct BuildRecords {
    /// The build.
    pub record: ImageBuild,
    /// Why it is in its state, where the store keeps that.
    pub message: Option<String>,
    /// Uploads by provider and id.
    pub uploads: BTreeMap<String, BTreeMap<String, ImageUpload>>,
}

impl BuildRecords {
    /// A build without uploads.
    pub fn new(record: ImageBuild) -> Self {
        Self { record, message: None, uploads: BTreeMap::new() }
    }

    /// All uploads with the names of their providers.
    pub fn all_uploads(&self) -> impl Iterator<Item = (&str, &str, &ImageUpload)> {
        self.uploads.iter().flat_map(|(provider, uploads)| {
            uploads.iter().map(move |(id, upload)| (provider.as_str(), id.as_str(), upload))
        })
    }

    /// The newest upload in this state.
    pub fn newest_upload(&self, provider: &str, state: UploadState) -> Option<(&str, &ImageUpload)> {
        let uploads = self.uploads.get(provider)?.iter().filter(|(_, upload)| upload.state == state);
        let newest = uploads.max_by(|(_, one), (_, other)| one.state_time.total_cmp(&other.state_time));
        newest.map(|(id, upload)| (id.as_str(), upload))
    }
}

impl ImageRecords {
    /// Builds in this state, the newest first.
    pub fn in_state(&self, state: BuildState) -> Vec<(&str, &BuildRecords)> {
        let builds = self.builds.iter().filter(|(_, build)| build.record.state == state);
        let mut builds: Vec<_> = builds.map(|(id, build)| (id.as_str(), build)).collect();
        builds.sort_by(|(_, one), (_, other)| other.record.state_time.total_cmp(&one.record.state_time));
        builds
    }

    /// The newest ready upload to a provider: what its nodes boot from.
    pub fn newest_ready_upload(&self, provider: &str) -> Option<(&str, &str, &ImageUpload)> {
        let uploads = self.builds.iter().filter_map(|(build, records)| {
            let (id, upload) = records.newest_upload(provider, UploadState::Ready)?;
            Some((build.as_str(), id, upload))
        });
        uploads.max_by(|(_, _, one), (_, _, other)| one.state_time.total_cmp(&other.state_time))
    }
}

/// The summary of a configured image.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImageSummary {
    /// The formats that are built.
    pub formats: Vec<String>,
    /// Providers that it is uploaded to.
    pub providers: Vec<String>,
    /// Whether the configuration pauses it.
    pub paused_by_config: bool,
    /// What happens next, in one word.
    pub reason: String,
    /// What happens next, in a sentence.
    pub message: String,
    /// The newest build that is ready.
    pub latest: Option<String>,
    /// Whether every provider that takes it has a ready upload.
    pub uploaded: bool,
}

/// Why the store did not do what it was asked for.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The connection is lost, or was lost while the call was under way.
    #[error("the store is not reachable: {0}")]
    Disconnected(String),
    /// The record is gone or was changed by another process.
    #[error("`{0}` has changed")]
    Conflict(String),
    /// The store refuses.
    #[error("the store refuses: {0}")]
    Refused(String),
}
