//! CI nodes without ZooKeeper: a launcher whose requests and nodes are objects of this API.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use kube::Client;
use millpond_ci::config::Config;
use millpond_ci::driver;
use millpond_ci::driver::kube::{Contexts, providers_secret};
use millpond_ci::launcher::reload::Files;
use millpond_ci::launcher::{Backend, Launcher, Settings};
use millpond_ci::objects::ObjectBackend;
use millpond_ci::openstack::Clouds;
use millpond_ci::records::{ObjectSource, uploads};
use millpond_ci::web::Web;
use millpond_runtime::clock::Clock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::commands::ci::web;
use crate::commands::lead;
use crate::failure::Failure;

/// The environment variable with kubeconfig files, and what separates them.
const KUBECONFIG: &str = "KUBECONFIG";

/// Arguments of a process that launches CI nodes.
#[derive(Debug, Clone, Args)]
pub(crate) struct CiDialectArgs {
    /// Provide CI nodes for NodeRequests, with the providers of this nodepool.yaml
    #[arg(long, value_name = "FILE")]
    ci_config: Option<PathBuf>,
    /// A file with secrets for it, as `nodepool -s` takes
    #[arg(long, value_name = "FILE", requires = "ci_config")]
    ci_secure: Option<PathBuf>,
    /// Namespace of the Secret `nodepool-providers-secrets`, whose contexts are followed
    #[arg(long, value_name = "NAMESPACE", default_value = "default")]
    ci_namespace: String,
    /// Keep launcher and builder of every SoftwareFactory in place, with this image; `up` does so anyway
    #[arg(long, value_name = "IMAGE")]
    ci_image: Option<String>,
}

/// The options of the launcher.
#[derive(Debug, Clone)]
pub(crate) struct CiOptions {
    files: Files,
    config: Arc<Config>,
    namespace: String,
}

impl CiDialectArgs {
    /// The image of launchers and builders, where SoftwareFactory objects are served.
    pub(crate) fn image(&self) -> Option<String> {
        self.ci_image.clone()
    }

    /// Reads the configuration; `None` if no file was named. An error in one provider leaves the others.
    pub(crate) fn options(&self) -> anyhow::Result<Option<CiOptions>> {
        let Some(main) = &self.ci_config else { return Ok(None) };
        let main = std::path::absolute(main)?;
        let files = Files { main, secure: self.ci_secure.clone() };
        let (config, errors) = files.read();
        for error in &errors {
            tracing::error!(error, "the configuration of CI nodes has a mistake; what it concerns is left out");
        }
        let Some(config) = config else {
            return Err(Failure {
                message: errors.first().cloned().unwrap_or_else(|| "the configuration cannot be read".to_owned()),
                code: None,
                hint: Some("`millpond ci -c FILE config-validate` lists every mistake".to_owned()),
            }
            .into());
        };
        Ok(Some(CiOptions { files, config: Arc::new(config), namespace: self.ci_namespace.clone() }))
    }
}

impl CiOptions {
    /// The message about it when the process starts.
    pub(crate) fn greeting(&self) -> String {
        let count = self.config.providers.len();
        let providers = crate::commands::format::plural(count, "provider");
        format!("  CI nodes    {providers} of {}\n", self.files.main.display())
    }
}

/// Starts the launcher and its web API for one term of leadership; they end with the token.
pub(crate) fn start(client: &Client, options: &CiOptions, term: &CancellationToken, tasks: &TaskTracker) {
    let config = watch::Sender::new(Arc::clone(&options.config));
    let current = config.subscribe();
    tasks.spawn(options.files.clone().follow(config, term.clone()));
    let (secret, follow) = providers_secret(client.clone(), &options.namespace, term.clone());
    tasks.spawn(follow);
    let drivers = driver::Context::with_contexts(Contexts::new(kubeconfig_files(), Some(secret.contexts)))
        .with_clouds(Clouds::of_secret(secret.clouds));
    let backend = ObjectBackend::start(client.clone(), lead::NAMESPACE, Clock::Machine, term, tasks);
    let (sender_of_uploads, uploads) = watch::channel(Arc::default());
    let labels = Arc::clone(&backend);
    let images = Arc::new(ObjectSource::new(client.clone(), Arc::new(move || labels.labels())));
    tasks.spawn(uploads::follow(images, sender_of_uploads, term.clone()));
    let settings = Settings {
        backend: Arc::clone(&backend) as Arc<dyn Backend>,
        config: current.clone(),
        drivers: Arc::new(move |config| driver::all(config, &drivers)),
        hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        uploads: Some(uploads),
    };
    let launcher = Launcher::new(settings);
    let handle = launcher.handle();
    tasks.spawn(launcher.run(term.clone()));
    let (client, config) = (client.clone(), current.clone());
    let make = move |reads_need_token| {
        let (ready, counters, labels) = (handle.clone(), handle.clone(), Arc::clone(&backend));
        Web {
            source: Arc::new(ObjectSource::new(client.clone(), Arc::new(move || labels.labels()))),
            config: config.clone(),
            changes: backend.changes(),
            ready: Arc::new(move || ready.is_ready()),
            counters: Arc::new(move || counters.counters()),
            authorize: web::of_cluster(client.clone()),
            reads_need_token,
        }
    };
    tasks.spawn(web::follow(current, term.clone(), make));
}

/// Starts the controller of SoftwareFactory objects.
pub(crate) fn start_deployments(client: &Client, image: &str, term: &CancellationToken, tasks: &TaskTracker) {
    millpond_ci::deployment::start(client, image, Clock::Machine, term, tasks);
}

/// The files that kubectl would read.
pub(crate) fn kubeconfig_files() -> Vec<PathBuf> {
    match std::env::var_os(KUBECONFIG).filter(|value| !value.is_empty()) {
        Some(files) => std::env::split_paths(&files).filter(|file| !file.as_os_str().is_empty()).collect(),
        None => std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config")).into_iter().collect(),
    }
}
