//! Images of a [`Source`](super::Source) that keeps them in an [`ImageStore`].

use serde_json::{Map, Value};

use super::{Build, BuildRequest, Change, Image, Images, Result, SourceError, Upload};
use crate::builder::operate::{self, Deletion};
use crate::builder::store::{ImageStore, StoreError, UploadKey, Write};

/// All images.
pub(super) async fn images(store: &dyn ImageStore) -> Result<Images> {
    let records = store.read().await.map_err(failed)?;
    let images = records.into_iter().map(|(name, records)| {
        let builds = records.builds.iter().map(|(id, build)| Build {
            id: id.clone(),
            builder: build.record.builder.clone(),
            formats: build.record.formats.clone(),
            state: build.record.state.name().to_owned(),
            state_time: build.record.state_time,
            uploads: build
                .all_uploads()
                .map(|(provider, id, upload)| Upload {
                    id: id.to_owned(),
                    provider: provider.to_owned(),
                    external_id: upload.external_id.clone(),
                    external_name: upload.external_name.clone(),
                    state: upload.state.name().to_owned(),
                    state_time: upload.state_time,
                })
                .collect(),
        });
        let builds = builds.collect();
        let request = records.request.map(|since| BuildRequest { since, building: records.locked });
        Image { name, paused: records.paused, request, builds }
    });
    Ok(Images { images: images.collect() })
}

pub(super) async fn write(store: &dyn ImageStore, write: Write) -> Result<()> {
    store.write(write).await.map(drop).map_err(failed)
}

pub(super) async fn delete_build(store: &dyn ImageStore, image: &str, build: &str) -> Result<Change> {
    operate::delete_build(store, image, build, now()).await.map(change).map_err(failed)
}

/// `names` are image, build, provider and upload.
pub(super) async fn delete_upload(store: &dyn ImageStore, names: [&str; 4]) -> Result<Change> {
    let [image, build, provider, id] = names.map(ToOwned::to_owned);
    let key = UploadKey { image, build, provider, id };
    operate::delete_upload(store, &key, now()).await.map(change).map_err(failed)
}

pub(super) async fn erase(store: &dyn ImageStore, provider: &str) -> Result<()> {
    operate::erase_uploads(store, provider).await.map_err(failed)
}

pub(super) async fn export(store: &dyn ImageStore) -> Result<Map<String, Value>> {
    store.read().await.map(|records| operate::export(&records)).map_err(failed)
}

pub(super) async fn import(store: &dyn ImageStore, data: &Map<String, Value>) -> Result<()> {
    operate::import(store, data).await.map_err(failed)
}

fn now() -> f64 {
    jiff::Timestamp::now().as_millisecond() as f64 / 1000.0
}

fn change(deletion: Deletion) -> Change {
    match deletion {
        Deletion::Marked => Change::Done,
        Deletion::NotFound => Change::NotFound,
    }
}

fn failed(error: StoreError) -> SourceError {
    SourceError::Store(error.to_string())
}
