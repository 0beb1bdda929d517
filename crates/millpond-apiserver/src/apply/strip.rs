//! The fields that no manager owns: what identifies an object, and what the server alone writes.

use std::sync::LazyLock;

use super::fields::FieldSet;

const TOP: [&str; 2] = ["apiVersion", "kind"];
const METADATA: [&str; 9] = [
    "clusterName",
    "creationTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Whether a top-level field never has an owner.
pub(super) fn at_top(name: &str) -> bool {
    TOP.contains(&name)
}

/// Whether a field of the metadata never has an owner.
pub(super) fn in_metadata(name: &str) -> bool {
    METADATA.contains(&name)
}

/// All of them, with `metadata` itself.
pub(super) static FIELDS: LazyLock<FieldSet<'static>> = LazyLock::new(|| {
    let mut set = FieldSet::of(&[&["metadata"]]);
    for name in TOP {
        set = set.union(FieldSet::of(&[&[name]]));
    }
    for name in METADATA {
        set = set.union(FieldSet::of(&[&["metadata", name]]));
    }
    set
});
