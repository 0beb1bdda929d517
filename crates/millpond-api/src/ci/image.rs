//! `millpond.dev/v1alpha1` DiskImage, ImageBuild and ImageUpload: images that builders make, and where they are.
//!
//! A DiskImage represents an image of nodepool.yaml; operators write its spec. Builds and uploads are records of
//! builders, which write spec and status in one step. Deleting a record deletes the build or upload that it describes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::meta::{Condition, ObjectMeta, is_default, kind};
use crate::node_class::GROUP;
use crate::time::Time;

/// Keeps builds and uploads until their files are gone.
pub const IMAGE_FINALIZER: &str = "millpond.dev/image";

/// An image of the configuration.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
pub struct DiskImage {
    /// Name and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Desired state.
    #[serde(default)]
    pub spec: DiskImageSpec,
    /// Reports of the builders.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: DiskImageStatus,
}

kind!(DiskImage, GROUP, "v1alpha1", "DiskImage", "diskimages", namespaced: false);

/// The desired state of an image.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskImageSpec {
    /// Its name in nodepool.yaml; that of the object if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Whether it is not built for now.
    #[serde(default, skip_serializing_if = "is_default")]
    pub paused: bool,
    /// When a build was asked for. A later time asks again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_request: Option<Time>,
}

/// The status of an image, from the builders.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskImageStatus {
    /// The build request that was carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled_build_request: Option<Time>,
    /// Formats that are built.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub formats: Vec<String>,
    /// Providers that it is uploaded to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub providers: Vec<String>,
    /// What happens next: `UpToDate`, `Building`, `BackOff`, `Paused` …
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// What happens next, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The newest build that is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_build: Option<String>,
    /// `Ready`: a build is ready, and every provider has it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A build of an image.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
pub struct ImageBuild {
    /// Name and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Which build it is.
    #[serde(default)]
    pub spec: ImageBuildSpec,
    /// Observed state.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: ImageBuildStatus,
}

kind!(ImageBuild, GROUP, "v1alpha1", "ImageBuild", "imagebuilds", namespaced: false);

/// Which build it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageBuildSpec {
    /// The image's name in nodepool.yaml.
    pub image: String,
    /// The build's id: 32 hexadecimal digits.
    #[serde(rename = "buildID")]
    pub build_id: String,
}

/// The status of a build.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageBuildStatus {
    /// `building`, `ready`, `deleting`, `failed`.
    #[serde(default)]
    pub state: String,
    /// Since when, in seconds since 1970.
    #[serde(default, skip_serializing_if = "is_default")]
    pub state_time: f64,
    /// Why it failed or is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The builder's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builder: Option<String>,
    /// The builder.
    #[serde(default, rename = "builderID", skip_serializing_if = "Option::is_none")]
    pub builder_id: Option<String>,
    /// Formats of its files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub formats: Vec<String>,
    /// The user to log in as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// Python on its nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python_path: Option<String>,
    /// The shell of its nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell_type: Option<String>,
    /// All other facts, under the keys of Nodepool's records.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, Value>,
}

/// An upload of a build to a provider.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
pub struct ImageUpload {
    /// Name and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Which upload it is.
    #[serde(default)]
    pub spec: ImageUploadSpec,
    /// Observed state.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: ImageUploadStatus,
}

kind!(ImageUpload, GROUP, "v1alpha1", "ImageUpload", "imageuploads", namespaced: false);

/// Which upload it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageUploadSpec {
    /// The image's name in nodepool.yaml.
    pub image: String,
    /// The build's id.
    #[serde(rename = "buildID")]
    pub build_id: String,
    /// The provider.
    pub provider: String,
    /// The upload's id: ten digits.
    #[serde(rename = "uploadID")]
    pub upload_id: String,
}

/// The status of an upload.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageUploadStatus {
    /// `uploading`, `ready`, `deleting`, `failed`.
    #[serde(default)]
    pub state: String,
    /// Since when, in seconds since 1970.
    #[serde(default, skip_serializing_if = "is_default")]
    pub state_time: f64,
    /// Why it failed or is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The provider's id of the image.
    #[serde(default, rename = "externalID", skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// The provider's name of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_name: Option<String>,
    /// The format that was uploaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// The user to log in as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// Python on its nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python_path: Option<String>,
    /// The shell of its nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell_type: Option<String>,
    /// All other facts, under the keys of Nodepool's records.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, Value>,
}
