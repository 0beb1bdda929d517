//! Where images are uploaded to: one [`ImageCloud`] per provider. A cloud knows files and images; it knows nothing of
//! builds, records or retries.
//!
//! Uploaded images carry the ids of their build and upload as properties, so that what a killed builder left behind is
//! found without any record of its own.

mod fake;
mod glance;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Map, Value};

pub use fake::FakeImages;
pub use glance::GlanceImages;

use super::files::Checksums;
use crate::config::{Driver, Provider, ProviderDetails};
pub use crate::openstack::CloudError;
use crate::openstack::{Clouds as CloudSource, CloudsFile};

/// The property with the build's id.
pub const BUILD_ID: &str = "nodepool_build_id";
/// The property with the upload's id.
pub const UPLOAD_ID: &str = "nodepool_upload_id";
/// The property with the provider's name.
pub const PROVIDER_NAME: &str = "nodepool_provider_name";

/// The images of one provider.
///
/// Every call may be dropped at any await point and may be repeated.
pub trait ImageCloud: Send + Sync + 'static {
    /// Uploads a file and waits until nodes can boot from it. Gives the provider's id of the image.
    fn upload<'a>(&'a self, image: &'a NewImage) -> BoxFuture<'a, Result<String, CloudError>>;

    /// Deletes an image. One that is gone is no error.
    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), CloudError>>;

    /// All images that this provider may use.
    fn list(&self) -> BoxFuture<'_, Result<Vec<CloudImage>, CloudError>>;
}

/// An image to upload.
#[derive(Debug, Clone, PartialEq)]
pub struct NewImage {
    /// Its name in the cloud.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Its format.
    pub format: String,
    /// Its properties.
    pub properties: Map<String, Value>,
    /// Checksums of the file.
    pub checksums: Checksums,
    /// How long the upload may take.
    pub timeout: Duration,
}

/// An image in a cloud.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloudImage {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its properties that are texts.
    pub properties: BTreeMap<String, String>,
}

/// Makes the clouds of providers.
pub trait Clouds: Send + Sync + 'static {
    /// The format that a provider takes.
    fn format(&self, provider: &Provider) -> Result<String, CloudError>;

    /// The images of a provider. Simulated ones are kept in the images directory.
    fn open(&self, provider: &Provider, images_dir: &Path) -> Result<Arc<dyn ImageCloud>, CloudError>;

    /// The file with credentials as it is found now: clouds are made anew when it changes.
    fn credentials(&self) -> Option<PathBuf> {
        None
    }
}

/// The clouds that Millpond has: OpenStack's of `clouds.yaml`, and simulated ones.
#[derive(Debug, Default)]
pub struct ProviderClouds {}

impl ProviderClouds {
    /// All of them.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Clouds for ProviderClouds {
    fn format(&self, provider: &Provider) -> Result<String, CloudError> {
        let ProviderDetails::OpenStack(details) = &provider.details else { return Err(no_images(provider)) };
        match CloudSource::of_files().cloud(&details.cloud) {
            Ok(cloud) => Ok(cloud.image_format().to_owned()),
            // A simulated cloud needs no credentials.
            Err(_) if provider.driver == Driver::Fake => Ok("qcow2".to_owned()),
            Err(error) => Err(error),
        }
    }

    fn open(&self, provider: &Provider, images_dir: &Path) -> Result<Arc<dyn ImageCloud>, CloudError> {
        match (provider.driver, &provider.details) {
            (Driver::Fake, _) => Ok(Arc::new(FakeImages::new(images_dir, &provider.name))),
            (Driver::OpenStack, ProviderDetails::OpenStack(details)) => {
                let cloud = CloudSource::of_files().cloud(&details.cloud)?;
                Ok(Arc::new(GlanceImages::new(cloud, details.region_name.as_deref())?))
            }
            _ => Err(no_images(provider)),
        }
    }

    fn credentials(&self) -> Option<PathBuf> {
        CloudsFile::usual_file()
    }
}

fn no_images(provider: &Provider) -> CloudError {
    CloudError::Permanent(format!("the driver `{}` takes no images", provider.driver))
}
