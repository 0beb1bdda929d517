//! The image builder: builds disk images with a command, uploads them to providers, and deletes what is not needed any
//! more. Several builders share the work under the locks of an [`ImageStore`], Nodepool's own builders among them.
//!
//! ```text
//!   nodepool.yaml ──▶ Images ─┐
//!   ImageStore ──▶ Records ───┼──▶ decide ──▶ build:   dib-cmd ──▶ files in images-dir, log in build-log-dir
//!   images-dir ──▶ files ─────┘               upload:  file ──▶ ImageCloud
//!                                             cleanup: uploads, files, records
//! ```
//!
//! A build counts once its record says `ready`, and so does an upload; the record is written last. After a builder was
//! killed, what it left has a record that no lock protects, or no record: any builder cleans up the record, and the
//! builder with the same images directory cleans up the files.

pub mod ansible;
mod build;
mod clean;
pub mod cloud;
pub mod command;
pub mod decide;
mod figures;
pub mod files;
pub mod logs;
pub mod memory;
pub mod objects;
pub mod operate;
mod process;
mod run;
pub mod source;
pub mod ssh;
pub mod store;
#[cfg(test)]
mod tests;
mod upload;
pub mod web;
pub mod zookeeper;

pub use decide::Images;
pub use run::{Builder, Next, Now, Settings, StartError};
pub use source::{Source, SourceError};
pub use store::{ImageStore, Records, StoreError};
