//! Builds of disk images and their uploads to providers.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::or_default;

/// Where a build stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BuildState {
    /// A builder works on it.
    Building,
    /// Its files are there.
    Ready,
    /// It is being deleted.
    Deleting,
    /// The command failed.
    Failed,
}

impl BuildState {
    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Building => "building",
            Self::Ready => "ready",
            Self::Deleting => "deleting",
            Self::Failed => "failed",
        }
    }

    /// The state of this name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Building, Self::Ready, Self::Deleting, Self::Failed].into_iter().find(|state| state.name() == name)
    }
}

impl fmt::Display for BuildState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where an upload stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UploadState {
    /// A builder works on it.
    Uploading,
    /// Nodes boot from it.
    Ready,
    /// It is being deleted.
    Deleting,
    /// The provider did not take it.
    Failed,
}

impl UploadState {
    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uploading => "uploading",
            Self::Ready => "ready",
            Self::Deleting => "deleting",
            Self::Failed => "failed",
        }
    }

    /// The state of this name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Uploading, Self::Ready, Self::Deleting, Self::Failed].into_iter().find(|state| state.name() == name)
    }
}

impl fmt::Display for UploadState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A build of a disk image. Its id is the name of its znode: 32 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImageBuild {
    /// Where it stands.
    pub state: BuildState,
    /// Since when, in seconds since 1970.
    #[serde(default, deserialize_with = "or_default")]
    pub state_time: f64,
    /// The builder's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builder: Option<String>,
    /// The builder: the contents of its `builder_id.txt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builder_id: Option<String>,
    /// The formats of its files, sorted. One text with commas in records.
    #[serde(default, skip_serializing_if = "Vec::is_empty", serialize_with = "join", deserialize_with = "split")]
    pub formats: Vec<String>,
    /// The user that Zuul logs in as.
    #[serde(default)]
    pub username: Option<String>,
    /// Python on nodes of this image.
    #[serde(default)]
    pub python_path: Option<String>,
    /// The shell of nodes of this image.
    #[serde(default)]
    pub shell_type: Option<String>,
    /// Keys that are not known here.
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

impl ImageBuild {
    /// A build in this state, with nothing else known.
    pub fn new(state: BuildState, now: f64) -> Self {
        Self {
            state,
            state_time: now,
            builder: None,
            builder_id: None,
            formats: Vec::new(),
            username: None,
            python_path: None,
            shell_type: None,
            others: BTreeMap::new(),
        }
    }

    /// Sets the state and its time.
    pub fn set_state(&mut self, state: BuildState, now: f64) {
        self.state = state;
        self.state_time = now;
    }
}

/// An upload of a build to a provider. Its id is the name of its znode: ten digits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImageUpload {
    /// Where it stands.
    pub state: UploadState,
    /// Since when, in seconds since 1970.
    #[serde(default, deserialize_with = "or_default")]
    pub state_time: f64,
    /// The provider's id of the image.
    #[serde(default)]
    pub external_id: Option<String>,
    /// The provider's name of the image.
    #[serde(default)]
    pub external_name: Option<String>,
    /// The format that was uploaded.
    #[serde(default)]
    pub format: Option<String>,
    /// The user that Zuul logs in as.
    #[serde(default)]
    pub username: Option<String>,
    /// Python on nodes of this image.
    #[serde(default)]
    pub python_path: Option<String>,
    /// The shell of nodes of this image.
    #[serde(default)]
    pub shell_type: Option<String>,
    /// Keys that are not known here.
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

impl ImageUpload {
    /// An upload in this state, with nothing else known.
    pub fn new(state: UploadState, now: f64) -> Self {
        Self {
            state,
            state_time: now,
            external_id: None,
            external_name: None,
            format: None,
            username: None,
            python_path: None,
            shell_type: None,
            others: BTreeMap::new(),
        }
    }

    /// Sets the state and its time.
    pub fn set_state(&mut self, state: UploadState, now: f64) {
        self.state = state;
        self.state_time = now;
    }
}

fn join<S: Serializer>(formats: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&formats.join(","))
}

fn split<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
    let mut formats: Vec<String> =
        text.split(',').map(str::trim).filter(|format| !format.is_empty()).map(ToOwned::to_owned).collect();
    formats.sort();
    Ok(formats)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{parse, to_bytes};

    #[test]
    fn records_are_nodepools() {
        // As nodepool 11 wrote them.
        let building = r#"{"state":"building","state_time":1718000000.25,"builder":"nb01","builder_id":"b-1","formats":"qcow2,raw","username":null,"python_path":null,"shell_type":null}"#;
        let build: ImageBuild = parse("x", building.as_bytes()).unwrap();
        assert_eq!(build.formats, ["qcow2", "raw"]);
        assert_eq!(String::from_utf8(to_bytes(&build)).unwrap(), building);
        let failed = r#"{"state":"failed","state_time":1.5,"builder":"nb01","builder_id":"b-1","username":"zuul","python_path":"auto","shell_type":null}"#;
        let build: ImageBuild = parse("x", failed.as_bytes()).unwrap();
        assert_eq!((build.formats.len(), String::from_utf8(to_bytes(&build)).unwrap().as_str()), (0, failed));
        let upload = r#"{"state":"ready","state_time":1.5,"external_id":"abc","external_name":"img-1","format":"qcow2","username":"zuul","python_path":"auto","shell_type":null}"#;
        let read: ImageUpload = parse("x", upload.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(to_bytes(&read)).unwrap(), upload);
    }

    #[test]
    fn keys_of_others_are_kept() {
        let upload: ImageUpload = parse("x", br#"{"state":"uploading","later":{"a":1}}"#).unwrap();
        assert!(String::from_utf8(to_bytes(&upload)).unwrap().ends_with(r#""later":{"a":1}}"#));
    }
}
