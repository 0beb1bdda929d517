//! The launcher on a real ZooKeeper, beside the real Nodepool and kazoo. Ignored by a plain `cargo test`;
//! `cargo xtask test` runs them.

#![expect(clippy::unwrap_used, reason = "what a test needs and does not get ends it")]

mod client;
mod crash;
mod fixture;
mod launcher;
mod lists;
mod nodepool;
mod zuul;
