//! Images as they are listed.

use std::collections::BTreeMap;

/// All images, by name.
#[derive(Debug, Clone, Default)]
pub struct Images {
    /// The images.
    pub images: Vec<Image>,
}

/// An image.
#[derive(Debug, Clone, Default)]
pub struct Image {
    /// Its name.
    pub name: String,
    /// Whether builds of it are paused.
    pub paused: bool,
    /// A build that an operator asked for.
    pub request: Option<BuildRequest>,
    /// What was built, by id.
    pub builds: Vec<Build>,
}

/// A build that was asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuildRequest {
    /// Since when, in seconds since 1970.
    pub since: f64,
    /// Whether it has begun.
    pub building: bool,
}

/// A build.
#[derive(Debug, Clone, Default)]
pub struct Build {
    /// Its id.
    pub id: String,
    /// The builder's host.
    pub builder: Option<String>,
    /// Its formats, sorted.
    pub formats: Vec<String>,
    /// Its state.
    pub state: String,
    /// Since when, in seconds since 1970.
    pub state_time: f64,
    /// Its uploads, by provider and id.
    pub uploads: Vec<Upload>,
}

/// An upload of a build to a provider.
#[derive(Debug, Clone, Default)]
pub struct Upload {
    /// Its id.
    pub id: String,
    /// The provider.
    pub provider: String,
    /// The provider's id of the image.
    pub external_id: Option<String>,
    /// The provider's name of the image.
    pub external_name: Option<String>,
    /// Its state.
    pub state: String,
    /// Since when, in seconds since 1970.
    pub state_time: f64,
}

impl Images {
    /// Every upload with its image and its build.
    pub fn uploads(&self) -> impl Iterator<Item = (&Image, &Build, &Upload)> {
        let builds = self.images.iter().flat_map(|image| image.builds.iter().map(move |build| (image, build)));
        builds.flat_map(|(image, build)| build.uploads.iter().map(move |upload| (image, build, upload)))
    }

    /// Ids of a provider's uploads by image and build.
    pub fn by_build(&self, provider: &str) -> Vec<(String, String, Vec<String>)> {
        let mut found: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
        for (image, build, upload) in self.uploads().filter(|(.., upload)| upload.provider == provider) {
            found.entry((image.name.clone(), build.id.clone())).or_default().push(upload.id.clone());
        }
        let sorted = found.into_iter().map(|((image, build), mut uploads)| {
            uploads.sort();
            (image, build, uploads)
        });
        sorted.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploads_of_a_provider_are_grouped_by_build() {
        let upload =
            |id: &str, provider: &str| Upload { id: id.to_owned(), provider: provider.to_owned(), ..Upload::default() };
        let uploads = vec![upload("2", "cloud"), upload("1", "cloud"), upload("1", "other")];
        let build = Build { id: "b".to_owned(), uploads, ..Build::default() };
        let image = Image { name: "fedora".to_owned(), builds: vec![build], ..Image::default() };
        let images = Images { images: vec![image] };
        let expected = ("fedora".to_owned(), "b".to_owned(), vec!["1".to_owned(), "2".to_owned()]);
        assert_eq!(images.by_build("cloud"), [expected]);
        assert!(images.by_build("none").is_empty());
    }
}
