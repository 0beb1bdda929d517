//! OpenStack: images in Glance, with the credentials of `clouds.yaml`.
//!
//! ```text
//!   clouds.yaml ──settings──▶ Cloud ──session──▶ token and catalogue of Keystone v3 ──▶ Glance v2
//! ```

mod glance;
mod session;
mod settings;
#[cfg(test)]
mod tests;

pub use glance::GlanceImages;
pub use settings::{CloudSettings, CloudsFile};
