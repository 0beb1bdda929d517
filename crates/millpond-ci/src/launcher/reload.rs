//! The configuration as its files are now. A file that is broken changes nothing: the last good one stays, and its
//! mistakes are logged once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::{self, Config, File};

/// Between two looks at the files.
const INTERVAL: Duration = Duration::from_secs(1);

/// The files of a configuration.
#[derive(Debug, Clone)]
pub struct Files {
    /// nodepool.yaml
    pub main: PathBuf,
    /// secure.conf
    pub secure: Option<PathBuf>,
}

/// Distinguishes versions of the files.
type Version = Vec<Option<(SystemTime, u64)>>;

impl Files {
    /// Reads the files: the configuration, and every mistake. Mistakes in one provider leave the others usable.
    pub fn read(&self) -> (Option<Config>, Vec<String>) {
        let text = |path: &Path| std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
        let main = match text(&self.main) {
            Ok(main) => main,
            Err(error) => return (None, vec![error]),
        };
        let secure = match self.secure.as_deref().map(text).transpose() {
            Ok(secure) => secure,
            Err(error) => return (None, vec![error]),
        };
        let name = |path: &Path| path.display().to_string();
        let (main_name, secure_name) = (name(&self.main), self.secure.as_deref().map(name).unwrap_or_default());
        let secure = secure.as_deref().map(|text| File { name: &secure_name, text });
        let reading = config::read(File { name: &main_name, text: &main }, secure, &|name| std::env::var(name).ok());
        let errors = reading.errors.iter().map(ToString::to_string).collect();
        (reading.config, errors)
    }

    fn version(&self) -> Version {
        let paths = [Some(&self.main), self.secure.as_ref()];
        let version = |path: &PathBuf| {
            let data = std::fs::metadata(path).ok()?;
            Some((data.modified().ok()?, data.len()))
        };
        paths.into_iter().flatten().map(version).collect()
    }

    /// Sends the configuration whenever the files change to a right one.
    pub async fn follow(self, sender: watch::Sender<Arc<Config>>, ends: CancellationToken) {
        let mut known = self.version();
        loop {
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = ends.cancelled() => return,
            }
            let version = self.version();
            if version == known {
                continue;
            }
            known = version;
            let (config, errors) = self.read();
            match config.filter(|_| errors.is_empty()) {
                Some(config) => {
                    let config = Arc::new(config);
                    let is_new = **sender.borrow() != *config;
                    if is_new {
                        tracing::info!(file = %self.main.display(), "the configuration has changed");
                        sender.send_replace(config);
                    }
                }
                None => {
                    for error in errors {
                        tracing::error!(error, "the configuration is broken; the one before stays in use");
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than the file is not looked at.
    const NOTICED: Duration = INTERVAL.saturating_mul(3);

    #[tokio::test(start_paused = true)]
    async fn a_broken_file_changes_nothing_and_the_next_right_one_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let (main, secure) = (folder.path().join("nodepool.yaml"), folder.path().join("secure.conf"));
        std::fs::write(&main, "labels: [{name: first}]\nzookeeper-servers: [{host: one}]\n").unwrap();
        std::fs::write(&secure, "{}\n").unwrap();
        let files = Files { main: main.clone(), secure: Some(secure.clone()) };
        let (config, errors) = files.read();
        assert_eq!(errors, [""; 0]);
        let sender = watch::Sender::new(Arc::new(config.unwrap()));
        let (mut seen, ends) = (sender.subscribe(), CancellationToken::new());
        let follows = tokio::spawn(files.clone().follow(sender, ends.clone()));

        for broken in ["labels: [{nam: second}]\n", "labels: [", ""] {
            match broken {
                "" => std::fs::remove_file(&main).unwrap(),
                text => std::fs::write(&main, text).unwrap(),
            }
            assert!(!files.read().1.is_empty(), "its mistakes are told");
            tokio::time::sleep(NOTICED).await;
            assert!(!seen.has_changed().unwrap(), "{broken:?}");
        }
        std::fs::write(&main, "labels: [{name: second}]\nzookeeper-servers: [{host: one}]\n").unwrap();
        seen.changed().await.unwrap();
        assert!(seen.borrow_and_update().labels.contains_key("second"));
        // What is written again and says the same is no change; secrets are one.
        std::fs::write(&main, "labels: [{name: second}]\nzookeeper-servers: [{host: one}]\n# same\n").unwrap();
        tokio::time::sleep(NOTICED).await;
        assert!(!seen.has_changed().unwrap());
        std::fs::write(&secure, "zookeeper-servers: [{host: other}]\n").unwrap();
        seen.changed().await.unwrap();
        assert_eq!(seen.borrow().zookeeper.servers[0].host, "other");
        ends.cancel();
        follows.await.unwrap();
    }
}
