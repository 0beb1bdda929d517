//! Documents as they stand in files: every value with its line and column, so that its reader can say where it
//! is wrong. `millpond-state` reads objects of Kubernetes from them, [`capi::pool_file`](crate::capi::pool_file) node
//! pool files.

pub mod de;
pub mod tree;
pub mod yaml;

pub use tree::{Key, Meaning, Position, Scalar, Tree, Value};
pub use yaml::Broken;
