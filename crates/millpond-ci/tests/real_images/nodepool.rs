//! Builder and ZooKeeper: the original's builder and command line on the same tree.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use millpond_ci::builder::ImageStore;
use millpond_ci::builder::store::{ImageRecords, Write};
use millpond_ci::builder::zookeeper::ZooKeeperStore;
use millpond_ci::model::{BuildState, UploadState};
use millpond_testkit::real::python;
use millpond_testkit::{Process, Scratch, ZooKeeper};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{builder, eventually, read};

/// Writes what it was started with beside the log directory, then makes an image.
const DIB: &str = r#"#!/bin/sh
here=$(dirname "$0")
[ -e "$here/hold" ] && while [ -e "$here/hold" ]; do sleep 0.1; done
(for word; do echo "arg $word"; done; pwd; env | grep -E '^(DIB_|ELEMENTS_PATH|EXTRA)' | sort) > "$here/called.$WHO"
echo building; echo problem >&2
while [ "$1" != -o ]; do [ "$1" = -t ] && types=$2; shift; done
for type in $(echo "$types" | tr , ' '); do
    echo "image $type" > "$2.$type"
    md5sum < "$2.$type" > "$2.$type.md5"; sha256sum < "$2.$type" > "$2.$type.sha256"
done
"#;

struct Fixture {
    zookeeper: ZooKeeper,
    scratch: Scratch,
    programs: std::path::PathBuf,
}

impl Fixture {
    fn start() -> Self {
        let programs = python::nodepool().unwrap();
        let fixture =
            Self { zookeeper: ZooKeeper::start().unwrap(), scratch: Scratch::new("images").unwrap(), programs };
        fixture.write("clouds.yaml", "clouds:\n  fake:\n    auth: {username: u, password: p, project_name: p, auth_url: 'http://127.0.0.1:9/'}\n");
        fixture.write("dib", DIB);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(fixture.path("dib"), mode).unwrap();
        fixture
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.scratch.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// The configuration of a builder with folders of its own; gives its file.
    fn configure(&self, who: &str) -> std::path::PathBuf {
        let (images, logs) = (self.path(&format!("{who}-images")), self.path(&format!("{who}-logs")));
        std::fs::create_dir_all(&images).unwrap();
        let text = format!(
            "{}images-dir: {}\nbuild-log-dir: {}\nelements-dir: /elements\n\
             diskimages:\n  - {{name: base, abstract: true, elements: [one], env-vars: {{EXTRA: base, EXTRA_TWO: 'a b'}}}}\n  \
             - {{name: test, parent: base, elements: [two], release: 21, dib-cmd: {}, env-vars: {{WHO: {who}, EXTRA: own}}}}\n\
             providers:\n  - {{name: fake-one, driver: fake, cloud: fake, diskimages: [{{name: test}}], pools: []}}\nlabels: []\n",
            self.zookeeper.nodepool_yaml(),
            images.display(),
            logs.display(),
            self.path("dib").display(),
        );
        self.write(&format!("{who}.yaml"), &text);
        self.path(&format!("{who}.yaml"))
    }

    fn original(&self, config: &Path) -> Process {
        let mut command = Command::new(self.programs.join("nodepool-builder"));
        command.args(["-d", "-c"]).arg(config).env("OS_CLIENT_CONFIG_FILE", self.path("clouds.yaml"));
        command.env("STATSD_HOST", "").current_dir(std::env::current_dir().unwrap());
        Process::spawn("nodepool-builder", &mut command, self.scratch.path()).unwrap()
    }

    /// What the original's command line prints.
    fn list(&self, config: &Path, verb: &str) -> String {
        let mut command = Command::new(self.programs.join("nodepool"));
        command.arg("-c").arg(config).arg(verb).env("OS_CLIENT_CONFIG_FILE", self.path("clouds.yaml"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    async fn store(&self, config: &Path, stop: &CancellationToken) -> Arc<ZooKeeperStore> {
        let config = read(&std::fs::read_to_string(config).unwrap());
        let store = ZooKeeperStore::start(&config.zookeeper, "nb01", "1", stop).unwrap();
        store.connected(super::LIMIT).await.unwrap();
        store
    }
}

/// What a command was called with, without what is different by nature.
fn called(fixture: &Fixture, who: &str, build: &str) -> String {
    let text = std::fs::read_to_string(fixture.path(&format!("called.{who}"))).unwrap();
    text.replace(&format!("{who}-images"), "IMAGES").replace(build, "BUILD")
}

async fn image(store: &ZooKeeperStore) -> ImageRecords {
    store.read().await.unwrap().remove("test").unwrap_or_default()
}

fn uploads(image: &ImageRecords) -> Vec<UploadState> {
    image.builds.values().flat_map(|build| build.all_uploads().map(|(.., upload)| upload.state)).collect()
}

/// A record as its znode has it, without what is different by nature.
fn shape(record: &impl serde::Serialize) -> BTreeMap<String, Value> {
    let mut shape: BTreeMap<String, Value> = serde_json::from_value(serde_json::to_value(record).unwrap()).unwrap();
    for key in ["state_time", "builder_id", "builder", "external_id", "external_name"] {
        if let Some(value) = shape.get_mut(key).filter(|value| !value.is_null()) {
            *value = "something".into();
        }
    }
    shape
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs ZooKeeper and Nodepool"]
async fn real_records_commands_and_locks_are_the_originals() {
    let fixture = Fixture::start();
    let stop = CancellationToken::new();
    let (old, new) = (fixture.configure("old"), fixture.configure("new"));
    let store = fixture.store(&new, &stop).await;

    // The original alone.
    let mut original = fixture.original(&old);
    eventually(async || {
        (uploads(&image(&store).await) == [UploadState::Ready], (image(&store).await, original.log_tail()))
    })
    .await;
    let theirs = image(&store).await;
    let (their_id, their_build) = theirs.builds.first_key_value().unwrap();

    // Ours beside it: it sees that nothing is due, and builds what is asked for, once.
    std::fs::write(fixture.path("hold"), "").unwrap();
    let ours = builder(&new, &fixture.path("new-images"), &fixture.path("ssh"), Arc::clone(&store) as _);
    let works = tokio::spawn(ours.run(stop.clone()));
    store.write(Write::RequestBuild { image: "test".to_owned() }).await.unwrap();
    eventually(async || (image(&store).await.builds.len() == 2, image(&store).await)).await;
    // One builder took the lock; the other one does not build beside it.
    std::fs::remove_file(fixture.path("hold")).unwrap();
    eventually(async || {
        let image = image(&store).await;
        (
            image.request.is_none()
                && uploads(&image).len() == 2
                && uploads(&image).iter().all(|it| *it == UploadState::Ready),
            image,
        )
    })
    .await;
    assert_eq!(image(&store).await.builds.len(), 2);

    // Ours alone.
    original.stop().unwrap();
    store.write(Write::RequestBuild { image: "test".to_owned() }).await.unwrap();
    let is_ours = |name: &str| fixture.path("new-images").join(format!("test-{name}.qcow2")).exists();
    eventually(async || {
        let image = image(&store).await;
        let newest = image.newest_ready_upload("fake-one").map(|(build, ..)| build.to_owned());
        (image.request.is_none() && newest.is_some_and(|newest| is_ours(&newest)), image)
    })
    .await;
    let after = image(&store).await;
    let (our_id, _, our_upload) = after.newest_ready_upload("fake-one").unwrap();
    let our_build = &after.builds[our_id];

    // The same records, arguments, environments and logs.
    assert_eq!(shape(&our_build.record), shape(&their_build.record));
    let (_, _, their_upload) = their_build.all_uploads().next().unwrap();
    assert_eq!(shape(our_upload), shape(their_upload));
    assert_eq!(called(&fixture, "new", our_id), called(&fixture, "old", their_id).replace("WHO=old", "WHO=new"));
    let log =
        |who: &str, id: &str| std::fs::read_to_string(fixture.path(&format!("{who}-logs/test-{id}.log"))).unwrap();
    assert_eq!(log("new", our_id), log("old", their_id));
    assert_eq!(log("new", our_id), "building\nproblem\nExit code: 0\n");

    // The original's command line sees ours.
    let builds = fixture.list(&old, "dib-image-list");
    assert!(builds.contains(&format!("test-{our_id}")) && builds.contains("qcow2"), "{builds}");
    let images = fixture.list(&old, "image-list");
    assert!(images.contains(our_upload.external_name.as_deref().unwrap()), "{images}");

    // Deleted by the original's command line, gone by our clean-up.
    let mut delete = Command::new(fixture.programs.join("nodepool"));
    delete.arg("-c").arg(&old).arg("dib-image-delete").arg(format!("test-{our_id}"));
    let deleted = delete.env("OS_CLIENT_CONFIG_FILE", fixture.path("clouds.yaml")).status().unwrap();
    assert!(deleted.success());
    let gone = our_id.to_owned();
    eventually(async || {
        let image = image(&store).await;
        (!image.builds.contains_key(&gone) && !is_ours(&gone), image)
    })
    .await;
    stop.cancel();
    works.await.unwrap();
    assert!(image(&store).await.builds.values().all(|build| build.record.state != BuildState::Building));
    store.close().await;
}
