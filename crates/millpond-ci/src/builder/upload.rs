//! Uploads one build to one provider: record, file, hook, record.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use super::cloud::{BUILD_ID, CloudError, ImageCloud, NewImage, PROVIDER_NAME, UPLOAD_ID};
use super::decide::UploadTask;
use super::files;
use super::run::Builder;
use super::source::Loaded;
use super::store::{BuildRecords, Held, StoreError, UploadKey, Write};
use crate::config::{OpenStackProvider, ProviderDetails};
use crate::model::{ImageUpload, UploadState};

/// How long a hook may take.
const HOOK_TIMEOUT: Duration = Duration::from_secs(3600);

impl Builder {
    /// Uploads a build under its lock. Tells whether it succeeded.
    pub(super) async fn upload(
        &self,
        loaded: &Loaded,
        task: &UploadTask,
        build: &BuildRecords,
        cloud: &dyn ImageCloud,
        lock: &dyn Held,
    ) -> Result<bool, StoreError> {
        let Some(ProviderDetails::OpenStack(provider)) = loaded.provider(&task.provider).map(|found| &found.details)
        else {
            return Ok(false);
        };
        let mut record = ImageUpload::new(UploadState::Uploading, self.now());
        record.username = build.record.username.clone();
        record.python_path = build.record.python_path.clone();
        record.shell_type = build.record.shell_type.clone();
        let (image, build_id) = (task.image.clone(), task.build.clone());
        let create =
            Write::CreateUpload { image, build: build_id, provider: task.provider.clone(), record: record.clone() };
        let _busy = self.begin(&task.build, &task.provider);
        let id = self.store.write(create).await?;
        let (image, build_id) = (task.image.clone(), task.build.clone());
        let key = UploadKey { image, build: build_id, provider: task.provider.clone(), id };

        let (new, began) = (self.new_image(loaded, task, &key, provider), self.now());
        tracing::info!(upload = %key, name = new.name, "uploading");
        let result = match cloud_upload(cloud, &new).await {
            Ok(external) => after_upload(provider, task, &new, &external).await.map(|()| external),
            Err(error) => Err(error),
        };
        let result = match result {
            Ok(_) if !lock.is_held() => {
                Err(CloudError::Transient("the lock was lost while the image was uploaded".to_owned()))
            }
            result => result,
        };
        let message = match result {
            Ok(external) => {
                record.set_state(UploadState::Ready, self.now());
                record.external_id = Some(external);
                record.external_name = Some(new.name);
                record.format = Some(task.format.clone());
                None
            }
            Err(error) => {
                record = ImageUpload::new(UploadState::Failed, self.now());
                self.upload_failed(&task.build, &task.provider);
                let origin = &loaded.images.images[&task.image].settings.origin;
                tracing::error!(upload = %key, "{origin}: diskimage `{}`: upload to `{}`: {error}", task.image, task.provider);
                Some(error.to_string())
            }
        };
        let succeeded = message.is_none();
        if !succeeded && let Err(error) = delete_leftovers(cloud, &key).await {
            // The record stays until they are gone.
            tracing::warn!(upload = %key, %error, "what the upload left is deleted later");
        }
        self.store.write(Write::Upload { key: key.clone(), record, message }).await?;
        if succeeded {
            self.figures.uploaded(&task.image, &task.provider, self.now() - began);
            tracing::info!(upload = %key, "uploaded");
        }
        Ok(succeeded)
    }

    fn new_image(&self, loaded: &Loaded, task: &UploadTask, key: &UploadKey, provider: &OpenStackProvider) -> NewImage {
        let timestamp = (self.now() as i64).to_string();
        let name = provider
            .image_name_format
            .replace("{image_name}", &task.image)
            .replace("{upload_id}", &key.id)
            .replace("{timestamp}", &timestamp);
        let path = files::path(&loaded.folders.images, &task.image, &task.build, &task.format);
        let mut properties = loaded.images.images[&task.image].settings.metadata.clone();
        if let Some(image) = provider.diskimages.iter().find(|image| image.name == task.image) {
            properties.extend(image.meta.clone());
        }
        for (name, value) in [(BUILD_ID, &task.build), (UPLOAD_ID, &key.id), (PROVIDER_NAME, &task.provider)] {
            properties.insert(name.to_owned(), Value::String(value.clone()));
        }
        NewImage {
            name,
            checksums: files::checksums(&path),
            path,
            format: task.format.clone(),
            properties,
            timeout: Duration::from_secs(provider.image_upload_timeout_s),
        }
    }
}

async fn cloud_upload(cloud: &dyn ImageCloud, new: &NewImage) -> Result<String, CloudError> {
    match tokio::time::timeout(new.timeout, cloud.upload(new)).await {
        Ok(result) => result,
        Err(_) => {
            let limit = new.timeout.as_secs();
            Err(CloudError::Transient(format!("the upload took longer than image-upload-timeout, {limit} s")))
        }
    }
}

/// Runs the provider's hook. An upload whose hook fails counts as failed.
async fn after_upload(
    provider: &OpenStackProvider,
    task: &UploadTask,
    new: &NewImage,
    external: &str,
) -> Result<(), CloudError> {
    let Some(hook) = provider.post_upload_hook.as_deref().filter(|hook| !hook.is_empty()) else { return Ok(()) };
    run_hook(hook, &task.provider, external, &new.path)
        .await
        .map_err(|problem| CloudError::Transient(format!("post-upload-hook `{hook}`: {problem}")))
}

async fn run_hook(hook: &str, provider: &str, external: &str, file: &Path) -> Result<(), String> {
    let mut command = Command::new(hook);
    command.arg(provider).arg(external).arg(file).kill_on_drop(true);
    let output = tokio::time::timeout(HOOK_TIMEOUT, command.output()).await.map_err(|_| "takes too long".to_owned())?;
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
}

/// Deletes the images of an upload in the cloud, found by the ids that they carry.
pub(super) async fn delete_leftovers(cloud: &dyn ImageCloud, key: &UploadKey) -> Result<(), CloudError> {
    for image in cloud.list().await? {
        let has = |name: &str, value: &str| image.properties.get(name).is_some_and(|found| found == value);
        if has(BUILD_ID, &key.build) && has(UPLOAD_ID, &key.id) && has(PROVIDER_NAME, &key.provider) {
            tracing::info!(upload = %key, image = image.id, "deleting what the upload left");
            cloud.delete(&image.id).await?;
        }
    }
    Ok(())
}
