//! Builders on a store in memory, with shell scripts for commands and the simulated cloud.

mod deciding;
mod killed;
mod working;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::ansible::Ansible;
use super::cloud::{CloudError, CloudImage, Clouds, FakeImages, ImageCloud};
use super::files::Identity;
use super::memory::{Memory, Session};
use super::ssh::SshFolder;
use super::store::{ImageRecords, Records};
use super::{Builder, Settings, Source};
use crate::config::Provider;
use crate::model::{BuildState, UploadState};

/// A command that does what disk-image-create does: files and checksums where `-o` says.
const DIB: &str = r#"#!/bin/sh
echo "argv: $*"
while [ $# -gt 0 ]; do
    case "$1" in
    -o) out=$2; shift ;;
    -t) types=$2; shift ;;
    esac
    shift
done
mkdir -p "$out.d"
for type in $(echo "$types" | tr , ' '); do
    echo "data of $type" > "$out.$type"
    (cd "$(dirname "$out")" && md5sum "$out.$type" > "$out.$type.md5" && sha256sum "$out.$type" > "$out.$type.sha256")
done
"#;

struct TestClouds {
    images: PathBuf,
    credentials: PathBuf,
}

impl Clouds for TestClouds {
    fn format(&self, provider: &Provider) -> Result<String, CloudError> {
        Ok(if provider.name.ends_with("raw") { "raw" } else { "qcow2" }.to_owned())
    }

    fn open(&self, provider: &Provider, images_dir: &Path) -> Result<Arc<dyn ImageCloud>, CloudError> {
        // Several builders have one cloud.
        let _ = images_dir;
        Ok(Arc::new(FakeImages::new(&self.images, &provider.name)))
    }

    fn credentials(&self) -> Option<PathBuf> {
        Some(self.credentials.clone())
    }
}

struct Fixture {
    folder: tempfile::TempDir,
    memory: Memory,
    now: Arc<Mutex<f64>>,
}

impl Fixture {
    /// `DIB` in a configuration stands for a script, `IMAGES` for the images directory.
    fn new(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let now = Arc::new(Mutex::new(1_000_000.0));
        let clock = Arc::clone(&now);
        let fixture = Self { memory: Memory::new(Arc::new(move || *clock.lock())), folder, now };
        fixture.script("dib", DIB);
        std::fs::create_dir(fixture.images()).unwrap();
        fixture.configure(config);
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn images(&self) -> PathBuf {
        self.path("images")
    }

    fn configure(&self, config: &str) {
        let dirs = format!("images-dir: IMAGES\nbuild-log-dir: {}\n", self.path("logs").display());
        let text = format!("{dirs}{config}")
            .replace("DIB", &self.path("dib").display().to_string())
            .replace("IMAGES", &self.images().display().to_string());
        std::fs::write(self.path("nodepool.yaml"), text).unwrap();
    }

    fn script(&self, name: &str, text: &str) {
        // Renamed into place: a script that is being written cannot be executed.
        let (new, path) = (self.path("script.new"), self.path(name));
        std::fs::write(&new, text).unwrap();
        std::fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::rename(new, path).unwrap();
    }

    fn builder(&self) -> (Arc<Builder>, Arc<Session>) {
        let clouds = Arc::new(TestClouds { images: self.images(), credentials: self.path("clouds.yaml") });
        let source = Source::open(&self.path("nodepool.yaml"), None, Path::new("/package"), clouds).unwrap();
        let store = self.memory.session();
        let now = Arc::clone(&self.now);
        let settings = Settings {
            source,
            identity: Identity::open(&self.images()).unwrap(),
            store: Arc::clone(&store) as _,
            hostname: "nb01".to_owned(),
            build_workers: 1,
            upload_workers: 1,
            ansible: Ansible { ssh: SshFolder(self.path("ssh")), config_dir: self.folder.path().to_owned() },
            now: Arc::new(move || *now.lock()),
        };
        (Builder::new(settings).unwrap(), store)
    }

    fn pass(&self, seconds: f64) {
        *self.now.lock() += seconds;
    }

    fn records(&self) -> Records {
        self.memory.records()
    }

    fn image(&self) -> ImageRecords {
        self.records().remove("test").unwrap_or_default()
    }

    fn builds(&self) -> Vec<BuildState> {
        self.image().builds.values().map(|build| build.record.state).collect()
    }

    fn uploads(&self) -> Vec<UploadState> {
        let image = self.image();
        image.builds.values().flat_map(|build| build.all_uploads().map(|(_, _, upload)| upload.state)).collect()
    }

    /// Files of builds in the images directory.
    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.images()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> =
            names.filter(|name| name.starts_with("test-") || name.starts_with(".test-")).collect();
        names.sort();
        names
    }

    async fn in_cloud(&self, provider: &str) -> Vec<CloudImage> {
        let mut images = FakeImages::new(&self.images(), provider).list().await.unwrap();
        images.retain(|image| image.id != "fake-image-id");
        images
    }

    fn log(&self, build: usize) -> String {
        let id = self.image().builds.keys().nth(build).cloned().unwrap();
        std::fs::read_to_string(self.path("logs").join(format!("test-{id}.log"))).unwrap()
    }
}

/// Builds, uploads and cleans up until nothing is due.
async fn settle(builder: &Builder) {
    let stop = CancellationToken::new();
    let loaded = builder.source.current();
    let mut quiet = 0;
    for _ in 0..20 {
        let built = builder.build_due(&loaded, &stop).await.unwrap();
        let uploaded = builder.upload_due(&loaded).await.unwrap();
        builder.clean(&loaded).await.unwrap();
        // What was cleaned up makes room for the next upload.
        quiet = if built == super::Next::Now || uploaded == super::Next::Now { 0 } else { quiet + 1 };
        if quiet == 2 {
            return;
        }
    }
    panic!("does not settle");
}

const ONE: &str = "
diskimages:
  - name: test
    dib-cmd: DIB
    elements: [base, vm]
    release: 21
    env-vars: {TMPDIR: /tmp, EXTRA: '1'}
    metadata: {kind: ci}
providers:
  - name: fake-one
    cloud: fake
    driver: fake
    diskimages: [{name: test, meta: {az: one}}]
";
