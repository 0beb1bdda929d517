//! CI nodes as objects: requests for them, records of them, and Software Factory's kind as far as it speaks of nodepool.
//!
//! ```text
//!   NodeRequest (namespaced) ──labels──▶ launcher ──▶ CINode (cluster-wide record, ten digits)
//!        └── status.nodes[]: how to reach them; credentials in a Secret beside the request
//! ```
//!
//! Zuul's own records in ZooKeeper are not here: `millpond-ci` reads and writes those.

mod image;
mod node;
mod request;
mod software_factory;

pub use image::{
    DiskImage, DiskImageSpec, DiskImageStatus, IMAGE_FINALIZER, ImageBuild, ImageBuildSpec, ImageBuildStatus,
    ImageUpload, ImageUploadSpec, ImageUploadStatus,
};
pub use node::{CINode, CINodeSpec, CINodeStatus, RequestReference};
pub use request::{
    ConnectedNode, NodeRequest, NodeRequestSpec, NodeRequestStatus, PoolReason, Precedence, RequestPhase,
};
pub use software_factory::{
    BuilderSpec, GROUP as SOFTWARE_FACTORY_GROUP, LauncherSpec, Limits, NodepoolSpec, SoftwareFactory,
    SoftwareFactorySpec, SoftwareFactoryStatus, StorageSpec,
};

/// The most nodes of one request; more is a mistake of its author.
pub const LIMIT_NODES: usize = 1000;
/// The condition of a NodeRequest that is true while its nodes are there.
pub const FULFILLED: &str = "Fulfilled";
