//! Static hosts.
