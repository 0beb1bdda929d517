//! The embedded Kubernetes API.

pub mod builtin;
pub mod resource;
pub mod schema;
pub mod status;
