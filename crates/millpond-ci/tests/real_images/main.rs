//! The image builder with its real counterparts: sshd and Ansible, ZooKeeper and Nodepool's own builder. Ignored by a
//! plain `cargo test`; `cargo xtask test` runs them.

#![expect(clippy::unwrap_used, reason = "what a test needs and does not get ends it")]

mod killed;
mod nodepool;
mod remote;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millpond_ci::builder::ansible::Ansible;
use millpond_ci::builder::cloud::ProviderClouds;
use millpond_ci::builder::files::Identity;
use millpond_ci::builder::ssh::SshFolder;
use millpond_ci::builder::{Builder, ImageStore, Settings, Source};
use millpond_ci::config::Config;

/// Only a part that hangs takes so long.
const LIMIT: Duration = Duration::from_secs(180);

/// A builder with a configuration file.
fn builder(config: &Path, images: &Path, ssh: &Path, store: Arc<dyn ImageStore>) -> Arc<Builder> {
    let source = Source::open(config, None, Path::new("/"), Arc::new(ProviderClouds::new())).unwrap();
    let settings = Settings {
        source,
        identity: Identity::open(images).unwrap(),
        store,
        hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        build_workers: 1,
        upload_workers: 2,
        ansible: Ansible { ssh: SshFolder(ssh.to_owned()), config_dir: config.parent().unwrap().to_owned() },
        now: Arc::new(|| jiff::Timestamp::now().as_microsecond() as f64 / 1e6),
    };
    Builder::new(settings).unwrap()
}

/// What a configuration file says.
fn read(text: &str) -> Config {
    let file = millpond_ci::config::File { name: "nodepool.yaml", text };
    millpond_ci::config::read(file, None, &|_| None).valid().unwrap()
}

/// Waits until something holds; says what is there if it never does.
async fn eventually<T: std::fmt::Debug>(mut look: impl AsyncFnMut() -> (bool, T)) {
    let begun = tokio::time::Instant::now();
    loop {
        let (holds, found) = look().await;
        if holds {
            return;
        }
        assert!(begun.elapsed() < LIMIT, "{found:#?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
