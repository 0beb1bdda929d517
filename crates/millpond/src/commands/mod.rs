//! One module per command.

pub(crate) mod bench;
pub(crate) mod store;
pub(crate) mod up;
