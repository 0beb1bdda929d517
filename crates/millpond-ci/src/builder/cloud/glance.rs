//! OpenStack's images: Glance v2, with the credentials of `clouds.yaml`.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use serde_json::{Map, Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::time::Instant;

use super::super::files;
use super::{CloudError, CloudImage, ImageCloud, NewImage};
use crate::openstack::{Answer, Body, CloudSettings, Service, Session};

#[cfg(test)]
mod tests;

/// Bytes of an image that are sent at a time.
const CHUNK: usize = 1 << 20;
/// How often an image that Glance works on is looked at.
const LOOK: Duration = Duration::from_secs(2);
/// The most pages of a list; a cloud with more images than these hold is none that a tool lists.
const LIMIT_PAGES: usize = 1000;

/// Images of a project.
pub struct GlanceImages {
    session: Session,
}

impl GlanceImages {
    /// Logs in when it is first used.
    pub fn new(settings: CloudSettings, region: Option<&str>) -> Result<Self, CloudError> {
        Ok(Self { session: Session::new(settings, region)? })
    }

    async fn upload_image(&self, image: &NewImage) -> Result<String, CloudError> {
        let path = image.path.clone();
        let verified = tokio::task::spawn_blocking(move || files::verify(&path)).await;
        let verified = verified.map_err(|error| CloudError::Transient(error.to_string()))?;
        verified.map_err(|error| CloudError::Permanent(error.to_string()))?;
        let answer = self.session.call(Service::Image, Method::POST, "/images", Some(&description(image))).await?;
        let id = match (answer.status, answer.json()["id"].as_str()) {
            (StatusCode::CREATED, Some(id)) => id.to_owned(),
            _ => return Err(refused("create the image", &answer)),
        };
        match self.fill(&id, image).await {
            Ok(()) => Ok(id),
            Err(error) => {
                if let Err(leftover) = self.delete_image(&id).await {
                    tracing::warn!(image = id, error = %leftover, "an image that was not filled stays for now");
                }
                Err(error)
            }
        }
    }

    async fn fill(&self, id: &str, image: &NewImage) -> Result<(), CloudError> {
        let began = Instant::now();
        let (length, body) = file_body(&image.path).await?;
        let answer = self.session.put_file(&format!("/images/{id}/file"), length, body, image.timeout).await?;
        if !answer.status.is_success() {
            return Err(refused("send the image", &answer));
        }
        loop {
            let answer = self.session.call(Service::Image, Method::GET, &format!("/images/{id}"), None).await?;
            let found = answer.json();
            match found["status"].as_str() {
                Some("active") => return complete(&found, length),
                Some(status @ ("killed" | "deleted" | "pending_delete" | "deactivated")) => {
                    return Err(CloudError::Transient(format!("Glance made the image {status}")));
                }
                _ if began.elapsed() > image.timeout => {
                    return Err(CloudError::Transient("Glance does not finish the image in time".to_owned()));
                }
                _ if !answer.status.is_success() => return Err(refused("read the image", &answer)),
                _ => tokio::time::sleep(LOOK).await,
            }
        }
    }

    async fn delete_image(&self, id: &str) -> Result<(), CloudError> {
        let answer = self.session.call(Service::Image, Method::DELETE, &format!("/images/{id}"), None).await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(()),
            status if status.is_success() => Ok(()),
            _ => Err(refused("delete the image", &answer)),
        }
    }

    async fn list_images(&self) -> Result<Vec<CloudImage>, CloudError> {
        let mut images = Vec::new();
        let mut path = "/images?limit=500".to_owned();
        for _ in 0..LIMIT_PAGES {
            let answer = self.session.call(Service::Image, Method::GET, &path, None).await?;
            if !answer.status.is_success() {
                return Err(refused("list images", &answer));
            }
            let page = answer.json();
            images.extend(page["images"].as_array().into_iter().flatten().filter_map(listed));
            match page["next"].as_str() {
                // As `/v2/images?marker=…`.
                Some(next) => path = next.trim_start_matches("/v2").to_owned(),
                None => return Ok(images),
            }
        }
        Err(CloudError::Permanent(format!("the list of images has more than {LIMIT_PAGES} pages")))
    }
}

impl ImageCloud for GlanceImages {
    fn upload<'a>(&'a self, image: &'a NewImage) -> BoxFuture<'a, Result<String, CloudError>> {
        Box::pin(self.upload_image(image))
    }

    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), CloudError>> {
        Box::pin(self.delete_image(id))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<CloudImage>, CloudError>> {
        Box::pin(self.list_images())
    }
}

/// An image before it is filled. Properties are texts in Glance; checksums are under the names of OpenStack's own client.
fn description(image: &NewImage) -> Value {
    let mut description = Map::new();
    for (name, value) in &image.properties {
        let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        description.insert(name.clone(), text.into());
    }
    for name in ["min_disk", "min_ram"] {
        if let Some(number) = image.properties.get(name).and_then(Value::as_u64) {
            description.insert(name.to_owned(), number.into());
        }
    }
    for (name, sum) in [("md5", &image.checksums.md5), ("sha256", &image.checksums.sha256)] {
        if let Some(sum) = sum {
            description.insert(format!("owner_specified.openstack.{name}"), sum.clone().into());
        }
    }
    description.insert("owner_specified.openstack.object".to_owned(), format!("images/{}", image.name).into());
    let fixed = json!({
        "name": image.name, "disk_format": image.format, "container_format": "bare", "visibility": "private",
    });
    description.extend(fixed.as_object().cloned().unwrap_or_default());
    Value::Object(description)
}

/// A file as a body, and its length.
async fn file_body(path: &Path) -> Result<(u64, Body), CloudError> {
    let failed = |error: std::io::Error| CloudError::Transient(format!("`{}`: {error}", path.display()));
    let file = tokio::fs::File::open(path).await.map_err(failed)?;
    let length = file.metadata().await.map_err(failed)?.len();
    let chunks = futures::stream::try_unfold(file, |mut file| async move {
        let mut chunk = Vec::with_capacity(CHUNK);
        let count = (&mut file).take(CHUNK as u64).read_to_end(&mut chunk).await?;
        Ok((count > 0).then(|| (Frame::data(Bytes::from(chunk)), file)))
    });
    Ok((length, StreamBody::new(chunks).boxed_unsync()))
}

/// An active image has all bytes of the file.
fn complete(found: &Value, length: u64) -> Result<(), CloudError> {
    match found["size"].as_u64() {
        Some(size) if size != length => {
            Err(CloudError::Transient(format!("Glance has {size} bytes of the image, not {length}")))
        }
        _ => Ok(()),
    }
}

fn listed(image: &Value) -> Option<CloudImage> {
    let texts = image.as_object()?.iter();
    Some(CloudImage {
        id: image["id"].as_str()?.to_owned(),
        name: image["name"].as_str().unwrap_or_default().to_owned(),
        properties: texts.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect(),
    })
}

fn refused(what: &str, answer: &Answer) -> CloudError {
    let problem = answer.problem(Service::Image, what);
    match answer.status {
        StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND | StatusCode::CONFLICT => {
            CloudError::Permanent(problem)
        }
        _ => CloudError::Transient(problem),
    }
}
