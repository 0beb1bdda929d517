//! `dib-cmd: ansible PLAYBOOK` with ansible-core and sshd: an image is built on another machine and comes back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millpond_ci::builder::ImageStore as _;
use millpond_ci::builder::memory::Memory;
use millpond_ci::builder::ssh::{self, Host, KNOWN_HOSTS, SshFolder};
use millpond_ci::builder::store::Write;
use millpond_ci::model::{BuildState, UploadState};
use millpond_testkit::real::python;
use millpond_testkit::{Scratch, Sshd};
use tokio_util::sync::CancellationToken;

use super::{builder, eventually};

const PLAYBOOK: &str = "
- hosts: image-builder
  gather_facts: false
  tasks:
    - name: Make the image
      ansible.builtin.copy: {content: 'an image', dest: '{{ image_output }}.qcow2'}
      when: qcow2_type | default(false) | bool
    - name: Make what was not asked for
      ansible.builtin.fail: {msg: raw}
      when: raw_type | default(false) | bool
";

struct Fixture {
    scratch: Scratch,
    memory: Memory,
}

impl Fixture {
    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn inventory(&self, port: u16) {
        let text = format!(
            "all:\n  hosts:\n    image-builder: {{ansible_host: 127.0.0.1, ansible_port: {port}, ansible_user: root, ansible_python_interpreter: {}}}\n",
            python3().display()
        );
        self.write("inventory.yaml", &text);
    }

    /// Reasons of failed builds, and the logs of all.
    fn failures(&self) -> Vec<String> {
        let records = self.memory.records();
        let builds = records.get("test").map_or_else(Vec::new, |image| image.builds.values().cloned().collect());
        builds.into_iter().filter_map(|build| build.message).collect()
    }

    fn logs(&self) -> BTreeMap<PathBuf, String> {
        // The first build makes the folder.
        let entries = std::fs::read_dir(self.path("logs")).into_iter().flatten().map(|entry| entry.unwrap().path());
        entries.map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
    }
}

fn python3() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join("python3")).find(|file| file.exists()).expect("python3")
}

async fn accept(ssh: &SshFolder, port: u16, replace: bool) -> Result<(), ssh::SshError> {
    let host = Host::parse(&format!("127.0.0.1:{port}"))?;
    let keys = tokio::task::spawn_blocking(move || ssh::scan(&host).map(|keys| (host, keys))).await.unwrap();
    let (host, keys) = keys?;
    ssh.write_known_hosts(&ssh::accept(&ssh.known_hosts()?, &host, &keys, replace)?)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd and ansible-core"]
async fn real_images_are_built_on_another_machine() {
    let programs = python::ansible().unwrap();
    let scratch = Scratch::new("remote").unwrap();
    let now = || jiff::Timestamp::now().as_microsecond() as f64 / 1e6;
    let fixture = Fixture { scratch, memory: Memory::new(Arc::new(now)) };
    let ssh = SshFolder(fixture.path("ssh"));
    let pair = ssh.ensure().unwrap();
    let images = fixture.path("images");
    std::fs::create_dir(&images).unwrap();
    let server = Sshd::start(&pair.public, &images, None).unwrap();
    let port = server.port();
    fixture.inventory(port);
    fixture.write("image.yaml", PLAYBOOK);
    let path = std::env::var("PATH").unwrap_or_default();
    let config = format!(
        "images-dir: {}\nbuild-log-dir: {}\ndiskimages:\n  - name: test\n    dib-cmd: ansible image.yaml\n    env-vars: {{PATH: '{}:{path}'}}\n\
         providers:\n  - {{name: fake-one, driver: fake, cloud: fake, diskimages: [{{name: test}}]}}\n",
        images.display(),
        fixture.path("logs").display(),
        programs.display(),
    );
    fixture.write("nodepool.yaml", &config);
    let session = fixture.memory.session();
    let store = Arc::clone(&session) as Arc<dyn millpond_ci::builder::ImageStore>;
    let builder = builder(&fixture.path("nodepool.yaml"), &images, &ssh.0, store);
    let stop = CancellationToken::new();
    let works = tokio::spawn(builder.run(stop.clone()));
    let again = async || {
        session.write(Write::RequestBuild { image: "test".to_owned() }).await.unwrap();
    };
    let failed = async |reason: &str| {
        eventually(async || {
            (fixture.failures().iter().any(|found| found.contains(reason)), (fixture.failures(), fixture.logs()))
        })
        .await;
    };

    // The host is unknown: it is not trusted, and its key is not kept by the way.
    failed("is not accepted yet").await;
    assert_eq!(ssh.known_hosts().unwrap(), "");

    accept(&ssh, port, false).await.unwrap();
    again().await;
    let uploaded = || {
        let records = fixture.memory.records();
        let image = records.get("test").cloned().unwrap_or_default();
        let ready = image.newest_ready_upload("fake-one").map(|(build, ..)| build.to_owned());
        (ready, image)
    };
    eventually(async || (uploaded().0.is_some(), (uploaded(), fixture.logs()))).await;
    let build = uploaded().0.unwrap();
    let file = images.join(format!("test-{build}.qcow2"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "an image");
    // Its checksum is that of the host.
    let sum = std::fs::read_to_string(images.join(format!("test-{build}.qcow2.sha256"))).unwrap();
    assert_eq!(sum.trim(), millpond_ci::builder::files::sha256(&file).unwrap());
    assert!(file_names(&images).iter().all(|name| !name.contains(".fetch")), "{:?}", file_names(&images));

    // A task that fails is named.
    fixture.write("image.yaml", &PLAYBOOK.replace("content: 'an image'", "content: 'x', mode: nonsense"));
    again().await;
    failed("the task `Make the image` of the playbook failed").await;

    // The host shows another key: refused, until it is accepted.
    drop(server);
    let server = Sshd::start(&pair.public, &images, Some(port)).unwrap();
    fixture.write("image.yaml", PLAYBOOK);
    again().await;
    failed("has changed").await;
    let changed = accept(&ssh, port, false).await.unwrap_err();
    assert!(changed.to_string().contains("has changed"), "{changed}");
    accept(&ssh, port, true).await.unwrap();
    again().await;
    eventually(async || (uploaded().0.is_some_and(|newest| newest != build), (uploaded(), fixture.logs()))).await;

    drop(server);
    again().await;
    failed("is not reachable").await;

    stop.cancel();
    works.await.unwrap();
    let image = uploaded().1;
    assert!(image.builds.values().all(|build| build.record.state != BuildState::Building));
    let uploads = image.builds.values().flat_map(|build| build.all_uploads().map(|(.., upload)| upload.state));
    assert!(uploads.into_iter().all(|state| state == UploadState::Ready));
    let secret = pair.private.lines().nth(2).unwrap().to_owned();
    for (path, log) in fixture.logs() {
        assert!(!log.contains(&secret) && log.lines().last().unwrap().starts_with("Exit code: "), "{}", path.display());
    }
    assert!(fixture.path("ssh").join(KNOWN_HOSTS).exists());
}

fn file_names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}
