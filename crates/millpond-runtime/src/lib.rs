//! The base of every controller, real or stand-in.
//!
//! ```text
//!   any Kubernetes API ──watch──▶ Mirror ──on_change──▶ Queue (each key once) ──▶ worker ─┐
//!          ▲                        ▲  copies, indexes                      Reconcile     │
//!          └────────────────────────┴───────────── writes, seen in the copy at once ◀─────┘
//! ```
//!
//! All waiting is `tokio::time`, the time that objects show comes from [`clock::Clock`] and all chance from
//! [`name_generator::NameGenerator`], so that everything above runs under paused time and repeats itself.
//!
//! This crate knows no kind of Millpond's own; other crates implement [`kinds::Kind`] for the kinds that they mirror.

pub mod clock;
pub mod error;
pub mod events;
pub mod history;
pub mod kinds;
pub mod meta;
pub mod mirror;
pub mod name_generator;
mod object_cache;
pub mod panics;
pub mod queue;
pub mod raw_object;
pub mod supervise;
pub mod worker;
