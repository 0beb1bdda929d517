//! `clouds.yaml`: where Keystone is and how to log in.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use tokio::sync::watch;

use super::CloudError;
use super::session::Service;

/// The environment variable with the file's place.
const VARIABLE: &str = "OS_CLIENT_CONFIG_FILE";
/// Names of the file: its own, and the one that Software Factory's guide writes into the Secret of providers.
pub(crate) const FILE_NAMES: [&str; 2] = ["clouds.yaml", "cloud.yaml"];
/// The format of images if the file does not say: that of OpenStack's own client.
const DEFAULT_FORMAT: &str = "qcow2";

/// The clouds of a file.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct CloudsFile {
    #[serde(default)]
    clouds: BTreeMap<String, CloudSettings>,
}

/// One cloud.
#[derive(Clone, Default, PartialEq, Deserialize)]
pub struct CloudSettings {
    /// How to log in.
    #[serde(default)]
    pub(super) auth: Auth,
    /// `password`, `v3password` or `v3applicationcredential`; found out if absent.
    #[serde(default)]
    pub(super) auth_type: Option<String>,
    /// The region.
    #[serde(default)]
    pub(super) region_name: Option<String>,
    /// Which endpoints are used: public, internal or admin.
    #[serde(default)]
    pub(super) interface: Option<String>,
    /// The format that the cloud takes.
    #[serde(default)]
    image_format: Option<String>,
    /// Glance, if it is not the catalogue's.
    #[serde(default)]
    image_endpoint_override: Option<String>,
    /// Nova, if it is not the catalogue's.
    #[serde(default)]
    compute_endpoint_override: Option<String>,
    /// Neutron, if it is not the catalogue's.
    #[serde(default)]
    network_endpoint_override: Option<String>,
    /// The file with CA certificates.
    #[serde(default)]
    pub(super) cacert: Option<PathBuf>,
    /// Certificates are always verified; this is refused when it is false.
    #[serde(default)]
    pub(super) verify: Option<bool>,
}

/// Credentials. Not shown by `Debug`.
#[derive(Clone, Default, PartialEq, Deserialize)]
pub(super) struct Auth {
    #[serde(default)]
    pub(super) auth_url: String,
    #[serde(default)]
    pub(super) username: Option<String>,
    #[serde(default)]
    pub(super) user_id: Option<String>,
    #[serde(default)]
    pub(super) password: Option<String>,
    #[serde(default)]
    pub(super) project_name: Option<String>,
    #[serde(default)]
    pub(super) project_id: Option<String>,
    #[serde(default)]
    pub(super) user_domain_name: Option<String>,
    #[serde(default)]
    pub(super) user_domain_id: Option<String>,
    #[serde(default)]
    pub(super) project_domain_name: Option<String>,
    #[serde(default)]
    pub(super) project_domain_id: Option<String>,
    #[serde(default)]
    pub(super) domain_name: Option<String>,
    #[serde(default)]
    pub(super) application_credential_id: Option<String>,
    #[serde(default)]
    pub(super) application_credential_name: Option<String>,
    #[serde(default)]
    pub(super) application_credential_secret: Option<String>,
}

impl std::fmt::Debug for CloudSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CloudSettings").field("auth_url", &self.auth.auth_url).finish_non_exhaustive()
    }
}

impl CloudsFile {
    /// The file where OpenStack's own client looks for it; empty if there is none.
    pub fn find() -> Result<Self, CloudError> {
        Self::usual_file().map_or_else(|| Ok(Self::default()), |path| Self::read(&path))
    }

    /// Where OpenStack's own client finds the file now, if it does.
    pub fn usual_file() -> Option<PathBuf> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let named = std::env::var_os(VARIABLE).map(|path| sibling(PathBuf::from(path)));
        let usual = [
            Some(PathBuf::from("clouds.yaml")),
            home.map(|home| home.join(".config/openstack/clouds.yaml")),
            Some(PathBuf::from("/etc/openstack/clouds.yaml")),
        ];
        named.or_else(|| usual.into_iter().flatten().find(|path| path.is_file()))
    }

    /// A file.
    pub fn read(path: &Path) -> Result<Self, CloudError> {
        let wrong = |problem: String| CloudError::Permanent(format!("`{}`: {problem}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        Self::parse(&text).ok_or_else(|| wrong("is not the YAML of a clouds file".to_owned()))
    }

    /// Parses a file. Errors have no details, which could reveal the file's content.
    fn parse(text: &str) -> Option<Self> {
        serde_saphyr::from_str(text).ok()
    }

    /// A cloud by its name.
    pub fn cloud(&self, name: &str) -> Result<&CloudSettings, CloudError> {
        self.clouds.get(name).ok_or_else(|| {
            CloudError::Permanent(format!("clouds.yaml has no cloud `{name}`; `{VARIABLE}` names the file"))
        })
    }
}

impl CloudSettings {
    /// The address of a service that takes the place of the catalogue's.
    pub(super) fn endpoint_override(&self, service: Service) -> Option<&str> {
        match service {
            Service::Compute => self.compute_endpoint_override.as_deref(),
            Service::Image => self.image_endpoint_override.as_deref(),
            Service::Network => self.network_endpoint_override.as_deref(),
        }
    }

    /// The format that the cloud takes.
    pub fn image_format(&self) -> &str {
        self.image_format.as_deref().unwrap_or(DEFAULT_FORMAT)
    }
}

/// The file beside it with the other name, where that one is there and this one is not.
fn sibling(path: PathBuf) -> PathBuf {
    let others = FILE_NAMES.map(|name| path.with_file_name(name));
    if path.exists() { path } else { others.into_iter().find(|other| other.is_file()).unwrap_or(path) }
}

/// Where clouds come from: the Secret of providers where it is watched, else files. Both may change at any time, so every
/// call reads what is there now.
#[derive(Clone, Default)]
pub struct Clouds {
    secret: Option<watch::Receiver<Option<String>>>,
    file: Option<PathBuf>,
}

impl std::fmt::Debug for Clouds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clouds").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Clouds {
    /// Clouds of the usual files.
    pub fn of_files() -> Self {
        Self::default()
    }

    /// Clouds of the Secret of providers; of the usual files where it has none of the name.
    pub fn of_secret(secret: watch::Receiver<Option<String>>) -> Self {
        Self { secret: Some(secret), file: None }
    }

    /// Clouds of one file.
    pub fn of_file(file: PathBuf) -> Self {
        Self { secret: None, file: Some(file) }
    }

    /// A cloud by its name, as it is now.
    pub fn cloud(&self, name: &str) -> Result<CloudSettings, CloudError> {
        let secret = self.secret.as_ref().and_then(|secret| secret.borrow().clone());
        let secret = secret.as_deref().and_then(CloudsFile::parse);
        if let Some(cloud) = secret.as_ref().and_then(|clouds| clouds.clouds.get(name)) {
            return Ok(cloud.clone());
        }
        let clouds = self.file.as_deref().map_or_else(CloudsFile::find, CloudsFile::read)?;
        clouds.cloud(name).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str) -> String {
        format!("clouds: {{{name}: {{auth: {{auth_url: 'http://{name}', password: hunter2}}}}}}")
    }

    #[test]
    fn the_name_of_the_guide_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let named = folder.path().join("clouds.yaml");
        std::fs::write(folder.path().join("cloud.yaml"), text("guide")).unwrap();
        assert!(CloudsFile::read(&sibling(named.clone())).unwrap().cloud("guide").is_ok());
        std::fs::write(&named, text("usual")).unwrap();
        assert!(CloudsFile::read(&sibling(named)).unwrap().cloud("usual").is_ok());
    }

    #[test]
    fn the_secret_comes_first_and_changes_are_seen() {
        let (sender, receiver) = watch::channel(Some(text("one")));
        let clouds = Clouds::of_secret(receiver);
        assert_eq!(clouds.cloud("one").unwrap().auth.auth_url, "http://one");
        sender.send_replace(Some(text("two")));
        assert!(clouds.cloud("one").is_err());
        assert_eq!(clouds.cloud("two").unwrap().auth.auth_url, "http://two");
        assert!(!format!("{clouds:?}{:?}", clouds.cloud("two")).contains("hunter2"));
    }
}
