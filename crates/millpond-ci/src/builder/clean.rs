//! Deletes what is not needed any more: uploads, records and files.

use super::decide::{self, Cleanup, CleanupReason, LocalFiles};
use super::files;
use super::run::Builder;
use super::source::Loaded;
use super::store::{BuildRecords, LockKey, Records, StoreError, UploadKey, Write};
use super::upload::delete_leftovers;
use crate::model::{BuildState, UploadState};

/// Limit on the rounds of a clean-up, whose steps lead to further ones; the remaining steps wait for the next clean-up.
const LIMIT_ROUNDS: usize = 4;

impl Builder {
    /// Deletes everything that is due.
    pub async fn clean(&self, loaded: &Loaded) -> Result<(), StoreError> {
        self.clean_some(loaded, true).await
    }

    /// Like [`Self::clean`]. With `guarded` it also tries the locks of what another builder may be working on.
    pub(super) async fn clean_some(&self, loaded: &Loaded, guarded: bool) -> Result<(), StoreError> {
        for _ in 0..LIMIT_ROUNDS {
            self.clean_files(loaded).await?;
            let records = self.store.read().await?;
            self.forget_uploads(&records);
            let mut progress = false;
            for step in decide::cleanup(&loaded.images, &records) {
                if !self.may_try(&step, &records, guarded) {
                    continue;
                }
                progress |= match self.step(loaded, &step).await {
                    Ok(done) => done,
                    Err(StoreError::Conflict(what)) => {
                        tracing::debug!(what, "changed meanwhile");
                        false
                    }
                    Err(error) => return Err(error),
                };
            }
            if !progress {
                break;
            }
        }
        Ok(())
    }

    fn may_try(&self, step: &Cleanup, records: &Records, guarded: bool) -> bool {
        match step {
            Cleanup::Upload { key, unless_locked: Some(_), .. } => guarded && !self.is_busy(&key.build, &key.provider),
            Cleanup::MarkBuild { image, build, unless_locked: Some(_), .. } => {
                let is_locked = records.get(image).is_some_and(|image| image.locked);
                (guarded || !is_locked) && !self.is_busy(build, "")
            }
            _ => true,
        }
    }

    async fn step(&self, loaded: &Loaded, step: &Cleanup) -> Result<bool, StoreError> {
        match step {
            Cleanup::Upload { key, reason, unless_locked } => {
                let Some(_guard) = self.guard(unless_locked.as_ref()).await? else { return Ok(false) };
                let lock = LockKey::Upload(key.clone());
                let Some(lock) = self.store.lock(&lock).await? else { return Ok(false) };
                let done = self.delete_upload(loaded, key, *reason).await;
                lock.release().await;
                done
            }
            Cleanup::MarkBuild { image, build, reason, unless_locked } => {
                let Some(_guard) = self.guard(unless_locked.as_ref()).await? else { return Ok(false) };
                let lock = LockKey::Build { image: image.clone(), build: build.clone() };
                let Some(lock) = self.store.lock(&lock).await? else { return Ok(false) };
                let done = self.mark_build(loaded, image, build, *reason).await;
                lock.release().await;
                done
            }
            Cleanup::RemoveBuild { image, build } => {
                let write = Write::RemoveBuild { image: image.clone(), id: build.clone() };
                self.store.write(write).await.map(|_| true)
            }
        }
    }

    /// Takes the lock that a working builder would hold; `None` if one does. Without a key there is nothing to wait for.
    async fn guard(&self, key: Option<&LockKey>) -> Result<Option<Option<Box<dyn super::store::Held>>>, StoreError> {
        match key {
            None => Ok(Some(None)),
            Some(key) => Ok(self.store.lock(key).await?.map(Some)),
        }
    }

    /// Deletes an upload under its lock: marked first, then in the cloud, then its record.
    async fn delete_upload(&self, loaded: &Loaded, key: &UploadKey, reason: CleanupReason) -> Result<bool, StoreError> {
        let records = self.store.read().await?;
        let still = decide::cleanup(&loaded.images, &records).into_iter();
        let is_due = still.into_iter().any(|step| matches!(step, Cleanup::Upload { key: due, .. } if due == *key));
        let Some(mut upload) = upload_of(&records, key).cloned().filter(|_| is_due) else { return Ok(false) };
        let was = upload.state;
        if was != UploadState::Deleting {
            tracing::info!(upload = %key, "deleting: {reason}");
            upload.set_state(UploadState::Deleting, self.now());
            let write = Write::Upload { key: key.clone(), record: upload.clone(), message: Some(reason.to_string()) };
            self.store.write(write).await?;
        }
        let Some(cloud) = loaded.clouds.get(&key.provider) else { return Ok(false) };
        let deleted = match upload.external_id.as_deref().filter(|id| !id.is_empty()) {
            Some(id) => cloud.delete(id).await,
            None => delete_leftovers(&**cloud, key).await,
        };
        if let Err(error) = deleted {
            tracing::warn!(upload = %key, %error, "cannot be deleted yet");
            return Ok(false);
        }
        self.remove_upload(key).await?;
        Ok(true)
    }

    async fn mark_build(
        &self,
        loaded: &Loaded,
        image: &str,
        build: &str,
        reason: CleanupReason,
    ) -> Result<bool, StoreError> {
        let records = self.store.read().await?;
        let is_due = decide::cleanup(&loaded.images, &records).into_iter().any(
            |step| matches!(step, Cleanup::MarkBuild { image: one, build: other, .. } if one == image && other == build),
        );
        let Some(found) = build_of(&records, image, build).filter(|_| is_due) else { return Ok(false) };
        tracing::info!(image, build, "deleting: {reason}");
        let mut record = found.record.clone();
        record.set_state(BuildState::Deleting, self.now());
        let (image, id) = (image.to_owned(), build.to_owned());
        self.store.write(Write::Build { image, id, record, message: Some(reason.to_string()) }).await?;
        Ok(true)
    }

    /// Deletes files of builds that are not needed on this disk.
    async fn clean_files(&self, loaded: &Loaded) -> Result<(), StoreError> {
        let folder = &loaded.folders.images;
        // Files first: a build that begins now has a record before it has files.
        let builds = match files::local_builds(folder) {
            Ok(builds) => builds,
            Err(error) => {
                tracing::error!(%error, "the images directory cannot be read");
                return Ok(());
            }
        };
        if builds.is_empty() {
            return Ok(());
        }
        let records = self.store.read().await?;
        for (local, names) in builds {
            let build = build_of(&records, &local.image, &local.build);
            let prefix = format!("{}-{}.", local.image, local.build);
            let deleted = match decide::local_files(&loaded.images, &local.image, build) {
                LocalFiles::Leave => Ok(0),
                LocalFiles::Delete => files::delete(folder, &names, &|_| true),
                LocalFiles::Keep(formats) => files::delete(folder, &names, &|name| {
                    let format = name.strip_prefix(&prefix).map(|end| end.split('.').next().unwrap_or_default());
                    format.is_some_and(|format| format != "d" && !formats.contains(format))
                }),
            };
            match deleted {
                Ok(0) => {}
                Ok(count) => tracing::info!(image = local.image, build = local.build, count, "deleted files"),
                Err(error) => tracing::warn!(image = local.image, build = local.build, %error, "files stay for now"),
            }
        }
        Ok(())
    }
}

fn build_of<'r>(records: &'r Records, image: &str, build: &str) -> Option<&'r BuildRecords> {
    records.get(image)?.builds.get(build)
}

fn upload_of<'r>(records: &'r Records, key: &UploadKey) -> Option<&'r crate::model::ImageUpload> {
    build_of(records, &key.image, &key.build)?.uploads.get(&key.provider)?.get(&key.id)
}
