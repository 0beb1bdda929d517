//! The embedded Kubernetes API.

pub mod resource;
pub mod schema;
pub mod status;
