//! The address and credentials of vCenter: from the environment, else from a Secret that is followed.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Config, Event};
use kube::{Api, Client};
use millpond_vsphere::live::Wanted;
use millpond_vsphere::settings::{Settings, SettingsError, Thumbprint, Trust};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The Secret of the tutorial that the kind comes from.
pub const SECRET: (&str, &str) = ("gpuinfo-system", "vc-creds");
/// The name of an environment variable, or key of the Secret, with the thumbprint of vCenter's certificate.
const THUMBPRINT: &str = "GOVMOMI_THUMBPRINT";

/// How vCenter is found. `Debug` shows which variables are set, and none of their values: an address can hold a password,
/// too.
#[derive(Clone, Default)]
pub struct Sources {
    /// Names and values of the environment that concern vCenter.
    pub environment: BTreeMap<String, String>,
    /// Namespace and name of a Secret that goes before the environment.
    pub secret: Option<(String, String)>,
    /// CA certificates that vouch for vCenter.
    pub ca_file: Option<PathBuf>,
    /// The digest of vCenter's certificate.
    pub thumbprint: Option<String>,
}

impl fmt::Debug for Sources {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Sources")
            .field("environment", &self.environment.keys())
            .field("secret", &self.secret)
            .field("ca_file", &self.ca_file)
            .field("thumbprint", &self.thumbprint)
            .finish()
    }
}

/// Variables that are read.
pub const VARIABLES: [&str; 8] = [
    "GOVMOMI_URL",
    "GOVMOMI_USERNAME",
    "GOVMOMI_PASSWORD",
    "GOVMOMI_INSECURE",
    THUMBPRINT,
    "VC_HOST",
    "VC_USER",
    "VC_PASS",
];

impl Sources {
    /// The values in the environment of this process.
    pub fn of_environment() -> Self {
        let values = VARIABLES.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
        Self { environment: values.collect(), ..Self::default() }
    }

    fn names_vcenter(&self) -> bool {
        ["GOVMOMI_URL", "VC_HOST"].iter().any(|name| self.environment.get(*name).is_some_and(|text| !text.is_empty()))
    }

    /// The vCenter that these values describe.
    fn wanted(&self, values: &BTreeMap<String, String>) -> Wanted {
        match self.settings(values) {
            Ok(settings) => Wanted::Use(settings),
            Err(SettingsError::NoAddress) if values.is_empty() => Wanted::None,
            Err(error) => Wanted::Invalid(error.to_string()),
        }
    }

    fn settings(&self, values: &BTreeMap<String, String>) -> Result<Settings, SettingsError> {
        let value = |name: &str| values.get(name).cloned();
        let thumbprint = self.thumbprint.clone().or_else(|| value(THUMBPRINT)).filter(|text| !text.trim().is_empty());
        let trust = match (&self.ca_file, thumbprint) {
            (Some(file), _) => Trust::CaFile(file.clone()),
            (None, Some(text)) => Trust::Thumbprint(Thumbprint::parse(text.trim())?),
            (None, None) => Trust::System,
        };
        Settings::read(value, &trust)
    }

    /// Reads once, for a command that ends. A Secret that may not be read counts as missing.
    pub async fn read(&self, client: &Client) -> Wanted {
        if self.names_vcenter() && self.secret.is_none() {
            return self.wanted(&self.environment);
        }
        let (namespace, name) = self.place();
        match Api::<Secret>::namespaced(client.clone(), &namespace).get_opt(&name).await {
            Ok(Some(secret)) => self.wanted(&texts(&secret)),
            _ => self.wanted(&self.environment),
        }
    }

    fn place(&self) -> (String, String) {
        self.secret.clone().unwrap_or_else(|| (SECRET.0.to_owned(), SECRET.1.to_owned()))
    }

    /// Publishes the credentials, and follows the Secret until the token is cancelled. `settled` is cancelled once it
    /// is known whether there is a vCenter.
    pub(crate) async fn follow(
        self,
        client: Client,
        wanted: watch::Sender<Wanted>,
        settled: CancellationToken,
        stop: CancellationToken,
    ) {
        let of_environment = self.wanted(&self.environment);
        if self.names_vcenter() && self.secret.is_none() {
            wanted.send_replace(of_environment);
            settled.cancel();
            return stop.cancelled().await;
        }
        set(&wanted, of_environment.clone());
        let (namespace, name) = self.place();
        let secrets = Api::<Secret>::namespaced(client, &namespace);
        let config = Config::default().fields(&format!("metadata.name={name}"));
        let events = watcher::watcher(secrets, config).default_backoff().take_until(stop.cancelled());
        let mut events = std::pin::pin!(events);
        let mut listed = false;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(secret) | Event::InitApply(secret)) => {
                    listed = true;
                    set(&wanted, self.wanted(&texts(&secret)));
                }
                Ok(Event::Init) => listed = false,
                Ok(Event::InitDone) if listed => settled.cancel(),
                Ok(Event::Delete(_) | Event::InitDone) => {
                    set(&wanted, of_environment.clone());
                    settled.cancel();
                }
                // The message of a watch holds no part of the Secret.
                Err(error) => {
                    tracing::debug!(%error, "the Secret of vCenter cannot be watched");
                    settled.cancel();
                }
            }
        }
    }
}

/// Hands on what is wanted, unless it leads to the same session.
fn set(wanted: &watch::Sender<Wanted>, new: Wanted) {
    wanted.send_if_modified(|old| {
        let same = match (&*old, &new) {
            (Wanted::None, Wanted::None) => true,
            (Wanted::Invalid(old), Wanted::Invalid(new)) => old == new,
            (Wanted::Use(old), Wanted::Use(new)) => old.is_same(new),
            _ => false,
        };
        if !same {
            *old = new;
        }
        !same
    });
}

/// The values of a Secret that are read and are text.
fn texts(secret: &Secret) -> BTreeMap<String, String> {
    let values = secret.data.iter().flatten().filter(|(name, _)| VARIABLES.contains(&name.as_str()));
    values.filter_map(|(name, value)| Some((name.clone(), String::from_utf8(value.0.clone()).ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::Options;

    #[test]
    fn no_password_shows_in_debug_output() {
        const PASSWORD: &str = "S3cret<&>";
        let values = [
            ("GOVMOMI_URL", "https://root:S3cret%3C@vcenter.example.com/sdk"),
            ("GOVMOMI_USERNAME", "root"),
            ("GOVMOMI_PASSWORD", PASSWORD),
            ("VC_PASS", PASSWORD),
        ];
        let environment = values.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let sources = Sources { environment, ..Sources::default() };
        let wanted = sources.wanted(&sources.environment);
        assert!(matches!(wanted, Wanted::Use(_)), "{wanted:?}");
        for shown in [format!("{:?}", Options { sources, ..Options::default() }), format!("{wanted:?}")] {
            assert!(!shown.contains("S3cret"), "{shown}");
        }
    }
}
