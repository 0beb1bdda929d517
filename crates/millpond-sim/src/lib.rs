//! Stand-ins for an empty cluster.
