//! Records of Nodepool's protocol: JSON with known keys in a fixed order. Keys that Millpond does not know are kept and
//! written back behind them.

mod component;
mod image;
mod json;
mod node;
mod request;
#[cfg(test)]
mod tests;

pub use component::{Component, ComponentKind, ComponentState, PoolComponent};
pub use image::{BuildState, ImageBuild, ImageUpload, UploadState};
pub use json::Json;
pub use node::{Node, NodeState};
pub use request::{NodeRequest, RequestState};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

/// A record that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// It is too large to be one.
    #[error("`{path}` has {size} bytes, more than {LIMIT_BYTES}")]
    TooLarge {
        /// Where it is.
        path: String,
        /// Its size.
        size: usize,
    },
    /// It is not the JSON that it should be.
    #[error("read `{path}`")]
    Malformed {
        /// Where it is.
        path: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

/// ZooKeeper refuses larger data by default.
pub const LIMIT_BYTES: usize = 1 << 20;

/// Reads a record; `path` is for messages.
pub fn parse<T: DeserializeOwned>(path: &str, data: &[u8]) -> Result<T, RecordError> {
    if data.len() > LIMIT_BYTES {
        return Err(RecordError::TooLarge { path: path.to_owned(), size: data.len() });
    }
    serde_json::from_slice(data).map_err(|source| RecordError::Malformed { path: path.to_owned(), source })
}

/// A record as it is stored.
pub fn to_bytes<T: serde::Serialize>(record: &T) -> Vec<u8> {
    serde_json::to_vec(record).expect("records have text keys and finite numbers")
}

/// An explicit `null` means the default.
fn or_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
