//! The embedded Kubernetes API: a tower service over a durable store, which `kubectl` and Go controllers believe.
//!
//! ```text
//!            kube::Client in process ─┐
//!   kubectl ── TLS ── serve ──────────┴─▶ server ─▶ handlers ─▶ store ─▶ log (one file)
//!                                          │            │         └──▶ history ─▶ watches
//!                                       registry     kind, schema, apply, patch, table
//! ```
//!
//! It knows no kind of Millpond's own: CRDs arrive as values. Built-in kinds and custom resources become the same
//! [`resource::Resource`] descriptors, and one set of handlers serves them all. What it deliberately lacks:
//! webhooks, aggregation of APIs, more than one machine.

mod admission;
pub mod apply;
mod audit;
pub mod auth;
mod authz;
pub mod builtin;
mod cel;
pub mod clock;
mod convert;
pub mod crd;
pub mod embedded;
mod go;
mod handlers;
pub mod http;
mod intake;
pub mod json_text;
pub mod jsonpath;
mod kind;
pub mod lifecycle;
mod long_work;
pub mod meta;
mod metrics;
pub mod names;
pub mod openapi;
pub mod patch;
pub mod pki;
pub mod print;
pub mod protobuf;
pub mod quantity;
pub mod registry;
pub mod resource;
pub mod schema;
pub mod selector;
pub mod serve;
pub mod server;
pub mod service_account;
mod service_ip;
pub mod status;
pub mod store;
pub mod table;
#[cfg(test)]
mod tests;

pub use embedded::{Embedded, EmbeddedOptions, StartError};
pub use lifecycle::LifecycleOptions;
pub use server::{ApiService, IdleKind, Server, ServerOptions};

/// Creates what every cluster has: namespaces, the API's service, the system's priority classes.
pub use lifecycle::bootstrap::run as bootstrap;

/// The version of Kubernetes whose API is served, as clients see it before the `+`.
pub const KUBERNETES_VERSION: &str = "v1.36.3";

/// The Rust of the guide compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/embedded-api.md")]
struct Guide;
