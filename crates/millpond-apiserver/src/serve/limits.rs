//! Limits on connections: their number, and their time without a request.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Connections at the same time, where the process may have as many files open.
const MAX_CONNECTIONS: usize = 8192;
/// Descriptors that stay free for the store, its compaction, logs and connections that are just being closed.
const RESERVED_DESCRIPTORS: usize = 128;

/// Limits on connections.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at the same time.
    pub total: usize,
    /// Connections of one client address at the same time.
    pub per_address: usize,
    /// Time for the TLS handshake.
    pub handshake: Duration,
    /// Time from the handshake until the first request's header is complete.
    pub first_request: Duration,
    /// Time that a connection may stay without a request after its first one. It may last up to twice as long.
    pub idle: Duration,
    /// Time that a client may read nothing of what is sent to it.
    pub stalled_write: Duration,
}

impl Limits {
    /// The usual limits, for a process that may have `open_files` files open.
    ///
    /// Idle connections are kept as long as Go's HTTP client keeps them. One address gets three quarters of all slots:
    /// clients on one machine share an address, and others must still find a slot.
    pub fn for_open_files(open_files: usize) -> Self {
        let total = open_files.saturating_sub(RESERVED_DESCRIPTORS).clamp(16, MAX_CONNECTIONS);
        Self {
            total,
            per_address: total * 3 / 4,
            handshake: Duration::from_secs(10),
            first_request: Duration::from_secs(10),
            idle: Duration::from_secs(90),
            stalled_write: Duration::from_secs(60),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::for_open_files(current(&getrlimit(Resource::Nofile)))
    }
}

/// Raises the soft limit on open files to the hard one; returns the limit that holds then.
pub fn raise_open_files() -> usize {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(problem) = setrlimit(Resource::Nofile, wanted) {
            tracing::warn!(%problem, "cannot raise the limit on open files");
        }
    }
    current(&getrlimit(Resource::Nofile))
}

fn current(limit: &Rlimit) -> usize {
    limit.current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_stay_within_the_open_files() {
        let of = |open_files| {
            let limits = Limits::for_open_files(open_files);
            (limits.total, limits.per_address)
        };
        assert_eq!(of(1024), (896, 672));
        assert_eq!(of(1 << 20), (8192, 6144));
        assert_eq!(of(usize::MAX), (8192, 6144));
        assert_eq!(of(64), (16, 12));
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let limit = getrlimit(Resource::Nofile);
        let lower = limit.current.or(limit.maximum).map_or(1 << 20, |current| current - 1);
        setrlimit(Resource::Nofile, Rlimit { current: Some(lower), maximum: limit.maximum }).unwrap();
        let raised = raise_open_files();
        assert_eq!(getrlimit(Resource::Nofile).current, limit.maximum);
        assert_eq!(raised, current(&limit).max(current(&Rlimit { current: limit.maximum, maximum: None })));
    }
}
