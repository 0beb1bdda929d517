//! The Cluster API dialect: node pools as people set them, and node groups that grow and shrink with their pods.

pub mod autoscale;
pub mod client;
pub mod pools;
