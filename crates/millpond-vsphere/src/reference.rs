//! References to managed objects: `HostSystem:host-21`.

use std::fmt;
use std::sync::Arc;

/// A reference to a managed object of one vCenter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// The type: `HostSystem`, `VirtualMachine` ….
    pub kind: Arc<str>,
    /// The identifier, unique within its vCenter: `host-21`.
    pub id: Arc<str>,
}

impl Reference {
    /// A reference of these parts.
    pub fn new(kind: &str, id: &str) -> Self {
        Self { kind: kind.into(), id: id.into() }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.kind, self.id)
    }
}
