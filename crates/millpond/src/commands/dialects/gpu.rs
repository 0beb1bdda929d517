//! GPU jobs: GPUInfos answered from Kubernetes and vSphere.

use std::path::PathBuf;

use clap::Args;
use kube::Client;
use millpond_gpu::controller::{self, ASSUMED_HOURS, Options, PAUSE_IMAGE};
use millpond_gpu::credentials::Sources;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::commands::lead;

/// How vCenter is found.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct VsphereArgs {
    /// CA certificates that vouch for vCenter; those of the system without it
    #[arg(long, value_name = "FILE", env = "MILLPOND_VSPHERE_CA")]
    vsphere_ca: Option<PathBuf>,
    /// SHA-1 or SHA-256 thumbprint of vCenter's certificate, instead of a CA
    #[arg(long, value_name = "HEX", env = "MILLPOND_VSPHERE_THUMBPRINT", conflicts_with = "vsphere_ca")]
    vsphere_thumbprint: Option<String>,
    /// Secret with `GOVMOMI_URL`, `GOVMOMI_USERNAME` and `GOVMOMI_PASSWORD`, followed live; without it the environment
    /// has them, else the Secret gpuinfo-system/vc-creds
    #[arg(long, value_name = "NAMESPACE/NAME", env = "MILLPOND_VSPHERE_SECRET", value_parser = secret)]
    vsphere_secret: Option<(String, String)>,
}

impl VsphereArgs {
    /// With credentials from the environment.
    pub(crate) fn sources(&self) -> Sources {
        Sources {
            secret: self.vsphere_secret.clone(),
            ca_file: self.vsphere_ca.clone(),
            thumbprint: self.vsphere_thumbprint.clone(),
            ..Sources::of_environment()
        }
    }
}

fn secret(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('/').filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty());
    let (namespace, name) = parts.ok_or("a namespace and a name such as gpuinfo-system/vc-creds")?;
    Ok((namespace.to_owned(), name.to_owned()))
}

/// Arguments for GPU jobs.
#[derive(Debug, Clone, Args)]
pub(crate) struct GpuArgs {
    #[command(flatten)]
    vsphere: VsphereArgs,
    /// Hours that a node without a known event is assumed to stay undisturbed
    #[arg(long, value_name = "HOURS", default_value_t = ASSUMED_HOURS)]
    gpu_assumed_hours: u64,
    /// Image of the placeholder pods that hold reserved GPUs
    #[arg(long, value_name = "IMAGE", default_value = PAUSE_IMAGE)]
    gpu_holder_image: String,
}

impl GpuArgs {
    /// The options of the controller; `namespace` is that of the pods that hold reserved GPUs.
    pub(crate) fn options(&self, namespace: &str) -> Options {
        Options {
            sources: self.vsphere.sources(),
            assumed_hours: self.gpu_assumed_hours,
            namespace: namespace.to_owned(),
            image: self.gpu_holder_image.clone(),
            ..Options::default()
        }
    }
}

/// The options of the controller without flags.
pub(super) fn default_options() -> Options {
    Options { sources: Sources::of_environment(), namespace: lead::NAMESPACE.to_owned(), ..Options::default() }
}

/// Starts the controller for one term of leadership.
pub(super) fn start(client: &Client, options: &Options, term: &CancellationToken) -> TaskTracker {
    controller::start(client, options.clone(), term)
}
