//! Controllers of the dialects that are crates of their own. They run while this process leads.
//!
//! One module per dialect: its arguments, and a function that starts its controllers.

pub(crate) mod ci;
pub(crate) mod fake_vcenter;
pub(crate) mod gpu;
mod hosts;

use kube::Client;
use millpond_hosts::run::Prepared;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The arguments of all dialects.
#[derive(Debug, Clone)]
pub(crate) struct DialectOptions {
    /// GPU jobs.
    pub(crate) gpu: millpond_gpu::controller::Options,
    /// Own hosts.
    pub(crate) hosts: millpond_hosts::stock::Options,
    /// CI nodes, where a configuration was named.
    pub(crate) ci: Option<ci::CiOptions>,
    /// The image of launchers and builders, where SoftwareFactory objects are served.
    pub(crate) ci_image: Option<String>,
}

impl Default for DialectOptions {
    fn default() -> Self {
        let hosts = millpond_hosts::stock::Options::default();
        Self { gpu: gpu::default_options(), hosts, ci: None, ci_image: None }
    }
}

/// Starts the controllers of every dialect for one term of leadership; they end with the token. Those of own hosts share
/// what they watch with a provider.
pub(crate) fn start(
    client: &Client,
    options: &DialectOptions,
    own_hosts: Prepared,
    term: &CancellationToken,
) -> TaskTracker {
    let tasks = TaskTracker::new();
    let gpu = gpu::start(client, &options.gpu, term);
    tasks.spawn(async move { gpu.wait().await });
    let hosts = hosts::start(client, own_hosts, term);
    tasks.spawn(async move { hosts.wait().await });
    if let Some(options) = &options.ci {
        ci::start(client, options, term, &tasks);
    }
    if let Some(image) = &options.ci_image {
        ci::start_deployments(client, image, term, &tasks);
    }
    tasks.close();
    tasks
}
