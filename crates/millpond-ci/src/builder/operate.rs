//! Operations on images for operators, on any store: lists, deletions, export and import in the original's format.

use serde_json::{Map, Value};

use super::store::{ImageStore, Records, StoreError, UploadKey, Write};
use crate::model::{BuildState, ImageBuild, ImageUpload, UploadState, parse, to_bytes};

/// The path that all images are below in exports.
const ROOT: &str = "/nodepool/images";

/// The result of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// It is marked; a builder deletes it.
    Marked,
    /// No object has that name.
    NotFound,
}

/// Marks a build for deletion.
pub async fn delete_build(store: &dyn ImageStore, image: &str, build: &str, now: f64) -> Result<Deletion, StoreError> {
    let records = store.read().await?;
    let Some(found) = records.get(image).and_then(|image| image.builds.get(build)) else {
        return Ok(Deletion::NotFound);
    };
    let mut record = found.record.clone();
    record.set_state(BuildState::Deleting, now);
    let message = Some("it was asked for".to_owned());
    store.write(Write::Build { image: image.to_owned(), id: build.to_owned(), record, message }).await?;
    Ok(Deletion::Marked)
}

/// Marks an upload for deletion.
pub async fn delete_upload(store: &dyn ImageStore, key: &UploadKey, now: f64) -> Result<Deletion, StoreError> {
    let records = store.read().await?;
    let build = records.get(&key.image).and_then(|image| image.builds.get(&key.build));
    let Some(upload) = build.and_then(|build| build.uploads.get(&key.provider)?.get(&key.id)) else {
        return Ok(Deletion::NotFound);
    };
    let mut record = upload.clone();
    record.set_state(UploadState::Deleting, now);
    let message = Some("it was asked for".to_owned());
    store.write(Write::Upload { key: key.clone(), record, message }).await?;
    Ok(Deletion::Marked)
}

/// Removes the records of a provider's uploads; what is in the provider stays.
pub async fn erase_uploads(store: &dyn ImageStore, provider: &str) -> Result<(), StoreError> {
    for (image, records) in store.read().await? {
        for (build, records) in records.builds {
            let uploads = records.uploads.get(provider);
            for id in uploads.into_iter().flat_map(|uploads| uploads.keys()) {
                let (image, build) = (image.clone(), build.clone());
                let key = UploadKey { image, build, provider: provider.to_owned(), id: id.clone() };
                store.write(Write::RemoveUpload(key)).await?;
            }
        }
    }
    Ok(())
}

/// Pauses, builds and uploads by the path of their znodes.
pub fn export(records: &Records) -> Map<String, Value> {
    let text = |bytes: Vec<u8>| Value::String(String::from_utf8(bytes).unwrap_or_default());
    let mut data = Map::new();
    for (image, records) in records {
        if records.paused {
            data.insert(format!("{ROOT}/{image}/pause"), Value::String(String::new()));
        }
        for (build, records) in &records.builds {
            let path = format!("{ROOT}/{image}/builds/{build}");
            data.insert(path.clone(), text(to_bytes(&records.record)));
            for (provider, id, upload) in records.all_uploads() {
                data.insert(format!("{path}/providers/{provider}/images/{id}"), text(to_bytes(upload)));
            }
        }
    }
    data
}

/// One entry of an export.
#[derive(Debug, PartialEq)]
enum Entry {
    Pause(String),
    Build(String, String, ImageBuild),
    Upload(UploadKey, ImageUpload),
}

/// Writes the content of an export. For stores whose builders are stopped.
pub async fn import(store: &dyn ImageStore, data: &Map<String, Value>) -> Result<(), StoreError> {
    // The whole export is read before anything is written; builds come before their uploads.
    let (mut first, mut uploads) = (Vec::new(), Vec::new());
    for (path, value) in data {
        match entry(path, value).map_err(|problem| StoreError::Refused(format!("`{path}` {problem}")))? {
            Entry::Upload(key, record) => uploads.push(Write::ImportUpload { key, record }),
            Entry::Build(image, id, record) => first.push(Write::ImportBuild { image, id, record }),
            Entry::Pause(image) => first.push(Write::Pause { image, paused: true }),
        }
    }
    for write in first.into_iter().chain(uploads) {
        store.write(write).await?;
    }
    Ok(())
}

fn entry(path: &str, value: &Value) -> Result<Entry, String> {
    let text = value.as_str().ok_or("is not a text")?;
    let parts: Vec<&str> =
        path.strip_prefix(ROOT).and_then(|rest| rest.strip_prefix('/')).unwrap_or_default().split('/').collect();
    let problem = |error: crate::model::RecordError| {
        use std::error::Error as _;
        format!("cannot be read: {}", error.source().map_or_else(|| error.to_string(), ToString::to_string))
    };
    match parts.as_slice() {
        [image, "pause"] => Ok(Entry::Pause((*image).to_owned())),
        [image, "builds", build] => {
            let record = parse(path, text.as_bytes()).map_err(problem)?;
            Ok(Entry::Build((*image).to_owned(), (*build).to_owned(), record))
        }
        [image, "builds", build, "providers", provider, "images", id] => {
            let (image, build) = ((*image).to_owned(), (*build).to_owned());
            let key = UploadKey { image, build, provider: (*provider).to_owned(), id: (*id).to_owned() };
            Ok(Entry::Upload(key, parse(path, text.as_bytes()).map_err(problem)?))
        }
        _ => Err("is no path of images".to_owned()),
    }
}
