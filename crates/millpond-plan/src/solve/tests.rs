//! Plans of small clusters.
