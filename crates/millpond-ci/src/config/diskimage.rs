//! Disk images and their inheritance: an image takes the settings of its parents, the farthest first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use millpond_api::document::Position;
use serde::Deserialize;
use serde_json::{Map, Value};

/// How deep images may inherit; deeper is a cycle.
const LIMIT_PARENTS: usize = 32;

/// An image to build, with everything that it inherits.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskImage {
    /// Its name.
    pub name: String,
    /// The command that builds it.
    pub dib_cmd: String,
    /// Elements, those of parents first.
    pub elements: Vec<String>,
    /// Formats to build beyond those that providers ask for.
    pub formats: Vec<String>,
    /// Formats that stay on disk after the upload.
    pub keep_formats: Vec<String>,
    /// Whether files are removed once they are uploaded.
    pub delete_after_upload: bool,
    /// Whether the image is not built for now.
    pub pause: bool,
    /// The distribution's release.
    pub release: String,
    /// After how many seconds it is built again.
    pub rebuild_age_s: u64,
    /// The command's environment.
    pub env_vars: BTreeMap<String, String>,
    /// Variables among them that come from the file of secrets.
    pub secret_vars: BTreeSet<String>,
    /// The user that Zuul logs in as.
    pub username: String,
    /// Python on nodes of this image.
    pub python_path: String,
    /// The shell of nodes of this image.
    pub shell_type: Option<String>,
    /// How long a build may take.
    pub build_timeout_s: u64,
    /// Properties of uploaded images.
    pub metadata: Map<String, Value>,
    /// Where the image is defined.
    pub origin: Origin,
    /// Whether its command is set in its own entry or in a parent's.
    pub dib_cmd_origin: Origin,
    /// Whether its formats are set in its own entry or in a parent's.
    pub formats_origin: Origin,
}

/// A place in a configuration file, for messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origin {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// The column, from 1.
    pub column: u64,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl DiskImage {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            dib_cmd: "disk-image-create".to_owned(),
            elements: Vec::new(),
            formats: Vec::new(),
            keep_formats: Vec::new(),
            delete_after_upload: false,
            pause: false,
            release: String::new(),
            rebuild_age_s: 24 * 60 * 60,
            env_vars: BTreeMap::new(),
            secret_vars: BTreeSet::new(),
            username: "zuul".to_owned(),
            python_path: "auto".to_owned(),
            shell_type: None,
            build_timeout_s: 8 * 60 * 60,
            metadata: Map::new(),
            origin: Origin::default(),
            dib_cmd_origin: Origin::default(),
            formats_origin: Origin::default(),
        }
    }

    fn apply(&mut self, entry: &Entry) {
        fn set<T: Clone>(target: &mut T, value: Option<&T>) {
            if let Some(value) = value {
                *target = value.clone();
            }
        }
        // Empty values do not override, except for `delete-after-upload`.
        set(&mut self.build_timeout_s, entry.build_timeout.as_ref().filter(|seconds| **seconds > 0));
        if let Some(command) = entry.dib_cmd.as_ref().filter(|text| !text.is_empty()) {
            self.dib_cmd.clone_from(command);
            self.dib_cmd_origin = entry.origins.dib_cmd.clone();
        }
        self.elements.extend(entry.elements.iter().cloned());
        self.env_vars.extend(entry.env_vars.clone());
        if !entry.formats.is_empty() {
            self.formats.clone_from(&entry.formats);
            self.formats_origin = entry.origins.formats.clone();
        }
        set(&mut self.keep_formats, Some(&entry.keep_formats).filter(|list| !list.is_empty()));
        set(&mut self.delete_after_upload, entry.delete_after_upload.as_ref());
        self.pause |= entry.pause;
        set(&mut self.python_path, entry.python_path.as_ref().filter(|text| !text.is_empty()));
        if entry.shell_type.as_ref().is_some_and(|text| !text.is_empty()) {
            self.shell_type.clone_from(&entry.shell_type);
        }
        set(&mut self.rebuild_age_s, entry.rebuild_age.as_ref().filter(|seconds| **seconds > 0));
        set(&mut self.username, entry.username.as_ref().filter(|text| !text.is_empty()));
        if let Some(release) = &entry.release {
            self.release = release.as_str().map_or_else(|| release.to_string(), ToOwned::to_owned);
        }
        // Never inherited, not even by an image without metadata of its own.
        self.metadata = entry.metadata.clone();
    }
}

/// One entry of `diskimages`, as the file has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Entry {
    pub(super) name: String,
    #[serde(default, rename = "abstract")]
    pub(super) is_abstract: bool,
    #[serde(default)]
    pub(super) parent: Option<String>,
    #[serde(default)]
    pub(super) dib_cmd: Option<String>,
    #[serde(default)]
    pause: bool,
    #[serde(default)]
    elements: Vec<String>,
    #[serde(default)]
    pub(super) formats: Vec<String>,
    #[serde(default)]
    keep_formats: Vec<String>,
    #[serde(default)]
    delete_after_upload: Option<bool>,
    #[serde(default)]
    release: Option<Value>,
    #[serde(default)]
    rebuild_age: Option<u64>,
    #[serde(default)]
    env_vars: BTreeMap<String, String>,
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    python_path: Option<String>,
    #[serde(default)]
    shell_type: Option<String>,
    #[serde(default)]
    build_timeout: Option<u64>,
    #[serde(default)]
    metadata: Map<String, Value>,
    #[serde(skip)]
    pub(super) origins: Origins,
}

/// Where an entry and two of its settings are.
#[derive(Debug, Clone, Default)]
pub(super) struct Origins {
    pub(super) entry: Origin,
    pub(super) dib_cmd: Origin,
    pub(super) formats: Origin,
}

impl Origin {
    pub(super) fn new(file: &str, place: Position) -> Self {
        Self { file: file.to_owned(), line: place.line.into(), column: place.column.into() }
    }
}

/// Merges an entry with its parents.
pub(super) fn resolve(entry: &Entry, all: &BTreeMap<&str, &Entry>) -> Result<DiskImage, String> {
    let mut chain = vec![entry];
    while let Some(parent) = chain.last().and_then(|entry| entry.parent.as_deref()).filter(|name| !name.is_empty()) {
        let Some(parent) = all.get(parent) else {
            return Err(format!("the parent `{parent}` is not defined"));
        };
        if chain.iter().any(|entry| entry.name == parent.name) {
            return Err(format!("inherits from itself through `{}`", parent.name));
        }
        if chain.len() >= LIMIT_PARENTS {
            return Err(format!("has more than {LIMIT_PARENTS} parents"));
        }
        chain.push(parent);
    }
    let mut image = DiskImage::new(&entry.name);
    image.origin = entry.origins.entry.clone();
    image.dib_cmd_origin = image.origin.clone();
    image.formats_origin = image.origin.clone();
    chain.iter().rev().for_each(|entry| image.apply(entry));
    Ok(image)
}
