//! `clouds.yaml`, as far as images need it: where Keystone is and how to log in.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::super::CloudError;

/// The environment variable with the file's place.
const VARIABLE: &str = "OS_CLIENT_CONFIG_FILE";
/// The format of images if the file does not say: that of OpenStack's own client.
const DEFAULT_FORMAT: &str = "qcow2";

/// The clouds of a file.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct CloudsFile {
    #[serde(default)]
    clouds: BTreeMap<String, CloudSettings>,
}

/// One cloud.
#[derive(Clone, Default, Deserialize)]
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
    pub(super) image_endpoint_override: Option<String>,
    /// The file with CA certificates.
    #[serde(default)]
    pub(super) cacert: Option<PathBuf>,
    /// Certificates are always verified; this is refused when it is false.
    #[serde(default)]
    pub(super) verify: Option<bool>,
}

/// Credentials. Not shown by `Debug`.
#[derive(Clone, Default, Deserialize)]
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
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let named = std::env::var_os(VARIABLE).map(PathBuf::from);
        let usual = [
            Some(PathBuf::from("clouds.yaml")),
            home.map(|home| home.join(".config/openstack/clouds.yaml")),
            Some(PathBuf::from("/etc/openstack/clouds.yaml")),
        ];
        let file = named.or_else(|| usual.into_iter().flatten().find(|path| path.is_file()));
        file.map_or_else(|| Ok(Self::default()), |path| Self::read(&path))
    }

    /// A file.
    pub fn read(path: &Path) -> Result<Self, CloudError> {
        let wrong = |problem: String| CloudError::Permanent(format!("`{}`: {problem}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        // The parser's message would show what is in the file.
        serde_saphyr::from_str(&text).map_err(|_| wrong("is not the YAML of a clouds file".to_owned()))
    }

    /// A cloud by its name.
    pub fn cloud(&self, name: &str) -> Result<&CloudSettings, CloudError> {
        self.clouds.get(name).ok_or_else(|| {
            CloudError::Permanent(format!("clouds.yaml has no cloud `{name}`; `{VARIABLE}` names the file"))
        })
    }
}

impl CloudSettings {
    /// The format that the cloud takes.
    pub fn image_format(&self) -> &str {
        self.image_format.as_deref().unwrap_or(DEFAULT_FORMAT)
    }
}
