//! An OpenStack cloud as the builder and the driver reach it: the credentials of `clouds.yaml`, and a session.
//!
//! ```text
//!   clouds.yaml ──settings──▶ Clouds ──session──▶ token and catalogue of Keystone v3 ──▶ Nova, Neutron, Glance
//! ```

mod session;
mod settings;

pub(crate) use session::{Answer, Body, Service, Session};
pub(crate) use settings::FILE_NAMES;
pub use settings::{CloudSettings, Clouds, CloudsFile};

/// Why a cloud did not do what it was asked for. Messages hold no secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// It may work the next time.
    #[error("{0}")]
    Transient(String),
    /// It will not work until the configuration or the cloud is changed.
    #[error("{0}")]
    Permanent(String),
}
