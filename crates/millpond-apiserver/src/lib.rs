//! The embedded Kubernetes API.

pub mod builtin;
pub mod meta;
pub mod names;
pub mod print;
pub mod quantity;
pub mod resource;
pub mod schema;
pub mod selector;
pub mod status;
pub mod store;
