//! Builds one image: record, command, checks, record.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio_util::sync::CancellationToken;

use super::command::{self, BuildCommand};
use super::decide::Image;
use super::files;
use super::logs;
use super::process::{Outcome, Run, mask, running_file};
use super::run::Builder;
use super::source::Loaded;
use super::store::{Held, StoreError, Write};
use crate::model::{BuildState, ImageBuild};

/// How much of a log goes into messages.
const TAIL_BYTES: u64 = 2048;
/// The code of a shell for commands that are not there.
const NOT_FOUND: i32 = 127;
/// The code of a build whose command ended well and left no whole image.
const NO_IMAGE: i32 = 1;

/// Why a build failed.
enum Failure {
    /// For this reason, with this exit code of its command.
    Failed(String, i32),
    /// The builder was stopped: not the image's fault.
    Stopped,
}

impl Builder {
    /// Builds an image under its lock.
    pub(super) async fn build_image(
        &self,
        loaded: &Loaded,
        image: &Image,
        lock: &dyn Held,
        stop: &CancellationToken,
    ) -> Result<(), StoreError> {
        let name = &image.settings.name;
        let mut record = ImageBuild::new(BuildState::Building, self.now());
        record.builder = Some(self.hostname.clone());
        record.builder_id = Some(self.id().to_owned());
        record.formats = image.formats.iter().cloned().collect();
        let id = self.store.write(Write::CreateBuild { image: name.clone(), record: record.clone() }).await?;
        let _busy = self.begin(&id, "");
        let records = self.store.read().await?;
        let requested = records.get(name).and_then(|records| records.request);
        self.announce(&loaded.images, &records).await?;

        let began = self.now();
        let result = self.make(loaded, image, &id, stop).await;
        // A lost store comes back; then it is known whether the lock is still held.
        tokio::select! {
            () = self.store.connected() => {}
            () = stop.cancelled() => {}
        }
        let settings = &image.settings;
        record.username = Some(settings.username.clone());
        record.python_path = Some(settings.python_path.clone());
        record.shell_type = settings.shell_type.clone();
        let result = match result {
            Ok(()) if !lock.is_held() => {
                Err(Failure::Failed("the lock was lost while the image was built".to_owned(), NO_IMAGE))
            }
            result => result,
        };
        let message = match result {
            Ok(()) => {
                record.set_state(BuildState::Ready, self.now());
                self.figures.built(name, 0, began, self.now());
                for format in &image.formats {
                    let size = files::path(&loaded.folders.images, name, &id, format).metadata();
                    self.figures.sized(name, format, size.map_or(0, |file| file.len()));
                }
                tracing::info!(image = name, build = id, "built");
                None
            }
            Err(Failure::Failed(reason, code)) => {
                self.figures.built(name, code, began, self.now());
                record.set_state(BuildState::Failed, self.now());
                record.formats.clear();
                self.build_failed(name);
                self.tell_failure(loaded, image, &id, &reason);
                Some(reason)
            }
            Err(Failure::Stopped) => {
                record.set_state(BuildState::Deleting, self.now());
                tracing::info!(image = name, build = id, "given up: the builder stops");
                None
            }
        };
        let state = record.state;
        let write = Write::Build { image: name.clone(), id: id.clone(), record, message };
        if let Err(error) = self.store.write(write).await {
            // Without its record the build is lost: any builder cleans up the record, this one has the files.
            tracing::warn!(image = name, build = id, %error, "the build's record could not be written");
            self.delete_files(&loaded.folders.images, name, &id);
            return Err(error);
        }
        match state {
            BuildState::Ready => {
                self.build_succeeded(name);
                if requested.is_some() {
                    self.store.write(Write::ClearRequest { image: name.clone() }).await?;
                }
            }
            BuildState::Deleting => {
                self.delete_files(&loaded.folders.images, name, &id);
                self.store.write(Write::RemoveBuild { image: name.clone(), id }).await?;
            }
            _ => self.delete_files(&loaded.folders.images, name, &id),
        }
        Ok(())
    }

    /// Runs the command and checks what it made.
    async fn make(&self, loaded: &Loaded, image: &Image, id: &str, stop: &CancellationToken) -> Result<(), Failure> {
        let settings = &image.settings;
        let name = &settings.name;
        let failed = |problem: String| Failure::Failed(problem, NOT_FOUND);
        if let Err(error) = loaded.logs.prune(name) {
            return Err(failed(format!("prepare `{}`: {error}", loaded.logs.dir.display())));
        }
        let log = self.log_of(&loaded.logs, name, id);
        let command =
            command::command(image, id, &loaded.folders).map_err(|problem| failed(format!("dib-cmd {problem}")))?;
        let secrets = secrets(image);
        let (command, remote) = match self.ansible.command(&command, loaded) {
            None => (command, None),
            Some(Ok((command, remote))) => (command, Some(remote)),
            Some(Err(problem)) => {
                self.log_problem(&log, &problem).await;
                return Err(failed(problem));
            }
        };
        let run = Run {
            command: &command,
            log: &log,
            timeout: Duration::from_secs(settings.build_timeout_s),
            running: running_file(&loaded.folders.images, name, id),
            secrets: &secrets,
        };
        tracing::info!(image = name, build = id, log = %log.display(), command = command.argv[0], "running");
        let (outcome, mut file) = match run.run(stop).await {
            Ok(ended) => ended,
            Err(error) => {
                let problem = self.start_problem(&command, image, &error);
                self.log_problem(&log, &problem).await;
                return Err(failed(problem));
            }
        };
        let (mut result, code) = match outcome {
            Outcome::Exited(0) => (Ok(()), 0),
            Outcome::Exited(code) => (Err(format!("the command ended with exit code {code}")), code),
            Outcome::TimedOut => {
                (Err(format!("the command took longer than build-timeout, {} s", settings.build_timeout_s)), 1)
            }
            Outcome::Stopped => return Err(Failure::Stopped),
        };
        if let Some(remote) = &remote {
            result = match result {
                Ok(()) => remote.fetch(image, id, &mut file, stop).await,
                Err(reason) => Err(remote.explain(&log, reason)),
            };
        }
        if result.is_ok() {
            result = verify(image, id, &loaded.folders.images).await;
        }
        let mut last = String::new();
        if let Err(problem) = &result {
            last = format!("millpond: {problem}\n");
        }
        last.push_str(&format!("Exit code: {code}\n"));
        let written = async {
            file.write_all(last.as_bytes()).await?;
            file.flush().await
        };
        let code = if code == 0 { NO_IMAGE } else { code };
        let failed = |problem: String| Failure::Failed(problem, code);
        written.await.map_err(|error| failed(format!("write `{}`: {error}", log.display())))?;
        result.map_err(failed)
    }

    fn start_problem(&self, command: &BuildCommand, image: &Image, error: &io::Error) -> String {
        let program = &command.argv[0];
        match error.kind() {
            io::ErrorKind::NotFound => format!("the command `{program}` of dib-cmd is not there"),
            io::ErrorKind::PermissionDenied => format!("the command `{program}` of dib-cmd may not be executed"),
            _ => format!("the command `{program}` of `{}` does not start: {error}", image.settings.name),
        }
    }

    /// A log for a command that did not run.
    async fn log_problem(&self, log: &Path, problem: &str) {
        let text = format!("millpond: {problem}\nExit code: {NOT_FOUND}\n");
        if let Err(error) = tokio::fs::write(log, text).await {
            tracing::warn!(log = %log.display(), %error, "the log could not be written");
        }
    }

    fn tell_failure(&self, loaded: &Loaded, image: &Image, id: &str, reason: &str) {
        let settings = &image.settings;
        let log = self.log_of(&loaded.logs, &settings.name, id);
        let tail = logs::tail(&log, TAIL_BYTES).unwrap_or_default();
        let tail = mask(tail.as_bytes(), &secrets(image)).into_owned();
        tracing::error!(
            image = settings.name,
            build = id,
            log = %log.display(),
            "{}: diskimage `{}`: {reason}\n{}",
            settings.dib_cmd_origin,
            settings.name,
            String::from_utf8_lossy(&tail).trim_end()
        );
    }

    /// Deletes the files of a build; what cannot be deleted now is deleted at the next clean-up.
    fn delete_files(&self, images: &Path, image: &str, build: &str) {
        let wanted = files::LocalBuild { image: image.to_owned(), build: build.to_owned() };
        let deleted = files::local_builds(images)
            .and_then(|mut builds| files::delete(images, &builds.remove(&wanted).unwrap_or_default(), &|_| true));
        if let Err(error) = deleted {
            tracing::warn!(image, build, %error, "files are deleted later");
        }
    }
}

/// Values that logs must not show.
fn secrets(image: &Image) -> Vec<String> {
    let settings = &image.settings;
    let values = settings.secret_vars.iter().filter_map(|name| settings.env_vars.get(name));
    values.filter(|value| !value.is_empty()).cloned().collect()
}

/// Every format must have a file that is whole.
async fn verify(image: &Image, id: &str, images: &Path) -> Result<(), String> {
    for format in &image.formats {
        let path = files::path(images, &image.settings.name, id, format);
        let checked = tokio::task::spawn_blocking(move || files::verify(&path)).await;
        checked.map_err(|error| error.to_string())?.map_err(|error| describe(&error))?;
    }
    Ok(())
}

/// An error with its cause.
fn describe(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}
