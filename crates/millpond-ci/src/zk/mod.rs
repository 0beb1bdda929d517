//! ZooKeeper: a client, and the store of requests and nodes in Nodepool's layout.
//!
//! ```text
//!   Client (wire, jute, tls) ──events, answers in order──▶ tree ──▶ mirror: typed records
//!      ▲                                                             │
//!      └──────────── locks, commits, components ──── Store ◀─────────┘
//! ```
//!
//! The client is our own: what Nodepool's protocol needs of ZooKeeper's is small, and the crates that speak all of it
//! bring a second set of cryptographic primitives.

mod client;
mod der;
mod jute;
mod mirror;
pub mod paths;
mod register;
mod store;
mod tls;
mod tree;
mod wire;

pub use client::{Client, Event, State};
pub use register::Identity;
pub use store::Store;
pub use tls::TlsError;
pub use wire::{Change, CreateMode, Op, Response, Stat, ZkError};
