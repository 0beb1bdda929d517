//! The Zuul dialect: CI jobs request nodes by label, launchers provide them. This crate reads Nodepool's configuration
//! and speaks Nodepool's data model, so that Zuul and Nodepool's own tools keep working.
//!
//! ```text
//!   nodepool.yaml, secure.conf ──config──▶ Config ──┐
//!                                                   ▼
//!   zk (Zuul) ──┐                              launcher ──▶ engine: what happens next, with reasons
//!               ├──── Backend: records, locks ◀──┘  └────▶ driver: static, pods, clouds
//!   objects ────┘
//!   records, view ──▶ command line, web
//! ```
//!
//! Not here: printing and the command line, which are in the binary.

pub mod builder;
pub mod config;
pub mod deployment;
pub mod driver;
pub mod engine;
pub mod launcher;
pub mod model;
pub mod objects;
pub mod openstack;
pub mod records;
pub mod view;
pub mod web;
pub mod zk;
