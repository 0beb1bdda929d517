//! Image records as objects of the Kubernetes API: DiskImage, ImageBuild, ImageUpload; locks are Leases.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use millpond_api::ci::{
    DiskImageSpec, DiskImageStatus, IMAGE_FINALIZER, ImageBuildSpec, ImageBuildStatus, ImageUploadSpec,
    ImageUploadStatus,
};
use millpond_api::condition::Conditions;
use millpond_api::meta::Condition;
use millpond_api::time::Time;
use millpond_runtime::clock::Clock;
use millpond_runtime::meta::status_patch;
use millpond_runtime::mirror::{Mirror, Writer};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::store::{
    BuildRecords, Held, ImageRecords, ImageStore, ImageSummary, LockKey, Records, StoreError, UploadKey, Write,
};
use crate::model::{self, BuildState, UploadState};
use crate::objects::kinds::{DiskImage, ImageBuild, ImageUpload};

/// Owns the fields that builders write.
const MANAGER: &str = "millpond-ci-builder";
/// Objects of a page; a list goes on until there are no more.
const PAGE: u32 = 500;
/// How long a lock stands after its holder is gone.
const LEASE: Duration = Duration::from_secs(30);
/// How often a holder renews it.
const RENEW: Duration = Duration::from_secs(10);

/// Image records of a cluster.
pub struct ObjectStore {
    client: Client,
    /// Where Leases are.
    namespace: String,
    /// The builder's id, then something of this process alone.
    holder: String,
    clock: Clock,
    changed: watch::Sender<u64>,
    /// DiskImages as they were read last, by image.
    shown: Mutex<BTreeMap<String, DiskImage>>,
}

type Result<T> = std::result::Result<T, StoreError>;

impl ObjectStore {
    /// A store for a builder with this id, which no other process has at the same time. Readers give an empty one.
    pub fn new(client: Client, namespace: &str, builder: &str, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            client,
            namespace: namespace.to_owned(),
            holder: format!("{builder}/{}", Uuid::new_v4().simple()),
            clock,
            changed: watch::Sender::new(0),
            shown: Mutex::default(),
        })
    }

    /// Watches for changes until the token is cancelled.
    pub fn watch(&self, stop: &CancellationToken, tasks: &TaskTracker) {
        fn one<K: millpond_runtime::kinds::Kind>(store: &ObjectStore, stop: &CancellationToken, tasks: &TaskTracker) {
            let mirror = Arc::new(Mirror::<K>::new(Writer::new(store.client.clone(), MANAGER, 1), None));
            let changed = store.changed.clone();
            mirror.on_change(move |_, _| changed.send_modify(|count| *count += 1));
            tasks.spawn(mirror.run(false, stop.clone()));
        }
        one::<DiskImage>(self, stop, tasks);
        one::<ImageBuild>(self, stop, tasks);
        one::<ImageUpload>(self, stop, tasks);
    }

    fn api<K: kube::Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    async fn list<K>(&self) -> Result<Vec<K>>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let (api, mut all, mut params) = (self.api::<K>(), Vec::new(), ListParams::default().limit(PAGE));
        loop {
            let page = api.list(&params).await.map_err(|error| failed("list", &error))?;
            all.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(all),
            }
        }
    }

    async fn read_all(&self) -> Result<Records> {
        // Reading uploads first ensures that the build of every upload is seen.
        let uploads = self.list::<ImageUpload>().await?;
        let builds = self.list::<ImageBuild>().await?;
        let images = self.list::<DiskImage>().await?;
        let mut records = Records::new();
        let mut shown = BTreeMap::new();
        for image in images {
            let name = image.spec.image.clone().unwrap_or_else(|| image.name().to_owned());
            let entry = records.entry(name.clone()).or_default();
            entry.paused = image.spec.paused;
            let handled = image.status.handled_build_request;
            entry.request = image
                .spec
                .build_request
                .filter(|asked| handled.is_none_or(|handled| *asked > handled))
                .map(|asked| asked.0 as f64);
            shown.insert(name, image);
        }
        *self.shown.lock() = shown;
        for build in builds {
            let entry = records.entry(build.spec.image.clone()).or_default();
            let record = build_record(&build);
            entry.locked |= record.state == BuildState::Building;
            let message = build.status.message.clone();
            entry.builds.insert(build.spec.build_id.clone(), BuildRecords { message, ..BuildRecords::new(record) });
        }
        for upload in uploads {
            let spec = &upload.spec;
            let image: &mut ImageRecords = records.entry(spec.image.clone()).or_default();
            // The build of an upload goes last.
            let build = image
                .builds
                .entry(spec.build_id.clone())
                .or_insert_with(|| BuildRecords::new(model::ImageBuild::new(BuildState::Deleting, 0.0)));
            let uploads = build.uploads.entry(spec.provider.clone()).or_default();
            uploads.insert(spec.upload_id.clone(), upload_record(&upload));
        }
        Ok(records)
    }

    async fn write_one(&self, write: Write) -> Result<String> {
        match write {
            Write::CreateBuild { image, record } => {
                let id = Uuid::new_v4().simple().to_string();
                self.create_build(&image, &id, &record).await?;
                return Ok(id);
            }
            Write::ImportBuild { image, id, record } => {
                if self.create_build(&image, &id, &record).await.is_err() {
                    self.put_build(&image, &id, &record, None).await?;
                }
            }
            Write::Build { image, id, record, message } => self.put_build(&image, &id, &record, message).await?,
            Write::RemoveBuild { image, id } => self.remove::<ImageBuild>(&build_name(&image, &id)).await?,
            Write::CreateUpload { image, build, provider, record } => {
                return self.create_next_upload(&image, &build, &provider, &record).await;
            }
            Write::ImportUpload { key, record } => {
                if self.create_upload(&key, &record).await.is_err() {
                    self.put_upload(&key, &record, None).await?;
                }
            }
            Write::Upload { key, record, message } => self.put_upload(&key, &record, message).await?,
            Write::RemoveUpload(key) => self.remove::<ImageUpload>(&upload_name(&key)).await?,
            Write::Pause { image, paused } => self.ask(&image, json!({"paused": paused})).await?,
            Write::RequestBuild { image } => {
                let now = Time(self.clock.now().as_second());
                self.ask(&image, json!({"buildRequest": now})).await?;
            }
            Write::ClearRequest { image } => self.clear_request(&image).await?,
        }
        Ok(String::new())
    }

    async fn create_build(&self, image: &str, id: &str, record: &model::ImageBuild) -> Result<()> {
        let spec = ImageBuildSpec { image: image.to_owned(), build_id: id.to_owned() };
        let mut object = ImageBuild::new(metadata(build_name(image, id)), spec);
        object.status = build_status(record, None);
        self.create(&object).await
    }

    async fn put_build(
        &self,
        image: &str,
        id: &str,
        record: &model::ImageBuild,
        message: Option<String>,
    ) -> Result<()> {
        let status = build_status(record, message);
        self.replace_status::<ImageBuild>(&build_name(image, id), &json!(status)).await
    }

    async fn create_next_upload(
        &self,
        image: &str,
        build: &str,
        provider: &str,
        record: &model::ImageUpload,
    ) -> Result<String> {
        let records = self.read_all().await?;
        let uploads =
            records.get(image).and_then(|image| image.builds.get(build)).and_then(|build| build.uploads.get(provider));
        let highest = uploads.into_iter().flat_map(BTreeMap::keys).filter_map(|id| id.parse::<u64>().ok()).max();
        let id = format!("{:010}", highest.unwrap_or(0) + 1);
        let (image, build, provider) = (image.to_owned(), build.to_owned(), provider.to_owned());
        self.create_upload(&UploadKey { image, build, provider, id: id.clone() }, record).await?;
        Ok(id)
    }

    async fn create_upload(&self, key: &UploadKey, record: &model::ImageUpload) -> Result<()> {
        let spec = ImageUploadSpec {
            image: key.image.clone(),
            build_id: key.build.clone(),
            provider: key.provider.clone(),
            upload_id: key.id.clone(),
        };
        let mut object = ImageUpload::new(metadata(upload_name(key)), spec);
        object.status = upload_status(record, None);
        self.create(&object).await
    }

    async fn put_upload(&self, key: &UploadKey, record: &model::ImageUpload, message: Option<String>) -> Result<()> {
        let status = upload_status(record, message);
        self.replace_status::<ImageUpload>(&upload_name(key), &json!(status)).await
    }

    async fn create<K>(&self, object: &K) -> Result<()>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
    {
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        self.api::<K>().create(&params, object).await.map(drop).map_err(|error| failed("create", &error))
    }

    /// Replaces the record. Fields that it no longer has are removed.
    async fn replace_status<K>(&self, name: &str, status: &Value) -> Result<()>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let patch = json!([{"op": "add", "path": "/status", "value": status}]);
        let patch: json_patch::Patch = serde_json::from_value(patch).expect("is a patch");
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patched = self.api::<K>().patch(name, &params, &Patch::<()>::Json(patch)).await;
        patched.map(drop).map_err(|error| failed("write", &error))
    }

    /// Lets an object go and removes it.
    async fn remove<K>(&self, name: &str) -> Result<()>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let api = self.api::<K>();
        let patch = json!({"metadata": {"finalizers": null}});
        let freed = api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop);
        let deleted = match freed {
            Ok(()) => api.delete(name, &DeleteParams::default()).await.map(drop),
            Err(error) => Err(error),
        };
        match deleted {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            deleted => deleted.map_err(|error| failed("remove", &error)),
        }
    }

    /// Changes what is asked of an image; makes its object if there is none.
    async fn ask(&self, image: &str, spec: Value) -> Result<()> {
        self.ensure(image).await?;
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({"spec": spec}));
        let patched = self.api::<DiskImage>().patch(&object_name(image), &params, &patch).await;
        patched.map(drop).map_err(|error| failed("change", &error))
    }

    async fn ensure(&self, image: &str) -> Result<()> {
        let name = object_name(image);
        let spec = DiskImageSpec { image: (name != image).then(|| image.to_owned()), ..DiskImageSpec::default() };
        let object = DiskImage::new(ObjectMeta { name: Some(name), ..ObjectMeta::default() }, spec);
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        match self.api::<DiskImage>().create(&params, &object).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            Err(error) => Err(failed("create", &error)),
        }
    }

    async fn clear_request(&self, image: &str) -> Result<()> {
        let api = self.api::<DiskImage>();
        let found = api.get_opt(&object_name(image)).await.map_err(|error| failed("read", &error))?;
        let Some(asked) = found.and_then(|object| object.spec.build_request) else { return Ok(()) };
        let patch = Patch::Merge(json!({"status": {"handledBuildRequest": asked}}));
        let patched = api.patch_status(&object_name(image), &PatchParams::default(), &patch).await;
        patched.map(drop).map_err(|error| failed("change", &error))
    }

    async fn show(&self, image: &str, summary: &ImageSummary) -> Result<()> {
        let object = self.shown.lock().get(image).cloned();
        let object = match object {
            Some(object) => object,
            None => {
                self.ensure(image).await?;
                let found = self.api::<DiskImage>().get_opt(&object_name(image)).await;
                match found.map_err(|error| failed("read", &error))? {
                    Some(object) => object,
                    None => return Ok(()),
                }
            }
        };
        let now = Time(self.clock.now().as_second());
        let mut status = DiskImageStatus {
            handled_build_request: object.status.handled_build_request,
            formats: summary.formats.clone(),
            providers: summary.providers.clone(),
            state: summary.reason.clone(),
            message: summary.message.clone(),
            latest_build: summary.latest.clone(),
            conditions: object.status.conditions.clone(),
        };
        let ready = match (&summary.latest, summary.uploaded) {
            (None, _) => Condition::fails("Ready", "NoBuild", summary.message.clone()),
            (Some(_), false) => Condition::fails("Ready", "NotUploaded", "not every provider has it"),
            (Some(_), true) => Condition::holds("Ready"),
        };
        Conditions::new(&mut status.conditions, &[], object.metadata.generation.unwrap_or_default(), now).set(ready);
        let Some(patch) = status_patch(&object, Some(&object.status), &status) else { return Ok(()) };
        let patched =
            self.api::<DiskImage>().patch_status(object.name(), &PatchParams::default(), &Patch::Merge(&patch)).await;
        match patched {
            // The image is shown again in the next round.
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(()),
            patched => patched.map(drop).map_err(|error| failed("show", &error)),
        }
    }

    async fn take(&self, key: &LockKey) -> Result<Option<Box<dyn Held>>> {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let name = lease_name(key);
        let lease = self.lease(&name);
        let taken = match api.create(&PostParams::default(), &lease).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => self.take_over(&api, &name).await?,
            created => Some(created.map_err(|error| failed("lock", &error))?),
        };
        Ok(taken.map(|lease| Box::new(HeldLease::new(api, lease, self.clock.clone())) as Box<dyn Held>))
    }

    /// Takes over a lock whose holder is gone: the lock has expired, or its holder was an earlier process of this
    /// builder.
    async fn take_over(&self, api: &Api<Lease>, name: &str) -> Result<Option<Lease>> {
        let Some(found) = api.get_opt(name).await.map_err(|error| failed("lock", &error))? else { return Ok(None) };
        let spec = found.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let builder = self.holder.split('/').next().unwrap_or_default();
        let was_ours = holder != self.holder && !builder.is_empty() && holder.split('/').next() == Some(builder);
        let renewed = spec.renew_time.map(|time| time.0);
        let is_over = renewed.is_none_or(|time| self.clock.now().duration_since(time).unsigned_abs() > LEASE);
        if !was_ours && !is_over {
            return Ok(None);
        }
        let mut lease = self.lease(name);
        lease.metadata.resource_version = found.metadata.resource_version;
        match api.replace(name, &PostParams::default(), &lease).await {
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(None),
            replaced => replaced.map(Some).map_err(|error| failed("lock", &error)),
        }
    }

    fn lease(&self, name: &str) -> Lease {
        Lease {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.holder.clone()),
                lease_duration_seconds: Some(LEASE.as_secs() as i32),
                renew_time: Some(self.clock.micro_time()),
                ..LeaseSpec::default()
            }),
        }
    }
}

impl ImageStore for ObjectStore {
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

    fn announce<'a>(&'a self, images: &'a BTreeMap<String, ImageSummary>) -> BoxFuture<'a, Result<()>> {
        async move {
            for (image, summary) in images {
                self.show(image, summary).await?;
            }
            Ok(())
        }
        .boxed()
    }
}

/// A Lease that is renewed until it is dropped.
struct HeldLease {
    api: Api<Lease>,
    name: String,
    uid: Option<String>,
    is_held: Arc<AtomicBool>,
    stop: CancellationToken,
}

impl HeldLease {
    fn new(api: Api<Lease>, lease: Lease, clock: Clock) -> Self {
        let (is_held, stop) = (Arc::new(AtomicBool::new(true)), CancellationToken::new());
        let name = lease.metadata.name.clone().unwrap_or_default();
        let uid = lease.metadata.uid.clone();
        let (renewing, token, flag) = (api.clone(), stop.clone(), Arc::clone(&is_held));
        tokio::spawn(async move { token.run_until_cancelled(renew(renewing, lease, flag, clock)).await });
        Self { api, name, uid, is_held, stop }
    }
}

/// Renews a Lease; tells when it was too late for that.
async fn renew(api: Api<Lease>, mut lease: Lease, is_held: Arc<AtomicBool>, clock: Clock) {
    let mut renewed = tokio::time::Instant::now();
    loop {
        tokio::time::sleep(RENEW).await;
        if let Some(spec) = &mut lease.spec {
            spec.renew_time = Some(MicroTime(clock.now()));
        }
        let name = lease.metadata.name.clone().unwrap_or_default();
        match tokio::time::timeout(RENEW, api.replace(&name, &PostParams::default(), &lease)).await {
            Ok(Ok(written)) => {
                (lease, renewed) = (written, tokio::time::Instant::now());
            }
            Ok(Err(kube::Error::Api(status))) if status.is_conflict() || status.is_not_found() => {
                is_held.store(false, Ordering::SeqCst);
                return;
            }
            _ if renewed.elapsed() >= LEASE.saturating_sub(RENEW) => {
                is_held.store(false, Ordering::SeqCst);
                return;
            }
            _ => {}
        }
    }
}

impl std::fmt::Debug for HeldLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Held for HeldLease {
    fn is_held(&self) -> bool {
        self.is_held.load(Ordering::SeqCst)
    }

    fn release(self: Box<Self>) -> BoxFuture<'static, ()> {
        self.stop.cancel();
        let (api, name, uid, held) = (self.api.clone(), self.name.clone(), self.uid.clone(), self.is_held());
        self.is_held.store(false, Ordering::SeqCst);
        async move {
            if held && let Err(error) = delete_lease(&api, &name, uid).await {
                tracing::debug!(lock = name, %error, "a lock ends by itself");
            }
        }
        .boxed()
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.stop.cancel();
        if !self.is_held() {
            return;
        }
        let (api, name, uid) = (self.api.clone(), self.name.clone(), self.uid.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { delete_lease(&api, &name, uid).await.ok() });
        }
    }
}

async fn delete_lease(api: &Api<Lease>, name: &str, uid: Option<String>) -> kube::Result<()> {
    let preconditions = Some(Preconditions { uid, resource_version: None });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    api.delete(name, &params).await.map(drop)
}

fn failed(verb: &str, error: &kube::Error) -> StoreError {
    match error {
        kube::Error::Api(status) if status.is_conflict() || status.is_not_found() => {
            StoreError::Conflict(status.message.clone())
        }
        kube::Error::Api(status) => StoreError::Refused(format!("{verb}: {}", status.message)),
        error => StoreError::Disconnected(format!("{verb}: {error}")),
    }
}

fn metadata(name: String) -> ObjectMeta {
    ObjectMeta { name: Some(name), finalizers: Some(vec![IMAGE_FINALIZER.to_owned()]), ..ObjectMeta::default() }
}

/// A name that the API takes: the text itself if it is one, else a similar one with a mark of the text.
pub(crate) fn object_name(text: &str) -> String {
    let is_plain =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-' || letter == '.';
    let ends =
        |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit());
    let is_name = text.len() <= 180
        && text.chars().all(is_plain)
        && text.split('.').all(|part| ends(part.chars().next()) && ends(part.chars().last()));
    if is_name {
        return text.to_owned();
    }
    let mut plain: String = text
        .to_lowercase()
        .chars()
        .map(|letter| if is_plain(letter) && letter != '.' { letter } else { '-' })
        .collect();
    plain.truncate(150);
    let sum = super::files::hex(&ring::digest::digest(&ring::digest::SHA256, text.as_bytes()).as_ref()[..4]);
    format!("{}-{sum}", plain.trim_matches('-')).trim_start_matches('-').to_owned()
}

fn build_name(image: &str, id: &str) -> String {
    object_name(&format!("{}-{id}", object_name(image)))
}

fn upload_name(key: &UploadKey) -> String {
    object_name(&format!("{}-{}-{}", key.build, object_name(&key.provider), key.id))
}

fn lease_name(key: &LockKey) -> String {
    let text = match key {
        LockKey::Image(image) => format!("diskimage-{}", object_name(image)),
        LockKey::Build { image, build } => format!("imagebuild-{}", build_name(image, build)),
        LockKey::Uploads { build, provider, .. } => format!("imageuploads-{build}-{}", object_name(provider)),
        LockKey::Upload(key) => format!("imageupload-{}", upload_name(key)),
    };
    object_name(&text)
}

fn build_record(object: &ImageBuild) -> model::ImageBuild {
    let status = &object.status;
    let leaving = object.metadata.deletion_timestamp.is_some();
    let state = BuildState::parse(&status.state).filter(|_| !leaving).unwrap_or(BuildState::Deleting);
    model::ImageBuild {
        state,
        state_time: status.state_time,
        builder: status.builder.clone(),
        builder_id: status.builder_id.clone(),
        formats: status.formats.clone(),
        username: status.username.clone(),
        python_path: status.python_path.clone(),
        shell_type: status.shell_type.clone(),
        others: status.facts.clone(),
    }
}

fn build_status(record: &model::ImageBuild, message: Option<String>) -> ImageBuildStatus {
    ImageBuildStatus {
        state: record.state.name().to_owned(),
        state_time: record.state_time,
        message,
        builder: record.builder.clone(),
        builder_id: record.builder_id.clone(),
        formats: record.formats.clone(),
        username: record.username.clone(),
        python_path: record.python_path.clone(),
        shell_type: record.shell_type.clone(),
        facts: record.others.clone(),
    }
}

fn upload_record(object: &ImageUpload) -> model::ImageUpload {
    let status = &object.status;
    let leaving = object.metadata.deletion_timestamp.is_some();
    let state = UploadState::parse(&status.state).filter(|_| !leaving).unwrap_or(UploadState::Deleting);
    model::ImageUpload {
        state,
        state_time: status.state_time,
        external_id: status.external_id.clone(),
        external_name: status.external_name.clone(),
        format: status.format.clone(),
        username: status.username.clone(),
        python_path: status.python_path.clone(),
        shell_type: status.shell_type.clone(),
        others: status.facts.clone(),
    }
}

fn upload_status(record: &model::ImageUpload, message: Option<String>) -> ImageUploadStatus {
    ImageUploadStatus {
        state: record.state.name().to_owned(),
        state_time: record.state_time,
        message,
        external_id: record.external_id.clone(),
        external_name: record.external_name.clone(),
        format: record.format.clone(),
        username: record.username.clone(),
        python_path: record.python_path.clone(),
        shell_type: record.shell_type.clone(),
        facts: record.others.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_apis() {
        assert_eq!(object_name("fedora-40.cloud"), "fedora-40.cloud");
        for odd in ["Fedora_40", "-x", "a..b", "ü", &"x".repeat(300), "_"] {
            let name = object_name(odd);
            assert_eq!(object_name(&name), name, "{odd}: {name}");
            assert_ne!(name, odd);
        }
        assert_ne!(object_name("Fedora"), object_name("FEDORA"));
    }

    #[test]
    fn records_come_back() {
        let mut record = model::ImageBuild::new(BuildState::Ready, 12.5);
        record.formats = vec!["qcow2".to_owned()];
        record.others.insert("later".to_owned(), json!(1));
        let spec = ImageBuildSpec { image: "a".to_owned(), build_id: "b".to_owned() };
        let mut object = ImageBuild::new(metadata(build_name("a", "b")), spec);
        object.status = build_status(&record, None);
        assert_eq!(build_record(&object), record);
        object.metadata.deletion_timestamp = Some(Clock::Machine.time());
        assert_eq!(build_record(&object).state, BuildState::Deleting);
    }
}
