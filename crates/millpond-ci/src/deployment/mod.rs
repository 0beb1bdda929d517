//! Launcher and builder in a cluster, under the names of Software Factory: as manifests, and kept in place by a controller
//! for the kind SoftwareFactory.

mod controller;
mod manifests;

pub use controller::start;
pub use manifests::{CONFIG, Deployment, LAUNCHER, LAUNCHER_PORT, configuration, manifests};
