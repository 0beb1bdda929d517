//! A client of vCenter's SOAP API and a live inventory of what GPU jobs ask about: hosts, virtual machines, GPUs,
//! maintenance, scheduled tasks.
//!
//! ```text
//!   Settings (address, account, trust) ──▶ Client ── session, one login at a time ──▶ vCenter /sdk
//!                                            ▲
//!                  Live: WaitForUpdatesEx ───┤
//!                        polls: host state, quick stats, scheduled tasks
//!                            │
//!                            ▼
//!                        Inventory (plain values) ──▶ its readers; Freshness says whether it can be trusted
//! ```
//!
//! The crate only reads; it never changes anything in vCenter. It knows nothing of Kubernetes. `fake` is a vCenter in
//! this process that speaks the same subset of SOAP, for tests and demonstrations.
//!
//! Layers, lowest first: `xml` (elements), `soap` (envelopes and faults), [`transport`] (HTTP, TLS), [`client`] (session
//! and calls), `property` (PropertyCollector), [`inventory`] (typed objects), [`live`] (the cache).

pub mod client;
pub mod error;
#[cfg(feature = "fake")]
pub mod fake;
pub mod inventory;
pub mod live;
mod property;
pub mod reference;
pub mod settings;
mod soap;
mod tls;
pub mod transport;
mod xml;

pub use client::Client;
pub use error::{Error, Reason};
pub use inventory::Inventory;
pub use live::{Freshness, Live};
pub use reference::Reference;
pub use settings::{Settings, Trust};
