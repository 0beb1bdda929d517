//! The newest ready upload of every image to every provider: what servers boot from.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Images, Source};
use crate::driver::{UploadedImage, Uploads};

/// Between two looks at the records of images. A build takes minutes; an upload that is deleted stays for a minute.
const INTERVAL: Duration = Duration::from_secs(5);
/// The state of uploads that can be booted from.
const READY: &str = "ready";

/// The newest ready uploads.
pub fn newest(images: &Images) -> Uploads {
    let mut newest: Vec<_> = images.uploads().filter(|(.., upload)| upload.state == READY).collect();
    newest.sort_by(|(.., one), (.., other)| one.state_time.total_cmp(&other.state_time));
    // The newest comes last and stays.
    let uploads = newest.into_iter().filter_map(|(image, build, upload)| {
        let path = format!(
            "/nodepool/images/{}/builds/{}/providers/{}/images/{}",
            image.name, build.id, upload.provider, upload.id
        );
        let uploaded = UploadedImage { external_id: upload.external_id.clone()?, path };
        Some(((image.name.clone(), upload.provider.clone()), uploaded))
    });
    uploads.collect()
}

/// Sends the newest uploads whenever they change. Images that cannot be read stay as they were.
pub async fn follow(source: Arc<dyn Source>, sender: watch::Sender<Arc<Uploads>>, ends: CancellationToken) {
    loop {
        match source.images().await {
            Ok(images) => {
                let now = newest(&images);
                sender.send_if_modified(|known| {
                    let is_new = **known != now;
                    if is_new {
                        *known = Arc::new(now);
                    }
                    is_new
                });
            }
            Err(error) => tracing::debug!(%error, "the records of images cannot be read"),
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = ends.cancelled() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Build, Image, Upload};
    use super::*;

    #[test]
    fn the_newest_ready_upload_counts() {
        let upload = |id: &str, state: &str, state_time: f64, external: Option<&str>| Upload {
            id: id.to_owned(),
            provider: "cloud".to_owned(),
            external_id: external.map(ToOwned::to_owned),
            external_name: None,
            state: state.to_owned(),
            state_time,
        };
        let build = |id: &str, uploads: Vec<Upload>| Build { id: id.to_owned(), uploads, ..Build::default() };
        let old = vec![upload("1", "ready", 10.0, Some("a")), upload("2", "ready", 20.0, Some("b"))];
        let new = vec![upload("3", "uploading", 40.0, None), upload("4", "deleting", 30.0, Some("d"))];
        let builds = vec![build("old", old), build("new", new)];
        let images = Images { images: vec![Image { name: "fedora".to_owned(), builds, ..Image::default() }] };
        let newest = newest(&images);
        let found = &newest[&("fedora".to_owned(), "cloud".to_owned())];
        assert_eq!((newest.len(), found.external_id.as_str()), (1, "b"));
        assert_eq!(found.path, "/nodepool/images/fedora/builds/old/providers/cloud/images/2");
    }
}
