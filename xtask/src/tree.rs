//! Where the tree lies.

use std::path::{Path, PathBuf};

/// The root of the workspace: the folder that holds `Cargo.lock`.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in a folder of the workspace").to_path_buf()
}
