//! The simulated cloud of driver `fake`: images are entries of a file in the images directory.

use std::fs;
use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::super::files;
use super::{CloudError, CloudImage, ImageCloud, NewImage};

/// Images of a simulated provider.
#[derive(Debug)]
pub struct FakeImages {
    file: PathBuf,
    lock: Mutex<()>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Entry {
    id: String,
    name: String,
    status: String,
    #[serde(default)]
    metadata: Map<String, Value>,
}

impl FakeImages {
    /// The images of a provider.
    pub fn new(images: &Path, provider: &str) -> Self {
        Self { file: images.join(format!(".fake-cloud-{provider}.json")), lock: Mutex::default() }
    }

    /// Every simulated cloud has this image from the start.
    fn first() -> Entry {
        Entry {
            id: "fake-image-id".to_owned(),
            name: "Fake Precise".to_owned(),
            status: "READY".to_owned(),
            metadata: Map::new(),
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Entry>) -> T) -> Result<T, CloudError> {
        let _turn = self.lock.lock();
        let failed = |error: std::io::Error| CloudError::Transient(format!("`{}`: {error}", self.file.display()));
        let mut entries: Vec<Entry> = match fs::read(&self.file) {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(|error| CloudError::Permanent(format!("`{}`: {error}", self.file.display())))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => vec![Self::first()],
            Err(error) => return Err(failed(error)),
        };
        let before = entries.len();
        let result = change(&mut entries);
        if entries.len() != before {
            let text = serde_json::to_vec_pretty(&entries).expect("entries have text keys");
            let new = self.file.with_extension("json.new");
            fs::write(&new, text).and_then(|()| fs::rename(&new, &self.file)).map_err(failed)?;
        }
        Ok(result)
    }

    fn take(&self, image: &NewImage) -> Result<String, CloudError> {
        let refused = |error: files::FilesError| CloudError::Permanent(error.to_string());
        files::verify(&image.path).map_err(refused)?;
        let properties = &image.properties;
        if properties.get("SHOULD_FAIL").and_then(Value::as_str).is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            return Err(CloudError::Transient("this image has SHOULD_FAIL set to true".to_owned()));
        }
        let id = Uuid::new_v4().simple().to_string();
        let entry = Entry {
            id: id.clone(),
            name: image.name.clone(),
            status: "READY".to_owned(),
            metadata: properties.clone(),
        };
        self.change(|entries| entries.push(entry))?;
        Ok(id)
    }
}

impl ImageCloud for FakeImages {
    fn upload<'a>(&'a self, image: &'a NewImage) -> BoxFuture<'a, Result<String, CloudError>> {
        Box::pin(async move { self.take(image) })
    }

    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), CloudError>> {
        Box::pin(async move { self.change(|entries| entries.retain(|entry| entry.id != id)) })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<CloudImage>, CloudError>> {
        let image = |entry: &Entry| CloudImage {
            id: entry.id.clone(),
            name: entry.name.clone(),
            properties: entry
                .metadata
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect(),
        };
        Box::pin(async move { self.change(|entries| entries.iter().map(image).collect()) })
    }
}
